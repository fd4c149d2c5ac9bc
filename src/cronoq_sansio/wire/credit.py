"""How much the peer of a connection may send: flow-control credit of its streams, and the memory that stands behind it.

Unfinished messages are the only thing of a peer that is buffered. Together they take at most 2 x max_message_bytes:

    up to 1 x     every stream gets credit for what it sent
    above that    only the oldest unfinished one, so that it gets done
    above 2 x     the newest unfinished ones are refused until the rest fits

Credit is also withheld, for unary calls and for worker streams apart, while the store cannot keep up. What a stream may
send without any credit, its first window, is not held back by either.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import INITIAL_WINDOW

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream
    from cronoq_sansio.wire.http2 import Http2Server

_STEP = INITIAL_WINDOW // 2  #: credit is given in portions of this, so that small frames cost no WINDOW_UPDATE each


class Credit:
    """Of one connection. `streams` is the connection's own table, oldest first; only looked at."""

    __slots__ = ("_bound", "_hold_calls", "_hold_workers", "_http2", "_streams", "unfinished", "withheld")

    def __init__(self, http2: "Http2Server", streams: "dict[int, GrpcStream]", max_message_bytes: int) -> None:
        self._http2 = http2
        self._streams = streams
        self._bound = max_message_bytes
        self._hold_calls = False
        self._hold_workers = False
        self.unfinished = 0
        """Bytes of messages that are not complete, of all streams."""
        self.withheld: dict[int, GrpcStream] = {}
        """Streams that are due for credit."""

    def hold(self, *, calls: bool, workers: bool) -> None:
        """Start or stop withholding."""
        self._hold_calls = calls
        self._hold_workers = workers
        self.give()

    def note(self, stream: "GrpcStream", size: int) -> None:
        """The stream has used `size` bytes of its window."""
        stream.uncredited += size
        if stream.uncredited >= _STEP:
            self.withheld[stream.id] = stream

    def count(self, stream: "GrpcStream", size: int) -> None:
        """The stream holds `size` bytes of an unfinished message now."""
        self.unfinished += size - stream.unfinished
        stream.unfinished = size

    def drop(self, stream: "GrpcStream") -> None:
        """Nothing more is expected of the stream."""
        self.count(stream, 0)
        self.withheld.pop(stream.id, None)

    def give(self) -> None:
        """Credit whoever is due and may have it."""
        if not self.withheld:
            return
        over = self.unfinished > self._bound
        oldest = next((stream for stream in self._streams.values() if stream.unfinished), None) if over else None
        for stream in list(self.withheld.values()):
            held = self._hold_workers if stream.route.streaming else self._hold_calls
            if held or (over and stream is not oldest):
                continue
            del self.withheld[stream.id]
            self._http2.credit(stream.id, stream.uncredited)
            stream.uncredited = 0

    def surplus(self) -> "list[GrpcStream]":
        """The newest unfinished streams, as many as must go so that the rest fits."""
        over = self.unfinished - 2 * self._bound
        found: list[GrpcStream] = []
        if over <= 0:
            return found
        for stream in reversed(list(self._streams.values())):
            if stream.unfinished:
                found.append(stream)
                over -= stream.unfinished
                if over <= 0:
                    break
        return found

    def refusal(self) -> Rejection:
        """What the surplus is told."""
        size = 2 * self._bound
        return Rejection(
            Code.OVERLOADED, f"unfinished messages on this connection are above {size} bytes; send fewer at a time"
        )
