"""What a peer may send, drawn for the comparison of two HTTP/2 machines: frames, valid, nearly valid and damaged.

A script is a list of steps: bytes of a frame, or what the service does with a stream. Header blocks are written by
hpack with its dynamic table, so their order matters as it does in life.
"""

import struct
from typing import Any

from hpack import Encoder
from hypothesis import strategies as st

from tests.wire import raw

Step = bytes | tuple[str, int]

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/cronoq.v1.Tasks/Submit"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
TRAILERS = [(b"x-checksum", b"12")]
LISTS: list[list[tuple[bytes, bytes]]] = [
    REQUEST,
    REQUEST,
    REQUEST,
    [*REQUEST, (b"authorization", b"Bearer of a token that is in the table from then on")],
    [*REQUEST, (b"x-long", b"long " * 60 + b"end")],
    [*REQUEST, (b"cookie", b"a=b"), (b"cookie", b"c=d")],
    [*REQUEST, (b"content-length", b"5")],
    [*REQUEST, (b"content-length", b"0")],
    [(b":method", b"GET"), *REQUEST[1:3]],
    [(b":method", b"CONNECT"), (b":authority", b"localhost:80")],
    [(b":method", b"OPTIONS"), REQUEST[1], (b":path", b"*"), *REQUEST[3:]],
    [*REQUEST[:3], (b"host", b"localhost")],
    [*REQUEST, (b"host", b"localhost")],
    TRAILERS,
]
MALFORMED: list[list[tuple[bytes, bytes]]] = [
    [],
    REQUEST[1:],
    REQUEST[:1] + REQUEST[2:],
    REQUEST[:2] + REQUEST[3:],
    [*REQUEST, (b":method", b"POST")],
    [*REQUEST[:1], *REQUEST],
    [*REQUEST[:4], (b":status", b"200")],
    [(b":protocol", b"websocket"), *REQUEST],
    [(b":method", b"CONNECT"), (b":path", b"/"), *REQUEST[3:]],
    [(b":method", b"PO ST"), *REQUEST[1:]],
    [REQUEST[0], (b":scheme", b"ht/tp"), *REQUEST[2:]],
    [*REQUEST[:2], (b":path", b""), *REQUEST[3:]],
    [*REQUEST[:2], (b":path", b"no slash"), *REQUEST[3:]],
    [*REQUEST[:2], (b":path", b"/with#fragment"), *REQUEST[3:]],
    [*REQUEST[:2], (b":path", b"/\xc3\xbc"), *REQUEST[3:]],
    [*REQUEST[:2], (b":path", b"/li\nne"), *REQUEST[3:]],
    [*REQUEST[:3], (b":authority", b"user@host"), *REQUEST[4:]],
    [*REQUEST[:3], (b":authority", b"ho st"), *REQUEST[4:]],
    REQUEST[:3] + REQUEST[4:],
    [*REQUEST, (b"host", b"elsewhere")],
    [*REQUEST, (b"X-Capital", b"1")],
    [*REQUEST, (b"x name", b"1")],
    [*REQUEST, (b"", b"1")],
    [*REQUEST, (b"x", b" blank")],
    [*REQUEST, (b"x", b"blank\t")],
    [*REQUEST, (b"x", b"li\r\nne")],
    [*REQUEST, (b"x", b"nul\0")],
    [*REQUEST, (b"x", b"bell\x07")],
    [*REQUEST, (b"x", b"\xc3\xbc\xff")],
    [*REQUEST, (b"connection", b"close")],
    [*REQUEST, (b"transfer-encoding", b"chunked")],
    [*REQUEST, (b"keep-alive", b"1")],
    [*REQUEST, (b"upgrade", b"h2c")],
    [*REQUEST, (b"proxy-connection", b"close")],
    [*REQUEST[:5], (b"te", b"gzip")],
    [*REQUEST[:5], (b"te", b"Trailers")],
    [*REQUEST, (b"content-length", b"-1")],
    [*REQUEST, (b"content-length", b"+5")],
    [*REQUEST, (b"content-length", b"1"), (b"content-length", b"2")],
    [*REQUEST, (b"content-length", b"5"), (b"content-length", b"5")],
    [*REQUEST, (b"content-length", b"99999999999999999999")],
]
ENDS: list[list[tuple[bytes, bytes]]] = [
    TRAILERS,
    TRAILERS,
    [],
    [(b"x-name", b"bell\x07")],
    [(b"x name", b"1")],
    [(b":status", b"200")],
    [(b"te", b"gzip")],
    [(b"content-length", b"5")],
]
"""Trailers."""
BODIES = [b"", b"x", b"12345", b"\0" * 40, b"y" * 5_000, b"z" * 16_384, b"w" * 65_536]
SETTINGS_BODIES = [
    struct.pack(">HL", name, number)
    for name, number in [
        (1, 0),
        (1, 100),
        (1, 1 << 30),
        (2, 0),
        (2, 1),
        (2, 2),
        (3, 0),
        (4, 0),
        (4, 10),
        (4, 1 << 20),
        (4, 1 << 31),
        (5, 16_384),
        (5, 16_383),
        (5, (1 << 24) - 1),
        (5, 1 << 24),
        (6, 1),
        (8, 1),
        (8, 2),
        (99, 7),
    ]
]
BLOCKS = [
    b"\xff\xff\xff",  # an index that does not end
    b"\x80",  # index 0
    b"\xfe",  # an index beyond the table
    b"\x3f\xe1\xff\x03",  # a table above 4,096
    b"\x3f\xe1\x1f",  # a table of 4,096, and no field
    b"\x20",  # a table of nothing
    b"\x82\x20",  # a table size behind a field
    b"\x40\x81\xff\x01x",  # padding of a code that is no padding
    b"\x40\x84\xff\xff\xff\xff\x01x",  # EOS
    b"\x40\x05ab",  # a string that is cut off
]
INCREMENTS = [0, 1, 100, 2**31 - 1, 2**31, 2**31 + 5]


