"""HTTP/2 for a client (RFC 9113): open streams, headers, data, resets -> bytes out; bytes in -> events; and its timers.

- The first bytes of the server are looked at before HTTP/2 is: who answers in HTTP/1.1 or TLS is named.
- No stream is opened before the server's SETTINGS are here, and never more than they allow.
- A request that is all there goes out in one piece (`ask`). An answer that is the usual one, headers and trailers that
  came before and one DATA frame between them, is recognised whole.
- An answer that is malformed (`http2_fields.py`) ends its stream alone.
- After the server's GOAWAY the streams up to its last one go on, the later ones are over and were not looked at.
- A server that is silent for too long is pinged while streams are open; without an answer it counts as gone.
- A server may end each stream that it was asked for; whatever else costs us and carries nothing is counted, as it is of
  a client (`floods.py`).

Time. `now` is given with each call. When a timer fires later than `limits.LATE_TIMER` the process could not read
meanwhile: all timers of this machine move by the lateness and one second more, so that the socket is read first.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import http2_fields
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.http2_connection import Http2Connection
from cronoq_sansio.wire.http2_events import (
    Answer,
    ClientSideEvent,
    Data,
    Failed,
    GoneAway,
    ResetByServer,
    Response,
    Settled,
    Trailers,
    WindowOpened,
)
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
    PROTOCOL_ERROR,
    SETTING,
    SETTINGS,
    SETTINGS_TIMEOUT,
    WINDOW_UPDATE,
    Fault,
)

_head = HEAD.unpack_from
_pack = HEAD.pack
_REMOTE_ENDED = int(State.REMOTE_ENDED)
_LOCAL_ENDED = int(State.LOCAL_ENDED)
_BOTH = int(State.ENDED)
_LAST = END_HEADERS | END_STREAM
_WITHOUT_CONTENT = (b"204", b"304")  #: RFC 9110 section 8.6: their content-length is that of something else
_FAULTS = {
    words.PROTOCOL_ERROR: "content of another length than it says, or a malformed frame",
    words.FLOW_CONTROL_ERROR: "a window above 2^31 - 1",
    words.STREAM_CLOSED: "frames after its end",
    words.FRAME_SIZE_ERROR: "a frame of a size that it cannot have",
}
"""What a stream is reset for, where the frame is judged for both roles."""


class Http2Client(Http2Connection):
    """One connection. Sending on a stream that is over, or after a failure, does nothing.

    `ping_interval` (ns) is how long the server may be silent before it is pinged, `ping_timeout` how long after that
    until it counts as gone, `settings_timeout` how long its SETTINGS may take.
    """

    __slots__ = (
        "_headers_due",
        "_heard",
        "_peer_streams",
        "_ping_interval",
        "_ping_timeout",
        "_pinged",
        "_settings_due",
        "leaving",
    )

    TABLE = table(server=False)
    PEER = "the server"

    def __init__(self, *, ping_interval: int, ping_timeout: int, settings_timeout: int, now: int) -> None:
        super().__init__(now, 0, limits.CLIENT_WINDOW)
        self.leaving = False
        """No stream can be opened any more."""
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._heard = now
        self._pinged: int | None = None
        self._settings_due: int | None = now + settings_timeout
        self._headers_due: int | None = None
        self._peer_streams = MAX_STREAM_ID
        self._highest = -1
        own = (
            (words.ENABLE_PUSH, 0),
            (words.INITIAL_WINDOW, limits.CLIENT_WINDOW),
            (words.MAX_FRAME_SIZE, limits.MAX_FRAME),
            (words.MAX_HEADER_LIST, limits.MAX_HEADER_LIST),
        )
        self._out.append(words.PREFACE)
        self.unsent = len(words.PREFACE)
        self._send(SETTINGS, 0, 0, b"".join(SETTING.pack(*entry) for entry in own))
        self._send(WINDOW_UPDATE, 0, 0, LONG.pack(limits.CONNECTION_WINDOW - words.DEFAULT_WINDOW))

    @property
    def settled(self) -> bool:
        """The server's SETTINGS are here."""
        return self._settled

    # --- in

    def receive(self, data: bytes, now: int) -> list[ClientSideEvent]:
        """Bytes of the server; what they mean, in order. Nothing after `closed`."""
        events: list[ClientSideEvent] = []
        if self.closed or not data:
            return events
        self._clock = self._heard = now - self._lost
        self._pinged = None
        self._moved_on = False
        if not self._settled and len(self._buffer) + len(data) >= FRAME_HEADER:
            stranger = words.name_peer((bytes(self._buffer) + data[:FRAME_HEADER])[:FRAME_HEADER])
            if stranger is not None:
                self._end()
                events.append(Failed(stranger))
                return events
        try:
            at = 0
            if self._buffer or self._skip:
                data, at = self._join(data, events)
            self._receive_frames(data, at, events)
            if self.unsent > limits.MAX_UNSENT:
                raise Fault(ENHANCE_YOUR_CALM, "replies are not read")
        except Fault as fault:
            self._fail(fault.code, f"the server broke HTTP/2: {fault.reason}", events)
        if not self._within_headers:
            self._headers_due = None
        elif self._headers_due is None or self._moved_on:
            self._headers_due = self._clock + limits.HEADERS_TIMEOUT
        return events

    def receive_eof(self) -> list[ClientSideEvent]:
        """The server closed the connection, or the socket failed."""
        if self.closed:
            return []
        reason = "the server closed the connection"
        if not self._settled:
            first = bytes(self._buffer)
            reason = words.name_peer(first) or words.NOT_HTTP2 if first else words.HUNG_UP
        self._end()
        return [Failed(reason)]

    def _usual(self, buffer: bytes, at: int, end: int, events: list[Any]) -> int:
        """Answers with headers and trailers that came before, and one DATA frame between them."""
        while end - at >= FRAME_HEADER:
            whole = self._answer(buffer, at, end, events)
            if not whole:
                break
            at = whole
        return at

    def _answer(self, buffer: bytes, at: int, end: int, events: list[Any]) -> int:
        """Where such an answer ends that begins here; 0 = it is none."""
        high, low, kind, flags, stream_id = _head(buffer, at)
        if high or kind != HEADERS or flags != END_HEADERS:
            return 0
        start = at + FRAME_HEADER
        following = start + low
        stream = self._streams.get(stream_id)
        begun = following + FRAME_HEADER
        if stream is None or stream.started or stream.state != _LOCAL_ENDED or begun > end:
            return 0
        high, low, kind, flags, of_stream = _head(buffer, following)
        size = high << 16 | low
        done = begun + size
        if kind != DATA or flags or of_stream != stream_id or size > limits.MAX_FRAME or done + FRAME_HEADER > end:
            return 0
        high, low, kind, flags, of_stream = _head(buffer, done)
        last: int = done + FRAME_HEADER + (high << 16 | low)
        if kind != HEADERS or flags != _LAST or of_stream != stream_id or last > end:
            return 0
        headers = self._decoder.known(buffer[start:following])
        trailers = self._decoder.known(buffer[done + FRAME_HEADER : last])
        if headers is None or headers.fault != "" or headers.length >= 0 or trailers is None or trailers.trailing != "":
            return 0
        self._take_window(size)
        del self._streams[stream_id]
        events.append(Answer(stream_id, headers, buffer[begun:done], trailers))
        if self.leaving:
            self._left()
        return last

    def _on_more_headers(
        self, stream_id: int, stream: Stream, headers: HeaderList, *, ended: bool, events: list[Any]
    ) -> None:
        if not stream.started:
            self._on_response(stream_id, stream, headers, ended=ended, events=events)
            return
        if headers.trailing is None:
            headers.trailing = http2_fields.trailers_fault(headers.fields)
        fault = headers.trailing or ("" if ended else "trailers that do not end it")
        if fault:
            self._malformed(stream_id, PROTOCOL_ERROR, fault, events)
            return
        events.append(Trailers(stream_id, headers))
        self._end_remote(stream_id, stream)

    def _on_response(
        self, stream_id: int, stream: Stream, headers: HeaderList, *, ended: bool, events: list[Any]
    ) -> None:
        """Headers of the answer, interim ones included; those are looked at anew each time."""
        fields = headers.fields
        fault = http2_fields.response_fault(fields) if headers.fault is None else headers.fault
        if not fault and fields[0][1].startswith(b"1"):
            if not ended:
                if not self._floods.empty(self._clock):
                    raise Fault(ENHANCE_YOUR_CALM, "too many interim responses")
                return
            fault = "an interim response that ends the stream"
        elif headers.fault is None:
            length = http2_fields.content_length(fields)
            if length is None:
                fault = fault or "a content-length that cannot be read"
            else:
                headers.length = length
            headers.fault = fault
        if not fault and fields[0][1] not in _WITHOUT_CONTENT:
            stream.expected = headers.length
            if ended and headers.length > 0:
                fault = "no content although it says its length"
        if fault:
            self._malformed(stream_id, PROTOCOL_ERROR, fault, events)
            return
        stream.started = True
        events.append(Response(stream_id, headers, ended))
        if ended:
            self._end_remote(stream_id, stream)

    def _on_content(
        self, stream_id: int, stream: Stream, data: bytes, size: int, *, ended: bool, events: list[Any]
    ) -> None:
        if not stream.started:
            self._malformed(stream_id, PROTOCOL_ERROR, "data before headers", events)
            return
        events.append(Data(stream_id, data, size, ended))
        if ended and stream.state == _BOTH:
            self._left()

    def _on_over(self, stream_id: int, code: int, events: list[Any]) -> None:
        events.append(ResetByServer(stream_id, code, ""))
        self._left()

    def _on_window_opened(self, stream_id: int, events: list[Any]) -> None:
        events.append(WindowOpened(stream_id))

    def _on_setting(self, name: int, number: int) -> None:
        if name == words.MAX_STREAMS:
            self._peer_streams = number
        elif name == words.ENABLE_PUSH and number:
            raise Fault(PROTOCOL_ERROR, "a server cannot enable push")

    def _on_settled(self, events: list[Any]) -> None:
        self._settings_due = None
        events.append(Settled())

    def _on_goaway(self, last: int, code: int, reason: bytes, events: list[Any]) -> None:
        self.leaving = True
        for later in [stream_id for stream_id in self._streams if stream_id > last]:
            del self._streams[later]
            self._over.note(later, State.DROPPED)
        events.append(GoneAway(last, code, reason[: words.MAX_REASON].decode("ascii", "replace")))
        self._left()

    # --- out

    def may_open(self) -> bool:
        """Whether `open` and `ask` may be called now."""
        return self._settled and not self.leaving and not self.closed and len(self._streams) < self._peer_streams

    def open(self, fields: Sequence[Field], now: int, once: Iterable[Field] = ()) -> int:
        """Open a stream; returns its id. Only while `may_open`.

        `fields` are those that come again and again, `once` those whose values do not.
        """
        stream_id = self._begin(now)
        self._streams[stream_id] = Stream(0, self._peer_window, self._window)
        self._write_block(0, stream_id, self._encoder.encode(fields, once))
        return stream_id

    def ask(self, fields: Sequence[Field], data: bytes, now: int, once: Iterable[Field] = ()) -> int:
        """Open a stream, send its content and end it, at once. Only while `may_open`.

        Returns its id; 0 = the windows do not allow it, or a frame does not hold it, and nothing was sent.
        """
        size, room = len(data), self._peer_frame
        if size > self._send_window or size > self._peer_window or size > room or size > words.MAX_DATA:
            return 0
        stream_id = self._begin(now)
        self._streams[stream_id] = Stream(_LOCAL_ENDED, self._peer_window - size, self._window)
        self._send_window -= size
        block = self._encoder.encode(fields, once)
        length = len(block)
        if length > room:
            self._write_block(0, stream_id, block)
            self._send(DATA, END_STREAM, stream_id, data)
            return stream_id
        request = b"".join(
            (
                _pack(length >> 16, length & 0xFFFF, HEADERS, END_HEADERS, stream_id),
                block,
                _pack(size >> 16, size & 0xFFFF, DATA, END_STREAM, stream_id),
                data,
            )
        )
        self._out.append(request)
        self.unsent += len(request)
        return stream_id

    def _begin(self, now: int) -> int:
        """The id of the next stream."""
        if not self._streams:
            self._clock = now - self._lost
            if self._pinged is not None or self._clock >= self._heard + self._ping_interval:
                # Nobody watched while nothing was open: ask at once whether the server is still there.
                self._ping()
        stream_id = self._highest = self._highest + 2
        if stream_id + 2 > MAX_STREAM_ID:
            self.leaving = True
        self._floods.asked()
        return stream_id

    def send_data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """One DATA frame of at most `sendable` bytes; `end`: nothing follows."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state & _LOCAL_ENDED:
            return
        size = len(data)
        stream.send_window -= size
        self._send_window -= size
        self._send_content(END_STREAM if end else 0, stream_id, data)
        self._floods.sent += 1
        self._floods.content += size
        if end:
            stream.state |= _LOCAL_ENDED
            if stream.state == _BOTH:
                del self._streams[stream_id]
                self._left()

    def finish(self) -> None:
        """`closed` from here on, after a GOAWAY."""
        if not self.closed:
            self._goaway(NO_ERROR, b"")
            self._end()

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return self.unsent > 0

    def _goaway(self, code: int, why: bytes) -> None:
        # 0: the last stream of the server's that we looked at; it opens none.
        self._send(GOAWAY, 0, 0, LONG.pack(0) + LONG.pack(code) + why)

    # --- ends

    def _end_remote(self, stream_id: int, stream: Stream) -> None:
        stream.state |= _REMOTE_ENDED
        if stream.state == _BOTH:
            del self._streams[stream_id]
            self._left()

    def _break_stream(self, stream_id: int, code: int, events: list[Any]) -> None:
        self._malformed(stream_id, code, _FAULTS[code], events)

    def _malformed(self, stream_id: int, code: int, fault: str, events: list[Any]) -> None:
        """The server broke a rule of a stream (section 5.4.2)."""
        self._drop(stream_id, code)
        self._streams.pop(stream_id, None)  # its last frame may have ended it
        events.append(ResetByServer(stream_id, code, fault))
        self._left()

    def _left(self) -> None:
        if self.leaving and not self._streams:
            self.finish()

    def _fail(self, code: int, reason: str, events: list[Any]) -> None:
        self._goaway(code, reason.encode())
        self._end()
        events.append(Failed(reason))

    def _end(self) -> None:
        self.closed = True
        self._streams.clear()
        self._buffer = b""
        self._block = []
        self._block_stream = 0

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        if self.closed:
            return None
        due = self._settings_due
        if due is None and self._streams:
            if self._pinged is not None:
                due = self._pinged + self._ping_timeout
            else:
                due = self._heard + self._ping_interval
        if self._headers_due is not None and (due is None or self._headers_due < due):
            due = self._headers_due
        return None if due is None else due + self._lost

    def handle_timer(self, now: int) -> list[ClientSideEvent]:
        """Act on whatever is due."""
        events: list[ClientSideEvent] = []
        due = self.next_timeout()
        if due is None or now < due:
            return events
        if now - due > limits.LATE_TIMER:
            self._lost += now - due + SECOND
            return events
        clock = self._clock = now - self._lost
        if self._settings_due is not None and clock >= self._settings_due:
            self._fail(SETTINGS_TIMEOUT, words.SILENT, events)
        elif self._headers_due is not None and clock >= self._headers_due:
            seconds = limits.HEADERS_TIMEOUT // SECOND
            self._fail(ENHANCE_YOUR_CALM, f"the server left a header block unfinished for {seconds} s", events)
        elif self._pinged is not None and clock >= self._pinged + self._ping_timeout:
            self._fail(NO_ERROR, words.PING_LOST, events)
        elif self._pinged is None and self._streams and clock >= self._heard + self._ping_interval:
            self._ping()
        return events

    def _ping(self) -> None:
        self._send(PING, 0, 0, PING_PAYLOAD)
        self._pinged = self._clock
