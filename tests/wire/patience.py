"""For tests that cut what a peer sends into pieces however small, while every clock stands still."""

from cronoq_sansio.wire.http2_choice import Http2
from cronoq_sansio.wire.http2_server import Http2Server


def forgive(machine: Http2) -> None:
    """Small reads count as if the peer had taken its time for them; nothing else does."""
    if isinstance(machine, Http2Server):
        machine._floods.reads.bucket.fill()
