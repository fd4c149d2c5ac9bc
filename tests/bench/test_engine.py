"""The engine's benchmark: what its loads do to an engine, and that every part still gives its figures."""

import json
import subprocess
import sys

import engine_bench
import pytest
from harness import cron_load, engine_figures, engine_load
from harness.engine_load import Load, block, label, park, using_everything
from harness.recurring_load import Timed

from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Dispatch, TaskMoved
from cronoq_sansio.engine.records import TaskInserted
from cronoq_sansio.spec import TaskStatus
from tests.tidy.tree import ROOT


@pytest.fixture
def tiny(monkeypatch):
    """Everything so small that a part takes a moment."""
    monkeypatch.setattr(engine_load, "SLICE", 32)
    monkeypatch.setattr(engine_load, "SLICES", 2)
    monkeypatch.setattr(engine_load, "REMEMBERED", 20)
    monkeypatch.setattr(engine_load, "relax_collector", lambda: None)
    monkeypatch.setattr(engine_figures, "relax_collector", lambda: None)
    monkeypatch.setattr(engine_figures, "MILLION", 2_000)
    monkeypatch.setattr(engine_figures, "ASIDE", 50)
    monkeypatch.setattr(engine_figures, "SCHEDULES", 60)
    monkeypatch.setattr(cron_load, "EXPRESSIONS", 40)


def steps(load, at_once, tasks=32):
    """The steps of a run, with everything that they hold."""
    engine = load.engine
    return [(events, engine.handle(events, engine.now + 1)) for events in load.steps(tasks, at_once)]


