"""What a peer can make a connection keep, of whatever role."""

from cronoq_sansio import limits
from cronoq_sansio.wire.http2_connection import Http2Connection

WINDOW = 1 << 31


def bounded(machine: Http2Connection, streams: int) -> None:
    """Fails when the machine holds more than it may; `streams`: how many may be open."""
    assert len(machine._streams) <= streams
    assert len(machine._buffer) + machine._dropped < limits.MAX_FRAME + 9 and machine._skip <= limits.MAX_FRAME
    assert machine._block_size <= limits.MAX_HEADER_BLOCK
    assert sum(map(len, machine._block)) <= machine._block_size
    assert machine._replies.waiting <= limits.MAX_UNSENT_CONTROL + 100
    assert len(machine._over._ends) <= limits.MAX_CLOSED_STREAMS and len(machine._over._skipped) <= 64
    decoder = machine._decoder
    assert (
        decoder._size == sum(len(name) + len(text) + 32 for name, text in decoder._entries) <= decoder._limit <= 4_096
    )
    assert len(decoder._kept) <= 64 and all(len(block) <= 256 for block in decoder._kept)
    assert machine._encoder._size <= limits.ENCODER_TABLE
    assert machine.unsent == sum(map(len, machine._out))
    assert machine.closed or (machine._send_window < WINDOW and machine._receive_window >= 0)
    for stream in machine._streams.values():
        assert stream.receive_window >= 0 and stream.send_window < WINDOW and 0 <= stream.state < 3
