"""Watches: filters against a plain predicate, budget, ends, and that nothing is built for nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.service import budgets
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import watches as watches_module
from cronoq_sansio.service.watches import Filters
from cronoq_sansio.settings import PoolSettings, Settings
from tests.service.harness import Harness, spec

SETTINGS = Settings(pools=(PoolSettings("a"), PoolSettings("b")))

pools = st.lists(st.sampled_from("abc"), max_size=2).map(tuple)
ids = st.lists(st.integers(1, 4), max_size=3).map(tuple)
keys = st.lists(st.sampled_from(["k", "l"]), max_size=2).map(tuple)
requests = st.builds(m.Watch, pools, ids, keys, st.just(False))


def wants(request, task_id, pool, key):
    """Decided: an event passes if its pool matches and (its id is in ids or its key in keys), each if given."""
    named = task_id in request.ids or (bool(key) and key in request.keys)
    return (not request.pools or pool in request.pools) and (named or not (request.ids or request.keys))


@given(
    st.lists(requests, max_size=8),
    st.sets(st.integers(0, 7)),
    st.integers(1, 4),
    st.sampled_from("abc"),
    st.sampled_from(["", "k", "l", "m"]),
)
def test_the_index_finds_whom_the_rule_names(wanted, leaving, task_id, pool, key):
    filters = Filters()
    calls = {m.Call(index): request for index, request in enumerate(wanted)}
    for call, request in calls.items():
        filters.add(call, request)
    filters.interested(task_id, pool, key)
    for call in [call for call in calls if call.sink in leaving]:
        filters.remove(call, calls.pop(call))
    filters.check_invariants(calls)
    found = filters.interested(task_id, pool, key)
    assert len(set(found)) == len(found)
    assert set(found) == {call for call, request in calls.items() if wants(request, task_id, pool, key)}


def test_an_event_costs_only_who_is_interested_in_it():
    filters = Filters()
    watchers = [m.Call(n) for n in range(1_000)]
    for n, call in enumerate(watchers):
        filters.add(call, m.Watch((), (n,), (f"k{n}",), False))
    assert filters.interested(7, "a", "k9") == (watchers[7], watchers[9])
    assert filters.interested(5_000, "a", "") is filters.interested(5_001, "a", ""), "the same tuple for all of them"


# --- a life


def test_ends_only_by_default_and_everything_on_demand():
    rig = Harness(SETTINGS)
    ends, moves = rig.watch(), rig.watch(all_transitions=True)
    stream = rig.worker(pool="a")
    rig.submit("a")
    rig.durable()
    rig.say(stream, m.Complete(1, b"", ""))
    rig.durable()
    assert rig.told(ends) == [(1, "SUCCEEDED")]
    assert rig.told(moves) == [(1, "BLOCKED"), (1, "READY"), (1, "RUNNING"), (1, "SUCCEEDED")]


def test_no_event_before_it_is_durable():
    rig = Harness(SETTINGS)
    call = rig.watch(all_transitions=True)
    rig.submit("a")
    assert rig.told(call) == []
    rig.durable()
    assert rig.told(call) == [(1, "BLOCKED"), (1, "READY")]
    rig.call(m.Cancel(1))
    assert rig.told(call) == []
    rig.durable()
    assert rig.told(call) == [(1, "CANCELLED")]


def test_a_watch_that_comes_in_the_same_read_before_a_submit_sees_it_whole():
    rig = Harness(SETTINGS)
    watch, submit = m.Call("w"), m.Call("s")
    rig.handle(rig.received(watch, m.Watch((), (), (), True)), rig.received(submit, m.Submit(spec("a"), False, None)))
    rig.durable()
    assert rig.told(watch) == [(1, "BLOCKED"), (1, "READY")]


def test_the_engine_tells_moves_exactly_while_somebody_wants_them():
    rig = Harness(SETTINGS)
    ends = rig.watch()
    assert not rig.engine.watched
    first, second = rig.watch(all_transitions=True), rig.watch(all_transitions=True, ids=(9,))
    assert rig.engine.watched
    rig.handle(m.CallEnded(first))
    assert rig.engine.watched
    rig.handle(m.CallEnded(second))
    assert not rig.engine.watched
    rig.submit("a")
    assert rig.outbox.held() == 1, "the reply alone"
    rig.handle(m.CallEnded(ends))
    assert rig.service.statistics()["open_watches"] == 0


def test_a_watch_that_ends_by_its_deadline_stops_the_moves_too():
    """It is closed while its rejection is released, which is outside of any step."""
    rig = Harness(SETTINGS)
    call = rig.call(m.Watch((), (), (), True), deadline=SECOND)
    rig.advance(SECOND)
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED
    rig.submit("a")
    assert not rig.engine.watched


def test_events_of_callers_that_went_away_are_not_kept():
    rig = Harness(SETTINGS)
    call = rig.watch(all_transitions=True)
    rig.submit("a")
    held = rig.outbox.held()
    rig.handle(m.CallEnded(call))
    assert held == 3
    assert [action for action in rig.durable() if isinstance(action, m.SendEvent)] == []


def test_a_watch_has_no_time_limit_of_the_server():
    rig = Harness(SETTINGS)
    call = rig.watch()
    rig.advance(100_000 * SECOND)
    assert rig.answer(call) is None and call.open


def test_watches_have_a_budget_of_their_own(monkeypatch):
    monkeypatch.setattr(budgets, "MAX_WATCHES", 2)
    rig = Harness(SETTINGS)
    first, _second, third = rig.watch(), rig.watch(), rig.watch()
    assert rig.answer(third).code is Code.UNAVAILABLE and "2 watches are open" in rig.answer(third).message
    assert rig.answer(rig.call(m.ListWorkers())) == m.WorkerList(())
    rig.handle(m.CallEnded(first))
    assert rig.answer(rig.watch()) is None


def test_an_unknown_pool_is_refused_before_anything_is_opened():
    rig = Harness(SETTINGS)
    call = rig.watch(pools=("a", "nowhere"))
    assert rig.answer(call).code is Code.UNKNOWN_POOL and "nowhere" in rig.answer(call).message
    assert call not in rig.events and rig.service.statistics()["open_watches"] == 0


@pytest.mark.parametrize("grace", [0, 3])
def test_the_last_events_come_before_the_end_of_a_stop(grace):
    rig = Harness(Settings(pools=(PoolSettings("a"),)))
    rig.worker(pool="a")
    rig.submit("a", attempts=1)
    rig.durable()
    call = rig.watch()
    rig.handle(m.StopRequested(grace * SECOND))
    late = rig.watch() if grace else None
    rig.advance(grace * SECOND)
    performed = rig.durable()
    kinds = [type(action) for action in performed if isinstance(action, m.SendEvent | m.Reject)]
    assert kinds[0] is m.SendEvent, kinds
    assert rig.told(call) == [(1, "DEAD_LETTERED")]
    for watcher in filter(None, (call, late)):
        assert rig.answer(watcher).code is Code.UNAVAILABLE
    assert rig.answer(rig.watch()).code is Code.UNAVAILABLE


def test_a_batch_tells_each_member_in_order():
    rig = Harness(SETTINGS)
    call = rig.watch(all_transitions=True, pools=("a",))
    rig.call(m.SubmitBatch((spec("a"), spec("b"), spec("a"))))
    rig.durable()
    assert rig.told(call) == [(1, "BLOCKED"), (1, "READY"), (3, "BLOCKED"), (3, "READY")]


def test_deliveries_to_all_watchers_together_are_bounded(monkeypatch):
    """A thousand watchers and a batch of a thousand would hold up everybody else for seconds."""
    monkeypatch.setattr(watches_module, "EVENT_BURST", 11)
    monkeypatch.setattr(watches_module, "COST", SECOND)
    rig = Harness(SETTINGS)
    first, second = (rig.call(m.Watch((), (), (), True)) for _ in range(2))
    rig.submit(pool="a")
    rig.submit(pool="a")
    rig.durable()
    assert rig.answer(first) is rig.answer(second) is None, "two events of two tasks for both: eight"
    rig.submit(pool="a")
    rig.durable()
    assert rig.answer(first) is None, "who came first is told"
    assert rig.answer(second).code is Code.DATA_LOSS
    rig.service.check_invariants()
    rig.advance(10 * SECOND)
    again = rig.call(m.Watch((), (), (), True))
    for _ in range(2):
        rig.submit(pool="a")
    rig.durable()
    assert rig.answer(first) is rig.answer(again) is None, "the bucket fills with time"


def test_a_caller_may_leave_in_the_batch_that_lets_it_in():
    rig = Harness()
    rig.submit()
    call = m.Call("")
    watch = m.Watch((), (), (), False)
    rig.handle(rig.received(call, watch), rig.commit(1), m.CallEnded(call))
    rig.submit()
    rig.durable()
    assert rig.told(call) == [] and rig.service.statistics()["open_watches"] == 0
