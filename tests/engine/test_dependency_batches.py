"""Batches whose members wait for each other: order, keys defined anywhere, cycles, refusals that name the member."""

from itertools import permutations

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import cycles
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.records import Edge, TaskInserted
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_BATCH_EDGES, MAX_UNITS
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import Condition, TaskStatus
from tests.engine.harness import Rig, attempts, dep, pool, spec

COMPLETE = Condition.ON_COMPLETE


def keys_in_order(rig, step):
    return [record.spec.key for record in step.writes if type(record) is TaskInserted]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_members_are_admitted_after_their_parents_and_answered_in_the_order_of_the_request(order):
    rig = Rig()
    diamond = [spec("a"), spec("b", deps=["a"]), spec("c", deps=["a"]), spec("d", deps=["b", "c"])]
    members = [diamond[index] for index in order]
    step = rig.handle(ev.BatchSubmitted(None, tuple(members)))
    admitted = keys_in_order(rig, step)
    assert admitted[0] == "a" and admitted[3] == "d"
    assert admitted[1:3] == [item.key for item in members if item.key in "bc"], "else in the order of the request"
    ids = [member.task_id for member in rig.answers[-1].members]
    assert [rig.engine.tasks.live[task].spec.key for task in ids] == [item.key for item in members]
    rig.slots(9)
    for key in "abcd":
        rig.complete(rig.engine.find(key).id)
    assert [rig.engine.find(key).status for key in "abcd"] == [TaskStatus.SUCCEEDED] * 4


@pytest.mark.parametrize(
    ("parents", "order"),
    [
        ([[], [], []], [0, 1, 2]),
        ([[2], [], []], [1, 2, 0]),
        ([[3], [0], [], []], [2, 3, 0, 1]),
        ([[1], [2], [3], []], [3, 2, 1, 0]),
        ([[1, 1], []], [1, 0]),
        ([[1], [0], []], [2]),
        ([[1], [2], [1], [0], []], [4]),
    ],
)
def test_the_topological_order(parents, order):
    assert cycles.topological(parents) == order


def test_edges_of_members_name_ids_and_are_stored_with_them():
    rig = Rig()
    (known,) = rig.submit(spec("known"))
    step = rig.handle(
        ev.BatchSubmitted(None, (spec("b", deps=["a", dep("known", COMPLETE), dep("a", COMPLETE)]), spec("a")))
    )
    second = next(record for record in step.writes if type(record) is TaskInserted and record.spec.key == "b")
    a = rig.engine.find("a").id
    assert second.edges == (Edge(a, "", 1), Edge(known, "", COMPLETE), Edge(a, "", COMPLETE))
    assert a < rig.engine.find("b").id


def test_a_key_that_exists_is_its_task_and_no_member():
    rig = Rig()
    (known,) = rig.submit(spec("a"))
    child, again = rig.batch(spec("c", deps=["a"]), spec("a", deps=["c"]))
    assert again == known and rig.status(child) == "BLOCKED"
    rig.handle(ev.TaskCancelled(None, known))
    assert rig.status(child) == "SKIPPED"


def test_a_duplicate_that_has_ended_judges_members_at_once():
    rig = Rig()
    (dead,) = rig.submit(spec("dead"))
    rig.handle(ev.TaskCancelled(None, dead))
    step = rig.handle(
        ev.BatchSubmitted(
            None,
            (
                spec("last", deps=[dep("b", COMPLETE)]),
                spec("c", deps=["b"]),
                spec("b", deps=["a"]),
                spec("a", deps=["dead"]),
                spec("dead"),
            ),
        )
    )
    ids = [member.task_id for member in rig.answers[-1].members]
    assert [rig.status(task) for task in ids] == ["READY", "SKIPPED", "SKIPPED", "SKIPPED", "CANCELLED"]
    assert rig.answers[-1].members[-1].duplicate
    assert "(key 'a') ended as skipped" in rig.ended[ids[2]].task.message
    assert step.once_durable[-1].after == step.number


