"""What the naive model takes in, and what not: engine.md sections 3, 5, 7 and 9, every check made from scratch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import retry
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_WAITING_SUBMISSIONS
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import (
    PLAIN,
    RECURRING,
    NaiveEdge,
    NaiveEnded,
    NaiveSubmission,
    NaiveTask,
    Refusal,
    met,
)
from cronoq_sansio.spec import MissPolicy, Overlap, TaskSpec, TaskStatus, weight

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model

# --- one task


def submit(model: "Model", event: ev.TaskSubmitted, *, its_turn: bool = False) -> None:
    """Take in one task, refuse it, or let it wait. `its_turn`: it has waited, and there is room."""
    spec = event.spec
    operation = "turn" if its_turn else "submit"
    known = model.by_key(spec.key) if spec.key else None
    if known is not None:
        model.note(operation, "duplicate")
        model.said.append(("submitted", event.request, known.id, True))
        return
    refusal = take(model, spec, may_wait=event.may_wait and not its_turn)
    if not isinstance(refusal, Refusal):
        model.note(operation, "admitted")
        task = admit(model, spec, parents_of(model, spec), {})
        if refusal is not None:
            model.end(refusal, TaskStatus.SHED)
        model.said.append(("submitted", event.request, task.id, False))
    elif refusal.code == WAIT:
        model.note(operation, "waits")
        model.waiting.append(NaiveSubmission(event.request, spec, model.next_turn()))
    else:
        model.note(operation, refusal.code)
        model.said.append(("refused", event.request, refusal.code, ()))


def take(model: "Model", spec: TaskSpec, *, may_wait: bool = False) -> Refusal | NaiveTask | None:
    """Whether one task can be taken in: why not; or who gives way for it, if anybody."""
    refusal = check(model, spec, {}) or cycle(model, [spec]) or conflict(model, spec, [])
    pool = pool_of(model, spec)
    if refusal is not None or pool is None:
        return refusal
    return make_room(model, spec, pool, may_wait=may_wait)


def parents_of(model: "Model", spec: TaskSpec) -> list[NaiveTask | NaiveEnded | None]:
    """Whom the dependencies name, in their order; None = nobody yet. It is decided once, when the task is checked."""
    return [find(model, dependency.ref) for dependency in (spec.scheduling or PLAIN).dependencies]


def admit(
    model: "Model",
    spec: TaskSpec,
    parents: Sequence[NaiveTask | NaiveEnded | None],
    admitted: Mapping[str, NaiveTask],
) -> NaiveTask:
    """Every check has passed: the task lives, or ends at once because a parent has ended the wrong way.

    `admitted`: earlier members of its batch by key. One that ended at once is among the news.
    """
    pool = pool_of(model, spec)
    assert pool is not None
    policy = retry.resolve(spec.retry, pool.retry)
    task = NaiveTask(model.next_task, absolute(spec, model.wall()), pool, policy, model.now, model.wall())
    model.next_task += 1
    if task.fixed:
        task.estimate = starts.estimate(model, spec, pool)
    impossible = False
    for dependency, known in zip(task.asked.dependencies, parents, strict=True):
        parent = known if known is not None else admitted.get(str(dependency.ref))
        if isinstance(parent, NaiveTask) and parent.id not in model.tasks:
            parent = next(ended for ended in model.news if ended.id == parent.id)
        if isinstance(parent, NaiveEnded):
            possible = met(dependency.condition, parent.status)
            model.note("edge", "met at once" if possible else "impossible at once")
            impossible = impossible or not possible
        elif parent is not None:
            model.note("edge", "to a live task")
            task.edges.append(NaiveEdge(parent.id, "", dependency.condition, model.next_turn()))
        else:
            model.note("edge", "awaited")
            task.edges.append(NaiveEdge(0, str(dependency.ref), dependency.condition))
    unlike = {(edge.parent, edge.key, edge.condition): edge for edge in reversed(task.edges)}
    task.edges = [edge for edge in task.edges if edge in unlike.values()]
    task.stored_edges = list(task.edges)
    if impossible:
        model.admit(task, runs=False)
        appear(model, task)
        model.left_out(task)
        return task
    if any(edge.key for edge in task.edges):
        task.due = model.now + (pool.await_unknown_dependencies or 0)
        task.turn = model.next_turn()
    model.admit(task)
    appear(model, task)
    if starts.is_missed(task, model.wall()):
        starts.miss(model, task, "at once")
    return task


def appear(model: "Model", newcomer: NaiveTask) -> None:
    """Tasks that await the key of the newcomer wait for the newcomer from now on."""
    for task in model.tasks.values():
        edges = [edge for edge in task.edges if edge.key and edge.key == newcomer.spec.key]
        for edge in edges:
            model.note("edge", "its key appeared")
            edge.unsaid = edge.key  # until `Model.name_parents`
            edge.parent, edge.key, edge.turn = newcomer.id, "", model.next_turn()
        if edges and not any(edge.key for edge in task.edges):
            task.due = None


def absolute(spec: TaskSpec, arrival: int) -> TaskSpec:
    """Times given as spans from the arrival become moments."""
    asked = spec.scheduling
    if asked is not None and asked.deadline_in is not None:
        asked = replace(asked, deadline=arrival + asked.deadline_in, deadline_in=None)
    if asked is not None and asked.start_in is not None:
        asked = replace(asked, start=arrival + asked.start_in, start_in=None)
    return spec if asked is spec.scheduling else replace(spec, scheduling=asked)


# --- a batch


def submit_batch(model: "Model", event: ev.BatchSubmitted) -> None:
    """Take in all tasks or none."""
    specs = event.specs
    outcome = check_batch(model, specs)
    if isinstance(outcome, Refusal):
        model.note("batch", outcome.code)
        model.said.append(("refused", event.request, outcome.code, outcome.indices))
        return
    left = [index for index in range(len(specs)) if index not in outcome]
    members = {index: (task_id, True) for index, task_id in outcome.items()}
    if members:
        model.note("batch", "with duplicates")
    parents = [parents_of(model, spec) for spec in specs]
    admitted: dict[str, NaiveTask] = {}
    while left:  # the first member whose parents in the batch are there
        keys = [specs[index].key for index in left]
        index = next(index for index in left if not parents_among(specs[index], keys))
        left.remove(index)
        task = admitted[specs[index].key] = admit(model, specs[index], parents[index], admitted)
        members[index] = (task.id, False)
    model.note("batch", "admitted")
    model.said.append(("batch", event.request, tuple(members[index] for index in range(len(specs)))))


def check_batch(model: "Model", specs: Sequence[TaskSpec]) -> Refusal | dict[int, int]:
    """Why the batch is not taken; or its duplicates: index of the member and id of the task."""
    known = {index: task.id for index, spec in enumerate(specs) if spec.key and (task := model.by_key(spec.key))}
    fresh = {index: spec for index, spec in enumerate(specs) if index not in known}
    defined = {spec.key: index for index, spec in fresh.items() if spec.key}
    for index, spec in fresh.items():
        if spec.key and any(other.key == spec.key for before, other in fresh.items() if before < index):
            return Refusal(Code.DUPLICATE_KEY_IN_BATCH.value, (index,))
        refusal = check(model, spec, defined)
        if refusal is not None:
            return Refusal(refusal.code, (index,))
    refusal = cycle(model, list(fresh.values()))
    if refusal is not None:
        return Refusal(refusal.code, tuple(list(fresh)[position] for position in refusal.indices))
    for index, spec in fresh.items():
        refusal = conflict(model, spec, [other for before, other in fresh.items() if before < index])
        if refusal is not None:
            return Refusal(refusal.code, (index,))
    ahead: list[TaskSpec] = []
    for index, spec in fresh.items():
        refusal = bound_of_batch(model, spec, ahead)
        if refusal is not None:
            return Refusal(refusal.code, (index,))
        ahead.append(spec)
    return known


def parents_among(spec: TaskSpec, keys: Sequence[str]) -> bool:
    """Whether the task depends on one of these keys."""
    return any(dependency.ref in keys for dependency in (spec.scheduling or PLAIN).dependencies)


# --- checks


def pool_of(model: "Model", spec: TaskSpec) -> PoolSettings | None:
    """The pool of that name."""
    return next((pool for pool in model.settings.pools if pool.name == spec.pool), None)


def check(model: "Model", spec: TaskSpec, defined: Mapping[str, int]) -> Refusal | None:
    """Everything but cycles and bounds. `defined`: keys that a batch brings."""
    pool = pool_of(model, spec)
    if pool is None:
        return Refusal(Code.UNKNOWN_POOL.value)
    asked = spec.scheduling or PLAIN
    for name, units in asked.resources:
        if name not in model.resources:
            return Refusal(Code.UNKNOWN_RESOURCE.value)
        if units < 1:
            return Refusal(Code.INVALID.value)
        if units > model.resources[name].settings.capacity:
            return Refusal(Code.RESOURCE_EXCEEDS_CAPACITY.value)
    if retry.resolve(spec.retry, pool.retry).max_attempts < 1:
        return Refusal(Code.INVALID.value)
    for dependency in asked.dependencies:
        if dependency.ref == spec.key:
            return Refusal(Code.CYCLE.value)
        known = find(model, dependency.ref) is not None or dependency.ref in defined
        if not known and (isinstance(dependency.ref, int) or pool.await_unknown_dependencies is None):
            return Refusal(Code.UNKNOWN_DEPENDENCY.value)
    return None


def find(model: "Model", ref: int | str) -> NaiveTask | NaiveEnded | None:
    """The task that a dependency names."""
    return model.by_key(ref) if isinstance(ref, str) else model.by_id(ref)


def cycle(model: "Model", specs: Sequence[TaskSpec]) -> Refusal | None:
    """Why these would wait for themselves; names the members on such cycles."""
    members = {spec.key: index for index, spec in enumerate(specs) if spec.key}

    def parents(node: int) -> list[int]:
        """Live tasks are nodes by their ids, members by -1, -2 and so on."""
        found: list[int] = []
        if node > 0:
            for edge in model.tasks[node].edges:
                if edge.parent in model.tasks:
                    found.append(edge.parent)
                elif edge.key in members:
                    found.append(-1 - members[edge.key])
            return found
        for dependency in (specs[-1 - node].scheduling or PLAIN).dependencies:
            parent = find(model, dependency.ref)
            if isinstance(parent, NaiveTask):
                found.append(parent.id)
            elif parent is None and dependency.ref in members:
                found.append(-1 - members[str(dependency.ref)])
        return found

    def ancestors(node: int) -> list[int]:
        found: list[int] = []
        ahead = parents(node)
        while ahead:
            node = ahead.pop()
            if node not in found:
                found.append(node)
                ahead += parents(node)
        return found

    on_cycles = tuple(index for index in range(len(specs)) if -1 - index in ancestors(-1 - index))
    return Refusal(Code.CYCLE.value, on_cycles) if on_cycles else None


def conflict(model: "Model", spec: TaskSpec, ahead: Sequence[TaskSpec]) -> Refusal | None:
    """Why the calendar has no place for a fixed start. `ahead`: earlier members of its batch."""
    pool = pool_of(model, spec)
    assert pool is not None
    wanted = starts.interval(model, absolute(spec, model.wall()), pool)
    if wanted is None:
        return None
    taken = starts.reservations(model, pool)
    for other in ahead:
        reserved = starts.interval(model, absolute(other, model.wall()), pool) if other.pool == pool.name else None
        taken += [reserved] if reserved is not None else []
    if starts.peak(taken, wanted) < starts.reservable(pool):
        return None
    return Refusal(Code.RESERVATION_CONFLICT.value)


# --- bounds

WAIT = "wait"  #: stands for a code: it is not refused, it waits
FITS, NO_ROOM, TOO_LARGE, NEVER = "fits", "no room", "too large", "never"


def room(model: "Model", spec: TaskSpec, pool: PoolSettings, pending: Sequence[TaskSpec], held: int) -> str:
    """Whether there is room behind these pending ones, when live tasks hold so many bytes."""
    of_pool = [other for other in pending if other.pool == pool.name]
    of_class = [other for other in of_pool if other.priority == spec.priority]
    limit = pool.max_pending_by_class[spec.priority]
    bounds = [
        (len(of_pool), pool.max_pending),
        (len(of_class), limit if limit is not None else pool.max_pending),
        (len(pending), model.limits.max_pending_total),
    ]
    if any(bound < 1 for _, bound in bounds) or weight(spec) > model.limits.max_payload_bytes:
        return NEVER
    if held + weight(spec) > model.limits.max_payload_bytes:
        return TOO_LARGE
    return FITS if all(count < bound for count, bound in bounds) else NO_ROOM


def pending_of(model: "Model", without: NaiveTask | None = None) -> list[TaskSpec]:
    """Live tasks that do not run."""
    return [task.spec for task in model.tasks.values() if task.status != TaskStatus.RUNNING and task is not without]


def bytes_of(model: "Model") -> int:
    """What live tasks hold, and the templates of schedules."""
    templates = sum(schedule.spec.template.size for schedule in model.schedules.values())
    return templates + sum(weight(task.spec) for task in model.tasks.values())


def bound_of_batch(model: "Model", spec: TaskSpec, ahead: Sequence[TaskSpec]) -> Refusal | None:
    """Members of a batch count on top of those before them; nobody makes room for them."""
    pool = pool_of(model, spec)
    assert pool is not None
    held = bytes_of(model) + sum(weight(other) for other in ahead)
    found = room(model, spec, pool, [*pending_of(model), *ahead], held)
    if found == FITS:
        return None
    waits = found == NO_ROOM and pool.overflow == "wait"
    return Refusal((Code.FULL if waits else Code.OVERLOADED).value)


def make_room(model: "Model", spec: TaskSpec, pool: PoolSettings, *, may_wait: bool) -> Refusal | NaiveTask | None:
    """None when there is room; a task when there is after it was shed."""
    found = room(model, spec, pool, pending_of(model), bytes_of(model))
    if found in (NEVER, TOO_LARGE):
        model.note("bounds", found)
        return Refusal(Code.OVERLOADED.value)
    if pool.overflow == "wait" and may_wait and (found == NO_ROOM or in_line(model, spec)):
        return Refusal(WAIT if len(model.waiting) < MAX_WAITING_SUBMISSIONS else Code.FULL.value)
    if found == FITS:
        model.note(pool.overflow, "fits")
        return None
    if pool.overflow == "wait":
        model.note("wait", "full")
        return Refusal(Code.FULL.value)
    if pool.overflow == "reject":
        model.note("reject", "overloaded")
        return Refusal(Code.OVERLOADED.value)
    victim = victim_for(model, spec, pool)
    if victim is not None and in_vain(model, spec, victim):
        model.note(pool.overflow, "in vain")
    elif victim is not None:
        if room(model, spec, pool, pending_of(model, victim), bytes_of(model)) == FITS:
            model.note(pool.overflow, "shed")
            return victim
        model.note(pool.overflow, "a victim would not help")
    else:
        model.note(pool.overflow, "no victim")
    return Refusal(Code.OVERLOADED.value)


def in_vain(model: "Model", spec: TaskSpec, victim: NaiveTask) -> bool:
    """The newcomer would end at once, or loses what it depends on."""
    asked = spec.scheduling or PLAIN
    too_late = asked.start is not None and model.wall() > asked.start + asked.tolerance
    if too_late and asked.on_miss != MissPolicy.RUN_LATE:
        return True
    if gives_way(model, spec):
        return True
    for dependency in asked.dependencies:
        parent = find(model, dependency.ref)
        if parent is victim or (isinstance(parent, NaiveEnded) and not met(dependency.condition, parent.status)):
            return True
    return False


def gives_way(model: "Model", spec: TaskSpec) -> bool:
    """It is an occurrence whose start has come, and that an earlier one which is still live keeps from running."""
    name = next((text for tag, text in spec.tags if tag == RECURRING), "")
    schedule, start = model.schedules.get(name), (spec.scheduling or PLAIN).start
    if schedule is None or schedule.spec.overlap != Overlap.SKIP or start is None or start > model.wall():
        return False
    return any(task.schedule == name and task.fixed_start < start for task in model.tasks.values())


def victim_for(model: "Model", spec: TaskSpec, pool: PoolSettings) -> NaiveTask | None:
    """Whom the policy of the pool gives up for a newcomer."""
    ready = [task for task in model.tasks.values() if task.status == TaskStatus.READY and task.pool is pool]
    ready = [task for task in ready if not task.fixed]
    if pool.overflow == "shed_oldest":
        low = [task for task in ready if task.priority == len(rules.POINTS) - 1]
        return min(low, key=lambda task: task.id, default=None)
    if pool.overflow == "shed_lowest":
        below = [task for task in ready if task.priority > spec.priority]
        return max(below, key=lambda task: (task.priority, task.id), default=None)
    return None


# --- waiting for room


def in_line(model: "Model", spec: TaskSpec) -> bool:
    """Somebody of that pool and class waits already."""
    return any((other.spec.pool, other.spec.priority) == (spec.pool, spec.priority) for other in model.waiting)


def let_in(model: "Model") -> bool:
    """The turn of one that waits for room, if there is room for one: the higher class, then who waited longest."""
    for waiting in sorted(model.waiting, key=lambda waiting: (waiting.spec.priority, waiting.turn)):
        spec, pool = waiting.spec, pool_of(model, waiting.spec)
        first = next(w for w in model.waiting if (w.spec.pool, w.spec.priority) == (spec.pool, spec.priority))
        assert pool is not None
        found = room(model, spec, pool, pending_of(model), bytes_of(model))
        if waiting is first and found != NO_ROOM:
            model.waiting.remove(waiting)
            submit(model, ev.TaskSubmitted(waiting.request, spec, True), its_turn=True)
            return True
    return False
