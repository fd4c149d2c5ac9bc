"""The client's TCP connections, straight on Trio and asyncio: what was sent arrives, ends and breaks are told apart."""

import asyncio
import gc
import socket
import struct

import anyio
import pytest
from anyio.abc import ByteStream

from cronoq._client.asyncio_socket import AsyncioSocket, connect
from cronoq._client.dialing import Wire, dial
from cronoq._client.target import parse_target
from cronoq._client.trio_socket import TrioSocket
from cronoq.errors import ClientError
from cronoq_sansio.limits import READ_SIZE
from tests.client.byhand import Handler, listening
from tests.client.conftest import Run

LARGE = bytes(range(256)) * 4096 * 4  #: 4 MiB, more than the buffers of both sockets take
BROKEN = (OSError, anyio.BrokenResourceError)


async def dialled(address: str) -> Wire:
    return await dial(parse_target(address), None, None)


async def read_all(wire: Wire) -> bytes:
    parts = []
    try:
        while True:
            parts.append(await wire.receive(READ_SIZE))
            assert parts[-1]
    except anyio.EndOfStream:
        return b"".join(parts)


async def echo(stream: ByteStream) -> None:
    while True:
        await stream.send(await stream.receive())


async def silent(stream: ByteStream) -> None:
    await anyio.sleep_forever()


def with_a_server(run: Run, handler: Handler, test: object) -> None:
    async def main() -> None:
        async with listening(handler) as address:
            wire = await dialled(address)
            try:
                await test(wire)  # type: ignore[operator]
            finally:
                await wire.aclose()
                await wire.aclose()

    run(main)


def test_each_loop_has_its_own(run: Run, backend: str) -> None:
    async def test(wire: Wire) -> None:
        assert isinstance(wire, TrioSocket if backend == "trio" else AsyncioSocket)

    with_a_server(run, silent, test)


def test_what_is_sent_arrives(run: Run) -> None:
    async def test(wire: Wire) -> None:
        for text in (b"a", b"bc", b"d" * 5000):
            await wire.send(text)
            got = b""
            while len(got) < len(text):
                got += await wire.receive(READ_SIZE)
            assert got == text

    with_a_server(run, echo, test)


def test_more_than_the_system_takes_at_once(run: Run) -> None:
    """Both directions at the same time: each side waits for the other, and neither for ever."""

    async def test(wire: Wire) -> None:
        got = bytearray()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.send, LARGE)
            while len(got) < len(LARGE):
                got += await wire.receive(READ_SIZE)
        assert got == LARGE

    with_a_server(run, echo, test)


def test_a_sender_waits_for_a_peer_that_does_not_read(run: Run) -> None:
    async def test(wire: Wire) -> None:
        with anyio.move_on_after(0.05) as patience:
            while True:
                await wire.send(LARGE)
        assert patience.cancelled_caught

    with_a_server(run, silent, test)


def test_it_is_closed_whatever_is_on_its_way(run: Run) -> None:
    """The rest may go out while it is being closed, or never; it may have been closed before, nobody waits for it."""

    async def main() -> None:
        for size in (1, len(LARGE)):
            for lag in range(4):
                async with listening(echo) as address:
                    wire = await dialled(address)
                    with anyio.move_on_after(0.002 * lag):
                        await wire.send(LARGE[:size])
                    for _ in range(2):
                        with anyio.CancelScope() as scope:
                            scope.cancel()
                            await wire.aclose()
                        await anyio.sleep(0.001)
                    await wire.aclose()

    run(main)


def test_what_nobody_reads_is_bounded(run: Run) -> None:
    """Asyncio reads by itself: it stops, and goes on once somebody has read."""

    async def talk(stream: ByteStream) -> None:
        await stream.send(LARGE)

    async def test(wire: Wire) -> None:
        first = await wire.receive(READ_SIZE)
        if isinstance(wire, AsyncioSocket):
            for _ in range(50):
                await asyncio.sleep(0)
                await anyio.sleep(0.001)
            assert wire._size < 2 * READ_SIZE
        assert first + await read_all(wire) == LARGE

    with_a_server(run, talk, test)


def test_the_peer_ends(run: Run) -> None:
    """What it said before is read first, and it can still be spoken to."""
    heard = bytearray()

    async def half(stream: ByteStream) -> None:
        await stream.send(b"last words")
        await stream.send_eof()
        try:
            while True:
                heard.extend(await stream.receive())
        except anyio.EndOfStream:
            pass

    async def test(wire: Wire) -> None:
        assert await read_all(wire) == b"last words"
        with pytest.raises(anyio.EndOfStream):
            await wire.receive(READ_SIZE)
        await wire.send(b"still")
        while bytes(heard) != b"still":
            await anyio.sleep(0.001)

    with_a_server(run, half, test)


def test_the_peer_breaks_the_connection(run: Run) -> None:
    async def rude(stream: ByteStream) -> None:
        await stream.receive()
        own = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def test(wire: Wire) -> None:
        await wire.send(b"hello")
        with pytest.raises(BROKEN):
            while True:
                await wire.receive(READ_SIZE)
        with pytest.raises(BROKEN):
            for _ in range(100):
                await wire.send(b"is anybody there?")
                await anyio.sleep(0.001)

    with_a_server(run, rude, test)


def test_waiting_can_be_cancelled_and_taken_up_again(run: Run) -> None:
    async def test(wire: Wire) -> None:
        with anyio.move_on_after(0.01) as scope:
            await wire.receive(READ_SIZE)
        assert scope.cancelled_caught
        await wire.send(b"x")
        assert await wire.receive(READ_SIZE) == b"x"

    with_a_server(run, echo, test)


def test_a_host_of_several_addresses_of_which_one_answers(run: Run) -> None:
    """`localhost` is often two, and a listener on one of them is enough."""

    async def main() -> None:
        async with listening(echo) as address:
            wire = await dialled(f"localhost:{address.rpartition(':')[2]}")
            await wire.send(b"x")
            assert await wire.receive(READ_SIZE) == b"x"
            await wire.aclose()

    run(main)


def test_why_there_is_no_connection_is_told_as_ever(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # and nobody listens
            with pytest.raises(ClientError, match="connection refused"):
                await dialled(f"127.0.0.1:{bound.getsockname()[1]}")

    run(main)


def test_asyncio_alone_does_not_say_why() -> None:
    async def main() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            assert await connect("127.0.0.1", bound.getsockname()[1]) is None

    asyncio.run(main())


def test_whoever_gives_up_connecting_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each step on the way."""
    forgotten = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: forgotten.append(told.exc_value))

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for steps in range(20):
                connecting = asyncio.create_task(connect("127.0.0.1", listener.getsockname()[1]))
                for _ in range(steps):
                    await asyncio.sleep(0)
                connecting.cancel()
                (wire,) = await asyncio.gather(connecting, return_exceptions=True)
                if isinstance(wire, AsyncioSocket):
                    await wire.aclose()
                del connecting, wire
                gc.collect()

    asyncio.run(main())
    assert forgotten == []
