"""Tasks that only some workers may run; python labels.py."""

from collections.abc import Awaitable, Callable

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker


def handler(name: str, seconds: float) -> Callable[[Lease], Awaitable[None]]:
    async def work(lease: Lease) -> None:
        print(f"{lease.text()}: {name}")
        await trio.sleep(seconds)

    return work


async def main() -> None:
    async with serve() as server, Client(server.target) as client:
        plain = Worker(server.target, "default", handler("plain worker", 1), slots=2)
        gpu = Worker(server.target, "default", handler("gpu worker", 1), labels={"gpu": "a100", "zone": "b"})
        async with plain, gpu:
            await client.submit("render", labels={"gpu": "a100"}, wait=True)
            for number in range(10):
                await client.submit(f"needs a camera {number}", labels={"camera": "yes"})
            for number in range(3):
                await client.submit(f"mail {number}")
            await trio.sleep(5)
            print("waiting:", (await client.snapshot()).pending)
            async with Worker(server.target, "default", handler("camera worker", 0.1), labels={"camera": "yes"}):
                await trio.sleep(2)
            print("waiting:", (await client.snapshot()).pending)


if __name__ == "__main__":
    run(main)
