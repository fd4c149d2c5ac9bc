"""A refused lease passes to any group with room that the service names, attempt unchanged (engine.md section 6)."""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from tests.engine.harness import Rig, pool, spec, total

GPU = (("gpu", "yes"),)
BIG = (("gpu", "yes"), ("size", "big"))


def nacked(rig, task, *groups):
    rig.handle(ev.AttemptNacked(rig.lease(task).id, "busy", groups))


def test_passes_to_another_group_with_the_same_lease_and_attempt():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(1)
    lease = rig.lease(task)
    rig.slots(1, GPU)
    nacked(rig, task, GPU)
    assert rig.lease(task) is lease and lease.attempt == 1 and lease.group == GPU
    assert rig.leases == [lease, lease], "it is dispatched again"
    assert total(rig, "dispatched") == 1


def test_the_least_labelled_group_wins_then_the_freer_one():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.slots(1, BIG)
    rig.slots(1, GPU)
    nacked(rig, task, BIG, GPU)
    assert rig.lease(task).group == GPU


def test_within_the_same_group():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(2)
    nacked(rig, task, ())
    assert rig.status(task) == "RUNNING" and len(rig.leases) == 2


def test_a_draining_worker_that_loses_its_slot_in_the_same_step():
    """It ran more than it offered, so the slot goes with the lease; the other worker of the group has room."""
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(2)
    lease = rig.lease(task)
    lower = ev.GroupCapacitySet("default", (), 1)
    rig.handle(lower, ev.AttemptNacked(lease.id, "busy", ((),)))
    assert rig.status(task) == "RUNNING" and rig.lease(task) is lease and lease.attempt == 1


def test_the_slot_that_was_refused_is_free_for_others():
    rig = Rig()
    first, second = rig.submit(spec(), spec())
    rig.slots(1)
    rig.slots(1, GPU)
    third = rig.submit(spec())[0]
    rig.complete(second)
    rig.complete(third)
    nacked(rig, first, GPU)
    (fourth,) = rig.submit(spec())
    assert rig.lease(first).group == GPU and rig.lease(fourth).group == ()


def test_whoever_waits_for_the_slot_that_was_refused_starts_at_once():
    rig = Rig()
    rig.slots(1, GPU)
    first, second = rig.submit(spec(), spec(labels=dict(GPU)))
    rig.slots(1)
    assert rig.status(second) == "READY"
    nacked(rig, first, ())
    assert rig.lease(first).group == () and rig.lease(second).group == GPU


def test_without_a_group_the_attempt_fails_with_the_reason():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(1)
    nacked(rig, task)
    assert rig.status(task) == "RETRYING"
    assert rig.engine.tasks.live[task].message == "refused by every worker with a free slot: busy"


def test_ttl_starts_anew_and_the_timeout_goes_on():
    rig = Rig(pool(lease_ttl=10 * SECOND))
    (task,) = rig.submit(spec(timeout=12 * SECOND))
    rig.slots(2)
    rig.advance(9 * SECOND)
    nacked(rig, task, ())
    rig.advance(2 * SECOND)
    assert rig.status(task) == "RUNNING", "the ttl of the first worker no longer counts"
    rig.advance(1 * SECOND)
    assert [abort.reason for abort in rig.aborts] == ["attempt timed out"]
