"""The transcript of a difference, as the page about it shows it; and the run that it shows."""

import re
from pathlib import Path

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import dispatch
from cronoq_sansio.engine import events as ev
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.sim.lockstep.world import Crashed, Divergence, World
from cronoq_sansio.spec import Priority
from tests.engine.harness import dep, spec

PAGE = Path(__file__).parents[3] / "docs" / "testing" / "model.md"


def plain(priority):
    return spec(pool="a", priority=priority, kind="")


def test_the_page_shows_what_happens(monkeypatch):
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setattr(dispatch, "AGING", 1)
    world = World(Settings(pools=(PoolSettings("a"),)))
    world.handle(ev.TaskSubmitted(1, plain(Priority.LOW)))
    world.wait(50 * SECOND)
    with pytest.raises(Divergence) as caught:
        world.handle(ev.TaskSubmitted(2, plain(Priority.NORMAL)), ev.GroupCapacitySet("a", (), 1))
    assert str(caught.value) == shown


def test_the_run_on_the_page_runs():
    (code,) = re.findall(r"```python\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})


def test_a_line_names_what_is_not_the_default():
    world = World(Settings(pools=(PoolSettings("a", await_unknown_dependencies=SECOND),)))
    asked = spec("k", pool="a", timeout=3 * SECOND, deadline_in=SECOND, deps=["p"], labels={"gpu": "x"}, tenant="red")
    world.handle(ev.TaskSubmitted(7, asked, True))
    line = (
        "+0 TaskSubmitted #7 a/normal key=k kind=kind timeout=3 10 bytes deadline_in=1 after 'p' ON_SUCCESS "
        "needs gpu=x tenant=red may wait"
    )
    assert world.lines[0].strip() == line


def test_a_crash_loses_what_was_not_committed_and_says_so():
    """The world itself must see that: an acknowledged task that a store does not have is a broken promise."""
    world = World(Settings(pools=(PoolSettings("a"),)))
    world.handle(ev.TaskSubmitted(1, plain(Priority.LOW)))
    world.crash()
    assert not world.model.tasks and "crashed" in world.lines[-1]
    world.handle(ev.TaskSubmitted(2, spec(pool="a", deps=[dep(1)])))
    assert world.lines[-1].split()[:2] == ["refused", "2"]
    world.promised.append(99)
    with pytest.raises(Divergence, match="an acknowledged task is lost"):
        world.do(Crashed(world.now, 0, world.settings))
