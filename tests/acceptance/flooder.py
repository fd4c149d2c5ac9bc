"""A hostile peer, as a process of its own: one kind of flood on one connection after another, for so many seconds.

    python -m tests.acceptance.flooder KIND PORT SECONDS TASK

It reconnects as soon as it is closed. TASK is a finished one with a large output, for the floods that need answers.
The kind `busy` connects to nobody and only uses a processor: what it does to others is not the server's doing. Prints
a line when it begins and, as one JSON object, what became of it.
"""

import json
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.wire import raw

READ = 1 << 18
BLOCK = raw.block()
MALFORMED = raw.block(("Upper", "case"))
CANCEL = struct.pack(">L", 8)
AT_ONCE = 100  #: frames of one write
STREAMS = 500
BOMB = b"\x40\x01x\x7f" + b"\xa1\x1e" + b"y" * 4_000  #: enters a field of 4,000 bytes into the table
PAUSE = 0.05  #: seconds between looks at a connection on which nothing is sent

Chunks = Iterator[bytes]
"""What is sent, one after the other; an empty one waits a moment."""


def head(stream_id: int, block: bytes = BLOCK, *, end: bool = False) -> bytes:
    return raw.frame(raw.HEADERS, raw.END_HEADERS | (raw.END_STREAM if end else 0), stream_id, block)


def update(stream_id: int, increment: int) -> bytes:
    return raw.frame(raw.WINDOW_UPDATE, 0, stream_id, struct.pack(">L", increment))


def ids() -> Iterator[int]:
    """Of the streams of a client."""
    return iter(range(1, 1 << 31, 2))


def message(body: bytes) -> bytes:
    return b"\0" + struct.pack(">L", len(body)) + body


def waits(task: int, count: int) -> bytes:
    """Calls that are answered with the task's output."""
    number, reference = task, b"\x08"
    while number > 127:
        reference, number = reference + bytes([number & 127 | 128]), number >> 7
    reference += bytes([number])
    body = message(b"\x0a" + bytes([len(reference)]) + reference)
    block = raw.block(("te", "trailers"), path="/cronoq.v1.Tasks/Wait")
    calls = (head(at, block) + raw.frame(raw.DATA, raw.END_STREAM, at, body) for at in range(1, 2 * count, 2))
    return b"".join(calls)


def repeated(data: bytes, first: bytes = b"") -> Chunks:
    yield raw.HELLO + first
    while True:
        yield data * AT_ONCE


def per_stream(make: Callable[[int], bytes]) -> Chunks:
    yield raw.HELLO
    numbers = ids()
    while True:
        yield b"".join(make(next(numbers)) for _ in range(AT_ONCE))


def rapid_reset(task: int) -> Chunks:
    """CVE-2023-44487: requests that are taken back at once."""
    return per_stream(lambda at: head(at) + raw.frame(raw.RST_STREAM, 0, at, CANCEL))


def provoked_resets(task: int) -> Chunks:
    """CVE-2025-8671: requests for which the server resets the stream."""
    return per_stream(lambda at: head(at) + update(at, 0))


def malformed_requests(task: int) -> Chunks:
    return per_stream(lambda at: head(at, MALFORMED))


def too_many_streams(task: int) -> Chunks:
    return per_stream(head)


def continuation(task: int) -> Chunks:
    """CVE-2024-27316: a header block that never ends."""
    return repeated(raw.frame(raw.CONTINUATION, 0, 1, b""), raw.frame(raw.HEADERS, 0, 1, BLOCK))


def header_bomb(task: int) -> Chunks:
    """A block of a hundred bytes that stands for 400,000."""
    first = raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1, BLOCK + BOMB)
    yield raw.HELLO + first
    numbers = ids()
    next(numbers)
    while True:
        yield b"".join(head(next(numbers), BLOCK + b"\xbe" * 100, end=True) for _ in range(AT_ONCE))


def ping(task: int) -> Chunks:
    """CVE-2019-9512."""
    return repeated(raw.frame(raw.PING, 0, 0, b"8 bytes."))


def settings(task: int) -> Chunks:
    """CVE-2019-9515."""
    return repeated(raw.settings(initial_window_size=70_000))


def empty_data(task: int) -> Chunks:
    """CVE-2019-9518."""
    return repeated(raw.frame(raw.DATA, 0, 1, b""), head(1))


def tiny_data(task: int) -> Chunks:
    """A long message, a byte at a time."""
    return repeated(raw.frame(raw.DATA, 0, 1, b"x"), head(1) + raw.frame(raw.DATA, 0, 1, b"\0\0\x40\0\0"))


def priority(task: int) -> Chunks:
    """CVE-2019-9513."""
    return repeated(raw.frame(raw.PRIORITY, 0, 1, b"\0\0\0\3\x10"))


def unknown_frames(task: int) -> Chunks:
    return repeated(raw.frame(0x42, 0, 0, b"what?"))


def dripping(task: int) -> Chunks:
    """A frame that never ends, a byte at a time."""
    yield raw.HELLO + raw.frame(0x42, 0, 0, bytes(1 << 16))[:9]
    while True:
        yield b"x"


def window_updates(task: int) -> Chunks:
    return repeated(update(0, 1))


