"""What the tests of the stores share: records in short form, and waiting for a commit from any event loop."""

import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from cronoq._stores.base import Batch, Store, StoreError
from cronoq._stores.memory import MemoryStore
from cronoq._stores.sqlite import SqliteStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    FinishedLoaded,
    LoadedRecord,
    OutputStored,
    Record,
    RecurringDamaged,
    RecurringDeleted,
    RecurringFired,
    RecurringLoaded,
    RecurringStored,
    TaskChanged,
    TaskDamaged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.service.messages import FindTask, StoredTask
from cronoq_sansio.spec import (
    Condition,
    Dependency,
    MissPolicy,
    Overlap,
    RecurringSpec,
    RetryOverride,
    Scheduling,
    TaskSpec,
    TaskStatus,
)

UNIX = 1_800_000_000
WALL = UNIX * SECOND
RETENTION = 3_600 * SECOND


def spec(key: str = "", payload: bytes = b"payload", pool: str = "default") -> TaskSpec:
    retry = RetryOverride(5, 1 * SECOND, 1.5, None, False)
    return TaskSpec(payload, "text/plain", "mail", pool, 1, key, 30 * SECOND, retry, (("a", "1"), ("b", "ü")), 99)


def inserted(task_id: int, key: str = "", payload: bytes = b"payload") -> TaskInserted:
    return TaskInserted(task_id, spec(key, payload), 5, WALL + task_id % 1_000)


def edge(parent: int = 0, *, key: str = "", condition: int = Condition.ON_SUCCESS) -> Edge:
    """An edge to a parent, or to whoever will have the key."""
    return Edge(parent, key, condition)


def waiting(task_id: int, *edges: Edge, key: str = "", **asked: Any) -> TaskInserted:
    """A task with edges, and with what else it asks of the scheduler, as every store gives it back."""
    dependencies = tuple(Dependency(edge.parent or edge.key, edge.condition) for edge in edges)
    scheduling = Scheduling(dependencies=dependencies, **asked)
    task = replace(spec(key), scheduling=None if scheduling == Scheduling() else scheduling)
    return TaskInserted(task_id, task, 5, WALL + task_id % 1_000, edges)


def changed(task_id: int, status: int = TaskStatus.RUNNING, attempt: int = 1, message: str = "") -> TaskChanged:
    return TaskChanged(task_id, status, attempt, WALL + 9, WALL + 1, WALL + 2, message)


def finished(task_id: int, status: int = TaskStatus.SUCCEEDED, end: int = WALL, message: str = "") -> TaskFinished:
    return TaskFinished(task_id, status, 1, WALL + 1, WALL + 2, end, message)


def schedule(name: str, cron: str = "0 7 * * *", added: int = WALL, **changes: Any) -> RecurringStored:
    """A schedule of which nothing is as by default; `changes` are fields of its `RecurringSpec`."""
    asked = Scheduling(deadline_in=5 * SECOND, tenant="acme", tolerance=3 * SECOND, on_miss=MissPolicy.SKIP)
    template = replace(spec(f"{name}-key"), scheduling=asked)
    said = {"tz": "Europe/Berlin", "overlap": Overlap.QUEUE, "gap": "skip", "fold": "both", **changes}
    return RecurringStored(RecurringSpec(name, cron, template=said.pop("template", template), **said), added)


def fired(name: str, through: int = WALL, local: int = -1, last_task: int = 0) -> RecurringFired:
    return RecurringFired(name, through, local, last_task)


def gone(name: str) -> RecurringDeleted:
    return RecurringDeleted(name)


def batch(*records: Record, number: int = 1) -> Batch:
    made = Batch()
    made.add(number, records)
    return made


class Outcome:
    """Stands in for the driver: takes the news of one commit, from whatever thread."""

    def __init__(self) -> None:
        self.calls: list[StoreError | None] = []
        self._called = threading.Event()

    def __call__(self, error: StoreError | None) -> None:
        self.calls.append(error)
        self._called.set()

    async def wait(self) -> StoreError | None:
        assert await to_thread.run_sync(self._called.wait, 30), "the store never called back"
        return self.calls[0]


async def attempt(store: Store, made: Batch) -> StoreError | None:
    outcome = Outcome()
    store.begin_commit(made, outcome)
    return await outcome.wait()


async def commit(store: Store, *records: Record) -> None:
    error = await attempt(store, batch(*records))
    assert error is None, error


async def loaded(store: Store, since: int = 0) -> list[LoadedRecord]:
    return [record async for portion in store.load(since) for record in portion]


def live(records: Iterable[LoadedRecord]) -> list[LoadedRecord]:
    return [record for record in records if isinstance(record, TaskLoaded | TaskDamaged)]


def schedules(records: Iterable[LoadedRecord]) -> dict[str, RecurringLoaded | RecurringDamaged]:
    """By name, each of which must be there once."""
    found: dict[str, RecurringLoaded | RecurringDamaged] = {}
    for record in records:
        if isinstance(record, RecurringLoaded | RecurringDamaged):
            name = record.name if isinstance(record, RecurringDamaged) else record.stored.spec.name
            assert name not in found
            found[name] = record
    return found


def ended(records: Iterable[LoadedRecord]) -> list[FinishedLoaded]:
    return [record for record in records if isinstance(record, FinishedLoaded)]


async def find(store: Store, task: int | str, *, with_output: bool = True) -> StoredTask | None:
    return await store.find(FindTask(1, task, with_output))


class Harness:
    """One kind of store under one event loop. `make` gives a store object for the next term on the same rows."""

    def __init__(self, kind: str, backend: str, folder: Path) -> None:
        self.kind = kind
        self.backend = backend
        self.path = folder / "cronoq.db"
        self._memory: dict[int, MemoryStore] = {}

    def make(self, key_retention_max: int = 1_000) -> Store:
        if self.kind == "sqlite":
            return SqliteStore(self.path, key_retention_max=key_retention_max)
        if key_retention_max not in self._memory:
            self._memory[key_retention_max] = MemoryStore(key_retention=RETENTION, key_retention_max=key_retention_max)
        return self._memory[key_retention_max]

    def run(self, body: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Run `body` in an event loop of this harness."""
        return anyio.run(body, *arguments, backend=self.backend)

    def with_store(self, body: Callable[[Store, int], Awaitable[Any]], key_retention_max: int = 1_000) -> Any:
        """Run `body(store, first task id)` in a term of its own."""

        async def term() -> Any:
            store = self.make(key_retention_max)
            await store.open()
            try:
                claim = await store.claim(UNIX)
                return await body(store, claim.first_task_id)
            finally:
                await store.close()

        return self.run(term)


def execute(path: Path, text: str, *values: Any) -> list[Any]:
    """One statement from outside."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


def write_dump(path: Path, script: Path) -> None:
    """A database as an earlier version left it behind."""
    connection = sqlite3.connect(path)
    connection.executescript(script.read_text(encoding="utf-8"))
    assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    connection.close()


def as_loaded(task: TaskInserted, state: TaskChanged | None = None) -> TaskLoaded:
    return TaskLoaded(task, state)


__all__ = [
    "RETENTION",
    "UNIX",
    "WALL",
    "EdgeResolved",
    "Harness",
    "Outcome",
    "OutputStored",
    "RecurringDamaged",
    "RecurringLoaded",
    "as_loaded",
    "attempt",
    "batch",
    "changed",
    "commit",
    "edge",
    "ended",
    "execute",
    "find",
    "finished",
    "fired",
    "gone",
    "inserted",
    "live",
    "loaded",
    "schedule",
    "schedules",
    "spec",
    "waiting",
    "write_dump",
]
