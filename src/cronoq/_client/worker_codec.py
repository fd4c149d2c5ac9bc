"""The messages of a worker stream: `ServerMessage` -> words of the session; its words -> `WorkerMessage`."""

from collections.abc import Callable
from typing import Any

from cronoq._client.results import word
from cronoq._client.worker_lease import Lease
from cronoq_sansio.clock import SECOND, ns, seconds
from cronoq_sansio.limits import PROTOCOL_VERSION
from cronoq_sansio.wire import pb
from cronoq_sansio.worker.words import (
    Aborted,
    Beat,
    Cancelled,
    Complete,
    Fail,
    Leased,
    Nack,
    Offer,
    Registered,
    ServerLeaves,
    ToServer,
)

FromServer = Registered | Leased | Aborted | ServerLeaves

_MAX_TTL = 1e9
_PRIORITIES = (None, "critical", "high", "normal", "low")  #: by number; 0 = not sent


def register(pool: str, slots: int, name: str, labels: dict[str, str]) -> bytes:
    """The first message."""
    return pb.WorkerMessage(
        register=pb.Register(pool=pool, slots=slots, worker_name=name, protocol_version=PROTOCOL_VERSION, labels=labels)
    ).SerializeToString()


def read(message: pb.ServerMessage, pool: str, lease_ttl: float | None) -> FromServer | None:
    """One message; None for one that is new to us. `pool` and `lease_ttl` (s) are what a lease without them has."""
    which = message.WhichOneof("msg")
    if which == "lease":
        return _lease(message.lease, pool, lease_ttl)
    if which == "abort":
        return Aborted(message.abort.lease, message.abort.reason)
    if which == "registered":
        registered = message.registered
        ttl = _ttl(registered.lease_ttl_s) if registered.HasField("lease_ttl_s") else None
        return Registered(
            registered.worker_id,
            registered.slots,
            registered.protocol_version,
            None if ttl is None else ns(ttl),
            registered.max_message_bytes or None,
        )
    if which == "shutdown":
        return ServerLeaves(message.shutdown.reason, message.shutdown.not_leader)
    return None


def _lease(lease: pb.Lease, pool: str, lease_ttl: float | None) -> Leased:
    ttl = _ttl(lease.lease_ttl_s) if lease.HasField("lease_ttl_s") else None
    tags, priority = lease.tags, lease.priority
    job = Lease(
        lease.lease,
        lease.task_id,
        lease.attempt,
        lease.payload,
        lease.content_type,
        lease.kind,
        lease.key,
        {name: tags[name] for name in tags},  # half of what dict() takes for such a map
        lease.timeout_s if lease.HasField("timeout_s") else None,
        lease.deadline_unix_ns / SECOND if lease.HasField("deadline_unix_ns") else None,
        lease.pool or pool,
        _PRIORITIES[priority] if 0 <= priority < len(_PRIORITIES) else word("Priority", priority),
        lease_ttl if ttl is None else ttl,
    )
    return Leased(lease.lease, None if ttl is None else ns(ttl), job)


def _ttl(value: float) -> float | None:
    """Seconds; None for what is no duration, which counts as not sent."""
    return value if 0 < value < _MAX_TTL else None


class Encoder:
    """What the worker says, as bytes."""

    def __init__(self) -> None:
        self._completion = pb.WorkerMessage()
        self._complete = self._completion.complete
        self._complete.SetInParent()  # all its fields may be empty

    def encode(self, message: ToServer) -> bytes:
        """One message for the server."""
        if type(message) is Complete:
            # One message filled in again and again: to make each anew takes twice as long.
            complete = self._complete
            complete.lease = message.lease
            complete.output = message.output
            complete.content_type = message.content_type
            return self._completion.SerializeToString()
        return _WRITERS[type(message)](message).SerializeToString()


def _fail(message: Fail) -> pb.WorkerMessage:
    fail = pb.Fail(lease=message.lease, message=message.message, permanent=message.permanent)
    if message.retry_after is not None:
        fail.retry_after_s = message.retry_after
    return pb.WorkerMessage(fail=fail)


_WRITERS: dict[type, Callable[[Any], pb.WorkerMessage]] = {
    Beat: lambda message: pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=message.lease)),
    Offer: lambda message: pb.WorkerMessage(set_slots=pb.SetSlots(slots=message.slots)),
    Fail: _fail,
    Nack: lambda message: pb.WorkerMessage(nack=pb.Nack(lease=message.lease, reason=message.reason)),
    Cancelled: lambda message: pb.WorkerMessage(cancelled=pb.Cancelled(lease=message.lease)),
}


def ttl_seconds(registered: Registered) -> float | None:
    """The ttl of leases in seconds."""
    return None if registered.lease_ttl is None else seconds(registered.lease_ttl)
