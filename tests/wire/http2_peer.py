"""An HTTP/2 client in front of a server by hand: what the server says, and what the client made of it."""

import struct

from hpack import Encoder

from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_events import (
    Answer,
    ClientSideEvent,
    Data,
    Response,
    Settled,
    Trailers,
    WindowOpened,
)
from tests.wire import raw

START = 1_000 * SECOND
FIELDS = ((b":method", b"POST"), (b":path", b"/a/b"))
OK = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def client() -> Http2Client:
    return Http2Client(ping_interval=20 * SECOND, ping_timeout=5 * SECOND, settings_timeout=3 * SECOND, now=START)


def greeted(**settings: int) -> Http2Client:
    """A client that has the server's SETTINGS, its own output taken."""
    machine = client()
    assert machine.receive(raw.settings(**settings), START) == [Settled(), WindowOpened(0)]
    machine.take(1 << 20)
    return machine


def opened(machine: Http2Client, *, end: bool = False) -> int:
    stream_id = machine.open(FIELDS, START, [])
    if end:
        machine.send_data(stream_id, b"", end=True)
    machine.take(1 << 20)
    return stream_id


def block(*fields: tuple[bytes, bytes]) -> bytes:
    return Encoder().encode([(name, value, True) for name, value in fields or OK], huffman=False)


def headers(stream_id: int, *fields: tuple[bytes, bytes], end: bool = False) -> bytes:
    return raw.frame(raw.HEADERS, raw.END_HEADERS | (raw.END_STREAM if end else 0), stream_id, block(*fields))


def data(stream_id: int, body: bytes, *, end: bool = False) -> bytes:
    return raw.frame(raw.DATA, raw.END_STREAM if end else 0, stream_id, body)


def number(value: int) -> bytes:
    return struct.pack(">L", value)


Plain = tuple[object, ...]


def plain(events: list[ClientSideEvent]) -> list[Plain]:
    """Kind and values of each event, header lists as lists."""
    seen: list[Plain] = []
    for event in events:
        values = [getattr(event, name) for name in event.__dataclass_fields__]
        seen.append((type(event), *(getattr(value, "fields", value) for value in values)))
    return seen


def output(machine: Http2Client) -> list[tuple[int, int, int, bytes]]:
    return raw.cut_frames(machine.take(1 << 20))


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, number(last) + number(code) + why)


def told(events: list[ClientSideEvent]) -> list[Plain]:
    """Events in one form, however an answer was recognised: its head, its content joined, its end."""
    found: list[Plain] = []
    for event in events:
        if isinstance(event, Answer):
            found.append((Response, event.stream_id, event.headers.fields, False))
            if event.data:
                found.append((Data, event.stream_id, event.data, len(event.data), False))
            found.append((Trailers, event.stream_id, event.trailers.fields))
        elif not isinstance(event, Data) or event.size or event.ended:
            found += plain([event])
    return found
