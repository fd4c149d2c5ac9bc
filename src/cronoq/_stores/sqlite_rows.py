"""A batch as rows: multi-row statements, prepared once, because one statement per row costs up to twice as much.

What a row costs beside SQLite's own work is binding its values, so a value that most rows share stands in the statement
(`bench/store_bench.py` shows the cost per row). Neither None nor small `bytes` are bound: for both sqlite3 looks for an
adapter, which costs as much as four columns, while a `bytearray` it takes as it is.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from cronoq._stores.base import NO_PARENTS, Batch, resolve
from cronoq._stores.sqlite_schema import statement
from cronoq._stores.stored_spec import encode_spec
from cronoq_sansio.engine.records import TaskChanged, TaskFinished, TaskInserted

Values = list[Any]
"""The values of rows, one row after the other: a list of tuples would have to be taken apart again."""

End = tuple[int, int]
"""When a task ended (wall time), and its id."""

FIRST_END: End = (0, 0)
"""Before every one there is."""

LAST_END: End = ((1 << 63) - 1, (1 << 63) - 1)
"""Not before any."""

SMALL_OUTPUT = 1_024
"""Outputs up to this many bytes stand in the state row: one row less to write and to read."""

STEP = 16
"""Fewer rows than this are one statement. A statement costs as much as two rows, whatever it has to write."""

MAX_CHUNK = 128
"""Rows per statement; larger ones gain nothing."""


class MultiRow:
    """Statements for any number of rows: `head`, then one `group` of parameters per row, then `tail`.

    Up to 15 rows, and multiples of 16 up to `MAX_CHUNK`: so most numbers are one or two statements, and the 23 texts
    that exist for a table stay prepared in the connection.
    """

    def __init__(self, head: str, group: str, tail: str = "", shared: int = 0) -> None:
        """`shared`: how many values are the same for all rows: `?1`, `?2` … in each group, before all others."""
        self._group = group
        self._head = head
        self._tail = tail
        self._shared = shared
        self._columns = group.count("?") - shared
        self._largest = MAX_CHUNK
        self._texts: dict[int, str] = {}

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Keep within the connection's limit of parameters (999 in old SQLite)."""
        limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        self._largest = min(MAX_CHUNK, (limit - self._shared) // self._columns)

    def run(self, cursor: sqlite3.Cursor, values: Values, shared: Sequence[Any] = ()) -> None:
        """Execute for all rows, as few statements as possible."""
        columns = self._columns
        at = 0
        left = len(values) // columns
        while left:
            size = min(left if left < STEP else left - left % STEP, self._largest)
            text = self._texts.get(size)
            if text is None:
                text = self._texts[size] = self._head + ",".join([self._group] * size) + self._tail
            chunk = values[at : at + size * columns]
            cursor.execute(text, [*shared, *chunk] if shared else chunk)
            at += size * columns
            left -= size


class BatchRows:
    """Writes batches. Rows by value, the last one wins: writing a batch again changes nothing.

    New tasks and states have several statements each, from the most usual row to the one that may have everything. The
    price: a table that gets rows of every kind gets as many statements per batch, at two rows' worth each.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._like_tasks = MultiRow(
            "INSERT OR REPLACE INTO cronoq_trio_tasks"
            " (pool, kind, priority, max_attempts, id, key, arrival, spec_1, tenant, spec) VALUES ",
            "(?1,?2,?3,?4,?,'',?,x'','',?)",
            shared=4,
        )
        self._plain_tasks = insert_into("tasks", "?,?,?,'',?,?,?,x'','',?")
        self._tasks = insert_into("tasks", "?,?,?,?,?,?,?,x'',?,?")
        self._edges = insert_into("edges", "?,?,?,?,?")
        self._live = insert_into("live", "?")
        self._quiet_states = insert_into("states", "?,?,?,?,?,?,0,'',NULL,NULL")
        self._states = insert_into("states", "?,?,?,?,?,?,?,?,NULL,NULL")
        self._plain_ends = insert_into("states", "?,?,?,0,?,?,?,'','',?")
        self._ends = insert_into("states", "?,?,?,0,?,?,?,?,?,?")
        self._outputs = insert_into("outputs", "?,?,?")
        self._ended = delete_from("live", "id")
        self._unlinked = delete_from("edges", "child")
        self._dropped = [delete_from(table, "id") for table in ("states", "tasks", "outputs")]
        for rows in (
            *(self._like_tasks, self._plain_tasks, self._tasks, self._edges, self._live),
            *(self._quiet_states, self._states, self._plain_ends, self._ends, self._outputs),
            *(self._ended, self._unlinked, *self._dropped),
        ):
            rows.prepare(connection)
        self._edges_possible = True
        """False: there are none in the store, because this term has looked and has written none since."""

    def forget(self) -> None:
        """Another term may have written."""
        self._edges_possible = True

    def write(self, cursor: sqlite3.Cursor, batch: Batch) -> None:
        """Write all rows of `batch`; the caller owns the transaction."""
        if batch.inserted:
            self._insert(cursor, batch)
        if batch.resolved:
            cursor.executemany(statement("resolve_edges"), _resolved_rows(batch))
        placed = 0
        if batch.states:
            ended, placed = self._write_states(cursor, batch)
            if ended:
                self._end(cursor, ended)
        if placed < len(batch.outputs):
            self._outputs.run(cursor, _apart(batch))

    def _insert(self, cursor: sqlite3.Cursor, batch: Batch) -> None:
        """The new tasks. Most have neither key nor tenant, and many are of the pool and kind of the first one."""
        first = next(iter(batch.inserted.values()))
        shared = first.spec.pool, first.spec.kind, int(first.spec.priority), first.max_attempts
        like: Values = []
        plain: Values = []
        named: Values = []
        waiting: list[TaskInserted] = []
        for record in batch.inserted.values():
            spec, edges = record.spec, record.edges
            asked = spec.scheduling
            encoded = encode_spec(spec, len(edges))
            if edges:
                waiting.append(record)
            columns = spec.pool, spec.kind, int(spec.priority), record.max_attempts
            if spec.key or (asked is not None and asked.tenant):
                tenant = asked.tenant if asked is not None else ""
                pool, kind, priority, most = columns
                named += record.task_id, pool, kind, spec.key, priority, record.arrival, most, tenant, encoded
            elif columns == shared:
                like += record.task_id, record.arrival, encoded
            else:
                pool, kind, priority, most = columns
                plain += record.task_id, pool, kind, priority, record.arrival, most, encoded
        if like:
            self._like_tasks.run(cursor, like, shared)
        if plain:
            self._plain_tasks.run(cursor, plain)
        if named:
            self._tasks.run(cursor, named)
        self._live.run(cursor, list(batch.inserted))
        if waiting:
            self._edges_possible = True
            self._edges.run(cursor, _edge_rows(waiting, batch.resolved))

    def _write_states(self, cursor: sqlite3.Cursor, batch: Batch) -> tuple[list[int], int]:
        """The state rows: which tasks have ended, and how many outputs stand in their task's row now.

        One loop without a call per row: this is most of what the writer's thread does outside of SQLite. The two kinds
        of record share no line, because the interpreter reads an attribute fast where it has one type.
        """
        quiet: Values = []
        spoken: Values = []
        plain_ends: Values = []
        ends: Values = []
        ended: list[int] = []
        placed = 0
        outputs = batch.outputs
        for task_id, r in batch.states.items():
            if type(r) is TaskChanged:
                if r.message:
                    spoken += task_id, r.status, r.attempt, r.due, r.first_started, r.last_started, 0, r.message
                else:
                    quiet += task_id, r.status, r.attempt, r.due, r.first_started, r.last_started
                continue
            assert type(r) is TaskFinished
            ended.append(task_id)
            status, attempt, end, message = r.status, r.attempt, r.finished, r.message
            first, last = r.first_started, r.last_started
            stored = outputs.get(task_id)
            if stored is None or len(stored.output) > SMALL_OUTPUT:
                spoken += task_id, status, attempt, 0, first, last, end, message
                continue
            placed += 1
            output = bytearray(stored.output)
            if message or stored.content_type:
                ends += task_id, status, attempt, first, last, end, message, stored.content_type, output
            else:
                plain_ends += task_id, status, attempt, first, last, end, output
        if quiet:
            self._quiet_states.run(cursor, quiet)
        if spoken:
            self._states.run(cursor, spoken)
        if plain_ends:
            self._plain_ends.run(cursor, plain_ends)
        if ends:
            self._ends.run(cursor, ends)
        return ended, placed

    def _end(self, cursor: sqlite3.Cursor, ended: list[int]) -> None:
        """These tasks are not live any more, and nothing waits for what they waited for."""
        ended.sort()
        if ended[-1] - ended[0] == len(ended) - 1:  # a pool that works in order: one range costs half as much
            cursor.execute(statement("end_range"), (ended[0], ended[-1]))
        else:
            self._ended.run(cursor, ended)
        if self._edges_possible:
            self._edges_possible = bool(cursor.execute(statement("any_edges")).fetchone()[0])
        if self._edges_possible:
            self._unlinked.run(cursor, ended)

    def drop(self, cursor: sqlite3.Cursor, ids: Sequence[int]) -> None:
        """Delete finished tasks with everything that belongs to them; the caller owns the transaction."""
        keys = list(ids)
        for rows in self._dropped:
            rows.run(cursor, keys)


def insert_into(table: str, group: str) -> MultiRow:
    """Rows of one of our tables, each in place of the one with its key."""
    return MultiRow(f"INSERT OR REPLACE INTO cronoq_trio_{table} VALUES ", f"({group})")


def delete_from(table: str, column: str) -> MultiRow:
    """The rows of one of our tables that have these values in a column."""
    return MultiRow(f"DELETE FROM cronoq_trio_{table} WHERE {column} IN (", "?", ")")


def _edge_rows(waiting: list[TaskInserted], resolved: Mapping[int, Mapping[str, int]]) -> Values:
    """The edges of new tasks, with the parents that have appeared since."""
    rows: Values = []
    for record in waiting:
        task_id = record.task_id
        for position, edge in enumerate(resolve(record.edges, resolved.get(task_id, NO_PARENTS))):
            rows += task_id, position, edge.parent, edge.key, int(edge.condition)
    return rows


def _resolved_rows(batch: Batch) -> list[tuple[int, int, str]]:
    """Parents that have appeared for edges which are in the store already."""
    return [
        (parent, task_id, key)
        for task_id, parents in batch.resolved.items()
        if task_id not in batch.inserted
        for key, parent in parents.items()
    ]


def _apart(batch: Batch) -> Values:
    """The outputs that do not stand in their task's state row: large ones, and those that come before the end."""
    rows: Values = []
    for task_id, stored in batch.outputs.items():
        if len(stored.output) > SMALL_OUTPUT or type(batch.states.get(task_id)) is not TaskFinished:
            rows += task_id, stored.content_type, stored.output  # a copy of a large one costs more than an adapter
    return rows
