"""HTTP/2 for a client (RFC 9113): open streams, headers, data, resets -> bytes out; bytes in -> events; and its timers.

What both roles share is in `http2_core.py`. This role adds:

- The first bytes of the server are looked at before HTTP/2 is: who answers in HTTP/1.1 or TLS is named.
- No stream is opened before the server's SETTINGS are here, and never more than they allow.
- After the server's GOAWAY the streams up to its last one go on, the later ones are over and were not looked at.
- A server that is silent for too long is pinged while streams are open; without an answer it counts as gone.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes, Settings

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.values import value
from cronoq_sansio.wire.http2_core import (
    ACK,
    FRAME_HEADER,
    LOCAL_ENDED,
    MAX_STREAM_ID,
    PING,
    REMOTE_ENDED,
    SETTINGS,
    Http2Connection,
)
from cronoq_sansio.wire.http2_core import Data as Data
from cronoq_sansio.wire.http2_core import Failed as Failed
from cronoq_sansio.wire.http2_core import WindowOpened as WindowOpened
from cronoq_sansio.wire.metadata import Headers

#: Reasons of `Failed` that tell what the other side is, for whoever knows a remedy.
SPEAKS_HTTP1 = "the server answers in HTTP/1, not in HTTP/2"
SPEAKS_TLS = "the server answers in TLS"
NOT_HTTP2 = "what answers there does not speak HTTP/2"
SILENT = "the server accepted the connection and then sent nothing"
PING_LOST = "the server does not answer any more (no reply to a ping)"

_TLS_RECORDS = (0x15, 0x16)  #: alert and handshake
_MAX_REASON = 256  #: characters of a GOAWAY's debug data that are kept


@value
class Settled:
    """SETTINGS of the server are here: it speaks HTTP/2, and may allow more streams than before."""


@value
class Response:
    """Headers of the answer, without interim (1xx) ones."""

    stream_id: int
    headers: Headers
    ended: bool


@value
class Trailers:
    """Trailers: the server's side of the stream has ended."""

    stream_id: int
    headers: Headers


@value
class ResetByServer:
    """The server ended the stream at once."""

    stream_id: int
    code: int
    """Of RST_STREAM."""


@value
class GoneAway:
    """The server takes no new streams; those above `last_stream` are over, it has not looked at them."""

    last_stream: int
    code: int
    reason: str


Event = Settled | Response | Data | Trailers | ResetByServer | WindowOpened | GoneAway | Failed


class _Machine(H2Connection):
    """h2 with our limits."""

    DEFAULT_MAX_HEADER_LIST_SIZE = limits.MAX_HEADER_LIST
    MAX_CLOSED_STREAMS = limits.MAX_CLOSED_STREAMS
    still_open = 0
    """Told by the client, which counts them."""

    @property
    def open_outbound_streams(self) -> int:
        """h2 goes through all its streams to count them, and clears away closed ones; only the second is needed."""
        if len(self.streams) > 2 * self.still_open + 64:
            return super().open_outbound_streams
        return self.still_open


