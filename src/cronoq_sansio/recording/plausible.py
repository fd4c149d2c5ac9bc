"""What a recording may say: a file that anybody may have written is refused where no server would have written it.

The types are right when these rules are asked. They are those of the configuration file (`settings_table`), so that
settings which `serve` would refuse are no cause of a fault, of a divergence, or of an engine that fills the machine.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from cronoq_sansio.clock import ns
from cronoq_sansio.engine.cron import compile_cron
from cronoq_sansio.engine.records import LoadedRecord, RecurringDamaged, RecurringLoaded, TaskLoaded
from cronoq_sansio.limits import MAX_POOL_NAME, MAX_RECORDED_NUMBER, MAX_RECORDED_POOLS, MAX_SCHEDULES
from cronoq_sansio.recording.format import Head
from cronoq_sansio.recording.words import MAX_LENGTH, Malformed, shown
from cronoq_sansio.service.access import METHOD_ROLES, Principal
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.settings_keys import MAX_UINT32, NAME_CHARACTERS, NAME_RULE, Key, Kind, Table
from cronoq_sansio.settings_scheduling import CLASSES, POOLS, RESOURCES, RETRY, SLO
from cronoq_sansio.settings_table import LIMITS, OUTPUTS, SERVER, STORE
from cronoq_sansio.settings_text import allowed
from cronoq_sansio.spec import Priority, TaskSpec

MAX_TIME = (1 << 63) - 1  #: nanoseconds, and ids: what the store keeps in 64 bits
ROLES = frozenset(METHOD_ROLES.values())
NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.SECONDS)


def within(found: int, most: int, place: str, least: int = 0) -> int:
    """The number, when it is in the range; raises `Malformed`."""
    if not least <= found <= most:
        raise Malformed(f"expected a number from {least} to {most}, found {shown(found)}", place)
    return found


def check_head(head: Head) -> None:
    """Raises `Malformed` for what no server writes as its first line."""
    within(head.seed, MAX_RECORDED_NUMBER, "seed")
    for name in ("epoch", "first_task_id", "first_lease_id", "now"):
        within(getattr(head, name), MAX_TIME, name)
    within(head.wall_offset, MAX_TIME, "wall_offset", -MAX_TIME)
    try:
        _check_settings(head.settings)
    except Malformed as error:
        raise error.within("settings") from None


def _check_settings(settings: Settings) -> None:
    _check_keys(settings.server, SERVER, "server", ("shutdown_grace",))
    _check_keys(settings.store, STORE, "store", ("kind", "keep_finished"))
    _check_keys(settings.limits, LIMITS, "limits")
    _check_keys(settings.outputs, OUTPUTS, "outputs")
    _check_names(settings.pools, "pools", 1, MAX_RECORDED_POOLS)
    for index, pool in enumerate(settings.pools):
        _check_pool(pool, f"pools[{index}]")
    _check_names(settings.resources, "resources", 0, MAX_RECORDED_POOLS)
    for index, resource in enumerate(settings.resources):
        fields = [key.field for key in RESOURCES.keys if key.kind_of_table in ("", resource.kind)]
        _check_keys(resource, RESOURCES, f"resources[{index}]", fields)
    _check_names(settings.recurring, "recurring", 0, MAX_SCHEDULES)
    for index, schedule in enumerate(settings.recurring):
        fault = compile_cron(schedule.cron, schedule.tz, schedule.gap, schedule.fold)
        if isinstance(fault, str):
            raise Malformed(fault, f"recurring[{index}]")


def _check_names(tables: Sequence[Any], place: str, least: int, most: int) -> None:
    within(len(tables), most, place, least)
    if len({table.name for table in tables}) < len(tables):
        raise Malformed("names are unique, and one is there twice", place)


def _check_pool(pool: PoolSettings, place: str) -> None:
    _check_keys(pool, POOLS, place)
    _check_keys(pool.retry, RETRY, f"{place}.retry")
    for name, table in (("slo", SLO), ("max_pending_by_class", CLASSES)):
        for key, found in zip(table.keys, getattr(pool, name), strict=True):
            _check_value(found, key, f"{place}.{name}.{key.field}")
    if pool.min > pool.max:
        raise Malformed(f"expected at most the pool's max, {pool.max}, found {pool.min}", f"{place}.min")


def _check_keys(found: object, table: Table, place: str, fields: Sequence[str] | None = None) -> None:
    """All keys of a table, or those of these fields."""
    for key in table.keys:
        if fields is None or key.field in fields:
            _check_value(getattr(found, key.field), key, f"{place}.{key.field}")


def _check_value(found: Any, key: Key, place: str) -> None:
    """None is a default that its type allows."""
    if found is None:
        return
    if key.kind in NUMBERS:
        right = _in_range(found, key)
    elif key.kind is Kind.NUMBERS:
        right = all(_in_range(each, key) for _, each in found)
    elif key.kind is Kind.TEXT:
        right = _is_word(found, key)
    else:
        right = True
    if not right:
        unit = " ns" if key.kind is Kind.SECONDS else ""
        raise Malformed(f"expected {allowed(key)}, found {shown(found)}{unit}", place)


def _in_range(found: float, key: Key) -> bool:
    if key.minimum is None or key.maximum is None:
        return isfinite(found)
    least, most = key.minimum, key.maximum
    if key.kind is Kind.SECONDS:
        least, most = ns(least), ns(most)
    return least <= found <= most


def _is_word(found: str, key: Key) -> bool:
    if key.words:
        return found in key.words
    if key.allowed_text == NAME_RULE:
        return 1 <= len(found) <= MAX_POOL_NAME and not set(found) - set(NAME_CHARACTERS)
    return True


def _check_spec(spec: TaskSpec) -> None:
    within(spec.priority, max(Priority), "priority")
    within(spec.size, MAX_LENGTH, "size")


def _check_principal(principal: Principal) -> None:
    for role in sorted(principal.roles):
        if role not in ROLES:
            raise Malformed(f"expected some of {', '.join(sorted(ROLES))}, found {shown(role)}", "roles")


class Rows:
    """What was loaded so far: each row of a store comes once."""

    def __init__(self, first_task_id: int) -> None:
        self._first = first_task_id
        self._tasks: dict[int, None] = {}
        self._schedules: dict[str, None] = {}

    def check(self, records: Sequence[LoadedRecord]) -> list[str]:
        """Raises `Malformed` for rows that no store has; returns what keeps schedules from their fires here."""
        notes: list[str] = []
        for index, record in enumerate(records):
            try:
                note = self._check(record)
            except Malformed as error:
                raise error.within(f"[{index}]") from None
            if note:
                notes.append(note)
        return notes

    def _check(self, record: LoadedRecord) -> str:
        if isinstance(record, RecurringLoaded | RecurringDamaged):
            return self._check_schedule(record)
        if isinstance(record, TaskLoaded):
            inserted, changed = record.inserted, record.changed
            task_id = within(inserted.task_id, self._first - 1, "inserted.task_id", 1)
            within(inserted.max_attempts, MAX_UINT32, "inserted.max_attempts", 1)
            if changed is not None:
                within(changed.task_id, task_id, "changed.task_id", task_id)
                within(changed.attempt, inserted.max_attempts, "changed.attempt")
        else:
            task_id = within(record.task_id, self._first - 1, "task_id", 1)
        if task_id in self._tasks:
            raise Malformed(f"task {task_id} is there twice")
        self._tasks[task_id] = None
        return ""

    def _check_schedule(self, record: RecurringLoaded | RecurringDamaged) -> str:
        name = record.name if isinstance(record, RecurringDamaged) else record.stored.spec.name
        if name in self._schedules:
            raise Malformed(f"schedule {shown(name)} is there twice")
        self._schedules[name] = None
        if isinstance(record, RecurringDamaged):
            return ""
        spec = record.stored.spec
        fault = compile_cron(spec.cron, "", "shift", spec.fold)
        if isinstance(fault, str):
            raise Malformed(fault, "stored.spec")
        if record.fired is not None and record.fired.name != name:
            raise Malformed(f"expected the name {shown(name)}, found {shown(record.fired.name)}", "fired")
        here = compile_cron(spec.cron, spec.tz, spec.gap, spec.fold)
        return f"schedule {shown(name)} does not fire here: {here}" if isinstance(here, str) else ""


CHECKS: Mapping[type, Callable[[Any], None]] = {TaskSpec: _check_spec, Principal: _check_principal}
"""Rules of single classes, wherever they stand; each raises `Malformed`."""
