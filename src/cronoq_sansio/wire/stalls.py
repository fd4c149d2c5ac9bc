"""Streams that wait for their peer and make no progress.

Nothing is noted per message. From time to time all streams are looked at: one that waits, and whose count of progress
is what it was several looks ago, is stalled. So a stall ends within `STREAM_STALL_TIMEOUT` and one `STALL_SCAN` more.
A stream that is merely quiet, because nobody has anything to say, waits for nobody.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cronoq_sansio.limits import STALL_SCAN, STREAM_STALL_TIMEOUT

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc_stream import GrpcStream

_MAX_STRIKES = STREAM_STALL_TIMEOUT // STALL_SCAN


class Stalls:
    """When to look, and what was found."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: int | None = None
        """On the scale of `now`; None = nothing could be stalled."""

    def arm(self, now: int) -> None:
        """Something may wait for the peer from now on."""
        if self.due is None:
            self.due = now + STALL_SCAN

    def scan(
        self, streams: "Iterable[GrpcStream]", waits: "Callable[[GrpcStream], bool]", now: int
    ) -> "list[GrpcStream]":
        """Look at all streams; those that are stalled."""
        self.due = None
        stalled = []
        for stream in streams:
            if not waits(stream):
                stream.seen = -1
                continue
            self.arm(now)
            if stream.progress != stream.seen:
                stream.seen = stream.progress
                stream.strikes = 0
                continue
            stream.strikes += 1
            if stream.strikes >= _MAX_STRIKES:
                stalled.append(stream)
        return stalled
