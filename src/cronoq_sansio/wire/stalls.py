"""Streams that wait for their peer: those that make no progress, those that make too little, and calls that are late.

Nothing is noted per message. From time to time all streams are looked at: one that waits, and whose count of progress
is what it was several looks ago, is stalled. So a stall ends within `STREAM_STALL_TIMEOUT` and one `STALL_SCAN` more.
A stream that is merely quiet, because nobody has anything to say, waits for nobody.

A message that comes a byte at a time makes progress, and may not take for ever: `MIN_MESSAGE_RATE` is what it has to
bring. A plain bound on its time would end good peers: 4 MiB take half a minute on a link of 1 Mbit/s. Each unfinished
message has a reserve of what it should bring within `MESSAGE_GRACE`; a look takes what is due since the one before
it, and what came fills the reserve again. Below nothing the stream is reset. A message of n bytes is therefore here,
or its stream over, after about 50 s + n / `MIN_MESSAGE_RATE`; from then on `request_timeout` counts, which the service
keeps. A link may be shared: when many messages are unfinished, all together need not bring more than
`MIN_MESSAGES_RATE`. Then a byte fills the reserve by as much more.

The last that a stream has to say, which is all that a unary call ever gets, has to be taken at the same rate, and many
share it alike: who opens a window by a byte now and then would else have answers kept for ever. Before its end is
decided a worker stream is held to the bound on its queue, and so is a stream of events.

Time counts by looks, each for one `STALL_SCAN`. The first look at a message takes nothing, nor does one that is late,
because the process could not run. A stream that waits for credit owes nothing, and the next look at it is the first
one; between two looks that does not matter, since whoever gets credit has just used half a window.

A call's own deadline counts from its headers, and passes also while its message is coming, or waits for its turn. It is
the caller's clock that says so, so nothing is made up for there.
"""

from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from cronoq_sansio.clock import NEVER, SECOND
from cronoq_sansio.limits import (
    LATE_TIMER,
    MESSAGE_GRACE,
    MIN_MESSAGE_RATE,
    MIN_MESSAGES_RATE,
    STALL_SCAN,
    STREAM_STALL_TIMEOUT,
)
from cronoq_sansio.wire.peer_limits import SLOW_ANSWER, SLOW_MESSAGE, STALLED, PeerLimit

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream

_MAX_STRIKES = STREAM_STALL_TIMEOUT // STALL_SCAN
_RESERVE = MIN_MESSAGE_RATE * MESSAGE_GRACE // SECOND  #: bytes
_LOOK = STALL_SCAN // SECOND
_DUE = MIN_MESSAGE_RATE * _LOOK
_ENDS = {
    STALLED: "the stream made no progress",
    SLOW_MESSAGE: "a message came too slowly",
    SLOW_ANSWER: "the answer was taken too slowly",
}


class Stalls:
    """When to look, and what was found."""

    __slots__ = ("_deadline", "_look", "_urgent", "_withheld", "due")

    def __init__(self, withheld: Container[int]) -> None:
        """`withheld`: streams that wait for credit."""
        self._withheld = withheld
        self._look: int | None = None
        """The next look; None = nothing could be stalled."""
        self._deadline = NEVER
        """No call that the service does not know yet has one before this."""
        self._urgent = NEVER
        self.due = NEVER
        """On the scale of `now`."""

    def arm(self, now: int) -> None:
        """Something may wait for the peer from now on."""
        if self._look is None:
            self._look = now + STALL_SCAN
            self._set()

    def expect(self, deadline: int) -> None:
        """A call has a deadline, and its message is not complete, or waits for its turn."""
        if deadline < self._deadline:
            self._deadline = deadline
            self._set()

    def urge(self, when: int) -> None:
        """The connection itself has something to do then, and it is no stall; `clock.NEVER` when it has not."""
        self._urgent = when
        self._set()

    def _set(self) -> None:
        self.due = min(self._deadline, self._urgent)
        if self._look is not None and self._look < self.due:
            self.due = self._look

    def late(self, streams: "Collection[GrpcStream]", now: int) -> "list[GrpcStream]":
        """Calls whose deadline has passed before their message was complete, or their turn came."""
        late: list[GrpcStream] = []
        if now < self._deadline:
            return late
        self._deadline = NEVER
        for stream in streams:
            deadline = stream.deadline
            if deadline is None or (stream.remote_ended and not stream.waits) or stream.closing:
                continue
            if deadline <= now:
                late.append(stream)
            elif deadline < self._deadline:
                self._deadline = deadline
        self._set()
        return late

    def scan(self, streams: "Collection[GrpcStream]", now: int) -> "list[tuple[GrpcStream, PeerLimit, str]]":
        """Look at all streams, if it is time; those that are to end, the limit, and why in a few words."""
        found: list[tuple[GrpcStream, PeerLimit, str]] = []
        look = self._look
        if look is None or now < look:
            return found
        self._look = None
        if now - look > LATE_TIMER:
            self.arm(now)
            return found
        to_bring, to_take = _rate(sum(map(_owes, streams))), _rate(sum(map(_ends, streams)))
        for stream in streams:
            owes = _owes(stream) and stream.id not in self._withheld
            if not (_takes(stream) if stream.unsent else owes):
                stream.seen = -1
                continue
            self._look = now + STALL_SCAN
            limit = _judge(stream, to_take if stream.closing else to_bring if owes else 0)
            if limit is not None:
                found.append((stream, limit, _ENDS[limit]))
        self._set()
        return found


def _owes(stream: "GrpcStream") -> bool:
    """Whether the peer has begun a call, or a message of a worker, and not sent all of it."""
    if stream.closing or stream.inflating:
        return False
    return stream.unfinished > 0 if stream.route.streaming else not stream.remote_ended


def _ends(stream: "GrpcStream") -> bool:
    """Whether the peer should take the last that the stream has to say."""
    return stream.closing and stream.unsent and not stream.crowded


def _rate(sharing: int) -> int:
    """Bytes per second of each of so many."""
    return min(MIN_MESSAGE_RATE, MIN_MESSAGES_RATE // max(1, sharing)) or 1


def _takes(stream: "GrpcStream") -> bool:
    """Whether the peer should take what waits to go out.

    Whoever watches may take any time, within the bound on unread events.
    """
    if stream.route.events and not stream.closing and stream.partial is None:
        return False
    return not stream.crowded


def _judge(stream: "GrpcStream", rate: int) -> PeerLimit | None:
    """One look. `rate`: bytes per second that should have come, or gone, since the last one; 0 = no matter how many."""
    moved = stream.progress - stream.seen
    if stream.seen < 0:
        stream.seen = stream.progress
        stream.strikes, stream.reserve = 0, _RESERVE
        return None
    if moved:
        stream.seen = stream.progress
        stream.strikes = 0
    else:
        stream.strikes += 1
        if stream.strikes >= _MAX_STRIKES:
            return STALLED
    stream.reserve = min(_RESERVE, stream.reserve - _DUE + moved * MIN_MESSAGE_RATE // rate) if rate else _RESERVE
    if stream.reserve >= 0:
        return None
    return SLOW_ANSWER if stream.closing else SLOW_MESSAGE
