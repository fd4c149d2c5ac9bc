"""`Store.list`: finished tasks by id, filtered, bounded, without outputs; on every store."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from cronoq._stores.base import StoreUnavailable
from cronoq_sansio import limits
from cronoq_sansio.engine.records import OutputStored, TaskInserted
from cronoq_sansio.service.messages import ListFinished, StoredPage
from cronoq_sansio.spec import TaskStatus
from tests.stores.support import WALL, changed, commit, execute, find, finished, spec, waiting

SUCCEEDED, FAILED, CANCELLED = TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED


async def ask(store, *, pools=(), statuses=(), after=0, limit=100):
    return await store.list(ListFinished(1, tuple(pools), tuple(map(int, statuses)), after, limit))


async def populate(store, first):
    """Ten tasks, in the pools a, b and c in turn: 2, 5 and 8 are live, the others ended out of order."""
    ids = [first + n for n in range(10)]
    await commit(store, *(TaskInserted(ids[n], spec(f"k{n}", pool="abc"[n % 3]), 5, WALL) for n in range(10)))
    await commit(store, *(changed(ids[n]) for n in (2, 5)))
    for n in (9, 0, 7, 4):
        await commit(store, finished(ids[n], SUCCEEDED), OutputStored(ids[n], b"out" * (n * 100 + 1), "t"))
    await commit(store, finished(ids[1], FAILED, message="no"), finished(ids[6], CANCELLED), finished(ids[3], FAILED))
    return ids


def shown(ids, page):
    return [ids.index(info.task_id) for info in page.tasks]


CASES = [
    ({}, [0, 1, 3, 4, 6, 7, 9]),
    ({"pools": "a"}, [0, 3, 6, 9]),
    ({"pools": "ab"}, [0, 1, 3, 4, 6, 7, 9]),
    ({"pools": "c"}, []),
    ({"statuses": [FAILED]}, [1, 3]),
    ({"statuses": [FAILED, CANCELLED]}, [1, 3, 6]),
    ({"pools": "a", "statuses": [FAILED]}, [3]),
    ({"statuses": [TaskStatus.SHED]}, []),
]


@pytest.mark.parametrize(("filters", "found"), CASES)
def test_by_id_and_filtered(harness, filters, found):
    async def body(store, first):
        ids = await populate(store, first)
        page = await ask(store, **filters)
        assert shown(ids, page) == ([] if store.volatile else found)
        assert page.looked == 0

    harness.with_store(body)


def test_after_is_exclusive_and_any_number(harness):
    async def body(store, first):
        ids = await populate(store, first)
        if not store.volatile:
            assert shown(ids, await ask(store, after=ids[3])) == [4, 6, 7, 9]
            assert shown(ids, await ask(store, after=ids[4] - 1)) == [4, 6, 7, 9]
        for after in (ids[9], (1 << 63) - 1, (1 << 64) - 1):
            assert await ask(store, after=after) == StoredPage((), 0)

    harness.with_store(body)


def test_a_full_page_says_where_it_ends(harness):
    async def body(store, first):
        ids = await populate(store, first)
        page = await ask(store, limit=3)
        if store.volatile:
            assert page == StoredPage((), 0)
            return
        assert (shown(ids, page), page.looked) == ([0, 1, 3], ids[3])
        page = await ask(store, limit=4, after=page.looked)
        assert (shown(ids, page), page.looked) == ([4, 6, 7, 9], ids[9])
        assert await ask(store, after=page.looked) == StoredPage((), 0)

    harness.with_store(body)


def test_a_batch_that_was_acknowledged_is_seen(harness):
    """Rule 6."""

    async def body(store, first):
        for n in range(20):
            await commit(store, TaskInserted(first + n, spec(), 5, WALL), finished(first + n))
            page = await ask(store, after=first + n - 1)
            assert len(page.tasks) == (0 if store.volatile else 1)

    harness.with_store(body)


# --- SQLite alone


def test_entries_are_what_find_shows_without_the_output(sqlite):
    async def body(store, first):
        await populate(store, first)
        page = await ask(store)
        for info in page.tasks:
            assert (await find(store, info.task_id, with_output=False)).info == info
        assert [info.output_available for info in page.tasks] == [True, False, False, True, False, True, True]

    sqlite.with_store(body)


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("scan", [1, 2, 3, 7, 10_000])
def test_a_query_looks_at_so_many_rows_and_says_how_far_it_came(sqlite, monkeypatch, scan, limit):
    monkeypatch.setattr(limits, "MAX_LIST_SCAN", scan)

    async def body(store, first):
        ids = await populate(store, first)
        for filters, expected in CASES:
            found, after = [], 0
            for _ in range(40):
                page = await ask(store, after=after, limit=limit, **filters)
                assert len(page.tasks) <= limit
                found += shown(ids, page)
                if not page.looked:
                    break
                assert page.looked > after
                after = page.looked
            assert found == expected

    sqlite.with_store(body)


def test_an_empty_page_costs_no_more_than_the_scan(sqlite, monkeypatch):
    """However many rows there are, filters that nothing passes stop at the bound."""
    monkeypatch.setattr(limits, "MAX_LIST_SCAN", 50)

    async def body(store, first):
        await commit(store, *(TaskInserted(first + n, spec(), 5, WALL) for n in range(400)))
        await commit(store, *(finished(first + n) for n in range(400)))
        page = await ask(store, pools=["nowhere"])
        assert page == StoredPage((), first + 49)

    sqlite.with_store(body)


def test_a_page_does_not_read_payloads_and_outputs(sqlite):
    """Tenants included: their column stands before the specification."""
    count, size = 40, 1 << 20

    async def body(store, first):
        for n in range(count):
            task = waiting(first + n, key=f"k{n}", tenant=f"tenant-{n}")
            large = replace(task, spec=replace(task.spec, payload=bytes(size)))
            await commit(store, large, finished(first + n), OutputStored(first + n, bytes(size), "t"))

    async def later(store, first):
        before = bytes_read()
        page = await ask(store)
        assert [info.tenant for info in page.tasks] == [f"tenant-{n}" for n in range(count)]
        assert (await find(store, "k7", with_output=False)).info.tenant == "tenant-7"
        assert bytes_read() - before < size

    sqlite.with_store(body)
    sqlite.with_store(later)


def bytes_read():
    """What this process has read with system calls so far."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("this system does not count what a process reads")
    return int(dict(line.split(": ") for line in counts.read_text().splitlines())["rchar"])


