"""The simplest store there is: the last record of each row. What a real one must look like from the engine."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    FinishedLoaded,
    LoadedRecord,
    OutputStored,
    Record,
    RecurringDeleted,
    RecurringFired,
    RecurringLoaded,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)


class NaiveStore:
    """Rows by task id, and by name of schedule."""

    def __init__(self) -> None:
        self.inserted: dict[int, TaskInserted] = {}
        self.states: dict[int, TaskChanged | TaskFinished] = {}
        self.outputs: dict[int, OutputStored] = {}
        self.schedules: dict[str, RecurringStored] = {}
        self.fired: dict[str, RecurringFired] = {}
        self._live: dict[int, None] = {}
        self._ended: dict[int, None] = {}

    def copy(self) -> "NaiveStore":
        """The same rows in a store of its own."""
        other = NaiveStore()
        other.inserted = dict(self.inserted)
        other.states = dict(self.states)
        other.outputs = dict(self.outputs)
        other.schedules = dict(self.schedules)
        other.fired = dict(self.fired)
        other._live = dict(self._live)
        other._ended = dict(self._ended)
        return other

    def write(self, records: Iterable[Record]) -> None:
        """One transaction."""
        rows: Iterable[Any] = records
        for record in rows:
            kind = type(record)
            if kind is TaskChanged:
                self.states[record.task_id] = record
            elif kind is TaskFinished:
                self.states[record.task_id] = record
                self._ended[record.task_id] = None
                self._live.pop(record.task_id, None)
            elif kind is TaskInserted:
                self.inserted[record.task_id] = record
                if record.task_id not in self._ended:
                    self._live[record.task_id] = None
            elif kind is OutputStored:
                self.outputs[record.task_id] = record
            elif kind is EdgeResolved:
                self._resolve(record)
            elif kind is RecurringStored:
                self.schedules[record.spec.name] = record
            elif kind is RecurringFired:
                self.fired[record.name] = record
            else:
                assert kind is RecurringDeleted
                self.schedules.pop(record.name, None)  # written again, it changes nothing
                self.fired.pop(record.name, None)

    def _resolve(self, record: EdgeResolved) -> None:
        row = self.inserted[record.task_id]
        edges = tuple(
            Edge(record.parent, "", edge.condition) if not edge.parent and edge.key == record.key else edge
            for edge in row.edges
        )
        self.inserted[record.task_id] = replace(row, edges=edges)

    def finished(self, task_id: int) -> TaskFinished | None:
        """The row of a task that has ended."""
        state = self.states.get(task_id)
        return state if type(state) is TaskFinished else None

    def live(self) -> list[int]:
        """Ids of the tasks that have not ended."""
        inserted, states = self.inserted, self.states
        return [
            task_id for task_id in self._live if task_id in inserted and type(states.get(task_id)) is not TaskFinished
        ]

    def ends(self) -> Iterator[tuple[int, TaskFinished]]:
        """The rows of the tasks that have ended, by id, the first end first."""
        states = self.states
        for task_id in self._ended:
            state = states[task_id]
            if type(state) is TaskFinished:
                yield task_id, state

    def rows(self, since: int = 0) -> list[LoadedRecord]:
        """What recovery reads: schedules, live tasks, and finished ones since then or that a live one depends on."""
        found: list[LoadedRecord] = []
        inserted, states = self.inserted, self.states
        parents: set[int] = set()
        for task_id in self.live():
            row, state = inserted[task_id], states.get(task_id)
            assert not isinstance(state, TaskFinished)
            found.append(TaskLoaded(row, state))
            parents.update([edge.parent for edge in row.edges])
        for task_id, end in self.ends():
            if end.finished >= since or task_id in parents:
                asked = inserted[task_id].spec
                found.append(FinishedLoaded(task_id, asked.pool, asked.key, end.status, end.finished))
        found += [RecurringLoaded(row, self.fired.get(name)) for name, row in self.schedules.items()]
        return found
