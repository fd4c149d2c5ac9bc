"""What an HTTP/2 machine says of what its peer sent: first what both roles say, then the server's and the client's."""

from cronoq_sansio.values import value
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.peer_limits import PeerLimit


@value
class Data:
    """A DATA frame; of a server also (empty, `ended`) the peer's trailers."""

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
    limit: PeerLimit | None = None
    """Of a server: what its peer has exceeded."""


# --- of a server


@value
class Request:
    """A peer opened a stream.

    The header list is well formed (`http2_fields.py`) and within the limits, but it may have too many fields.
    """

    stream_id: int
    headers: HeaderList
    ended: bool
    """Nothing follows."""


Whole = tuple[int, HeaderList, bytes]
"""A request that was recognised whole: its stream, its headers, and all its content.

Nearly every event is one, so it is a tuple: any other value costs five times as much.
"""


@value
class Reset:
    """The stream is over without a regular end."""

    stream_id: int


Event = Whole | Request | Data | Reset | WindowOpened | Failed


# --- of a client; header lists are well formed and within the limits


@value
class Settled:
    """SETTINGS of the server are here: it speaks HTTP/2, and may allow more streams than before."""


@value
class Response:
    """Headers of the answer, without interim (1xx) ones."""

    stream_id: int
    headers: HeaderList
    ended: bool


@value
class Trailers:
    """Trailers: the server's side of the stream has ended."""

    stream_id: int
    headers: HeaderList


@value
class Answer:
    """An answer that was recognised whole: headers and trailers that came before, and one DATA frame between them.

    Its stream is over; no other event speaks of it.
    """

    stream_id: int
    headers: HeaderList
    data: bytes
    trailers: HeaderList


@value
class ResetByServer:
    """The stream is over at once: the server has reset it, or broke a rule of it, so that it was reset here."""

    stream_id: int
    code: int
    """Of RST_STREAM."""
    fault: str
    """What rule it broke; empty when it has reset the stream."""


@value
class GoneAway:
    """The server takes no new streams; those above `last_stream` are over, it has not looked at them."""

    last_stream: int
    code: int
    reason: str


ClientSideEvent = Settled | Response | Data | Trailers | Answer | ResetByServer | WindowOpened | GoneAway | Failed
