"""Where the server's CPU time goes, by ring: a sampling profile of unary and of stream traffic.

    python bench/profile_rings.py [--store memory] [--cases submit,drain] [--bursts 3] [--functions N] [--json FILE]

A timer that counts the CPU time of the server's main thread interrupts it; the innermost frame that belongs to a ring
gets the CPU time used since the sample before. Unlike a tracing profile this does not make small functions look large.
What C code does (protobuf, sockets, HPACK tables) counts for the line that calls it. Other threads (SQLite's writer)
are counted by the kernel. `--functions N` prints the N functions with the largest share, too.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from harness import load, machine
from harness.load import submit_body
from harness.processes import Server, cpu_by_thread
from harness.rounds import CASES, WARM_UP, Case

INTERVAL = 0.001
"""Seconds of CPU time between two samples; the kernel makes of it one of its ticks, usually 4 ms."""
LONGER = 5
"""Bursts are so many times as long as those that are only measured."""
RINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("engine", ("/cronoq_sansio/engine/",)),
    ("service and outbox", ("/cronoq_sansio/service/", "/cronoq_sansio/outbox.py")),
    ("protobuf", ("/cronoq_sansio/wire/protobuf_", "/cronoq_sansio/wire/pb/", "/google/protobuf/")),
    ("wire: HTTP/2", tuple(f"/cronoq_sansio/wire/{name}" for name in ("http2_", "hpack_", "huffman", "floods", "h2_"))),
    ("wire: gRPC", ("/cronoq_sansio/wire/",)),
    ("h2, hpack, hyperframe", ("/h2/", "/hpack/", "/hyperframe/")),
    ("sockets", ("/cronoq/_runtime/transport.py",)),
    ("runtime", ("/cronoq/_runtime/", "/cronoq/_observe/", "/cronoq_sansio/recording/")),
    ("store, on the loop's side", ("/cronoq/_stores/",)),
    ("trio", ("/trio/", "/anyio/", "/outcome/")),
)
"""First match wins. `wire: HTTP/2` includes the interface over h2. Whatever matches nothing (the shared words, the
standard library) counts for its caller: an interruption is noticed at the next call of a Python function, so a small
helper would be charged for the C code before it."""
THREADS = "SQLite's writer thread"
REST = "the rest"


def ring_of(path: str) -> str:
    """The ring that a source file belongs to, empty for the standard library and other helpers."""
    for ring, parts in RINGS:
        if any(part in path for part in parts):
            return ring
    return ""


class _Notice(ctypes.Structure):
    """`struct sigevent`: tell one thread by a signal. Linux; the rest of its 64 bytes is padding."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("how", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_char * 44),
    )


