"""One call of `Service.handle` in progress: what the parts of the service have collected so far.

Parts append engine events to `events` and actions to the two lists; the service drives the engine with what has piled
up whenever somebody must see the state after it, and at the end. Lists are replaced, never cleared: a step that was
handed out is not touched again.
"""

from typing import Any

from cronoq_sansio.engine.actions import Answer, Step
from cronoq_sansio.engine.events import Event
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.messages import Call, Message, Reject, ServiceAction
from cronoq_sansio.service.waits import SubmitStored

HeldAction = ServiceAction | SubmitStored


class Turn:
    """Shared by the parts of one service, which takes what is in it at the end of each call."""

    __slots__ = ("at_once", "events", "now", "once_durable", "step")

    def __init__(self, now: int) -> None:
        self.now = now
        self.events: list[Event] = []
        """For the engine, in order; empty between turns."""
        self.step: Step[Any, Any] | None = None
        """The engine's newest of this turn, with the writes of all of them."""
        self.at_once: list[ServiceAction] = []
        self.once_durable: list[HeldAction] = []

    def reply(self, call: Call, message: Message, after: int) -> None:
        """Answer `call` once step `after` is durable."""
        self.once_durable.append(Answer(call, message, after))

    def reject(self, call: Call, rejection: Rejection, after: int = 0) -> None:
        """Refuse `call`: at once when that shows no state, else once step `after` is durable."""
        if after:
            self.once_durable.append(Reject(call, rejection, after))
        else:
            self.at_once.append(Reject(call, rejection, 0))
