"""Waiting for keys that nobody has yet: they come, or they do not, and cycles that they would close."""

import pytest

from cronoq_sansio.clock import SECOND, ns
from cronoq_sansio.engine import cycles
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.dependencies import overdue
from cronoq_sansio.engine.records import EdgeResolved, TaskChanged, TaskInserted
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_CYCLE_NAMES, MAX_CYCLE_WALK, MAX_UNITS
from cronoq_sansio.spec import Condition
from tests.engine.harness import START, Rig, dep, pool, spec, total
from tests.engine.test_dependencies import NOTHING, awaiting, counts, message

SUCCESS, COMPLETE, FAILURE = Condition.ON_SUCCESS, Condition.ON_COMPLETE, Condition.ON_FAILURE


def test_an_awaited_task_comes_and_its_end_decides():
    rig = awaiting()
    (child,) = rig.submit(spec("c", deps=["later"]))
    assert rig.status(child) == "BLOCKED" and rig.engine.next_timeout() == START + 60 * SECOND
    rig.advance(59 * SECOND)
    step = rig.handle(ev.TaskSubmitted(None, spec("later")))
    parent = rig.answers[-1].task_id
    assert [record for record in step.writes if type(record) is EdgeResolved] == [EdgeResolved(child, "later", parent)]
    assert rig.engine.next_timeout() is None, "nothing is awaited any more"
    rig.advance(SECOND)
    (answer,) = rig.engine.handle([ev.TaskSubmitted(None, spec("c"))], rig.now).once_durable
    assert answer.outcome.duplicate and answer.after == step.number, "the row of the child was written then"
    rig.advance(100 * SECOND)
    rig.slots(1)
    rig.complete(parent)
    assert rig.status(child) == "RUNNING"


def test_the_wait_ends():
    rig = awaiting()
    (child,) = rig.submit(spec("c", deps=[dep("later", COMPLETE)]))
    rig.now += 60 * SECOND
    rig.handle()
    assert rig.status(child) == "BLOCKED", "timers act when the timer fires"
    rig.handle(ev.TimerFired())
    assert rig.status(child) == "SKIPPED"
    assert message(rig, child) == "no task with the key 'later' came within 60 s"
    (late,) = rig.submit(spec("later"))
    assert rig.status(late) == "READY" and counts(rig) == NOTHING


@pytest.mark.parametrize(
    ("waited", "text"),
    [
        (20.0011, "20 s"),
        (0.30017, "0.3 s"),
        (0.1, "0.1 s"),
        (86_400.2, "86400 s"),
        (86_399, "86400 s"),
        (1_234.5, "1230 s"),
        (31_536_000, "31500000 s"),
        (0.00012345, "0.000123 s"),
    ],
)
def test_the_time_in_the_message_has_three_digits(waited, text):
    assert overdue("k", ns(waited)) == f"no task with the key 'k' came within {text}"


def test_what_is_stored_are_wall_times():
    """Of a plain task too, which is taken in on a shorter way."""
    rig = awaiting()
    rig.handle(ev.WallClockMoved(7 * SECOND))
    step = rig.handle(*(ev.TaskSubmitted(None, item) for item in (spec(), spec(tenant="x"), spec("c", deps=["later"]))))
    assert [record.arrival for record in step.writes if type(record) is TaskInserted] == 3 * [rig.now + 7 * SECOND]
    (waits,) = (record for record in step.writes if type(record) is TaskChanged)
    assert waits.due == rig.now + 67 * SECOND
    assert rig.engine.next_timeout() == rig.now + 60 * SECOND


def test_many_waits_end_in_portions():
    rig = awaiting()
    count = MAX_UNITS + 5
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["later"])) for _ in range(count)], rig.now)
    rig.now += 60 * SECOND
    step = rig.handle(ev.TimerFired())
    assert len(step.writes) == MAX_UNITS and rig.engine.next_timeout() <= rig.now
    rig.handle(ev.TimerFired())
    assert total(rig, "skipped") == count and counts(rig) == NOTHING


def test_one_of_two_awaited_keys_is_not_enough():
    rig = awaiting()
    (child,) = rig.submit(spec(deps=["x", "y"]))
    (x,) = rig.submit(spec("x"))
    assert counts(rig)["dependency_timers"] == 1
    rig.advance(60 * SECOND)
    assert rig.status(child) == "SKIPPED" and "'y'" in message(rig, child)
    assert rig.status(x) == "READY" and counts(rig) == NOTHING


