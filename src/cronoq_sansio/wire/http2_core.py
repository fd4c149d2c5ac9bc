"""HTTP/2 (RFC 9113), what both roles share: frames are cut and judged here; h2 does HPACK and the states of streams.

h2 is used plainly and none of its types leave the files of this machine, so that another one can take its place. What
h2 leaves open is settled here:

- Frames are cut before h2 sees them, one at a time: h2 would buffer 16 MiB before it looks at a length, and forgets the
  events before a frame that is wrong.
- GOAWAY frames, ours and the peer's, do not pass through h2, which would close at once (RFC 9113 section 6.8 lets open
  streams end).
- The peer may not make us keep: a header block above the limits, replies to PING and SETTINGS that it does not read, a
  compression table of its choice.

Time. `now` is given with each call. Deadlines count time in which the process could read: when a timer fires later
than `limits.LATE_TIMER`, all of them move by the lateness and one second more, so that the socket is read first.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RemoteSettingsChanged, WindowUpdated
from h2.exceptions import ProtocolError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import GoAwayFrame

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.values import value
from cronoq_sansio.wire.metadata import Headers

MAX_STREAM_ID = 2**31 - 1
FRAME_HEADER = 9
PING = b"cronoq\0\0"  #: payload of our own pings

HEADERS, SETTINGS, GOAWAY, CONTINUATION = 1, 4, 7, 9
ACK = 1
END_HEADERS = 4
REMOTE_ENDED, LOCAL_ENDED = 1, 2


@value
class Data:
    """A DATA frame, or (empty, `ended`) the end of the peer's side without one."""

    stream_id: int
    data: bytes
    size: int
    """What it took from the stream's window, padding included; `credit` gives it back."""
    ended: bool


@value
class WindowOpened:
    """More may be sent on this stream; 0 = on all of them."""

    stream_id: int


@value
class Failed:
    """The connection is over: `closed` is True. Once only."""

    reason: str


