"""What callers see of pools that are full; python overload.py."""

from cronoq.client import Client
from cronoq.errors import ClientError
from cronoq.testing import run, serve

POOLS = [
    {"name": "orders", "max_pending": 2, "overflow": "reject"},
    {"name": "mail", "max_pending": 3, "max_pending_by_class": {"low": 2}, "overflow": "shed_lowest"},
    {"name": "thumbnails", "max_pending": 2, "overflow": "shed_oldest"},
]


async def submit(client: Client, pool: str, key: str, priority: str = "normal") -> None:
    try:
        await client.submit(pool=pool, key=key, priority=priority)
        print(key, "is taken")
    except ClientError as error:
        print(key, error.code, error.message, sep=": ")


async def main() -> None:
    async with serve(pools=POOLS) as server, Client(server.target) as client:  # nobody works here
        for number in (1, 2, 3):
            await submit(client, "orders", f"order {number}", "critical")
        for number in (1, 2, 3):
            await submit(client, "mail", f"newsletter {number}", "low")
        for number in (1, 2):
            await submit(client, "mail", f"receipt {number}")
        for number in (1, 2, 3):
            await submit(client, "thumbnails", f"thumbnail {number}", "low")
        for key in ("newsletter 1", "newsletter 2", "thumbnail 1"):
            info = await client.get(key)
            print(key, info.status, info.message, sep=": ")


if __name__ == "__main__":
    run(main)