def test_no_wait_at_all_is_possible():
    rig = awaiting(await_unknown_dependencies=0)
    (child,) = rig.submit(spec(deps=["x"]))
    rig.advance(0)
    assert rig.status(child) == "SKIPPED"


def test_several_wait_for_one_key_with_different_conditions():
    rig = awaiting()
    ok, done, bad = rig.submit(*(spec(deps=[dep("k", condition)]) for condition in (SUCCESS, COMPLETE, FAILURE)))
    rig.handle(ev.TaskSubmitted(None, spec("k")))
    rig.handle(ev.TaskCancelled(None, rig.answers[-1].task_id))
    assert [rig.status(task) for task in (ok, done, bad)] == ["SKIPPED", "READY", "SKIPPED"]


def test_a_key_comes_with_a_task_that_ends_at_once():
    rig = awaiting()
    (dead,) = rig.submit(spec("dead"))
    rig.handle(ev.TaskCancelled(None, dead))
    child, other = rig.submit(spec(deps=["k"]), spec(deps=[dep("k", COMPLETE)]))
    (parent,) = rig.submit(spec("k", deps=["dead"]))
    assert [rig.status(task) for task in (parent, child, other)] == ["SKIPPED", "SKIPPED", "READY"]


def test_a_duplicate_is_no_new_parent():
    rig = awaiting()
    rig.submit(spec("k"))
    (child,) = rig.submit(spec(deps=["other"]))
    rig.handle(ev.TaskSubmitted(None, spec("k")))
    assert rig.status(child) == "BLOCKED" and counts(rig)["dependency_timers"] == 1


def test_only_pools_that_await_keys_do():
    rig = Rig(pool("a"), pool("b", await_unknown_dependencies=SECOND))
    assert rig.refused(spec(pool="a", deps=["k"])).code is Code.UNKNOWN_DEPENDENCY
    (child,) = rig.submit(spec(pool="b", deps=["k"]))
    (parent,) = rig.submit(spec("k", pool="a"))
    rig.handle(ev.TaskCancelled(None, parent))
    assert rig.status(child) == "SKIPPED"


def test_an_awaited_key_comes_for_many_in_portions():
    rig = awaiting()
    count = 2 * MAX_UNITS + 100
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["k"])) for _ in range(count)], rig.now)
    step = rig.handle(ev.TaskSubmitted(None, spec("k")))
    parent = rig.answers[-1].task_id
    resolved = [record for record in step.writes if type(record) is EdgeResolved]
    assert resolved == [EdgeResolved(child, "k", parent) for child in range(1, MAX_UNITS + 1)]
    rig.handle(ev.TaskCancelled(None, count), ev.TaskCancelled(None, parent))
    assert not total(rig, "skipped"), "rows name their parents first"
    rig.handle()
    while rig.engine.dependencies.unsettled:
        rig.handle()
    assert total(rig, "skipped") == count - 1 and counts(rig) == NOTHING


def test_nobody_is_late_whose_key_is_there_but_not_written_yet():
    rig = awaiting()
    count = MAX_UNITS + 5
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["k"])) for _ in range(count)], rig.now)
    rig.now += 60 * SECOND
    rig.handle(ev.TaskSubmitted(None, spec("k")))
    rig.handle(ev.TimerFired())
    rig.handle()
    assert not total(rig, "skipped") and counts(rig)["dependency_timers"] == 0


# --- cycles through awaited keys


def test_a_cycle_is_refused_and_its_members_are_named_in_order():
    rig = awaiting()
    first, second = rig.submit(spec("a", deps=["c"]), spec("b", deps=["a"]))
    refusal = rig.refused(spec("c", deps=["b"]))
    assert refusal.code is Code.CYCLE
    assert refusal.message == "deps[0]: a cycle, each waits for the next: c -> b -> a -> c"
    (rescue,) = rig.submit(spec("c"))
    rig.slots(1)
    for task in (rescue, first, second):
        rig.complete(task)


def test_members_without_a_key_are_named_by_their_ids():
    rig = awaiting()
    (a,) = rig.submit(spec(deps=["c"]))
    refusal = rig.refused(spec("c", deps=[dep(a, COMPLETE)]))
    assert refusal.message.endswith(f": c -> task {a} -> c")


