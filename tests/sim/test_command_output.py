"""The command where its output cannot be written as it is, where somebody interrupts it, and where less is shown."""

import os
import signal
import subprocess
import sys

import pytest

from cronoq_sansio.sim import __main__ as command
from tests.recording.recorded import Term
from tests.sim.bugs import at_once, failing
from tests.tidy.tree import ROOT

ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def shell(folder, line):
    return subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m cronoq_sansio.sim {line}"],
        cwd=folder,
        env=ENVIRON,
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.realtime
def test_nobody_to_complain_to(tmp_path):
    for line in ("--seed x 2>&-", "--seed x 2>/dev/full"):
        assert shell(tmp_path, line).returncode == 2
    for where in ("2>&-", "2>/dev/full"):
        done = shell(tmp_path, f"--seeds 2 --steps 20 --jobs 1 {where}")
        assert done.returncode == 0 and b"Nothing was broken." in done.stdout


# --- interrupts


@pytest.mark.realtime
@pytest.mark.parametrize("module", ["cronoq_sansio.sim.run", "selectors", "cronoq_sansio.sim.scenario.load"])
def test_an_interrupt_while_the_program_is_loaded(tmp_path, module):
    """It comes when that module is imported: the end is silent, and 130."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "def hook(event, arguments):\n"
        f"    if event == 'import' and arguments[0] == {module!r}:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "sys.addaudithook(hook)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "cronoq_sansio.sim", "--seeds", "1", "--steps", "1", "--jobs", "1"],
        cwd=tmp_path,
        env={**ENVIRON, "PYTHONPATH": os.pathsep.join([str(tmp_path), ENVIRON["PYTHONPATH"]])},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def interrupting(monkeypatch):
    monkeypatch.setattr(command.System, "show", lambda *_: signal.raise_signal(signal.SIGINT))


SCENARIO = """duration_s = 9
[[arrivals]]
name = "a"
rate_per_s = 5
duration = { mean_s = 0.1 }
[[workers]]
slots = 2
"""


def test_an_interrupted_scenario_has_a_report(sim, monkeypatch):
    (sim.folder / "s.toml").write_text(SCENARIO)
    whole = sim("--scenario", "s.toml", "--json")
    assert whole.code == 0 and whole.json["interrupted"] is False
    interrupting(monkeypatch)
    before = signal.getsignal(signal.SIGINT)
    done = sim("--scenario", "s.toml", "--json")
    assert done.code == 130 and done.json["interrupted"] is True
    assert done.json["stopped"].startswith("it was interrupted, after ")
    assert 0 < done.json["tasks"] < whole.json["tasks"]
    assert signal.getsignal(signal.SIGINT) is before
    assert done.json["classes"][0]["submitted"] <= done.json["tasks"]
    monkeypatch.setattr("cronoq_sansio.sim.scenario.run.PROGRESS", 2)
    done = sim("--scenario", "s.toml")
    assert done.code == 130 and done.out.startswith("STOPPED EARLY: it was interrupted, after 5 s. ")


def test_tasks_that_were_to_start_after_an_interrupt_do_not_count(sim, monkeypatch):
    (sim.folder / "s.toml").write_text(SCENARIO.replace("rate_per_s", "start_in_s = 3\ntolerance_s = 0\nrate_per_s"))
    whole = sim("--scenario", "s.toml", "--json").json
    interrupting(monkeypatch)
    monkeypatch.setattr("cronoq_sansio.sim.scenario.run.PROGRESS", 2)
    found = sim("--scenario", "s.toml", "--json").json
    (row,), (starts,) = found["classes"], found["fixed_starts"]
    assert 0 < row["submitted"] < found["tasks"] - row["refused"] and whole["tasks"] > found["tasks"]
    assert row["not_started"] == 0 or row["longest_not_started_s"] >= 0
    assert starts["due"] <= row["submitted"]


def test_an_interrupted_replay_of_a_recording_has_a_report(sim, monkeypatch):
    (sim.folder / "term.jsonl").write_text("".join(Term().end()))
    interrupting(monkeypatch)
    done = sim("--replay", "term.jsonl")
    assert done.code == 130 and done.out.startswith("interrupted after 0 steps with 0 events, line 2\n")
    assert "every step until here did what it did" in done.out


def test_an_interrupt_before_there_is_anything_to_report(sim, monkeypatch):
    (sim.folder / "s.toml").write_text(SCENARIO)
    monkeypatch.setattr(command, "read_toml", lambda _: signal.raise_signal(signal.SIGINT))
    done = sim("--scenario", "s.toml")
    assert (done.code, done.out) == (130, "")
    assert done.err == "Error: interrupted before there was anything to report\n"


# --- bounds


def test_more_processes_than_make_sense(sim, monkeypatch):
    monkeypatch.setattr(command, "cpus", lambda: 2)
    for more in ((), ("--plant", "all")):
        done = sim("--jobs", "9", "--seeds", "20", *more)
        assert done.code == 2 and done.err == "Error: --jobs is at most 8 here, 4 for each CPU, not 9\n"


def test_keys_with_endless_dots(sim):
    (sim.folder / "s.toml").write_text("a" + ".a" * 50_000 + " = 1\n")
    done = sim("--scenario", "s.toml")
    assert done.code == 2 and "more than 32 dots in one key (at line 1, column 1)" in done.err
    (sim.folder / "s.toml").rename(sim.folder / "c.toml")
    (sim.folder / "s.toml").write_text(f'config = "c.toml"\n{SCENARIO}')
    done = sim("--scenario", "s.toml")
    assert done.code == 2 and "c.toml is not valid TOML: more than 32 dots in one key" in done.err


def test_a_disk_that_is_full_keeps_no_half_trace(sim, monkeypatch):
    patch = failing(monkeypatch, at_once)
    opened = os.fdopen

    def full(number, mode, **options):
        file = opened(number, mode, **options)
        if mode == "w":
            monkeypatch.setattr(os, "fdopen", opened)
            file.close()
            raise OSError(28, "No space left on device")
        return file

    monkeypatch.setattr(os, "fdopen", full)
    done = sim("--seed", "0", "--steps", "5")
    patch.undo()
    assert "cannot be written: No space left on device" in done.out and not list(sim.folder.iterdir())
