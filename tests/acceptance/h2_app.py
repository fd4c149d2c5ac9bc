"""The smallest server on the HTTP/2 machine: any request that has ended is answered with a few words and trailers.

It shows the machine as it is, without gRPC above it, to programs that test HTTP/2 as such. A thread per connection.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire.http2_server import Http2Server

HEADERS = [(b":status", b"200"), (b"content-type", b"text/plain")]
TRAILERS = [(b"x-end", b"1")]
BODY = b"hello world"
LINGER = 0.5
"""Seconds in which a peer may read our last words before the socket closes."""


class Conversation:
    """One connection: bytes in, bytes out."""

    def __init__(self) -> None:
        self.machine = Http2Server(
            max_streams=100, ping_interval=30 * SECOND, ping_timeout=10 * SECOND, now=time.monotonic_ns()
        )
        self._unsent: dict[int, bytes] = {}

    def receive(self, data: bytes) -> bytes:
        """What the peer gets for an answer."""
        machine = self.machine
        for event in machine.receive(data, time.monotonic_ns()):
            if isinstance(event, tuple):
                self._answer(event[0])
            elif isinstance(event, (http2.Request, http2.Data)) and event.ended:
                self._answer(event.stream_id)
            elif isinstance(event, http2.Data):
                machine.credit(event.stream_id, event.size)
            elif isinstance(event, http2.Reset):
                self._unsent.pop(event.stream_id, None)
        for stream_id in list(self._unsent):
            self._send(stream_id)
        return machine.take(1 << 20)

    def _answer(self, stream_id: int) -> None:
        self.machine.send_headers(stream_id, HEADERS)
        self._unsent[stream_id] = BODY

    def _send(self, stream_id: int) -> None:
        machine = self.machine
        rest = self._unsent[stream_id]
        while rest and (room := machine.sendable(stream_id)) > 0:
            machine.send_data(stream_id, rest[:room])
            rest = rest[room:]
        self._unsent[stream_id] = rest
        if not rest:
            del self._unsent[stream_id]
            machine.send_headers(stream_id, TRAILERS, end=True)


def converse(connected: socket.socket, context: ssl.SSLContext | None) -> None:
    """Until either side ends it."""
    try:
        with connected if context is None else context.wrap_socket(connected, server_side=True) as talk:
            conversation = Conversation()
            while not conversation.machine.closed and (data := talk.recv(65_536)):
                answer = conversation.receive(data)
                if answer:
                    talk.sendall(answer)
            talk.settimeout(LINGER)
            if context is None:
                talk.shutdown(socket.SHUT_WR)
            while talk.recv(65_536):
                pass
    except OSError:
        pass  # the peer is gone, or the handshake failed


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that ends with the block; `context`: of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connected, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=converse, args=(connected, context), daemon=True).start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    acceptor.join()
