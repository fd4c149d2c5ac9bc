"""gRPC for a client (gRPC over HTTP/2): calls -> bytes out; bytes in -> what became of the calls. One connection.

Life of a call; it ends with exactly one `CallEnded`, unless it was cancelled by its owner:

    waiting   no stream yet: the server's SETTINGS are not here, or as many streams are open as it allows
    open      headers are out; messages go out and come in
    over      ended

A call that waits, that the server refused (REFUSED_STREAM), or that is above the last stream of its GOAWAY was looked
at by nobody: its end says `unprocessed`, and it may be tried on another connection whatever it does.

Faults of the server become statuses after the gRPC specification ("Responses", "HTTP2 Transport Mapping", and
"HTTP to gRPC Status Code Mapping"); each text says what was met.

Memory: a message above `max_receive` is refused when its length is seen. Credit for the bytes of complete messages of
a stream is given when its owner has taken them (`consumed`), so that what nobody reads is bounded by the window.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from cronoq_sansio import limits as fixed
from cronoq_sansio.errors import Code, GrpcStatus, Rejection
from cronoq_sansio.wire import http2_words as http2
from cronoq_sansio.wire.client_call import (
    CallEnded,
    ClientCall,
    ClientEvent,
    Connected,
    ConnectionLost,
    GoingAway,
    HeadersReceived,
    MessageReceived,
    SendingResumed,
)
from cronoq_sansio.wire.client_status import (
    NO_STATUS,
    REFUSED_STREAM,
    check_response,
    describe_goaway,
    describe_reset,
    read_status,
)
from cronoq_sansio.wire.framing import PREFIX, PREFIX_SIZE, MessageReader
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.metadata import Headers, Metadata, encode_timeout, response_metadata

SETTING = "grpc.max_receive_message_length"
_CANCEL = 8
_CREDIT_STEP = fixed.CLIENT_WINDOW // 2
_MIN_STALE = 64


class GrpcClient:
    """One connection. Times are nanoseconds on the scale of `now`.

    `authority` is what the server is called, `scheme` `http` or `https`. Methods about a call that is over do nothing.
    """

    def __init__(
        self,
        now: int,
        *,
        authority: str,
        scheme: str = "http",
        user_agent: str = "cronoq",
        max_receive: int = fixed.CLIENT_MAX_RECEIVE,
        ping_interval: int = fixed.CLIENT_PING_INTERVAL,
        ping_timeout: int = fixed.CLIENT_PING_TIMEOUT,
        settings_timeout: int = fixed.CLIENT_CONNECT_TIMEOUT,
    ) -> None:
        self.http2 = Http2Client(
            ping_interval=ping_interval, ping_timeout=ping_timeout, settings_timeout=settings_timeout, now=now
        )
        self._now = now
        self._authority = authority
        self._max_receive = max_receive
        self._leading = ((b":method", b"POST"), (b":scheme", scheme.encode()))
        self._following = (
            (b":authority", authority.encode("ascii")),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", user_agent.encode("ascii")),
            (b"grpc-accept-encoding", b"identity,gzip"),
        )
        self._calls: dict[int, ClientCall] = {}
        """By stream, oldest first."""
        self._waiting: deque[ClientCall] = deque()
        self._abandoned = 0
        """Calls in `_waiting` that are over."""
        self._ready: deque[ClientCall] = deque()
        self._blocked: dict[int, ClientCall] = {}
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
        return not self.http2.closed and not self.http2.leaving and not self._leaving

    @property
    def open_calls(self) -> int:
        """Calls that are not over."""
        return len(self._calls) + len(self._waiting) - self._abandoned

    # --- what callers do

    def start_call(
        self,
        path: bytes,
        metadata: Headers,
        now: int,
        *,
        deadline: int | None = None,
        streaming: bool = False,
        max_receive: int | None = None,
        owner: Any = None,
    ) -> ClientCall:
        """Start a call; only while `usable`. `metadata` are header fields; `streaming`: several messages may come."""
        assert self.usable
        self._now = now
        call = ClientCall(path, metadata, deadline, streaming, max_receive or self._max_receive, owner)
        self._waiting.append(call)
        if deadline is not None:
            self._sequence += 1
            heapq.heappush(self._deadlines, (deadline, self._sequence, call))
        return call

    def send(self, call: ClientCall, message: bytes) -> None:
        """Queue a message."""
        if call.over or call.ended:
            return
        framed = PREFIX.pack(0, len(message)) + message
        call.queue.append(framed)
        call.unsent += len(framed)
        self._schedule(call)

    def half_close(self, call: ClientCall) -> None:
        """Nothing follows what is queued."""
        if not call.over and not call.ended:
            call.ended = True
            self._schedule(call)

    def cancel(self, call: ClientCall) -> None:
        """The owner is no longer interested; no event tells of the end."""
        if not call.over:
            self._forget(call, reset=True)

    def consumed(self, call: ClientCall, size: int) -> None:
        """The owner has taken a message of a stream."""
        call.held -= size
        self._give_credit(call)

    def close(self) -> list[ClientEvent]:
        """End all calls and the connection."""
        events: list[ClientEvent] = []
        self._end_all(GrpcStatus.CANCELLED, "the client was closed", events)
        self.http2.finish()
        return events

    # --- in

    def receive(self, data: bytes, now: int) -> list[ClientEvent]:
        """Bytes of the server; what they mean, in order."""
        self._now = now
        return self._translate(self.http2.receive(data, now))

    def receive_eof(self, now: int, why: str = "") -> list[ClientEvent]:
        """The server closed the connection, or the socket failed (`why` says how)."""
        self._now = now
        failures = self.http2.receive_eof()
        if why and self.http2.settled:
            failures = [http2.Failed(why) for _ in failures]
        return self._translate(failures)

    def take_events(self) -> list[ClientEvent]:
        """What happened while something was being sent."""
        events, self._late_events = self._late_events, []
        return events

    def _translate(self, found: list[http2.Event]) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        for event in found:
            _HANDLERS[type(event)](self, event, events)
        return events

    def _on_settled(self, event: http2.Settled, events: list[ClientEvent]) -> None:
        events.append(Connected())

    def _on_response(self, event: http2.Response, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        fields = dict(event.headers)
        call.initial = event.headers
        if b"grpc-status" in fields and event.ended:
            self._finish(call, fields, (event.headers,), events)
            return
        fault = check_response(fields)
        if fault is not None:
            status, text = fault
            remedy = "is another service at this port, or a proxy in between?"
            self._end(call, status, f"{self._authority}: {text}; {remedy}", events)
            return
        if event.ended:
            self._end(call, GrpcStatus.UNKNOWN, NO_STATUS, events)
            return
        call.gzip = fields.get(b"grpc-encoding") == b"gzip"
        if call.streaming:
            events.append(HeadersReceived(call, response_metadata(event.headers)))

    def _on_data(self, event: http2.Data, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        data = event.data
        if call.initial is None:
            self._end(call, GrpcStatus.INTERNAL, "the server sent data before headers", events)
            return
        if data:
            self._receive_data(call, data, events)
        if call.over:
            return
        if event.ended:
            self._end(call, GrpcStatus.UNKNOWN, NO_STATUS, events)
            return
        call.credit += event.size
        self._give_credit(call)

    def _receive_data(self, call: ClientCall, data: bytes, events: list[ClientEvent]) -> None:
        if call.reader is None:
            size = len(data) - PREFIX_SIZE
            if size >= 0 and not data[0] and int.from_bytes(data[1:5], "big") == size <= call.max_receive:
                # The usual case: a DATA frame is one message, not compressed.
                self._receive_message(call, data[PREFIX_SIZE:], len(data), events)
                return
            call.reader = MessageReader(call.max_receive, gzip=call.gzip, setting=SETTING)
        reader = call.reader
        reader.limit = call.max_receive
        for message in reader.feed(data):
            if isinstance(message, Rejection):
                status = GrpcStatus.RESOURCE_EXHAUSTED if message.code is Code.TOO_LARGE else GrpcStatus.INTERNAL
                self._end(call, status, f"{self._authority} sent what is not accepted here: {message.message}", events)
                return
            self._receive_message(call, message, len(message) + PREFIX_SIZE, events)
            if call.over:
                return
        if not reader.buffered:
            call.reader = None

    def _receive_message(self, call: ClientCall, message: bytes, size: int, events: list[ClientEvent]) -> None:
        call.messages += 1
        if call.streaming:
            call.held += size
        elif call.messages > 1:
            self._end(call, GrpcStatus.INTERNAL, "the server sent several messages for one answer", events)
            return
        events.append(MessageReceived(call, message, size))

    def _give_credit(self, call: ClientCall) -> None:
        # Decompressed messages may be larger than what came: then credit waits for the owner a little longer.
        due = call.credit - call.held
        if due >= _CREDIT_STEP and not call.over:
            self.http2.credit(call.stream_id, due)
            call.credit -= due

    def _on_trailers(self, event: http2.Trailers, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        initial = call.initial or []
        self._finish(call, dict(event.headers), (initial, event.headers), events)

    def _finish(
        self, call: ClientCall, fields: dict[bytes, bytes], blocks: tuple[Headers, ...], events: list[ClientEvent]
    ) -> None:
        """The server gave a status."""
        status, text = read_status(fields)
        if status is GrpcStatus.OK:
            if call.reader is not None and call.reader.buffered:
                status, text = GrpcStatus.INTERNAL, "the server ended the call within a message"
            elif not call.streaming and call.messages == 0:
                status, text = GrpcStatus.INTERNAL, "the server ended the call without an answer"
        self._end(call, status, text, events, response_metadata(*blocks))

    def _on_reset(self, event: http2.ResetByServer, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        status, text = describe_reset(event.code)
        self._end(call, status, text, events, unprocessed=event.code == REFUSED_STREAM)

    def _on_window(self, event: http2.WindowOpened, events: list[ClientEvent]) -> None:
        if event.stream_id:
            call = self._blocked.pop(event.stream_id, None)
            if call is not None:
                self._schedule(call)
            return
        blocked, self._blocked = self._blocked, {}
        for call in blocked.values():
            self._schedule(call)

    def _on_gone_away(self, event: http2.GoneAway, events: list[ClientEvent]) -> None:
        self._leaving = f"{self._authority}: {describe_goaway(event.code, event.reason)}"
        too_many_pings = event.reason == "too_many_pings"
        events.append(GoingAway(self._leaving, too_many_pings))
        for stream_id in [stream_id for stream_id in self._calls if stream_id > event.last_stream]:
            self._end(self._calls[stream_id], GrpcStatus.UNAVAILABLE, self._leaving, events, unprocessed=True)
        self._end_waiting(GrpcStatus.UNAVAILABLE, self._leaving, events)

    def _on_failed(self, event: http2.Failed, events: list[ClientEvent]) -> None:
        self._end_all(GrpcStatus.UNAVAILABLE, f"{self._authority}: {event.reason}", events)
        events.append(ConnectionLost(event.reason))

    # --- out

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return bool(self._ready) or (bool(self._waiting) and self.http2.may_open()) or self.http2.wants_write()

    def take(self, limit: int) -> bytes:
        """About `limit` bytes to write now. Then ask `take_events`."""
        connection, ready = self.http2, self._ready
        self._open_streams()
        room = limit - connection.unsent
        while ready and room > 0:
            call = ready.popleft()
            call.ready = False
            if not call.over:
                room -= self._pump(call) + PREFIX_SIZE
        return connection.take(limit)

    def _open_streams(self) -> None:
        waiting, connection = self._waiting, self.http2
        while waiting and connection.may_open():
            call = waiting.popleft()
            if call.over:
                self._abandoned -= 1
                continue
            headers = (*self._leading, (b":path", call.path), *self._following, *call.headers)
            once = [] if call.deadline is None else [(b"grpc-timeout", encode_timeout(call.deadline - self._now))]
            call.stream_id = connection.open(headers, self._now, once)
            self._calls[call.stream_id] = call
            self._schedule(call)

    def _schedule(self, call: ClientCall) -> None:
        if call.stream_id and not call.ready:
            call.ready = True
            self._ready.append(call)

    def _pump(self, call: ClientCall) -> int:
        """Send at most one DATA frame. Returns its size."""
        connection, stream_id = self.http2, call.stream_id
        if not call.partial and call.queue:
            call.partial = call.queue.popleft() if len(call.queue) == 1 else self._gather(call)
            call.sent = 0
        left = len(call.partial) - call.sent
        if not left:
            if call.ended and not call.end_sent:
                call.end_sent = True
                connection.send_data(stream_id, b"", end=True)
            return 0
        size = min(left, connection.sendable(stream_id))
        if size <= 0:
            self._blocked[stream_id] = call
            return 0
        data = call.partial if size == len(call.partial) else call.partial[call.sent : call.sent + size]
        call.sent += size
        if call.sent == len(call.partial):
            call.partial, call.sent = b"", 0
        more = bool(call.partial or call.queue)
        call.end_sent = call.ended and not more
        connection.send_data(stream_id, data, end=call.end_sent)
        before = call.unsent
        call.unsent -= size
        if call.streaming and call.unsent < fixed.CLIENT_UNSENT <= before:
            self._late_events.append(SendingResumed(call))
        if more:
            self._schedule(call)
        return size

    def _gather(self, call: ClientCall) -> bytes:
        """Small messages share a DATA frame."""
        parts: list[bytes] = []
        size = 0
        while call.queue and size < fixed.MAX_FRAME:
            parts.append(call.queue.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    # --- ends

    def _end(
        self,
        call: ClientCall,
        status: GrpcStatus,
        message: str,
        events: list[ClientEvent],
        metadata: Metadata | None = None,
        *,
        unprocessed: bool = False,
    ) -> None:
        if metadata is None:
            metadata = response_metadata(call.initial) if call.initial else ()
        self._forget(call, reset=True)
        events.append(CallEnded(call, status, message, metadata, unprocessed))

    def _forget(self, call: ClientCall, *, reset: bool) -> None:
        """The call is over; a stream that is still open ends at once."""
        call.over = True
        call.queue.clear()
        call.partial, call.reader = b"", None
        if call.stream_id:
            if reset:
                self.http2.reset(call.stream_id, _CANCEL)
            self._calls.pop(call.stream_id, None)
            self._blocked.pop(call.stream_id, None)
        else:
            self._abandoned += 1
            if self._abandoned * 2 > len(self._waiting):
                self._waiting = deque(waiting for waiting in self._waiting if not waiting.over)
                self._abandoned = 0
        if call.deadline is not None:
            self._stale += 1
            if self._stale > _MIN_STALE and self._stale * 2 > len(self._deadlines):
                self._deadlines = [entry for entry in self._deadlines if not entry[2].over]
                heapq.heapify(self._deadlines)
                self._stale = 0

    def _end_waiting(self, status: GrpcStatus, why: str, events: list[ClientEvent]) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._abandoned = 0
        for call in waiting:
            if not call.over:
                call.over = True
                self._stale += call.deadline is not None
                events.append(CallEnded(call, status, why, (), True))

    def _end_all(self, status: GrpcStatus, why: str, events: list[ClientEvent]) -> None:
        self._leaving = self._leaving or why
        for call in list(self._calls.values()):
            self._end(call, status, why, events)
        self._end_waiting(status, why, events)
        self._ready.clear()
        self._deadlines.clear()
        self._stale = 0

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due; None = never."""
        due = self.http2.next_timeout()
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].over:
            heapq.heappop(deadlines)
            self._stale -= 1
        if deadlines and (due is None or deadlines[0][0] < due):
            due = deadlines[0][0]
        return due

    def handle_timer(self, now: int) -> list[ClientEvent]:
        """Act on whatever is due."""
        self._now = now
        events = self._translate(self.http2.handle_timer(now))
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].over or deadlines[0][0] <= now):
            _, _, call = heapq.heappop(deadlines)
            if call.over:
                self._stale -= 1
                continue
            self._stale -= 1  # `_forget` counts an entry that is gone already
            self._end(call, GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call passed", events)
        return events


_HANDLERS: dict[type, Callable[[GrpcClient, Any, list[ClientEvent]], None]] = {
    http2.Settled: GrpcClient._on_settled,
    http2.Response: GrpcClient._on_response,
    http2.Data: GrpcClient._on_data,
    http2.Trailers: GrpcClient._on_trailers,
    http2.ResetByServer: GrpcClient._on_reset,
    http2.WindowOpened: GrpcClient._on_window,
    http2.GoneAway: GrpcClient._on_gone_away,
    http2.Failed: GrpcClient._on_failed,
}
