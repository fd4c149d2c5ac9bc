"""The conformance suite: what `_stores/base.py` says that a store must do, rule by rule, on every store."""

import inspect
import threading

import anyio
import pytest

from cronoq._stores.base import Claim, Fenced, Store
from cronoq_sansio import limits
from cronoq_sansio.engine.records import OutputStored, TaskInserted
from cronoq_sansio.service.messages import StoredTask, TaskInfo
from cronoq_sansio.spec import TaskSpec, TaskStatus
from tests.stores.support import (
    UNIX,
    WALL,
    Outcome,
    as_loaded,
    attempt,
    batch,
    changed,
    commit,
    ended,
    find,
    finished,
    inserted,
    live,
    loaded,
)


def test_every_store_has_the_whole_interface(harness):
    store = harness.make()
    for name, member in inspect.getmembers(Store, inspect.isfunction):
        if not name.startswith("_"):
            wanted = list(inspect.signature(member).parameters)
            assert list(inspect.signature(getattr(type(store), name)).parameters) == wanted, name
    assert store.volatile is (harness.kind == "memory")


def test_rule_1_a_batch_is_there_whole(harness):
    async def body(store, first):
        await commit(
            store,
            *(inserted(first + n, f"key-{n}") for n in range(200)),
            *(changed(first + n) for n in range(50, 100)),
            *(finished(first + n) for n in range(100, 200)),
            *(OutputStored(first + n, b"done", "text/plain") for n in range(100, 200)),
        )

    async def later(store, first):
        records = await loaded(store)
        assert len(live(records)) == 100
        assert len(ended(records)) == 100

    harness.with_store(body)
    harness.with_store(later)


def test_rule_1_records_of_one_batch_merge_to_the_last_of_each_row(harness):
    async def body(store, first):
        one, two = first, first + 1
        merged = batch(inserted(one, "a"), changed(one), changed(one, TaskStatus.RETRYING, message="boom"))
        merged.add(2, [inserted(two, "b"), changed(two), finished(two, TaskStatus.CANCELLED, message="gone")])
        assert await attempt(store, merged) is None
        records = await loaded(store)
        assert live(records) == [as_loaded(inserted(one, "a"), changed(one, TaskStatus.RETRYING, message="boom"))]
        assert [(r.task_id, r.status) for r in ended(records)] == [(two, TaskStatus.CANCELLED)]

    harness.with_store(body)


def test_rule_2_writing_a_batch_again_changes_nothing(harness):
    async def body(store, first):
        await commit(store, inserted(first, "a"), inserted(first + 1, "b"), inserted(first + 2, "c"))
        made = batch(
            inserted(first + 3, "d"),
            inserted(first + 4, "e"),
            changed(first),
            finished(first + 1),
            OutputStored(first + 1, b"small", "t"),
            finished(first + 4),
            OutputStored(first + 4, b"large" * 1_000, "t"),
        )
        assert await attempt(store, made) is None
        before = await loaded(store), [await find(store, first + n) for n in range(5)]
        for _ in range(2):
            assert await attempt(store, made) is None
        assert (await loaded(store), [await find(store, first + n) for n in range(5)]) == before

    harness.with_store(body)


def test_rule_3_done_comes_once_and_then_the_batch_survives(harness):
    async def body(store, first):
        outcome = Outcome()
        store.begin_commit(batch(inserted(first, "a")), outcome)
        assert await outcome.wait() is None
        await store.close()
        assert outcome.calls == [None]
        return first

    first = harness.with_store(body)

    async def later(store, _):
        assert live(await loaded(store)) == [as_loaded(inserted(first, "a"))]

    harness.with_store(later)


def test_rule_4_without_a_claim_nothing_is_written(harness):
    async def body():
        store = harness.make()
        await store.open()
        first = (await store.claim(UNIX)).first_task_id
        await commit(store, inserted(first, "a"))
        await store.close()
        assert isinstance(await attempt(store, batch(inserted(first + 1, "b"))), Fenced)
        await store.open()
        assert isinstance(await attempt(store, batch(inserted(first + 1, "b"))), Fenced)
        await store.claim(UNIX)
        assert live(await loaded(store)) == [as_loaded(inserted(first, "a"))]
        await commit(store, inserted(first + 1, "b"))
        await store.close()

    harness.run(body)


def test_rule_5_batches_are_written_in_their_order(harness):
    async def body(store, first):
        await commit(store, inserted(first))
        for attempt_number in range(1, 30):
            await commit(store, changed(first, attempt=attempt_number))
        await commit(store, finished(first), OutputStored(first, b"last", ""))
        records = await loaded(store)
        assert live(records) == []
        assert [record.task_id for record in ended(records)] == [first]

    harness.with_store(body)


def test_rule_6_find_and_load_see_what_is_done(harness):
    async def body(store, first):
        for number in range(10):
            await commit(store, inserted(first + number, f"k{number}"))
            assert (await find(store, f"k{number}")).info.task_id == first + number
            assert (await find(store, first + number)).info.status == TaskStatus.READY
            await commit(store, changed(first + number))
            assert (await find(store, first + number)).info.status == TaskStatus.RUNNING
            assert len(await loaded(store)) == number + 1

    harness.with_store(body)


