"""Interleaved rounds: every server gets one short burst per case in turn, and ratios are taken round by round.

Absolute figures of a shared machine drift by a factor of two and more within minutes, while the servers of one round
see about the same machine.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import load
from harness.processes import Server, cpu_ns, resident_mib

WARM_UP = 1_000
"""Tasks submitted to each server before the first round."""
PAUSE = 0.1
"""Seconds before and after a burst, in which the server finishes what belongs to neither."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `refill`: tasks queued before each burst, which is not counted."""

    name: str
    about: str
    count: int
    run: Callable[[Server, int, Path], Mapping[str, float]]
    refill: int = 0

    def scaled(self, factor: int) -> "Case":
        """The same load, `factor` times as long."""
        return replace(self, count=self.count * factor, refill=self.refill * factor)


def _submit(connections: int, in_flight: int) -> Callable[[Server, int, Path], Mapping[str, float]]:
    return lambda server, count, body: {"rate": load.submit(server.port, count, connections, in_flight, body)}


def _drain(slots: int) -> Callable[[Server, int, Path], Mapping[str, float]]:
    return lambda server, count, body: load.child("drain", server.port, slots, count)


def _keyed(in_flight: int) -> Callable[[Server, int, Path], Mapping[str, float]]:
    return lambda server, count, body: load.child("keyed", server.port, in_flight, count)


REFILL = 3_400
CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("submit", "unary Submit without a key, 4 connections × 32 in flight", 3_200, _submit(4, 32)),
        Case("one", "unary Submit without a key, 1 × 1", 600, _submit(1, 1)),
        Case("keyed", "unary Submit with a key, grpcio client, 10 in flight", 1_500, _keyed(10)),
        Case("drain1", "lease and completion on one stream, 1 slot", 600, _drain(1), 700),
        Case("drain", "lease and completion on one stream, 32 slots", 3_000, _drain(32), REFILL),
        Case("drain256", "lease and completion on one stream, 256 slots", 3_000, _drain(256), REFILL),
    )
}


@dataclass(frozen=True, slots=True)
class Burst:
    """What one burst showed: calls per second, CPU in microseconds per call of the process under test."""

    rate: float
    cpu_us: float
    p50_us: float = 0.0
    p99_us: float = 0.0


@dataclass(slots=True)
class Results:
    """All bursts: `bursts[case][server]`, one per round; `rss_mib[server]` at the end."""

    bursts: dict[str, dict[str, list[Burst]]] = field(default_factory=dict)
    rss_mib: dict[str, float] = field(default_factory=dict)

    def ratio(self, case: str, server: str, base: str, figure: str) -> "Ratio":
        """`figure` (`cpu_us` or `rate`) of `server` by that of `base`, round by round."""
        pairs = zip(self.bursts[case][server], self.bursts[case][base], strict=True)
        return Ratio.of([getattr(mine, figure) / getattr(other, figure) for mine, other in pairs])

    def median(self, case: str, server: str, figure: str) -> float:
        """Median of `figure` over the rounds."""
        values: list[float] = [getattr(burst, figure) for burst in self.bursts[case][server]]
        return statistics.median(values)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the rounds' ratios, with their number and spread."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Ratio":
        """From one value per round."""
        return cls(statistics.median(values), min(values), max(values), len(values))


def burst(case: Case, server: Server, body: Path) -> Burst:
    """One burst of `case` on `server`."""
    server.check()
    if case.refill:
        load.submit(server.port, case.refill, 4, 32, body)
    time.sleep(PAUSE)
    before = cpu_ns(server.pid)
    said = case.run(server, case.count, body)
    time.sleep(PAUSE)
    spent = cpu_ns(server.pid) - before
    return Burst(said["rate"], spent / 1e3 / case.count, said.get("p50_us", 0.0), said.get("p99_us", 0.0))


def run(
    servers: Sequence[Server], cases: Sequence[Case], rounds: int, body: Path, report: Callable[[str, Results], None]
) -> Results:
    """All rounds of all cases; `report` is called after each case."""
    results = Results()
    sent = dict.fromkeys((server.name for server in servers), WARM_UP)
    for server in servers:
        load.submit(server.port, WARM_UP, 4, 32, body)
    for case in cases:
        results.bursts[case.name] = {server.name: [] for server in servers}
        for _ in range(rounds):
            for server in servers:
                results.bursts[case.name][server.name].append(burst(case, server, body))
                sent[server.name] += case.refill or case.count
        for server in servers:
            results.rss_mib[server.name] = resident_mib(server.pid)
        report(case.name, results)
    for server in servers:
        if not server.noop:
            verify(server, sent[server.name])
    return results


def verify(server: Server, sent: int) -> None:
    """The server did what was counted: an answer that is only an error would be fast, too."""
    accepted = load.child("totals", server.port).get("submitted", sent)
    if accepted != sent:
        raise SystemExit(f"{server.name} accepted {accepted} of {sent} tasks, so nothing was measured:\n{server.log()}")
