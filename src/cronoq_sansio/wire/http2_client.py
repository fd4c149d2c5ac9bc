"""HTTP/2 for a client (RFC 9113): open streams, headers, data, resets -> bytes out; bytes in -> events; and its timers.

A machine of its own on hpack alone, because a client pays for each call what HTTP/2 costs: frames are cut, judged and
acted on in one pass, and header blocks that change nothing in their compression table are encoded and decoded once.

- The first bytes of the server are looked at before HTTP/2 is: who answers in HTTP/1.1 or TLS is named.
- No stream is opened before the server's SETTINGS are here, and never more than they allow.
- After the server's GOAWAY the streams up to its last one go on, the later ones are over and were not looked at.
- A server that is silent for too long is pinged while streams are open; without an answer it counts as gone.
- A server that breaks a rule of the connection gets a GOAWAY with the code of section 7 and is left. It cannot make us
  keep more than the windows, one header block, and bounded replies to PING and SETTINGS.

Life of a stream: `open` -> (we end | it ends) -> both ended = over; or reset by either side = over. What comes for a
stream that is over is decoded, counted and dropped.

Time. `now` is given with each call. When a timer fires later than `limits.LATE_TIMER` the process could not read
meanwhile: all timers of this machine move by the lateness and one second more, so that the socket is read first.
"""

from collections.abc import Callable

from hpack import Encoder, HPACKError

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.header_blocks import BlockReader, BlockWriter
from cronoq_sansio.wire.http2_words import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_HEADER,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEAD,
    HEADERS,
    HUNG_UP,
    INITIAL_WINDOW,
    LONG,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST,
    MAX_REASON,
    MAX_STREAM_ID,
    MAX_STREAMS,
    MAX_WINDOW,
    NO_ERROR,
    NOT_HTTP2,
    PADDED,
    PING,
    PING_LOST,
    PING_PAYLOAD,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    SETTINGS_TIMEOUT,
    SILENT,
    TABLE_SIZE,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Data,
    Event,
    Failed,
    Fault,
    GoneAway,
    ResetByServer,
    Response,
    Settled,
    Trailers,
    WindowOpened,
    name_peer,
    unpad,
)
from cronoq_sansio.wire.metadata import Headers


class _Stream:
    """An open stream."""

    __slots__ = ("answered", "local_ended", "receive_window", "remote_ended", "send_window")

    def __init__(self, send_window: int) -> None:
        self.send_window = send_window
        self.receive_window = limits.CLIENT_WINDOW
        self.answered = False
        """The headers of the response were here."""
        self.local_ended = False
        self.remote_ended = False


