"""The queues of those who may be shed: nobody is missing, and little is left of those who are gone."""

import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine import victims as victims_module
from cronoq_sansio.engine.victims import SHED_LOWEST, SHED_OLDEST, Victims
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import Priority, TaskStatus
from tests.engine.harness import Rig, pool, spec

CRITICAL, _, NORMAL, LOW = Priority
POLICIES = ["reject", "wait", "shed_lowest", "shed_oldest"]
SHEDDING = ["shed_lowest", "shed_oldest"]


@pytest.mark.parametrize("policy", SHEDDING)
def test_what_has_ended_leaves_little_behind(policy):
    """A victim that never comes up must not keep the ids of all that came and went before it."""
    rig = Rig(pool(overflow=policy, max_pending=100_000))
    engine = rig.engine
    first = LOW if policy == "shed_oldest" else NORMAL
    engine.handle([ev.TaskSubmitted(None, spec(priority=first))], rig.now)
    for _ in range(3_000):
        engine.handle([ev.TaskSubmitted(None, spec(priority=first))], rig.now)
        engine.handle([ev.TaskCancelled(None, engine.tasks.next_id - 1)], rig.now)
    assert sum(map(len, victims(rig)._by_class.values())) <= 4 + MAX_LANE_GARBAGE
    assert victims(rig).pick(CRITICAL).id == 1
    engine.check_invariants(None)


def test_tasks_that_come_back_again_and_again_are_remembered_once():
    rig = Rig(pool(overflow="shed_oldest"), release=False)
    rig.submit(*(spec(priority=LOW) for _ in range(3)))
    for _ in range(500):
        rig.engine.handle([ev.GroupCapacitySet("default", (), 3)], rig.now)
        leases = list(rig.engine.leases.live)
        gone = [ev.GroupCapacitySet("default", (), 0), *(ev.DispatchReturned(lease) for lease in leases)]
        rig.engine.handle(gone, rig.now)
    assert sum(map(len, victims(rig)._by_class.values())) <= 6 + MAX_LANE_GARBAGE
    rig.engine.check_invariants(None)


@pytest.mark.parametrize("policy", SHEDDING)
@example_settings(max_examples=200)
@given(
    script=st.lists(
        st.tuples(st.sampled_from(["new", "leave", "leave", "back", "pick"]), st.integers(0, 9)), min_size=20
    )
)
def test_the_queue_of_victims_against_sorting(policy, script):
    """Tasks come, leave and come back, the queue is compacted whenever it can be; it names whom sorting names."""
    rig = Rig(pool(overflow=policy))
    rig.submit(*(spec(priority=LOW) for _ in range(6)))
    live = rig.engine.tasks.live
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims_module, "MAX_LANE_GARBAGE", 0)
        pending = [0, 0, 0, 0]
        queue = Victims(policy, live, pending)

        def move(task, status, difference):
            task.status = status
            pending[LOW] += difference
            if difference > 0:
                queue.add(task)

        for task in live.values():
            task.status = int(TaskStatus.RUNNING)
        for what, index in script:
            ready = sorted(id for id, task in live.items() if task.status == TaskStatus.READY)
            rest = sorted(id for id in live if id not in ready)
            if what == "new" and rest:
                move(live[max(rest)], int(TaskStatus.READY), +1)
            elif what == "back" and rest:
                move(live[rest[index % len(rest)]], int(TaskStatus.READY), +1)
            elif what == "leave" and ready:
                move(live[ready[index % len(ready)]], int(TaskStatus.RUNNING), -1)
            elif what == "pick":
                victim = queue.pick(NORMAL)
                expected = ready[-1 if policy == SHED_LOWEST else 0] if ready else None
                assert (victim.id if victim else None) == expected
            queue.check_invariants([task for task in live.values() if task.status == TaskStatus.READY])


def test_pools_that_shed_nothing_keep_no_queue_of_victims():
    assert [Rig(pool(overflow=policy)).engine.pools["default"].victims is None for policy in POLICIES] == [
        True,
        True,
        False,
        False,
    ]


def test_invariants_see_a_victim_that_is_missing():
    rig = Rig(pool(overflow="shed_oldest"))
    rig.submit(spec(priority=LOW))
    pool_of = rig.engine.pools["default"]
    pool_of.victims = Victims(SHED_OLDEST, rig.engine.tasks.live, pool_of.pending_by_class)
    with pytest.raises(AssertionError, match="could never be shed"):
        rig.engine.check_invariants(None)


def test_only_ready_tasks_may_be_shed():
    rig = Rig()
    rig.slots(1)
    rig.submit(spec())
    with pytest.raises(AssertionError, match="not READY"):
        lifecycle.shed(rig.engine, rig.engine.tasks.live[1], "no")


def victims(rig):
    return rig.engine.pools["default"].victims
