"""Three customers who share a pool, one of them with a higher weight; python tenants.py."""

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

POOLS = [{"name": "default", "tenant_weights": {"gold": 2}}]


async def main() -> None:
    started: list[str] = []

    async def work(lease: Lease) -> None:
        started.append(lease.text())
        await trio.sleep(1)

    async with serve(pools=POOLS) as server, Client(server.target) as client:
        for tenant in ("bulk", "gold", "iron"):
            for _ in range(12 if tenant == "bulk" else 6):
                await client.submit(tenant, tenant=tenant)
        async with Worker(server.target, "default", work):
            await trio.sleep(19.5)
            for _ in range(3):
                await client.submit("iron", tenant="iron")  # nothing is made up for
            await trio.sleep(10)
    print(*started[:12])
    print(*started[12:20])
    print(*started[20:])


if __name__ == "__main__":
    run(main)
