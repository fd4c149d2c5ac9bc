"""HTTP/2 for a server (RFC 9113): bytes in -> our events; headers, data, trailers, resets -> bytes out.

- Nothing is sent before the peer's preface is complete, and another one closes: what speaks TLS here gets no
  answer, and who speaks HTTP/1.1 is told so in HTTP/1.1, as soon as a method and a blank are there.
- A request that is the usual one, headers that came before and then one DATA frame that ends it, is recognised whole.
- A stream too many is refused (REFUSED_STREAM).
- A stream that was answered before the peer's end lingers, so that the peer can stop; what it sends is dropped.
- After a GOAWAY of the peer open streams end in order (section 6.8).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

from cronoq_sansio import limits
from cronoq_sansio.clock import NEVER
from cronoq_sansio.wire import http2_fields, peer_limits
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.http2_connection import Http2Connection
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_streams import State, Stream, table
from cronoq_sansio.wire.http2_words import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_HEADER,
    GOAWAY,
    HEAD,
    HEADERS,
    LONG,
    MAX_STREAM_ID,
    NO_ERROR,
    PING,
    PING_PAYLOAD,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    Fault,
)
from cronoq_sansio.wire.peer_limits import Exceeded, PeerLimit
from cronoq_sansio.wire.server_timers import ServerTimers

_head = HEAD.unpack_from
_pack_long = LONG.pack
_REMOTE_ENDED = int(State.REMOTE_ENDED)
_LOCAL_ENDED = int(State.LOCAL_ENDED)
_BOTH = int(State.ENDED)


class _Asked:
    """A request with a header block of some size, up to the content: HEADERS, and the head of one DATA frame."""

    __slots__ = ("begin", "size", "unpack")

    def __init__(self, block: int) -> None:
        self.begin = block.to_bytes(3, "big") + bytes((HEADERS, END_HEADERS))
        self.size = 2 * FRAME_HEADER + block
        self.unpack = Struct(f">5sl{block}sLBl").unpack_from
        """`begin`, the stream, the block, the length of DATA with its type, which is 0, its flags, the stream.

        Below 0, which is no stream, where the reserved bit is set.
        """


_ASKED = [_Asked(size) for size in range(0x100)]
"""By size: that is the third byte of such a request."""
_SMALLEST = 2 * FRAME_HEADER
_LARGEST_DATA = limits.MAX_FRAME << 8 | DATA  #: the length of a frame with its type, as in `_Asked`
_HALF_WINDOW = limits.CONNECTION_WINDOW // 2


class _Form:
    """An answer, all but its content and its stream: headers, the head of one DATA frame, trailers."""

    __slots__ = ("begin", "close", "content", "end", "head", "middle", "of", "size", "tail", "version")

    def __init__(
        self, fields: Sequence[Field], trailers: Sequence[Field], version: int, head: bytes, tail: bytes
    ) -> None:
        self.of = fields
        self.end = trailers
        self.version = version
        """The encoder's, before it wrote these: blocks that moved its table are not written twice."""
        self.head = head
        self.tail = tail
        self.begin = len(head).to_bytes(3, "big") + bytes((HEADERS, END_HEADERS))
        self.close = len(tail).to_bytes(3, "big") + bytes((HEADERS, END_HEADERS | END_STREAM))
        self.fit(0)

    def fit(self, content: int) -> None:
        """Content of so many bytes goes into it."""
        self.content = content
        self.middle = self.head + content.to_bytes(3, "big") + bytes((DATA, 0))
        self.size = 3 * FRAME_HEADER + len(self.head) + content + len(self.tail)


