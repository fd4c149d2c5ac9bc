"""Taking in new tasks, one or a batch: the specification checks in the order of engine.md section 3.

1. A key that exists makes the submission a duplicate of the task that has it; nothing else is looked at.
2. The pool exists; the resources exist and have so many units; `max_attempts` is at least 1; the dependencies resolve,
   without a cycle.
3. A fixed start finds a place in the calendar (`reservations.py`). This comes ahead of the bounds: nothing may be shed
   to make room for a task that a full calendar then turns away.
4. The bounds (`overload.py`).

Relative times are made absolute here, and a dependency on a key is resolved here for good: the key may be used
again later. A task with an edge that can never be met is admitted, answered with its id, and ends in the same step.

Invariant: a batch is all or nothing. Every check of every member comes before the first member is admitted; the
rejection names the index of the member that failed, in its message and in `cronoq-batch-index`. Members whose keys
exist already are duplicates and are not inserted; two members that define the same new key contradict each other.
Members are admitted after the members that they wait for, else in the order of the request.
"""

import re
from collections.abc import Container, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from cronoq_sansio.engine import cycles, dependencies, lifecycle, overload, reservations, retry
from cronoq_sansio.engine.actions import Answer, BatchOutcome, Submitted
from cronoq_sansio.engine.dependencies import Resolved
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.events import TaskSubmitted
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.engine.reservations import Booking
from cronoq_sansio.engine.task import Task
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_BATCH_EDGES, MAX_CYCLE_WALK, MAX_DEMANDS, MESSAGE_HEADROOM
from cronoq_sansio.spec import RetryPolicy, TaskSpec, with_times_at
from cronoq_sansio.values import blank, value

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

FIELD = re.compile(r"(deps|resources|retry)[.:[]")
"""How a message begins that is about one field of the task."""
TOO_FAR = (
    f"deps: more than {MAX_CYCLE_WALK} dependencies would have to be followed to rule out a cycle through tasks that "
    "await this key; submit tasks after those that they depend on"
)
NOBODY: Mapping[str, Task] = {}


@value
class Checked:
    """A specification that may be admitted if there is room."""

    spec: TaskSpec
    pool: Pool
    policy: RetryPolicy
    resolved: Resolved | None
    """None = it depends on nothing."""


def submit(engine: "Engine", event: TaskSubmitted) -> None:
    """Take in one task, and answer; or let it wait for room, to be answered later."""
    spec = event.spec
    if (
        spec.scheduling is None
        and spec.retry is None
        and not event.may_wait
        and (not spec.key or _nobody_knows(engine, spec.key))
    ):
        pool = engine.pools.get(spec.pool)
        if pool is not None and overload.fits(engine, pool, spec.priority, spec.size):  # nothing else could be wrong
            task_id = lifecycle.enter(engine, spec, pool)
            outcome = blank(Submitted)
            outcome.task_id = task_id
            outcome.duplicate = False
            answer = blank(Answer)
            answer.request = event.request
            answer.outcome = outcome
            answer.after = engine.number
            engine.step.once_durable.append(answer)
            return
    found = (_duplicate(engine, spec) if spec.key else None) or _submit_new(engine, event)
    if found is not None:
        engine.step.once_durable.append(Answer(event.request, *found))


def _submit_new(engine: "Engine", event: TaskSubmitted) -> tuple[Submitted | Rejection, int] | None:
    """Take in a task that is no duplicate; the outcome, and the step that it shows. None: it waits for room."""
    spec, may_wait = event.spec, event.may_wait
    place = find_place(engine, spec)
    if may_wait and (place.code is Code.FULL if isinstance(place, Rejection) else engine.waiting_room.has_line(spec)):
        if isinstance(place, Place):
            _unbook(place.checked, place.booking)
        refusal = engine.waiting_room.park(event.request, spec)
        return None if refusal is None else (refusal, 0)
    if isinstance(place, Rejection):
        return place, 0
    return Submitted(take_place(engine, place).id, False), engine.number


@value
class Place:
    """Everything that a task needs to be taken in."""

    checked: Checked
    booking: Booking | None
    victim: Task | None
    """Who gives way for it."""


