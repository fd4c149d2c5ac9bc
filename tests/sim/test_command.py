"""`python -m cronoq_sansio.sim`: what it runs, how it ends, what it writes, and planted bugs."""

import re
import stat
import time

import pytest

from cronoq_sansio.sim import __main__ as command
from cronoq_sansio.sim import trace
from cronoq_sansio.sim.failure import Kind
from cronoq_sansio.sim.faults import Coverage
from cronoq_sansio.sim.plants import PLANTS
from cronoq_sansio.sim.plants.planting import Plant
from cronoq_sansio.sim.run import Outcome
from cronoq_sansio.sim.seeds import Played
from tests.sim.bugs import at_once, failing, on_lost_reports, plant


def quick(play):
    """A seed that nothing is done for."""
    return Played(Outcome(play.seed, "server", play.steps, 100, f"{play.seed:016x}", Coverage()), 0.001, 100.0)


# --- runs


def test_seeds_until_there_are_enough(sim):
    assert sim("--seeds", "7", "--json", play=quick).json["seeds"] == 7
    assert (
        sim("--seed", "7", "--json", play=quick).json["hash"] != sim("--seed", "8", "--json", play=quick).json["hash"]
    )


def test_events_until_there_are_enough(sim):
    found = sim("--events", "950", "--json", play=quick).json
    assert (found["seeds"], found["events"]) == (10, 1_000)
    assert sim("--events", "950", "--seeds", "3", "--json", play=quick).json["seeds"] == 3


def test_a_budget_ends_a_run_without_end(sim, monkeypatch):
    now = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    found = sim("--budget", "40", "--json", "--quiet", play=quick).json
    assert 5 < found["seeds"] < 41 and found["exit_code"] == 0


def test_every_seed_twice(sim):
    calls = []

    def other_at_the_third_seed(play):
        calls.append(play.seed)
        result = quick(play)
        if calls.count(2) == 2:
            result.outcome.hash = "0"
        return result

    def same(play):
        calls.append(play.seed)
        return quick(play)

    assert sim("--seeds", "4", play=same).code == 0 and sorted(calls) == [0, 0, 1, 2, 3]
    calls.clear()
    assert sim("--seeds", "4", "--twice", play=same).code == 0 and sorted(calls) == [0, 0, 1, 1, 2, 2, 3, 3]
    calls.clear()
    done = sim("--seeds", "4", "--twice", play=other_at_the_third_seed)
    assert done.code == 5 and "DIVERGENCE: the same seed in two processes is not the same run" in done.out
    assert "python -m cronoq_sansio.sim --seed 2 --twice" in done.out and not list(sim.folder.iterdir())


def test_the_first_seed_runs_in_another_process_too(sim):
    done = sim("--seeds", "2", "--world", "lockstep", "--steps", "80", "--jobs", "1", "--json", play=None)
    assert done.code == 0 and done.json["seeds_compared"] == 1


@pytest.fixture
def broken(monkeypatch):
    patch = failing(monkeypatch, on_lost_reports)
    yield
    patch.undo()


def test_a_failure_with_its_trace_and_its_short_one(sim, broken):
    done = sim("--seeds", "4", "--steps", "200", "--world", "server")
    assert done.code == 3
    assert "SAFETY: a rule of the tests" in done.out and "what happened in the short one:" in done.out
    again = re.search(r"again:  python -m cronoq_sansio\.sim (.*)", done.out)[1].split()
    long = next(path for path in sim.folder.iterdir() if "short" not in path.name)
    short = next(path for path in sim.folder.iterdir() if "short" in path.name)
    assert len(list(sim.folder.iterdir())) == 2, "one for failures that are alike"
    for path in (long, short):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.name in done.out
    steps = [len(trace.decode(path.read_text()).trace.steps) for path in (short, long)]
    assert steps[0] < steps[1]
    assert sim(*again).code == 3
    for path in (long, short):
        replayed = sim("--replay", str(path))
        assert replayed.code == 3
        assert "The replay came to the hash and to the end that the trace carries." in replayed.out
        assert f"\n  hash {trace.decode(path.read_text()).trace.hash}\n" in replayed.out
        assert "SAFETY: a rule of the tests" in replayed.out and "what happened:" in replayed.out


def test_shrinking_is_as_it_was_asked_for(sim, broken):
    sim("--seeds", "4", "--steps", "200", "--world", "server", "--no-shrink")
    (path,) = sim.folder.iterdir()
    done = sim("--replay", path.name, "--shrink", "--trace-dir", ".")
    assert done.code == 3 and "what happened in the short one:" in done.out
    assert {found.name for found in sim.folder.iterdir()} == {path.name, f"{path.stem}-short.json"}


