"""The simplest store there is: the last record of each row. What a real one must look like from the engine."""

from collections.abc import Iterable

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


class NaiveStore:
    """Rows by task id."""

    def __init__(self) -> None:
        self.inserted: dict[int, TaskInserted] = {}
        self.edges: dict[int, list[Edge]] = {}
        """As they are now: an awaited key that has appeared is replaced by its parent."""
        self.states: dict[int, TaskChanged | TaskFinished] = {}
        self.outputs: dict[int, OutputStored] = {}

    def write(self, records: Iterable[Record]) -> None:
        """One transaction."""
        for record in records:
            if type(record) is TaskInserted:
                self.inserted[record.task_id] = record
                self.edges[record.task_id] = list(record.edges)
            elif type(record) is EdgeResolved:
                self.edges[record.task_id] = [
                    Edge(record.parent, "", edge.condition) if edge.key == record.key else edge
                    for edge in self.edges[record.task_id]
                ]
            elif type(record) is OutputStored:
                self.outputs[record.task_id] = record
            else:
                assert type(record) is TaskChanged or type(record) is TaskFinished
                self.states[record.task_id] = record

    def finished(self, task_id: int) -> TaskFinished | None:
        """The row of a task that has ended."""
        state = self.states.get(task_id)
        return state if type(state) is TaskFinished else None

    def rows(self, oldest: int = 0) -> list[LoadedRecord]:
        """What recovery reads: live tasks, their parents, and those that finished at `oldest` (wall time) or later."""
        parents = {edge.parent for task_id, edges in self.edges.items() if not self.finished(task_id) for edge in edges}
        found: list[LoadedRecord] = []
        for task_id, row in self.inserted.items():
            state = self.states.get(task_id)
            if isinstance(state, TaskFinished):
                if state.finished >= oldest or task_id in parents:
                    found.append(FinishedLoaded(task_id, row.spec.pool, row.spec.key, state.status, state.finished))
            else:
                edges = tuple(self.edges[task_id])
                loaded = TaskInserted(row.task_id, row.spec, row.max_attempts, row.arrival, edges)
                found.append(TaskLoaded(loaded, state))
        return found

    def copy(self) -> "NaiveStore":
        """The same rows in a store of its own."""
        other = NaiveStore()
        other.inserted = dict(self.inserted)
        other.edges = {task_id: list(edges) for task_id, edges in self.edges.items()}
        other.states = dict(self.states)
        other.outputs = dict(self.outputs)
        return other
