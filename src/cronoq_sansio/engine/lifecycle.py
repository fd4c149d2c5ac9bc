"""The life of a task (engine.md sections 2 and 6): every transition, in one table, and what each one does.

A task is BLOCKED (waits for other tasks), SCHEDULED (waits for its fixed start), READY (queued, or parked until
resources come free), RUNNING (one attempt holds one lease), RETRYING (waits for a backoff), or it has ended.
`MOVES` lists every transition that may happen; a move that it does not list is our own bug and fails an assertion.
Ends are final: nothing leaves a terminal status.

Each function does one whole transition: status, counters, queue, lease, record and action together, so that the
invariants hold whenever one returns.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine import retry
from cronoq_sansio.engine.actions import Dispatch, TaskEnded, TaskMoved
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.labels import Group
from cronoq_sansio.engine.records import Edge, OutputStored, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.engine.task import Lease, Task
from cronoq_sansio.spec import MissPolicy, TaskSpec, TaskStatus
from cronoq_sansio.values import blank

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

BLOCKED = int(TaskStatus.BLOCKED)
SCHEDULED = int(TaskStatus.SCHEDULED)
READY = int(TaskStatus.READY)
RUNNING = int(TaskStatus.RUNNING)
RETRYING = int(TaskStatus.RETRYING)
SUCCEEDED = int(TaskStatus.SUCCEEDED)
FAILED = int(TaskStatus.FAILED)
DEAD_LETTERED = int(TaskStatus.DEAD_LETTERED)
CANCELLED = int(TaskStatus.CANCELLED)
SKIPPED = int(TaskStatus.SKIPPED)
MISSED = int(TaskStatus.MISSED)
SHED = int(TaskStatus.SHED)

NEW = 0

#: From → where it may go. READY → READY does not exist: a dispatch that is taken back was RUNNING.
MOVES: dict[int, frozenset[int]] = {
    NEW: frozenset({BLOCKED, SCHEDULED, READY, RUNNING, RETRYING}),  # RUNNING and RETRYING only at recovery
    BLOCKED: frozenset({SCHEDULED, READY, SKIPPED, CANCELLED, MISSED, FAILED}),  # FAILED: missed, or at recovery
    SCHEDULED: frozenset({READY, SKIPPED, CANCELLED, MISSED, FAILED}),  # FAILED: missed, or at recovery
    READY: frozenset({RUNNING, CANCELLED, MISSED, FAILED, SHED}),  # FAILED: missed, or at recovery
    RUNNING: frozenset({READY, RETRYING, SUCCEEDED, FAILED, DEAD_LETTERED, CANCELLED}),
    RETRYING: frozenset({READY, CANCELLED, FAILED}),  # FAILED only at recovery
}

#: Name of the count in `Totals` for each end.
ENDS = {
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    DEAD_LETTERED: "dead_lettered",
    CANCELLED: "cancelled",
    SKIPPED: "skipped",
    MISSED: "missed",
    SHED: "shed",
}


def _move(task: Task, status: int) -> None:
    assert status in MOVES[task.status], f"task {task.id} cannot go from {task.status} to {status}"
    task.status = status


def admit(engine: "Engine", task: Task, edges: tuple[Edge, ...] = (), *, blocked: bool = False, due: int = 0) -> None:
    """A new task: stored, and queued unless it is `blocked` by unmet `edges`.

    `due`: wall time at which it stops to wait for keys that nobody has; 0 when there are none.
    """
    tasks, step, pool, spec, plan = engine.tasks, engine.step, task.pool, task.spec, task.plan
    tasks.add(task)
    task.stored = step.number
    step.writes.append(TaskInserted(task.id, spec, task.max_attempts, task.created, edges))
    engine.totals.submitted += 1
    if engine.watched:
        _tell(engine, task, BLOCKED)  # every task begins with it, with dependencies or without
    fixed = plan is not None and plan.fixed
    if not fixed:
        pool.arrivals += 1
    if blocked:
        block(engine, task)
        store(engine, task, due)
        return
    if fixed:
        arrive(engine, task)
        pool.apart_by_class[spec.priority] += 1
    else:
        make_ready(engine, task)
    pool.pending += 1
    pool.pending_by_class[spec.priority] += 1
    tasks.pending += 1


def enter(engine: "Engine", spec: TaskSpec, pool: Pool) -> int:
    """A new task that asks for nothing but its class: stored, and queued. Its id.

    Nearly every task comes in here, so this is `TaskTable.add`, `admit` and `make_ready` for such a one, in one piece.
    """
    tasks, step, now = engine.tasks, engine.step, engine.now
    task_id = tasks.next_id
    tasks.next_id = task_id + 1
    task = tasks.live[task_id] = Task(task_id, spec, pool, pool.settings.retry, now, now + engine.wall_offset)
    task.status = READY
    task.stored = step.number
    tasks.payload_bytes += spec.size
    if spec.key:
        tasks.keys[spec.key] = task
    ids = pool.ids
    ids.ids.append(task_id)
    if len(ids.ids) > ids.full:
        ids.clean()
    record = blank(TaskInserted)
    record.task_id = task_id
    record.spec = spec
    record.max_attempts = task.max_attempts
    record.arrival = task.created
    record.edges = ()
    step.writes.append(record)
    engine.totals.submitted += 1
    pool.arrivals += 1
    if task.plan is None and not pool.in_play:
        lane = pool.lanes[spec.priority]
        lane.fresh.append(task_id)  # no task has a higher id
        lane.ready += 1
    else:
        pool.push(task)
    if pool.victims is not None:
        pool.victims.add(task)
    pool.pending += 1
    pool.pending_by_class[spec.priority] += 1
    tasks.pending += 1
    if not pool.queued:  # a full pool is woken by the slot that comes free
        groups = pool.groups
        only = groups.plain.only
        if (only.filled < only.capacity) if only is not None else (groups.filled - groups.overbusy < groups.capacity):
            pool.queued = True
            engine.awake.append(pool)
    if engine.watched:
        _tell(engine, task, BLOCKED)
        _tell(engine, task, READY)
    return task_id


def block(engine: "Engine", task: Task) -> None:
    """A task that is not counted yet waits for others."""
    _move(task, BLOCKED)
    _count_pending(engine, task, +1)
    _set_apart(task, +1)


def unblock(engine: "Engine", task: Task) -> None:
    """Every edge of a BLOCKED task is met. Not stored: recovery judges them anew."""
    arrive(engine, task)


def arrive(engine: "Engine", task: Task) -> None:
    """Nothing but its fixed start, if it has one, keeps the task from its queue. Not stored: the start says it."""
    plan = task.plan
    if plan is None or not plan.fixed:
        make_ready(engine, task)
    elif plan.start > engine.wall() or (plan.schedule and engine.recovering):
        schedule(engine, task)  # at recovery it may overlap with an earlier one: `begin` judges all of them together
    else:
        start_is_due(engine, task)


def schedule(engine: "Engine", task: Task) -> None:
    """The task waits for its fixed start; when that has passed already, until timers have fired."""
    _move(task, SCHEDULED)
    engine.starts.schedule(task)
    if engine.watched:
        _tell(engine, task, SCHEDULED)


def start_is_due(engine: "Engine", task: Task) -> None:
    """The fixed start of a task has come that nothing else keeps. An occurrence that overlaps is skipped instead."""
    assert task.plan is not None
    over = engine.recurring.overlapping(engine, task) if task.plan.schedule and not task.attempt else ""
    if over:
        give_way(engine, task, over)
    else:
        make_ready(engine, task)


def make_ready(engine: "Engine", task: Task) -> None:
    """Queue a task at its place. Not stored: a row that waits for its time, or for others, says the same."""
    before = task.status
    assert READY in MOVES[before], f"{task} cannot become ready"
    task.status = READY
    pool = task.pool
    if before:
        _leave_for_queue(engine, task, before)
    if task.plan is None and not pool.in_play:
        pool.lanes[task.spec.priority].push(task)
    else:
        _queue(engine, task)
    if pool.victims is not None and not _is_fixed(task):
        pool.victims.add(task)
    if not pool.queued:  # a full pool is woken by the slot that comes free
        groups = pool.groups
        only = groups.plain.only
        if (only.filled < only.capacity) if only is not None else (groups.filled - groups.overbusy < groups.capacity):
            pool.queued = True
            engine.awake.append(pool)
    if engine.watched:
        _tell(engine, task, READY)


def requeue(engine: "Engine", task: Task) -> None:
    """A parked task was called: the resources it waited for are promised to it."""
    _queue(engine, task)
    engine.wake(task.pool)


def _queue(engine: "Engine", task: Task) -> None:
    """Into the queue of its pool; or, when a slot is held for it, to those that start at once."""
    plan = task.plan
    if plan is not None and plan.hold is not None:
        engine.starts.arm(task)
        engine.wake(task.pool)
    else:
        task.pool.push(task)


def _leave_for_queue(engine: "Engine", task: Task, before: int) -> None:
    """A task becomes READY that was something else."""
    if before == SCHEDULED:
        engine.starts.leave(task)
    elif before in (BLOCKED, RETRYING):
        _set_apart(task, -1)


def _set_apart(task: Task, difference: int) -> None:
    """It begins (+1) or ends (−1) to wait for others or for its time; with a fixed start it is set apart anyway."""
    if not _is_fixed(task):
        task.pool.apart_by_class[task.spec.priority] += difference


def _is_fixed(task: Task) -> bool:
    return task.plan is not None and task.plan.fixed


def start(engine: "Engine", task: Task, group: Group) -> None:
    """Give a task that was just taken from its lane to a group: one more attempt, one slot less."""
    assert RUNNING in MOVES[task.status], f"{task} cannot start"
    task.status = RUNNING
    pool, spec, plan = task.pool, task.spec, task.plan
    pool.pending -= 1
    pool.pending_by_class[spec.priority] -= 1
    engine.tasks.pending -= 1
    task.attempt = attempt = task.attempt + 1
    if plan is not None:
        if plan.tag >= 0 and pool.shares is not None:
            pool.shares[spec.priority].dispatched(plan.tag)
        if plan.fixed:
            pool.apart_by_class[spec.priority] -= 1
    leases = engine.leases
    lease_id = leases.next_id
    leases.next_id = lease_id + 1
    lease = task.lease = leases.live[lease_id] = Lease(lease_id, task, group.labels, task.last_started)
    now = engine.now
    task.last_started = started = now + engine.wall_offset
    if not task.first_started:
        task.first_started = started
        if plan is not None and plan.fixed:
            engine.starts.started(task, started)
            pool.figures.waits.append(max(min(now - task.arrival, started - plan.start), 0))
        else:
            pool.figures.waits.append(now - task.arrival)
    groups = pool.groups
    if plan is not None and plan.hold is not None:
        groups.use_hold(group, task)
        plan.hold = None
    elif groups.varied:
        groups.take(group)
    else:
        group.filled += 1
        groups.filled += 1
    engine.totals.dispatched += 1
    step = engine.step
    task.stored = number = step.number
    record = blank(TaskChanged)
    record.task_id = task.id
    record.status = RUNNING
    record.attempt = attempt
    record.due = 0
    record.first_started = task.first_started
    record.last_started = started
    record.message = task.message
    step.writes.append(record)
    if engine.watched:
        _tell(engine, task, RUNNING)
    dispatch = blank(Dispatch)
    dispatch.lease = lease
    dispatch.after = number
    step.once_durable.append(dispatch)


def take_back(engine: "Engine", lease: Lease) -> None:
    """A dispatch that no worker saw: as if it had not happened, its place in the queue included."""
    task = lease.task
    plan = task.plan
    if plan is not None and plan.needs:
        engine.resources.give_back(task, engine.now)
    _end_lease(engine, lease)
    task.attempt -= 1
    task.last_started = lease.previous_start
    if not task.attempt:
        first_started, task.first_started = task.first_started, 0
        if plan is not None and plan.fixed:
            engine.starts.unstarted(task, first_started)
    engine.totals.dispatched -= 1
    task.stored = engine.number  # this READY is a change of the row, and whoever is told of it waits for that
    make_ready(engine, task)
    _count_pending(engine, task, +1)
    store(engine, task)


def pass_on(engine: "Engine", lease: Lease, group: Group) -> None:
    """A refused lease goes to another worker: same lease, same attempt; its timeout goes on, its ttl starts anew."""
    pool = lease.task.pool
    engine.leases.withdraw(lease)
    pool.free(lease.group)
    pool.groups.take(group)
    lease.group = group.labels
    engine.wake(pool)
    engine.step.once_durable.append(Dispatch(lease, lease.task.stored))


def succeed(engine: "Engine", lease: Lease, output: bytes, content_type: str) -> None:
    """The attempt returned an output."""
    task, now, step = lease.task, engine.now, engine.step
    pool, spec = task.pool, task.spec
    plan = task.plan
    duration = now - engine.leases.excused - lease.started
    figures = pool.figures
    figures.succeeded += 1
    figures.worked += duration
    if plan is not None and plan.fixed:
        pool.durations.add(spec.kind, duration, fixed=True)
    else:
        pool.durations.add(spec.kind, duration)
    writes = step.writes
    writes.append(OutputStored(task.id, output, content_type))
    if plan is not None or task.id in engine.dependencies.parents:
        end_attempt(engine, lease)
        _end(engine, task, SUCCEEDED, "", output, content_type)
        return
    # Nearly every task ends here, so this is `end_attempt` and `_end` for one that nothing depends on, in one piece.
    assert SUCCEEDED in MOVES[task.status], f"{task} cannot succeed"
    _end_lease(engine, lease)
    task.status = SUCCEEDED
    task.message = ""
    task.finished = finished = now + engine.wall_offset
    task.stored = number = step.number
    engine.tasks.retire(task, now)
    engine.totals.succeeded += 1
    record = blank(TaskFinished)
    record.task_id = task.id
    record.status = SUCCEEDED
    record.attempt = task.attempt
    record.first_started = task.first_started
    record.last_started = task.last_started
    record.finished = finished
    record.message = ""
    writes.append(record)
    ended = blank(TaskEnded)
    ended.task = task
    ended.output = output
    ended.content_type = content_type
    ended.after = number
    step.once_durable.append(ended)


def fail(engine: "Engine", lease: Lease, message: str, *, permanent: bool = False, retry_after: int = 0) -> None:
    """The attempt failed: retried while attempts are left, unless the failure is permanent."""
    task = lease.task
    end_attempt(engine, lease).figures.failed += 1
    if permanent:
        _end(engine, task, FAILED, message)
    else:
        retry_or_bury(engine, task, message, retry_after)


def retry_or_bury(engine: "Engine", task: Task, message: str, retry_after: int = 0) -> None:
    """A RUNNING task without a lease lost its attempt: back off, or end as dead-lettered when that was the last one."""
    if task.attempt >= task.max_attempts:
        _end(engine, task, DEAD_LETTERED, message)
        return
    delay = retry.delay(task.retry, task.attempt + 1, retry_after, engine.random)
    task.message = message
    engine.totals.retries += 1
    back_off(engine, task, engine.now + delay)
    _count_pending(engine, task, +1)
    store(engine, task, engine.wall(delay))
    if engine.watched:
        _tell(engine, task, RETRYING, message)


def back_off(engine: "Engine", task: Task, due: int) -> None:
    """Wait until `due` on the `now` scale."""
    _move(task, RETRYING)
    _set_apart(task, +1)
    task.timer = engine.retries.add(due, task)


def cancel(engine: "Engine", task: Task, message: str) -> Lease | None:
    """End a live task as cancelled; returns the lease that this ended."""
    lease = task.lease
    if lease is not None:
        end_attempt(engine, lease).figures.cancelled += 1
    _end(engine, task, CANCELLED, message)
    return lease


def fail_waiting(engine: "Engine", task: Task, message: str) -> None:
    """End a task that cannot run any more, as failed. Only recovery finds such tasks."""
    _end(engine, task, FAILED, message)


def skip(engine: "Engine", task: Task, message: str) -> None:
    """End a BLOCKED task that cannot run any more: an edge is impossible, or an awaited key did not appear."""
    if task.plan is not None and task.plan.schedule:
        engine.recurring.skipped(engine, task, message)
    _end(engine, task, SKIPPED, message)


def give_way(engine: "Engine", task: Task, message: str) -> None:
    """End an occurrence whose start has come, because an earlier one is still going."""
    _end(engine, task, SKIPPED, message)


def miss(engine: "Engine", task: Task, message: str) -> None:
    """End a waiting task whose fixed start was missed, as its policy says."""
    assert task.plan is not None
    task.pool.figures.fixed_starts += 1
    if task.plan.schedule:
        engine.recurring.missed(engine, task, message)
    _end(engine, task, MISSED if task.plan.on_miss == MissPolicy.SKIP else FAILED, message)


def shed(engine: "Engine", task: Task, message: str) -> None:
    """End a READY task to make room for another one."""
    assert task.status == READY, f"{task} is not READY"
    _end(engine, task, SHED, message)


def end_attempt(engine: "Engine", lease: Lease) -> Pool:
    """An attempt is over: its lease, its slot, the resources it held, and its place among those that wait for them."""
    task = lease.task
    plan = task.plan
    if plan is not None and plan.needs:
        engine.resources.release(task, engine.now)
        plan.place = 0
    return _end_lease(engine, lease)


def _end_lease(engine: "Engine", lease: Lease) -> Pool:
    task = lease.task
    pool = task.pool
    lease.held = lease.live = False
    del engine.leases.live[lease.id]
    task.lease = None
    groups = pool.groups
    only = groups.plain.only
    if only is not None and not groups.varied and only.filled <= only.capacity and not groups.plain.closed:
        only.filled -= 1
        groups.filled -= 1
    else:
        pool.free(lease.group)
    if not pool.queued:
        pool.queued = True
        engine.awake.append(pool)
    return pool


def _end(
    engine: "Engine", task: Task, status: int, message: str, output: bytes | None = None, content_type: str = ""
) -> None:
    before = task.status
    assert status in MOVES[before], f"{task} cannot end as {status}"
    task.status = status
    plan = task.plan
    if before != RUNNING:
        if before == READY:
            _leave_queue(engine, task)
        elif before == SCHEDULED:
            engine.starts.leave(task)
        else:
            if task.timer is not None:
                engine.retries.cancel(task.timer)
                task.timer = None
            _set_apart(task, -1)
        _count_pending(engine, task, -1)
    if plan is not None and plan.fixed:
        if plan.hold is not None:
            engine.starts.drop_hold(engine, task)
        engine.starts.ended(task)
        if plan.schedule:
            engine.recurring.ended(task)
    task.message = message or ("" if status == SUCCEEDED else ENDS[status])
    task.finished = engine.now + engine.wall_offset
    task.stored = engine.number
    engine.tasks.retire(task, engine.now)
    if plan is not None:
        task.pool.drop_plan(plan)
    totals = engine.totals
    setattr(totals, ENDS[status], getattr(totals, ENDS[status]) + 1)
    step = engine.step
    step.writes.append(
        TaskFinished(task.id, status, task.attempt, task.first_started, task.last_started, task.finished, task.message)
    )
    step.once_durable.append(TaskEnded(task, output, content_type, engine.number))
    if engine.dependencies.any:
        engine.dependencies.ended(task)


def _leave_queue(engine: "Engine", task: Task) -> None:
    """A READY task has ended: it leaves its queue, or the parking, and what was promised to it is promised no more."""
    plan = task.plan
    parked = False
    if plan is not None and (plan.claim is not None or plan.called):
        parked = not plan.called
        engine.resources.leave(task)
    if parked:
        return
    if plan is not None and plan.hold is not None:
        engine.starts.disarm(task)
    else:
        task.pool.forget(task)


def _count_pending(engine: "Engine", task: Task, difference: int) -> None:
    task.pool.count_pending(task, difference)
    engine.tasks.pending += difference


def _tell(engine: "Engine", task: Task, status: int, message: str = "") -> None:
    spec = task.spec
    engine.step.once_durable.append(
        TaskMoved(task.id, spec.pool, spec.key, status, task.attempt, engine.wall(), message, task.stored)
    )


def store(engine: "Engine", task: Task, due: int = 0) -> None:
    """Write the row of a live task."""
    task.stored = engine.number
    engine.step.writes.append(
        TaskChanged(task.id, task.status, task.attempt, due, task.first_started, task.last_started, task.message)
    )
