"""Which task runs next, where, and with what: the rules of engine.md sections 4, 7 and 8, sorted out for every pick.

Functions here look at the model and change nothing, but for `pump` at the end, which calls, parks and starts.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import Labels
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import NaiveGroup, NaiveTask
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model

POINTS = (10_000, 1_000, 100, 10)
WINDOW = 64  #: samples that a median looks at

# --- durations


class Learned:
    """How long successful attempts took: by pool and kind all of them, by pool those without a fixed start."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str | None], list[int]] = {}

    def add(self, pool: str, kind: str, duration: int, *, fixed: bool) -> None:
        """An attempt has succeeded, of a task with a fixed start or without."""
        for name in (kind,) if fixed else (kind, None):
            self._samples.setdefault((pool, name), []).append(duration)

    def estimate(self, pool: PoolSettings, kind: str) -> int:
        """What a task of that kind will take: learned for the kind, else for the pool, else the default."""
        for name in (kind, None):
            samples = self._samples.get((pool.name, name))
            if samples:
                return typical(samples)
        return pool.default_duration

    def lead(self, pool: PoolSettings) -> int:
        """How long nine of ten attempts without a fixed start took at most."""
        recent = sorted(self._samples.get((pool.name, None), [])[-WINDOW:])
        if not recent:
            return pool.default_duration
        rank, part = divmod(90 * (len(recent) - 1), 100)
        return recent[rank] + (part * (recent[rank + 1] - recent[rank]) // 100 if part else 0)

    def mean(self, pool: PoolSettings) -> int:
        """How long they took on average."""
        recent = self._samples.get((pool.name, None), [])[-WINDOW:]
        return sum(recent) // len(recent) if recent else pool.default_duration


def typical(samples: list[int]) -> int:
    """Of one or two samples the weighted mean, else the median of the last ones."""
    if len(samples) == 1:
        return samples[0]
    if len(samples) == 2:
        return (9 * samples[0] + samples[1]) // 10
    recent = sorted(samples[-WINDOW:])
    return (recent[(len(recent) - 1) // 2] + recent[len(recent) // 2]) // 2


# --- groups


def carries(labels: Labels, demand: Labels) -> bool:
    """A worker with these labels may run a task that demands those."""
    return all(pair in labels for pair in demand)


def busy(model: "Model", group: NaiveGroup) -> int:
    """Slots of the group that leases fill."""
    return sum(lease.labels == group.labels and lease.task.pool.name == group.pool for lease in model.leases)


def filled(model: "Model", group: NaiveGroup) -> int:
    """Slots of the group that leases fill or that are held for a fixed start."""
    return busy(model, group) + starts.held(model, group)


def groups_with_room(model: "Model", task: NaiveTask) -> list[NaiveGroup]:
    """Groups that could run the task now, best first."""
    return serving(free_groups(model, task.pool), task)


def free_groups(model: "Model", pool: PoolSettings) -> list[NaiveGroup]:
    """Groups of the pool with a free slot, best first."""
    found = [group for group in model.groups if group.pool == pool.name and filled(model, group) < group.capacity]
    return sorted(found, key=lambda group: rank(model, group)) if len(found) > 1 else found


def serving(free: Iterable[NaiveGroup], task: NaiveTask) -> list[NaiveGroup]:
    """Those of these groups that could run the task."""
    return [group for group in free if carries(group.labels, task.asked.labels)]


def rank(model: "Model", group: NaiveGroup) -> tuple[int, int, int]:
    """Fewest labels, then most slots free, then the oldest."""
    return len(group.labels), filled(model, group) - group.capacity, model.groups.index(group)


def can_be_called(model: "Model", task: NaiveTask) -> bool:
    """A slot is held for the task; or one is free that serves it, and no called task counts on it.

    That is counted twice: over the slots that serve those labels, and over all.
    """
    if task.hold is not None:
        return True
    groups = [group for group in model.groups if group.pool == task.pool.name]
    free = sum(max(group.capacity - filled(model, group), 0) for group in groups)
    labels = task.asked.labels
    serving = sum(max(group.capacity - filled(model, group), 0) for group in groups if carries(group.labels, labels))
    called = [other for other in model.tasks.values() if other.called and not other.hold and other.pool is task.pool]
    return free > len(called) and serving > sum(other.asked.labels == labels for other in called)


# --- queues


def has_shares(pool: PoolSettings) -> bool:
    """Tenants share the pool."""
    return pool.fair_share or bool(pool.tenant_weights)


def score(model: "Model", task: NaiveTask) -> int:
    """In billionths of a point."""
    aged = min(2 * (model.now - task.arrival), 800 * SECOND)
    return POINTS[task.priority] * SECOND + aged + urgency(model, task)


def urgency(model: "Model", task: NaiveTask) -> int:
    """Rises to 5,000 points at the latest start, and to 8,000 within 30 s after it."""
    if task.asked.deadline is None:
        return 0
    horizon = max(task.estimate, 5 * SECOND)
    slack = task.latest_start - model.wall()
    if slack >= horizon:
        return 0
    if slack >= 0:
        return 5_000 * SECOND * (horizon - slack) // horizon
    return 5_000 * SECOND + min(100 * -slack, 3_000 * SECOND)


def heads(model: "Model", pool: PoolSettings, free: Sequence[NaiveGroup]) -> list[NaiveTask]:
    """Of each class, the first task with a deadline and the first one without, of those that a worker could run now."""
    urgent: list[list[NaiveTask]] = [[] for _ in POINTS]
    others: list[list[NaiveTask]] = [[] for _ in POINTS]
    for task in model.tasks.values():
        if task.pool is pool and task.queued and not task.fixed and serving(free, task):
            (others if task.asked.deadline is None else urgent)[task.priority].append(task)
    found = [min(of_class, key=lambda task: (task.latest_start, task.id)) for of_class in urgent if of_class]
    return found + [min(of_class, key=lambda task: (task.tag, task.id)) for of_class in others if of_class]


def best(model: "Model", pool: PoolSettings, free: Sequence[NaiveGroup]) -> NaiveTask | None:
    """The task of the pool that runs next on one of these; None when none can."""
    found = heads(model, pool, free)
    return min(found, key=lambda task: (-score(model, task), task.priority, task.id), default=None)


# --- resources


def in_use(model: "Model", name: str) -> int:
    """Units of running attempts."""
    return units_of((lease.task for lease in model.leases), name)


def promised(model: "Model", name: str) -> int:
    """Units of called tasks."""
    return units_of((task for task in model.tasks.values() if task.called), name)


def units_of(tasks: Iterable[NaiveTask], name: str) -> int:
    """Units of one resource that all these tasks need."""
    return sum(units for task in tasks for resource, units in task.asked.resources if resource == name)


def fits(model: "Model", task: NaiveTask) -> bool:
    """All that the task needs is there and promised to nobody else."""
    return all(has(model, name, units) for name, units in task.asked.resources)


def has(model: "Model", name: str, units: int) -> bool:
    """So many units of the resource are there and promised to nobody."""
    resource = model.resources[name]
    if resource.is_bucket:
        resource.refill(model.now)
        available = int(resource.level)
    else:
        available = resource.settings.permits - in_use(model, name)
    return units <= available - promised(model, name)


def earliest_start(model: "Model", task: NaiveTask) -> int | None:
    """When a parked task could start if nothing but time changed; None when time alone does not help."""
    if not can_be_called(model, task):
        return None
    when = model.now
    for name, units in task.asked.resources:
        resource = model.resources[name]
        if not resource.is_bucket:
            if not has(model, name, units):
                return None
        elif units > resource.settings.burst:
            return None
        else:
            resource.refill(model.now)
            when = max(when, resource.has_by(units))
    return when


# --- the pump


def pump(model: "Model") -> None:
    """Start whatever can start: rounds of offers, picks and recalls until one changes nothing."""
    changed = True
    while changed:
        changed = offer(model)
        changed = pick(model) or changed
        changed = recall(model) or changed


def parked(model: "Model") -> list[NaiveTask]:
    """The line of those that lack a resource."""
    return sorted((task for task in model.tasks.values() if task.parked), key=lambda task: task.place)


def offer(model: "Model") -> bool:
    """Call the first of the line that could start, until none could."""
    changed = False
    while True:
        for task in parked(model):
            if fits(model, task) and can_be_called(model, task):
                break
        else:
            return changed
        task.parked, task.called = False, True
        model.queue(task)
        model.note("resource", "called")
        changed = True


def pick(model: "Model") -> bool:
    """Let each pool start what it can; who lacks a resource goes into the line."""
    changed = False
    for pool in model.settings.pools:
        while serve(model, pool):
            changed = True
    return changed


def serve(model: "Model", pool: PoolSettings) -> bool:
    """One thing that the pool does next; False when there is nothing to do."""
    task = starts.next_held(model, pool)
    if task is not None:
        group = next(group for group in model.groups if (group.pool, group.labels) == (pool.name, task.hold))
        begin(model, task, group)
        return True
    if not any(task.pool is pool and (task.queued or task.wants) for task in model.tasks.values()):
        return False
    free = free_groups(model, pool)
    if not free:
        return False
    task = starts.next_wanting(model, pool, free)
    if task is not None:
        starts.hold(model, task)
        return True
    task = starts.next_due(model, pool, free) or best(model, pool, free)
    if task is not None:
        begin(model, task, serving(free, task)[0])
        return True
    return False


def begin(model: "Model", task: NaiveTask, group: NaiveGroup) -> None:
    """It is the turn of this task."""
    if starts.is_missed(task, model.wall()):
        starts.miss(model, task, "at its turn")
    elif task.called or fits(model, task):
        if task.fixed:
            model.note("start", "on the held slot" if task.hold is not None else "on a free slot")
        model.start(task, group)
    else:
        if not task.place:
            model.places += 1
            task.place = model.places
            model.note("resource", "parked")
        else:
            model.note("resource", "parked at its place")
        if task.hold is not None:
            model.note("resource", "parked with a slot held")
        task.parked = True


def recall(model: "Model") -> bool:
    """Those that were called in vain go back into the line."""
    called = [task for task in model.tasks.values() if task.called and task.status == TaskStatus.READY]
    for task in called:
        task.called, task.parked = False, True
        model.note("resource", "recalled")
    return bool(called)
