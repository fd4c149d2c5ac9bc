"""Whatever a server sends, however it is cut: the client's machine never raises, keeps its bounds, ends streams once.

The first byte of an input says how the rest is cut and what the caller does meanwhile. While the caller does nothing
more than to ask, what is told and written is the same however the input is cut.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from cronoq_sansio.clock import SECOND  # noqa: E402
from cronoq_sansio.wire import http2_events as http2  # noqa: E402
from cronoq_sansio.wire.http2_client import Http2Client  # noqa: E402
from cronoq_sansio.wire.http2_words import PREFACE  # noqa: E402
from fuzz.bounds import bounded  # noqa: E402
from fuzz.engine import main  # noqa: E402
from fuzz.frames import mutate_behind_mode as mutate  # noqa: E402
from tests.wire import raw  # noqa: E402
from tests.wire.http2_peer import FIELDS, told  # noqa: E402

MAX_STREAMS = 8
CUTS = (1 << 30, 1, 7, 9, 64, 1_000)
CREDIT, CANCEL, SEND, MORE = 0x10, 0x20, 0x40, 0x80  #: bits of the mode: what the caller does


class Caller:
    """A machine that has asked, and what it was told."""

    def __init__(self) -> None:
        self.machine = Http2Client(ping_interval=SECOND, ping_timeout=SECOND, settings_timeout=SECOND, now=0)
        self.events: list[http2.ClientSideEvent] = []
        self.open: set[int] = set()
        """Streams of which more is to come …"""
        self.half: set[int] = set()
        """… and those that the server has ended and may still reset: our side goes on."""
        self.receive(raw.settings(max_concurrent_streams=MAX_STREAMS), 0)
        for number in range(3):
            self.ask(b"x" * number)
        self.begin()

    def ask(self, content: bytes) -> None:
        """Open a stream and end it."""
        self._opened(self.machine.ask(FIELDS, content, 0))

    def begin(self) -> None:
        """Open a stream that goes on."""
        self.half.add(self.machine._highest + 2)
        self._opened(self.machine.open(FIELDS, 0, ((b"x-once", b"1"),)))

    def _opened(self, stream_id: int) -> None:
        if stream_id:
            assert stream_id not in self.open and stream_id & 1
            self.open.add(stream_id)

    def receive(self, data: bytes, now: int) -> list[http2.ClientSideEvent]:
        """Bytes of the server; each stream is spoken of while it is open, and ends once."""
        found = self.machine.receive(data, now)
        for event in found:
            self.note(event)
        self.events += found
        return found

    def note(self, event: http2.ClientSideEvent) -> None:
        """What an event says of the streams."""
        if isinstance(event, (http2.Response, http2.Data)):
            assert event.stream_id in self.open
            self.open -= {event.stream_id} if event.ended else set()
        elif isinstance(event, (http2.Trailers, http2.Answer)):
            self.open.remove(event.stream_id)
        elif isinstance(event, http2.ResetByServer):
            assert event.stream_id in self.open | self.half
            self.open.discard(event.stream_id)
            self.half.discard(event.stream_id)
        elif isinstance(event, http2.GoneAway):
            for streams in (self.open, self.half):
                streams -= {stream_id for stream_id in streams if stream_id > event.last_stream}
        elif isinstance(event, http2.Failed):
            self.open.clear()
            self.half.clear()


def check(data: bytes) -> None:
    """The invariant."""
    mode = data[0] if data else 0
    caller, now, written = Caller(), 0, b""
    machine, size = caller.machine, CUTS[mode % len(CUTS)]
    for at in range(1, len(data), size):
        now += (mode & 0xF0) * 1_000_000
        for event in caller.receive(data[at : at + size], now):
            act(caller, event, mode)
        if size > 9 or at % 32 == 1:
            bounded(machine, MAX_STREAMS + 4)
        if mode & SEND:
            written += machine.take(1 << 30)
        due = machine.next_timeout()
        if due is not None and due <= now:
            for event in machine.handle_timer(now):
                caller.note(event)
                caller.events.append(event)
    told_before = len(caller.events)
    end = machine.receive_eof()
    written += machine.take(1 << 30)
    assert written.startswith(PREFACE)
    raw.cut_frames(written[len(PREFACE) :])
    failures = sum(isinstance(event, http2.Failed) for event in (*caller.events, *end))
    assert failures <= 1 and machine.closed and not machine._streams and not machine.wants_write()
    assert machine.receive(b"more", now) == [] and machine.next_timeout() is None
    if not mode & 0xF0:
        other = Caller()
        other.receive(data[1:], 0)
        assert told(caller.events[:told_before]) == told(other.events)
        assert written == other.machine.take(1 << 30)


def act(caller: Caller, event: http2.ClientSideEvent, mode: int) -> None:
    """What a caller does, by the bits of the mode."""
    machine = caller.machine
    if isinstance(event, http2.Data):
        if mode & CREDIT and not event.ended:
            machine.credit(event.stream_id, event.size)
    elif isinstance(event, http2.Response):
        if mode & CANCEL and event.stream_id & 2:
            machine.reset(event.stream_id, 8)
            caller.open.discard(event.stream_id)
            caller.half.discard(event.stream_id)
    elif isinstance(event, http2.WindowOpened) and mode & SEND:
        for stream_id in list(machine._streams):
            room = machine.sendable(stream_id)
            if room > 0:
                machine.send_data(stream_id, bytes(min(room, 100)), end=bool(mode & 1))
    if mode & MORE and machine.may_open() and len(machine._streams) < MAX_STREAMS:
        (caller.ask if mode & 2 else lambda _: caller.begin())(b"again")


if __name__ == "__main__":
    sys.exit(main(check, __file__, mutate))
