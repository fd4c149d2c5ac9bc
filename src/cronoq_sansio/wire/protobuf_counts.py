"""How many entries a message has, before it is parsed: a parse makes an object of each, and loops follow.

A few kilobytes of gzip may be sixteen megabytes of `0a 00`: a batch of eight million tasks, which takes seconds and
gigabytes to parse, only to be refused for their number. So the tags of a large message are walked first, as far as the
limits allow entries and no further. The tables below say what is counted. Everything that a client may send and that
may be there more than once is in them:

- `SubmitBatchRequest.tasks`: `limits.max_tasks_per_batch`, and as many as the largest answer has room for.
- `TaskSpec.deps`: `limits.max_deps`, of a batch `MAX_BATCH_EDGES` in all; `resources`: `limits.max_resources`; `tags`
  and `labels`: `limits.max_tags`. In a batch, in a Submit and in the template of a schedule. Names of a map that come
  twice count twice: nobody sends that.
- `ListTasksRequest.pools` and `WatchRequest.pools`: `limits.max_tasks_per_batch`, as `[limits]` says; `statuses`:
  `MAX_STATUSES`, for there are twelve; `WatchRequest.ids` and `keys`: `limits.max_tasks_per_batch` together.
- `Register.labels`: `limits.max_tags`.
- All other fields may be given once, or are unknown. The last one counts, and messages are merged, so they may come
  again and again: `MAX_OTHER_FIELDS` in all, and some for each entry that is counted.

Honest messages pay little. Those up to `MAX_UNCOUNTED` bytes are not looked at: they have no room for many entries. Nor
is what is left of a larger one, nor a message within it that is short. A batch of short members, or a task of a few
kilobytes, that has not even the bytes with which too many entries would begin is settled by one look at all of them, in
C. Whatever has a length is skipped, so payloads cost nothing. The rest is a step for each entry, which costs a tenth of
what becomes of it later, and never more steps than the limits allow entries.

The walk may take for good what the parser refuses, never the other way round: bytes that it cannot follow are damaged,
and the parser stops there as well and says so. Counts are in the words of the checks after the parse, which hold for
what is small; but how many there are in all, nobody knows here.
"""

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from cronoq_sansio.checks import invalid, undecodable
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import (
    MAX_BATCH_EDGES,
    MAX_COSTLY_BYTES,
    MAX_OTHER_FIELDS,
    MAX_STATUSES,
    MAX_UNCOUNTED,
    MAX_UNCOUNTED_INSIDE,
    MAX_UNCOUNTED_MEMBER,
    MAX_UNCOUNTED_TASK,
    MESSAGE_HEADROOM,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.values import value
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_bytes import LENGTH, VARINT, tag

BATCH_ENTRY_BYTES = 16  #: what the answer to a batch takes per member, at most: id, duplicate, tags and lengths
_FIXED = {1: 8, 3: 0, 4: 0, 5: 4}  #: bytes of a field behind its tag, by wire type; groups begin and end with a tag
_NESTED = {3: 1, 4: -1}  #: by wire type: where groups begin and end
_MAX_VARINT = 10  #: bytes; the Protobuf encoding specification
_HIGH = bytes(range(0x80, 0x100))  #: bytes of a varint that are not its last one

M = TypeVar("M", bound=Message)


@value
class Entries:
    """A field that is counted, or a message to look into."""

    name: str
    """As refusals have it; fields with the same one are counted together. Empty: may be there once."""
    setting: str = ""
    """Of `[limits]`, which bounds it; empty = `MAX_STATUSES`."""
    inside: "Table | None" = None
    """Of the message that an entry is; None = it is none."""
    path: str = ""
    """What stands before the fields of that message, with its number for `{}`."""
    free: int = MAX_UNCOUNTED_INSIDE
    """Bytes of such a message that are not looked at."""
    fields: int = 4
    """By how many fields that are not counted each entry may have more of them in the message."""
    packed: bool = False
    """An entry with a length is any number of varints."""


Table = dict[int, Entries]
"""By tag: what of a message is counted. Other fields may be there once, or are unknown."""
Left = dict[str, Any]
"""By name: how many entries may still come. By path: the same of a message that may be merged with the next one."""


def _inside(number: int, table: Table, path: str, free: int = MAX_UNCOUNTED_INSIDE) -> Table:
    """A message that may be there once."""
    return {tag(number, LENGTH): Entries("", "", table, path, free)}


def _map(number: int, name: str, setting: str) -> Table:
    return {tag(number, LENGTH): Entries(name, setting, {}, f"{name}: entry {{}}: ")}


def _numbers(number: int, name: str, setting: str) -> Table:
    entries = Entries(name, setting, packed=True)
    return {tag(number, LENGTH): entries, tag(number, VARINT): entries}


_BATCH_LIMIT = "max_tasks_per_batch"
_REF: Table = {}
_DEP = _inside(1, _REF, "target.")
_TASK: Table = (
    _inside(15, {}, "retry.")
    | {tag(16, LENGTH): Entries("deps", "max_deps", _DEP, "deps[{}].")}
    | _map(17, "resources", "max_resources")
    | _map(18, "tags", "max_tags")
    | _map(19, "labels", "max_tags")
)
_MEMBER = Entries("tasks", _BATCH_LIMIT, _TASK, "task[{}].", MAX_UNCOUNTED_TASK, 32)
_BATCH: Table = {tag(1, LENGTH): _MEMBER}
_DEPS = _TASK[tag(16, LENGTH)]
_MEMBER_BEGIN = _PAYLOAD_BEGIN = tag(1, LENGTH)  #: a task in a batch, and the payload of a task
_DEPS_BEGIN, _RESOURCES_BEGIN, _TAGS_BEGIN, _LABELS_BEGIN = (bytes((tag(number, LENGTH),)) for number in range(16, 20))
"""The first byte of their tags, however many zeros a tag has at its end."""
_COSTLY = bytes((_MEMBER_BEGIN,)) + _DEPS_BEGIN + _RESOURCES_BEGIN + _TAGS_BEGIN + _LABELS_BEGIN
_HARMLESS = bytes(set(range(0x100)) - set(_COSTLY))  #: bytes with which no entry of a batch begins that costs much
_POOLS: Table = {tag(1, LENGTH): Entries("pools", _BATCH_LIMIT)}

TABLES: dict[type[Message], Table] = {
    pb.SubmitRequest: _inside(1, _TASK, "", MAX_UNCOUNTED_TASK),
    pb.SubmitBatchRequest: _BATCH,
    pb.CancelRequest: _inside(1, _REF, "task."),
    pb.GetRequest: _inside(1, _REF, "task."),
    pb.WaitRequest: _inside(1, _REF, "task."),
    pb.ListTasksRequest: _POOLS | _numbers(2, "statuses", ""),
    pb.WatchRequest: _POOLS
    | _numbers(2, "ids and keys", _BATCH_LIMIT)
    | {tag(3, LENGTH): Entries("ids and keys", _BATCH_LIMIT)},
    pb.WorkerMessage: _inside(1, _map(5, "labels", "max_tags"), "register.")
    | _inside(2, {}, "heartbeat.")
    | _inside(3, {}, "complete.")
    | _inside(4, {}, "fail.")
    | _inside(5, {}, "set_slots.")
    | _inside(6, {}, "nack.")
    | _inside(7, {}, "cancelled."),
    pb.RecurringRequest: _inside(4, _TASK, "template.", MAX_UNCOUNTED_TASK),
    pb.RemoveRecurringRequest: {},
    pb.Empty: {},
}
"""Of all messages that a client may send."""


def parse(kind: type[M], data: bytes, limits: LimitSettings) -> M | Rejection:
    """The message that a client has sent; `kind` is one of `TABLES`."""
    if len(data) > MAX_UNCOUNTED:
        fault = check_counts(kind, data, limits)
        if fault is not None:
            return fault
    try:
        return kind.FromString(data)
    except DecodeError as fault:
        if "alloc" not in str(fault):  # the parser in C has no other way to say it
            return undecodable(kind.DESCRIPTOR.name)
    except MemoryError:
        pass
    return Rejection(Code.OVERLOADED, "the server lacks the memory to read the message; try again later")


def check_counts(kind: type[Message], data: bytes, limits: LimitSettings) -> Rejection | None:
    """Why a message has more entries than it may have; None: as far as can be told cheaply, it has not."""
    batch = kind is pb.SubmitBatchRequest
    walk = _Walk(data, limits, batch)
    try:
        if batch:
            return walk.batch()
        return walk.level(0, len(data), TABLES[kind], {}, MAX_UNCOUNTED)
    except IndexError:  # it ends within a field
        return None


def answered(limits: LimitSettings) -> int:
    """Members of a batch whose answer is no larger than a message may be."""
    return (limits.max_message_bytes - MESSAGE_HEADROOM) // BATCH_ENTRY_BYTES


def of_member(rejection: Rejection, index: int) -> Rejection:
    """A fault of a task in a batch, also in the metadata `cronoq-batch-index`."""
    names_a_field = rejection.code is not Code.TOO_LARGE
    message = f"task[{index}]{'.' if names_a_field else ': '}{rejection.message}"
    return Rejection(rejection.code, message, (("cronoq-batch-index", str(index)),))


class _Walk:
    """Along the tags of one message."""

    __slots__ = ("_batch", "_data", "_edges", "_limits", "_others")

    def __init__(self, data: bytes, limits: LimitSettings, batch: bool) -> None:
        self._data = data
        self._limits = limits
        self._batch = batch
        self._edges = MAX_BATCH_EDGES
        """Dependencies that a batch may still have."""
        self._others = MAX_OTHER_FIELDS
        """Fields that may still come without being counted each for itself."""

    def batch(self) -> Rejection | None:
        """A batch: what `level` does, in fewer steps for members that are short, or long for their payload only."""
        data, at, end = self._data, 0, len(self._data)
        most = room = self._most(_MEMBER)
        if end <= most * MAX_UNCOUNTED_MEMBER and len(data.translate(None, _HARMLESS)) <= most * MAX_COSTLY_BYTES:
            return None
        last, free = end - MAX_UNCOUNTED, MAX_UNCOUNTED_TASK
        while at < last and room and data[at] == _MEMBER_BEGIN:
            size, more = data[at + 1], data[at + 2]
            at += 2
            if size >= 0x80:
                size, at = (size + ((more - 1) << 7), at + 1) if more < 0x80 else _varint(data, at - 1)
                if size > free:
                    rest = size
                    if data[at] == _PAYLOAD_BEGIN:
                        long, more = data[at + 1], data[at + 2]
                        rest -= long + ((more - 1) << 7) if more < 0x80 <= long else _varint(data, at + 1)[0]
                    if rest > free:
                        self._others += _MEMBER.fields
                        fault = self._look(_MEMBER, _TASK, at, min(at + size, end), {}, room)
                        if fault is not None:
                            return fault
            at += size
            room -= 1
        return self.level(at, end, _BATCH, {_MEMBER.name: room}, MAX_UNCOUNTED)

    def level(self, at: int, end: int, table: Table, left: Left, free: int) -> Rejection | None:
        """One message, from `at` to `end` but for the last `free` bytes. Raises `IndexError` when it is damaged."""
        data, groups = self._data, 0
        while end - at > free:
            field, size, head = data[at], data[at + 1], 2
            if field >= 0x80 and size == 1:  # fields 16 to 31: the number is the same
                size, head = data[at + 2], 3
            if field & 7 == LENGTH and (field < 0x80 or head == 3):
                at += head
                if size >= 0x80:
                    more = data[at]
                    size, at = (size + ((more - 1) << 7), at + 1) if more < 0x80 else _varint(data, at - 1)
            else:
                field, size, at = _head(data, at)
                groups += _NESTED.get(field & 7, 0)
            entries = None if groups else table.get(field)  # what is in a group is unknown
            if entries is not None and entries.name:
                room = left.get(entries.name, -1)
                if room < 0:
                    room = self._most(entries)
                taken = _varints(data, at, size, room) if entries.packed and field & 7 == LENGTH else 1
                if taken > room:
                    return self._too_many(entries)
                left[entries.name] = room - taken
                self._others += entries.fields
            else:
                room = 0
                self._others -= 1
                if self._others < 0:
                    return _too_many_others(field >> 3)
            if entries is not None and entries.inside is not None and (size > entries.free or not entries.name):
                fault = self._look(entries, entries.inside, at, min(at + size, end), left, room)
                if fault is not None:
                    return fault
            at += size
        return None

    def _look(self, entries: Entries, table: Table, at: int, end: int, left: Left, room: int) -> Rejection | None:
        """At a message within the message. `room`: how many of them might come, this one included."""
        inner: Left = {}
        first, free = True, entries.free
        if not entries.name:  # the next one is merged with it: they are counted together
            first = entries.path not in left
            inner = left.setdefault(entries.path, inner)
        if not first:
            free = 0
        elif end - at <= free or (table is _TASK and self._has_few(at, end)):
            return None
        before = inner.get("deps", -1)
        fault = self.level(at, end, table, inner, free)
        if fault is None:
            if "deps" in inner:
                self._edges -= (before if before >= 0 else self._most(_DEPS)) - inner["deps"]
            return None
        number = self._most(entries) - room if entries.name else 0
        if entries is _MEMBER:
            return of_member(fault, number)
        return Rejection(fault.code, entries.path.format(number) + fault.message)

    def _has_few(self, at: int, end: int) -> bool:
        """Whether a task is short, and has not even the bytes with which too many entries would begin."""
        count, limits = self._data.count, self._limits
        return (
            end - at <= MAX_UNCOUNTED
            and count(_DEPS_BEGIN, at, end) <= limits.max_deps
            and count(_RESOURCES_BEGIN, at, end) <= limits.max_resources
            and count(_TAGS_BEGIN, at, end) <= limits.max_tags
            and count(_LABELS_BEGIN, at, end) <= limits.max_tags
        )

    def _most(self, entries: Entries) -> int:
        """How many there may be in a message."""
        if not entries.setting:
            return MAX_STATUSES
        most: int = getattr(self._limits, entries.setting)
        if entries is _MEMBER:
            return min(most, answered(self._limits))
        return min(most, self._edges) if entries is _DEPS and self._batch else most

    def _too_many(self, entries: Entries) -> Rejection:
        most = self._most(entries)
        what = "members" if entries is _MEMBER else "entries"
        by = f" (limits.{entries.setting})" if entries.setting else ""
        if entries is _MEMBER and most < self._limits.max_tasks_per_batch:
            return invalid(f"tasks: more than {most} members, the answer to these is above max_message_bytes")
        if entries is _DEPS and most < self._limits.max_deps:
            return invalid(f"deps: the batch has more than {MAX_BATCH_EDGES} dependencies up to here; split it")
        return invalid(f"{entries.name}: more than {most} {what}, at most {most} are allowed{by}")


def _too_many_others(number: int) -> Rejection:
    allowed = f"at most {MAX_OTHER_FIELDS} fields of a message may be unknown, or come again and replace others"
    return invalid(f"field {number}: {allowed}")


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """Of the field that begins there: its tag, its size, and where its content begins.

    Of what has no length the size is 0, and the content begins behind it. What no parser takes raises `IndexError`.
    """
    field, at = _varint(data, at)
    kind = field & 7
    if kind == LENGTH:
        return field, *_varint(data, at)
    if kind == VARINT:
        return field, 0, _varint(data, at)[1]
    if kind not in _FIXED:
        raise IndexError
    return field, 0, at + _FIXED[kind]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and what follows it."""
    number = shift = 0
    for byte in data[at : at + _MAX_VARINT]:
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    raise IndexError


def _varints(data: bytes, at: int, size: int, room: int) -> int:
    """How many numbers are packed there, at least 1; when they are more than `room`, any number above it."""
    if size > room * _MAX_VARINT:
        return room + 1
    return max(len(data[at : at + size].translate(None, _HIGH)), 1)
