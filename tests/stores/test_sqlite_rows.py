"""Rows of the SQLite store: damaged ones, those of other versions, pruning, copies, queries side by side."""

import sqlite3
import threading
from dataclasses import replace

import anyio
import msgspec
import pytest
from anyio import to_thread

from cronoq._stores.base import StoreUnavailable
from cronoq._stores.sqlite import READERS
from cronoq._stores.sqlite_rows import MultiRow
from cronoq._stores.sqlite_schema import statement
from cronoq_sansio import limits
from cronoq_sansio.engine.records import OutputStored, TaskDamaged
from cronoq_sansio.spec import Scheduling, TaskStatus
from tests.stores.support import (
    WALL,
    as_loaded,
    changed,
    commit,
    edge,
    ended,
    execute,
    find,
    finished,
    inserted,
    live,
    loaded,
    waiting,
)

# --- damaged rows


def test_damaged_rows_come_back_as_such_and_the_others_whole(sqlite):
    damages = [
        ("UPDATE cronoq_trio_tasks SET spec = x'c1' WHERE id = ?", "cannot be decoded"),
        ("UPDATE cronoq_trio_tasks SET spec = x'81a17601' || x'00' WHERE id = ?", "cannot be decoded"),
        ("UPDATE cronoq_trio_tasks SET spec = x'81a17604' WHERE id = ?", "has format 4; this version reads formats 1"),
        ("UPDATE cronoq_trio_tasks SET spec = x'82a17603a16d04' WHERE id = ?", "cannot be decoded"),
        ("UPDATE cronoq_trio_tasks SET spec = 'text' WHERE id = ?", "of a wrong type"),
        ("UPDATE cronoq_trio_tasks SET arrival = 'noon' WHERE id = ?", "of a wrong type"),
        ("UPDATE cronoq_trio_tasks SET priority = 4 WHERE id = ?", "no priority class 4"),
        ("UPDATE cronoq_trio_tasks SET kind = CAST(x'ff' AS TEXT) WHERE id = ?", "of a wrong type"),
        ("UPDATE cronoq_trio_tasks SET tenant = x'00' WHERE id = ?", "of a wrong type"),
        ("UPDATE cronoq_trio_states SET status = 77 WHERE id = ?", "of a wrong type"),
        ("UPDATE cronoq_trio_states SET due = 1.5 WHERE id = ?", "of a wrong type"),
        ("DELETE FROM cronoq_trio_tasks WHERE id = ?", "a column is missing"),
    ]

    async def body(store, first):
        count = len(damages)
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(2 * count)))
        await commit(store, *(changed(first + n) for n in range(2 * count)))
        for n, (text, _) in enumerate(damages):
            execute(sqlite.path, text, first + 2 * n)
        records = await loaded(store)
        for n, (_, reason) in enumerate(damages):
            damaged, whole = records[2 * n : 2 * n + 2]
            assert type(damaged) is TaskDamaged
            assert damaged.task_id == first + 2 * n
            assert reason in damaged.reason
            assert whole == as_loaded(inserted(first + 2 * n + 1, f"k{2 * n + 1}"), changed(first + 2 * n + 1))
        await commit(store, *(finished(r.task_id, TaskStatus.FAILED, message=r.reason) for r in records[::2]))
        assert [type(record) for record in live(await loaded(store))].count(TaskDamaged) == 0
        assert (await find(store, first)).info.message == records[0].reason

    sqlite.with_store(body)


def test_rows_of_a_later_version_with_more_fields_are_read(sqlite):
    async def body(store, first):
        await commit(store, inserted(first, "key"))
        [(stored,)] = execute(sqlite.path, "SELECT spec FROM cronoq_trio_tasks")
        more = msgspec.msgpack.encode({**msgspec.msgpack.decode(stored), "later": [1, 2]})
        execute(sqlite.path, "UPDATE cronoq_trio_tasks SET spec = ?", more)
        assert await loaded(store) == [as_loaded(inserted(first, "key"))]

    sqlite.with_store(body)


def test_damaged_texts_do_not_spoil_finished_tasks(sqlite):
    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(3)))
        await commit(store, *(finished(first + n, end=WALL + n) for n in range(3)))
        execute(sqlite.path, "UPDATE cronoq_trio_tasks SET key = CAST(x'ff' AS TEXT) WHERE id = ?", first + 1)
        assert [record.task_id for record in ended(await loaded(store))] == [first, first + 2]
        assert (await find(store, first + 1)).info.key == "\N{REPLACEMENT CHARACTER}"

    sqlite.with_store(body)


# --- pruning, copies, plans


