"""Recovery from SQLite: tasks per second, beside the rate at which sqlite3 alone reads the same rows.

    python bench/recovery_bench.py [--tasks 100000] [--rounds 5] [--folder DIR] [--json]

The file holds live tasks: half of them wait and have never started, a quarter waits for a retry, a quarter was running
when the server died. Recovery is what a term does before it serves: claim, load in portions into a fresh engine,
settle, begin. `sqlite3 alone` is the loader's own query, read whole into a list of tuples. Both run in turn, and the
ratio is taken round by round.
"""

import argparse
import gc
import json
import sqlite3
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from queue import SimpleQueue

import anyio
from harness import machine
from harness.rounds import Ratio

from cronoq._runtime.serve import relax_collector
from cronoq._stores.base import Batch, StoreError
from cronoq._stores.sqlite import SqliteStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import TaskChanged, TaskInserted
from cronoq_sansio.limits import LOAD_PORTION
from cronoq_sansio.settings import LimitSettings, PoolSettings, Settings
from cronoq_sansio.spec import TaskSpec, TaskStatus

MANY = 100_000_000
SETTINGS = Settings(limits=LimitSettings(max_pending_total=MANY), pools=(PoolSettings(max_pending=MANY),))
PAYLOAD = b"x" * 100


def records(ids: range, wall: int) -> list[TaskInserted | TaskChanged]:
    """Specifications of a portion of tasks, and the state rows of those that have started."""
    rows: list[TaskInserted | TaskChanged] = []
    for task_id in ids:
        key = f"key-{task_id:012d}"
        spec = TaskSpec(PAYLOAD, "", "email.send", "default", 2, key, None, None, (("team", "core"),), 140)
        rows.append(TaskInserted(task_id, spec, 3, wall))
        if task_id % 4 == 1:
            rows.append(TaskChanged(task_id, TaskStatus.RETRYING, 1, wall + 3600 * SECOND, wall, wall, "try later"))
        elif task_id % 4 == 3:
            rows.append(TaskChanged(task_id, TaskStatus.RUNNING, 1, 0, wall, wall, ""))
    return rows


async def fill(path: Path, tasks: int) -> None:
    """Write the tasks as a server does."""
    store = SqliteStore(path, key_retention_max=0)
    await store.open()
    first = (await store.claim(int(time.time()))).first_task_id
    outcomes: SimpleQueue[StoreError | None] = SimpleQueue()
    for start in range(first, first + tasks, LOAD_PORTION):
        batch = Batch()
        batch.add(start, records(range(start, min(start + LOAD_PORTION, first + tasks)), time.time_ns()))
        store.begin_commit(batch, outcomes.put)
        failure = await anyio.to_thread.run_sync(outcomes.get)
        if failure is not None:
            raise failure
    await store.close()


async def recover(path: Path, tasks: int) -> float:
    """Seconds from an open store to an engine that may serve."""
    store = SqliteStore(path, key_retention_max=SETTINGS.limits.key_retention_max)
    await store.open()
    start = time.perf_counter()
    claim = await store.claim(int(time.time()))
    now = time.monotonic_ns()
    wall_offset = time.time_ns() - now
    engine = Engine.recover(
        SETTINGS,
        first_task_id=claim.first_task_id,
        first_lease_id=claim.first_lease_id,
        seed=1,
        now=now,
        wall_offset=wall_offset,
    )
    async for portion in store.load(now + wall_offset - SETTINGS.limits.key_retention):
        engine.load(portion)
        await anyio.lowlevel.checkpoint()
    while engine.settle(time.monotonic_ns()):
        await anyio.lowlevel.checkpoint()
    engine.begin(time.monotonic_ns())
    took = time.perf_counter() - start
    assert len(engine.tasks.live) == tasks, "recovery lost tasks"
    await store.close()
    return took


def read_alone(path: Path, tasks: int) -> float:
    """Seconds that sqlite3 takes to read the same rows."""
    query = files("cronoq._stores").joinpath("sql/sqlite/load_live.sql").read_text()
    connection = sqlite3.connect(path)
    start = time.perf_counter()
    rows = connection.execute(query, (0, -1)).fetchall()
    took = time.perf_counter() - start
    assert len(rows) == tasks
    connection.close()
    return took


def measure(folder: Path, tasks: int, rounds: int) -> dict[str, float]:
    """Tasks per second of both, and their ratio."""
    alone: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="cronoq-bench-") as inside:
        path = Path(inside) / "tasks.db"
        anyio.run(fill, path, tasks, backend="trio")
        relax_collector()
        for _ in range(rounds):
            gc.collect()
            alone.append(read_alone(path, tasks))
            gc.collect()
            ours.append(anyio.run(recover, path, tasks, backend="trio"))
    ratio = Ratio.of([read / recovered for read, recovered in zip(alone, ours, strict=True)])
    return {
        "tasks": tasks,
        "recovered_per_second": tasks / sorted(ours)[rounds // 2],
        "read_per_second": tasks / sorted(alone)[rounds // 2],
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "rounds": rounds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="", help="where the database is written; on a disk, not in memory")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    figures = measure(machine.work_folder(options.folder), options.tasks, options.rounds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:24s} {figure:14,.2f}")


if __name__ == "__main__":
    main()