class ThreadTimer:
    """Signals the thread that made it once per `INTERVAL` of its own CPU time.

    `signal.setitimer` counts all threads together, so the ticks of a busy writer thread would be charged to wherever
    the main thread happens to wait.
    """

    _THREAD_CPU_CLOCK = 3
    _NOTIFY_THREAD = 4

    def __init__(self, number: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        notice = _Notice(None, number, self._NOTIFY_THREAD, threading.get_native_id())
        created = self._libc.timer_create(self._THREAD_CPU_CLOCK, ctypes.byref(notice), ctypes.byref(self._timer))
        if created != 0:
            raise OSError(ctypes.get_errno(), "timer_create")

    def set(self, seconds: float) -> None:
        """Begin to tick; 0 stops."""
        nanoseconds = int(seconds * 1e9)
        times = (ctypes.c_long * 4)(0, nanoseconds, 0, nanoseconds)
        if self._libc.timer_settime(self._timer, 0, times, None) != 0:
            raise OSError(ctypes.get_errno(), "timer_settime")


class Sampler:
    """Lives in the server's process. SIGUSR2 starts a profile, a second one ends it and writes it to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running = False
        self._samples = 0
        self._spent = 0.0
        self._wakeup = -1
        self.rings: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self._ring_of: dict[str, str] = {}

    def install(self) -> None:
        """Listen to the signals."""
        signal.signal(signal.SIGUSR2, self._toggle)
        signal.signal(signal.SIGPROF, self._sample)
        self._timer = ThreadTimer(signal.SIGPROF)

    def _toggle(self, number: int, frame: FrameType | None) -> None:
        self._running = not self._running
        if self._running:
            self.rings.clear()
            self.functions.clear()
            self._samples = 0
            # The event loop asks to be woken by every signal; that would be measured, too.
            self._wakeup = signal.set_wakeup_fd(-1)
            self._spent = time.thread_time()
            self._timer.set(INTERVAL)
        else:
            self._timer.set(0)
            signal.set_wakeup_fd(self._wakeup)
            functions = dict(self.functions.most_common(200))
            profile = {"rings": self.rings, "functions": functions, "samples": self._samples}
            self._path.with_suffix(".new").write_text(json.dumps(profile))
            self._path.with_suffix(".new").rename(self._path)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._spent = now - self._spent, now
        self._samples += 1
        ring = ""
        while frame is not None:
            code = frame.f_code
            path = code.co_filename
            ring = self._ring_of.get(path, "?")
            if ring == "?":
                ring = self._ring_of[path] = ring_of(path)
            if ring:
                self.functions[f"{ring}: {Path(path).name}:{code.co_qualname}"] += spent  # type: ignore[assignment]
                break
            frame = frame.f_back
        self.rings[ring or REST] += spent  # type: ignore[assignment]


def serve(path: str, *arguments: str) -> int:
    """Run the real server with a sampler in its process."""
    from cronoq._cli.main import main as command

    Sampler(Path(path)).install()
    return command(["serve", *arguments])


def profile(case: Case, store: str, bursts: int, folder: Path) -> dict[str, Any]:
    """Shares of the rings, CPU per call and the functions on top, for `bursts` bursts of a case."""
    case = case.scaled(LONGER)
    with tempfile.TemporaryDirectory(dir=folder, prefix="cronoq-bench-") as inside:
        path = Path(inside) / "profile.json"
        server = Server(store, [sys.executable, __file__, "serve", str(path)], store, Path(inside))
        try:
            body = submit_body(Path(inside))
            load.submit(server.port, WARM_UP, 4, 32, body)
            rings: Counter[str] = Counter()
            functions: Counter[str] = Counter()
            calls = samples = 0
            for _ in range(bursts):
                taken = _profiled_burst(case, server, body, path)
                rings.update(taken["rings"])
                functions.update(taken["functions"])
                calls += case.count
                samples += taken["samples"]
        finally:
            server.stop()
    total = sum(rings.values())
    return {
        "case": case.name,
        "about": case.about,
        "store": store,
        "cpu_us": total / calls * 1e6,
        "samples": samples,
        "rings": {ring: spent / total for ring, spent in rings.most_common()},
        "functions": {name: spent / total for name, spent in functions.most_common(100)},
    }


def _profiled_burst(case: Case, server: Server, body: Path, path: Path) -> dict[str, Any]:
    if case.refill:
        load.submit(server.port, case.refill, 4, 32, body)
        time.sleep(0.1)
    before = cpu_by_thread(server.pid)
    os.kill(server.pid, signal.SIGUSR2)
    case.run(server, case.count, body)
    os.kill(server.pid, signal.SIGUSR2)
    give_up = time.monotonic() + 5
    while not path.exists():
        if time.monotonic() > give_up:
            raise SystemExit(f"the server wrote no profile:\n{server.log()}")
        time.sleep(0.01)
    after = cpu_by_thread(server.pid)
    others = sum(spent - before.get(thread, 0) for thread, spent in after.items() if thread != server.pid)
    taken: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    if others > 0:
        taken["rings"][THREADS] = others / 1e9
    return taken


def show(taken: dict[str, Any], functions: int) -> None:
    """One profile as a table."""
    print(f"\n{taken['about']}; {taken['store']}: {taken['cpu_us']:.1f} us CPU per call, {taken['samples']} samples")
    for ring, share in taken["rings"].items():
        print(f"  {ring:28s} {share:6.1%} {share * taken['cpu_us']:8.1f} us")
    for name, share in list(taken["functions"].items())[:functions]:
        print(f"      {share:6.1%}  {name}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="memory,sqlite")
    parser.add_argument("--cases", default="submit,drain")
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--functions", type=int, default=0, metavar="N")
    parser.add_argument("--folder", default="", help="where databases are written; on a disk, not in memory")
    parser.add_argument("--json", default="", metavar="FILE")
    options = parser.parse_args()
    machine.require_linux()
    folder = machine.work_folder(options.folder)
    profiles = []
    for case in options.cases.split(","):
        for store in options.store.split(","):
            profiles.append(profile(CASES[case], store, options.bursts, folder))
            show(profiles[-1], options.functions)
    if options.json:
        Path(options.json).write_text(json.dumps(profiles, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        sys.exit(serve(*sys.argv[2:]))
    main()
