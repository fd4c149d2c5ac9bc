"""Frames that cost us something and nobody pays for: how many of each kind a peer may send.

A bucket per kind: so many at once, and so many per second. Peers that mean well pass, as was measured: a Go client
sends 15 PINGs a second with small messages and 482 with messages of 64 KiB, each after it was sent something; Node
sends 13,454 WINDOW_UPDATEs for 250 MiB; grpcio resets 1,000 streams at once when 1,000 calls have one deadline.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import (
    EMPTY_DATA_BURST,
    EMPTY_DATA_RATE,
    FIRST_REFUSALS,
    GOOD_DATA,
    MAX_UNSENT_CONTROL,
    PING_BURST,
    PING_RATE,
    PRIORITIES_PER_STREAM,
    RESET_RATE,
    RESET_SPARE,
    SETTINGS_BURST,
    SETTINGS_RATE,
    TINY_DATA,
    TINY_DATA_BURST,
    TINY_DATA_PER_MESSAGE,
    TINY_DATA_RATE,
    TINY_READ,
    TINY_READ_BURST,
    TINY_READ_RATE,
    TINY_READS_PER_FRAME,
    UNKNOWN_BYTES,
    USELESS_READ,
    USELESS_SETTINGS,
    WINDOW_UPDATE_BYTES,
    WINDOW_UPDATES,
    WINDOW_UPDATES_PER_FRAME,
    WINDOW_UPDATES_PER_STREAM,
)
from cronoq_sansio.wire.peer_limits import TINY_DATA as TOO_TINY
from cronoq_sansio.wire.peer_limits import Exceeded

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream


class Bucket:
    """`burst` at once, and `rate` a second."""

    __slots__ = ("_at", "_gain", "burst", "level")

    def __init__(self, burst: int, rate: int) -> None:
        self.burst = self.level = burst * SECOND
        """What it holds, and what is left of that: in the same unit, one frame is `SECOND` of it."""
        self._gain = rate
        self._at = 0

    def take(self, now: int) -> bool:
        """One more; False when there are too many. `now`: nanoseconds; a clock that goes back gives nothing."""
        level = self.level
        if level < self.burst and now > self._at:
            level = min(self.burst, level + (now - self._at) * self._gain)
        self._at = now
        self.level = level - SECOND
        return level >= SECOND

    def take_many(self, count: int, now: int) -> bool:
        """Like so many at once, at least one."""
        self.take(now)
        self.level -= max(count - 1, 0) * SECOND
        return self.level >= 0

    def fill(self) -> None:
        """As in the beginning."""
        self.level = self.burst

    def taken(self, now: int) -> int:
        """How many are not paid back."""
        gained = max(0, now - self._at) * self._gain
        return max(0, self.burst - self.level - gained) // SECOND


class Pieces:
    """Pieces of messages that are tiny: HTTP/2 cannot tell them from whole small messages, gRPC can.

    What completes a message is never counted. Each one may come with `TINY_DATA_PER_MESSAGE` of them, and as many again
    behind each piece of `GOOD_DATA`, since windows cut anywhere; what is beyond takes from a bucket.
    """

    __slots__ = ("_bucket",)

    def __init__(self) -> None:
        self._bucket = Bucket(TINY_DATA_BURST, TINY_DATA_RATE)

    def note(self, stream: "GrpcStream", size: int, now: int) -> None:
        """DATA of so many bytes has completed no message. Raises `Exceeded`."""
        if size >= GOOD_DATA:
            stream.pieces = 0
        elif size < TINY_DATA:
            stream.pieces += 1
            if stream.pieces > TINY_DATA_PER_MESSAGE and not self._bucket.take(now):
                raise Exceeded(TOO_TINY)

    def taken(self, now: int) -> int:
        """How many are not paid back."""
        return self._bucket.taken(now)


class Reads:
    """Reads of a few bytes that complete no frame: each costs a turn of the connection, and no frame tells of them.

    TCP may cut a frame anywhere, and some libraries write its head apart. So each frame may have
    `TINY_READS_PER_FRAME` of them, and one more for each larger read; what is beyond takes from a bucket.
    """

    __slots__ = ("bucket", "pieces", "told")

    def __init__(self) -> None:
        self.pieces = 0
        """Of the frame that is unfinished, less those that were paid for; whoever sees its end resets it."""
        self.told = 0
        """All that were beyond. Time alone pays for none of these, or many connections could have some each."""
        self.bucket = Bucket(TINY_READ_BURST, TINY_READ_RATE)

    def take(self, size: int, now: int) -> bool:
        """A read of so many bytes has completed nothing; False when there were too many that are small."""
        if size >= TINY_READ:
            if self.pieces:
                self.pieces -= 1
            return True
        self.pieces += 1
        if self.pieces <= TINY_READS_PER_FRAME:
            return True
        self.told += 1
        return self.bucket.take(now)


class Replies:
    """Replies to what carries nothing, as long as they wait in the output: how many bytes, or a little more than that.

    They are counted up to a mark and behind it. What is behind it counts alone once the mark was sent.
    """

    __slots__ = ("_behind", "_mark", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes of them."""
        self._behind = 0
        self._mark = 0
        """How many bytes of the output it is to the mark."""

    def add(self, size: int, unsent: int) -> bool:
        """One of `size` bytes is the last of `unsent` now; False when too many wait: the peer does not read."""
        if self.waiting:
            self._behind += size
        else:
            self._mark = unsent
        self.waiting += size
        return self.waiting <= MAX_UNSENT_CONTROL

    def sent(self, size: int, unsent: int) -> None:
        """The first `size` bytes were taken, `unsent` are left."""
        self._mark -= size
        if not unsent:
            self.waiting = self._behind = 0
        elif self._mark <= 0:
            self.waiting, self._behind, self._mark = self._behind, 0, unsent


