"""Reads that show much: how many a step has, whose turn is next, and what becomes of those that wait."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import READ_BURST, READ_SHARE, SHOW_COST
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.reads import cost
from cronoq_sansio.settings import LimitSettings, Settings
from tests.service.harness import Harness, spec

TASKS = 50
PAGE = cost(TASKS)
LIST = m.ListTasks((), (), 0, TASKS)


def populated(settings=None, *, volatile=True):
    rig = Harness(settings, volatile=volatile)
    rig.call(m.SubmitBatch(tuple(spec() for _ in range(TASKS))))
    rig.durable()
    return rig


def ask(rig, count, source=0, request=LIST, deadline=None):
    """So many calls in one batch, as one read of a connection brings them."""
    due = None if deadline is None else rig.now + deadline
    calls = [m.Call("") for _ in range(count)]
    rig.handle(*(m.CallReceived(call, ANYONE, request, due, source) for call in calls))
    return calls


def answered(rig, calls):
    return [call for call in calls if rig.answer(call) is not None]


def waiting(rig):
    return rig.service.statistics()["waiting_reads"]


def work_in(performed):
    return sum(cost(len(action.message.tasks)) for action in performed if isinstance(action, m.Reply))


def test_one_read_is_answered_at_once_whatever_it_costs():
    rig = populated()
    (call,) = ask(rig, 1)
    assert len(rig.answer(call).tasks) == TASKS
    assert waiting(rig) == 0 and rig.service.next_timeout() is None


def test_a_step_has_no_more_than_the_burst_and_one_read():
    rig = populated()
    calls = ask(rig, 400)
    assert len(answered(rig, calls)) == READ_BURST // PAGE + 1
    while waiting(rig):
        rig.now = rig.outbox.next_timeout()
        assert 0 < work_in(rig.handle(m.TimerFired())) <= READ_BURST + PAGE
    assert answered(rig, calls) == calls


def test_what_waits_has_its_share_of_the_time_and_no_more():
    rig = populated()
    calls = ask(rig, 1_000)
    begun, done = rig.now, len(answered(rig, calls))
    rig.advance(SECOND // 2)
    share = (rig.now - begun) // READ_SHARE
    assert abs((len(answered(rig, calls)) - done) * PAGE - share) <= 2 * PAGE + READ_BURST
    rig.advance(60 * SECOND)
    assert answered(rig, calls) == calls and waiting(rig) == 0
    assert rig.service.next_timeout() is None


def test_other_calls_are_answered_while_reads_wait():
    rig = populated()
    ask(rig, 1_000)
    submitted = rig.submit(key="new")
    assert rig.answer(submitted).task_id == TASKS + 1
    assert rig.answer(rig.call(m.Get("new"))).task_id == TASKS + 1
    assert waiting(rig) > 900


def test_a_connection_is_answered_in_its_own_order_and_the_connections_in_turn():
    rig = populated()
    order = []
    crowd = ask(rig, 30, source=1)
    other = ask(rig, 3, source=2)
    while waiting(rig):
        rig.now = rig.outbox.next_timeout()
        order += [action.call for action in rig.handle(m.TimerFired())]
    assert [call for call in order if call in other] == other
    assert [call for call in crowd if call in order] == [call for call in order if call in crowd]
    assert max(map(order.index, other)) <= 2 * len(other)


def test_a_read_that_comes_later_does_not_overtake():
    rig = populated()
    (first, second) = ask(rig, 20)[-2:]
    rig.now += SECOND  # there is time, but the timer was late
    (late,) = ask(rig, 1, request=m.GetSnapshot())
    assert rig.answer(late) is None
    answers = [action.call for action in rig.handle(m.TimerFired())]
    rest = []
    while waiting(rig):
        rig.now = rig.outbox.next_timeout()
        rest += [action.call for action in rig.handle(m.TimerFired())]
    assert (answers + rest)[-3:] == [first, second, late]


def test_it_shows_the_state_of_the_instant_in_which_it_is_answered():
    rig = populated()
    last = ask(rig, 20, request=m.ListTasks((), (), TASKS, 10))[-1]
    crowd = ask(rig, 100)
    late = ask(rig, 1, request=m.ListTasks((), (), TASKS, 10))[0]
    rig.submit()
    rig.advance(60 * SECOND)
    assert len(rig.answer(last).tasks) == 0
    assert [info.task_id for info in rig.answer(late).tasks] == [TASKS + 1]
    assert rig.answer(crowd[-1]).next_after == TASKS


def test_who_goes_away_or_runs_out_of_time_leaves_at_once():
    rig = populated()
    gone = ask(rig, 200, source=1)[100:]
    late = ask(rig, 200, source=2, deadline=1)[100:]
    rig.handle(*map(m.CallEnded, gone))
    before = waiting(rig)
    rig.advance(2)
    assert {rig.answer(call).code for call in late} == {Code.DEADLINE_EXCEEDED}
    assert waiting(rig) <= before - len(late)
    assert {rig.answer(call).message for call in late} == {"the call's deadline passed"}
    rig.advance(60 * SECOND)
    assert all(rig.answer(call) is None for call in gone)
    assert rig.service.statistics()["open_requests"] == 0


def test_when_the_last_one_leaves_nothing_is_due():
    rig = populated()
    calls = ask(rig, 50)
    rig.handle(*(m.CallEnded(call) for call in calls if call.open))
    assert waiting(rig) == 0 and rig.service.next_timeout() is None


def test_how_many_may_wait_is_bounded_by_the_open_calls():
    rig = populated(Settings(limits=LimitSettings(max_concurrent_requests=100)))
    calls = ask(rig, 400)
    refused = [call for call in answered(rig, calls) if getattr(rig.answer(call), "code", None) is Code.UNAVAILABLE]
    assert waiting(rig) <= 100 and len(refused) >= 290


def test_a_list_of_a_pool_that_there_is_not_does_not_wait():
    rig = populated()
    ask(rig, 100)
    (call,) = ask(rig, 1, request=m.ListTasks(("default", "no such"), (), 0, 1))
    assert rig.answer(call).code is Code.UNKNOWN_POOL


def test_of_a_list_that_waits_each_pool_is_kept_once():
    rig = populated()
    ask(rig, 100)
    (call,) = ask(rig, 1, request=m.ListTasks(("".join(["def", "ault"]),) * 1_000, (), 0, 1))
    (kept,) = call.wait.request.pools
    assert kept is next(iter(rig.engine.pools))
    rig.advance(SECOND)
    assert len(rig.answer(call).tasks) == 1


def test_a_stop_tells_those_that_wait_and_answers_them_no_more():
    rig = populated(volatile=False)
    calls = ask(rig, 100, request=m.GetSnapshot(), deadline=SECOND)
    late = [call for call in calls if rig.answer(call) is None]
    rig.submit()  # not durable: what is told of the stop waits for it
    rig.handle(m.StopRequested(0))
    assert waiting(rig) == 0 and len(late) > 50
    rig.advance(SECOND // 2)
    assert all(rig.answer(call) is None for call in late)
    rig.durable()
    assert {rig.answer(call).code for call in late} == {Code.UNAVAILABLE}


def test_the_store_is_asked_for_as_many_as_there_is_time_for():
    rig = populated(volatile=False)
    calls = ask(rig, 100)
    most = len(rig.queries)
    while waiting(rig):
        rig.now = max(rig.now, rig.outbox.next_timeout())
        rig.handle(m.TimerFired())
        most = max(most, len(rig.queries))
        while rig.queries:
            rig.answer_store()
    assert most <= READ_BURST // PAGE + 2, "more than a turn's, and one that was cheaper than expected"
    assert answered(rig, calls) == calls


def test_a_page_that_the_store_has_little_for_costs_what_it_shows():
    rig = Harness()
    wide = m.ListTasks((), (), 0, 1_000)
    for _ in range(3):
        ask(rig, 1, request=wide)
        assert len(rig.queries) == 1, "the empty page before it was charged for a full one"
        rig.answer_store()


def test_each_kind_of_read_counts():
    for request in (LIST, m.ListWorkers(), m.GetSnapshot(), m.ListTasks((), (4,), 0, 1)):
        rig = populated()
        ask(rig, 4_000, request=request)
        assert waiting(rig) > 1_000, request


def test_a_filter_that_lets_nothing_pass_costs_what_is_looked_at():
    rig = populated()
    for _ in range(20):
        rig.call(m.SubmitBatch(tuple(spec() for _ in range(500))))
    calls = ask(rig, 10, request=m.ListTasks((), (4,), 0, 1))
    assert len(answered(rig, calls)) == 1


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(0, 20_000_000)), max_size=12))
def test_everybody_is_answered_once_and_in_order(reads):
    rig = populated()
    asked, order = {}, []
    for source, count, pause in reads:
        calls = [m.Call("") for _ in range(count)]
        asked.setdefault(source, []).extend(calls)
        order += [action.call for action in rig.handle(*(m.CallReceived(c, ANYONE, LIST, None, source) for c in calls))]
        order += [action.call for action in rig.advance(pause)]
    order += [action.call for action in rig.advance(60 * SECOND)]
    for calls in asked.values():
        own = set(calls)
        assert [call for call in order if call in own] == calls


def test_a_shown_task_costs_more_than_a_microsecond():
    assert SHOW_COST > 1_000, "costs are nanoseconds"
