"""Tasks, leases, and what is remembered of finished tasks. Only the engine changes them."""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.events import Labels
from cronoq_sansio.engine.timers import Timer
from cronoq_sansio.spec import RetryPolicy, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.ahead import Entry
    from cronoq_sansio.engine.claims import Claim
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.labels import Demand, Group
    from cronoq_sansio.engine.lanes import Lane


class Plan:
    """What the scheduler keeps of a task that asks for more than a class, or whose pool shares between tenants."""

    __slots__ = (
        "ahead",
        "booking",
        "called",
        "claim",
        "deadline",
        "demand",
        "estimate",
        "fixed",
        "hold",
        "lane",
        "late",
        "latest_start",
        "needs",
        "on_miss",
        "place",
        "schedule",
        "start",
        "tag",
        "wants",
    )

    def __init__(self, deadline: int | None, needs: tuple[tuple[str, int], ...], demand: "Demand") -> None:
        self.deadline = deadline
        """Wall time."""
        self.needs = needs
        """Names and units of the resources that an attempt takes."""
        self.demand = demand
        """For labels of the worker."""
        self.estimate = 0
        """Run time in nanoseconds, as estimated when it was queued last; only with a deadline."""
        self.latest_start = 0
        """`deadline` − `estimate`, wall time."""
        self.tag = -1
        """Of the fair queue, given when it is queued first; -1 = none."""
        self.lane: Lane | None = None
        """Where it is queued, or was last."""
        self.claim: Claim | None = None
        """Set while it is parked: READY, but waiting for resources."""
        self.called = False
        """Queued again with its resources promised."""
        self.place = 0
        """Among those that wait for resources, from the first time on until an attempt ends; 0 = none."""
        self.fixed = False
        """It has a fixed start (`reservations.py`); without one the rest means nothing."""
        self.start = 0
        """Wall time."""
        self.late = 0
        """Wall time; later than this its start is missed."""
        self.on_miss = 0
        """A `MissPolicy` number."""
        self.booking: tuple[int, int] | None = None
        """What it reserves, wall time, half open."""
        self.ahead: Entry[Task] | None = None
        """Set while it is SCHEDULED: when it begins to want a hold."""
        self.wants = False
        """It is SCHEDULED, and waits for a hold or has one."""
        self.schedule = ""
        """Name of the recurring schedule that made it; empty when none did."""
        self.hold: Group | None = None
        """A slot of this group is held for it."""


class Task:
    """A live task, or one that has just ended (then it never changes again). Wall times are 0 when not reached."""

    __slots__ = (
        "arrival",
        "attempt",
        "created",
        "finished",
        "first_started",
        "id",
        "last_started",
        "lease",
        "max_attempts",
        "message",
        "plan",
        "pool",
        "retry",
        "spec",
        "status",
        "stored",
        "timer",
    )

    def __init__(
        self, task_id: int, spec: TaskSpec, pool: "Pool", retry: RetryPolicy, arrival: int, created: int
    ) -> None:
        self.id = task_id
        self.spec = spec
        self.pool = pool
        self.plan: Plan | None = None if spec.scheduling is None and pool.shares is None else pool.plan(spec)
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
        self.message = ""
        """Last error; cleared by success."""
        self.lease: Lease | None = None
        self.timer: Timer[Task] | None = None
        """Set while RETRYING: the end of the backoff."""
        self.stored = 0
        """Number of the last step that wrote this task: whoever shows the task waits for it."""

    def __repr__(self) -> str:
        return f"<Task {self.id} status={self.status} attempt={self.attempt}>"


class Lease:
    """One attempt on one slot. What a worker is told of it is fixed at dispatch."""

    __slots__ = ("attempt", "beat", "group", "held", "id", "live", "previous_start", "started", "task", "timed")

    def __init__(self, lease_id: int, task: Task, group: Labels, previous_start: int) -> None:
        self.id = lease_id
        self.task = task
        self.attempt = task.attempt
        self.group = group
        """Labels of the worker group whose slot it fills."""
        self.live = True
        """False once it ended or was returned."""
        self.held = False
        """True from its release to a worker: ttl and timeout run."""
        self.started = -1
        """First release, in lease time (`leases.py`); -1 = never released."""
        self.beat = 0
        """Last heartbeat or release, in lease time."""
        self.timed = False
        """It has an entry among the times at which leases are over."""
        self.previous_start = previous_start
        """`last_started` of the task before this attempt, for a dispatch that is taken back."""

    def __repr__(self) -> str:
        return f"<Lease {self.id} task={self.task.id} attempt={self.attempt}>"


class Retained:
    """What is remembered of a finished task (engine.md section 10)."""

    __slots__ = ("expires", "key", "pool", "status", "stored", "task_id")

    def __init__(self, task_id: int, pool: str, key: str, status: int, expires: int, stored: int) -> None:
        self.task_id = task_id
        self.pool = pool
        self.key = key
        self.status = status
        self.expires = expires
        """On the `now` scale."""
        self.stored = stored
        """Step that wrote the end; whoever shows it waits for that."""
