"""Specifications of tasks that differ from earlier ones in payload and key alone: those are not decoded again.

Producers send the same few kinds of tasks. `payload` is the first field of a `TaskSpec`, `key` comes a little later,
and the bytes around them say all the rest: kind, pool, tags, timeout, retries, deadlines. What was made of such bytes,
and has passed every check, is remembered by them. Decoding is merging (the Protobuf encoding specification, "Last One
Wins"), so they mean the same whatever payload and key are, unless there is another one of these among them: `learn`
looks.

What is looked at is the whole content of a call, the message in its frame. Contents of the same length with payloads of
the same length begin with the same bytes, so one comparison tells what is in there and where.
"""

from collections.abc import Callable
from dataclasses import replace

from google.protobuf.message import DecodeError

from cronoq_sansio.checks import check_key
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import MAX_RECALLED, MAX_RECALLED_SIZE, MESSAGE_HEADROOM
from cronoq_sansio.service.messages import Submit
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import TaskSpec
from cronoq_sansio.values import blank
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import PREFIX_SIZE, sole
from cronoq_sansio.wire.protobuf_bytes import LENGTH, MAX_INSIDE, VARINT, Only, tag

_task = Only(tag(1, LENGTH))  #: in `SubmitRequest`
_PAYLOAD, _KEY, _PRIORITY = tag(1, LENGTH), tag(6, LENGTH), tag(5, VARINT)
_TEXTS = frozenset((tag(2, LENGTH), tag(3, LENGTH), tag(4, LENGTH)))  #: before the key: content type, kind and pool

Opening = tuple[bytes, int, int]
"""How a content begins, and where the payload begins and ends that is in there."""
Known = tuple[LimitSettings, int, TaskSpec]
"""The limits whose checks a task has passed, the bytes of the largest request under them, and what was made of it."""
Decode = Callable[[bytes, LimitSettings], Submit | Rejection]


class Recall:
    """What was made of tasks, by their bytes without payload and key."""

    __slots__ = ("_decode", "_known", "_openings", "_seen")

    def __init__(self, decode: Decode) -> None:
        """`decode`: the long way, of a message."""
        self._decode = decode
        self._known: dict[bytes, Known] = {}
        self._seen: set[bytes] = set()
        """Those that came once: what comes once only need not be remembered."""
        self._openings: dict[int, Opening] = {}
        """Of the last content of each length."""

    def read(self, content: bytes, limits: LimitSettings) -> Submit | Rejection | None:
        """The request of a content that is one `SubmitRequest`, not compressed; None when it is anything else."""
        opening = self._openings.get(len(content))
        if opening is None or not content.startswith(opening[0]):
            opening = self._open(content)
        if opening is not None:
            _, start, end = opening
            found, key = self._known.get(content[end:]), ""
            if found is None:
                found, key = self._find(content, end, limits)
            received = len(content) - PREFIX_SIZE
            if found is not None and found[0] is limits and received <= found[1]:
                known = found[2]
                spec = blank(TaskSpec)
                spec.payload = content[start:end]
                spec.content_type = known.content_type
                spec.kind = known.kind
                spec.pool = known.pool
                spec.priority = known.priority
                spec.key = key
                spec.timeout = known.timeout
                spec.retry = known.retry
                spec.tags = known.tags
                spec.size = received
                spec.scheduling = known.scheduling
                submit = blank(Submit)
                submit.spec = spec
                submit.wait = False
                submit.wait_timeout = None
                return submit  # type: ignore[no-any-return]
        message = sole(content, limits.max_message_bytes)
        if message is None:
            return None
        request = self._decode(message, limits)
        if type(request) is Submit:
            self._learn(content, request.spec, limits)
        return request

    def _find(self, content: bytes, end: int, limits: LimitSettings) -> tuple[Known | None, str]:
        """What is known of a task with a key, and the key; `end`: of its payload."""
        at, text, after = _key(content, end)
        found = self._known.get(content[end:at] + content[after:]) if text else None
        if found is None:
            return None, ""
        try:
            key = content[text:after].decode()
        except UnicodeDecodeError:
            return None, ""
        if key and check_key("key", key, limits.max_key_len) is not None:
            return None, ""
        return found, key

    def _learn(self, content: bytes, spec: TaskSpec, limits: LimitSettings) -> None:
        """`spec` is what the whole way made of it."""
        opening = self._open(content)
        if opening is None:
            return
        end = opening[2]
        at, text, after = _key(content, end) if spec.key else (end, end, end)
        if not text or len(content) - after + at - end > MAX_RECALLED_SIZE:
            return
        rest = content[end:at] + content[after:]
        if rest not in self._seen:
            if len(self._seen) >= MAX_RECALLED:
                self._seen.clear()
            self._seen.add(rest)
        elif _is_constant(rest):
            if len(self._known) >= MAX_RECALLED:
                self._known.clear()
            largest = limits.max_message_bytes - MESSAGE_HEADROOM
            self._known[rest] = (limits, largest, replace(spec, payload=b"", key="", size=0))

    def _open(self, content: bytes) -> Opening | None:
        """Where the payload is, if it is the first field; None: the content is not such a request, or it is large."""
        message = sole(content, MAX_INSIDE)
        begin = 0 if message is None else _task.begins(message) + PREFIX_SIZE
        if begin <= PREFIX_SIZE:
            return None
        start, end = _payload(content, begin)
        if len(self._openings) >= MAX_RECALLED:
            self._openings.clear()
        # With the first byte behind it when there is no payload: that says so.
        opening = self._openings[len(content)] = content[: max(start, begin + 1)], start, end
        return opening


def _payload(content: bytes, begin: int) -> tuple[int, int]:
    """Where the payload of the task begins that begins there, if it is the first field, and where it ends.

    A damaged one counts as no payload: nothing that was learned begins like that.
    """
    whole = len(content)
    if whole < begin + 2 or content[begin] != _PAYLOAD:
        return begin, begin
    size, start = content[begin + 1], begin + 2
    if size >= 0x80:
        if whole == start or content[start] >= 0x80:
            return begin, begin
        size, start = size & 0x7F | content[start] << 7, start + 1
    end = start + size
    return (start, end) if end <= whole else (begin, begin)


def _key(content: bytes, at: int) -> tuple[int, int, int]:
    """Where its field begins, its text, and what follows; 0 for the text when it has no key, or not the usual way."""
    last = len(content) - 2
    while at < last:
        field, size = content[at], content[at + 1]
        if size >= 0x80:
            break
        if field == _KEY:
            after = at + 2 + size
            return (at, at + 2, after) if after <= last + 2 else (0, 0, 0)
        if field in _TEXTS:
            at += size + 2
        elif field == _PRIORITY:
            at += 2
        else:
            break
    return 0, 0, 0


def _is_constant(rest: bytes) -> bool:
    """No payload and no key are in there, which would count instead of those that come with it."""
    try:
        for probe in ("0", "1"):
            task = pb.TaskSpec(payload=probe.encode(), key=probe).SerializeToString() + rest
            merged = pb.TaskSpec.FromString(task)
            if merged.payload != probe.encode() or merged.key != probe:
                return False
    except DecodeError:
        return False
    return True
