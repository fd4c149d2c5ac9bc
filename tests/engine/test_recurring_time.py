"""Recurring schedules and time: fires that passed, clocks that jump, many that are due at once."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.limits import FIRE_UNITS, MAX_COUNTED_FIRES, MAX_UNITS
from cronoq_sansio.spec import MissPolicy, Overlap
from tests.engine.harness import Rig, pool, spec
from tests.engine.schedules import HOUR, MINUTE, NINE, drops, live, put, schedule, to, view

TEN = NINE + HOUR
RUN_LATE, SKIP, FAIL = (int(policy) for policy in MissPolicy)
FIVE = "*/5 * * * *"


def missed(*times, more=False):
    """What is dropped."""
    return [("missed", times[0], times[-1], len(times), more)] if times else []


# --- fires that passed


@pytest.mark.parametrize(
    ("cron", "tolerance", "policy", "until", "made", "lost"),
    [
        pytest.param("0 10 * * *", 1, RUN_LATE, TEN + SECOND, TEN, (), id="within its tolerance"),
        pytest.param("0 10 * * *", 1, SKIP, TEN + SECOND, TEN, (), id="within its tolerance, whatever the policy"),
        pytest.param("0 10 * * *", 1, RUN_LATE, TEN + SECOND + 1, TEN, (), id="late, and runs late"),
        pytest.param("0 10 * * *", 1, SKIP, TEN + SECOND + 1, None, (TEN,), id="late, and is skipped"),
        pytest.param("0 10 * * *", 1, FAIL, TEN + SECOND + 1, None, (TEN,), id="late, and is not made to fail"),
        pytest.param("0 10 * * *", 0, SKIP, TEN, TEN, (), id="no tolerance, in time"),
        pytest.param("0 10 * * *", 0, SKIP, TEN + 1, None, (TEN,), id="no tolerance, late"),
        pytest.param(
            FIVE, 1, RUN_LATE, NINE + 18 * MINUTE, NINE + 15 * MINUTE, (5, 10), id="only the latest one runs late"
        ),
        pytest.param(FIVE, 1, SKIP, NINE + 18 * MINUTE, None, (5, 10, 15), id="all of them are missed"),
        pytest.param(FIVE, 1, SKIP, NINE + 15 * MINUTE, NINE + 15 * MINUTE, (5, 10), id="the latest one is in time"),
        pytest.param(
            FIVE, 180, SKIP, NINE + 18 * MINUTE, NINE + 15 * MINUTE, (5, 10), id="the latest one is just tolerated"
        ),
        pytest.param(
            FIVE, 200, SKIP, NINE + 18 * MINUTE, NINE + 15 * MINUTE, (5, 10), id="the latest one is tolerated"
        ),
    ],
)
def test_fires_that_passed(cron, tolerance, policy, until, made, lost):
    rig = Rig(now=NINE)
    put(rig, schedule(cron=cron, tolerance=tolerance * SECOND, on_miss=policy, overlap=Overlap.ALLOW))
    rig.now = until
    rig.handle(ev.TimerFired())
    starts = [start for start, _ in live(rig) if start <= until]
    assert starts == ([] if made is None else [made])
    assert drops(rig) == missed(*(NINE + time * MINUTE if time < 100 else time for time in lost))
    assert sum(rig.engine.recurring.dropped.values()) == len(lost)
    upcoming = view(rig).next
    assert upcoming is not None and upcoming > until, "it goes on from the present"


@pytest.mark.parametrize(("late", "made"), [(0, [5]), (1, [])])
def test_a_fire_is_missed_strictly_later_than_its_tolerance(late, made):
    rig = Rig(now=NINE)
    put(rig, schedule(cron=FIVE, tolerance=4 * MINUTE, on_miss=SKIP, overlap=Overlap.ALLOW))
    rig.now = NINE + 9 * MINUTE + late
    rig.handle(ev.TimerFired())
    assert [(start - NINE) // MINUTE for start, _ in live(rig) if start <= rig.now] == made
    assert len(rig.drops) == late


def test_one_that_is_made_at_its_very_start_overlaps_as_well():
    rig = Rig(pool(lease_ttl=HOUR), now=NINE)
    rig.slots(9)
    put(rig, schedule(cron=FIVE))
    to(rig, NINE + 5 * MINUTE)
    (first,) = live(rig)
    rig.now = NINE + 10 * MINUTE
    rig.handle(ev.TimerFired())
    assert live(rig) == [first]
    assert drops(rig) == [("overlap", NINE + 10 * MINUTE, NINE + 10 * MINUTE, 1, False)]


def test_of_several_that_passed_the_latest_runs_alone_however_long_the_tolerance():
    rig = Rig(now=NINE)
    put(rig, schedule(cron=FIVE, tolerance=HOUR, overlap=Overlap.ALLOW))
    rig.now += 18 * MINUTE
    rig.handle(ev.TimerFired())
    assert [start for start, _ in live(rig)] == [NINE + time * MINUTE for time in (15, 20)]
    assert drops(rig) == [("missed", NINE + 5 * MINUTE, NINE + 10 * MINUTE, 2, False)]


def test_late_ones_overlap_as_well():
    rig = Rig(now=NINE)
    put(rig, schedule(cron=FIVE, tolerance=HOUR))
    to(rig, NINE + 5 * MINUTE - 1)
    rig.now = NINE + 18 * MINUTE
    rig.handle(ev.TimerFired())
    assert [start for start, _ in live(rig)] == [NINE + 5 * MINUTE, NINE + 20 * MINUTE]
    assert [drop.reason for drop in rig.drops] == ["missed", "overlap"]
    assert rig.status(2) == "SKIPPED"
    assert rig.ended[2].task.message == "an earlier occurrence, task 1, is still going (overlap = skip)"


def test_very_many_fires_are_not_counted_one_by_one():
    rig = Rig(now=NINE)
    put(rig, schedule("late", cron="* * * * * *"), schedule("never", cron="* * * * * *", on_miss=SKIP, tolerance=0))
    rig.now = TEN + SECOND // 2
    rig.handle(ev.TimerFired())
    late, never = sorted(rig.drops, key=lambda drop: drop.name)
    assert (late.first, late.last, late.count, late.more) == (
        NINE + SECOND,
        TEN - SECOND,
        MAX_COUNTED_FIRES,
        True,
    ), "the one before the latest one, which is tolerated, is the last that is dropped"
    assert (never.first, never.last, never.count, never.more) == (NINE + SECOND, TEN, MAX_COUNTED_FIRES, True)
    assert rig.engine.recurring.dropped["missed"] == 2 * MAX_COUNTED_FIRES
    assert "2027-03-10T10:00:00Z runs" in late.detail and "on_miss is skip" in never.detail


def test_exactly_as_many_as_are_counted():
    rig = Rig(now=NINE)
    put(rig, schedule(cron="* * * * *", on_miss=SKIP))
    rig.now += MAX_COUNTED_FIRES * MINUTE + 30 * SECOND
    rig.handle(ev.TimerFired())
    (drop,) = rig.drops
    assert (drop.last, drop.count, drop.more) == (NINE + MAX_COUNTED_FIRES * MINUTE, MAX_COUNTED_FIRES, False)


# --- clocks that jump


def move_clock(rig, seconds):
    rig.handle(ev.WallClockMoved(rig.engine.wall_offset + seconds * SECOND))


def test_a_schedule_follows_the_wall_clock():
    """A host that was suspended: its monotonic clock stood still, the wall clock did not (server.md 14.42)."""
    rig = Rig(now=NINE)
    rig.slots(1)
    put(rig, schedule())
    move_clock(rig, 3_600)
    assert rig.engine.next_timeout() <= rig.now, "due at once"
    rig.advance(0)
    ((start, task),) = live(rig)
    assert start == TEN and rig.status(task) == "RUNNING"
    rig.complete(task)
    move_clock(rig, -1_800)
    rig.advance(29 * MINUTE)
    assert not live(rig) and view(rig).next == TEN + 24 * HOUR, "nothing is made again"


def test_a_clock_that_goes_back_and_a_schedule_that_is_changed_repeat_nothing():
    rig = Rig(now=NINE)
    rig.slots(1)
    put(rig, schedule())
    to(rig, TEN)
    rig.complete(live(rig)[0][1])
    move_clock(rig, -600)
    put(rig, schedule(kind="changed"))
    to(rig, TEN + MINUTE)
    assert not live(rig) and view(rig).next == TEN + 24 * HOUR


def test_a_clock_that_goes_back_delays_what_is_to_come():
    rig = Rig(now=NINE)
    put(rig, schedule())
    rig.advance(59 * MINUTE)
    move_clock(rig, -1_800)
    rig.advance(30 * MINUTE)
    assert not live(rig)
    to(rig, TEN)
    assert len(live(rig)) == 1


def test_a_clock_that_goes_back_while_an_occurrence_is_ahead_makes_none_again():
    rig = Rig(now=NINE)
    rig.slots(1)
    put(rig, schedule(cron="* * * * *"))
    to(rig, NINE + MINUTE - SECOND)
    ((start, first),) = live(rig)
    move_clock(rig, -50)
    rig.advance(50 * SECOND)
    assert live(rig) == [(start, first)] and rig.status(first) == "SCHEDULED"
    to(rig, start)
    assert rig.status(first) == "RUNNING"


def test_steps_back_and_forth_make_no_fire_twice():
    rig = Rig(now=NINE)
    rig.slots(9)
    put(rig, schedule(cron="*/7 * * * * *", overlap=Overlap.ALLOW))
    started: list[int] = []
    for step in (0, 30, -45, 3, 60, -61, 20, 0, -5, 100):
        move_clock(rig, step)
        rig.advance(13 * SECOND)
        for start, task in live(rig):
            if rig.status(task) == "RUNNING":
                started.append(start)
                rig.complete(task)
    assert started == sorted(set(started)) and len(started) > 5
    assert all(start % MINUTE % (7 * SECOND) == 0 for start in started)


# --- many at once, and what holds them back


def test_only_so_many_are_made_in_one_step_by_due_time_and_name():
    rig = Rig(now=NINE)
    names = [f"n{number:03}" for number in range(120)]
    put(rig, *(schedule(name) for name in reversed(names)), schedule("zz-first", "59 9 * * *"))
    rig.now = TEN - SECOND
    made: list[list[str]] = []
    for _ in range(3):
        step = rig.handle(ev.TimerFired())
        made.append([record.name for record in step.writes if hasattr(record, "last_task")])
        assert (rig.engine.next_timeout() <= rig.now) == (len(made) < 3), "the rest is due now"
    most = MAX_UNITS // FIRE_UNITS
    assert [len(part) for part in made] == [most, most - 1, 121 - 2 * most + 1], "other timers have their share"
    assert [name for part in made for name in part] == ["zz-first", *names]


def test_what_was_made_is_due_again_in_its_turn():
    """Each fires twice here: `b` and `c` after the first one of `a`, before its second one."""
    rig = Rig(now=NINE)
    put(
        rig,
        schedule("b", FIVE, tolerance=HOUR, overlap=Overlap.ALLOW),
        schedule("a", FIVE, tolerance=HOUR, overlap=Overlap.ALLOW),
    )
    rig.now += 7 * MINUTE
    step = rig.handle(ev.TimerFired())
    made = [record.name for record in step.writes if hasattr(record, "last_task")]
    assert made == ["a", "b", "a", "b"]


def test_missed_fires_cost_more():
    rig = Rig(now=NINE)
    put(rig, *(schedule(f"n{number}", "* * * * * *") for number in range(30)))
    rig.now = TEN
    step = rig.handle(ev.TimerFired())
    made = [record.name for record in step.writes if hasattr(record, "last_task")]
    assert 0 < len(made) <= MAX_UNITS // (FIRE_UNITS + MAX_COUNTED_FIRES) + 1


def test_nothing_fires_while_dispatch_is_held():
    rig = Rig(now=NINE)
    put(rig, schedule())
    rig.handle(ev.DispatchHeld(True))
    assert rig.engine.next_timeout() is None
    rig.now = TEN
    rig.handle(ev.TimerFired())
    assert not live(rig)
    rig.handle(ev.DispatchHeld(False))
    rig.advance(0)
    assert len(live(rig)) == 1


def test_a_lead_that_has_grown_meanwhile_counts_at_once():
    """In the same step as the run that was so long, and in a pool that never had a fixed start."""
    rig = Rig(pool(default_duration=0, lease_ttl=2 * HOUR), now=NINE)
    rig.slots(1)
    put(rig, schedule(tolerance=0))
    (task,) = rig.submit(spec())
    rig.now = TEN - 100 * SECOND
    lease = rig.lease(task).id
    rig.handle(ev.AttemptSucceeded(lease, b"", ""), ev.TimerFired())
    assert len(live(rig)) == 1


def test_each_pool_has_its_own_lead():
    rig = Rig(pool("a", default_duration=10 * SECOND), pool("b", default_duration=60 * SECOND), now=NINE)
    put(rig, schedule("in a", pool="a"), schedule("in b", pool="b"))
    to(rig, TEN - 61 * SECOND)
    assert len(live(rig, "in b")) == 1 and not live(rig, "in a")
    assert rig.engine.next_timeout() == TEN - 60 * SECOND, "the hold of that one"
    to(rig, TEN - 11 * SECOND)
    assert len(live(rig, "in a")) == 1


def test_a_lead_that_has_shrunk_meanwhile_puts_it_off():
    """It waits for the start before; with the shorter lead its own time comes later than that."""
    rig = Rig(pool(default_duration=200 * SECOND), now=NINE)
    rig.slots(2)
    put(rig, schedule(cron="*/2 * * * *", tolerance=0))
    to(rig, NINE + 1)
    ((first, task),) = live(rig)
    assert first == NINE + 2 * MINUTE, "200 s ahead: at once"
    (other,) = rig.submit(spec())
    rig.complete(other)
    to(rig, first + SECOND)
    assert [start for start, _ in live(rig)] == [first], "runs take no time: the next one is made at its start"
    rig.complete(task)
    to(rig, first + 2 * MINUTE - 1)
    assert not live(rig)
    to(rig, first + 2 * MINUTE)
    assert len(live(rig)) == 1
