"""What every call or lease needs of the event loop, straight from Trio or asyncio.

anyio gives all of it under both loops, and the client stands on that. But it asks each time which loop runs: a task of
anyio's costs under Trio 13 µs and one of Trio's 4 µs, a scope 5 and 2.5 µs, an event 0.6 and 0.1 µs, the time 0.4 and
0.1 µs; under asyncio an event 1.2 and 0.1 µs. What is made here has the same methods whichever loop it is of.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from types import TracebackType
from typing import Any, Protocol

from anyio.lowlevel import current_token

from cronoq_sansio.clock import SECOND


class Scope(Protocol):
    """What can be cancelled; a context manager."""

    @property
    def cancelled_caught(self) -> bool:
        """It was cut short because it was cancelled."""

    def cancel(self) -> None:
        """Idempotent."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


class Event(Protocol):
    """Set once. One task at a time may wait for it."""

    def set(self) -> object:
        """Wake who waits."""

    def is_set(self) -> bool:
        """Whether it was set."""

    async def wait(self) -> object:
        """Until it is set."""


def running_trio() -> Any:
    """The module, when a task of its runs; the client never imports it by itself.

    A task of Trio's may run a loop of asyncio: then that is the one. Where both may be meant, anyio decides.
    """
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_task():
        return None
    return None if _may_be_asyncio() and is_asyncio(current_token().native_token) else trio


def current_run() -> Any:
    """What tells runs of event loops apart: the loop of asyncio, or Trio's token. RuntimeError outside of one."""
    trio = running_trio()
    return current_token().native_token if trio is None else trio.lowlevel.current_trio_token()


def is_asyncio(run: Any) -> bool:
    """Whether `current_run` gave a loop of asyncio."""
    return hasattr(run, "create_task")


def _may_be_asyncio() -> bool:
    asyncio: Any = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class Loop:
    """The event loop that runs: what is asked of it often, looked up once."""

    __slots__ = ("here", "new_event", "now", "run")

    def __init__(
        self, run: Any, now: Callable[[], int], new_event: Callable[[], Event], here: Callable[[], bool]
    ) -> None:
        self.run = run
        """See `current_run`."""
        self.now = now
        """Nanoseconds of its clock."""
        self.new_event = new_event
        """One that is not set."""
        self.here = here
        """Whether the caller runs in it."""


def current_loop() -> Loop:
    """The one that runs. RuntimeError outside of one."""
    trio = running_trio()
    return _asyncio_loop(current_run()) if trio is None else _trio_loop(trio)


def _trio_loop(trio: Any) -> Loop:
    current_time, current_token = trio.current_time, trio.lowlevel.current_trio_token
    run = current_token()

    def here() -> bool:
        if _may_be_asyncio():
            return current_run() is run
        try:
            return current_token() is run
        except RuntimeError:
            return False

    return Loop(run, lambda: round(current_time() * SECOND), _trio_event(trio), here)


@cache
def _trio_event(trio: Any) -> Callable[[], Event]:
    """Trio's own is for many who wait, and costs twice as much."""
    low = trio.lowlevel
    current_task, suspend, reschedule, done = low.current_task, low.wait_task_rescheduled, low.reschedule, low.Abort

    class TrioEvent:
        __slots__ = ("_done", "_waiter")

        def __init__(self) -> None:
            self._done = False
            self._waiter: Any = None

        def set(self) -> None:
            self._done = True
            waiter, self._waiter = self._waiter, None
            if waiter is not None:
                reschedule(waiter)

        def is_set(self) -> bool:
            return self._done

        async def wait(self) -> None:
            if not self._done:
                self._waiter = current_task()
                await suspend(self._abort)

        def _abort(self, _raise: object) -> Any:
            self._waiter = None
            return done.SUCCEEDED

    return TrioEvent


def _asyncio_loop(run: Any) -> Loop:
    import asyncio

    get, time, modules = asyncio._get_running_loop, run.time, sys.modules

    def here() -> bool:
        return get() is run and ("trio" not in modules or current_run() is run)

    return Loop(run, lambda: round(time() * SECOND), partial(AsyncioEvent, run.create_future), here)


class AsyncioEvent:
    """Asyncio's own is for many who wait, and costs twice as much."""

    __slots__ = ("_done", "_new_future", "_waiter")

    def __init__(self, new_future: Callable[[], Any]) -> None:
        self._new_future = new_future
        self._done = False
        self._waiter: Any = None

    def set(self) -> None:
        """Wake who waits."""
        self._done = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._done

    async def wait(self) -> None:
        """Until it is set."""
        if not self._done:
            self._waiter = self._new_future()
            await self._waiter
