"""A worker on a raw socket, as light as one can be, so that the server and not the client is measured.

It speaks just enough HTTP/2 (RFC 9113) for one stream: it answers SETTINGS and PING, opens its own windows wide, keeps
to the server's, and packs all completions of one read into as few DATA frames as fit.
"""

import socket
import struct
import time

from hpack import Encoder

from cronoq._proto import cronoq_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
DEFAULT_WINDOW = 65_535
WIDE_WINDOW = 0x7FFF0000
CREDIT = 1 << 20
"""Bytes received before the server gets a WINDOW_UPDATE."""
OUTPUT = b"r" * 30


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame, RFC 9113 section 4.1."""
    return struct.pack(">HBBBL", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def message(of: pb.WorkerMessage) -> bytes:
    """A length-prefixed message."""
    encoded = of.SerializeToString()
    return b"\0" + len(encoded).to_bytes(4, "big") + encoded


class DrainClient:
    """One Work stream that completes every lease at once."""

    def __init__(self, port: int, slots: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = b""
        self._messages = b""
        self._reports: list[bytes] = []
        self._out: list[bytes] = []
        self._connection_window = self._stream_window = self._initial_window = DEFAULT_WINDOW
        self._max_frame = 16_384
        self._uncredited = 0
        self._leases = 0
        self._begun = 0.0
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/cronoq.v1.Workers/Work"),
            (":authority", "127.0.0.1"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        register = pb.Register(pool="default", slots=slots, worker_name="bench", protocol_version=3)
        self._socket.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0x7FFFFFFF))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", WIDE_WINDOW - DEFAULT_WINDOW))
            + frame(HEADERS, 4, 1, Encoder().encode(fields))
            + frame(DATA, 0, 1, message(pb.WorkerMessage(register=register)))
        )

    def run(self, count: int) -> float:
        """Complete `count` leases; leases per second, counted from the first one."""
        while self._leases < count:
            received = self._socket.recv(1 << 18)
            if not received:
                raise SystemExit("the server closed the connection")
            self._frames += received
            self._read_frames()
            self._read_messages()
            self._send()
        return count / (time.perf_counter() - self._begun)

    def close(self) -> None:
        """Drop the connection; leases still held are lost."""
        self._socket.close()

    def _read_frames(self) -> None:
        frames, position = self._frames, 0
        while len(frames) - position >= 9:
            high, low, kind, flags, stream = struct.unpack_from(">HBBBL", frames, position)
            end = position + 9 + (high << 8 | low)
            if end > len(frames):
                break
            payload = frames[position + 9 : end]
            position = end
            if kind == DATA:
                self._messages += payload
                self._uncredited += len(payload)
            elif kind == SETTINGS and not flags & 1:
                self._settings(payload)
                self._out.append(frame(SETTINGS, 1, 0, b""))
            elif kind == PING and not flags & 1:
                self._out.append(frame(PING, 1, 0, payload))
            elif kind == WINDOW_UPDATE:
                self._credited(stream, struct.unpack(">L", payload)[0])
            elif kind in (RST_STREAM, GOAWAY):
                raise SystemExit(f"the server ended the stream: frame {kind} {payload!r}")
        self._frames = frames[position:]

    def _settings(self, payload: bytes) -> None:
        for number, setting in struct.iter_unpack(">HL", payload):
            if number == 4:
                self._stream_window += setting - self._initial_window
                self._initial_window = setting
            elif number == 5:
                self._max_frame = setting

    def _credited(self, stream: int, increment: int) -> None:
        if stream:
            self._stream_window += increment
        else:
            self._connection_window += increment

    def _read_messages(self) -> None:
        messages, position = self._messages, 0
        while len(messages) - position >= 5:
            (length,) = struct.unpack_from(">L", messages, position + 1)
            if len(messages) - position - 5 < length:
                break
            received = pb.ServerMessage.FromString(messages[position + 5 : position + 5 + length])
            position += 5 + length
            if received.WhichOneof("msg") == "lease":
                if not self._leases:
                    self._begun = time.perf_counter()
                self._leases += 1
                complete = pb.Complete(lease=received.lease.lease, output=OUTPUT)
                self._reports.append(message(pb.WorkerMessage(complete=complete)))
        self._messages = messages[position:]

    def _send(self) -> None:
        if self._uncredited > CREDIT:
            for stream in (0, 1):
                self._out.append(frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", self._uncredited)))
            self._uncredited = 0
        if self._reports:
            data = b"".join(self._reports)
            size = min(len(data), self._connection_window, self._stream_window)
            self._reports = [data[size:]] if size < len(data) else []
            self._connection_window -= size
            self._stream_window -= size
            for start in range(0, size, self._max_frame):
                self._out.append(frame(DATA, 0, 1, data[start : min(start + self._max_frame, size)]))
        if self._out:
            self._socket.sendall(b"".join(self._out))
            self._out.clear()
