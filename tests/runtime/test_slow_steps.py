"""A step that takes long is told, and is blamed for the lateness that it caused; the host is for what it caused."""

import re
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime import driver, slow_steps
from cronoq_sansio.engine.events import Stalled
from tests.runtime.fakes import Say, Stage, Write


class Times:
    """The two counters, turned by hand: seconds that went by, and how many of them the processor worked for us."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = self.worked = 0.0
        monkeypatch.setattr(driver, "perf_counter_ns", lambda: round(self.passed * 1e9))
        monkeypatch.setattr(slow_steps, "thread_time_ns", lambda: round(self.worked * 1e9))

    def go(self, passed: float, worked: float) -> None:
        self.passed += passed
        self.worked += worked


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


@pytest.fixture
async def stage(nursery: trio.Nursery, times: Times, mock_clock: MockClock) -> AsyncIterator[Stage]:
    """Whoever says "0.3 0.2" takes 0.3 s, for 0.2 s of which the processor works."""
    stage = Stage()
    stage.store.auto = lambda _batch: None

    def take(text: str) -> None:
        passed, worked = map(float, text.split())
        times.go(passed, worked)
        mock_clock.jump(passed)

    stage.performer.on_say = take
    nursery.start_soon(stage.run)
    await stage.settle()
    yield stage
    nursery.cancel_scope.cancel()


def told(capsys: pytest.CaptureFixture[str], words: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line for line in plain.splitlines() if words in line]


async def test_a_slow_step_is_told_with_the_kinds_of_its_events(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.driver.handle([Say("0.3 0.3"), Say("0 0"), Write("a secret", 9)])
    (line,) = told(capsys, "one step took")
    assert "[warning" in line and "one step took 0.30 s" in line and "events=3" in line
    assert "2 × Say, Write" in line and "secret" not in line and "large batches, lists or many calls at once" in line


async def test_the_step_that_was_slow_is_named_and_not_the_one_after_it(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.performer.answers["0.3 0.3"] = [Write("later")]
    stage.driver.handle([Say("0.3 0.3")])
    (line,) = told(capsys, "one step took")
    assert "kinds=Say" in line and "events=1" in line


async def test_quick_steps_are_not_told_however_many(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):
        stage.driver.handle([Say("0.25 0.25")])
    assert told(capsys, "one step") == []


async def test_slow_steps_are_told_every_ten_seconds(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(42):
        stage.driver.handle([Say("0.5 0.5")])
    assert len(told(capsys, "one step")) == 3, "at 0.5, 10.5 and 20.5 s"


@pytest.mark.parametrize(
    ("text", "blamed", "acquitted"),
    [
        ("3 2.9", "not the host's load: one step of the server took 2.90 s with Say", "look at"),
        ("3 0.01", "look at the host's load", "one step"),
        ("0 0", "look at the host's load", "one step"),
    ],
    ids=["the step worked", "the step was stopped", "no step"],
)
async def test_lateness_is_blamed_on_what_caused_it(
    stage: Stage, mock_clock: MockClock, capsys: pytest.CaptureFixture[str], text: str, blamed: str, acquitted: str
) -> None:
    stage.driver.handle([Say(text)])
    mock_clock.jump(1)
    await stage.settle()
    (line,) = told(capsys, "the process could not run")
    assert blamed in line and acquitted not in line
    assert [type(event) for event in stage.machine.seen] == [Stalled], "excused all the same"


@pytest.mark.parametrize(
    ("worked", "blamed"),
    [(2.9, "the server itself was busy"), (1.4, "look at the host's load"), (0.0, "look at the host")],
)
def test_what_was_done_in_quick_steps_and_beside_them_counts_together(times: Times, worked: float, blamed: str) -> None:
    steps = slow_steps.SlowSteps()
    times.go(10, 10)
    steps.forget()
    times.go(3, worked)
    assert blamed in steps.remedy(3_000_000_000)


async def test_a_step_is_not_blamed_for_what_comes_after_its_own_lateness(
    stage: Stage, mock_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.driver.handle([Say("3 3")])
    await stage.settle()
    assert len(told(capsys, "not the host's load")) == 1
    mock_clock.jump(3)
    await stage.settle()
    (line,) = told(capsys, "the process could not run")
    assert "look at the host's load" in line
