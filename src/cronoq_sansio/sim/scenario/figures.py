"""What a run counts: per class, tenant, pool, fixed start, schedule and resource.

Waits and times in the system are kept one by one, eight bytes each, so that quantiles are exact; a run has at most
`limits.MAX_SCENARIO_TASKS` tasks. What changes with time (queues, slots in use, targets) is summed as an area, to the
nanosecond, and for the time line in `BUCKETS` equal parts of the run.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from math import ceil

from cronoq_sansio.clock import seconds
from cronoq_sansio.spec import TaskStatus

BUCKETS = 60  #: parts of the time line: a terminal's width, with room for a name


class Tally:
    """Tasks of one entry of `[[arrivals]]` or one schedule; or of several together."""

    __slots__ = (
        "ends",
        "in_system",
        "late",
        "messages",
        "open_late",
        "refused",
        "retries",
        "started",
        "submitted",
        "timely",
        "unstarted",
        "waits",
        "work",
    )

    def __init__(self) -> None:
        self.submitted = 0
        """Taken in."""
        self.refused: Counter[str] = Counter()
        """By code."""
        self.messages: dict[str, str] = {}
        """What the first of those was told, by code."""
        self.started = 0
        self.retries = 0
        self.ends: Counter[int] = Counter()
        """By `TaskStatus` number."""
        self.waits = array("q")
        """From arrival, or fixed start, to the first start of those that started."""
        self.in_system = array("q")
        """From the same moment to the end, of those that succeeded."""
        self.work = 0
        """Time on slots since the end of the warm-up, of all tasks."""
        self.timely = 0
        """Deadlines that were met."""
        self.late = 0
        """Deadlines that were not, by tasks that have ended."""
        self.open_late = 0
        """Deadlines that passed while the task had not ended when the run did."""
        self.unstarted = array("q")
        """How long those had waited that had not started when the run ended."""

    @classmethod
    def sum(cls, tallies: "Iterable[Tally]") -> "Tally":
        """Several together."""
        total = cls()
        for tally in tallies:
            for name in ("submitted", "started", "retries", "work", "timely", "late", "open_late"):
                setattr(total, name, getattr(total, name) + getattr(tally, name))
            total.refused.update(tally.refused)
            total.ends.update(tally.ends)
            for code, message in tally.messages.items():
                total.messages.setdefault(code, message)
            for name in ("waits", "in_system", "unstarted"):
                getattr(total, name).extend(getattr(tally, name))
        return total


class StartTally:
    """Fixed starts of one pool and policy."""

    __slots__ = ("in_time", "late", "lateness", "missed", "waiting")

    def __init__(self) -> None:
        self.in_time = 0
        self.late = 0
        """Started, after their tolerance."""
        self.missed = 0
        """Ended without having started, as the policy says."""
        self.waiting = 0
        """Past their tolerance, and not started when the run ended."""
        self.lateness = array("q")
        """Of those that started."""


class ResourceTally:
    """Units of one resource."""

    __slots__ = ("area", "since", "taken", "used")

    def __init__(self) -> None:
        self.used = 0
        """Held now; of a semaphore."""
        self.taken = 0
        """By attempts that started after the warm-up."""
        self.area = 0
        """Unit-nanoseconds held after the warm-up."""
        self.since = 0

    def change(self, units: int, now: int, warm: int) -> None:
        """So many units more, or less."""
        self.area += self.used * max(now - max(self.since, warm), 0)
        self.since = now
        self.used += units


class Gauge:
    """Queue, slots and target of one pool over time. `warm` and `end` are moments on the scale of the engine."""

    __slots__ = (
        "_begin",
        "_since",
        "busy",
        "busy_area",
        "busy_line",
        "desired",
        "highest",
        "highest_at",
        "looks",
        "offered",
        "offered_area",
        "offered_line",
        "part",
        "queue_area",
        "queue_line",
        "target_line",
        "waiting",
        "warm",
    )

    def __init__(self, begin: int, warm: int, end: int) -> None:
        self._begin = self._since = begin
        self.part = max(-(-(end - begin) // BUCKETS), 1)
        """Of the time line, in nanoseconds."""
        self.warm = warm
        self.waiting = self.busy = self.offered = 0
        self.highest = 0
        """Most tasks that waited at a time …"""
        self.highest_at = begin
        """… and when that was first the case."""
        self.queue_area = self.busy_area = self.offered_area = 0
        """Since the warm-up."""
        self.queue_line = [0] * BUCKETS
        """The longest queue of each part of the run."""
        self.busy_line = [0] * BUCKETS
        """Slot-nanoseconds, as the next."""
        self.offered_line = [0] * BUCKETS
        self.target_line: list[int | None] = [None] * BUCKETS
        """The last target that was seen in each part."""
        self.desired: int | None = None
        self.looks = array("q")
        """Targets that were seen after the warm-up, at equal intervals."""

    def set(self, now: int, waiting: int, busy: int, offered: int) -> None:
        """From `now` on these are the values."""
        if now > self._since:
            self.flush(now)
        self.waiting, self.busy, self.offered = waiting, busy, offered
        if waiting:
            if waiting > self.highest and now >= self.warm:
                self.highest, self.highest_at = waiting, now
            part = (now - self._begin) // self.part
            if part < BUCKETS and waiting > self.queue_line[part]:
                self.queue_line[part] = waiting

    def flush(self, now: int) -> None:
        """Add what has passed since the values were set."""
        since, self._since = self._since, now
        counted = now - max(since, self.warm)
        if counted > 0:
            self.queue_area += self.waiting * counted
            self.busy_area += self.busy * counted
            self.offered_area += self.offered * counted
        part = (since - self._begin) // self.part
        while since < now:
            until = min(self._begin + (part + 1) * self.part, now)
            self.busy_line[part] += self.busy * (until - since)
            self.offered_line[part] += self.offered * (until - since)
            if self.waiting > self.queue_line[part]:
                self.queue_line[part] = self.waiting
            since, part = until, part + 1

    def look(self, now: int, desired: int) -> None:
        """The autoscaler's target as it is now."""
        self.desired = desired
        self.target_line[min((now - self._begin) // self.part, BUCKETS - 1)] = desired
        if now >= self.warm:
            self.looks.append(desired)


def quantiles(values: "array[int]", shares: tuple[float, ...] = (0.5, 0.9, 0.99, 1.0)) -> list[float] | None:
    """Exact quantiles in seconds: the smallest value that is not exceeded by that share. None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return [seconds(ordered[max(ceil(share * len(ordered)) - 1, 0)]) for share in shares]


def mean(values: "array[int]") -> float | None:
    """In seconds; None of nothing."""
    return seconds(sum(values)) / len(values) if values else None


SUCCEEDED, FAILED, DEAD_LETTERED, CANCELLED, SKIPPED, MISSED, SHED = (
    int(status) for status in TaskStatus if status.terminal
)
