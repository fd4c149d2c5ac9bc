"""HTTP/2 for a server on h2: what `http2_server.py` does, by another hand, for diagnosis (`[server] http2 = "h2"`).

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
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
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
from cronoq_sansio.wire import frames, peer_limits
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.floods import Replies
from cronoq_sansio.wire.frames import Fault, Frame, FrameCutter
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_words import WHOLE_DATA
from cronoq_sansio.wire.peer_limits import PeerLimit
from cronoq_sansio.wire.server_timers import ServerTimers

MAX_STREAM_ID = 2**31 - 1
MAX_DATA = limits.MAX_FRAME  #: of one DATA frame to a peer that would take larger ones: other streams want a turn
PING = b"cronoq\0\0"  #: payload of our own pings

_REMOTE_ENDED, _LOCAL_ENDED = 1, 2


class _Machine(H2Connection):
    """h2 with our limits: these two it takes from the class."""

    DEFAULT_MAX_HEADER_LIST_SIZE = limits.MAX_HEADER_LIST
    MAX_CLOSED_STREAMS = limits.MAX_CLOSED_STREAMS


class H2Server(ServerTimers):
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
        self._cutter = FrameCutter()
        self._greeted = False
        """Our SETTINGS are out, since their preface is complete."""
        self._out = bytearray()
        self._dirty = False
        """h2 holds output that is not in `_out` yet."""
        self._replies = Replies()
        """Of `_out`."""
        self._open: dict[int, int] = {}
        """Which sides of each open stream have ended."""
        self._lingering: dict[int, int] = {}
        """Streams that we have ended and the peer has not, and when they are reset."""
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
        self._frame_due: int | None = None
        self._begun = now
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
        machine.max_inbound_frame_size = limits.MAX_FRAME
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
        cutter = self._cutter
        found = cutter.feed(data)
        if cutter.greeted and not self._greeted:
            self._greet()
        elif found and not cutter.greeted:  # something else: who speaks HTTP/1.1 is told so
            self._out += words.answer_to(data)
        self._receive_frames(found, events)
        if cutter.kept:
            self._time_frame(cutter.begun, anew=cutter.finished)
        else:
            self._frame_due = None
        self._pull(control=True)
        if self._replies.waiting > limits.MAX_UNSENT_CONTROL or len(self._out) > limits.MAX_UNSENT:
            self._give_up(frames.ENHANCE_YOUR_CALM, peer_limits.UNREAD_REPLIES, events)
        return events

    def _greet(self) -> None:
        """Their preface is there: ours goes out."""
        self._greeted = True
        self._machine.receive_data(frames.PREFACE)
        self._out += self._hello
        self._dirty = True

    def _receive_frames(self, found: list[Frame | Fault], events: list[Event]) -> None:
        for item in found:
            if self.closed:
                return
            if isinstance(item, Fault):
                self._fail(item.code, item.reason, events, self._limit_of(item))
            else:
                self._receive_frame(item, events)

    def _limit_of(self, fault: Fault) -> PeerLimit:
        if not self._greeted:
            return peer_limits.NOT_HTTP2
        if fault.code == frames.ENHANCE_YOUR_CALM:
            return peer_limits.HEADER_BYTES
        return peer_limits.broken(fault.reason)

    def _receive_frame(self, frame: Frame, events: list[Event]) -> None:
        if frame.kind == frames.GOAWAY:
            self._peer_leaves = True
            self._close_when_left()
            return
        if self._preface_due is not None:  # the cutter lets nothing but SETTINGS be the first
            self._preface_due = None
            self._idle_since = self._clock
        try:
            for event in self._machine.receive_data(frame.data):
                handler = _HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event, events)
        except (ProtocolError, HyperframeError) as error:
            # Not the error's text: it may name addresses of this process.
            rule = type(error).__name__
            self._abandon(f"the peer broke HTTP/2: {rule}", events, peer_limits.broken(rule))

    def _on_request(self, event: RequestReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        assert stream_id is not None
        self._last_stream = stream_id
        if len(self._open) >= self._max_streams:
            self._machine.reset_stream(stream_id, frames.REFUSED_STREAM)
            return
        ended = event.stream_ended is not None
        self._open[stream_id] = _REMOTE_ENDED if ended else 0
        headers = HeaderList(event.headers)
        headers.fault = ""
        events.append(Request(stream_id, headers, ended))

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
            self._let_end(stream_id)
        if ended:
            self._end_side(stream_id, _REMOTE_ENDED)

    def _let_end(self, stream_id: int) -> None:
        """Some clients look at the answer only when their message is out: let them send, while the stream lingers."""
        used = limits.INITIAL_WINDOW - self._machine.remote_flow_control_window(stream_id)
        if used >= limits.INITIAL_WINDOW // 4:
            self._machine.increment_flow_control_window(used, stream_id)
            self._dirty = True

    def _on_trailers(self, event: TrailersReceived, events: list[Event]) -> None:
        if event.stream_id in self._open:
            if event.stream_id not in self._lingering:
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
        # hpack forgets a change that it still owes when the same size is set again.
        encoder.header_table.resized = bool(changes)
        events.append(WindowOpened(0))

    # --- out

    def send_headers(
        self, stream_id: int, fields: Sequence[Field], once: Iterable[Field] = (), *, end: bool = False
    ) -> None:
        """Response headers, or trailers when headers went out before; `end`: nothing follows."""
        if self._dead or self._open.get(stream_id, _LOCAL_ENDED) & _LOCAL_ENDED:
            return
        self._machine.send_headers(stream_id, [*fields, *once], end_stream=end)
        self._dirty = True
        if end:
            self._end_side(stream_id, _LOCAL_ENDED)

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now; 0 or less = wait for `WindowOpened`."""
        if self._dead or stream_id not in self._open:
            return 0
        machine = self._machine
        return min(machine.local_flow_control_window(stream_id), machine.max_outbound_frame_size, MAX_DATA)

    @property
    def window(self) -> int:
        """How many bytes all streams together may send now; below 0 is possible."""
        return self._machine.outbound_flow_control_window

    @property
    def initial_window(self) -> int:
        """What the peer lets each new stream send."""
        return self._machine.remote_settings.initial_window_size

    tiny_reads = 0
    """Floods are not counted here."""

    def useless(self, now: int) -> int:
        """Always 0: floods are not counted here."""
        return 0

    def fragment(self, size: int, now: int) -> bool:
        """Always True."""
        return True

    @property
    def kept(self) -> int:
        """Bytes of the peer that are no whole frame, or no whole header block."""
        return self._cutter.kept

    @property
    def _within_headers(self) -> bool:
        return self._cutter.within_headers

    @property
    def whole_window(self) -> int:
        """What `sendable` gets to again and again on a stream whose peer opens a window once half of it is used."""
        machine = self._machine
        return min(machine.remote_settings.initial_window_size // 2, machine.max_outbound_frame_size, WHOLE_DATA)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """One DATA frame of at most `sendable` bytes."""
        if self._dead or self._open.get(stream_id, _LOCAL_ENDED) & _LOCAL_ENDED:
            return
        self._machine.send_data(stream_id, data)
        self._dirty = True

    def answer(self, stream_id: int, fields: Sequence[Field], data: bytes, trailers: Sequence[Field]) -> bool:
        """Headers, one DATA frame and trailers at once; False = the windows do not allow it, and nothing was sent."""
        if self._dead or self._open.get(stream_id, _LOCAL_ENDED) & _LOCAL_ENDED:
            return True
        if len(data) > self.sendable(stream_id):
            return False
        self.send_headers(stream_id, fields)
        self.send_data(stream_id, data)
        self.send_headers(stream_id, trailers, end=True)
        return True

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

    def tick(self, now: int) -> None:
        """It is `now`: said before something is sent that nothing was read for."""
        self._clock = max(self._clock, now - self._lost)

    def drain(self) -> None:
        """Announce the end (RFC 9113 section 6.8): GOAWAY with the highest id; new streams are still taken."""
        if not self._draining and not self.closed and self._greeted:
            self._draining = True
            self._goaway(MAX_STREAM_ID, frames.NO_ERROR, b"")

    def give_up(self, limit: PeerLimit) -> list[Event]:
        """The peer has exceeded a limit that others keep: GOAWAY says which, and all streams are over."""
        events: list[Event] = []
        self._give_up(frames.ENHANCE_YOUR_CALM, limit, events)
        return events

    def finish(self) -> None:
        """`closed` from here on; the final GOAWAY, with the last stream that was looked at, follows what is sent."""
        if not self.closed:
            self.closed = True
            self._farewell = self._greeted

    @property
    def unsent(self) -> int:
        """Bytes that wait for `take`, as far as they are counted already."""
        return len(self._out)

    @property
    def last_word(self) -> bool:
        """Something is to be said beyond `unsent`: the final GOAWAY, or what h2 has still to hand out."""
        return self._dirty or self._farewell

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
            self._goaway(self._last_stream, frames.NO_ERROR, b"")
        out = self._out
        if len(out) <= limit:
            data = bytes(out)
            out.clear()
        else:
            data = bytes(out[:limit])
            del out[:limit]
        self._replies.sent(len(data), len(out))
        return data

    def _pull(self, *, control: bool = False) -> None:
        if self._greeted:
            pending = self._machine.data_to_send()
            self._out += pending
            self._dirty = False
            if control:
                self._replies.add(len(pending), len(self._out))

    def _goaway(self, last_stream: int, code: int, why: bytes) -> None:
        self._pull()
        frame = GoAwayFrame(0, last_stream_id=last_stream, error_code=code, additional_data=why)
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
            self._let_end(stream_id)

    def _forget(self, stream_id: int) -> None:
        del self._open[stream_id]
        self._lingering.pop(stream_id, None)
        if not self._open:
            self._idle_since = self._clock
            self._close_when_left()

    def _close_when_left(self) -> None:
        if self._peer_leaves and not self._open:
            self.finish()

    def _fail(self, code: int, reason: str, events: list[Event], limit: PeerLimit) -> None:
        """The peer broke a rule that h2 does not know."""
        if not self._dead:
            if self._greeted:
                self._goaway(self._last_stream, code, reason.encode())
            self._abandon(reason, events, limit)

    def _abandon(self, reason: str, events: list[Event], limit: PeerLimit) -> None:
        self._pull()
        self._dead = self.closed = True
        self._open.clear()
        self._lingering.clear()
        events.append(Failed(reason, limit))

    # --- time

    @property
    def due(self) -> int:
        """What `next_timeout` says; 0 once it is closed: whoever waits for the peer has to notice."""
        due = self.next_timeout()
        return 0 if due is None else due

    def _give_up(self, code: int, limit: PeerLimit, events: list[Event]) -> None:
        self._fail(code, limit.says, events, limit)

    def _idle(self) -> bool:
        return not self._open

    def _send_ping(self) -> None:
        self._machine.ping(PING)
        self._dirty = True


_HANDLERS: dict[type, Callable[[H2Server, Any, list[Event]], None]] = {
    RequestReceived: H2Server._on_request,
    DataReceived: H2Server._on_data,
    TrailersReceived: H2Server._on_trailers,
    StreamReset: H2Server._on_reset,
    WindowUpdated: H2Server._on_window,
    RemoteSettingsChanged: H2Server._on_settings,
}
