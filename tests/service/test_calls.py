"""Unary calls beside the transcripts: budgets, deadlines, look-ups that are overtaken, and sizes that come back."""

from dataclasses import replace

import pytest

from cronoq_sansio import outbox as outbox_module
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.errors import MAPPINGS, Code, GrpcStatus, Rejection
from cronoq_sansio.service import budgets
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings, OutputSettings, Settings
from tests.service.harness import Harness, spec

LIMITS = replace(LimitSettings(), max_wait=10 * SECOND, request_timeout=5 * SECOND)
SETTINGS = Settings(limits=LIMITS)
NOTHING_KEPT = Settings(
    limits=replace(LIMITS, key_retention_max=0), outputs=OutputSettings(cache_entries=0, info_entries=0)
)


def finish(rig, key="k", output=b"out"):
    """A task that succeeded, durably."""
    stream = rig.worker()
    rig.submit(key=key)
    rig.durable()
    (lease,) = rig.leases(stream)
    rig.say(stream, m.Complete(lease, output, "text/plain"))
    rig.durable()
    rig.handle(m.WorkerGone(stream, "done"))


# --- budgets


@pytest.mark.parametrize("request_", [m.Get(1), m.Cancel(1), m.Submit(spec(), False, None)])
def test_a_request_beyond_the_budget_is_refused_and_a_place_comes_free_with_each_end(request_):
    rig = Harness(replace(SETTINGS, limits=replace(LIMITS, max_concurrent_requests=2)))
    first = rig.submit(key="a")
    rig.submit(key="b")
    refused = rig.answer(rig.call(request_))
    assert refused.code is Code.UNAVAILABLE and "max_concurrent_requests" in refused.message
    rig.handle(m.CallEnded(first))
    assert rig.answer(rig.call(request_)) is None


def test_waits_have_a_budget_of_their_own(monkeypatch):
    monkeypatch.setattr(budgets, "MAX_WAITS", 2)
    rig = Harness(SETTINGS)
    rig.submit(key="a")
    rig.durable()
    first = rig.call(m.Wait("a", None))
    rig.call(m.Submit(spec(key="b"), True, None))
    refused = rig.answer(rig.call(m.Wait("a", None)))
    assert refused.code is Code.UNAVAILABLE and "2 calls are waiting" in refused.message
    assert rig.answer(rig.call(m.Get("a"))).task_id == 1
    rig.handle(m.CallEnded(first))
    assert rig.answer(rig.call(m.Wait("a", None))) is None


# --- deadlines


@pytest.mark.parametrize(
    ("request_", "deadline", "after", "status"),
    [
        (m.Submit(spec(), False, None), 3, 3, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), False, None), None, 15, GrpcStatus.CANCELLED),
        (m.Submit(spec(), False, None), 15, 15, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), False, None), 16, 15, GrpcStatus.CANCELLED),
        (m.Submit(spec(), True, 4 * SECOND), None, 4, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), True, 4 * SECOND), 2, 2, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), True, 99 * SECOND), None, 10, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), True, None), None, 10, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Submit(spec(), True, 0), None, 15, GrpcStatus.CANCELLED),
        (m.Wait("a", None), None, 10, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Wait("a", 3 * SECOND), 5, 3, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Wait("a", 0), 5, 5, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Wait("nobody", 3 * SECOND), 5, 3, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Wait("nobody", 0), None, 15, GrpcStatus.CANCELLED),
        (m.Get("a"), 1, 1, GrpcStatus.DEADLINE_EXCEEDED),
        (m.Get("nobody"), None, 15, GrpcStatus.CANCELLED),
        (m.Cancel("a"), 1, 1, GrpcStatus.DEADLINE_EXCEEDED),
    ],
)
def test_a_call_runs_out_of_time_exactly_then(request_, deadline, after, status):
    """The store never answers and never commits, so nothing but time ends these calls."""
    rig = Harness(SETTINGS)
    rig.submit(key="a")
    call = rig.call(request_, deadline=None if deadline is None else deadline * SECOND)
    rig.advance(after * SECOND - 1)
    assert rig.answer(call) is None
    rig.advance(1)
    assert MAPPINGS[rig.answer(call).code].grpc is status
    rig.durable()
    assert rig.outbox.held() == 0
    assert rig.service.statistics()["waiting_for_store"] == 0


def test_a_deadline_in_the_same_batch_as_the_answer_gives_one_answer():
    rig = Harness(SETTINGS)
    call = rig.call(m.Submit(spec(), False, None), deadline=2 * SECOND)
    rig.now += 2 * SECOND
    rig.handle(rig.commit(1), TimerFired())
    assert rig.answer(call) == Submitted(1, False), "the commit came first"
    call = rig.call(m.Submit(spec(), False, None), deadline=2 * SECOND)
    rig.now += 2 * SECOND
    rig.handle(TimerFired(), rig.commit(1))
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED, "the deadline came first"


