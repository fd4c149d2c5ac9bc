"""What both sides of an HTTP/2 connection have in common (RFC 9113): frames in, frames out, windows, settings, floods.

One pass over the bytes of a read: each frame is judged by its head, acted on where it lies, and forgotten. What a peer
can make us keep is one unfinished frame, one header block, and an output within bounds. Of frames that mean nothing
here, those of unknown types and content that nobody waits for, what comes is dropped at once. A role
(`http2_server.py`, `http2_client.py`) says what headers, data and ends mean to it.

A rule of the connection that is broken ends it: GOAWAY with a code of section 7 and a text that says which rule. A
rule of one stream ends that stream with RST_STREAM. Frames that cost us and carry nothing are counted (`floods.py`).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from cronoq_sansio import limits
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire import peer_limits
from cronoq_sansio.wire.floods import Floods
from cronoq_sansio.wire.hpack_decoder import Decoder, HeaderList, Unreadable
from cronoq_sansio.wire.http2_output import Http2Output
from cronoq_sansio.wire.http2_streams import Breach, Input, State, Stream, move_windows
from cronoq_sansio.wire.http2_words import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_HEADER,
    FRAME_SIZE_ERROR,
    HEAD,
    HEADERS,
    LONG,
    MAX_DATA,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PADDED,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Fault,
)
from cronoq_sansio.wire.peer_limits import Exceeded

_head = HEAD.unpack_from
_long = LONG.unpack_from
_LATE = int(Breach.LATE)
_REMOTE_ENDED = int(State.REMOTE_ENDED)
_HALF = int(State.ENDED)  #: states below have an entry


class Http2Connection(Http2Output):
    """One connection, of either role. Sending on a stream that is over, or after a failure, does nothing."""

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_frames",
        "_block_size",
        "_block_stream",
        "_buffer",
        "_clock",
        "_decoder",
        "_dropped",
        "_floods",
        "_highest",
        "_lost",
        "_moved_on",
        "_receive_window",
        "_settled",
        "_skip",
        "_window",
        "closed",
    )

    TABLE: ClassVar[tuple[tuple[int, ...], ...]]
    """Of `http2_streams`, for the role."""
    PEER: ClassVar[str]
    """What the other side is called in texts."""

    def __init__(self, now: int, max_streams: int, window: int) -> None:
        """`max_streams`: that may be open at once; `window`: bytes that each stream of the peer may send at first."""
        super().__init__()
        self.closed = False
        """Write what `take` gives, then close the socket."""
        self._lost = 0
        """Nanoseconds of `now` that do not count; `_clock` is without them."""
        self._clock = now
        self._buffer: bytes | bytearray = b""
        """What there is of an unfinished frame …"""
        self._dropped = 0
        """… without so many bytes behind the first of its payload, which nobody waits for."""
        self._skip = 0
        """Bytes that are still to come of a frame that means nothing, of which nothing is kept."""
        self._settled = False
        """The peer's first SETTINGS are here."""
        self._block: list[bytes] = []
        """Parts of an unfinished header block …"""
        self._block_stream = self._block_flags = self._block_size = self._block_frames = 0
        """… its stream (0 = there is none), the flags of HEADERS, its bytes and frames."""
        self._moved_on = False
        """The read that is looked at has brought a frame to its end that left no header block open."""
        self._decoder = Decoder(limits.MAX_HEADER_LIST)
        self._floods = Floods(max_streams)
        self._highest = 0
        """Of the streams that were opened, by whoever opens them here."""
        self._window = window
        self._receive_window = limits.CONNECTION_WINDOW

    # --- what a role says

    def _usual(self, buffer: bytes, at: int, end: int, events: list[Any]) -> int:
        """Act on as many frames of usual messages as follow each other from a place on: where the first other begins.

        Called when the peer's SETTINGS are here and no header block is open. A short way, never a different one.
        """
        return at

    def _on_opened(self, stream_id: int, headers: HeaderList, *, ended: bool, events: list[Any]) -> None:
        """The peer opens a stream."""
        raise NotImplementedError

    def _on_more_headers(
        self, stream_id: int, stream: Stream, headers: HeaderList, *, ended: bool, events: list[Any]
    ) -> None:
        """Headers on a stream that is open."""
        raise NotImplementedError

    def _on_content(
        self, stream_id: int, stream: Stream, data: bytes, size: int, *, ended: bool, events: list[Any]
    ) -> None:
        """DATA on a stream that is open; `size` with padding."""
        raise NotImplementedError

    def _awaits(self, stream_id: int) -> bool:
        """Whether content of a stream may mean something to somebody."""
        return stream_id in self._streams

    def _on_scrap(self) -> None:
        """A few bytes of DATA came that nobody waits for any more."""

    def _on_over(self, stream_id: int, code: int, events: list[Any]) -> None:
        """The stream was reset: by the peer, or because of it."""
        raise NotImplementedError

    def _on_window_opened(self, stream_id: int, events: list[Any]) -> None:
        """More may be sent on the stream; 0 = on all of them."""
        raise NotImplementedError

    def _on_setting(self, name: int, number: int) -> None:
        """A setting that means something to one role only."""

    def _on_settled(self, events: list[Any]) -> None:
        """SETTINGS were taken over."""

    def _on_goaway(self, last: int, code: int, reason: bytes, events: list[Any]) -> None:
        """The peer says goodbye."""
        raise NotImplementedError

    def _on_pong(self) -> None:
        """A PING was answered."""

    # --- in

    def _receive_frames(self, buffer: bytes, at: int, events: list[Any]) -> None:
        """Act on all whole frames from a place on, and keep the rest. Raises `Fault`."""
        end = len(buffer)
        while end - at >= FRAME_HEADER and not self.closed:
            if self._settled and not self._block_stream:
                begun, at = at, self._usual(buffer, at, end, events)
                if at != begun:
                    self._moved_on = True
                    continue
            high, low, kind, flags, stream_id = _head(buffer, at)
            start = at + FRAME_HEADER
            following = start + (high << 16 | low)
            if following - start > limits.MAX_FRAME or self._block_stream or not self._settled:
                self._check_order(following - start, kind, flags, stream_id)
            if kind >= len(_FRAMES):
                if not self._floods.unknown(following - start):
                    raise Exceeded(peer_limits.UNKNOWN_FRAMES)
                if following > end:
                    self._skip = following - end
                    return
            elif following > end:
                break
            else:
                _FRAMES[kind](self, flags, stream_id & MAX_STREAM_ID, buffer[start:following], events)
            at = following
            if not self._block_stream:
                self._moved_on = True
        if at < end and not self.closed:
            self._buffer = buffer[at:]
            self._let_go()

    def _join(self, data: bytes, events: list[Any]) -> tuple[bytes, int]:
        """What was kept and what has come, and where to go on. Nothing is kept when this returns, or all that came.

        However many reads a frame takes, its bytes are copied twice at most. Where one of DATA goes on, which is usual
        in long messages, only its own bytes are copied.
        """
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            self._moved_on = not self._skip
            return data, passed
        begun = self._buffer
        if len(begun) < FRAME_HEADER:
            self._buffer = b""
            return bytes(begun) + data, 0
        high, low, kind, flags, stream_id = _head(begun)
        missing = FRAME_HEADER + (high << 16 | low) - len(begun) - self._dropped
        if missing > len(data):
            if type(begun) is bytes:
                begun = self._buffer = bytearray(begun)
            begun += data
            self._let_go()
            return data, len(data)
        self._buffer = b""
        if kind != DATA:
            return b"".join((begun, data)), 0
        # What was dropped was content for nobody: how much it was is all that matters.
        dropped, self._dropped = self._dropped, 0
        payload = b"".join((memoryview(begun)[FRAME_HEADER:], bytes(dropped), memoryview(data)[:missing]))
        self._moved_on = True
        self._on_data(flags, stream_id & MAX_STREAM_ID, payload, events)
        return data, missing

    def _let_go(self) -> None:
        """Of content for nobody keep the head, and the byte that may say how much of it is padding."""
        buffer = self._buffer
        more = len(buffer) - FRAME_HEADER - 1
        if more > 0 and buffer[3] == DATA and not self._awaits(_head(buffer)[4] & MAX_STREAM_ID):
            self._dropped += more
            self._buffer = bytes(buffer[: FRAME_HEADER + 1])

    @property
    def kept(self) -> int:
        """Bytes of the peer that are no whole frame, or no whole header block."""
        return len(self._buffer) + (self._block_size if self._block_stream else 0)

    def _check_order(self, length: int, kind: int, flags: int, stream_id: int) -> None:
        """What of a frame can be judged by its head."""
        if not self._settled and (kind != SETTINGS or flags & ACK):
            raise Fault(PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if length > limits.MAX_FRAME:
            raise Fault(FRAME_SIZE_ERROR, f"a frame of {length} bytes, at most {limits.MAX_FRAME} are allowed")
        if self._block_stream and (kind != CONTINUATION or stream_id & MAX_STREAM_ID != self._block_stream):
            raise Fault(PROTOCOL_ERROR, "a header block was interrupted")
        if self._block_stream and self._block_size + length > limits.MAX_HEADER_BLOCK:
            raise Exceeded(peer_limits.HEADER_BYTES)

    @property
    def _within_headers(self) -> bool:
        """A header block is not complete, or what there is of a frame may be the beginning of one."""
        buffer = self._buffer
        return self._block_stream > 0 or (len(buffer) > 0 and (len(buffer) < 4 or buffer[3] in (HEADERS, CONTINUATION)))

    def _on_data(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.1."""
        size = len(payload)
        self._take_window(size)
        stream = self._streams.get(stream_id)
        if not flags and size and stream is not None and stream.expected < 0 and not stream.state & _REMOTE_ENDED:
            # The usual frame of a long message.
            stream.receive_window -= size
            if stream.receive_window < 0:
                raise Fault(FLOW_CONTROL_ERROR, "more DATA than the stream's window allows")
            self._on_content(stream_id, stream, payload, size, ended=False, events=events)
            return
        if flags & PADDED:
            payload = words.unpad(payload)
        ended = flags & END_STREAM
        if not payload and not ended and not self._floods.empty(self._clock):
            raise Exceeded(peer_limits.EMPTY_DATA)
        if stream is None:
            self._on_absent(stream_id, Input.DATA_END if ended else Input.DATA, "DATA", events)
            if 0 < size < limits.TINY_DATA and not ended:
                self._on_scrap()
            return
        state = self.TABLE[stream.state][Input.DATA_END if ended else Input.DATA]
        if state >= _LATE:
            self._break_stream(stream_id, STREAM_CLOSED, events)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise Fault(FLOW_CONTROL_ERROR, "more DATA than the stream's window allows")
        if stream.expected >= 0:
            stream.expected -= len(payload)
            if stream.expected < 0 or (ended and stream.expected):
                self._break_stream(stream_id, PROTOCOL_ERROR, events)
                return
        stream.state = state
        if state == State.ENDED:
            del self._streams[stream_id]
        self._on_content(stream_id, stream, payload, size, ended=bool(ended), events=events)

    def _take_window(self, size: int) -> None:
        """So many bytes of DATA came on the connection."""
        self._receive_window -= size
        if 2 * self._receive_window < limits.CONNECTION_WINDOW:
            if self._receive_window < 0:
                raise Fault(FLOW_CONTROL_ERROR, "more DATA than the connection's window allows")
            # Memory is bounded by the windows of the streams; this one is always opened again.
            self._send(WINDOW_UPDATE, 0, 0, LONG.pack(limits.CONNECTION_WINDOW - self._receive_window))
            self._receive_window = limits.CONNECTION_WINDOW

    def _on_headers(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.2."""
        if not stream_id:
            raise Fault(PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & (PADDED | WITH_PRIORITY):
            payload = words.strip(flags, stream_id, payload)
        if flags & END_HEADERS:
            self._on_block(flags, stream_id, payload, events)
        else:
            self._block = [payload]
            self._block_stream, self._block_flags = stream_id, flags
            self._block_size, self._block_frames = len(payload), 1

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.10."""
        if not self._block_stream:
            raise Fault(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block_size += len(payload)
        self._block_frames += 1
        if self._block_frames > limits.MAX_CONTINUATIONS:
            raise Exceeded(peer_limits.CONTINUATIONS)
        self._block.append(payload)
        if flags & END_HEADERS:
            block, self._block, self._block_stream = b"".join(self._block), [], 0
            self._on_block(self._block_flags, stream_id, block, events)

    def _on_block(self, flags: int, stream_id: int, block: bytes, events: list[Any]) -> None:
        """A header block is complete. It is decoded whatever becomes of it: later ones refer to it."""
        headers = self._decoder.decode(block)
        if isinstance(headers, Unreadable):
            if headers.code == ENHANCE_YOUR_CALM:
                raise Exceeded(peer_limits.HEADER_LIST)
            raise Fault(headers.code, headers.reason)
        ended = flags & END_STREAM
        frame = Input.HEADERS_END if ended else Input.HEADERS
        stream = self._streams.get(stream_id)
        if stream is None:
            if self._on_absent(stream_id, frame, "HEADERS", events) <= _HALF:
                self._on_opened(stream_id, headers, ended=bool(ended), events=events)
            return
        state = self.TABLE[stream.state][frame]
        if state >= _LATE:
            self._break_stream(stream_id, STREAM_CLOSED, events)
            return
        if ended and stream.expected > 0:
            self._break_stream(stream_id, PROTOCOL_ERROR, events)
            return
        self._on_more_headers(stream_id, stream, headers, ended=bool(ended), events=events)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.4."""
        if len(payload) != 4:
            raise Fault(FRAME_SIZE_ERROR, "RST_STREAM must have 4 bytes")
        if not self._floods.reset(self._clock):
            raise Exceeded(peer_limits.RESETS)
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            self._on_absent(stream_id, Input.RST_STREAM, "RST_STREAM", events)
            return
        self._over.note(stream_id, State.RESET)
        self._on_over(stream_id, _long(payload)[0], events)

    def _on_window(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.9."""
        if len(payload) != 4:
            raise Fault(FRAME_SIZE_ERROR, "WINDOW_UPDATE must have 4 bytes")
        if not self._floods.window():
            raise Exceeded(peer_limits.WINDOW_UPDATES)
        increment = _long(payload)[0] & MAX_WINDOW
        if not stream_id:
            held_up = self._send_window < self._most_data
            self._send_window += increment
            if not increment:
                raise Fault(PROTOCOL_ERROR, "a WINDOW_UPDATE of nothing")
            if self._send_window > MAX_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
            if held_up:  # else no frame was smaller because of this window, and nobody waits for it
                self._on_window_opened(0, events)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._on_absent(stream_id, Input.WINDOW_UPDATE, "WINDOW_UPDATE", events)
            return
        stream.send_window += increment
        if not increment:
            self._break_stream(stream_id, PROTOCOL_ERROR, events)
        elif stream.send_window > MAX_WINDOW:
            self._break_stream(stream_id, FLOW_CONTROL_ERROR, events)
        else:
            self._on_window_opened(stream_id, events)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.5."""
        if stream_id:
            raise Fault(PROTOCOL_ERROR, "SETTINGS on a stream")
        if not self._floods.settings(self._clock):
            raise Exceeded(peer_limits.SETTINGS)
        if flags & ACK:
            if payload:
                raise Fault(FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._floods.acknowledged()
            return
        if len(payload) % SETTING.size:
            raise Fault(FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
        if len(payload) > limits.MAX_SETTINGS * SETTING.size:
            raise Exceeded(peer_limits.SETTINGS_ENTRIES)
        before = widest = self._peer_window
        for name, number in SETTING.iter_unpack(payload):
            self._apply(name, number)
            widest = max(widest, self._peer_window)
        if not move_windows(self._streams.values(), self._peer_window - before, widest - before):
            raise Fault(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
        self._settled = True
        self._reply(SETTINGS, ACK, 0, b"")
        self._on_settled(events)
        self._on_window_opened(0, events)

    def _apply(self, name: int, number: int) -> None:
        """Section 6.5.2."""
        if name == words.TABLE_SIZE:
            self._encoder.resize(number)
        elif name == words.INITIAL_WINDOW:
            if number > MAX_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "an initial window above 2^31 - 1")
            self._peer_window = number
        elif name == words.MAX_FRAME_SIZE:
            if not words.SMALLEST_FRAME <= number < 1 << 24:
                raise Fault(PROTOCOL_ERROR, f"a largest frame of {number} bytes")
            self._peer_frame = number
            self._most_data = min(number, MAX_DATA)
        elif name == words.ENABLE_PUSH and number > 1:
            raise Fault(PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
        else:
            self._on_setting(name, number)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.7."""
        if len(payload) != 8:
            raise Fault(FRAME_SIZE_ERROR, "PING must have 8 bytes")
        if stream_id:
            raise Fault(PROTOCOL_ERROR, "PING on a stream")
        if not self._floods.ping(self._clock):
            raise Exceeded(peer_limits.PINGS)
        if flags & ACK:
            self._on_pong()
        else:
            self._reply(words.PING, ACK, 0, payload)

    def _on_farewell(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.8."""
        if len(payload) < 8:
            raise Fault(FRAME_SIZE_ERROR, "GOAWAY must have 8 bytes at least")
        if stream_id:
            raise Fault(PROTOCOL_ERROR, "GOAWAY on a stream")
        if not self._floods.settings(self._clock):
            raise Exceeded(peer_limits.GOAWAYS)
        self._on_goaway(_long(payload)[0] & MAX_STREAM_ID, _long(payload, 4)[0], payload[8:], events)

    def _on_priority(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 6.3: has no meaning any more, and must still be a frame."""
        if not stream_id:
            raise Fault(PROTOCOL_ERROR, "PRIORITY without a stream")
        if not self._floods.priority():
            raise Exceeded(peer_limits.PRIORITIES)
        if len(payload) != 5:
            self._break_any(stream_id, FRAME_SIZE_ERROR, events)
        elif _long(payload)[0] & MAX_STREAM_ID == stream_id:
            self._break_any(stream_id, PROTOCOL_ERROR, events)

    def _on_push(self, flags: int, stream_id: int, payload: bytes, events: list[Any]) -> None:
        """Section 8.4: a client cannot push, and a server was told not to."""
        raise Fault(PROTOCOL_ERROR, "PUSH_PROMISE although push is off")

    # --- streams that are over, or never were

    def _state_of(self, stream_id: int) -> int:
        """Of a stream without an entry."""
        if stream_id > self._highest or not stream_id & 1:
            return State.IDLE
        return self._over.state(stream_id)

    def _on_absent(self, stream_id: int, frame: int, name: str, events: list[Any]) -> int:
        """A frame for a stream without an entry: the state after it, or a breach of the stream that was dealt with."""
        if not stream_id:
            raise Fault(PROTOCOL_ERROR, f"{name} without a stream")
        state = self._state_of(stream_id)
        if state == State.IDLE and not stream_id & 1:
            raise Fault(PROTOCOL_ERROR, f"{name} on a stream of the wrong side")
        found = self.TABLE[state][frame]
        if found == Breach.PROTOCOL:
            raise Fault(PROTOCOL_ERROR, f"{name} on a stream that was not opened")
        if found == Breach.CLOSED:
            raise Fault(STREAM_CLOSED, f"{name} on a stream that has ended")
        if found == Breach.STREAM:
            self._drop(stream_id, STREAM_CLOSED)
        return found

    def _break_any(self, stream_id: int, code: int, events: list[Any]) -> None:
        """An error of a stream that may not be there."""
        if stream_id in self._streams:
            self._break_stream(stream_id, code, events)
        elif self._state_of(stream_id) == State.IDLE:
            raise Fault(code, "a malformed frame on a stream that was not opened")
        else:
            self._drop(stream_id, code)

    def _break_stream(self, stream_id: int, code: int, events: list[Any]) -> None:
        """The peer broke a rule of a stream (section 5.4.2)."""
        self._drop(stream_id, code)
        del self._streams[stream_id]
        self._on_over(stream_id, code, events)

    def _drop(self, stream_id: int, code: int) -> None:
        """Reset a stream because of the peer: that costs, and counts like a reset of its own."""
        floods = self._floods
        if not (floods.refusal if code == REFUSED_STREAM else floods.reset)(self._clock):
            raise Exceeded(peer_limits.RESETS)
        self._reply(RST_STREAM, 0, stream_id, LONG.pack(code))
        self._over.note(stream_id, State.DROPPED)

    @property
    def tiny_reads(self) -> int:
        """Small reads of the peer that have completed nothing, as far as they are counted."""
        return self._floods.reads.told

    def useless(self, now: int) -> int:
        """Frames of the peer that cost us and carried nothing, as far as nothing has paid for them."""
        return self._floods.useless(now - self._lost)


_Handler = Callable[[Http2Connection, int, int, bytes, list[Any]], None]
_FRAMES: tuple[_Handler, ...] = (
    Http2Connection._on_data,
    Http2Connection._on_headers,
    Http2Connection._on_priority,
    Http2Connection._on_reset,
    Http2Connection._on_settings,
    Http2Connection._on_push,
    Http2Connection._on_ping,
    Http2Connection._on_farewell,
    Http2Connection._on_window,
    Http2Connection._on_continuation,
)
"""By type (section 6)."""
