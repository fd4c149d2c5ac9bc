"""The pages say what the code does: nothing is missing, and what claims to run does run."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
import tomllib
from contextlib import ExitStack, contextmanager

import pytest

from cronoq import __version__
from cronoq._cli.main import commands
from cronoq._cli.main import main as command_line
from cronoq._proto import cronoq_pb2 as pb
from cronoq._runtime.startup import lines
from cronoq.config import load
from cronoq_sansio import limits
from cronoq_sansio.errors import Code
from cronoq_sansio.settings_table import INNER_TABLES, TABLES
from cronoq_sansio.sim.arguments import EXIT_CODES, parse
from cronoq_sansio.sim.arguments import OPTIONS as SIMULATOR_OPTIONS
from cronoq_sansio.sim.faults import FAULTS
from cronoq_sansio.sim.plants import PLANTS
from cronoq_sansio.sim.scenario import keys as scenario_keys
from cronoq_sansio.wire.peer_limits import ALL as PEER_LIMITS
from tests.tidy.tree import ROOT, tracked

REFERENCE = ROOT / "docs" / "reference"
PAGES = [path for path in tracked() if path.suffix == ".md"]
EXAMPLES = [path for path in tracked() if path.is_relative_to(ROOT / "docs" / "examples") and path.suffix == ".py"]
README = ROOT / "README.md"
GREETINGS = ROOT / "docs" / "examples" / "greetings.py"
"""What the README has its reader save and run."""
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
COMMANDS = commands()


def page(name):
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def name(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, language):
    """(line, text) of each code block of a language."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 1, found[1])
        for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def every(language):
    return [
        pytest.param(path, text, id=f"{name(path)}:{line}") for path in PAGES for line, text in blocks(path, language)
    ]


# --- nothing is missing


@pytest.mark.parametrize("table", [*TABLES, *INNER_TABLES], ids=lambda table: table.name)
def test_every_setting_is_documented(table):
    heading = f"[[{table.name}]]" if table.repeated else f"[{table.name}]"
    section = page("settings").partition(f"## `{heading}`\n")[2].partition("\n## ")[0]
    for key in table.keys:
        assert f"| `{key.name}` |" in section


@pytest.mark.parametrize("table", scenario_keys.TABLES, ids=lambda table: table.name or "top")
def test_every_key_of_a_scenario_is_documented(table):
    heading = f"`[[{table.name}]]`" if table.repeated else f"`[{table.name}]`" if table.name else "The top of the file"
    section = page("scenarios").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for key in table.keys:
        assert f"| `{key.name}` | {key.kind.value} |" in section
    assert section.count("\n| `") == len(table.keys)


def test_every_error_code_is_documented():
    for code in Code:
        assert f"| `{code.value}` |" in page("errors")


def test_every_command_and_option_is_documented():
    text = page("commands")
    connection = text.partition("## Options of the connection\n")[2].partition("\n## ")[0]
    for command, parsed in COMMANDS.items():
        section = text.partition(f"## `cronoq-trio {command}`\n")[2].partition("\n## ")[0]
        assert section.strip()
        for argument in parsed.assemble_argument_collection():
            if argument.show:  # else a group of options, whose members follow
                place = connection if f"`{argument.names[0]} " in connection else section
                assert all(f"`{option}" in place for option in argument.names)


def test_every_option_exit_code_and_fault_of_the_simulator_is_documented():
    text = page("simulator")
    for option in SIMULATOR_OPTIONS:
        assert f"| `{option.name}{' ' + option.word if option.word else ''}` |" in text
    assert all(f"| {code} |" in text for code in EXIT_CODES)
    assert all(f"| `{fault.name}` |" in text for fault in FAULTS)


def test_every_fixed_limit_is_documented():
    for limit in vars(limits):
        if limit.isupper() and limit != "SECOND":
            assert f"| `{limit}` |" in page("limits"), limit


def test_every_limit_of_peers_is_documented():
    for limit in PEER_LIMITS:
        assert f"| `{limit.name}` | {limit.says} |" in page("limits"), limit.name


