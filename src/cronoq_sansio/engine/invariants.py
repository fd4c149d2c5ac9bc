"""What must always hold (engine.md section 15), as assertions.

`check(engine, step)` looks at what the step names and at the counters it touched, in constant time per record, cheap
enough to run after every event of a long simulation. `check(engine, None)` recounts everything.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from cronoq_sansio.engine.actions import Dispatch, EngineStep
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.lanes import HoldLane
from cronoq_sansio.engine.lifecycle import BLOCKED, READY, RETRYING, RUNNING, SUCCEEDED
from cronoq_sansio.engine.records import RecurringRecord, TaskFinished
from cronoq_sansio.engine.task import Lease, Task
from cronoq_sansio.spec import weight

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

OF_SCHEDULES = frozenset(get_args(RecurringRecord))


def check(engine: "Engine", step: EngineStep | None) -> None:
    """Assert the invariants; the message names the object that breaks one."""
    if step is None:
        _check_everything(engine)
    else:
        _check_step(engine, step)


def _check_step(engine: "Engine", step: EngineStep) -> None:
    live, number = engine.tasks.live, step.number
    written: list[Task] = []
    records: Sequence[Any] = step.writes
    for record in records:
        kind = type(record)
        if kind in OF_SCHEDULES:
            continue
        task = live.get(record.task_id)
        if kind is TaskFinished:
            assert task is None, f"ended task {record.task_id} is still live"
        elif task is not None:
            written.append(task)
    if written:
        _check_tasks(engine, written)
    for action in step.once_durable:
        assert action.after <= number, f"{action} waits for a step that does not exist"
        if type(action) is Dispatch and action.lease.live:
            assert action.lease.task.lease is action.lease, f"{action.lease} was dispatched but is not its task's"
    running = len(engine.leases.live)
    assert engine.tasks.pending + running == len(live), "pending + running is not the number of live tasks"


def _check_tasks(engine: "Engine", tasks: Iterable[Task]) -> None:
    leases, dependent, by_key, now = engine.leases.live, engine.dependencies.any, engine.tasks.by_key, engine.now
    for task in tasks:
        status, lease, plan = task.status, task.lease, task.plan
        assert 0 < status < SUCCEEDED, f"{task} has ended but is live"
        assert (status == RUNNING) == (lease is not None), f"{task} has a lease exactly while RUNNING"
        assert (status == RETRYING) == (task.timer is not None), f"{task} has a backoff exactly while RETRYING"
        assert (status == BLOCKED) == (task.id in dependent), f"{task} waits for others exactly while BLOCKED"
        if plan is not None and status != READY:
            assert plan.claim is None and not plan.called, f"{task} waits for resources, but is not READY"
        assert 0 <= task.attempt <= task.max_attempts, f"{task} has more attempts than its budget"
        if lease is not None:
            assert lease.live and lease.task is task, f"{lease} does not point back to its task"
            assert leases.get(lease.id) is lease, f"{lease} is not in the table"
            assert lease.timed or not lease.held, f"{lease} is held and nothing ends it"
        key = task.spec.key
        if key:
            assert by_key(key, now) is task, f"{task} does not have its key"


def _check_everything(engine: "Engine") -> None:
    tasks = engine.tasks
    _check_tasks(engine, tasks.live.values())
    leases: dict[Pool, list[Lease]] = {}
    for lease in engine.leases.live.values():
        assert lease.task.lease is lease, f"{lease} runs a task that does not know it"
        leases.setdefault(lease.task.pool, []).append(lease)
    held = engine.recurring.template_bytes + sum(weight(task.spec) for task in tasks.live.values())
    assert tasks.payload_bytes == held, "payload bytes are miscounted"
    live: dict[Pool, list[Task]] = {}
    for task in tasks.live.values():
        live.setdefault(task.pool, []).append(task)
    pending = {pool: [task for task in mine if task.status != RUNNING] for pool, mine in live.items()}
    assert tasks.pending == sum(map(len, pending.values())), "pending tasks are miscounted"
    backing_off = sum(task.status == RETRYING for mine in pending.values() for task in mine)
    assert len(engine.retries) == backing_off, "there is not one backoff timer per RETRYING task"
    engine.resources.check_invariants(engine)
    if not engine._held and not engine._more:
        engine.resources.check_idle(engine.now)
    engine.dependencies.check_invariants(engine)
    engine.recurring.check_invariants(engine)
    engine.starts.check_invariants(engine)
    engine.autoscale.check_invariants()
    engine.waiting_room.check_invariants(engine, engine._more)
    for pool in engine.pools.values():
        _check_pool(engine, pool, pending.get(pool, []))
        _check_groups(pool, live.get(pool, []), leases.get(pool, []))
    listed = {task_id for pool in engine.pools.values() for task_id in pool.ids.after(0)}
    missing = [task_id for task_id, task in tasks.live.items() if task_id not in listed]
    assert not missing, f"live tasks {missing} are in no pool's list"
    both = sorted(tasks.live.keys() & tasks._retained.keys())
    assert not both, f"tasks {both} are both live and finished"
    ids = [known.task_id for known in tasks._retained.values()]
    assert ids == list(tasks._retained), "a finished task is remembered under another id"


def _check_pool(engine: "Engine", pool: Pool, pending: list[Task]) -> None:
    name = pool.name
    assert pool.pending == len(pending), f"pool {name}: pending tasks are miscounted"
    ready = [task for task in pending if task.status == READY]
    by_class, apart = [0] * len(pool.lanes), [0] * len(pool.lanes)
    for task in pending:
        by_class[task.spec.priority] += 1
        apart[task.spec.priority] += task.status != READY or _fixed(task)
    assert pool.apart_by_class == apart, f"pool {name}: set apart"
    assert pool.pending_by_class == by_class, f"pool {name}: by class"
    ids = list(pool.ids.after(0))
    assert ids == sorted(set(ids)), f"pool {name}: the ids of its tasks are not ascending"
    assert len(ids) <= pool.ids.full, f"pool {name}: more ids than the list may have"
    queued: list[int] = []
    for lane in pool.every_lane():
        ids = [task.id for task in lane.tasks()]
        assert lane.ready == len(ids), f"pool {name}: a lane of class {lane.priority} is miscounted"
        if type(lane) is not HoldLane:
            queued += ids
    parked = [task.id for task in pending if task.plan is not None and task.plan.claim is not None]
    armed = [task.id for task in pool.starts.armed.tasks()] if pool.starts is not None else []
    stands = sorted(queued + parked + armed)
    assert stands == sorted(task.id for task in ready), f"pool {name}: not each READY task stands in one queue"
    _check_lanes(pool)
    if pool.victims is not None:
        pool.victims.check_invariants([task for task in ready if not _fixed(task)])
    assert pool.figures.running == pool.groups.busy, f"pool {name}: the figures have other running attempts"
    pool.figures.check_invariants()
    pool.durations.check_invariants()
    if not engine._held and not engine._more:
        able = [lane for lane in pool.every_lane() if type(lane) is not HoldLane or pool.may_hold()]
        idle = [lane for lane in able if lane.ready and lane.demand.has_room()]
        assert not idle, f"pool {name}: a slot is free while a task is ready, or wants it held"
        assert pool.starts is None or not pool.starts.armed.count, f"pool {name}: a task did not take its held slot"


def _check_groups(pool: Pool, live: list[Task], leases: list[Lease]) -> None:
    """Groups, with the live tasks and leases of the pool."""
    name, groups = pool.name, pool.groups
    _check_demands(pool, live)
    busy = Counter(lease.group for lease in leases)
    for labels, group in groups.by_labels.items():
        assert group.busy == busy.pop(labels, 0), f"pool {name}, group {labels}: busy slots are miscounted"
        assert group.filled or group.capacity, f"pool {name}: idle group {labels} was not dropped"
    assert not busy, f"pool {name}: leases in groups that do not exist: {busy}"
    assert groups.capacity == sum(group.capacity for group in groups.by_labels.values()), f"pool {name}: capacity"
    assert groups.filled == sum(group.filled for group in groups.by_labels.values()), f"pool {name}: filled"
    for labels, group in groups.by_labels.items():
        covered = not group.holders or group.filled <= group.capacity
        assert covered, f"pool {name}, group {labels}: more slots are held than it has"
    free = sum(max(group.capacity - group.filled, 0) for group in groups.by_labels.values())
    assert pool.free_slots() == free, f"pool {name}: free slots are miscounted"


def _fixed(task: Task) -> bool:
    return task.plan is not None and task.plan.fixed


def _check_lanes(pool: Pool) -> None:
    """Each lane with something to start is where `Pool.best` looks for it, or waits for a slot."""
    lanes = pool.every_lane()
    for lane in lanes:
        place = f"pool {pool.name}, a lane of class {lane.priority} for {lane.demand.labels}"
        assert lane.closed == lane.demand.closed.count(lane), (
            f"{place}: closed, and nothing opens it, or more than once"
        )
        special = bool(lane.demand.labels) or lane.called or lane.fixed
        if special and lane.ready and not lane.closed:
            assert lane in pool.in_play, f"{place}: nobody looks at it"
        if pool.in_play and lane.ready and not lane.closed:
            assert lane.listed is not None and lane.listed <= lane.key(), f"{place}: its line does not know its head"
        assert not lane.closed or not lane.demand.has_room(), f"{place}: closed although there is room"
    unknown = [lane for lane in pool.in_play if lane not in lanes]
    assert not unknown, f"pool {pool.name}: lanes in play whose tasks have all ended: {unknown}"


def _check_demands(pool: Pool, live: list[Task]) -> None:
    """Demands are those of live tasks, and know the groups that serve them."""
    groups = pool.groups
    required = Counter(task.plan.demand.labels for task in live if task.plan is not None and task.plan.demand.labels)
    assert set(groups.demands) == {(), *required}, f"pool {pool.name}: demands of no task, or missing ones"
    for labels, demand in groups.demands.items():
        place = f"pool {pool.name}, demand for {labels}"
        assert demand.tasks == required[labels], f"{place}: its tasks are miscounted"
        serving = [group for group in groups.by_labels.values() if group.serves(labels)]
        assert sorted(demand.groups) == sorted(group.labels for group in serving), f"{place}: groups that serve it"
        assert all(demand in group.demands for group in serving), f"{place}: a group does not know it"
        free = sum(group.free_slots() for group in serving)
        assert demand.free_slots() == free, f"{place}: free slots are miscounted"
        called = sum(
            task.plan is not None and task.plan.called and task.plan.demand is demand and task.plan.hold is None
            for task in live
        )
        assert demand.called == called, f"{place}: called tasks are miscounted"
    assert sum(len(group.demands) for group in groups.by_labels.values()) == sum(
        len(demand.groups) for demand in groups.demands.values()
    ), f"pool {pool.name}: a group serves a demand that does not exist"
