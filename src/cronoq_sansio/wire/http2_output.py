"""What goes out on an HTTP/2 connection, of either role: frames, in order, within the windows of the peer (RFC 9113).

Frames wait in a list until somebody writes: everything that a turn has to say is one write. What the peer has caused
and carries nothing is counted while it waits (`floods.Replies`), so one that does not read is noticed.
"""

from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire import peer_limits
from cronoq_sansio.wire.floods import Replies
from cronoq_sansio.wire.hpack_encoder import Encoder
from cronoq_sansio.wire.http2_streams import OverStreams, State, Stream
from cronoq_sansio.wire.http2_words import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    FRAME_HEADER,
    HEAD,
    HEADERS,
    LONG,
    MAX_DATA,
    RST_STREAM,
    WHOLE_DATA,
    WINDOW_UPDATE,
)
from cronoq_sansio.wire.peer_limits import Exceeded

_pack = HEAD.pack


class Http2Output:
    """The sending side. Sending on a stream that is over, or after a failure, does nothing."""

    __slots__ = (
        "_encoder",
        "_most_data",
        "_out",
        "_over",
        "_peer_frame",
        "_peer_window",
        "_replies",
        "_send_window",
        "_streams",
        "last_word",
        "unsent",
    )

    def __init__(self) -> None:
        self.unsent = 0
        """Bytes that wait for `take`."""
        self.last_word = False
        """There is one, which goes out once all else is sent."""
        self._encoder = Encoder()
        self._streams: dict[int, Stream] = {}
        self._over = OverStreams()
        self._send_window = self._peer_window = words.DEFAULT_WINDOW
        self._peer_frame = words.SMALLEST_FRAME
        self._most_data = min(self._peer_frame, MAX_DATA)
        """Bytes of one frame of DATA."""
        self._out: list[bytes] = []
        self._replies = Replies()
        """Of `_out`."""

    def sendable(self, stream_id: int) -> int:
        """How many bytes one `send_data` may carry now; 0 or less = wait until the window is opened."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        room = self._most_data
        if stream.send_window < room:
            room = stream.send_window
        return room if room < self._send_window else self._send_window

    @property
    def window(self) -> int:
        """How many bytes all streams together may send now; below 0 is possible."""
        return self._send_window

    @property
    def initial_window(self) -> int:
        """What the peer lets each new stream send."""
        return self._peer_window

    @property
    def whole_window(self) -> int:
        """What `sendable` gets to again and again on a stream whose peer opens a window once half of it is used."""
        return min(self._peer_window // 2, self._peer_frame, WHOLE_DATA)

    def reset(self, stream_id: int, code: int) -> None:
        """End the stream at once; `code` as in RST_STREAM."""
        if self._streams.pop(stream_id, None) is not None:
            self._send(RST_STREAM, 0, stream_id, LONG.pack(code))
            self._over.note(stream_id, State.DROPPED)
            self._left()

    def credit(self, stream_id: int, size: int) -> None:
        """Let the peer send `size` more bytes on this stream."""
        stream = self._streams.get(stream_id)
        if stream is not None and size and not stream.state & State.REMOTE_ENDED:
            stream.receive_window += size
            self._send(WINDOW_UPDATE, 0, stream_id, LONG.pack(size))

    def _left(self) -> None:
        """A stream is over."""

    def _say_farewell(self) -> None:
        """The last word of a role that has one."""

    def _write_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """HEADERS, and CONTINUATION for what one frame does not hold."""
        size = self._peer_frame
        if len(block) <= size:
            self._send(HEADERS, flags | END_HEADERS, stream_id, block)
            return
        self._send(HEADERS, flags, stream_id, block[:size])
        for at in range(size, len(block), size):
            last = END_HEADERS if at + size >= len(block) else 0
            self._send(CONTINUATION, last, stream_id, block[at : at + size])

    def _send(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        self._out.append(_pack(length >> 16, length & 0xFFFF, kind, flags, stream_id) + payload)
        self.unsent += FRAME_HEADER + length

    def _send_content(self, flags: int, stream_id: int, data: bytes) -> None:
        """A frame of DATA: what is long is not copied before it is written."""
        length = len(data)
        self._out.append(_pack(length >> 16, length & 0xFFFF, DATA, flags, stream_id))
        self._out.append(data)
        self.unsent += FRAME_HEADER + length

    def _reply(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Say what the peer has caused; one that does not read it is noticed."""
        self._send(kind, flags, stream_id, payload)
        if not self._replies.add(FRAME_HEADER + len(payload), self.unsent):
            raise Exceeded(peer_limits.UNREAD_REPLIES)

    def take(self, limit: int, *, more: bool = False) -> bytes:
        """Up to `limit` bytes to write to the socket; `more`: the caller has not sent all yet, so no farewell.

        Many clients drop their streams when they see the final GOAWAY: it comes last.
        """
        if self.last_word and not more:
            self.last_word = False
            self._say_farewell()
        out = self._out
        if self.unsent > limit:
            out, self._out = words.cut(out, limit)
        data = b"".join(out)
        out.clear()
        self.unsent -= len(data)
        if self._replies.waiting:
            self._replies.sent(len(data), self.unsent)
        return data