def padded(body: bytes, padding: int) -> bytes:
    return bytes([padding]) + body + bytes(padding)


class Writer:
    """Builds a script from drawn numbers; keeps what a client keeps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.encoder = Encoder()
        self.following = 1

    def stream(self, which: int) -> int:
        """0, an old stream, the newest, or one that was not opened."""
        return max(0, self.following - 2 + 2 * (which - 3)) if which < 6 else which - 6

    def open(self, fields: Any, end: bool, pad: int, priority: bool, pieces: int, skip: bool) -> None:
        self.following += 4 if skip else 0
        self.headers(self.following, fields, end, pad, priority, pieces)
        self.following += 2

    def headers(self, stream_id: int, fields: Any, end: bool, pad: int, priority: bool, pieces: int) -> None:
        block = fields if isinstance(fields, bytes) else self.encoder.encode(fields)
        size = max(1, len(block) // pieces)
        parts = [block[at : at + size] for at in range(0, len(block), size)] or [b""]
        body, flags = parts[0], raw.END_STREAM if end else 0
        if priority:
            body, flags = struct.pack(">LB", stream_id if pad == 7 else 0, 15) + body, flags | 0x20
        if pad:
            body, flags = padded(body, pad), flags | raw.PADDED
        if len(parts) == 1:
            flags |= raw.END_HEADERS
        self.steps.append(raw.frame(raw.HEADERS, flags, stream_id, body))
        for number, part in enumerate(parts[1:], 2):
            last = raw.END_HEADERS if number == len(parts) else 0
            self.steps.append(raw.frame(raw.CONTINUATION, last, stream_id, part))

    def data(self, stream_id: int, body: bytes, end: bool, pad: int) -> None:
        flags = (raw.END_STREAM if end else 0) | (raw.PADDED if pad else 0)
        body = padded(body, pad)[: 65_536 + (pad == 9)] if pad else body
        self.steps.append(raw.frame(raw.DATA, flags, stream_id, body))

    def message(
        self,
        length: bytes | None,
        body: bytes,
        served: str | None,
        ends: list[tuple[bytes, bytes]],
        pieces: int,
        order: int,
    ) -> None:
        """A request with content and trailers, and what the service does with it at some time."""
        stream_id = self.following
        self.open([*REQUEST, (b"content-length", length)] if length else REQUEST, False, 0, False, 1, False)
        places = [len(self.steps)]
        self.data(stream_id, body, False, 0)
        places.append(len(self.steps))
        self.headers(stream_id, ends, True, 0, False, pieces)
        places.append(len(self.steps))
        if served is not None:
            self.steps.insert(places[min(order, 2)], (served, stream_id))

    def damage(self, which: int, at: int, by: int) -> None:
        """Change a byte of a frame."""
        places = [place for place, step in enumerate(self.steps) if isinstance(step, bytes)]
        if places:
            place = places[which % len(places)]
            step = bytearray(self.steps[place])  # type: ignore[arg-type]
            step[at % len(step)] ^= by
            self.steps[place] = bytes(step)

    def swap(self, which: int) -> None:
        """Exchange a step with the one after it."""
        if len(self.steps) > 1:
            at = which % (len(self.steps) - 1)
            self.steps[at : at + 2] = self.steps[at + 1], self.steps[at]


_flag = st.booleans()
_rarely = st.sampled_from([False] * 9 + [True])
_pad = st.sampled_from([0, 0, 0, 1, 7, 9, 200])
_pieces = st.sampled_from([1, 1, 1, 2, 5])
_which = st.integers(0, 10)
_fields = st.one_of(st.sampled_from(LISTS), st.sampled_from(LISTS), st.sampled_from(MALFORMED), st.sampled_from(BLOCKS))
_odd = st.one_of(
    st.tuples(st.just("damage"), st.integers(0, 20), st.integers(0, 60), st.sampled_from([1, 2, 4, 8, 32, 128, 255])),
    st.tuples(st.just("swap"), st.integers(0, 20)),
)
_usual = st.one_of(
    st.tuples(st.just("open"), _fields, _flag, _pad, _rarely, _pieces, _rarely),
    st.tuples(
        st.just("open"), st.just(REQUEST), st.just(False), st.just(0), st.just(False), st.just(1), st.just(False)
    ),
    st.tuples(st.just("headers"), _which, _fields, _flag, _pad, _rarely, _pieces),
    st.tuples(
        st.just("message"),
        st.sampled_from([None, b"0", b"5", b"5", b"40"]),
        st.sampled_from(BODIES[:4]),
        st.sampled_from([None, "answer", "start", "reset"]),
        st.sampled_from(ENDS),
        _pieces,
        st.integers(0, 3),
    ),
    st.tuples(st.just("data"), _which, st.sampled_from(BODIES), _flag, _pad),
    st.tuples(st.just("data"), st.just(3), st.sampled_from(BODIES), _flag, _pad),
    st.tuples(st.just("reset"), _which, st.sampled_from([4, 4, 4, 3])),
    st.tuples(st.just("window"), _which, st.sampled_from(INCREMENTS), st.sampled_from([4, 4, 4, 5])),
    st.tuples(st.just("window"), st.just(6), st.sampled_from(INCREMENTS), st.just(4)),
    st.tuples(st.just("settings"), st.lists(st.sampled_from(SETTINGS_BODIES), max_size=3), _rarely, _rarely),
    st.tuples(st.just("ping"), st.integers(0, 1), st.sampled_from([8, 8, 7]), st.sampled_from([0, 0, 0, 1])),
    st.tuples(st.just("priority"), _which, st.sampled_from([0, 0, 1, 3]), st.sampled_from([5, 5, 4])),
    st.tuples(st.just("goaway"), st.sampled_from([8, 20, 7]), st.sampled_from([0, 0, 1])),
    st.tuples(st.just("other"), st.sampled_from([5, 9, 10, 0x16, 0xFF]), st.integers(0, 255), _which),
    st.tuples(st.just("service"), st.sampled_from(["answer", "start", "reset", "credit"]), _which),
)
steps = st.lists(st.one_of(_usual, _usual, _usual, _usual, _odd), max_size=12)
"""What `script` takes."""


def script(drawn: list[Any]) -> list[Step]:
    """The steps: damage and swaps come last, when there is something to damage."""
    writer = Writer()
    for name, *rest in sorted(drawn, key=lambda item: item[0] in ("damage", "swap")):
        _WRITERS[name](writer, *rest)
    return writer.steps


def _settings(writer: Writer, bodies: list[bytes], ack: bool, short: bool) -> None:
    body = b"".join(bodies)
    writer.steps.append(raw.frame(raw.SETTINGS, int(ack), int(short), body[:-1] if short and body else body))


def _priority(writer: Writer, which: int, parent: int, size: int) -> None:
    body = struct.pack(">LB", parent, 15)[:size]
    writer.steps.append(raw.frame(raw.PRIORITY, 0, writer.stream(which), body))


_WRITERS: dict[str, Any] = {
    "open": Writer.open,
    "damage": Writer.damage,
    "swap": Writer.swap,
    "message": Writer.message,
    "headers": lambda writer, which, *rest: writer.headers(writer.stream(which), *rest),
    "data": lambda writer, which, *rest: writer.data(writer.stream(which), *rest),
    "reset": lambda writer, which, size: writer.steps.append(
        raw.frame(raw.RST_STREAM, 0, writer.stream(which), bytes(size))
    ),
    "window": lambda writer, which, increment, size: writer.steps.append(
        raw.frame(raw.WINDOW_UPDATE, 0, writer.stream(which), struct.pack(">Lx", increment)[:size])
    ),
    "settings": _settings,
    "ping": lambda writer, ack, size, stream_id: writer.steps.append(raw.frame(raw.PING, ack, stream_id, bytes(size))),
    "priority": _priority,
    "goaway": lambda writer, size, stream_id: writer.steps.append(raw.frame(raw.GOAWAY, 0, stream_id, bytes(size))),
    "other": lambda writer, kind, flags, which: writer.steps.append(
        raw.frame(kind, flags, writer.stream(which), b"\0\0\0\2abc")
    ),
    "service": lambda writer, name, which: writer.steps.append((name, writer.stream(which))),
}
