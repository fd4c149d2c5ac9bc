"""What the engine is told. Past tense; each event is a value; `Event` lists them all, once.

Events name leases by id. A report for a lease that is not held is stale: it changes nothing and is counted. A *group*
is the set of the workers of one pool that registered with exactly the same labels, as a sorted tuple of pairs.
"""

from cronoq_sansio.settings import ResourceSettings
from cronoq_sansio.spec import RecurringSpec, TaskSpec
from cronoq_sansio.values import value

Labels = tuple[tuple[str, str], ...]


@value
class TaskSubmitted:
    """A caller wants a task to run. Answered by `Answer(request, Submitted | Rejection)`."""

    request: object
    """Opaque; comes back in the answer."""
    spec: TaskSpec
    may_wait: bool = False
    """In a pool that overflows by waiting: the answer may come later, once there is room (engine.md section 9)."""


@value
class SubmissionWithdrawn:
    """Whoever waits for room for this `request` does not want it any more; it is never answered."""

    request: object


@value
class BatchSubmitted:
    """A caller wants several tasks, all or none. Answered by `Answer(request, BatchOutcome | Rejection)`."""

    request: object
    specs: tuple[TaskSpec, ...]


@value
class TaskCancelled:
    """A caller wants a task to end. Answered by `Answer(request, CancelOutcome)`."""

    request: object
    task_id: int
    """A task that is not live any more gives `CancelOutcome(False)`."""


@value
class RecurringPut:
    """A caller adds a schedule, or replaces the one of its name. Answered by `Answer(request, RecurringAdded | …)`."""

    request: object
    spec: RecurringSpec


@value
class RecurringRemoved:
    """A caller removes a schedule; its tasks stay. Answered by `Answer(request, RecurringGone | Rejection)`."""

    request: object
    name: str


@value
class GroupCapacitySet:
    """The workers of a group offer this many slots: Σ max(slots, running). 0 and nothing running drops the group."""

    pool: str
    labels: Labels
    capacity: int


@value
class ResourceLimitSet:
    """A configured resource has other limits from now on; what runs keeps what it has."""

    resource: ResourceSettings
    """Same name and kind as before."""


@value
class DispatchReturned:
    """A lease that no worker saw cannot be placed: the task goes back to its place, no attempt counted."""

    lease: int


@value
class LeasesReleased:
    """These leases were written to their workers now: ttl and timeout start to run."""

    leases: tuple[int, ...]


@value
class LeaseRenewed:
    """The worker sent a heartbeat for a lease."""

    lease: int


@value
class AttemptSucceeded:
    """The worker finished the attempt."""

    lease: int
    output: bytes
    content_type: str


@value
class AttemptFailed:
    """The worker reports that the attempt failed."""

    lease: int
    message: str
    permanent: bool
    """True: no retry."""
    retry_after: int
    """Nanoseconds; floor of the backoff, 0 = none."""


@value
class AttemptCancelled:
    """The worker cancelled the attempt: the task ends as cancelled."""

    lease: int


@value
class AttemptNacked:
    """The worker refuses the lease; it passes to one of `groups`, or the attempt fails as retryable."""

    lease: int
    reason: str
    groups: tuple[Labels, ...]
    """Groups with a free slot on a worker that has not refused this lease."""


@value
class LeasesLost:
    """The worker that held these leases is gone, or the server stops: retryable failures."""

    leases: tuple[int, ...]
    message: str


@value
class DispatchHeld:
    """Start (True) or stop holding back new dispatches: while stopping, or while the store cannot keep up."""

    held: bool


@value
class CascadesHeld:
    """Stop (True) or go on (False) working off what follows from ends and keys that came: the store is behind.

    Blocked tasks stand there meanwhile, as they would after a crash: what is left to do is derived from stored rows.
    """

    held: bool


@value
class TransitionsWatched:
    """Start (True) or stop telling every move of every task by `TaskMoved`; nothing is built for nobody."""

    watched: bool


@value
class TimerFired:
    """`next_timeout()` has passed. The only event that lets timers act."""


@value
class WallClockMoved:
    """The host's wall clock is now at `now + offset`; both directions are possible."""

    offset: int


@value
class Stalled:
    """The process could not run for `lateness` nanoseconds: that time does not count against leases."""

    lateness: int


@value
class CommitsStalled:
    """A commit hangs: lease expiries and attempt timeouts are parked."""


@value
class CommitsResumed:
    """Commits go through again; parked expiries and timeouts move by `duration` nanoseconds."""

    duration: int


Event = (
    TaskSubmitted
    | SubmissionWithdrawn
    | BatchSubmitted
    | TaskCancelled
    | RecurringPut
    | RecurringRemoved
    | GroupCapacitySet
    | ResourceLimitSet
    | DispatchReturned
    | LeasesReleased
    | LeaseRenewed
    | AttemptSucceeded
    | AttemptFailed
    | AttemptCancelled
    | AttemptNacked
    | LeasesLost
    | DispatchHeld
    | CascadesHeld
    | TransitionsWatched
    | TimerFired
    | WallClockMoved
    | Stalled
    | CommitsStalled
    | CommitsResumed
)
