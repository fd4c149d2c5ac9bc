"""What workers do in the naive model: their slots, their leases, and what they report."""

from fractions import Fraction
from typing import TYPE_CHECKING

from cronoq_sansio.engine import events as ev
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import NaiveGroup, NaiveLease
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model


def capacity_set(model: "Model", event: ev.GroupCapacitySet) -> None:
    """The slots of a group are others."""
    known = [group for group in model.groups if (group.pool, group.labels) == (event.pool, event.labels)]
    group = known[0] if known else NaiveGroup(event.pool, event.labels)
    group.capacity = event.capacity
    if not known:
        model.groups.append(group)
    starts.drop_holds(model)
    before = len(model.groups)
    model.drop_groups()
    model.note("capacity", "group dropped" if known and len(model.groups) < before else "set")


def returned(model: "Model", event: ev.DispatchReturned) -> None:
    """A lease cannot be placed."""
    lease = model.lease(event.lease, held=False)
    if lease is None:
        model.note("return", "ignored")
        return
    model.note("return", "taken back")
    task, place = lease.task, lease.task.place
    model.end_lease(lease)
    task.place = place
    for name, units in task.asked.resources:
        resource = model.resources[name]
        if resource.is_bucket:
            resource.refill(model.now)
            resource.level = min(resource.level + units, Fraction(resource.settings.burst))
    task.attempt -= 1
    if task.fixed and not task.attempt:
        figures = model.figures_of(task.pool)
        figures.fixed_starts -= 1
        figures.hits -= task.hit
    model.totals["dispatched"] -= 1
    model.make_ready(task)
    model.store(task)


def released(model: "Model", event: ev.LeasesReleased) -> None:
    """Leases have reached their workers."""
    for lease_id in event.leases:
        lease = model.lease(lease_id, held=False)
        model.note("release", "ignored" if lease is None else "released")
        if lease is not None:
            lease.held = True
            beat = model.now - model.excused
            lease.beat = beat if lease.started is None else max(lease.beat, beat)
            if lease.started is None:
                lease.started = beat


def renewed(model: "Model", event: ev.LeaseRenewed) -> None:
    """A heartbeat."""
    lease = model.lease(event.lease, held=True)
    model.note("renew", "stale" if lease is None else "renewed")
    if lease is not None:  # a heartbeat never shortens a lease, even when lease time has gone back
        lease.beat = max(lease.beat, model.now - model.excused)


def report(model: "Model", lease_id: int, what: str) -> NaiveLease | None:
    """The lease that a report is for; without one the report is stale."""
    lease = model.lease(lease_id, held=True)
    model.note(what, "stale" if lease is None else "taken")
    model.totals["stale_completions"] += lease is None
    return lease


def succeeded(model: "Model", event: ev.AttemptSucceeded) -> None:
    """A worker finished."""
    lease = report(model, event.lease, "succeed")
    if lease is not None:
        assert lease.started is not None
        task = model.end_lease(lease)
        duration = model.now - model.excused - lease.started
        figures = model.figures_of(task.pool)
        figures.worked += duration
        figures.succeeded += 1
        model.learned.add(task.pool.name, task.spec.kind, duration, fixed=task.fixed)
        model.end(task, TaskStatus.SUCCEEDED)


def failed(model: "Model", event: ev.AttemptFailed) -> None:
    """A worker failed."""
    lease = report(model, event.lease, "fail")
    if lease is not None:
        spent = lease.task.attempt >= lease.task.policy.max_attempts
        model.note("fail", "for ever" if event.permanent else "dead-lettered" if spent else "retried")
        model.fail(lease, permanent=event.permanent, retry_after=event.retry_after)


def cancelled(model: "Model", event: ev.AttemptCancelled) -> None:
    """A worker cancelled."""
    lease = report(model, event.lease, "cancelled by the worker")
    if lease is not None:
        model.figures_of(lease.task.pool).cancelled += 1
        model.end(model.end_lease(lease), TaskStatus.CANCELLED)


def refused(model: "Model", event: ev.AttemptNacked) -> None:
    """A worker passes a lease on."""
    lease = model.lease(event.lease, held=True)
    if lease is None:
        model.note("nack", "stale")
        return
    room = [
        group
        for group in model.groups
        if (group.pool, group.labels in event.groups) == (lease.task.pool.name, True)
        and rules.carries(group.labels, lease.task.asked.labels)
        and rules.filled(model, group) - (group.labels == lease.labels) < group.capacity
    ]
    if not room:
        model.note("nack", "failed")
        model.fail(lease)
        return
    model.note("nack", "passed on")
    lease.labels = min(room, key=lambda group: rules.rank(model, group)).labels
    lease.held = False
    model.drop_groups()
    model.said = [  # a step names the lease itself: all of it tells of the group that has it last
        (*said[:4], lease.labels) if (said[0], said[-2]) == ("dispatched", lease.id) else said for said in model.said
    ]
    model.say_dispatch(lease)


def lost(model: "Model", event: ev.LeasesLost) -> None:
    """Workers are gone."""
    for lease_id in event.leases:
        lease = model.lease(lease_id)
        model.note("lose", "ignored" if lease is None else "failed")
        if lease is not None:
            model.fail(lease)
