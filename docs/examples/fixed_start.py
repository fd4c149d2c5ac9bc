"""Tasks that start at a time of their own, beside a pool full of other work; python fixed_start.py."""

from datetime import UTC, datetime, timedelta

import trio

from cronoq.client import Client
from cronoq.errors import ClientError
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

NOON = datetime(2027, 3, 13, 12, tzinfo=UTC)
POOLS = [{"name": "default", "max": 2, "reservable_fraction": 0.5}]  # so one slot can be reserved at a time


async def missed(client: Client) -> None:
    """Nobody works yet."""
    task = await client.submit(start_in=5, tolerance=2, on_miss="skip")
    result = await client.wait(task.id)
    print(f"{result.status}: {result.message}")


async def conflict(client: Client) -> None:
    try:
        await client.submit(start_at=NOON + timedelta(seconds=65), duration_hint=10)
    except ClientError as error:
        print(f"{error.code}: {error.message}")


async def main() -> None:
    async with serve(pools=POOLS, now=NOON) as server, Client(server.target) as client:
        began = trio.current_time()

        async def work(lease: Lease) -> None:
            if lease.kind == "report":
                print(f"{lease.key}: started after {trio.current_time() - began:.0f} s")
            await trio.sleep(7)

        await missed(client)
        await client.submit(key="first", kind="report", start_at=NOON + timedelta(seconds=60), duration_hint=10)
        await conflict(client)
        await client.submit(key="second", kind="report", start_at=NOON + timedelta(seconds=80), duration_hint=10)
        for _ in range(40):  # more than two slots can do in two minutes
            await client.submit(kind="other")
        print("first:", (await client.get("first")).status)
        async with Worker(server.target, "default", work, slots=2):
            await client.wait("second")


if __name__ == "__main__":
    run(main)
