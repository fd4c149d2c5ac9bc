"""Schedules as rows of the SQLite file: writing them, and reading them at recovery."""

import sqlite3
from collections.abc import Mapping
from itertools import chain
from typing import Any

from cronoq._stores.base import ScheduleWrites
from cronoq._stores.sqlite_reader import read_portion
from cronoq._stores.sqlite_rows import delete_from, insert_into
from cronoq._stores.stored_spec import UndecodableSpec, decode_template, encode_template
from cronoq_sansio.engine.cron import FOLDS, GAPS
from cronoq_sansio.engine.records import (
    LoadedRecord,
    RecurringDamaged,
    RecurringFired,
    RecurringLoaded,
    RecurringStored,
)
from cronoq_sansio.spec import Overlap, Priority, RecurringSpec, tenant_of

_NONE = type(None)
_TYPES = (int, str, str, str, int, str, str, int, int, str, str, str, int, str, bytes)
_NEVER_FIRED = (*_TYPES, _NONE, _NONE, _NONE)
_FIRED = (*_TYPES, int, int, int)
_DAMAGED = "the stored row is damaged: "


class RecurringRows:
    """Writes what batches do with schedules. Writing it again changes nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._definitions = insert_into("recurring", "NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?")
        self._fired = insert_into("fired", "?,?,?,?")
        self._deleted = [delete_from(table, "name") for table in ("recurring", "fired")]
        for rows in (self._definitions, self._fired, *self._deleted):
            rows.prepare(connection)

    def write(self, cursor: sqlite3.Cursor, schedules: Mapping[str, ScheduleWrites]) -> None:
        """By name; the caller owns the transaction."""
        deleted = [name for name, writes in schedules.items() if writes.deleted]
        stored = [_definition(writes.stored) for writes in schedules.values() if writes.stored is not None]
        fired = [_how_far(writes.fired) for writes in schedules.values() if writes.fired is not None]
        for rows in self._deleted:
            rows.run(cursor, deleted)
        self._definitions.run(cursor, [*chain.from_iterable(stored)])
        self._fired.run(cursor, [*chain.from_iterable(fired)])


def _definition(record: RecurringStored) -> tuple[Any, ...]:
    spec, template = record.spec, record.spec.template
    return (
        *(spec.name, spec.cron, spec.tz, int(spec.overlap), spec.gap, spec.fold, int(spec.configured), record.added),
        *(template.pool, template.kind, template.key, int(template.priority), tenant_of(template)),
        encode_template(template),
    )


def _how_far(record: RecurringFired) -> tuple[Any, ...]:
    return record.name, record.through, record.local, record.last_task


def read_recurring(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[LoadedRecord], int]:
    """Up to `count` schedules whose rows come after `after`, and the last of these rows; `after` = there are no more.

    In the order in which they were stored.
    """
    rows = read_portion(connection, "load_recurring", (after, count))
    return [_loaded(row) for row in rows], rows[-1][0] if rows else after


def _loaded(row: tuple[Any, ...]) -> RecurringLoaded | RecurringDamaged:
    types = tuple(map(type, row))
    _, name, cron, tz, overlap, gap, fold, configured, added, *columns, through, local, last_task = row
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    if types not in (_NEVER_FIRED, _FIRED):
        return RecurringDamaged(name, f"{_DAMAGED}a column is missing or of a wrong type")
    pool, kind, key, priority, tenant, template = columns
    if not Priority.CRITICAL <= priority <= Priority.LOW:
        return RecurringDamaged(name, f"{_DAMAGED}there is no priority class {priority}")
    if not Overlap.SKIP <= overlap <= Overlap.QUEUE_ON_SUCCESS:
        return RecurringDamaged(name, f"{_DAMAGED}there is no overlap policy {overlap}")
    if gap not in GAPS or fold not in FOLDS:
        return RecurringDamaged(name, f"{_DAMAGED}there is no way {gap!r}, {fold!r} to treat day-light saving")
    try:
        decoded = decode_template(template, pool, kind, key, priority, tenant)
    except UndecodableSpec as error:
        return RecurringDamaged(name, str(error))
    spec = RecurringSpec(name, cron, tz, decoded, overlap, gap, fold, bool(configured))
    fired = None if types == _NEVER_FIRED else RecurringFired(name, through, local, last_task)
    return RecurringLoaded(RecurringStored(spec, added), fired)
