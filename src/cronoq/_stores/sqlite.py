"""The store on one SQLite file: one writer thread, a few reading connections, one process at a time.

Who may lead is decided by an `flock` beside the file, which the kernel frees when its owner dies: after `kill -9` the
next server takes over at once. What a leader may write is decided by the fence inside every transaction.

Calls that wait run in worker threads and are never abandoned: when the caller is cancelled, the call is awaited first,
so that nothing of this store is still at work when another one opens the file.
"""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from cronoq._stores.base import Batch, Claim, Done, Fenced, StoreError, StoreUnavailable
from cronoq._stores.sqlite_files import DatabaseFile, LeaderLock
from cronoq._stores.sqlite_reader import (
    Readers,
    find,
    finished_start,
    list_finished,
    read_finished,
    read_live,
    read_parents,
)
from cronoq._stores.sqlite_recurring import read_recurring
from cronoq._stores.sqlite_rows import FIRST_END, LAST_END
from cronoq._stores.sqlite_schema import connect, inspect, migrate, migrations, open_error, open_writer, store_error
from cronoq._stores.sqlite_writer import Writer
from cronoq_sansio import limits
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.errors import LocalProtocolError
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask

T = TypeVar("T")

READERS = 4
"""Queries at once; more would only compete for the interpreter."""


class SqliteStore:
    """A `Store` on the file `path`. After `close` it may be opened again."""

    volatile = False

    def __init__(self, path: str | os.PathLike[str], *, key_retention_max: int) -> None:
        """`key_retention_max`: finished tasks that `load` returns at most, the newest ones; ≥ 0."""
        self._file = DatabaseFile(path)
        self._key_retention_max = key_retention_max
        self._lock = LeaderLock(self._file)
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._reading: anyio.CapacityLimiter | None = None
        self._controlling: anyio.CapacityLimiter | None = None
        self._pruned_to = FIRST_END
        """How far the current pass of pruning has looked."""

    async def open(self) -> None:
        """Open, check and migrate. Raises `StoreUnusable`, `StoreUnavailable`."""
        if self._writer is not None:
            raise LocalProtocolError("the store is open already")
        self._reading = anyio.CapacityLimiter(READERS)
        self._controlling = anyio.CapacityLimiter(1)
        await to_thread.run_sync(self._open, limiter=self._controlling)

    async def claim(self, unix_seconds: int) -> Claim:
        """Become the only writer: a new epoch. Raises `StoreUnusable` (another process lives), `StoreUnavailable`."""
        writer, _ = self._opened()

        def claim() -> Claim:
            self._lock.acquire()
            return writer.claim(unix_seconds).result()

        return await to_thread.run_sync(claim, limiter=self._controlling)

    async def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        """Schedules; live tasks by id, older parents of theirs by id, the newest ends since that wall time by end.

        Raises `StoreError`.
        """
        start = LAST_END
        if self._key_retention_max:
            start = await self._read(partial(finished_start, since=finished_since, count=self._key_retention_max))
        parents = partial(read_parents, until=start)
        for read, last in ((read_recurring, 0), (read_live, 0), (parents, 0), (read_finished, start)):
            after: Any = None
            while after != last:
                after = last
                records, last = await self._read(partial(read, after=after, count=limits.LOAD_PORTION))
                if records:
                    yield records

    def begin_commit(self, batch: Batch, done: Done) -> None:
        """Hand the batch to the writer thread, which calls `done`."""
        if self._writer is None:
            done(Fenced(f"{self._file.given} was closed: nothing was written"))
        else:
            self._writer.commit(batch, done)

    async def find(self, query: FindTask) -> StoredTask | None:
        """A task by id, or the newest by key. Raises `StoreUnavailable`."""
        return await self._ask(partial(find, query=query))

    async def list(self, query: ListFinished) -> StoredPage:
        """Finished tasks by id. Raises `StoreUnavailable`."""
        return await self._ask(partial(list_finished, query=query))

    async def prune(self, before: int) -> int:
        """Delete a portion of the finished tasks that ended before that wall time and that no live one names.

        How many it were; 0 = no more. Raises `StoreError`. Commits go on between portions that are only looked at.
        """
        writer, _ = self._opened()
        whole = self._pruned_to == FIRST_END
        while True:
            pruning = partial(lambda after: writer.prune(before, after).result(), self._pruned_to)
            count, self._pruned_to = await to_thread.run_sync(pruning, limiter=self._controlling)
            if count or (whole and self._pruned_to == FIRST_END):
                return count
            whole = whole or self._pruned_to == FIRST_END

    async def close(self) -> None:
        """Wait for the batch in flight, copy the log into the file, give up claim and lock. Idempotent.

        Raises `StoreGone`, with everything released, when the file was moved, deleted or replaced.
        """
        controlling, self._controlling = self._controlling, None
        if controlling is not None:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._close, limiter=controlling)

    def _opened(self) -> tuple[Writer, Readers]:
        if self._writer is None or self._readers is None:
            raise StoreUnavailable(f"{self._file.given} is not open")
        return self._writer, self._readers

    async def _ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """What a caller wants to know: whatever goes wrong, it may ask again."""
        try:
            return await self._read(query)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise StoreUnavailable(str(error)) from error

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        _, readers = self._opened()

        def ask() -> T:
            try:
                return readers.run(query)
            except sqlite3.Error as error:
                raise store_error(error, self._file) from error

        return await to_thread.run_sync(ask, limiter=self._reading)

    def _open(self) -> None:
        """The whole of `open`, in a worker thread. Leaves nothing behind when it raises."""
        self._file.prepare()
        try:
            connection = connect(self._file)
            try:
                version = inspect(connection, self._file)
            finally:
                connection.close()
            if version < migrations()[-1][0]:
                self._lock.acquire()  # nobody else may be at work on the tables
                if version == 0:
                    self._file.restrict()
            writing = open_writer(self._file)
            try:
                if self._lock.held:
                    migrate(writing, inspect(writing, self._file))
                self._writer = Writer(self._file, writing)
            except BaseException:
                writing.close()
                raise
        except sqlite3.Error as error:
            self._lock.release()
            raise open_error(error, self._file) from error
        except BaseException:
            self._lock.release()
            raise
        self._readers = Readers(self._file)
        self._writer.start()

    def _close(self) -> None:
        """The whole of `close`, in a worker thread."""
        writer, readers = self._writer, self._readers
        if writer is None or readers is None:
            return
        self._writer = self._readers = None
        readers.close()
        try:
            writer.stop().result()
        finally:
            writer.join()
            self._lock.release()
