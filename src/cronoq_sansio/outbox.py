"""What may be said when: the outbox keeps every action that shows state until the step it shows is durable.

It wraps a machine (the `Service`, or the `Engine` of an embedded scheduler) and has the same entry, `handle`. The
step that comes out has the writes of the machine's step; its `at_once` holds everything that may be performed now, in
the order in which it became allowed, and its `once_durable` is empty.

Theory. A step numbered n carries one transaction. An action says by its `after` which step it shows.
`StepsDurable(m)` says that all transactions up to n = m are in the store. So an action may go as soon as ``after <=
m``; a reply waits for the last step that wrote what it shows, not for the newest one. A volatile store
(`volatile=True`) loses everything with the process, so nothing that it could still lose is promised: every step
counts as durable when it is made.

Released leases are told to the machine at the same instant (`machine.released`): only then does a worker hold them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from cronoq_sansio.engine.actions import Step
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

    def next_timeout(self) -> int | None:
        """When `handle([TimerFired()], now)` is due."""


class Outbox:
    """Holds back what is not durable yet."""

    def __init__(self, machine: Machine, *, volatile: bool = False) -> None:
        self.machine = machine
        self._volatile = volatile
        self._durable = 0
        self._held: dict[int, list[Any]] = {}
        self._order: deque[int] = deque()

    def handle(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        """Apply `events` to the machine and return what may be performed now, `StepsDurable` included among them."""
        ready: list[Any] = []
        for event in events:
            if type(event) is StepsDurable:
                self._release(event.through, ready)
        if ready:
            ready = self.machine.released(ready, now)
        step = self.machine.handle([event for event in events if type(event) is not StepsDurable], now)
        if self._volatile:
            self._durable = step.number
        fresh = step.at_once
        for action in step.once_durable:
            if action.after <= self._durable:
                fresh.append(action)
            else:
                self._hold(action)
        if fresh:
            ready += self.machine.released(fresh, now)
        step.at_once = ready
        step.once_durable = []
        return step

    def next_timeout(self) -> int | None:
        """The machine's."""
        return self.machine.next_timeout()

    def held(self) -> int:
        """How many actions wait."""
        return sum(map(len, self._held.values()))

    def _hold(self, action: Any) -> None:
        after = action.after
        held = self._held.get(after)
        if held is None:
            held = self._held[after] = []
            if self._order and after < self._order[-1]:
                self._order = deque(sorted((*self._order, after)))
            else:
                self._order.append(after)
        held.append(action)

    def _release(self, through: int, ready: list[Any]) -> None:
        self._durable = max(self._durable, through)
        while self._order and self._order[0] <= through:
            ready += self._held.pop(self._order.popleft())
