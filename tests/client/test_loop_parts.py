"""What is taken straight from Trio behaves as anyio's does, and is not taken where asyncio runs."""

import asyncio

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio  # loaded, so that under asyncio too it could be mistaken for the loop that runs
from anyio.lowlevel import current_token

from cronoq._client.loops import current_loop, current_run
from cronoq_sansio.clock import SECOND
from tests.client.conftest import Run


def test_each_loop_gives_its_own(run: Run, backend: str) -> None:
    async def main() -> None:
        native = backend == "trio"
        loop = current_loop()
        assert isinstance(loop.new_event(), trio.Event if native else asyncio.Event)
        assert current_run() is loop.run is current_token().native_token
        assert loop.here()
        assert abs(loop.now() - anyio.current_time() * SECOND) < SECOND

    run(main)


def test_where_asyncio_runs_nothing_is_of_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trio may take its own task for the one that runs, where a run of it surrounds or preceded the other loop."""

    async def main() -> None:
        loop = current_loop()
        assert isinstance(loop.new_event(), asyncio.Event)
        assert current_run() is loop.run is asyncio.get_running_loop()

    monkeypatch.setattr(trio.lowlevel, "in_trio_task", lambda: True)
    anyio.run(main, backend="asyncio")


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


def test_events_are_those_of_anyio_in_all_that_is_used(run: Run) -> None:
    async def main() -> None:
        event = current_loop().new_event()
        assert not event.is_set()
        async with anyio.create_task_group() as tasks:

            async def setter() -> None:
                event.set()
                event.set()

            tasks.start_soon(setter)
            await event.wait()
        assert event.is_set()

    run(main)
