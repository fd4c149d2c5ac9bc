"""Tasks that start at a time of their own, beside a pool full of other work; python fixed_start.py."""

from datetime import UTC, datetime

import trio

from cronoq.client import Client
from cronoq.errors import ClientError
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

NOON = datetime(2027, 3, 13, 12, tzinfo=UTC)
POOLS = [{"name": "default", "max": 2, "reservable_fraction": 0.5}]  # one slot can be reserved at a time


async def main() -> None:
    async with serve(pools=POOLS, now=NOON) as server, Client(server.target) as client:
        began = trio.current_time()

        async def work(lease: Lease) -> None:
            if lease.kind == "report":
                print(f"{lease.key}: started after {trio.current_time() - began:.0f} s")
            await trio.sleep(7)

        await client.submit(key="exact", kind="report", start_in=60, duration_hint=10)
        try:
            await client.submit(key="overlapping", kind="report", start_in=65, duration_hint=10)
        except ClientError as error:
            print(f"overlapping: {error.code}: {error.message}")
        await client.submit(key="after it", kind="report", start_in=80, duration_hint=10)
        for _ in range(40):  # more than two slots can do in two minutes
            await client.submit(kind="other")
        print("exact:", (await client.get("exact")).status)

        async with Worker(server.target, "default", work, slots=2):
            await client.wait("after it")

        await client.submit(key="nobody works", kind="report", start_in=5, tolerance=2, on_miss="skip")
        result = await client.wait("nobody works")
        print(f"nobody works: {result.status} after {trio.current_time() - began:.0f} s: {result.message}")


if __name__ == "__main__":
    run(main)
