"""What is compared: what an engine says in a step, how it looks afterwards, and what a store says of it."""

from collections.abc import Sequence

from cronoq_sansio.engine.actions import (
    Abort,
    Answer,
    BatchOutcome,
    CancelOutcome,
    Dispatch,
    EngineStep,
    OccurrenceDropped,
    OnceDurable,
    RecurringAdded,
    RecurringGone,
    Submitted,
    TaskEnded,
    TaskMoved,
)
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import TaskChanged, TaskFinished
from cronoq_sansio.errors import Rejection
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model import Model, Said
from cronoq_sansio.sim.lockstep.model_state import NaiveFigures
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.spec import TaskStatus

AT_ONCE = ("aborted", "dropped")  #: what is said of these waits for nothing


def said_by(step: EngineStep) -> list[Said]:
    """What a step says, in the words of the model: first what may be done at once."""
    found: list[Said] = []
    for at_once in step.at_once:
        if type(at_once) is Abort:
            found.append(("aborted", at_once.lease.id, at_once.reason))
        else:
            assert type(at_once) is OccurrenceDropped
            counted = (at_once.first, at_once.last, at_once.count, at_once.more)
            found.append(("dropped", at_once.name, at_once.reason, *counted))
    for action in step.once_durable:
        if type(action) is Dispatch:
            lease = action.lease
            found.append(("dispatched", lease.task.id, lease.attempt, lease.id, lease.group))
        elif type(action) is TaskEnded:
            found.append(("ended", action.task.id, TaskStatus(action.task.status).name))
        elif type(action) is TaskMoved:
            found.append(("moved", action.task_id, TaskStatus(action.status).name, action.attempt))
        else:
            assert type(action) is Answer
            found.append(answer(action))
    return found


def answer(action: Answer) -> Said:
    """An answer in the words of the model."""
    outcome = action.outcome
    if isinstance(outcome, Submitted):
        return ("submitted", action.request, outcome.task_id, outcome.duplicate)
    if isinstance(outcome, BatchOutcome):
        return ("batch", action.request, tuple((member.task_id, member.duplicate) for member in outcome.members))
    if isinstance(outcome, CancelOutcome):
        return ("cancelled", action.request, outcome.cancelled)
    if isinstance(outcome, RecurringAdded):
        return ("recurring added", action.request)
    if isinstance(outcome, RecurringGone):
        return ("recurring gone", action.request, outcome.removed)
    assert isinstance(outcome, Rejection)
    indices = tuple(int(text) for name, text in outcome.details if name == "cronoq-batch-index")
    return ("refused", action.request, outcome.code.value, indices)


def shown_by(action: OnceDurable) -> list[int]:
    """Ids of the tasks that the action tells about."""
    if isinstance(action, Dispatch):
        return [action.lease.task.id]
    if isinstance(action, TaskEnded):
        return [action.task.id]
    if isinstance(action, TaskMoved):
        return [action.task_id]
    if isinstance(action.outcome, Submitted):
        return [action.outcome.task_id]
    if isinstance(action.outcome, BatchOutcome):
        return [member.task_id for member in action.outcome.members]
    return []


def agree(expected: Sequence[Said], found: Sequence[Said]) -> bool:
    """Whether the engine said what the model says; what may be said at once is compared for itself."""
    at_once = [said for said in expected if said[0] in AT_ONCE]
    others = [said for said in expected if said[0] not in AT_ONCE]
    return len(expected) == len(found) and all(map(_agree, [*at_once, *others], found))


def _agree(expected: Said, found: Said) -> bool:
    if expected[0] == found[0] == "refused" and expected[3]:
        allowed, blamed = expected[3], found[3]  # of a cycle in a batch any member may be blamed
        assert isinstance(allowed, tuple) and isinstance(blamed, tuple)
        return expected[:3] == found[:3] and len(blamed) == 1 and blamed[0] in allowed
    return expected == found


def view_of(engine: Engine, model: Model) -> dict[str, object]:
    """An engine as the model sees it. Until that is `swept`, parents that recovery brought are not remembered."""
    tasks, schedules = engine.tasks, engine.recurring._schedules
    return {
        "tasks": {
            task.id: (TaskStatus(task.status).name, task.attempt, task.pool.name) for task in tasks.live.values()
        },
        "pending": {name: pool.pending_by_class for name, pool in engine.pools.items()},
        "groups": {
            name: sorted(
                (group.labels, group.capacity, group.filled - len(group.holders), len(group.holders))
                for group in pool.groups.by_labels.values()
            )
            for name, pool in engine.pools.items()
        },
        "leases": {lease.id: (lease.task.id, lease.group, lease.held) for lease in engine.leases.live.values()},
        "plans": {
            task.id: (
                0 if plan.deadline is None or plan.fixed else plan.estimate,
                plan.tag,
                plan.place,
                plan.claim is not None,
            )
            for task in tasks.live.values()
            if (plan := task.plan) is not None
        },
        "starts": {
            task.id: (plan.hold.labels if plan.hold is not None else None, plan.wants and plan.hold is None)
            for task in tasks.live.values()
            if (plan := task.plan) is not None and plan.fixed
        },
        "calendar": {
            name: sorted(
                plan.booking
                for task in tasks.live.values()
                if task.pool is pool and (plan := task.plan) is not None
                if plan.booking is not None and plan.booking[0] < plan.booking[1]
            )
            for name, pool in engine.pools.items()
        },
        "schedules": {
            view.spec.name: (fire.at if (fire := schedules[view.spec.name].next) else None, view.next, view.last_task)
            for view in engine.list_recurring()
        },
        "dropped": {reason: count for reason, count in sorted(engine.recurring.dropped.items()) if count},
        "figures": {name: _sums(pool, engine.now) for name, pool in engine.pools.items()},
        "waits": {each.pool.name: _newest(engine, each) for each in model.figures},
        "desired": {name: engine.autoscale.desired(pool) for name, pool in engine.pools.items()},
        "remembered": sorted(
            known.task_id for known in tasks._retained.values() if model.swept or known.expires > engine.now
        ),
        "totals": {
            name: getattr(engine.totals, name)
            for name in sorted(type(engine.totals).__slots__)
            if getattr(engine.totals, name)
        },
    }


