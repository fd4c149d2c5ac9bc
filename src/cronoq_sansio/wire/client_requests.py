"""What a gRPC client has to say: calls that wait for a stream, their headers, and their messages within the windows.

A call goes out in one piece where it is all there and the windows allow it (`ask`): that is the usual one. Otherwise
its stream is opened, and DATA frames of all calls take turns, until `take` has what it was asked for:

    ready       something to send, in turn
    blocked     the window of its stream is used up
    starved     that of the connection is

`GrpcClient` (`grpc_client.py`) adds what comes back, and the time.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from cronoq_sansio import limits as fixed
from cronoq_sansio.wire.client_call import ClientCall, ClientEvent, SendingResumed
from cronoq_sansio.wire.framing import PREFIX, PREFIX_SIZE
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.metadata import encode_timeout, timeout_step

_CANCEL = 8  #: RFC 9113 section 7
MIN_STALE = 64  #: deadlines of calls that are over are let be up to here
_MAX_HEADS = 64  #: methods whose header fields are kept
_pack = PREFIX.pack


class ClientRequests:
    """The sending half of a connection. Methods about a call that is over do nothing."""

    def __init__(self, connection: Http2Client, now: int, *, authority: str, scheme: str, user_agent: str) -> None:
        self.http2 = connection
        self._now = now
        self._leading = ((b":method", b"POST"), (b":scheme", scheme.encode()))
        self._following = (
            (b":authority", authority.encode("ascii")),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", user_agent.encode("ascii")),
            (b"grpc-accept-encoding", b"identity,gzip"),
        )
        self._heads: dict[bytes, tuple[Field, ...]] = {}
        """By method: the header fields of its calls."""
        self._limit_above = self._limit_up_to = 0
        """Time limits that `_limit_fields` say …"""
        self._limit_fields: tuple[Field, ...] = ()
        """… because those of calls that follow each other are nearly the same."""
        self._calls: dict[int, ClientCall] = {}
        """By stream, oldest first."""
        self._waiting: deque[ClientCall] = deque()
        self._abandoned = 0
        """Calls in `_waiting` that are over."""
        self._ready: deque[ClientCall] = deque()
        self._blocked: dict[int, ClientCall] = {}
        """By stream: those that wait for the window of their stream …"""
        self._starved: dict[int, ClientCall] = {}
        """… and for that of the connection, oldest first; they count as ready."""
        self._deadlines: list[tuple[int, int, ClientCall]] = []
        self._sequence = 0
        self._stale = 0
        """Entries of `_deadlines` whose call is over."""
        self._leaving = ""
        self._late_events: list[ClientEvent] = []

    @property
    def closed(self) -> bool:
        """Write what `take` still gives, then close the socket."""
        return self.http2.closed

    @property
    def usable(self) -> bool:
        """New calls may be started."""
        connection = self.http2
        return not (connection.closed or connection.leaving or self._leaving)

    @property
    def open_calls(self) -> int:
        """Calls that are not over."""
        return len(self._calls) + len(self._waiting) - self._abandoned

    # --- what callers do

    def _begin(self, call: ClientCall, now: int) -> None:
        assert self.usable
        self._now = now
        self._waiting.append(call)
        if call.deadline is not None:
            self._sequence += 1
            heapq.heappush(self._deadlines, (call.deadline, self._sequence, call))

    def send(self, call: ClientCall, message: bytes) -> None:
        """Queue a message."""
        if not (call.over or call.ended):
            self._queue(call, _pack(0, len(message)) + message)

    def send_all(self, call: ClientCall, messages: Iterable[bytes]) -> None:
        """Queue messages, in order; they share DATA frames."""
        if not (call.over or call.ended):
            self._queue(call, b"".join([part for message in messages for part in (_pack(0, len(message)), message)]))

    def _queue(self, call: ClientCall, framed: bytes) -> None:
        call.unsent += len(framed)
        if call.queue is not None:
            call.queue.append(framed)
        elif call.partial:
            call.queue = deque((framed,))
        else:
            call.partial = framed
        self._schedule(call)

    def half_close(self, call: ClientCall) -> None:
        """Nothing follows what is queued."""
        if not call.over and not call.ended:
            call.ended = True
            self._schedule(call)

    # --- out

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        connection = self.http2
        return (
            bool(self._ready)
            or connection.unsent > 0
            or (bool(self._waiting) and connection.may_open())
            or (bool(self._starved) and connection.window > 0)
        )

    def take(self, limit: int) -> bytes:
        """About `limit` bytes to write now. Then ask `take_events`."""
        connection = self.http2
        if self._waiting:
            self._open_streams(limit)
        if self._ready or self._starved:
            self._pump_all(limit - connection.unsent)
        return connection.take(limit)

    def take_events(self) -> list[ClientEvent]:
        """What happened while something was being sent."""
        events, self._late_events = self._late_events, []
        return events

    def _open_streams(self, limit: int) -> None:
        waiting, connection, now = self._waiting, self.http2, self._now
        while waiting and connection.unsent < limit and connection.may_open():
            call = waiting.popleft()
            if call.over:
                self._abandoned -= 1
                continue
            fields = self._heads.get(call.path) or self._head(call.path)
            if call.headers:
                fields = (*fields, *call.headers)
            once: tuple[Field, ...] = ()
            if call.deadline is not None:
                left = call.deadline - now
                once = self._limit_fields if self._limit_above < left <= self._limit_up_to else self._limit(left)
            if call.ended and call.queue is None and call.partial:
                stream_id = connection.ask(fields, call.partial, now, once)
                if stream_id:
                    call.stream_id = stream_id
                    call.partial, call.unsent, call.end_sent = b"", 0, True
                    self._calls[stream_id] = call
                    continue
            call.stream_id = connection.open(fields, now, once)
            self._calls[call.stream_id] = call
            self._schedule(call)

    def _head(self, path: bytes) -> tuple[Field, ...]:
        """The header fields of a method."""
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[path] = fields = (*self._leading, (b":path", path), *self._following)
        return fields

    def _limit(self, left: int) -> tuple[Field, ...]:
        """The header field of a time limit."""
        self._limit_above, self._limit_up_to = timeout_step(left)
        self._limit_fields = ((b"grpc-timeout", encode_timeout(left)),)
        return self._limit_fields

    def _schedule(self, call: ClientCall) -> None:
        if call.stream_id and not call.ready:
            call.ready = True
            self._ready.append(call)

    def _pump_all(self, room: int) -> None:
        """One DATA frame of each in turn, until there is no room any more or nothing can be sent."""
        ready, starved, connection = self._ready, self._starved, self.http2
        while room > 0:
            if ready:
                call = ready.popleft()
            elif starved and connection.window > 0:
                call = starved.pop(next(iter(starved)))
            else:
                return
            call.ready = False
            if not call.over:
                room -= self._pump(call) + PREFIX_SIZE

    def _pump(self, call: ClientCall) -> int:
        """Send at most one DATA frame. Returns its size."""
        connection, stream_id = self.http2, call.stream_id
        if call.queue is not None and not call.sent:
            self._gather(call, call.queue)
        left = len(call.partial) - call.sent
        if not left:
            if call.ended and not call.end_sent:
                call.end_sent = True
                connection.send_data(stream_id, b"", end=True)
            return 0
        size = min(left, connection.sendable(stream_id))
        if size <= 0:
            if connection.window > 0:
                self._blocked[stream_id] = call
            else:
                call.ready = True
                self._starved[stream_id] = call
            return 0
        data = call.partial if size == len(call.partial) else call.partial[call.sent : call.sent + size]
        call.sent += size
        if call.sent == len(call.partial):
            call.partial, call.sent = b"", 0
        more = bool(call.partial) or call.queue is not None
        call.end_sent = call.ended and not more
        connection.send_data(stream_id, data, end=call.end_sent)
        before = call.unsent
        call.unsent -= size
        if call.streaming and call.unsent < fixed.CLIENT_UNSENT <= before:
            self._late_events.append(SendingResumed(call))
        if more:
            self._schedule(call)
        return size

    def _gather(self, call: ClientCall, queue: deque[bytes]) -> None:
        """Small messages share a DATA frame."""
        parts = [call.partial]
        size = len(call.partial)
        while queue and size < fixed.MAX_FRAME:
            parts.append(queue.popleft())
            size += len(parts[-1])
        if not queue:
            call.queue = None
        call.partial = b"".join(parts)

    # --- ends

    def _forget(self, call: ClientCall, *, reset: bool) -> None:
        """The call is over; a stream that is still open ends at once."""
        call.over = True
        call.partial, call.queue, call.reader = b"", None, None
        stream_id = call.stream_id
        if stream_id:
            if reset:
                self.http2.reset(stream_id, _CANCEL)
            self._calls.pop(stream_id, None)
            self._blocked.pop(stream_id, None)
            self._starved.pop(stream_id, None)
        else:
            self._abandoned += 1
            if self._abandoned * 2 > len(self._waiting):
                self._waiting = deque(waiting for waiting in self._waiting if not waiting.over)
                self._abandoned = 0
        if call.deadline is not None:
            self._stale += 1
            if self._stale > MIN_STALE and self._stale * 2 > len(self._deadlines):
                self._drop_stale()

    def _drop_stale(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if not entry[2].over]
        heapq.heapify(self._deadlines)
        self._stale = 0
