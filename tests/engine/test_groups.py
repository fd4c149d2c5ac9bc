"""Worker groups: who gets the next lease, and that idle ones vanish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.labels import Group, Groups
from cronoq_sansio.settings import ResourceSettings
from tests.engine.harness import Rig, spec

A = (("a", "1"),)
B = (("b", "1"),)
AB = (("a", "1"), ("b", "1"))


def test_the_least_labelled_group_first():
    rig = Rig()
    rig.slots(1, AB)
    rig.slots(1, A)
    rig.slots(1)
    rig.submit(spec(), spec(), spec())
    assert [lease.group for lease in rig.leases] == [(), A, AB]


def test_between_equals_the_freer_one():
    rig = Rig()
    rig.slots(1, A)
    rig.slots(3, B)
    rig.submit(spec(), spec(), spec(), spec())
    assert [lease.group for lease in rig.leases] == [B, B, A, B]


def test_an_idle_group_without_slots_is_dropped():
    rig = Rig()
    for number in range(50):
        labels = (("host", str(number)),)
        rig.slots(1, labels)
        (task,) = rig.submit(spec())
        rig.slots(0, labels)
        assert len(rig.engine.pools["default"].groups.by_labels) == 1, "its lease still runs"
        rig.complete(task)
        assert not rig.engine.pools["default"].groups.by_labels


def test_a_group_with_less_capacity_than_leases_takes_nothing_new():
    rig = Rig()
    rig.slots(3)
    first, second, third = rig.submit(spec(), spec(), spec())
    rig.slots(1)
    (fourth,) = rig.submit(spec())
    rig.complete(first)
    rig.complete(second)
    assert rig.status(fourth) == "READY"
    rig.complete(third)
    assert rig.status(fourth) == "RUNNING"


@given(st.lists(st.tuples(st.sampled_from(["set", "take", "free"]), st.integers(0, 3), st.integers(0, 4)), max_size=80))
def test_best_is_the_best(operations):
    """Against looking at every group each time."""
    names = ((), A, B, AB)
    groups = Groups()
    taken: list = []
    for operation, index, amount in operations:
        if operation == "set":
            groups.set_capacity(names[index], amount)
        elif operation == "take" and (best := groups.best()) is not None:
            groups.take(best)
            taken.append(best.labels)
        elif operation == "free" and taken:
            groups.free(taken.pop(amount % len(taken)))
        rooms = [group for group in groups.by_labels.values() if group.busy < group.capacity]
        assert groups.best() is min(rooms, key=Group.rank, default=None)
        assert groups.busy == len(taken) == sum(group.busy for group in groups.by_labels.values())
        assert groups.capacity == sum(group.capacity for group in groups.by_labels.values())


def test_a_group_that_runs_more_than_it_offers_takes_no_slot_of_others():
    """Whoever waits for a resource is called as long as any group has a slot for it."""
    rig = Rig(resources=(ResourceSettings("db", "semaphore", permits=1),))
    rig.slots(2)
    first, _ = rig.submit(spec(resources={"db": 1}), spec())
    rig.slots(0)
    (waiter,) = rig.submit(spec(resources={"db": 1}))
    rig.slots(1, (("gpu", "a100"),))
    assert rig.engine.statistics()["parked"] == 1
    rig.complete(first)
    assert rig.status(waiter) == "RUNNING"


def test_thousands_of_groups_that_come_and_go_cost_no_look_at_all_of_them_each():
    """As when a switch fails and takes them all: what each group costs must not grow with their number."""
    groups = Groups()
    looks = 0
    rank = Group.rank

    def counted(group):
        nonlocal looks
        looks += 1
        return rank(group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "rank", counted)
        for number in range(4_000):
            groups.set_capacity((("host", str(number)),), 2)
        assert groups.plain.free_slots() == 8_000
        for number in range(4_000):
            groups.set_capacity((("host", str(number)),), 0)
    assert looks < 20 * 4_000 and groups.plain.free_slots() == 0 and groups.best() is None