def test_members_end_at_once_without_retention_too():
    rig = Rig(limits=LimitSettings(key_retention_max=1))
    (dead,) = rig.submit(spec("dead"))
    rig.handle(ev.TaskCancelled(None, dead))
    ids = rig.batch(spec("a", deps=["dead"]), spec("x", deps=["dead"]), spec("b", deps=["a"]))
    assert [rig.ended[task].task.status for task in ids] == [TaskStatus.SKIPPED] * 3


def test_keys_that_nobody_has_are_awaited_beside_those_of_the_batch():
    rig = Rig(pool(await_unknown_dependencies=60 * SECOND))
    b, a = rig.batch(spec("b", deps=["a", "later"]), spec("a"))
    rig.slots(9)
    rig.complete(a)
    assert rig.status(b) == "BLOCKED"
    (later,) = rig.submit(spec("later"))
    rig.complete(later)
    assert rig.status(b) == "RUNNING"


def test_members_whose_keys_were_awaited():
    rig = Rig(pool(await_unknown_dependencies=60 * SECOND))
    (child,) = rig.submit(spec(deps=["a", "b"]))
    a, b = rig.batch(spec("a", deps=["b"]), spec("b"))
    rig.slots(1)
    rig.complete(b)
    rig.complete(a)
    assert rig.status(child) == "RUNNING"


# --- refusals


@pytest.mark.parametrize(
    ("members", "index", "code", "words"),
    [
        ([spec(deps=[9])], 0, Code.UNKNOWN_DEPENDENCY, "deps[0]: no task has the id 9"),
        ([spec("a"), spec(deps=["a", "x"])], 1, Code.UNKNOWN_DEPENDENCY, "deps[1]: no task has the key 'x'"),
        ([spec(), spec("a", deps=["a"])], 1, Code.CYCLE, "deps[0]: the task depends on itself: a -> a"),
        (
            [spec("b", deps=["a"]), spec(), spec("a", deps=["b"])],
            0,
            Code.CYCLE,
            "cycle, each waits for the next: b -> a -> b",
        ),
        ([spec("a"), spec("a", deps=["x"])], 1, Code.DUPLICATE_KEY_IN_BATCH, "defined by task[0] already"),
        ([spec(deps=["a"]), spec("a"), spec("a")], 2, Code.DUPLICATE_KEY_IN_BATCH, "defined by task[1] already"),
        ([spec("a", pool="x"), spec(deps=["a"])], 0, Code.UNKNOWN_POOL, "unknown pool"),
        ([spec(deps=["x"]), spec(retry=attempts(0))], 0, Code.UNKNOWN_DEPENDENCY, "'x'"),
    ],
)
def test_the_member_that_is_wrong_is_named(members, index, code, words):
    rig = Rig()
    rig.submit(spec())
    refusal = rig.batch_refused(*members)
    assert refusal.code is code and words in refusal.message
    assert refusal.message.startswith((f"task[{index}]: ", f"task[{index}].deps["))
    assert refusal.details == (("cronoq-batch-index", str(index)),)


def test_a_cycle_names_its_first_member_and_the_edge_and_the_shortest_way():
    refusal = Rig().batch_refused(
        spec("x", deps=["y"]),
        spec("y", deps=["m"]),
        spec("free"),
        spec("k", deps=["free", "l", "m"]),
        spec("l", deps=["m"]),
        spec("m", deps=["n", "k"]),
        spec("n", deps=["p"]),
        spec("p", deps=["n"]),
    )
    assert refusal.details == (("cronoq-batch-index", "3"),), "x and y wait for a cycle and are not on one"
    assert refusal.message == "task[3].deps[2]: a cycle, each waits for the next: k -> m -> k"


def test_a_cycle_comes_before_the_bounds_and_after_what_is_wrong_with_one_member():
    rig = Rig(pool(max_pending=1))
    circle = (spec("a", deps=["b"]), spec("b", deps=["a"]))
    assert rig.batch_refused(*circle).code is Code.CYCLE
    assert rig.batch_refused(*circle, spec(deps=["x"])).code is Code.UNKNOWN_DEPENDENCY
    assert rig.batch_refused(spec("a"), spec("b", deps=["a"])).code is Code.OVERLOADED


