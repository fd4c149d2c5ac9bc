"""What is taken straight from Trio behaves as anyio's does, and is not taken where asyncio runs."""

import asyncio
import warnings

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio  # loaded, so that under asyncio too it could be mistaken for the loop that runs
from anyio.lowlevel import current_token

from cronoq._client.loops import AsyncioEvent, Loop, current_loop, current_run
from cronoq_sansio.clock import SECOND
from tests.client.conftest import Run


def test_a_loop_is_that_of_its_run(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        assert current_run() is loop.run is current_token().native_token
        assert loop.here()
        assert abs(loop.now() - anyio.current_time() * SECOND) < SECOND

    run(main)


def test_where_asyncio_runs_nothing_is_of_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trio may take its own task for the one that runs, where a run of it surrounds or preceded the other loop."""

    async def main() -> None:
        loop = current_loop()
        assert isinstance(loop.new_event(), AsyncioEvent)
        assert current_run() is loop.run is asyncio.get_running_loop()

    monkeypatch.setattr(trio.lowlevel, "in_trio_task", lambda: True)
    anyio.run(main, backend="asyncio")


def test_where_a_loop_of_asyncio_lies_in_a_run_of_trio_each_side_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As trio-asyncio has it: asyncio says in both that its loop runs, and what a task belongs to, anyio knows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*AbstractChildWatcher.*", DeprecationWarning)
        import trio_asyncio
    # What trio-asyncio replaces, anyio keeps, and other tests may have loaded anyio's part for asyncio before.
    monkeypatch.setattr("anyio._backends._asyncio.get_running_loop", asyncio.get_running_loop)

    async def main() -> None:
        async with trio_asyncio.open_loop():
            outside = current_loop()

            async def within() -> None:
                inside = current_loop()
                assert inside.run is asyncio.get_running_loop() is not outside.run
                assert inside.here() and not outside.here()
                event = inside.new_event()
                asyncio.get_running_loop().call_soon(event.set)
                await event.wait()
                found.append(inside)

            found: list[Loop] = []
            await trio_asyncio.aio_as_trio(within)()
            assert outside.run is trio.lowlevel.current_trio_token()
            assert outside.here() and not found[0].here()

    trio.run(main)


def test_outside_of_a_loop_there_is_no_run() -> None:
    with pytest.raises(RuntimeError):
        current_run()
    with pytest.raises(RuntimeError):
        current_loop()


def test_a_loop_knows_whether_the_caller_runs_in_it(run: Run) -> None:
    """Not in a thread, not in another run, and not in a loop of the other kind."""
    loops = []

    async def main() -> None:
        loops.append(current_loop())
        assert [loop.here() for loop in loops] == [False] * (len(loops) - 1) + [True]
        assert not await anyio.to_thread.run_sync(loops[-1].here)

    for _ in range(2):
        run(main)
    anyio.run(main, backend="trio")
    anyio.run(main, backend="asyncio")
    assert not any(loop.here() for loop in loops)


def test_an_event_wakes_who_waits(run: Run) -> None:
    """Whether the task was there first or the event; and a task that was cancelled is not woken any more."""

    async def main() -> None:
        loop = current_loop()
        event, woken = loop.new_event(), []

        async def waiter() -> None:
            await event.wait()
            woken.append(event)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            await anyio.wait_all_tasks_blocked()
            assert not event.is_set() and not woken
            event.set()
            event.set()
            assert event.is_set()
        assert woken == [event]
        await event.wait()

        event = loop.new_event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        event.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
        assert len(woken) == 2

        event = loop.new_event()
        with anyio.move_on_after(0.001):
            await event.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            await anyio.wait_all_tasks_blocked()
            event.set()
        assert len(woken) == 3

    run(main)


def test_a_task_that_is_woken_and_cancelled_at_once_loses_neither(run: Run) -> None:
    async def main() -> None:
        event, seen = current_loop().new_event(), []

        async def waiter() -> None:
            try:
                await event.wait()
                await anyio.sleep_forever()
            finally:
                seen.append(event.is_set())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            await anyio.wait_all_tasks_blocked()
            event.set()
            tasks.cancel_scope.cancel()
        assert seen == [True]

    run(main)
