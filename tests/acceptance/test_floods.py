"""Hostile peers in a process of their own, and somebody who makes calls meanwhile on another connection.

Speed is measured and not asserted: with a path in `CRONOQ_LEDGER` each kind is played for longer, and written there is
by how much the others wait longer, and how much longer the server works before it answers them. The former depends on
who else uses the machine, the latter hardly. Both compare with a process that uses a processor and does not know the
server: a flood does that, too, and the machine may have two. What is asserted is that nobody hangs, is closed or
refused, that the server has seen what it was meant to see, and that its memory stays bounded.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance import ledger
from tests.acceptance.clients import Client, connect
from tests.acceptance.flooder import BUSY, KINDS
from tests.acceptance.server import HANG, ROOT, Server, environment
from tests.acceptance.workers import serving

STORES = ["memory"]
pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a host has one address of its own, not a network"),
]
LONG = ledger.wanted()
ROUNDS, SECONDS = (5, 1.0) if LONG else (1, 0.4)
MEMORY = 256 << 20
"""More than the server may have in the end: a flood that is kept would be more."""
SEEN = {
    "rapid_reset": "resets",
    "provoked_resets": "resets",
    "malformed_requests": "resets",
    "too_many_streams": "resets",
    "continuation": "continuations",
    "header_bomb": "header_list",
    "ping": "pings",
    "settings": "settings",
    "empty_data": "empty_data",
    "tiny_data": "tiny_data",
    "priority": "priorities",
    "unknown_frames": "unknown_frames",
    "dripping": "tiny_reads",
    "window_updates": "window_updates",
    "tiny_stream_windows": "window_updates",
    "tiny_connection_window": "window_updates",
    "window_games": "settings",
    "refused_calls": "refused_calls",
    "broken_rules": "broken_rule",
}
"""The counter that a kind moves; the others exceed nothing within seconds."""


@pytest.fixture(scope="module")
def task(server: Server) -> int:
    """A finished one with a large output."""
    return finished(server)


def finished(server: Server) -> int:
    output = bytes(1 << 20)
    with connect(server.address) as client:
        complete = lambda lease: {"complete": pb.Complete(lease=lease.lease, output=output)}  # noqa: E731
        with serving(client.channel, complete):
            return client.submit(wait=True, payload=b"x").id


@contextmanager
def flooding(kind: str, server: Server, task: int, seconds: float) -> Iterator[dict[str, int]]:
    """A flood from before the block to its end or later; then what the flooder tells."""
    arguments = [kind, str(server.port), str(seconds), str(task)]
    told: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.flooder", *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}"),
        bufsize=0,  # communicate() would lose what readline() has read ahead
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        yield told
        out, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0
        told |= json.loads(out)


@dataclass
class Calls:
    """Of those that fit into a time, one after the other, in seconds and sorted."""

    waited: list[float]
    """For the answer."""
    worked: list[float]
    """By the server meanwhile: for this call, and for whatever came before it."""


def calls(client: Client, server: Server, task: int, seconds: float) -> Calls:
    found = Calls([], [])
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        used = processor_time(server)
        client.get(task)
        found.waited.append(time.monotonic() - begun)
        found.worked.append(processor_time(server) - used)
    return Calls(sorted(found.waited), sorted(found.worked))


def processor_time(server: Server) -> float:
    """Seconds that the server's thread has run; 0 where the kernel does not say it so exactly."""
    path = Path(f"/proc/{server.pid}/schedstat")
    return int(path.read_text().split()[0]) / 1e9 if path.exists() else 0.0


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def resident(server: Server) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no VmRSS")


def play(kind: str, server: Server, task: int) -> dict[str, float]:
    """Rounds of the same calls beside a busy process and beside the flood; the ratios, and how many calls."""
    ratios: dict[str, list[float]] = {name: [] for name in ("p50", "p99", "p50_work", "p99_work")}
    slowest, count, connections = 0.0, 0, 0
    for _ in range(ROUNDS):
        with connect(server.address) as client:
            client.get(task)
            with flooding(BUSY, server, task, SECONDS):
                usual = calls(client, server, task, SECONDS)
            with flooding(kind, server, task, SECONDS + 0.2) as told:
                with connect(server.address) as late:  # others are still let in
                    late.get(task)
                found = calls(client, server, task, SECONDS)
        assert found.waited, "nobody was served"
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            ratios[name].append(at(found.waited, share) / at(usual.waited, share))
            ratios[f"{name}_work"].append(at(found.worked, share) / (at(usual.worked, share) or 1))
        slowest = max(slowest, found.waited[-1])
        count += len(found.waited)
        connections += told["connections"]
    assert slowest < HANG / 3
    figures: dict[str, float] = {}
    for name, each in ratios.items():
        figures |= {
            f"{name}_ratio": round(statistics.median(each), 2),
            f"{name}_ratio_low": round(min(each), 2),
            f"{name}_ratio_high": round(max(each), 2),
        }
    told_of = {"slowest_ms": round(slowest * 1e3, 1), "rounds": ROUNDS, "calls": count, "connections": connections}
    return figures | told_of


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_served_meanwhile(kind: str, server: Server, task: int) -> None:
    figures = play(kind, server, task)
    ledger.record(f"flood.{kind}", **figures)
    if kind in SEEN:
        assert int(server.statistics()[f"limits.{SEEN[kind]}"]) >= 1
    assert resident(server) < MEMORY


def test_where_addresses_are_not_told_apart_nobody_hangs_either(tmp_path: Path) -> None:
    """Behind a proxy whoever is closed comes back at once, and the others feel it."""
    with Server(tmp_path, "memory", limits="max_connections_per_peer = 0") as server:
        figures = play("rapid_reset", server, finished(server))
        ledger.record("flood.rapid_reset.without_addresses", **figures)
        assert "limits.kept_out" not in server.statistics()
        assert server.stop() == 0
    server.check_log()
