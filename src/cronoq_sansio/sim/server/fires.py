"""Which fires of schedules became tasks, over all incarnations: none becomes two (engine.md section 11).

A second task of one fire is right only when a caller has put the schedule again since the first one ended.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.records import RecurringStored, TaskFinished, TaskInserted
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.spec import TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.store import SimStore
    from cronoq_sansio.sim.server.view import View

TAG = "cronoq.recurring"
Fire = tuple[str, int]
"""Name of the schedule, and start."""


def fire_of(spec: TaskSpec) -> Fire | None:
    """The fire that a task is the occurrence of."""
    asked = spec.scheduling
    if asked is None or asked.start is None:
        return None
    for name, given in spec.tags:
        if name == TAG:
            return given, asked.start
    return None


class Fires:
    """What is committed."""

    def __init__(self, rows: NaiveStore) -> None:
        self.rows = rows
        self.made: dict[Fire, dict[int, None]] = {}
        """Ids by schedule and start."""
        self.put: dict[str, int] = {}
        """Of each name: the highest id of a task before it was put for the last time."""

    def inserted(self, record: TaskInserted) -> None:
        """A task with tags is stored."""
        fire = fire_of(record.spec)
        if fire is not None:
            self.made.setdefault(fire, {})[record.task_id] = None

    def stored(self, record: RecurringStored, highest: int) -> None:
        """A schedule is put, when this was the highest task."""
        self.put[record.spec.name] = highest


class TermFires:
    """What one term has written, durable or not, over what is committed."""

    def __init__(self, durable: Fires, view: "View", store: "SimStore") -> None:
        self._durable = durable
        self._store = store
        self._epoch = store.epoch
        self._view = view
        self._made: dict[Fire, list[int]] = {}
        self._put: dict[str, int] = {}

    def put(self, name: str) -> None:
        """A schedule is put."""
        self._put[name] = self._view.highest

    def made(self, task_id: int, spec: TaskSpec) -> None:
        """A task with tags is inserted."""
        fire = fire_of(spec)
        if fire is None:
            return
        allowed = max(self._put.get(fire[0], 0), self._durable.put.get(fire[0], 0))
        mine = self._made.setdefault(fire, [])
        lost = self._store.epoch != self._epoch  # what others have stored since, this term cannot know
        for before in (*mine, *(() if lost else self._durable.made.get(fire, ()))):
            if before > allowed or not self._over(before):
                details = f"{fire}: task {task_id} after {before}, put again after {allowed}"
                raise Violation(Kind.SAFETY, "a fire of a schedule became two tasks", details)
        mine.append(task_id)

    def _over(self, task_id: int) -> bool:
        view = self._view
        if task_id in view.ended:
            return True
        return task_id not in view.live and type(self._durable.rows.states.get(task_id)) is TaskFinished