# --- what is named exists


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_make_target_that_is_named_exists(path):
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= TARGETS


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize(("path", "text"), every("console"))
def test_console_blocks_name_programs_and_options_that_exist(path, text):
    for line in text.splitlines():
        words = shlex.split(line)
        if words[0] == "make":
            assert words[1] in TARGETS
        elif words[:3] == ["python", "-m", "cronoq_sansio.sim"]:
            parse(words[3:], PLANTS)
        elif words[0].endswith("python"):
            assert (ROOT / words[1]).exists() or (path, words[1]) == (README, GREETINGS.name)
        elif words[0] in ("cronoq-trio", ".venv/bin/cronoq-trio"):
            command = COMMANDS.get(" ".join(words[1:3])) or COMMANDS[words[1]]
            options = {option for argument in command.assemble_argument_collection() for option in argument.names}
            assert {word for word in words[2:] if word.startswith("-")} <= options


# --- what claims to run does run


@pytest.mark.parametrize(("path", "text"), every("toml"))
def test_configurations_are_valid(path, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cronoq.toml").write_text(text)
    environ = {name: name * 4 for name in re.findall(r'^token_env = "(\w+)"', text, re.MULTILINE)}
    assert tomllib.loads(text) and load("cronoq.toml", environ=environ).settings.pools


def test_the_errors_that_are_shown_are_real(tmp_path, monkeypatch, capsys):
    """The page shows the answer to its own configuration with two keys spoilt."""
    how_to = ROOT / "docs" / "howto" / "configure.md"
    ((_, toml),) = blocks(how_to, "toml")
    ((_, shown),) = blocks(how_to, "text")
    spoilt = toml.replace("max_pending_per_pool", "max_pending_pool").replace("lease_ttl_s = 10", "lease_ttl_s = 0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cronoq.toml").write_text(spoilt)
    assert command_line(["check", "--config", "cronoq.toml"]) == 1
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_examples_compile(path):
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_the_code_of_the_readme_is_the_example_and_short():
    ((_, shown),) = blocks(README, "python")
    assert shown == GREETINGS.read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in shown.splitlines()) < 20


def test_the_start_that_the_readme_shows_is_the_real_one():
    shown = blocks(README, "text")[0][1].splitlines()
    real = lines(load(None, environ={}).settings, "built-in", __version__, "127.0.0.1:7070", "127.0.0.1:7071")
    assert [line for line in real if "SQLite file" not in line] == [
        line for line in shown if line in real and "SQLite file" not in line
    ]
    assert shown[-1] == "ready: grpc 127.0.0.1:7070 http 127.0.0.1:7071"
    assert "(once)" in shown[0] and re.search(r"\.serve-ready: WHAT = (\S+)", MAKEFILE)[1] in shown[0]


class Serving:
    """A server of this checkout, and the examples beside it, which name its port."""

    def __init__(self, folder):
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.environ.pop("CRONOQ_CONFIG", None)
        self.port = "0"

    @contextmanager
    def up(self):
        """From its start to its end; a second time on the same port."""
        text = f'[server]\ngrpc_addr = "127.0.0.1:{self.port}"\nhttp_addr = "127.0.0.1:0"\n'
        (self.folder / "cronoq.toml").write_text(text)
        with self.run("-m", "cronoq", "serve") as process:
            self.port = until(process, "ready: grpc ").split()[2].rpartition(":")[2]
            for example in EXAMPLES:
                text = example.read_text(encoding="utf-8").replace(":7070", f":{self.port}")
                (self.folder / example.name).write_text(text, encoding="utf-8")
            yield
            process.terminate()
            assert process.wait(30) == 0

    def run(self, *arguments):
        return start(self.folder, self.environ, *arguments)

    def submit(self):
        """What `submit.py` prints."""
        with self.run("submit.py") as submit:
            (line,) = submit.stdout.readlines()
        return line


@pytest.fixture
def server(tmp_path):
    return Serving(tmp_path)


@pytest.mark.realtime
def test_the_code_of_the_readme_prints_what_it_shows(server):
    with server.up(), server.run(GREETINGS.name) as greetings:
        shown = re.sub(r"\d+", r"\\d+", blocks(README, "text")[1][1], count=1)
        assert re.fullmatch(shown, greetings.stdout.read())
        assert greetings.wait(30) == 0


@pytest.mark.realtime
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_release_prints_what_the_page_shows(server, backend):
    ((_, shown),) = blocks(ROOT / "docs" / "howto" / "dependencies.md", "text")
    with server.up(), server.run("release.py", backend) as release:
        printed = release.stdout.read()
        assert release.wait(30) == 0
    assert re.sub(r"task \d+ ", "task 3 ", printed) == shown


