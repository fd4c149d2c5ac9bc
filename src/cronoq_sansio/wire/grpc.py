"""gRPC for a server (gRPC over HTTP/2): bytes in -> service events; the service's answers -> bytes out. One connection.

Order of the checks of a call: is it gRPC at all, credentials, role, is the method built, and only then is a byte of a
message looked at. Statuses for what a caller gets wrong on this level: HTTP 405 and 415 for requests that are not gRPC,
UNIMPLEMENTED for methods and encodings, RESOURCE_EXHAUSTED for messages above the limit, INVALID_ARGUMENT for the rest;
INTERNAL is ours alone.

Bounds of what a peer may make us keep: `credit.py`, `backlog.py`; of how long we wait: `stalls.py`, `server_timers.py`.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from cronoq_sansio import limits as fixed
from cronoq_sansio.checks import invalid
from cronoq_sansio.clock import NEVER
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.messages import (
    Call,
    CallEnded,
    CallReceived,
    ServiceEvent,
    Shutdown,
    WorkerConnected,
    WorkerGone,
    WorkerSent,
    WorkerStream,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.values import blank
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire import peer_limits, status
from cronoq_sansio.wire.backlog import Backlog, Waiting
from cronoq_sansio.wire.credit import Credit, Unfinished
from cronoq_sansio.wire.floods import Bucket, Pieces
from cronoq_sansio.wire.frames import ENHANCE_YOUR_CALM
from cronoq_sansio.wire.framing import MessageReader, sole
from cronoq_sansio.wire.grpc_admission import Admitted, Authenticate, Outcome, Refusal, Refused, look
from cronoq_sansio.wire.grpc_call import QuickCall, whole_call
from cronoq_sansio.wire.grpc_output import GrpcOutput
from cronoq_sansio.wire.grpc_refusal import CROWDED, FINISHED, NO_TURN, TOO_LATE, WORKER_ENDED, Text
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.inflation import NOTHING, Portion
from cronoq_sansio.wire.peer_limits import Exceeded, PeerLimit
from cronoq_sansio.wire.protobuf_codec import Route
from cronoq_sansio.wire.protobuf_worker import decode_worker
from cronoq_sansio.wire.stalls import Stalls
from cronoq_sansio.wire.strangers import Stranger, Strangers
from cronoq_sansio.wire.turns import Looks


class GrpcServer(GrpcOutput):
    """One connection. `authenticate` gets the metadata of a call before any byte of its message is buffered."""

    def __init__(
        self,
        limits: LimitSettings,
        now: int,
        authenticate: Authenticate,
        refusal: Refusal | None = None,
        machine: MakeHttp2 = Http2Server,
        unfinished: Unfinished | None = None,
        waiting: Waiting | None = None,
        calls: dict[Outcome, int] | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        """`refusal`: looked at for each call after its role, before its arguments.

        `unfinished`, `waiting`, `strangers`: what all connections of the process hold. `calls`: where calls are counted
        of whose end no action tells; an entry that is missing is made.
        """
        self.owner: object = None
        """Whoever has the socket; never looked at."""
        connection = machine(
            max_streams=limits.max_concurrent_streams,
            ping_interval=limits.keepalive_interval,
            ping_timeout=limits.keepalive_timeout,
            now=now,
        )
        self._credit = Credit(connection, limits.max_message_bytes, Unfinished() if unfinished is None else unfinished)
        self.backlog = Backlog(Waiting() if waiting is None else waiting, limits.max_message_bytes)
        super().__init__(connection, limits, Stalls(self._credit.withheld), now)
        self._authenticate = authenticate
        self._refusal = Refusal() if refusal is None else refusal
        self._outcomes = defaultdict(int) if calls is None else calls
        self.calls: dict[int, QuickCall] = {}
        """Calls that were recognised whole and are not answered."""
        self._streams: dict[int, GrpcStream] = {}
        """Every other stream until its trailers are out or it was reset, oldest first."""
        self.late_events: list[ServiceEvent] = []
        """For `take_events`."""
        self._given_up = False
        """The peer was refused too often: what else came with that is not looked at."""
        self._refusals = Bucket(fixed.REFUSED_BURST, fixed.REFUSED_RATE)
        self._pieces = Pieces()
        self._portion = Portion()
        self._inflating: deque[GrpcStream] = deque()
        """Streams with a message that is here and not inflated, the one that came first before the others."""
        self.looks = Looks(self._credit, self.stalls)
        """Calls that look at much: whoever has the connection calls `take_look` for each, in its turn."""
        self.proven = False
        """A call of this peer was admitted."""
        self._stranger = Stranger(Strangers() if strangers is None else strangers)
        self.exceeded: list[PeerLimit] = []
        """Limits that the peer has exceeded; whoever tells of them empties the list."""

    @property
    def closed(self) -> bool:
        """Write what `take` still gives, then close the socket."""
        return self.http2.closed

    def useless(self, now: int) -> int:
        """Frames of the peer that cost us and carried nothing, as far as nothing has paid for them.

        Calls count that were refused for their headers, and pieces of messages that are tiny.
        """
        return self.http2.useless(now) + self._refusals.taken(now) + self._pieces.taken(now)

    # --- in

    def receive(self, data: bytes, now: int) -> list[ServiceEvent]:
        """Bytes of the peer; calls, worker messages and ends, in order."""
        self._now = now
        events: list[ServiceEvent] = []
        try:
            for event in self.http2.receive(data, now):
                if type(event) is tuple:
                    self._on_whole(event, events)
                else:
                    _HANDLERS[type(event)](self, event, events)
        except Exceeded as fault:  # what else has come is not looked at
            if self.closed:
                self.exceeded.append(fault.limit)
            else:
                self.give_up(fault.limit)
        if self._streams:
            self._credit.give()
        if not self.proven and not self._stranger.may_keep(self.http2.kept):
            self.give_up(peer_limits.UNFINISHED)
        return events

    def receive_eof(self, now: int) -> list[ServiceEvent]:
        """The peer closed the connection, or the socket failed: every open call and stream ends."""
        self._now = now
        events = self.take_events()
        self.http2.closed = True
        self._end_all("connection lost", events)
        return events

    def take_events(self) -> list[ServiceEvent]:
        """What happened while something was being sent."""
        events, self.late_events = self.late_events, []
        return events

    def _on_whole(self, whole: http2.Whole, events: list[ServiceEvent]) -> None:
        """Nearly always a whole call: one message, not compressed."""
        stream_id, headers, data = whole
        admitted = headers.memo  # it is looked at once for a block that comes again
        if type(admitted) is not Admitted or admitted.fault is not None or self._refusal.now is not None:
            admitted = self._admit(stream_id, headers)
            if admitted is None:
                return
        route = admitted.route
        request = None if route.read is None else route.read(data, self._limits)
        if request is None:
            self._open(stream_id, admitted, events)
            self._on_data(http2.Data(stream_id, data, 0, True), events)
            return
        if type(request) is Rejection:
            self._reject(stream_id, route, request)
            return
        call = self.calls[stream_id] = QuickCall()
        call.sink = call
        call.open = True
        call.budget = call.timer = call.wait = None
        call.connection = self
        call.id = stream_id
        call.route = route
        event = blank(CallReceived)
        event.call = call
        event.principal = call.principal = admitted.principal
        event.request = request
        event.deadline = None if admitted.timeout is None else self._now + admitted.timeout
        events.append(event)

    def _on_request(self, event: http2.Request, events: list[ServiceEvent]) -> None:
        admitted = self._admit(event.stream_id, event.headers)
        if admitted is None:
            return
        stream = self._open(event.stream_id, admitted, events)
        if event.ended:
            self._on_remote_end(stream, events)
        elif stream.deadline is not None:
            self.stalls.expect(stream.deadline)

    def _open(self, stream_id: int, admitted: Admitted, events: list[ServiceEvent]) -> GrpcStream:
        """A call, or a stream, of which anything is still to come, or to be looked at."""
        stream = GrpcStream(self, stream_id, admitted.route, admitted.principal)
        stream.gzip = admitted.gzip
        self._streams[stream_id] = stream
        self.stalls.arm(self._now)
        if admitted.route.streaming:
            worker = stream.worker = WorkerStream(stream)
            events.append(WorkerConnected(worker, admitted.principal))
        elif admitted.timeout is not None:
            stream.deadline = self._now + admitted.timeout
        return stream

    def _admit(self, stream_id: int, headers: HeaderList) -> Admitted | None:
        """Who may call what; None = refused, and told so."""
        found = headers.memo
        if type(found) is not Admitted:
            if self._given_up:
                return None
            if type(found) is not Refused:
                found = headers.memo = look(headers.fields, self._authenticate)
            if isinstance(found, Refused):
                self._refuse(stream_id, found)
                return None
            self.proven = True
            self._stranger.may_keep(0)
        rejection = self._refusal.now or found.fault
        if rejection is not None:
            self._reject(stream_id, found.route, rejection)
            return None
        return found

    def _reject(self, stream_id: int, route: Route, rejection: Rejection) -> None:
        """The whole answer to a call of which nothing is kept."""
        self._outcomes[route.name, rejection.code.value] += 1
        self.http2.send_headers(stream_id, status.RESPONSE, status.trailers(rejection), end=True)

    def _refuse(self, stream_id: int, refused: Refused) -> None:
        if not self.proven and not self._refusals.take(self._now):
            self._given_up = True
            self.give_up(peer_limits.REFUSED_CALLS)
            return
        self._outcomes[refused.outcome] += 1
        if not refused.text:
            self.http2.send_headers(stream_id, refused.fields, refused.trailers, end=True)
            return
        text = Text(self, stream_id, refused.fields, refused.text, refused.trailers)
        self._streams[stream_id] = text
        self.schedule(text)

    def _on_data(self, event: http2.Data, events: list[ServiceEvent]) -> None:
        stream = self._streams.get(event.stream_id)
        data = event.data
        if stream is None or stream.closing:
            if stream is not None and not event.ended:
                self._pieces.note(stream, len(data), self._now)
            return
        if data:
            stream.progress += len(data)
            if stream.route.streaming:
                if stream.worker is not None:
                    self._take_from_worker(stream, stream.worker, self._feed(stream, data, True), events)
            else:
                if event.ended and stream.reader is None:  # usual: one DATA frame with one message, not compressed
                    stream.request = sole(data, self._limits.max_message_bytes)
                if stream.request is None or stream.reader is not None:
                    self._take_part(stream, self._feed(stream, data, event.ended))
        if event.ended:
            self._on_remote_end(stream, events)
        elif event.size and not stream.closing:
            self._credit.note(stream, event.size)

    def _feed(self, stream: GrpcStream, data: bytes, may_inflate: bool) -> list[bytes | Rejection]:
        """The messages that are complete with `data`."""
        reader = stream.reader
        if reader is None:
            reader = stream.reader = MessageReader(self._limits.max_message_bytes, gzip=stream.gzip)
        if not stream.gzip:
            found = reader.feed(data)
            if not found:
                self._pieces.note(stream, len(data), self._now)
            return found
        waited = reader.inflating
        self._portion.begin(self._now)
        reader.portion = self._portion if may_inflate and not self._inflating else NOTHING
        found = reader.feed(data)
        if not found and (waited or not reader.inflating):
            self._pieces.note(stream, len(data), self._now)
        if may_inflate and reader.inflating and not stream.inflating:
            self._wait_to_inflate(stream)
        return found

    def _wait_to_inflate(self, stream: GrpcStream) -> None:
        stream.inflating = True
        self._inflating.append(stream)
        self.stalls.urge(self._now)

    def _take_part(self, stream: GrpcStream, found: list[bytes | Rejection]) -> None:
        reader = stream.reader
        assert reader is not None
        for message in found:
            if isinstance(message, Rejection):
                self._fail(stream, message)
                return
            if stream.request is not None:
                self._fail(stream, invalid(f"{stream.route.name} takes one message, not several"))
                return
            stream.request = message
        self._credit.count(stream, reader.buffered + len(stream.request or b""))
        if self._credit.overdrawn(stream) or (stream.inflating and self._credit.crowded):
            self._credit.drop(stream)
            stream.reader = stream.request = None
            self._fail(stream, CROWDED)
            return
        self.stalls.arm(self._now)

    def _take_from_worker(
        self, stream: GrpcStream, worker: WorkerStream, found: list[bytes | Rejection], events: list[ServiceEvent]
    ) -> None:
        reader, limits = stream.reader, self._limits
        assert reader is not None
        for message in found:
            decoded = message if isinstance(message, Rejection) else decode_worker(message, limits)
            if isinstance(decoded, Rejection):
                self._fail_stream(stream, decoded, events)
                return
            events.append(WorkerSent(worker, decoded))
        if reader.buffered or stream.unfinished:
            if found:  # what has begun is another message
                stream.pieces, stream.seen = 0, -1
            self._credit.count(stream, reader.buffered)
            if stream.inflating and self._credit.crowded:
                self._fail_stream(stream, CROWDED, events)
                return
            self.stalls.arm(self._now)

    def _inflate(self, events: list[ServiceEvent]) -> None:
        """Go on with messages that wait to be inflated, as far as a portion goes."""
        waiting, portion = self._inflating, self._portion
        portion.renew(self._now)
        while waiting and portion.left > 0:
            stream = waiting[0]
            reader = stream.reader
            if reader is None or stream.closing or stream.over:
                waiting.popleft()
                continue
            reader.portion = portion
            found = reader.go_on()
            stream.inflating = reader.inflating
            if not stream.inflating:
                waiting.popleft()
            if not stream.route.streaming:
                self._take_part(stream, found)
            elif stream.worker is not None:
                self._take_from_worker(stream, stream.worker, found, events)
            if stream.ends and not stream.inflating:
                self._on_remote_end(stream, events)
        self.stalls.urge(self._now if waiting else NEVER)

    def _on_remote_end(self, stream: GrpcStream, events: list[ServiceEvent]) -> None:
        reader = stream.reader
        if reader is not None and reader.inflating and not stream.closing and self._end_waits(stream, reader):
            return
        stream.remote_ended = True
        if stream.closing:
            return
        incomplete = stream.reader is not None and stream.reader.buffered > 0
        if stream.route.streaming:
            self._on_worker_end(stream, incomplete, events)
            return
        request = stream.request
        if request is None or incomplete:
            self._fail(stream, invalid("the call ended without a complete message"))
            return
        if stream.route.looks:
            if not self.looks.add(stream, request):
                self._fail_stream(stream, CROWDED, events)
            return
        stream.request = None
        self._credit.count(stream, 0)
        assert stream.route.decode is not None
        decoded = stream.route.decode(request, self._limits)
        if isinstance(decoded, Rejection):
            self._fail(stream, decoded)
            return
        call = stream.call = Call(stream)
        events.append(CallReceived(call, stream.principal, decoded, stream.deadline))

    def take_look(self) -> list[ServiceEvent]:
        """The first of `looks`, as an event of the service; none when it is refused here, or there is none."""
        stream = self.looks.take()
        if stream is None or stream.request is None or stream.route.decode is None:
            return []
        request = stream.route.decode(stream.request, self._limits)
        if isinstance(request, Rejection):
            self._fail_stream(stream, request, [])
            self._credit.give()
            return []
        self.forget(stream)
        call = self.calls[stream.id] = whole_call(self, stream)
        return [CallReceived(call, stream.principal, request, stream.deadline)]

    def _end_waits(self, stream: GrpcStream, reader: MessageReader) -> bool:
        """Whether a message whose peer has ended its side is inflated in later turns; else it is now."""
        if not stream.inflating and not self._inflating:  # the end came apart
            self._portion.begin(self._now)
            reader.portion = self._portion
            self._take_part(stream, reader.go_on())
        if stream.closing or not reader.inflating:
            return False
        if not stream.inflating:
            self._wait_to_inflate(stream)
        stream.ends = True
        if stream.deadline is not None:
            self.stalls.expect(stream.deadline)
        return True

    def _on_worker_end(self, stream: GrpcStream, incomplete: bool, events: list[ServiceEvent]) -> None:
        """Counts as disconnect (server.md section 4). The service may still give the status, until it is sent."""
        if stream.worker is not None:
            events.append(WorkerGone(stream.worker, WORKER_ENDED))
        if incomplete:
            self._fail(stream, invalid("the stream ended within a message"))
        elif stream.reader is None:
            self._fail(stream, invalid("the stream ended without a message; the first one must be Register"))
        else:
            stream.abandon()

    def _on_reset(self, event: http2.Reset, events: list[ServiceEvent]) -> None:
        quick = self.calls.get(event.stream_id)
        if quick is not None:
            self._end_call(quick, events)
            return
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._end_stream(stream, "the stream was reset", events)

    def _on_failed(self, event: http2.Failed, events: list[ServiceEvent]) -> None:
        if event.limit is not None:
            self.exceeded.append(event.limit)
        self._end_all(event.reason, events)

    # --- memory and credit

    def hold_credit(self, *, calls: bool, workers: bool) -> None:
        """Give no credit for more bytes of unary calls, or of worker streams, while True."""
        self._credit.hold(calls=calls, workers=workers)
        self.stalls.arm(self._now)

    # --- out

    def grow(self, quick: QuickCall) -> GrpcStream:
        """A call whose answer has to wait becomes a stream."""
        stream = GrpcStream(self, quick.id, quick.route, quick.principal)
        stream.call = quick
        stream.remote_ended = True
        self.forget_call(quick)
        self._streams[quick.id] = stream
        quick.sink = stream
        return stream

    def forget_call(self, quick: QuickCall) -> None:
        """The call is over: its answer is out, or it was reset."""
        quick.sink = None
        self.calls.pop(quick.id, None)

    def _end_call(self, quick: QuickCall, events: list[ServiceEvent]) -> None:
        events.append(CallEnded(quick))
        self.forget_call(quick)

    def drain(self) -> None:
        """First step of a graceful end: the peer is told, streams go on, new ones are still taken."""
        self.http2.drain()

    def give_up(self, limit: PeerLimit) -> None:
        """The peer has exceeded a limit: it is told which, everything that is open ends, `closed`."""
        for event in self.http2.give_up(limit):
            _HANDLERS[type(event)](self, event, self.late_events)

    def finish(self) -> None:
        """Last step: what is open ends as UNAVAILABLE, the peer learns which stream was the last; `closed`."""
        for stream in self._everybody():
            if stream.call is not None:
                self.late_events.append(CallEnded(stream.call))
            if isinstance(stream, GrpcStream) and stream.worker is not None:
                self.late_events.append(WorkerGone(stream.worker, FINISHED.message))
            stream.reject(FINISHED)
        self.http2.finish()

    def refuse_open(self, rejection: Rejection, shutdown: Shutdown) -> None:
        """The service that owned the calls is gone: all are rejected, workers get `shutdown`, no event tells of them.

        Worker streams stay open until `finish`, or until `GrpcStream.close`.
        """
        for stream in self._everybody():
            if stream.call is not None or stream.waits:
                self._outcomes[stream.route.name, rejection.code.value] += 1
                stream.reject(rejection)
            elif stream.worker is not None:
                stream.send(shutdown)
                stream.worker = None

    def _everybody(self) -> list[QuickCall | GrpcStream]:
        """All that is open, oldest first."""
        return sorted((*self.calls.values(), *self._streams.values()), key=attrgetter("id"))

    # --- ends

    def cut(self, stream: GrpcStream, why: str) -> None:
        """Reset a stream whose peer does not do its part."""
        self.exceeded.append(peer_limits.WORKER_BEHIND)
        self.http2.reset(stream.id, ENHANCE_YOUR_CALM)
        self._end_stream(stream, why, self.late_events)

    def lose(self, stream: GrpcStream) -> None:
        """A watcher does not read; the stream ends."""
        if stream.call is not None:
            self.late_events.append(CallEnded(stream.call))

    def forget(self, stream: GrpcStream) -> None:
        """The stream is over: its trailers are out, or it was reset."""
        stream.over = True
        if stream.partial is not None:
            self.count_encoded(-len(stream.partial))
        stream.call = stream.worker = stream.partial = stream.reader = None
        stream.queue.clear()
        self.backlog.drop(stream)
        if self._streams.pop(stream.id, None) is not None:
            self.looks.drop(stream)
            self._credit.drop(stream)
            self.unpark(stream)
            if not self.closed:
                self._credit.give()

    def _fail_stream(self, stream: GrpcStream, rejection: Rejection, events: list[ServiceEvent]) -> None:
        """The peer sent something that ends the stream."""
        if stream.worker is not None:
            events.append(WorkerGone(stream.worker, rejection.message))
        self._credit.drop(stream)
        stream.reader = stream.request = None
        self._fail(stream, rejection)

    def _fail(self, stream: GrpcStream, rejection: Rejection) -> None:
        """A call of which the service knows nothing, or a worker's stream, ends for what its peer has sent."""
        self._outcomes[stream.route.name, rejection.code.value] += 1
        stream.reject(rejection)

    def _end_stream(self, stream: GrpcStream, why: str, events: list[ServiceEvent]) -> None:
        if stream.call is not None:
            events.append(CallEnded(stream.call))
        if stream.worker is not None:
            events.append(WorkerGone(stream.worker, why))
        self.forget(stream)

    def _end_all(self, why: str, events: list[ServiceEvent]) -> None:
        for stream in self._everybody():
            if isinstance(stream, GrpcStream):
                self._end_stream(stream, why, events)
            else:
                self._end_call(stream, events)
        self._stranger.may_keep(0)
        self.clear()

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due; None = never. Late calls are noticed: see `http2_server.py`."""
        due = self.http2.next_timeout()
        return None if due is None else min(due, self.stalls.due)

    def handle_timer(self, now: int) -> list[ServiceEvent]:
        """Act on whatever is due."""
        self._now = now
        events: list[ServiceEvent] = []
        was_closed = self.closed
        found = self.http2.handle_timer(now)
        for event in found:
            _HANDLERS[type(event)](self, event, events)
        if self.closed and not was_closed and not found:
            self.exceeded.append(peer_limits.IDLE)
        if self._inflating:
            self._inflate(events)
        if now >= self.stalls.due:
            for stream in self.stalls.late(self._streams.values(), now):
                self._fail_stream(stream, NO_TURN if stream.waits else TOO_LATE, events)
            for stream, limit, why in self.stalls.scan(self._streams.values(), now):
                self.exceeded.append(limit)
                self.http2.reset(stream.id, ENHANCE_YOUR_CALM)
                self._end_stream(stream, why, events)
        self._credit.give()
        return events


_HANDLERS: dict[type, Callable[[GrpcServer, Any, list[ServiceEvent]], None]] = {
    http2.Request: GrpcServer._on_request,
    http2.Data: GrpcServer._on_data,
    http2.Reset: GrpcServer._on_reset,
    http2.WindowOpened: GrpcServer._on_window,
    http2.Failed: GrpcServer._on_failed,
}
