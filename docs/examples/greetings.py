"""Handlers of two kinds, a worker that runs them and a client that hands them in."""

import anyio

from cronoq.client import Client
from cronoq.handlers import Tasks

SERVER = "127.0.0.1:7070"
tasks = Tasks()


@tasks.handler("greet")
async def greet(name: str, times: int = 1) -> str:
    return ", ".join([f"hello {name}"] * times)


@tasks.handler("add", retry={"max_attempts": 5})
def add(a: int, b: int) -> int:  # not async: runs in a thread
    return a + b


async def main() -> None:
    async with Client(SERVER) as client, tasks.worker(SERVER, slots=4):
        done = await greet.with_options(wait=True).submit(client, "you", times=2)
        print("task", done.id, done.result.status, greet.result(done.result))


if __name__ == "__main__":
    anyio.run(main)