def test_the_shortest_cycle_is_named_and_the_edge_that_closes_it():
    rig = awaiting()
    rig.submit(spec("x"), spec("a", deps=["c"]), spec("b", deps=["a"]), spec("d", deps=["b", "a"]))
    refusal = rig.refused(spec("c", deps=["x", "d", "a"]))
    assert refusal.message == "deps[2]: a cycle, each waits for the next: c -> a -> c"


def test_waiting_for_somebody_who_awaits_another_key_is_no_cycle():
    rig = awaiting()
    rig.submit(spec("a", deps=["z"]), spec("b", deps=["c"]))
    (c,) = rig.submit(spec("c", deps=["a"]))
    assert rig.status(c) == "BLOCKED"
    refusal = rig.refused(spec("z", deps=["b"]))
    assert refusal.message.endswith(": z -> b -> c -> a -> z"), "keys that came are followed too"
    rig.submit(spec("z"))


def test_a_parent_that_was_met_is_no_way():
    rig = awaiting()
    (x,) = rig.submit(spec("x"))
    rig.submit(spec("a", deps=["c", dep("x", COMPLETE)]))
    rig.handle(ev.TaskCancelled(None, x))
    assert rig.refused(spec("c", deps=["a"])).code is Code.CYCLE
    (c,) = rig.submit(spec("c", deps=[dep("x", COMPLETE)]))
    assert rig.status(c) == "READY"


def test_a_cycle_of_ten_thousand_is_found_and_named_in_part():
    rig = awaiting()
    rig.engine.handle([ev.TaskSubmitted(None, spec("t1", deps=["end"]))], rig.now)
    rig.engine.handle([ev.TaskSubmitted(None, spec(f"t{n}", deps=[n - 1])) for n in range(2, 10_001)], rig.now)
    refusal = rig.refused(spec("end", deps=["t10000"]))
    names = refusal.message.rpartition(": ")[2].split(" -> ")
    assert names[:3] == ["end", "t10000", "t9999"] and names[-2:] == ["t1", "end"]
    assert f"… {10_001 - MAX_CYCLE_NAMES} more …" in names and len(names) == MAX_CYCLE_NAMES + 2


def test_the_walk_is_made_only_when_a_cycle_is_possible(monkeypatch):
    monkeypatch.setattr(cycles, "find", None)  # the long walk
    rig = awaiting()
    rig.submit(spec("a", deps=["k"]), spec("b", deps=["a"]), spec("c", deps=["b", "other"]), spec("k"))
    rig.batch(spec("d", deps=["c"]), spec("e", deps=["d"]), spec("other"))


def test_a_walk_that_finds_no_end_is_refused():
    """However large the graph, a caller who closes circles all the time holds nobody up."""
    rig = awaiting(max_pending=10**6)
    rig.submit(spec("t1", deps=["end"]))
    count = MAX_CYCLE_WALK + 2
    rig.engine.handle([ev.TaskSubmitted(None, spec(f"t{n}", deps=[n - 1])) for n in range(2, count)], rig.now)
    rig.engine.handle([ev.TaskSubmitted(None, spec("end", deps=[count - 1]))], rig.now)
    assert rig.engine.find("end") is None
    rig.engine.handle([ev.TaskSubmitted(None, spec("near", deps=[2]))], rig.now)
    assert rig.engine.find("near") is not None


def test_a_long_chain_of_parents_costs_nothing_while_nobody_waits_for_the_child(monkeypatch):
    """The usual order: a note awaits each step, each step waits for the one before it."""
    looked = []
    real = cycles.reach
    monkeypatch.setattr(cycles, "reach", lambda starts, *rest: looked.append(1) or real(starts, *rest))
    monkeypatch.setattr(cycles, "find", None)
    rig = awaiting()
    for number in range(50):
        rig.submit(spec(f"note{number}", deps=[f"step{number}"]))
        rig.submit(spec(f"step{number}", deps=[f"step{number - 1}"] if number else []))
    assert len(looked) == 49


@pytest.mark.parametrize("count", [1, 2, MAX_CYCLE_NAMES, MAX_CYCLE_NAMES + 1, 1_000])
def test_the_text_of_a_cycle(count):
    names = [f"n{index}" for index in range(count)]
    shown = cycles.text(names).split(" -> ")
    assert shown[0] == shown[-1] == "n0" and shown[-2] == names[-1]
    assert len(shown) == min(count, MAX_CYCLE_NAMES + 1) + 1
