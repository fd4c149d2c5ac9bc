"""What a peer of the HTTP listener may send, before the library behind it sees a byte.

That library counts nothing and buffers a frame of any length. Health is asked for with few frames, so few are allowed:
a frame above `limits.MAX_FRAME`, a header block above its bound, and more frames than `HTTP_FRAMES` end the connection.
Of HTTP/1.1 the library bounds what it keeps of a head; lines are counted, since each costs it some microseconds: those
of heads, and of the chunks of a body, of which each may hold one byte. It would agree to an upgrade to HTTP/2 (RFC 7540
section 3.2, gone since RFC 9113), which then comes in without this preface. A server may ignore that wish (RFC 9110
section 7.8), so the field is made another one here. Where a read ends within it, whoever serves ends the connection.
"""

import re

from cronoq_sansio import limits
from cronoq_sansio.wire import peer_limits
from cronoq_sansio.wire.floods import Bucket
from cronoq_sansio.wire.frames import Frame, FrameCutter

_UPGRADE = re.compile(rb"(?<=\r\n)upgrade(?=:[ \t]*h2c[ \t]*\r\n)", re.IGNORECASE)
_IGNORED = b"ignored"  #: as long as the name of the field was


class HttpGuard:
    """One connection."""

    __slots__ = ("_cutter", "_frames", "_lines", "http2", "limit")

    def __init__(self) -> None:
        self._cutter: FrameCutter | None = FrameCutter()
        self._frames = Bucket(limits.HTTP_FRAMES, limits.HTTP_FRAME_RATE)
        self._lines = Bucket(limits.HTTP_LINES, limits.HTTP_LINE_RATE)
        self.limit = peer_limits.HTTP_FRAMES
        """The one that is exceeded when something is not admitted."""
        self.http2 = False
        """The peer has sent the preface of HTTP/2."""

    def admits(self, data: bytes, now: int) -> bool:
        """Whether these bytes may go on; once False, the connection is to be ended."""
        cutter = self._cutter
        if cutter is None:
            return self._lines.take_many(data.count(b"\n"), now)
        found = cutter.feed(data)
        if not cutter.greeted:
            if found:  # it speaks something else
                self._cutter = None
                self.limit = peer_limits.HTTP_LINES
            return self._lines.take_many(data.count(b"\n"), now)
        self.http2 = True
        if not found:  # a read that completes no frame is no cheaper
            return self._frames.take(now)
        return all(isinstance(item, Frame) and self._frames.take(now) for item in found)

    def without_upgrade(self, data: bytes) -> bytes:
        """The bytes that go on: in those of HTTP/1.1 nobody wishes for HTTP/2."""
        return data if self.http2 else _UPGRADE.sub(_IGNORED, data)
