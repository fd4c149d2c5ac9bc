"""What goes out on a gRPC connection of a server, and in which order: streams have turns, as the windows allow.

A stream that has something to send is *ready*, and `take` lets the ready ones speak in turns. One that the windows hold
up waits apart, so that a peer which opens them a byte at a time costs no look at each: for its own window, for that of
the connection, or until that has room for a whole event. Messages are encoded in a stream's turn and not before, and
none while too many bytes wait encoded (`count_encoded`); lists and figures come here encoded.
"""

from collections import deque

from cronoq_sansio import limits as fixed
from cronoq_sansio.service.messages import ServiceEvent
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.http2_choice import Http2
from cronoq_sansio.wire.stalls import Stalls

_HEADERS_ESTIMATE = 64  #: what HEADERS and frame headers of one answer take, roughly


class GrpcOutput:
    """The sending side of one connection."""

    def __init__(self, connection: Http2, limits: LimitSettings, stalls: Stalls, now: int) -> None:
        """`stalls` is told when something waits for the peer."""
        self.http2 = connection
        self._limits = limits
        self.stalls = stalls
        self._now = now
        self.more = False
        """What `wants_write` would say right after `take`."""
        self.ready: deque[GrpcStream] = deque()
        """Those that have something to send."""
        self._blocked: dict[int, GrpcStream] = {}
        """By stream: those that wait for their own windows …"""
        self.starved: dict[int, GrpcStream] = {}
        """… for that of the connection, oldest first; they count as ready while it is open …"""
        self._narrow: dict[int, GrpcStream] = {}
        """… and until it has room for a whole event, as long as one may go out whole."""
        self._windows = connection.initial_window, connection.whole_window
        self._crowded: dict[int, GrpcStream] = {}
        self._encoded = 0
        """Bytes of messages that are encoded and not sent whole, over all streams; see `count_encoded`."""

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        connection = self.http2
        if connection.unsent or connection.last_word or self.ready:
            return True
        if not self.starved and not self._narrow:
            return False
        return (len(self.starved) > 0 and connection.window > 0) or (len(self._narrow) > 0 and self._has_room())

    def _has_room(self) -> bool:
        """For the event that has waited longest; what cannot go out whole any more, goes as far as there is room."""
        need, window = next(iter(self._narrow.values())).need, self.http2.window
        return need <= window or (window > 0 and need > self.http2.whole_window)

    def take(self, limit: int) -> bytes:
        """About `limit` bytes to write now; messages are encoded here, as flow control takes them."""
        if not self.ready and not self.starved and not self._narrow:
            data = self.http2.take(limit)
            self.more = self.http2.unsent > 0
            return data
        ready, starved, narrow, connection = self.ready, self.starved, self._narrow, self.http2
        room = limit - connection.unsent
        while room > 0:
            if starved and connection.window > 0:
                stream = starved.pop(next(iter(starved)))
            elif narrow and self._has_room():
                stream = narrow.pop(next(iter(narrow)))
            elif ready:
                stream = ready.popleft()
                stream.ready = False
            else:
                break
            if stream.over:
                continue
            if self._encoded > self._limits.max_message_bytes and stream.partial is None and stream.queue:
                stream.crowded = True
                self._crowded[stream.id] = stream
                continue
            room -= stream.pump() + _HEADERS_ESTIMATE
            if stream.blocked:
                self._park(stream)
            elif stream.unsent:
                self.schedule(stream)
        data = connection.take(limit, more=bool(ready))
        self.more = self.wants_write()
        return data

    def _park(self, stream: GrpcStream) -> None:
        """The windows have no room for what the stream has to send."""
        if stream.need > self.http2.window:
            self._narrow[stream.id] = stream
        elif self.http2.window <= 0:
            self.starved[stream.id] = stream
        else:
            self._blocked[stream.id] = stream

    def _on_window(self, event: http2.WindowOpened, events: list[ServiceEvent]) -> None:
        if event.stream_id:
            stream = self._blocked.pop(event.stream_id, None)
            if stream is not None:
                self.schedule(stream)
            return
        # A peer may say this for each byte: those that wait for the connection have their turns in `take`.
        windows = self.http2.initial_window, self.http2.whole_window
        if windows != self._windows:
            self._windows = windows
            blocked, self._blocked = self._blocked, {}
            for stream in blocked.values():
                self.schedule(stream)

    def prompt(self) -> bool:
        """Whether an answer may be put into the output at once: there is room, and nobody waits for it."""
        return self.http2.unsent < fixed.MAX_PROMPT and not self.ready and not self.starved

    def schedule(self, stream: GrpcStream) -> None:
        """The stream has something to send."""
        stream.crowded = False
        if not stream.ready:
            stream.ready = True
            self.ready.append(stream)
            self.stalls.arm(self._now)

    def count_encoded(self, size: int) -> None:
        """A stream holds `size` bytes more, or less, of a message that is encoded and not sent whole.

        Above `max_message_bytes` no further message is encoded, so that a peer which asks for a thousand large
        replies and takes them a byte at a time costs two messages of memory and not a thousand. Streams that stand
        back here wait for the one that is sent, which is reset when its peer does not take it.
        """
        self._encoded += size
        if self._crowded and self._encoded <= self._limits.max_message_bytes:
            crowded, self._crowded = self._crowded, {}
            for stream in crowded.values():
                if stream.crowded:
                    self.schedule(stream)

    def unpark(self, stream: GrpcStream) -> None:
        """The stream is over: it waits for nothing."""
        for waiting in (self._blocked, self.starved, self._narrow, self._crowded):
            waiting.pop(stream.id, None)

    def clear(self) -> None:
        """All streams are over: nobody has a turn."""
        self.ready.clear()