def test_a_portion_of_pruning_is_bounded_by_bytes_too(sqlite, monkeypatch):
    monkeypatch.setattr(limits, "PRUNE_BYTES", 50_000)

    async def body(store, first):
        await commit(store, *(inserted(first + n, "", b"x" * 10_000) for n in range(10)))
        await commit(
            store,
            *(finished(first + n, end=WALL + n) for n in range(10)),
            *(OutputStored(first + n, b"y" * 10_000, "") for n in range(10)),
        )
        counts = []
        while count := await store.prune(WALL * 2):
            counts.append(count)
        assert counts == [3, 3, 3, 1]
        for table in ("tasks", "states", "outputs", "live"):
            assert execute(sqlite.path, f"SELECT count(*) FROM cronoq_trio_{table}") == [(0,)]

    sqlite.with_store(body)


@pytest.mark.parametrize("how", ["backup", "vacuum"])
def test_a_copy_made_while_the_server_writes_is_a_store(sqlite, tmp_path, how):
    copy = tmp_path / "copy.db"

    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(100)))
        await commit(store, finished(first), OutputStored(first, b"out", ""))
        source = sqlite3.connect(sqlite.path)
        if how == "vacuum":
            source.execute("VACUUM INTO ?", (str(copy),))
        else:
            target = sqlite3.connect(copy)
            source.backup(target, pages=5, progress=lambda *_: None)
            target.close()
        source.close()
        await commit(store, inserted(first + 200))
        return first

    first = sqlite.with_store(body)
    sqlite.path = copy

    async def later(store, _):
        assert len(live(await loaded(store))) == 99
        assert (await find(store, first)).output == b"out"

    sqlite.with_store(later)


HARMLESS = {"SCAN CONSTANT ROW", "SCAN json_each VIRTUAL TABLE INDEX 1:", "SCAN p"}
"""None is a table: one row, the list of pools that the query itself brings, and parents as they come from an index."""


def test_no_query_scans_a_table(sqlite):
    values = {
        "find_by_id": (1,),
        "newest_by_key": ("k",),
        "small_output": (1,),
        "large_output": (1,),
        "load_live": (1, 1),
        "load_finished": (1, 1, 1),
        "nth_newest_finished": (1, 1),
        "load_edges": (1, 1),
        "load_recurring": (1, 1),
        "load_parents": (1, 1, 1, 1),
        "any_edges": (),
        "resolve_edges": (1, 1, "k"),
        "select_prunable": (1, 1, 1, 1),
        "read_leader": (),
        "list_bound": (1, 1),
        "list_finished": (1, 9, 64, '["a"]', 1),
    }

    async def body(store, first):
        connection = sqlite3.connect(sqlite.path)
        for name, arguments in values.items():
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement(name)}", arguments)]
            scans = [step for step in plan if step.startswith("SCAN") and step not in HARMLESS]
            assert not scans, (name, plan)
            assert not any("TEMP B-TREE" in step for step in plan), (name, plan)
        connection.close()

    sqlite.with_store(body)


def test_at_most_so_many_queries_at_once(sqlite, monkeypatch):
    async def body(store, first):
        await commit(store, inserted(first))
        at_once = []
        running = 0
        lock = threading.Lock()
        meeting = threading.Barrier(READERS)
        run = store._readers.run

        def counted(query):
            nonlocal running
            with lock:
                running += 1
                at_once.append(running)
            meeting.wait(10)
            try:
                return run(query)
            finally:
                with lock:
                    running -= 1

        monkeypatch.setattr(store._readers, "run", counted)
        async with anyio.create_task_group() as group:
            for _ in range(READERS * 3):
                group.start_soon(find, store, first)
        assert max(at_once) == READERS
        assert len(store._readers._idle) <= READERS

    sqlite.with_store(body)


def test_a_cancelled_query_is_awaited(sqlite, monkeypatch):
    async def body(store, first):
        await commit(store, inserted(first))
        begun, ended_ = threading.Event(), threading.Event()
        run = store._readers.run

        def slow(query):
            begun.set()
            release.wait(10)
            try:
                return run(query)
            finally:
                ended_.set()

        release = threading.Event()
        monkeypatch.setattr(store._readers, "run", slow)
        async with anyio.create_task_group() as group:
            group.start_soon(find, store, first)
            await to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            release.set()
        assert ended_.is_set()

    sqlite.with_store(body)


def test_a_closed_store_answers_unavailable(sqlite):
    async def body(store, first):
        await store.close()
        with pytest.raises(StoreUnavailable):
            await find(store, first)
        with pytest.raises(StoreUnavailable):
            await loaded(store)
        with pytest.raises(StoreUnavailable):
            await store.prune(1)
        with pytest.raises(StoreUnavailable):
            await store.claim(1)

    sqlite.with_store(body)


