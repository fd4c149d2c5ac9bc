"""From what a caller writes to a `TaskSpec` of the contract (client.md section 2, `task()`).

Types are checked here and strictly; ranges are the server's to check, except where a value could not be sent at all.
Nothing is read from a clock: relative times travel as they are.
"""

import math
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

from cronoq._client.dependencies import TaskRef, edges
from cronoq._client.payloads import encode_payload, text
from cronoq._client.results import number
from cronoq_sansio.clock import MICROSECOND, SECOND
from cronoq_sansio.wire import pb

When = int | float | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - the alias of 3.11 is the same
_MAX_NS = 2**63 - 1
_NO_DEPS: tuple[Any, ...] = ()
_MAX_UINT32 = 2**32 - 1
_PRIORITIES = ("critical", "high", "normal", "low")
_RETRY_FIELDS = {
    "max_attempts": "max_attempts",
    "initial_backoff": "initial_backoff_s",
    "multiplier": "multiplier",
    "max_backoff": "max_backoff_s",
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when something that failed is tried again. Times are seconds.

    For a task (`retry=`) it replaces the pool's policy; for calls (`Client(retry=)`) see there.
    """

    max_attempts: int = 3
    """Attempts in all, the first included."""
    initial_backoff: float = 1.0
    """Pause before the second attempt."""
    multiplier: float = 2.0
    """From one pause to the next; at least 1."""
    max_backoff: float = 60.0
    """Bound of the pause."""
    jitter: bool = True
    """Draw each pause from 0 .. pause."""

    def __post_init__(self) -> None:
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int):
            raise TypeError(f"max_attempts: an integer is needed, not {type(self.max_attempts).__name__}")
        for name in ("initial_backoff", "multiplier", "max_backoff"):
            if not math.isfinite(as_number(name, getattr(self, name))):
                raise ValueError(f"{name}: a finite number is needed")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: {self.max_attempts} is below 1")
        if self.initial_backoff < 0 or self.max_backoff < 0:
            raise ValueError("initial_backoff, max_backoff: a pause cannot be negative")
        if self.multiplier < 1:
            raise ValueError(f"multiplier: {self.multiplier} is below 1")

    @classmethod
    def none(cls) -> "RetryPolicy":
        """One attempt."""
        return cls(max_attempts=1)


def task(
    payload: Any = None,
    *,
    pool: str | None = None,
    kind: str | None = None,
    key: str | None = None,
    tenant: str | None = None,
    priority: str | int | None = None,
    deadline_in: float | None = None,
    deadline_at: When | None = None,
    start_in: float | None = None,
    start_at: When | None = None,
    tolerance: float | None = None,
    duration_hint: float | None = None,
    timeout: float | None = None,
    on_miss: str | None = None,
    retry: Any = None,
    after: TaskRef | Iterable[TaskRef] | None = None,
    deps: Iterable[Any] = _NO_DEPS,
    resources: Mapping[str, int] | None = None,
    tags: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    content_type: str | None = None,
) -> pb.TaskSpec:
    """Describe a task, for `submit_batch` and `add_recurring`; `submit` takes the same options.

    TypeError for a wrong type, ValueError for a value that cannot be sent; anything else is for the server to refuse.
    """
    spec = pb.TaskSpec()
    spec.payload, derived = encode_payload(payload)
    spec.content_type = derived if content_type is None else text("content_type", content_type)
    spec.priority = read_priority(priority)  # type: ignore[assignment]
    if pool is not None:
        spec.pool = text("pool", pool)
    if kind is not None:
        spec.kind = text("kind", kind)
    if key is not None:
        spec.key = text("key", key)
    if tenant is not None:
        spec.tenant = text("tenant", tenant)
    if deadline_in is not None or deadline_at is not None:
        _set_time(spec, "deadline", deadline_in, deadline_at)
    if start_in is not None or start_at is not None:
        _set_time(spec, "start", start_in, start_at)
    if tolerance is not None or duration_hint is not None or timeout is not None:
        _set_durations(spec, tolerance=tolerance, duration_hint=duration_hint, timeout=timeout)
    if on_miss is not None:
        spec.on_miss = _choice("on_miss", "MissPolicy", on_miss)  # type: ignore[assignment]
    if retry is not None:
        _set_retry(spec.retry, retry)
    if after is not None or deps is not _NO_DEPS:
        spec.deps.extend(edges(after, deps))
    if resources is not None:
        _set_units(spec.resources, "resources", resources)
    if tags is not None:
        _set_texts(spec.tags, "tags", tags)
    if labels is not None:
        _set_texts(spec.labels, "labels", labels)
    return spec


def own_spec(spec: object) -> pb.TaskSpec:
    """A `TaskSpec` of this module, or of generated stubs. TypeError for anything else."""
    if isinstance(spec, pb.TaskSpec):
        return spec
    descriptor = getattr(spec, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", "") == "cronoq.v1.TaskSpec":
        return pb.TaskSpec.FromString(spec.SerializeToString())  # type: ignore[attr-defined]
    raise TypeError(f"a task made by task() is needed, not {type(spec).__name__}")


def read_priority(priority: str | int | None) -> int:
    """`"high"` in any case, `Priority.HIGH`, or an index 0..3, critical first; None = normal."""
    if priority is None:
        return pb.PRIORITY_NORMAL
    if isinstance(priority, str):
        if priority.lower() not in _PRIORITIES:
            raise ValueError(f"priority: {priority!r} is not one of {', '.join(_PRIORITIES)}")
        return _PRIORITIES.index(priority.lower()) + 1
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority: a name, a Priority or an index is needed, not {type(priority).__name__}")
    if not 0 <= priority < len(_PRIORITIES):
        raise ValueError(f"priority: {priority} is not an index from 0 (critical) to 3 (low)")
    return int(priority) + 1


def unix_ns(name: str, when: When) -> int:
    """Nanoseconds of an absolute time: Unix seconds, or a `datetime` that knows its zone. Exact for both."""
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise ValueError(f"{name}: the datetime has no time zone; say which one, e.g. with .astimezone()")
        nanoseconds = (when - _EPOCH) // timedelta(microseconds=1) * MICROSECOND
    elif isinstance(when, bool) or not isinstance(when, (int, float)):
        raise TypeError(f"{name}: Unix seconds or a datetime are needed, not {type(when).__name__}")
    elif isinstance(when, int):
        nanoseconds = when * SECOND
    elif math.isfinite(when):
        nanoseconds = round(Fraction(when) * SECOND)
    else:
        raise ValueError(f"{name}: {when} is not a time")
    if not -_MAX_NS <= nanoseconds <= _MAX_NS:
        raise ValueError(f"{name}: {when} is outside of what can be sent (years 1677 to 2262)")
    return nanoseconds


def as_number(name: str, value: object) -> float:
    """A number that is no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: a number is needed, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: {value} is too large") from None


def overlap_number(overlap: str) -> int:
    """The number of an overlap policy."""
    return _choice("overlap", "Overlap", overlap)


def _set_durations(spec: pb.TaskSpec, **durations: float | None) -> None:
    for name, duration in durations.items():
        if duration is not None:
            setattr(spec, f"{name}_s", as_number(name, duration))


def _set_units(entries: MutableMapping[str, int], name: str, given: Mapping[str, int]) -> None:
    for key, units in _items(name, given):
        entries[text(name, key)] = _uint32(f"{name}[{key!r}]", units)


def _set_texts(entries: MutableMapping[str, str], name: str, given: Mapping[str, Any]) -> None:
    for key, value in _items(name, given):
        word = value if type(value) is str else str(value)
        entries[text(name, key)] = word if word.isascii() else text(f"{name}[{key!r}]", word)


def _items(name: str, given: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    if type(given) is not dict and not isinstance(given, Mapping):  # the check of an abstract class is slow
        raise TypeError(f"{name}: a mapping is needed, not {type(given).__name__}")
    return given.items()


def _uint32(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: an integer is needed, not {type(value).__name__}")
    if not 0 <= value <= _MAX_UINT32:
        raise ValueError(f"{name}: {value} is not from 0 to 2^32 - 1")
    return value


def _choice(name: str, enum: str, value: object) -> int:
    found = number(enum, text(name, value))
    if found is None:
        names = [entry.lower() for entry in getattr(pb, enum).keys()[1:]]
        prefix = getattr(pb, enum).keys()[0].removesuffix("UNSPECIFIED").lower()
        allowed = ", ".join(entry.removeprefix(prefix) for entry in names)
        raise ValueError(f"{name}: {value!r} is not one of {allowed}")
    return found


def _set_time(spec: pb.TaskSpec, name: str, relative: float | None, absolute: When | None) -> None:
    if relative is not None and absolute is not None:
        raise ValueError(f"{name}_in and {name}_at: only one of them may be given")
    if relative is not None:
        setattr(spec, f"{name}_in_s", as_number(f"{name}_in", relative))
    if absolute is not None:
        setattr(spec, f"{name}_unix_ns", unix_ns(f"{name}_at", absolute))


def _set_retry(message: pb.RetryPolicy, retry: object) -> None:
    """What is not given goes out as 0, which is the pool's value; so an explicit 0 cannot be meant."""
    fields = (*_RETRY_FIELDS, "jitter")
    if isinstance(retry, Mapping):
        unknown = sorted(str(name) for name in retry if name not in fields)
        if unknown:
            raise ValueError(f"retry: {', '.join(unknown)} unknown; there are {', '.join(fields)}")
        given = dict(retry)
    else:
        given = {name: getattr(retry, name) for name in fields if hasattr(retry, name)}
        if not given:
            raise TypeError(f"retry: a RetryPolicy or a mapping is needed, not {type(retry).__name__}")
    for name, field in _RETRY_FIELDS.items():
        value = given.get(name)
        if value is None:
            continue
        checked = _uint32(f"retry.{name}", value) if name == "max_attempts" else as_number(f"retry.{name}", value)
        if checked == 0:
            raise ValueError(f"retry.{name}: 0 cannot be sent, it means the pool's value; leave it out for that")
        setattr(message, field, checked)
    jitter = given.get("jitter", True)
    if not isinstance(jitter, bool):
        raise TypeError(f"retry.jitter: True or False is needed, not {type(jitter).__name__}")
    message.jitter = jitter
