"""Named cases of fixed times, played by engine and model together: what was said, and when."""

from datetime import UTC, datetime

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.sim.lockstep.world import Committed, World
from cronoq_sansio.spec import MissPolicy, Overlap, RecurringSpec
from tests.engine.harness import spec

NEW_YORK = "America/New_York"


def at(text):
    """Unix nanoseconds of a moment in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def world_at(text):
    """A world that begins then, whose only pool has two slots."""
    world = World(Settings(pools=(PoolSettings("a", reservable_fraction=1.0),)), now=at(text))
    world.handle(ev.GroupCapacitySet("a", (), 2))
    return world


def put(world, cron, zone="", *, overlap=Overlap.ALLOW, on_miss=MissPolicy.RUN_LATE, **zones):
    """Add a schedule, durably."""
    template = spec(pool="a", kind="", key="due", on_miss=on_miss)
    world.handle(ev.RecurringPut("put", RecurringSpec("s", cron, zone, template, overlap.value, **zones)))
    world.do(Committed())


def said_in(world, lines_before=0):
    """What was said since, without the deeds."""
    return [line.strip() for line in world.lines[lines_before:] if line.startswith("        ") and "commit" not in line]


def starts(world):
    """The fixed starts of every task that was ever stored, in UTC."""
    found = sorted(row.spec.scheduling.start for row in world.rows.inserted.values())
    return [datetime.fromtimestamp(start // SECOND, UTC).strftime("%m-%dT%H:%M:%SZ") for start in found]


def test_a_short_outage_over_a_fire_makes_it_late_by_a_second():
    world = world_at("2027-06-01T09:59:50")
    put(world, "0 10 * * *")
    world.now = at("2027-06-01T09:59:58")
    before = len(world.lines)
    world.crash(3 * SECOND)
    world.handle(ev.GroupCapacitySet("a", (), 2))
    world.wait(0)
    task = next(iter(world.rows.inserted))
    assert said_in(world, before) == [f"dispatched {task} 1 {world.model.next_lease - 1} ()"]
    assert starts(world) == ["06-01T10:00:00Z"]
    assert world.rows.inserted[task].spec.key == "due@2027-06-01T10:00:00Z"
    assert world.engine.tasks.live[task].first_started - at("2027-06-01T10:00:00") == SECOND


def test_three_hours_of_outage_make_one_late_fire():
    world = world_at("2027-06-01T00:00:01")
    put(world, "*/5 * * * *")
    before = len(world.lines)
    world.crash(3 * 3_600 * SECOND + 59 * SECOND)
    world.handle(ev.GroupCapacitySet("a", (), 2))
    world.wait(0)
    first, last = at("2027-06-01T00:05:00"), at("2027-06-01T02:55:00")
    task = next(iter(world.rows.inserted))
    assert said_in(world, before) == [
        f"dropped s missed {first} {last} 35 False",
        f"dispatched {task} 1 {world.model.next_lease - 1} ()",
    ]
    assert starts(world) == ["06-01T03:00:00Z"]
    world.wait(4 * 60 * SECOND)
    assert starts(world) == ["06-01T03:00:00Z", "06-01T03:05:00Z"]


def test_without_run_late_an_outage_makes_nothing():
    world = world_at("2027-06-01T00:00:01")
    put(world, "* * * * * *", on_miss=MissPolicy.SKIP)
    world.crash(100 * SECOND + SECOND // 2)
    before = len(world.lines)
    world.wait(0)
    dropped = said_in(world, before)[0].split()
    assert dropped[:3] == ["dropped", "s", "missed"] and dropped[5:] == ["64", "True"]
    assert starts(world)[0] == "06-01T00:01:41Z"  # still within its tolerance


def test_every_second_with_overlap_skip_never_has_two_running():
    world = world_at("2027-06-01T00:00:00")
    put(world, "* * * * * *", overlap=Overlap.SKIP)
    ends, ran = {}, 0
    for _ in range(240):
        world.wait(SECOND // 4)
        fresh = tuple(lease.id for lease in world.model.leases if not lease.held)
        if fresh:
            world.handle(ev.LeasesReleased(fresh))
            ends |= dict.fromkeys(fresh, world.now + 5 * SECOND // 2)
            ran += len(fresh)
        assert len(world.model.leases) <= 1
        for lease in [lease for lease, end in ends.items() if end <= world.now]:
            del ends[lease]
            world.handle(ev.AttemptSucceeded(lease, b"", ""))
    assert ran == 20  # one in three seconds
    assert world.model.dropped["overlap"] == pytest.approx(40, abs=2)


@pytest.mark.parametrize(
    ("begin", "cron", "zones", "days", "expected"),
    [
        ("2027-03-13T06:00:00", "30 2 * * *", {}, 3, ["03-13T07:30:00Z", "03-14T07:00:00Z", "03-15T06:30:00Z"]),
        ("2027-03-13T06:00:00", "30 2 * * *", {"gap": "skip"}, 3, ["03-13T07:30:00Z", "03-15T06:30:00Z"]),
        ("2027-11-07T04:00:00", "30 1 * * *", {}, 1, ["11-07T05:30:00Z"]),
        ("2027-11-07T04:00:00", "30 1 * * *", {"fold": "last"}, 1, ["11-07T06:30:00Z"]),
        ("2027-11-07T04:00:00", "30 1 * * *", {"fold": "both"}, 1, ["11-07T05:30:00Z", "11-07T06:30:00Z"]),
    ],
)
def test_day_light_saving_in_new_york(begin, cron, zones, days, expected):
    """The process dies in the middle of it, too."""
    for crashes in (False, True):
        world = world_at(begin)
        put(world, cron, NEW_YORK, **zones)
        for _ in range(days * 8 - 1):
            world.wait(3 * 3_600 * SECOND)
            world.do(Committed())
            if crashes:
                world.crash(0)
                world.handle(ev.GroupCapacitySet("a", (), 2))
        assert starts(world) == expected
        assert (("fire", "moved") in world.model.notes) == ("03-14T07:00:00Z" in expected)
        assert (("fire", "left out by the clocks") in world.model.notes) == ("gap" in zones)
