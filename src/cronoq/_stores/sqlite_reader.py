"""Reading the SQLite file: recovery in portions, single tasks and pages for callers. Never through the writer.

Every call opens a read transaction of its own, so that no reader keeps the log from being reused.
"""

import json
import sqlite3
import threading
from collections.abc import Callable
from sys import intern
from typing import Any, TypeVar

from cronoq._stores.base import StoreUnavailable
from cronoq._stores.sqlite_edges import Edges, read_edges
from cronoq._stores.sqlite_files import DatabaseFile
from cronoq._stores.sqlite_rows import End
from cronoq._stores.sqlite_schema import connect, statement
from cronoq._stores.stored_spec import UndecodableSpec, decode_spec
from cronoq_sansio import limits
from cronoq_sansio.engine.records import (
    Edge,
    FinishedLoaded,
    LoadedRecord,
    TaskChanged,
    TaskDamaged,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask, TaskInfo
from cronoq_sansio.spec import Priority, TaskStatus

T = TypeVar("T")
Decode = Callable[[bytes], str | bytes]

MAX_ID = (1 << 63) - 1
"""Largest id that a column holds; callers may ask for larger ones, which nobody has."""

_NONE = type(None)
_SPEC_TYPES = (int, str, str, str, int, int, int, str, bytes)
_NEVER_STARTED = (*_SPEC_TYPES, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
_STARTED = (*_SPEC_TYPES, int, int, int, int, int, str)


class Readers:
    """Connections that read, opened when they are needed, at most as many as threads ask at once."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._open = True

    def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Call `query` with a connection, in the calling thread. A connection that failed is not used again."""
        with self._lock:
            if not self._open:
                raise StoreUnavailable(f"{self._file.given} is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self._file, readonly=True)
        try:
            result = query(connection)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return result

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if self._open:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close what is idle now, and the others when they come back."""
        with self._lock:
            self._open = False
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def read_live(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[LoadedRecord], int]:
    """Live tasks with ids above `after`, by id, and the id up to which these are all; `after` = there are no more.

    At most `count`, fewer when they have very many edges, but never none when there are some.
    """
    connection.execute("BEGIN")  # tasks and edges of one instant
    rows = read_portion(connection, "load_live", (after, count))
    edges: Edges = {}
    last = after
    if rows:
        edges, last = read_edges(connection, after, rows[-1][0], _text_or_bytes)
        if last < rows[-1][0]:
            rows = [row for row in rows if row[0] <= last]
    connection.execute("COMMIT")
    return [_live(row, edges.get(row[0], ())) for row in rows], last


def read_portion(connection: sqlite3.Connection, name: str, values: tuple[Any, ...]) -> list[Any]:
    """All rows of a statement. One damaged text spoils them all: they are read again, its bytes left as they are."""
    try:
        return connection.execute(statement(name), values).fetchall()
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    return _rows(connection, _text_or_bytes, name, values)


def _rows(connection: sqlite3.Connection, decode: Decode, name: str, values: tuple[Any, ...]) -> list[Any]:
    """All rows of a statement, its texts decoded by `decode` and not by sqlite3, which raises when they are damaged."""
    connection.text_factory = decode
    try:
        return connection.execute(statement(name), values).fetchall()
    finally:
        connection.text_factory = str


def _text_or_bytes(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _live(row: tuple[Any, ...], edges: tuple[Edge, ...] | str) -> LoadedRecord:
    types = tuple(map(type, row))
    task_id, pool, kind, key, priority, arrival, most, tenant, spec, status, attempt, due, first, last, message = row
    if types == _NEVER_STARTED:
        changed = None
    elif types == _STARTED and TaskStatus.BLOCKED <= status < TaskStatus.SUCCEEDED:
        changed = TaskChanged(task_id, status, attempt, due, first, last, message)
    else:
        return TaskDamaged(task_id, "the stored row is damaged: a column is missing or of a wrong type")
    if not Priority.CRITICAL <= priority <= Priority.LOW:
        return TaskDamaged(task_id, f"the stored row is damaged: there is no priority class {priority}")
    if isinstance(edges, str):
        return TaskDamaged(task_id, edges)
    try:
        decoded = decode_spec(spec, intern(pool), intern(kind), key, priority, tenant, edges)
    except UndecodableSpec as error:
        return TaskDamaged(task_id, str(error))
    return TaskLoaded(TaskInserted(task_id, decoded, most, arrival, edges), changed)


def finished_start(connection: sqlite3.Connection, since: int, count: int) -> End:
    """The (end, id) after which the newest `count` ≥ 1 finished tasks since that wall time follow."""
    row = connection.execute(statement("nth_newest_finished"), (since, count - 1)).fetchone()
    return (row[0], row[1] - 1) if row else (since, -1)


def read_finished(connection: sqlite3.Connection, after: End, count: int) -> tuple[list[LoadedRecord], End]:
    """Up to `count` finished tasks after (end, id), by end, and the last of these pairs. Damaged ones are left out."""
    rows = read_portion(connection, "load_finished", (*after, count))
    return _finished(rows), (rows[-1][4], rows[-1][0]) if rows else after


def read_parents(connection: sqlite3.Connection, until: End, after: int, count: int) -> tuple[list[LoadedRecord], int]:
    """Up to `count` tasks above `after`, by id, that ended until then and that edges name; and the last id."""
    rows = read_portion(connection, "load_parents", (after, *until, count))
    return _finished(rows), rows[-1][0] if rows else after


def _finished(rows: list[Any]) -> list[LoadedRecord]:
    return [
        FinishedLoaded(task_id, intern(pool), key, status, finished)
        for task_id, pool, key, status, finished in rows
        if type(pool) is type(key) is str and type(status) is type(finished) is int
    ]


def find(connection: sqlite3.Connection, query: FindTask) -> StoredTask | None:
    """The task by id, or the newest one by key; its output only when the query asks for it."""
    task = query.task
    if isinstance(task, str):
        try:
            row = connection.execute(statement("newest_by_key"), (task,)).fetchone()
        except UnicodeEncodeError:
            return None  # a lone surrogate: no stored key has one
        if row is None:
            return None
        task = row[0]
    if not 0 < task <= MAX_ID:
        return None
    rows = _rows(connection, _text, "find_by_id", (task,))
    if not rows:
        return None
    info = _info(rows[0])
    if not (info.output_available and query.with_output):
        return StoredTask(info, None, "")
    outputs = _rows(connection, _text, "small_output" if rows[0][-2] else "large_output", (task,))
    return StoredTask(info, *outputs[0]) if outputs else StoredTask(info, None, "")


def list_finished(connection: sqlite3.Connection, query: ListFinished) -> StoredPage:
    """A page of finished tasks by id.

    Rows are looked at in portions, each four times the one before: filters that let most tasks pass cost no more than
    the page, and those that let few pass stop at `limits.MAX_LIST_SCAN`.
    """
    ends = query.statuses or tuple(range(TaskStatus.SUCCEEDED, max(TaskStatus) + 1))
    mask = sum(1 << status for status in set(ends))
    pools = json.dumps(query.pools) if query.pools else None
    after, left, portion = query.after, limits.MAX_LIST_SCAN, query.limit
    found: list[TaskInfo] = []
    while after < MAX_ID:
        portion = min(4 * portion, left)
        row = connection.execute(statement("list_bound"), (after, portion - 1)).fetchone()
        bound: int = row[0] if row else MAX_ID
        values = (after, bound, mask, pools, query.limit - len(found))
        found += map(_info, _rows(connection, _text, "list_finished", values))
        if len(found) == query.limit:
            return StoredPage(tuple(found), found[-1].task_id)
        after = bound
        left -= portion
        if not left:
            return StoredPage(tuple(found), after if after < MAX_ID else 0)
    return StoredPage(tuple(found), 0)


def _info(row: tuple[Any, ...]) -> TaskInfo:
    task_id, pool, key, kind, priority, arrival, most, tenant, status, attempt, last, end, message, small, large = row
    if status is None:
        status, attempt, last, end, message = TaskStatus.READY, 0, 0, 0, ""
    return TaskInfo(
        task_id=task_id,
        status=status,
        pool=pool,
        key=key,
        kind=kind,
        attempt=attempt,
        max_attempts=most,
        created=arrival,
        started=last or None,
        finished=end or None,
        message=message,
        output_available=status == TaskStatus.SUCCEEDED and bool(small or large),
        priority=priority,
        tenant=tenant,
    )
