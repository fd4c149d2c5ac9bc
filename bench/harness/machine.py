"""The machine that figures were measured on, and whether it is fit to measure: file system, commit time, versions."""

import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("trio", "anyio", "h2", "hpack", "protobuf", "grpcio")
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems on which a commit costs nothing, so that figures on them say nothing."""

PROBE_COMMITS = 60


def file_system(folder: Path) -> str:
    """Type of the file system that `folder` lies on, `unknown` where the kernel does not say."""
    wanted = os.stat(folder).st_dev
    device = f"{os.major(wanted)}:{os.minor(wanted)}"
    best, found = -1, "unknown"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return found
    resolved = str(folder.resolve())
    for line in mounts:
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        point = words[4].rstrip("/") + "/"
        # Some file systems show another device number in stat than in the mount table: then the longest path decides.
        score = len(point) + (1 << 20 if words[2] == device else 0)
        if (resolved + "/").startswith(point) and score > best:
            best, found = score, rest.split(" ")[0]
    return found


def refuse_memory(folder: Path) -> str:
    """The file system of `folder`; exits with one sentence when it is held in memory."""
    kind = file_system(folder)
    if kind in IN_MEMORY:
        raise SystemExit(f"{folder} lies on {kind}, where a commit costs nothing; --folder names one on a disk")
    return kind


def work_folder(given: str) -> Path:
    """The folder for databases: `given`, else the first of the system's temporary folder and this one on a disk."""
    if given:
        folder = Path(given)
        if not folder.is_dir():
            raise SystemExit(f"{given} is not a folder")
        refuse_memory(folder)
        return folder
    for folder in (Path(tempfile.gettempdir()), Path.cwd()):
        if file_system(folder) not in IN_MEMORY:
            return folder
    return Path(refuse_memory(Path.cwd()))


def commit_time(folder: Path) -> float:
    """Median microseconds of an SQLite transaction of one small row, WAL with synchronous=FULL."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="cronoq-bench-") as inside:
        connection = sqlite3.connect(os.path.join(inside, "probe.db"), isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE probe (id INTEGER PRIMARY KEY, text BLOB)")
            return _median(PROBE_COMMITS, lambda: _commit(connection))
        finally:
            connection.close()


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO probe (text) VALUES (?)", (b"x" * 100,))


def sync_time(folder: Path) -> float:
    """Median microseconds of appending 4 KiB to a file and `fsync`."""
    with tempfile.TemporaryFile(dir=folder, prefix="cronoq-bench-", buffering=0) as file:

        def once() -> None:
            file.write(b"x" * 4096)
            os.fsync(file.fileno())

        return _median(PROBE_COMMITS, once)


def _median(count: int, action: Callable[[], None]) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def processor() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names else platform.machine()


def memory_gib() -> float:
    """Main memory in GiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def describe(folder: Path) -> dict[str, str | float]:
    """Everything a reader needs to judge the figures."""
    facts: dict[str, str | float] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "processors": os.cpu_count() or 0,
        "memory_gib": round(memory_gib(), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "h2load": h2load_version(),
        "file_system": refuse_memory(folder),
        "commit_us": round(commit_time(folder)),
        "fsync_us": round(sync_time(folder)),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def h2load_version() -> str:
    """Version of h2load; exits with how to install it when it is missing."""
    try:
        said = subprocess.run(["h2load", "--version"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        raise SystemExit(
            "h2load is missing: install nghttp2-client (Debian, Ubuntu), nghttp2 (Fedora, Arch, Homebrew)"
        ) from None
    return said.strip().rpartition("/")[2] or "unknown"


def require_linux() -> None:
    """Exit with one sentence where the CPU time of another process cannot be read."""
    if not Path("/proc/self/schedstat").exists():
        sys.exit("the CPU time of a server is read from /proc/PID/task/*/schedstat, which this system does not have")
