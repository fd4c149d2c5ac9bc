"""Specification checks in their order, keys and duplicates, retention, bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import Code
from cronoq_sansio.recording.state_hash import state_of
from cronoq_sansio.settings import LimitSettings
from tests.engine.harness import Rig, attempts, pool, spec, total

RETENTION = 100 * SECOND


def rig_with(**limits):
    return Rig(limits=LimitSettings(**{"key_retention": RETENTION, **limits}))


def duplicate_of(rig, item):
    rig.handle(ev.TaskSubmitted(None, item))
    outcome = rig.answers[-1]
    assert type(outcome) is Submitted and outcome.duplicate, outcome
    return outcome.task_id


def test_a_live_key_makes_a_duplicate_whatever_else_the_specification_says():
    rig = rig_with()
    (task,) = rig.submit(spec("k"))
    assert duplicate_of(rig, spec("k")) == task
    assert duplicate_of(rig, spec("k", pool="no such pool", retry=attempts(0))) == task
    assert total(rig, "submitted") == 1


def test_a_duplicate_waits_for_the_step_that_wrote_the_task():
    rig = rig_with()
    rig.submit(spec("k"))
    written = rig.engine.number
    rig.submit(spec("other"))
    step = rig.engine.handle([ev.TaskSubmitted("r", spec("k"))], rig.now)
    assert step.once_durable[0].after == written < step.number


@pytest.mark.parametrize("wait", [0, RETENTION - 1])
def test_a_finished_key_is_remembered(wait):
    rig = rig_with()
    (task,) = rig.submit(spec("k"))
    rig.slots(1)
    rig.complete(task)
    rig.advance(wait)
    assert duplicate_of(rig, spec("k")) == task


def test_after_the_retention_the_key_is_free():
    rig = rig_with()
    (task,) = rig.submit(spec("k"))
    rig.slots(1)
    rig.complete(task)
    rig.now += RETENTION
    assert rig.submit(spec("k")) != [task]
    assert rig.engine.find(task) is None


def test_a_key_is_free_at_once_even_when_many_are_to_be_forgotten():
    """The sweep is bounded per step; look-ups do not wait for it."""
    rig = rig_with()
    ids = rig.submit(*(spec(f"k{n}") for n in range(1_500)))
    for task in ids:
        rig.engine.handle([ev.TaskCancelled(None, task)], rig.now)
    rig.now += RETENTION
    (fresh,) = rig.submit(spec("k1499"))
    assert fresh > ids[-1]
    rig.handle()
    assert rig.engine.tasks.retained() == 0


def test_the_number_of_remembered_tasks_is_bounded():
    rig = rig_with(key_retention_max=2)
    ids = rig.submit(spec("a"), spec("b"), spec("c"))
    for task in ids:
        rig.handle(ev.TaskCancelled(None, task))
    assert [rig.engine.find(key) is not None for key in "abc"] == [False, True, True]


def test_without_retention_nothing_is_remembered():
    rig = rig_with(key_retention_max=0)
    (task,) = rig.submit(spec("a"))
    rig.handle(ev.TaskCancelled(None, task))
    assert rig.engine.find("a") is None


def test_unknown_pool():
    rejection = rig_with().refused(spec(pool="nope"))
    assert rejection.code is Code.UNKNOWN_POOL and "'nope'" in rejection.message


def test_pool_bound_counts_pending_and_not_running():
    rig = Rig(pool(max_pending=2))
    first, *_ = rig.submit(spec(), spec())
    assert rig.refused(spec()).code is Code.OVERLOADED
    rig.slots(1)
    (third,) = rig.submit(spec())
    assert "max_pending is 2" in rig.refused(spec()).message
    rig.fail(first)
    assert rig.engine.pools["default"].pending == 2, "the failed one is pending, its slot took the next"
    rig.complete(rig.order()[-1])
    assert rig.engine.pools["default"].pending == 1
    assert third in rig.engine.tasks.live


def test_total_bound_counts_over_all_pools():
    rig = Rig(pool("a"), pool("b"), limits=LimitSettings(max_pending_total=2))
    rig.submit(spec(pool="a"), spec(pool="b"))
    assert "max_pending_total is 2" in rig.refused(spec(pool="a")).message


def test_payload_budget():
    rig = rig_with(max_payload_bytes=100)
    (task,) = rig.submit(spec(size=60))
    assert "max_payload_bytes is 100" in rig.refused(spec(size=41)).message
    rig.submit(spec(size=40))
    rig.handle(ev.TaskCancelled(None, task))
    rig.submit(spec(size=60))


def test_bounds_are_the_last_check():
    rig = Rig(pool(max_pending=1))
    rig.submit(spec("k"))
    assert rig.refused(spec(pool="nope")).code is Code.UNKNOWN_POOL
    assert rig.refused(spec(retry=attempts(0))).code is Code.INVALID
    assert duplicate_of(rig, spec("k")) == 1


def test_rejections_wait_for_nothing():
    rig = Rig(pool(max_pending=1))
    rig.submit(spec())
    step = rig.engine.handle([ev.TaskSubmitted(None, spec())], rig.now)
    assert step.once_durable[0].after == 0 and not step.writes


def test_ids_follow_the_order_of_submission():
    rig = rig_with()
    ids = rig.submit(*(spec() for _ in range(10)))
    assert ids == list(range(1, 11))


PLAIN = st.builds(
    spec,
    st.sampled_from(["", "", "a", "b", "c"]),
    pool=st.sampled_from(["first", "sheds", "shares", "nope"]),
    priority=st.integers(0, 3),
    size=st.sampled_from([10, 10, 400]),
)
SPECIAL = st.builds(
    spec,
    pool=st.sampled_from(["first", "sheds", "shares"]),
    priority=st.integers(0, 3),
    labels=st.sampled_from([{}, {"gpu": "yes"}]),
    deadline_in=st.sampled_from([None, 60 * SECOND]),
    deps=st.sampled_from([[], ["c"]]),
)
SLOTS = st.builds(
    ev.GroupCapacitySet,
    st.sampled_from(["first", "sheds", "shares"]),
    st.sampled_from([(), (("gpu", "yes"),)]),
    st.integers(0, 3),
)


@given(st.lists(st.lists(PLAIN | SPECIAL | SLOTS | st.just(ev.TransitionsWatched(True)), max_size=4), max_size=12))
def test_the_short_way_in_is_the_long_one(steps):
    """A plain task whose caller may wait goes the long way; where nobody waits that makes no difference."""
    pools = (
        pool("first", await_unknown_dependencies=60 * SECOND, max_pending_by_class=(None, None, 4, None)),
        pool("sheds", overflow="shed_lowest", max_pending=4),
        pool("shares", fair_share=True),
    )
    rigs = [Rig(*pools, limits=LimitSettings(max_pending_total=20, max_payload_bytes=2_000)) for _ in range(2)]
    for step in steps:
        told = []
        for rig, may_wait in zip(rigs, (False, True), strict=True):
            events = [item if type(item) is not type(spec()) else ev.TaskSubmitted(0, item, may_wait) for item in step]
            done = rig.handle(*events)
            told.append((done.writes, rig.answers, rig.moves, rig.order(), list(rig.ended), state_of(rig.engine)))
        assert told[0] == told[1]
    while rigs[0].engine.leases.live:
        for rig in rigs:
            rig.complete(next(iter(rig.engine.leases.live.values())).task.id)
        assert rigs[0].order() == rigs[1].order()
