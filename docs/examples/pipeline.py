"""Four tasks that wait for each other, one of which fails; python pipeline.py [trio|asyncio]."""

import sys

import anyio

from cronoq.client import Client, Dep, task
from cronoq.worker import Lease, Permanent, Worker

SERVER = "127.0.0.1:7070"


async def handle(lease: Lease) -> str:
    if lease.kind == "resize":
        raise Permanent("not an image")
    return f"{lease.kind} {lease.text()}"


async def main() -> None:
    name = "cat.png"
    tasks = [
        task(name, kind="publish", after=[f"resize {name}", f"describe {name}"]),
        task(name, kind="clean up", deps=[Dep(f"resize {name}", "complete"), Dep(f"describe {name}", "complete")]),
        task(name, kind="resize", key=f"resize {name}", after=f"fetch {name}", deadline_in=60, duration_hint=5),
        task(name, kind="describe", key=f"describe {name}", after=f"fetch {name}"),
        task(name, kind="fetch", key=f"fetch {name}", priority="high", labels={"net": "yes"}),
    ]
    async with Client(SERVER) as client, Worker(SERVER, "default", handle, slots=2, labels={"net": "yes"}):
        for submitted in await client.submit_batch(tasks):
            result = await client.wait(submitted.id)
            print((await client.get(submitted.id)).kind, result.status)


anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
