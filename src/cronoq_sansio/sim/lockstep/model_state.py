"""What the naive model keeps: plain objects in plain lists. Nothing here is counted, indexed or ordered in advance."""

from fractions import Fraction

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import Cron, Fire
from cronoq_sansio.engine.events import Labels
from cronoq_sansio.settings import PoolSettings, ResourceSettings
from cronoq_sansio.spec import Condition, RecurringSpec, RetryPolicy, Scheduling, TaskSpec, TaskStatus

#: Asks for nothing; stands in where a specification has no `scheduling`.
PLAIN = Scheduling()

RECURRING = "cronoq.recurring"  #: the tag that says of which schedule a task is an occurrence


class NaiveEdge:
    """A dependency that is not met yet."""

    def __init__(self, parent: int, key: str, condition: int, turn: int = 0) -> None:
        self.parent = parent
        """Id of the parent; 0 = nobody has had the key yet."""
        self.key = key
        self.condition = condition
        self.turn = turn
        """When it was attached to its parent: the order in which the children of a parent hear of its end."""
        self.unsaid = ""
        """The key that came, while the rows still await it."""


class NaiveTask:
    """A live task."""

    def __init__(
        self, task_id: int, spec: TaskSpec, pool: PoolSettings, policy: RetryPolicy, arrival: int, created: int
    ) -> None:
        self.id = task_id
        self.spec = spec
        self.pool = pool
        self.policy = policy
        self.asked = spec.scheduling or PLAIN
        self.arrival = arrival
        """On the `now` scale."""
        self.stored_arrival = created
        """Wall time of the arrival, as it is stored."""
        self.status = TaskStatus.BLOCKED
        self.attempt = 0
        self.due: int | None = None
        """RETRYING: the end of the backoff. BLOCKED and awaiting a key: the end of the wait. On the `now` scale."""
        self.turn = 0
        """When `due` was set; between equal times, who was first."""
        self.edges: list[NaiveEdge] = []
        self.stored_edges: list[NaiveEdge] = []
        """The same, met ones included: what a store has."""
        self.estimate = 0
        """How long it will run: of a fixed start what its reservation was made for, else as of its last queueing."""
        self.wants = False
        """SCHEDULED, and a slot should be held for it by now."""
        self.hold: Labels | None = None
        """The group that holds a slot for it."""
        self.hit = False
        """Its first dispatch was in time."""
        self.tag = -1
        """Of the tenant's share; -1 = was not queued yet, or needs none."""
        self.place = 0
        """In the line of those that lack a resource; 0 = none."""
        self.parked = False
        self.called = False
        self.stored_status = TaskStatus.READY
        """What a store would say of it."""
        self.stored_attempt = 0
        self.stored_due = 0
        """Wall time."""

    @property
    def priority(self) -> int:
        """Index of its class."""
        return self.spec.priority

    @property
    def fixed(self) -> bool:
        """It has a fixed start."""
        return self.asked.start is not None

    @property
    def fixed_start(self) -> int:
        """Of a task that has one, wall time."""
        assert self.asked.start is not None
        return self.asked.start

    @property
    def latest(self) -> int:
        """The latest wall time at which a fixed start is in time."""
        return self.fixed_start + self.asked.tolerance

    @property
    def reserved(self) -> tuple[int, int]:
        """What a fixed start reserves: from, and until before."""
        return self.fixed_start - self.asked.tolerance, self.latest + self.estimate

    @property
    def schedule(self) -> str:
        """Name of the schedule that it is an occurrence of; empty without."""
        return dict(self.spec.tags).get(RECURRING, "")

    @property
    def queued(self) -> bool:
        """It stands in a queue of its pool."""
        return self.status == TaskStatus.READY and not self.parked

    @property
    def latest_start(self) -> int:
        """Of a task with a deadline, wall time."""
        assert self.asked.deadline is not None
        return self.asked.deadline - self.estimate


class NaiveEnded:
    """What is remembered of a task that has ended."""

    def __init__(self, task_id: int, pool: str, key: str, status: TaskStatus, finished: int, expires: int) -> None:
        self.id = task_id
        self.pool = pool
        self.key = key
        self.status = status
        self.finished = finished
        """Wall time."""
        self.expires = expires
        """On the `now` scale."""


