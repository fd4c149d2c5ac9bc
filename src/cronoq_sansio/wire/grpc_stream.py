"""One call on a connection: what came in so far, and what waits to go out.

Messages are queued by reference and encoded when flow control takes them, so that a queue holds no bytes beyond the
message that is being sent. The messages of a stream share DATA frames. Answers to calls that look at much are encoded
when they are given: that belongs to their turn (`turns.py`), and nobody can have the work of a thousand turns done in
one instant, by opening the windows that they wait for.

Events of a `Watch` go out whole, where half of the peer's window can hold one: so the queue of a caller that does not
read can be dropped at any time, and the status DATA_LOSS, which needs no window, reaches it. Half, because most peers
open a window again only when half of it is used: for more nobody may wait.

Life of the sending side; each step only once, in this order:

    open      reply, reject, send, close are taken
    closing   the end is decided: what is queued goes out, then the trailers. If it was the worker who ended the stream
              (`abandoned`), the service may still say with which status
    over      the trailers are out, or the stream was reset: everything is a no-op
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.task import Lease
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import INITIAL_WINDOW, MAX_UNREAD_EVENTS, OUTBOUND_SPARE
from cronoq_sansio.service.access import Principal
from cronoq_sansio.service.messages import Call, Message, StatusEvent, ToWorker, WorkerStream
from cronoq_sansio.wire import status
from cronoq_sansio.wire.framing import PREFIX, PREFIX_SIZE, MessageReader
from cronoq_sansio.wire.protobuf_codec import Route
from cronoq_sansio.wire.protobuf_worker import encode_for_worker

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc import GrpcServer


def _as_it_is(encoded: bytes) -> bytes:
    return encoded


class GrpcStream:
    """The `sink` of a call or of a worker stream. All methods do nothing once the stream is over."""

    __slots__ = (
        "abandoned",
        "blocked",
        "call",
        "closing",
        "connection",
        "crowded",
        "deadline",
        "encode",
        "ends",
        "gzip",
        "headers_sent",
        "id",
        "inflating",
        "kept",
        "need",
        "over",
        "partial",
        "pieces",
        "principal",
        "progress",
        "promised",
        "queue",
        "reader",
        "ready",
        "rejection",
        "remote_ended",
        "request",
        "reserve",
        "route",
        "seen",
        "sent",
        "strikes",
        "unfinished",
        "waits",
        "window",
        "worker",
    )

    def __init__(self, connection: "GrpcServer", stream_id: int, route: Route, principal: Principal) -> None:
        self.connection = connection
        self.id = stream_id
        self.route = route
        self.principal = principal
        self.call: Call | None = None
        """Set from `CallReceived` until the end is decided."""
        self.worker: WorkerStream | None = None
        """Set from `WorkerConnected` until the stream is closed or gone."""
        self.deadline: int | None = None
        """Of a call; counts from its headers."""
        # receiving
        self.gzip = False
        self.reader: MessageReader | None = None
        self.request: bytes | None = None
        self.remote_ended = False
        self.inflating = False
        """A message is here and waits to be inflated …"""
        self.ends = False
        """… and the peer has ended its side with that."""
        self.waits = False
        """The call is here, and its turn has not come."""
        self.unfinished = 0
        """Bytes of messages that are not complete; counted by the connection."""
        self.window = INITIAL_WINDOW
        """Bytes that the peer may still send."""
        self.pieces = 0
        """Tiny ones, of the message that is coming."""
        self.promised = 0
        """Its part of `Credit.promised`."""
        # sending
        self.encode: Any = encode_for_worker if route.streaming else route.encode
        self.queue: deque[Any] | list[Any] = deque() if route.streaming or route.events else []
        self.partial: bytes | None = None
        """Encoded messages of which only the part up to `sent` is out."""
        self.sent = 0
        self.kept = 0
        """Bytes of its answer, as `backlog.py` counts them."""
        self.headers_sent = False
        self.closing = False
        self.abandoned = False
        self.rejection: Rejection | None = None
        self.over = False
        self.ready = False
        """Stands in the connection's list of streams to send from."""
        self.blocked = False
        """Waits for the peer to open its window …"""
        self.need = 0
        """… for so many bytes at least: an event goes out whole."""
        self.crowded = False
        """Waits for another stream's message to be sent: see `GrpcServer.count_encoded`."""
        # what `stalls.py` looks at
        self.progress = 0
        """Bytes of DATA that came, and frames that were sent; once it is closing, bytes of DATA that were sent."""
        self.seen = -1
        """`progress` at the last look; -1 = there was none since a message began to come, or the end was decided."""
        self.strikes = 0
        self.reserve = 0

    @property
    def missing(self) -> int:
        """Bytes that the message which is coming in still lacks."""
        return 0 if self.reader is None else self.reader.missing

    # --- what the service and the runtime ask for

    def reply(self, message: Message) -> Rejection | None:
        """Answer a unary call: status OK, unless too much waits already: then why it was refused instead."""
        refused = None
        if not self.closing and not self.over:
            if self.route.looks:
                message, self.encode = self.encode(message), _as_it_is
            refused = self.connection.backlog.keep(self, message)
            if refused is None:
                self.queue.append(message)
            self._end(refused)
        return refused

    def reject(self, rejection: Rejection) -> None:
        """End with the status of the rejection; what is queued is dropped, but for events: they came before."""
        if not self.over and (not self.closing or self.abandoned):
            if not self.route.events:
                self.queue.clear()
            self._end(rejection)

    def start(self) -> None:
        """Let a `Watch` in: its headers go out at once, so that the caller knows that nothing is missed from now on."""
        if not self.closing and not self.over:
            self.headers_sent = True
            self.connection.http2.send_headers(self.id, status.RESPONSE)

    def send_event(self, event: StatusEvent) -> None:
        """Queue an event; when too many are unread already, the caller loses them all and is told how many."""
        if self.closing or self.over:
            return
        self.queue.append(event)
        if len(self.queue) > MAX_UNREAD_EVENTS:
            dropped = len(self.queue)
            self.queue.clear()
            self.connection.lose(self)
            text = f"the events are read too slowly: {dropped} of them were dropped; watch again"
            self._end(Rejection(Code.DATA_LOSS, text))
            return
        self.connection.schedule(self)

    def send(self, message: ToWorker | Lease) -> None:
        """Queue a message for the worker; one too many cuts the stream (source page, protocol rule 7)."""
        if self.closing or self.over:
            return
        queue = self.queue
        if len(queue) >= OUTBOUND_SPARE and len(queue) >= self._most_queued():
            self.connection.cut(self, "worker does not read")
            return
        queue.append(message)
        if not self.ready:
            self.connection.schedule(self)

    def _most_queued(self) -> int:
        worker = self.worker
        return OUTBOUND_SPARE if worker is None else max(worker.max_queued, OUTBOUND_SPARE)

    def close(self, rejection: Rejection | None) -> None:
        """End the worker stream after what is queued: status OK, or that of the rejection."""
        if not self.over and (not self.closing or self.abandoned):
            self._end(rejection)

    def abandon(self) -> None:
        """The worker ended its side: what is queued is of no use, the status is OK unless the service says another."""
        self.queue.clear()
        self._end(None)
        self.abandoned = True

    def _end(self, rejection: Rejection | None) -> None:
        self.closing = True
        self.seen = -1
        self.abandoned = False
        self.rejection = rejection
        self.call = None
        self.worker = None
        self.connection.schedule(self)

    # --- what the connection asks for

    @property
    def unsent(self) -> bool:
        """Something waits to go out."""
        return not self.over and (self.closing or self.partial is not None or bool(self.queue))

    def pump(self) -> int:
        """Send at most one DATA frame, and the trailers if they are due. Returns the bytes of DATA."""
        http2 = self.connection.http2
        self.blocked = False
        self.need = size = 0
        if self.queue or self.partial is not None:
            room = http2.sendable(self.id)
            if room <= 0:
                self.blocked = True
                return 0
            data = self._gather(room)
            if not data:
                self.blocked = True
                return 0
            if not self.headers_sent:
                self.headers_sent = True
                http2.send_headers(self.id, status.RESPONSE)
            http2.send_data(self.id, data)
            size = len(data)
            self.progress += size if self.closing else 1
            if self.queue or self.partial is not None:
                return size
        if self.closing:
            head = () if self.headers_sent else status.RESPONSE
            if self.rejection is None:
                http2.send_headers(self.id, head + status.OK, end=True)
            else:
                http2.send_headers(self.id, head, status.trailers(self.rejection), end=True)
            self.connection.forget(self)
        return size

    def _gather(self, room: int) -> bytes:
        """Up to `room` bytes of framed messages; none when an event has to wait for a wider window."""
        partial = self.partial
        if partial is None:
            partial = self._encode_events(room) if self.route.events else self._encode(room)
        if self.sent == 0 and len(partial) <= room:
            self.partial = None
            return partial
        data = partial[self.sent : self.sent + room]
        self.sent += len(data)
        if self.sent == len(partial):
            self.partial, self.sent = None, 0
            self.connection.count_encoded(-len(partial))
        elif self.partial is None:
            self.partial = partial
            self.connection.count_encoded(len(partial))
        return data

    def _encode_events(self, room: int) -> bytes:
        """Encode as many whole events as `room` holds, or one that is too large to go out whole."""
        queue, encode = self.queue, self.encode
        assert isinstance(queue, deque)
        parts: list[bytes] = []
        size = 0
        while queue:
            message = encode(queue[0])
            size += PREFIX_SIZE + len(message)
            if size > room and (parts or size <= self.connection.http2.whole_window):
                self.need = 0 if parts else size
                break
            queue.popleft()
            parts.append(PREFIX.pack(0, len(message)))
            parts.append(message)
            if size >= room:
                break
        return b"".join(parts)

    def _encode(self, room: int) -> bytes:
        """Encode queued messages until `room` bytes are there or nothing is left."""
        queue, encode, prefix = self.queue, self.encode, PREFIX.pack
        if len(queue) == 1:
            message = encode(queue.pop())
            return prefix(0, len(message)) + message  # type: ignore[no-any-return]
        assert isinstance(queue, deque)
        parts: list[bytes] = []
        size = 0
        while queue and size < room:
            message = encode(queue.popleft())
            length = len(message)
            parts.append(prefix(0, length))
            parts.append(message)
            size += PREFIX_SIZE + length
        return b"".join(parts)
