"""How long tasks of a pool run, as learned from attempts that succeeded (engine.md section 4).

An estimate is that of the task's kind; of a kind without samples that of the whole pool; without any the pool's
`default_duration_s`. Runs of tasks with a fixed start teach their kind alone: what is learned of the pool says how soon
a slot comes free of *other* work, and how many slots that work needs.

Of one or two samples the estimate is their weighted mean, m + (x − m)/10, from the third on the median. The median is
exact, over the last 64 samples: it follows a change within 33 of them, and outliers do not move it. A running estimate
without a window (P², for example) needs as many lines, and never quite forgets.

Cost. Every success adds a sample, and few tasks ask: only those with a deadline and without a hint. So a sample is
appended to a short queue, and sorted in when somebody asks.

Invariant: `_sorted` has the samples of `_window`, in order, at most 64 of them; of at most `limits.MAX_LEARNED_KINDS`
kinds something is known, the ones that came up last.
"""

from bisect import bisect_left, insort
from collections import deque
from itertools import islice

from cronoq_sansio.limits import MAX_LEARNED_KINDS

WINDOW = 64


class Samples:
    """The last run times of one kind, or of a whole pool, in nanoseconds."""

    __slots__ = ("_sorted", "_window", "fresh")

    def __init__(self) -> None:
        self.fresh: deque[int] = deque(maxlen=WINDOW)
        """Not looked at yet; what it drops would be out of the window by now."""
        self._window: deque[int] = deque()
        self._sorted: list[int] = []

    def estimate(self) -> int:
        """In nanoseconds, rounded down; there is a sample."""
        ordered, window = self._look(), self._window
        if len(ordered) == 1:
            return window[0]
        if len(ordered) == 2:
            return window[0] + (window[1] - window[0]) // 10
        return self.quantile(50)

    def quantile(self, percent: int) -> int:
        """So many per cent of the samples took no longer, in nanoseconds; between two of them as far as it lies."""
        ordered = self._look()
        rank, part = divmod((len(ordered) - 1) * percent, 100)
        above = ordered[min(rank + 1, len(ordered) - 1)]
        return ordered[rank] + (above - ordered[rank]) * part // 100

    def any(self) -> bool:
        """True when there is a sample."""
        return bool(self.fresh or self._window)

    def below(self, percent: int) -> int:
        """The sample that is, or is next below, that quantile; there is a sample."""
        ordered = self._look()
        return ordered[(len(ordered) - 1) * percent // 100]

    def mean(self) -> int:
        """In nanoseconds, rounded down; there is a sample. Nothing is sorted for it."""
        fresh, window = self.fresh, self._window
        pushed_out = max(len(window) + len(fresh) - WINDOW, 0)
        total = sum(fresh) + sum(islice(window, pushed_out, None))
        return total // (len(fresh) + len(window) - pushed_out)

    def check_invariants(self) -> None:
        """Assert that nothing is lost or out of order."""
        assert self._sorted == sorted(self._window), "the sorted samples are not those of the window"
        assert len(self._window) <= WINDOW, "the window is too long"

    def _look(self) -> list[int]:
        """The samples in order, the fresh ones among them."""
        fresh, window, ordered = self.fresh, self._window, self._sorted
        while fresh:
            sample = fresh.popleft()
            if len(window) == WINDOW:
                del ordered[bisect_left(ordered, window.popleft())]
            window.append(sample)
            insort(ordered, sample)
        return ordered


class Durations:
    """What is known of one pool. `default` is the estimate as long as nothing is, in nanoseconds."""

    __slots__ = ("_alarm", "_default", "_fresh", "_kinds", "_pool", "alarmed")

    def __init__(self, default: int) -> None:
        self._default = default
        self._pool = Samples()
        """Of tasks without a fixed start."""
        self._fresh = self._pool.fresh
        self._alarm = -1
        self.alarmed = False
        """The quantile that is watched may have risen since `watch`."""
        self._kinds: dict[str, Samples] = {}

    def add(self, kind: str, duration: int, *, fixed: bool = False) -> None:
        """An attempt of that kind succeeded after so many nanoseconds; `fixed`: of a task with a fixed start."""
        try:
            known = self._kinds[kind]
        except KeyError:
            known = self._learn(kind)
        known.fresh.append(duration)
        if not fixed:
            self._fresh.append(duration)
            if duration > self._alarm:
                self.alarmed = True

    def estimate(self, kind: str) -> int:
        """How long a task of that kind will run, in nanoseconds."""
        known = self._kinds.get(kind)
        if known is not None:
            return known.estimate()
        return self._pool.estimate() if self._pool.any() else self._default

    def quantile(self, percent: int) -> int | None:
        """Nanoseconds that so many per cent (0..100) of the last tasks of the pool did not exceed; None = unknown.

        Tasks with a fixed start do not count, here and in the mean.
        """
        return self._pool.quantile(percent) if self._pool.any() else None

    def heed(self, percent: int) -> int | None:
        """That quantile, for somebody who acts on it: `alarmed` is set when it may have risen from here, too."""
        if not self._pool.any():
            return None
        self._alarm = min(self._alarm, self._pool.below(percent))
        return self._pool.quantile(percent)

    def watch(self, percent: int) -> None:
        """Set `alarmed` from now on when that quantile may have risen.

        It does not rise with a sample up to the lower of the two that it lies between, whichever sample leaves the
        window for it: all above stay where they are, or move down.
        """
        self.alarmed = False
        self._alarm = self._pool.below(percent) if self._pool.any() else -1

    def mean(self) -> int | None:
        """Nanoseconds that the last tasks of the pool ran on average; None = unknown."""
        return self._pool.mean() if self._pool.any() else None

    def kinds(self) -> int:
        """Of how many kinds something is known."""
        return len(self._kinds)

    def check_invariants(self) -> None:
        """Assert what the head of this file promises."""
        assert len(self._kinds) <= MAX_LEARNED_KINDS, "too many kinds are remembered"
        assert self._fresh is self._pool.fresh, "samples of the pool get lost"
        for samples in (self._pool, *self._kinds.values()):
            samples.check_invariants()
        assert all(samples.any() for samples in self._kinds.values()), "a kind is remembered that nothing is known of"

    def _learn(self, kind: str) -> Samples:
        """A kind that nothing is known of; the one that came up first is forgotten when there are too many."""
        if len(self._kinds) == MAX_LEARNED_KINDS:
            del self._kinds[next(iter(self._kinds))]
        known = self._kinds[kind] = Samples()
        return known
