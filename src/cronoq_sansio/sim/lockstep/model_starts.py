"""Fixed starts (engine.md section 7): the calendar, slots held ahead of time, starts in time and starts missed.

Everything is counted from the live tasks: what is reserved, who wants a slot to be held, who has one. The pump itself
is in `model_rules.py`; it asks here for whom it should do something next.
"""

from collections.abc import Sequence
from math import floor
from typing import TYPE_CHECKING

from cronoq_sansio.limits import MAX_HOLD, MAX_RESERVED
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.sim.lockstep import model_recurring as recurring
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep.model_state import PLAIN, NaiveGroup, NaiveTask
from cronoq_sansio.spec import MissPolicy, TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model

Interval = tuple[int, int]

# --- the calendar


def reservable(pool: PoolSettings) -> int:
    """How many reservations of a pool may cover the same moment."""
    return max(1, int(pool.max * pool.reservable_fraction))


def interval(model: "Model", spec: TaskSpec, pool: PoolSettings) -> Interval | None:
    """What the task would reserve; None when it has no fixed start, or needs no time."""
    asked = spec.scheduling or PLAIN
    if asked.start is None:
        return None
    tolerance = min(asked.tolerance, MAX_RESERVED)
    begin = asked.start - tolerance
    end = asked.start + min(estimate(model, spec, pool), MAX_RESERVED) + tolerance
    return (begin, end) if begin < end else None


def estimate(model: "Model", spec: TaskSpec, pool: PoolSettings) -> int:
    """How long a fixed start is thought to run."""
    hint = (spec.scheduling or PLAIN).duration_hint
    return model.learned.estimate(pool, spec.kind) if hint is None else hint


def reservations(model: "Model", pool: PoolSettings) -> list[Interval]:
    """Those of live tasks, in order."""
    found = [task.reserved for task in model.starting.values() if task.pool is pool]
    return sorted((begin, end) for begin, end in found if begin < end)


def peak(intervals: list[Interval], within: Interval) -> int:
    """The most of these that cover one moment of an interval, which holds its begin and not its end."""
    moments = [within[0], *(begin for begin, _ in intervals if within[0] <= begin < within[1])]
    return max(sum(begin <= moment < end for begin, end in intervals) for moment in moments)


# --- being missed


def is_missed(task: NaiveTask, wall: int) -> bool:
    """It should have been dispatched by now, never was, and must not be any more."""
    late = task.fixed and task.attempt == 0 and wall > task.latest
    return late and task.asked.on_miss != MissPolicy.RUN_LATE


def miss(model: "Model", task: NaiveTask, when: str) -> None:
    """End a task that missed its start."""
    fails = task.asked.on_miss == MissPolicy.FAIL
    model.figures_of(task.pool).fixed_starts += 1
    model.note("missed", f"{'failed' if fails else 'skipped'} {when}")
    if task.schedule:
        recurring.drop(model, task.schedule, "missed", [task.fixed_start])
    model.end(task, TaskStatus.FAILED if fails else TaskStatus.MISSED)


# --- time


def lead(model: "Model", pool: PoolSettings) -> int:
    """How long before a start a slot is held for it, unless its tolerance is longer."""
    return min(model.learned.lead(pool), MAX_HOLD)


def hold_time(model: "Model", task: NaiveTask) -> int:
    """When a slot should be held, wall time."""
    return task.fixed_start - max(min(task.asked.tolerance, MAX_HOLD), lead(model, task.pool))


def fire(model: "Model") -> None:
    """A timer fired: starts are missed, or have come, or are near."""
    wall = model.wall()
    missed = [task for task in fixed(model) if task.status != TaskStatus.RUNNING and is_missed(task, wall)]
    for task in sorted(missed, key=lambda task: (task.latest, task.id)):
        miss(model, task, task.status.name.lower())
    for task in scheduled(model):
        if task.fixed_start <= wall:
            model.note("start", "has come, held" if task.hold is not None else "has come")
            model.start_has_come(task)
    for task in scheduled(model):
        if task.hold is None and hold_time(model, task) <= wall:
            task.wants = True


def moments(model: "Model") -> list[int]:
    """When something of all this is due, wall time."""
    found = []
    for task in fixed(model):
        if task.status != TaskStatus.RUNNING and not task.attempt and task.asked.on_miss != MissPolicy.RUN_LATE:
            found.append(task.latest + 1)
        if task.status == TaskStatus.SCHEDULED:
            found.append(task.fixed_start)
            if not task.wants and task.hold is None:
                found.append(hold_time(model, task))
    return found


# --- whose turn it is


def fixed(model: "Model") -> list[NaiveTask]:
    """Live tasks with a fixed start, earliest first."""
    return sorted(model.starting.values(), key=lambda task: (task.fixed_start, task.id))


def scheduled(model: "Model") -> list[NaiveTask]:
    """Those whose start has not come."""
    return [task for task in fixed(model) if task.status == TaskStatus.SCHEDULED]


def next_held(model: "Model", pool: PoolSettings) -> NaiveTask | None:
    """Whose start has come, and whose slot is there."""
    found = [task for task in fixed(model) if task.pool is pool and task.queued and task.hold is not None]
    return found[0] if found else None


def may_hold(model: "Model", pool: PoolSettings) -> bool:
    """Whether one more slot may be held, of the slots that there are."""
    groups = [group for group in model.groups if group.pool == pool.name]
    most = max(1, floor(sum(group.capacity for group in groups) * pool.reservable_fraction))
    return sum(held(model, group) for group in groups) < most


def next_wanting(model: "Model", pool: PoolSettings, free: Sequence[NaiveGroup]) -> NaiveTask | None:
    """For whom a free slot should be held; no more are held than may be reserved of the slots there are."""
    wanting = [task for task in fixed(model) if task.pool is pool and task.wants]
    if not wanting or not may_hold(model, pool):
        return None
    return next((task for task in wanting if rules.serving(free, task)), None)


def next_due(model: "Model", pool: PoolSettings, free: Sequence[NaiveGroup]) -> NaiveTask | None:
    """Whose start has come without a slot, and whom a free one serves."""
    due = [task for task in fixed(model) if task.pool is pool and task.queued and task.hold is None]
    return next((task for task in due if rules.serving(free, task)), None)


# --- holds


def held(model: "Model", group: NaiveGroup) -> int:
    """Slots of the group that are held."""
    return sum(task.hold == group.labels and task.pool.name == group.pool for task in model.starting.values())


def holders(model: "Model", group: NaiveGroup) -> list[NaiveTask]:
    """For whom."""
    return [task for task in fixed(model) if task.hold == group.labels and task.pool.name == group.pool]


def hold(model: "Model", task: NaiveTask) -> None:
    """Hold a slot for a task that wants one."""
    model.note("hold a slot", "held")
    task.hold, task.wants = rules.groups_with_room(model, task)[0].labels, False


def drop_holds(model: "Model") -> None:
    """Holds that the capacity of their group does not cover end, the last starts first."""
    for group in model.groups:
        while rules.filled(model, group) > group.capacity and holders(model, group):
            task = holders(model, group)[-1]
            model.note("hold a slot", f"lost, {'parked' if task.parked else task.status.name.lower()}")
            task.hold, task.wants = None, task.status == TaskStatus.SCHEDULED
