"""What a server's HTTP/2 connection does with time alone: one set of rules for both machines.

The preface, a header block and any other frame have to be complete in time. A peer that is silent is pinged, and is
gone when it does not answer. A connection without a stream is closed after a while, and a stream that was answered
early is reset when its peer does not end it.

Time. `now` is given with each call. Deadlines count time in which the process could read: when a timer fires later
than `limits.LATE_TIMER`, all of them move by the lateness and one second more, so that the socket is read first.
"""

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import peer_limits
from cronoq_sansio.wire.http2_events import Event
from cronoq_sansio.wire.http2_words import DATA, ENHANCE_YOUR_CALM, FRAME_HEADER, NO_ERROR, SETTINGS_TIMEOUT
from cronoq_sansio.wire.peer_limits import PeerLimit

_BYTE = SECOND // limits.MIN_MESSAGE_RATE  #: the time that one of content may take


class ServerTimers:
    """A part of a machine, which has the attributes that are declared here."""

    __slots__ = ()

    closed: bool
    _lost: int
    """Nanoseconds of `now` that do not count; `_clock` is without them."""
    _clock: int
    _lingering: dict[int, int]
    """Streams that we have ended and the peer has not, and when they are reset; the first one is due first."""
    _preface_due: int | None
    _frame_due: int | None
    """When a header block, or another frame, that has begun must be complete."""
    _begun: int
    """When that has begun."""
    _heard: int
    _pinged: int | None
    """When the ping went out that is not answered."""
    _ping_interval: int
    _ping_timeout: int
    _idle_since: int

    # --- what a machine says

    def _give_up(self, code: int, limit: PeerLimit, events: list[Event]) -> None:
        """The peer has exceeded a limit."""
        raise NotImplementedError

    def _send_ping(self) -> None:
        raise NotImplementedError

    @property
    def _within_headers(self) -> bool:
        """What is unfinished is a header block, or may be the beginning of one."""
        raise NotImplementedError

    def _idle(self) -> bool:
        """No stream is open."""
        raise NotImplementedError

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once."""
        raise NotImplementedError

    def finish(self) -> None:
        """Close once all is written."""
        raise NotImplementedError

    # --- time

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due, on the scale of `now`; None = never."""
        if self.closed:
            return None
        due = self._preface_due
        if due is None:
            due = self._next_ping()
            if self._frame_due is not None:
                due = min(due, self._frame_due)
            if self._idle():
                due = min(due, self._idle_since + limits.IDLE_TIMEOUT)
            elif self._lingering:
                due = min(due, next(iter(self._lingering.values())))
        return due + self._lost

    def _time_frame(self, frame: bytes | bytearray, *, anew: bool) -> int:
        """When the header block or frame must be complete of which that is here; `anew`: it has begun just now."""
        begun = self._begun
        if anew or self._frame_due is None:
            begun = self._begun = self._clock  # type: ignore[misc]  # the slots are those of the machine
        if len(frame) >= FRAME_HEADER and frame[3] == DATA:
            due = begun + limits.MESSAGE_GRACE + (frame[0] << 16 | frame[1] << 8 | frame[2]) * _BYTE
        else:
            due = begun + (limits.HEADERS_TIMEOUT if self._within_headers else limits.FRAME_TIMEOUT)
        self._frame_due = due  # type: ignore[misc]
        return due

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
            self._lost += now - due + SECOND  # type: ignore[misc]  # the slots are those of the machine
            return events
        clock = self._clock = now - self._lost  # type: ignore[misc]
        if self._preface_due is not None and clock >= self._preface_due:
            self._give_up(SETTINGS_TIMEOUT, peer_limits.PREFACE, events)
        elif self._frame_due is not None and clock >= self._frame_due:
            limit = peer_limits.HEADERS if self._within_headers else peer_limits.SLOW_FRAME
            self._give_up(ENHANCE_YOUR_CALM, limit, events)
        elif self._pinged is not None and clock >= self._pinged + self._ping_timeout:
            self._give_up(NO_ERROR, peer_limits.KEEPALIVE, events)
        elif self._idle() and clock >= self._idle_since + limits.IDLE_TIMEOUT:
            self.finish()
        else:
            self._end_lingering()
            if self._pinged is None and clock >= self._heard + self._ping_interval:
                self._send_ping()
                self._pinged = clock  # type: ignore[misc]
        return events

    def _end_lingering(self) -> None:
        for stream_id, due in list(self._lingering.items()):
            if due > self._clock:
                break
            del self._lingering[stream_id]
            self.reset(stream_id, NO_ERROR)
