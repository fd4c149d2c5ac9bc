"""How many queries the store has at a time, and what becomes of those that wait."""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_QUERIES
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from tests.service.harness import Harness, spec


def ask(rig, count, first=1_000, deadline=None):
    """As many unknown tasks are asked for in one batch."""
    due = None if deadline is None else rig.now + deadline
    calls = [m.Call("") for _ in range(count)]
    rig.handle(*(m.CallReceived(call, ANYONE, m.Get(first + n), due) for n, call in enumerate(calls)))
    return calls


def test_the_store_has_a_few_at_a_time_and_answers_all_in_order():
    rig = Harness()
    calls = ask(rig, 10 * MAX_QUERIES)
    asked = []
    while rig.queries:
        assert len(rig.queries) <= MAX_QUERIES
        asked.append(min(rig.queries))
        rig.answer_store()
    assert asked == sorted(asked) and len(asked) == len(calls)
    assert {rig.answer(call).code for call in calls} == {Code.NOT_FOUND}
    assert rig.service.statistics()["waiting_for_store"] == 0 and rig.service.next_timeout() is None


def test_one_that_waits_sees_what_was_written_before_it_is_asked():
    rig = Harness()
    ask(rig, MAX_QUERIES)
    (late,) = ask(rig, 1, first=5_000)
    rig.call(m.Submit(spec(key="new"), False, None))
    rig.answer_store()
    assert len(rig.queries) == MAX_QUERIES - 1, "held until the task before it is durable"
    rig.durable()
    assert len(rig.queries) == MAX_QUERIES
    while rig.queries:
        rig.answer_store()
    assert rig.answer(late).code is Code.NOT_FOUND


def test_room_that_callers_leave_behind_is_used():
    rig = Harness()
    gone = ask(rig, MAX_QUERIES)
    waiting = ask(rig, 3, first=5_000)
    rig.handle(*map(m.CallEnded, gone))
    rig.queries.clear()  # the store answers nobody
    rig.advance(1)
    assert sorted(query.task for query in rig.queries.values()) == [5_000, 5_001, 5_002]
    while rig.queries:
        rig.answer_store()
    assert {rig.answer(call).code for call in waiting} == {Code.NOT_FOUND}


def test_one_that_waits_may_run_out_of_time_and_is_never_asked():
    rig = Harness()
    ask(rig, MAX_QUERIES)
    late = ask(rig, 5, first=5_000, deadline=1)
    rig.advance(2)
    assert {rig.answer(call).code for call in late} == {Code.DEADLINE_EXCEEDED}
    while rig.queries:
        assert all(query.task < 5_000 for query in rig.queries.values())
        rig.answer_store()
    rig.advance(SECOND)
    assert rig.service.statistics()["waiting_for_store"] == 0


def test_a_stop_ends_those_that_wait_too():
    rig = Harness()
    calls = ask(rig, 3 * MAX_QUERIES)
    rig.handle(m.StopRequested(0))
    assert {rig.answer(call).code for call in calls} == {Code.UNAVAILABLE}
