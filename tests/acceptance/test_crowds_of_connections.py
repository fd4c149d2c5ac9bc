"""More connections than there may be, on real sockets: who calls is served, who just sits there makes room."""

import socket
import sys

import pytest

from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG, Server
from tests.acceptance.workers import serving
from tests.wire import raw

MOST, MOST_OF_PEER = 50, 30
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a host has one address of its own, not a network"
)


class Sitter:
    """A connection that greets and then does nothing."""

    def __init__(self, server: Server, address: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", server.port), HANG, (address, 0))
        self.connection.sendall(raw.HELLO)
        self.connection.setblocking(False)
        self.heard = b""
        self.over = False

    def closed(self) -> bool:
        """Whether the server has closed it, with a reason, by now."""
        try:
            while not self.over:
                data = self.connection.recv(65_536)
                self.heard += data
                self.over = not data
        except BlockingIOError:
            return False
        assert b"made room" in self.heard
        return True


def sit_there(server: Server, address: str, count: int) -> list[Sitter]:
    return [Sitter(server, address) for _ in range(count)]


def test_callers_are_served_however_many_others_sit_there(start):
    server = start("memory", limits=f"max_connections = {MOST}\nmax_connections_per_peer = {MOST_OF_PEER}")
    with connect(server.address) as client, serving(client.channel):
        assert client.submit(wait=True, payload=b"1").result.output == b"1"
        first = sit_there(server, "127.0.0.2", 40)
        second = sit_there(server, "127.0.0.3", 40)
        for number in range(5):
            with connect(server.address) as late:
                assert late.submit(wait=True, payload=b"2").result.output == b"2", number
        assert client.submit(wait=True, payload=b"3").result.output == b"3"
        wait_until(lambda: int(server.statistics()["connections"]) <= MOST, "who had to leave has left")
        made_room = int(server.statistics()["limits.made_room"])
        wait_until(lambda: sum(sitter.closed() for sitter in first + second) == made_room, "they hear of it")
        assert made_room >= 30
        assert client.snapshot().workers_connected == 1
        assert server.output().count("limit=made_room") == 2, "a line for each address"
    for sitter in first + second:
        sitter.connection.close()
    assert server.stop() == 0
