"""One live task as the writes of a term show it, and the transitions that writes may show."""

from cronoq_sansio.service.messages import FromWorker
from cronoq_sansio.spec import Condition, Scheduling, TaskSpec, TaskStatus

BLOCKED = int(TaskStatus.BLOCKED)
SCHEDULED = int(TaskStatus.SCHEDULED)
READY = int(TaskStatus.READY)
RUNNING = int(TaskStatus.RUNNING)
RETRYING = int(TaskStatus.RETRYING)
SUCCEEDED = int(TaskStatus.SUCCEEDED)
FAILED = int(TaskStatus.FAILED)
DEAD_LETTERED = int(TaskStatus.DEAD_LETTERED)
CANCELLED = int(TaskStatus.CANCELLED)
SKIPPED = int(TaskStatus.SKIPPED)
MISSED = int(TaskStatus.MISSED)
SHED = int(TaskStatus.SHED)

NOTHING = Scheduling()
OVER = 1 << 60
"""The `progress` of a task that has ended."""

ENDS: dict[int, frozenset[int]] = {
    BLOCKED: frozenset((FAILED, CANCELLED, SKIPPED, MISSED, SHED)),
    READY: frozenset((FAILED, CANCELLED, SKIPPED, MISSED, SHED)),
    RUNNING: frozenset((SUCCEEDED, FAILED, DEAD_LETTERED, CANCELLED)),
    RETRYING: frozenset((FAILED, CANCELLED, SHED)),
}
"""How a task may end of which this was written last. It may have become READY since, which is not written."""


class Shadow:
    """One live task."""

    __slots__ = (
        "arrival",
        "attempt",
        "awaited",
        "before",
        "due",
        "edges",
        "first_started",
        "impossible",
        "lanes",
        "last_started",
        "latest",
        "max_attempts",
        "message",
        "needs",
        "report",
        "sent",
        "spec",
        "start",
        "status",
    )

    def __init__(self, spec: TaskSpec, status: int, attempt: int, max_attempts: int, arrival: int) -> None:
        self.spec = spec
        self.status = status
        """As written: READY until something else was."""
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.arrival = arrival
        """On the term's scale of time, as everything here that is a time and not a fixed start."""
        self.due = 0
        """RETRYING: no attempt before that. BLOCKED and awaiting keys: it is skipped then."""
        self.latest = 0
        """The same, when the wall clock was set in the step that said it."""
        self.first_started = 0
        """Wall time, like the two that follow."""
        self.last_started = 0
        self.before = 0
        """`last_started` as it was before the attempt that runs: what it is again when that is taken back."""
        self.message = ""
        """The last error."""
        self.sent = 0
        """The last attempt that a worker was given and has not refused; in this term."""
        self.report: FromWorker | None = None
        """What the worker that held the running attempt said of its end."""
        asked = spec.scheduling
        self.needs: tuple[tuple[str, int], ...] = asked.resources if asked is not None else ()
        self.start: int | None = asked.start if asked is not None else None
        """Fixed start, wall time."""
        self.edges: dict[int, list[int]] | None = None
        """Conditions on parents that have not ended, by parent; None when it has never been BLOCKED in this term."""
        self.awaited: dict[str, list[int]] = {}
        """Conditions on tasks whose keys nobody has yet."""
        self.impossible = False
        """An edge can never be met."""
        self.lanes: tuple[list[int], ...] | None = None
        """Plain tasks of its pool that may be READY, by class; None when it is none of them."""

    def may_run(self) -> bool:
        """Every edge is met."""
        return not (self.edges or self.awaited or self.impossible)

    def waits(self, parent: int, condition: int) -> None:
        """It depends on a live task."""
        assert self.edges is not None
        self.edges.setdefault(parent, []).append(condition)

    def judge(self, status: int, conditions: list[int]) -> None:
        """A parent has ended like this."""
        for condition in conditions:
            if not met(condition, status):
                self.impossible = True


def met(condition: int, status: int) -> bool:
    """Whether the end of a parent is what an edge asks for."""
    if condition == Condition.ON_SUCCESS:
        return status == SUCCEEDED
    return condition == Condition.ON_COMPLETE or status in (FAILED, DEAD_LETTERED)


def progress(status: int, attempt: int) -> int:
    """How far a task is; it only goes back when a dispatch is taken back."""
    if status >= SUCCEEDED:
        return OVER
    if status == RUNNING:
        return 2 * attempt
    return 2 * attempt + 1 if status == RETRYING or attempt else 0
