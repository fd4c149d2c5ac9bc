"""A schedule in the two nights in which New York sets its clocks; python recurring.py."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

NEW_YORK = ZoneInfo("America/New_York")


async def work(lease: Lease) -> None:
    start = datetime.fromisoformat(lease.key.partition("@")[2])
    print(f"{lease.tags['cronoq.recurring']}: {lease.key}, {start.astimezone(NEW_YORK):%H:%M} in New York")


async def night(cron: str, begin: datetime, minutes: int) -> None:
    async with serve(now=begin) as server, Client(server.target) as client:
        await client.add_recurring("nightly", cron, tz="America/New_York", kind="report", key="report")
        async with Worker(server.target, "default", work):
            await trio.sleep(minutes * 60)
        (schedule,) = await client.list_recurring()
        print(f"{schedule.cron} is next due at {datetime.fromtimestamp(schedule.next_at, NEW_YORK)}")
        await client.remove_recurring("nightly")


async def main() -> None:
    await night("30 2 * * *", datetime(2027, 3, 14, 6, 55, tzinfo=UTC), 10)  # 02:30 does not exist
    await night("30 1 * * *", datetime(2027, 11, 7, 5, 25, tzinfo=UTC), 70)  # 01:30 comes twice


if __name__ == "__main__":
    run(main)
