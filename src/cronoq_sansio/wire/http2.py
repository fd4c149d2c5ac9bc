"""HTTP/2 for a server (RFC 9113): bytes in -> our events; headers, data, trailers, resets -> bytes out; and its timers.

h2 does the framing, HPACK and stream states. It is used plainly and none of its types leave this file, so that another
machine can take its place. What h2 leaves open is settled here:

- Nothing is sent before the peer's preface is complete, and the first wrong byte closes: what speaks HTTP/1.1 or TLS
  here gets no HTTP/2 frames for an answer.
- Frames are cut before h2 sees them, one at a time: h2 would buffer 16 MiB before it looks at a length, and forgets the
  events before a frame that is wrong.
- A stream too many is refused (REFUSED_STREAM); h2's own limit, which kills the connection, is out of reach.
- GOAWAY frames, ours and the peer's, do not pass through h2, which would close at once (RFC 9113 section 6.8 lets open
  streams end).
- The peer may not make us keep: a header block above the limits, replies to PING and SETTINGS that it does not read, a
  compression table of its choice.

Time. `now` is given with each call. Deadlines count time in which the process could read: when a timer fires later
than `limits.LATE_TIMER`, all of them move by the lateness and one second more, so that the socket is read first.
"""

from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import GoAwayFrame, SettingsFrame

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.values import value
from cronoq_sansio.wire.metadata import Headers

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_STREAM_ID = 2**31 - 1
FRAME_HEADER = 9
PING = b"cronoq\0\0"  #: payload of our own pings

_HEADERS, _SETTINGS, _GOAWAY, _CONTINUATION = 1, 4, 7, 9
_ACK = 1
_END_HEADERS = 4
_REMOTE_ENDED, _LOCAL_ENDED = 1, 2


@value
class Request:
    """A peer opened a stream. The header list is within the limits, except that it may have too many fields."""

    stream_id: int
    headers: Headers
    """Pseudo-header fields first; names in lower case."""
    ended: bool
    """Nothing follows."""


@value
class Data:
    """A DATA frame, or (empty, `ended`) the peer's trailers."""

    stream_id: int
    data: bytes
    size: int
    """What it took from the stream's window, padding included; `credit` gives it back."""
    ended: bool


@value
class Reset:
    """The stream is over without a regular end."""

    stream_id: int


@value
class WindowOpened:
    """More may be sent on this stream; 0 = on all of them."""

    stream_id: int


@value
class Failed:
    """The connection is over: `closed` is True. Once only."""

    reason: str


Event = Request | Data | Reset | WindowOpened | Failed


class _Machine(H2Connection):
    """h2 with our limits: these two it takes from the class."""

    DEFAULT_MAX_HEADER_LIST_SIZE = limits.MAX_HEADER_LIST
    MAX_CLOSED_STREAMS = limits.MAX_CLOSED_STREAMS