def test_time_does_not_go_back():
    rig = Harness(SETTINGS)
    rig.submit(key="a")
    rig.durable()
    rig.now -= 5 * SECOND
    call = rig.call(m.Wait("a", 2 * SECOND))
    rig.now += 7 * SECOND - 1
    assert rig.handle(TimerFired()) == []
    rig.now += 1
    rig.handle(TimerFired())
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED


def test_a_timer_that_fires_too_early_does_nothing():
    rig = Harness(SETTINGS)
    stream = rig.worker()
    rig.submit(key="a")
    rig.durable()
    rig.call(m.Wait("a", 3 * SECOND), deadline=4 * SECOND)
    number = rig.engine.number
    for _ in range(5):
        assert rig.handle(TimerFired()) == []
    assert rig.engine.number == number, "the engine was not even asked"
    assert rig.leases(stream) == [1]


# --- look-ups


@pytest.mark.parametrize("request_", [m.Get("k"), m.Wait("k", 0), m.Cancel("k"), m.GetSnapshot()])
def test_a_look_sees_what_came_before_it_in_the_same_read(request_):
    rig = Harness(SETTINGS)
    submit, call = m.Call(""), m.Call("")
    rig.handle(rig.received(submit, m.Submit(spec(key="k"), False, None)), rig.received(call, request_))
    rig.durable()
    assert not rig.queries
    answer = rig.answer(call)
    if isinstance(request_, m.Wait):
        assert answer.code is Code.DEADLINE_EXCEEDED
    elif isinstance(request_, m.GetSnapshot):
        assert answer.engine.live_tasks == 1
    else:
        assert answer == m.CancelReply(True) or answer.task_id == 1


def test_a_get_in_the_read_that_ends_the_task_shows_the_end():
    rig = Harness(SETTINGS)
    stream = rig.worker()
    rig.submit(key="k")
    rig.durable()
    call = m.Call("")
    rig.handle(m.WorkerSent(stream, m.Complete(1, b"", "")), rig.received(call, m.Get("k")))
    assert rig.answer(call) is None, "the end is not durable"
    rig.durable()
    assert rig.answer(call).status == 6


@pytest.mark.parametrize("request_", [m.Get("k"), m.Wait("k", None), m.Cancel("k")])
def test_a_task_that_comes_to_life_while_the_store_is_asked_is_what_the_call_gets(request_):
    rig = Harness(SETTINGS)
    call = rig.call(request_)
    rig.submit(key="k")
    rig.durable()
    rig.answer_store()
    if isinstance(request_, m.Get):
        assert rig.answer(call).task_id == 1
    elif isinstance(request_, m.Cancel):
        assert rig.answer(call) is None and rig.durable()
        assert rig.answer(call) == m.CancelReply(True)
    else:
        assert rig.answer(call) is None
        rig.call(m.Cancel("k"))
        rig.durable()
        assert rig.answer(call).status == 9


def test_a_wait_that_became_one_late_still_ends_in_time():
    rig = Harness(SETTINGS)
    call = rig.call(m.Wait("k", 3 * SECOND))
    rig.submit(key="k")
    rig.durable()
    rig.advance(SECOND)
    rig.answer_store()
    rig.advance(2 * SECOND - 1)
    assert rig.answer(call) is None
    rig.advance(1)
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED
    assert rig.service.statistics()["service_timers"] == 0


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (m.Get("k"), lambda answer: answer.status == 6 and answer.output_available),
        (m.Get(1), lambda answer: answer.status == 6 and answer.created is not None),
        (m.Wait("k", 0), lambda answer: answer.output == b"out" and answer.content_type == "text/plain"),
        (m.Wait(1, None), lambda answer: answer.output == b"out"),
        (m.Cancel("k"), lambda answer: answer == m.CancelReply(False)),
        (m.Cancel(1), lambda answer: answer == m.CancelReply(False)),
    ],
)
def test_what_only_the_store_knows(request_, expected):
    rig = Harness(NOTHING_KEPT)
    finish(rig)
    call = rig.call(request_)
    assert rig.answer(call) is None
    rig.answer_store()
    assert expected(rig.answer(call))


@pytest.mark.parametrize(
    ("request_", "limits"),
    [
        (m.Get(1), LIMITS),
        (m.Wait(1, None), LIMITS),
        (m.Submit(spec(key="k"), True, None), LIMITS),
        (m.Cancel(1), NOTHING_KEPT.limits),
    ],
)
def test_a_store_that_cannot_be_asked_makes_the_answer_unknown(request_, limits):
    rig = Harness(replace(NOTHING_KEPT, limits=limits))
    finish(rig)
    call = rig.call(request_)
    (query,) = rig.queries.values()
    rig.queries.clear()
    rig.handle(m.StoreAnswered(query, Rejection(Code.UNAVAILABLE, "no answer")))
    assert rig.answer(call) == Rejection(Code.UNAVAILABLE, "no answer")
    assert rig.handle(m.StoreAnswered(query, None)) == [], "a second answer to the same query is nobody's"


