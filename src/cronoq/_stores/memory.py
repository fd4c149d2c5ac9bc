"""The store for servers that may forget: the last record of each live row, in this process.

It exists so that a fresh term in the same process recovers after a fault of the old one. Records are values that nobody
mutates, and they are given only after the engine's step returned whole, so a later term never sees half a change.

Finished tasks are kept only as far as such a term needs them, for key retention or because an edge of a live task names
them: id, pool, key, status and end, never an output. What callers may still read of finished tasks lies in the
service's caches, so `find` and `list` do not know them.
"""

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace

from cronoq._stores.base import NO_PARENTS, Batch, Claim, Done, Fenced, resolve, scheduling_of
from cronoq_sansio import limits
from cronoq_sansio.engine.records import (
    EdgeResolved,
    FinishedLoaded,
    LoadedRecord,
    OutputStored,
    Record,
    RecurringDeleted,
    RecurringFired,
    RecurringLoaded,
    RecurringRecord,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.ids import first_memory_id
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask, TaskInfo
from cronoq_sansio.spec import Scheduling, TaskStatus

LEASES_PER_TERM = 1 << 40
"""Distance between the first lease ids of two terms of one process. Batches do not carry lease ids, so the highest one
issued is not known; no term issues 10¹² leases, so a later one never repeats an id, even when the clock went back."""


class MemoryStore:
    """A `Store` without a file. `close` keeps the rows: the next `open` and `claim` of the same object go on with them.

    `begin_commit` calls `done` before it returns; a term that runs on this store uses `apply`, and no batch.
    """

    volatile = True

    def __init__(self, *, key_retention: int, key_retention_max: int) -> None:
        """`key_retention` in nanoseconds; both bound what is kept of finished tasks, 0 = nothing."""
        self._key_retention = key_retention
        self._key_retention_max = key_retention_max
        self._inserted: dict[int, TaskInserted] = {}
        self._changed: dict[int, TaskChanged] = {}
        self._keys: dict[str, int] = {}
        self._finished: OrderedDict[int, FinishedLoaded] = OrderedDict()
        """In the order in which they came, which is the order in which they go."""
        self._resolved: dict[int, dict[str, int]] = {}
        """Of a live child: awaited keys that have appeared, and who has them."""
        self._named: Counter[int] = Counter()
        """Of a parent: edges of live tasks that name it."""
        self._parents: dict[int, FinishedLoaded] = {}
        """Finished tasks that key retention forgets and that are named."""
        self._schedules: dict[str, RecurringStored] = {}
        self._fired: dict[str, RecurringFired] = {}
        self._epoch = 0
        self._claimed = False
        self._highest_task = 0
        self._first_lease = 0

    async def open(self) -> None:
        """Nothing to open."""

    async def claim(self, unix_seconds: int) -> Claim:
        """A new term; its ids go on above those of every earlier term of this process (engine.md section 1)."""
        floor = self._first_lease + LEASES_PER_TERM - 1 if self._first_lease else 0
        self._first_lease = first_memory_id(unix_seconds, floor)
        self._epoch += 1
        self._claimed = True
        return Claim(self._epoch, first_memory_id(unix_seconds, self._highest_task), self._first_lease)

    async def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        """Schedules; live tasks by id; the finished ones since that wall time and all that are named, newest last."""
        schedules = [RecurringLoaded(stored, self._fired.get(name)) for name, stored in self._schedules.items()]
        for at in range(0, len(schedules), limits.LOAD_PORTION):
            yield list(schedules[at : at + limits.LOAD_PORTION])
        live = sorted(self._inserted)
        for at in range(0, len(live), limits.LOAD_PORTION):
            yield [self._loaded(task_id) for task_id in live[at : at + limits.LOAD_PORTION]]
        kept = [r for r in self._finished.values() if r.finished >= finished_since or r.task_id in self._named]
        kept += self._parents.values()
        kept.sort(key=lambda record: (record.finished, record.task_id))
        for at in range(0, len(kept), limits.LOAD_PORTION):
            yield list(kept[at : at + limits.LOAD_PORTION])

    def begin_commit(self, batch: Batch, done: Done) -> None:
        """Apply the batch and call `done`."""
        try:
            self.apply(_records(batch))
        except Fenced as fenced:
            done(fenced)
        else:
            done(None)

    def apply(self, writes: Iterable[Record]) -> None:
        """Apply the writes of a step, in order. Raises `Fenced` after `close`."""
        if not self._claimed:
            raise Fenced("the memory store was closed: nothing was written")
        ended: TaskFinished | None = None
        for record in writes:
            kind = type(record)
            if kind is TaskInserted:
                inserted: TaskInserted = record  # type: ignore[assignment]
                task_id = inserted.task_id
                if task_id > self._highest_task:
                    self._highest_task = task_id
                if task_id in self._inserted:
                    continue  # written again: its edges are counted already
                self._inserted[task_id] = inserted
                if inserted.spec.key:
                    self._keys[inserted.spec.key] = task_id
                if inserted.edges:
                    self._named.update(edge.parent for edge in inserted.edges if edge.parent)
            elif kind is TaskChanged:
                if record.task_id in self._inserted:  # type: ignore[union-attr]
                    self._changed[record.task_id] = record  # type: ignore[assignment,union-attr]
            elif kind is TaskFinished:
                self._finish(record)  # type: ignore[arg-type]
                ended = record  # type: ignore[assignment]
            elif kind is EdgeResolved:
                self._resolve(record)  # type: ignore[arg-type]
            elif kind is not OutputStored:
                self._write_schedule(record)  # type: ignore[arg-type]
        if ended is not None:
            self._forget(ended.finished - self._key_retention)

    async def find(self, query: FindTask) -> StoredTask | None:
        """A live task by id or key; None for finished ones."""
        task_id = query.task if isinstance(query.task, int) else self._keys.get(query.task, 0)
        inserted = self._inserted.get(task_id)
        if inserted is None:
            return None
        spec = inserted.spec
        state = self._changed.get(task_id)
        info = TaskInfo(
            task_id=task_id,
            status=state.status if state else TaskStatus.READY,
            pool=spec.pool,
            key=spec.key,
            kind=spec.kind,
            attempt=state.attempt if state else 0,
            max_attempts=inserted.max_attempts,
            created=inserted.arrival,
            started=(state.last_started or None) if state else None,
            finished=None,
            message=state.message if state else "",
            output_available=False,
            priority=spec.priority,
            tenant=spec.scheduling.tenant if spec.scheduling is not None else "",
        )
        return StoredTask(info, None, "")

    async def list(self, query: ListFinished) -> StoredPage:
        """Nothing, and that was everything."""
        return StoredPage((), 0)

    async def prune(self, before: int) -> int:
        """Forget up to `limits.PRUNE_PORTION` finished tasks that ended before that wall time, oldest first."""
        gone: list[int] = []
        for task_id, record in self._finished.items():
            if record.finished >= before or len(gone) == limits.PRUNE_PORTION:
                break
            if task_id not in self._named:
                gone.append(task_id)
        for task_id in gone:
            del self._finished[task_id]
        return len(gone)

    async def close(self) -> None:
        """Give up the claim; the rows stay for the next term."""
        self._claimed = False

    def _loaded(self, task_id: int) -> TaskLoaded:
        """The rows of a live task, with its edges as they are now."""
        row = self._inserted[task_id]
        asked = row.spec.scheduling
        if asked is not None or row.edges:
            edges = resolve(row.edges, self._resolved.get(task_id, NO_PARENTS))
            spec = replace(row.spec, scheduling=scheduling_of(asked or Scheduling(), edges))
            row = TaskInserted(task_id, spec, row.max_attempts, row.arrival, edges)
        return TaskLoaded(row, self._changed.get(task_id))

    def _resolve(self, record: EdgeResolved) -> None:
        """An awaited key has appeared. However many edges the task has, each key costs the same."""
        inserted = self._inserted.get(record.task_id)
        if inserted is None or not inserted.edges:
            return  # written again: it has ended
        known = self._resolved.setdefault(record.task_id, {})
        if record.key not in known:
            known[record.key] = record.parent
            self._named[record.parent] += 1

    def _finish(self, state: TaskFinished) -> None:
        """Drop the live row and remember what a later term needs."""
        task_id = state.task_id
        self._changed.pop(task_id, None)
        inserted = self._inserted.pop(task_id, None)
        if inserted is None:
            return  # written again: it is remembered already, or too old to be
        if inserted.edges:
            self._unlink(inserted)
        spec = inserted.spec
        if spec.key and self._keys.get(spec.key) == task_id:
            del self._keys[spec.key]
        if self._parents:
            self._parents.pop(task_id, None)  # written again
        self._finished[task_id] = FinishedLoaded(task_id, spec.pool, spec.key, state.status, state.finished)

    def _write_schedule(self, record: RecurringRecord) -> None:
        if isinstance(record, RecurringStored):
            self._schedules[record.spec.name] = record
        elif isinstance(record, RecurringFired):
            self._fired[record.name] = record
        else:
            self._schedules.pop(record.name, None)
            self._fired.pop(record.name, None)

    def _unlink(self, inserted: TaskInserted) -> None:
        """The edges of a task go, and with the last one that names it a parent that key retention has forgotten."""
        named = self._named
        for parent in self._named_by(inserted):
            named[parent] -= 1
            if not named[parent]:
                del named[parent]
                self._parents.pop(parent, None)
        self._resolved.pop(inserted.task_id, None)

    def _named_by(self, inserted: TaskInserted) -> Iterator[int]:
        yield from (edge.parent for edge in inserted.edges if edge.parent)
        yield from self._resolved.get(inserted.task_id, NO_PARENTS).values()

    def _forget(self, before: int) -> None:
        """Keep what ended at `before` or later, of that the newest `key_retention_max`, and whatever is named."""
        finished, named = self._finished, self._named
        surplus = len(finished) - self._key_retention_max
        while finished and (surplus > 0 or next(iter(finished.values())).finished < before):
            surplus -= 1
            task_id, record = finished.popitem(last=False)
            if named and task_id in named:
                self._parents[task_id] = record


def _records(batch: Batch) -> Iterator[Record]:
    """What is in a batch, in an order that means the same."""
    yield from batch.inserted.values()
    for task_id, parents in batch.resolved.items():
        for key, parent in parents.items():
            yield EdgeResolved(task_id, key, parent)
    yield from batch.states.values()
    for name, writes in batch.schedules.items():
        if writes.deleted:
            yield RecurringDeleted(name)
        if writes.stored is not None:
            yield writes.stored
        if writes.fired is not None:
            yield writes.fired
