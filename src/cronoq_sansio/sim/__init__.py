"""Deterministic simulation of the whole server: faults of every kind, in virtual time, from a seed.

`run(seed, seeds=…)` runs worlds and returns a `Report`; `python -m cronoq_sansio.sim` is the same for people.
"""

from cronoq_sansio.sim.failure import Failure, Kind, Trace, Violation
from cronoq_sansio.sim.faults import FAULTS, Coverage
from cronoq_sansio.sim.run import ALL_FAULTS, Outcome, Report, replay, run, run_seed
from cronoq_sansio.sim.shrinking import shrunk

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