def test_damaged_texts_are_shown_as_far_as_they_go(sqlite):
    async def body(store, first):
        ids = await populate(store, first)
        execute(sqlite.path, "UPDATE cronoq_trio_tasks SET key = CAST(x'ff' AS TEXT) WHERE id = ?", ids[1])
        execute(sqlite.path, "DELETE FROM cronoq_trio_tasks WHERE id = ?", ids[3])
        page = await ask(store, limit=2)
        assert shown(ids, page) == [0, 1] and page.tasks[1].key == "\N{REPLACEMENT CHARACTER}"
        assert shown(ids, await ask(store, after=ids[1])) == [4, 6, 7, 9]

    sqlite.with_store(body)


def test_a_store_that_cannot_be_read_is_unavailable(sqlite, monkeypatch):
    async def body(store, first):
        await populate(store, first)

        def fail(query):
            raise sqlite3.DatabaseError("database disk image is malformed")

        monkeypatch.setattr(store._readers, "run", fail)
        for question in (ask(store), find(store, first)):
            with pytest.raises(StoreUnavailable):
                await question

    sqlite.with_store(body)


def test_a_closed_store_is_unavailable(sqlite):
    async def body():
        store = sqlite.make()
        with pytest.raises(StoreUnavailable):
            await ask(store)

    sqlite.run(body)
