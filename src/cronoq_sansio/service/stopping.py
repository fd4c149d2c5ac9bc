"""The graceful stop, as state with one timer (design.md section 3, "Stop").

    StopRequested(grace) ── Submits refused, no new dispatch; workers report, calls and Nack moves go on
         │  the grace has passed, or no lease runs any more
         ▼
    leases that workers still hold fail as retryable, with Abort "shutdown"; those that they never saw go back uncounted
         │  all of that is durable (the outbox holds what follows)
         ▼
    Shutdown{not_leader: false} to workers, UNAVAILABLE to whoever waits or watches, StopFinished

So nothing is said about the end before a fresh server would recover the same. A second request can only shorten the
grace.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.gate import Gate, Phase
from cronoq_sansio.service.messages import StopFinished, StopRequested
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.workers import Workers

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


class GraceOver:
    """Payload of the timer that ends the grace."""


class Stopping:
    """Leads the gate from SERVING to STOPPED."""

    def __init__(
        self,
        engine: "Engine",
        turn: Turn,
        gate: Gate,
        timers: TimerHeap[object],
        workers: Workers,
        calls: Calls,
        drive: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._turn = turn
        self._gate = gate
        self._timers = timers
        self._workers = workers
        self._calls = calls
        self._drive = drive
        self._timer: Timer[object] | None = None
        self._due = 0

    def requested(self, event: StopRequested) -> None:
        """Start to stop, or shorten the grace of the stop under way."""
        due = self._turn.now + event.grace
        if self._gate.phase is Phase.STOPPED or (self._timer is not None and due >= self._due):
            return
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._due = due
        self._timer = self._timers.add(due, GraceOver())
        self._gate.enter(Phase.STOPPING)

    def advance(self) -> None:
        """At the end of every step: finish when the grace is over or nothing runs."""
        if self._gate.phase is not Phase.STOPPING or (self._engine.running and self._turn.now < self._due):
            return
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._gate.enter(Phase.STOPPED)
        self._workers.stop()
        self._drive()
        self._workers.farewell()
        self._calls.stop()
        self._turn.once_durable.append(StopFinished(self._engine.written))
