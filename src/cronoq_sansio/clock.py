"""Time as all rings see it: integer nanoseconds.

Two scales exist. ``now`` is Unix time at process start plus the monotonic time since: it never goes back, and leases,
timeouts, backoffs, aging and retention run on it. *Wall time* is ``now + wall_offset``; stored timestamps and
everything a user sees are wall time. The offset is state of the engine and changes only by the event
``WallClockMoved``.
"""

from datetime import datetime, timedelta

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

EPOCH = datetime(1970, 1, 1)
MIN_TEXT, MAX_TEXT = -62_135_596_800, 253_402_300_799  #: the years 1 and 9999, what a date can say

NEVER = 1 << 63  #: on any scale: later than every time
LAST_UNIX_NS = (1 << 63) - 1  #: in the year 2262: what a column or an `int64` can say

#: Longest duration that a client may name: 100 years (server.md section 1, "Fixed limits").
MAX_CLIENT_DURATION = 3_153_600_000 * SECOND


def ns(seconds: float) -> int:
    """Convert seconds to nanoseconds, rounded to the nearest. The caller has checked that ``seconds`` is finite."""
    return round(seconds * SECOND)


def utc_text(unix_ns: int) -> str:
    """A wall time for people, in UTC by RFC 3339: to the second, or to the nanosecond where it is no whole second."""
    whole, rest = divmod(unix_ns, SECOND)
    if not MIN_TEXT <= whole <= MAX_TEXT:
        return f"{unix_ns} ns"
    text = (EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text.zfill(19)}.{rest:09}Z" if rest else f"{text.zfill(19)}Z"


def seconds(nanoseconds: int) -> float:
    """Convert nanoseconds to seconds."""
    return nanoseconds / SECOND