class Http2Server:
    """One connection. Sending on a stream that is over, or after a failure, does nothing.

    `max_streams` bounds the open streams; `ping_interval` (ns) is how long the peer may be silent before it is pinged,
    and `ping_timeout` how long after that until it counts as gone.
    """

    def __init__(self, *, max_streams: int, ping_interval: int, ping_timeout: int, now: int) -> None:
        self.closed = False
        """Write what `take` gives, then close the socket."""
        self._max_streams = max_streams
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._lost = 0
        """Nanoseconds of `now` that do not count; `_clock` is without them."""
        self._clock = now
        self._preface: int | None = 0
        """Bytes of the preface seen; None = complete."""
        self._settled = False
        self._buffer = b""
        self._block = 0
        """Raw bytes of the header block that is being received."""
        self._out = bytearray()
        self._dirty = False
        """h2 holds output that is not in `_out` yet."""
        self._control = 0
        self._open: dict[int, int] = {}
        """Which sides of each open stream have ended."""
        self._lingering: dict[int, int] = {}
        """Streams that we have ended and the peer has not, and when they are reset."""
        self._discarded: dict[int, int] = {}
        """Bytes that came on them and are not credited yet."""
        self._last_stream = 0
        self._uncredited = 0
        self._dead = False
        self._draining = False
        self._farewell = False
        self._peer_leaves = False
        self._heard = now
        self._pinged: int | None = None
        self._idle_since = now
        self._preface_due: int | None = now + limits.PREFACE_TIMEOUT
        self._headers_due: int | None = None
        # What we send is written in lower case and checked by our tests, so h2 need not look at it again.
        self._machine = _Machine(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
                validate_outbound_headers=False,
            )
        )
        self._start()

    def _start(self) -> None:
        """Our SETTINGS go out by hand, because h2 would enforce the limit on streams by closing the connection."""
        machine = self._machine
        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: self._max_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.INITIAL_WINDOW,
            SettingCodes.MAX_FRAME_SIZE: limits.MAX_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.MAX_HEADER_LIST,
        }
        believed = {**values, SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAM_ID}
        machine.local_settings = Settings(client=False, initial_values=believed)
        machine.initiate_connection()
        machine.clear_outbound_data_buffer()
        self._hello = SettingsFrame(0, settings={int(code): number for code, number in values.items()}).serialize()
        machine.increment_flow_control_window(limits.CONNECTION_WINDOW - machine.inbound_flow_control_window)

    # --- in

    def receive(self, data: bytes, now: int) -> list[Event]:
        """Bytes of the peer; what they mean, in order. Nothing after `closed`."""
        if self.closed or not data:
            return []
        self._clock = self._heard = now - self._lost
        self._pinged = None
        events: list[Event] = []
        if self._preface is not None:
            data = self._receive_preface(data, events)
        self._receive_frames(data, events)
        self._pull(control=True)
        if self._control > limits.MAX_UNSENT_CONTROL or len(self._out) > limits.MAX_UNSENT:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "replies are not read", events)
        return events

    def _receive_preface(self, data: bytes, events: list[Event]) -> bytes:
        assert self._preface is not None
        seen = self._preface
        part = data[: len(PREFACE) - seen]
        if not PREFACE.startswith(part, seen):
            self.closed = self._dead = True
            events.append(Failed("the peer does not speak HTTP/2"))
            return b""
        self._preface = seen + len(part)
        if self._preface < len(PREFACE):
            return b""
        self._machine.receive_data(PREFACE)
        self._preface = None
        self._out += self._hello
        self._dirty = True
        return data[len(part) :]

    def _receive_frames(self, data: bytes, events: list[Event]) -> None:
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        moved_on = False
        while end - at >= FRAME_HEADER and not self.closed:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            kind, flags = buffer[at + 3], buffer[at + 4]
            fault = self._check_frame(length, kind, flags)
            if fault is not None:
                self._fail(*fault, events)
                break
            following = at + FRAME_HEADER + length
            if following > end:
                break
            self._receive_frame(buffer[at:following], kind, flags, events)
            at = following
            moved_on |= not self._block
        self._buffer = buffer[at:] if at < end else b""
        self._watch_headers(moved_on)

    def _check_frame(self, length: int, kind: int, flags: int) -> tuple[ErrorCodes, str] | None:
        """What of a frame can be judged by its first bytes, before the rest is buffered."""
        if length > limits.MAX_FRAME:
            return ErrorCodes.FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {limits.MAX_FRAME} are allowed"
        if not self._settled and (kind != _SETTINGS or flags & _ACK):
            return ErrorCodes.PROTOCOL_ERROR, "the first frame must be SETTINGS"
        if kind in (_HEADERS, _CONTINUATION) and self._block + length > limits.MAX_HEADER_BLOCK:
            return ErrorCodes.ENHANCE_YOUR_CALM, f"header block above {limits.MAX_HEADER_BLOCK} bytes"
        if kind == _GOAWAY and (length < 8 or self._block):
            return ErrorCodes.PROTOCOL_ERROR, "malformed or misplaced GOAWAY"
        return None

    def _receive_frame(self, frame: bytes, kind: int, flags: int, events: list[Event]) -> None:
        if kind == _GOAWAY:
            self._peer_leaves = True
            self._close_when_left()
            return
        if kind in (_HEADERS, _CONTINUATION):
            # At least 1, so that blocks made of empty frames are noticed too.
            self._block = 0 if flags & _END_HEADERS else self._block + max(1, len(frame) - FRAME_HEADER)
        elif kind == _SETTINGS and not self._settled:
            self._settled = True
            self._preface_due = None
            self._idle_since = self._clock
        try:
            for event in self._machine.receive_data(frame):
                handler = _HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event, events)
        except (ProtocolError, HyperframeError) as error:
            # Not the error's text: it may name addresses of this process.
            self._abandon(f"the peer broke HTTP/2: {type(error).__name__}", events)

    def _watch_headers(self, moved_on: bool) -> None:
        """Arm or disarm the timer of an unfinished header block, or of a frame that may be one."""
        buffer = self._buffer
        waiting = self._block or (buffer and (len(buffer) < 4 or buffer[3] in (_HEADERS, _CONTINUATION)))
        if not waiting:
            self._headers_due = None
        elif self._headers_due is None or moved_on:
            self._headers_due = self._clock + limits.HEADERS_TIMEOUT

    def _on_request(self, event: RequestReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        assert stream_id is not None
        self._last_stream = stream_id
        if len(self._open) >= self._max_streams:
            self._machine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        ended = event.stream_ended is not None
        self._open[stream_id] = _REMOTE_ENDED if ended else 0
        events.append(Request(stream_id, event.headers, ended))

    def _on_data(self, event: DataReceived, events: list[Event]) -> None:
        size = event.flow_controlled_length
        self._uncredited += size
        # h2 gives back what came for streams that are over, but late; so the window itself is looked at.
        if self._uncredited and self._machine.inbound_flow_control_window < limits.CONNECTION_WINDOW // 2:
            self._machine.increment_flow_control_window(self._uncredited)
            self._uncredited = 0
        ended = event.stream_ended is not None
        stream_id = event.stream_id
        if stream_id not in self._open:
            return
        if stream_id not in self._lingering:
            events.append(Data(stream_id, event.data, size, ended))
        elif not ended:
            self._discard(stream_id, size)
        if ended:
            self._end_side(stream_id, _REMOTE_ENDED)

    def _discard(self, stream_id: int, size: int) -> None:
        """Some clients look at the answer only when their message is out: let them send, while the stream lingers."""
        size += self._discarded.get(stream_id, 0)
        if size >= limits.INITIAL_WINDOW // 4:
            self._machine.increment_flow_control_window(size, stream_id)
            size = 0
        self._discarded[stream_id] = size

    def _on_trailers(self, event: TrailersReceived, events: list[Event]) -> None:
        if event.stream_id in self._open:
            events.append(Data(event.stream_id, b"", 0, True))
            self._end_side(event.stream_id, _REMOTE_ENDED)

    def _on_reset(self, event: StreamReset, events: list[Event]) -> None:
        if event.stream_id in self._open:
            events.append(Reset(event.stream_id))
            self._forget(event.stream_id)

    def _on_window(self, event: WindowUpdated, events: list[Event]) -> None:
        events.append(WindowOpened(event.stream_id or 0))

    def _on_settings(self, event: RemoteSettingsChanged, events: list[Event]) -> None:
        encoder = self._machine.encoder
        if encoder.header_table_size > limits.ENCODER_TABLE:
            encoder.header_table_size = limits.ENCODER_TABLE
        # Only the smallest and the last size need to be told (RFC 7541 section 4.2); hpack would keep every one.
        changes = encoder.table_size_changes
        if len(changes) > 2:
            changes[:] = [min(changes), changes[-1]]
        events.append(WindowOpened(0))

    # --- out

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        """Response headers, or trailers when headers went out before; `end`: nothing follows."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.send_headers(stream_id, headers, end_stream=end)
        self._dirty = True
        if end:
            self._end_side(stream_id, _LOCAL_ENDED)

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now; 0 or less = wait for `WindowOpened`."""
        if self._dead or stream_id not in self._open:
            return 0
        machine = self._machine
        return min(machine.local_flow_control_window(stream_id), machine.max_outbound_frame_size, 4 * limits.MAX_FRAME)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """One DATA frame of at most `sendable` bytes."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.send_data(stream_id, data)
        self._dirty = True

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once; `code` as in RST_STREAM."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.reset_stream(stream_id, code)
        self._dirty = True
        self._forget(stream_id)

    def credit(self, stream_id: int, size: int) -> None:
        """Let the peer send `size` more bytes on this stream."""
        if self._dead or size == 0 or self._open.get(stream_id, _REMOTE_ENDED):
            return
        self._machine.increment_flow_control_window(size, stream_id)
        self._dirty = True

    def drain(self) -> None:
        """Announce the end (RFC 9113 section 6.8): GOAWAY with the highest id; new streams are still taken."""
        if not self._draining and not self.closed and self._preface is None:
            self._draining = True
            self._goaway(MAX_STREAM_ID, ErrorCodes.NO_ERROR, b"")

    def finish(self) -> None:
        """`closed` from here on; the final GOAWAY, with the last stream that was looked at, follows what is sent."""
        if not self.closed:
            self.closed = True
            self._farewell = self._preface is None

    @property
    def unsent(self) -> int:
        """Bytes that wait for `take`, as far as they are counted already."""
        return len(self._out)

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return self._dirty or self._farewell or bool(self._out)

    def take(self, limit: int, *, more: bool = False) -> bytes:
        """Up to `limit` bytes to write to the socket; `more`: the caller has not sent all yet, so no farewell.

        Many clients drop their streams when they see the final GOAWAY: it comes last.
        """
        self._pull()
        if self._farewell and not more:
            self._farewell = False
            self._goaway(self._last_stream, ErrorCodes.NO_ERROR, b"")
        out = self._out
        if len(out) <= limit:
            data = bytes(out)
            out.clear()
            self._control = 0
        else:
            data = bytes(out[:limit])
            del out[:limit]
        return data

    def _pull(self, *, control: bool = False) -> None:
        if self._preface is None:
            pending = self._machine.data_to_send()
            self._out += pending
            self._dirty = False
            if control:
                self._control += len(pending)

    def _goaway(self, last_stream: int, code: ErrorCodes, why: bytes) -> None:
        self._pull()
        frame = GoAwayFrame(0, last_stream_id=last_stream, error_code=int(code), additional_data=why)
        self._out += frame.serialize()

    # --- ends

    def _end_side(self, stream_id: int, side: int) -> None:
        ended = self._open[stream_id] | side
        if ended == _REMOTE_ENDED | _LOCAL_ENDED:
            self._forget(stream_id)
            return
        self._open[stream_id] = ended
        if side == _LOCAL_ENDED:
            # Answered early. Some clients lose the answer when a reset follows at once, so they get time to stop.
            self._lingering[stream_id] = self._clock + limits.STREAM_LINGER

    def _forget(self, stream_id: int) -> None:
        del self._open[stream_id]
        if self._lingering.pop(stream_id, None) is not None:
            self._discarded.pop(stream_id, None)
        if not self._open:
            self._idle_since = self._clock
            self._close_when_left()

    def _close_when_left(self) -> None:
        if self._peer_leaves and not self._open:
            self.finish()

    def _fail(self, code: ErrorCodes, reason: str, events: list[Event]) -> None:
        """The peer broke a rule that h2 does not know."""
        if not self._dead:
            self._goaway(self._last_stream, code, reason.encode())
            self._abandon(reason, events)

    def _abandon(self, reason: str, events: list[Event]) -> None:
        self._pull()
        self._dead = self.closed = True
        self._open.clear()
        self._lingering.clear()
        events.append(Failed(reason))

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        if self.closed:
            return None
        if self._preface_due is not None:
            return self._preface_due + self._lost
        due = self._next_ping()
        if self._headers_due is not None:
            due = min(due, self._headers_due)
        if not self._open:
            due = min(due, self._idle_since + limits.IDLE_TIMEOUT)
        elif self._lingering:
            due = min(due, next(iter(self._lingering.values())))
        return due + self._lost

    def _next_ping(self) -> int:
        if self._pinged is not None:
            return self._pinged + self._ping_timeout
        return self._heard + self._ping_interval

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
        if self._preface_due is not None and clock >= self._preface_due:
            if self._preface is None:
                self._fail(ErrorCodes.SETTINGS_TIMEOUT, "no SETTINGS within 5 s", events)
            else:
                self.closed = self._dead = True
                events.append(Failed("no HTTP/2 preface within 5 s"))
        elif self._headers_due is not None and clock >= self._headers_due:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "header block not complete within 10 s", events)
        elif self._pinged is not None and clock >= self._pinged + self._ping_timeout:
            self._fail(ErrorCodes.NO_ERROR, "ping not answered", events)
        elif not self._open and clock >= self._idle_since + limits.IDLE_TIMEOUT:
            self.finish()
        else:
            self._end_lingering()
            if self._pinged is None and clock >= self._heard + self._ping_interval:
                self._machine.ping(PING)
                self._dirty = True
                self._pinged = clock
        return events

    def _end_lingering(self) -> None:
        for stream_id, due in list(self._lingering.items()):
            if due > self._clock:
                break
            self.reset(stream_id, ErrorCodes.NO_ERROR)


_HANDLERS: dict[type, Callable[[Http2Server, Any, list[Event]], None]] = {
    RequestReceived: Http2Server._on_request,
    DataReceived: Http2Server._on_data,
    TrailersReceived: Http2Server._on_trailers,
    StreamReset: Http2Server._on_reset,
    WindowUpdated: Http2Server._on_window,
    RemoteSettingsChanged: Http2Server._on_settings,
}
