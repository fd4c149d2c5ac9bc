"""What a task is: the specification that a caller submits, and the words for its life."""

from enum import IntEnum

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import EDGE_BYTES
from cronoq_sansio.values import value

#: What a caller means who names no pool, or no kind.
DEFAULT_POOL = "default"
DEFAULT_KIND = "default"
#: Tags that begin like this are made by the server.
RESERVED_TAGS = "cronoq."


class Priority(IntEnum):
    """The four classes, best first. The number is the index of the class; on the wire it is one higher."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3


class TaskStatus(IntEnum):
    """Life of a task (engine.md section 2), numbered as on the wire.

    From SUCCEEDED on a status is terminal and final.
    """

    BLOCKED = 1
    SCHEDULED = 2
    READY = 3
    RUNNING = 4
    RETRYING = 5
    SUCCEEDED = 6
    FAILED = 7
    DEAD_LETTERED = 8
    CANCELLED = 9
    SKIPPED = 10
    MISSED = 11
    SHED = 12

    @property
    def terminal(self) -> bool:
        """True when the task has ended."""
        return self >= TaskStatus.SUCCEEDED


@value
class RetryPolicy:
    """How often and when an attempt is repeated (engine.md section 6). All durations in nanoseconds."""

    max_attempts: int
    """Attempts in all, the first included; ≥ 1."""
    initial_backoff: int
    """Delay before the second attempt; ≥ 0."""
    multiplier: float
    """Factor from one delay to the next; 1..1000."""
    max_backoff: int
    """Upper bound of the delay; ≥ 0."""
    jitter: bool
    """Draw the delay uniformly from [0, delay]."""


@value
class RetryOverride:
    """What a submission says about retries. ``None`` is unset and takes the pool's value."""

    max_attempts: int | None
    initial_backoff: int | None
    multiplier: float | None
    max_backoff: int | None
    jitter: bool | None


class Condition(IntEnum):
    """What a dependency asks of the end of its parent (engine.md section 5), numbered as on the wire."""

    ON_SUCCESS = 1
    """`SUCCEEDED`."""
    ON_COMPLETE = 2
    """Any terminal status."""
    ON_FAILURE = 3
    """`FAILED` or `DEAD_LETTERED`."""


@value
class Dependency:
    """An edge as submitted: the task runs only after another one ended as asked."""

    ref: int | str
    """Id or key of the parent."""
    condition: int
    """A `Condition` number."""


class MissPolicy(IntEnum):
    """What becomes of a task that missed its fixed start (engine.md section 7), numbered as on the wire."""

    RUN_LATE = 1
    """It runs as soon as it can, before all work without a fixed start."""
    SKIP = 2
    """It ends as `MISSED`."""
    FAIL = 3
    """It ends as `FAILED`."""


#: How late a fixed start may be when the task does not say it (engine.md section 7).
DEFAULT_TOLERANCE = 1 * SECOND


@value
class Scheduling:
    """What a task asks of the scheduler beyond its pool and class.

    Most tasks ask for nothing: `TaskSpec.scheduling` is None for them, and the hot path looks at that alone.
    """

    deadline: int | None = None
    """Wall time by which it should have ended; past ones are allowed and most urgent. ≥ 0."""
    deadline_in: int | None = None
    """The same as nanoseconds after the arrival; at most one of the two. Absolute once the task is admitted."""
    duration_hint: int | None = None
    """Estimated run time in nanoseconds; ≥ 0."""
    dependencies: tuple[Dependency, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Names and units ≥ 1 that an attempt holds or consumes; sorted by name."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that a worker must carry; sorted by name."""
    tenant: str = ""
    """Whose task it is, for sharing by weights; empty is a tenant like others."""
    start: int | None = None
    """Fixed start, wall time; past ones are allowed. ≥ 0."""
    start_in: int | None = None
    """The same as nanoseconds after the arrival; at most one of the two. Absolute once the task is admitted."""
    tolerance: int = DEFAULT_TOLERANCE
    """How late a fixed start may be, in nanoseconds; ≥ 0. Nothing without one."""
    on_miss: int = MissPolicy.RUN_LATE.value
    """A `MissPolicy` number: what happens when it is later. Nothing without a fixed start."""


@value
class TaskSpec:
    """A task as submitted, checked against the fixed limits, never changed after."""

    payload: bytes
    """Opaque to the server."""
    content_type: str
    """Of the payload; empty when the caller gave none."""
    kind: str
    """What the worker does with it; empty allowed."""
    pool: str
    priority: int
    """Index of the class, 0..3; see `Priority`."""
    key: str
    """Caller-chosen idempotency key; empty = none."""
    timeout: int | None
    """Bound of one attempt in nanoseconds."""
    retry: RetryOverride | None
    """None = the pool's policy."""
    tags: tuple[tuple[str, str], ...]
    """Sorted by name; travels to the worker."""
    size: int
    """Bytes of the encoded specification; counts against `limits.max_payload_bytes`."""
    scheduling: Scheduling | None = None
    """None = nothing beyond pool and class."""


def tenant_of(spec: TaskSpec) -> str:
    """Whose task it is; empty when the caller named nobody."""
    return spec.scheduling.tenant if spec.scheduling is not None else ""


def weight(spec: TaskSpec) -> int:
    """What a live task counts against `limits.max_payload_bytes`: its size, and its dependencies as they are kept."""
    asked = spec.scheduling
    return spec.size if asked is None else spec.size + EDGE_BYTES * len(asked.dependencies)


def with_times_at(spec: TaskSpec, arrival: int) -> TaskSpec:
    """The specification with relative times made absolute; `arrival` is wall time."""
    asked = spec.scheduling
    if asked is None or (asked.deadline_in is None and asked.start_in is None):
        return spec
    absolute = Scheduling(  # by position: `dataclasses.replace` costs five times as much
        asked.deadline if asked.deadline_in is None else arrival + asked.deadline_in,
        None,
        asked.duration_hint,
        asked.dependencies,
        asked.resources,
        asked.labels,
        asked.tenant,
        asked.start if asked.start_in is None else arrival + asked.start_in,
        None,
        asked.tolerance,
        asked.on_miss,
    )
    return TaskSpec(
        spec.payload,
        spec.content_type,
        spec.kind,
        spec.pool,
        spec.priority,
        spec.key,
        spec.timeout,
        spec.retry,
        spec.tags,
        spec.size,
        absolute,
    )


class Overlap(IntEnum):
    """What a recurring schedule does while its previous run is still going (engine.md section 11); wire numbers."""

    SKIP = 1
    """The occurrence ends as `SKIPPED`."""
    ALLOW = 2
    """It runs beside the other one."""
    QUEUE = 3
    """It waits until the other one has ended."""
    QUEUE_ON_SUCCESS = 4
    """It waits, and runs only if the other one succeeded."""


@value
class RecurringSpec:
    """A schedule: a task at every time that a cron expression names (engine.md section 11)."""

    name: str
    """Unique; 1 .. 256 bytes."""
    cron: str
    """Five fields, or six with seconds first."""
    tz: str
    """IANA zone; empty = UTC."""
    template: TaskSpec
    """Of every occurrence. Its key is a prefix, its `deadline_in` counts from the start; no other times, no edges."""
    overlap: int = Overlap.SKIP.value
    """An `Overlap` number."""
    gap: str = "shift"
    """What happens to a time that day-light saving skips: `shift` to the first valid instant after it, or `skip`."""
    fold: str = "first"
    """Which of two passes of a repeated time counts, unless every hour does: `first`, `last` or `both`."""
    configured: bool = False
    """It stands in the configuration file, which alone may change it."""
