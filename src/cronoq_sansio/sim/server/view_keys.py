"""Who has which key in one term: one live task, and for a while a finished one (engine.md section 10)."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.engine.records import Edge
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.lockstep.store import NaiveStore

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.view import View

Held = tuple[int, int, int]
"""Of a finished task: its number in the order of ends, when its key is free again, its id."""


class Keys:
    """Keys of live and of finished tasks. The newest `key_retention_max` ends are remembered, keys or none."""

    def __init__(self, view: "View", rows: NaiveStore, limits: LimitSettings) -> None:
        self._view = view
        self._rows = rows
        self._retention = limits.key_retention
        self._max = limits.key_retention_max
        self.count = 0
        """Ends so far, those of rows included."""
        self.live: dict[str, int] = {}
        self.finished: dict[str, Held] = {}
        """The newest of each key, remembered or not."""

    def take_over(self, live: Sequence[int], damaged: Collection[int]) -> None:
        """The rows that the term recovers from: what a live task depends on is remembered, too old or not.

        Of damaged ones it does not know the keys.
        """
        rows, view = self._rows, self._view
        wall = view.now + view.offset
        since = wall - self._retention
        parents = {edge.parent for task_id in live for edge in rows.inserted[task_id].edges}
        ends = [
            (state.finished, task_id) for task_id, state in rows.ends() if state.finished >= since or task_id in parents
        ]
        for finished, task_id in sorted(ends):
            self._retain(task_id, rows.inserted[task_id].spec.key, max(wall - finished, 0))
        read = [task_id for task_id in live if task_id not in damaged]
        for task_id in read:
            shadow = view.live[task_id]
            if shadow.spec.key:
                self._give(shadow.spec.key, task_id)
        for task_id in read:
            for edge in rows.inserted[task_id].edges:
                self._forget_later(edge, task_id)

    def _forget_later(self, edge: Edge, child: int) -> None:
        """A key was free when this child came, though the wall clock now says that it is remembered: it stays free."""
        held = None if edge.parent else self.finished.get(edge.key)
        if held is not None and held[2] < child:
            del self.finished[edge.key]

    def give(self, key: str, task_id: int) -> None:
        """A new task has this key."""
        held = self.finished.get(key)
        if held is not None and self.remembered(held):
            details = f"{key!r}: task {task_id}, for another {held[1] - self._view.now} ns that of {held[2]}"
            raise Violation(Kind.SAFETY, "a key was given away that a finished task still has", details)
        self._give(key, task_id)

    def _give(self, key: str, task_id: int) -> None:
        if key in self.live:
            raise Violation(Kind.SAFETY, "two live tasks have one key", f"{key!r}: {self.live[key]}, {task_id}")
        self.live[key] = task_id

    def ended(self, task_id: int, key: str) -> None:
        """A task has ended."""
        if key:
            del self.live[key]
        self._retain(task_id, key, 0)

    def _retain(self, task_id: int, key: str, age: int) -> None:
        self.count += 1
        if key:
            self.finished[key] = (self.count, self._view.now - age + self._retention, task_id)

    def remembered(self, held: Held) -> bool:
        """Whether a finished task still has its key."""
        return held[0] > self.count - self._max and held[1] > self._view.now

    def known(self, key: str) -> bool:
        """Whether a task has the key, or had it."""
        return key in self.live or key in self.finished
