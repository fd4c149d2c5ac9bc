"""Frames by hand, for what a well-behaved client would never send."""

import struct

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/cronoq.v1.Tasks/Submit"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
]


def frame(kind: int, flags: int, stream_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">HBBBL", len(body) >> 8, len(body) & 255, kind, flags, stream_id) + body


def block(*extra: tuple[str, str], path: str = "/cronoq.v1.Tasks/Submit") -> bytes:
    """A header block that uses no dynamic table, so that blocks may be reordered."""
    fields = [(name, path if name == ":path" else text) for name, text in REQUEST]
    return Encoder().encode([(name, text, True) for name, text in [*fields, *extra]], huffman=False)


def settings(**values: int) -> bytes:
    numbers = {"header_table_size": 1, "enable_push": 2, "max_concurrent_streams": 3, "initial_window_size": 4}
    numbers |= {"max_frame_size": 5, "max_header_list_size": 6}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", numbers[name], number) for name, number in values.items()))


HELLO = PREFACE + settings()


def cut_frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """(kind, flags, stream, body) of each frame; fails on an incomplete one."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        kind, flags, stream_id = struct.unpack_from(">BBL", data, 3)
        assert len(data) >= 9 + size, "incomplete frame"
        found.append((kind, flags, stream_id, data[9 : 9 + size]))
        data = data[9 + size :]
    return found
