"""Tasks that require labels: who may run them, and that they delay nobody (engine.md section 8)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_DEMANDS, MAX_LANE_GARBAGE
from cronoq_sansio.spec import Priority
from tests.engine.harness import Rig, pool, spec

GPU = (("gpu", "a100"),)
GPU_EAST = (("gpu", "a100"), ("zone", "east"))
EAST = (("zone", "east"),)


@pytest.mark.parametrize(
    ("required", "carried", "runs"),
    [
        ((), (), True),
        ((), GPU, True),
        (GPU, GPU, True),
        (GPU, GPU_EAST, True),
        (GPU_EAST, GPU_EAST, True),
        (GPU, (), False),
        (GPU, (("gpu", "h100"),), False),
        (GPU, EAST, False),
        (GPU_EAST, GPU, False),
    ],
)
def test_a_worker_must_carry_every_label(required, carried, runs):
    rig = Rig()
    (task,) = rig.submit(spec(labels=dict(required)))
    rig.slots(1, carried)
    assert rig.status(task) == ("RUNNING" if runs else "READY")


def test_tasks_that_need_a_missing_label_delay_nobody():
    rig = Rig()
    special = rig.submit(*(spec(labels=dict(GPU), priority=Priority.CRITICAL) for _ in range(10)))
    plain = rig.submit(spec(priority=Priority.LOW), spec(priority=Priority.LOW))
    rig.slots(2)
    assert rig.order() == plain
    rig.slots(3, GPU)
    assert rig.order() == [*plain, *special[:3]]


def test_the_least_labelled_worker_with_room_wins():
    rig = Rig()
    rig.slots(1, GPU_EAST)
    rig.slots(1, GPU)
    rig.slots(1)
    rig.submit(*(spec() for _ in range(3)))
    assert [lease.group for lease in rig.leases] == [(), GPU, GPU_EAST]


def test_between_equals_the_one_with_more_slots_free_wins():
    rig = Rig()
    rig.slots(1, EAST)
    rig.slots(3, GPU)
    rig.submit(*(spec() for _ in range(4)))
    assert [lease.group for lease in rig.leases] == [GPU, GPU, EAST, GPU]


def test_plain_and_special_tasks_share_one_order():
    """Whoever has the higher score starts first where both could."""
    rig = Rig()
    plain, special, high = rig.submit(spec(), spec(labels=dict(GPU)), spec(labels=dict(GPU), priority=Priority.HIGH))
    rig.slots(3, GPU)
    assert rig.order() == [high, plain, special]


@pytest.mark.parametrize("deadline", [None, 900 * SECOND])
def test_tasks_with_different_labels_run_in_one_order(deadline):
    """Each set of labels has a lane of its own; their heads are compared anew after each start."""
    rig = Rig()
    ids = rig.submit(*(spec(labels=dict(labels), deadline_in=deadline) for labels in 4 * [GPU, EAST, GPU_EAST]))
    rig.slots(1, GPU_EAST)
    for task in ids:
        rig.complete(task)
    assert rig.order() == ids


def test_groups_and_demands_are_dropped_when_nothing_needs_them():
    rig = Rig()
    for number in range(50):
        label = (("host", f"h{number}"),)
        (task,) = rig.submit(spec(labels=dict(label)))
        rig.slots(1, label)
        rig.slots(0, label)
        rig.complete(task)
    statistics = rig.engine.statistics()
    assert statistics["groups"] == statistics["demands"] == 0
    groups = rig.engine.pools["default"].groups
    assert not groups._labelled and not groups._demanding
    assert not rig.engine.pools["default"]._special


def test_a_cancelled_task_takes_its_demand_along():
    rig = Rig()
    rig.slots(1)
    (task,) = rig.submit(spec(labels=dict(GPU)))
    rig.handle(ev.TaskCancelled(None, task))
    assert rig.engine.statistics()["demands"] == 0


def test_a_refused_lease_goes_only_to_workers_with_the_labels():
    rig = Rig()
    rig.slots(1, GPU)
    (task,) = rig.submit(spec(labels=dict(GPU)))
    rig.slots(1)
    rig.slots(1, GPU_EAST)
    rig.handle(ev.AttemptNacked(rig.lease(task).id, "no", ((), GPU_EAST)))
    assert rig.lease(task).group == GPU_EAST and rig.lease(task).attempt == 1
    rig.handle(ev.AttemptNacked(rig.lease(task).id, "no", ((),)))
    assert rig.status(task) == "RETRYING"


def test_a_retry_keeps_its_place_among_those_with_its_labels():
    rig = Rig()
    first, second = rig.submit(spec(labels=dict(GPU)), spec(labels=dict(GPU)))
    rig.slots(1, GPU)
    rig.fail(first)
    assert rig.order() == [first, second]
    rig.advance(SECOND)
    rig.complete(second)
    assert rig.order() == [first, second, first]


def test_labels_and_deadlines_go_together():
    rig = Rig()
    late, early = rig.submit(
        spec(labels=dict(GPU), deadline_in=900 * SECOND), spec(labels=dict(GPU_EAST), deadline_in=100 * SECOND)
    )
    rig.slots(2, GPU_EAST)
    assert rig.order() == [early, late]


def test_sets_of_labels_are_bounded():
    rig = Rig(pool(max_pending=10_000))
    rig.submit(*(spec(labels={"host": str(number)}) for number in range(MAX_DEMANDS)))
    assert rig.refused(spec(labels={"host": "one more"})).code is Code.OVERLOADED
    rig.submit(spec(labels={"host": "7"}), spec())


def test_many_hosts_with_tasks_of_their_own():
    rig = Rig(pool(max_pending=10_000))
    hosts = [(("host", f"h{number:03d}"),) for number in range(300)]
    ids = rig.submit(*(spec(labels=dict(host)) for host in hosts for _ in range(2)))
    rig.handle(*(ev.GroupCapacitySet("default", host, 1) for host in reversed(hosts)))
    assert rig.order() == ids[::2]
    assert all(lease.group == hosts[index] for index, lease in enumerate(rig.leases))


def test_a_task_with_a_deadline_is_compared_too_when_it_came_beside_tasks_with_labels():
    rig = Rig()
    rig.slots(1)
    (first,) = rig.submit(spec())
    special, plain = rig.submit(spec(labels=dict(GPU), priority=Priority.HIGH), spec())
    (urgent,) = rig.submit(spec(deadline_in=0))
    rig.complete(first)
    assert rig.order() == [first, urgent]
    rig.complete(urgent)
    assert rig.order() == [first, urgent, plain] and rig.status(special) == "READY"


def test_what_changes_in_a_group_that_nobody_looks_at_leaves_little_behind():
    rig = Rig()
    rig.slots(1)
    rig.slots(1, GPU)
    for _ in range(100):
        rig.complete(*rig.submit(spec(labels=dict(GPU))))
    assert len(rig.engine.pools["default"].groups.plain._heap) < 80


def test_lines_are_used_only_while_something_special_could_start():
    rig = Rig()
    rig.slots(2)
    rig.slots(1, GPU)
    owner = rig.engine.pools["default"]
    rig.complete(*rig.submit(spec(labels=dict(GPU))))
    rig.complete(*rig.submit(spec()))
    assert not owner.in_play, "nothing of the kind waits"
    rig.submit(*(spec(labels=dict(GPU)) for _ in range(3)), spec(labels=dict(EAST)))
    assert not owner.in_play, "they wait, and no free slot serves them"


LABELS = st.dictionaries(st.sampled_from(["gpu", "zone", "disk"]), st.sampled_from(["a", "b"]), max_size=3)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["submit", "urgent"]), LABELS, st.sampled_from(list(Priority))),
    st.tuples(st.just("slots"), LABELS, st.integers(0, 3)),
    st.tuples(st.just("complete"), st.integers(0, 99), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 99), st.none()),
)


@given(st.lists(OPERATIONS, max_size=40))
def test_whoever_can_run_runs_and_nobody_else(operations):
    """Against a scan of all tasks and groups after each step; the rig checks the indices."""
    rig = Rig(pool(lease_ttl=10**6 * SECOND))
    capacity: dict[ev.Labels, int] = {}
    for operation, argument, number in operations:
        live = list(rig.engine.tasks.live.values())
        running = [task for task in live if task.lease is not None]
        before = len(rig.leases)
        if operation in ("submit", "urgent"):
            deadline = 3 * SECOND if operation == "urgent" else None
            rig.submit(spec(labels=argument, priority=number, deadline_in=deadline))
        elif operation == "slots":
            labels = tuple(sorted(argument.items()))
            capacity[labels] = number
            rig.slots(number, labels)
        elif operation == "complete" and running:
            rig.complete(running[argument % len(running)].id)
        elif operation == "cancel" and live:
            rig.handle(ev.TaskCancelled(None, live[argument % len(live)].id))
        for lease in rig.leases[before:]:
            assert set(required(lease.task)) <= set(lease.group)
        busy = Counter(task.lease.group for task in rig.engine.tasks.live.values() if task.lease is not None)
        waiting = [task for task in rig.engine.tasks.live.values() if task.lease is None]
        for labels, slots in capacity.items():
            if busy[labels] < slots:
                idle = [task.id for task in waiting if set(required(task)) <= set(labels)]
                assert not idle, f"{labels} has a free slot and could run {idle}"


def required(task):
    return task.spec.scheduling.labels if task.spec.scheduling else ()


def test_lanes_of_tasks_that_were_cancelled_leave_nothing_behind_in_a_full_pool():
    """As long as no slot comes free nothing is looked at, so nothing that is outdated comes up either."""
    rig = Rig()
    rig.slots(1)
    rig.submit(spec(), spec(labels=dict(GPU)))
    lines = rig.engine.pools["default"]._lines
    for number in range(10 * MAX_LANE_GARBAGE):
        (task,) = rig.submit(spec(labels={"host": str(number)}))
        rig.handle(ev.TaskCancelled(None, task))
        assert sum(len(line.heap) for line in lines) <= 2 * MAX_LANE_GARBAGE
