"""Reading the dependencies of live tasks from the SQLite file, at recovery."""

import sqlite3
from collections.abc import Callable
from typing import Any

from cronoq._stores.sqlite_schema import statement
from cronoq_sansio import limits
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.spec import Condition

Edges = dict[int, tuple[Edge, ...] | str]
"""By child; a text says why they cannot be read."""

_TYPES = (int, int, int, str, int)


def read_edges(
    connection: sqlite3.Connection, after: int, last: int, decode: Callable[[bytes], str | bytes]
) -> tuple[Edges, int]:
    """The edges of children with ids in `after` + 1 … `last`, and the id up to which these are all.

    That is below `last` when there are more than `limits.LOAD_EDGES`. `decode` leaves a damaged text as bytes.
    """
    edges: Edges = {}
    rows: list[tuple[Any, ...]] = []
    count = 0
    factory, connection.text_factory = connection.text_factory, decode
    try:
        for row in connection.execute(statement("load_edges"), (after, last)):
            if rows and row[0] != rows[0][0]:
                edges[rows[0][0]] = _edges(rows)
                count += len(rows)
                rows = []
                if count >= limits.LOAD_EDGES:
                    return edges, row[0] - 1
            rows.append(row)
    finally:
        connection.text_factory = factory
    if rows:
        edges[rows[0][0]] = _edges(rows)
    return edges, last


def _edges(rows: list[tuple[Any, ...]]) -> tuple[Edge, ...] | str:
    """All edges of one child, or what is wrong with the first one that makes no sense."""
    for row in rows:
        child, position, parent, key, condition = row
        if tuple(map(type, row)) != _TYPES:
            return f"the stored row is damaged: a column of dependency {position} is of a wrong type"
        if parent < 0 or parent == child or bool(parent) == bool(key):
            return f"the stored row is damaged: dependency {position} does not name another task"
        if not Condition.ON_SUCCESS <= condition <= Condition.ON_FAILURE:
            return f"the stored row is damaged: dependency {position} has no condition {condition}"
    return tuple([Edge(parent, key, condition) for _, _, parent, key, condition in rows])
