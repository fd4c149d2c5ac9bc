"""A schedule through the night in which New York changes to summer time; python recurring.py."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import trio

from cronoq.client import Client
from cronoq.testing import run, serve
from cronoq.worker import Lease, Worker

EVENING = datetime(2027, 3, 13, 6, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")


async def main() -> None:
    async with serve(now=EVENING) as server, Client(server.target) as client:
        await client.add_recurring(
            "nightly", "30 2 * * *", "books", tz="America/New_York", kind="report", key="report", deadline_in=600
        )

        async def work(lease: Lease) -> None:
            start = datetime.fromisoformat(lease.key.partition("@")[2])
            print(f"{lease.key} is {start.astimezone(NEW_YORK):%d %H:%M} in New York; {lease.tags['cronoq.recurring']}")

        async with Worker(server.target, "default", work):
            await trio.sleep(49 * 3_600)

        (schedule,) = await client.list_recurring()
        print("next:", datetime.fromtimestamp(schedule.next_at, UTC))
        print("removed:", await client.remove_recurring("nightly"))


if __name__ == "__main__":
    run(main)
