"""What schedules that fire cost the other tasks: very many of them are due at once while tasks pass through the engine.

The schedules are those of a pool of their own, and all of them fire in the same second. Steps that carry tasks take
turns with steps in which schedules fire, as in a server, so that about as many tasks pass as there are fires; only the
former count as the cost of a task. When all have fired, the occurrences are cancelled, and the clock goes on to the
next second. A step in which 50 schedules fire leaves nothing of the others in the caches of the processor: that is part
of the figure.
"""

import gc
from dataclasses import replace

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.limits import FIRE_UNITS, MAX_UNITS
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.spec import RecurringSpec
from harness.engine_load import MANY, SETTINGS, TICK, Load, handled, plain

FIRING = "firing"
"""The pool of the schedules; it has no workers."""
STEPS_APART = 3 * MAX_UNITS // FIRE_UNITS
"""Steps that carry tasks, one event each, between two in which schedules fire: three per task and fire."""
TIMED = replace(SETTINGS, pools=(*SETTINGS.pools, PoolSettings(FIRING, max=1_000_000, max_pending=MANY)))
"""With a pool whose calendar has room for all occurrences of one moment."""


class Timed(Load):
    """Tasks that pass through an engine whose clock goes on by a second in each run, where `schedules` fire then."""

    def __init__(self, schedules: int) -> None:
        engine = Engine.fresh(TIMED, now=0)
        super().__init__(engine)
        template = replace(plain(), pool=FIRING)
        for number in range(schedules):
            every_second = RecurringSpec(f"schedule-{number:05d}", "* * * * * *", "", template)
            engine.handle([ev.RecurringPut(None, every_second)], engine.now + TICK)
        self.schedules = schedules
        self.fires = 0
        """Occurrences that were made while tasks passed."""
        self.firing = 0.0
        """Seconds of CPU time that they cost."""
        self._next_second()

    def run(self, tasks: int, at_once: int, *, check: bool = False) -> float:
        """Seconds of CPU time per task, of the steps that carry tasks."""
        assert not check
        engine = self.engine
        steps = self.steps(tasks, at_once)
        gc.collect(0)
        spent, apart = 0.0, max(STEPS_APART // at_once, 1)
        for first in range(0, len(steps), apart):
            spent += handled(engine, steps[first : first + apart])
            if not self.schedules:
                continue
            if not self._due():
                self._next_second()
            before = engine.recurring.live.count
            self.firing += handled(engine, [[ev.TimerFired()]])
            self.fires += engine.recurring.live.count - before
        self._lease += tasks
        assert self._lease in engine.leases.live and engine.tasks.pending >= self._waiting, (
            "tasks did not start in order"
        )
        return spent / tasks

    def _due(self) -> bool:
        due = self.engine.next_timeout()
        return due is not None and due <= self.engine.now

    def _next_second(self) -> None:
        """All occurrences are gone, all schedules are due."""
        engine = self.engine
        while self._due():
            engine.handle([ev.TimerFired()], engine.now + TICK)
        made = [task.id for task in engine.tasks.live.values() if task.spec.pool == FIRING]
        for first in range(0, len(made), 100):
            events = [ev.TaskCancelled(None, task) for task in made[first : first + 100]]
            engine.handle(events, engine.now + TICK)
        engine.handle([], (engine.now // SECOND + 1) * SECOND)
