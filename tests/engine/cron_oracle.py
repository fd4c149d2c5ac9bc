"""When a schedule fires, found the slow way: each instant of a window is looked at, and the rules applied literally."""

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from io import BytesIO
from zoneinfo import ZoneInfo

from cronoq_sansio.clock import SECOND

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text):
    """`2027-03-14T07:00Z` in Unix seconds."""
    return int(datetime.fromisoformat(text).timestamp())


def ns(text):
    """The same in nanoseconds."""
    return at(text) * SECOND


def shown(nanoseconds):
    """Unix nanoseconds as `2027-03-14T07:00Z`, with seconds when there are some."""
    text = (EPOCH + timedelta(seconds=nanoseconds // SECOND)).strftime("%Y-%m-%dT%H:%M:%S")
    return text.removesuffix(":00") + "Z"


def fires(cron, begin, end):
    """Every fire in (begin, end), in nanoseconds."""
    found = []
    while (fire := cron.next(begin)) is not None and fire.at < end:
        found.append(fire)
        begin = fire.at
    return found


def rules_of(zone):
    """The file of the tzdata package, whatever the host has."""
    return files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()


@cache
def rules(zone):
    """What the file says."""
    return ZoneInfo.from_file(BytesIO(rules_of(zone)))


@cache
def offset(zone, second):
    """Of local time, in seconds."""
    return int(datetime.fromtimestamp(second, rules(zone)).utcoffset().total_seconds())


@cache
def transitions(zone, begin, end):
    """Unix seconds at which the offset changes; changes that are undone within a day are not seen."""
    found = []
    low, day = begin, 86_400
    while low < end:
        if offset(zone, low) == offset(zone, low + day):
            low += day
            continue
        high = low + day
        while high - low > 1:
            middle = (low + high) // 2
            if offset(zone, middle) == offset(zone, low):
                low = middle
            else:
                high = middle
        found.append(high)
        low = high
    return tuple(found)


def naive_fires(named, zone, begin, end, step, *, gap, fold):
    """Every fire in [begin, end), in seconds. `named(local)`: whether the expression names a local time.

    Local times are looked at every `step` seconds; `fold` may be `every`.
    """
    passes = {}
    found = set()
    before = begin - step + offset(zone, begin - step)
    for second in range(begin, end, step):
        local = second + offset(zone, second)
        if gap == "shift" and any(named(skipped) for skipped in range(before + step, local, step)):
            found.add(second)
        if named(local):
            passes.setdefault(local, []).append(second)
        before = local
    for seconds in passes.values():
        found.update(seconds if fold in ("both", "every") else seconds[:1] if fold == "first" else seconds[-1:])
    return sorted(found)
