"""Expiry, timeout, and time that nobody could use."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from tests.engine.harness import Rig, pool, spec, total


@pytest.fixture
def rig():
    return Rig(pool(lease_ttl=10 * SECOND))


def running(rig, **changes):
    (task,) = rig.submit(spec(**changes))
    rig.slots(1)
    return task


def test_a_lease_without_heartbeat_expires(rig):
    task = running(rig)
    rig.advance(10 * SECOND - 1)
    assert rig.status(task) == "RUNNING"
    rig.advance(1)
    assert rig.status(task) == "RETRYING"
    assert [abort.reason for abort in rig.aborts] == ["lease expired"]
    assert total(rig, "lease_expiries") == 1


@pytest.mark.parametrize(("early", "lives"), [(1, True), (0, False)])
def test_a_heartbeat_one_nanosecond_early_keeps_it(rig, early, lives):
    task = running(rig)
    lease = rig.lease(task)
    rig.advance(10 * SECOND - early)
    rig.handle(ev.LeaseRenewed(lease.id))
    rig.advance(10 * SECOND - 1)
    assert lease.live == lives


def test_the_timeout_ends_an_attempt_whatever_the_heartbeats(rig):
    task = running(rig, timeout=15 * SECOND)
    for _ in range(14):
        rig.advance(SECOND)
        rig.handle(ev.LeaseRenewed(rig.lease(task).id))
    rig.advance(SECOND)
    assert [abort.reason for abort in rig.aborts] == ["attempt timed out"]
    assert (total(rig, "timeouts"), total(rig, "lease_expiries")) == (1, 0)
    assert rig.engine.tasks.live[task].message == "attempt timed out"


def test_nothing_runs_before_the_release():
    rig = Rig(pool(lease_ttl=10 * SECOND), release=False)
    task = running(rig, timeout=SECOND)
    rig.advance(100 * SECOND)
    assert rig.status(task) == "RUNNING"
    rig.handle(ev.LeasesReleased((rig.lease(task).id,)))
    rig.advance(SECOND)
    assert rig.status(task) == "RETRYING"


def test_a_stopped_process_costs_no_lease(rig):
    task = running(rig, timeout=30 * SECOND)
    rig.now += 40 * SECOND
    rig.handle(ev.Stalled(40 * SECOND))
    rig.handle(ev.TimerFired())
    assert rig.status(task) == "RUNNING"
    rig.advance(10 * SECOND)
    assert rig.status(task) == "RETRYING", "after that the lease is as mortal as before"


def test_a_heartbeat_after_a_stop_counts_from_its_own_time(rig):
    """Not from the time before the stop, and not from a time that the stop moved into the future."""
    task = running(rig)
    rig.now += 40 * SECOND
    rig.handle(ev.Stalled(40 * SECOND))
    rig.advance(5 * SECOND)
    rig.handle(ev.LeaseRenewed(rig.lease(task).id))
    rig.advance(10 * SECOND - 1)
    assert rig.status(task) == "RUNNING"
    rig.advance(1)
    assert rig.status(task) == "RETRYING"


def test_a_heartbeat_after_a_stall_never_shortens_a_lease(rig):
    """The lease was released after the stall and before the engine heard of it: lease time goes back under it."""
    task = running(rig)
    rig.handle(ev.Stalled(9 * SECOND))
    rig.handle(ev.LeaseRenewed(rig.lease(task).id))
    due = rig.lease(task).beat + rig.engine.pools["default"].settings.lease_ttl + rig.engine.leases.excused
    assert rig.engine.next_timeout() == due


def test_a_hanging_commit_parks_expiry_and_timeout(rig):
    task = running(rig, timeout=12 * SECOND)
    rig.advance(5 * SECOND)
    rig.handle(ev.CommitsStalled())
    assert rig.engine.next_timeout() is None
    rig.now += 40 * SECOND
    rig.handle(ev.TimerFired())
    assert rig.status(task) == "RUNNING"
    rig.handle(ev.CommitsResumed(40 * SECOND))
    rig.advance(5 * SECOND - 1)
    assert rig.status(task) == "RUNNING"
    rig.advance(1)
    assert [abort.reason for abort in rig.aborts] == ["lease expired"]


def test_ended_leases_leave_no_timers(rig):
    for _ in range(300):
        task = running(rig)
        rig.complete(task)
    assert rig.engine.next_timeout() is None


def test_lease_ids_are_never_used_twice(rig):
    task = running(rig)
    first = rig.lease(task).id
    rig.fail(task)
    rig.advance(SECOND)
    assert rig.lease(task).id > first
