"""When a cron expression fires: the next instant in a zone, over every change of its clocks (engine.md section 11).

Two worlds meet here. croniter searches *names*, local times without a zone, and knows nothing of zones. tzdata's rules
say which instants carry a name:

    one         it fires there
    none        a gap: the clocks skipped it. `shift`: at the first instant after the gap; `skip`: not at all
    two         a fold: the clocks repeated it. When every hour counts, at both passes; else `first`, `last` or `both`

Fires are strictly increasing, and whole seconds; names that meet at one instant are one fire. A fire needs a bounded
number of croniter's searches, whatever the expression and the zone: gaps and passes are jumped over, never walked.

Zones come from the tzdata package alone, so every host decides alike, and names are looked up in its list: neither the
host's zone files, nor TZPATH, nor the zone of the process matter. This is the only module of the core that knows third
parties, and that reads files: those of the tzdata package. All of it is imported and read when it is first needed.
"""

from bisect import bisect_right
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import tzdata  # type: ignore[import-untyped]  # one module with two strings

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron_fields import quoted, split
from cronoq_sansio.limits import CRON_CACHE, CRON_END, MAX_SKIPPED_GAPS, MAX_TIME_ZONE
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

TZDATA_VERSION: str = tzdata.__version__
"""Of the package whose rules decide, such as `2026.6`."""
GAPS = ("shift", "skip")
"""What happens to a time that the clocks skip."""
FOLDS = ("first", "last", "both")
"""Which pass of a time that the clocks repeat counts, unless every hour does."""
MOVED, FIRST_PASS, SECOND_PASS = "moved", "first pass", "second pass"

_EPOCH = datetime(1970, 1, 1)
_START = -4_000_000_000  # 1843: before the first rule of any zone
_END = CRON_END // SECOND
_SETTLED = 4_102_444_800  # 2100: whatever changes until then is over, and each zone has one rule for every year
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@value
class Fire:
    """One time at which a schedule fires."""

    at: int
    """The instant, in Unix nanoseconds; whole seconds."""
    local: int
    """The local time that the expression names, in nanoseconds as if it were UTC; in a gap none that a clock showed."""
    mark: str
    """`moved` out of a gap; `first pass` or `second pass` of a repeated time; else empty."""
    skipped: tuple[int, ...] = ()
    """With `skip`: the gaps that had a fire, since the fire before or where the search began; each by its end."""


def zone_names() -> tuple[str, ...]:
    """Every zone of tzdata, by name."""
    return _zone_list()


def compile_cron(cron: str, tz: str, gap: str = "shift", fold: str = "first") -> "Cron | str":
    """The schedule of an expression in a zone (empty = UTC), or why there is none.

    A fault is one sentence that begins with `cron: ` or `tz: ` (`dst_gap: `, `dst_fold: ` for unknown words) and says
    what is allowed. An expression that never fires is a fault. Costs as much as some fires, then little.
    """
    if gap not in GAPS:
        return f"dst_gap: {quoted(gap)} is not allowed; allowed are {', '.join(GAPS)}"
    if fold not in FOLDS:
        return f"dst_fold: {quoted(fold)} is not allowed; allowed are {', '.join(FOLDS)}"
    fields = split(cron)
    if isinstance(fields, str):
        return fields
    names = _names(fields)
    if isinstance(names, str):
        return names
    if tz and tz not in _zone_set():
        return _unknown_zone(tz)
    made = Cron(names, _zone(tz or "UTC"), gap == "skip", "both" if names.every_hour else fold)
    if gap == "skip" and made.next(_SETTLED * SECOND) is None:
        return f"cron: it never fires: the clocks of {tz} skip every time that it names, and dst_gap is skip"
    return made


