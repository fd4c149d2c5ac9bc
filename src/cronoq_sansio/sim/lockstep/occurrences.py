"""What callers were promised of schedules: an acknowledged one is kept, and no fire of it makes two tasks."""

from collections.abc import Iterable, Sequence

from cronoq_sansio.engine.records import Record, RecurringDeleted, RecurringStored, TaskFinished, TaskInserted
from cronoq_sansio.sim.lockstep.model_state import PLAIN, RECURRING
from cronoq_sansio.sim.lockstep.store import NaiveStore

Fire = tuple[str, int]
"""Name of the schedule, and start."""


class Occurrences:
    """Every task that a schedule has made, over all crashes of a world."""

    def __init__(self) -> None:
        self.promised: dict[str, None] = {}
        """Schedules that a caller knows to be there."""
        self._made: dict[Fire, list[int]] = {}
        """Tasks by schedule and start."""
        self._begun: dict[str, int] = {}
        """Of each name: the highest id of a task before it was put for the last time."""
        self._begun_stored: dict[str, int] = {}
        """The same as far as it is committed."""

    def told(self, name: str, *, there: bool) -> None:
        """Somebody was told that the schedule is there, or that it is gone."""
        if there:
            self.promised[name] = None
        else:
            self.promised.pop(name, None)

    def written(self, writes: Sequence[Record], rows: NaiveStore) -> list[str]:
        """What is wrong with the tasks that a step makes; `rows` are those before it.

        A second task of the same fire is right only when the schedule was put again since the first one had ended, by
        a caller: it may have been cancelled.
        """
        found = []
        over = [record.task_id for record in writes if isinstance(record, TaskFinished)]
        for record in writes:
            if isinstance(record, RecurringStored):
                self._begun[record.spec.name] = max(rows.inserted, default=0)
            elif isinstance(record, TaskInserted) and (fire := fire_of(record)) is not None:
                before = self._made.setdefault(fire, [])
                allowed = self._begun.get(fire[0], 0)
                over += [task_id for task_id in before if rows.finished(task_id) is not None]
                if any(task_id > allowed or task_id not in over for task_id in before):
                    found.append(f"task {record.task_id} is the occurrence of {fire} again, after {before}")
                before.append(record.task_id)
        return found

    def committed(self, records: Iterable[Record]) -> None:
        """This is durable now."""
        self._begun_stored = dict(self._begun)
        for record in records:
            if isinstance(record, RecurringDeleted):
                self.promised.pop(record.name, None)
            elif isinstance(record, RecurringStored) and record.spec.configured:
                self.promised.pop(record.spec.name, None)  # the operator's from now on

    def crashed(self, rows: NaiveStore) -> None:
        """What was not committed has never been."""
        self._begun = dict(self._begun_stored)
        self._made = {fire: [one for one in ids if one in rows.inserted] for fire, ids in self._made.items()}


def fire_of(record: TaskInserted) -> Fire | None:
    """The fire that the task is the occurrence of."""
    name = dict(record.spec.tags).get(RECURRING)
    start = (record.spec.scheduling or PLAIN).start
    return None if name is None or start is None else (name, start)
