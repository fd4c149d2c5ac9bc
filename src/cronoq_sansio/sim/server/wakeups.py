"""When something is due in a term, worked out from everything that may be due: the term may not sleep any longer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cronoq_sansio.limits import REGISTER_TIMEOUT
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import BLOCKED, RETRYING
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.settings import LimitSettings
    from cronoq_sansio.sim.server.holders import Asked
    from cronoq_sansio.sim.server.node import Node

SCHEDULED = int(TaskStatus.SCHEDULED)


def check(node: "Node") -> None:
    """The next wake-up is not later than the first of all deadlines."""
    wake, now = node.outbox.next_timeout(), node.now
    for due, what, name in deadlines(node):
        if wake is None or wake > max(due, now):
            details = (
                f"{what} {name} is due {due - now} ns from now, the wake-up {None if wake is None else wake - now}"
            )
            raise Violation(Kind.SAFETY, "a wake-up is later than what is due", details)


def deadlines(node: "Node") -> Iterator[tuple[int, str, object]]:
    """Each with what it is of and whose, in no order."""
    holders, limits = node.holders, node.settings.limits
    if not holders.parked:
        for hold in holders.held.values():
            yield hold.due() + holders.excused, "a lease", hold
    for stream, opened in holders.waiting.items():
        yield opened + REGISTER_TIMEOUT, "a registration", stream
    for asked in holders.calls.values():
        due = _call(asked, limits)
        if due is not None:
            yield due, "a call", asked.request
    if holders.grace is not None and node.engine.running:
        yield holders.grace, "the grace of a stop", ""
    yield from _tasks(node)


def _call(asked: "Asked", limits: "LimitSettings") -> int | None:
    """When a call runs out of time; None for a stream without a deadline."""
    request = asked.request
    if type(request) is m.Watch:
        return asked.deadline
    due = asked.now + limits.max_wait + limits.request_timeout
    if asked.deadline is not None:
        due = min(due, asked.deadline)
    waits = type(request) is m.Wait or (type(request) is m.Submit and request.wait)
    if waits:
        timeout = request.wait_timeout if type(request) is m.Submit else request.timeout
        if timeout != 0:
            due = min(due, asked.now + min(limits.max_wait, limits.max_wait if timeout is None else timeout))
    return due


def _tasks(node: "Node") -> Iterator[tuple[int, str, object]]:
    """Backoffs, fixed starts, waits for keys, and the next fires of schedules."""
    engine, view = node.engine, node.view
    offset = node.world.wall_shift - node.skew
    unsaid = engine.dependencies.held and engine.dependencies.unsettled  # a key may be there, and not in the rows yet
    for task_id, task in engine.tasks.live.items():
        shadow = view.live[task_id]
        if task.status == RETRYING:
            yield shadow.latest, "a retry", task
        elif task.status == SCHEDULED and shadow.start is not None:
            yield shadow.start - offset, "a fixed start", task
        elif task.status == BLOCKED and shadow.awaited and not unsaid:
            yield shadow.latest, "a wait for a key", task
    if not engine._held:
        for schedule in engine.list_recurring():
            made = view.live.get(schedule.last_task)
            if schedule.next is not None and not (made is not None and made.start == schedule.next):
                yield schedule.next - offset, "a fire", schedule.spec.name
