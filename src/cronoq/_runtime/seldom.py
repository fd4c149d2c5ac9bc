"""What somebody outside could fill the log with is told once in a while.

Each key has one line per `pause`, which says how many were not told since the last one, and no more than `most` keys
are told in that time; what is beyond is counted in the next line that is written.
"""

from collections.abc import Callable, Hashable

from cronoq_sansio.values import value


@value
class Untold:
    """What a line that may be written has to say of those that were not."""

    same: int
    """Of the same key, since its last line."""
    others: int
    """Of keys that had no line at all."""


class Seldom:
    """Who was told when. Remembers `most` keys at most."""

    def __init__(self, pause: int, most: int, clock: Callable[[], int]) -> None:
        """`pause`: nanoseconds of `clock`, which never goes back."""
        self._pause = pause
        self._most = most
        self._clock = clock
        self._told: dict[Hashable, list[int]] = {}
        """When a key was told last, and how many were not told since; the oldest first."""
        self._others = 0

    def __len__(self) -> int:
        return len(self._told)

    def may_tell(self, key: Hashable, count: int = 1) -> Untold | None:
        """`count` more of a key: what its line has to say besides; None = no line, they are counted."""
        now = self._clock()
        entry = self._told.get(key)
        if entry is not None and now - entry[0] < self._pause:
            entry[1] += count
            return None
        untold = 0
        if entry is not None:
            untold = entry[1]
            del self._told[key]
        elif not self._has_place(now):
            self._others += count
            return None
        self._told[key] = [now, 0]
        others, self._others = self._others, 0
        return Untold(untold, others)

    def _has_place(self, now: int) -> bool:
        """Forgets what was told longest ago, if that is long enough."""
        if len(self._told) < self._most:
            return True
        oldest = next(iter(self._told))
        told, untold = self._told[oldest]
        if now - told < self._pause:
            return False
        self._others += untold
        del self._told[oldest]
        return True
