"""Cost of the simulator per event: whole servers with every check, healed at the end, from consecutive seeds.

What counts is the CPU time of a seed from its beginning to its end, everything included: choosing what happens, the
server itself, its store, the checks after each step, the full scans, and the healed phase.
"""

import time

from cronoq_sansio.sim import run_seed
from harness.engine_load import relax_collector, unit

SEEDS = 40
"""Of one round: many, because seeds differ by a factor of five."""
WORLDS = {"server": 2_000, "lockstep": 100}
"""Acts of a seed, by world."""


def cost(world: str, first: int) -> float:
    """Units per event of `SEEDS` seeds from `first` on."""
    relax_collector()
    units, spent, events = 0.0, 0.0, 0
    for seed in range(first, first + SEEDS):
        units += unit(100)
        begun = time.process_time()
        outcome = run_seed(seed, steps=WORLDS[world], world=world)
        spent += time.process_time() - begun
        events += outcome.events
        if outcome.failure is not None:
            raise SystemExit(f"seed {seed} fails, which is no load to measure: {outcome.failure.what}")
    return spent / events / (units / SEEDS)