class Http2Client:
    """One connection. Sending on a stream that is over, or after a failure, does nothing.

    `ping_interval` (ns) is how long the server may be silent before it is pinged, `ping_timeout` how long after that
    until it counts as gone, `settings_timeout` how long its SETTINGS may take.
    """

    def __init__(self, *, ping_interval: int, ping_timeout: int, settings_timeout: int, now: int) -> None:
        self.closed = False
        """Write what `take` gives, then close the socket."""
        self.settled = False
        """The server's SETTINGS are here."""
        self.leaving = False
        """No stream can be opened any more."""
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._lost = 0
        """Nanoseconds of `now` that do not count; `_clock` is without them."""
        self._clock = self._heard = now
        self._pinged: int | None = None
        self._settings_due: int | None = now + settings_timeout
        self._headers_due: int | None = None
        self._streams: dict[int, _Stream] = {}
        self._next_stream = 1
        # receiving
        self._buffer = b""
        self._block: list[bytes] = []
        """Parts of an unfinished header block, the frame header of its HEADERS frame first."""
        self._block_size = 0
        self._reader = BlockReader(limits.MAX_HEADER_LIST)
        self._receive_window = limits.CONNECTION_WINDOW
        # sending
        self._writer = BlockWriter(Encoder())
        self._send_window = DEFAULT_WINDOW
        self._peer_window = DEFAULT_WINDOW
        self._peer_frame = limits.MAX_FRAME
        self._peer_streams = MAX_STREAM_ID
        self._control = 0
        """Bytes of `_out` that answer PING and SETTINGS."""
        own = ((ENABLE_PUSH, 0), (INITIAL_WINDOW, limits.CLIENT_WINDOW), (MAX_HEADER_LIST, limits.MAX_HEADER_LIST))
        self._out = bytearray(PREFACE)
        self._send(SETTINGS, 0, 0, b"".join(SETTING.pack(*entry) for entry in own))
        self._send(WINDOW_UPDATE, 0, 0, LONG.pack(limits.CONNECTION_WINDOW - DEFAULT_WINDOW))

    # --- in

    def receive(self, data: bytes, now: int) -> list[Event]:
        """Bytes of the server; what they mean, in order. Nothing after `closed`."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._clock = self._heard = now - self._lost
        self._pinged = None
        try:
            self._receive_frames(self._buffer + data if self._buffer else data, events)
            if self._control > limits.MAX_UNSENT_CONTROL or len(self._out) > limits.MAX_UNSENT:
                raise Fault(ENHANCE_YOUR_CALM, "replies are not read")
        except Fault as fault:
            self._fail(fault.code, f"the server broke HTTP/2: {fault.reason}", events)
        return events

    def receive_eof(self) -> list[Event]:
        """The server closed the connection, or the socket failed."""
        if self.closed:
            return []
        reason = "the server closed the connection"
        if not self.settled:
            first = self._buffer
            reason = name_peer(first) or NOT_HTTP2 if first else HUNG_UP
        self.closed = True
        self._streams.clear()
        return [Failed(reason)]

    def _receive_frames(self, buffer: bytes, events: list[Event]) -> None:
        at, end = 0, len(buffer)
        moved_on = False
        while end - at >= FRAME_HEADER and not self.closed:
            high, low, kind, flags, stream_id = HEAD.unpack_from(buffer, at)
            length = high << 16 | low
            stream_id &= MAX_STREAM_ID
            if not self.settled or self._block or length > limits.MAX_FRAME or kind == PUSH_PROMISE:
                stranger = self._check_order(buffer[at : at + FRAME_HEADER], length, kind, stream_id)
                if stranger is not None:
                    self.closed = True
                    events.append(Failed(stranger))
                    return
            following = at + FRAME_HEADER + length
            if following > end:
                break
            handler = _FRAMES.get(kind)
            if handler is not None:
                handler(self, flags, stream_id, buffer[at + FRAME_HEADER : following], events)
            at = following
            moved_on |= not self._block
        self._buffer = buffer[at:] if at < end else b""
        self._watch_headers(moved_on)

    def _check_order(self, head: bytes, length: int, kind: int, stream_id: int) -> str | None:
        """What of a frame can be judged by its head, where something unusual is known; who is no HTTP/2 is named."""
        if not self.settled:
            stranger = name_peer(head)
            if stranger is not None:
                return stranger
        if length > limits.MAX_FRAME:
            raise Fault(FRAME_SIZE_ERROR, f"a frame of {length} bytes, at most {limits.MAX_FRAME} are allowed")
        if self._block and (kind != CONTINUATION or stream_id != int.from_bytes(self._block[0][1:], "big")):
            raise Fault(PROTOCOL_ERROR, "a header block was interrupted")
        if kind == PUSH_PROMISE:
            raise Fault(PROTOCOL_ERROR, "PUSH_PROMISE although push is off")
        return None

    def _on_data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Fault(FLOW_CONTROL_ERROR, "more DATA than the connection's window allows")
        if self._receive_window < limits.CONNECTION_WINDOW // 2:
            # Memory is bounded by the windows of the streams; this one is always opened again.
            self._send(WINDOW_UPDATE, 0, 0, LONG.pack(limits.CONNECTION_WINDOW - self._receive_window))
            self._receive_window = limits.CONNECTION_WINDOW
        stream = self._find(stream_id, "DATA")
        if flags & PADDED:
            payload = unpad(payload)
        if stream is None:
            return
        if stream.remote_ended:
            self._reset_broken(stream_id, events)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise Fault(FLOW_CONTROL_ERROR, "more DATA than the stream's window allows")
        ended = bool(flags & END_STREAM)
        events.append(Data(stream_id, payload, size, ended))
        if ended:
            self._end_remote(stream_id, stream)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if flags & PADDED:
            payload = unpad(payload)
        if flags & WITH_PRIORITY:
            if len(payload) < 5:
                raise Fault(FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            payload = payload[5:]
        if flags & END_HEADERS:
            self._receive_block(flags, stream_id, payload, events)
        else:
            self._block = [bytes((flags,)) + LONG.pack(stream_id), payload]
            self._block_size = len(payload)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not self._block:
            raise Fault(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        # At least 1, so that blocks made of empty frames are noticed too.
        self._block_size += max(1, len(payload))
        if self._block_size > limits.MAX_HEADER_BLOCK:
            raise Fault(ENHANCE_YOUR_CALM, f"a header block above {limits.MAX_HEADER_BLOCK} bytes")
        self._block.append(payload)
        if flags & END_HEADERS:
            first, *parts = self._block
            self._block = []
            self._receive_block(first[0], stream_id, b"".join(parts), events)

    def _receive_block(self, flags: int, stream_id: int, block: bytes, events: list[Event]) -> None:
        stream = self._find(stream_id, "HEADERS")
        try:
            headers = self._reader.read(block)
        except HPACKError:
            # Not the error's text: it may show what was sent.
            raise Fault(COMPRESSION_ERROR, "a header block that cannot be decoded or is too long") from None
        if stream is None:
            return
        ended = bool(flags & END_STREAM)
        if stream.remote_ended or (stream.answered and not ended):
            self._reset_broken(stream_id, events)
            return
        if stream.answered:
            events.append(Trailers(stream_id, headers))
        elif not ended and headers and headers[0][0] == b":status" and headers[0][1].startswith(b"1"):
            return
        else:
            stream.answered = True
            events.append(Response(stream_id, headers, ended))
        if ended:
            self._end_remote(stream_id, stream)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise Fault(FRAME_SIZE_ERROR, "RST_STREAM must have 4 bytes")
        if self._find(stream_id, "RST_STREAM") is not None:
            self._forget(stream_id)
            events.append(ResetByServer(stream_id, int.from_bytes(payload, "big")))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise Fault(PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & ACK:
            if payload:
                raise Fault(FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            return
        if len(payload) % SETTING.size:
            raise Fault(FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
        for name, number in SETTING.iter_unpack(payload):
            self._apply(name, number)
        self.settled = True
        self._settings_due = None
        self._reply(SETTINGS, b"")
        events.append(Settled())
        events.append(WindowOpened(0))

    def _apply(self, name: int, number: int) -> None:
        """Section 6.5.2."""
        if name == TABLE_SIZE:
            self._writer.resize(min(number, limits.ENCODER_TABLE))
        elif name == ENABLE_PUSH and number:
            raise Fault(PROTOCOL_ERROR, "a server cannot enable push")
        elif name == MAX_STREAMS:
            self._peer_streams = number
        elif name == INITIAL_WINDOW:
            if number > MAX_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "an initial window above 2^31 - 1")
            for stream in self._streams.values():
                stream.send_window += number - self._peer_window
                if stream.send_window > MAX_WINDOW:
                    raise Fault(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
            self._peer_window = number
        elif name == MAX_FRAME_SIZE:
            if not limits.MAX_FRAME <= number < 1 << 24:
                raise Fault(PROTOCOL_ERROR, f"a largest frame of {number} bytes")
            self._peer_frame = number

    def _on_ping(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 8:
            raise Fault(FRAME_SIZE_ERROR, "PING must have 8 bytes")
        if stream_id:
            raise Fault(PROTOCOL_ERROR, "PING on a stream")
        if not flags & ACK:
            self._reply(PING, payload)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) < 8 or stream_id:
            raise Fault(PROTOCOL_ERROR, "a malformed GOAWAY")
        last = int.from_bytes(payload[:4], "big") & MAX_STREAM_ID
        code = int.from_bytes(payload[4:8], "big")
        reason = payload[8 : 8 + MAX_REASON].decode("ascii", "replace")
        self.leaving = True
        for later in [open_id for open_id in self._streams if open_id > last]:
            del self._streams[later]
        events.append(GoneAway(last, code, reason))
        self._close_when_left()

    def _on_window(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise Fault(FRAME_SIZE_ERROR, "WINDOW_UPDATE must have 4 bytes")
        increment = int.from_bytes(payload, "big") & MAX_WINDOW
        stream = self._find(stream_id, "WINDOW_UPDATE") if stream_id else None
        if not increment:
            raise Fault(PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
        if stream_id == 0:
            self._send_window += increment
            window = self._send_window
        elif stream is not None:
            stream.send_window += increment
            window = stream.send_window
        else:
            return
        if window > MAX_WINDOW:
            raise Fault(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
        events.append(WindowOpened(stream_id))

    def _on_priority(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 5:
            raise Fault(FRAME_SIZE_ERROR, "PRIORITY must have 5 bytes")

    def _find(self, stream_id: int, what: str) -> _Stream | None:
        """The open stream; None when it is over. A stream that was never opened is a fault."""
        stream = self._streams.get(stream_id)
        if stream is None and (stream_id >= self._next_stream or not stream_id & 1):
            raise Fault(PROTOCOL_ERROR, f"{what} on a stream that was not opened")
        return stream

    def _watch_headers(self, moved_on: bool) -> None:
        """Arm or disarm the timer of an unfinished header block, or of a frame that may be one."""
        buffer = self._buffer
        if not self._block and (not buffer or (len(buffer) > 3 and buffer[3] not in (HEADERS, CONTINUATION))):
            self._headers_due = None
        elif self._headers_due is None or moved_on:
            self._headers_due = self._clock + limits.HEADERS_TIMEOUT

    # --- out

    def may_open(self) -> bool:
        """Whether `open` may be called now."""
        return self.settled and not self.leaving and not self.closed and len(self._streams) < self._peer_streams

    def open(self, headers: tuple[tuple[bytes, bytes], ...], now: int, once: Headers) -> int:
        """Open a stream; returns its id. Only while `may_open`.

        `headers` are those that come again and again, `once` those whose values do not.
        """
        if not self._streams:
            self._clock = now - self._lost
            if self._pinged is not None or self._clock >= self._heard + self._ping_interval:
                # Nobody watched while nothing was open: ask at once whether the server is still there.
                self._ask(self._clock)
        stream_id = self._next_stream
        self._next_stream = stream_id + 2
        if self._next_stream > MAX_STREAM_ID:
            self.leaving = True
        self._streams[stream_id] = _Stream(self._peer_window)
        block = self._writer.write(headers, once)
        if len(block) <= self._peer_frame:
            self._send(HEADERS, END_HEADERS, stream_id, block)
        else:
            size = self._peer_frame
            self._send(HEADERS, 0, stream_id, block[:size])
            for at in range(size, len(block), size):
                flags = END_HEADERS if at + size >= len(block) else 0
                self._send(CONTINUATION, flags, stream_id, block[at : at + size])
        return stream_id

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now; 0 or less = wait for `WindowOpened`."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        return min(stream.send_window, self._send_window, self._peer_frame, 4 * limits.MAX_FRAME)

    def send_data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """One DATA frame of at most `sendable` bytes; `end`: nothing follows."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.local_ended:
            return
        stream.send_window -= len(data)
        self._send_window -= len(data)
        self._send(DATA, END_STREAM if end else 0, stream_id, data)
        if end:
            stream.local_ended = True
            if stream.remote_ended:
                self._forget(stream_id)

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once; `code` as in RST_STREAM."""
        if stream_id in self._streams:
            self._send(RST_STREAM, 0, stream_id, LONG.pack(code))
            self._forget(stream_id)

    def credit(self, stream_id: int, size: int) -> None:
        """Let the server send `size` more bytes on this stream."""
        stream = self._streams.get(stream_id)
        if stream is not None and size and not stream.remote_ended:
            stream.receive_window += size
            self._send(WINDOW_UPDATE, 0, stream_id, LONG.pack(size))

    def finish(self) -> None:
        """`closed` from here on, after a GOAWAY."""
        if not self.closed:
            self._goaway(NO_ERROR, b"")
            self.closed = True
            self._streams.clear()

    @property
    def unsent(self) -> int:
        """Bytes that wait for `take`."""
        return len(self._out)

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return bool(self._out)

    def take(self, limit: int) -> bytes:
        """Up to `limit` bytes to write to the socket."""
        out = self._out
        if len(out) <= limit:
            data = bytes(out)
            out.clear()
            self._control = 0
        else:
            data = bytes(out[:limit])
            del out[:limit]
        return data

    def _send(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        self._out += HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream_id)
        self._out += payload

    def _reply(self, kind: int, payload: bytes) -> None:
        """Acknowledge; a server that does not read these is noticed."""
        self._send(kind, ACK, 0, payload)
        self._control += FRAME_HEADER + len(payload)

    def _goaway(self, code: int, why: bytes) -> None:
        # 0: the last stream of the server's that we looked at; it opens none.
        self._send(GOAWAY, 0, 0, LONG.pack(0) + LONG.pack(code) + why)

    # --- ends

    def _end_remote(self, stream_id: int, stream: _Stream) -> None:
        stream.remote_ended = True
        if stream.local_ended:
            self._forget(stream_id)

    def _reset_broken(self, stream_id: int, events: list[Event]) -> None:
        """The server broke a rule of one stream (section 5.4.2)."""
        self.reset(stream_id, PROTOCOL_ERROR)
        events.append(ResetByServer(stream_id, PROTOCOL_ERROR))

    def _forget(self, stream_id: int) -> None:
        del self._streams[stream_id]
        if self.leaving:
            self._close_when_left()

    def _close_when_left(self) -> None:
        if self.leaving and not self._streams:
            self.finish()

    def _fail(self, code: int, reason: str, events: list[Event]) -> None:
        self._goaway(code, reason.encode())
        self.closed = True
        self._streams.clear()
        self._buffer = b""
        events.append(Failed(reason))

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

    def handle_timer(self, now: int) -> list[Event]:
        """Act on whatever is due."""
        events: list[Event] = []
        due = self.next_timeout()
        if due is None or now < due:
            return events
        if now - due > limits.LATE_TIMER:
            self._lost += now - due + SECOND
            return events
        clock = self._clock = now - self._lost
        if self._settings_due is not None and clock >= self._settings_due:
            self._fail(SETTINGS_TIMEOUT, SILENT, events)
        elif self._headers_due is not None and clock >= self._headers_due:
            seconds = limits.HEADERS_TIMEOUT // SECOND
            self._fail(ENHANCE_YOUR_CALM, f"the server left a header block unfinished for {seconds} s", events)
        elif self._pinged is not None and clock >= self._pinged + self._ping_timeout:
            self._fail(NO_ERROR, PING_LOST, events)
        elif self._pinged is None and self._streams and clock >= self._heard + self._ping_interval:
            self._ask(clock)
        return events

    def _ask(self, clock: int) -> None:
        self._send(PING, 0, 0, PING_PAYLOAD)
        self._pinged = clock


_FRAMES: dict[int, Callable[[Http2Client, int, int, bytes, list[Event]], None]] = {
    DATA: Http2Client._on_data,
    HEADERS: Http2Client._on_headers,
    PRIORITY: Http2Client._on_priority,
    RST_STREAM: Http2Client._on_reset,
    SETTINGS: Http2Client._on_settings,
    PING: Http2Client._on_ping,
    GOAWAY: Http2Client._on_goaway,
    WINDOW_UPDATE: Http2Client._on_window,
    CONTINUATION: Http2Client._on_continuation,
}
