"""Answers that wait for their peers, and the memory that stands behind them, of all connections.

An answer that the windows and the socket have room for goes out as one piece, and is never looked at here. Any other
waits as it was given, and nobody can know for how long: until its peer takes it, or a look ends its stream
(`stalls.py`). What such an answer takes in memory is estimated, and counted until its stream is over. All connections
never have more than `MAX_WAITING` together, or two of the largest messages if that is more. Of what is left of that a
connection may have

    any part             by one answer, while none of its others waits
    a `1/WAITING_SHARE`  by all of its answers together

so that one that does not read has a fifth, and fifteen at a time leave a fifth of it for those that do. What is beyond
is refused. Small answers are not counted; an open stream takes as much, and those have a bound of their own.

Events of watchers and what is said to workers wait in queues with bounds of their own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_WAITING, SMALL_ANSWER, WAITING_PART, WAITING_SHARE
from cronoq_sansio.service.messages import (
    BatchReply,
    Message,
    SubmitReply,
    TaskInfo,
    TaskResult,
)

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream

_WHY = "the answer does not go out at once, and too many answers wait for clients that do not read"
_DONE = "the call was carried out; ask for the outcome later"


class Waiting:
    """Bytes of answers that wait, of all connections of a process."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Backlog:
    """Of one connection."""

    __slots__ = ("_everywhere", "_most", "held")

    def __init__(self, everywhere: Waiting, max_message_bytes: int) -> None:
        self._everywhere = everywhere
        self._most = max(MAX_WAITING, 2 * max_message_bytes)
        self.held = 0
        """Bytes of answers that wait here."""

    def keep(self, stream: "GrpcStream", message: Message | bytes) -> Rejection | None:
        """The answer of a stream is to wait; why it may not, or None."""
        size = weight(message)
        if size < SMALL_ANSWER:
            return None
        everywhere, connection = self._everywhere, stream.connection
        left = self._most - everywhere.total
        if size > left or (self.held and (self.held + size) * WAITING_SHARE > left):
            if size <= connection.http2.sendable(stream.id) and connection.prompt():
                return None  # it goes out at once
            task = f"task {message.task_id}: " if isinstance(message, SubmitReply) else ""
            return Rejection(Code.OVERLOADED, f"{task}{_WHY}; {_DONE}")
        stream.kept = size
        self.held += size
        everywhere.total += size
        return None

    def drop(self, stream: "GrpcStream") -> None:
        """The stream is over."""
        self.held -= stream.kept
        self._everywhere.total -= stream.kept
        stream.kept = 0


def weight(message: Message | bytes) -> int:
    """Bytes that an answer takes while it waits: of one that is not encoded an estimate of its variable parts."""
    weigh = _WEIGHTS.get(type(message))
    return 0 if weigh is None else weigh(message)


def _result(result: TaskResult) -> int:
    return len(result.output or b"") + len(result.message)


def _submitted(reply: SubmitReply) -> int:
    return _result(reply.result)


def _info(task: TaskInfo) -> int:
    return WAITING_PART + len(task.message) + len(task.key)


def _batch(reply: BatchReply) -> int:
    return WAITING_PART * len(reply.members)


_WEIGHTS: dict[type, Callable[[Any], int]] = {
    SubmitReply: _submitted,
    TaskResult: _result,
    TaskInfo: _info,
    BatchReply: _batch,
    bytes: len,
}
