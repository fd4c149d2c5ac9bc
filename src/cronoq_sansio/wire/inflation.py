"""Compressed messages of gRPC: one gzip member each, inflated in portions.

A few kilobytes may be sixteen megabytes inside, which take some ten milliseconds to inflate, and it costs their sender
nothing to go on with the next ones. So inflating has a *portion* of each turn of a connection: `INFLATED_AT_ONCE` bytes
of output, where a byte of input counts as `INFLATE_INPUT`, because blocks without content cost time as well. A message
that is inflated within what is left of that is a message like any other, and that is every usual one. A larger one goes
on in the next turns, and whatever is compressed and comes after it on its connection waits until it is done. Nor is the
message of a unary call begun before the peer has ended its side. So a connection never has more than one message that
is inflated and not handed on.
"""

import zlib
from typing import Any

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import INFLATE_INPUT, INFLATED_AT_ONCE

_GZIP = 31  #: zlib's `wbits` for a gzip stream with the largest window
_PIECE = 4 << 10  #: bytes of input at a time


class Portion:
    """What of inflating may still be done in this turn of a connection, in bytes of output."""

    __slots__ = ("_turn", "left")

    def __init__(self) -> None:
        self._turn = -1
        self.left = 0

    def begin(self, now: int) -> None:
        """A turn begins; one that was begun at the same time goes on."""
        if now != self._turn:
            self.renew(now)

    def renew(self, now: int) -> None:
        """A turn begins."""
        self._turn = now
        self.left = INFLATED_AT_ONCE


NOTHING = Portion()
"""For a message whose turn has not come."""


class Inflation:
    """One message on its way. At most `limit` bytes come out."""

    __slots__ = ("_at", "_data", "_inflater", "_limit", "_parts", "_setting", "size")

    def __init__(self, data: bytes, limit: int, setting: str) -> None:
        """`setting`: names the limit in the refusal."""
        self._data = data
        self._limit = limit
        self._setting = setting
        self._inflater: Any = None
        self._parts: list[bytes] = []
        self._at = 0
        self.size = 0
        """Bytes that came out so far."""

    @property
    def held(self) -> int:
        """Bytes that are kept for it."""
        return len(self._data) + self.size

    def go_on(self, portion: Portion | None = None) -> bytes | Rejection | None:
        """Use up the portion, or do all of it; the message, why there is none, or None: it is not done."""
        data = self._data
        while True:
            if portion is not None and portion.left <= 0:
                return None
            inflater = self._inflater
            if inflater is None:  # many may wait that were not begun
                inflater = self._inflater = zlib.decompressobj(_GZIP)
            piece = inflater.unconsumed_tail
            if not piece:
                piece = data[self._at : self._at + _PIECE]
                self._at += len(piece)
            room = self._limit + 1 - self.size
            if portion is not None:
                room = min(room, portion.left)
            try:
                part = inflater.decompress(piece, room)
            except zlib.error:
                return Rejection(Code.INVALID, "message is not valid gzip")
            self.size += len(part)
            self._parts.append(part)
            if portion is not None:
                portion.left -= len(part) + INFLATE_INPUT * (len(piece) - len(inflater.unconsumed_tail))
            if self.size > self._limit:
                text = f"message is above the limit of {self._limit} bytes ({self._setting}) after decompression"
                return Rejection(Code.TOO_LARGE, text)
            if inflater.eof or not (piece or part):
                break
        if not inflater.eof or inflater.unused_data or self._at < len(data):
            return Rejection(Code.INVALID, "message is not exactly one gzip member")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
