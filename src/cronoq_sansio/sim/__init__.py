"""Deterministic simulation of the whole server: faults of every kind, in virtual time, from a seed.

`run(seed, seeds=…)` runs worlds and returns a `Report`; `python -m cronoq_sansio.sim` is the same for people.
"""

import sys as _sys

try:
    from cronoq_sansio.sim.failure import Failure, Kind, Trace, Violation
    from cronoq_sansio.sim.faults import FAULTS, Coverage
    from cronoq_sansio.sim.run import ALL_FAULTS, Outcome, Report, replay, run, run_seed
    from cronoq_sansio.sim.shrinking import shrunk
except KeyboardInterrupt:  # of somebody who started the command, which comes after this; "-m" stands for it until then
    if _sys.argv[:1] == ["-m"]:
        raise SystemExit(130) from None
    raise

__all__ = [
    "ALL_FAULTS",
    "FAULTS",
    "Coverage",
    "Failure",
    "Kind",
    "Outcome",
    "Report",
    "Trace",
    "Violation",
    "replay",
    "run",
    "run_seed",
    "shrunk",
]
