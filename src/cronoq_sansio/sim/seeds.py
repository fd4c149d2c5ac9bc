"""Which seeds a run plays, and one play of one of them with what it cost. Pure: the clocks are arguments."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cronoq_sansio.sim.arguments import Options
from cronoq_sansio.sim.failure import Trace
from cronoq_sansio.sim.run import Outcome, replay, run_seed


# Plain data classes: a frozen value of a process under test cannot be read in one that is not.
@dataclass(frozen=True, slots=True)
class Play:
    """One seed that is to be run."""

    seed: int
    steps: int
    faults: tuple[str, ...]
    plant: str
    world: str


@dataclass(frozen=True, slots=True)
class Played:
    """One seed that was run."""

    outcome: Outcome
    cpu: float
    """Seconds."""
    yardsticks: float
    """The same in units of `sum(range(1000))`, measured in the same process at the same time."""


LOOPS = 5
SAMPLES = 5
"""The least of so many measurements counts: whatever disturbs makes it longer, never shorter."""


def yardstick(clock: Callable[[], float]) -> float:
    """Seconds that `sum(range(1000))` takes here and now."""
    least = float("inf")
    for _ in range(SAMPLES):
        start = clock()
        for _ in range(LOOPS):
            sum(range(1000))
        least = min(least, clock() - start)
    return max(least / LOOPS, 1e-9)


def played(play: Play, cpu_clock: Callable[[], float], clock: Callable[[], float]) -> Played:
    """Run one seed, and measure it."""
    unit = yardstick(clock)
    start = cpu_clock()
    outcome = run_seed(play.seed, steps=play.steps, faults=play.faults, plant=play.plant, world=play.world)
    spent = cpu_clock() - start
    return Played(outcome, spent, spent / unit)


def plays(options: Options, plant: str, time_is_over: Callable[[], bool]) -> Iterator[Play]:
    """The seeds of a run in their order, until there are enough or the time is over; one at least."""
    seed = options.seed
    while (options.seeds is None or seed < options.seed + options.seeds) and (
        seed == options.seed or not time_is_over()
    ):
        yield Play(seed, options.steps, options.faults, plant, options.world)
        seed += 1


def replayed(trace: Trace, cpu_clock: Callable[[], float], clock: Callable[[], float]) -> Played:
    """Play a trace, with narration, and measure it."""
    unit = yardstick(clock)
    start = cpu_clock()
    outcome = replay(trace)
    spent = cpu_clock() - start
    return Played(outcome, spent, spent / unit)
