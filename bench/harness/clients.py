"""Interleaved rounds of the clients, each burst in a process of its own against one server; and import times."""

import os
import subprocess
import sys
from collections.abc import Callable

from harness import client_load, load
from harness.processes import LOAD_CPU, Server, pinned
from harness.rounds import Burst, Ratio, Results

CLIENTS = ("grpcio", "asyncio", "trio")
"""The first is what the others are compared with."""
LOADS = {
    "submit": f"unary Submit without a key, one connection, {client_load.IN_FLIGHT} in flight",
    "worker": f"a worker with {client_load.SLOTS} slots, tasks that do nothing",
}
COUNT = 4_000
"""Calls of a burst, those to warm up included."""
IMPORTS = ("trio", "cronoq.client")
FRESH = 7
"""Interpreters for each module and round; the fastest counts, because only other processes make one slower."""
SCRIPT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def run(server: Server, rounds: int, report: Callable[[str, Results], None]) -> Results:
    """All rounds: each client hands in a burst of tasks, then its worker does them; `report` at the end of all."""
    results = Results({name: {client: [] for client in CLIENTS} for name in LOADS})
    for _ in range(rounds):
        for client in CLIENTS:
            for name in LOADS:
                server.check()
                said = load.child(name, client, server.port, COUNT, script=client_load.__file__)
                results.bursts[name][client].append(Burst(said["rate"], said["cpu_us"]))
    verify(server, COUNT * len(CLIENTS) * rounds)
    for name in LOADS:
        report(name, results)
    return results


def verify(server: Server, sent: int) -> None:
    """All tasks were handed in and done; else something else was measured."""
    counted = load.child("totals", server.port)
    if (counted["submitted"], counted["succeeded"]) != (sent, sent):
        raise SystemExit(
            f"of {sent} tasks {counted['submitted']} were handed in and {counted['succeeded']} done:\n{server.log()}"
        )


def import_time(module: str) -> float:
    """Milliseconds that a fresh interpreter needs to import it, bytecode compiled; the least of FRESH."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = pinned(LOAD_CPU, [sys.executable, "-c", SCRIPT.format(module)])
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(FRESH)
    ]
    return min(map(float, said)) * 1e3


def imports(rounds: int) -> dict[str, float]:
    """Time to import each of IMPORTS, and the ratio of the second to the first, round by round."""
    times: dict[str, list[float]] = {module: [] for module in IMPORTS}
    for _ in range(rounds):
        for module in IMPORTS:
            times[module].append(import_time(module))
    trio, ours = times.values()
    ratio = Ratio.of([mine / other for mine, other in zip(ours, trio, strict=True)])
    return {
        "trio_ms": sorted(trio)[rounds // 2],
        "client_ms": sorted(ours)[rounds // 2],
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "rounds": rounds,
    }
