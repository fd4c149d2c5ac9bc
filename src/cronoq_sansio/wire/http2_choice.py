"""Which HTTP/2 machine a server's connections have: our own, or the one on the library h2 (`[server] http2`).

Both have the interface `Http2`. Whoever suspects our own of a fault can run the same server on the other one and
compare; it is slower and does not count floods, so nobody else should. h2 and what it needs are imported only when
they are chosen.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.http2_events import Event
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.peer_limits import PeerLimit

OWN, H2 = "own", "h2"
CHOICES = (OWN, H2)


class Http2(Protocol):
    """What `GrpcServer` needs of one connection; described where it is done, in `http2_server.py`."""

    closed: bool

    @property
    def due(self) -> int:
        """Nothing is due before this."""

    @property
    def unsent(self) -> int:
        """Bytes that wait for `take`."""

    @property
    def last_word(self) -> bool:
        """Something is to be said beyond them."""

    @property
    def window(self) -> int:
        """Bytes that all streams together may send."""

    @property
    def initial_window(self) -> int:
        """What the peer lets each new stream send."""

    @property
    def whole_window(self) -> int:
        """What `sendable` gets to again and again."""

    def useless(self, now: int) -> int:
        """Frames of the peer that cost us and carried nothing."""

    @property
    def tiny_reads(self) -> int:
        """Small reads of the peer that have completed nothing, as far as they are counted."""

    @property
    def kept(self) -> int:
        """Bytes of the peer that are no whole frame, or no whole header block."""

    def fragment(self, size: int, now: int) -> bool:
        """A read below has brought nothing for `receive`."""

    def receive(self, data: bytes, now: int) -> list[Event]:
        """Bytes of the peer."""

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now."""

    def send_headers(
        self, stream_id: int, fields: Sequence[Field], once: Iterable[Field] = (), *, end: bool = False
    ) -> None:
        """Response headers or trailers."""

    def send_data(self, stream_id: int, data: bytes) -> None:
        """One DATA frame."""

    def answer(self, stream_id: int, fields: Sequence[Field], data: bytes, trailers: Sequence[Field]) -> bool:
        """A whole response."""

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream at once."""

    def credit(self, stream_id: int, size: int) -> None:
        """Let the peer send more on a stream."""

    def tick(self, now: int) -> None:
        """It is `now`, and something may be sent."""

    def drain(self) -> None:
        """Announce the end."""

    def give_up(self, limit: PeerLimit) -> list[Event]:
        """End, because the peer has exceeded a limit."""

    def finish(self) -> None:
        """End."""

    def take(self, limit: int, *, more: bool = False) -> bytes:
        """Bytes to write."""

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due."""

    def handle_timer(self, now: int) -> list[Event]:
        """Act on whatever is due."""


class MakeHttp2(Protocol):
    """Makes the machine of a connection; times in nanoseconds."""

    def __call__(self, *, max_streams: int, ping_interval: int, ping_timeout: int, now: int) -> Http2:
        """The parameters are those of `Http2Server`."""


def choose(name: str) -> MakeHttp2:
    """The machine of that name, one of `CHOICES`."""
    if name == H2:
        from cronoq_sansio.wire.h2_server import H2Server

        return H2Server
    assert name == OWN
    return Http2Server
