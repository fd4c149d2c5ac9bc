"""The handlers of `demo`: a registry as anybody would write it, with one function for each thing that can happen."""

import time

import anyio

from cronoq.errors import Permanent, Retryable
from cronoq.handlers import Tasks
from cronoq.worker import current_lease

tasks = Tasks()
QUICK_RETRY = {"max_attempts": 3, "initial_backoff": 0.5, "max_backoff": 0.5, "jitter": False}


@tasks.handler("demo.greet")
async def greet(name: str) -> str:
    """Done at once."""
    return f"hello, {name}"


@tasks.handler("demo.download")
async def download(seconds: float) -> int:
    """Takes its time in the event loop."""
    await anyio.sleep(seconds)
    return int(seconds * 1_000_000)


@tasks.handler("demo.compute")
def compute(seconds: float) -> int:
    """Takes its time in a thread, which does not hold up anybody."""
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        time.sleep(0.01)
        rounds += 1
    return rounds


@tasks.handler("demo.flaky", retry=QUICK_RETRY)
async def flaky(fails: int) -> str:
    """Fails so many times, then succeeds."""
    attempt = current_lease().attempt
    await anyio.sleep(0.2)
    if attempt <= fails:
        raise Retryable(f"attempt {attempt} failed, as it was asked to")
    return f"worked in attempt {attempt}"


@tasks.handler("demo.hopeless")
async def hopeless(reason: str) -> None:
    """Can never work, and says so."""
    raise Permanent(reason)
