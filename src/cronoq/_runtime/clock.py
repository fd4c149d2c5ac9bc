"""The clock of the runtime: `now`, and how far the host's wall clock is from it.

`now` is Unix time at process start plus monotonic time since, in nanoseconds: it never goes back and never jumps when
somebody sets the clock of the host. The monotonic part comes from the event loop, so that a test's clock drives it. The
wall offset follows the host's clock in both directions: `WallDrift.check` compares the two on every tick of the driver.
"""

import time
from collections.abc import Callable

from cronoq_sansio.clock import MILLISECOND, SECOND

#: The wall clock has moved when it is off by more than this: above the jitter between two clock reads on a busy host
#: and the slewing of NTP between two ticks, far below anything that a stored time or a schedule could show to a person.
WALL_THRESHOLD = 50 * MILLISECOND


class Clock:
    """Reads `now`. One per process; terms share it, so that ids and ages go on from one term to the next."""

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        """`monotonic`: seconds of the event loop (`anyio.current_time` or Trio's); `wall`: Unix nanoseconds."""
        self._monotonic = monotonic
        self._wall = wall
        self._zero = wall() - round(monotonic() * SECOND)

    def now(self) -> int:
        """Nanoseconds, never going back."""
        # Rounded and not cut off, or a clock that stands at a deadline would be short of it for ever.
        return self._zero + round(self._monotonic() * SECOND)

    def deadline(self, when: int) -> float:
        """The instant `when` of the `now` scale as the event loop names it, for cancel scopes."""
        return (when - self._zero) / SECOND

    def wall_offset(self) -> int:
        """Host's wall time minus `now`."""
        return self._wall() - self.now()


class WallDrift:
    """Knows which wall offset a term was told last, and notices when the host's clock has moved away from it."""

    def __init__(self, clock: Clock, told: int) -> None:
        self._clock = clock
        self.told = told
        """The offset in use, nanoseconds."""

    def check(self) -> int | None:
        """The new offset when it moved by more than `WALL_THRESHOLD` in either direction, else None."""
        offset = self._clock.wall_offset()
        if abs(offset - self.told) <= WALL_THRESHOLD:
            return None
        self.told = offset
        return offset
