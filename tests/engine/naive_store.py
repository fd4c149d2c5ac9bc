"""The simplest store there is: the last record of each row. What a real one must look like from the engine."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    FinishedLoaded,
    LoadedRecord,
    OutputStored,
    Record,
    TaskChanged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.settings import Settings


class NaiveStore:
    """Rows by task id."""

    def __init__(self) -> None:
        self.inserted: dict[int, TaskInserted] = {}
        self.states: dict[int, TaskChanged | TaskFinished] = {}
        self.outputs: dict[int, OutputStored] = {}

    def write(self, records: Iterable[Record]) -> None:
        """One transaction."""
        for record in records:
            if type(record) is TaskInserted:
                self.inserted[record.task_id] = record
            elif type(record) is OutputStored:
                self.outputs[record.task_id] = record
            elif type(record) is EdgeResolved:
                self._resolve(record)
            else:
                self.states[record.task_id] = record

    def _resolve(self, record: EdgeResolved) -> None:
        row = self.inserted[record.task_id]
        edges = tuple(
            Edge(record.parent, "", edge.condition) if not edge.parent and edge.key == record.key else edge
            for edge in row.edges
        )
        self.inserted[record.task_id] = replace(row, edges=edges)

    def live(self) -> list[int]:
        """Ids of the tasks that have not ended."""
        return [task_id for task_id in self.inserted if type(self.states.get(task_id)) is not TaskFinished]

    def rows(self, since: int = 0) -> list[LoadedRecord]:
        """What recovery reads: live tasks, and finished ones since then or that a live one depends on."""
        found: list[LoadedRecord] = []
        parents: set[int] = set()
        for task_id in self.live():
            row, state = self.inserted[task_id], self.states.get(task_id)
            assert not isinstance(state, TaskFinished)
            found.append(TaskLoaded(row, state))
            parents.update(edge.parent for edge in row.edges)
        for task_id, state in self.states.items():
            if type(state) is TaskFinished and (state.finished >= since or task_id in parents):
                asked = self.inserted[task_id].spec
                found.append(FinishedLoaded(task_id, asked.pool, asked.key, state.status, state.finished))
        return found

    def forget(self, task_id: int) -> None:
        """The row of a task is gone."""
        del self.inserted[task_id]
        self.states.pop(task_id, None)

    def recover(self, settings: Settings, now: int, **changes: Any) -> Engine:
        """A fresh engine that has taken over, with its first step written."""
        highest = max(self.inserted, default=0)
        arguments = {"first_task_id": highest + 1, "first_lease_id": 1_000_000, "seed": 1, "wall_offset": 0, **changes}
        engine = Engine.recover(settings, now=now, **arguments)
        rows = self.rows(now + arguments["wall_offset"] - settings.limits.key_retention)
        for start in range(0, len(rows), 3):
            engine.load(rows[start : start + 3])
        while engine.settle(now):
            pass
        self.write(engine.begin(now).writes)
        return engine
