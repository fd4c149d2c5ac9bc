"""What a peer of the HTTP listener may send by HTTP/2, before the library behind it sees a byte.

That library counts nothing and buffers a frame of any length. Health is asked for with few frames, so few are allowed:
a frame above `limits.MAX_FRAME`, a header block above its bound, and more frames than `HTTP_FRAMES` end the connection.
HTTP/1.1 passes: the library bounds what it keeps of a head. An upgrade to HTTP/2 (RFC 7540 section 3.2, gone since
RFC 9113) comes in without this preface: whoever serves ends such a connection.
"""

from cronoq_sansio import limits
from cronoq_sansio.wire.floods import Bucket
from cronoq_sansio.wire.frames import Frame, FrameCutter


class HttpGuard:
    """One connection."""

    __slots__ = ("_cutter", "_frames", "http2")

    def __init__(self) -> None:
        self._cutter: FrameCutter | None = FrameCutter()
        self._frames = Bucket(limits.HTTP_FRAMES, limits.HTTP_FRAME_RATE)
        self.http2 = False
        """The peer has sent the preface of HTTP/2."""

    def admits(self, data: bytes, now: int) -> bool:
        """Whether these bytes may go on; once False, the connection is to be ended."""
        cutter = self._cutter
        if cutter is None:
            return True
        found = cutter.feed(data)
        if not cutter.greeted:
            if found:  # it speaks something else
                self._cutter = None
            return True
        self.http2 = True
        return all(isinstance(item, Frame) and self._frames.take(now) for item in found)
