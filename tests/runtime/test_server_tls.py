"""A whole server with TLS on memory transports: the handshake has its time, strangers end cleanly, files are named."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingAckReceived
from trio.testing import MockClock

from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.serve import DONE, Server
from cronoq._runtime.tls import TlsTransport
from cronoq._runtime.transport import MemoryTransport, memory_pair
from cronoq._stores.memory import MemoryStore
from cronoq.errors import StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import ServerSettings, Settings, TlsSettings
from tests.runtime import certificates
from tests.runtime.scene import hear
from tests.runtime.test_connection import FakeLobby, FakeWire
from tests.runtime.tls_client import Client, read, write

HANDSHAKE = limits.TLS_HANDSHAKE_TIMEOUT / SECOND
PREFACE = limits.PREFACE_TIMEOUT / SECOND


def make(tls: TlsSettings) -> Server:
    settings = Settings(server=ServerSettings(("127.0.0.1", 0), None, tls=tls))
    wall = lambda: round(trio.current_time() * SECOND)  # noqa: E731
    return Server(settings, MemoryStore(key_retention=SECOND, key_retention_max=1), lambda _bound: None, wall=wall)


@pytest.fixture
async def server(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Server]:
    server = make(certificates.write(tmp_path))
    nursery.start_soon(lambda: server.run(signals=False))
    await trio.testing.wait_all_tasks_blocked()
    yield server
    nursery.cancel_scope.cancel()


def connect(server: Server, capacity: int = 1 << 20) -> MemoryTransport:
    ours, theirs = memory_pair(capacity)
    server.converse(ours, "peer")
    return theirs


async def ended(transport: MemoryTransport) -> tuple[float, bytes]:
    """When the server closes, and what it said until then."""
    heard = await hear(transport)
    return trio.current_time(), heard


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x01"])
async def test_the_handshake_has_five_seconds(autojump_clock: MockClock, server: Server, said: bytes) -> None:
    client = connect(server)
    client.try_send(said)
    when, heard = await ended(client)
    assert (when, heard) == (pytest.approx(HANDSHAKE), b"")
    assert not server.lobby.connections


async def test_the_preface_has_its_own_five_seconds_after_it(autojump_clock: MockClock, server: Server) -> None:
    below = connect(server)
    await trio.sleep(HANDSHAKE - 1)
    client = Client(below, certificates.client_side())
    await client.handshake()
    await write(client, b"PRI")
    assert await read(client, 1) == b""
    assert trio.current_time() == pytest.approx(HANDSHAKE - 1 + PREFACE)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 50])
async def test_a_plain_client_is_closed_at_once(autojump_clock: MockClock, server: Server, said: bytes) -> None:
    client = connect(server)
    client.try_send(said)
    when, heard = await ended(client)
    assert when == 0
    assert heard == b"" or heard[0] == 21, "nothing, or an alert of TLS"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_http2_flows_through_narrow_pipes(
    autojump_clock: MockClock, server: Server, version: ssl.TLSVersion
) -> None:
    """The answers of TLS and of HTTP/2 wait for the pipe; none is lost."""
    context = certificates.client_side()
    context.maximum_version = version
    client = Client(connect(server, 100), context)
    await client.handshake()
    machine = H2Connection(H2Configuration(client_side=True))
    machine.initiate_connection()
    acks = 0
    for number in range(limits.PING_BURST):
        machine.ping(number.to_bytes(8, "big"))
    await write(client, machine.data_to_send())
    while acks < limits.PING_BURST:
        await client.wait_readable()
        data = client.try_receive()
        acks += sum(isinstance(event, PingAckReceived) for event in machine.receive_data(data or b""))
    assert len(server.lobby.connections) == 1


async def test_ciphertext_leaves_also_while_nobody_says_anything(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """All plaintext was taken at once, but not sent: somebody must go on."""
    ours, theirs = memory_pair(1_000)
    transport, client = (
        TlsTransport(ours, certificates.server_side(tmp_path)),
        Client(theirs, certificates.client_side()),
    )
    nursery.start_soon(transport.handshake)
    await client.handshake()
    await write(client, b"")
    machine, clock = FakeWire(), Clock(trio.current_time, lambda: 0)
    connection = Connection(transport, machine, FakeLobby(), clock, nursery, "peer")  # type: ignore[arg-type]
    nursery.start_soon(connection.run)
    await read_tickets(client)
    machine.out += bytes(50_000)
    connection.flush()
    assert await read(client, 50_000) == bytes(50_000)
    nursery.cancel_scope.cancel()


async def read_tickets(client: Client) -> None:
    await trio.testing.wait_all_tasks_blocked()
    while client.try_receive() is not None or client._below._incoming.data:  # type: ignore[attr-defined]
        await trio.testing.wait_all_tasks_blocked()


async def test_a_stop_ends_connections_with_close_notify_and_does_not_wait_for_handshakes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    server = make(certificates.write(tmp_path))
    code: list[int] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            code.append(await server.run(signals=False))

        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        client = Client(connect(server), certificates.client_side())
        await client.handshake()
        machine = H2Connection(H2Configuration(client_side=True))
        machine.initiate_connection()
        await write(client, machine.data_to_send())
        silent = connect(server)
        server.request_stop()
        while (await read(client, 1)) != b"":
            pass
        client.close()
        await ended(silent)
    assert code == [DONE] and trio.current_time() < 3


async def test_files_that_cannot_be_used_end_the_start_before_anything_is_bound(tmp_path: Path) -> None:
    server = make(TlsSettings(certificates.write(tmp_path).cert, "no/key.pem"))
    with pytest.raises(StartError, match=r"^server\.tls\.key: .*key\.pem cannot be read"):
        await server.run(signals=False)
    assert server._listener is None
