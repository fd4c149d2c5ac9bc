"""How many slots a pool should have (engine.md section 12). The figure is shown; nobody in here brings or takes slots.

Every second, a *tick*, the demand of a pool is computed, in millionths of a slot and in integers throughout:

    rate      arrivals per second, in millionths: an average that moves by 3/10 of the difference at each tick
    service   mean run time of the pool (`durations.py`), before anything was learned `default_duration`
    base      rate · service / target_utilization           keeps up with what comes
    drain     backlog · service / drain_time                works off what waits
    slo       max over classes with an aim: tasks that wait in the class or a higher one · service / aim
    demand    max(base + drain, slo, busy) + most reservations at a time that start within the next minute

`wanted` is the demand in whole slots, rounded up, within min .. max; less than a hundredth of a slot is none. `current`
is what is shown. It begins with min and follows: up at once, by as much as there is or by 4, whichever is more; down by
one, not twice within `cooldown`, and not below the highest `wanted` of the last 60 ticks.

Laziness. There is no timer: ticks that have passed are made up for when somebody looks or something happens, each with
what was true all the while, which is what the last event left behind; arrivals count in the first of them. While
nothing arrives the rate comes down to 0, in about 80 ticks, and then nothing changes but the reservations in sight and
`current`: all ticks up to the next such change are one computation. So a day asleep costs a hundred. The calendar is
looked at `limits.MAX_SCALING_LOOKS` times at most; for the rest of such a time it counts as it was at the last look.

Invariants: min ≤ current ≤ max; what is remembered of `wanted` descends, and lies within 60 ticks.
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.limits import MAX_SCALING_LOOKS
from cronoq_sansio.settings import PoolSettings

TICK = SECOND
UNIT = 1_000_000  #: a slot, and a task per second
NEGLIGIBLE = UNIT // 100
STEP_UP = 4
STABLE = 60  #: ticks
SIGHT = 60 * SECOND  #: reservations that start within it need a slot


class Busy(Protocol):
    """The slots of a pool."""

    @property
    def busy(self) -> int:
        """Running leases."""


class Scaled(Protocol):
    """What is looked at of a pool."""

    arrivals: int
    """Tasks that were taken in since the last tick."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def settings(self) -> PoolSettings:
        """Its table of the configuration."""

    @property
    def pending_by_class(self) -> list[int]:
        """Live tasks that do not run, critical first."""

    @property
    def apart_by_class(self) -> list[int]:
        """Those of them that are no backlog: they wait for something else than a slot, or have a fixed start."""

    @property
    def groups(self) -> Busy:
        """Its slots."""

    @property
    def durations(self) -> Durations:
        """What was learned of run times."""

    @property
    def unstarted(self) -> Calendar | None:
        """Reservations whose tasks have not started; None = there was never one."""


class Offset(Protocol):
    """What is looked at of the engine."""

    @property
    def wall_offset(self) -> int:
        """Wall time less `now`."""


