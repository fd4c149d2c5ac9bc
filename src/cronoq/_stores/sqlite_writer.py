"""The one thread that writes to the SQLite file: claim, batches, pruning, in the order in which they were asked for.

A transaction is `BEGIN IMMEDIATE`, the fence, the rows, `COMMIT`; with WAL and `synchronous=FULL` COMMIT returns when
the transaction survives a power loss. The fence is part of it: when another term has claimed the file, nothing is
written. An error rolls back whole; when COMMIT itself fails, the outcome may be unknown, and writing the same rows
again is the answer to that. A connection that SQLite cannot roll back is closed and opened again for the next batch.
"""

import os
import secrets
import socket
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from cronoq._observe.logs import get_logger
from cronoq._stores.base import Batch, Claim, Done, Fenced, StoreError, StoreGone
from cronoq._stores.sqlite_files import DatabaseFile
from cronoq._stores.sqlite_recurring import RecurringRows
from cronoq._stores.sqlite_rows import FIRST_END, BatchRows, End
from cronoq._stores.sqlite_schema import open_writer, primary_code, statement, store_error
from cronoq_sansio import limits
from cronoq_sansio.errors import LocalProtocolError
from cronoq_sansio.ids import first_id, next_epoch

T = TypeVar("T")

BROKEN = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
"""After these the connection's own picture of the file may be wrong: it is opened anew."""

log = get_logger("store")


class Writer:
    """Owns the writing connection. Only its thread touches it, from `start` until `stop`'s future is done."""

    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = connection
        self._rows = BatchRows(connection)
        self._recurring = RecurringRows(connection)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cronoq-store-writer", daemon=True)
        self._in_flight = False
        self._epoch = 0
        self._holder = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def commit(self, batch: Batch, done: Done) -> None:
        """Write `batch` and call `done` from the thread. One at a time."""
        if self._in_flight:
            raise LocalProtocolError("a batch is in flight already")
        self._in_flight = True
        self._jobs.put(lambda: self._commit(batch, done))

    def claim(self, unix_seconds: int) -> "Future[Claim]":
        """Begin a new term: the next epoch, from now on in every transaction's fence."""
        return self._ask(lambda: self._claim(unix_seconds))

    def prune(self, before: int, after: End) -> "Future[tuple[int, End]]":
        """Delete one portion of the finished tasks after `after` that ended before that wall time; how many it were.

        Those that a live task names stay. Also the last one that was looked at, `FIRST_END` when there are no more.
        """
        return self._ask(lambda: self._transaction(lambda cursor: self._prune(cursor, before, after)))

    def stop(self) -> "Future[None]":
        """Give up the claim, copy the log into the file, close. Whatever was asked for before comes first."""
        future = self._ask(self._close)
        self._jobs.put(None)
        return future

    def join(self) -> None:
        """Wait until the thread is gone."""
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _ask(self, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def job() -> None:
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(job)
        return future

    def _commit(self, batch: Batch, done: Done) -> None:
        failure: StoreError | None = None
        try:
            self._transaction(lambda cursor: self._write(cursor, batch))
        except StoreError as error:
            failure = error
        self._in_flight = False
        try:
            done(failure)
        except Exception:
            log.error("the owner of the store did not take the news of a commit", exc_info=True)

    def _write(self, cursor: sqlite3.Cursor, batch: Batch) -> None:
        self._rows.write(cursor, batch)
        if batch.schedules:
            self._recurring.write(cursor, batch.schedules)

    def _transaction(self, work: Callable[[sqlite3.Cursor], T], *, fenced: bool = True) -> T:
        """Run `work` in a transaction of its own. Raises `StoreError`; the transaction is then undone or unknown."""
        try:
            cursor = self._connect().cursor()  # one for all: `execute` of the connection makes one each time
            cursor.execute("BEGIN IMMEDIATE")
            if fenced and cursor.execute(statement("check_fence"), (self._epoch, self._holder)).fetchone() is None:
                raise Fenced(f"{self._file.given}: another server has taken over; nothing was written")
            result = work(cursor)
            cursor.execute("COMMIT")
            return result
        except sqlite3.Error as error:
            self._undo(broken=primary_code(error) in BROKEN)
            raise store_error(error, self._file) from error
        except StoreError:
            self._undo()
            raise
        except Exception as error:  # a value that SQLite cannot hold: our own bug, and the thread must outlive it
            self._undo()
            raise StoreError(
                f"{self._file.given}: a batch cannot be written ({type(error).__name__}: {error})"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        if not self._file.unmoved():
            raise StoreGone(
                f"{self._file.given} was moved, deleted or replaced while the server runs; "
                "stop the server, then put the file back or restore a copy"
            )
        if self._connection is None:
            self._connection = open_writer(self._file)
        return self._connection

    def _undo(self, *, broken: bool = False) -> None:
        """Roll back what is open; drop a connection that cannot do that."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            broken = True
        if broken:
            self._connection = None
            _close_quietly(connection)

    def _claim(self, unix_seconds: int) -> Claim:
        holder = secrets.token_hex(8)

        def take(cursor: sqlite3.Cursor) -> Claim:
            row = cursor.execute(statement("read_leader")).fetchone()
            if row is None:
                raise StoreError(f"{self._file.given} is damaged (its leader row is gone); restore a copy")
            last, highest = row
            epoch = next_epoch(last)
            values = (epoch, holder, os.getpid(), socket.gethostname(), unix_seconds, unix_seconds)
            cursor.execute(statement("take_lead"), values)
            return Claim(epoch, first_id(epoch, highest), first_id(epoch))

        claim = self._transaction(take, fenced=False)
        self._rows.forget()
        self._epoch, self._holder = claim.epoch, holder
        return claim

    def _prune(self, cursor: sqlite3.Cursor, before: int, after: End) -> tuple[int, End]:
        ids: list[int] = []
        size = 0
        rows = cursor.execute(statement("select_prunable"), (before, *after, limits.PRUNE_PORTION)).fetchall()
        looked = rows[-1][:2] if len(rows) == limits.PRUNE_PORTION else FIRST_END
        for finished, task_id, bytes_freed, named in rows:
            if named:
                continue
            ids.append(task_id)
            size += bytes_freed
            if size >= limits.PRUNE_BYTES:
                looked = finished, task_id
                break
        if ids:
            self._rows.drop(cursor, ids)
            cursor.execute(statement("remember_pruned"), (max(ids),))
        return len(ids), looked

    def _close(self) -> None:
        """Leave as much as possible in order. Raises `StoreGone` when the next open may not find what was written."""
        try:
            if self._holder:
                self._transaction(lambda cursor: cursor.execute(statement("leave_lead")))
                if self._connection is not None:
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except StoreGone:
            raise StoreGone(
                f"{self._file.given} was moved, deleted or replaced while the server ran, so what was acknowledged may "
                "be lost; put the file and its log back, or restore a copy"
            ) from None
        except Fenced:
            log.info("another server leads on the store: there was no claim to give up")
        except (StoreError, sqlite3.Error) as error:
            log.warning("the store was closed without a checkpoint: the next start reads its log", error=str(error))
        finally:
            self._epoch, self._holder = 0, ""
            connection, self._connection = self._connection, None
            if connection is not None:
                _close_quietly(connection)


def _close_quietly(connection: sqlite3.Connection) -> None:
    try:
        connection.close()
    except sqlite3.Error as error:
        log.warning("a connection to the database did not close cleanly", error=str(error))
