"""Submits two tasks, waits for one of them and cancels the other; python client.py [trio|asyncio]."""

import sys

import anyio

from cronoq.client import Client, ClientError


async def main() -> None:
    async with Client("127.0.0.1:7070") as client:
        done = await client.submit("hello", kind="shout", wait=True, wait_timeout=20)
        print("task", done.id, done.result.status, done.result.text())

        later = await client.submit({"to": "you"}, kind="mail", pool="default", key="mail-1", priority="low")
        print("cancelled:", await client.cancel("mail-1"), (await client.get(later.id)).status)

        try:
            await client.get("nobody")
        except ClientError as error:
            print(error.code)


anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
