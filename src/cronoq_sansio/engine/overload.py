"""Whether there is room for a new task, and who gives way (engine.md section 9).

Bounds count pending tasks: in a pool, in a class of a pool, and over all pools. The payload budget counts the encoded
specifications of live tasks, so that a million large payloads do not end the process. What happens to a submission
that would pass a bound is the pool's policy:

- `reject`: it is `overloaded`.
- `wait`: it is `full`, and a caller that may wait waits for room (`waiting_room.py`).
- `shed_lowest`: the latest READY task of the lowest class that has one is shed for it, if that class ranks below.
- `shed_oldest`: the earliest READY task of the class `low` is shed for it.

Invariants: nothing is shed or waited for because of the payload budget, nor for what would not even fit into empty
queues: both are `overloaded` at once. One submission sheds one task at most, and only if it fits then; so bounds that
were lowered while tasks waited refuse newcomers and shed nothing. A batch fits as a whole or not at all, each member
tested with the earlier ones counted in; nothing is shed for it, and it does not wait.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine import lifecycle, reservations
from cronoq_sansio.engine.task import Task
from cronoq_sansio.engine.victims import SHED_LOWEST
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.spec import Priority, TaskSpec, weight
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.dependencies import Resolved
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.engine import Engine

WAIT = "wait"

#: Names of the classes, as in the configuration.
CLASSES = tuple(priority.name.lower() for priority in Priority)


class Ahead:
    """What the members of a batch that were tested already will add."""

    __slots__ = ("by_class", "by_pool", "payload_bytes", "tasks")

    def __init__(self) -> None:
        self.tasks = 0
        self.payload_bytes = 0
        self.by_pool: dict[str, int] = {}
        self.by_class: dict[tuple[str, int], int] = {}
        """By pool and class."""

    def count(self, spec: TaskSpec) -> None:
        """This one fits."""
        self.tasks += 1
        self.payload_bytes += weight(spec)
        self.by_pool[spec.pool] = self.by_pool.get(spec.pool, 0) + 1
        place = (spec.pool, spec.priority)
        self.by_class[place] = self.by_class.get(place, 0) + 1


NOBODY = Ahead()
"""Ahead of a single submission."""


def fits(engine: "Engine", pool: "Pool", priority: int, size: int = 0) -> bool:
    """True while one more pending task of that class and size passes no bound. Size 0: the payload budget aside."""
    tasks, limits = engine.tasks, engine.limits
    if (
        pool.pending >= pool.settings.max_pending
        or tasks.pending >= limits.max_pending_total
        or tasks.payload_bytes + size > limits.max_payload_bytes
    ):
        return False
    bound = pool.settings.max_pending_by_class[priority]
    return bound is None or pool.pending_by_class[priority] < bound


def refusal(engine: "Engine", spec: TaskSpec, pool: "Pool", ahead: Ahead = NOBODY) -> Rejection | None:
    """Why this submission does not fit behind those `ahead`; None when it does. Nobody gives way."""
    passed = _passed(engine, spec, pool, ahead)
    return None if passed is None else Rejection(passed.code, f"{passed.text}; {passed.advice}")


def make_room(
    engine: "Engine", spec: TaskSpec, pool: "Pool", resolved: "Resolved | None" = None
) -> Rejection | Task | None:
    """The last check of a single submission, which is admitted unless this is a `Rejection`.

    A task is the victim: hand it to `shed` *after* the newcomer is admitted. Nobody is shed for a newcomer that ends at
    once, because of what it depends on (`resolved`), because its start is missed, or because an earlier occurrence is
    still going, nor one that it itself waits for.
    """
    passed = _passed(engine, spec, pool, NOBODY)
    if passed is None:
        return None
    name, why = CLASSES[spec.priority], ""
    if pool.victims is not None and passed.helped:
        victim = pool.victims.pick(spec.priority)
        if resolved is not None and resolved.impossible:
            why = ", and a dependency can never be met"
        elif reservations.is_too_late(spec, engine.wall()):
            why = ", and its fixed start is missed already"
        elif engine.recurring.gives_way(engine, spec):
            why = ", and an earlier occurrence is still going"
        elif victim is not None and resolved is not None and any(parent is victim for parent, _ in resolved.unmet):
            why = ", and the task to shed is one that this one depends on"
        elif victim is not None and _fits_without(engine, spec, pool, victim):
            return victim
        elif victim is not None:
            why = ", and shedding one task would not make room"
        elif pool.settings.overflow == SHED_LOWEST:
            why = f", and no ready task ranks below {name}"
        else:
            why = ", and no low task is ready"
    return Rejection(passed.code, f"{passed.text}{why}; {passed.advice}")


def shed(engine: "Engine", victim: Task, newcomer: TaskSpec) -> None:
    """End the task that `make_room` found; the newcomer has been admitted."""
    message = f"shed for a task of class {CLASSES[newcomer.priority]}: there was no room in pool {victim.pool.name!r}"
    lifecycle.shed(engine, victim, message)


@value
class _Passed:
    """A bound that a submission would pass."""

    code: Code
    text: str
    """What is the case."""
    advice: str
    """What to do about it."""
    helped: bool
    """One pending task less might help."""


def _passed(engine: "Engine", spec: TaskSpec, pool: "Pool", ahead: Ahead) -> _Passed | None:
    held = engine.tasks.payload_bytes + ahead.payload_bytes
    if held + weight(spec) > engine.limits.max_payload_bytes:
        return _payload_passed(held, spec, engine.limits.max_payload_bytes, ahead)
    if ahead is NOBODY and fits(engine, pool, spec.priority):
        return None
    return _bound_passed(engine, spec, pool, ahead)


def _payload_passed(held: int, spec: TaskSpec, budget: int, ahead: Ahead) -> _Passed:
    setting = f"limits.max_payload_bytes is {budget}"
    if weight(spec) > budget:
        return _Passed(
            Code.OVERLOADED,
            f"the task has {weight(spec)} bytes, {setting}",
            "send less, or raise it",
            False,
        )
    if ahead.payload_bytes + weight(spec) > budget:
        text = f"the members before this one hold {ahead.payload_bytes} bytes and this one {weight(spec)}, {setting}"
        return _Passed(Code.OVERLOADED, text, "split the batch, or raise it", False)
    text = f"live tasks hold {held} bytes and this one {weight(spec)}, {setting}"
    return _Passed(Code.OVERLOADED, text, "retry later", False)


def _bound_passed(engine: "Engine", spec: TaskSpec, pool: "Pool", ahead: Ahead) -> _Passed | None:
    """The first bound that is reached; before all others one that not even empty queues would help."""
    settings, index, who = pool.settings, spec.priority, f"pool {pool.name!r}"
    name, pools, classes = CLASSES[index], ahead.by_pool, ahead.by_class
    of_class = settings.max_pending_by_class[index]
    total, max_total = engine.tasks.pending, engine.limits.max_pending_total
    bounds = [
        (pool.pending, pools.get(pool.name, 0), settings.max_pending, who, "", "its max_pending"),
        (total, ahead.tasks, max_total, "the server", "", "limits.max_pending_total"),
    ]
    if of_class is not None:
        before = classes.get((pool.name, index), 0)
        place = (who, f" of class {name}", f"its max_pending_by_class.{name}")
        bounds.insert(1, (pool.pending_by_class[index], before, of_class, *place))
    passed, code = None, Code.FULL if settings.overflow == WAIT else Code.OVERLOADED
    for pending, before, bound, who, kind, setting in bounds:
        text = f"{who} never has more than {_tasks(bound)}{kind}, {setting} is {bound}"
        if not bound:
            return _Passed(Code.OVERLOADED, text, "raise it", False)
        if before >= bound:
            passed = _Passed(code, text, "split the batch, or raise it", False)
        elif passed is None and pending + before >= bound:
            text = f"{who} has {_tasks(pending + before)}{kind}, {setting} is {bound}"
            passed = _Passed(code, text, "retry later", True)
    return passed


def _tasks(count: int) -> str:
    return "1 pending task" if count == 1 else f"{count} pending tasks"


def _fits_without(engine: "Engine", spec: TaskSpec, pool: "Pool", victim: Task) -> bool:
    settings, index = pool.settings, spec.priority
    bound = settings.max_pending_by_class[index]
    return (
        pool.pending - 1 < settings.max_pending
        and engine.tasks.pending - 1 < engine.limits.max_pending_total
        and (bound is None or pool.pending_by_class[index] - (victim.spec.priority == index) < bound)
    )
