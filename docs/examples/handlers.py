"""Typed handlers by kind, handed in and run by the same objects; python handlers.py [trio|asyncio]."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from cronoq.client import Client
from cronoq.handlers import Tasks

tasks = Tasks()


@dataclass
class Mail:
    to: str
    subject: str
    copies: tuple[str, ...] = ()


@tasks.handler("mail.send", retry={"max_attempts": 5}, timeout=30)
async def send(mail: Mail, *, after: datetime | None = None) -> int:
    print("to", mail.to, "about", mail.subject, "after", after, flush=True)
    return 1 + len(mail.copies)


@tasks.handler("sum")
def add_up(numbers: list[int]) -> int:  # not async: runs in a thread
    return sum(numbers)


async def main() -> None:
    async with Client("127.0.0.1:7070") as client, tasks.worker("127.0.0.1:7070", slots=2):
        done = await send.with_options(wait=True).submit(client, Mail("you", "lunch"), after=datetime.now(UTC))
        print(send.result(done.result), "sent")
        done = await add_up.with_options(wait=True, priority="high").submit(client, [1, 2, 3])
        print(add_up.result(done.result))


anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