@pytest.mark.parametrize("limit", [3, 20, 60, 250_000])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 127, 128, 1_000])
def test_rows_of_any_number_are_written_within_the_limit_of_parameters(limit, count):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t(a, b, c)")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, limit)
    rows = MultiRow("INSERT INTO t VALUES ", "(?,?,?)")
    rows.prepare(connection)
    wanted = [(n, n + 1, n + 2) for n in range(count)]
    rows.run(connection.cursor(), [value for row in wanted for value in row])
    assert connection.execute("SELECT * FROM t").fetchall() == wanted
    connection.close()


def test_an_output_that_comes_before_its_end_is_kept(sqlite):
    async def body(store, first):
        await commit(store, inserted(first), inserted(first + 1), changed(first), OutputStored(first, b"early", "t"))
        await commit(store, OutputStored(first + 1, b"alone", "t"))
        await commit(store, finished(first), finished(first + 1))
        assert (await find(store, first)).output == b"early"
        assert (await find(store, first + 1)).output == b"alone"

    sqlite.with_store(body)


# --- rows of every kind in one batch


def test_new_tasks_that_share_little_come_back_as_they_were(sqlite):
    async def body(store, first):
        usual = inserted(first)
        tasks = []
        for n in range(60):
            spec = replace(usual.spec, payload=b"%d" % n)
            if n % 2:
                spec = replace(spec, pool=f"p{n % 4}", kind=f"k{n % 6}", priority=n % 4)
            if n % 5 == 0:
                spec = replace(spec, key=f"key-{n}")
            if n % 7 == 0:
                spec = replace(spec, scheduling=Scheduling(tenant="acme"))
            tasks.append(replace(usual, task_id=first + n, spec=spec, max_attempts=1 + n % 3 // 2, arrival=WALL + n))
        await commit(store, *tasks)
        assert live(await loaded(store)) == [as_loaded(task) for task in tasks]
        await commit(store, *tasks)
        assert live(await loaded(store)) == [as_loaded(task) for task in tasks]

    sqlite.with_store(body)


def test_ends_of_every_kind_are_found_as_they_were(sqlite):
    async def body(store, first):
        ids = range(first, first + 48)
        await commit(store, *(inserted(n) for n in ids))
        messages = {n: "spoken" if n % 3 == 0 else "" for n in ids}
        await commit(store, *(changed(n, attempt=2, message=messages[n]) for n in ids))
        assert [record.changed for record in live(await loaded(store))] == [
            changed(n, attempt=2, message=messages[n]) for n in ids
        ]
        outputs = {n: (b"x" * (n % 5 * 400), "text/plain" if n % 2 else "") for n in ids if n % 4}
        await commit(
            store,
            *(OutputStored(n, *output) for n, output in outputs.items()),
            *(finished(n, message=messages[n]) for n in ids),
        )
        assert not live(await loaded(store))
        for n in ids:
            found = await find(store, n)
            assert found.info.message == messages[n]
            assert (found.output, found.content_type) == outputs.get(n, (None, ""))
        assert execute(sqlite.path, "SELECT count(*) FROM cronoq_trio_outputs") == [
            (sum(len(output) > 1_024 for output, _ in outputs.values()),)
        ]

    sqlite.with_store(body)


@pytest.mark.parametrize("ends", [[5], [3, 4, 5], [5, 3, 4], [0, 2, 4, 6], [0, 1, 9]])
def test_only_those_that_end_are_not_live_any_more(sqlite, ends):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(10)))
        await commit(store, *(finished(first + n) for n in ends))
        left = [record.inserted.task_id - first for record in live(await loaded(store))]
        assert left == [n for n in range(10) if n not in ends]

    sqlite.with_store(body)


def test_edges_go_with_their_task_whoever_wrote_them(sqlite):
    """A term that has seen that there are none does not look again, unless there may be some since."""

    def edges():
        return execute(sqlite.path, "SELECT child FROM cronoq_trio_edges")

    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(4)))
        await commit(store, finished(first))
        await commit(store, waiting(first + 5, edge(first + 1)), waiting(first + 6, edge(first + 1)))
        await commit(store, finished(first + 2))
        await commit(store, finished(first + 5))
        assert edges() == [(first + 6,)]
        await commit(store, finished(first + 6))
        assert edges() == []
        await commit(store, finished(first + 3))
        execute(sqlite.path, "INSERT INTO cronoq_trio_edges VALUES (?, 0, 0, 'k', 1)", first + 1)
        await store.claim(1)
        await commit(store, finished(first + 1))
        assert edges() == []

    sqlite.with_store(body)
