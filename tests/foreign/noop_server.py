"""A server of `cronoq.v1` on grpcio that schedules nothing: a program of its own, synchronous or on asyncio.

    python -m tests.foreign.noop_server sync|aio

Prints its port. A task ends as it is submitted, with its payload as output; that of the key HUNG never ends. A worker
gets as many leases as it has slots, and another one for each that it completes, up to LEASES.
"""

import asyncio
import queue
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs

LEASES = 500
PAYLOAD = bytes(range(256)) * 20
STREAMS = 50
"""At once: fewer than callers want."""
OPTIONS = (
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)
MISSING = "unknown pool 'nowhere é ☃'"
HUNG = "hung"


class Desk:
    """What both APIs answer, and what was seen."""

    def __init__(self) -> None:
        self.totals = pb.Totals()
        self.stored: dict[int, bytes] = {}
        self.hanging = 0

    def submit(self, request: pb.SubmitRequest) -> pb.SubmitResponse | None:
        """None = the pool is unknown."""
        if request.task.pool == "nowhere":
            return None
        self.totals.submitted += 1
        number = self.totals.submitted
        self.stored[number] = request.task.payload
        return pb.SubmitResponse(id=number, result=self.result(number) if request.wait else None)

    def result(self, number: int) -> pb.TaskResult:
        return pb.TaskResult(
            id=number, status=pb.TASK_STATUS_SUCCEEDED, output=self.stored[number], output_available=True
        )

    def snapshot(self) -> pb.SnapshotResponse:
        return pb.SnapshotResponse(totals=self.totals, running=self.hanging)


class Leases:
    """Of one worker."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._given = 0

    def _lease(self) -> pb.ServerMessage | None:
        """The next one, None when there are no more."""
        if self._given == LEASES:
            return None
        self._given += 1
        return pb.ServerMessage(lease=pb.Lease(lease=self._given, task_id=self._given, attempt=1, payload=PAYLOAD))

    def heard(self, message: pb.WorkerMessage) -> list[pb.ServerMessage | None]:
        """What the worker is told for what it says."""
        kind = message.WhichOneof("msg")
        if kind == "register":
            slots = message.register.slots
            registered = pb.Registered(worker_id=1, lease_ttl_s=30, slots=slots, protocol_version=3)
            registered.max_message_bytes = 4 << 20
            return [pb.ServerMessage(registered=registered), *(self._lease() for _ in range(slots))]
        if kind == "complete":
            assert message.complete.output == PAYLOAD
            self._desk.totals.succeeded += 1
            return [self._lease()]
        return []


def event(number: int) -> pb.StatusEvent:
    return pb.StatusEvent(id=number, pool="default", key=f"k{number}", status=pb.TASK_STATUS_SUCCEEDED)


def sync_server() -> None:
    desk = Desk()

    def hang(context: grpc.ServicerContext) -> None:
        gone = threading.Event()
        assert context.add_callback(gone.set)
        desk.hanging += 1
        gone.wait()
        desk.hanging -= 1
        desk.totals.cancelled += 1

    class Tasks(stubs.TasksServicer):
        def Submit(self, request: pb.SubmitRequest, context: grpc.ServicerContext) -> Any:
            return desk.submit(request) or context.abort(grpc.StatusCode.NOT_FOUND, MISSING)

        def Wait(self, request: pb.WaitRequest, context: grpc.ServicerContext) -> Any:
            if request.task.key == HUNG:
                hang(context)
            return desk.result(request.task.id or 1)

        def Watch(self, request: pb.WatchRequest, context: grpc.ServicerContext) -> Iterator[Any]:
            context.send_initial_metadata(())
            yield from map(event, range(1, 101))
            hang(context)

    class Workers(stubs.WorkersServicer):
        def Work(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            out: queue.SimpleQueue[pb.ServerMessage | None] = queue.SimpleQueue()
            leases = Leases(desk)

            def read() -> None:
                for message in requests:
                    for answer in filter(None, leases.heard(message)):
                        out.put(answer)
                out.put(None)

            threading.Thread(target=read, daemon=True).start()
            return iter(out.get, None)

    class Admin(stubs.AdminServicer):
        def Snapshot(self, request: pb.Empty, context: grpc.ServicerContext) -> Any:
            return desk.snapshot()

    server = grpc.server(ThreadPoolExecutor(STREAMS), options=OPTIONS)
    stubs.add_TasksServicer_to_server(Tasks(), server)
    stubs.add_WorkersServicer_to_server(Workers(), server)
    stubs.add_AdminServicer_to_server(Admin(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(5).wait()


async def aio_server() -> None:
    desk = Desk()

    async def hang() -> None:
        desk.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            desk.hanging -= 1
            desk.totals.cancelled += 1

    class Tasks(stubs.TasksServicer):
        async def Submit(self, request: pb.SubmitRequest, context: Any) -> Any:
            return desk.submit(request) or await context.abort(grpc.StatusCode.NOT_FOUND, MISSING)

        async def Wait(self, request: pb.WaitRequest, context: Any) -> Any:
            if request.task.key == HUNG:
                await hang()
            return desk.result(request.task.id)

        async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[Any]:
            await context.send_initial_metadata(())
            for number in range(1, 101):
                yield event(number)
            await hang()

    class Workers(stubs.WorkersServicer):
        async def Work(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            leases = Leases(desk)
            async for message in requests:
                for answer in filter(None, leases.heard(message)):
                    yield answer

    class Admin(stubs.AdminServicer):
        async def Snapshot(self, request: pb.Empty, context: Any) -> Any:
            return desk.snapshot()

    server = grpc.aio.server(options=OPTIONS)
    stubs.add_TasksServicer_to_server(Tasks(), server)
    stubs.add_WorkersServicer_to_server(Workers(), server)
    stubs.add_AdminServicer_to_server(Admin(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(5)


if __name__ == "__main__":
    if sys.argv[1] == "sync":
        sync_server()
    else:
        asyncio.run(aio_server())
