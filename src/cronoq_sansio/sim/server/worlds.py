"""What a simulated world is like before anything happens: its configuration, its store, when it begins.

A world has one of four sets of pools, and beside it bounds and caches that are drawn by themselves: a bound that is
never reached hides what happens there, and one that is always reached hides what happens beyond it.
"""

from dataclasses import replace
from random import Random

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import LimitSettings, OutputSettings, Settings
from cronoq_sansio.sim.lockstep.workload import BEGINNINGS, POOLS, RESOURCES, other_settings, small_settings
from cronoq_sansio.spec import RetryPolicy
from cronoq_sansio.values import value

HUGE = 10_000
"""Tasks of the largest herd."""
HUGE_EVERY = 256
"""One world of so many is made for it."""
BUSY_SHARE = 0.5
"""Worlds of so many are busy ones."""
LONG_SHARE, SOON = 0.25, 10 * SECOND
"""Busy worlds of so many remember keys for an hour, the others so long: each recovery reads what is remembered."""
SKEWS = (0, 0, 1, -7 * SECOND, 40 * SECOND)
"""Of the clocks of processes: each counts from its own start."""
LATER = (0, 300 * SECOND, 560 * SECOND, 595 * SECOND)
"""After one of `BEGINNINGS`: zones skip or repeat an hour 600 s after two of them."""
ROOM = LimitSettings(max_pending_total=600, max_payload_bytes=500_000)
TIGHT = LimitSettings(
    max_tasks_per_batch=4,
    max_message_bytes=4_096,
    max_payload_bytes=9_000,
    max_list=2,
    max_wait=7 * SECOND,
    request_timeout=2 * SECOND,
    max_concurrent_requests=6,
    max_slots_per_worker=2,
    max_pending_total=24,
    key_retention=20 * SECOND,
    key_retention_max=12,
)
HASTY_RETRY = RetryPolicy(5, SECOND // 10, 2.0, SECOND, False)
NO_OUTPUTS = OutputSettings(cache_entries=0, cache_bytes=0, info_entries=0)
FEW_OUTPUTS = OutputSettings(cache_entries=3, cache_bytes=60, info_entries=4)


@value
class Plan:
    """Of one world."""

    settings: Settings
    volatile: bool
    beginning: int
    skew: int
    """Of the clock of the first process."""
    herd: int
    """Tasks that come at once when very many come."""
    busy: bool
    """Reads bring much more at a time."""
    first_task: int = 1
    """Id of the first task that there will be."""


def small() -> tuple[Settings, int]:
    """Every policy once, and bounds that are reached all the time."""
    return small_settings(), 12


def roomy() -> tuple[Settings, int]:
    """The same pools, with room for more; keys are remembered for an hour."""
    pools = tuple(replace(pool, max=200, max_pending=150, max_pending_by_class=(None,) * 4) for pool in POOLS)
    return Settings(limits=ROOM, pools=pools, resources=RESOURCES), 80


def hasty() -> tuple[Settings, int]:
    """Leases end soon, retries come at once, keys are not awaited for long, and tenants share."""
    pools = tuple(
        replace(
            pool,
            max=40,
            max_pending=50,
            lease_ttl=SECOND,
            retry=HASTY_RETRY,
            await_unknown_dependencies=2 * SECOND,
            fair_share=True,
            cooldown=0,
        )
        for pool in POOLS
    )
    limits = replace(ROOM, max_pending_total=150, key_retention=5 * SECOND, key_retention_max=100)
    return Settings(limits=limits, pools=pools, resources=RESOURCES), 40


def huge() -> tuple[Settings, int]:
    """Room for the largest herd."""
    pools = tuple(
        replace(pool, max=2 * HUGE, max_pending=2 * HUGE, max_pending_by_class=(None,) * 4, reservable_fraction=1.0)
        for pool in POOLS
    )
    limits = replace(ROOM, max_pending_total=3 * HUGE, max_payload_bytes=1 << 30)
    return Settings(limits=limits, pools=pools, resources=RESOURCES), HUGE


def busy() -> tuple[Settings, int]:
    """Room for what hundreds of slots and callers bring."""
    pools = tuple(replace(pool, max=64, max_pending=200, max_pending_by_class=(None,) * 4) for pool in POOLS)
    return Settings(limits=replace(ROOM, max_pending_total=600), pools=pools, resources=RESOURCES), 80


def draw(random: Random) -> Plan:
    """A world for a seed."""
    settings, herd = random.choice((small, small, roomy, roomy, hasty))()
    outputs = random.choice((settings.outputs, settings.outputs, FEW_OUTPUTS, NO_OUTPUTS))
    limits = random.choice((settings.limits, settings.limits, settings.limits, TIGHT))
    if random.random() < 0.125:
        limits = replace(limits, key_retention=0, key_retention_max=0)
    is_busy = random.random() < BUSY_SHARE
    if is_busy:
        settings, herd = busy()
        limits = settings.limits
    elif random.random() < 1 / HUGE_EVERY:
        settings, herd = huge()
        limits = settings.limits
    volatile, beginning, skew = random.random() < 0.125, random.choice(BEGINNINGS), random.choice(SKEWS)
    beginning += random.choice(LATER)
    if is_busy and random.random() >= LONG_SHARE:
        limits = replace(limits, key_retention=SOON)
    return Plan(replace(settings, outputs=outputs, limits=limits), volatile, beginning, skew, herd, is_busy)


def _others() -> tuple[Settings, ...]:
    usual = small_settings()
    return (
        *other_settings(),
        replace(usual, limits=replace(usual.limits, max_message_bytes=4_096)),
        replace(usual, limits=replace(TIGHT, max_pending_total=16, max_payload_bytes=2_500)),
    )


OTHERS = _others()
"""What an operator may have made of the configuration."""
NAMES = (
    *("schedules", "schedules", "fewer pools", "fewer resources", "impatient", "strict", "other limits"),
    *("smaller tasks", "tight"),
)
"""Of `OTHERS`, by index."""