class Floods:
    """What one peer may still send."""

    __slots__ = (
        "_asked",
        "_empty",
        "_noted",
        "_pings",
        "_priorities",
        "_refusals",
        "_refused",
        "_resets",
        "_settings",
        "_windows",
        "content",
        "opened",
        "reads",
        "sent",
    )

    def __init__(self, streams: int) -> None:
        """`streams`: how many the peer may open at once."""
        self.opened = 0
        """Streams that were opened; whoever opens one adds it."""
        self.sent = 0
        """Frames of DATA that went out, and no window had cut them to a few bytes; whoever sends one adds it."""
        self.content = 0
        """Bytes of those frames that may have many messages; whoever sends one adds them."""
        self._noted = 0
        """How many frames there were when PINGs were looked at last."""
        self._asked = 0
        """Resets that are paid for, one for each stream that we have opened."""
        self._resets = Bucket(streams + RESET_SPARE, RESET_RATE)
        self._pings = Bucket(PING_BURST, PING_RATE)
        self._settings = Bucket(SETTINGS_BURST, SETTINGS_RATE)
        self._empty = Bucket(EMPTY_DATA_BURST, EMPTY_DATA_RATE)
        self._refusals = FIRST_REFUSALS
        self._refused = 0
        """Those of which the peer could not know."""
        self._windows = 0
        self._priorities = 0
        self.reads = Reads()

    def asked(self) -> None:
        """A stream was opened by us. The peer may end it by a reset, or with an answer that cannot be taken."""
        self.opened += 1
        self._asked += 1
        self._pings.fill()

    def acknowledged(self) -> None:
        """The peer has read our SETTINGS."""
        self._refusals = 0

    def refusal(self, now: int) -> bool:
        """A stream too many is refused: a reset, but from a peer that could not know."""
        if self._refusals:
            self._refusals -= 1
            self._refused += 1
            return True
        return self._resets.take(now)

    def reset(self, now: int) -> bool:
        """A stream is reset, by the peer or because of it."""
        if self._asked:
            self._asked -= 1
            return True
        return self._resets.take(now)

    def ping(self, now: int) -> bool:
        """A PING came."""
        if self.sent != self._noted:  # DATA went out since: PINGs may measure how fast
            self._noted = self.sent
            self._pings.fill()
        return self._pings.take(now)

    def paid(self) -> None:
        """HEADERS went out: PINGs may measure how fast, as after DATA."""
        self._pings.fill()

    def settings(self, now: int) -> bool:
        """SETTINGS came, or GOAWAY: nobody has much to announce."""
        return self._settings.take(now)

    def empty(self, now: int) -> bool:
        """DATA came without a byte, or headers of an interim response, and the stream goes on."""
        return self._empty.take(now)

    def window(self) -> bool:
        """A WINDOW_UPDATE came."""
        self._windows += 1
        return self._windows <= WINDOW_UPDATES + self._paid_windows()

    def _paid_windows(self) -> int:
        """WINDOW_UPDATEs that streams and DATA account for."""
        of_frames = WINDOW_UPDATES_PER_FRAME * self.sent + self.content // WINDOW_UPDATE_BYTES
        return WINDOW_UPDATES_PER_STREAM * self.opened + of_frames

    def priority(self) -> bool:
        """A PRIORITY came, or something that means as little."""
        return self.unknown(0)

    def unknown(self, size: int) -> bool:
        """A frame of a type that nobody knows, with so many bytes."""
        self._priorities += 1 + size // UNKNOWN_BYTES
        return self._priorities <= PRIORITIES_PER_STREAM * (self.opened + 1)

    def useless(self, now: int) -> int:
        """Frames of the peer that cost us, carried nothing, and are not paid for by anything that it did since."""
        pings = self._pings.taken(now) if self.sent == self._noted else 0
        buckets = self._resets.taken(now) + pings + self._empty.taken(now)
        counted = max(0, self._windows - self._paid_windows())
        counted += max(0, self._priorities - PRIORITIES_PER_STREAM * self.opened)
        settings = max(0, self._settings.taken(now) - _USUAL_SETTINGS)
        return buckets + counted + self._refused + settings * USELESS_SETTINGS + self.reads.told * USELESS_READ


_USUAL_SETTINGS = 2  #: a peer's own, and the acknowledgement of ours
