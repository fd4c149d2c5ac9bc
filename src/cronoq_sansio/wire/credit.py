"""How much the peer of a connection may send: flow-control credit of its streams, and the memory that stands behind it.

Unfinished messages are the only thing of a peer that is buffered, and what a stream's window allows may come at any
time. So windows are small at first, and are opened for a larger message when its length is known:

    every stream     may hold `INITIAL_WINDOW` bytes, come or allowed to come, without being asked
    larger messages  get windows of up to `MESSAGE_WINDOW` while all that was promised beyond that is within one
                     max_message_bytes
    above that       only the oldest unfinished one gets more, so that it gets done

A message is never given just what it lacks, but one byte more: a peer may end its stream with an empty frame after the
last byte, and though that takes no window (RFC 9113 section 6.9.1), nghttp2 sends none while the window is closed. So
do Node and all others that stand on it.

Nothing of this is ever refused: a client that sends many large messages at once waits in its own flow control. Together
they take at most 2 x max_message_bytes, one `MESSAGE_WINDOW`, and `INITIAL_WINDOW` for each stream.

That is of one connection, and there may be many. What all of them hold together is counted too: from half of
`MAX_UNFINISHED` on only the oldest unfinished message of each connection gets more, and beyond it calls whose message
is not the oldest of their connection are refused when more of it comes.

Credit is also withheld, for unary calls and for worker streams apart, while the store cannot keep up. What a stream may
send without any credit, its first window, is not held back by either.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.limits import INITIAL_WINDOW, MAX_UNFINISHED, MESSAGE_WINDOW

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream
    from cronoq_sansio.wire.http2_choice import Http2

_STEP = INITIAL_WINDOW // 2  #: small messages get credit in portions of this, so that each costs no WINDOW_UPDATE


class Unfinished:
    """Bytes of messages that are not complete, of all connections of a process."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Credit:
    """Of one connection. Many streams may wait for credit: they are not all looked at for each read."""

    __slots__ = (
        "_bound",
        "_changed",
        "_due",
        "_everywhere",
        "_hold_calls",
        "_hold_workers",
        "_http2",
        "_unfinished",
        "promised",
        "unfinished",
        "withheld",
    )

    def __init__(self, http2: "Http2", max_message_bytes: int, everywhere: Unfinished) -> None:
        self._http2 = http2
        self._everywhere = everywhere
        self._bound = max_message_bytes
        self._hold_calls = False
        self._hold_workers = False
        self._changed = False
        """Any stream may get credit that did not before."""
        self._due: list[GrpcStream] = []
        """Streams that are new in `withheld`."""
        self._unfinished: dict[int, GrpcStream] = {}
        """Streams with an unfinished message, the one that was begun first before the others."""
        self.unfinished = 0
        """Bytes of messages that are not complete, of all streams."""
        self.promised = 0
        """Those bytes and what may still come without further credit, beyond `INITIAL_WINDOW` for each stream."""
        self.withheld: dict[int, GrpcStream] = {}
        """Streams that are due for credit."""

    def hold(self, *, calls: bool, workers: bool) -> None:
        """Start or stop withholding."""
        self._hold_calls = calls
        self._hold_workers = workers
        self._changed = True
        self.give()

    def note(self, stream: "GrpcStream", size: int) -> None:
        """The stream has used `size` bytes of its window; what they were is counted already."""
        stream.window -= size
        self._promise(stream)
        wanted = stream.missing + 1
        if wanted > stream.window:
            due = 2 * stream.window < min(wanted, MESSAGE_WINDOW)
        else:
            due = stream.window + stream.unfinished <= _STEP
        if due and stream.id not in self.withheld:
            self.withheld[stream.id] = stream
            self._due.append(stream)

    def count(self, stream: "GrpcStream", size: int) -> None:
        """The stream holds `size` bytes of an unfinished message now."""
        before = stream.unfinished
        if size != before:
            if not before:
                self._unfinished[stream.id] = stream
            elif not size:
                del self._unfinished[stream.id]
            self.unfinished += size - before
            self._everywhere.total += size - before
            stream.unfinished = size
            self._promise(stream)

    def drop(self, stream: "GrpcStream") -> None:
        """Nothing more is expected of the stream."""
        self.unfinished -= stream.unfinished
        self._everywhere.total -= stream.unfinished
        self._unfinished.pop(stream.id, None)
        self.withheld.pop(stream.id, None)
        stream.unfinished = 0
        self._promises(stream, 0)

    def overdrawn(self, stream: "GrpcStream") -> bool:
        """All connections hold too much, and this stream is not the one that its connection may go on with."""
        return self.crowded and stream is not next(iter(self._unfinished.values()), stream)

    @property
    def crowded(self) -> bool:
        """All connections hold too much."""
        return self._everywhere.total > MAX_UNFINISHED

    def give(self) -> None:
        """Credit whoever is due and may have it."""
        if not self.withheld:
            self._due.clear()
            return
        oldest = next(iter(self._unfinished.values()), None)
        plenty = 2 * self._everywhere.total <= MAX_UNFINISHED
        if self._changed:
            found = list(self.withheld.values())
            self._changed = False
        else:
            found = self._due if oldest is None else [*self._due, oldest]
        self._due = []
        for stream in found:
            if stream.id not in self.withheld:
                continue
            if self._hold_workers if stream.route.streaming else self._hold_calls:
                continue
            room = INITIAL_WINDOW - stream.unfinished
            wanted = stream.missing + 1
            if wanted <= room:
                del self.withheld[stream.id]
            elif (plenty and self.promised <= self._bound) or stream is oldest:
                del self.withheld[stream.id]
                room = min(wanted, MESSAGE_WINDOW)
            if room > stream.window:
                self._http2.credit(stream.id, room - stream.window)
                stream.window = room
                self._promise(stream)

    def _promise(self, stream: "GrpcStream") -> None:
        self._promises(stream, max(0, stream.unfinished + stream.window - INITIAL_WINDOW))

    def _promises(self, stream: "GrpcStream", beyond: int) -> None:
        before = self.promised
        self.promised = after = before + beyond - stream.promised
        stream.promised = beyond
        if after <= self._bound < before:
            self._changed = True
