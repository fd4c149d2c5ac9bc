"""gRPC's length-prefixed messages: one byte of flags, four bytes of length, the message (gRPC over HTTP/2, "Requests").

DATA frames cut the byte stream anywhere: one frame may hold several messages, one message may span many frames. The
length is checked as soon as the five bytes are there, so that a message above the limit is never buffered.
"""

import struct

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.wire.inflation import Inflation, Portion

PREFIX = struct.Struct(">BL")
PREFIX_SIZE = 5


def frame(message: bytes) -> bytes:
    """The message with its prefix, not compressed. Raises `struct.error` for more than 4 GiB."""
    return PREFIX.pack(0, len(message)) + message


SERVER_LIMIT = "limits.max_message_bytes"  #: the setting that bounds what a server takes


def too_large(size: int, limit: int, setting: str = SERVER_LIMIT) -> Rejection:
    """The refusal of a message of `size` bytes; names both numbers (server.md, "Decided") and the setting."""
    return Rejection(Code.TOO_LARGE, f"message of {size} bytes is above the limit of {limit} ({setting})")


def sole(data: bytes, limit: int) -> bytes | None:
    """The message of at most `limit` bytes, not compressed, that `data` is whole; None = it is something else."""
    size = len(data) - PREFIX_SIZE
    if size < 0 or data[0] or int.from_bytes(data[1:PREFIX_SIZE], "big") != size or size > limit:
        return None
    return data[PREFIX_SIZE:]


class MessageReader:
    """Cuts a stream of DATA into messages. After a `Rejection` the stream is unusable and everything is dropped.

    `limit` bounds a message in bytes, before and after decompression. `gzip` says that the peer announced
    `grpc-encoding: gzip`; otherwise a compressed message is a fault. `setting` names the limit in refusals. While a
    message waits to be inflated, what comes after it is kept as it is.
    """

    __slots__ = ("_broken", "_buffer", "_gzip", "_inflation", "_setting", "limit", "portion")

    def __init__(self, limit: int, *, gzip: bool = False, setting: str = SERVER_LIMIT) -> None:
        self.limit = limit
        """May be changed between two calls of `feed`."""
        self._setting = setting
        self._gzip = gzip
        self._buffer = bytearray()
        self._broken = False
        self.portion: Portion | None = None
        """What may be inflated now; None = everything."""
        self._inflation: Inflation | None = None

    @property
    def inflating(self) -> bool:
        """A message is here and not inflated: it waits for `go_on`."""
        return self._inflation is not None

    @property
    def buffered(self) -> int:
        """Bytes of an unfinished message, and what it is inflated to so far."""
        inflation = self._inflation
        return len(self._buffer) if inflation is None else len(self._buffer) + inflation.held

    @property
    def missing(self) -> int:
        """Bytes that the unfinished message still lacks; 0 without one, or before its length is known."""
        buffer = self._buffer
        if len(buffer) < PREFIX_SIZE or self._inflation is not None:
            return 0
        return PREFIX_SIZE + int.from_bytes(buffer[1:PREFIX_SIZE], "big") - len(buffer)

    def feed(self, data: bytes) -> list[bytes | Rejection]:
        """The messages that `data` completes, in order; a `Rejection` is always the last item."""
        if self._broken:
            return []
        buffer = self._buffer
        if self._inflation is not None:
            buffer += data
            return []
        if buffer:
            buffer += data
            whole = self._fill(buffer)
            if isinstance(whole, Rejection):
                return [self._break(whole)]
            if not whole:
                return []
            data = bytes(buffer)
            buffer.clear()
        return self._cut(data)

    def go_on(self) -> list[bytes | Rejection]:
        """Inflate as much as there is a portion for; the messages that are complete with that, as `feed` gives them."""
        if self._inflation is None:
            return []
        message = self._inflation.go_on(self.portion)
        if message is None:
            return []
        self._inflation = None
        if isinstance(message, Rejection):
            return [self._break(message)]
        return [message, *self.feed(b"")]

    def _cut(self, data: bytes) -> list[bytes | Rejection]:
        messages: list[bytes | Rejection] = []
        at, end, limit, unpack = 0, len(data), self.limit, PREFIX.unpack_from
        while end - at >= PREFIX_SIZE:
            flags, size = unpack(data, at)
            if flags or size > limit:
                fault = self._check(flags, size)
                if fault is not None:
                    messages.append(self._break(fault))
                    return messages
            start = at + PREFIX_SIZE
            following = start + size
            if following > end:
                break
            if not flags:
                messages.append(data[start:following])
            else:
                inflation = Inflation(data[start:following], limit, self._setting)
                message = inflation.go_on(self.portion)
                if message is None:
                    self._inflation = inflation
                    self._buffer += data[following:]
                    return messages
                messages.append(message)
                if isinstance(message, Rejection):
                    self._break(message)
                    return messages
            at = following
        if at < end:
            self._buffer += data[at:]
        return messages

    def _fill(self, buffer: bytearray) -> bool | Rejection:
        """Whether the buffer holds a whole message now."""
        if len(buffer) < PREFIX_SIZE:
            return False
        flags, size = PREFIX.unpack_from(buffer)
        return self._check(flags, size) or len(buffer) >= PREFIX_SIZE + size

    def _check(self, flags: int, size: int) -> Rejection | None:
        if size > self.limit:
            return too_large(size, self.limit, self._setting)
        if flags and (flags != 1 or not self._gzip):
            if flags == 1:
                return Rejection(Code.INVALID, "compressed message, but grpc-encoding names no compression")
            return Rejection(Code.INVALID, f"message flags are {flags}: only 0 and 1 are defined")
        return None

    def _break(self, fault: Rejection) -> Rejection:
        self._broken = True
        self._inflation = None
        self._buffer.clear()
        return fault