def find_place(engine: "Engine", spec: TaskSpec) -> Place | Rejection:
    """Whether a single task, with a key that is free, can be taken in: every check from the second on.

    What is found is for `take_place`, in the same step; until then it has its place in the calendar.
    """
    checked = _check(engine, spec, ())
    if isinstance(checked, Rejection):
        return checked
    if checked.resolved is not None and engine.dependencies.awaited(spec.key):
        cycle = _circle(engine, checked)
        if cycle is not None:
            return cycle
    booking = reservations.book(engine, spec, checked.pool)
    if isinstance(booking, Rejection):
        return booking
    room = overload.make_room(engine, spec, checked.pool, checked.resolved)
    if isinstance(room, Rejection):
        _unbook(checked, booking)
        return room
    return Place(checked, booking, room)


def take_place(engine: "Engine", place: Place) -> Task:
    """Take in the task for which this place was found in this step."""
    task = _admit(engine, place.checked, NOBODY, place.booking)
    if place.victim is not None:
        overload.shed(engine, place.victim, place.checked.spec)
    return task


def _unbook(checked: Checked, booking: Booking | None) -> None:
    """The task is not taken in after all."""
    if booking is not None:
        reservations.unbook(checked.pool, booking)


def template_fault(engine: "Engine", template: TaskSpec) -> Rejection | None:
    """Why tasks like this can never be taken in; `overloaded` when that may change by itself."""
    largest = engine.limits.max_message_bytes - MESSAGE_HEADROOM
    if template.size > largest:
        allowed = f"limits.max_message_bytes allows {largest} bytes of a task"
        return Rejection(Code.INVALID, f"template: found {template.size} bytes; {allowed}")
    checked = _check(engine, template, ())
    if not isinstance(checked, Rejection):
        return None
    code = checked.code if checked.code is Code.OVERLOADED else Code.INVALID
    separator = "." if FIELD.match(checked.message) else ": "
    return Rejection(code, f"template{separator}{checked.message}")


def submit_batch(engine: "Engine", specs: tuple[TaskSpec, ...]) -> tuple[BatchOutcome | Rejection, int]:
    """Take in all tasks or none; the outcome, and the newest step that it shows."""
    known: dict[int, tuple[Submitted, int]] = {}
    fresh: list[int] = []
    defined: dict[str, int] = {}
    for index, spec in enumerate(specs):
        duplicate = _duplicate(engine, spec) if spec.key else None
        if duplicate is not None:
            known[index] = duplicate
            continue
        fresh.append(index)
        if spec.key:
            defined.setdefault(spec.key, index)
    members: list[Checked] = []
    for index in fresh:
        checked = _twice(specs[index], index, defined) or _check(engine, specs[index], defined)
        if isinstance(checked, Rejection):
            return _of_member(checked, index), 0
        members.append(checked)
    edges = 0
    for index, member in zip(fresh, members, strict=True):
        edges += len(member.resolved.unmet) if member.resolved is not None else 0
        if edges > MAX_BATCH_EDGES:
            text = f"deps: the batch has more than {MAX_BATCH_EDGES} dependencies up to here; split it"
            return _of_member(Rejection(Code.INVALID, text), index), 0
    order = _order(members)
    if len(order) < len(members) or _way_back(engine, members) != ([], True):
        cycle = _cycle(engine, members)
        if cycle is not None:
            return _of_member(cycle[1], fresh[cycle[0]]), 0
    bookings: list[Booking | None] = []
    refused = _make_room(engine, members, bookings)
    if refused is not None:
        for member, booking in zip(members, bookings, strict=False):
            _unbook(member, booking)
        return _of_member(refused[1], fresh[refused[0]]), 0
    admitted: dict[str, Task] = {}
    for position in order:
        task = _admit(engine, members[position], admitted, bookings[position])
        known[fresh[position]] = Submitted(task.id, False), engine.number
        if task.spec.key:
            admitted[task.spec.key] = task
    answers = tuple(known[index][0] for index in range(len(specs)))
    return BatchOutcome(answers), max((stored for _, stored in known.values()), default=0)


