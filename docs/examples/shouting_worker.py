"""A worker for the pool `default`: answers each task in capitals; python shouting_worker.py [trio|asyncio]."""

import signal
import sys

import anyio

from cronoq.worker import Lease, Permanent, Worker


async def shout(lease: Lease) -> str:
    if not lease.payload:
        raise Permanent("there is nothing to shout")
    await anyio.sleep(0.01)
    return lease.text().upper()


async def main() -> None:
    async with Worker("127.0.0.1:7070", "default", shout, slots=4) as worker:
        print("worker", worker.worker_id, "is ready", flush=True)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break  # leaving the block lets what runs finish


anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "trio")