@pytest.mark.parametrize("at_once", [1, 16])
def test_every_event_of_a_plain_task_is_one_of_so_many_in_a_step(at_once):
    load = Load(engine_figures.engine(), waiting=5)
    done = steps(load, at_once)
    assert [{type(event) for event in events} for events, _ in done] == [
        {kind} for _ in range(32 // at_once) for kind in (ev.TaskSubmitted, ev.AttemptSucceeded, ev.LeasesReleased)
    ]
    assert {len(events) for events, _ in done} == {at_once}
    dispatched = [sum(type(action) is Dispatch for action in step.once_durable) for _, step in done]
    assert dispatched == [0, at_once, 0] * (32 // at_once)
    load.engine.check_invariants(None)
    assert (load.engine.totals.succeeded, load.engine.tasks.pending, load.engine.running) == (32, 5, 32)


@pytest.mark.parametrize("at_once", [1, 16])
def test_a_task_that_uses_everything_waits_for_its_parent_and_takes_its_unit(at_once):
    load = Load(engine_figures.engine(), using_everything, waiting=5)
    engine = load.engine
    engine.handle([ev.TransitionsWatched(True)], engine.now)
    for events, step in steps(load, at_once):
        moved = [action.status for action in step.once_durable if type(action) is TaskMoved]
        if type(events[0]) is ev.TaskSubmitted:
            assert [len(record.edges) for record in step.writes if type(record) is TaskInserted] == [1] * at_once
            assert moved == [TaskStatus.BLOCKED] * at_once
        elif type(events[0]) is ev.AttemptSucceeded:
            assert sorted(moved) == [TaskStatus.READY] * at_once + [TaskStatus.RUNNING] * at_once
    assert engine.resources._stocks["connections"].used == 32
    engine.check_invariants(None)


def test_a_run_notices_that_something_else_was_measured():
    load = Load(engine_figures.engine(), waiting=5)
    assert load.run(32, 16) > 0 and load.run(32, 1, check=True) > 0
    load.engine.handle([ev.DispatchHeld(True)], load.engine.now)
    with pytest.raises(AssertionError, match="not what was to be measured"):
        load.run(32, 16)


def test_what_waits_beside_a_load_never_starts():
    engine = engine_figures.engine()
    park(engine, 3)
    label(engine, 4)
    block(engine, 2)
    load = Load(engine, waiting=5)
    load.run(64, 1)
    said = engine.statistics()
    assert (said["parked"], said["demands"], said["blocked_tasks"], said["live_tasks"]) == (3, 1, 2, 9 + 5 + 32)
    engine.check_invariants(None)


def test_schedules_fire_while_tasks_pass():
    load = Timed(70)
    for at_once in (1, 16):
        load.fires = 0
        load.run(256, at_once)
        assert load.fires > 70 and load.firing > 0, "in more than one second"
    assert load.engine.recurring.dropped == dict.fromkeys(load.engine.recurring.dropped, 0)
    load.engine.check_invariants(None)


def test_after_settling_each_end_makes_it_forget_another_one():
    load = Load(engine_figures.engine()).settle()
    before = load.engine.tasks.retained()
    load.run(32, 1)
    assert before == load.engine.tasks.retained() == engine_load.REMEMBERED


def test_each_run_gets_its_slices_in_turn(monkeypatch):
    monkeypatch.setattr(engine_load, "SLICES", 3)
    turns = []

    def run(name, cost):
        return lambda tasks: turns.append((name, tasks)) or cost

    (one, two) = engine_load.in_turn([run("a", 1.0), run("b", 3.0)], 2)
    assert turns == [("a", engine_load.SLICE), ("b", engine_load.SLICE)] * 6
    assert one.costs == two.costs == (1.0, 3.0) and one.unit > 0


def test_ratios_compare_loads_of_the_same_round(monkeypatch, tiny):
    costs = iter([(2.0, 3.0), (4.0, 4.0)] * 2)
    fake = lambda runs, rounds: [engine_load.Round(1.0, next(costs)) for _ in range(rounds)]  # noqa: E731
    monkeypatch.setattr(engine_figures, "in_turn", fake)
    loads = {name: Load(engine_figures.engine(), waiting=2) for name in ("few", "million")}
    assert engine_figures.compared(loads, 2) == {"million.1": [1.5, 1.0], "million.16": [1.5, 1.0]}


def test_every_part_gives_its_figures_round_by_round(tiny):
    found = {}
    for name, part in engine_figures.PARTS.items():
        figures = part(2)
        assert not figures.keys() & found.keys(), name
        found |= figures
    assert set(found) == set(engine_figures.ABOUT)
    for name, rounds in found.items():
        assert len(rounds) == (1 if name == "kib_per_waiting_task" else 2), name
        assert name.startswith(("checks.", "kib")) or min(rounds) > 0, name


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_what_the_process_grows_by():
    """In a process of its own; the bound is far from what is measured, in either direction."""
    script = "from harness.engine_load import memory; print(memory(20_000))"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'bench'}"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert 0.2 < float(ran.stdout) < 3


def test_each_part_is_a_process_that_prints_its_rounds(monkeypatch, capsys, tiny):
    def run(command, **options):
        monkeypatch.setattr(sys, "argv", command[1:])
        assert command[1] == engine_bench.__file__ and options["check"]
        engine_bench.main()
        return subprocess.CompletedProcess(command, 0, capsys.readouterr().out)

    monkeypatch.setattr(subprocess, "run", run)
    found = engine_bench.part("checks", 3)
    assert len(found) == 4 and {len(rounds) for rounds in found.values()} == {3}


def test_some_parts_are_shown_as_a_table_or_as_json(monkeypatch, capsys):
    figures = {
        "memory": {"kib_per_waiting_task": [0.6]},
        "million": {"million.1": [1.0, 1.2], "million.16": [2.0, 3.0]},
    }
    monkeypatch.setattr(engine_bench, "part", lambda name, rounds: figures[name])
    monkeypatch.setattr(sys, "argv", ["engine_bench.py", "--parts", "million,memory"])
    engine_bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["million.1", "1.10"],
        ["million.16", "2.50"],
        ["kib_per_waiting_task", "0.60"],
    ]
    monkeypatch.setattr(sys, "argv", ["engine_bench.py", "--parts", "million,memory", "--json"])
    engine_bench.main()
    assert json.loads(capsys.readouterr().out) == figures["million"] | figures["memory"]


def test_an_unknown_part_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["engine_bench.py", "--parts", "tasks,nothing"])
    with pytest.raises(SystemExit):
        engine_bench.main()
    assert "unknown parts: nothing" in capsys.readouterr().err


def test_the_results_have_every_figure_and_every_round():
    data = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    assert data["engine"].keys() == engine_figures.ABOUT.keys()
    lengths = {name: len(rounds) for name, rounds in data["engine"].items()}
    assert lengths.pop("kib_per_waiting_task") == 1 and set(lengths.values()) == {data["imports"]["rounds"]}
