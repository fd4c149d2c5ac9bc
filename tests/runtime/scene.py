"""A whole server, somebody who says whatever frames he likes, and the others: for tests of what a peer can run into."""

import ssl
import struct
from contextlib import suppress
from dataclasses import replace

import pytest
import trio
import trio.testing

from cronoq._runtime.statistics import Statistics
from cronoq._runtime.transport import MemoryTransport, memory_pair
from cronoq._stores.memory import MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import LimitSettings, Settings, TlsSettings
from cronoq_sansio.wire import pb, peer_limits
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.peer_limits import PeerLimit
from tests.runtime.house import SETTINGS, House
from tests.runtime.tls_client import Client, write
from tests.wire import raw

CALM = 11
PING = raw.frame(raw.PING, 0, 0, b"8 bytes.")
LONG = (4 << 20).to_bytes(5, "big")  #: the head of a message
WAIT = raw.block(("te", "trailers"), path="/cronoq.v1.Tasks/Wait")
on_both_machines = pytest.mark.parametrize("http2", ["own", "h2"])


def head(stream_id: int, block: bytes = raw.block(), *, end: bool = False) -> bytes:
    """The headers of a call."""
    return raw.frame(raw.HEADERS, raw.END_HEADERS | (raw.END_STREAM if end else 0), stream_id, block)


def called(at: int = 1) -> bytes:
    """A greeting and a call that is admitted; it fails later."""
    return raw.HELLO + head(at, end=True)


def submitted() -> bytes:
    """A greeting and a call that reaches the service."""
    message = frame(pb.SubmitRequest(task=pb.TaskSpec(pool="default", kind="k")).SerializeToString())
    return raw.HELLO + head(1) + raw.frame(raw.DATA, raw.END_STREAM, 1, message)


def waits(count: int, task_id: int) -> bytes:
    """Calls that are answered with the output of a task."""
    body = frame(pb.WaitRequest(task=pb.TaskRef(id=task_id)).SerializeToString())
    ids = range(1, 2 * count, 2)
    return b"".join(head(at, WAIT) + raw.frame(raw.DATA, raw.END_STREAM, at, body) for at in ids)


BREACH = raw.HELLO + head(1) + raw.frame(raw.PUSH_PROMISE, raw.END_HEADERS, 1, struct.pack(">L", 2))


class Scene:
    """The server, and what is done to it."""

    def __init__(self, house: House) -> None:
        self.house = house

    def connect(self, capacity: int = 1 << 20, address: str = "192.0.2.7") -> MemoryTransport:
        """A connection on which nothing was said yet; `capacity` bytes may be on their way in each direction."""
        ours, theirs = memory_pair(capacity)
        self.house.server.converse(ours, f"{address}:4711")
        return theirs

    def crowd(self, count: int, address: str = "192.0.2.7") -> list[MemoryTransport]:
        """Many of them."""
        return [self.connect(address=address) for _ in range(count)]

    async def say(self, peer: MemoryTransport, data: bytes) -> None:
        """All of it, as far as somebody reads it."""
        try:
            while data:
                data = data[peer.try_send(data) :]
                await trio.testing.wait_all_tasks_blocked()
        except BrokenPipeError:
            pass

    async def visit(self, data: bytes, address: str = "192.0.2.7", tls: ssl.SSLContext | None = None) -> None:
        """Somebody connects, after a handshake if there is a context for it, says that and hangs up."""
        peer = self.connect(address=address)
        if tls is None:
            await self.say(peer, data)
        else:
            client = Client(peer, tls)
            with suppress(BrokenPipeError, ConnectionResetError):  # it is kept out
                await client.handshake()
                await write(client, data)
        peer.close()
        await trio.testing.wait_all_tasks_blocked()

    async def closed(self, peer: MemoryTransport, limit: PeerLimit, code: int = CALM) -> float:
        """The connection is closed with that reason; when."""
        found = bodies(await hear(peer), raw.GOAWAY)
        assert struct.unpack_from(">L", found[-1], 4) == (code,)
        assert found[-1][8:].decode() == ("" if limit is peer_limits.IDLE else limit.says)
        peer.close()
        return trio.current_time()

    async def only_reset(self, peer: MemoryTransport) -> set[int]:
        """A stream of the connection was reset calmly, and it goes on; with which codes any streams were reset."""
        codes = [int.from_bytes(body, "big") for body in bodies(peer.try_receive() or b"", raw.RST_STREAM)]
        assert codes[0] == CALM
        await self.say(peer, PING)
        assert PING[9:] in (peer.try_receive() or b"")
        return set(codes)

    async def answered(self, peer: MemoryTransport, data: bytes) -> None:
        """Said that, it hears something."""
        await self.say(peer, data)
        assert peer.try_receive()

    async def finished(self, size: int, times: int = 1) -> int:
        """The id of a task with an output of `size` bytes, once `times` of such outputs were reported."""
        caller = self.house.caller()
        worker = await caller.work(slots=1)
        task: int = (await caller.submit()).id
        for _ in range(times):  # another one waited already
            worker.say(complete=pb.Complete(lease=(await worker.next("lease")).lease, output=bytes(size)))
        await caller.wait(task)
        return task

    def counted(self) -> dict[str, int]:
        """How often which limit was exceeded, but for those that never were."""
        figures = Statistics(self.house.server.lobby, self.house.server.terms).collect()
        return {name.removeprefix("limits."): count for name, count in figures.items() if name.startswith("limits.")}


async def hear(peer: MemoryTransport) -> bytes:
    """Everything until the end."""
    heard = b""
    while True:
        await peer.wait_readable()
        try:
            data = peer.try_receive()
        except ConnectionResetError:
            return heard
        if data == b"":
            return heard
        heard += data or b""


def bodies(heard: bytes, wanted: int) -> list[bytes]:
    """What is in the frames of this kind."""
    return [body for kind, _, _, body in raw.cut_frames(heard) if kind == wanted]


def settings(http2: str = "own", tls: TlsSettings | None = None, limits: LimitSettings = SETTINGS.limits) -> Settings:
    """The usual settings but for these."""
    return replace(SETTINGS, server=replace(SETTINGS.server, http2=http2, tls=tls), limits=limits)


async def begin(nursery: trio.Nursery, settings: Settings = SETTINGS) -> Scene:
    """Start the server."""
    store = MemoryStore(key_retention=3_600 * SECOND, key_retention_max=1_000)
    return Scene(await House(nursery, store, settings).open())
