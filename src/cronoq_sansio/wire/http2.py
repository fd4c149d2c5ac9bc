"""HTTP/2 for a server (RFC 9113): bytes in -> our events; headers, data, trailers, resets -> bytes out; and its timers.

What both roles share is in `http2_core.py`. This role adds:

- Nothing is sent before the peer's preface is complete, and the first wrong byte closes: what speaks HTTP/1.1 or TLS
  here gets no HTTP/2 frames for an answer.
- A stream too many is refused (REFUSED_STREAM); h2's own limit, which kills the connection, is out of reach.
- Who was answered early gets time to end its side; who is idle is sent away; the final GOAWAY comes last.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

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
from h2.settings import SettingCodes, Settings
from hyperframe.frame import SettingsFrame

from cronoq_sansio import limits
from cronoq_sansio.values import value
from cronoq_sansio.wire.http2_core import (
    LOCAL_ENDED,
    MAX_STREAM_ID,
    REMOTE_ENDED,
    Http2Connection,
)
from cronoq_sansio.wire.http2_core import Data as Data
from cronoq_sansio.wire.http2_core import Failed as Failed
from cronoq_sansio.wire.http2_core import WindowOpened as WindowOpened
from cronoq_sansio.wire.metadata import Headers

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@value
class Request:
    """A peer opened a stream. The header list is within the limits, except that it may have too many fields."""

    stream_id: int
    headers: Headers
    """Pseudo-header fields first; names in lower case."""
    ended: bool
    """Nothing follows."""


@value
class Reset:
    """The stream is over without a regular end."""

    stream_id: int


Event = Request | Data | Reset | WindowOpened | Failed


class _Machine(H2Connection):
    """h2 with our limits: these two it takes from the class."""

    DEFAULT_MAX_HEADER_LIST_SIZE = limits.MAX_HEADER_LIST
    MAX_CLOSED_STREAMS = limits.MAX_CLOSED_STREAMS


class Http2Server(Http2Connection):
    """One connection. Sending on a stream that is over, or after a failure, does nothing.

    `max_streams` bounds the open streams; `ping_interval` (ns) is how long the peer may be silent before it is pinged,
    and `ping_timeout` how long after that until it counts as gone.
    """

    def __init__(self, *, max_streams: int, ping_interval: int, ping_timeout: int, now: int) -> None:
        super().__init__(_Machine, client_side=False, ping_interval=ping_interval, ping_timeout=ping_timeout, now=now)
        self._max_streams = max_streams
        self._seen = 0
        """Bytes of the preface, while it is not complete."""
        self._lingering: dict[int, int] = {}
        """Streams that we have ended and the peer has not, and when they are reset."""
        self._discarded: dict[int, int] = {}
        """Bytes that came on them and are not credited yet."""
        self._last_stream = 0
        self._draining = False
        self._farewell = False
        self._peer_leaves = False
        self._idle_since = now
        self._preface_due: int | None = now + limits.PREFACE_TIMEOUT
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

    def _receive_greeting(self, data: bytes, events: list[Any]) -> bytes:
        seen = self._seen
        part = data[: len(PREFACE) - seen]
        if not PREFACE.startswith(part, seen):
            self.closed = self._dead = True
            events.append(Failed("the peer does not speak HTTP/2"))
            return b""
        self._seen = seen + len(part)
        if self._seen < len(PREFACE):
            return b""
        self._machine.receive_data(PREFACE)
        self._greeting = self._mute = False
        self._out += self._hello
        self._dirty = True
        return data[len(part) :]

    def _on_settled(self) -> None:
        self._preface_due = None
        self._idle_since = self._clock

    def _on_goaway(self, frame: bytes, events: list[Any]) -> None:
        self._peer_leaves = True
        self._close_when_left()

    def _on_request(self, event: RequestReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        assert stream_id is not None
        self._last_stream = stream_id
        if len(self._open) >= self._max_streams:
            self._machine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        ended = event.stream_ended is not None
        self._open[stream_id] = REMOTE_ENDED if ended else 0
        events.append(Request(stream_id, event.headers, ended))

    def _on_data(self, event: DataReceived, events: list[Event]) -> None:
        self._credit_connection(event)
        size = event.flow_controlled_length
        ended = event.stream_ended is not None
        stream_id = event.stream_id
        if stream_id not in self._open:
            return
        if stream_id not in self._lingering:
            events.append(Data(stream_id, event.data, size, ended))
        elif not ended:
            self._discard(stream_id, size)
        if ended:
            self._end_side(stream_id, REMOTE_ENDED)

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
            self._end_side(event.stream_id, REMOTE_ENDED)

    def _on_reset(self, event: StreamReset, events: list[Event]) -> None:
        if event.stream_id in self._open:
            events.append(Reset(event.stream_id))
            self._forget(event.stream_id)

    # --- out

    def drain(self) -> None:
        """Announce the end (RFC 9113 section 6.8): GOAWAY with the highest id; new streams are still taken."""
        if not self._draining and not self.closed and not self._mute:
            self._draining = True
            self._goaway(MAX_STREAM_ID, ErrorCodes.NO_ERROR, b"")

    def finish(self) -> None:
        """`closed` from here on; the final GOAWAY, with the last stream that was looked at, follows what is sent."""
        if not self.closed:
            self.closed = True
            self._farewell = not self._mute

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
        return self._drain_out(limit)

    # --- ends

    def _last_accepted(self) -> int:
        return self._last_stream

    def _end_side(self, stream_id: int, side: int) -> None:
        ended = self._open[stream_id] | side
        if ended == REMOTE_ENDED | LOCAL_ENDED:
            self._forget(stream_id)
            return
        self._open[stream_id] = ended
        if side == LOCAL_ENDED:
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

    def _abandon(self, reason: str, events: list[Any]) -> None:
        super()._abandon(reason, events)
        self._lingering.clear()

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

    def _keep_time(self, clock: int, events: list[Any]) -> None:
        if self._preface_due is not None and clock >= self._preface_due:
            if not self._greeting:
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
            self._ping_when_silent(clock)

    def _end_lingering(self) -> None:
        for stream_id, due in list(self._lingering.items()):
            if due > self._clock:
                break
            self.reset(stream_id, ErrorCodes.NO_ERROR)

    _handlers: ClassVar[Mapping[type, Callable[[Any, Any, list[Any]], None]]] = {
        RequestReceived: _on_request,
        DataReceived: _on_data,
        TrailersReceived: _on_trailers,
        StreamReset: _on_reset,
        WindowUpdated: Http2Connection._on_window,
        RemoteSettingsChanged: Http2Connection._on_settings,
    }
