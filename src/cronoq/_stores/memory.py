"""The store for servers that may forget: the last record of each live row, in this process.

It exists so that a fresh term in the same process recovers after a fault of the old one. Records are values that nobody
mutates, and a batch is given only after the engine's step returned whole, so a later term never sees half a change.

Finished tasks are kept only as far as such a term needs them for key retention: id, pool, key, status and end, never
an output. What callers may still read of finished tasks lies in the service's caches, so `find` and `list` do not know
them.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator

from cronoq._stores.base import Batch, Claim, Done, Fenced
from cronoq_sansio import limits
from cronoq_sansio.engine.records import (
    FinishedLoaded,
    LoadedRecord,
    TaskChanged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.ids import first_memory_id
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask, TaskInfo
from cronoq_sansio.spec import TaskStatus

LEASES_PER_TERM = 1 << 40
"""Distance between the first lease ids of two terms of one process. Batches do not carry lease ids, so the highest one
issued is not known; no term issues 10¹² leases, so a later one never repeats an id, even when the clock went back."""


class MemoryStore:
    """A `Store` without a file. `close` keeps the rows: the next `open` and `claim` of the same object go on with them.

    `begin_commit` calls `done` before it returns.
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
        """Live tasks by id, then the finished ones since that wall time, newest last."""
        live = sorted(self._inserted)
        for at in range(0, len(live), limits.LOAD_PORTION):
            portion = live[at : at + limits.LOAD_PORTION]
            yield [TaskLoaded(self._inserted[task_id], self._changed.get(task_id)) for task_id in portion]
        kept = [record for record in self._finished.values() if record.finished >= finished_since]
        kept.sort(key=lambda record: (record.finished, record.task_id))
        for at in range(0, len(kept), limits.LOAD_PORTION):
            yield list(kept[at : at + limits.LOAD_PORTION])

    def begin_commit(self, batch: Batch, done: Done) -> None:
        """Apply the batch and call `done`."""
        if not self._claimed:
            done(Fenced("the memory store was closed: nothing was written"))
            return
        for task_id, inserted in batch.inserted.items():
            self._insert(task_id, inserted)
        for task_id, state in batch.states.items():
            if isinstance(state, TaskFinished):
                self._finish(task_id, state)
            elif task_id in self._inserted:
                self._changed[task_id] = state
        done(None)

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
        )
        return StoredTask(info, None, "")

    async def list(self, query: ListFinished) -> StoredPage:
        """Nothing, and that was everything."""
        return StoredPage((), 0)

    async def prune(self, before: int) -> int:
        """Forget up to `limits.PRUNE_PORTION` finished tasks that ended before that wall time, oldest first."""
        count = 0
        while count < limits.PRUNE_PORTION and self._finished:
            record = next(iter(self._finished.values()))
            if record.finished >= before:
                break
            self._finished.popitem(last=False)
            count += 1
        return count

    async def close(self) -> None:
        """Give up the claim; the rows stay for the next term."""
        self._claimed = False

    def _insert(self, task_id: int, inserted: TaskInserted) -> None:
        self._highest_task = max(self._highest_task, task_id)
        self._inserted[task_id] = inserted
        if inserted.spec.key:
            self._keys[inserted.spec.key] = task_id

    def _finish(self, task_id: int, state: TaskFinished) -> None:
        """Drop the live row and remember what key retention needs."""
        self._changed.pop(task_id, None)
        inserted = self._inserted.pop(task_id, None)
        if inserted is None:
            return  # written again: it is remembered already, or too old to be
        spec = inserted.spec
        if spec.key and self._keys.get(spec.key) == task_id:
            del self._keys[spec.key]
        self._finished[task_id] = FinishedLoaded(task_id, spec.pool, spec.key, state.status, state.finished)
        self._forget(state.finished - self._key_retention)

    def _forget(self, before: int) -> None:
        """Keep what ended at `before` or later, and of that the newest `key_retention_max`."""
        finished = self._finished
        while finished and (len(finished) > self._key_retention_max or next(iter(finished.values())).finished < before):
            finished.popitem(last=False)
