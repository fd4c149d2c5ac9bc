"""What may be said when: the outbox keeps every action that shows state until the step it shows is durable.

It wraps a machine (the `Service`, or the `Engine` of an embedded scheduler) and has the same entry, `handle`. The step
that comes out has the writes of the machine's steps; its `at_once` holds everything that may be performed now, in the
order in which it became allowed, and its `once_durable` is empty.

Theory. A step numbered n carries one transaction. An action says by its `after` which step it shows.
`StepsDurable(m)` says that all transactions up to n = m are in the store. So an action may go as soon as
``after <= m``; a reply waits for the last step that wrote what it shows, not for the newest one. A volatile store
(`volatile=True`) loses everything with the process, so nothing that it could still lose is promised: every step counts
as durable when it is made.

Events take effect in their order, `StepsDurable` among them: what came before it in the batch is applied first, so a
worker that is gone is not sent a lease by the commit that the same batch reports. What is released at one instant goes
in the order of `after`, and within one `after` in the order in which the machine said it.

The machine is asked about everything at the instant of its release (`released`): only then does a worker hold a lease,
and only the machine knows whether a call still is open. What is held for a call or stream that is over is dropped when
it comes up, or earlier, when so much is held that it could be the majority: while a store hangs, callers that give up
and try again do not pile up here.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.limits import MIN_OUTBOX_SWEEP
from cronoq_sansio.values import value


@value
class StepsDurable:
    """Every step up to and including this number is in the store; one event per commit. Consumed by the outbox."""

    through: int


class Machine(Protocol):
    """What the outbox wraps."""

    def handle(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        """Apply events, in order."""

    def released(self, actions: Sequence[Any], now: int) -> list[Any]:
        """These actions are performed now. Returns those that still make sense: calls and leases may have ended."""

    def wanted(self, action: Any) -> bool:
        """False when `released` would drop this held action, now and for ever."""

    def next_timeout(self) -> int | None:
        """When `handle([TimerFired()], now)` is due."""


class Outbox:
    """Holds back what is not durable yet."""

    def __init__(self, machine: Machine, *, volatile: bool = False) -> None:
        self.machine = machine
        self._volatile = volatile
        self._durable = 0
        self._number = 0
        self._held: dict[int, list[Any]] = {}
        self._order: list[int] = []  # a heap: replies to reads may wait for older steps than what is held already
        self._count = 0
        self._sweep_at = MIN_OUTBOX_SWEEP

    def handle(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        """Apply `events` to the machine and return what may be performed now."""
        for event in events:
            if type(event) is StepsDurable:
                return self._handle_in_portions(events, now)
        machine = self.machine
        step = machine.handle(events, now)
        self._number = step.number
        fresh = step.at_once
        if step.once_durable:
            if self._volatile:  # nothing has to wait, and nothing ever does
                fresh += step.once_durable
            else:
                self._sort(step, fresh)
            step.once_durable = []
        if fresh:
            step.at_once = machine.released(fresh, now)
        return step

    def next_timeout(self) -> int | None:
        """The machine's."""
        return self.machine.next_timeout()

    def held(self) -> int:
        """How many actions wait."""
        return self._count

    def _handle_in_portions(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        whole: Step[Any, Any] = Step(self._number)
        portion: list[Any] = []
        for event in events:
            if type(event) is not StepsDurable:
                portion.append(event)
                continue
            if portion:
                self._append(whole, portion, now)
                portion = []
            whole.at_once += self._release(event.through, now)
        if portion:
            self._append(whole, portion, now)
        return whole

    def _append(self, whole: Step[Any, Any], portion: list[Any], now: int) -> None:
        step = Outbox.handle(self, portion, now)
        whole.number = step.number
        whole.writes += step.writes
        whole.at_once += step.at_once

    def _sort(self, step: Step[Any, Any], fresh: list[Any]) -> None:
        """What need not wait goes to `fresh`; of the rest nearly all waits for the step that it belongs to."""
        durable, after, before = self._durable, 0, len(fresh)
        held: list[Any] = []
        for action in step.once_durable:
            if action.after <= durable:
                fresh.append(action)
                continue
            if action.after != after:
                after = action.after
                assert after <= step.number, "an action waits for a step that does not exist"
                held = self._held_for(after)
            held.append(action)
        self._count += len(step.once_durable) - (len(fresh) - before)
        if self._count >= self._sweep_at:
            self._sweep()

    def _held_for(self, after: int) -> list[Any]:
        held = self._held.get(after)
        if held is None:
            held = self._held[after] = []
            heappush(self._order, after)
        return held

    def _release(self, through: int, now: int) -> list[Any]:
        self._durable = max(self._durable, through)
        ready: list[Any] = []
        while self._order and self._order[0] <= through:
            ready += self._held.pop(heappop(self._order))
        self._count -= len(ready)
        return self.machine.released(ready, now) if ready else ready

    def _sweep(self) -> None:
        """Drop what nobody wants any more; next time when twice as much is held, so that it costs O(1) per action."""
        wanted = self.machine.wanted
        for after, held in self._held.items():
            self._held[after] = [action for action in held if wanted(action)]
        self._count = sum(map(len, self._held.values()))
        self._sweep_at = max(MIN_OUTBOX_SWEEP, 2 * self._count)
