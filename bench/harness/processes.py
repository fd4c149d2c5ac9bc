"""Server processes: started, pinned, watched from outside, stopped."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SERVER_CPU = 0
LOAD_CPU = 1
START_TIMEOUT = 20.0
SETTLE = 0.7
"""Seconds a server is left alone after it took its first connection."""

CONFIG = """\
[server]
grpc_addr = "127.0.0.1:{port}"
http_addr = "127.0.0.1:0"
{more}

[limits]
max_pending_total = 10000000
max_pending_per_pool = 10000000

[[pools]]
name = "default"
max = 1000
lease_ttl_s = 60
"""
SQLITE = """
[store]
kind = "sqlite"
path = "{path}"
"""


def pinned(cpu: int, command: Sequence[str]) -> list[str]:
    """`command`, held on one processor where `taskset` and a second processor exist."""
    if (os.cpu_count() or 1) < 2 or shutil.which("taskset") is None:
        return list(command)
    return ["taskset", "-c", str(cpu), *command]


def family(pid: int) -> list[int]:
    """`pid` and all processes below it."""
    members, unseen = [], [pid]
    while unseen:
        member = unseen.pop()
        members.append(member)
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                unseen.extend(int(word) for word in children.read_text().split())
            except OSError:
                continue  # the thread has just ended
    return members


def cpu_by_thread(pid: int) -> dict[int, int]:
    """Nanoseconds on a processor so far, of each thread of `pid` and of the processes below it."""
    spent: dict[int, int] = {}
    for member in family(pid):
        for thread in Path(f"/proc/{member}/task").glob("*/schedstat"):
            try:
                spent[int(thread.parent.name)] = int(thread.read_text().split()[0])
            except OSError:
                continue
    return spent


def cpu_ns(pid: int) -> int:
    """Nanoseconds on a processor so far, of all threads together."""
    return sum(cpu_by_thread(pid).values())


def resident_mib(pid: int) -> float:
    """VmRSS of `pid` and the processes below it, MiB."""
    kib = 0
    for member in family(pid):
        try:
            found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{member}/status").read_text())
        except OSError:
            continue
        kib += int(found.group(1)) if found else 0
    return kib / 1024


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A server under test. `command` is called as `COMMAND --config FILE`; without one the no-op server runs."""

    def __init__(self, name: str, command: Sequence[str] | None, store: str, folder: Path) -> None:
        """`store`: `memory`, `sqlite`, or `h2` (memory, behind the library h2); `folder`: empty, for its files."""
        self.name = name
        self.noop = command is None
        self.port = free_port()
        self._log = folder / "log"
        text = CONFIG.format(port=self.port, more='http2 = "h2"' if store == "h2" else "")
        if store == "sqlite":
            text += SQLITE.format(path=folder / "tasks.db")
        config = folder / "cronoq.toml"
        config.write_text(text)
        run = [sys.executable, str(HERE / "noop.py"), str(self.port)]
        if command is not None:
            run = [*command, "--config", str(config)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(pinned(SERVER_CPU, run), stdout=log, stderr=subprocess.STDOUT)
        try:
            self._await_start()
        except BaseException:
            self.stop()
            raise

    def _await_start(self) -> None:
        give_up = time.monotonic() + START_TIMEOUT
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                if time.monotonic() > give_up:
                    why = f"{self.name} does not listen within {START_TIMEOUT:.0f} s"
                    raise SystemExit(f"{why}:\n{self.log()}") from None
                time.sleep(0.05)
        time.sleep(SETTLE)

    @property
    def pid(self) -> int:
        """Process id; `taskset` replaces itself by the server, so it is the server's."""
        return self.process.pid

    def check(self) -> None:
        """Exit with the server's last words when it is gone."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")

    def log(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Stop it gracefully, then by force."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def command_of(text: str) -> list[str]:
    """A command line of the shell as arguments."""
    return shlex.split(text)