def zero_windows(task: int) -> Chunks:
    """Answers that may not be sent."""
    yield raw.PREFACE + raw.settings(initial_window_size=0) + waits(task, STREAMS)
    while True:
        yield b""


def tiny_stream_windows(task: int) -> Chunks:
    """CVE-2019-9511: each answer in pieces of a byte."""
    yield raw.PREFACE + raw.settings(initial_window_size=0) + waits(task, STREAMS)
    while True:
        yield b"".join(update(at, 1) for at in range(1, 2 * STREAMS, 2))


def tiny_connection_window(task: int) -> Chunks:
    """The same with one window for all of them."""
    yield raw.PREFACE + raw.settings(initial_window_size=(1 << 31) - 1) + waits(task, STREAMS)
    while True:
        yield update(0, 1) * AT_ONCE


def window_games(task: int) -> Chunks:
    """SETTINGS that open and close the windows of many streams."""
    games = b"".join(struct.pack(">HL", 4, at % 2) for at in range(32))
    yield raw.PREFACE + raw.settings(initial_window_size=0) + waits(task, STREAMS)
    while True:
        yield raw.frame(raw.SETTINGS, 0, 0, games) * AT_ONCE


def slow_reader(task: int) -> Chunks:
    """CVE-2019-9517: windows wide open, and nothing is read."""
    windows = raw.settings(initial_window_size=(1 << 31) - 1) + update(0, (1 << 31) - 1 - 65_535)
    yield raw.PREFACE + windows + waits(task, STREAMS)
    while True:
        yield b""


def broken_rules(task: int) -> Chunks:
    """A call, and then what no client may send: each connection ends, and the next one does it again."""
    yield raw.HELLO + head(1) + raw.frame(raw.PUSH_PROMISE, raw.END_HEADERS, 1, bytes(3) + b"\2")


def farewells(task: int) -> Chunks:
    """Connections that end in order, and were for nothing."""
    yield raw.HELLO + raw.frame(raw.GOAWAY, 0, 0, bytes(8))


def refused_calls(task: int) -> Chunks:
    """Requests that need no credentials to be answered."""
    block = raw.block(path="/grpc.health.v1.Health/Check")
    return per_stream(lambda at: head(at, block, end=True))


def hello(task: int) -> Chunks:
    """Connections that come and go: nothing but the preface."""
    yield raw.HELLO


def silent(task: int) -> Chunks:
    """Connections that come and go: nothing at all."""
    return iter(())


KINDS: dict[str, Callable[[int], Chunks]] = {
    kind.__name__: kind
    for kind in (
        *(rapid_reset, provoked_resets, malformed_requests, too_many_streams, continuation, header_bomb, ping),
        *(settings, empty_data, tiny_data, priority, unknown_frames, dripping, window_updates, zero_windows),
        *(tiny_stream_windows, tiny_connection_window, window_games, slow_reader, refused_calls, broken_rules),
        *(farewells, hello, silent),
    )
}
BUSY = "busy"
DEAF = ("slow_reader",)  #: these do not read


class Flood:
    """What one process did."""

    def __init__(self, kind: str, port: int, until: float, task: int) -> None:
        self.kind, self.port, self.until, self.task = kind, port, until, task
        self.source = f"127.0.0.{2 + list(KINDS).index(kind)}"
        """An address of its own for each kind: others must not be taken for it."""
        self.connections = self.refused = self.bytes = 0
        self.said: Counter[str] = Counter()
        """What the server's GOAWAYs said."""

    def run(self) -> None:
        while time.monotonic() < self.until:
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), 5, (self.source, 0))
            except OSError:
                self.refused += 1
                continue
            self.connections += 1
            with connection:
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a byte goes out as one
                try:
                    self.converse(connection)
                except OSError:
                    pass  # closed

    def converse(self, connection: socket.socket) -> None:
        """Until the server closes, or the time is over."""
        heard, left, deaf = b"", b"", self.kind in DEAF
        chunks = KINDS[self.kind](self.task)
        for chunk in chunks:
            left = chunk
            waiting = not chunk
            while (left or waiting) and time.monotonic() < self.until:
                reading = [] if deaf else [connection]
                readable, writable, _ = select.select(reading, [connection] if left else [], [], PAUSE)
                waiting = False
                if readable:
                    data = connection.recv(READ)
                    heard = (heard + data)[-400:]
                    if not data:
                        self.hear(heard)
                        return
                if writable:
                    sent = connection.send(left)
                    self.bytes += sent
                    left = left[sent:]
            if time.monotonic() >= self.until:
                return

    def hear(self, heard: bytes) -> None:
        """The text of the GOAWAY that came last."""
        at = heard.rfind(b"\7\0\0\0\0\0")
        text = heard[at + 14 :].decode("ascii", "replace") if at >= 0 else "nothing"
        self.said[text] += 1


def main() -> None:
    kind, port, seconds, task = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    print("begins", flush=True)
    if kind == BUSY:
        while time.monotonic() < until:
            pass
        print("{}")
        return
    flood = Flood(kind, int(port), until, int(task))
    flood.run()
    done = {"connections": flood.connections, "refused": flood.refused, "bytes": flood.bytes, "said": flood.said}
    print(json.dumps(done))


if __name__ == "__main__":
    main()