def test_rule_7_live_tasks_are_never_pruned(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(6)), changed(first + 1))
        await commit(store, finished(first + 2, end=WALL), finished(first + 3, end=WALL + 1))
        assert await store.prune(WALL + 1) == 1
        assert await store.prune(WALL + 1) == 0
        assert [record.task_id for record in ended(await loaded(store))] == [first + 3]
        assert await store.prune(WALL * 2) == 1
        assert [r.inserted.task_id for r in await loaded(store)] == [first, first + 1, first + 4, first + 5]

    harness.with_store(body)


def test_rule_8_close_waits_for_the_batch_in_flight(harness):
    async def body():
        store = harness.make()
        await store.open()
        first = (await store.claim(UNIX)).first_task_id
        outcome = Outcome()
        store.begin_commit(batch(*(inserted(first + n) for n in range(3_000))), outcome)
        await store.close()
        assert outcome.calls == [None]
        assert "cronoq-store-writer" not in [thread.name for thread in threading.enumerate()]
        await store.close()

    harness.run(body)


def test_rule_8_close_finishes_although_the_caller_is_cancelled(harness):
    async def body():
        store = harness.make()
        await store.open()
        first = (await store.claim(UNIX)).first_task_id
        outcome = Outcome()
        with anyio.CancelScope() as scope:
            scope.cancel()
            store.begin_commit(batch(inserted(first)), outcome)
            await store.close()
        assert outcome.calls == [None]
        again = harness.make()
        await again.open()
        await again.claim(UNIX)
        assert len(await loaded(again)) == 1
        await again.close()

    harness.run(body)


# --- claims and ids


def test_ids_of_a_later_term_are_above_all_that_were_issued(harness):
    highest = 0
    leases = []
    for clock in (UNIX, UNIX, UNIX - 86_400):  # the wall clock may go back between two terms

        async def term(clock=clock):
            store = harness.make()
            await store.open()
            claim = await store.claim(clock)
            await commit(store, inserted(claim.first_task_id + 500, "x"), finished(claim.first_task_id + 500, end=WALL))
            assert await store.prune(WALL * 2) == 1
            await store.close()
            return claim

        claim = harness.run(term)
        assert isinstance(claim, Claim)
        assert claim.first_task_id > highest
        highest = claim.first_task_id + 500
        leases.append(claim.first_lease_id)
    assert leases == sorted(set(leases))
    assert all(later - earlier >= 1 << 40 for earlier, later in zip(leases, leases[1:], strict=False))


def test_a_second_claim_of_the_same_store_is_a_new_term(harness):
    async def body(store, first):
        again = await store.claim(UNIX)
        assert again.epoch == 2
        await commit(store, inserted(again.first_task_id))

    harness.with_store(body)


# --- load


def test_every_field_comes_back(harness):
    plain = TaskInserted(1, TaskSpec(b"", "", "", "p", 3, "", None, None, (), 0), 1, 0)

    async def body(store, first):
        records = [inserted(first, "key"), inserted(first + 1, "ключ\N{SNOWMAN}", b"\0" * 5_000)]
        odd = TaskInserted(first + 2, plain.spec, plain.max_attempts, plain.arrival)
        await commit(store, *records, odd, changed(first + 1, message="it ✗ broke"))
        assert await loaded(store) == [
            as_loaded(records[0]),
            as_loaded(records[1], changed(first + 1, message="it ✗ broke")),
            as_loaded(odd),
        ]

    harness.with_store(body)


def test_an_empty_store_loads_nothing(harness):
    async def body(store, first):
        assert [portion async for portion in store.load(0)] == []

    harness.with_store(body)


@pytest.mark.parametrize("count", [limits.LOAD_PORTION - 1, limits.LOAD_PORTION, limits.LOAD_PORTION + 1])
def test_load_comes_in_portions(harness, count):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(2 * count)))
        await commit(store, *(finished(first + n, end=WALL + n) for n in range(count)))
        sizes = []
        records = []
        async for portion in store.load(0):
            sizes.append(len(portion))
            records += portion
        assert max(sizes) <= limits.LOAD_PORTION
        assert min(sizes) > 0
        assert [record.inserted.task_id for record in live(records)] == list(range(first + count, first + 2 * count))
        assert [record.task_id for record in ended(records)] == list(range(first, first + count))

    harness.with_store(body, 10_000)


def test_load_gives_live_tasks_first_then_ends_newest_last(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(6)))
        await commit(store, finished(first + 4, end=WALL + 1), finished(first + 2, end=WALL + 2))
        await commit(store, finished(first, TaskStatus.FAILED, end=WALL + 3, message="no"))
        records = await loaded(store, WALL + 2)
        assert [record.inserted.task_id for record in records[:3]] == [first + 1, first + 3, first + 5]
        assert [(r.task_id, r.pool, r.key, r.status, r.finished) for r in records[3:]] == [
            (first + 2, "default", "k2", TaskStatus.SUCCEEDED, WALL + 2),
            (first, "default", "k0", TaskStatus.FAILED, WALL + 3),
        ]

    harness.with_store(body)


