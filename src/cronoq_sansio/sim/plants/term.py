"""Bugs in how a term ends, and in what the store's troubles do to it: the gate, the graceful stop, pressure."""

from typing import Any

from cronoq_sansio.engine.events import DispatchHeld
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.gate import STOPPED, Gate, Phase
from cronoq_sansio.service.messages import StopRequested
from cronoq_sansio.service.service import Service
from cronoq_sansio.service.stopping import Stopping
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing

BED = Bed()
plant = BED.plant


@plant
def a_stopping_server_dispatches(patch: Patch) -> None:
    """New attempts begin while the server stops."""

    def hold(self: Any) -> None:
        held = self._pressure is not None
        if held != self._held:
            self._held = held
            self._turn.events.append(DispatchHeld(held))

    patch.setattr(Gate, "_hold", hold)


@plant
def a_stopping_server_holds_nothing(patch: Patch) -> None:
    """The gate says that dispatch is held back, and the engine does not hear of it."""

    def hold(self: Any) -> None:
        self._held = self.phase is not Phase.SERVING or self._pressure is not None

    patch.setattr(Gate, "_hold", hold)


@plant
def a_stopping_server_takes_work(patch: Patch) -> None:
    """New tasks are taken in while the server stops."""
    patch.setattr(Gate, "refusal", lambda self, _request: STOPPED if self.phase is Phase.STOPPED else self._pressure)


@plant
def a_stopped_server_takes_work(patch: Patch) -> None:
    """New tasks are taken in after the last lease was given up."""
    patch.setattr(Gate, "refusal", lambda self, _request: self._pressure)


@plant
def pressure_is_never_lifted(patch: Patch) -> None:
    """Once the store could not keep up nothing is taken in any more."""

    def make(before: Any) -> Any:
        def set_pressure(self: Any, reason: Any) -> None:
            if reason is not None:
                before(self, reason)

        return set_pressure

    patch.wrap(Gate, "set_pressure", make)


@plant
def pressure_is_ignored(patch: Patch) -> None:
    """Work is taken in although the store cannot keep up."""
    patch.setattr(Gate, "set_pressure", nothing)


@plant
def the_grace_never_ends(patch: Patch) -> None:
    """A stop waits for its last lease, however long that takes."""
    patch.wrap(Stopping, "requested", lambda before: lambda self, event: before(self, StopRequested(event.grace << 40)))


@plant
def there_is_no_grace(patch: Patch) -> None:
    """A stop gives up running attempts at once."""
    patch.wrap(Stopping, "requested", lambda before: lambda self, _event: before(self, StopRequested(0)))


@plant
def a_stop_leaves_its_leases(patch: Patch) -> None:
    """Attempts that still run when the grace is over are not given up."""
    patch.setattr(Workers, "stop", nothing)


@plant
def workers_hear_no_farewell(patch: Patch) -> None:
    """A stop does not say Shutdown to workers."""
    patch.setattr(Workers, "farewell", nothing)


@plant
def a_stop_forgets_the_waiting(patch: Patch) -> None:
    """Who waits for a task when the server stops is never answered."""
    patch.setattr(Calls, "stop", nothing)


@plant
def the_timer_of_the_service_is_forgotten(patch: Patch) -> None:
    """The server wakes up for its tasks, and not for its calls."""
    patch.setattr(Service, "next_timeout", lambda self: self.engine.next_timeout())


@plant
def the_timer_of_the_engine_is_forgotten(patch: Patch) -> None:
    """The server wakes up for its calls, and not for its tasks."""

    def next_timeout(self: Any) -> Any:
        self._deadlines.arm(self._turn.now)
        return self._timers.next()

    patch.setattr(Service, "next_timeout", next_timeout)


@plant
def the_outbox_never_wakes(patch: Patch) -> None:
    """The driver is told that nothing is due."""
    patch.setattr(Outbox, "next_timeout", nothing)


@plant
def writes_of_the_second_round_are_lost(patch: Patch) -> None:
    """When the engine is driven more than once in a step only its last writes reach the store."""

    def make(before: Any) -> Any:
        def drive(self: Any) -> None:
            if self._turn.events:
                self._turn.step = None
            before(self)

        return drive

    patch.wrap(Service, "_drive", make)


@plant
def steps_have_the_number_of_their_first_round(patch: Patch) -> None:
    """When the engine is driven more than once in a step it counts as durable before its last writes are."""

    def make(before: Any) -> Any:
        def handle(self: Any, events: Any, now: int) -> Any:
            step = before(self, events, now)
            step.number -= len(step.writes) > 1
            return step

        return handle

    patch.wrap(Service, "handle", make)
