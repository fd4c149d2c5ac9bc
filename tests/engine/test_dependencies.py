"""Waiting for the ends of others: conditions, refusals, what is stored, and cascades in portions."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.records import Edge, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.settings import LimitSettings, ResourceSettings
from cronoq_sansio.spec import Condition, Priority, TaskStatus
from tests.engine.harness import START, Rig, attempts, dep, pool, spec, total

SUCCESS, COMPLETE, FAILURE = Condition.ON_SUCCESS, Condition.ON_COMPLETE, Condition.ON_FAILURE
NOTHING = {"blocked_tasks": 0, "awaited_parents": 0, "dependency_timers": 0, "unsettled_parents": 0}


def counts(rig):
    return rig.engine.dependencies.statistics()


def awaiting(**changes):
    return Rig(pool(**{"await_unknown_dependencies": 60 * SECOND, **changes}))


def message(rig, task_id):
    return rig.ended[task_id].task.message


# --- how a parent may end, and what that means


def succeeded(rig):
    (parent,) = rig.submit(spec("p"))
    rig.slots(1)
    return parent, lambda: rig.complete(parent)


def failed(rig):
    (parent,) = rig.submit(spec("p"))
    rig.slots(1)
    return parent, lambda: rig.fail(parent, permanent=True)


def dead_lettered(rig):
    (parent,) = rig.submit(spec("p", retry=attempts(1)))
    rig.slots(1)
    return parent, lambda: rig.fail(parent)


def cancelled(rig):
    (parent,) = rig.submit(spec("p"))
    return parent, lambda: rig.handle(ev.TaskCancelled(None, parent))


def skipped(rig):
    grandparent, parent = rig.submit(spec(), spec("p", deps=[1]))
    return parent, lambda: rig.handle(ev.TaskCancelled(None, grandparent))


def shed(rig):
    rig.submit(*(spec() for _ in range(8)))
    (parent,) = rig.submit(spec("p", priority=Priority.LOW))

    def make_room():
        while parent in rig.engine.tasks.live:
            rig.submit(spec(priority=Priority.HIGH))
        rig.handle(ev.TaskCancelled(None, 1))  # or nobody else would find room

    return parent, make_room


ENDS = {
    succeeded: (SUCCESS, COMPLETE),
    failed: (FAILURE, COMPLETE),
    dead_lettered: (FAILURE, COMPLETE),
    cancelled: (COMPLETE,),
    skipped: (COMPLETE,),
    shed: (COMPLETE,),
}


@pytest.mark.parametrize("late", [False, True], ids=["live", "retained"])
@pytest.mark.parametrize("by_key", [False, True], ids=["id", "key"])
@pytest.mark.parametrize("condition", list(Condition))
@pytest.mark.parametrize("how", list(ENDS))
def test_what_each_condition_makes_of_each_end(how, condition, by_key, late):
    rig = Rig(pool(overflow="shed_lowest", max_pending=10))
    parent, end = how(rig)
    child_of = spec(deps=[dep("p" if by_key else parent, condition)], priority=Priority.HIGH)
    if late:
        end()
        (child,) = rig.submit(child_of)
    else:
        (child,) = rig.submit(child_of)
        assert rig.status(child) == "BLOCKED"
        end()
    if condition in ENDS[how]:
        assert rig.status(child) in ("READY", "RUNNING")
    else:
        assert rig.status(child) == "SKIPPED"
        words = f"task {parent} (key 'p') ended as {how.__name__}, the dependency asks for {condition.name.lower()}"
        assert message(rig, child) == words
    assert counts(rig) == NOTHING


def test_a_parent_without_a_key_is_named_by_its_id():
    rig = Rig()
    parent, child = rig.submit(spec(), spec(deps=[1]))
    rig.handle(ev.TaskCancelled(None, parent))
    assert message(rig, child) == "task 1 ended as cancelled, the dependency asks for on_success"


def test_a_task_waits_for_all_of_its_parents():
    rig = Rig()
    a, b, child = rig.submit(spec("a"), spec("b"), spec(deps=["a", "b"]))
    rig.slots(9)
    assert rig.order() == [a, b]
    rig.complete(a)
    assert rig.status(child) == "BLOCKED"
    rig.complete(b)
    assert rig.status(child) == "RUNNING"


def test_the_first_impossible_edge_ends_it_while_others_are_open():
    rig = Rig()
    a, b, child = rig.submit(spec("a"), spec("b"), spec(deps=["a", "b"]))
    rig.handle(ev.TaskCancelled(None, b))
    assert rig.status(child) == "SKIPPED" and rig.status(a) == "READY"
    assert counts(rig) == NOTHING, "the parent that goes on has forgotten it"


def test_it_keeps_the_age_and_place_of_its_submission():
    rig = Rig()
    parent, child = rig.submit(spec("a"), spec(deps=["a"]))
    (younger,) = rig.submit(spec())
    rig.slots(1)
    rig.advance(7 * SECOND)
    rig.complete(parent)
    assert rig.engine.tasks.live[child].arrival == START
    assert rig.order() == [parent, child] and younger > child


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ((SUCCESS, SUCCESS), "READY"),
        ((SUCCESS, COMPLETE), "READY"),
        ((COMPLETE, FAILURE), "SKIPPED"),
        ((SUCCESS, FAILURE), "SKIPPED"),
        ((COMPLETE, FAILURE, SUCCESS), "SKIPPED"),
    ],
)
def test_several_edges_to_one_parent_must_all_be_met(conditions, status):
    rig = Rig()
    parent, child = rig.submit(
        spec("p"), spec(deps=[dep("p" if n % 2 else 1, asked) for n, asked in enumerate(conditions)])
    )
    assert rig.engine.tasks.live[child].status == TaskStatus.BLOCKED
    rig.slots(1)
    rig.slots(0)
    rig.complete(parent)
    assert rig.status(child) == status
    if status == "SKIPPED":
        assert message(rig, child).endswith("asks for on_failure")


def test_a_diamond_runs_its_last_task_once():
    rig = Rig()
    a, b, c, d = rig.submit(
        spec("a"), spec("b", deps=["a"]), spec("c", deps=["a"]), spec(deps=[dep("b", COMPLETE), dep("c", COMPLETE)])
    )
    rig.slots(9)
    rig.complete(a)
    rig.fail(b, permanent=True)
    assert rig.status(d) == "BLOCKED"
    rig.complete(c)
    rig.complete(d)
    assert rig.order() == [a, b, c, d] and rig.status(d) == "SUCCEEDED"


def test_a_retry_is_not_an_end():
    rig = Rig()
    parent, child = rig.submit(spec("p"), spec(deps=[dep("p", FAILURE)]))
    rig.slots(1)
    rig.fail(parent)
    assert rig.status(child) == "BLOCKED"


# --- what is refused


@pytest.mark.parametrize(
    ("deps", "words"),
    [
        ([77], "deps[0]: no task has the id 77"),
        (["a", 78], "deps[1]: no task has the id 78"),
        (["nobody"], "deps[0]: no task has the key 'nobody', and pool 'default' does not wait for one"),
    ],
)
def test_unknown_parents(deps, words):
    rig = Rig()
    rig.submit(spec("a"))
    refusal = rig.refused(spec(deps=deps))
    assert refusal.code is Code.UNKNOWN_DEPENDENCY and refusal.message.startswith(words)
    assert counts(rig) == NOTHING


def test_an_unknown_id_is_not_awaited():
    assert awaiting().refused(spec(deps=[77])).code is Code.UNKNOWN_DEPENDENCY


@pytest.mark.parametrize("ref", [1, "p"])
def test_a_parent_is_known_for_its_retention(ref):
    rig = Rig(limits=LimitSettings(key_retention=100 * SECOND))
    (parent,) = rig.submit(spec("p"))
    others = rig.submit(*(spec() for _ in range(MAX_UNITS)))
    rig.handle(*(ev.TaskCancelled(None, task) for task in (*others, parent)))
    rig.now += 100 * SECOND - 1
    rig.submit(spec(deps=[dep(ref, COMPLETE)]))
    rig.now += 1  # there are more of them than one step forgets
    assert rig.refused(spec(deps=[dep(ref, COMPLETE)])).code is Code.UNKNOWN_DEPENDENCY


@pytest.mark.parametrize("settings", [{}, {"await_unknown_dependencies": SECOND}])
def test_a_task_cannot_wait_for_itself(settings):
    refusal = Rig(pool(**settings)).refused(spec("a", deps=["a"]))
    assert refusal.code is Code.CYCLE
    assert refusal.message == "deps[0]: the task depends on itself: a -> a"


def test_the_order_of_the_checks():
    """Each specification is wrong in everything that is checked from some point on."""
    rig = Rig(pool(max_pending=1), resources=(ResourceSettings("r", "semaphore", 2),))
    rig.submit(spec("k"))
    wrong = {"retry": attempts(0), "deps": [77]}
    for item, code in [
        (spec("k", pool="nowhere", resources={"x": 1}, **wrong), None),
        (spec(pool="nowhere", resources={"x": 1}, **wrong), Code.UNKNOWN_POOL),
        (spec(resources={"r": 3, "x": 1}, **wrong), Code.RESOURCE_EXCEEDS_CAPACITY),
        (spec(resources={"x": 1}, **wrong), Code.UNKNOWN_RESOURCE),
        (spec(**wrong), Code.INVALID),
        (spec(deps=[77]), Code.UNKNOWN_DEPENDENCY),
        (spec(deps=["k"]), Code.OVERLOADED),
    ]:
        if code is None:
            rig.handle(ev.TaskSubmitted(None, item))
            assert rig.answers[-1].duplicate
        else:
            assert rig.refused(item).code is code


# --- ends at once


def test_a_dead_parent_skips_at_once_and_the_caller_has_an_id():
    rig = Rig()
    (parent,) = rig.submit(spec("p"))
    rig.handle(ev.TaskCancelled(None, parent))
    step = rig.engine.handle([ev.TaskSubmitted("r", spec("c", deps=["p"]))], rig.now)
    inserted, blocked, finished = step.writes
    assert (type(inserted), inserted.edges, type(blocked)) == (TaskInserted, (), TaskChanged)
    assert (type(finished), finished.status, finished.attempt) == (TaskFinished, TaskStatus.SKIPPED, 0)
    ended, answer = step.once_durable
    assert answer.outcome.task_id == ended.task.id and not answer.outcome.duplicate
    assert answer.after == ended.after == step.number
    assert total(rig, "skipped") == 1 and rig.engine.find("c").status == TaskStatus.SKIPPED


def test_the_first_edge_that_is_impossible_is_the_reason():
    rig = Rig()
    a, b = rig.submit(spec("a"), spec("b"))
    rig.handle(ev.TaskCancelled(None, a), ev.TaskCancelled(None, b))
    (child,) = rig.submit(spec(deps=[dep("a", COMPLETE), "b", dep("a", FAILURE)]))
    assert "'b'" in message(rig, child) and message(rig, child).endswith("on_success")


def test_edges_that_are_met_already_are_not_stored():
    rig = Rig()
    a, _ = rig.submit(spec("a"), spec("b"))
    rig.handle(ev.TaskCancelled(None, a))
    step = rig.handle(ev.TaskSubmitted(None, spec(deps=[dep("a", COMPLETE), "b"])))
    assert step.writes[0].edges == (Edge(2, "", SUCCESS),)
    step = rig.handle(ev.TaskSubmitted(None, spec(deps=[dep("a", COMPLETE)])))
    assert [type(record) for record in step.writes] == [TaskInserted] and step.writes[0].edges == ()


def test_who_comes_later_sees_it_skipped():
    rig = Rig()
    (parent,) = rig.submit(spec("p"))
    rig.handle(ev.TaskCancelled(None, parent))
    ids = rig.submit(spec("a", deps=["p"]), spec("b", deps=["a"]), spec("c", deps=[dep("b", COMPLETE)]))
    assert [rig.status(task) for task in ids] == ["SKIPPED", "SKIPPED", "READY"]


def test_a_parent_of_the_newcomer_is_no_victim():
    rig = Rig(pool(overflow="shed_lowest", max_pending=2))
    _, victim = rig.submit(spec(), spec("v", priority=Priority.LOW))
    assert rig.refused(spec(deps=["v"], priority=Priority.HIGH)).code is Code.OVERLOADED
    assert rig.status(victim) == "READY"


# --- while it waits


def test_a_blocked_task_is_pending_and_can_be_cancelled():
    rig = Rig(pool(max_pending=2))
    _, child = rig.submit(spec("p"), spec(deps=["p"]))
    assert rig.refused(spec()).code is Code.OVERLOADED
    rig.handle(ev.TaskCancelled(None, child))
    assert rig.status(child) == "CANCELLED" and counts(rig) == NOTHING
    rig.submit(spec())


def test_cancelled_children_leave_nothing_with_a_long_living_parent():
    rig = Rig()
    rig.submit(spec("p"))
    before = rig.engine.statistics()
    for _ in range(5):
        children = rig.submit(*(spec(deps=["p", dep("p", COMPLETE)]) for _ in range(20)))
        assert counts(rig)["blocked_tasks"] == 20 and counts(rig)["awaited_parents"] == 1
        rig.handle(*(ev.TaskCancelled(None, child) for child in children))
    after = rig.engine.statistics()
    assert {**after, "retained_tasks": 0, "step": 0} == {**before, "retained_tasks": 0, "step": 0}
    assert not rig.engine.dependencies.parents


def test_what_is_stored_of_a_blocked_task():
    rig = awaiting()
    rig.submit(spec("a"))
    step = rig.handle(
        ev.TaskSubmitted(None, spec(deps=[dep("x", FAILURE), 1, dep("x", COMPLETE), "a", dep(1, COMPLETE)]))
    )
    inserted, changed = step.writes
    assert inserted.edges == (
        Edge(0, "x", FAILURE),
        Edge(1, "", SUCCESS),
        Edge(0, "x", COMPLETE),
        Edge(1, "", COMPLETE),
    )
    assert (changed.status, changed.due) == (TaskStatus.BLOCKED, START + 60 * SECOND)
    step = rig.handle(ev.TaskSubmitted(None, spec(deps=["a"])))
    assert step.writes[1].due == 0, "it awaits no key"


def test_watchers_see_it_blocked_then_ready_when_the_end_of_the_parent_is_durable():
    rig = Rig()
    rig.handle(ev.TransitionsWatched(True))
    parent, child = rig.submit(spec("p"), spec(deps=["p"]))
    rig.slots(1)
    rig.slots(0)
    rig.moves.clear()
    rig.complete(parent)
    (move,) = rig.moves
    assert (move.task_id, move.status, move.after) == (child, TaskStatus.READY, rig.engine.number)
    rig.slots(1)
    assert [TaskStatus(move.status).name for move in rig.moves] == ["READY", "RUNNING"]


def test_unblocking_is_not_stored():
    rig = Rig()
    parent, _ = rig.submit(spec("p"), spec(deps=[dep("p", COMPLETE)]))
    step = rig.handle(ev.TaskCancelled(None, parent))
    assert [record.task_id for record in step.writes] == [parent]


def test_a_key_that_is_used_again_is_another_task():
    rig = Rig(limits=LimitSettings(key_retention_max=0))
    (first,) = rig.submit(spec("k"))
    (child,) = rig.submit(spec(deps=["k"]))
    rig.slots(1)
    rig.slots(0)
    rig.complete(first)
    (second,) = rig.submit(spec("k"))
    assert second != first and rig.status(child) == "READY"
    assert counts(rig) == NOTHING


def test_a_relative_deadline_is_stored_as_a_time():
    rig = Rig()
    rig.handle(ev.WallClockMoved(5 * SECOND))
    step = rig.handle(ev.TaskSubmitted(None, spec(deadline_in=30 * SECOND)))
    asked = step.writes[0].spec.scheduling
    assert (asked.deadline, asked.deadline_in) == (START + 35 * SECOND, None)


# --- many, in portions


def test_a_long_chain_is_skipped_without_recursion():
    rig = Rig(limits=LimitSettings(max_pending_total=10_000))
    length = 5 * MAX_UNITS
    rig.engine.handle([ev.TaskSubmitted(None, spec())], rig.now)
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=[n])) for n in range(1, length)], rig.now)
    steps = [rig.engine.handle([ev.TaskCancelled(None, 1)], rig.now)]
    while rig.engine.next_timeout() is not None:
        assert rig.engine.next_timeout() <= rig.now, "the rest is due now"
        steps.append(rig.engine.handle([ev.TimerFired()], rig.now))
    assert [len(step.writes) for step in steps] == [1 + MAX_UNITS, *[MAX_UNITS] * 3, MAX_UNITS - 1]
    assert not rig.engine.tasks.live and total(rig, "skipped") == length - 1
    rig.engine.check_invariants(None)


def test_the_children_of_one_parent_are_worked_off_in_portions():
    rig = Rig()
    rig.engine.handle([ev.TaskSubmitted(None, spec("p"))], rig.now)
    count = 2 * MAX_UNITS + 500
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["p"])) for _ in range(count)], rig.now)
    rig.handle(ev.TaskCancelled(None, 1))
    assert total(rig, "skipped") == MAX_UNITS
    assert rig.engine.next_timeout() <= rig.now
    rest = list(rig.engine.tasks.live)
    rig.handle(ev.TaskCancelled(None, rest[0]), ev.TaskCancelled(None, rest[-1]))
    assert total(rig, "skipped") == 2 * MAX_UNITS - 1, "who ended meanwhile is passed over"
    rig.handle()
    assert rig.status(rest[0]) == rig.status(rest[-1]) == "CANCELLED"
    assert total(rig, "skipped") == count - 2 and counts(rig) == NOTHING
    assert rig.engine.next_timeout() is None


def test_nothing_is_left_to_do_when_the_last_child_ends_by_itself():
    rig = Rig()
    rig.engine.handle([ev.TaskSubmitted(None, spec("p"))], rig.now)
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["p"])) for _ in range(MAX_UNITS + 2)], rig.now)
    rig.handle(ev.TaskCancelled(None, 1))
    rig.handle(*(ev.TaskCancelled(None, child) for child in list(rig.engine.tasks.live)))
    assert rig.engine.next_timeout() is None and counts(rig) == NOTHING


def test_ten_thousand_parents_of_one_task():
    rig = Rig()
    rig.engine.handle([ev.TaskSubmitted(None, spec()) for _ in range(10_000)], rig.now)
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=[dep(n, COMPLETE) for n in range(1, 10_001)]))], rig.now)
    for first in range(1, 10_001, 500):
        assert rig.status(10_001) == "BLOCKED"
        rig.engine.handle([ev.TaskCancelled(None, task) for task in range(first, first + 500)], rig.now)
    assert rig.status(10_001) == "READY"
    rig.engine.check_invariants(None)