def _make_room(
    engine: "Engine", members: Sequence[Checked], bookings: list[Booking | None]
) -> tuple[int, Rejection] | None:
    """Whether a batch finds a place: position of the first member that does not, and why; else `bookings` are made.

    Each member is tested behind the earlier ones: first all of them in the calendars, then against the bounds.
    """
    for position, member in enumerate(members):
        booking = reservations.book(engine, member.spec, member.pool)
        if isinstance(booking, Rejection):
            return position, booking
        bookings.append(booking)
    ahead = overload.Ahead()
    for position, member in enumerate(members):
        refusal = overload.refusal(engine, member.spec, member.pool, ahead)
        if refusal is not None:
            return position, refusal
        ahead.count(member.spec)
    return None


# --- checks


def _nobody_knows(engine: "Engine", key: str) -> bool:
    """No task has the key, and none waits for one that has it."""
    return engine.tasks.by_key(key, engine.now) is None and key not in engine.dependencies.parents


def _duplicate(engine: "Engine", spec: TaskSpec) -> tuple[Submitted, int] | None:
    known = engine.tasks.by_key(spec.key, engine.now)
    if known is None:
        return None
    task_id = known.id if isinstance(known, Task) else known.task_id
    return Submitted(task_id, True), known.stored


def _twice(spec: TaskSpec, index: int, defined: Mapping[str, int]) -> Rejection | None:
    first = defined[spec.key] if spec.key else index
    if first == index:
        return None
    return Rejection(Code.DUPLICATE_KEY_IN_BATCH, f"key {spec.key!r} is defined by task[{first}] already")


def _check(engine: "Engine", spec: TaskSpec, defined: Container[str]) -> Rejection | Checked:
    """Why the task is not taken in, whether there is room or not. `defined`: new keys of its batch."""
    pool = engine.pools.get(spec.pool)
    if pool is None:
        return Rejection(Code.UNKNOWN_POOL, f"unknown pool {spec.pool!r}")
    asked = spec.scheduling
    if asked is not None and asked.resources:
        refusal = engine.resources.check(asked.resources)
        if refusal is not None:
            return refusal
    if asked is not None and asked.labels:
        demands = pool.groups.demands
        if len(demands) > MAX_DEMANDS and asked.labels not in demands:
            text = f"at most {MAX_DEMANDS} are allowed at a time; retry later"
            return Rejection(
                Code.OVERLOADED, f"labels: tasks of pool {pool.name!r} require {len(demands) - 1} sets, {text}"
            )
    policy = retry.resolve(spec.retry, pool.settings.retry)
    if policy.max_attempts < 1:
        return Rejection(Code.INVALID, "retry.max_attempts must be at least 1")
    if asked is None or not asked.dependencies:
        return Checked(spec, pool, policy, None)
    resolved = engine.dependencies.resolve(engine, spec, defined)
    return resolved if isinstance(resolved, Rejection) else Checked(spec, pool, policy, resolved)


def _of_member(rejection: Rejection, index: int) -> Rejection:
    details = (*rejection.details, ("cronoq-batch-index", str(index)))
    separator = "." if FIELD.match(rejection.message) else ": "
    return Rejection(rejection.code, f"task[{index}]{separator}{rejection.message}", details)


# --- cycles, and the order of a batch


def _order(members: Sequence[Checked]) -> Sequence[int]:
    """Positions of the members in the order of their admission; those on a cycle or behind one are missing."""
    if all(member.resolved is None for member in members):
        return range(len(members))
    defined = _positions(members)
    return cycles.topological(
        [
            [defined[ref] for ref, _ in member.resolved.unmet if isinstance(ref, str) and ref in defined]
            if member.resolved is not None
            else ()
            for member in members
        ]
    )


def _circle(engine: "Engine", checked: Checked) -> Rejection | None:
    """Why a single task is refused whose key others await: it waits for one of them."""
    way, known = _way_back(engine, [checked])
    if not known:
        return Rejection(Code.OVERLOADED, TOO_FAR)
    if not way:
        return None
    specs = [engine.tasks.live[node].spec for node in reversed(way)]
    names = [checked.spec.key, *(spec.key or f"task {node}" for spec, node in zip(specs, reversed(way), strict=True))]
    return _cycle_text(checked, specs[0].key, way[-1], names)


