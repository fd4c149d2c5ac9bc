"""Time as all rings see it: integer nanoseconds.

Two scales exist. ``now`` is Unix time at process start plus the monotonic time since: it never goes back, and leases,
timeouts, backoffs, aging and retention run on it. *Wall time* is ``now + wall_offset``; stored timestamps and
everything a user sees are wall time. The offset is state of the engine and changes only by the event
``WallClockMoved``.
"""

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

#: Longest duration that a client may name: 100 years (server.md section 1, "Fixed limits").
MAX_CLIENT_DURATION = 3_153_600_000 * SECOND


def ns(seconds: float) -> int:
    """Convert seconds to nanoseconds, rounded to the nearest. The caller has checked that ``seconds`` is finite."""
    return round(seconds * SECOND)


def seconds(nanoseconds: int) -> float:
    """Convert nanoseconds to seconds."""
    return nanoseconds / SECOND
