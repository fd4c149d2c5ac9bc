"""Schedules of the configuration that need slots at the same time, and more of them than their pool may reserve.

The server takes each of them, and drops what does not fit when its time comes: the same one every time, the last by
name. So this is said at the start, and by `check`.

A schedule counts once at an instant, however its own runs overlap: while one of them goes on, what the next one does is
up to its overlap policy. Only fires of the near future are looked at, so what is said is true, and what is not said may
still happen: schedules that callers add are not looked at either.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from cronoq_sansio.clock import utc_text
from cronoq_sansio.engine.cron import Cron, compile_cron
from cronoq_sansio.limits import CROWD_FIRES, CROWD_HORIZON, MAX_CROWD_FIRES, MAX_RESERVED
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.spec import RecurringSpec, Scheduling

Jump = tuple[int, int, int]
"""When the number of schedules changes, by how much, and the fire that is the reason; times in wall nanoseconds."""


def crowds(settings: Settings, wall: int) -> tuple[str, ...]:
    """A sentence per pool that has too little room, about the first time at which it has. `wall`: now."""
    return tuple(text for pool in settings.pools if (text := _crowd(pool, _jumps(settings, pool, wall))))


def _crowd(pool: PoolSettings, jumps: Sequence[Jump]) -> str:
    room = max(1, int(pool.max * pool.reservable_fraction))
    level = most = when = 0
    for _, step, fire in jumps:
        level += step
        if level > max(most, room):
            most, when = level, fire
        elif level <= room < most:
            break
    if most <= room:
        return ""
    count = "1 fits" if room == 1 else f"{room} fit"
    return (
        f"pool {pool.name!r}: {most} of the schedules need a slot around {utc_text(when)}, and {count}: what is beyond"
        " is dropped as `conflict`, the last by name first; raise `max` or `reservable_fraction` of the pool, or spread"
        " the times"
    )


def _jumps(settings: Settings, pool: PoolSettings, wall: int) -> list[Jump]:
    """Of all schedules of a pool, in the order of time; where one ends as another begins the end comes first."""
    named = [spec for spec in settings.recurring if spec.template.pool == pool.name]
    each = min(CROWD_FIRES, max(1, MAX_CROWD_FIRES // max(1, len(settings.recurring))))
    found: list[Jump] = []
    for spec in named:
        cron = compile_cron(spec.cron, spec.tz, spec.gap, spec.fold)
        if isinstance(cron, Cron):
            found += _wanted(pool, spec, takewhile(lambda fire: fire < wall + CROWD_HORIZON, _fires(cron, wall, each)))
    return sorted(found)


def _fires(cron: Cron, after: int, count: int) -> Iterator[int]:
    for _ in range(count):
        fire = cron.next(after)
        if fire is None:
            return
        after = fire.at
        yield after


def _wanted(pool: PoolSettings, spec: RecurringSpec, fires: Iterator[int]) -> Iterator[Jump]:
    """When a schedule has a slot reserved: its intervals, those that touch or overlap as one."""
    asked = spec.template.scheduling or Scheduling()
    tolerance = min(asked.tolerance, MAX_RESERVED)
    duration = min(pool.default_duration if asked.duration_hint is None else asked.duration_hint, MAX_RESERVED)
    if tolerance == duration == 0:
        return
    end: int | None = None
    for fire in fires:
        if end is None or fire - tolerance > end:
            if end is not None:
                yield end, -1, fire
            yield fire - tolerance, 1, fire
        end = fire + duration + tolerance
    if end is not None:
        yield end, -1, end
