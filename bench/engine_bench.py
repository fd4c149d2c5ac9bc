"""Cost of the engine alone: one task submitted, dispatched and completed, in units of ``sum(range(1000))``.

    python bench/engine_bench.py [--tasks 20000] [--rounds 7] [--json]

A unit is measured in the same process between the rounds, because machines drift; quote the median ratio. `waiting`
tasks stand in the queue all the time. Memory is the growth of VmRSS for waiting tasks with a 16-byte key, no payload.
"""

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Dispatch
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.settings import LimitSettings, PoolSettings, Settings
from cronoq_sansio.spec import TaskSpec

SLOTS = 32
MANY = 100_000_000


def unit() -> float:
    """Seconds for one ``sum(range(1000))``. CPU time, here and below: a busy machine would only add its own waiting."""
    start = time.process_time()
    for _ in range(2_000):
        sum(range(1000))
    return (time.process_time() - start) / 2_000


def spec(key: str = "") -> TaskSpec:
    """A plain task."""
    return TaskSpec(b"", "", "email.send", "default", 2, key, None, None, (), 40)


def engine_with(waiting: int, keyed: bool = False) -> Engine:
    """An engine with 32 busy slots and `waiting` tasks behind them."""
    limits = LimitSettings(max_pending_total=MANY, key_retention_max=100_000)
    engine = Engine.fresh(Settings(limits=limits, pools=(PoolSettings(max_pending=MANY),)), now=0)
    for number in range(waiting):
        engine.handle([ev.TaskSubmitted(None, spec(f"key-{number:012d}" if keyed else ""))], number)
    return engine


def run(engine: Engine, tasks: int) -> float:
    """Seconds per task: a submission, a completion and its dispatch, and the release of the lease."""
    now = engine.now
    step = engine.handle([ev.GroupCapacitySet("default", (), SLOTS)], now)
    leases = [action.lease.id for action in step.once_durable if type(action) is Dispatch]
    engine.handle([ev.LeasesReleased(tuple(leases))], now)
    start = time.process_time()
    for position in range(tasks):
        now += 1_000
        step = engine.handle([ev.TaskSubmitted(None, spec()), ev.AttemptSucceeded(leases[position], b"", "")], now)
        for action in step.once_durable:
            if type(action) is Dispatch:
                leases.append(action.lease.id)
                engine.handle([ev.LeasesReleased((action.lease.id,))], now)
    return (time.process_time() - start) / tasks


def resident() -> int:
    """Bytes of VmRSS; 0 where the kernel does not say."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def memory(tasks: int) -> float:
    """KiB per waiting task."""
    gc.collect()
    before = resident()
    engine = engine_with(tasks, keyed=True)
    grown = resident() - before
    assert len(engine.tasks.live) == tasks
    return grown / tasks / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    figures: dict[str, float] = {"kib_per_waiting_task": memory(100_000)}
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    for waiting in (1_000, 100_000):
        ratios = []
        for _ in range(options.rounds):
            engine = engine_with(waiting)
            before = unit()
            cost = run(engine, options.tasks)
            ratios.append(cost / statistics.mean((before, unit())))
        figures[f"units_per_task_{waiting}_waiting"] = statistics.median(ratios)
        figures[f"spread_{waiting}_waiting"] = max(ratios) - min(ratios)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:32s} {figure:8.3f}")


if __name__ == "__main__":
    main()
