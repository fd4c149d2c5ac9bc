"""One call of `Service.handle` in progress: what the parts of the service have collected so far.

Parts append engine events to `events` and actions to the two lists; the service drives the engine with what has piled
up whenever somebody must see the state after it, and at the end. Lists are replaced, never cleared: a step that was
handed out is not touched again.
"""

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.events import Event
from cronoq_sansio.engine.records import Record
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.messages import Call, Message, Reject, Reply, ServiceAction
from cronoq_sansio.service.waits import SubmitStored

HeldAction = ServiceAction | SubmitStored


class Turn:
    """Shared by the parts of one service; `begin` makes it new."""

    __slots__ = ("_step", "at_once", "events", "now", "once_durable", "writes")

    def __init__(self, now: int) -> None:
        self.now = now
        self.begin(now)

    def begin(self, now: int) -> None:
        """Start over. Time never goes back: a smaller `now` counts as the largest seen."""
        if now > self.now:
            self.now = now
        self.events: list[Event] = []
        """For the engine, in order."""
        step: Step[ServiceAction, HeldAction] = Step(0)
        self._step = step
        self.writes: list[Record] = step.writes
        self.at_once: list[ServiceAction] = step.at_once
        self.once_durable: list[HeldAction] = step.once_durable

    def reply(self, call: Call, message: Message, after: int) -> None:
        """Answer `call` once step `after` is durable."""
        self.once_durable.append(Reply(call, message, after))

    def reject(self, call: Call, rejection: Rejection, after: int = 0) -> None:
        """Refuse `call`: at once when that shows no state, else once step `after` is durable."""
        if after:
            self.once_durable.append(Reject(call, rejection, after))
        else:
            self.at_once.append(Reject(call, rejection, 0))

    def step(self, number: int) -> Step[ServiceAction, HeldAction]:
        """Everything collected, as the step with that number."""
        self._step.number = number
        return self._step