class Cron:
    """One expression in one zone. It never changes, and may be shared."""

    __slots__ = ("_fold", "_names", "_skip", "_zone")

    def __init__(self, names: "_Names", zone: "_Zone", skip: bool, fold: str) -> None:
        self._names = names
        self._zone = zone
        self._skip = skip
        self._fold = fold

    def next(self, after: int) -> Fire | None:
        """The first fire strictly later than `after` (Unix nanoseconds); None when there is none before 2200.

        Also None when the next `MAX_SKIPPED_GAPS` times all lie in gaps and are skipped: such a schedule never fires.
        """
        second = max(after // SECOND, _START)
        if second >= _END:
            return None
        base = self._base(second)
        skipped: tuple[int, ...] = ()
        for _ in range(MAX_SKIPPED_GAPS):
            named = self._names.next(base)
            if named is None or named >= _END:
                return None
            before, behind = self._zone.offsets(named)
            if before < behind:
                change = self._zone.change(named - behind, named - before, before)
                base = change + behind - 1  # the last local time of the gap
                if self._skip:
                    skipped = (*skipped, change * SECOND)
                if self._names.next(base) == base + 1:
                    # The first valid time has a name of its own.
                    return Fire(change * SECOND, (base + 1) * SECOND, "", skipped)
                if not self._skip:
                    return Fire(change * SECOND, named * SECOND, MOVED)
            elif before == behind:
                return Fire((named - before) * SECOND, named * SECOND, "", skipped)
            elif self._fold == "first" or (self._fold == "both" and named - before > second):
                return Fire((named - before) * SECOND, named * SECOND, FIRST_PASS, skipped)
            else:
                return Fire((named - behind) * SECOND, named * SECOND, SECOND_PASS, skipped)
        return None

    def _base(self, second: int) -> int:
        """The local time from which on names matter, for fires later than `second`."""
        here = self._zone.at(second)
        local = second + _seconds(here.utcoffset())
        if self._fold == "first" and not here.fold:
            return local  # what the second pass repeats has fired
        before, behind = self._zone.offsets(local)
        if before == behind:
            return local
        change = self._zone.change(local - before, local - behind, before)
        if here.fold:
            return change + before - 1 if self._fold == "first" else local
        if self._fold == "both":
            named = self._names.next(local)
            if named is not None and named < change + before:
                return local
        return change + behind - 1  # the whole window is repeated, and fires again

    def latest(self, after: int, until: int) -> Fire | None:
        """The last fire in (after, until], as `next` finds it from the fire before, or from `after` if it is the first.

        Takes a number of searches that grows with the logarithm of the distance.
        """
        found = self._latest(after, until)
        if found is None or not self._skip:
            return found
        # The search may have come upon it from behind a gap, and then has not seen what was skipped there.
        before = self._latest(after, found.at - 1)
        # None where more gaps lie in between than `next` looks through.
        return self.next(after if before is None else before.at) or found

    def _latest(self, after: int, until: int) -> Fire | None:
        """The same, but with `skip` any of the gaps before it may be left out."""
        first = self.next(after)
        if first is None or first.at > until:
            return None
        low, width = first, SECOND
        while until - width > low.at:  # gallop back, until something fires in between
            found = self.next(until - width)
            if found is not None and found.at <= until:
                low = found
                break
            width *= 8
        high = until
        while (found := self.next(low.at)) is not None and found.at <= until:
            low = found
            middle = (low.at + high) // 2
            found = self.next(middle)
            if found is not None and found.at <= until:
                low = found
            else:
                high = middle
        return low

    def resolve(self, local: int) -> int:
        """The instant that a local time (nanoseconds as if UTC) stands for today, by the rules of this schedule.

        In a gap the first instant after it; of a repeated time the first pass, with `last` the last one.
        """
        named = min(max(local // SECOND, _START), _END)
        before, behind = self._zone.offsets(named)
        if before < behind:
            return self._zone.change(named - behind, named - before, before) * SECOND
        return (named - (behind if self._fold == "last" else before)) * SECOND

    def clock(self, at: int) -> datetime:
        """What a clock in the zone shows at an instant (Unix nanoseconds from 1843 to 2200), with its offset."""
        return self._zone.at(min(max(at // SECOND, _START), _END))


# --- names: local times without a zone


class _Names:
    """What croniter knows of an expression. Times are local, in seconds as if they were UTC."""

    __slots__ = ("_croniter", "_last", "_leap_days", "every_hour")

    def __init__(self, croniter: Any, every_hour: bool, leap_days: tuple[int, ...]) -> None:
        self._croniter = croniter
        self._leap_days = leap_days
        self._last: tuple[int, int | None] = (0, self._search(0))
        self.every_hour = every_hour
        """The field of hours has `*` or a step, or names all of them."""

    def next(self, after: int) -> int | None:
        """The first name later than `after`; None when there is none within 50 years.

        The last answer is remembered: schedules with the same expression tend to ask for the same.
        """
        start, found = self._last
        if start != after:
            found = self._search(after)
            self._last = (after, found)
        return found

    def _search(self, after: int) -> int | None:
        if self._leap_days:
            after = self._before_leap_day(after)
        # croniter keeps the time it is at. A copy of it for each search, so that whoever shares it, in other threads
        # too, gets the same answers; what is expensive to build is not copied.
        searching = object.__new__(type(self._croniter))
        vars(searching).update(vars(self._croniter))
        try:
            return int(searching.get_next(float, start_time=after))
        except ValueError:  # CroniterBadDateError; beyond the calendar the others
            return None

    def _before_leap_day(self, after: int) -> int:
        """A later start for what fires on the fifth of some weekdays of February alone, every 28 years or so.

        croniter would look at each February in between.
        """
        this_year = (_EPOCH + timedelta(seconds=after)).year
        for year in range(this_year, this_year + 50):
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            if leap and (datetime(year, 2, 29).weekday() + 1) % 7 in self._leap_days:
                begin = (datetime(year, 2, 29) - _EPOCH) // timedelta(seconds=1)
                if after < begin + 86_400:
                    return max(after, begin - 1)
        return after


@lru_cache(maxsize=CRON_CACHE)
def _names(fields: tuple[str, ...]) -> _Names | str:
    """What croniter makes of well-formed fields, or what is wrong with them together."""
    from croniter import croniter  # type: ignore[import-untyped]  # 30 ms that a server without schedules does not pay

    text = " ".join(fields)
    searching = croniter(text, 0, second_at_beginning=True)
    _, hours, days, months, weekdays = searching.expanded[:5]
    nth: dict[int, set[int | str]] = searching.nth_weekday_of_month
    if nth and days[0] != "*":
        return (
            f"cron: day of month {quoted(fields[-3])} cannot stand beside {quoted(fields[-1])},"
            " a weekday of the month; make two schedules of it"
        )
    longest = 31 if "*" in months else max(_LONGEST_MONTHS[month - 1] for month in months)
    if days[0] != "*" and "l" not in days and min(days) > longest:
        if weekdays[0] == "*":
            return f"cron: it never fires: no month of {quoted(fields[-2])} has a day {min(days)}"
        # Only the weekdays ever match. croniter would look for the others through 50 years, at each fire.
        searching = croniter(" ".join((*fields[:-3], "*", *fields[-2:])), 0, second_at_beginning=True)
    leap_days: tuple[int, ...] = ()
    if months == [2] and nth and all(numbers == {5} for numbers in nth.values()):
        leap_days = tuple(sorted(nth))
    hour = fields[-4]
    return _Names(searching, "*" in hour or "/" in hour or hours == ["*"], leap_days)


# --- zones


class _Zone:
    """The clocks of a zone. Instants in Unix seconds, local times in seconds as if they were UTC."""

    __slots__ = ("_epoch", "_info")

    def __init__(self, info: "ZoneInfo") -> None:
        self._info = info
        self._epoch = _EPOCH.replace(tzinfo=info)

    def at(self, second: int) -> datetime:
        """What a clock shows; `fold` is 1 in the second pass of a repeated time."""
        return self._info.fromutc(self._epoch + timedelta(seconds=second))

    def offsets(self, local: int) -> tuple[int, int]:
        """The offsets that a local time may have: equal for nearly all of them.

        In a gap those before and after it, the second one larger; in a fold those of the first and the second pass,
        the second one smaller.
        """
        time = self._epoch + timedelta(seconds=local)
        before = time.utcoffset()
        behind = time.replace(fold=1).utcoffset()
        if before == behind:
            return (both := _seconds(before)), both
        return _seconds(before), _seconds(behind)

    def change(self, low: int, high: int, before: int) -> int:
        """The instant at which the offset ceases to be `before`, in (low, high]."""
        span = range(low, high)
        return low + bisect_right(span, 0, key=lambda second: _seconds(self.at(second).utcoffset()) != before)


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * 86_400 + offset.seconds


@cache
def _zone_list() -> tuple[str, ...]:
    from importlib.resources import files

    return tuple(sorted(files("tzdata").joinpath("zones").read_text(encoding="ascii").split()))


@cache
def _zone_set() -> frozenset[str]:
    return frozenset(_zone_list())


@cache  # bounded by the list: only names that stand in it come here
def _zone(name: str) -> _Zone:
    """A zone of the list, read from the package: never through a search path."""
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return _Zone(ZoneInfo.from_file(file, key=name))


def _unknown_zone(name: str) -> str:
    if len(name) > MAX_TIME_ZONE:
        return f"tz: {len(name)} characters; allowed are {MAX_TIME_ZONE}"
    same = [known for known in _zone_list() if known.lower() == name.lower()]
    tail = [known for known in _zone_list() if known.rpartition("/")[2].lower() == name.rpartition("/")[2].lower()]
    hint = f"; do you mean {(same or tail)[0]}?" if same or tail else ", which has names such as Europe/Berlin"
    return f"tz: {quoted(name)} is not a zone of tzdata {TZDATA_VERSION}{hint}"
