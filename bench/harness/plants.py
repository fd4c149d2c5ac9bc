"""How many seeds the simulator needs for each planted bug: series of seeds.

Series k tries the seeds k · 100,000, k · 100,000 + 1, … until one fails that passes without the bug, and
whose choices do so too. So the series are
independent of each other, and what they need is what a user needs who starts anywhere.
"""

import os
import platform
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import FrameType

import cronoq_sansio
from cronoq_sansio.sim import Failure, replay, run_seed
from cronoq_sansio.sim.run import STEPS
from harness.machine import processor
from harness.plant_ledger import APART, Found, Ledger

LONGEST = 60
"""Seconds of CPU time after which a seed hangs: other load on the machine must not make one look like that."""


class _Hang(BaseException):
    """A seed does not end."""


@contextmanager
def _patience(seconds: int) -> Iterator[None]:
    def hang(_signal: int, _frame: FrameType | None) -> None:
        raise _Hang

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def search(plant: str, series: int, cap: int, steps: int = STEPS) -> Found:
    """Try the seeds of one series until the bug is found."""
    for count in range(1, cap + 1):
        seed = series * APART + count - 1
        begun = time.process_time()
        try:
            with _patience(LONGEST):
                outcome = run_seed(seed, plant=plant, steps=steps)
        except _Hang:
            return Found(series, count, LONGEST, "HANG", "a seed does not end")
        took = time.process_time() - begun
        failure = outcome.failure
        if failure is not None and run_seed(seed, steps=steps).failure is None and not _fails_anyway(failure):
            return Found(series, count, round(took, 3), failure.kind.name, failure.what)
    return Found(series, 0)


def _fails_anyway(failure: Failure) -> bool:
    """What was decided while the bug was there fails in the same words without it, so something else is broken.

    The seed alone does not show this: a bug changes what happens next, and with that everything that is chosen later.
    """
    without = replay(replace(failure.trace, plant=""), narrate=False).failure
    return without is not None and without.what == failure.what


def code() -> str:
    """A digest of everything that a seed runs."""
    root = Path(cronoq_sansio.__file__).parent
    whole = sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def measure(
    ledger: Ledger, names: list[str], every: list[str], count: int, processes: int
) -> Iterator[tuple[str, Found, int]]:
    """Play the series of `names` that are missing: plant, what was found, series that are left.

    `every`: the plants that the ledger keeps.
    """
    machine = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "processors": os.cpu_count() or 0,
        "code": code(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    missing = ledger.missing(names, count)
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(search, name, number, ledger.cap): name for name, number in missing}
        left = len(running)
        for done in as_completed(running):
            left -= 1
            name, found = running[done], done.result()
            ledger.add(name, found)
            ledger.save(every, machine)
            yield name, found, left
