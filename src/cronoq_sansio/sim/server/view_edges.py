"""Who depends on whom in one term, as its writes say (engine.md section 5)."""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.records import Edge, EdgeResolved, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.sim.server.shadow import BLOCKED, NOTHING, SUCCEEDED, Shadow

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.view import View


def told_too_early(task_id: int, status: int, rows: NaiveStore) -> int:
    """The id of a parent whose end is not stored although its child is told to be as far as that; 0 = there is none."""
    row = rows.inserted[task_id]
    if status == BLOCKED or status >= SUCCEEDED or not row.edges:
        return 0
    ends = (edge.parent for edge in row.edges if type(rows.states.get(edge.parent)) is not TaskFinished)
    return next((parent for parent in ends if parent), 0)


class Edges:
    """Every edge whose parent has not ended."""

    def __init__(self, view: "View", rows: NaiveStore) -> None:
        self._view = view
        self._rows = rows
        self._children: dict[int, list[int]] = {}
        self._named: dict[int, str] = {}
        """Keys of the tasks of this term. One may have ended, and its key be given away, before a row says so."""

    def take_over(self, task_id: int, row: TaskInserted, state: TaskChanged | TaskFinished) -> None:
        """A row that was BLOCKED: its edges are judged anew; a key that somebody has by now is that one's."""
        view = self._view
        shadow = view.live[task_id]
        shadow.edges = {}
        for edge in row.edges:
            parent = edge.parent or self._owner(edge.key)
            if parent:
                self._wait(task_id, shadow, parent, edge.condition)
            else:
                shadow.awaited.setdefault(edge.key, []).append(edge.condition)
        if type(state) is TaskChanged and state.due:
            due = min(state.due - view.offset, view.now + max(state.due - row.arrival, 0))
            shadow.due = shadow.latest = due

    def _owner(self, key: str) -> int:
        keys = self._view.keys
        task_id = keys.live.get(key, 0)
        if task_id:
            return task_id
        held = keys.finished.get(key)
        return held[2] if held is not None and keys.remembered(held) else 0

    def name(self, task_id: int, key: str) -> None:
        """A new task has this key."""
        self._named[task_id] = key

    def begin(self, shadow: Shadow, record: TaskInserted) -> None:
        """A new task with dependencies: its edges must be those that it asks for."""
        view, task_id = self._view, record.task_id
        shadow.edges = {}
        expected: list[Edge] = []
        nobody = ""
        for asked in (shadow.spec.scheduling or NOTHING).dependencies:
            parent, key = (self._owner(asked.ref), asked.ref) if isinstance(asked.ref, str) else (asked.ref, "")
            if parent in view.live:
                expected.append(Edge(parent, "", asked.condition))
            elif parent or not key:
                self._wait(task_id, shadow, parent, asked.condition)
            elif (edge := Edge(0, key, asked.condition)) in record.edges:
                expected.append(edge)
            elif (held := view.keys.finished.get(key)) is not None:  # it was forgotten in this very step
                self._wait(task_id, shadow, held[2], asked.condition)
            else:
                nobody = key
        if shadow.impossible:
            expected, nobody = [], ""
        if nobody or set(record.edges) != set(expected):
            details = f"{record}, expected: {expected} {nobody}"
            raise Violation(Kind.SAFETY, "the edges of a task are not those that it asks for", details)
        for edge in expected:
            if edge.parent:
                self._wait(task_id, shadow, edge.parent, edge.condition)
            else:
                shadow.awaited.setdefault(edge.key, []).append(edge.condition)

    def resolved(self, record: EdgeResolved) -> None:
        """An awaited key has a task now."""
        view = self._view
        shadow = view.live.get(record.task_id)
        if shadow is None:
            raise Violation(Kind.SAFETY, "an edge of a task that has ended changes", str(record))
        if self._key_of(record.parent) != record.key:
            raise Violation(Kind.SAFETY, "an edge is given a parent that does not have its key", str(record))
        for condition in shadow.awaited.pop(record.key, ()):
            self._wait(record.task_id, shadow, record.parent, condition)

    def ended(self, task_id: int, status: int) -> None:
        """A task has ended: its children are judged."""
        live = self._view.live
        for child in self._children.pop(task_id, ()):
            shadow = live.get(child)
            if shadow is not None and shadow.edges and task_id in shadow.edges:
                shadow.judge(status, shadow.edges.pop(task_id))

    def _wait(self, task_id: int, shadow: Shadow, parent: int, condition: int) -> None:
        view = self._view
        if parent in view.live:
            shadow.waits(parent, condition)
            self._children.setdefault(parent, []).append(task_id)
            return
        status = view.ended.get(parent)
        if status is None:
            state = self._rows.states.get(parent)
            if type(state) is not TaskFinished:
                raise Violation(Kind.SAFETY, "a task depends on one that never was", f"task {task_id} on {parent}")
            status = state.status
        shadow.judge(status, [condition])

    def _key_of(self, task_id: int) -> str:
        key = self._named.get(task_id)
        if key is not None:
            return key
        row = self._rows.inserted.get(task_id)
        return row.spec.key if row is not None else ""
