"""One HTTP/2 stream beside a bare echo: 64 KiB payloads there and back, 1 GiB in all, over TCP under Trio.

    python bench/stream_bench.py [--rounds 8] [--mib 128] [--json FILE]

Two servers run on processor 0: one echoes what it reads, the other is our HTTP/2 machine and echoes the content of a
stream. In each round a client on processor 1 sends the same bytes through either and reads them back; that of the
second is our machine in the other role. So both ends of a connection count, of either kind. Ratios are taken round by
round: of the time that passes, and of the processor time of both processes, which other programs of the machine disturb
less. See harness/stream_echo.py.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from harness import machine
from harness.processes import LOAD_CPU, SERVER_CPU, cpu_ns, pinned
from harness.targets import stream_ratio

PROGRAM = Path(__file__).parent / "harness" / "stream_echo.py"
KINDS = ("plain", "http2")
ROUNDS, MIB = 8, 128


class Echo:
    """A server of one kind, and what each round has measured."""

    def __init__(self, kind: str) -> None:
        command = pinned(SERVER_CPU, [sys.executable, str(PROGRAM), "serve", kind])
        self.kind = kind
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = self.process.stdout.readline().strip()
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def round(self, mib: int) -> None:
        """Send and read back so much."""
        before = cpu_ns(self.process.pid)
        command = pinned(LOAD_CPU, [sys.executable, str(PROGRAM), "load", self.kind, self.port, str(mib)])
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        passed, used = map(float, done.stdout.split())
        self.seconds.append(passed)
        self.cpu.append(used + (cpu_ns(self.process.pid) - before) / 1e9)


def measure(rounds: int = ROUNDS, mib: int = MIB) -> dict[str, list[float]]:
    """By kind and figure, round by round: seconds, and seconds on a processor of both processes together."""
    servers = [Echo(kind) for kind in KINDS]
    try:
        for server in servers:
            server.round(mib)  # to warm up
            server.seconds.clear()
            server.cpu.clear()
        for _ in range(rounds):
            for server in servers:
                server.round(mib)
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()
    figures = {f"{server.kind}.seconds": server.seconds for server in servers}
    return figures | {f"{server.kind}.cpu": server.cpu for server in servers}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--mib", type=int, default=MIB, help="of each round")
    parser.add_argument("--json", default="", metavar="FILE", help="write every round there")
    options = parser.parse_args()
    machine.require_linux()
    figures = measure(options.rounds, options.mib)
    for figure in ("seconds", "cpu"):
        found = stream_ratio(figures, figure)
        print(f"{figure:8s} × {found.median:.2f} [{found.low:.2f} .. {found.high:.2f}] of a bare echo")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