class Scaler:
    """The target of one pool. Ticks have numbers, ascending."""

    __slots__ = ("_down_from", "_highest", "_settings", "_target", "current", "rate")

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._target = settings.target_utilization.as_integer_ratio()
        self.current = settings.min
        self.rate = 0
        """Millionths of a task per second."""
        self._highest: deque[tuple[int, int]] = deque()
        """(tick, wanted) that no later tick wanted more than, the latest last."""
        self._down_from = 0
        """The tick at which the next step down may come."""

    def average(self, arrivals: int) -> None:
        """One tick with so many arrivals: the rate follows."""
        self.rate += (arrivals * UNIT - self.rate) * 3 // 10

    def wanted(self, pool: Scaled, reserved: int) -> int:
        """Slots that the pool should have, by what is true of it now."""
        settings = self._settings
        service = pool.durations.mean()
        if service is None:
            service = settings.default_duration
        backlog = highest = 0
        for pending, apart, slo in zip(pool.pending_by_class, pool.apart_by_class, settings.slo, strict=True):
            backlog += pending - apart
            if slo is not None:
                highest = max(highest, backlog * UNIT * service // slo)
        numerator, denominator = self._target
        base = self.rate * service * denominator // (numerator * SECOND)
        drain = backlog * UNIT * service // settings.drain_time
        demand = max(base + drain, highest, pool.groups.busy * UNIT) + reserved * UNIT
        slots = 0 if demand < NEGLIGIBLE else -(-demand // UNIT)
        return min(max(slots, settings.min), settings.max)

    def follow(self, tick: int, ticks: int, wanted: int) -> None:
        """Bring `current` closer to what is wanted at `tick` and the ones after it, so many in a row."""
        end = tick + ticks
        while self.current < wanted and tick < end:
            self.current = min(wanted, self.current + max(self.current, STEP_UP))
            tick += 1
        highest = self._highest
        while highest and highest[-1][1] <= wanted:
            highest.pop()
        while self.current > wanted and tick < end:
            while highest and highest[0][0] <= tick - STABLE:
                highest.popleft()
            floor = highest[0][1] if highest else wanted
            if floor >= self.current:  # until that is long ago
                tick = highest[0][0] + STABLE
            elif tick < self._down_from:
                tick = self._down_from
            else:
                tick = self._step_down(floor, tick, end) + 1
        while highest and highest[0][0] < end - STABLE:
            highest.popleft()
        highest.append((end - 1, wanted))

    def _step_down(self, floor: int, tick: int, end: int) -> int:
        """By one at `tick` and after each cooldown before `end`, as far as the floor; the tick of the last step."""
        cooldown = -(-self._settings.cooldown // TICK)
        pace = max(cooldown, 1)
        steps = min(self.current - floor, 1 + (end - 1 - tick) // pace)
        self.current -= steps
        tick += (steps - 1) * pace
        self._down_from = tick + cooldown
        return tick

    def is_idle(self, pool: Scaled) -> bool:
        """Nothing is wanted but the minimum, and that is what is shown: a tick would change nothing."""
        return (
            self.current == self._settings.min
            and not (self.rate or pool.arrivals or pool.groups.busy or pool.unstarted)
            and pool.pending_by_class == pool.apart_by_class
        )

    def check_invariants(self) -> None:
        """Assert what the head of this file promises."""
        settings = self._settings
        assert settings.min <= self.current <= settings.max, f"{self.current} slots are not within min and max"
        assert self.rate >= 0, f"a rate of {self.rate} is negative"
        highest = list(self._highest)
        for (tick, wanted), (later, less) in pairwise(highest):
            assert tick < later and wanted > less, f"what was wanted is not in order: {highest}"
        assert not highest or highest[0][0] > highest[-1][0] - STABLE, f"what is long ago is remembered: {highest}"


class Autoscale:
    """The targets of all pools. `now`: when the term began; the first tick is a second later."""

    __slots__ = ("_pools", "_tick", "due")

    def __init__(self, pools: Iterable[Scaled], now: int) -> None:
        self._pools = {pool.name: (pool, Scaler(pool.settings)) for pool in pools if pool.settings.autoscale}
        self._tick = 0
        """The number of the next tick."""
        self.due = now + TICK
        """When it is, on the `now` scale."""

    def tick(self, engine: Offset, now: int) -> None:
        """Make up for the ticks up to `now`, by what the last event left behind."""
        if now < self.due:
            return
        ticks = (now - self.due) // TICK + 1
        wall = self.due + engine.wall_offset
        for pool, scaler in self._pools.values():
            if not scaler.is_idle(pool):
                _make_up(pool, scaler, self._tick, ticks, wall)
        self._tick += ticks
        self.due += ticks * TICK

    def desired(self, pool: Scaled) -> int:
        """Slots that the pool should have; 0 when it is not scaled."""
        found = self._pools.get(pool.name)
        return found[1].current if found is not None else 0

    def check_invariants(self) -> None:
        """Assert what the head of this file promises."""
        for _, scaler in self._pools.values():
            scaler.check_invariants()


def _make_up(pool: Scaled, scaler: Scaler, tick: int, ticks: int, wall: int) -> None:
    """So many ticks in a row; the first is at `wall`."""
    unstarted = pool.unstarted
    looks = MAX_SCALING_LOOKS
    while ticks:
        arrivals, pool.arrivals = pool.arrivals, 0
        scaler.average(arrivals)
        alike = 1 if scaler.rate else ticks
        reserved = 0
        if unstarted:
            reserved, _ = unstarted.peak(wall, wall + SIGHT)
            looks -= 1
            if alike > 1 and looks > 0:
                alike = _unchanged(unstarted, wall, alike)
        scaler.follow(tick, alike, scaler.wanted(pool, reserved))
        tick += alike
        ticks -= alike
        wall += alike * TICK


def _unchanged(unstarted: Calendar, wall: int, ticks: int) -> int:
    """For how many of so many ticks, the first at `wall`, the reservations in sight cannot change their peak.

    They do not before the first instant in sight has come to the next change, or the last one to another.
    """
    leaves = unstarted.next_change(wall)
    enters = unstarted.next_change(wall + SIGHT - 1)
    if leaves is not None:
        ticks = min(ticks, -((wall - leaves) // TICK))
    return ticks if enters is None else min(ticks, (enters - SIGHT - wall) // TICK + 1)
