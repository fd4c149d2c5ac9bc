"""The two things that live in the engine: a task and a lease. Plain slotted objects that only the engine changes."""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.events import Labels
from cronoq_sansio.spec import RetryPolicy, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool


class Task:
    """A live task, or one that has just ended (then it never changes again). Wall times are 0 when not reached."""

    __slots__ = (
        "arrival",
        "attempt",
        "created",
        "due",
        "finished",
        "first_started",
        "id",
        "last_started",
        "lease",
        "max_attempts",
        "message",
        "pool",
        "retry",
        "spec",
        "status",
        "stored",
    )

    def __init__(self, task_id: int, spec: TaskSpec, pool: "Pool", retry: RetryPolicy, arrival: int, created: int) -> None:
        self.id = task_id
        self.spec = spec
        self.pool = pool
        self.retry = retry
        self.max_attempts = retry.max_attempts
        self.status = 0
        """A `TaskStatus` number."""
        self.attempt = 0
        """Attempts started so far."""
        self.arrival = arrival
        """On the `now` scale; waiting and age count from here, over all attempts."""
        self.created = created
        """Wall time of the arrival."""
        self.first_started = 0
        self.last_started = 0
        self.finished = 0
        self.due = 0
        """On the `now` scale, when RETRYING."""
        self.message = ""
        """Last error; cleared by success."""
        self.lease: Lease | None = None
        self.stored = 0
        """Number of the last step that wrote this task: whoever shows the task waits for it."""


class Lease:
    """One attempt on one slot. What a worker is told of it is fixed at dispatch."""

    __slots__ = ("attempt", "beat", "excused", "group", "held", "id", "live", "started", "task")

    def __init__(self, lease_id: int, task: Task, group: Labels) -> None:
        self.id = lease_id
        self.task = task
        self.attempt = task.attempt
        self.group = group
        """Labels of the worker group whose slot it fills."""
        self.live = True
        """False once it ended or was returned."""
        self.held = False
        """True from its release to a worker: ttl and timeout run."""
        self.started = 0
        """First release, on the `now` scale; 0 = never released."""
        self.beat = 0
        """Last heartbeat or release, on the `now` scale."""
        self.excused = 0
        """`Engine` time that nobody could use, at the last beat."""
