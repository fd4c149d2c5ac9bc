"""The next fires of a schedule as text, for people who want to see what an expression means in a zone."""

from datetime import datetime, timedelta

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import MOVED, Cron
from cronoq_sansio.values import value

_EPOCH = datetime(1970, 1, 1)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@value
class Preview:
    """One fire."""

    at: int
    """Unix nanoseconds."""
    weekday: str
    """Of the local time, in three letters."""
    local: str
    """What a clock in the zone shows then, with its offset: `2027-03-14T03:00:00-04:00`."""
    utc: str
    """The same instant: `2027-03-14T07:00:00Z`."""
    mark: str
    """`moved`, `first pass`, `second pass` or empty."""
    named: str
    """Of a moved one the local time that the clocks skip: `2027-03-14T02:30:00`; else empty."""


def preview(cron: Cron, begin: int, count: int) -> list[Preview]:
    """The first `count` fires at or after `begin` (Unix nanoseconds); fewer when there are no more before 2200."""
    found: list[Preview] = []
    after = begin - 1
    while len(found) < count and (fire := cron.next(after)) is not None:
        after = fire.at
        local = cron.clock(fire.at)
        named = _text(fire.local) if fire.mark == MOVED else ""
        weekday = WEEKDAYS[local.weekday()]
        found.append(Preview(fire.at, weekday, local.isoformat(), f"{_text(fire.at)}Z", fire.mark, named))
    return found


def _text(nanoseconds: int) -> str:
    return (_EPOCH + timedelta(seconds=nanoseconds // SECOND)).isoformat()