@pytest.mark.parametrize(("kind", "code"), [(Kind.SAFETY, 3), (Kind.LIVENESS, 4), (Kind.DIVERGENCE, 5)])
def test_the_kind_of_a_failure_is_the_exit_code(sim, monkeypatch, kind, code):
    patch = failing(monkeypatch, at_once, kind)
    done = sim("--seed", "0", "--steps", "5", "--no-shrink", "--json")
    patch.undo()
    assert done.code == done.json["exit_code"] == code
    assert done.json["failures"][0]["kind"] == kind.name.lower()


def test_a_trace_of_a_bug_that_is_gone(sim, monkeypatch):
    """The same program must fail again; another one may not."""
    patch = failing(monkeypatch, at_once)
    sim("--seed", "0", "--steps", "5", "--no-shrink")
    patch.undo()
    (path,) = sim.folder.iterdir()
    done = sim("--replay", path.name)
    assert done.code == 5 and "DIVERGENCE: the replay of a trace is not the same run" in done.out
    assert "expected, by the file:  hash " in done.out and "no failure" in done.out
    assert done.out.endswith("\n1 seed failed.\n") and "0 steps" not in done.out
    assert '"hash": "" into the file' in done.out
    text = path.read_text()
    path.write_text(re.sub(r'"code": "\w+"', '"code": "0123"', text))
    done = sim("--replay", path.name)
    assert done.code == 0 and "Another version of the program wrote the trace" in done.out
    path.write_text(re.sub(r'"hash": "\w+"', '"hash": ""', text))
    done = sim("--replay", path.name)
    assert done.code == 0 and "The trace carries no hash to compare." in done.out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "Error: x.json cannot be read: No such file or directory"),
        (b"", "Error: x.json is neither a trace of a failed seed nor a recording"),
        (b"\xff\xfe", "Error: x.json is no text: byte 0 is not UTF-8"),
        (b'{"format": "cronoq-simulation-trace"}', "Error: x.json, line 1: the trace lacks 'version'"),
    ],
)
def test_files_that_cannot_be_played(sim, content, sentence):
    if content is not None:
        (sim.folder / "x.json").write_bytes(content)
    done = sim("--replay", "x.json")
    assert done.code == 2 and done.err.startswith(sentence) and not done.out


def test_a_folder_for_traces_that_is_none(sim):
    done = sim("--trace-dir", "nowhere")
    assert done.code == 2 and done.err == "Error: --trace-dir nowhere is no directory\n"


def test_a_trace_that_cannot_be_written(sim, monkeypatch):
    patch = failing(monkeypatch, at_once)
    monkeypatch.setattr(command.tempfile, "mkstemp", lambda **_: (_ for _ in ()).throw(OSError(28, "No space left")))
    done = sim("--seed", "0", "--steps", "5")
    patch.undo()
    assert (
        done.code == 3 and "Broken off: the trace cronoq-sim-seed-0.json cannot be written: No space left" in done.out
    )


# --- planted bugs


def test_a_planted_bug_is_found(sim, monkeypatch):
    name = plant(monkeypatch, "loses", on_lost_reports)
    done = sim("--plant", name, "--steps", "200", "--world", "server")
    assert done.code == 0 and done.out.endswith("1 of 1 planted bugs found.\n")
    assert "SAFETY: a rule of the tests" in done.out
    again = re.search(r"again:  python -m cronoq_sansio\.sim (.*)", done.out)[1].split()
    (long,) = [path for path in sim.folder.iterdir() if "short" not in path.name]
    assert long.name.endswith("-loses.json")
    assert sim(*again).code == 0
    assert sim("--replay", long.name).code == 3


def test_a_planted_bug_that_is_not_found(sim, monkeypatch):
    name = plant(monkeypatch, "hides", lambda world: False)
    done = sim("--plant", name, "--steps", "5", "--seeds", "3", "--json")
    assert done.code == 6
    (row,) = done.json["plants"]
    assert (row["found"], row["seeds"]) == (False, 3)


def test_what_fails_without_the_planted_bug_has_not_found_it(sim, monkeypatch):
    patch = failing(monkeypatch, at_once)
    monkeypatch.setitem(PLANTS, "nothing", Plant("nothing", "No bug at all.", lambda patch: None))
    done = sim("--plant", "nothing", "--steps", "5", "--no-shrink")
    patch.undo()
    assert done.code == 3 and "FAILS WITHOUT THE BUG TOO" in done.out


def test_all_planted_bugs(sim, monkeypatch):
    names = [plant(monkeypatch, "one", at_once), plant(monkeypatch, "two", lambda world: False)]
    monkeypatch.setattr(command, "PLANTS", {name: PLANTS[name] for name in names})
    done = sim("--plant", "all", "--steps", "5", "--seeds", "2")
    assert done.code == 6 and "1 of 2 planted bugs found." in done.out and not list(sim.folder.iterdir())
