"""The dispatch phase of a step: free slots meet tasks (engine.md section 4, "A pump of a pool").

In each pool whoever has a slot held for its fixed start goes first. Then, as long as a slot is free: it is held for the
next start that wants one; or it goes to the first start that is due, or to the best of all other ready work.

Resources are shared over pools, so their rounds go over all pools: tasks that can have what they lack are called, pools
start what they can, and called ones that found no slot are sent back. That is repeated until nothing changes.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.lanes import HoldLane, Lane
from cronoq_sansio.engine.reservations import PoolStarts, missed
from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_UNITS

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


def run(engine: "Engine", units: int) -> int:
    """Start what can start; the units that are left."""
    now, resources = engine.now, engine.resources
    awake = engine.awake

    def call(task: Task) -> None:
        lifecycle.requeue(engine, task)

    for _ in range(MAX_UNITS):  # and not for ever, whatever fault could be in here
        if not units:
            break
        if resources.any:
            resources.offers(now, awake, call)
        if len(awake) > 1 and not engine.cut:
            awake.sort(key=_index)
        engine.cut = False
        served = 0
        for pool in awake:
            units = serve(engine, pool, units)
            if not units:
                engine.cut = True
                break
            served += 1
            pool.queued = False
        del awake[:served]
        if resources.any and units:
            resources.recall(now, _recall)
        if not awake and not (resources.any and resources.pending(now)):
            break
    return units


def serve(engine: "Engine", pool: Pool, units: int) -> int:
    """Start what can start in one pool; the units that are left."""
    now, wall = engine.now, engine.now + engine.wall_offset
    start, plain = lifecycle.start, pool.groups.plain
    starts = pool.starts
    if starts is not None or pool.schedules:
        if pool.durations.alarmed:
            engine.ahead_changed(pool)
        if starts is not None and starts.armed.count:
            units = _serve_armed(engine, starts, units)
    lane: Lane | None = None
    while units:
        only = plain.only
        if only is not None and only.filled >= only.capacity:
            break
        # Where all that waits in the pool stands in one lane, that lane is the best until it is empty.
        if lane is None or only is None or pool.in_play or not lane.ready or lane.ready != pool.pending:
            lane = pool.best(now, wall)
            if lane is None:
                break
        units -= 1
        if lane.fixed and _settle_fixed(engine, lane, wall):
            continue
        task = lane.pop()
        plan = task.plan
        if plan is None or not plan.needs or engine.resources.acquire(task, now):
            group = only or lane.demand.best()
            assert group is not None
            start(engine, task, group)
    groups = pool.groups
    if groups.filled - groups.held != pool.figures.running:
        pool.figures.settle(now, groups.filled - groups.held)
    return units


def _serve_armed(engine: "Engine", starts: PoolStarts, units: int) -> int:
    """Start fixed starts whose slots are held; the units that are left."""
    wall, armed = engine.wall(), starts.armed
    while units and armed.next() is not None:
        units -= 1
        task = armed.pop()
        plan = task.plan
        assert plan is not None and plan.hold is not None
        if missed(task, wall):
            engine.starts.miss(engine, task)
            continue
        engine.starts.disarm(task)
        if not plan.needs or engine.resources.acquire(task, engine.now):
            lifecycle.start(engine, task, plan.hold)
    return units


def _settle_fixed(engine: "Engine", lane: Lane, wall: int) -> bool:
    """Do for the head of a lane of fixed starts what it needs before it can start; False when that is nothing."""
    task = lane.head()
    if type(lane) is HoldLane:
        group = lane.demand.best()
        assert group is not None
        engine.starts.hold(lane.pop(), group)
        return True
    if missed(task, wall):
        engine.starts.miss(engine, task)
        return True
    return False


def _index(pool: Pool) -> int:
    return pool.index


def _recall(task: Task) -> None:
    task.pool.recall(task)
