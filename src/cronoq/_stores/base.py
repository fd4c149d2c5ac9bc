"""What a store must do. One conformance suite (`tests/stores`) holds every store to it.

MUST rules:

1. A batch is one transaction: after any crash it is there whole or not at all.
2. Writing a batch again changes nothing (rows by value, last one wins), so an unknown outcome may be retried.
3. `done(None)` is called only after the batch survives a power loss (memory store: its power loss is the process's
   end).
4. Every batch checks inside its transaction that this claim still holds; otherwise `Fenced` and nothing is written.
5. At most one batch is in flight; batches are written in the order in which they were given.
6. `find`, `list` and `load` see every batch whose `done(None)` was called.
7. Rows of live tasks are never pruned, and neither are the tasks that the edges of a live task name: `load` gives them
   back however long ago they ended.
8. `close` returns only when no thread or connection of the store can write any more.
9. Edges come back as they were inserted, in their order, with the parents of those that were resolved. The edges of a
   task go when it ends. A live row whose edges cannot be read is a `TaskDamaged`, never one with fewer edges.
10. A schedule is what was last stored under its name, and how far it has come since it was first stored or last
    deleted: storing it anew leaves that as it is, deleting it deletes that too. `load` gives every schedule, once. One
    that cannot be read, in any part, is a `RecurringDamaged` and stays as it is: with a guess of how far it has come,
    occurrences would be made twice.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Protocol

from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    LoadedRecord,
    OutputStored,
    Record,
    RecurringFired,
    RecurringRecord,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask
from cronoq_sansio.spec import Dependency, Scheduling
from cronoq_sansio.values import value


class StoreError(Exception):
    """Base of what a store raises. The text is for the operator: what happened, what to do."""


class StoreUnusable(StoreError):
    """The store cannot be opened at all: missing folder, foreign, damaged or newer file, held by another process."""


class StoreHeld(StoreUnusable):
    """Another living process leads on the store; it can be opened once that one has ended."""


class StoreUnavailable(StoreError):
    """Transient: busy, disk full, I/O error. Nothing of the batch is acknowledged; try again."""


class StoreGone(StoreError):
    """What was written lies elsewhere, or nowhere: the file was moved, deleted or replaced."""


class Fenced(StoreError):
    """Another holder took over. Nothing was written and nothing may be written any more."""


@value
class Claim:
    """A term on this store."""

    epoch: int
    first_task_id: int
    first_lease_id: int


class ScheduleWrites:
    """What a batch does with one schedule, in this order: delete it, store it, say how far it has come."""

    __slots__ = ("deleted", "fired", "stored")

    def __init__(self) -> None:
        self.deleted = False
        self.stored: RecurringStored | None = None
        self.fired: RecurringFired | None = None

    def add(self, record: RecurringRecord) -> None:
        """What was said before of the same row does not matter any more."""
        if isinstance(record, RecurringFired):
            self.fired = record
        elif isinstance(record, RecurringStored):
            self.stored = record
        else:
            self.deleted = True
            self.stored = self.fired = None


class Batch:
    """The writes of consecutive steps, merged: only the last record of each row is kept."""

    __slots__ = (
        *("inserted", "output_size", "outputs", "resolved", "rows", "schedules", "spec_size", "states", "steps"),
        "through",
    )

    def __init__(self) -> None:
        self.inserted: dict[int, TaskInserted] = {}
        self.resolved: dict[int, dict[str, int]] = {}
        """Of a child: awaited keys and the parents that now have them, for its edges in `inserted` or in the store."""
        self.states: dict[int, TaskChanged | TaskFinished] = {}
        self.outputs: dict[int, OutputStored] = {}
        self.schedules: dict[str, ScheduleWrites] = {}
        """By name."""
        self.spec_size = 0
        """Bytes of specifications: of new work."""
        self.output_size = 0
        """Bytes of outputs: of work that is done."""
        self.rows = 0
        """Records and edges of new tasks, before merging: how much there is to write, at about 25 µs each."""
        self.steps = 0
        self.through = 0
        """Number of the last step in the batch."""

    def add(self, number: int, writes: Iterable[Record]) -> None:
        """Append the writes of step `number`."""
        rows, states = 0, self.states
        for record in writes:
            rows += 1
            kind = type(record)
            if kind is TaskFinished or kind is TaskChanged:
                states[record.task_id] = record  # type: ignore[assignment,union-attr]
            elif kind is TaskInserted:
                rows += len(record.edges)  # type: ignore[union-attr]
                self.inserted[record.task_id] = record  # type: ignore[assignment,union-attr]
                self.spec_size += record.spec.size  # type: ignore[union-attr]
            elif kind is OutputStored:
                self.outputs[record.task_id] = record  # type: ignore[assignment,union-attr]
                self.output_size += len(record.output)  # type: ignore[union-attr]
            elif kind is EdgeResolved:
                self.resolved.setdefault(record.task_id, {})[record.key] = record.parent  # type: ignore[union-attr]
            else:
                self._add_schedule(record)  # type: ignore[arg-type]
        self.rows += rows
        self.steps += 1
        self.through = number

    def _add_schedule(self, record: RecurringRecord) -> None:
        known = self.schedules.get(name := record.spec.name if isinstance(record, RecurringStored) else record.name)
        if known is None:
            known = self.schedules[name] = ScheduleWrites()
        known.add(record)
        if isinstance(record, RecurringStored):
            self.spec_size += record.spec.template.size

    def __bool__(self) -> bool:
        return self.steps > 0


NO_PARENTS: Mapping[str, int] = {}


def resolve(edges: tuple[Edge, ...], parents: Mapping[str, int]) -> tuple[Edge, ...]:
    """The edges with the parents of those keys that have appeared."""
    if not parents:
        return edges
    return tuple(
        edge if edge.parent or edge.key not in parents else Edge(parents[edge.key], "", edge.condition)
        for edge in edges
    )


NOTHING_ASKED = Scheduling()


def scheduling_of(asked: Scheduling, edges: tuple[Edge, ...]) -> Scheduling | None:
    """What `load` gives back of it: its dependencies are those that the edges name; None when nothing is asked."""
    named = tuple([Dependency(edge.parent or edge.key, edge.condition) for edge in edges])
    loaded = Scheduling(
        *(asked.deadline, asked.deadline_in, asked.duration_hint, named, asked.resources, asked.labels, asked.tenant),
        *(asked.start, asked.start_in, asked.tolerance, asked.on_miss),
    )
    return None if loaded == NOTHING_ASKED else loaded


Done = Callable[[StoreError | None], None]
"""Called once per batch, possibly from another thread."""


class Store(Protocol):
    """A place for tasks. Constructing one does nothing; `open` does."""

    volatile: bool
    """True: everything is lost with the process, so nothing waits for a commit; it is a `VolatileStore`."""

    async def open(self) -> None:
        """Open, check and migrate. Raises `StoreUnusable`, `StoreUnavailable` (busy or full just now: try again)."""

    async def claim(self, unix_seconds: int) -> Claim:
        """Become the only writer: a new epoch. Raises `StoreUnusable` (another process lives), `StoreUnavailable`."""

    def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        """Schedules; live tasks with their edges; then finished ones, each once; ≤ `limits.LOAD_PORTION` at a time.

        Finished ones are those that edges of live tasks name, in any order, and then those since that wall time,
        newest last.
        """

    def begin_commit(self, batch: Batch, done: Done) -> None:
        """Start writing; returns at once, never raises for the store's troubles: `done` tells."""

    async def find(self, query: FindTask) -> StoredTask | None:
        """A task by id, or the newest by key; never through the writer. Raises `StoreUnavailable`."""

    async def list(self, query: ListFinished) -> StoredPage:
        """Finished tasks by id, without outputs; never through the writer. Raises `StoreUnavailable`.

        At most `query.limit` of them; it looks at `limits.MAX_LIST_SCAN` rows at most. A volatile store knows none.
        """

    async def prune(self, before: int) -> int:
        """Delete ≤ `limits.PRUNE_PORTION` finished tasks that ended before that wall time; how many (0 = no more).

        Those that the edges of a live task name stay.
        """

    async def close(self) -> None:
        """Give up the claim and release everything. Waits for a batch in flight. Idempotent.

        Raises `StoreGone`, with everything released, when the next open may not find what was acknowledged.
        """


class VolatileStore(Store, Protocol):
    """One that need not be waited for."""

    def apply(self, writes: Iterable[Record]) -> None:
        """Take over the writes of a step, in order. Raises `Fenced` after `close`."""
