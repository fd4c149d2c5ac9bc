"""How the naive model takes over from a store (engine.md section 13).

A store has of each task what was written last. Attempts that ran are lost, backoffs go on until their due time, edges
are judged anew, reservations are made anew; places in lines, tags of tenants, learned durations, groups, leases, holds
and waiting submissions are gone. What the configuration does not know any more ends as failed.

Schedules go on where they were. Those of the configuration stand above stored ones of their name; a stored one that the
configuration does not support stays, and does nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from cronoq_sansio.engine import retry
from cronoq_sansio.engine.records import FinishedLoaded, LoadedRecord, RecurringLoaded, TaskChanged, TaskLoaded
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.sim.lockstep import model_recurring as recurring
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model import Model
from cronoq_sansio.sim.lockstep.model_admission import pool_of
from cronoq_sansio.sim.lockstep.model_state import NaiveEdge, NaiveEnded, NaiveSchedule, NaiveTask, met
from cronoq_sansio.spec import TaskStatus


def recover(model: Model, rows: Sequence[LoadedRecord]) -> None:
    """Let a model without a past take over these rows. What it decides is in `said`."""
    finished = [row for row in rows if isinstance(row, FinishedLoaded)]
    loaded = [row for row in rows if isinstance(row, TaskLoaded)]
    ends = {row.task_id: row.status for row in finished}
    model.reviving = True
    finished.sort(key=lambda row: (row.finished, row.task_id))
    for end in finished:
        expires = model.now - max(model.wall() - end.finished, 0) + model.limits.key_retention
        if expires > model.now:
            model.remember(NaiveEnded(end.task_id, end.pool, end.key, TaskStatus(end.status), end.finished, expires))
    loaded.sort(key=lambda row: row.inserted.task_id)
    for live in loaded:
        model.bring(revived(model, live))
    for live in loaded:
        resume(model, model.tasks[live.inserted.task_id], live.changed)
    for task in [task for task in model.tasks.values() if task.status == TaskStatus.BLOCKED]:
        resume_blocked(model, task, ends | {ended.id: ended.status for ended in model.news})
    model.hear()
    for row in rows:
        if isinstance(row, RecurringLoaded):
            go_on(model, row)
    configure(model)
    starts.fire(model)
    model.hear()
    model.reviving = False
    model.fire()
    model.hear()
    for task in model.tasks.values():
        if task.status == TaskStatus.READY and any(edge.unsaid for edge in task.stored_edges):
            model.store(task)


def revived(model: Model, row: TaskLoaded) -> NaiveTask:
    """The task as its rows say it is."""
    spec = row.inserted.spec
    pool = pool_of(model, spec) or PoolSettings(spec.pool)
    policy = replace(retry.resolve(spec.retry, pool.retry), max_attempts=row.inserted.max_attempts)
    created = min(row.inserted.arrival, model.wall())
    task = NaiveTask(row.inserted.task_id, spec, pool, policy, created - model.wall_offset, created)
    task.status = task.stored_status = TaskStatus.READY
    task.stored_arrival = row.inserted.arrival
    task.estimate = starts.estimate(model, spec, pool) if task.fixed else 0
    task.stored_edges = [NaiveEdge(edge.parent, edge.key, edge.condition) for edge in row.inserted.edges]
    if row.changed is not None:
        task.status = task.stored_status = TaskStatus(row.changed.status)
        task.attempt = task.stored_attempt = row.changed.attempt
        task.stored_due = row.changed.due
    return task


def resume(model: Model, task: NaiveTask, state: TaskChanged | None) -> None:
    """Go on where the rows say that it was."""
    model.note("recovery", task.status.name.lower())
    due = (state.due if state is not None else 0) - model.wall_offset
    if task.status == TaskStatus.RUNNING:
        model.retry_or_bury(task)
    elif task.status == TaskStatus.RETRYING and due > model.now:
        task.due, task.turn = min(due, model.now + task.policy.max_backoff), model.next_turn()
    elif task.status != TaskStatus.BLOCKED:
        model.make_ready(task)
    if task.id in model.tasks and hopeless(model, task):
        model.note("recovery", "cannot run any more")
        model.end(task, TaskStatus.FAILED)


def resume_blocked(model: Model, task: NaiveTask, ends: dict[int, int]) -> None:
    """Judge every edge anew."""
    impossible = False
    for edge in task.stored_edges:
        known = model.by_key(edge.key) if edge.key else None
        if isinstance(known, NaiveEnded) and known.id < task.id:
            for ended in model.remembered:  # forgotten when the task began to wait, whatever the clock says now
                ended.key = "" if ended.key == edge.key else ended.key
        elif known is not None:
            model.note("recovery", "its key appeared")
            edge.parent, edge.key, edge.unsaid = known.id, "", edge.key
            if isinstance(known, NaiveEnded):
                ends = {**ends, known.id: known.status}
        if edge.parent in ends:
            possible = met(edge.condition, ends[edge.parent])
            model.note("recovery", f"edge {'met' if possible else 'impossible'}")
            if not possible:  # the rest does not matter any more
                impossible = True
                break
        else:
            edge.turn = model.next_turn()
            task.edges.append(edge)
    if any(edge.key for edge in task.edges):
        longest = max(task.stored_due - task.stored_arrival, 0)
        task.due, task.turn = min(task.stored_due - model.wall_offset, model.now + longest), model.next_turn()
        if task.due <= model.now:
            model.note("recovery", "awaited in vain")
            impossible = True
    if impossible:
        recurring.fail(model, task)
    elif not task.edges:
        model.make_ready(task)


def go_on(model: Model, row: RecurringLoaded) -> None:
    """A schedule goes on where the rows say that it was, if the configuration supports it."""
    spec = row.stored.spec
    supported = recurring.supported(model, spec)
    schedule = NaiveSchedule(spec, recurring.compiled(spec) if supported else None, row.stored.added)
    if row.fired is not None:
        schedule.through, schedule.local = row.fired.through, row.fired.local
        schedule.last_task = row.fired.last_task
    schedule.resume()
    model.note("recovery", "schedule" if supported else "schedule without support")
    model.schedules[spec.name] = schedule


def configure(model: Model) -> None:
    """Schedules of the configuration are there, those that were of it are not."""
    named = {spec.name for spec in model.settings.recurring}
    for name, schedule in list(model.schedules.items()):
        if schedule.spec.configured and name not in named:
            model.note("recovery", "schedule is not configured any more")
            del model.schedules[name]
    for spec in model.settings.recurring:
        known = model.schedules.get(spec.name)
        if known is not None and known.spec == spec:
            model.note("recovery", "configured schedule is as it was")
        elif recurring.refused(model, spec):
            model.note("recovery", "configured schedule does not fit")
            if known is not None:
                known.cron = known.fire = None
        else:
            model.note("recovery", f"configured schedule {'is new' if known is None else 'replaces a stored one'}")
            recurring.arm(model, spec)


def hopeless(model: Model, task: NaiveTask) -> bool:
    """Whether the configuration lacks what the task needs."""
    if pool_of(model, task.spec) is None:
        return True
    resources = model.resources
    return any(
        name not in resources or units > resources[name].settings.capacity for name, units in task.asked.resources
    )
