"""What is not gRPC on the port is closed within 5 s, and others do not notice."""

import socket
import ssl
import struct
import threading
import time

import pytest

from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG
from tests.acceptance.workers import serving

STORES = ["memory"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
CLOSED_WITHIN = 5.0
SLACK = 3.0


def tls_hello():
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def frame(kind, flags, stream, body):
    return struct.pack(">HBBBL", len(body) >> 8, len(body) & 255, kind, flags, stream) + body


PEERS = {
    "HTTP/1.1 request": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
    "HTTP/1.1 upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    "TLS hello": tls_hello(),
    "garbage": bytes(range(256)) * 40,
    "zeros": bytes(10_000),
    "nothing": b"",
    "one byte": b"P",
    "half a preface": PREFACE[:12],
    "preface but its last byte": PREFACE[:-1],
    "preface without SETTINGS": PREFACE,
    "preface and half a SETTINGS frame": PREFACE + SETTINGS[:5],
    "preface and another frame first": PREFACE + frame(6, 0, 0, bytes(8)),
    "wrong preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + SETTINGS,
    "a frame that is too large": PREFACE + SETTINGS + frame(0, 0, 1, bytes(65_537)),
    "DATA on a stream that nobody opened": PREFACE + SETTINGS + frame(0, 0, 1, b"x"),
    "HEADERS that are no HPACK": PREFACE + SETTINGS + frame(1, 5, 1, b"\xff" * 30),
    "WINDOW_UPDATE of nothing": PREFACE + SETTINGS + frame(8, 0, 0, bytes(4)),
    "SETTINGS of an odd length": PREFACE + frame(4, 0, 0, bytes(5)),
}


class Peer(threading.Thread):
    """Connects, says its bytes, reads until the server closes, and notes when."""

    def __init__(self, port, said):
        super().__init__(daemon=True)
        self.port, self.said = port, said
        self.heard, self.closed_after = b"", None

    def run(self):
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), HANG) as connection:
            try:
                connection.sendall(self.said)
                while data := connection.recv(65_536):
                    self.heard += data
            except ConnectionError:
                pass  # closed while it still said something
            except TimeoutError:
                return
            self.closed_after = time.monotonic() - begun


def test_bad_peers_are_closed_and_others_are_served_meanwhile(server):
    peers = {name: Peer(server.port, said) for name, said in PEERS.items()}
    for peer in peers.values():
        peer.start()
    served, slowest, deadline = 0, 0.0, time.monotonic() + CLOSED_WITHIN + SLACK
    with connect(server.address) as client, serving(client.channel):
        while time.monotonic() < deadline and any(peer.is_alive() for peer in peers.values()):
            begun = time.monotonic()
            assert client.submit(wait=True, payload=b"x").result.output == b"x"
            slowest = max(slowest, time.monotonic() - begun)
            served += 1
    late = {name: peer.closed_after for name, peer in peers.items() if peer.is_alive() or peer.closed_after is None}
    assert not late
    assert max(peer.closed_after for peer in peers.values()) < CLOSED_WITHIN + SLACK
    assert served > 20
    assert slowest < 2
    assert peers["HTTP/1.1 request"].heard.startswith(b"HTTP/1.1 505 ")
    for name in ("TLS hello", "garbage", "half a preface", "wrong preface"):
        assert peers[name].heard == b"", "whoever speaks something else gets no HTTP/2 frames"


def test_what_is_certainly_wrong_is_closed_at_once(server):
    """No timer is needed to see these."""
    for name in ("HTTP/1.1 request", "TLS hello", "garbage", "wrong preface", "preface and another frame first"):
        peer = Peer(server.port, PEERS[name])
        peer.run()
        assert peer.closed_after is not None and peer.closed_after < 2, name


def test_pings_keep_good_connections_and_end_dead_ones(start):
    server = start("memory", limits="keepalive_interval_s = 0.3\nkeepalive_timeout_s = 0.3")
    dead = Peer(server.port, PREFACE + SETTINGS)  # reads, but answers nothing
    dead.start()
    pinging = {
        "grpc.keepalive_time_ms": 100,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
    }
    with connect(server.address, **pinging) as client, serving(client.channel):
        dead.join(HANG)
        assert dead.closed_after is not None and 0.5 <= dead.closed_after < 6
        assert client.submit(wait=True, payload=b"still here").result.output == b"still here"
        wait_until(lambda: server.statistics()["connections"] == "1", "the other one is forgotten")
        assert client.snapshot().workers_connected == 1, "the worker's connection was never lost"


def test_a_request_that_is_not_grpc_gets_an_http_answer(server):
    """An HTTP/2 client without gRPC, curl for example, is told so; its connection stays."""
    literal = lambda index, text: bytes([index, len(text)]) + text  # noqa: E731
    headers = b"\x82\x86\x84" + literal(1, b"localhost")  # GET, http, /, :authority
    with socket.create_connection(("127.0.0.1", server.port), HANG) as connection:
        connection.sendall(PREFACE + SETTINGS + frame(1, 5, 1, headers))
        heard = b""
        while not has_answer(heard, 1):
            data = connection.recv(65_536)
            assert data, "closed instead of answered"
            heard += data
        connection.sendall(frame(6, 0, 0, b"12345678"))
        while b"12345678" not in heard:
            heard += connection.recv(65_536)


def has_answer(heard, stream):
    """Whether a HEADERS frame for the stream is among the frames."""
    at = 0
    while len(heard) - at >= 9:
        high, low, kind, _, found = struct.unpack_from(">HBBBL", heard, at)
        if kind == 1 and found == stream:
            return True
        at += 9 + (high << 8 | low)
    return False


def test_many_connections_that_come_and_go(server):
    """500 connections, each ended in another way; the server forgets them all."""
    for number in range(500):
        connection = socket.create_connection(("127.0.0.1", server.port), HANG)
        if number % 3:
            connection.sendall(PREFACE + SETTINGS)
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        connection.close()
    with connect(server.address) as client:
        client.snapshot()
        deadline = time.monotonic() + HANG
        while int(server.statistics()["connections"]) > 1:
            assert time.monotonic() < deadline
