"""grpcio and grpclib, large and small messages, in cleartext and behind TLS; more of both is in `tests/acceptance`."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from cronoq._proto import cronoq_grpc as grpclib_stubs
from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import LARGE, Client, reference, refused, submission
from tests.acceptance.server import HANG
from tests.acceptance.workers import serving
from tests.foreign.conftest import Target, also_on_h2
from tests.runtime import certificates

SIZES = [0, 10, 65_530, 70_000, 3_000_000]


class Closed(Channel):
    """grpclib's, and when it is over: behind TLS not before the server has said so, too."""

    def __init__(self, target: Target) -> None:
        ssl: Any = certificates.client_side() if target.ca else None
        super().__init__("localhost" if target.ca else "127.0.0.1", target.server.port, ssl=ssl)
        self.over = asyncio.Event()

    def _protocol_factory(self) -> Any:
        protocol = super()._protocol_factory()
        lost = protocol.connection_lost

        def connection_lost(error: BaseException | None) -> None:
            lost(error)
            self.over.set()

        protocol.connection_lost = connection_lost
        return protocol


@pytest.fixture
def grpcio(target: Target) -> Iterator[Client]:
    if target.ca is None:
        channel = grpc.insecure_channel(target.address, options=LARGE)
    else:
        credentials = grpc.ssl_channel_credentials(target.ca.read_bytes())
        channel = grpc.secure_channel(target.address, credentials, options=LARGE)
    with channel:
        yield Client(channel)


@also_on_h2
@pytest.mark.parametrize("size", SIZES)
def test_grpcio(grpcio: Client, size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with serving(grpcio.channel, pool="worked"):
        for _ in range(3):
            assert grpcio.submit(True, pool="worked", payload=payload).result.output == payload
    with refused(grpc.StatusCode.NOT_FOUND, "nowhere é ☃"):
        grpcio.submit(pool="nowhere é ☃")


@also_on_h2
@pytest.mark.parametrize("size", SIZES)
def test_grpclib(target: Target, size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def scenario(channel: Channel) -> None:
        tasks = grpclib_stubs.TasksStub(channel)
        async with grpclib_stubs.WorkersStub(channel).Work.open() as stream:
            register = pb.Register(pool="worked", slots=4, protocol_version=3)
            await stream.send_message(pb.WorkerMessage(register=register))
            assert (await stream.recv_message()).registered.slots == 4
            for _ in range(3):
                task_id = (await tasks.Submit(submission(pool="worked", payload=payload))).id
                lease = (await stream.recv_message()).lease
                done = pb.Complete(lease=lease.lease, output=lease.payload)
                await stream.send_message(pb.WorkerMessage(complete=done))
                assert (await tasks.Wait(pb.WaitRequest(task=reference(task_id)))).output == payload
            await stream.end()
            assert await stream.recv_message() is None
        with pytest.raises(GRPCError) as caught:
            await tasks.Submit(submission(pool="nowhere é ☃"))
        assert caught.value.status is Status.NOT_FOUND and "nowhere é ☃" in caught.value.message

    async def inside() -> None:
        channel = Closed(target)
        try:
            await asyncio.wait_for(scenario(channel), HANG)
        finally:
            channel.close()
            await asyncio.wait_for(channel.over.wait(), HANG)

    asyncio.run(inside())