class Http2Client(Http2Connection):
    """One connection. `settings_timeout` (ns) is how long the server's SETTINGS may take."""

    _machine: _Machine

    def __init__(self, *, ping_interval: int, ping_timeout: int, settings_timeout: int, now: int) -> None:
        super().__init__(_Machine, client_side=True, ping_interval=ping_interval, ping_timeout=ping_timeout, now=now)
        self.leaving = False
        """No stream can be opened any more."""
        self._first = b""
        self._settings_due: int | None = now + settings_timeout
        self._next_stream = 1
        machine = self._machine
        machine.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.INITIAL_WINDOW,
                SettingCodes.MAX_FRAME_SIZE: limits.MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.MAX_HEADER_LIST,
            },
        )
        machine.initiate_connection()
        machine.increment_flow_control_window(limits.CONNECTION_WINDOW - machine.inbound_flow_control_window)
        self._mute = False
        self._dirty = True

    # --- in

    def receive_eof(self) -> list[Event]:
        """The server closed the connection, or the socket failed."""
        if self.closed:
            return []
        if self._settled:
            reason = "the server closed the connection"
        elif self._first:
            reason = _name_peer(self._first) or NOT_HTTP2
        else:
            reason = "the server closed the connection before it said anything"
        self.closed = self._dead = True
        return [Failed(reason)]

    def _receive_greeting(self, data: bytes, events: list[Any]) -> bytes:
        self._first += data
        if len(self._first) < FRAME_HEADER:
            return b""
        first, self._first = self._first, b""
        stranger = _name_peer(first)
        if stranger is not None:
            self.closed = self._dead = True
            events.append(Failed(stranger))
            return b""
        self._greeting = False
        return first

    def _on_settled(self) -> None:
        self._settings_due = None

    def _on_settings(self, event: RemoteSettingsChanged, events: list[Any]) -> None:
        events.append(Settled())
        super()._on_settings(event, events)

    def _on_goaway(self, frame: bytes, events: list[Any]) -> None:
        body = memoryview(frame)[FRAME_HEADER:]
        last = int.from_bytes(body[:4], "big") & MAX_STREAM_ID
        code = int.from_bytes(body[4:8], "big")
        reason = bytes(body[8 : 8 + _MAX_REASON]).decode("ascii", "replace")
        self.leaving = True
        for stream_id in [stream_id for stream_id in self._open if stream_id > last]:
            # Reset, so that h2 forgets them too.
            self._machine.reset_stream(stream_id, ErrorCodes.CANCEL)
            self._dirty = True
            self._forget(stream_id)
        events.append(GoneAway(last, code, reason))
        self._close_when_left()

    def _on_response(self, event: ResponseReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        assert stream_id is not None
        if stream_id in self._open:
            ended = event.stream_ended is not None
            events.append(Response(stream_id, event.headers, ended))
            if ended:
                self._end_side(stream_id, REMOTE_ENDED)

    def _on_data(self, event: DataReceived, events: list[Event]) -> None:
        self._credit_connection(event)
        stream_id = event.stream_id
        if stream_id in self._open:
            ended = event.stream_ended is not None
            events.append(Data(stream_id, event.data, event.flow_controlled_length, ended))
            if ended:
                self._end_side(stream_id, REMOTE_ENDED)

    def _on_trailers(self, event: TrailersReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        if stream_id in self._open:
            events.append(Trailers(stream_id, event.headers))
            self._end_side(stream_id, REMOTE_ENDED)

    def _on_reset(self, event: StreamReset, events: list[Event]) -> None:
        stream_id = event.stream_id
        if stream_id in self._open:
            events.append(ResetByServer(stream_id, int(event.error_code or 0)))
            self._forget(stream_id)

    # --- out

    @property
    def settled(self) -> bool:
        """The server's SETTINGS are here."""
        return self._settled

    def may_open(self) -> bool:
        """Whether `open` may be called now."""
        return (
            self._settled
            and not self.leaving
            and not self.closed
            and len(self._open) < self._machine.remote_settings.max_concurrent_streams
        )

    def open(self, headers: Headers, now: int) -> int:
        """Open a stream with these request headers; returns its id. Only while `may_open`."""
        if not self._open:
            self._clock = now - self._lost
            if self._pinged is not None or self._clock >= self._heard + self._ping_interval:
                # Nobody watched while nothing was open: ask at once whether the server is still there.
                self._machine.ping(PING)
                self._pinged = self._clock
        stream_id = self._next_stream
        self._next_stream = stream_id + 2
        if self._next_stream > MAX_STREAM_ID:
            self.leaving = True
        self._machine.still_open = len(self._open)
        self._machine.send_headers(stream_id, headers)
        self._open[stream_id] = 0
        self._dirty = True
        return stream_id

    def finish(self) -> None:
        """`closed` from here on, after a GOAWAY."""
        if not self.closed:
            self._goaway(0, ErrorCodes.NO_ERROR, b"")
            self.closed = True

    def wants_write(self) -> bool:
        """Whether `take` has something."""
        return self._dirty or bool(self._out)

    def take(self, limit: int) -> bytes:
        """Up to `limit` bytes to write to the socket."""
        self._pull()
        return self._drain_out(limit)

    # --- ends

    def _last_accepted(self) -> int:
        return 0

    def _end_side(self, stream_id: int, side: int) -> None:
        ended = self._open[stream_id] | side
        if ended == REMOTE_ENDED | LOCAL_ENDED:
            self._forget(stream_id)
        else:
            self._open[stream_id] = ended

    def _forget(self, stream_id: int) -> None:
        del self._open[stream_id]
        self._close_when_left()

    def _close_when_left(self) -> None:
        if self.leaving and not self._open:
            self.finish()

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        if self.closed:
            return None
        due = self._settings_due
        if due is None and self._open:
            due = self._next_ping()
        if self._headers_due is not None and (due is None or self._headers_due < due):
            due = self._headers_due
        return None if due is None else due + self._lost

    def _keep_time(self, clock: int, events: list[Any]) -> None:
        if self._settings_due is not None and clock >= self._settings_due:
            self._fail(ErrorCodes.SETTINGS_TIMEOUT, SILENT, events)
        elif self._headers_due is not None and clock >= self._headers_due:
            seconds = limits.HEADERS_TIMEOUT // SECOND
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, f"header block not complete within {seconds} s", events)
        elif self._pinged is not None and clock >= self._pinged + self._ping_timeout:
            self._fail(ErrorCodes.NO_ERROR, PING_LOST, events)
        elif self._open:
            self._ping_when_silent(clock)

    _handlers: ClassVar[Mapping[type, Callable[[Any, Any, list[Any]], None]]] = {
        ResponseReceived: _on_response,
        DataReceived: _on_data,
        TrailersReceived: _on_trailers,
        StreamReset: _on_reset,
        WindowUpdated: Http2Connection._on_window,
        RemoteSettingsChanged: _on_settings,
    }


def _name_peer(first: bytes) -> str | None:
    """What answers there, if it is not HTTP/2; None for the head of a SETTINGS frame."""
    if first.startswith(b"HTTP/1"):
        return SPEAKS_HTTP1
    if len(first) > 1 and first[0] in _TLS_RECORDS and first[1] == 3:
        return SPEAKS_TLS
    if len(first) < FRAME_HEADER or first[3] != SETTINGS or first[4] & ACK or first[5:9] != b"\0\0\0\0":
        return NOT_HTTP2
    return None
