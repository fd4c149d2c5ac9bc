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
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire.client_call import (
    CallEnded,
    ClientCall,
    ClientEvent,
    Connected,
    ConnectionLost,
    GoingAway,
    HeadersReceived,
    MessageReceived,
)
from cronoq_sansio.wire.client_requests import MIN_STALE, ClientRequests
from cronoq_sansio.wire.client_status import (
    NO_STATUS,
    REFUSED_STREAM,
    Accepted,
    Ended,
    describe_goaway,
    describe_reset,
    read_response,
    read_trailers,
)
from cronoq_sansio.wire.framing import PREFIX, PREFIX_SIZE, MessageReader
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.metadata import Headers, Metadata

SETTING = "grpc.max_receive_message_length"
_CREDIT_STEP = fixed.CLIENT_WINDOW // 2
_OK = GrpcStatus.OK
_LATE = "the deadline of the call passed"
_prefix = PREFIX.unpack_from


class GrpcClient(ClientRequests):
    """One connection, both halves. Times are nanoseconds on the scale of `now`.

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
        connection = Http2Client(
            ping_interval=ping_interval, ping_timeout=ping_timeout, settings_timeout=settings_timeout, now=now
        )
        super().__init__(connection, now, authority=authority, scheme=scheme, user_agent=user_agent)
        self._authority = authority
        self._max_receive = max_receive

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
        call = ClientCall(path, metadata, deadline, streaming, max_receive or self._max_receive, owner)
        self._begin(call, now)
        return call

    def ask(
        self,
        path: bytes,
        metadata: Headers,
        message: bytes,
        now: int,
        *,
        deadline: int | None = None,
        max_receive: int | None = None,
        owner: Any = None,
    ) -> ClientCall:
        """A call with one message and one answer: `start_call`, `send` and `half_close` in one."""
        call = ClientCall(path, metadata, deadline, False, max_receive or self._max_receive, owner)
        call.partial = framed = PREFIX.pack(0, len(message)) + message
        call.unsent = len(framed)
        call.ended = True
        self._begin(call, now)
        return call

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

    def _translate(self, found: list[http2.ClientSideEvent]) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        for event in found:
            _HANDLERS[type(event)](self, event, events)
        return events

    def _on_settled(self, event: http2.Settled, events: list[ClientEvent]) -> None:
        events.append(Connected())
        # The windows of streams may have changed.
        blocked, self._blocked = self._blocked, {}
        for call in blocked.values():
            self._schedule(call)

    def _on_answer(self, event: http2.Answer, events: list[ClientEvent]) -> None:
        """The usual case is one message, not compressed, and the status OK."""
        stream_id, data = event.stream_id, event.data
        call = self._calls.get(stream_id)
        if call is None:
            return
        accepted, ended = read_response(event.headers), read_trailers(event.trailers)
        size = len(data) - PREFIX_SIZE
        if (
            not call.streaming
            and accepted.fault is None
            and ended.status is _OK
            and size >= 0
            and PREFIX.unpack_from(data) == (0, size)
            and size <= call.max_receive
        ):
            # `_forget` in short: it is all sent, and its stream has ended.
            call.over = True
            del self._calls[stream_id]
            if call.deadline is not None:
                self._stale += 1
                if self._stale > MIN_STALE and self._stale * 2 > len(self._deadlines):
                    self._drop_stale()
            metadata = accepted.metadata + ended.metadata
            events.append(CallEnded(call, _OK, ended.message, metadata, False, data[PREFIX_SIZE:]))
            return
        self._accept(call, accepted, events)
        if data and not call.over:
            self._receive_data(call, data, events)
        if not call.over:
            self._finish(call, ended, events)

    def _on_response(self, event: http2.Response, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        headers = event.headers
        if event.ended and any(name == b"grpc-status" for name, _ in headers.fields):
            self._finish(call, read_trailers(headers), events)
            return
        self._accept(call, read_response(headers), events)
        if event.ended and not call.over:
            self._end(call, GrpcStatus.UNKNOWN, NO_STATUS, events)

    def _accept(self, call: ClientCall, accepted: Accepted, events: list[ClientEvent]) -> None:
        """Headers of the response are here."""
        call.accepted = accepted
        if accepted.fault is not None:
            status, text = accepted.fault
            remedy = "is another service at this port, or a proxy in between?"
            self._end(call, status, f"{self._authority}: {text}; {remedy}", events)
        elif call.streaming:
            events.append(HeadersReceived(call, accepted.metadata))

    def _on_data(self, event: http2.Data, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        if event.data:
            self._receive_data(call, event.data, events)
            if call.over:
                return
        if event.ended:
            self._end(call, GrpcStatus.UNKNOWN, NO_STATUS, events)
            return
        call.credit += event.size
        self._give_credit(call)

    def _receive_data(self, call: ClientCall, data: bytes, events: list[ClientEvent]) -> None:
        if call.reader is None:
            data = self._receive_whole(call, data, events)
            if not data or call.over:
                return
            gzip = call.accepted is not None and call.accepted.gzip
            call.reader = MessageReader(call.max_receive, gzip=gzip, setting=SETTING)
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

    def _receive_whole(self, call: ClientCall, data: bytes, events: list[ClientEvent]) -> bytes:
        """The usual messages: all there, not compressed. Returns what follows them."""
        at, end, most = 0, len(data), call.max_receive
        while (start := at + PREFIX_SIZE) <= end:
            flags, size = _prefix(data, at)
            after = start + size
            if flags or size > most or after > end:
                break
            if call.streaming:
                call.held += after - at
                events.append(MessageReceived(call, data[start:after], after - at))
            else:
                self._receive_message(call, data[start:after], after - at, events)
                if call.over:
                    return b""
            at = after
        return data[at:] if at else data

    def _receive_message(self, call: ClientCall, message: bytes, size: int, events: list[ClientEvent]) -> None:
        call.messages += 1
        if call.streaming:
            call.held += size
            events.append(MessageReceived(call, message, size))
        elif call.messages == 1:
            call.answer = message
        else:
            self._end(call, GrpcStatus.INTERNAL, "the server sent several messages for one answer", events)

    def _give_credit(self, call: ClientCall) -> None:
        # Decompressed messages may be larger than what came: then credit waits for the owner a little longer.
        due = call.credit - call.held
        if due >= _CREDIT_STEP and not call.over:
            self.http2.credit(call.stream_id, due)
            call.credit -= due

    def _on_trailers(self, event: http2.Trailers, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            self._finish(call, read_trailers(event.headers), events)

    def _finish(self, call: ClientCall, ended: Ended, events: list[ClientEvent]) -> None:
        """The server gave a status."""
        status, text = ended.status, ended.message
        if status is _OK:
            if call.reader is not None and call.reader.buffered:
                status, text = GrpcStatus.INTERNAL, "the server ended the call within a message"
            elif not call.streaming and call.messages == 0:
                status, text = GrpcStatus.INTERNAL, "the server ended the call without an answer"
        before = call.accepted.metadata if call.accepted is not None else ()
        self._end(call, status, text, events, before + ended.metadata)

    def _on_reset(self, event: http2.ResetByServer, events: list[ClientEvent]) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        status, text = describe_reset(event.code, event.fault)
        if status is GrpcStatus.CANCELLED and call.deadline is not None and self._now >= call.deadline:
            # The server has seen it pass before our timer was due; grpc-go's resets the call then.
            status, text = GrpcStatus.DEADLINE_EXCEEDED, _LATE
        self._end(call, status, text, events, unprocessed=event.code == REFUSED_STREAM and not event.fault)

    def _on_window(self, event: http2.WindowOpened, events: list[ClientEvent]) -> None:
        call = self._blocked.pop(event.stream_id, None)
        if call is not None:
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
            metadata = call.accepted.metadata if call.accepted is not None else ()
        self._forget(call, reset=True)
        answer = call.answer if status is _OK else b""
        events.append(CallEnded(call, status, message, metadata, unprocessed, answer))

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
            self._end(call, GrpcStatus.DEADLINE_EXCEEDED, _LATE, events)
        return events


_HANDLERS: dict[type, Callable[[GrpcClient, Any, list[ClientEvent]], None]] = {
    http2.Settled: GrpcClient._on_settled,
    http2.Answer: GrpcClient._on_answer,
    http2.Response: GrpcClient._on_response,
    http2.Data: GrpcClient._on_data,
    http2.Trailers: GrpcClient._on_trailers,
    http2.ResetByServer: GrpcClient._on_reset,
    http2.WindowOpened: GrpcClient._on_window,
    http2.GoneAway: GrpcClient._on_gone_away,
    http2.Failed: GrpcClient._on_failed,
}
