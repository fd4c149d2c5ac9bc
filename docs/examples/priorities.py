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
    ids = [(await client.submit(name, priority=name)).id for name in ("low", "normal", "high", "critical")]
    await run_all(client, target, ids)


async def deadlines(client: Client, target: str) -> None:
    tasks = [
        await client.submit("no deadline"),
        await client.submit("in a minute", deadline_in=60, duration_hint=1),
        await client.submit("in 20 s, takes 15 s", deadline_in=20, duration_hint=15, priority="low"),
        await client.submit("due now", deadline_in=0, priority="low"),
        await client.submit("high", priority="high"),
    ]
    await run_all(client, target, [task.id for task in tasks])


async def run_all(client: Client, target: str, ids: list[int]) -> None:
    """One worker with one slot until these tasks are done; in which order they started."""
    started.clear()
    async with Worker(target, "default", work):
        for task in ids:
            await client.wait(task)
    print(*started, sep=" | ")


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


async def main() -> None:
    async with serve() as server, Client(server.target) as client:
        await classes(client, server.target)
        await deadlines(client, server.target)
        await waiting(client, server.target)


if __name__ == "__main__":
    run(main)
