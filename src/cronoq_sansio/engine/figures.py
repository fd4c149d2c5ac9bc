"""Figures of one pool over the last minute (engine.md section 14): counts, shares, and how long tasks waited.

Theory. Everything is a sum that only grows, so an event costs an addition, or nothing: dispatches are the attempts that
have ended and those that run. Every few seconds the sums are noted; what happened in the last minute is the difference
between now and the note of a minute ago. So figures cover 60 to 65 seconds, less at the start.

Time on slots is summed without looking at each slot: with the times of starts subtracted and those of ends added, what
is missing from the sum are the ends of those that still run, and that is their number times now. Starts and ends of one
step are at the same time, so only the difference that a step makes counts (`settle`). What the slots brought forth, the
run times of successful attempts, is added when one ends: all of it then, also what lies before the window.

Waits go into a log-linear histogram: eight steps per power of two, so that a quantile, which is the middle of a step,
is wrong by 6.25 % at most, over any range. They are sorted into it when the sums are noted, many at a time.

Invariants: counts are not negative, of the fixed starts that were due no more were in time than there were, and notes
ascend.
"""

from collections import Counter, deque
from collections.abc import Iterable

from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.values import value

WINDOW = 60 * SECOND
INTERVAL = 5 * SECOND  #: between two notes


@value
class PoolFigures:
    """What is shown. Empty windows: rates 1, waits and utilizations 0 (server.md section 10)."""

    dispatched: int = 0
    succeeded: int = 0
    failed: int = 0
    """Attempts, like the two before."""
    priority_adherence: float = 1.0
    """Share of dispatches with no task of a higher class ready in the pool."""
    utilization: float = 0.0
    """Busy of offered slot-seconds."""
    wait_p50: float = 0.0
    """Seconds from submission to first start."""
    wait_p90: float = 0.0
    wait_p99: float = 0.0
    fixed_start_hit_rate: float = 1.0
    """Of the fixed starts that were due: share that started within tolerance."""
    schedule_efficiency: float = 0.0
    """Run time of attempts that succeeded, of offered slot-seconds; at most 1, though an attempt may be older."""


@value
class Note:
    """The sums at one moment, and the waits since the note before."""

    at: int
    dispatched: int
    overtakes: int
    succeeded: int
    failed: int
    busy: int
    offered: int
    worked: int
    fixed_starts: int
    hits: int
    waits: Counter[int]


class Figures:
    """The sums of one pool. Whoever moves tasks adds to them."""

    __slots__ = (
        "_busy",
        "_notes",
        "cancelled",
        "failed",
        "fixed_starts",
        "hits",
        "offered",
        "overtakes",
        "running",
        "succeeded",
        "waits",
        "worked",
    )

    def __init__(self, now: int) -> None:
        self.overtakes = 0
        """Dispatches while a task of a higher class was ready."""
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        """Attempts that ended so; with those that run they are all that were dispatched."""
        self.running = 0
        """As far as `settle` was told."""
        self._busy = 0
        """Σ ends − Σ starts of the time on slots; see above."""
        self.offered = 0
        """The same for slots that workers offer."""
        self.worked = 0
        """Nanoseconds that successful attempts ran, in lease time: of one during which it went back less than none."""
        self.fixed_starts = 0
        """First dispatches of fixed starts, and those that ended as missed."""
        self.hits = 0
        """First dispatches of fixed starts within tolerance."""
        self.waits: list[int] = []
        """Nanoseconds that tasks waited for their first start, since the last note."""
        self._notes = deque([Note(now, 0, 0, 0, 0, 0, 0, 0, 0, 0, Counter())])

    def settle(self, now: int, running: int) -> None:
        """So many attempts run from `now` on."""
        self._busy -= (running - self.running) * now
        self.running = running

    def note(self, now: int, capacity: int) -> None:
        """Note the sums as of `now`, and forget notes that are not needed any more. So many slots are offered."""
        notes = self._notes
        waits, self.waits = self.waits, []
        notes.append(self._sums(now, capacity, histogram(waits)))
        while notes[1].at <= now - WINDOW:
            notes.popleft()

    def show(self, now: int, capacity: int) -> PoolFigures:
        """The figures at `now`, which may be later than the last event."""
        notes = [note for note in self._notes if note.at > now - WINDOW]
        before = self._notes[max(len(self._notes) - len(notes) - 1, 0)]
        sums = self._sums(now, capacity, histogram(self.waits))
        for note in notes:
            sums.waits.update(note.waits)
        dispatched = max(sums.dispatched - before.dispatched, 0)  # one that is taken back may have been noted
        overtakes = min(sums.overtakes - before.overtakes, dispatched)
        offered = sums.offered - before.offered
        due = max(sums.fixed_starts - before.fixed_starts, 0)
        hits = max(min(sums.hits - before.hits, due), 0)
        p50, p90, p99 = quantiles(sums.waits, (0.5, 0.9, 0.99))
        return PoolFigures(
            dispatched,
            sums.succeeded - before.succeeded,
            sums.failed - before.failed,
            1 - overtakes / dispatched if dispatched else 1.0,
            min((sums.busy - before.busy) / offered, 1.0) if offered > 0 else 0.0,
            p50,
            p90,
            p99,
            hits / due if due else 1.0,
            min(max(sums.worked - before.worked, 0) / offered, 1.0) if offered > 0 else 0.0,
        )

    def offered_seconds(self, now: int, capacity: int) -> float:
        """Slot-seconds that workers offered since the term began; `capacity` slots at `now`."""
        return seconds(self.offered + capacity * now)

    def check_invariants(self) -> None:
        """Assert what the head of this file promises."""
        counts = (self.overtakes, self.succeeded, self.failed, self.cancelled, self.running)
        assert all(count >= 0 for count in counts), f"a count is negative: {counts}"
        assert 0 <= self.hits <= self.fixed_starts, f"{self.hits} of {self.fixed_starts} fixed starts were in time"
        times = [note.at for note in self._notes]
        assert times and times == sorted(times), f"the notes are not in order: {times}"

    def _sums(self, now: int, capacity: int, waits: Counter[int]) -> Note:
        return Note(
            now,
            self.succeeded + self.failed + self.cancelled + self.running,
            self.overtakes,
            self.succeeded,
            self.failed,
            self._busy + self.running * now,
            self.offered + capacity * now,
            self.worked,
            self.fixed_starts,
            self.hits,
            waits,
        )


def histogram(durations: Iterable[int]) -> Counter[int]:
    """How many durations, in nanoseconds, fall into each step."""
    return Counter([((shift := n.bit_length() - 4) << 3) + (n >> shift) if n > 15 else n for n in durations])


def middle_of(step: int) -> float:
    """The middle of a step, in nanoseconds."""
    shift = (step >> 3) - 1
    return (step - (shift << 3) + 0.5) * (1 << shift) if shift > 0 else step


def quantiles(waits: Counter[int], shares: tuple[float, ...]) -> tuple[float, ...]:
    """For each share, ascending, the seconds within which so many had waited; 0 when there were none."""
    total = waits.total()
    found: list[float] = []
    seen = 0
    for step in sorted(waits):
        seen += waits[step]
        while len(found) < len(shares) and seen >= shares[len(found)] * total:
            found.append(seconds(round(middle_of(step))))
    return (*found, *(0.0 for _ in shares[len(found) :]))
