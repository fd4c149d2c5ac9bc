"""Whatever a server sends to the whole client side of a connection: it never raises, keeps its bounds, ends each call.

Each call ends once, however the connection ends. The first byte of an input says how the rest is cut and what the
caller does; how the bytes of the server were cut changes neither what the calls are told nor what is written, as long
as the client resets no stream: what comes for one after that was on its way, and before that it may be a fault.
"""

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from cronoq_sansio.clock import SECOND  # noqa: E402
from cronoq_sansio.errors import GrpcStatus  # noqa: E402
from cronoq_sansio.wire import client_call as words  # noqa: E402
from cronoq_sansio.wire.grpc_client import GrpcClient  # noqa: E402
from cronoq_sansio.wire.http2_words import PREFACE  # noqa: E402
from fuzz.bounds import bounded  # noqa: E402
from fuzz.engine import main  # noqa: E402
from fuzz.frames import mutate_behind_mode as mutate  # noqa: E402
from tests.wire import raw  # noqa: E402

MAX_STREAMS = 4
MAX_RECEIVE = 20_000
CUTS = (1 << 30, 1, 7, 9, 64, 1_000)
CONSUME, CANCEL, WRITE, AGAIN = 0x10, 0x20, 0x40, 0x80  #: bits of the mode: what the caller does
PATH = b"/a/b"


class Caller:
    """A client with calls under way, two of them more than the server allows at a time, and what they were told."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.client = GrpcClient(
            0,
            authority="host",
            max_receive=MAX_RECEIVE,
            ping_interval=SECOND,
            ping_timeout=SECOND,
            settings_timeout=SECOND,
        )
        self.told: list[list[Any]] = []
        """By call."""
        self.cancelled: set[int] = set()
        self.of_connection: list[Any] = []
        for number in range(4):
            self.begin(b"x" * 50 * number)
        for _ in range(2):
            self.begin(None)
        self.client.take(1 << 30)
        self.handle(self.client.receive(raw.settings(max_concurrent_streams=MAX_STREAMS), 0))
        self.written = self.client.take(1 << 30)

    def begin(self, message: bytes | None) -> None:
        """A call with one message and one answer, or with a stream of both."""
        client, owner = self.client, len(self.told)
        self.told.append([])
        if message is None:
            call = client.start_call(PATH, (), 0, streaming=True, owner=owner)
            client.send(call, b"first")
        else:
            client.ask(PATH, (), message, 0, deadline=1 << 60 if owner == 1 else None, owner=owner)

    def handle(self, events: list[Any]) -> None:
        """What the client has told."""
        before = set(self.cancelled)
        for event in events:
            if isinstance(event, (words.HeadersReceived, words.MessageReceived, words.CallEnded)):
                assert event.call.owner not in before
                if event.call.owner not in self.cancelled:  # else the same read has told it, before it was cancelled
                    self._on_call(event)
            elif not isinstance(event, words.SendingResumed):
                self.of_connection.append(event)

    def _on_call(self, event: Any) -> None:
        call = event.call
        told = self.told[call.owner]
        assert not told or told[-1][0] is not words.CallEnded
        values = [getattr(event, name) for name in event.__dataclass_fields__ if name != "call"]
        told.append((type(event), *values))
        if isinstance(event, words.MessageReceived):
            assert len(event.data) <= MAX_RECEIVE
            if self.mode & CONSUME:
                self.client.consumed(call, event.size)
                self.client.send(call, event.data)
            if self.mode & CANCEL:
                self.client.cancel(call)
                self.cancelled.add(call.owner)
        elif isinstance(event, words.CallEnded):
            assert isinstance(event.status, GrpcStatus) and len(event.data) <= MAX_RECEIVE
            if self.mode & AGAIN and self.client.usable and len(self.told) < 20:
                self.begin(b"again")


def converse(mode: int, size: int, data: bytes) -> Caller:
    """Say it all, then hang up."""
    caller, now = Caller(mode), 0
    client = caller.client
    for at in range(0, len(data), size):
        caller.handle(client.receive(data[at : at + size], now))
        if mode & WRITE:
            now += SECOND // 10
            caller.written += client.take(1 << 14)
            caller.handle(client.take_events())
            due = client.next_timeout()
            if due is not None and due <= now:
                caller.handle(client.handle_timer(now))
        if size > 9 or at % 32 == 0:
            bounded(client.http2, MAX_STREAMS + 20)
            assert client.open_calls <= 20
            assert all(len(call.reader._buffer) <= MAX_RECEIVE + 5 for call in client._calls.values() if call.reader)
    if not mode & WRITE:
        caller.written += client.take(1 << 30)
        caller.handle(client.take_events())
    caller.handle(client.receive_eof(now))
    caller.written += client.take(1 << 30)
    return caller


def check(data: bytes) -> None:
    """The invariant."""
    mode = data[0] if data else 0
    caller = converse(mode, CUTS[mode % len(CUTS)], data[1:])
    client = caller.client
    assert client.closed and client.open_calls == 0 and client.next_timeout() is None
    assert not client._calls and not client._waiting and not client.http2._streams
    for owner, told in enumerate(caller.told):
        assert owner in caller.cancelled or told[-1][0] is words.CallEnded, owner
    frames = raw.cut_frames(caller.written.removeprefix(PREFACE))
    if mode & (WRITE | AGAIN | CONSUME) or raw.RST_STREAM in [kind for kind, *_ in frames]:
        return
    other = converse(mode, CUTS[0], data[1:])
    if raw.RST_STREAM not in [kind for kind, *_ in raw.cut_frames(other.written.removeprefix(PREFACE))]:
        assert caller.told == other.told and caller.of_connection == other.of_connection
        assert caller.written == other.written


if __name__ == "__main__":
    sys.exit(main(check, __file__, mutate))