@pytest.mark.realtime
def test_the_worker_and_the_submit_on_grpcio_do_what_they_say(server):
    with server.up(), server.run("worker.py") as worker:
        assert until(worker, "worker") == "worker 1 is ready\n"
        assert re.fullmatch(r"task \d+ TASK_STATUS_SUCCEEDED b'HELLO'\n", server.submit())
        assert re.fullmatch(r"task \d+ attempt 1 b'hello'\n", until(worker, "task"))


@pytest.mark.realtime
def test_the_worker_ends_with_a_sentence_when_there_is_no_server(server):
    with ExitStack() as stack:
        with server.up():
            worker = stack.enter_context(server.run("worker.py"))
            until(worker, "worker")
        stopped = worker.stdout.read()
        assert worker.wait(30) == 1
    with server.run("worker.py") as worker:
        missing = worker.stdout.read()
        assert worker.wait(30) == 1
    for text in (stopped, missing):
        assert text.startswith("the stream has ended: ") and text.count("\n") == 1


@pytest.mark.realtime
def test_the_careful_worker_works_and_ends_in_order(server):
    with server.up(), server.run("careful_worker.py") as worker:
        assert server.submit().endswith("TASK_STATUS_SUCCEEDED b'HELLO'\n")
        worker.terminate()
        assert (worker.wait(30), worker.stdout.read()) == (0, "")


@pytest.mark.realtime
def test_the_careful_worker_connects_again(server):
    with ExitStack() as stack:
        with server.up():
            worker = stack.enter_context(server.run("careful_worker.py"))
            server.submit()
        assert until(worker, "the server stops: ")
        with server.up():
            assert server.submit().endswith("TASK_STATUS_SUCCEEDED b'HELLO'\n")
            worker.terminate()
            assert worker.wait(30) == 0
        assert "Traceback" not in worker.stdout.read()


def test_the_careful_worker_beats_until_the_outcome_has_left():
    """The library asks for the next message when the one before has left; until then a lease needs heartbeats."""
    example = runpy.run_path(str(ROOT / "docs" / "examples" / "careful_worker.py"))
    session = example["Session"]()
    session.running[7] = threading.Event()
    sent = session.requests()
    assert next(sent).HasField("register")
    session.run(pb.Lease(lease=7, payload=b"a"), session.running[7])
    session.send(example["HEARTBEAT"], heartbeat=pb.Heartbeat(lease=7))
    assert next(sent).HasField("heartbeat"), "it does not wait behind an outcome"
    assert next(sent).complete == pb.Complete(lease=7, output=b"A")
    assert list(session.running) == [7]
    session.send(set_slots=pb.SetSlots(slots=1))
    assert next(sent).HasField("set_slots") and not session.running


@pytest.mark.realtime
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_worker_and_the_handlers_do_what_they_say(server, backend):
    with server.up():
        with server.run("shouting_worker.py", backend) as worker:
            assert until(worker, "worker") == "worker 1 is ready\n"
            assert server.submit().endswith("TASK_STATUS_SUCCEEDED b'HELLO'\n")
            worker.terminate()
            assert (worker.wait(30), worker.stdout.read()) == (0, "")
        with server.run("handlers.py", backend) as handlers:
            printed = handlers.stdout.read().splitlines()
    assert re.fullmatch(r"to you about lunch after 20\d\d-.*\+00:00", printed[0]) and printed[1:] == ["1 sent", "6"]


@pytest.mark.realtime
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_pipeline_prints_what_the_page_says(server, backend):
    with server.up(), server.run("pipeline.py", backend) as pipeline:
        printed = pipeline.stdout.read().splitlines()
        assert pipeline.wait(30) == 0
    assert printed == [
        *("publish skipped", "clean up succeeded", "resize failed", "describe succeeded", "fetch succeeded")
    ]


@contextmanager
def start(folder, environ, *arguments):
    """A Python process whose output can be read; killed if it still runs in the end."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            if process.poll() is None:
                process.terminate()


def until(process, beginning):
    """The first line that begins like this."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(beginning):
            return line
    raise AssertionError("".join(seen))
