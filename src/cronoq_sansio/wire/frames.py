"""Bytes -> whole HTTP/2 frames (RFC 9113 sections 3.4 and 4.1), judged by their first nine bytes.

A frame is refused before its body is buffered: too long, out of place, or part of a header block above the limit. What
passes is complete and untouched; its meaning is looked at elsewhere.
"""

from cronoq_sansio import limits
from cronoq_sansio.values import value

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER = 9

HEADERS, SETTINGS, GOAWAY, CONTINUATION = 1, 4, 7, 9
ACK = 1
END_HEADERS = 4

# Error codes (RFC 9113 section 7)
NO_ERROR, PROTOCOL_ERROR, SETTINGS_TIMEOUT, FRAME_SIZE_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 0, 1, 4, 6, 7, 11


@value
class Frame:
    """A whole frame."""

    kind: int
    data: bytes
    """The nine bytes of its header included."""


@value
class Fault:
    """The peer broke a rule; nothing after it is looked at."""

    code: int
    """As in GOAWAY."""
    reason: str


class FrameCutter:
    """Cuts what a client sends, preface first. Holds at most one unfinished frame."""

    __slots__ = ("_block", "_broken", "_seen", "begun", "finished", "greeted", "settled")

    def __init__(self) -> None:
        self.greeted = False
        """The preface is complete."""
        self.settled = False
        """The first SETTINGS frame is complete."""
        self.finished = False
        """The last `feed` completed a frame that left no header block open."""
        self._seen = 0
        """Bytes of the preface."""
        self.begun = b""
        """What there is of an unfinished frame."""
        self._block = 0
        """Raw bytes of the header block that is being received."""
        self._broken = False

    def feed(self, data: bytes) -> list[Frame | Fault]:
        """The frames that `data` completes, in order; a `Fault` is always the last item and stays the last ever."""
        self.finished = False
        found: list[Frame | Fault] = []
        if self._broken:
            return found
        if not self.greeted:
            part = data[: len(PREFACE) - self._seen]
            if not PREFACE.startswith(part, self._seen):
                self._broken = True
                return [Fault(PROTOCOL_ERROR, "the peer does not speak HTTP/2")]
            self._seen += len(part)
            if self._seen < len(PREFACE):
                return found
            self.greeted = True
            data = data[len(part) :]
        self._cut(self.begun + data if self.begun else data, found)
        return found

    @property
    def within_headers(self) -> bool:
        """A header block is not complete, or what there is of a frame may be the beginning of one."""
        buffer = self.begun
        return self._block > 0 or 0 < len(buffer) < 4 or (len(buffer) > 3 and buffer[3] in (HEADERS, CONTINUATION))

    @property
    def kept(self) -> int:
        """Bytes that are no whole frame, or of no whole header block."""
        return len(self.begun) + self._block

    def _cut(self, buffer: bytes, found: list[Frame | Fault]) -> None:
        at, end = 0, len(buffer)
        while end - at >= FRAME_HEADER:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            kind, flags = buffer[at + 3], buffer[at + 4]
            fault = self._check(length, kind, flags)
            if fault is not None:
                self._broken = True
                self.begun = b""
                found.append(fault)
                return
            following = at + FRAME_HEADER + length
            if following > end:
                break
            if kind in (HEADERS, CONTINUATION):
                # At least 1, so that a block that is made of empty frames counts as open too.
                self._block = 0 if flags & END_HEADERS else self._block + max(1, length)
            self.settled = True
            found.append(Frame(kind, buffer[at:following]))
            at = following
            if not self._block:
                self.finished = True
        self.begun = buffer[at:] if at < end else b""

    def _check(self, length: int, kind: int, flags: int) -> Fault | None:
        if length > limits.MAX_FRAME:
            return Fault(FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {limits.MAX_FRAME} are allowed")
        if not self.settled and (kind != SETTINGS or flags & ACK):
            return Fault(PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if kind in (HEADERS, CONTINUATION) and self._block + length > limits.MAX_HEADER_BLOCK:
            return Fault(ENHANCE_YOUR_CALM, f"header block above {limits.MAX_HEADER_BLOCK} bytes")
        if kind == GOAWAY and (length < 8 or self._block):
            return Fault(PROTOCOL_ERROR, "malformed or misplaced GOAWAY")
        return None