@pytest.mark.parametrize(("most", "kept"), [(0, []), (1, [3]), (3, [1, 2, 3]), (9, [0, 1, 2, 3])])
def test_load_gives_the_newest_ends_up_to_key_retention_max(harness, most, kept):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(4)))
        for n in range(4):
            await commit(store, finished(first + n, end=WALL + n // 2))  # two of a kind share their end
        assert [record.task_id - first for record in ended(await loaded(store, 0))] == kept

    harness.with_store(body, most)


# --- find


def test_find_answers_none_for_what_nobody_has(harness):
    async def body(store, first):
        await commit(store, inserted(first))
        for task in (first + 1, 0, -1, 1 << 63, 1 << 64, "", "nobody", "\udc80", "a\0b"):
            assert await find(store, task) is None

    harness.with_store(body)


def test_find_shows_a_live_task(harness):
    async def body(store, first):
        await commit(store, inserted(first, "key"))
        ready = TaskInfo(
            first, TaskStatus.READY, "default", "key", "mail", 0, 5, WALL + first % 1_000, None, None, "", False, 1
        )
        assert await find(store, first) == StoredTask(ready, None, "")
        await commit(store, changed(first, TaskStatus.RETRYING, 2, "boom"))
        retrying = TaskInfo(
            first,
            TaskStatus.RETRYING,
            "default",
            "key",
            "mail",
            2,
            5,
            WALL + first % 1_000,
            WALL + 2,
            None,
            "boom",
            False,
            1,
        )
        assert await find(store, "key") == StoredTask(retrying, None, "")

    harness.with_store(body)


@pytest.mark.parametrize("size", [0, 1, 1_024, 1_025, 100_000])
def test_find_shows_a_finished_task_only_from_a_durable_store(harness, size):
    async def body(store, first):
        await commit(store, inserted(first, "key"), inserted(first + 1, "other"))
        await commit(store, finished(first, end=WALL + 7), OutputStored(first, b"o" * size, "text/plain"))
        answer = await find(store, first)
        if store.volatile:
            assert answer is None
            assert await find(store, "key") is None
            return
        info = TaskInfo(
            first,
            TaskStatus.SUCCEEDED,
            "default",
            "key",
            "mail",
            1,
            5,
            WALL + first % 1_000,
            WALL + 2,
            WALL + 7,
            "",
            True,
            1,
        )
        assert answer == StoredTask(info, b"o" * size, "text/plain")
        assert await find(store, "key") == answer
        assert await find(store, "key", with_output=False) == StoredTask(info, None, "")
        await commit(store, finished(first + 1, TaskStatus.DEAD_LETTERED, message="boom"))
        failed = await find(store, "other")
        assert (failed.info.status, failed.info.message) == (TaskStatus.DEAD_LETTERED, "boom")
        assert (failed.info.output_available, failed.output) == (False, None)

    harness.with_store(body)


def test_find_by_key_gives_the_newest(harness):
    async def body(store, first):
        await commit(store, inserted(first, "key"))
        await commit(store, finished(first))
        await commit(store, inserted(first + 1, "key"))
        assert (await find(store, "key")).info.task_id == first + 1

    harness.with_store(body)


def test_many_find_at_once(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(40)))
        answers = []

        async def ask(n):
            answers.append((n, (await find(store, f"k{n}")).info.task_id - first))

        async with anyio.create_task_group() as group:
            for n in range(40):
                group.start_soon(ask, n)
        assert sorted(answers) == [(n, n) for n in range(40)]

    harness.with_store(body)


# --- prune


def test_prune_takes_the_oldest_up_to_a_portion(harness):
    count = limits.PRUNE_PORTION + 5

    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(count)))
        await commit(store, *(finished(first + n, end=WALL + n) for n in range(count)))
        assert await store.prune(WALL) == 0
        assert await store.prune(WALL * 2) == limits.PRUNE_PORTION
        assert [record.task_id - first for record in ended(await loaded(store))] == list(range(count - 5, count))
        assert await store.prune(WALL * 2) == 5
        assert await store.prune(WALL * 2) == 0
        assert await loaded(store) == []
        assert await find(store, first) is None

    harness.with_store(body, 10_000)


def test_commits_go_on_between_the_portions_of_pruning(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(3_000)))
        await commit(store, *(finished(first + n, end=WALL + n) for n in range(3_000)))
        counts = []

        async def prune():
            while count := await store.prune(WALL * 2):
                counts.append(count)

        async with anyio.create_task_group() as group:
            group.start_soon(prune)
            for n in range(5):
                await commit(store, inserted(first + 3_000 + n))
        assert counts == [limits.PRUNE_PORTION] * 3
        assert len(await loaded(store)) == 5

    harness.with_store(body, 10_000)
