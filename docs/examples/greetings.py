"""Handlers of two kinds of tasks, for `cronoq-trio worker greetings:tasks`."""

import anyio

from cronoq.handlers import Tasks

tasks = Tasks()


@tasks.handler("greet")
async def greet(name: str, times: int = 1) -> str:
    await anyio.sleep(0.1)
    return ", ".join([f"hello {name}"] * times)


@tasks.handler("add")
def add(a: int, b: int) -> int:
    return a + b
