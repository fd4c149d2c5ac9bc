"""The yardstick `aio`: a server of the same two calls on grpcio's asyncio API that does nothing.

    python noop.py PORT

Submit answers an id, Work hands out as many leases as slots are registered and one more per completion.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from cronoq._proto import cronoq_pb2 as pb

PAYLOAD = b"x" * 100


async def submit(request: pb.SubmitRequest, context: Any) -> pb.SubmitResponse:
    """Answer any task with the same id."""
    return pb.SubmitResponse(id=1)


async def work(messages: AsyncIterator[pb.WorkerMessage], context: Any) -> None:
    """A lease per slot, then one per completion."""
    lease = 0
    async for message in messages:
        count = 1
        if message.WhichOneof("msg") == "register":
            count = message.register.slots
            await context.write(pb.ServerMessage(registered=pb.Registered(worker_id=1, slots=count)))
        for _ in range(count):
            lease += 1
            offer = pb.Lease(lease=lease, task_id=lease, attempt=1, payload=PAYLOAD)
            await context.write(pb.ServerMessage(lease=offer))


def handlers() -> list[grpc.GenericRpcHandler]:
    """The two methods."""
    unary = grpc.unary_unary_rpc_method_handler(
        submit, pb.SubmitRequest.FromString, pb.SubmitResponse.SerializeToString
    )
    stream = grpc.stream_stream_rpc_method_handler(
        work, pb.WorkerMessage.FromString, pb.ServerMessage.SerializeToString
    )
    return [
        grpc.method_handlers_generic_handler("cronoq.v1.Tasks", {"Submit": unary}),
        grpc.method_handlers_generic_handler("cronoq.v1.Workers", {"Work": stream}),
    ]


async def serve(port: int) -> None:
    """Serve until the process ends."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers())
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