class Http2Connection:
    """One connection, either role. Sending on a stream that is over, or after a failure, does nothing."""

    _handlers: ClassVar[Mapping[type, Callable[[Any, Any, list[Any]], None]]]
    """What each role does with the events of h2; those that are missing do not matter."""

    def __init__(
        self, machine: type[H2Connection], *, client_side: bool, ping_interval: int, ping_timeout: int, now: int
    ) -> None:
        self.closed = False
        """Write what `take` gives, then close the socket."""
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._lost = 0
        """Nanoseconds of `now` that do not count; `_clock` is without them."""
        self._clock = now
        self._greeting = True
        """The peer's first bytes are being looked at: is it HTTP/2 at all?"""
        self._mute = True
        """Nothing is sent yet."""
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
        self._uncredited = 0
        self._dead = False
        self._heard = now
        self._pinged: int | None = None
        self._headers_due: int | None = None
        # What we send is written in lower case and checked by our tests, so h2 need not look at it again.
        self._machine = machine(
            H2Configuration(
                client_side=client_side,
                header_encoding=None,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
                validate_outbound_headers=False,
            )
        )

    # --- in

    def receive(self, data: bytes, now: int) -> list[Any]:
        """Bytes of the peer; what they mean, in order. Nothing after `closed`."""
        if self.closed or not data:
            return []
        self._clock = self._heard = now - self._lost
        self._pinged = None
        events: list[Any] = []
        if self._greeting:
            data = self._receive_greeting(data, events)
        self._receive_frames(data, events)
        self._pull(control=True)
        if self._control > limits.MAX_UNSENT_CONTROL or len(self._out) > limits.MAX_UNSENT:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "replies are not read", events)
        return events

    def _receive_greeting(self, data: bytes, events: list[Any]) -> bytes:
        """Look at the first bytes; returns those that are frames."""
        raise NotImplementedError

    def _receive_frames(self, data: bytes, events: list[Any]) -> None:
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
        if not self._settled and (kind != SETTINGS or flags & ACK):
            return ErrorCodes.PROTOCOL_ERROR, "the first frame must be SETTINGS"
        if kind in (HEADERS, CONTINUATION) and self._block + length > limits.MAX_HEADER_BLOCK:
            return ErrorCodes.ENHANCE_YOUR_CALM, f"header block above {limits.MAX_HEADER_BLOCK} bytes"
        if kind == GOAWAY and (length < 8 or self._block):
            return ErrorCodes.PROTOCOL_ERROR, "malformed or misplaced GOAWAY"
        return None

    def _receive_frame(self, frame: bytes, kind: int, flags: int, events: list[Any]) -> None:
        if kind == GOAWAY:
            self._on_goaway(frame, events)
            return
        if kind in (HEADERS, CONTINUATION):
            # At least 1, so that blocks made of empty frames are noticed too.
            self._block = 0 if flags & END_HEADERS else self._block + max(1, len(frame) - FRAME_HEADER)
        elif kind == SETTINGS and not self._settled:
            self._settled = True
            self._on_settled()
        try:
            for event in self._machine.receive_data(frame):
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(self, event, events)
        except (ProtocolError, HyperframeError) as error:
            # Not the error's text: it may name addresses of this process.
            self._abandon(f"the peer broke HTTP/2: {type(error).__name__}", events)

    def _on_goaway(self, frame: bytes, events: list[Any]) -> None:
        """The peer will take no new streams."""
        raise NotImplementedError

    def _on_settled(self) -> None:
        """The peer's SETTINGS are here."""
        raise NotImplementedError

    def _watch_headers(self, moved_on: bool) -> None:
        """Arm or disarm the timer of an unfinished header block, or of a frame that may be one."""
        buffer = self._buffer
        waiting = self._block or (buffer and (len(buffer) < 4 or buffer[3] in (HEADERS, CONTINUATION)))
        if not waiting:
            self._headers_due = None
        elif self._headers_due is None or moved_on:
            self._headers_due = self._clock + limits.HEADERS_TIMEOUT

    def _credit_connection(self, event: DataReceived) -> None:
        """DATA came: the connection's window stays open, memory is bounded by the windows of the streams."""
        self._uncredited += event.flow_controlled_length
        # h2 gives back what came for streams that are over, but late; so the window itself is looked at.
        if self._uncredited and self._machine.inbound_flow_control_window < limits.CONNECTION_WINDOW // 2:
            self._machine.increment_flow_control_window(self._uncredited)
            self._uncredited = 0

    def _on_window(self, event: WindowUpdated, events: list[Any]) -> None:
        events.append(WindowOpened(event.stream_id or 0))

    def _on_settings(self, event: RemoteSettingsChanged, events: list[Any]) -> None:
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
        """Headers of an open stream, or trailers when headers went out before; `end`: nothing follows."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.send_headers(stream_id, headers, end_stream=end)
        self._dirty = True
        if end:
            self._end_side(stream_id, LOCAL_ENDED)

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now; 0 or less = wait for `WindowOpened`."""
        if self._dead or stream_id not in self._open:
            return 0
        machine = self._machine
        return min(machine.local_flow_control_window(stream_id), machine.max_outbound_frame_size, 4 * limits.MAX_FRAME)

    def send_data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """One DATA frame of at most `sendable` bytes; `end`: nothing follows."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.send_data(stream_id, data, end_stream=end)
        self._dirty = True
        if end:
            self._end_side(stream_id, LOCAL_ENDED)

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once; `code` as in RST_STREAM."""
        if self._dead or stream_id not in self._open:
            return
        self._machine.reset_stream(stream_id, code)
        self._dirty = True
        self._forget(stream_id)

    def credit(self, stream_id: int, size: int) -> None:
        """Let the peer send `size` more bytes on this stream."""
        if self._dead or size == 0 or self._open.get(stream_id, REMOTE_ENDED) & REMOTE_ENDED:
            return
        self._machine.increment_flow_control_window(size, stream_id)
        self._dirty = True

    @property
    def unsent(self) -> int:
        """Bytes that wait for `take`, as far as they are counted already."""
        return len(self._out)

    def _drain_out(self, limit: int) -> bytes:
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
        if not self._mute:
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
        """One side of an open stream has ended."""
        raise NotImplementedError

    def _forget(self, stream_id: int) -> None:
        """An open stream is over."""
        raise NotImplementedError

    def _last_accepted(self) -> int:
        """The last stream of the peer that was looked at, for GOAWAY."""
        raise NotImplementedError

    def _fail(self, code: ErrorCodes, reason: str, events: list[Any]) -> None:
        """The peer broke a rule that h2 does not know."""
        if not self._dead:
            self._goaway(self._last_accepted(), code, reason.encode())
            self._abandon(reason, events)

    def _abandon(self, reason: str, events: list[Any]) -> None:
        self._pull()
        self._dead = self.closed = True
        self._open.clear()
        events.append(Failed(reason))

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        raise NotImplementedError

    def _next_ping(self) -> int:
        if self._pinged is not None:
            return self._pinged + self._ping_timeout
        return self._heard + self._ping_interval

    def handle_timer(self, now: int) -> list[Any]:
        """Act on whatever is due."""
        events: list[Any] = []
        due = self.next_timeout()
        if due is None or now < due:
            return events
        if now - due > limits.LATE_TIMER:
            self._lost += now - due + SECOND
            return events
        self._clock = now - self._lost
        self._keep_time(self._clock, events)
        return events

    def _keep_time(self, clock: int, events: list[Any]) -> None:
        """Act on what is due at `clock`."""
        raise NotImplementedError

    def _ping_when_silent(self, clock: int) -> None:
        if self._pinged is None and clock >= self._heard + self._ping_interval:
            self._machine.ping(PING)
            self._dirty = True
            self._pinged = clock
