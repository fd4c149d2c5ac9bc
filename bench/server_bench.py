"""Our server beside a no-op server on grpcio's asyncio API: CPU of the server process per call, and calls per second.

    python bench/server_bench.py [--rounds 7] [--cases submit,drain] [--folder DIR] [--json FILE] [SERVER ...]

SERVER is `aio` (the no-op server), `memory` or `sqlite` (ours with that store, SQLite with synchronous=FULL), `h2`
(`memory` with the library h2 in the place of our HTTP/2 machine), or NAME=COMMAND for another server, called as
`COMMAND --config FILE`; NAME:sqlite=COMMAND gives it the SQLite store.
All servers run at the same time on processor 0, the load on processor 1; in each round every server gets one short
burst per case in turn, and the ratios to the first server are taken round by round. Quote the median ratio, the
number of rounds and the spread: absolute figures of a shared machine drift.

Cases: submit (unary Submit, h2load, 4 connections × 32 in flight), one (the same, 1 × 1), keyed (grpcio's asyncio
client, a key on each task, 10 in flight), drain (one Work stream with 32 slots, lease in, completion out), drain1 and
drain256 (the same with 1 and 256 slots). Linux only; needs h2load.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import machine
from harness.load import submit_body
from harness.processes import Server, command_of
from harness.rounds import CASES, Case, Results
from harness.rounds import run as run_rounds

DEFAULT_CASES = "submit,one,keyed,drain,drain256"
DEFAULT_SERVERS = ("aio", "memory", "sqlite", "h2")
OURS = (sys.executable, "-m", "cronoq", "serve")


def start(argument: str, folder: Path) -> Server:
    """Start the server that a word of the command line names."""
    name, _, command = argument.partition("=")
    name, _, store = name.partition(":")
    inside = folder / name
    inside.mkdir()
    if command:
        return Server(name, command_of(command), store or "memory", inside)
    if name == "aio":
        return Server(name, None, "memory", inside)
    if name in DEFAULT_SERVERS:
        return Server(name, OURS, name, inside)
    raise SystemExit(f"{argument}: a server is {', '.join(DEFAULT_SERVERS)} or NAME=COMMAND")


def chosen(names: str) -> list[Case]:
    """The cases that a comma-separated list names."""
    unknown = [name for name in names.split(",") if name not in CASES]
    if unknown:
        raise SystemExit(f"no case is named {', '.join(unknown)}; there are {', '.join(CASES)}")
    return [CASES[name] for name in names.split(",")]


def measure(servers: Sequence[str], cases: Sequence[Case], rounds: int, folder: Path) -> Results:
    """Start the servers below `folder`, run all rounds, stop them; prints a line per case and server."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="cronoq-bench-") as inside, ExitStack() as stack:
        running = []
        for argument in servers:
            server = start(argument, Path(inside))
            stack.callback(server.stop)
            running.append(server)
        return run_rounds(running, cases, rounds, submit_body(Path(inside)), print_case)


def print_case(case: str, results: Results) -> None:
    """The lines of one case."""
    base = next(iter(results.bursts[case]))
    for name, bursts in results.bursts[case].items():
        cpu = results.ratio(case, name, base, "cpu_us")
        rate = results.ratio(case, name, base, "rate")
        latency = f"  p50 {bursts[-1].p50_us:.0f} us, p99 {bursts[-1].p99_us:.0f} us" if bursts[-1].p50_us else ""
        print(
            f"{case:9s} {name:10s} {results.median(case, name, 'rate'):8.0f}/s ×{rate.median:5.2f}"
            f"   {results.median(case, name, 'cpu_us'):7.1f} us CPU ×{cpu.median:5.2f}"
            f" [{cpu.low:.2f} .. {cpu.high:.2f}]"
            f"   {results.rss_mib[name]:4.0f} MiB{latency}",
            flush=True,
        )


def as_json(results: Results, facts: dict[str, str | float]) -> dict[str, Any]:
    """Everything measured, burst by burst."""
    return {"machine": facts, "server": asdict(results)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", default=DEFAULT_CASES)
    parser.add_argument("--folder", default="", help="where databases are written; on a disk, not in memory")
    parser.add_argument("--json", default="", metavar="FILE", help="write every burst there")
    parser.add_argument("servers", nargs="*", default=DEFAULT_SERVERS, metavar="SERVER")
    options = parser.parse_args()
    cases = chosen(options.cases)
    machine.require_linux()
    folder = machine.work_folder(options.folder)
    facts = machine.describe(folder)
    print(
        f"{facts['processor']}, {facts['python']}; {folder} on {facts['file_system']},"
        f" median commit {facts['commit_us']} us, fsync {facts['fsync_us']} us; {options.rounds} rounds"
    )
    results = measure(options.servers, cases, options.rounds, folder)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(results, facts), indent=1) + "\n")


if __name__ == "__main__":
    main()
