"""A batch as rows: multi-row statements, prepared once, because one statement per row costs up to twice as much.

A table's rows are written in chunks whose sizes are powers of two, so that the few statements that exist for a table
stay prepared in the connection (`bench/store_bench.py` shows the cost per row).
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from cronoq._stores.base import Batch
from cronoq._stores.stored_spec import encode_spec
from cronoq_sansio.engine.records import OutputStored, TaskChanged, TaskFinished, TaskInserted

Row = tuple[Any, ...]

SMALL_OUTPUT = 1_024
"""Outputs up to this many bytes stand in the state row: one row less to write and to read."""

MAX_CHUNK = 128
"""Rows per statement; larger ones gain nothing."""


class MultiRow:
    """One statement for 1, 2, 4 … rows: `head`, then one `group` of parameters per row, then `tail`."""

    def __init__(self, head: str, columns: int, tail: str = "", *, brackets: bool = True) -> None:
        group = ",".join("?" * columns)
        self._group = f"({group})" if brackets else group
        self._head = head
        self._tail = tail
        self._columns = columns
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
        self._tasks = MultiRow("INSERT OR REPLACE INTO cronoq_trio_tasks VALUES ", 8)
        self._live = MultiRow("INSERT OR REPLACE INTO cronoq_trio_live VALUES ", 1)
        self._states = MultiRow("INSERT OR REPLACE INTO cronoq_trio_states VALUES ", 10)
        self._outputs = MultiRow("INSERT OR REPLACE INTO cronoq_trio_outputs VALUES ", 3)
        self._ended = MultiRow("DELETE FROM cronoq_trio_live WHERE id IN (", 1, ")", brackets=False)
        self._dropped = [
            MultiRow(f"DELETE FROM cronoq_trio_{table} WHERE id IN (", 1, ")", brackets=False)
            for table in ("states", "tasks", "outputs")
        ]
        for rows in (self._tasks, self._live, self._states, self._outputs, self._ended, *self._dropped):
            rows.prepare(connection)

    def write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Write all rows of `batch`; the caller owns the transaction."""
        if batch.inserted:
            self._tasks.run(connection, [_task_row(record) for record in batch.inserted.values()])
            self._live.run(connection, [(task_id,) for task_id in batch.inserted])
        states, outputs = batch.states, batch.outputs
        small = {
            task_id: output
            for task_id, output in outputs.items()
            if len(output.output) <= SMALL_OUTPUT and type(states.get(task_id)) is TaskFinished
        }
        if states:
            self._states.run(connection, [_state_row(state, small.get(task_id)) for task_id, state in states.items()])
            ended = [(task_id,) for task_id, state in states.items() if type(state) is TaskFinished]
            self._ended.run(connection, ended)
        if len(small) < len(outputs):
            large = [(r.task_id, r.content_type, r.output) for r in outputs.values() if r.task_id not in small]
            self._outputs.run(connection, large)

    def drop(self, connection: sqlite3.Connection, ids: Sequence[int]) -> None:
        """Delete finished tasks with everything that belongs to them; the caller owns the transaction."""
        keys = [(task_id,) for task_id in ids]
        for rows in self._dropped:
            rows.run(connection, keys)


def _task_row(record: TaskInserted) -> Row:
    spec = record.spec
    return (
        record.task_id,
        spec.pool,
        spec.kind,
        spec.key,
        int(spec.priority),
        record.arrival,
        record.max_attempts,
        encode_spec(spec),
    )


def _state_row(record: TaskChanged | TaskFinished, output: OutputStored | None) -> Row:
    live = type(record) is TaskChanged
    return (
        record.task_id,
        int(record.status),
        record.attempt,
        record.due if live else 0,  # type: ignore[union-attr]
        record.first_started,
        record.last_started,
        0 if live else record.finished,  # type: ignore[union-attr]
        record.message,
        output.content_type if output is not None else None,
        output.output if output is not None else None,
    )
