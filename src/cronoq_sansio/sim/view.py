"""What a term says about its tasks, seen from its writes alone: a shadow with rules of its own, O(1) per record.

It begins with the rows that the term recovered from and follows every record that the term wants written, before any of
it is durable. Nothing of the engine is asked, so a fault in the engine cannot hide here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import Record, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.spec import TaskSpec

RUNNING = int(TaskStatus.RUNNING)


class Shadow:
    """One live task."""

    __slots__ = ("attempt", "max_attempts", "spec", "status")

    def __init__(self, spec: "TaskSpec", status: int, attempt: int, max_attempts: int) -> None:
        self.spec = spec
        self.status = status
        """As written: READY until something else was."""
        self.attempt = attempt
        self.max_attempts = max_attempts


class View:
    """All live tasks of one term."""

    def __init__(self, engine: Engine, rows: NaiveStore, now: int) -> None:
        self.engine = engine
        self.live: dict[int, Shadow] = {}
        self.keys: dict[str, int] = {}
        for task_id in rows.live():
            inserted, state = rows.inserted[task_id], rows.states.get(task_id)
            status, attempt = (TaskStatus.READY, 0) if state is None else (state.status, state.attempt)
            self._add(task_id, Shadow(inserted.spec, int(status), attempt, inserted.max_attempts))
        self._recovering = True

    def begun(self) -> None:
        """Recovery is over: what has been written so far was its work."""
        self._recovering = False

    def wrote(self, records: Sequence[Record], now: int) -> None:
        """The writes of one step."""
        for record in records:
            kind = type(record)
            if kind is TaskInserted:
                assert isinstance(record, TaskInserted)
                if record.task_id in self.live:
                    raise Violation(Kind.SAFETY, "a task id was given twice", f"task {record.task_id}")
                self._add(record.task_id, Shadow(record.spec, int(TaskStatus.READY), 0, record.max_attempts))
            elif kind is TaskChanged:
                assert isinstance(record, TaskChanged)
                self._changed(record)
            elif kind is TaskFinished:
                assert isinstance(record, TaskFinished)
                self._finished(record)

    def _add(self, task_id: int, shadow: Shadow) -> None:
        self.live[task_id] = shadow
        key = shadow.spec.key
        if key:
            if key in self.keys:
                raise Violation(Kind.SAFETY, "two live tasks have one key", f"{key!r}: {self.keys[key]}, {task_id}")
            self.keys[key] = task_id

    def _changed(self, record: TaskChanged) -> None:
        shadow = self.live.get(record.task_id)
        if shadow is None:
            raise Violation(Kind.SAFETY, "a task that has ended changes", str(record))
        shadow.status = record.status
        shadow.attempt = record.attempt
        if record.attempt > shadow.max_attempts:
            raise Violation(Kind.SAFETY, "a task has more attempts than it may", str(record))

    def _finished(self, record: TaskFinished) -> None:
        shadow = self.live.pop(record.task_id, None)
        if shadow is None:
            raise Violation(Kind.SAFETY, "a task ends twice", str(record))
        if shadow.spec.key:
            del self.keys[shadow.spec.key]
