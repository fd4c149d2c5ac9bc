"""A second engine, recovered from the rows as they will be, must be as the one that made them.

What a term has written and the store does not have yet is put into a copy of the rows, so that it matters little when
one looks. It costs about 15 µs per row that is loaded: `when_due` spends a share of a run on it, whatever there is.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord, RecurringLoaded, TaskLoaded
from cronoq_sansio.engine.recovery import LOST
from cronoq_sansio.engine.task import Retained
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import BLOCKED, READY, RETRYING, RUNNING
from cronoq_sansio.spec import Overlap, RecurringSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Task
    from cronoq_sansio.sim.server.node import Node


EVENTS_PER_ROW = 75
"""Events to which a row may be loaded once: with 20 µs each that is 1 % of the run."""
OLD_ROWS = 20
"""Rows that are only looked at, and not loaded: so many cost as much as one that is."""


def when_due(node: "Node") -> None:
    """`check`, when enough has happened for what it costs."""
    world = node.world
    if world.events >= world.next_rebuilt and check(node):
        rows = world.store.rows.inserted
        cost = len(node.engine.tasks.live) + node.engine.tasks.retained() + len(rows) // OLD_ROWS
        world.next_rebuilt = world.events + EVENTS_PER_ROW * cost


def check(node: "Node") -> bool:
    """Of a node at rest; False when it cannot be done.

    So it is when it has lost the store, or when the wall clock was set in its term: what waits for a time was stored
    with the clock as it was, and a term that recovers with another one waits anew.
    """
    if node.view.set or node.epoch != node.world.store.epoch:
        return False
    mine, other = node.engine, rebuild(node)
    since = max(node.now, _oldest(mine), _oldest(other))
    wrong = [
        *_tasks(mine, other, frozenset(node.view.starts)),
        *_differ("dependencies", _edges(mine), _edges(other)),
        *_differ("schedules", _schedules(mine, node), _schedules(other, node)),
    ]
    if not node.world.on("clock step"):  # else ends are not in the order of their times, and which key is whose differs
        held, found = _retained(mine, other, since, node.damaged)
        wrong += _differ("keys of finished tasks", held, _known(node, found))
    if wrong:
        raise Violation(Kind.SAFETY, "an engine rebuilt from the store is another one", "; ".join(wrong[:8]))
    return True


def rebuild(node: "Node") -> Engine:
    """From the rows as they will be. Lost attempts do not end a task in it, so that nothing follows from that.

    Nor does it skip occurrences: recovery asks the policy of today which of them overlap, and those of a schedule that
    was replaced came under another one.
    """
    engine, now = node.engine, node.now
    other = Engine.recover(
        node.settings,
        first_task_id=engine.tasks.next_id,
        first_lease_id=engine.leases.next_id,
        seed=0,
        now=now,
        wall_offset=engine.wall_offset,
    )
    rows = node.world.store.rows
    if pending := node.unwritten():
        rows = rows.copy()
        rows.write(pending)
    since = now + engine.wall_offset - node.settings.limits.key_retention
    other.load([_as_it_was(row) for row in rows.rows(since)])
    while other.settle(now):
        pass
    other.begin(now)
    return other


def _as_it_was(row: LoadedRecord) -> LoadedRecord:
    if type(row) is TaskLoaded and row.changed is not None and row.changed.status == RUNNING:
        return replace(row, inserted=replace(row.inserted, max_attempts=row.inserted.max_attempts + 1))
    if type(row) is RecurringLoaded:
        return replace(row, stored=replace(row.stored, spec=_never_skipped(row.stored.spec)))
    return row


def _never_skipped(spec: RecurringSpec) -> RecurringSpec:
    return replace(spec, overlap=int(Overlap.ALLOW)) if spec.overlap == Overlap.SKIP else spec


def _differ(what: str, mine: dict[str, object], other: dict[str, object]) -> list[str]:
    """Names under which there is not the same."""
    return [
        f"{what}: {name} is {mine.get(name)}, rebuilt {other.get(name)}"
        for name in dict.fromkeys((*mine, *other))
        if mine.get(name) != other.get(name)
    ]


def _tasks(mine: Engine, other: Engine, started: frozenset[int]) -> list[str]:
    """Live tasks of which rows do not say the same. `started`: those of which an attempt has, in this term."""
    known, found = mine.tasks.live, other.tasks.live
    wrong = [f"live tasks: task {task_id} is only in one" for task_id in sorted(known.keys() ^ found.keys())]
    dues, others = _backoffs(mine), _backoffs(other)
    for task_id, task in known.items():
        twin = found.get(task_id)
        if twin is not None:
            due, found_due = dues.get(task_id, 0), others.get(task_id, 0)
            if task_id not in started:
                due = max(due, found_due)  # it may have been cut when the term began, by what was left then
            expected = _durable(task, other.now, due)
            actual = _rebuilt(twin, found_due, lost=task.status == RUNNING)
            if expected != actual:
                wrong.append(f"live tasks: {task} is {expected}, rebuilt {actual}")
    return wrong


def _backoffs(engine: Engine) -> dict[int, int]:
    """When each is over."""
    return {timer.payload.id: when for when, _, _, timer in engine.retries.heap if timer.payload is not None}


def _durable(task: "Task", now: int, due: int) -> object:
    """What rows say of a task. An attempt that is lost backs off; no backoff is longer than the policy allows."""
    status, message = task.status, task.message
    if status == RUNNING:
        status, message = 0, LOST
    elif status == RETRYING or due:  # a backoff that was cut is over sooner
        due = min(due, now + task.retry.max_backoff)
        status, due = (RETRYING, due) if due > now else (READY, 0)
    return (status, due, message, *_same(task), task.max_attempts, replace(task.retry, max_attempts=0))


def _rebuilt(task: "Task", due: int, *, lost: bool) -> object:
    """The same of its twin. When its attempt is lost it may have one more, and backs off for a time that is drawn."""
    status = task.status
    if lost and status in (RETRYING, READY):
        status = due = 0
    return (status, due, task.message, *_same(task), task.max_attempts - lost, replace(task.retry, max_attempts=0))


def _same(task: "Task") -> tuple[object, ...]:
    """What is as it was, whatever happens to the process. Places, tags and estimates are not."""
    plan = task.plan
    asked = None if plan is None else (plan.deadline, plan.needs, plan.demand.labels, plan.fixed, plan.schedule)
    starts = None if plan is None else (plan.start, plan.late, plan.on_miss)
    return task.attempt, task.first_started, task.last_started, task.spec, task.pool.name, asked, starts


def _edges(engine: Engine) -> dict[str, object]:
    waiting = (task for task in engine.tasks.live.values() if task.status == BLOCKED)
    return {f"task {task.id}": sorted(map(str, engine.dependencies.refs_of(task.id))) for task in waiting}


def _schedules(engine: Engine, node: "Node") -> dict[str, object]:
    """Without those that the file names: whether there was room for one when a term began is not so at any time."""
    named = [spec.name for spec in node.settings.recurring]
    return {
        view.spec.name: (_never_skipped(view.spec), view.next, view.last_task)
        for view in engine.list_recurring()
        if view.spec.name not in named
    }


def _oldest(engine: Engine) -> int:
    """What is remembered until then may be forgotten for its number; of those that ended together it may be any."""
    finished = engine.tasks.finished
    return finished[0].expires if len(finished) >= engine.limits.key_retention_max > 0 else 0


def _retained(
    mine: Engine, other: Engine, since: int, damaged: Collection[int]
) -> tuple[dict[str, object], dict[str, object]]:
    """By key, what is remembered longer than that. A term does not know the keys of tasks whose rows it cannot read."""
    found = [
        {key: held for key, held in engine.tasks.keys.items() if isinstance(held, Retained) and held.expires > since}
        for engine in (mine, other)
    ]
    unread = {key for known in found for key, held in known.items() if held.task_id in damaged}
    first, second = found
    return _readable(first, unread), _readable(second, unread)


def _readable(known: dict[str, Retained], unread: set[str]) -> dict[str, object]:
    return {key: (held.task_id, held.status) for key, held in known.items() if key not in unread}


def _known(node: "Node", found: dict[str, object]) -> dict[str, object]:
    """Without keys that this term has set free as it began, for a task that awaited them and has ended since."""
    keys = node.view.keys
    return {key: held for key, held in found.items() if key in keys.finished or key in keys.live}
