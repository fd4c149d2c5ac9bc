"""Checks of single values against the fixed and the configured limits (server.md section 1, `[limits]`).

Requests are held to them, and so is what the configuration file says of tasks. Each returns a `Rejection` that names
the field and what is allowed, or None when the value is fine. Lengths count bytes of UTF-8.
"""

import re
from collections.abc import Iterable, Sequence

from cronoq_sansio.clock import MAX_CLIENT_DURATION, ns, seconds
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_RESOURCE_NAME, MAX_SEARCHED_NAME
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import RESERVED_TAGS

_MAX_SECONDS = seconds(MAX_CLIENT_DURATION)
_OCCURRENCE_KEY = re.compile(r"@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
OCCURRENCE_KEY_LENGTH = len("@2027-03-14T07:00:00Z")  #: what an occurrence's key has more than the template's


def invalid(message: str) -> Rejection:
    """A malformed request."""
    return Rejection(Code.INVALID, message)


def undecodable(name: str) -> Rejection:
    """Bytes that are no message `name`."""
    return invalid(f"the message is not a valid cronoq.v1.{name} (damaged, or text that is not UTF-8)")


def check_text(field: str, value: str, limit: int) -> Rejection | None:
    """At most `limit` bytes, no NUL."""
    if not value:
        return None
    size = len(value) if value.isascii() else len(value.encode())
    if size > limit:
        return invalid(f"{field}: {size} bytes, at most {limit} are allowed")
    if "\0" in value:
        return invalid(f"{field}: contains a NUL character")
    return None


def check_key(field: str, value: str, limit: int) -> Rejection | None:
    """A key that a caller may give a new task: also not of the form that recurring tasks use."""
    fault = check_text(field, value, limit)
    if fault is None and value.endswith("Z") and _OCCURRENCE_KEY.search(value):
        return invalid(f"{field}: keys that end in @YYYY-MM-DDTHH:MM:SSZ are reserved for recurring tasks")
    return fault


def check_key_prefix(field: str, value: str, limit: int) -> Rejection | None:
    """The key of a schedule's template: `limit` holds for the keys of the occurrences, which are longer."""
    longest = max(limit - OCCURRENCE_KEY_LENGTH, 0)
    fault = check_text(field, value, longest)
    if fault is not None and len(value.encode()) > longest:
        rest = f"limits.max_key_len less {OCCURRENCE_KEY_LENGTH} for the time of the occurrence"
        return invalid(f"{fault.message} ({rest})")
    return fault or check_key(field, value, limit)


def check_pairs(
    field: str, pairs: Iterable[tuple[str, str]], count: int, max_pairs: int, limit: int
) -> Rejection | None:
    """Tags or labels: how many, and the length of each name and value."""
    if count > max_pairs:
        return invalid(f"{field}: {count} entries, at most {max_pairs} are allowed (limits.max_tags)")
    for name, value in pairs:
        fault = check_text(f"{field}: a name", name, limit) or check_text(f"{field}[{name!r}]", value, limit)
        if fault is not None:
            return fault
    return None


def check_tags(pairs: Sequence[tuple[str, str]], limits: LimitSettings) -> Rejection | None:
    """Tags that a caller may give a task."""
    for name, _ in pairs:
        if name.startswith(RESERVED_TAGS):
            return invalid(f"tags: names that begin with {RESERVED_TAGS!r} are reserved")
    return check_pairs("tags", pairs, len(pairs), limits.max_tags, limits.max_tag_len)


def check_labels(pairs: Sequence[tuple[str, str]], limits: LimitSettings) -> Rejection | None:
    """Labels, sorted by name, that a worker has or that a task asks for: an empty name is none."""
    fault = check_pairs("labels", pairs, len(pairs), limits.max_tags, limits.max_tag_len)
    if fault is None and pairs and not pairs[0][0]:
        return invalid("labels: a name is empty")
    return fault


def check_resources(resources: tuple[tuple[str, int], ...], limits: LimitSettings) -> Rejection | None:
    """Resources that a task asks for, sorted by name, so an empty one comes first."""
    count, most = len(resources), limits.max_resources
    if count > most:
        return invalid(f"resources: {count} entries, at most {most} are allowed (limits.max_resources)")
    if not resources[0][0]:
        return invalid("resources: a name is empty")
    for name, units in resources:
        fault = check_text("resources: a name", name, MAX_RESOURCE_NAME)
        if fault is not None:
            return fault
        if not units:
            return invalid(f"resources[{name!r}]: found 0 units; allowed is at least 1")
    return None


def duration(field: str, value: float) -> int | Rejection:
    """Seconds of the wire as nanoseconds; finite and within 0 .. 100 years."""
    if 0 <= value <= _MAX_SECONDS:  # false for NaN
        return ns(value)
    return invalid(f"{field}: {value} is not a number of seconds from 0 to {_MAX_SECONDS:.0f}")


def unix_time(field: str, value: int) -> int | Rejection:
    """Nanoseconds since 1970; 0 or later. The wire's type is the upper bound."""
    return value if value >= 0 else invalid(f"{field}: found {value}; allowed are nanoseconds since 1970, 0 or more")


def cut_text(text: str, limit: int) -> str:
    """Worker messages: NUL becomes U+FFFD, the rest is cut to `limit` bytes on a character."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode()
    return text if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore")


def clean_name(name: str, limit: int) -> str:
    """Worker names: control characters are dropped, the rest is cut to `limit` characters, a thousand at most."""
    searched = name[:MAX_SEARCHED_NAME]
    return "".join(character for character in searched if not _is_control(ord(character)))[:limit]


def _is_control(point: int) -> bool:
    """C0, DEL and C1 (Unicode category Cc)."""
    return point < 0x20 or 0x7F <= point < 0xA0
