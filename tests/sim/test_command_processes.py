"""The command as processes: how many there are does not matter, one that dies is told of, an early end has a report."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cronoq_sansio.sim import __main__ as command
from cronoq_sansio.sim.seeds import Play
from tests.tidy.tree import ROOT

BOUND = 30.0
"""Seconds after which a process hangs."""


def same_parts(found):
    """What must not depend on how many processes there are."""
    return {key: found[key] for key in found if key not in ("seconds", "jobs", "us_per_event", "yardsticks_per_event")}


def test_the_report_does_not_depend_on_the_number_of_processes(sim):
    arguments = ("--seeds", "6", "--steps", "80", "--json", "--no-shrink")
    one, two = (sim(*arguments, "--jobs", jobs, play=None) for jobs in ("1", "2"))
    assert one.code == two.code and two.json["jobs"] == 2
    assert same_parts(one.json) == same_parts(two.json)


def seeds(count, first=0):
    return [Play(first + number, 4, (), "", "") for number in range(count)]


def test_results_come_in_the_order_of_the_seeds_and_nothing_is_left_of_a_run_that_was_dropped():
    with command.Processes(2, 1) as processes:
        dropped = processes(seeds(50), lambda: None)
        assert [next(dropped).outcome.seed for _ in range(3)] == [0, 1, 2]
        dropped.close()
        assert [result.outcome.seed for result in processes(seeds(5, 100), lambda: None)] == [100, 101, 102, 103, 104]


def test_a_process_that_died_is_told_of():
    with command.Processes(2, 1) as processes:
        results = processes(seeds(100_000), lambda: None)
        next(results)
        processes._workers[1]._process.kill()
        with pytest.raises(command.Broken, match=r"a process was ended by signal 9 with seed \d+"):
            for _ in results:
                pass


def test_a_process_says_why_it_ended():
    with (
        command.Processes(1, 1) as processes,
        pytest.raises(command.Broken, match=r"ended with 1 with seed 7 .*no-such-bug"),
    ):
        list(processes([Play(7, 4, (), "no-such-bug", "")], lambda: None))


def test_a_broken_run_ends_with_1(sim, monkeypatch):
    def broken(play):
        raise command.Broken("a process was ended by signal 9")

    done = sim("--seeds", "3", "--json", play=broken)
    assert done.code == 1 and done.json["broken"] == "a process was ended by signal 9"


# --- what people see


class Terminal:
    """The real command; its stderr is a terminal, its stdout a file."""

    def __init__(self, folder, *arguments):
        pty = pytest.importorskip("pty")
        self.master, slave = pty.openpty()
        self.out = folder / "out"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cronoq_sansio.sim", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stdout=out,
                stderr=slave,
                start_new_session=True,
            )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def until(self, done):
        end = time.monotonic() + BOUND
        while not done():
            assert time.monotonic() < end, self.text[-500:]
            try:
                self.text += os.read(self.master, 65_536).decode()
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # the other side is closed
                assert done() or self.process.wait(BOUND) is not None
                break


@pytest.mark.realtime
@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, "2"), (signal.SIGINT, "1"), (signal.SIGTERM, "2")])
def test_progress_on_a_terminal_and_an_early_end(tmp_path, number, jobs):
    with Terminal(tmp_path, "--budget", "600", "--world", "lockstep", "--steps", "200", "--jobs", jobs) as terminal:
        terminal.until(lambda: re.search(r"[1-9]\d* seeds  [\d,]+ events  [\d,]+/s  no failure", terminal.text))
        children = set(children_of(terminal.process.pid))
        terminal.process.send_signal(number)
        terminal.until(lambda: terminal.process.poll() is not None)
        assert terminal.process.wait(BOUND) == 130
        assert "Traceback" not in terminal.text and "\r[" in terminal.text
        out = terminal.out.read_text()
        assert "Interrupted: this is what was found until then." in out
        assert int(re.match(r"([\d,]+) seeds? from 0", out)[1].replace(",", "")) > 0
        assert children and not [child for child in children if is_there(child)]


def children_of(pid):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if int(line.split()[1]) == pid]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_where_nobody_watches_there_is_a_line_now_and_then(sim, monkeypatch):
    shown = command.Shown(quiet=False, clock=iter([0.0, 10.0, 29.0, 31.0, 40.0, 62.0]).__next__)
    for _ in range(5):
        shown.show(lambda now: f"at {now}")
    shown.clear()
    assert sim("--help").err == "at 31.0\nat 62.0\n"


def test_nothing_is_shown_when_it_is_to_be_quiet(sim):
    shown = command.Shown(quiet=True, clock=iter([0.0, 100.0]).__next__)
    shown.show(lambda now: "line")
    assert sim("--help").err == ""


@pytest.mark.realtime
def test_a_reader_that_goes_away(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "cronoq_sansio.sim", "--seed", "0", "--steps", "10"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(BOUND) == 141 and process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "redirect", "words", "code"),
    [
        (("--seed", "0", "--steps", "10"), ">/dev/full", "the report cannot be written: No space left", 1),
        (("--help",), ">/dev/full", "the report cannot be written: No space left", 1),
        (("--seed", "0", "--steps", "10"), ">&-", "the report cannot be written: stdout is closed", 1),
        (("--seed", "0", "--steps", "600", "--no-shrink", "--quiet", "--plant", "no-such"), "2>&-", "", 2),
    ],
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_report_that_cannot_be_written(tmp_path, arguments, redirect, words, code):
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "cronoq_sansio.sim", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr


def test_an_old_locale_loses_nothing_but_the_looks_of_a_character(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cronoq_sansio.sim", "--seed", "0", "--steps", "50"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0 and rb"\xb5s of a core" in done.stdout


ARGUMENTS = ("--seeds", "4", "--steps", "150", "--jobs", "1", "--json", "--quiet", "--no-shrink")


@pytest.mark.realtime
def test_the_same_in_two_processes_from_the_outside(tmp_path):
    """Names hash in another way in each of them, and nothing of the report may depend on that."""
    found = []
    for number in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "cronoq_sansio.sim", *ARGUMENTS],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=False,
            timeout=BOUND,
        )
        found.append(same_parts(json.loads(done.stdout)))
    assert found[0] == found[1] and found[0]["seeds"] == 4 and found[0]["exit_code"] != 5