def _sums(pool: Pool, now: int) -> tuple[int, ...]:
    """Fixed starts that were due, those in time, nanoseconds of work and of slots, and how attempts ended."""
    figures = pool.figures
    times = figures.worked, figures.offered + pool.groups.capacity * now
    return figures.fixed_starts, figures.hits, *times, figures.succeeded, figures.failed, figures.cancelled


def _newest(engine: Engine, figures: NaiveFigures) -> list[int]:
    """As many of the waits of a pool as the last step brought; those before it may have been noted, and put away."""
    waits = engine.pools[figures.pool.name].figures.waits
    return waits[-len(figures.waits) :] if figures.waits else []


def snapshot_of(engine: Engine) -> dict[str, object]:
    """What an engine shows to people, as the model counts it."""
    shown = engine.snapshot(engine.now)
    found: dict[str, object] = {
        pool.name: (pool.capacity, pool.busy, pool.held, pool.desired, pool.reservations) for pool in shown.pools
    }
    return found | {"schedules": shown.schedules, "dropped": sum(count for _, count in shown.occurrences_dropped)}


def idle(model: Model) -> list[str]:
    """Tasks that could start and do not: slot and units are there. None may be left after a step."""
    ready = [task for task in model.tasks.values() if task.status == TaskStatus.READY]
    found = [
        f"task {task.id} in pool {task.spec.pool}"
        for task in ready
        if rules.fits(model, task) and (task.hold is not None or rules.groups_with_room(model, task))
    ]
    wanting = [
        task
        for task in model.tasks.values()
        if task.wants and starts.may_hold(model, task.pool) and rules.groups_with_room(model, task)
    ]
    return found + [f"task {task.id} in pool {task.spec.pool} has no slot held for it" for task in wanting]


def stored_otherwise(model: Model, store: NaiveStore) -> list[str]:
    """Where the rows of live tasks are not what the model says they are."""
    found = [f"task {task_id} is live and has no row" for task_id in model.tasks if task_id not in store.inserted]
    for task_id in store.inserted:
        state, task = store.states.get(task_id), model.tasks.get(task_id)
        if task is None:
            if type(state) is not TaskFinished:
                found.append(f"task {task_id} has ended, its row says {state}")
            continue
        status, attempt, due = TaskStatus.READY, 0, 0
        if type(state) is TaskChanged:
            status, attempt, due = TaskStatus(state.status), state.attempt, state.due
        expected = (task.stored_status, task.stored_attempt, task.stored_due)
        if type(state) is TaskFinished or expected != (status, attempt, due):
            found.append(f"task {task_id} should be stored as {expected}, its row says {state}")
        if store.inserted[task_id].spec != task.spec:
            found.append(f"task {task_id} should be stored as {task.spec}, its row says {store.inserted[task_id].spec}")
        edges = [(edge.parent, edge.key, edge.condition) for edge in store.inserted[task_id].edges]
        wanted = [
            (0 if edge.unsaid else edge.parent, edge.unsaid or edge.key, edge.condition) for edge in task.stored_edges
        ]
        if edges != wanted:
            found.append(f"task {task_id} should be stored with edges {wanted}, the rows say {edges}")
    return [*found, *_schedules_stored_otherwise(model, store)]


def _schedules_stored_otherwise(model: Model, store: NaiveStore) -> list[str]:
    found = []
    for name in {**model.schedules, **store.schedules}:
        known, row, fired = model.schedules.get(name), store.schedules.get(name), store.fired.get(name)
        wanted = None if known is None else (known.spec, known.through, known.local, known.last_task)
        stored: tuple[object, ...] | None = None if row is None else (row.spec, row.added, -1, 0)
        if row is not None and fired is not None:
            stored = (row.spec, fired.through, fired.local, fired.last_task)
        if wanted != stored:
            found.append(f"schedule {name} should be stored as {wanted}, the rows say {stored}")
    return found


def too_early(step: EngineStep, wall: int) -> list[str]:
    """First dispatches of this step ahead of their fixed start. `wall`: the latest time that the clock has shown."""
    return [
        f"task {action.lease.task.id} starts {asked.start - wall} ns before its fixed start"
        for action in step.once_durable
        if isinstance(action, Dispatch) and action.lease.attempt == 1
        if (asked := action.lease.task.spec.scheduling) is not None
        if asked.start is not None and wall < asked.start
    ]


def held_in_vain(engine: Engine) -> list[str]:
    """Groups that hold slots which they do not have."""
    return [
        f"pool {pool.name}: {group.labels} has {group.capacity} slots, {group.filled} filled, {len(group.holders)} held"
        for pool in engine.pools.values()
        for group in pool.groups.by_labels.values()
        if group.holders and group.filled > group.capacity
    ]
