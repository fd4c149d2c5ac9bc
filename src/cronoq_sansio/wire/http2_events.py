"""What an HTTP/2 server says of what its peer sent."""

from cronoq_sansio.values import value
from cronoq_sansio.wire.hpack_decoder import HeaderList


@value
class Request:
    """A peer opened a stream.

    The header list is well formed (`http2_fields.py`) and within the limits, but it may have too many fields.
    """

    stream_id: int
    headers: HeaderList
    ended: bool
    """Nothing follows."""
    data: bytes
    """The whole content of a request that was recognised whole; otherwise empty."""


@value
class Data:
    """A DATA frame, or (empty, `ended`) the peer's trailers."""

    stream_id: int
    data: bytes
    size: int
    """What it took from the stream's window, padding included; `credit` gives it back."""
    ended: bool


@value
class Reset:
    """The stream is over without a regular end."""

    stream_id: int


@value
class WindowOpened:
    """More may be sent on this stream; 0 = on all of them."""

    stream_id: int


@value
class Failed:
    """The connection is over: `closed` is True. Once only."""

    reason: str


Event = Request | Data | Reset | WindowOpened | Failed
