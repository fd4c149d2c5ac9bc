"""What a task is: the specification that a caller submits, and the words for its life."""

from enum import IntEnum

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
