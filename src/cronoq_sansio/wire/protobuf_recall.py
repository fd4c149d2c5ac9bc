"""Specifications of tasks that differ from earlier ones in their payload alone: those are not decoded again.

Producers send the same few kinds of tasks. `payload` is the first field of a `TaskSpec`, and what serializers write
after it says all the rest: kind, pool, tags, timeout, retries, deadlines. What was made of such bytes, and has passed
every check, is remembered by them. Decoding is merging (the Protobuf encoding specification, "Last One Wins"), so the
bytes after the payload mean the same whatever it is, unless there is another payload among them: `learn` looks.

A key is another one for each task; tasks that have one are not remembered.
"""

from dataclasses import replace

from google.protobuf.message import DecodeError

from cronoq_sansio.limits import MAX_TEXTS, MAX_TEXTS_SIZE, MESSAGE_HEADROOM
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import TaskSpec
from cronoq_sansio.wire import protobuf_views
from cronoq_sansio.wire.protobuf_bytes import LENGTH, tag

_PAYLOAD = tag(1, LENGTH)
_PROBE = bytes((_PAYLOAD, 1))  #: begins a payload of one byte


class Recall:
    """What was made of the bytes after the payload."""

    __slots__ = ("_known", "_seen")

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[LimitSettings, int, TaskSpec]] = {}
        """With the limits whose checks it has passed, and the bytes of the largest request under them."""
        self._seen: set[bytes] = set()
        """Those that came once: what comes once only need not be remembered."""

    def find(self, request: bytes, begin: int, limits: LimitSettings) -> TaskSpec | None:
        """The specification of the encoded `TaskSpec` with which a request ends; None when it is not remembered."""
        start, end = _payload(request, begin)
        found = self._known.get(request[end:])
        received = len(request)
        if found is None or found[0] is not limits or received > found[1]:
            return None
        known = found[2]
        return TaskSpec(
            request[start:end],
            known.content_type,
            known.kind,
            known.pool,
            known.priority,
            "",
            known.timeout,
            known.retry,
            known.tags,
            received,
            known.scheduling,
        )

    def learn(self, request: bytes, begin: int, spec: TaskSpec, limits: LimitSettings) -> None:
        """`spec` is what the whole way made of it."""
        if spec.key:
            return
        rest = request[_payload(request, begin)[1] :]
        if len(rest) > MAX_TEXTS_SIZE:
            return
        if rest not in self._seen:
            if len(self._seen) >= MAX_TEXTS:
                self._seen.clear()
            self._seen.add(rest)
        elif not _has_payload(rest):
            if len(self._known) >= MAX_TEXTS:
                self._known.clear()
            self._known[rest] = (limits, limits.max_message_bytes - MESSAGE_HEADROOM, _without_payload(spec))


def _payload(request: bytes, begin: int) -> tuple[int, int]:
    """Where the payload begins, if it is the first field, and where it ends.

    A payload of 16 KiB or more, or a damaged one, counts as no payload: nothing that was learned begins like that.
    """
    whole = len(request)
    if whole < begin + 2 or request[begin] != _PAYLOAD:
        return begin, begin
    size, start = request[begin + 1], begin + 2
    if size >= 0x80:
        if whole == start or request[start] >= 0x80:
            return begin, begin
        size, start = size & 0x7F | request[start] << 7, start + 1
    end = start + size
    return (start, end) if end <= whole else (begin, begin)


def _has_payload(rest: bytes) -> bool:
    """A payload is there that would count instead of the first one, whatever it is."""
    try:
        return any(protobuf_views.Task.FromString(_PROBE + probe + rest).payload != probe for probe in (b"0", b"1"))
    except DecodeError:
        return True


def _without_payload(spec: TaskSpec) -> TaskSpec:
    return replace(spec, payload=b"", size=0)
