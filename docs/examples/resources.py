"""Tasks that share an interface with a limited rate and a few connections; python resources.py."""

import trio

from cronoq.client import Client
from cronoq.errors import ClientError
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

RESOURCES = [
    {"name": "partner-api", "kind": "token_bucket", "rate": 0.5, "burst": 2},
    {"name": "db", "kind": "semaphore", "permits": 3},
]


async def main() -> None:
    started: list[tuple[int, str]] = []

    async def work(lease: Lease) -> None:
        started.append((round(trio.current_time() - begin), lease.text()))
        await trio.sleep(3)

    async with serve(resources=RESOURCES) as server, Client(server.target) as client:
        for number in range(1, 6):
            await client.submit(f"call {number}", resources={"partner-api": 1})
        await client.submit("query 1, 2 of 3 connections", resources={"db": 2})
        await client.submit("report, 3 of 3 connections", resources={"db": 3})
        await client.submit("query 2, 1 of 3 connections", resources={"db": 1})
        await client.submit("sync, 1 connection and 1 call", resources={"db": 1, "partner-api": 1})
        await client.submit("nothing of it")
        try:
            await client.submit("too much", resources={"db": 4})
        except ClientError as error:
            print(error.code, error.message, sep=": ")
        begin = trio.current_time()
        async with Worker(server.target, "default", work, slots=10):
            await trio.sleep(15)
    for at, text in sorted(started):
        print(f"{at} s  {text}")


if __name__ == "__main__":
    run(main)