class Http2Server(Http2Connection, ServerTimers):
    """One connection. Sending on a stream that is over, or after a failure, does nothing.

    `max_streams` bounds the open streams; `ping_interval` (ns) is how long the peer may be silent before it is pinged,
    and `ping_timeout` how long after that until it counts as gone.
    """

    __slots__ = (
        "_begun",
        "_between",
        "_draining",
        "_failed",
        "_form",
        "_frame_due",
        "_heard",
        "_idle_since",
        "_lingering",
        "_max_streams",
        "_odd",
        "_peer_leaves",
        "_ping_interval",
        "_ping_timeout",
        "_pinged",
        "_preface_due",
        "_rest_matters",
        "_seen",
        "_spare",
        "due",
    )

    TABLE = table(server=True)
    PEER = "the peer"

    def __init__(self, *, max_streams: int, ping_interval: int, ping_timeout: int, now: int) -> None:
        super().__init__(now, max_streams, limits.INITIAL_WINDOW)
        self._max_streams = max_streams
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._seen = 0
        """Bytes of the preface."""
        self._odd = b""
        """The first bytes of a peer that has another one, until it is clear what it is."""
        self._between = False
        """What comes next is the beginning of a frame, and its peer may open streams: no header block is open."""
        self._lingering: dict[int, int] = {}
        """Streams that we have ended and the peer has not, and when they are reset."""
        self._failed = False
        self._draining = False
        self._form = _Form((), (), -1, b"", b"")
        """Of the last answer."""
        self._spare: Stream | None = None
        """Of the last answer: where one call follows the other, they all have the same one."""
        self._peer_leaves = False
        self._rest_matters = max(ping_interval, ping_timeout) > limits.IDLE_TIMEOUT
        """When the last stream is over there may be something to do. Else that is noted: a ping is due earlier."""
        self._heard = now
        self._pinged: int | None = None
        self._idle_since = now
        self._preface_due: int | None = now + limits.PREFACE_TIMEOUT
        self.due = self._preface_due
        """Nothing is due before this, on the scale of `now`: what `next_timeout` said last, or what came up since."""
        self._frame_due: int | None = None
        self._begun = now

    # --- in

    def receive(self, data: bytes, now: int) -> list[Event]:
        """Bytes of the peer; what they mean, in order. Nothing after `closed`."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._clock = self._heard = now - self._lost
        if self._pinged is not None:
            self._pinged = None
            self._advance(self._next_ping())
        at, size = 0, len(data)
        if self._between:
            at = self._whole(data, 0, len(data), events)
            if at == size and self.unsent <= limits.MAX_UNSENT:
                return events
        self._moved_on = at > 0
        try:
            if self._seen < len(PREFACE):
                at = self._greet(data)
            if self._seen == len(PREFACE):
                if self._buffer or self._skip:
                    data, at = self._join(data, events)
                self._receive_frames(data, at, events)
            if self.unsent > limits.MAX_UNSENT:
                raise Exceeded(peer_limits.UNREAD_REPLIES)
            if self._block_stream or self._buffer or self._skip or not self._settled:
                self._between = False
                self._watch(size)
            else:
                self._between = True
                self._frame_due = None
                self._floods.reads.pieces = 0
        except Fault as fault:
            limit = fault.limit if isinstance(fault, Exceeded) else peer_limits.broken(fault.reason)
            self._fail(fault.code, fault.reason, limit, events)
        return events

    def fragment(self, size: int, now: int) -> bool:
        """A read of so many bytes below has brought nothing for `receive`; False when there were too many of them."""
        self._between = False  # so that the end of the frame is seen
        return self._floods.reads.take(size, now - self._lost)

    def _greet(self, data: bytes) -> int:
        """The preface, or a part of it: where it ends. Ours goes out when it is complete (section 3.4)."""
        part = data[: len(PREFACE) - self._seen]
        if self._odd or not PREFACE.startswith(part, self._seen):
            odd = self._odd = (self._odd or PREFACE[: self._seen]) + data[: words.LONGEST_METHOD + 2]
            if words.may_be_http1(odd):
                return len(data)
            answer = words.answer_to(odd)
            self._out.append(answer)
            self.unsent += len(answer)
            raise Exceeded(peer_limits.NOT_HTTP2)
        self._seen += len(part)
        if self._seen == len(PREFACE):
            values = (
                (words.MAX_STREAMS, self._max_streams),
                (words.INITIAL_WINDOW, limits.INITIAL_WINDOW),
                (words.MAX_FRAME_SIZE, limits.MAX_FRAME),
                (words.MAX_HEADER_LIST, limits.MAX_HEADER_LIST),
            )
            self._send(SETTINGS, 0, 0, b"".join(SETTING.pack(*entry) for entry in values))
            self._send(WINDOW_UPDATE, 0, 0, LONG.pack(limits.CONNECTION_WINDOW - words.DEFAULT_WINDOW))
        return len(part)

    def _watch(self, size: int) -> None:
        """A read of so many bytes has left something unfinished."""
        if self._moved_on:
            self._floods.reads.pieces = 0
        elif not self._floods.reads.take(size, self._clock) and not self.closed:
            raise Exceeded(peer_limits.TINY_READS)
        before = self._frame_due
        due = self._time_frame(self._buffer, anew=self._moved_on)
        if due != before:
            self._advance(due)

    def _whole(self, buffer: bytes, at: int, end: int, events: list[Any]) -> int:
        """Requests with headers that came before, each with all its content in one DATA frame right behind them."""
        streams, known = self._streams, self._decoder.known
        while end - at > _SMALLEST:
            form = _ASKED[buffer[at + 2]]
            start = at + form.size
            if start > end:
                break
            begin, stream_id, block, length, flags, of = form.unpack(buffer, at)
            following = start + (length >> 8)
            headers = known(block)
            window = self._receive_window - following + start
            if (
                begin != form.begin
                or stream_id != self._highest + 2
                or of != stream_id
                or flags != END_STREAM
                or length & 0xFF != DATA
                or length > _LARGEST_DATA
                or following > end
                or headers is None
                or headers.fault != ""
                or headers.length >= 0
                or window < _HALF_WINDOW
                or len(streams) >= self._max_streams
            ):
                break
            self._highest = stream_id
            self._receive_window = window
            self._floods.opened += 1
            stream = self._spare
            if stream is None:
                stream = Stream(_REMOTE_ENDED, self._peer_window, 0)
            else:
                self._spare = None
                stream.send_window = self._peer_window
            streams[stream_id] = stream
            events.append((stream_id, headers, buffer[start:following]))
            at = following
        return at

    def _usual(self, buffer: bytes, at: int, end: int, events: list[Any]) -> int:
        """Requests with headers that came before, whose content is one DATA frame with their end.

        Some clients send the headers of many requests first, and then their contents.
        """
        at = self._whole(buffer, at, end, events)
        if end - at > self._receive_window:
            return at  # so much is never read at once; what follows need not look at the window
        known, streams = self._decoder.known, self._streams
        highest, window, peer_window = self._highest, self._receive_window, self._peer_window
        waiting: dict[int, HeaderList] = {}
        room = self._max_streams - len(streams)
        while end - at >= FRAME_HEADER:
            high, size, kind, flags, stream_id = _head(buffer, at)
            start = at + FRAME_HEADER
            following = start + size
            if following > end or high:
                break
            if kind == HEADERS:
                if flags != END_HEADERS or stream_id != highest + 2 or room <= 0 or stream_id > MAX_STREAM_ID:
                    break
                headers = known(buffer[start:following])
                if headers is None or headers.fault != "":
                    break
                highest = stream_id
                room -= 1
                waiting[stream_id] = headers
            elif kind == DATA:
                if flags != END_STREAM or size > limits.MAX_FRAME or stream_id not in waiting:
                    break
                headers = waiting[stream_id]
                if headers.length != size and headers.length >= 0:
                    break
                del waiting[stream_id]
                window -= size
                streams[stream_id] = Stream(_REMOTE_ENDED, peer_window, 0)
                events.append((stream_id, headers, buffer[start:following]))
            else:
                break
            at = following
        if waiting:
            for stream_id, headers in waiting.items():
                stream = streams[stream_id] = Stream(0, peer_window, self._window)
                stream.expected = headers.length
                events.append(Request(stream_id, headers, False))
        if highest != self._highest:
            self._floods.opened += (highest - self._highest) // 2
            self._highest = highest
            self._receive_window = window
            if 2 * window < limits.CONNECTION_WINDOW:
                self._take_window(0)
        return at

    def _on_opened(self, stream_id: int, headers: HeaderList, *, ended: bool, events: list[Any]) -> None:
        following = self._highest + 2 if self._highest else 1
        if stream_id > following:
            self._over.skip(following, stream_id - 2)
        self._highest = stream_id
        self._floods.opened += 1
        if len(self._streams) >= self._max_streams:
            self._drop(stream_id, REFUSED_STREAM)
            return
        fields = headers.fields
        if headers.fault is None:
            headers.fault = http2_fields.request_fault(fields)
            length = http2_fields.content_length(fields)
            if length is None:
                headers.fault = headers.fault or "a content-length that cannot be read"
            else:
                headers.length = length
        if headers.fault or (ended and headers.length > 0):
            self._drop(stream_id, PROTOCOL_ERROR)
            return
        stream = Stream(_REMOTE_ENDED if ended else 0, self._peer_window, self._window)
        stream.expected = headers.length
        self._streams[stream_id] = stream
        events.append(Request(stream_id, headers, ended))

    def _on_more_headers(
        self, stream_id: int, stream: Stream, headers: HeaderList, *, ended: bool, events: list[Any]
    ) -> None:
        """Trailers; they end the stream (section 8.1)."""
        if not ended or http2_fields.trailers_fault(headers.fields):
            self._break_stream(stream_id, PROTOCOL_ERROR, events)
            return
        stream.state |= _REMOTE_ENDED
        if stream.state == _BOTH:
            del self._streams[stream_id]
        self._on_content(stream_id, stream, b"", 0, ended=True, events=events)

    def _on_content(
        self, stream_id: int, stream: Stream, data: bytes, size: int, *, ended: bool, events: list[Any]
    ) -> None:
        if not stream.state & _LOCAL_ENDED:
            events.append(Data(stream_id, data, size, ended))
        elif ended:
            self._lingering.pop(stream_id, None)
            self._left()
        else:
            if 0 < len(data) < limits.TINY_DATA:
                self._on_scrap()
            self._let_end(stream_id, stream)

    def _awaits(self, stream_id: int) -> bool:
        stream = self._streams.get(stream_id)
        return stream is not None and not stream.state & _LOCAL_ENDED

    def _on_scrap(self) -> None:
        """Costs and means as much as a PRIORITY."""
        if not self._floods.priority():
            raise Exceeded(peer_limits.TINY_DATA)

    def _let_end(self, stream_id: int, stream: Stream) -> None:
        """Some clients look at the answer only when their message is out: let them send, while the stream lingers.

        What came before the answer, and got no credit because it was no whole message, counts too.
        """
        used = self._window - stream.receive_window
        if used >= self._window // 4:
            self.credit(stream_id, used)

    def _on_over(self, stream_id: int, code: int, events: list[Any]) -> None:
        events.append(Reset(stream_id))
        self._lingering.pop(stream_id, None)
        self._left()

    def _on_window_opened(self, stream_id: int, events: list[Any]) -> None:
        events.append(WindowOpened(stream_id))

    def _on_setting(self, name: int, number: int) -> None:
        """A client may say how many streams we may push: none, whatever it says."""

    def _on_settled(self, events: list[Any]) -> None:
        if self._preface_due is not None:
            self._preface_due = None
            self._idle_since = self._clock
            self._advance(self._next_ping())  # an interval may be shorter than the time for the preface

    def _on_goaway(self, last: int, code: int, reason: bytes, events: list[Any]) -> None:
        self._peer_leaves = self._rest_matters = True
        if not self._streams:
            self.finish()

    # --- out

    def send_headers(
        self, stream_id: int, fields: Sequence[Field], once: Iterable[Field] = (), *, end: bool = False
    ) -> None:
        """Response headers, or trailers when headers went out before; `end`: nothing follows.

        `fields` are such as come again and again, `once` those that do not.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.state & _LOCAL_ENDED:
            return
        self._write_block(END_STREAM if end else 0, stream_id, self._encoder.encode(fields, once))
        self._floods.paid()
        if end:
            self._end_local(stream_id, stream)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """One DATA frame of at most `sendable` bytes."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state & _LOCAL_ENDED:
            return
        size = len(data)
        stream.send_window -= size
        self._send_window -= size
        self._send_content(0, stream_id, data)
        if size < limits.MIN_USEFUL_DATA and not (stream.send_window and self._send_window):
            self._floods.paid()  # a window has cut it: such frames may not pay for the next WINDOW_UPDATEs
        else:
            self._floods.sent += 1
            self._floods.content += size

    def answer(self, stream_id: int, fields: Sequence[Field], data: bytes, trailers: Sequence[Field]) -> bool:
        """Headers, one DATA frame and trailers at once; False = the windows do not allow it, and nothing was sent."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state & _LOCAL_ENDED:
            return True
        size = len(data)
        if size > self._most_data or size > stream.send_window or size > self._send_window:
            return False
        self._send_window -= size
        form = self._form
        if form.of is not fields or form.end is not trailers or form.version != self._encoder.version:
            form = self._form_of(fields, trailers)
        if form.content != size:
            form.fit(size)
        stream_bytes = _pack_long(stream_id)
        self._out += (
            form.begin,
            stream_bytes,
            form.middle,
            stream_bytes,
            data,
            form.close,
            stream_bytes,
            form.tail,
        )
        self.unsent += form.size
        self._floods.sent += 1
        if stream.state:
            del self._streams[stream_id]
            self._spare = stream
            if not self._streams:
                self._idle_since = self._clock
                if self._rest_matters:
                    self._left()
        else:
            self._end_local(stream_id, stream)
        return True

    def _form_of(self, fields: Sequence[Field], trailers: Sequence[Field]) -> "_Form":
        """Kept for the next answer; where the encoder's table moves meanwhile, that one has to be encoded anew."""
        version = self._encoder.version
        encode = self._encoder.encode
        form = self._form = _Form(fields, trailers, version, encode(fields), encode(trailers))
        return form

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once; `code` as in RST_STREAM."""
        self._lingering.pop(stream_id, None)
        super().reset(stream_id, code)

    def tick(self, now: int) -> None:
        """It is `now`: said before something is sent that nothing was read for. What begins then counts from here."""
        self._clock = max(self._clock, now - self._lost)

    def drain(self) -> None:
        """Announce the end (section 6.8): GOAWAY with the highest id; new streams are still taken."""
        if not self._draining and not self.closed and self._seen == len(PREFACE):
            self._draining = True
            self._goaway(MAX_STREAM_ID, NO_ERROR, b"")

    def give_up(self, limit: PeerLimit) -> list[Event]:
        """The peer has exceeded a limit that others keep: GOAWAY says which, and all streams are over."""
        events: list[Event] = []
        self._fail(ENHANCE_YOUR_CALM, limit.says, limit, events)
        return events

    def finish(self) -> None:
        """`closed` from here on; the final GOAWAY, with the last stream that was looked at, follows what is sent."""
        if not self.closed:
            self.closed = True
            self.due = 0  # whoever waits for the peer has to notice
            self.last_word = self._seen == len(PREFACE)

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return self.unsent > 0 or self.last_word

    def _say_farewell(self) -> None:
        self._goaway(self._highest, NO_ERROR, b"")

    def _goaway(self, last_stream: int, code: int, why: bytes) -> None:
        self._send(GOAWAY, 0, 0, LONG.pack(last_stream) + LONG.pack(code) + why)

    # --- ends

    def _end_local(self, stream_id: int, stream: Stream) -> None:
        stream.state |= _LOCAL_ENDED
        if stream.state == _BOTH:
            del self._streams[stream_id]
            self._left()
        else:
            # Answered early. Some clients lose the answer when a reset follows at once, so they get time to stop.
            self._lingering[stream_id] = self._clock + limits.STREAM_LINGER
            self._advance(self._clock + limits.STREAM_LINGER)
            self._let_end(stream_id, stream)

    def _left(self) -> None:
        if not self._streams:
            self._idle_since = self._clock
            self._advance(self._clock + limits.IDLE_TIMEOUT)
            if self._peer_leaves:
                self.finish()

    def _fail(self, code: int, reason: str, limit: PeerLimit, events: list[Any]) -> None:
        if self._failed:
            return
        if self._seen == len(PREFACE):
            self._goaway(self._highest, code, reason.encode())
        self._failed = self.closed = True
        self._streams.clear()
        self._lingering.clear()
        self._buffer = b""
        self._skip = 0
        self._block = []
        self._block_stream = 0
        events.append(Failed(reason, limit))

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        due = super().next_timeout()
        self.due = NEVER if due is None else due
        return due

    def _advance(self, due: int) -> None:
        """Something is due that may be earlier than all else."""
        self.due = min(self.due, due + self._lost)

    def _give_up(self, code: int, limit: PeerLimit, events: list[Event]) -> None:
        self._fail(code, limit.says, limit, events)

    def _idle(self) -> bool:
        return not self._streams

    def _send_ping(self) -> None:
        self._send(PING, 0, 0, PING_PAYLOAD)
