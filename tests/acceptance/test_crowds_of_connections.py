"""More connections than there may be, on real sockets: who calls is served, who just sits there makes room."""

import socket
import sys

import pytest

from tests.acceptance.clients import connect
from tests.acceptance.server import HANG, Server
from tests.acceptance.workers import serving
from tests.wire import raw

MOST, MOST_OF_PEER = 50, 30
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a host has one address of its own, not a network"
)


def sit_there(server: Server, address: str, count: int) -> list[socket.socket]:
    """Connections that greet and then do nothing."""
    found = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", server.port), HANG, (address, 0))
        connection.sendall(raw.HELLO)
        found.append(connection)
    return found


def closed(connections: list[socket.socket]) -> int:
    """How many of them the server has closed with a reason, by now."""
    count = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            heard = connection.recv(65_536)
            while data := connection.recv(65_536):
                heard += data
            assert b"made room" in heard
            count += 1
        except BlockingIOError:
            pass
    return count


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
        figures = server.statistics()
        assert int(figures["connections"]) <= MOST
        assert int(figures["limits.made_room"]) == closed(first) + closed(second) >= 30
        assert client.snapshot().workers_connected == 1
        assert server.output().count("limit=made_room") == 2, "a line for each address"
    for connection in first + second:
        connection.close()
    assert server.stop() == 0
