"""Whatever a peer sends, however it is cut: the server's machine never raises, keeps its bounds, writes whole frames.

The first byte of an input says how the rest is cut and what the service does meanwhile. While it does nothing, what is
told of a stream and written is the same however the input is cut.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from cronoq_sansio.clock import SECOND  # noqa: E402
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request  # noqa: E402
from cronoq_sansio.wire.http2_server import Http2Server  # noqa: E402
from fuzz.bounds import bounded  # noqa: E402
from fuzz.engine import main  # noqa: E402
from fuzz.frames import mutate_behind_mode as mutate  # noqa: E402
from tests.wire import raw  # noqa: E402
from tests.wire.http2_pair import told  # noqa: E402
from tests.wire.patience import forgive  # noqa: E402

MAX_STREAMS = 8
RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
OK = ((b"grpc-status", b"0"),)
CUTS = (1 << 30, 1, 7, 9, 64, 1_000)


def check(data: bytes) -> None:
    """The invariant."""
    mode = data[0] if data else 0
    machine = Http2Server(max_streams=MAX_STREAMS, ping_interval=SECOND, ping_timeout=SECOND, now=0)
    now, written, failures, events = 0, b"", 0, []
    size = CUTS[mode % len(CUTS)]
    for at in range(1, len(data), size):
        now += (mode & 0xF0) * 1_000_000
        if not mode & 0xF0:
            forgive(machine)  # what comes at once may be as long as an input
        for event in machine.receive(data[at : at + size], now):
            events.append(event)
            failures += isinstance(event, Failed)
            serve(machine, event, mode)
        if size > 9 or at % 32 == 1:
            bounded(machine, MAX_STREAMS)
            assert machine._lingering.keys() <= machine._streams.keys()
        if mode & 0x40:
            written += machine.take(1 << 30)
        armed, due = machine.due, machine.next_timeout()
        assert machine.closed or armed <= (due or 0), "a timer that nobody would have asked for"
        if due is not None and due <= now:
            failures += any(isinstance(event, Failed) for event in machine.handle_timer(now))
    machine.finish()
    written += machine.take(1 << 30)
    if written.startswith(b"HTTP/1.1 505 "):
        assert machine._seen < len(raw.PREFACE) and failures == 1
    else:
        raw.cut_frames(written)
    assert failures <= 1 and not machine.wants_write()
    assert machine.receive(b"more", now) == [] and machine.next_timeout() is None
    if not mode & 0xF0:
        assert (by_stream(events), written) == at_once(data[1:])


def at_once(data: bytes) -> tuple[object, bytes]:
    """What a machine tells and writes that reads everything together."""
    machine = Http2Server(max_streams=MAX_STREAMS, ping_interval=SECOND, ping_timeout=SECOND, now=0)
    events = machine.receive(data, 0)
    machine.finish()
    return by_stream(events), machine.take(1 << 30)


def by_stream(events: list[Event]) -> list[object]:
    """What is told of each stream, in order: of those that a read opens, whole requests are told first."""
    return sorted(told(events), key=lambda event: event[1] if len(event) > 1 else 1 << 32)


def serve(machine: Http2Server, event: object, mode: int) -> None:
    """What a service does, by the bits of the mode."""
    if isinstance(event, (tuple, Request)):
        stream_id, data = (event[0], event[2]) if isinstance(event, tuple) else (event.stream_id, b"")
        if mode & 0x80 and not machine.answer(stream_id, RESPONSE, data[:100], OK):
            machine.send_headers(stream_id, (*RESPONSE, *OK), end=True)
        elif mode & 0x20 and stream_id & 2:
            machine.reset(stream_id, 8)
    elif isinstance(event, Data) and mode & 0x10 and not event.ended:
        machine.credit(event.stream_id, event.size)


if __name__ == "__main__":
    sys.exit(main(check, __file__, mutate))
