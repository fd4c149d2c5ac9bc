"""Occurrences of recurring schedules: the tasks that they become, and which of them are live (engine.md section 11).

An occurrence is a task like any other, with a fixed start at the time that the cron expression names. Its tag
`cronoq.recurring` has the name of the schedule, so that it is known for what it is after a restart too, whatever
became of the schedule meanwhile.

Invariant: the index has each live task that a schedule made, once, under the name in its tag and its fixed start.
"""

from bisect import bisect_left, insort
from dataclasses import replace
from typing import TYPE_CHECKING

from cronoq_sansio.clock import utc_text
from cronoq_sansio.spec import Condition, Dependency, Overlap, RecurringSpec, Scheduling, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Task

TAG = "cronoq.recurring"
NOTHING = Scheduling()

#: What an occurrence asks of the one before, by `Overlap`, as a `Condition` number.
QUEUES = {int(Overlap.QUEUE): int(Condition.ON_COMPLETE), int(Overlap.QUEUE_ON_SUCCESS): int(Condition.ON_SUCCESS)}


def key_of(prefix: str, start: int) -> str:
    """The key of the occurrence that starts then; empty without a prefix. `start` is wall time, whole seconds."""
    return f"{prefix}@{utc_text(start)}" if prefix else ""


def build(schedule: RecurringSpec, start: int, key: str, before: int) -> TaskSpec:
    """The task that starts then. `before`: id of the live occurrence before it; 0 = none."""
    template = schedule.template
    asked = template.scheduling or NOTHING
    condition = QUEUES.get(schedule.overlap)
    scheduling = replace(
        asked,
        start=start,
        deadline=None if asked.deadline_in is None else start + asked.deadline_in,
        deadline_in=None,
        dependencies=(Dependency(before, condition),) if before and condition is not None else (),
    )
    tags = tuple(sorted((*template.tags, (TAG, schedule.name))))
    return replace(template, key=key, tags=tags, scheduling=scheduling)


def schedule_of(spec: TaskSpec) -> str:
    """Name of the schedule that made this task; empty when none did."""
    asked = spec.scheduling
    if asked is None or asked.start is None:
        return ""
    return next((value for name, value in spec.tags if name == TAG), "")


class Occurrences:
    """The live ones of all schedules, those that are gone included."""

    __slots__ = ("_by_name", "count")

    def __init__(self) -> None:
        self.count = 0
        """How many there are."""
        self._by_name: dict[str, list[tuple[int, int]]] = {}
        """Start and id of each, by name, in order."""

    def add(self, name: str, task: "Task") -> None:
        """A live task with a fixed start that the schedule of that name made."""
        insort(self._by_name.setdefault(name, []), (_start(task), task.id))
        self.count += 1

    def remove(self, name: str, task: "Task") -> None:
        """It has ended."""
        entries = self._by_name[name]
        place = bisect_left(entries, (_start(task), task.id))
        assert entries[place][1] == task.id
        del entries[place]
        self.count -= 1
        if not entries:
            del self._by_name[name]

    def at(self, name: str, start: int) -> int:
        """Id of the one that starts then; 0 = none."""
        entries = self._by_name.get(name, [])
        place = bisect_left(entries, (start, 0))
        return entries[place][1] if place < len(entries) and entries[place][0] == start else 0

    def before(self, name: str, start: int) -> int:
        """Id of the latest one that starts earlier; 0 = none."""
        entries = self._by_name.get(name, [])
        place = bisect_left(entries, (start, 0))
        return entries[place - 1][1] if place else 0

    def first_before(self, name: str, start: int) -> int:
        """Id of the earliest one, if it starts earlier than that; 0 = none."""
        entries = self._by_name.get(name)
        return entries[0][1] if entries and entries[0][0] < start else 0

    def all(self) -> list[tuple[str, int, int]]:
        """Name, start and id of each; for invariant checks."""
        return [(name, start, task_id) for name, entries in self._by_name.items() for start, task_id in entries]


def _start(task: "Task") -> int:
    assert task.plan is not None
    return task.plan.start
