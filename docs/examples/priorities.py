"""What runs next on one slot: classes, waiting, deadlines; python priorities.py."""

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

started: dict[str, float] = {}


async def work(lease: Lease) -> None:
    started[lease.text()] = trio.current_time()
    await trio.sleep(1)


async def classes(client: Client, target: str) -> None:
    for priority in ("low", "normal", "high", "critical"):
        await client.submit(priority, priority=priority)
    await finish(target)


async def deadlines(client: Client, target: str) -> None:
    await client.submit("no deadline")
    await client.submit("in a minute", deadline_in=60, duration_hint=1)
    await client.submit("in 20 s, takes 15 s", deadline_in=20, duration_hint=15, priority="low")
    await client.submit("due now", deadline_in=0, priority="low")
    await client.submit("high", priority="high")
    await finish(target)


async def waiting(client: Client, target: str) -> None:
    """A low task, and for 100 seconds a normal one per second: as many as one slot can do."""
    await client.submit("low", priority="low")
    begin = trio.current_time()
    await client.submit("normal 0")
    async with Worker(target, "default", work):
        for number in range(1, 100):
            await client.submit(f"normal {number}")
            await trio.sleep(1)
    print(f"low: started after {started['low'] - begin:.0f} s")


async def finish(target: str) -> None:
    """One worker with one slot until everything is done; in which order it started."""
    started.clear()
    async with Client(target) as client, Worker(target, "default", work):
        while (await client.snapshot()).live_tasks:
            await trio.sleep(1)
    print(*started, sep=" | ")


async def main() -> None:
    async with serve() as server, Client(server.target) as client:
        await classes(client, server.target)
        await deadlines(client, server.target)
        await waiting(client, server.target)


if __name__ == "__main__":
    run(main)
