"""What was promised to callers and workers, compared with what the store holds at that very moment.

Nothing may be told before it is durable, so whatever is told must be in the rows when it is told. What is told may be
older than the rows, but not older than what this term told before somebody asked. `answers.py` has the replies.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.engine.records import (
    EdgeResolved,
    OutputStored,
    Record,
    RecurringDeleted,
    RecurringFired,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.answers import Answers
from cronoq_sansio.sim.server.fires import Fires
from cronoq_sansio.sim.server.shadow import CANCELLED, OVER, RUNNING, progress
from cronoq_sansio.spec import RecurringSpec, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Lease
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.workers import Worker
    from cronoq_sansio.sim.server.world import ServerWorld

RECENT = 24  #: tasks that callers know
UNKNOWN = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED)
"""Refusals after which nobody knows what became of a change."""


class Ledger:
    """Of one world, over all incarnations."""

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._rows = world.store.rows
        self.recent: list[int] = []
        """Ids that callers were told last."""
        self.answered = 0
        """Calls that were not refused."""
        self.refused: dict[Code, int] = {}
        """Calls, by code."""
        self.fires = Fires(self._rows)
        self.batches: dict[str, tuple[TaskSpec, ...]] = {}
        """What was asked for in one piece, by its mark."""
        self._tries: dict[str, int] = {}
        """How often each batch may have been let in."""
        self._plain: dict[str, dict[int, None]] = {}
        """Of each batch: its members without a key that are stored."""
        self.highest = 0
        """The highest id of a task that is stored."""
        self.far: dict[int, int] = {}
        """The most `progress` of each task that was ever stored."""
        self.ends: dict[int, TaskFinished] = {}
        self.ended_at: dict[int, int] = {}
        """When that was stored, in events of the world."""
        self.outputs: dict[int, OutputStored] = {}
        self.cancelled: dict[str, None] = {}
        """Keys of which a task was cancelled."""
        self.keys: dict[str, int] = {}
        """The first task of each key."""
        self.schedules: dict[str, list[RecurringSpec]] = {}
        """Whatever was stored under each name."""
        self.removed: dict[str, None] = {}
        """Names of schedules that were removed at some time."""
        self.leases: dict[int, int] = {}
        """Task ids of all leases that were ever sent."""
        self.standing: dict[str, RecurringSpec] = {}
        """The schedules that there are."""
        self.stood_at: dict[str, int] = {}
        """When each of them was stored last, in events of the world."""
        self.unwanted: dict[str, None] = {}
        """Names of schedules that somebody has asked to remove."""
        self._answers = Answers(world, self)
        self._refusals = self._answers.refusals
        self._on: dict[type, Callable[[Any], None]] = {
            TaskInserted: self._inserted,
            TaskChanged: self._changed,
            TaskFinished: self._finished,
            OutputStored: self._output,
            EdgeResolved: lambda _record: None,
            RecurringStored: self._stored,
            RecurringFired: lambda _record: None,
            RecurringDeleted: self._deleted,
        }

    # --- the store

    def committed(self, records: Sequence[Record]) -> None:
        """A transaction was applied, perhaps once more."""
        on = self._on
        for record in records:
            on[type(record)](record)

    def _inserted(self, record: TaskInserted) -> None:
        task_id, spec = record.task_id, record.spec
        if task_id > self.highest:
            self.highest = task_id
        self.far.setdefault(task_id, 0)
        if spec.key:
            self.keys.setdefault(spec.key, task_id)
        if spec.content_type and not spec.key and spec.content_type in self.batches:
            self._plain.setdefault(spec.content_type, {})[task_id] = None
            self._check_batch(spec.content_type)
        if spec.tags:
            self.fires.inserted(record)

    def _changed(self, record: TaskChanged) -> None:
        task_id = record.task_id
        far = progress(record.status, record.attempt)
        if far > self.far[task_id]:
            self.far[task_id] = far
        end = self.ends.get(task_id)
        if end is not None and self._rows.states[task_id] != end:
            raise Violation(Kind.SAFETY, "the stored end of a task is replaced", f"{end} by {record}")

    def _finished(self, record: TaskFinished) -> None:
        task_id = record.task_id
        end = self.ends.get(task_id)
        if end is None:
            self.ends[task_id] = record
            self.ended_at[task_id] = self._world.events
            self.far[task_id] = OVER
            key = self._rows.inserted[task_id].spec.key
            if key and record.status == CANCELLED:
                self.cancelled[key] = None
        elif end != record:
            raise Violation(Kind.SAFETY, "the stored end of a task is replaced", f"{end} by {record}")

    def _output(self, record: OutputStored) -> None:
        if self.outputs.setdefault(record.task_id, record) != record:
            raise Violation(Kind.SAFETY, "a stored output is replaced", f"task {record.task_id}")

    def _stored(self, record: RecurringStored) -> None:
        self.fires.stored(record, self.highest)
        standing = self.standing.get(record.spec.name)
        if standing is not None and standing.configured and not record.spec.configured:
            raise Violation(Kind.SAFETY, "a schedule of the file is replaced by a caller", str(record))
        self.standing[record.spec.name] = record.spec
        self.stood_at[record.spec.name] = self._world.events
        versions = self.schedules.setdefault(record.spec.name, [])
        if record.spec not in versions:
            versions.append(record.spec)

    def _deleted(self, record: RecurringDeleted) -> None:
        standing = self.standing.get(record.name)
        if standing is not None and not standing.configured and record.name not in self.unwanted:
            raise Violation(Kind.SAFETY, "a schedule is removed that nobody has removed", record.name)
        self.removed[record.name] = None
        self.standing.pop(record.name, None)

    # --- batches

    def tried(self, marker: str) -> None:
        """A batch comes to a term."""
        self._tries[marker] = self._tries.get(marker, 0) + 1

    def _check_batch(self, marker: str) -> None:
        """A batch that was refused for sure inserted nothing."""
        without = sum(not spec.key for spec in self.batches[marker])
        stored = len(self._plain.get(marker, ()))
        if stored > without * self._tries.get(marker, 0):
            raise Violation(Kind.SAFETY, "a batch was refused, and is there", f"{marker}: {stored} tasks")

    # --- callers

    def replied(self, node: "Node", ask: "Ask", message: Any) -> None:
        """A call is answered with this."""
        if ask not in node.asks:
            raise Violation(Kind.SAFETY, "a call is answered that is over", f"{ask}: {message}")
        self.answered += 1
        self._answers.reply(node, ask, message)
        node.holders.forget(ask.call)

    def rejected(self, node: "Node", ask: "Ask", rejection: Rejection) -> None:
        """A call is refused."""
        if ask not in node.asks:
            raise Violation(Kind.SAFETY, "a call is answered that is over", f"{ask}: {rejection}")
        self.refused[rejection.code] = self.refused.get(rejection.code, 0) + 1
        self._refusals.refused(node, ask, rejection)
        node.holders.forget(ask.call)
        node.holders.watching.pop(ask, None)
        if ask.marker and rejection.code not in UNKNOWN:
            self._tries[ask.marker] -= 1
            self._check_batch(ask.marker)

    def started(self, node: "Node", ask: "Ask") -> None:
        """A watch is let in: from the next step on it is told every end that it asks for."""
        self._refusals.let_in(node, ask)
        if ask in node.holders.watching:
            raise Violation(Kind.SAFETY, "a watch begins twice", str(ask))
        node.holders.watching[ask] = len(node.view.ends), len(node.view.starts)
        node.holders.most_watching = max(node.holders.most_watching, len(node.holders.watching))

    def told(self, node: "Node", ask: "Ask", event: m.StatusEvent) -> None:
        """A watcher is told this."""
        if ask not in node.asks:
            raise Violation(Kind.SAFETY, "a watcher is told something after its end", f"{ask}: {event}")
        self._answers.event(node, ask, event)

    def known(self, task_id: int) -> None:
        """Somebody knows this task."""
        self.recent.append(task_id)
        if len(self.recent) > RECENT:
            del self.recent[0]

    # --- workers

    def leased(self, node: "Node", worker: "Worker", lease: "Lease") -> None:
        """A worker is given a lease."""
        state = self._rows.states.get(lease.task.id)
        durable = type(state) is TaskChanged and state.status == RUNNING and state.attempt == lease.attempt
        if not durable and node.epoch == self._world.store.epoch:
            raise Violation(Kind.SAFETY, "a worker has a lease that is not durable", f"{lease}, stored: {state}")
        node.holders.leased(worker, lease)

    def dropped(self, node: "Node", drop: OccurrenceDropped) -> None:
        """Fires of a schedule did not happen."""
