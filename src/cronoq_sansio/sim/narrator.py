"""Writes down what happens in a simulated world, for people. Only a run that failed is narrated: in its repetition."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.clock import SECOND

if TYPE_CHECKING:
    from cronoq_sansio.sim.node import Node
    from cronoq_sansio.sim.world import ServerWorld

SHOWN = 200  #: lines
LONGEST = 400  #: characters of a line


class Narrator:
    """Keeps the last lines."""

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._lines: deque[str] = deque(maxlen=SHOWN)
        self._start = world.now

    def act(self, name: str) -> None:
        """Somebody does something."""
        self._say(f"{(self._world.now - self._start) / SECOND:>+8.9g} {name.replace('_', ' ')}")

    def fault(self, kind: str, operation: str) -> None:
        """A fault strikes."""
        self._say(f"         fault: {kind} × {operation}")

    def handled(self, node: "Node", events: Sequence[Any]) -> None:
        """A term is told this."""
        for event in events:
            self._say(f"    {node.number} <- {text(event)}")

    def said(self, node: "Node", actions: Sequence[Any]) -> None:
        """A term says this."""
        for action in actions:
            self._say(f"    {node.number} -> {text(action)}")

    def ended(self, node: "Node", why: str) -> None:
        """A term is over."""
        self._say(f"    {node.number} ends: {why}")

    def text(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)

    def _say(self, line: str) -> None:
        self._lines.append(line if len(line) <= LONGEST else f"{line[:LONGEST]}…")


def text(value: Any) -> str:
    """A value with those fields that say something."""
    kind = type(value)
    if kind.__name__ in ("Call", "WorkerStream"):
        return f"{value.sink}"
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))})"
    if not hasattr(kind, "__dataclass_fields__"):
        return str(value)
    shown = [
        f"{name}={text(given)}"
        for name in kind.__dataclass_fields__
        if (given := getattr(value, name)) not in (None, "", b"", (), 0, False)
    ]
    return f"{kind.__name__}({', '.join(shown)})"
