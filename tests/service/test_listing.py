"""Pages: the union of both parts against sorting everything, cuts by number, scan and bytes, what is kept meanwhile."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine import listing as engine_listing
from cronoq_sansio.errors import MAPPINGS, Code, GrpcStatus, Rejection
from cronoq_sansio.service import listing as service_listing
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.service import results
from cronoq_sansio.service.id_index import CHUNK, IdIndex
from cronoq_sansio.settings import LimitSettings, OutputSettings, PoolSettings, Settings
from cronoq_sansio.spec import TaskStatus
from tests.service.harness import Harness, spec

POOLS = (PoolSettings("a", max=50), PoolSettings("b", max=50))
SETTINGS = Settings(pools=POOLS)
READY, RUNNING, SUCCEEDED, CANCELLED = 3, 4, 6, 9


def populated(homes, running, succeeded, cancelled, *, volatile=False, settings=SETTINGS):
    """Tasks in `homes`; of each pool so many run and then succeed, the ids in `cancelled` end too."""
    rig = Harness(settings, volatile=volatile)
    rig.call(m.SubmitBatch(tuple(spec(home, key=f"k{n}") for n, home in enumerate(homes))))
    rig.durable()
    workers = [rig.worker(running, pool) for pool in "ab"] if running else []
    rig.durable()
    for stream in workers:
        for lease in rig.leases(stream)[:succeeded]:
            rig.say(stream, m.SetSlots(0))
            rig.say(stream, m.Complete(lease, b"out", ""))
    for task_id in sorted(cancelled):
        rig.call(m.Cancel(task_id))
        while rig.queries:
            rig.answer_store()
    rig.durable()
    return rig


def page(rig, pools=(), statuses=(), after=0, limit=0):
    call = rig.call(m.ListTasks(tuple(pools), tuple(statuses), after, limit))
    rig.durable()
    while rig.queries:
        rig.answer_store()
    return rig.answer(call)


def everything(rig, pools, statuses):
    """What all pages together must show: id and status, in order."""
    found = []
    for task_id, row in sorted(rig.rows.items()):
        live = rig.engine.tasks.live.get(task_id)
        status = live.status if live is not None else row.state.status
        if (not pools or row.inserted.spec.pool in pools) and (not statuses or status in statuses):
            found.append((task_id, status))
    return found


@given(
    st.lists(st.sampled_from("ab"), max_size=25),
    st.integers(0, 6),
    st.integers(0, 3),
    st.sets(st.integers(1, 25), max_size=8),
    st.lists(st.sampled_from("ab"), max_size=3),
    st.sets(st.sampled_from([READY, RUNNING, SUCCEEDED, CANCELLED]), max_size=3),
    st.integers(1, 7),
    st.sampled_from([2, 5, 10_000]),
    st.booleans(),
)
def test_pages_together_are_what_sorting_everything_gives(
    homes, running, succeeded, cancelled, pools, statuses, limit, scan, volatile
):
    rig = populated(homes, running, succeeded, cancelled, volatile=volatile)
    rig.store_scan = scan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_listing, "MAX_LIST_SCAN", scan)
        patch.setattr(results, "MAX_LIST_SCAN", scan)
        found, after = [], 0
        for _ in range(60):
            answer = page(rig, pools, sorted(statuses), after, limit)
            assert len(answer.tasks) <= limit
            found += [(info.task_id, info.status) for info in answer.tasks]
            if not answer.next_after:
                break
            assert answer.next_after > after
            after = answer.next_after
        else:
            raise AssertionError("pages without end")
    assert found == everything(rig, pools, statuses)


def test_a_page_ends_where_the_first_of_its_parts_does(monkeypatch):
    """The store knows a task beyond what was looked at among the live ones: it comes with the next page."""
    monkeypatch.setattr(engine_listing, "MAX_LIST_SCAN", 2)
    rig = populated("a" * 5, 0, 0, {4})
    answers = [page(rig, after=after) for after in (0, 2, 4)]
    assert [[info.task_id for info in answer.tasks] for answer in answers] == [[1, 2], [3, 4], [5]]
    assert [answer.next_after for answer in answers] == [2, 4, 0]


@pytest.mark.parametrize("volatile", [True, False])
def test_next_after_is_the_last_id_while_more_exist_and_0_on_the_last_page(volatile):
    rig = populated("a" * 4, 0, 0, {1, 3}, volatile=volatile)
    answers = [page(rig, after=after, limit=2) for after in (0, 2)]
    assert [[info.task_id for info in answer.tasks] for answer in answers] == [[1, 2], [3, 4]]
    assert [answer.next_after for answer in answers] == [2, 0]


@pytest.mark.parametrize(("limit", "configured", "count"), [(0, 1000, 100), (500, 1000, 120), (500, 50, 50), (0, 7, 7)])
def test_limit_0_is_100_and_max_list_caps(limit, configured, count):
    settings = replace(SETTINGS, limits=replace(LimitSettings(), max_list=configured))
    rig = populated("a" * 120, 0, 0, set(), settings=settings)
    assert len(page(rig, limit=limit).tasks) == count


def test_an_after_beyond_every_id_gives_the_last_page():
    rig = populated("aa", 0, 0, {1})
    assert page(rig, after=(1 << 64) - 1) == m.TaskPage((), 0)


def test_a_pool_named_twice_counts_once():
    rig = populated("ab", 0, 0, {2})
    assert [info.task_id for info in page(rig, pools=("b", "a", "b")).tasks] == [1, 2]


def test_pages_are_cut_by_bytes_and_still_go_on():
    limits = replace(LimitSettings(), max_message_bytes=4_096, max_key_len=3_000)
    rig = Harness(Settings(limits=limits))
    for n in range(4):
        rig.submit(key=chr(97 + n) * 1_400)
    rig.submit(key="ü" * 1_400)
    rig.durable()
    found, after = [], 0
    while True:
        answer = page(rig, after=after)
        size = sum(len(info.key.encode()) for info in answer.tasks)
        assert size <= 3_000
        found.append([info.task_id for info in answer.tasks])
        if not answer.next_after:
            break
        after = answer.next_after
    assert found == [[1, 2], [3, 4], [5]]


def test_tenants_count_too():
    limits = replace(LimitSettings(), max_message_bytes=4_096, max_key_len=3_000)
    rig = Harness(Settings(limits=limits))
    for n in range(3):
        rig.submit(key=str(n), tenant="t" * 1_400)
    rig.durable()
    answer = page(rig)
    assert [(info.task_id, len(info.tenant)) for info in answer.tasks] == [(1, 1_400), (2, 1_400)]
    assert answer.next_after == 2


def test_one_task_that_is_too_large_alone_is_shown_alone():
    limits = replace(LimitSettings(), max_message_bytes=4_096, max_key_len=4_000)
    rig = Harness(Settings(limits=limits))
    for n in range(3):
        rig.submit(key=str(n) * 3_800)
    rig.durable()
    assert [[info.task_id for info in page(rig, after=after).tasks] for after in range(3)] == [[1], [2], [3]]


def test_entries_are_what_get_shows():
    for volatile in (True, False):
        rig = populated("aaa", 1, 1, {3}, volatile=volatile)
        for info in page(rig).tasks:
            call = rig.call(m.Get(info.task_id))
            while rig.queries:
                rig.answer_store()
            assert rig.answer(call) == info


def test_the_live_part_is_from_when_the_query_is_issued():
    """A task that ends before the store is read is in both parts; taken later, it could be in none."""
    rig = populated("aa", 0, 0, set())
    call = rig.call(m.ListTasks((), (), 0, 0))
    (number,) = rig.queries
    before = rig.store_answer(number)
    rig.call(m.Cancel(2))
    rig.durable()
    rig.handle(before)
    assert [(info.task_id, info.status) for info in rig.answer(call).tasks] == [(1, READY), (2, READY)]


def test_a_page_of_live_tasks_waits_until_what_it_shows_is_durable():
    rig = Harness(SETTINGS)
    rig.call(m.SubmitBatch((spec("a"),)))
    call = rig.call(m.ListTasks((), (READY,), 0, 0))
    assert rig.answer(call) is None
    rig.durable()
    assert rig.answer(call).tasks[0].task_id == 1


def test_a_look_sees_what_came_before_it_in_the_same_read():
    rig = Harness(SETTINGS)
    submit, call = m.Call(""), m.Call("")
    events = [rig.received(submit, m.Submit(spec("a"), False, None))]
    rig.handle(*events, rig.received(call, m.ListTasks((), (READY,), 0, 0)))
    rig.durable()
    assert [info.task_id for info in rig.answer(call).tasks] == [1]


def test_a_store_that_fails_fails_the_page():
    rig = populated("a", 0, 0, set())
    call = rig.call(m.ListTasks((), (), 0, 0))
    ((number, query),) = rig.queries.items()
    del rig.queries[number]
    rig.handle(m.StoreAnswered(query, service_listing.TOO_MANY))
    assert rig.answer(call) is service_listing.TOO_MANY


def test_what_pages_keep_while_the_store_is_read_is_bounded(monkeypatch):
    monkeypatch.setattr(service_listing, "MAX_LISTED", 10)
    rig = populated("a" * 6, 0, 0, set())
    calls = [rig.call(m.ListTasks((), (), 0, 0)) for _ in range(2)]
    assert rig.answer(calls[0]) is None
    assert MAPPINGS[rig.answer(calls[1]).code].grpc is GrpcStatus.UNAVAILABLE
    assert rig.service.statistics()["listed_tasks"] == 6
    rig.handle(m.CallEnded(calls[0]))
    assert rig.service.statistics()["listed_tasks"] == 0
    assert rig.answer(rig.call(m.ListTasks((), (), 0, 0))) is None


def test_a_page_counts_against_the_budget_of_requests_and_ends_with_its_deadline():
    rig = Harness(replace(SETTINGS, limits=replace(LimitSettings(), max_concurrent_requests=1)))
    call = rig.call(m.ListTasks((), (), 0, 0), deadline=5)
    assert rig.answer(rig.call(m.Get(1))).code is Code.UNAVAILABLE
    rig.advance(5)
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED
    assert rig.service.statistics()["waiting_for_store"] == 0


def test_an_info_cache_that_is_off_lists_nothing_finished():
    settings = replace(SETTINGS, outputs=OutputSettings(info_entries=0))
    rig = populated("aa", 0, 0, {1}, volatile=True, settings=settings)
    assert [info.task_id for info in page(rig).tasks] == [2]


# --- ids in order


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200), st.integers(-1, 61))
def test_the_index_is_a_sorted_set(operations, after):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cronoq_sansio.service.id_index.CHUNK", 4)
        index, model = IdIndex(), set()
        for adds, task_id in operations:
            if adds and task_id not in model:
                index.add(task_id)
                model.add(task_id)
            elif not adds and task_id in model:
                index.discard(task_id)
                model.discard(task_id)
            ids = list(index.after(after))
            assert ids == sorted(task_id for task_id in model if task_id > after)
        assert len(index) == len(model)


def test_the_index_of_many_ids_is_a_list_of_short_lists():
    index = IdIndex()
    for task_id in [*range(0, 20_000, 2), *range(1, 20_000, 2)]:
        index.add(task_id)
    index.check_invariants()
    assert max(map(len, index._chunks)) <= CHUNK
    for task_id in range(0, 20_000, 3):
        index.discard(task_id)
    index.check_invariants()
    assert next(index.after(19_995)) == 19_996


def test_every_status_is_live_or_ended():
    """The split of the filter between engine and store leaves nothing out."""
    assert {status for status in TaskStatus if status >= service_listing.SUCCEEDED} == {
        status for status in TaskStatus if status.terminal
    }


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (m.SubmitBatch((spec("a"),)), "outcome is unknown"),
        (m.ListTasks((), (), 0, 0), "deadline"),
        (m.Get(7), "deadline"),
    ],
)
def test_only_what_adds_tasks_says_that_its_outcome_is_unknown(request_, words):
    rig = Harness(SETTINGS)
    call = rig.call(request_, deadline=5)
    rig.advance(5)
    assert words in rig.answer(call).message


@pytest.mark.parametrize("request_", [m.ListTasks((), (int(TaskStatus.READY),), 0, 0), mr.ListRecurring()])
def test_a_list_that_waits_for_the_store_has_no_outcome_that_anybody_could_miss(request_):
    rig = Harness(SETTINGS)
    rig.call(m.Submit(spec("a"), False, None))
    call = rig.call(request_, deadline=5)
    assert call.open
    rig.advance(5)
    assert rig.answer(call) == Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline passed")
