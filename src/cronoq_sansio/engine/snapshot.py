"""What the engine shows of itself: totals since start, and figures per pool (engine.md section 14)."""

from cronoq_sansio.engine.events import Labels
from cronoq_sansio.engine.figures import PoolFigures
from cronoq_sansio.spec import RecurringSpec
from cronoq_sansio.values import value


class Totals:
    """Counts since the term began, named as in the source page."""

    __slots__ = (
        "cancelled",
        "dead_lettered",
        "dispatched",
        "failed",
        "lease_expiries",
        "missed",
        "retries",
        "shed",
        "skipped",
        "stale_completions",
        "submitted",
        "succeeded",
        "timeouts",
    )

    def __init__(self) -> None:
        self.submitted = 0
        self.dispatched = 0
        self.succeeded = 0
        self.failed = 0
        self.dead_lettered = 0
        self.cancelled = 0
        self.skipped = 0
        self.missed = 0
        self.shed = 0
        self.retries = 0
        self.timeouts = 0
        self.lease_expiries = 0
        self.stale_completions = 0


@value
class GroupSnapshot:
    """The workers of a pool with the same labels."""

    labels: Labels
    capacity: int
    busy: int


@value
class PoolSnapshot:
    """One pool. `pending_by_class` is critical, high, normal, low."""

    name: str
    capacity: int
    busy: int
    pending_by_class: tuple[int, int, int, int]
    groups: tuple[GroupSnapshot, ...]
    figures: PoolFigures = PoolFigures()
    """Over the last minute."""
    run_time_p50: int = 0
    """Of the last successful attempts, in nanoseconds (`durations.py`); 0 = nothing was learned yet."""
    run_time_p90: int = 0
    held: int = 0
    """Free slots that wait for a fixed start."""
    desired: int = 0
    """Slots that the autoscaler would like to have; 0 when it is off."""
    reservations: int = 0
    """Those of live tasks with a fixed start; one that takes no time reserves nothing."""
    cost: float = 0.0
    """Slot-seconds offered since the term began, times `cost_per_worker_second`."""


@value
class EngineSnapshot:
    """All pools. `totals` maps each name of `Totals` to its count."""

    pools: tuple[PoolSnapshot, ...]
    live_tasks: int
    running: int
    pending: int
    totals: dict[str, int]
    schedules: int = 0
    """Recurring schedules."""
    occurrences_dropped: tuple[tuple[str, int], ...] = ()
    """Fires that did not happen, by reason (`recurring.DROPS`), sorted."""


@value
class RecurringView:
    """What is shown of a schedule."""

    spec: RecurringSpec
    next: int | None
    """Wall time of the next start; None when there is none, or the configuration does not support it any more."""
    last_task: int
    """0 = none yet."""
