"""Our client and worker beside grpcio's asyncio API: CPU of the client's process per call; and time to import.

    python bench/client_bench.py [--rounds 7] [--folder DIR] [--json FILE]

One server with the memory store runs on processor 0. In each round grpcio, our client under asyncio and our client
under Trio hand in a burst of tasks, each in a process of its own on processor 1, and then a worker of the same kind
does them. The process measures itself, all threads together, after a warm-up; imports and start are not part of it.
The worker on grpcio does the same as ours: see harness/grpcio_worker.py. Imports are timed in fresh interpreters.
Ratios are taken round by round.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from harness import clients, machine
from harness.rounds import Results
from server_bench import start


def measure(folder: Path, rounds: int) -> tuple[Results, dict[str, float]]:
    """All rounds of both loads, then the imports; prints a line per load and client."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="cronoq-bench-") as inside:
        server = start("memory", Path(inside))
        try:
            results = clients.run(server, rounds, print_load)
        finally:
            server.stop()
    return results, clients.imports(rounds)


def print_load(load: str, results: Results) -> None:
    """The lines of one load."""
    base = clients.CLIENTS[0]
    for client in clients.CLIENTS:
        cpu = results.ratio(load, client, base, "cpu_us")
        print(
            f"{load:9s} {client:10s} {results.median(load, client, 'rate'):8.0f}/s"
            f"   {results.median(load, client, 'cpu_us'):7.1f} us CPU ×{cpu.median:5.2f}"
            f" [{cpu.low:.2f} .. {cpu.high:.2f}]",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default="", help="for the server's files")
    parser.add_argument("--json", default="", metavar="FILE", help="write every burst there")
    options = parser.parse_args()
    machine.require_linux()
    results, imports = measure(machine.work_folder(options.folder), options.rounds)
    for name, figure in imports.items():
        print(f"import    {name:10s} {figure:8.2f}")
    if options.json:
        written = {"client": asdict(results), "imports": imports}
        Path(options.json).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
