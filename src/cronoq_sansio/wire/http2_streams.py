"""The states of a stream, and what each frame of the peer does in each of them (RFC 9113 section 5.1).

    idle              no HEADERS so far
    open              both sides may send
    half-closed       one side has ended: REMOTE_ENDED the peer's, LOCAL_ENDED ours
    ended             both sides have
    reset             the peer has sent RST_STREAM
    dropped           we have: what was on its way is dropped, whatever it is
    skipped           never used: one with a higher id was opened first (section 5.1.1)

A connection keeps an entry for each stream that is open or half-closed. Of the others it keeps what tells them apart:
the highest id, the ids that were skipped, and the last ones that were reset or dropped. Any other has ended, unless it
is older than those: then it may have been dropped.

WINDOW_UPDATE and RST_STREAM for a stream that is over were on their way, and mean nothing any more. DATA or HEADERS
after the peer's own end were not: the stream is reset, or where nothing is left to reset the connection fails.
PRIORITY may come in every state and does nothing.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType

from cronoq_sansio.limits import MAX_CLOSED_STREAMS
from cronoq_sansio.wire.http2_words import MAX_WINDOW


class State(IntEnum):
    """Of a stream; the first four are made of two bits, one per side that has ended."""

    OPEN = 0
    REMOTE_ENDED = 1
    LOCAL_ENDED = 2
    ENDED = 3
    IDLE = 4
    RESET = 5
    DROPPED = 6
    SKIPPED = 7


class Breach(IntEnum):
    """What a frame is where it may not be."""

    LATE = 8
    """Not looked at."""
    STREAM = 9
    """Error of the stream, STREAM_CLOSED."""
    CLOSED = 10
    """Error of the connection, STREAM_CLOSED."""
    PROTOCOL = 11
    """Error of the connection, PROTOCOL_ERROR."""


class Input(IntEnum):
    """A frame of the peer."""

    HEADERS = 0
    HEADERS_END = 1
    """With END_STREAM."""
    DATA = 2
    DATA_END = 3
    """With END_STREAM."""
    RST_STREAM = 4
    WINDOW_UPDATE = 5


S, B = State, Breach
_TABLE: Mapping[State, tuple[State | Breach, ...]] = MappingProxyType(
    {  #               HEADERS         HEADERS_END     DATA            DATA_END        RST_STREAM  WINDOW_UPDATE
        S.OPEN: (S.OPEN, S.REMOTE_ENDED, S.OPEN, S.REMOTE_ENDED, S.RESET, S.OPEN),
        S.REMOTE_ENDED: (B.STREAM, B.STREAM, B.STREAM, B.STREAM, S.RESET, S.REMOTE_ENDED),
        S.LOCAL_ENDED: (S.LOCAL_ENDED, S.ENDED, S.LOCAL_ENDED, S.ENDED, S.RESET, S.LOCAL_ENDED),
        S.ENDED: (B.CLOSED, B.CLOSED, B.CLOSED, B.CLOSED, B.LATE, B.LATE),
        S.RESET: (B.STREAM, B.STREAM, B.STREAM, B.STREAM, B.LATE, B.LATE),
        S.DROPPED: (B.LATE, B.LATE, B.LATE, B.LATE, B.LATE, B.LATE),
        S.SKIPPED: (B.PROTOCOL, B.PROTOCOL, B.PROTOCOL, B.PROTOCOL, B.PROTOCOL, B.PROTOCOL),
    }
)
_IDLE = {
    True: (S.OPEN, S.REMOTE_ENDED, B.PROTOCOL, B.PROTOCOL, B.PROTOCOL, B.PROTOCOL),
    False: (B.PROTOCOL,) * 6,
}
"""By whether the peer opens streams: a client does."""


def table(*, server: bool) -> tuple[tuple[int, ...], ...]:
    """By state and input: the state after it, or what it breaks."""
    rows = {**_TABLE, State.IDLE: _IDLE[server]}
    return tuple(tuple(map(int, rows[state])) for state in State)


class Stream:
    """One that is open or half-closed."""

    __slots__ = ("expected", "receive_window", "send_window", "started", "state")

    def __init__(self, state: int, send_window: int, receive_window: int) -> None:
        self.state = state
        self.send_window = send_window
        self.receive_window = receive_window
        self.expected = -1
        """Bytes of content that are to come; below 0 = nobody said."""
        self.started = False
        """A client's: the headers of the response were here."""


def move_windows(streams: Iterable[Stream], by: int, most: int) -> bool:
    """The peer's SETTINGS have moved what each may send (section 6.9.2); False = further than 2^31 - 1.

    `most`: how far it went on the way to where it is in the end.
    """
    for stream in streams:
        if stream.send_window + most > MAX_WINDOW:
            return False
        stream.send_window += by
    return True


class OverStreams:
    """What is remembered of streams that are over, or never were."""

    __slots__ = ("_ends", "_forgotten", "_skipped")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        """How the last ones that did not end in order are over."""
        self._forgotten = 0
        """The highest id that was in there. Nobody knows any more how those up to it have ended."""
        self._skipped: list[tuple[int, int]] = []
        """Ranges of ids, ascending."""

    def note(self, stream_id: int, state: int) -> None:
        """A stream was reset, or dropped."""
        ends = self._ends
        ends[stream_id] = state
        if len(ends) > MAX_CLOSED_STREAMS:
            oldest = next(iter(ends))
            self._forgotten = max(self._forgotten, oldest)
            del ends[oldest]

    def skip(self, first: int, last: int) -> None:
        """These ids cannot be used any more."""
        self._skipped.append((first, last))
        if len(self._skipped) > _MAX_SKIPPED:
            del self._skipped[0]

    def state(self, stream_id: int) -> int:
        """Of a stream up to the highest id that has no entry."""
        found = self._ends.get(stream_id)
        if found is not None:
            return found
        if any(first <= stream_id <= last for first, last in self._skipped):
            return State.SKIPPED
        return State.ENDED if stream_id > self._forgotten else State.DROPPED


_MAX_SKIPPED = 64  #: ranges; no client skips ids