@pytest.mark.parametrize("request_", [m.Wait(1, None), m.Cancel(1)])
def test_a_stored_row_that_has_not_ended_is_no_answer(request_):
    """The engine does not know the task, so the row is older than what it knows."""
    rig = Harness(NOTHING_KEPT)
    finish(rig)
    call = rig.call(request_)
    (query,) = rig.queries.values()
    info = replace(rig.rows[1].stored(False).info, status=4)
    rig.handle(m.StoreAnswered(query, m.StoredTask(info, None, "")))
    assert rig.answer(call).code is Code.UNAVAILABLE


def test_a_query_is_not_even_asked_when_the_caller_is_gone_before_it_may_be():
    rig = Harness(SETTINGS)
    rig.submit(key="a")
    call = rig.call(m.Get("nobody"))
    rig.handle(m.CallEnded(call))
    rig.durable()
    assert not rig.queries and rig.service.statistics()["waiting_for_store"] == 0


def test_a_duplicate_that_waits_for_an_ended_task_gets_its_result():
    rig = Harness(SETTINGS)
    finish(rig)
    call = rig.call(m.Submit(spec(key="k"), True, None))
    reply = rig.answer(call)
    assert reply.duplicate and reply.result.output == b"out"


def test_a_duplicate_that_waits_in_the_batch_that_ends_the_task_is_not_lost():
    rig = Harness(NOTHING_KEPT)
    stream = rig.worker()
    rig.submit(key="k")
    rig.durable()
    call = m.Call("")
    rig.handle(
        rig.received(call, m.Submit(spec(key="k"), True, None)),
        m.WorkerSent(stream, m.Complete(1, b"out", "")),
    )
    rig.durable()
    while rig.queries:
        rig.answer_store()
    assert rig.answer(call).result.output == b"out"


def test_such_a_duplicate_needs_no_store_for_what_is_in_the_caches_a_moment_later():
    rig = Harness(SETTINGS, volatile=True)
    stream = rig.worker()
    rig.submit(key="k")
    call = m.Call("")
    rig.handle(
        rig.received(call, m.Submit(spec(key="k"), True, None)),
        m.WorkerSent(stream, m.Complete(1, b"out", "")),
    )
    assert rig.answer(call).result.output == b"out"


def test_the_id_of_a_waiting_submit_is_told_only_when_it_is_durable():
    rig = Harness(SETTINGS)
    told = rig.call(m.Submit(spec(), True, 3 * SECOND))
    rig.durable()
    untold = rig.call(m.Submit(spec(), True, 3 * SECOND))
    rig.advance(3 * SECOND)
    assert rig.answer(told).details == (("cronoq-task-id", "1"),)
    assert rig.answer(untold).details == ()


# --- sizes


def test_held_answers_of_callers_who_gave_up_do_not_pile_up_while_the_store_hangs(monkeypatch):
    monkeypatch.setattr(outbox_module, "MIN_OUTBOX_SWEEP", 8)
    rig = Harness(SETTINGS)
    stream = rig.worker(3)
    kept = [rig.submit(key=key) for key in "abc"]
    asked = rig.call(m.Get("nobody"))
    for _ in range(100):
        rig.handle(m.CallEnded(rig.call(m.Get("a"))))
        rig.handle(m.CallEnded(rig.call(m.Submit(spec(key="a"), True, None))))
        rig.handle(m.CallEnded(rig.call(m.Get("no one"))))
        assert rig.outbox.held() <= 20
    rig.durable()
    assert [rig.answer(call).task_id for call in kept] == [1, 2, 3]
    assert rig.leases(stream) == [1, 2, 3] and len(rig.queries) == 1
    rig.answer_store()
    assert rig.answer(asked).code is Code.NOT_FOUND


def test_calls_leave_nothing_behind():
    rig = Harness(SETTINGS, volatile=True)
    rig.call(m.Submit(spec(key="live"), False, None))
    baseline = rig.service.statistics()
    for _ in range(300):
        rig.call(m.Submit(spec(key="live"), False, None), deadline=SECOND)
        rig.call(m.Wait("live", 0))
        rig.handle(m.CallEnded(rig.call(m.Wait("live", None))))
        rig.call(m.Get("live"))
        rig.call(m.GetSnapshot())
        call = rig.call(m.Get("nobody"))
        rig.handle(m.CallEnded(call))
    after = rig.service.statistics()
    after["step"] = baseline["step"]
    assert after == baseline
    assert rig.service.next_timeout() is None
