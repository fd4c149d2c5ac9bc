"""The server as its users run it: a process of its own, started from a file, stopped by signals, watched from outside.

Nothing here knows the inside of the product. A start is over when the line that begins with `ready:` is in the log; its
address is the one to connect to. Each wait on the process has a bound that is at least ten times what it takes.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from random import SystemRandom

ROOT = Path(__file__).parents[2]

START_BOUND = 60.0
"""Seconds until the ready line; 1 s was measured with two cores shared by six."""
STOP_BOUND = 40.0
"""Seconds until the process is gone after a stop signal, without a lease that runs; 1.5 s was measured."""
HANG = 30.0
"""Seconds that any other wait of a test may take before it counts as a hang."""

READY = re.compile(r"^ready: .*?([0-9.]+|\[[0-9a-f:]+\]):([0-9]+)(?: http \S*:([0-9]+))?", re.MULTILINE)
STATISTICS = re.compile(r"\] statistics +(\S.*)\n")
FAULTS = ("Traceback", "a fault of the")
"""What must never be in a log: a traceback, or the sentence that stands for one."""


class Server:
    """One configuration and, at a time, at most one process that serves it."""

    def __init__(
        self,
        folder: Path,
        store: str = "memory",
        *,
        server: str = "",
        limits: str = "",
        outputs: str = "",
        pools: str = "",
        extra: str = "",
        port: int = 0,
        command: tuple[str, ...] = (),
        environ: dict[str, str] | None = None,
    ) -> None:
        """`server`, `limits`, `outputs` and `pools` are lines of these tables; `pools` and `extra` hold their heads."""
        self.folder = folder
        self.store = store
        self.database = folder / "tasks.db"
        self.log = folder / "server.log"
        self.config = folder / "cronoq.toml"
        self.command = command or (sys.executable, "-m", "cronoq", "serve", "--config", str(self.config))
        self.environ = environment() if environ is None else environ
        self.port = port
        self.http_port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.started_in = 0.0
        """Seconds from the start of the process to its ready line."""
        self._tables = {"server": server, "limits": limits, "outputs": outputs}
        self._pools = pools
        self._extra = extra
        self._read_from = 0

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> "Server":
        """Start and wait for the ready line."""
        begun = time.monotonic()
        self.launch()
        self.wait_ready()
        self.started_in = time.monotonic() - begun
        return self

    def configure(self, *, pools: str | None = None, extra: str | None = None, limits: str | None = None) -> None:
        """What the next start finds in the file instead; see the constructor."""
        self._pools = self._pools if pools is None else pools
        self._extra = self._extra if extra is None else extra
        if limits is not None:
            self._tables["limits"] = limits

    def launch(self) -> None:
        """Start the process; output is appended to the log."""
        assert self.process is None
        self.config.write_text(self._text())
        self._read_from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self.environ,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_BOUND
        while True:
            found = READY.search(self.output())
            if found:
                self.port, self.http_port = int(found[2]), int(found[3] or 0)
                return
            assert self.process is not None
            code = self.process.poll()
            assert code is None, f"the server ended with {code} before it was ready:\n{self.output()}"
            assert time.monotonic() < deadline, f"not ready after {START_BOUND} s:\n{self.output()}"
            time.sleep(0.005)

    def output(self) -> str:
        """What the running process printed so far."""
        with self.log.open("rb") as log:
            log.seek(self._read_from)
            return log.read().decode(errors="replace")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def terminate(self) -> None:
        """Ask for a graceful stop; returns at once."""
        self.signal(signal.SIGTERM)

    def wait(self, bound: float = STOP_BOUND) -> int:
        """The exit code, once the process has ended."""
        assert self.process is not None
        try:
            code = self.process.wait(bound)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server still runs after {bound} s:\n{self.output()}") from None
        self.process = None
        return code

    def stop(self) -> int:
        """Stop gracefully and return the exit code."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """`kill -9`. No-op when no process runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """`SIGSTOP`: from now on the process does nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """`SIGCONT`."""
        self.signal(signal.SIGCONT)

    def statistics(self) -> dict[str, str]:
        """What the server says about itself when it gets SIGUSR1."""
        lines = len(STATISTICS.findall(self.output()))
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + HANG
        while len(found := STATISTICS.findall(self.output())) == lines:
            assert time.monotonic() < deadline, "no statistics were logged"
            time.sleep(0.005)
        return dict(field.split("=", 1) for field in found[-1].split())

    def check_log(self) -> None:
        """No process of this server may have hit a fault of its own."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for fault in FAULTS:
            assert fault not in text, f"{fault!r} in the log:\n{text[-8_000:]}"

    def _text(self) -> str:
        tables = dict(self._tables)
        tables["server"] += f'\ngrpc_addr = "127.0.0.1:{self.port}"\nhttp_addr = "127.0.0.1:0"'
        tables["store"] = f'kind = "{self.store}"'
        if self.store == "sqlite":
            tables["store"] += f'\npath = "{self.database}"'
        text = "".join(f"[{name}]\n{lines.strip()}\n\n" for name, lines in tables.items())
        return text + (self._pools or '[[pools]]\nname = "default"\nmax = 1000\n') + self._extra


def environment(**changes: str) -> dict[str, str]:
    """The environment of a child that runs this checkout: nothing of the caller's own configuration is left in it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CRONOQ_", "COV_"))}
    environ["PYTHONPATH"] = str(ROOT / "src")
    return {**environ, **changes}


def free_port() -> int:
    """A port to pin for restarts.

    It lies below the range that the kernel gives out to connections, else a client that connects while the server is
    down could be given the very port as its own and end up connected to itself.
    """
    draw = SystemRandom()
    while True:
        port = draw.randrange(15_000, 30_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def run_cli(*arguments: str, folder: Path, bound: float = START_BOUND) -> "subprocess.CompletedProcess[str]":
    """Run `cronoq-trio ARGUMENTS` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "cronoq", *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=bound,
    )
