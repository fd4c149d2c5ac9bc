"""One burst of a client: it measures its own process, so that the server does not matter.

    python client_load.py submit CLIENT PORT COUNT      unary Submit, IN_FLIGHT at a time on one connection
    python client_load.py worker CLIENT PORT COUNT      a worker with SLOTS slots takes COUNT tasks that do nothing

CLIENT is `grpcio` (its asyncio API), `asyncio` or `trio` (`cronoq.client.Client` and `cronoq.worker.Worker` there). The
first WARM_UP of the COUNT calls are not measured. Prints one JSON object.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import anyio

PAYLOAD = b"x" * 100
OUTPUT = b"r" * 30
IN_FLIGHT = 10
SLOTS = 10
WARM_UP = 400
TIMEOUT = 30.0
"""Seconds that a call may take: what `Client` allows by itself."""


class Meter:
    """CPU of this process, all threads together, and time, from call WARM_UP to call `count`."""

    def __init__(self, count: int) -> None:
        self._left, self._measured = count, count - WARM_UP
        self._cpu = self._time = 0.0
        self.done = anyio.Event()
        self.figures: dict[str, float] = {}

    def tick(self) -> None:
        """One call more."""
        self._left -= 1
        if self._left == self._measured:
            self._cpu, self._time = time.process_time(), time.perf_counter()
        elif self._left == 0:
            cpu, elapsed = time.process_time() - self._cpu, time.perf_counter() - self._time
            self.figures = {"rate": self._measured / elapsed, "cpu_us": cpu * 1e6 / self._measured}
            self.done.set()


async def submit_ours(port: int, count: int) -> dict[str, float]:
    """Submit through `cronoq.client.Client`."""
    from cronoq.client import Client

    meter, numbers = Meter(count), iter(range(count))
    async with Client(f"127.0.0.1:{port}", timeout=TIMEOUT) as client, anyio.create_task_group() as submitters:

        async def submitter() -> None:
            for _ in numbers:
                await client.submit(PAYLOAD, kind="email.send", pool="default", tags={"team": "core"})
                meter.tick()

        for _ in range(IN_FLIGHT):
            submitters.start_soon(submitter)
    return meter.figures


async def submit_grpcio(port: int, count: int) -> dict[str, float]:
    """Submit through a stub on grpcio's asyncio API."""
    import grpc

    from cronoq._proto import cronoq_pb2 as pb

    meter, numbers = Meter(count), iter(range(count))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/cronoq.v1.Tasks/Submit",
            request_serializer=pb.SubmitRequest.SerializeToString,
            response_deserializer=pb.SubmitResponse.FromString,
        )

        async def submitter() -> None:
            for _ in numbers:
                task = pb.TaskSpec(payload=PAYLOAD, kind="email.send", pool="default", tags={"team": "core"})
                await call(pb.SubmitRequest(task=task), timeout=TIMEOUT)
                meter.tick()

        await asyncio.gather(*(submitter() for _ in range(IN_FLIGHT)))
    return meter.figures


async def worker_ours(port: int, count: int) -> dict[str, float]:
    """Work with `cronoq.worker.Worker`."""
    from cronoq.worker import Lease, Worker

    meter = Meter(count)

    async def handle(lease: Lease) -> bytes:
        meter.tick()
        return OUTPUT

    async with Worker(f"127.0.0.1:{port}", "default", handle, slots=SLOTS):
        await meter.done.wait()
    return meter.figures


async def worker_grpcio(port: int, count: int) -> dict[str, float]:
    """Work with the same worker on grpcio."""
    from cronoq.worker import Lease
    from harness.grpcio_worker import GrpcioWorker

    meter = Meter(count)

    async def handle(lease: Lease) -> bytes:
        meter.tick()
        return OUTPUT

    await GrpcioWorker(f"127.0.0.1:{port}", "default", handle, SLOTS).run(meter.done.wait())
    return meter.figures


LOADS: dict[str, tuple[Callable[[int, int], Awaitable[dict[str, float]]], ...]] = {
    "submit": (submit_grpcio, submit_ours),
    "worker": (worker_grpcio, worker_ours),
}


def main(load: str, client: str, port: str, count: str) -> None:
    """Run the burst that the command line names."""
    on_grpcio, ours = LOADS[load]
    if client == "grpcio":
        figures = anyio.run(on_grpcio, int(port), int(count), backend="asyncio")
    else:
        figures = anyio.run(ours, int(port), int(count), backend=client)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
