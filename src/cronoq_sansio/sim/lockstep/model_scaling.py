"""How many slots a pool should have (engine.md section 12), counted anew at every tick, one tick per second.

Integers only: rates are in millionths of a task per second, slots in millionths of a slot.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import NaiveScale
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model

MILLION = 10**6
HORIZON = 60 * SECOND  #: reservations that begin so soon count
MEMORY = 60  #: ticks whose highest wish a step down respects
CLASSES = 4


def tick(model: "Model") -> None:
    """Every second that has passed is a tick of its own."""
    while model.next_tick <= model.now:
        for scale in model.scales:
            step(model, scale, model.next_tick)
        model.next_tick += SECOND


def desired(scale: NaiveScale) -> int:
    """The target that is shown."""
    return scale.current if scale.pool.autoscale else 0


def step(model: "Model", scale: NaiveScale, at: int) -> None:
    """One tick of one pool, as of then."""
    pool = scale.pool
    scale.rate += (scale.arrivals * MILLION - scale.rate) * 3 // 10
    scale.arrivals = 0
    wanted = min(max(-(-demand(model, scale, at) // MILLION), pool.min), pool.max)
    scale.wanted.append(wanted)
    if wanted > scale.current:
        highest = scale.current + max(scale.current, 4)
        model.note("scale", "up" if wanted <= highest else "up half the way")
        scale.current = min(wanted, highest)
    elif wanted < scale.current and max(scale.wanted[-MEMORY:]) >= scale.current:
        model.note("scale", "stays as it was within the last minute")
    elif wanted < scale.current:
        if scale.went_down is not None and at - scale.went_down < pool.cooldown:
            model.note("scale", "rests")
            return
        model.note("scale", "down")
        scale.current -= 1
        scale.went_down = at


def demand(model: "Model", scale: NaiveScale, at: int) -> int:
    """Slots that the pool needs, in millionths."""
    pool = scale.pool
    service = model.learned.mean(pool)
    backlog = [0] * CLASSES
    for task in model.tasks.values():
        backlog[task.priority] += task.pool is pool and task.status == TaskStatus.READY and not task.fixed
    part, whole = pool.target_utilization.as_integer_ratio()
    base = scale.rate * service * whole // (part * SECOND)
    drain = sum(backlog) * MILLION * service // pool.drain_time
    aims = [
        sum(backlog[: priority + 1]) * MILLION * service // aim
        for priority, aim in enumerate(pool.slo)
        if aim is not None
    ]
    busy = sum(lease.task.pool is pool for lease in model.leases) * MILLION
    found = max([base + drain, busy, *aims]) + coming(model, pool, at) * MILLION
    return 0 if found < MILLION // 100 else found


def coming(model: "Model", pool: PoolSettings, at: int) -> int:
    """The most fixed starts that overlap soon and have not been started."""
    wall = at + model.wall_offset
    unstarted = [
        task.reserved
        for task in model.starting.values()
        if task.pool is pool and not task.attempt and task.reserved[0] < task.reserved[1]
    ]
    return starts.peak(unstarted, (wall, wall + HORIZON))
