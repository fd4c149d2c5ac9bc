"""A foreign worker in a process of its own, which writes down what happens to each lease.

Called as `crash_worker.py PORT SLOTS FILE [POOL,… [LABEL=VALUE]]`: a stream per pool. One line of JSON per event, with
the clock that all processes of a machine share (CLOCK_MONOTONIC): `leased` when a lease was read, `ended` when its
outcome is about to be sent or its Abort was read, `broken` when the stream was lost. Each attempt takes 0 to 30 ms, or
0 to 3 ms when the kind of the task is `quick`. One of the kind `fail` fails for good and one of the kind `dead` may be
repeated; any other's output is made from its payload alone. Ends when its stdin is closed.
"""

import asyncio
import hashlib
import itertools
import json
import random
import sys
import time
from typing import TextIO

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs

LONGEST = 0.03
LONGEST_QUICK = 0.003
STREAMS = itertools.count(1)
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50)]


def output_of(payload: bytes) -> bytes:
    """What every worker makes of a payload."""
    return hashlib.sha256(payload).hexdigest().encode()


class CrashWorker:
    def __init__(self, port: int, slots: int, ledger: TextIO, pool: str, labels: dict[str, str]) -> None:
        self.port, self.slots, self.ledger = port, slots, ledger
        self.pool, self.labels = pool, labels
        self.stream = 0
        self.writing = asyncio.Lock()
        """grpcio takes one message at a time."""

    def note(self, event: str, **fields: int) -> None:
        self.ledger.write(json.dumps({"at": time.monotonic(), "event": event, "stream": self.stream, **fields}) + "\n")
        self.ledger.flush()

    async def run(self) -> None:
        """One stream after the other, until cancelled."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=OPTIONS) as channel:
            while True:
                self.stream = next(STREAMS)
                call = stubs.WorkersStub(channel).Work(wait_for_ready=True)
                attempts: set[asyncio.Task[None]] = set()
                try:
                    await self.work(call, attempts)
                except grpc.aio.AioRpcError:
                    pass
                finally:
                    self.note("broken")
                    call.cancel()
                    for attempt in attempts:
                        attempt.cancel()

    async def work(self, call: "grpc.aio.StreamStreamCall", attempts: set["asyncio.Task[None]"]) -> None:
        register = pb.Register(
            pool=self.pool, slots=self.slots, protocol_version=3, worker_name="crash", labels=self.labels
        )
        await call.write(pb.WorkerMessage(register=register))
        held: dict[int, int] = {}
        while (message := await call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("msg") == "lease":
                lease = message.lease
                held[lease.lease] = lease.task_id
                self.note(
                    "leased",
                    lease=lease.lease,
                    task=lease.task_id,
                    attempt=lease.attempt,
                    deadline=lease.deadline_unix_ns,
                )
                attempt = asyncio.create_task(self.attempt(call, lease, held))
                attempts.add(attempt)
                attempt.add_done_callback(attempts.discard)
            elif message.WhichOneof("msg") == "abort" and message.abort.lease in held:
                self.note("ended", lease=message.abort.lease, task=held.pop(message.abort.lease))

    async def attempt(self, call: "grpc.aio.StreamStreamCall", lease: pb.Lease, held: dict[int, int]) -> None:
        await asyncio.sleep(random.uniform(0, LONGEST_QUICK if lease.kind == "quick" else LONGEST))
        if held.pop(lease.lease, None) is None:
            return
        self.note("ended", lease=lease.lease, task=lease.task_id)
        if lease.kind in ("fail", "dead"):
            outcome = pb.WorkerMessage(fail=pb.Fail(lease=lease.lease, message="no", permanent=lease.kind == "fail"))
        else:
            complete = pb.Complete(lease=lease.lease, output=output_of(lease.payload))
            outcome = pb.WorkerMessage(complete=complete)
        try:
            async with self.writing:
                await call.write(outcome)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream broke; `run` notes it


async def main(port: int, slots: int, ledger: TextIO, pools: str = "", label: str = "") -> None:
    labels = dict([label.split("=")]) if label else {}
    workers = [CrashWorker(port, slots, ledger, pool, labels).run() for pool in pools.split(",")]
    running = [asyncio.create_task(worker) for worker in workers]
    await asyncio.to_thread(sys.stdin.read)
    for worker in running:
        worker.cancel()
    await asyncio.wait(running)


if __name__ == "__main__":
    with open(sys.argv[3], "a", encoding="utf-8") as file:
        asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), file, *sys.argv[4:]))
