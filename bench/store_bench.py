"""What the SQLite store costs: commits by batch size, and recovery beside plain sqlite3 reading the same rows.

    python bench/store_bench.py [--folder DIR] [--tasks N]

A commit of the table is the steady state of a busy server: per task a new one, an older one that starts and a still
older one that ends with a small output. `CPU` is the writer thread's, `wall` includes the disk; `plain` is what sqlite3
alone needs for the same rows with `executemany`. Run it on a real disk: on tmpfs the disk costs nothing.
"""

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

from cronoq._stores.base import Batch, StoreError
from cronoq._stores.sqlite import SqliteStore
from cronoq._stores.stored_spec import encode_spec
from cronoq_sansio.engine.records import OutputStored, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.spec import TaskSpec, TaskStatus

SIZES = (1, 8, 32, 128, 512)
COMMITS = 60
WALL = 1_700_000_000_000_000_000


class Figures:
    """Microseconds per commit."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def median(self) -> tuple[float, float]:
        """CPU and wall."""
        return statistics.median(self.cpu), statistics.median(self.wall)


def spec(number: int) -> TaskSpec:
    """A small task with a key, as most are."""
    return TaskSpec(
        b"x" * 100, "application/json", "mail", "default", 2, f"order-{number * 7919 % 1_000_003}", None, None, (), 160
    )


def batch_of(size: int, first: int) -> Batch:
    """`size` new tasks, the ones before them start, the ones before those end."""
    batch = Batch()
    now = WALL + first
    writes: list[TaskInserted | TaskChanged | TaskFinished | OutputStored] = []
    for task_id in range(first, first + size):
        writes.append(TaskInserted(task_id, spec(task_id), 3, now))
        writes.append(TaskChanged(task_id - size, TaskStatus.RUNNING, 1, 0, now, now, ""))
        writes.append(TaskFinished(task_id - 2 * size, TaskStatus.SUCCEEDED, 1, now, now, now, ""))
        writes.append(OutputStored(task_id - 2 * size, b'{"sent": true}', "application/json"))
    batch.add(first, writes)
    return batch


async def commit(store: SqliteStore, batch: Batch) -> float:
    """Write one batch; the writer thread's CPU clock at its end."""
    ended = threading.Event()
    clock: list[float] = []
    failures: list[StoreError] = []

    def done(error: StoreError | None) -> None:
        clock.append(time.thread_time())
        if error is not None:
            failures.append(error)
        ended.set()

    store.begin_commit(batch, done)
    await anyio.to_thread.run_sync(ended.wait)
    if failures:
        raise failures[0]
    return clock[0]


async def measure_store(path: Path, size: int) -> Figures:
    """Commits of one size through the store."""
    figures = Figures()
    store = SqliteStore(path, key_retention_max=0)
    await store.open()
    first = (await store.claim(0)).first_task_id + 2 * size
    cpu = await commit(store, batch_of(size, first))
    for number in range(1, COMMITS):
        batch = batch_of(size, first + number * size)
        begun = time.perf_counter()
        ended = await commit(store, batch)
        figures.wall.append((time.perf_counter() - begun) * 1e6)
        figures.cpu.append((ended - cpu) * 1e6)
        cpu = ended
    await store.close()
    return figures


def measure_plain(path: Path, size: int) -> Figures:
    """The same rows with one `executemany` per table, nothing else."""
    figures = Figures()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;"
        "CREATE TABLE t(id INTEGER PRIMARY KEY, pool, kind, key, priority, arrival, max_attempts, spec);"
        "CREATE INDEX t_key ON t(key);"
        "CREATE TABLE s(id INTEGER PRIMARY KEY, status, attempt, due, first, last, finished, message, type, output);"
        "CREATE INDEX s_finished ON s(finished) WHERE finished > 0;"
    )
    for number in range(COMMITS):
        first = (number + 3) * size
        now = WALL + first
        ids = range(first, first + size)
        tasks = [(i, "default", "mail", spec(i).key, 2, now, 3, encode_spec(spec(i))) for i in ids]
        states = [(i - size, 4, 1, 0, now, now, 0, "", None, None) for i in ids]
        ends = [(i - 2 * size, 6, 1, 0, now, now, now, "", "application/json", b'{"sent": true}') for i in ids]
        begun, cpu = time.perf_counter(), time.thread_time()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO t VALUES (?,?,?,?,?,?,?,?)", tasks)
        connection.executemany("INSERT OR REPLACE INTO s VALUES (?,?,?,?,?,?,?,?,?,?)", states)
        connection.executemany("INSERT OR REPLACE INTO s VALUES (?,?,?,?,?,?,?,?,?,?)", ends)
        connection.execute("COMMIT")
        figures.cpu.append((time.thread_time() - cpu) * 1e6)
        figures.wall.append((time.perf_counter() - begun) * 1e6)
    connection.close()
    return figures


async def measure_load(path: Path, count: int) -> tuple[float, float]:
    """Rows per second: through `load`, and by sqlite3 alone."""
    store = SqliteStore(path, key_retention_max=1_000_000)
    await store.open()
    first = (await store.claim(0)).first_task_id
    for at in range(first, first + count, 1_000):
        batch = Batch()
        ids = range(at, at + 1_000)
        batch.add(at, [TaskInserted(i, spec(i), 3, WALL) for i in ids])
        batch.add(at, [TaskChanged(i, TaskStatus.RETRYING, 1, WALL, WALL, WALL, "boom") for i in ids if i % 2])
        await commit(store, batch)
    loaded, plain = [], []
    for _ in range(3):
        begun = time.perf_counter()
        rows = 0
        kept = []  # as the engine keeps them
        async for portion in store.load(0):
            rows += len(portion)
            kept.append(portion)
        loaded.append(rows / (time.perf_counter() - begun))
        plain.append(plain_read(path))
    await store.close()
    return statistics.median(loaded), statistics.median(plain)


def plain_read(path: Path) -> float:
    """Rows per second of one SELECT over both tables."""
    connection = sqlite3.connect(path)
    begun = time.perf_counter()
    rows = connection.execute(
        "SELECT * FROM cronoq_trio_tasks AS t LEFT JOIN cronoq_trio_states AS s ON s.id = t.id ORDER BY t.id"
    ).fetchall()
    rate = len(rows) / (time.perf_counter() - begun)
    connection.close()
    return rate


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=".", help="a folder on the disk to measure")
    parser.add_argument("--tasks", type=int, default=50_000, help="live tasks to recover")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="store-bench-") as name:
        folder = Path(name)
        print("µs per commit     store CPU   plain CPU   store wall   plain wall   store CPU/task")
        for size in SIZES:
            run: Callable[[], object] = partial(measure_store, folder / f"store-{size}.db", size)
            figures = anyio.run(run)  # type: ignore[arg-type, var-annotated]
            cpu, wall = figures.median()
            plain_cpu, plain_wall = measure_plain(folder / f"plain-{size}.db", size).median()
            columns = f"{cpu:10,.0f}  {plain_cpu:10,.0f}  {wall:11,.0f}  {plain_wall:11,.0f}  {cpu / size:14.1f}"
            print(f"{size:5} tasks     {columns}")
        loaded, plain = anyio.run(measure_load, folder / "load.db", options.tasks)
        print(f"\nrecovery of {options.tasks:,} live tasks: {loaded:,.0f} rows/s, ", end="")
        print(f"sqlite3 alone {plain:,.0f} rows/s: {loaded / plain:.2f}")


if __name__ == "__main__":
    main()
