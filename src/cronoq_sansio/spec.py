"""What a task is: the specification that a caller submits, and the words for its life."""

from enum import IntEnum

from cronoq_sansio.limits import EDGE_BYTES
from cronoq_sansio.values import value


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


def with_deadline_at(spec: TaskSpec, arrival: int) -> TaskSpec:
    """The specification with a relative deadline made absolute; `arrival` is wall time."""
    asked = spec.scheduling
    if asked is None or asked.deadline_in is None:
        return spec
    absolute = Scheduling(
        arrival + asked.deadline_in,
        None,
        asked.duration_hint,
        asked.dependencies,
        asked.resources,
        asked.labels,
        asked.tenant,
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
