"""The simplest store there is: the last record of each row. What a real one must look like from the engine."""

from collections.abc import Iterable
from dataclasses import replace

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

    def copy(self) -> "NaiveStore":
        """The same rows in a store of its own."""
        other = NaiveStore()
        other.inserted = dict(self.inserted)
        other.states = dict(self.states)
        other.outputs = dict(self.outputs)
        other.schedules = dict(self.schedules)
        other.fired = dict(self.fired)
        return other

    def write(self, records: Iterable[Record]) -> None:
        """One transaction."""
        for record in records:
            if isinstance(record, TaskInserted):
                self.inserted[record.task_id] = record
            elif isinstance(record, OutputStored):
                self.outputs[record.task_id] = record
            elif isinstance(record, EdgeResolved):
                self._resolve(record)
            elif isinstance(record, RecurringStored):
                self.schedules[record.spec.name] = record
            elif isinstance(record, RecurringFired):
                self.fired[record.name] = record
            elif isinstance(record, RecurringDeleted):
                self.schedules.pop(record.name, None)  # written again, it changes nothing
                self.fired.pop(record.name, None)
            else:
                self.states[record.task_id] = record

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
        return state if isinstance(state, TaskFinished) else None

    def live(self) -> list[int]:
        """Ids of the tasks that have not ended."""
        return [task_id for task_id in self.inserted if self.finished(task_id) is None]

    def rows(self, since: int = 0) -> list[LoadedRecord]:
        """What recovery reads: schedules, live tasks, and finished ones since then or that a live one depends on."""
        found: list[LoadedRecord] = []
        parents: set[int] = set()
        for task_id in self.live():
            row, state = self.inserted[task_id], self.states.get(task_id)
            assert not isinstance(state, TaskFinished)
            found.append(TaskLoaded(row, state))
            parents.update(edge.parent for edge in row.edges)
        for task_id, state in self.states.items():
            if isinstance(state, TaskFinished) and (state.finished >= since or task_id in parents):
                asked = self.inserted[task_id].spec
                found.append(FinishedLoaded(task_id, asked.pool, asked.key, state.status, state.finished))
        found += [RecurringLoaded(row, self.fired.get(name)) for name, row in self.schedules.items()]
        return found
