"""A second engine, recovered from the rows at this very moment, must be as the one that made them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord, RecurringLoaded, TaskLoaded
from cronoq_sansio.engine.task import Retained
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import BLOCKED, READY, RETRYING, RUNNING
from cronoq_sansio.spec import Overlap, RecurringSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Task
    from cronoq_sansio.sim.server.node import Node


LIKE_READY = (READY, RUNNING, RETRYING)
"""A lost attempt backs off, or has done so, and what has is READY."""


def check(node: "Node") -> None:
    """Of a node at rest.

    Nothing when something is not stored yet, when it has lost the store, or when the wall clock was set in its term:
    what waits for a time was stored with the clock as it was, and a term that recovers with another one waits anew.
    """
    if node.view.set or not node.settled() or node.epoch != node.world.store.epoch:
        return
    mine, other = node.engine, rebuild(node)
    since = max(node.now, _oldest(mine), _oldest(other))
    wrong = [
        *_differ("live tasks", _live(mine), _live(other)),
        *_differ("dependencies", _edges(mine), _edges(other)),
        *_differ("schedules", _schedules(mine, node), _schedules(other, node)),
        *_differ("keys of finished tasks", _retained(mine, since), _retained(other, since)),
    ]
    if wrong:
        raise Violation(Kind.SAFETY, "an engine rebuilt from the store is another one", "; ".join(wrong[:8]))


def rebuild(node: "Node") -> Engine:
    """From the rows as they are. Lost attempts do not end a task in it, so that nothing follows from that.

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
    rows = node.world.store.load(now + engine.wall_offset - node.settings.limits.key_retention)
    other.load([_as_it_was(row) for row in rows])
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


def _live(engine: Engine) -> dict[str, object]:
    return {f"task {task_id}": _durable(task) for task_id, task in engine.tasks.live.items()}


def _durable(task: "Task") -> object:
    """What rows say of a task."""
    status = 0 if task.status in LIKE_READY else task.status
    return (status, task.attempt, task.first_started, task.last_started, task.spec)


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


def _retained(engine: Engine, since: int) -> dict[str, object]:
    """By key, what is remembered longer than that."""
    known = engine.tasks._keys
    return {
        key: (held.task_id, held.status)
        for key, held in known.items()
        if isinstance(held, Retained) and held.expires > since
    }
