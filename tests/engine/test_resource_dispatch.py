"""Semaphores and token buckets under the engine (engine.md section 8)."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import engine
from cronoq_sansio.engine import events as ev
from cronoq_sansio.settings import ResourceSettings
from cronoq_sansio.spec import Priority, RetryPolicy
from tests.engine.harness import Rig, attempts, pool, spec

DB = ResourceSettings("db", "semaphore", permits=1)
BIG = ResourceSettings("big", "semaphore", permits=5)
API = ResourceSettings("api", "token_bucket", rate=2 / 3, burst=2)


def needs(priority=Priority.NORMAL, *, pool="default", labels=None, **units):
    return spec(priority=priority, pool=pool, labels=labels, resources=units)


def rig_with(*resources, pools=(), **changes):
    return Rig(*(pools or (pool(lease_ttl=10**6 * SECOND, max_pending=10_000, **changes),)), resources=resources)


def test_a_semaphore_of_one_runs_one_at_a_time_and_plain_tasks_go_on():
    rig = rig_with(DB)
    rig.slots(3)
    first, second, plain = rig.submit(needs(db=1), needs(db=1), spec())
    assert rig.order() == [first, plain]
    assert rig.engine.tasks.live[second].attempt == 0
    rig.complete(first)
    assert rig.order() == [first, plain, second]


def test_a_dead_holder_frees_its_permit_once():
    rig = rig_with(DB)
    rig.slots(2)
    first, second, third = rig.submit(*(needs(db=1) for _ in range(3)))
    rig.handle(ev.GroupCapacitySet("default", (), 2), ev.LeasesLost((rig.lease(first).id,), "worker disconnected"))
    assert rig.order() == [first, second]
    rig.advance(SECOND)
    assert rig.order() == [first, second]
    rig.complete(second)
    assert rig.order() == [first, second, third]
    assert rig.status(first) == "READY"


def test_a_stale_report_changes_no_use():
    rig = rig_with(DB)
    rig.slots(2)
    first, second = rig.submit(needs(db=1), needs(db=1))
    old = rig.lease(first).id
    rig.fail(first, permanent=True)
    assert rig.order() == [first, second]
    third = rig.submit(needs(db=1))[0]
    rig.handle(ev.AttemptSucceeded(old, b"", ""))
    assert rig.order() == [first, second]
    assert rig.engine.snapshot(rig.now).totals["stale_completions"] == 1
    rig.complete(second)
    assert rig.order() == [first, second, third]


def test_all_units_or_none():
    rig = rig_with(DB, BIG)
    rig.slots(5)
    holder, both, alone = rig.submit(needs(db=1), needs(db=1, big=5), needs(big=5))
    assert rig.order() == [holder, alone]
    rig.complete(holder)
    assert rig.order() == [holder, alone]
    rig.complete(alone)
    assert rig.order() == [holder, alone, both]


def test_first_come_first_served_over_pools_whatever_the_class():
    rig = rig_with(DB, pools=(pool("a"), pool("b")))
    rig.slots(2, name="a")
    rig.slots(2, name="b")
    holder, low = rig.submit(needs(pool="a", db=1), needs(Priority.LOW, pool="b", db=1))
    (critical,) = rig.submit(needs(Priority.CRITICAL, pool="a", db=1))
    rig.complete(holder)
    assert rig.order() == [holder, low]
    rig.complete(low)
    assert rig.order() == [holder, low, critical]


def test_a_waiter_without_a_slot_does_not_keep_units_from_others():
    rig = rig_with(DB, pools=(pool("a"), pool("b")))
    rig.slots(1, name="a")
    rig.slots(1, name="b")
    (holder,) = rig.submit(needs(pool="b", db=1))
    (waiter,) = rig.submit(needs(Priority.LOW, pool="a", db=1))
    (busy,) = rig.submit(spec(pool="a"))
    assert rig.order() == [holder, busy]
    rig.complete(holder)
    (other,) = rig.submit(needs(pool="b", db=1))
    assert rig.order() == [holder, busy, other]
    rig.complete(other)
    rig.complete(busy)
    assert rig.order() == [holder, busy, other, waiter]


def test_a_called_task_outscored_in_its_pool_waits_on_with_its_place():
    rig = rig_with(DB, pools=(pool("a"), pool("b")))
    rig.slots(1, name="a")
    rig.slots(2, name="b")
    (holder,) = rig.submit(needs(pool="b", db=1))
    (waiter,) = rig.submit(needs(Priority.LOW, pool="a", db=1))
    (second,) = rig.submit(needs(pool="b", db=1))
    (high,) = rig.submit(spec(pool="a", priority=Priority.HIGH))
    next_high = rig.submit(spec(pool="a", priority=Priority.HIGH))[0]
    rig.handle(ev.AttemptSucceeded(rig.lease(high).id, b"", ""), ev.AttemptSucceeded(rig.lease(holder).id, b"", ""))
    assert rig.order() == [holder, high, next_high, second]
    rig.complete(second)
    rig.complete(next_high)
    assert rig.order() == [holder, high, next_high, second, waiter]


def test_a_bucket_of_two_per_three_seconds_for_ever():
    """Ten tasks: the last starts between 12 and 13.5 s; again and again, whatever the pauses."""
    rig = rig_with(API)
    rig.slots(20)
    for pause in (0, 1, 1_000_000, 7):
        rig.advance(max(pause, 3) * SECOND)
        start = rig.now
        ids = rig.submit(*(needs(api=1) for _ in range(10)))
        started = {}
        while len(started) < 10:
            due = rig.engine.next_timeout()
            assert due is not None, "the timer was lost"
            for task in sorted(set(ids) - set(started)):
                if rig.status(task) == "RUNNING":
                    started[task] = rig.now - start
            rig.advance(max(due - rig.now, 0))
            for task in sorted(set(ids) - set(started)):
                if rig.status(task) == "RUNNING":
                    started[task] = rig.now - start
        assert list(started) == sorted(started)
        assert 12 * SECOND <= started[ids[-1]] <= 13.5 * SECOND
        for task in ids:
            rig.complete(task)


def test_a_task_without_a_token_keeps_attempt_0():
    rig = rig_with(ResourceSettings("api", "token_bucket", rate=0.001, burst=1))
    rig.slots(5)
    _, second = rig.submit(needs(api=1), needs(api=1))
    rig.advance(500 * SECOND)
    task = rig.engine.tasks.live[second]
    assert task.attempt == 0 and rig.status(second) == "READY"
    rig.advance(501 * SECOND)
    assert task.attempt == 1


def test_a_dispatch_taken_back_returns_its_units():
    rig = Rig(pool(lease_ttl=10**6 * SECOND), resources=(API, DB), release=False)
    rig.slots(1)
    (task,) = rig.submit(needs(api=2, db=1))
    lease = rig.lease(task)
    rig.handle(ev.GroupCapacitySet("default", (), 0), ev.DispatchReturned(lease.id))
    assert rig.status(task) == "READY" and rig.engine.tasks.live[task].attempt == 0
    rig.slots(1)
    assert rig.lease(task).attempt == 1


def test_a_retry_needs_new_tokens_and_waits_behind_those_who_waited():
    rig = rig_with(ResourceSettings("api", "token_bucket", rate=0.1, burst=1))
    rig.slots(5)
    first, second = rig.submit(needs(api=1), needs(api=1))
    rig.fail(first)
    rig.advance(SECOND)
    assert rig.order() == [first]
    rig.advance(9 * SECOND)
    assert rig.order() == [first, second]
    rig.advance(10 * SECOND)
    assert rig.order() == [first, second, first]


def test_a_limit_below_its_use_starts_nothing_until_it_fits():
    rig = rig_with(BIG)
    rig.slots(10)
    ids = rig.submit(*(needs(big=1) for _ in range(7)))
    rig.handle(ev.ResourceLimitSet(ResourceSettings("big", "semaphore", permits=2)))
    for index in range(3):
        rig.complete(ids[index])
        assert len(rig.leases) == 5
    rig.complete(ids[3])
    assert len(rig.leases) == 6
    rig.handle(ev.ResourceLimitSet(BIG))
    assert len(rig.leases) == 7


def test_units_are_kept_only_for_as_many_tasks_as_have_slots():
    """Three wait for one slot with a label: what two of them would take goes to who came next, not to a newcomer."""
    rig = rig_with(ResourceSettings("db", "semaphore", permits=6), pools=(pool("a"), pool("b")))
    rig.slots(1, name="b")
    (holder,) = rig.submit(needs(pool="b", db=6))
    rig.slots(1, (("gpu", "1"),), name="a")
    rig.slots(2, name="a")
    labelled = rig.submit(*(needs(pool="a", labels={"gpu": "1"}, db=1) for _ in range(3)))
    (waiter,) = rig.submit(needs(pool="a", db=3))
    rig.handle(
        ev.AttemptSucceeded(rig.lease(holder).id, b"", ""), ev.TaskSubmitted(None, needs(Priority.HIGH, pool="a", db=3))
    )
    newcomer = max(rig.engine.tasks.live)
    assert [rig.status(task) for task in (*labelled, waiter, newcomer)] == [
        "RUNNING",
        "READY",
        "READY",
        "RUNNING",
        "READY",
    ]


def test_cancelling_a_waiter_leaves_the_others_their_turn():
    rig = rig_with(DB)
    rig.slots(5)
    holder, second, third = rig.submit(*(needs(db=1) for _ in range(3)))
    rig.handle(ev.TaskCancelled(None, second))
    rig.complete(holder)
    assert rig.order() == [holder, third]
    assert rig.engine.statistics()["parked"] == 0


@pytest.mark.parametrize("count", [1_000])
def test_failures_together_come_back_spread(count):
    """A thousand tasks that fail at one moment draw their delays, so that they do not come back at one moment."""
    rig = Rig(
        pool(retry=RetryPolicy(3, 10 * SECOND, 2.0, 60 * SECOND, True), lease_ttl=10**6 * SECOND, max_pending=10_000)
    )
    rig.slots(count)
    ids = rig.submit(*(spec() for _ in range(count)))
    rig.handle(*(ev.AttemptFailed(rig.lease(task).id, "down", False, 0) for task in ids))
    start = rig.now
    starts = []
    for second in range(10):
        before = len(rig.leases)
        rig.advance(start + (second + 1) * SECOND - rig.now)
        starts.append(len(rig.leases) - before)
    assert sum(starts) == count and all(count / 20 < each < count / 5 for each in starts)


@pytest.mark.parametrize("attempt", [80, 2_000])
def test_backoff_stays_at_its_cap(attempt):
    rig = Rig(pool(retry=RetryPolicy(5_000, SECOND, 2.0, 60 * SECOND, False), lease_ttl=10**6 * SECOND))
    rig.slots(1)
    (task,) = rig.submit(spec(retry=attempts(5_000)))
    rig.engine.tasks.live[task].attempt = attempt
    rig.fail(task)
    assert rig.engine.next_timeout() == rig.now + 60 * SECOND


def test_retry_after_is_a_floor_that_jitter_never_lowers():
    rig = Rig(pool(retry=RetryPolicy(3, 10 * SECOND, 2.0, 60 * SECOND, True), lease_ttl=10**6 * SECOND))
    rig.slots(50)
    for task in rig.submit(*(spec() for _ in range(50))):
        rig.fail(task, retry_after=8 * SECOND)
    due = rig.engine.next_timeout()
    assert due is not None and due >= rig.now + 8 * SECOND


def test_held_dispatch_is_not_woken_by_what_it_must_not_start():
    rig = rig_with(API, DB)
    rig.slots(5)
    first, *_ = rig.submit(*(needs(api=1) for _ in range(4)), needs(db=1), needs(db=1))
    leases = {lease.task.id for lease in rig.leases}
    rig.handle(ev.DispatchHeld(True))
    rig.complete(first)
    rig.complete(max(leases))
    rig.advance(100 * SECOND)
    assert {lease.task.id for lease in rig.leases} == leases
    rig.handle(ev.DispatchHeld(False))
    assert len(rig.leases) == len(leases) + 3


def test_steps_of_others_do_not_even_ask_while_everybody_who_waits_lacks_something(monkeypatch):
    rig = rig_with(API, BIG)
    rig.slots(9)
    rig.submit(*(needs(api=2) for _ in range(9)))
    asked = []
    monkeypatch.setattr(type(rig.engine.resources), "offers", lambda *arguments: asked.append(arguments))
    plain, held = rig.submit(spec(), needs(big=5))
    rig.complete(plain)
    rig.complete(held)
    assert {plain, held} <= set(rig.order()) and not asked


def rig_with_a_called_task(monkeypatch):
    """A task of pool b was called in a step that ended before it could start; the one behind it does not fit too."""
    rig = rig_with(
        ResourceSettings("db", "semaphore", permits=2),
        ResourceSettings("gpu", "semaphore", permits=1),
        pools=(pool("a"), pool("b")),
    )
    rig.slots(1, name="b")
    (first,) = rig.submit(needs(pool="b", db=1, gpu=1))
    rig.slots(2, name="b")
    large, small = rig.submit(needs(pool="b", db=2, gpu=1), needs(pool="b", gpu=1))
    rig.slots(1, name="b")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "MAX_UNITS", 1)
        rig.handle(
            ev.GroupCapacitySet("a", (), 1),
            ev.TaskSubmitted(None, spec(pool="a")),
            ev.AttemptSucceeded(rig.lease(first).id, b"", ""),
        )
    assert rig.engine.tasks.live[large].plan.called
    return rig, large, small


def test_a_called_task_that_no_longer_fits_leaves_the_rest_to_others_of_its_pool(monkeypatch):
    """The limit of one of its resources was lowered since."""
    rig, large, small = rig_with_a_called_task(monkeypatch)
    rig.handle(ev.ResourceLimitSet(ResourceSettings("db", "semaphore", permits=1)))
    assert (rig.status(large), rig.status(small)) == ("READY", "RUNNING")
    rig.complete(small)
    rig.handle(ev.ResourceLimitSet(ResourceSettings("db", "semaphore", permits=2)))
    assert rig.status(large) == "RUNNING"


def test_a_called_task_that_is_cancelled_before_it_could_start_leaves_everything_to_others(monkeypatch):
    rig, large, small = rig_with_a_called_task(monkeypatch)
    rig.handle(ev.TaskCancelled(None, large))
    assert (rig.status(large), rig.status(small)) == ("CANCELLED", "RUNNING")


def test_a_recalled_task_that_still_fits_comes_back_beside_others_that_wait_for_the_same():
    """What is called here finds its slots taken by tasks of a higher class; one beside it needs more than is spare."""
    rig = rig_with(
        ResourceSettings("db", "semaphore", permits=3),
        ResourceSettings("gpu", "semaphore", permits=3),
        pools=(pool("a"), pool("b")),
    )
    rig.slots(2, name="a")
    rig.slots(2, name="b")
    one, _ = rig.submit(needs(pool="a", db=1), needs(pool="a", db=2))
    small, *_ = rig.submit(needs(pool="b", db=1), needs(pool="b", db=2), needs(pool="b", db=3, gpu=1))
    assert rig.engine.statistics()["parked"] == 3
    urgent = [spec(pool="b", priority=Priority.HIGH) for _ in range(2)]
    rig.handle(*(ev.TaskSubmitted(None, item) for item in urgent), ev.AttemptSucceeded(rig.lease(one).id, b"", ""))
    assert rig.engine.statistics()["parked"] == 3
    rig.complete(rig.leases[-1].task.id)
    assert rig.status(small) == "RUNNING"
