"""The order of dispatch: classes, aging, FIFO within a class, and the place of a retried task."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import engine
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Dispatch
from cronoq_sansio.engine.dispatch import AGE_CAP, BASE, score
from cronoq_sansio.engine.lanes import Lane
from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE, MAX_UNITS
from cronoq_sansio.spec import Priority, TaskStatus
from tests.engine.harness import START, STEADY, Rig, attempts, pool, spec

CRITICAL, HIGH, NORMAL, LOW = Priority


def test_classes_before_age():
    rig = Rig()
    ids = rig.submit(*(spec(priority=priority) for priority in (LOW, NORMAL, HIGH, CRITICAL)))
    rig.slots(4)
    assert rig.order() == ids[::-1]


def test_first_come_first_served_within_a_class():
    rig = Rig()
    ids = [rig.submit(spec())[0] for _ in range(20)]
    rig.slots(20)
    assert rig.order() == ids


@pytest.mark.parametrize(
    ("older", "newer", "seconds", "first"),
    [
        (LOW, NORMAL, 44, "newer"),  # 10 + 88 < 100
        (LOW, NORMAL, 45, "newer"),  # 10 + 90 = 100: the higher class wins a tie
        (LOW, NORMAL, 46, "older"),
        (NORMAL, HIGH, 100_000, "newer"),  # 100 + 800 < 1000
        (LOW, HIGH, 100_000, "newer"),
        (HIGH, CRITICAL, 100_000, "newer"),
    ],
)
def test_aging(older, newer, seconds, first):
    rig = Rig()
    (old,) = rig.submit(spec(priority=older))
    rig.now += seconds * SECOND
    (new,) = rig.submit(spec(priority=newer))
    rig.slots(1)
    assert rig.order() == [old if first == "older" else new]


def test_low_work_starts_under_steady_normal_work():
    """The bound of the aging formula: 10 + 2w > 100 + 2v, with v = 1 s that the newcomer waits for it: w > 46 s."""
    rig = Rig()
    rig.slots(1)
    (running,) = rig.submit(spec())
    (low,) = rig.submit(spec(priority=LOW))
    for _ in range(60):
        (fresh,) = rig.submit(spec())
        rig.advance(SECOND)
        rig.complete(running)
        running = rig.order()[-1]
        if running == low:
            break
        # Fresh work only: the queue of normal work is empty but for the newcomer.
        assert running == fresh
    assert running == low
    assert rig.now - START == 47 * SECOND


def test_a_retried_task_keeps_its_place_and_age():
    rig = Rig()
    first, second = rig.submit(spec(), spec())
    rig.slots(1)
    rig.fail(first)
    (third,) = rig.submit(spec())
    assert rig.order()[-1] == second
    rig.advance(SECOND)
    rig.complete(second)
    assert rig.order() == [first, second, first]
    rig.complete(first)
    assert rig.order()[-1] == third


def test_pools_do_not_share_slots():
    rig = Rig(pool("a"), pool("b"))
    (task,) = rig.submit(spec(pool="a"))
    rig.slots(5, name="b")
    assert not rig.leases
    rig.slots(1, name="a")
    assert rig.order() == [task]


def test_held_dispatch_waits_and_goes_on():
    rig = Rig()
    rig.slots(1)
    rig.handle(ev.DispatchHeld(True))
    (task,) = rig.submit(spec())
    rig.slots(2)
    assert not rig.leases
    rig.handle(ev.DispatchHeld(False))
    assert rig.order() == [task]


def test_a_large_dispatch_is_cut_into_portions():
    rig = Rig()
    for _ in range(3):
        rig.submit(*(spec() for _ in range(MAX_UNITS)))
    rig.release = False
    sizes = []
    step = rig.engine.handle([ev.GroupCapacitySet("default", (), 10 * MAX_UNITS)], rig.now)
    while True:
        sizes.append(sum(type(action) is Dispatch for action in step.once_durable))
        if rig.engine.next_timeout() != rig.now:
            break
        step = rig.engine.handle([ev.TimerFired()], rig.now)
    assert sizes[:3] == [MAX_UNITS] * 3 and sum(sizes) == 3 * MAX_UNITS


def test_released_leases_give_an_empty_step_even_with_dispatches_left():
    rig = Rig(release=False)
    rig.submit(*(spec() for _ in range(MAX_UNITS + 5)))
    rig.slots(2 * MAX_UNITS)
    step = rig.engine.handle([ev.LeasesReleased((rig.leases[0].id,))], rig.now)
    assert not step.writes and not step.once_durable
    assert rig.engine.next_timeout() == rig.now
    rig.advance(0)
    assert len(rig.leases) == MAX_UNITS + 5


def submitted(*names):
    return [ev.TaskSubmitted(None, spec(pool=name)) for name in names]


def test_pools_start_their_tasks_in_the_order_of_the_configuration():
    rig = Rig(pool("a"), pool("b"), pool("c"))
    for name in "abc":
        rig.slots(9, name=name)
    rig.handle(*submitted("c", "b", "a"))
    assert [lease.task.spec.pool for lease in rig.leases] == ["a", "b", "c"]


@pytest.mark.parametrize("beside", ["", "a"])
def test_a_pool_that_a_step_had_no_time_for_comes_first_in_the_next_one_only(monkeypatch, beside):
    monkeypatch.setattr(engine, "MAX_UNITS", 3)
    rig = Rig(pool("a"), pool("b"))
    rig.slots(99, name="a")
    rig.slots(99, name="b")
    rig.handle(*submitted("b", "b", "b", "b", *beside))
    assert len(rig.leases) == 3 and rig.engine.next_timeout() == rig.now
    rig.leases.clear()
    rig.handle(*submitted("a"))
    rest = 2 if beside else 1
    assert [lease.task.spec.pool for lease in rig.leases] == [*"b" * rest, "a"][:3]
    rig.advance(0)
    rig.leases.clear()
    rig.handle(*submitted("b", "a"))
    assert [lease.task.spec.pool for lease in rig.leases] == ["a", "b"]


def test_a_pool_that_was_finished_alone_does_not_stand_before_others_later(monkeypatch):
    monkeypatch.setattr(engine, "MAX_UNITS", 3)
    rig = Rig(pool("a"), pool("b"))
    rig.slots(99, name="a")
    rig.slots(99, name="b")
    rig.handle(*submitted("a", "b", "b", "b"))
    rig.handle()
    rig.leases.clear()
    rig.handle(*submitted("b", "a"))
    assert [lease.task.spec.pool for lease in rig.leases] == ["a", "b"]


def test_many_leases_that_expire_together_are_worked_off_in_portions(monkeypatch):
    monkeypatch.setattr(engine, "MAX_UNITS", 3)
    rig = Rig(pool(lease_ttl=SECOND))
    rig.slots(7)
    rig.submit(*(spec(retry=attempts(1)) for _ in range(7)))
    rig.advance(0)
    rig.now += SECOND
    aborted = []
    while (due := rig.engine.next_timeout()) is not None and due <= rig.now:
        aborted.append(len(rig.handle(ev.TimerFired()).at_once))
    assert aborted == [3, 3, 1]


def test_many_backoffs_that_end_together_are_worked_off_in_portions(monkeypatch):
    rig = Rig(pool(lease_ttl=100 * SECOND))
    rig.slots(7)
    ids = rig.submit(*(spec() for _ in range(7)))
    rig.slots(0)
    for task in ids:
        rig.fail(task)
    rig.now += SECOND
    monkeypatch.setattr(engine, "MAX_UNITS", 3)
    ready = []
    while (due := rig.engine.next_timeout()) is not None and due <= rig.now:
        rig.handle(ev.TimerFired())
        ready.append(sum(rig.status(task) == "READY" for task in ids))
    assert ready == [3, 6, 7]


@given(st.lists(st.tuples(st.sampled_from(["push", "back", "pop", "leave"]), st.integers(0, 50)), max_size=120))
def test_a_lane_is_a_sorted_set(operations):
    """Against the naive queue: a list that is sorted each time."""
    live: dict[int, Task] = {}
    owner = Rig().engine.pools["default"]
    lane, naive, popped, number = Lane(live, NORMAL, owner.groups.plain), [], [], 0
    for operation, choice in operations:
        if operation == "push":
            number += 1
            task = Task(number, spec(), owner, STEADY, 0, 0)
            task.status = TaskStatus.READY
            live[task.id] = task
            lane.push(task)
            naive.append(task)
        elif operation == "back" and popped:
            task = popped.pop(choice % len(popped))
            lane.push(task)
            naive.append(task)
        elif operation == "pop" and naive:
            naive.sort(key=lambda task: task.id)
            task = lane.pop()
            assert task is naive.pop(0)
            popped.append(task)
        elif operation == "leave" and naive:
            task = naive.pop(choice % len(naive))
            task.status = TaskStatus.CANCELLED
            lane.forget()
        assert lane.ready == len(naive)
        if naive:
            assert lane.head() is min(naive, key=lambda task: task.id)
    assert {task.id for task in lane.tasks()} == {task.id for task in naive}


def test_a_cancelled_task_leaves_nothing_but_its_id_behind():
    """However many wait beside it: its payload would count against no bound."""

    def count():
        gc.collect()
        return sum(type(thing) is Task for thing in gc.get_objects())

    rig = Rig()
    rig.submit(*(spec() for _ in range(60)))
    before = count()
    for _ in range(50):
        (task,) = rig.submit(spec())
        rig.handle(ev.TaskCancelled(None, task))
    rig.ended.clear()
    rig.handle()
    assert count() == before


def test_the_cap_of_aging_is_the_specified_one():
    assert (tuple(n * SECOND for n in (10_000, 1_000, 100, 10)), 800 * SECOND) == (BASE, AGE_CAP)


def test_a_lane_does_not_grow_by_tasks_that_leave():
    rig = Rig()
    for _ in range(20):
        for task in rig.submit(*(spec() for _ in range(50))):
            rig.engine.handle([ev.TaskCancelled(None, task)], rig.now)
    lane = rig.engine.pools["default"].lanes[NORMAL]
    assert len(lane.fresh) <= MAX_LANE_GARBAGE


@pytest.mark.parametrize("deadline", [None, 900 * SECOND])
def test_nor_while_others_wait_there(deadline):
    rig = Rig()
    rig.submit(spec(deadline_in=deadline))
    for _ in range(5 * MAX_LANE_GARBAGE):
        (task,) = rig.submit(spec(deadline_in=deadline))
        rig.handle(ev.TaskCancelled(None, task))
    assert all(len(lane._ids()) <= MAX_LANE_GARBAGE + 1 for lane in rig.engine.pools["default"].every_lane())


@given(st.integers(0, 10**15), st.sampled_from(list(Priority)))
def test_waiting_never_lifts_past_the_cap(waited, priority):
    task = Task(1, spec(priority=priority), Rig().engine.pools["default"], STEADY, 0, 0)
    assert BASE[priority] <= score(task, waited, waited) <= BASE[priority] + AGE_CAP
