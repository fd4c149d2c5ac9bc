"""Fixed starts after a restart: they come back scheduled, due, or missed, and with their reservations."""

from itertools import pairwise

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.settings import Settings
from cronoq_sansio.spec import MissPolicy, TaskStatus
from tests.engine.harness import START, attempts, pool, spec
from tests.engine.test_recovery import Site

HOUR = 3_600 * SECOND


def at(seconds):
    return START + round(seconds * SECOND)


def test_a_scheduled_task_is_scheduled_again():
    site = Site(pool(max=2))
    (task,) = site.rig.submit(spec(start=at(100)))
    rig = site.crash(after=50 * SECOND)
    assert rig.status(task) == "SCHEDULED"
    assert rig.refused(spec(start=at(100))).code is Code.RESERVATION_CONFLICT
    rig.slots(1)
    rig.advance(50 * SECOND)
    assert rig.engine.tasks.live[task].first_started == at(100)


@pytest.mark.parametrize(
    ("policy", "down", "status"),
    [
        (MissPolicy.RUN_LATE, 200, "READY"),
        (MissPolicy.SKIP, 100, "READY"),
        (MissPolicy.SKIP, 101, "READY"),
        (MissPolicy.SKIP, 102, "MISSED"),
        (MissPolicy.FAIL, 102, "FAILED"),
    ],
)
def test_the_miss_policy_applies_before_the_first_dispatch(policy, down, status):
    site = Site()
    (task,) = site.rig.submit(spec(start=at(100), on_miss=policy))
    rig = site.crash(after=down * SECOND)
    assert rig.status(task) == status
    if status == "READY":
        rig.slots(1)
        assert rig.status(task) == "RUNNING"
    else:
        assert site.store.states[task].status == TaskStatus[status], "durably"


def test_a_blocked_one_is_missed_as_well_and_its_children_hear_of_it():
    site = Site()
    site.rig.submit(spec("parent"))
    (child,) = site.rig.submit(spec("child", start=at(10), deps=["parent"], on_miss=MissPolicy.SKIP))
    (grandchild,) = site.rig.submit(spec(deps=["child"]))
    rig = site.crash(after=20 * SECOND)
    rig.advance(0)
    assert (rig.status(child), rig.status(grandchild)) == ("MISSED", "SKIPPED")


def test_one_that_had_started_is_never_missed():
    site = Site()
    site.rig.slots(1)
    (task,) = site.rig.submit(spec(start=at(10), on_miss=MissPolicy.SKIP))
    site.rig.advance(10 * SECOND)
    rig = site.crash(after=100 * SECOND)
    assert rig.status(task) == "RETRYING"
    rig.slots(1)
    rig.advance(SECOND)
    assert rig.lease(task).attempt == 2


def test_the_last_attempt_of_a_fixed_start_gives_its_reservation_back():
    site = Site(pool(max=2))
    site.rig.slots(1)
    (task,) = site.rig.submit(spec(start=at(10), retry=attempts(1), duration_hint=1000 * SECOND))
    site.rig.advance(10 * SECOND)
    rig = site.crash()
    assert rig.status(task) == "DEAD_LETTERED"
    rig.submit(spec(start=at(500)))


def test_a_smaller_calendar_takes_in_what_is_there_and_nothing_more():
    site = Site(pool(max=10))
    tasks = site.rig.submit(*(spec(start=at(100)) for _ in range(5)))
    rig = site.crash(settings=Settings(pools=(pool(max=2),)))
    assert [rig.status(task) for task in tasks] == ["SCHEDULED"] * 5
    assert rig.engine.snapshot(rig.now).pools[0].reservations == 5
    assert rig.refused(spec(start=at(100))).code is Code.RESERVATION_CONFLICT


def test_a_start_whose_pool_is_gone_ends_as_failed():
    site = Site(pool(), pool("other"))
    (task,) = site.rig.submit(spec(start=at(100), pool="other"))
    rig = site.crash(settings=Settings(pools=(pool(),)))
    assert rig.status(task) == "FAILED"
    assert rig.engine.statistics()["fixed_starts"] == 0


def test_another_hosts_clock_says_whether_the_start_has_come():
    site = Site()
    (task,) = site.rig.submit(spec(start=at(100)))
    rig = site.crash(wall_offset=500 * SECOND)
    assert rig.status(task) == "READY"


def test_a_retry_is_ready_although_the_clock_has_gone_back_behind_its_start():
    site = Site()
    site.rig.slots(1)
    (task,) = site.rig.submit(spec(start=at(10)))
    site.rig.advance(10 * SECOND)
    site.rig.handle(ev.WallClockMoved(-HOUR))
    site.rig.fail(task)
    rig = site.crash(after=2 * SECOND, wall_offset=-HOUR)
    rig.slots(1)
    assert rig.status(task) == "RUNNING"


def test_many_missed_ones_end_before_anything_starts():
    site = Site(pool(max=10_000, reservable_fraction=1.0))
    tasks = site.rig.submit(*(spec(start=at(10), on_miss=MissPolicy.SKIP) for _ in range(2 * MAX_UNITS + 1)))
    rig = site.crash(after=20 * SECOND)
    assert {rig.status(task) for task in tasks} == {"MISSED"}
    rig.slots(1)
    assert not rig.leases


def test_missed_ones_end_in_portions():
    """A portion is never longer than a step may be, however many were missed, and `begin` is not longer for them."""
    site = Site()
    site.rig.submit(*(spec(start=at(10), duration_hint=0, tolerance=0, on_miss=MissPolicy.SKIP) for _ in range(50)))
    ids = {"first_task_id": 100, "first_lease_id": 1}
    engine = Engine.recover(site.rig.settings, now=at(20), wall_offset=0, seed=1, **ids)
    engine.load(site.store.rows(0))
    missed = [0]
    while engine._recovery.settle(7):
        missed.append(engine.totals.missed)
    assert max(after - before for before, after in pairwise([*missed, engine.totals.missed])) == 7
    assert not engine.tasks.live
    assert len(engine.begin(at(20)).writes) == 50


def test_a_dispatch_that_was_taken_back_goes_through_its_policy_again():
    site = Site()
    site.rig.release = False
    site.rig.slots(1)
    (task,) = site.rig.submit(spec(start=at(10), on_miss=MissPolicy.SKIP))
    site.rig.advance(10 * SECOND)
    lease = site.rig.lease(task)
    site.rig.handle(ev.GroupCapacitySet("default", (), 0), ev.DispatchReturned(lease.id))
    rig = site.crash(after=SECOND + 1)
    assert rig.status(task) == "MISSED"
