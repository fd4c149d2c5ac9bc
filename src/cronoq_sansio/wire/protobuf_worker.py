"""The messages of a worker stream: `WorkerMessage` -> the service's words; leases and its words -> `ServerMessage`.

Both run once per lease or more, so each is one parse or one build of a message.
"""

from collections.abc import Callable

from google.protobuf.message import DecodeError

from cronoq_sansio.checks import check_labels, check_text, clean_name, cut_text, duration, undecodable
from cronoq_sansio.clock import seconds
from cronoq_sansio.engine.task import Lease
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import (
    MAX_CONTENT_TYPE,
    MAX_POOL_NAME,
    MAX_RECALLED,
    MAX_RECALLED_SIZE,
    MAX_WORKER_MESSAGE,
    MAX_WORKER_NAME,
    PROTOCOL_VERSION,
)
from cronoq_sansio.service.messages import (
    AbortLease,
    AttemptAborted,
    Complete,
    EmptyMessage,
    Fail,
    FromWorker,
    Heartbeat,
    Nack,
    Register,
    Registered,
    SetSlots,
    ToWorker,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import DEFAULT_POOL, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_bytes import LENGTH, MORE, REST, SHORT, VARINT, Only, tag, varint
from cronoq_sansio.wire.protobuf_counts import parse

_EMPTY = EmptyMessage()
_complete_alone = Only(tag(3, LENGTH))  #: in `WorkerMessage`
_LEASE = bytes((tag(2, LENGTH),))  #: in `ServerMessage`; the following ones in `Lease`
_LEASE_ID = bytes((tag(1, VARINT),))
_TASK_ID = bytes((tag(2, VARINT),))
_ATTEMPT = bytes((tag(3, VARINT),))
_PAYLOAD = bytes((tag(4, LENGTH),))
_KEY = bytes((tag(7, LENGTH),))


def decode_worker(data: bytes, limits: LimitSettings) -> FromWorker | Rejection:
    """One `WorkerMessage`. An empty oneof, or one with a member that is new to us, is an `EmptyMessage`."""
    begin = _complete_alone.begins(data)
    if begin:
        try:
            return _completed(pb.Complete.FromString(data[begin:]))  # at most `MAX_INSIDE` bytes
        except DecodeError:
            return undecodable("WorkerMessage")
    message = parse(pb.WorkerMessage, data, limits)
    if isinstance(message, Rejection):
        return message
    which = message.WhichOneof("msg")
    if which is None:
        return _EMPTY
    return _DECODERS[which](message, limits)


def _complete(message: pb.WorkerMessage, limits: LimitSettings) -> Complete:
    return _completed(message.complete)


def _completed(complete: pb.Complete) -> Complete:
    """A content type that is too long or has a NUL is dropped: the output is worth more than its label."""
    content_type = complete.content_type
    if content_type and check_text("content_type", content_type, MAX_CONTENT_TYPE) is not None:
        content_type = ""
    return Complete(complete.lease, complete.output, content_type)


def _fail(message: pb.WorkerMessage, limits: LimitSettings) -> Fail:
    """A `retry_after_s` that is no duration is ignored (server.md section 4)."""
    fail = message.fail
    retry_after: int | Rejection = 0
    if fail.HasField("retry_after_s"):
        retry_after = duration("retry_after_s", fail.retry_after_s)
    if isinstance(retry_after, Rejection):
        retry_after = 0
    return Fail(fail.lease, cut_text(fail.message, _message_limit(limits)), fail.permanent, retry_after)


def _nack(message: pb.WorkerMessage, limits: LimitSettings) -> Nack:
    return Nack(message.nack.lease, cut_text(message.nack.reason, _message_limit(limits)))


def _message_limit(limits: LimitSettings) -> int:
    return min(MAX_WORKER_MESSAGE, limits.max_message_bytes // 4)


def _register(message: pb.WorkerMessage, limits: LimitSettings) -> Register | Rejection:
    """The checks of server.md section 4 that need no state. The version comes first; the service judges it."""
    register = message.register
    version = register.protocol_version or 1  # 0 counts as 1
    labels = tuple(sorted(register.labels.items()))
    if version >= PROTOCOL_VERSION:
        fault = check_text("pool", register.pool, MAX_POOL_NAME) or check_labels(labels, limits)
        if fault is not None:
            return fault
    name = clean_name(register.worker_name, MAX_WORKER_NAME)
    return Register(register.pool or DEFAULT_POOL, register.slots, name, version, labels)


_DECODERS: dict[str, Callable[[pb.WorkerMessage, LimitSettings], FromWorker | Rejection]] = {
    "register": _register,
    "heartbeat": lambda message, limits: Heartbeat(message.heartbeat.lease),
    "complete": _complete,
    "fail": _fail,
    "set_slots": lambda message, limits: SetSlots(message.set_slots.slots),
    "nack": _nack,
    "cancelled": lambda message, limits: AttemptAborted(message.cancelled.lease),
}


def encode_for_worker(message: ToWorker | Lease) -> bytes:
    """One `ServerMessage`. In that of a lease everything is set that the task has.

    A lease's numbers, payload and key are written here; what it has in common with the leases of other tasks is
    remembered. Fields need not be in the order of their numbers. What `varint` does is done here where it is short.
    """
    if type(message) is not Lease:
        return _encode_words(message)  # type: ignore[arg-type]
    lease = message
    task = lease.task
    spec = task.spec
    ttl = task.pool.settings.lease_ttl
    asked = spec.scheduling
    if spec.timeout is not None or (asked is not None and asked.deadline is not None):
        tail = _tail(spec, ttl)
    else:
        alike = spec.content_type, spec.kind, spec.pool, spec.priority, spec.tags, ttl
        found = _tails.get(alike)
        if found is None:
            found = _tail(spec, ttl)
            if len(found) <= MAX_RECALLED_SIZE:
                if len(_tails) >= MAX_RECALLED:
                    _tails.clear()
                _tails[alike] = found
        tail = found
    payload, attempt = spec.payload, lease.attempt
    size, lease_id, task_id = len(payload), lease.id, task.id
    inside = b"".join(
        (
            _LEASE_ID,
            MORE[lease_id & 0x7F] + REST[lease_id >> 7] if lease_id >> 7 in REST else varint(lease_id),
            _TASK_ID,
            MORE[task_id & 0x7F] + REST[task_id >> 7] if task_id >> 7 in REST else varint(task_id),
            _ATTEMPT,
            SHORT[attempt] if attempt < 0x80 else varint(attempt),
            _PAYLOAD,
            SHORT[size] if size < 0x80 else varint(size),
            payload,
            tail,
        )
    )
    if spec.key:
        key = spec.key.encode()
        inside += _KEY + varint(len(key)) + key
    size = len(inside)
    return _LEASE + (MORE[size & 0x7F] + SHORT[size >> 7] if 0x80 <= size < 0x4000 else varint(size)) + inside


def _tail(spec: TaskSpec, lease_ttl: int) -> bytes:
    """What `encode_for_worker` does not write itself of a lease, as a `Lease`."""
    asked = spec.scheduling
    return pb.Lease(
        content_type=spec.content_type,
        kind=spec.kind,
        tags=dict(spec.tags),
        timeout_s=None if spec.timeout is None else seconds(spec.timeout),
        deadline_unix_ns=None if asked is None else asked.deadline,
        pool=spec.pool,
        priority=spec.priority + 1,  # type: ignore[arg-type]
        lease_ttl_s=seconds(lease_ttl),
    ).SerializeToString()


_tails: dict[tuple[object, ...], bytes] = {}
"""By what goes into it, of tasks without a time of their own."""


def _encode_words(message: ToWorker) -> bytes:
    """A `ServerMessage` with anything but a lease."""
    if isinstance(message, AbortLease):
        return pb.ServerMessage(abort=pb.Abort(lease=message.lease, reason=message.reason)).SerializeToString()
    if isinstance(message, Registered):
        registered = pb.Registered(
            worker_id=message.worker_id,
            lease_ttl_s=seconds(message.lease_ttl),
            slots=message.slots,
            protocol_version=PROTOCOL_VERSION,
            max_message_bytes=message.max_message_bytes,
        )
        return pb.ServerMessage(registered=registered).SerializeToString()
    shutdown = pb.Shutdown(reason=message.reason, not_leader=message.not_leader)
    return pb.ServerMessage(shutdown=shutdown).SerializeToString()
