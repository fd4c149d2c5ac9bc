"""The grammar of cron expressions: what each field may hold, and a sentence for everything else.

Five fields, or six with seconds first:

    seconds  minutes  hours  day of month  month    day of week
    0-59     0-59     0-23   1-31          1-12     0-7 (0 and 7 are Sunday)
                                           jan-dec  sun-sat

A field is a list of items with commas between them. An item is `*`, a value, a range `a-b`, or one of these with a
step `/n`; `a/n` counts from `a` to the highest value. Ranges may wrap (`22-2`, `fri-mon`), then without a step. `?` is
`*`, for the two fields of days. `L` among the days of the month is the last one. Among the days of the week `2#3` is
the third Tuesday of a month and `L5` its last Friday; a list may hold several of these, but no other days beside them.

When both fields of days are restricted, that is neither `*` nor `?`, a day counts that matches one of them.

What croniter reads differently from other programs is refused, with what to write instead: a range of one value
(`5-5`, which it takes for the whole field), steps over ranges that wrap, steps longer than the field, and a weekday of
the month beside a day of one. So are its extensions: random or hashed values, nicknames, years, nearest weekdays.
"""

import re

from cronoq_sansio.limits import MAX_CRON
from cronoq_sansio.values import value

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(r"(?:(?P<star>\*)|(?P<low>[a-z]+|\d+)(?:-(?P<high>[a-z]+|\d+))?)(?:/(?P<step>\d+))?", re.I)
_NTH = re.compile(r"(?P<day>[a-z]+|\d+)#(?P<nth>\d+)", re.I)
_LAST = re.compile(r"l(?P<day>\d+)", re.I)
_SHOWN = 32
"""Characters of an item that a fault quotes."""


@value
class _Field:
    """One field: its name in faults, its bounds, and names for its values."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    first_word: int = 0
    """The value of the first of `words`."""
    extra: str = ""
    """What it takes beside numbers, for faults."""

    @property
    def is_day(self) -> bool:
        """True for the two fields that take `?`."""
        return self.name.startswith("day")

    def number(self, text: str) -> int | None:
        """The value that a number or a name stands for, None for nothing that is allowed."""
        if text.lower() in self.words:
            return self.words.index(text.lower()) + self.first_word
        if not text.isdigit():
            return None
        number = int(text)
        return number if self.low <= number <= self.high else None

    def refuse(self, item: str, why: str = "is not allowed") -> str:
        """The fault of an item."""
        allowed = f"allowed are {self.low} to {self.high}{self.extra}, `*`, ranges like {self.low}-{self.low + 2}"
        return f"cron: {self.name}: {quoted(item)} {why}; {allowed}, steps like */2, and lists with commas"


_DAY_OF_MONTH = _Field("day of month", 1, 31, extra=", `L` (the last day), `?`")
_DAY_OF_WEEK = _Field("day of week", 0, 7, _WEEKDAYS, 0, " (0 and 7 are Sunday), sun to sat, `2#3`, `L5`, `?`")
_FIELDS = (
    _Field("seconds", 0, 59),
    _Field("minutes", 0, 59),
    _Field("hours", 0, 23),
    _DAY_OF_MONTH,
    _Field("month", 1, 12, _MONTHS, 1, ", jan to dec"),
    _DAY_OF_WEEK,
)


def quoted(text: str) -> str:
    """A piece of the input in quotes, cut when it is long."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def split(cron: str) -> tuple[str, ...] | str:
    """The five or six fields of an expression, in lower case, each of them well formed; or what is wrong.

    A fault begins with `cron: `, names the field, and says what is allowed.
    """
    if len(cron) > MAX_CRON:
        return f"cron: {len(cron)} characters; allowed are {MAX_CRON}"
    if odd := next((character for character in cron if not " " <= character <= "~" and character != "\t"), None):
        return f"cron: the character U+{ord(odd):04X} is not allowed; allowed are ASCII letters, digits and * , - / ? #"
    fields = tuple(cron.split())
    if fields and fields[0].startswith("@"):
        return f"cron: {quoted(fields[0])} is a nickname; allowed are fields, such as `0 0 * * *` for every midnight"
    if len(fields) not in (5, 6):
        count = "it is empty" if not fields else f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
        return (
            f"cron: {count}; allowed are 5 (minutes, hours, day of month, month, day of week), or 6 with seconds first"
        )
    for field, text in zip(_FIELDS[-len(fields) :], fields, strict=True):
        if fault := _fault(field, text):
            return fault
    return tuple(text.lower() for text in fields)


def _fault(field: _Field, text: str) -> str:
    """What is wrong with a field, empty for nothing."""
    if field.is_day and text == "?":
        return ""
    items = text.split(",")
    for item in items:
        if not item:
            return field.refuse(text, "has an empty item")
        if field is _DAY_OF_WEEK and _of_month(item):
            fault = _weekday_of_month(item)
        elif field is _DAY_OF_MONTH and item in ("L", "l"):
            fault = ""
        else:
            fault = _plain(field, item)
        if fault:
            return fault
    special = [item for item in items if field is _DAY_OF_WEEK and _of_month(item)]
    if special and len(special) < len(items):
        return f"cron: {field.name}: {quoted(text)} mixes days of every week with days of a month such as {special[0]}"
    return ""


def _of_month(item: str) -> re.Match[str] | None:
    """`2#3` or `L5`."""
    return _NTH.fullmatch(item) or _LAST.fullmatch(item)


def _weekday_of_month(item: str) -> str:
    """The fault of such an item."""
    found = _of_month(item)
    groups = found.groupdict() if found else {}
    if _DAY_OF_WEEK.number(groups["day"]) is None:
        return _DAY_OF_WEEK.refuse(item)
    nth = groups.get("nth")
    if nth is not None and not (len(nth) == 1 and "1" <= nth <= "5"):
        return f"cron: {_DAY_OF_WEEK.name}: {quoted(item)}: a weekday comes 1 to 5 times in a month"
    return ""


def _plain(field: _Field, item: str) -> str:
    """The fault of `*`, a value, a range or a step."""
    found = _ITEM.fullmatch(item)
    if found is None:
        return field.refuse(item)
    low, high, step = found["low"], found["high"], found["step"]
    numbers = [field.number(text) for text in (low, high) if text is not None]
    if None in numbers:
        return field.refuse(item)
    values = field.high - field.low + (field is not _DAY_OF_WEEK)  # 7 is a second name for Sunday
    if step is not None and not 1 <= int(step) <= values:
        return f"cron: {field.name}: {quoted(item)}: the step must be 1 to {values}"
    if high is None:
        return ""
    first, last = (number or 0 for number in numbers)
    if first == last or (field is _DAY_OF_WEEK and (first, last) == (7, 0)):
        return f"cron: {field.name}: {quoted(item)} is a range of one value; write {low}"
    if first > last and step is not None:
        return f"cron: {field.name}: {quoted(item)}: a range that wraps takes no step; list its values"
    return ""
