"""How the naive model looks: everything that can be compared with an engine."""

from typing import TYPE_CHECKING

from cronoq_sansio.sim.lockstep import model_recurring as recurring
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep import model_scaling as scaling
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import NaiveTask
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model


def view(model: "Model") -> dict[str, object]:
    """By subject."""
    pools = model.settings.pools
    tasks = list(model.tasks.values())
    pending = [task for task in tasks if task.status != TaskStatus.RUNNING]
    return {
        "tasks": {task.id: (task.status.name, task.attempt, task.spec.pool) for task in tasks},
        "pending": {
            pool.name: [sum(task.pool is pool and task.priority == index for task in pending) for index in range(4)]
            for pool in pools
        },
        "groups": {
            pool.name: sorted(
                (group.labels, group.capacity, rules.busy(model, group), starts.held(model, group))
                for group in model.groups
                if group.pool == pool.name
            )
            for pool in pools
        },
        "leases": {lease.id: (lease.task.id, lease.labels, lease.held) for lease in model.leases},
        "plans": {
            task.id: plan(task) for task in tasks if task.spec.scheduling is not None or rules.has_shares(task.pool)
        },
        "starts": {task.id: (task.hold, task.wants) for task in tasks if task.fixed},
        "calendar": {pool.name: starts.reservations(model, pool) for pool in pools},
        "remembered": sorted(ended.id for ended in model.remembered if model.swept or ended.expires > model.now),
        "schedules": {
            name: (known.next, recurring.shown_next(model, known), known.last_task)
            for name, known in sorted(model.schedules.items())
        },
        "dropped": {reason: count for reason, count in sorted(model.dropped.items()) if count},
        "figures": {
            each.pool.name: (
                *(each.fixed_starts, each.hits, each.worked, each.offered),
                *(each.succeeded, each.failed, each.cancelled),
            )
            for each in model.figures
        },
        "waits": {each.pool.name: each.waits for each in model.figures},
        "desired": {scale.pool.name: scaling.desired(scale) for scale in model.scales},
        "totals": {name: count for name, count in sorted(model.totals.items()) if count},
    }


def snapshot(model: "Model") -> dict[str, object]:
    """What an engine shows to people, as far as that is a count."""
    found: dict[str, object] = {
        scale.pool.name: (
            sum(group.capacity for group in model.groups if group.pool == scale.pool.name),
            sum(lease.task.pool is scale.pool for lease in model.leases),
            sum(task.pool is scale.pool and task.hold is not None for task in model.tasks.values()),
            scaling.desired(scale),
            len(starts.reservations(model, scale.pool)),
        )
        for scale in model.scales
    }
    return found | {"schedules": len(model.schedules), "dropped": sum(model.dropped.values())}


def plan(task: NaiveTask) -> tuple[int, int, int, bool]:
    """What its place depends on: run time as far as that matters, tag, and place among those that lack a resource."""
    estimate = 0 if task.asked.deadline is None or task.fixed else task.estimate
    return estimate, task.tag, task.place, task.parked
