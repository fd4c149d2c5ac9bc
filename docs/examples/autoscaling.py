"""A fleet that follows the target of its pool, one slot per worker; python autoscaling.py."""

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

POOLS = [{"name": "thumbnails", "min": 1, "max": 8, "cooldown_s": 10, "cost_per_worker_second": 0.01}]


async def resize(_: Lease) -> None:
    await trio.sleep(1.7)


class Fleet:
    """Workers of this program; yours are processes or machines that something else starts and stops."""

    def __init__(self, target: str, nursery: trio.Nursery) -> None:
        self.target = target
        self.nursery = nursery
        self.stops: list[trio.Event] = []

    def follow(self, desired: int) -> None:
        while len(self.stops) < desired:
            self.stops.append(trio.Event())
            self.nursery.start_soon(self.work, self.stops[-1])
        while len(self.stops) > desired:
            self.stops.pop().set()

    async def work(self, stop: trio.Event) -> None:
        async with Worker(self.target, "thumbnails", resize):  # finishes what it runs before it ends
            await stop.wait()


async def main() -> None:
    async with serve(pools=POOLS) as server, Client(server.target) as client, trio.open_nursery() as nursery:
        fleet = Fleet(server.target, nursery)
        began, shown = trio.current_time(), -1
        for second in range(160):
            await trio.sleep_until(began + second + 0.5)
            if second == 10:
                for _ in range(100):
                    await client.submit(pool="thumbnails")
            (pool,) = (await client.snapshot()).pools
            if pool.desired != shown:
                shown = pool.desired
                print(f"after {second} s: {pool.pending} wait, {pool.busy} run, {pool.capacity} slots, {shown} desired")
            fleet.follow(pool.desired)
        print(f"it has cost {pool.cost:.2f}")
        fleet.follow(0)


if __name__ == "__main__":
    run(main)
