"""What happens to the SQLite store when the disk, another process or its own rows are at fault."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest
from anyio import to_thread

from cronoq._stores import sqlite_writer
from cronoq._stores.base import Fenced, StoreError, StoreGone, StoreUnavailable
from cronoq._stores.sqlite_files import DatabaseFile, LeaderLock
from cronoq_sansio.engine.records import OutputStored, TaskInserted
from cronoq_sansio.errors import LocalProtocolError
from cronoq_sansio.spec import TaskStatus
from tests.small_disk import small_disk
from tests.stores.support import (
    UNIX,
    WALL,
    EdgeResolved,
    Outcome,
    attempt,
    batch,
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


@pytest.fixture(autouse=True)
def _short_busy_timeout(monkeypatch):
    monkeypatch.setattr("cronoq._stores.sqlite_schema.BUSY_TIMEOUT_MS", 20)


def test_the_writer_waits_for_the_disk(sqlite):
    async def body(store, first):
        connection = store._writer._connection
        values = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync")
        }
        assert values == {"journal_mode": "wal", "synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1}

    sqlite.with_store(body)


def test_when_done_is_called_the_files_hold_the_batch(sqlite, tmp_path):
    """A copy of file and log, taken inside `done`, is what a power cut at that instant leaves."""

    async def body(store, first):
        copied = threading.Event()

        def done(error):
            assert error is None
            for ending in ("", "-wal"):
                shutil.copy(f"{sqlite.path}{ending}", tmp_path / f"copy.db{ending}")
            copied.set()

        await commit(store, waiting(first + 2, edge(key="a")))
        made = batch(
            inserted(first, "a"),
            inserted(first + 1, "b"),
            waiting(first + 3, edge(first + 1)),
            EdgeResolved(first + 2, "a", first),
            finished(first + 1),
        )
        store.begin_commit(made, done)
        await to_thread.run_sync(copied.wait)
        return first

    first = sqlite.with_store(body)
    sqlite.path = tmp_path / "copy.db"

    async def later(store, _first):
        records = await loaded(store)
        assert [[e.parent for e in r.inserted.edges] for r in live(records)] == [[], [first], [first + 1]]
        assert [record.task_id for record in ended(records)] == [first + 1]

    sqlite.with_store(later)


# --- the fence


@pytest.mark.parametrize(
    "takeover",
    [
        "UPDATE cronoq_trio_leader SET epoch = epoch + 1",
        "UPDATE cronoq_trio_leader SET holder = 'somebody else'",
        "DELETE FROM cronoq_trio_leader",
    ],
)
def test_another_holder_fences_everything_that_writes(sqlite, takeover):
    async def body(store, first):
        await commit(store, inserted(first), inserted(first + 1), finished(first + 1))
        execute(sqlite.path, takeover)
        for _ in range(2):
            error = await attempt(store, batch(inserted(first + 2), finished(first)))
            assert isinstance(error, Fenced)
            assert str(error) == f"{sqlite.path}: another server has taken over; nothing was written"
            with pytest.raises(Fenced):
                await store.prune(WALL * 2)
        assert [record.inserted.task_id for record in live(await loaded(store))] == [first]
        before = execute(sqlite.path, "SELECT * FROM cronoq_trio_leader")
        await store.close()
        assert (
            execute(sqlite.path, "SELECT * FROM cronoq_trio_leader") == before
        )  # the other one's claim is not touched

    sqlite.with_store(body)


def test_epochs_begin_again_after_the_last_one_and_ids_do_not(sqlite):
    async def body(store, first):
        await commit(store, inserted(first), finished(first, end=WALL))
        highest = (32_767 << 48) + 5
        await commit(store, inserted(highest), finished(highest, end=WALL))
        assert await store.prune(WALL + 1) == 2
        await store.close()
        execute(sqlite.path, "UPDATE cronoq_trio_leader SET epoch = 32767")
        await store.open()
        claim = await store.claim(UNIX)
        assert (claim.epoch, claim.first_task_id, claim.first_lease_id) == (1, highest + 1, 1 << 48 | 1)

    sqlite.with_store(body)


def test_the_leader_row_says_who_leads(sqlite):
    async def body(store, first):
        row = execute(sqlite.path, "SELECT epoch, holder <> '', pid, host <> '', claimed, beat FROM cronoq_trio_leader")
        assert row == [(1, 1, os.getpid(), 1, UNIX, UNIX)]

    sqlite.with_store(body)


# --- one at a time


def test_a_second_batch_in_flight_is_refused(sqlite):
    async def body(store, first):
        holder = sqlite3.connect(sqlite.path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        outcome = Outcome()
        store.begin_commit(batch(inserted(first)), outcome)
        with pytest.raises(LocalProtocolError):
            store.begin_commit(batch(inserted(first + 1)), Outcome())
        assert isinstance(await outcome.wait(), StoreUnavailable)
        holder.close()
        await commit(store, inserted(first))
        with pytest.raises(LocalProtocolError):
            await store.open()

    sqlite.with_store(body)


def test_an_owner_that_raises_does_not_stop_the_thread(sqlite, capsys):
    async def body(store, first):
        called = threading.Event()

        def done(error):
            called.set()
            raise RuntimeError("the loop is gone")

        store.begin_commit(batch(inserted(first)), done)
        await to_thread.run_sync(called.wait)
        while True:
            try:
                await commit(store, inserted(first + 1))
                break
            except LocalProtocolError:
                continue
        assert len(await loaded(store)) == 2

    sqlite.with_store(body)


# --- trouble that passes


def test_a_foreign_write_lock_is_unavailable_and_then_goes_on(sqlite):
    async def body(store, first):
        await commit(store, inserted(first, "a"))
        other = sqlite3.connect(sqlite.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        made = batch(inserted(first + 1, "b"), finished(first))
        for _ in range(2):
            error = await attempt(store, made)
            assert isinstance(error, StoreUnavailable)
            assert "another process holds the lock of the database" in str(error)
        with pytest.raises(StoreUnavailable):
            await store.prune(WALL * 2)
        assert (await find(store, "a")).info.status == TaskStatus.READY  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        assert await attempt(store, made) is None
        assert (await find(store, "a")).info.status == TaskStatus.SUCCEEDED

    sqlite.with_store(body)


def test_a_foreign_write_lock_makes_a_claim_unavailable(sqlite):
    async def body(store, first):
        other = sqlite3.connect(sqlite.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await store.claim(UNIX)
        other.close()
        assert (await store.claim(UNIX)).epoch == 2

    sqlite.with_store(body)


def test_a_full_database_is_unavailable_whole_and_goes_on(sqlite):
    async def body(store, first):
        await commit(store, inserted(first))
        connection = store._writer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
        made = batch(*(inserted(first + n, f"k{n}", b"x" * 3_000) for n in range(1, 100)))
        for _ in range(3):
            error = await attempt(store, made)
            assert isinstance(error, StoreUnavailable)
            assert "the disk is full" in str(error)
            assert len(await loaded(store)) == 1
        await commit(store, finished(first))  # what fits is still taken
        connection.execute("PRAGMA max_page_count = 1000000")
        assert await attempt(store, made) is None
        assert len(live(await loaded(store))) == 99

    sqlite.with_store(body)


LIMITED = """
import resource, sys, anyio
from tests.stores.support import *
from cronoq._stores.base import StoreUnavailable
from pathlib import Path
async def body(store, first):
    await commit(store, inserted(first))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    made = batch(*(inserted(first + n, f"k{n}", b"x" * 3_000) for n in range(1, 200)))
    for _ in range(3):
        error = await attempt(store, made)
        assert isinstance(error, StoreUnavailable), repr(error)
        assert store._writer._connection is None
        assert len(await loaded(store)) == 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert await attempt(store, made) is None
    assert len(await loaded(store)) == 200
    print("survived")
