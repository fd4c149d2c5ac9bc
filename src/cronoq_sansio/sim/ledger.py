"""What was promised to callers and workers, compared with what the store holds at that very moment.

Nothing may be told before it is durable, so whatever is told must be in the rows when it is told.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.engine.records import Record, TaskChanged, TaskFinished
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.fires import Fires
from cronoq_sansio.spec import TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Lease
    from cronoq_sansio.sim.callers import Ask
    from cronoq_sansio.sim.node import Node
    from cronoq_sansio.sim.workers import Worker
    from cronoq_sansio.sim.world import ServerWorld

RECENT = 24  #: tasks that callers know


class Ledger:
    """Of one world, over all incarnations."""

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._rows = world.store.rows
        self.fires = Fires(self._rows)
        self.batches: dict[str, tuple[TaskSpec, ...]] = {}
        """What was asked for in one piece, by its mark."""
        self.recent: list[int] = []
        """Ids that callers were told last."""

    # --- the store

    def committed(self, records: Sequence[Record]) -> None:
        """A transaction was applied."""
        for record in records:
            self.fires.committed(record)

    # --- callers

    def replied(self, node: "Node", ask: "Ask", message: Any) -> None:
        """A call is answered with this."""
        kind = type(message)
        if kind is m.SubmitReply:
            self._known(ask, message.task_id)
            if message.result is not None:
                self._ended(ask, message.result)
        elif kind is m.BatchReply:
            for member in message.members:
                self._known(ask, member.task_id)
        elif kind is m.TaskResult:
            self._ended(ask, message)

    def rejected(self, node: "Node", ask: "Ask", rejection: Rejection) -> None:
        """A call is refused."""

    def told(self, node: "Node", ask: "Ask", event: m.StatusEvent) -> None:
        """A watcher is told this."""

    # --- workers

    def leased(self, node: "Node", worker: "Worker", lease: "Lease") -> None:
        """A worker is given a lease."""
        state = self._rows.states.get(lease.task.id)
        if type(state) is not TaskChanged or state.status != TaskStatus.RUNNING or state.attempt != lease.attempt:
            raise Violation(Kind.SAFETY, "a worker has a lease that is not durable", f"{lease}, stored: {state}")
        node.holders.leased(worker, lease)

    def dropped(self, node: "Node", drop: OccurrenceDropped) -> None:
        """Fires of a schedule did not happen."""

    # --- inside

    def _known(self, ask: "Ask", task_id: int) -> None:
        if task_id not in self._rows.inserted:
            raise Violation(Kind.SAFETY, "an acknowledged task is not durable", f"task {task_id}, {ask.op}")
        self.recent.append(task_id)
        if len(self.recent) > RECENT:
            del self.recent[0]

    def _ended(self, ask: "Ask", result: m.TaskResult) -> None:
        state = self._rows.states.get(result.task_id)
        if type(state) is not TaskFinished or state.status != result.status:
            raise Violation(Kind.SAFETY, "an end that was told is not durable", f"{result}, stored: {state}")
