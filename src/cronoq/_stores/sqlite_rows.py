"""A batch as rows: multi-row statements, prepared once, because one statement per row costs up to twice as much.

A table's rows are written in chunks whose sizes are powers of two, so that the few statements that exist for a table
stay prepared in the connection (`bench/store_bench.py` shows the cost per row).
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from cronoq._stores.base import NO_PARENTS, Batch, resolve
from cronoq._stores.sqlite_schema import statement
from cronoq._stores.stored_spec import encode_spec
from cronoq_sansio.engine.records import TaskChanged, TaskFinished, TaskInserted

Row = tuple[Any, ...]

End = tuple[int, int]
"""When a task ended (wall time), and its id."""

FIRST_END: End = (0, 0)
"""Before every one there is."""

LAST_END: End = ((1 << 63) - 1, (1 << 63) - 1)
"""Not before any."""

SMALL_OUTPUT = 1_024
"""Outputs up to this many bytes stand in the state row: one row less to write and to read."""

MAX_CHUNK = 128
"""Rows per statement; larger ones gain nothing."""


class MultiRow:
    """One statement for 1, 2, 4 … rows: `head`, then one `group` of parameters per row, then `tail`."""

    def __init__(self, head: str, group: str, tail: str = "") -> None:
        self._group = group
        self._head = head
        self._tail = tail
        self._columns = group.count("?")
        self._statements: list[tuple[int, str]] = []

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Build the statements, largest first, within the connection's limit of parameters (999 in old SQLite)."""
        limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        sizes = [1 << power for power in range(MAX_CHUNK.bit_length()) if (1 << power) * self._columns <= limit]
        self._statements = [
            (size, self._head + ",".join([self._group] * size) + self._tail) for size in reversed(sizes)
        ]

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Execute for all rows, as few statements as possible."""
        at = 0
        left = len(rows)
        for size, text in self._statements:
            while left >= size:
                connection.execute(text, list(chain.from_iterable(rows[at : at + size])))
                at += size
                left -= size


class BatchRows:
    """Writes batches. Rows by value, the last one wins: writing a batch again changes nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._tasks = insert_into("tasks", "?,?,?,?,?,?,?,x'',?,?")
        self._edges = insert_into("edges", "?,?,?,?,?")
        self._live = insert_into("live", "?")
        self._states = insert_into("states", "?,?,?,?,?,?,?,?,?,?")
        self._outputs = insert_into("outputs", "?,?,?")
        self._ended = delete_from("live", "id")
        self._unlinked = delete_from("edges", "child")
        self._dropped = [delete_from(table, "id") for table in ("states", "tasks", "outputs")]
        for rows in (
            *(self._tasks, self._edges, self._live, self._states, self._outputs, self._ended, self._unlinked),
            *self._dropped,
        ):
            rows.prepare(connection)

    def write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Write all rows of `batch`; the caller owns the transaction."""
        if batch.inserted:
            self._tasks.run(connection, [_task_row(record) for record in batch.inserted.values()])
            self._live.run(connection, [(task_id,) for task_id in batch.inserted])
            self._edges.run(connection, _edge_rows(batch))
        if batch.resolved:
            connection.executemany(statement("resolve_edges"), _resolved_rows(batch))
        rows, ended, placed = _state_rows(batch)
        self._states.run(connection, rows)
        if ended:
            self._ended.run(connection, ended)
            if connection.execute(statement("any_edges")).fetchone()[0]:
                self._unlinked.run(connection, ended)
        if len(placed) < len(batch.outputs):
            large = [(r.task_id, r.content_type, r.output) for r in batch.outputs.values() if r.task_id not in placed]
            self._outputs.run(connection, large)

    def drop(self, connection: sqlite3.Connection, ids: Sequence[int]) -> None:
        """Delete finished tasks with everything that belongs to them; the caller owns the transaction."""
        keys = [(task_id,) for task_id in ids]
        for rows in self._dropped:
            rows.run(connection, keys)


def insert_into(table: str, group: str) -> MultiRow:
    """Rows of one of our tables, each in place of the one with its key."""
    return MultiRow(f"INSERT OR REPLACE INTO cronoq_trio_{table} VALUES ", f"({group})")


def delete_from(table: str, column: str) -> MultiRow:
    """The rows of one of our tables that have these values in a column."""
    return MultiRow(f"DELETE FROM cronoq_trio_{table} WHERE {column} IN (", "?", ")")


def _task_row(record: TaskInserted) -> Row:
    spec = record.spec
    asked = spec.scheduling
    return (
        record.task_id,
        spec.pool,
        spec.kind,
        spec.key,
        int(spec.priority),
        record.arrival,
        record.max_attempts,
        asked.tenant if asked is not None else "",
        encode_spec(spec, len(record.edges)),
    )


def _edge_rows(batch: Batch) -> list[Row]:
    """The edges of new tasks, with the parents that have appeared since."""
    resolved = batch.resolved
    return [
        (task_id, position, edge.parent, edge.key, int(edge.condition))
        for task_id, record in batch.inserted.items()
        if record.edges
        for position, edge in enumerate(resolve(record.edges, resolved.get(task_id, NO_PARENTS)))
    ]


def _resolved_rows(batch: Batch) -> list[Row]:
    """Parents that have appeared for edges which are in the store already."""
    return [
        (parent, task_id, key)
        for task_id, parents in batch.resolved.items()
        if task_id not in batch.inserted
        for key, parent in parents.items()
    ]


def _state_rows(batch: Batch) -> tuple[list[Row], list[Row], set[int]]:
    """The state rows, the ids of those that have ended, and which outputs stand in their task's state row.

    One loop without a call per row: this is most of what the writer's thread does outside of SQLite.
    """
    rows: list[Row] = []
    ended: list[Row] = []
    placed: set[int] = set()
    outputs = batch.outputs
    for task_id, r in batch.states.items():
        status, attempt, first, last = int(r.status), r.attempt, r.first_started, r.last_started
        if type(r) is TaskChanged:
            rows.append((task_id, status, attempt, r.due, first, last, 0, r.message, None, None))
            continue
        assert type(r) is TaskFinished
        ended.append((task_id,))
        output = outputs.get(task_id)
        if output is None or len(output.output) > SMALL_OUTPUT:
            rows.append((task_id, status, attempt, 0, first, last, r.finished, r.message, None, None))
        else:
            placed.add(task_id)
            content_type, returned = output.content_type, output.output
            rows.append((task_id, status, attempt, 0, first, last, r.finished, r.message, content_type, returned))
    return rows, ended, placed
