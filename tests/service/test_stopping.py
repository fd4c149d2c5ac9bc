"""The graceful stop beside its transcripts: what is said when, whatever comes in between."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.errors import Code
from cronoq_sansio.service import messages as m
from tests.service.harness import Harness, spec


def kinds(performed):
    return [
        type(action.outcome if isinstance(action, Answer) else getattr(action, "message", action)).__name__
        for action in performed
    ]


def busy(slots=1, tasks=1):
    rig = Harness()
    stream = rig.worker(slots)
    for number in range(tasks):
        rig.submit(key=f"k{number}")
    rig.durable()
    return rig, stream


def test_a_server_at_rest_stops_at_once():
    rig = Harness()
    assert kinds(rig.handle(m.StopRequested(10 * SECOND))) == ["StopFinished"]
    assert rig.service.next_timeout() is None


def test_nothing_of_the_end_is_said_before_it_is_durable():
    rig, stream = busy()
    waiting = rig.call(m.Wait("k0", None))
    rig.handle(m.StopRequested(SECOND))
    assert kinds(rig.advance(SECOND)) == ["AbortLease"]
    assert kinds(rig.advance(100 * SECOND)) == []
    assert rig.rows[1].state.status == 4, "as far as the store knows it still runs"
    assert kinds(rig.durable()) == ["Shutdown", "Reject", "StopFinished"]
    assert rig.rows[1].state.status == 5 and rig.rows[1].state.message == "server shutting down"
    assert rig.answer(waiting).code is Code.UNAVAILABLE
    assert rig.leases(stream) == []


def test_the_last_attempt_of_a_task_ends_it_and_whoever_waits_gets_that():
    rig = Harness()
    rig.worker()
    call = rig.call(m.Submit(spec(attempts=1), True, None))
    rig.durable()
    rig.handle(m.StopRequested(SECOND))
    rig.advance(SECOND)
    rig.durable()
    result = rig.answer(call).result
    assert (result.status, result.message) == (8, "server shutting down")


def test_submits_in_the_batch_of_the_stop_are_answered_before_it_finishes():
    rig = Harness()
    before, after = m.Call(""), m.Call("")
    submit = m.Submit(spec(), False, None)
    rig.handle(rig.received(before, submit), m.StopRequested(SECOND), rig.received(after, submit))
    assert rig.answer(after).code is Code.UNAVAILABLE
    assert kinds(rig.durable()) == ["Submitted", "StopFinished"]


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_worker_that_leaves_before_the_goodbye_gets_none(leaves_first):
    rig, stream = busy()
    rig.handle(m.StopRequested(SECOND))
    if leaves_first:
        rig.handle(m.WorkerGone(stream, "reset"))
    else:
        rig.advance(SECOND)
        rig.handle(m.WorkerGone(stream, "reset"))
    assert kinds(rig.durable()) == ["StopFinished"]
    assert rig.service.statistics()["leaving_workers"] == 0


def test_streams_that_have_not_registered_are_turned_away():
    rig = Harness()
    stream = rig.connect()
    performed = rig.handle(m.StopRequested(0))
    assert performed[0].stream is stream and performed[0].rejection.code is Code.UNAVAILABLE
    assert rig.service.next_timeout() is None


def test_a_worker_that_was_told_goodbye_says_what_it_likes():
    rig, stream = busy()
    rig.handle(m.StopRequested(0))
    rig.durable()
    step = rig.engine.number
    for message in (m.Complete(1, b"", ""), m.SetSlots(3), m.Nack(1, ""), m.Register("default", 1, "", 3, ())):
        assert rig.say(stream, message) == []
    assert rig.engine.number == step
    rig.handle(m.WorkerGone(stream, "done"))
    assert rig.service.statistics()["leaving_workers"] == 0


def test_a_query_to_the_store_that_is_under_way_is_not_waited_for():
    rig = Harness()
    call = rig.call(m.Get("nobody"))
    rig.handle(m.StopRequested(0))
    assert rig.answer(call).code is Code.UNAVAILABLE
    assert rig.answer_store() == []


@pytest.mark.parametrize(("graces", "ends"), [([5, 9], 5), ([9, 5], 5), ([5, 0], 0), ([3], 3)])
def test_the_shortest_grace_counts(graces, ends):
    rig, _ = busy()
    for grace in graces:
        rig.handle(m.StopRequested(grace * SECOND))
    if ends:
        assert kinds(rig.advance(ends * SECOND - 1)) == []
        assert kinds(rig.advance(1)) == ["AbortLease"]
    assert rig.engine.running == 0


def test_retries_do_not_start_during_the_grace():
    rig, stream = busy(slots=2, tasks=2)
    rig.handle(m.StopRequested(20 * SECOND))
    rig.say(stream, m.Fail(1, "again", False, 0))
    rig.durable()
    rig.advance(10 * SECOND)
    assert rig.leases(stream) == [2]
    rig.say(stream, m.Complete(2, b"", ""))
    rig.durable()
    assert rig.finished and rig.rows[1].state.status in (3, 5)