Harness("sqlite", "trio", Path(sys.argv[1])).with_store(body)
"""


def run_python(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_a_write_that_the_system_refuses_is_unavailable_and_the_connection_is_opened_anew(tmp_path):
    assert resource.RLIMIT_FSIZE is not None
    run = run_python(LIMITED, str(tmp_path))
    assert run.stdout == "survived\n", run.stderr


FULL = """
import sys, os, anyio
from tests.stores.support import *
from cronoq._stores.base import StoreUnavailable
from pathlib import Path
folder = Path(sys.argv[1])
async def body(store, first):
    await commit(store, inserted(first))
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(descriptor, bytes(4096))
    except OSError:
        pass
    made = batch(*(inserted(first + n, f"k{n}", b"x" * 3_000) for n in range(1, 200)))
    for _ in range(3):
        error = await attempt(store, made)
        assert isinstance(error, StoreUnavailable), repr(error)
        assert "the disk is full" in str(error), error
        assert len(await loaded(store)) == 1
    os.close(descriptor)
    os.unlink(filler)
    assert await attempt(store, made) is None
    assert len(await loaded(store)) == 200
    print("survived")
Harness("sqlite", "trio", folder).with_store(body)
"""


def test_a_really_full_disk():
    with small_disk("2m") as folder:
        if folder is None:
            pytest.skip("only the superuser can mount a small file system")
        run = run_python(FULL, str(folder))
    assert run.stdout == "survived\n", run.stderr


def test_a_commit_of_unknown_outcome_may_be_written_again(sqlite, monkeypatch):
    """COMMIT did its work and reports an error: the answer is unavailable, and the retry changes nothing."""
    lies = iter(("", ""))

    class DeceivingCursor(sqlite3.Cursor):
        def execute(self, text, *values):
            result = super().execute(text, *values)
            if text == "COMMIT" and next(lies, None) is not None:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
            return result

    class Deceiving:
        def __init__(self, connection):
            self.connection = connection

        def __getattr__(self, name):
            return getattr(self.connection, name)

        def cursor(self):
            return self.connection.cursor(DeceivingCursor)

    async def body(store, first):
        await commit(store, inserted(first, "a"), waiting(first + 5, edge(first), edge(key="b")))
        writer = store._writer
        deceiving = Deceiving(writer._connection)
        writer._connection = deceiving
        monkeypatch.setattr(sqlite_writer, "open_writer", lambda file: deceiving)
        monkeypatch.setattr(sqlite_writer, "_close_quietly", lambda connection: None)
        made = batch(
            inserted(first + 1, "b"),
            waiting(first + 2, edge(first), edge(key="b")),
            EdgeResolved(first + 2, "b", first + 1),
            EdgeResolved(first + 5, "b", first + 1),
            finished(first),
            OutputStored(first, b"out", ""),
        )
        assert isinstance(await attempt(store, made), StoreUnavailable)
        once = await loaded(store)
        assert isinstance(await attempt(store, made), StoreUnavailable)
        assert await attempt(store, made) is None
        assert await loaded(store) == once
        assert (await find(store, "a")).output == b"out"
        writer._connection = deceiving.connection
        monkeypatch.undo()

    sqlite.with_store(body)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_was_moved_away_takes_no_more_batches(sqlite, how):
    async def body(store, first):
        await commit(store, inserted(first))
        os.rename(sqlite.path, f"{sqlite.path}.aside")
        if how == "replaced":
            shutil.copy(f"{sqlite.path}.aside", sqlite.path)
        error = await attempt(store, batch(inserted(first + 1)))
        assert type(error) is StoreGone
        assert "was moved, deleted or replaced while the server runs" in str(error)
        if how == "replaced":
            os.unlink(sqlite.path)
        os.rename(f"{sqlite.path}.aside", sqlite.path)
        await commit(store, inserted(first + 1))

    sqlite.with_store(body)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_the_end_of_a_store_whose_file_is_gone_is_no_clean_one(sqlite, how, capsys):
    async def body():
        store = sqlite.make()
        await store.open()
        claim = await store.claim(UNIX)
        await commit(store, inserted(claim.first_task_id))
        if how == "replaced":
            shutil.copy(sqlite.path, f"{sqlite.path}.copy")
            os.rename(f"{sqlite.path}.copy", sqlite.path)
        else:
            os.unlink(sqlite.path)
        with pytest.raises(StoreGone, match="so what was acknowledged may be lost; put the file and its log back"):
            await store.close()
        await store.close()
        assert "cronoq-store-writer" not in [thread.name for thread in threading.enumerate()]

    sqlite.run(body)
    file = DatabaseFile(sqlite.path)
    file.locate()
    lock = LeaderLock(file)
    lock.acquire()
    lock.release()
    assert capsys.readouterr().out == "", "nothing is said that is not so"


def test_a_store_that_cannot_be_checkpointed_at_its_end_is_read_from_its_log(sqlite, capsys):
    async def body(store, first):
        await commit(store, inserted(first))
        other.append(sqlite3.connect(sqlite.path, isolation_level=None))
        other[0].execute("BEGIN IMMEDIATE")

    other = []
    sqlite.with_store(body)
    assert "the next start reads its log" in capsys.readouterr().out
    other[0].close()
    assert len(sqlite.with_store(lambda store, _first: loaded(store))) == 1


def test_the_end_of_a_fenced_store_is_no_trouble(sqlite, capsys):
    async def body(store, _first):
        os.unlink(f"{sqlite.path}.leader")
        second = sqlite.make()
        await second.open()
        await second.claim(UNIX)
        await second.close()

    sqlite.with_store(body)
    logged = capsys.readouterr().out
    assert "there was no claim to give up" in logged and "warning" not in logged


def test_a_value_that_no_column_holds_fails_its_batch_whole_and_alone(sqlite):
    async def body(store, first):
        odd = inserted(first + 1)
        huge = TaskInserted(odd.task_id, odd.spec, odd.max_attempts, 1 << 70)
        error = await attempt(store, batch(inserted(first), huge, changed(first)))
        assert type(error) is StoreError
        assert "OverflowError" in str(error)
        assert await loaded(store) == []
        await commit(store, inserted(first))

    sqlite.with_store(body)