def test_a_cycle_through_tasks_that_wait_for_keys_of_the_batch():
    """Neither of the members waits for the other; the tasks that are there already close the circle."""
    rig = Rig(pool(await_unknown_dependencies=60 * SECOND))
    one, two = rig.submit(spec("one", deps=["a"]), spec(deps=["b"]))
    refusal = rig.batch_refused(spec("x"), spec("a", deps=[two]), spec("b", deps=["x", "one"]))
    assert refusal.code is Code.CYCLE
    assert refusal.message == f"task[1].deps[0]: a cycle, each waits for the next: a -> task {two} -> b -> one -> a"
    rig.batch(spec("x"), spec("a", deps=[two]), spec("b", deps=["x"]))
    rig.slots(9)
    for task in (rig.engine.find("x").id, rig.engine.find("b").id, two, rig.engine.find("a").id, one):
        rig.complete(task)


def test_a_refused_batch_is_awaited_on():
    rig = Rig(pool(await_unknown_dependencies=60 * SECOND))
    (child,) = rig.submit(spec("c", deps=["a"]))
    rig.batch_refused(spec("a", deps=["c"]), spec("b"))
    assert rig.status(child) == "BLOCKED"
    rig.batch(spec("a"))
    rig.slots(1)
    rig.complete(rig.engine.find("a").id)
    assert rig.status(child) == "RUNNING"


# --- many


def test_a_chain_backwards():
    rig = Rig()
    count = 2 * MAX_UNITS
    members = [spec(f"t{n}", deps=[f"t{n + 1}"]) for n in range(count - 1)] + [spec(f"t{count - 1}")]
    rig.engine.handle([ev.BatchSubmitted(None, tuple(members))], rig.now)
    assert rig.engine.find(f"t{count - 1}").id == 1 and rig.engine.find("t0").id == count
    rig.engine.check_invariants(None)


def test_a_large_circle():
    rig = Rig()
    count = 2 * MAX_UNITS
    members = [spec(f"t{n}", deps=[f"t{(n + 1) % count}"]) for n in range(count)]
    refusal = rig.batch_refused(spec(deps=["t5"]), *members)
    assert refusal.details == (("cronoq-batch-index", "1"),)
    assert refusal.message.endswith(f"… {count - 10} more … -> t{count - 1} -> t0")


def test_a_dense_batch_costs_its_edges():
    """Every member waits for the 60 before it, and one edge closes many circles: found without trying each member."""
    rig = Rig(limits=LimitSettings(max_pending_total=10_000))
    count = 320
    members = [spec(f"t{n}", deps=[f"t{m}" for m in range(max(n - 60, 0), n)]) for n in range(count)]
    rig.engine.handle([ev.BatchSubmitted(None, tuple(members))], rig.now)
    assert len(rig.engine.tasks.live) == count
    circle = [spec(f"u{n}", deps=[f"u{m}" for m in range(max(n - 60, 0), n)]) for n in range(count)]
    circle[0] = spec("u0", deps=[f"u{count - 1}"])
    assert rig.batch_refused(*circle).details == (("cronoq-batch-index", "0"),)


def test_the_dependencies_of_a_batch_are_bounded():
    rig = Rig(limits=LimitSettings(max_pending_total=10_000))
    (parent,) = rig.submit(spec("p"))
    members = [spec(deps=[dep(parent, condition) for condition in Condition]) for _ in range(MAX_BATCH_EDGES // 3)]
    rig.batch(*members)
    refusal = rig.batch_refused(*members, spec(deps=[parent, dep(parent, Condition.ON_COMPLETE)]), spec(deps=[parent]))
    assert refusal.code is Code.INVALID and str(MAX_BATCH_EDGES) in refusal.message
    assert refusal.details == (("cronoq-batch-index", str(len(members) + 1)),)
