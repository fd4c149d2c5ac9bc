"""Writes down what happens in a simulated world, for people. Only a run that failed is narrated: in its repetition."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.lockstep.transcript import schedule_text, seconds_since, spec_text
from cronoq_sansio.spec import RecurringSpec, TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

SHOWN = 200  #: lines
LONGEST = 300  #: characters of a line
NOTHING = (None, "", b"", (), 0, False)


class Narrator:
    """Keeps the last lines."""

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._lines: deque[str] = deque(maxlen=SHOWN)
        self._start = world.now
        self._acting = ""

    def act(self, name: str) -> None:
        """Somebody does something; it is told with the first thing that follows from it."""
        self._acting = name.replace("_", " ")

    def fault(self, kind: str, operation: str) -> None:
        """A fault strikes."""
        self._say(f"!! {kind} × {operation}")

    def handled(self, node: "Node", events: Sequence[Any]) -> None:
        """A term is told this."""
        for event in events:
            self._say(f"{node.number} < {event_text(event)}")

    def said(self, node: "Node", actions: Sequence[Any]) -> None:
        """A term says this."""
        for action in actions:
            self._say(f"{node.number}   > {action_text(action)}")

    def ended(self, node: "Node", why: str) -> None:
        """A term is over."""
        self._say(f"{node.number} ends: {why}")

    def text(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)

    def _say(self, line: str) -> None:
        if self._acting:
            self._lines.append(f"{seconds_since(self._world.now, self._start)} {self._acting}")
            self._acting = ""
        line = f"         {line}"
        self._lines.append(line if len(line) <= LONGEST else f"{line[:LONGEST]}…")


def event_text(event: Any) -> str:
    """An event of the service."""
    kind = type(event)
    if kind is m.CallReceived:
        deadline = "" if event.deadline is None else ", with a deadline"
        return f"{event.call.sink} asks {text(event.request)}{deadline}"
    if kind is m.WorkerSent:
        return f"{event.stream.sink} sends {text(event.message)}"
    if kind is m.WorkerConnected:
        return f"{event.stream.sink} connects"
    if kind is m.WorkerGone:
        return f"{event.stream.sink} is gone: {event.why}"
    if kind is m.CallEnded:
        return f"{event.call.sink} goes away"
    return text(event)


def action_text(action: Any) -> str:
    """An action of the service."""
    told = _ACTIONS.get(type(action))
    return text(action) if told is None else told(action)


_ACTIONS: dict[type, Callable[[Any], str]] = {
    Answer: lambda action: f"{action.request.sink} gets {text(action.outcome)}",
    m.Reject: lambda action: (
        f"{action.call.sink} is refused: {action.rejection.code.value}, {action.rejection.message}"
    ),
    m.StartEvents: lambda action: f"{action.call.sink} watches",
    m.SendEvent: lambda action: f"{', '.join(str(call.sink) for call in action.calls)} see {text(action.event)}",
    m.SendLease: lambda action: f"{action.stream.sink} gets {lease_text(action.lease)}",
    m.SendToWorker: lambda action: f"{action.stream.sink} is told {text(action.message)}",
    m.CloseWorker: lambda action: (
        f"{action.stream.sink} is closed" + (f": {action.rejection.message}" if action.rejection is not None else "")
    ),
}


def lease_text(lease: Any) -> str:
    """A lease as its worker gets it."""
    return f"lease {lease.id}: task {lease.task.id}, attempt {lease.attempt}"


def text(value: Any) -> str:
    """A value with those fields that say something."""
    if isinstance(value, TaskSpec):
        return spec_text(value)
    if isinstance(value, RecurringSpec):
        return schedule_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))})"
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return repr(value) if isinstance(value, str | bytes) else str(value)
    shown = [
        f"{name}={TaskStatus(given).name if name == 'status' else text(given)}"
        for name in fields
        if (given := getattr(value, name)) not in NOTHING
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
