"""What a scenario draws at random: when tasks arrive and how long they run.

Each entry has generators of its own, from the seed and its name. So the same tasks arrive at the same times and run as
long under two configurations, and an entry that is added does not change the others: what differs between two reports
comes from the configuration.
"""

import math
from collections.abc import Iterator
from random import Random

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings_keys import MAX_SECONDS
from cronoq_sansio.sim.scenario.words import Arrivals, Duration

LONGEST = MAX_SECONDS * SECOND
"""What is drawn is cut there, so that times stay within 64 bits."""


def generator(seed: int, name: str, what: str) -> Random:
    """The generator for one purpose of one entry."""
    return Random(f"{seed}:{what}:{name}")  # a text is hashed by SHA-512, not by the hash of the process


def draw(duration: Duration, random: Random) -> int:
    """A run time in nanoseconds."""
    kind, mean = duration.distribution, duration.mean
    if kind == "fixed":
        return mean
    if kind == "uniform":
        return random.randint(duration.minimum, duration.maximum)
    if not mean:
        return 0
    if kind == "exponential":
        return min(round(random.expovariate(1.0) * mean), LONGEST)
    spread = math.log(1.0 + duration.cv * duration.cv)
    return round(min(math.exp(random.gauss(-spread / 2.0, math.sqrt(spread))) * mean, LONGEST))


def gap(mean: int, random: Random) -> int:
    """Time until the next of events that happen at random; at least a nanosecond."""
    return max(min(round(random.expovariate(1.0) * mean), LONGEST), 1)


def arrival_times(arrivals: Arrivals, random: Random) -> Iterator[int]:
    """When tasks arrive, in order, in nanoseconds since the beginning."""
    if arrivals.every:
        yield from range(arrivals.start, arrivals.end, arrivals.every)
        return
    now = arrivals.start
    for index, rate in enumerate(arrivals.rates):
        last = index + 1 == len(arrivals.rates)
        until = arrivals.end if last else min(arrivals.rates[index + 1].start, arrivals.end)
        now = max(now, rate.start)
        if not rate.rate:
            continue
        while True:  # what is left of a gap at a change of the rate is drawn anew: it has no memory
            later = now + random.expovariate(rate.rate) * SECOND
            if later >= until:
                break
            now = round(later)
            yield now
