"""Who is let in, and whether the engine may dispatch: stopping and store pressure, combined.

Theory. The gate stands in one of three phases and only moves forward; store pressure comes and goes beside it:

    phase      adds work   takes work away   the rest   new workers   dispatch
    SERVING    yes         yes               yes        yes           yes
    STOPPING   no          yes               yes        yes           no
    STOPPED    no          no                no         no            no

Submit, SubmitBatch and AddRecurring add work, Cancel and RemoveRecurring take it away. Under store pressure neither is
let in and nothing new is dispatched, whatever the phase (design.md section 3); reports of workers always pass, they are
bounded by one outcome per lease. A stopping server refuses only what adds work (server.md, "Decided where the sources
disagree").
"""

from enum import Enum

from cronoq_sansio.engine.events import DispatchHeld
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import Cancel, Request, Submit, SubmitBatch
from cronoq_sansio.service.messages_recurring import AddRecurring, RemoveRecurring
from cronoq_sansio.service.turn import Turn

STOPPING = Rejection(Code.UNAVAILABLE, "the server is stopping and takes no new tasks; try again on the next one")
STOPPED = Rejection(Code.UNAVAILABLE, "the server has stopped; try again on the next one")


class Phase(Enum):
    """How far a stop has come."""

    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Gate:
    """The one place that knows why something is refused."""

    __slots__ = ("_held", "_pressure", "_turn", "open", "phase")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._held = False
        self._pressure: Rejection | None = None
        self.phase = Phase.SERVING
        self.open = True
        """Nothing is refused."""

    def enter(self, phase: Phase) -> None:
        """Move on to `phase`."""
        self.phase = phase
        self._hold()

    def set_pressure(self, reason: str | None) -> None:
        """The store cannot keep up (`reason`), or can again (None)."""
        self._pressure = (
            None if reason is None else Rejection(Code.UNAVAILABLE, f"the store cannot keep up: {reason}; try again")
        )
        self._hold()

    def refusal(self, request: Request) -> Rejection | None:
        """Why this call is not let in; None when it is."""
        if self.phase is Phase.STOPPED:
            return STOPPED
        kind = type(request)
        adds_work = kind is Submit or kind is SubmitBatch or kind is AddRecurring
        if adds_work and self.phase is Phase.STOPPING:
            return STOPPING
        return self._pressure if adds_work or kind is Cancel or kind is RemoveRecurring else None

    def worker_refusal(self) -> Rejection | None:
        """Why no worker may connect or register; None when it may."""
        return STOPPED if self.phase is Phase.STOPPED else None

    def check_invariants(self) -> None:
        """The engine holds dispatch exactly while this says so."""
        assert self._held == (self.phase is not Phase.SERVING or self._pressure is not None) == (not self.open)

    def _hold(self) -> None:
        held = self.phase is not Phase.SERVING or self._pressure is not None
        self.open = not held
        if held != self._held:
            self._held = held
            self._turn.events.append(DispatchHeld(held))
