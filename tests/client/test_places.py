"""Tasks that can be cut off one by one, and are joined: the same under Trio and asyncio."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from cronoq._client.places import Place, Tasks, tasks_in
from tests.client.conftest import Run

MOST = 3

Work = Callable[[Place], Coroutine[Any, Any, None]]


class Field:
    """Tasks, and what became of each."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.began: list[str] = []
        self.ended: list[str] = []
        self.cut: list[str] = []

    def start(self, name: str, work: Work | None = None) -> Place:
        return self.tasks.start(self._run, name, work or _forever)

    async def _run(self, place: Place, name: str, work: Work) -> None:
        try:
            self.began.append(name)
            if place.scope is None:
                await work(place)
            else:
                with place.scope:
                    await work(place)
        except anyio.get_cancelled_exc_class():
            self.cut.append(name)
            raise
        finally:
            self.ended.append(name)
            self.tasks.leave(place)


async def _forever(place: Place) -> None:
    await anyio.sleep_forever()


async def _steps(place: Place) -> None:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def field() -> AsyncIterator[Field]:
    async with anyio.create_task_group() as group, tasks_in(group, MOST) as tasks:
        yield Field(tasks)


async def settle() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


def test_tasks_are_joined(run: Run) -> None:
    async def main() -> None:
        async with field() as tasks:
            for round_ in range(4):
                for number in range(2 * MOST):
                    tasks.start(f"{round_}.{number}", _steps)
                await settle()
            tasks.start("last", _steps)
        assert len(tasks.began) == len(tasks.ended) == 8 * MOST + 1

    run(main)


def test_one_is_cut_off_and_no_other(run: Run) -> None:
    """Whether its place is a fresh one or one in which another task was before; and its place is not used again."""

    async def main() -> None:
        async with field() as tasks:
            for round_ in range(4):
                places = {name: tasks.start(f"{name}{round_}") for name in "abc"}
                await settle()
                places["b"].cancel()
                places["b"].cancel()
                await settle()
                assert tasks.ended == [f"b{round_}"]
                places["a"].cancel()
                places["c"].cancel()
                await settle()
                assert sorted(tasks.ended) == [f"a{round_}", f"b{round_}", f"c{round_}"]
                tasks.ended.clear()
        assert len(tasks.began) == 12

    run(main)


def test_a_place_serves_many_tasks_one_after_the_other(run: Run, backend: str) -> None:
    async def main() -> None:
        async with field() as tasks:
            for number in range(MOST):
                tasks.start(str(number), _steps)
            await settle()
            seen = set()
            for number in range(10):
                place = tasks.start(str(number), _steps)
                seen.add(id(place))
                assert (place.scope is None) == (backend == "trio")
                await settle()
            assert backend != "trio" or len(seen) <= MOST

    run(main)


def test_cut_off_before_its_first_step(run: Run) -> None:
    async def main() -> None:
        async with field() as tasks:
            for _ in range(2):
                tasks.start("before", _steps)
                await settle()
                tasks.start("now").cancel()
                await settle()
                assert tasks.ended == ["before", "now"]
                tasks.ended.clear()

    run(main)


def test_who_shields_itself_is_waited_for(run: Run) -> None:
    async def main() -> None:
        go_on = anyio.Event()

        async def clean_up(place: Place) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await go_on.wait()
                    await _steps(place)

        async with field() as tasks:
            tasks.start("warm", _steps)
            await settle()
            place = tasks.start("a", clean_up)
            await settle()
            place.cancel()
            await settle()
            assert tasks.ended == ["warm"]
            tasks.start("b", _steps)
            await settle()
            go_on.set()
        assert tasks.ended == ["warm", "b", "a"]

    run(main)


def test_a_cancellation_from_outside_is_one_and_no_group(run: Run) -> None:
    async def main() -> None:
        seen: list[BaseException] = []
        with anyio.CancelScope() as outside:
            try:
                async with field() as tasks:
                    tasks.start("warm", _steps)
                    await settle()
                    for name in "abcde":
                        tasks.start(name)
                    await settle()
                    outside.cancel()
                    await anyio.sleep_forever()
            except BaseException as error:
                seen.append(error)
                raise
        assert outside.cancelled_caught and sorted(tasks.ended) == [*"abcde", "warm"]
        assert isinstance(seen[0], anyio.get_cancelled_exc_class())

    run(main)


def test_a_cancellation_while_they_are_joined_cuts_them_off(run: Run) -> None:
    async def main() -> None:
        with anyio.CancelScope() as outside:
            async with field() as tasks:

                async def later(place: Place) -> None:
                    await settle()
                    outside.cancel()
                    await anyio.sleep_forever()

                tasks.start("a", later)
                tasks.start("b")
        assert outside.cancelled_caught and sorted(tasks.ended) == ["a", "b"]

    run(main)


def test_an_error_of_the_block_cuts_them_off(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []
        with pytest.raises(BaseExceptionGroup) as caught:
            async with field() as tasks:
                ended = tasks.ended
                tasks.start("a")
                tasks.start("b")
                await settle()
                raise KeyError("fault")
        assert caught.group_contains(KeyError) and sorted(ended) == ["a", "b"]

    run(main)


def test_an_error_of_a_task_is_not_lost(run: Run) -> None:
    """Whether its place is a fresh one or not; and the others are cut off."""

    async def main() -> None:
        async def fail(place: Place) -> None:
            await anyio.lowlevel.checkpoint()
            raise KeyError("fault")

        for warm in (False, True):
            ended: list[str] = []
            with pytest.raises(BaseExceptionGroup) as caught:
                async with field() as tasks:
                    ended = tasks.ended
                    if warm:
                        tasks.start("warm", _steps)
                        await settle()
                    tasks.start("a", fail)
                    tasks.start("b")
                    await anyio.sleep_forever()
            assert caught.group_contains(KeyError) and {"a", "b"} <= set(ended)

    run(main)
