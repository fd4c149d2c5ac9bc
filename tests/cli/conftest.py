"""What the tests of commands share: one server process, a worker process, and a way to run commands against them."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from cronoq._cli.main import main
from tests.acceptance.server import HANG, START_BOUND, Server, environment, free_port

HANDLERS = '''
"""Handlers of the tests."""

import time

import anyio

from cronoq.errors import Permanent
from cronoq.handlers import Tasks

tasks = Tasks()
seven = 7


@tasks.handler("greet")
async def greet(name: str) -> dict[str, str]:
    return {"greeting": f"hello, {name}"}


@tasks.handler("refuse")
async def refuse(reason: str) -> None:
    raise Permanent(reason)


@tasks.handler("sleep")
async def sleep(seconds: float) -> str:
    print("sleeping", flush=True)
    await anyio.sleep(seconds)
    return "slept"


async def echo(lease):
    return lease.payload


def echo_in_a_thread(lease):
    return lease.payload
'''


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self):
        return json.loads(self.out)


class Cli:
    """Runs `cronoq-trio` as a process."""

    def __init__(self, folder, **variables):
        self.folder = folder
        self.environ = environment(**variables)

    def __call__(self, *arguments, stdin=b"", **variables):
        done = subprocess.run(
            [sys.executable, "-m", "cronoq", *arguments],
            cwd=self.folder,
            env={**self.environ, **variables},
            input=stdin,
            capture_output=True,
            timeout=START_BOUND,
            check=False,
        )
        return self._done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments, **variables):
        return Running(self, arguments, variables)

    @staticmethod
    def _done(code, out, err):
        text = err.decode()
        assert "Traceback" not in text and "a fault of the program" not in text, text
        return Done(code, out.decode(errors="replace"), text, out)


class Running:
    """A command that runs, with its output in files."""

    def __init__(self, cli, arguments, variables):
        self.cli = cli
        self.paths = [cli.folder / f"{name}-{time.monotonic_ns()}" for name in ("out", "err")]
        with self.paths[0].open("wb") as out, self.paths[1].open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cronoq", *arguments],
                cwd=cli.folder,
                env={**cli.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def out(self):
        return self.paths[0].read_text(errors="replace")

    @property
    def err(self):
        return self.paths[1].read_text(errors="replace")

    def until(self, condition):
        """Wait until the output is as it should be."""
        deadline = time.monotonic() + HANG
        while not condition(self):
            assert time.monotonic() < deadline and self.process.poll() is None, (self.out, self.err)
            time.sleep(0.01)

    def interrupt(self, number=signal.SIGINT):
        """Send the signal and wait for the end."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        try:
            code = self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs:\n{self.out}\n{self.err}") from None
        return self.cli._done(code, *(path.read_bytes() for path in self.paths))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    (folder / "handlers.py").write_text(HANDLERS)
    return folder


@pytest.fixture(scope="module")
def server(place):
    with Server(place, pools='[[pools]]\nname = "default"\n[[pools]]\nname = "idle"\n') as server:
        yield server
        server.check_log()


@pytest.fixture(scope="module")
def cli(server, place):
    """Commands that find the server by the variable."""
    return Cli(place, CRONOQ_SERVER=server.address)


@pytest.fixture(scope="module")
def absent(place):
    """(commands whose server is not there, its address)."""
    address = f"127.0.0.1:{free_port()}"
    return Cli(place, CRONOQ_SERVER=address), address


@pytest.fixture(scope="module")
def worker(cli):
    """A worker of the pool `default`."""
    with cli.start("worker", "handlers:tasks", "--slots", "4", "--name", "tester", "--label", "gpu=a") as running:
        running.until(lambda it: "ready: worker" in it.err)
        yield running
        assert running.interrupt(signal.SIGTERM).code == 0


@pytest.fixture
def run(client, capsys):
    """Runs a command in this process, with the `client` that the module has put in the place of its own."""

    def run(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "a fault" not in err
        return code, out, err

    return run
