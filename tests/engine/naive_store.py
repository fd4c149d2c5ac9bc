"""The naive store (`cronoq_sansio.sim.lockstep.store`) with what tests of the engine alone do to it."""

from typing import Any

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.lockstep import store


class NaiveStore(store.NaiveStore):
    """Rows by task id."""

    def forget(self, task_id: int) -> None:
        """The row of a task is gone."""
        del self.inserted[task_id]
        self.states.pop(task_id, None)

    def recover(self, settings: Settings, now: int, **changes: Any) -> Engine:
        """A fresh engine that has taken over, with its first step written."""
        highest = max(self.inserted, default=0)
        arguments = {"first_task_id": highest + 1, "first_lease_id": 1_000_000, "seed": 1, "wall_offset": 0, **changes}
        engine = Engine.recover(settings, now=now, **arguments)
        rows = self.rows(now + arguments["wall_offset"] - settings.limits.key_retention)
        for start in range(0, len(rows), 3):
            engine.load(rows[start : start + 3])
        while engine.settle(now):
            pass
        self.write(engine.begin(now).writes)
        return engine