class NaiveLease:
    """One attempt on one slot."""

    def __init__(self, lease_id: int, task: NaiveTask, labels: Labels) -> None:
        self.id = lease_id
        self.task = task
        self.labels = labels
        self.held = False
        self.started: int | None = None
        """First release, in lease time."""
        self.beat = 0

    def expiry(self) -> int:
        """In lease time."""
        return self.beat + self.task.pool.lease_ttl

    def timeout(self) -> int | None:
        """In lease time; None = none."""
        assert self.started is not None
        limit = self.task.spec.timeout
        return None if limit is None else self.started + limit

    def due(self) -> int:
        """The earlier of the two."""
        timeout = self.timeout()
        return self.expiry() if timeout is None else min(self.expiry(), timeout)


class NaiveGroup:
    """The slots of the workers of one pool with the same labels."""

    def __init__(self, pool: str, labels: Labels) -> None:
        self.pool = pool
        self.labels = labels
        self.capacity = 0


class NaiveResource:
    """A semaphore or a token bucket. Permits in use are not kept: whoever asks counts the leases."""

    def __init__(self, settings: ResourceSettings, now: int) -> None:
        self.settings = settings
        self.level = Fraction(settings.burst)
        """Tokens at the time `at`."""
        self.at = now

    @property
    def is_bucket(self) -> bool:
        """Else a semaphore."""
        return self.settings.kind != "semaphore"

    def refill(self, now: int) -> None:
        """Add what has flowed in until `now`."""
        flowed = Fraction(self.settings.rate) * (now - self.at) / SECOND
        self.level = min(self.level + flowed, Fraction(self.settings.burst))
        self.at = now

    def set_limit(self, settings: ResourceSettings, now: int) -> None:
        """Other limits from `now` on."""
        if self.is_bucket:
            self.refill(now)
        self.settings = settings
        self.level = min(self.level, Fraction(settings.burst))

    def has_by(self, units: int) -> int:
        """When a bucket has so many tokens, on the `now` scale; the capacity allows it."""
        missing = units - self.level
        return self.at if missing <= 0 else self.at + -(-missing * SECOND // Fraction(self.settings.rate))


class NaiveSchedule:
    """A recurring schedule."""

    def __init__(self, spec: RecurringSpec, cron: Cron | None, through: int) -> None:
        self.spec = spec
        self.cron = cron
        """None = the configuration does not support it."""
        self.through = through
        """Every fire until this wall time has been dealt with."""
        self.local = -1
        """The same on the clock of the zone; -1 = it was no fire."""
        self.last_task = 0
        self.fire: Fire | None = None
        """The first fire that has not been dealt with."""

    @property
    def next(self) -> int | None:
        """When that is, wall time."""
        return None if self.fire is None else self.fire.at

    @property
    def asked(self) -> Scheduling:
        """What its template asks for."""
        return self.spec.template.scheduling or PLAIN

    def resume(self) -> None:
        """Find the next fire. A zone may have other rules by now; a time of its clock never comes twice."""
        if self.cron is not None:
            after = self.through if self.local < 0 else max(self.through, self.cron.resolve(self.local))
            self.fire = self.cron.next(after)


class NaiveFigures:
    """Sums of one pool since the term began."""

    def __init__(self, pool: PoolSettings) -> None:
        self.pool = pool
        self.fixed_starts = 0
        """Those that were dispatched or missed."""
        self.hits = 0
        """Those that were dispatched in time."""
        self.worked = 0
        """Nanoseconds that successful attempts took."""
        self.offered = 0
        """Slots that workers offered, times nanoseconds."""
        self.succeeded = self.failed = self.cancelled = 0
        """Attempts that ended so."""
        self.waits: list[int] = []
        """Nanoseconds that tasks waited whose first attempt started in this step."""


class NaiveScale:
    """What the autoscaler thinks of one pool."""

    def __init__(self, pool: PoolSettings) -> None:
        self.pool = pool
        self.arrivals = 0
        """Since the last tick."""
        self.rate = 0
        """Millionths of a task per second."""
        self.current = pool.min
        self.wanted: list[int] = []
        """Of every tick."""
        self.went_down: int | None = None
        """Time of the last step down."""


class NaiveSubmission:
    """Somebody who waits for room."""

    def __init__(self, request: object, spec: TaskSpec, turn: int) -> None:
        self.request = request
        self.spec = spec
        self.turn = turn


class Refusal:
    """Why a request is refused."""

    def __init__(self, code: str, indices: tuple[int, ...] = ()) -> None:
        self.code = code
        self.indices = indices
        """Members of the batch that may be blamed for it."""


def met(condition: int, status: int) -> bool:
    """An edge with this condition is met by a parent that ended so; otherwise it is impossible."""
    if condition == Condition.ON_COMPLETE:
        return True
    if condition == Condition.ON_SUCCESS:
        return status == TaskStatus.SUCCEEDED
    return status in (TaskStatus.FAILED, TaskStatus.DEAD_LETTERED)
