"""What a simulated world is like before anything happens: its configuration, its store, when it begins."""

from dataclasses import replace
from random import Random

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import LimitSettings, Settings
from cronoq_sansio.sim.lockstep.workload import BEGINNINGS, POOLS, RESOURCES, other_settings, small_settings
from cronoq_sansio.values import value

LIMITS = LimitSettings(max_pending_total=400, max_payload_bytes=500_000)
SKEWS = (0, 0, 1, -7 * SECOND, 40 * SECOND)
"""Of the clocks of processes: each counts from its own start."""


@value
class Plan:
    """Of one world."""

    settings: Settings
    volatile: bool
    beginning: int
    skew: int
    """Of the clock of the first process."""
    first_task: int = 1
    """Id of the first task that there will be."""


def roomy_settings() -> Settings:
    """The same pools, with room for more; keys are remembered for an hour."""
    pools = tuple(replace(pool, max_pending=100, max_pending_by_class=(None,) * 4) for pool in POOLS)
    return Settings(limits=LIMITS, pools=pools, resources=RESOURCES)


def draw(random: Random) -> Plan:
    """A world for a seed."""
    settings = random.choice((small_settings, roomy_settings))()
    return Plan(settings, random.random() < 0.125, random.choice(BEGINNINGS), random.choice(SKEWS))


def settings_after(settings: Settings, index: int) -> Settings:
    """What an operator may have made of the configuration."""
    return (settings, *other_settings())[index]


OTHERS = len(other_settings())
NAMES = ("the same", "schedules", "schedules", "fewer pools", "fewer resources", "impatient", "strict", "other limits")
"""Of `settings_after`, by index."""
