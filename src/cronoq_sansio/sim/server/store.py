"""The store of a simulated server: rows, one transaction at a time, epochs that fence off whoever lost it.

It keeps the MUST rules of `cronoq._stores.base`: a transaction is there whole or not at all, writing it again changes
nothing, a fenced holder writes nothing, and what was written stays. The faults of a store are the business of whoever
calls it (`operators.py`): whether a transaction reaches it, and whether anybody hears of it.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any

from cronoq_sansio.engine.records import (
    EdgeResolved,
    LoadedRecord,
    OutputStored,
    Record,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask, TaskInfo
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.spec import TaskStatus, tenant_of

LEASES_PER_TERM = 1 << 20


class Fenced(Exception):
    """Another process has taken the store over."""


class SimStore:
    """One store, over all incarnations of the server."""

    def __init__(self, *, volatile: bool, first_task: int = 1) -> None:
        self.volatile = volatile
        """It forgets finished tasks, and a step is durable when it is made."""
        self.rows = NaiveStore()
        self.epoch = 0
        self._highest = first_task - 1
        self._finished: list[int] = []
        """Ids of finished tasks, ascending."""
        self._by_key: dict[str, int] = {}
        """The newest task of each key."""

    def claim(self) -> tuple[int, int, int]:
        """Become the only writer: epoch, first task id, first lease id."""
        self.epoch += 1
        return self.epoch, self._highest + 1, self.epoch * LEASES_PER_TERM + 1

    def commit(self, epoch: int, records: Sequence[Record]) -> None:
        """One transaction. Raises `Fenced`, and writes nothing, when somebody else has claimed the store since."""
        if epoch != self.epoch:
            raise Fenced
        rows: Sequence[Any] = records
        for record in rows:
            kind = type(record)
            if kind is TaskInserted:
                if record.task_id > self._highest:
                    self._highest = record.task_id
                if record.spec.key:
                    self._by_key[record.spec.key] = record.task_id
            elif kind is TaskFinished and record.task_id not in self.rows.ended:
                insort(self._finished, record.task_id)
        self.rows.write(records)

    def load(self, since: int) -> list[LoadedRecord]:
        """What recovery reads."""
        return self.rows.rows(since)

    # --- what readers see

    def find(self, query: FindTask) -> StoredTask | None:
        """A task by id, or the newest by key. A volatile store knows live ones only."""
        ref = query.task
        task_id = self._by_key.get(ref, 0) if isinstance(ref, str) else ref
        row, state = self.rows.inserted.get(task_id), self.rows.states.get(task_id)
        if row is None or (self.volatile and type(state) is TaskFinished):
            return None
        info = self._info(row, state)
        output = self.rows.outputs.get(task_id) if query.with_output and info.output_available else None
        if output is None:
            return StoredTask(info, None, "")
        return StoredTask(info, output.output, output.content_type)

    def list(self, query: ListFinished) -> StoredPage:
        """Finished tasks by id."""
        found: list[TaskInfo] = []
        if self.volatile:
            return StoredPage((), 0)
        looked = 0
        for task_id in self._finished[bisect_right(self._finished, query.after) :]:
            if len(found) == query.limit:
                return StoredPage(tuple(found), looked)
            looked = task_id
            info = self._info(self.rows.inserted[task_id], self.rows.states[task_id])
            wanted = not query.pools or info.pool in query.pools
            if wanted and (not query.statuses or info.status in query.statuses):
                found.append(info)
        return StoredPage(tuple(found), 0)

    def _info(self, row: TaskInserted, state: TaskChanged | TaskFinished | None) -> TaskInfo:
        spec = row.spec
        finished = state.finished if isinstance(state, TaskFinished) else None
        return TaskInfo(
            row.task_id,
            TaskStatus.READY if state is None else state.status,
            spec.pool,
            spec.key,
            spec.kind,
            0 if state is None else state.attempt,
            row.max_attempts,
            row.arrival,
            (state.last_started or None) if state is not None else None,
            finished,
            state.message if state is not None else "",
            row.task_id in self.rows.outputs,
            spec.priority,
            tenant_of(spec),
        )


def writes_of(records: Sequence[Record]) -> list[str]:
    """Which of `faults.WRITES` a transaction holds."""
    found: dict[str, None] = {}
    for record in records:
        kind = type(record)
        if kind is TaskInserted:
            found["insert"] = None
        elif kind is TaskFinished or kind is OutputStored:
            found["end"] = None
        elif kind is TaskChanged:
            assert isinstance(record, TaskChanged)
            found[_CHANGES.get(record.status, "insert")] = None  # a task that waits is written with its beginning
        else:
            found["edge" if kind is EdgeResolved else "schedule"] = None
    return list(found)


_CHANGES = {int(TaskStatus.RUNNING): "dispatch", int(TaskStatus.RETRYING): "retry", int(TaskStatus.READY): "return"}
