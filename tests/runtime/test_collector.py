"""What is over leaves memory at once: no cycle keeps a connection until the garbage collector comes.

The server has relaxed the collector, which looks at what is old after years, if at all.
"""

import gc
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.connection import Connection
from cronoq._runtime.door import Guest
from cronoq._runtime.tls import TlsTransport
from cronoq._runtime.transport import MemoryTransport
from cronoq_sansio.service.messages import Call, WorkerStream
from cronoq_sansio.service.worker_session import Session
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.grpc_call import QuickCall
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_server import Http2Server
from tests.runtime import certificates
from tests.runtime.house import DurableStore, House
from tests.runtime.scene import BREACH, LONG, PING, Scene, begin, called, head, on_both_machines, settings, submitted
from tests.runtime.tls_client import Client
from tests.wire import raw

KINDS = (
    *(Connection, Guest, TlsTransport, MemoryTransport),
    *(GrpcServer, GrpcStream, QuickCall, Http2Server, H2Server),
    *(Call, WorkerStream, Session),
)
WATCH = head(1, raw.block(("te", "trailers"), path="/cronoq.v1.Tasks/Watch"))
EMPTY = bytes(5)  #: a message
VISITS = {
    "nothing": b"",
    "a greeting": raw.HELLO,
    "no HTTP/2": bytes(100),
    "a call": submitted(),
    "a call that fails": called(),
    "a method that is not there": raw.HELLO + head(1, raw.block(path="/no/such"), end=True),
    "a part of a message": raw.HELLO + head(1) + raw.frame(raw.DATA, 0, 1, LONG + bytes(1_000)),
    "a watcher": raw.HELLO + WATCH + raw.frame(raw.DATA, raw.END_STREAM, 1, EMPTY),
    "a flood": raw.HELLO + PING * 30,
    "a rule that is broken": BREACH,
    "a farewell": raw.HELLO + raw.frame(raw.GOAWAY, 0, 0, bytes(8)),
}


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def there() -> Counter[str]:
    """How many of what belongs to a connection are in memory."""
    return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in KINDS)


@on_both_machines
@pytest.mark.parametrize("said", VISITS.values(), ids=VISITS)
async def test_a_connection_that_is_over_is_gone(
    said: bytes, http2: str, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Whoever ended it."""
    scene = await begin(nursery, settings(http2))
    with without_collector():
        await gone_after(scene, said)
    nursery.cancel_scope.cancel()


async def test_with_tls_too(autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path)))
    with without_collector():
        await scene.visit(submitted(), tls=certificates.client_side())
        await trio.sleep(5)
        before = there()
        for _ in range(2):
            await scene.visit(b"\x16\x03\x01\x00\x05")
            await scene.visit(submitted(), tls=certificates.client_side())
            await scene.visit(BREACH, tls=certificates.client_side())
        await trio.sleep(5)
        assert there() == before
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("tls", [False, True])
async def test_while_something_is_being_written(
    tls: bool, autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """The end may come between any two steps of the task that writes what the peer has not taken."""
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path) if tls else None))
    client = certificates.client_side() if tls else None
    with without_collector():
        await scene.visit(submitted(), tls=client)
        await trio.sleep(40)
        before = there()
        for capacity in (100, 300, 1_000) * 10:
            for steps in range(6):
                await cut_off(scene.connect(capacity), client, steps)
        await trio.sleep(40)
        assert there() == before
    assert await scene.house.caller().submit() if not tls else not scene.house.server.lobby.connections
    nursery.cancel_scope.cancel()


async def cut_off(peer: MemoryTransport, tls: ssl.SSLContext | None, steps: int) -> None:
    """Ask, read nothing, and vanish after so many steps of the server."""
    said = raw.HELLO + PING * 15
    client = peer if tls is None else Client(peer, tls)
    with suppress(BrokenPipeError, ConnectionResetError):
        if isinstance(client, Client):
            await client.handshake()
        client.try_send(said)
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    peer.close()


@pytest.mark.parametrize("seconds", [10, 400])
async def test_time_ends_it(seconds: int, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """The time for the preface, and the server's pings."""
    scene = await begin(nursery)
    with without_collector():
        before = there()
        peers = [scene.connect(), scene.connect()]
        if seconds > 10:
            await scene.say(peers[0], raw.HELLO)
            await scene.say(peers[1], raw.HELLO)
        await trio.testing.wait_all_tasks_blocked()
        assert there()["GrpcServer"] == before["GrpcServer"] + 2
        await trio.sleep(seconds)
        peers.clear()
        assert there() == before
    assert scene.counted() == ({"preface": 2} if seconds == 10 else {"keepalive": 2})
    nursery.cancel_scope.cancel()


async def test_a_worker_with_leases_that_vanishes(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    scene = await begin(nursery)
    with without_collector():
        before = there()
        caller = scene.house.caller()
        worker = await caller.work(slots=2)
        for _ in range(3):
            await caller.submit()
        await worker.next("lease")
        caller.transport.send_eof()
        await trio.sleep(5)
        left = there()
        del caller, worker
        assert left - before == Counter(MemoryTransport=1), "the caller's own"
    nursery.cancel_scope.cancel()


async def test_what_is_said_to_a_connection_that_is_over_goes_nowhere(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Its answer waited for the store, and comes when nobody is there."""
    store = DurableStore()
    scene = Scene(await House(nursery, store).open())
    for said in (submitted(), raw.HELLO + WATCH + raw.frame(raw.DATA, raw.END_STREAM, 1, EMPTY)):
        store.hanging = True
        await scene.visit(submitted())
        await scene.visit(said)
        await trio.sleep(1)
        assert not scene.house.server.lobby.connections
        store.go_on()
        await trio.testing.wait_all_tasks_blocked()
    assert await scene.house.caller().submit()
    assert scene.house.server.lobby.calls["Tasks.Submit", "ok"] >= 1
    nursery.cancel_scope.cancel()


async def gone_after(scene: Scene, said: bytes) -> None:
    """As many are there as after the first one, of which the driver may know still what it did last."""
    await scene.visit(said)
    await trio.sleep(5)
    before = there()
    for _ in range(3):
        await scene.visit(said)
    await trio.sleep(5)
    assert there() == before and before["Connection"] <= 1
