"""`python -m cronoq_sansio.sim`: arguments, exit codes, files, processes, and what people see."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time

import pytest

from cronoq_sansio.sim import __main__ as command
from cronoq_sansio.sim import trace
from cronoq_sansio.sim.arguments import (
    EXIT_CODES,
    MAX_SEED,
    OPTIONS,
    PLANT_SEEDS,
    SEEDS,
    UsageError,
    command_of,
    fault_list,
    fault_words,
    help_text,
    parse,
)
from cronoq_sansio.sim.failure import Kind
from cronoq_sansio.sim.faults import Coverage
from cronoq_sansio.sim.planting import Patch
from cronoq_sansio.sim.plants import PLANTS
from cronoq_sansio.sim.run import ALL_FAULTS, Outcome
from cronoq_sansio.sim.seeds import Play, Played
from tests.sim.bugs import at_once, on_lost_reports, plant
from tests.tidy.tree import ROOT

BOUND = 30.0
"""Seconds after which a process hangs."""
NAMES = ("some-bug", "other-bug")


class Done:
    """A command that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def sim(tmp_path, monkeypatch, capsys):
    """The command in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, play=command.measured):
        code = command.main(arguments, play)
        return Done(code, *capsys.readouterr())

    run.folder = tmp_path
    return run


def quick(play):
    """A seed that nothing is done for."""
    return Played(Outcome(play.seed, "server", play.steps, 100, f"{play.seed:016x}", Coverage()), 0.001, 100.0)


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--sed 3", "there is no option --sed; did you mean --seed?"),
        ("--xyzzy", "there is no option --xyzzy, see --help"),
        ("-x", "there is no option -x, see --help"),
        ("17", "'17' stands alone; every value follows an option, see --help"),
        ("--seed", "--seed needs a value: --seed N"),
        ("--seed --seeds 3", "--seed needs a value: --seed N"),
        ("--seed=", "--seed needs a value, here it is empty"),
        ("--seed -1", f"--seed is an integer from 0 to {MAX_SEED:,}, not '-1'"),
        ("--seed 1.5", f"--seed is an integer from 0 to {MAX_SEED:,}, not '1.5'"),
        ("--seed ²", f"--seed is an integer from 0 to {MAX_SEED:,}, not '²'"),
        (f"--seed {MAX_SEED} --seeds 2", f"--seed {MAX_SEED} leaves no room for the seeds after it: at most "),
        ("--seed 1 --seed 2", "--seed is given twice"),
        ("--seeds 0", "--seeds is an integer from 1 to 10,000,000, not '0'"),
        ("--steps 200001", "--steps is an integer from 1 to 200,000, not '200001'"),
        ("--jobs 0", "--jobs is an integer from 1 to 256, not '0'"),
        ("--events x", "--events is an integer from 1 to"),
        ("--budget 0", "--budget is a number of seconds above 0 and up to 604,800, not '0'"),
        ("--budget inf", "--budget is a number of seconds above 0 and up to 604,800, not 'inf'"),
        ("--world moon", "--world is one of all, server, lockstep, isolation, not 'moon'"),
        ("--coverage all", "--coverage is one of kinds, pairs, off, not 'all'"),
        ("--faults zombi", "--faults: there is no kind of fault 'zombi'; did you mean zombie?"),
        ("--faults 1234", "--faults: there is no kind of fault '1234'; `--faults list` shows them"),
        ("--faults zombie,", "--faults: there is no kind of fault ''; `--faults list` shows them"),
        ("--plant some-bag", "--plant: there is no planted bug 'some-bag'; did you mean 'some-bug'?"),
        ("--plant x", "--plant: there is no planted bug 'x'; `--plant list` shows them"),
        ("--json=1", "--json takes no value, here it has '1'"),
        ("--shrink --no-shrink", "--shrink and --no-shrink say the opposite; give one of them"),
        ("--replay x --seed 3", "--seed cannot be given with --replay"),
        ("--replay x --plant some-bug", "--plant cannot be given with --replay"),
        ("--plant all --twice", "--twice cannot be given with --plant"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, sentence):
    with pytest.raises(UsageError) as caught:
        parse(arguments.split(), NAMES)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def test_a_wrong_command_line_ends_with_2(sim):
    done = sim("--seeds", "0")
    assert (done.code, done.out) == (2, "") and done.err.startswith("Error: --seeds is an integer")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {"seed": 0, "seeds": SEEDS, "jobs": None, "shrink": None, "faults": ALL_FAULTS, "mode": "run"}),
        ("--seed 17", {"seed": 17, "seeds": 1}),
        ("--seed=1_000 --seeds 5", {"seed": 1000, "seeds": 5}),
        ("--budget 1.5", {"budget": 1.5, "seeds": None}),
        ("--budget 2 --seeds 9", {"budget": 2.0, "seeds": 9}),
        ("--events 50_000_000", {"events": 50_000_000, "seeds": None}),
        ("--plant some-bug", {"mode": "plant", "plant": "some-bug", "seeds": PLANT_SEEDS}),
        ("--plant all --budget 5", {"plant": "all", "seeds": PLANT_SEEDS}),
        ("--world lockstep", {"world": "lockstep"}),
        ("--world all", {"world": ""}),
        ("--faults none", {"faults": ()}),
        ("--faults -zombie", {"faults": tuple(name for name in ALL_FAULTS if name != "zombie")}),
        ("--shrink", {"shrink": True}),
        ("--no-shrink", {"shrink": False}),
        ("--replay x --shrink --json --quiet", {"mode": "replay", "file": "x", "json": True, "quiet": True}),
        ("--help", {"show": "help"}),
        ("-h --version", {"show": "help"}),
        ("--version", {"show": "version"}),
        ("--faults list", {"show": "faults"}),
        ("--plant list", {"show": "plants"}),
    ],
)
def test_what_is_meant(arguments, expected):
    options = parse(arguments.split(), NAMES)
    assert {name: getattr(options, name) for name in expected} == expected


def test_lists_of_faults():
    assert fault_list("report-lost, Clock_Step,take-over") == ("report lost", "clock step", "take-over")
    assert fault_list("zombie,all,-zombie") == fault_list("-zombie")
    assert fault_list("all") == ALL_FAULTS and fault_list("none") == ()
    for some in ((), ALL_FAULTS, ALL_FAULTS[1:], ALL_FAULTS[:2], ALL_FAULTS[::2]):
        assert fault_list(fault_words(some)) == some


@pytest.mark.parametrize(
    "arguments",
    ["--seed 5", "--seed 5 --steps 100 --faults -zombie --world server", "--seed 5 --faults none"],
)
def test_the_command_for_one_seed_means_the_same_run(arguments):
    first = parse(arguments.split(), NAMES)
    again = parse(command_of(5, first), NAMES)
    for name in ("seed", "steps", "faults", "world", "seeds"):
        assert getattr(again, name) == getattr(first, name)


def test_the_help_names_everything(sim):
    done = sim("--help")
    assert done.code == 0 and done.out == help_text()
    for option in OPTIONS:
        assert f"  {f'{option.name} {option.word}'.strip()} " in done.out
    for code in EXIT_CODES:
        assert re.search(rf"^  {code} ", done.out, re.MULTILINE)
    assert max(map(len, done.out.splitlines())) <= 120


def test_what_is_listed(sim):
    assert "zombie" in sim("--faults", "list").out
    assert "bugs that can be planted" in sim("--plant", "list").out
    assert re.fullmatch(r"cronoq-trio \S+( \S+ \S+)?, code [0-9a-f]{16}\n", sim("--version").out)


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
    done = sim("--seeds", "2", "--steps", "50", "--jobs", "1", "--json", play=None)
    assert done.code == 0 and done.json["seeds_compared"] == 1


def failing(monkeypatch, breaks, kind=Kind.SAFETY):
    """Every run of this test has the bug, not only those that plant it."""
    name = plant(monkeypatch, "test-bug", breaks, kind)
    patch = Patch()
    PLANTS[name].apply(patch)
    return patch


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
    assert 'writes "hash": "" into it' in done.out
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
        (b"", "Error: x.json is no trace of a failed seed"),
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
    name = plant(monkeypatch, "hides", lambda world: False)
    done = sim("--plant", name, "--steps", "5", "--no-shrink")
    patch.undo()
    assert done.code == 3 and "FAILS WITHOUT THE BUG TOO" in done.out


def test_all_planted_bugs(sim, monkeypatch):
    names = [plant(monkeypatch, "one", at_once), plant(monkeypatch, "two", lambda world: False)]
    monkeypatch.setattr(command, "PLANTS", {name: PLANTS[name] for name in names})
    done = sim("--plant", "all", "--steps", "5", "--seeds", "2")
    assert done.code == 6 and "1 of 2 planted bugs found." in done.out and not list(sim.folder.iterdir())


# --- processes


def same_parts(found):
    """What must not depend on how many processes there are."""
    return {key: found[key] for key in found if key not in ("seconds", "jobs", "us_per_event", "yardsticks_per_event")}


def test_the_report_does_not_depend_on_the_number_of_processes(sim):
    arguments = ("--seeds", "6", "--steps", "80", "--json")
    one, two = (sim(*arguments, "--jobs", jobs, play=None) for jobs in ("1", "2"))
    assert one.code == two.code == 0 and two.json["jobs"] == 2
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
    with Terminal(tmp_path, "--budget", "600", "--steps", "100", "--jobs", jobs) as terminal:
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


ARGUMENTS = ("--seeds", "8", "--steps", "150", "--jobs", "1", "--json", "--quiet")


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
            check=True,
            timeout=BOUND,
        )
        found.append(same_parts(json.loads(done.stdout)))
    assert found[0] == found[1]
