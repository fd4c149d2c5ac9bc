"""When calls that look at much have their turns: one at once, the others after pauses, and whoever fails is alone."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from cronoq._runtime.clock import Clock
from cronoq._runtime.faults import TermEnded
from cronoq._runtime.looks import Looks
from cronoq_sansio.limits import LOOK_SHARE

COST = 0.02
PAUSED = LOOK_SHARE * COST  #: seconds from one turn to the next


class FakeConnection:
    """Has looks that cost time."""

    def __init__(self, clock: MockClock, had: list[tuple[str, float]], name: str, count: int) -> None:
        self._clock = clock
        self._had = had
        self._name = name
        self.count = count
        self.error: Exception | None = None
        self.ends: list[object] = []
        self._began = trio.current_time()

    def look(self) -> bool:
        self._had.append((self._name, round(trio.current_time() - self._began, 3)))
        self._clock.jump(COST)
        self.count -= 1
        if self.error is not None:
            raise self.error
        return self.count > 0

    def finish(self) -> None:
        self.ends.append("finish")

    def fail(self, error: Exception) -> None:
        self.ends.append(error)


class Scene:
    """Turns on the clock of the test."""

    def __init__(self, clock: MockClock) -> None:
        self._mock = clock
        self.looks = Looks(Clock(trio.current_time, lambda: 0))
        self.had: list[tuple[str, float]] = []

    def arrive(self, name: str, count: int = 1) -> FakeConnection:
        connection = self.connection(name, count)
        self.looks.arrived(connection)  # type: ignore[arg-type]
        return connection

    def connection(self, name: str, count: int = 1) -> FakeConnection:
        return FakeConnection(self._mock, self.had, name, count)


@pytest.fixture
async def scene(autojump_clock: MockClock, nursery: trio.Nursery) -> AsyncIterator[Scene]:
    scene = Scene(autojump_clock)
    nursery.start_soon(scene.looks.run)
    yield scene
    nursery.cancel_scope.cancel()


async def test_a_lone_one_waits_for_nobody(autojump_clock: MockClock, scene: Scene) -> None:
    for _ in range(3):
        scene.arrive("a")
        assert scene.had.pop() == ("a", 0)
        await trio.sleep(PAUSED)


async def test_the_next_ones_have_turns_after_pauses(autojump_clock: MockClock, scene: Scene) -> None:
    scene.arrive("a", 3)
    assert scene.had == [("a", 0)]
    await trio.sleep(0.01)
    begun = trio.current_time()
    scene.arrive("b", 2)
    await trio.sleep(1)
    assert [name for name, _ in scene.had] == ["a", "a", "b", "a", "b"]
    assert trio.current_time() - begun >= 1
    times = [when for name, when in scene.had if name == "a"]
    assert times == pytest.approx([0, PAUSED, 3 * PAUSED], abs=0.001)


async def test_what_comes_of_a_turn_later_belongs_to_it(autojump_clock: MockClock, scene: Scene) -> None:
    scene.arrive("a", 2)
    scene.looks.spent(round(COST * 1e9))
    await trio.sleep(1)
    assert scene.had == [("a", 0), ("a", 2 * PAUSED)]


async def test_whoever_has_left_has_no_turn(autojump_clock: MockClock, scene: Scene) -> None:
    scene.arrive("a", 2)
    gone = scene.arrive("b")
    scene.looks.leave(gone)  # type: ignore[arg-type]
    await trio.sleep(1)
    assert [name for name, _ in scene.had] == ["a", "a"]


@pytest.mark.parametrize("error", [TermEnded("over"), KeyError("a bug")])
async def test_a_turn_that_fails_ends_that_connection(
    autojump_clock: MockClock, scene: Scene, error: Exception
) -> None:
    scene.arrive("a")
    failing = scene.connection("b", 3)
    failing.error = error
    scene.looks.arrived(failing)  # type: ignore[arg-type]
    scene.arrive("c")
    await trio.sleep(1)
    assert [name for name, _ in scene.had] == ["a", "b", "c"]
    assert failing.ends == (["finish"] if isinstance(error, TermEnded) else [error])


async def test_the_reader_sees_its_own_fault(autojump_clock: MockClock, scene: Scene) -> None:
    failing = scene.connection("a")
    failing.error = TermEnded("over")
    with pytest.raises(TermEnded):
        scene.looks.arrived(failing)  # type: ignore[arg-type]
