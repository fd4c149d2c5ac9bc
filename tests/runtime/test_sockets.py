"""The server on real sockets: what is not HTTP/2 is closed in time, others go on. Time runs ten times as fast."""

import socket
import struct
from collections.abc import AsyncIterator

import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingAckReceived
from trio.testing import MockClock

from cronoq._runtime.serve import Server
from cronoq._stores.memory import MemoryStore
from cronoq.errors import StartError
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import ServerSettings, Settings

SETTINGS = Settings(server=ServerSettings(grpc_addr=("127.0.0.1", 0), http_addr=None))
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(194)
HALF_PREFACE = b"PRI * HTTP/2.0\r\n"
STRANGERS = {
    "http/1.1": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "tls": TLS_HELLO,
    "garbage": bytes(range(256)) * 300,
    "half a preface": HALF_PREFACE,
    "nothing": b"",
    "preface without settings": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.fixture
def fast_clock() -> MockClock:
    return MockClock(rate=10)


@pytest.fixture
async def address(nursery: trio.Nursery) -> AsyncIterator[tuple[str, int]]:
    bound: list[tuple[str, int]] = []
    store = MemoryStore(key_retention=SECOND, key_retention_max=10)
    server = Server(SETTINGS, store, bound.extend, wall=lambda: round(trio.current_time() * SECOND))
    nursery.start_soon(lambda: server.run(signals=False))
    while not bound:
        await trio.sleep(0.01)
    yield bound[0]
    nursery.cancel_scope.cancel()


async def ping(stream: trio.SocketStream, client: H2Connection) -> None:
    """A round trip through the server."""
    client.ping(b"12345678")
    await stream.send_all(client.data_to_send())
    while not any(isinstance(event, PingAckReceived) for event in client.receive_data(await stream.receive_some())):
        await stream.send_all(client.data_to_send())


@pytest.mark.parametrize("kind", STRANGERS)
async def test_strangers_are_closed_within_five_seconds(
    fast_clock: MockClock, address: tuple[str, int], kind: str
) -> None:
    good = await trio.open_tcp_stream(*address)
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    await ping(good, client)
    stranger = await trio.open_tcp_stream(*address)
    begun = trio.current_time()
    await stranger.send_all(STRANGERS[kind])
    with trio.fail_after(60):
        try:
            while await stranger.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
    await stranger.aclose()
    took = trio.current_time() - begun
    assert took < 5 + 5, "five seconds, and some for a busy machine on a fast clock"
    if kind in ("half a preface", "nothing"):
        assert took > 4, "a slow peer has its time"
    await ping(good, client)
    await good.aclose()


async def test_a_peer_that_resets_does_not_end_the_listener(fast_clock: MockClock, address: tuple[str, int]) -> None:
    for _ in range(20):
        rude = socket.create_connection(address)
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.send(HALF_PREFACE)
        rude.close()
    good = await trio.open_tcp_stream(*address)
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    await ping(good, client)
    await good.aclose()


async def test_a_port_that_is_taken_is_one_sentence(address: tuple[str, int]) -> None:
    settings = Settings(server=ServerSettings(grpc_addr=address, http_addr=None))
    store = MemoryStore(key_retention=SECOND, key_retention_max=10)
    with pytest.raises(StartError, match=r"^cannot listen on 127\.0\.0\.1:\d+: another program listens there; .*$"):
        await Server(settings, store, print).run(signals=False)
