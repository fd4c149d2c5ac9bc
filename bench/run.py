"""Runs every benchmark and writes docs/performance.md, each figure beside its target.

    python bench/run.py [--rounds 7] [--folder DIR] [--render | --clients]

Takes about seven minutes; nothing else should run on the machine meanwhile. Everything measured is kept in
bench/results.json, and `--render` writes the page from there without measuring anew. `--clients` measures clients,
workers and imports anew and leaves all else as it was measured.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import client_bench
import profile_rings
import recovery_bench
import server_bench
import stream_bench
from harness import machine, report
from harness.processes import LOAD_CPU, pinned
from harness.rounds import CASES
from harness.targets import TARGETS, Measured

BENCH = Path(__file__).parent
RESULTS = BENCH / "results.json"
TEMPLATE = BENCH / "performance.template.md"
PAGE = BENCH.parent / "docs" / "performance.md"
PROFILED = {
    "submit": (("h2", 1), ("memory", 6), ("sqlite", 4)),
    "one": (("h2", 1), ("memory", 4)),
    "drain": (("memory", 8), ("sqlite", 6)),
}
"""Of each load, on which server, and how many bursts: so many that each gives some hundred samples."""


def engine_figures(rounds: int) -> dict[str, list[float]]:
    """The engine alone, in processes of its own: each figure, round by round."""
    command = pinned(LOAD_CPU, [sys.executable, str(BENCH / "engine_bench.py"), "--json", "--rounds", str(rounds)])
    figures: dict[str, list[float]] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def measure(folder: Path, rounds: int) -> Measured:
    """Everything, one after the other."""
    facts = machine.describe(folder)
    if hasattr(os, "getloadavg"):
        facts["load"] = f"{os.getloadavg()[0]:.2f}"
    say(f"the engine alone, on {facts['processor']}, {facts['python']}")
    engine = engine_figures(rounds)
    say(f"recovery from SQLite, in {folder} on {facts['file_system']}, median commit {facts['commit_us']} µs")
    recovery = recovery_bench.measure(folder, 100_000, rounds)
    say("the server beside a no-op server")
    cases = server_bench.chosen(server_bench.DEFAULT_CASES)
    server = server_bench.measure(server_bench.DEFAULT_SERVERS, cases, rounds, folder)
    say("clients and workers beside grpcio, and imports")
    client, imports = client_bench.measure(folder, rounds)
    say("one stream beside a bare echo")
    stream = stream_bench.measure()
    profiles = []
    for case, servers in PROFILED.items():
        for store, bursts in servers:
            say(f"profile: {CASES[case].about}; {store}")
            profile = profile_rings.profile(CASES[case], store, bursts, folder)
            del profile["functions"]
            profiles.append(profile)
    return Measured(server, engine, recovery, profiles, client, imports, stream, facts)


def say(what: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)


def main() -> None:
    """Measure unless told otherwise, write the page, and say what is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default="", help="where databases are written; on a disk, not in memory")
    parser.add_argument("--render", action="store_true", help="write the page from bench/results.json")
    parser.add_argument("--clients", action="store_true", help="measure clients, workers and imports alone")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    if options.clients:
        machine.require_linux()
        client, imports = client_bench.measure(machine.work_folder(options.folder), options.rounds)
        report.save(replace(report.load(RESULTS), client=client, imports=imports), RESULTS)
    elif not options.render:
        machine.require_linux()
        report.save(measure(machine.work_folder(options.folder), options.rounds), RESULTS)
    measured = report.load(RESULTS)
    PAGE.write_text(report.render(TEMPLATE.read_text(encoding="utf-8"), measured), encoding="utf-8")
    for target in TARGETS:
        verdict = "met   " if target.met(measured) else "MISSED"
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g}"
        print(f"{verdict} {report.figure(target.take(measured)):42s} {bound:7s} {target.figure}")
    say(f"written: {PAGE.relative_to(BENCH.parent)}")


if __name__ == "__main__":
    main()