def _way_back(engine: "Engine", members: Sequence[Checked]) -> tuple[list[int], bool]:
    """The way from a task that awaits the key of a member to one that a member waits for; see `cycles.reach`."""
    dependencies = engine.dependencies
    keys = [
        member.spec.key for member in members if member.resolved is not None and dependencies.awaited(member.spec.key)
    ]
    if not keys:
        return [], True
    targets = {
        parent.id
        for member in members
        if member.resolved is not None
        for parent, _ in member.resolved.unmet
        if isinstance(parent, Task)
    }
    starts = chain.from_iterable(dependencies.children_of(key) for key in keys)
    return cycles.reach(starts, dependencies.children_of, targets, MAX_CYCLE_WALK)


def _cycle(engine: "Engine", members: Sequence[Checked]) -> tuple[int, Rejection] | None:
    """A cycle that these new tasks would close: the position of its first member, and why that is refused."""
    defined = _positions(members)
    left = MAX_CYCLE_WALK + MAX_BATCH_EDGES

    def parents(node: int) -> list[int]:
        nonlocal left
        if left < 0:
            return []
        if node > 0:
            refs = engine.dependencies.refs_of(node)
            left -= len(refs)
        else:
            resolved = members[-node - 1].resolved
            refs = [ref if isinstance(ref, str) else ref.id for ref, _ in resolved.unmet] if resolved else []
        return [
            -defined[ref] - 1 if isinstance(ref, str) else ref
            for ref in refs
            if not isinstance(ref, str) or ref in defined
        ]

    found = cycles.find(len(members), parents)
    if left < 0:
        return 0, Rejection(Code.OVERLOADED, TOO_FAR)
    if not found:
        return None
    specs = [engine.tasks.live[node].spec if node > 0 else members[-node - 1].spec for node in found]
    names = [spec.key or f"task {node}" for spec, node in zip(specs, found, strict=True)]
    position = -found[0] - 1
    return position, _cycle_text(members[position], specs[1].key, found[1], names)


def _cycle_text(checked: Checked, key: str, node: int, names: Sequence[str]) -> Rejection:
    """`key` or `node`: what the task waits for on the cycle."""
    asked = checked.spec.scheduling
    assert asked is not None
    index = next(index for index, dependency in enumerate(asked.dependencies) if dependency.ref in (key, node))
    return Rejection(Code.CYCLE, f"deps[{index}]: a cycle, each waits for the next: {cycles.text(names)}")


def _positions(members: Sequence[Checked]) -> dict[str, int]:
    return {member.spec.key: position for position, member in enumerate(members) if member.spec.key}


# --- admission


def _admit(engine: "Engine", checked: Checked, admitted: Mapping[str, Task], booking: Booking | None) -> Task:
    """Nothing can go wrong any more. `admitted`: earlier members of its batch. `booking`: what it has reserved."""
    task = Task(
        engine.tasks.issue(),
        with_times_at(checked.spec, engine.wall()),
        checked.pool,
        checked.policy,
        engine.now,
        engine.wall(),
    )
    edges: tuple[Edge, ...] = ()
    impossible = over = ""
    if booking is not None:
        engine.starts.adopt(task, booking)
        engine.recurring.adopt(task)
    if checked.resolved is not None:
        edges, impossible = engine.dependencies.edges(checked.resolved, admitted)
    if not (edges or impossible) and task.plan is not None and task.plan.schedule:
        over = engine.recurring.overlapping(engine, task)
    wait = task.pool.settings.await_unknown_dependencies if edges and dependencies.awaits(edges) else None
    due = 0 if wait is None else engine.wall(wait)
    lifecycle.admit(engine, task, edges, blocked=bool(edges or impossible or over), due=due)
    if engine.dependencies.any and task.spec.key:
        engine.dependencies.appeared(task)
    if impossible:
        lifecycle.skip(engine, task, impossible)
    elif over:
        lifecycle.give_way(engine, task, over)
    elif edges:
        engine.dependencies.attach(engine, task, edges, 0 if wait is None else engine.now + wait)
    if not (impossible or over) and reservations.missed(task, engine.wall()):
        engine.starts.miss(engine, task)
    return task
