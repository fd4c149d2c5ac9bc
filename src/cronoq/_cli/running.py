"""Runs the calls of one command on an event loop, and turns their ends into those of a command."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import TIMED_OUT, CommandFailure, explain
from cronoq.errors import ClientError

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns. Ctrl-C cancels it, lets it clean up, and is KeyboardInterrupt here.

    On asyncio, whose import takes a third of the time of Trio's; the calls are the same on both.
    """
    import anyio

    try:
        return anyio.run(work, backend="asyncio")
    except ClientError as error:
        raise explain(error) from error


def timed_out(endpoint: Endpoint, error: TimeoutError, waited: str = "") -> CommandFailure:
    """The time is up. `waited`: what for, and what becomes of it; else the server did not answer a call."""
    text = waited or f"{endpoint.address}: {str(error) or 'no answer in time'}; is the server overloaded or halted?"
    return CommandFailure(f"deadline_exceeded: {text}", TIMED_OUT)
