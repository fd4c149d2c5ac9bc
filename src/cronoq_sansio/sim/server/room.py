"""What counts against the bounds of a term, seen from its writes: tasks that wait, bytes, and schedules, O(1) each.

Nothing is taken in above a bound. What is refused because of one is judged by the most that there was in the step: a
refusal writes nothing, so nobody outside knows between which of the writes of its step it came.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.engine.records import (
    Record,
    RecurringDeleted,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import BLOCKED, CANCELLED, FAILED, MISSED, RUNNING, SHED, SKIPPED, Shadow
from cronoq_sansio.spec import RecurringSpec, TaskSpec, weight

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.world import ServerWorld

WAITED = frozenset((FAILED, CANCELLED, SKIPPED, MISSED, SHED))
"""Ends of tasks that may have waited."""


Place = str | tuple[str, int]


def fault(what: str, details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, str(details))


class Line:
    """Tasks of one pool that wait."""

    __slots__ = ("bounds", "by_class", "count", "most", "sheds")

    def __init__(self, most: int, bounds: Sequence[int | None], sheds: int) -> None:
        self.count = 0
        self.by_class = [0, 0, 0, 0]
        self.most = most
        self.bounds = bounds
        self.sheds = sheds
        """How many there may be too many until one of them is shed."""


class Room:
    """Of one term."""

    def __init__(self, world: "ServerWorld", settings: Settings, live: dict[int, Shadow]) -> None:
        """`live`: the tasks of the term, kept by whoever asks."""
        self._world = world
        self._live = live
        self._total = settings.limits.max_pending_total
        self._budget = settings.limits.max_payload_bytes
        self._lines = {
            pool.name: Line(pool.max_pending, pool.max_pending_by_class, int(pool.overflow.startswith("shed")))
            for pool in settings.pools
        }
        self.count = 0
        """Tasks that wait, in all."""
        self.bytes = 0
        """Of live tasks and of templates."""
        self.standing: dict[str, RecurringSpec] = {}
        """The schedules that there are, durable or not."""
        self.changed: dict[str, int] = {}
        """When each of them was put or removed last in this term, in events of the world."""
        self._freed = self._freed_at = 0
        self._seen: Sequence[Record] = ()
        self._peaks: dict[Place, int] = {}
        """Of the step that was looked back on last."""
        self._newest = 0
        """The task that came last."""
        self._over: Line | None = None
        """There a task was taken in for which another one has to give way."""
        for name, record in world.store.rows.schedules.items():
            self.standing[name] = record.spec
            self.bytes += record.spec.template.size

    # --- tasks

    def found(self, shadow: Shadow) -> None:
        """A task was live when the term began."""
        self.bytes += weight(shadow.spec)
        if shadow.status != RUNNING:
            self.back(shadow.spec)

    def came(self, task_id: int, spec: TaskSpec) -> None:
        """A task is taken in."""
        line, own = self._lines[spec.pool], spec.priority
        if self._over is not None:
            raise fault("a task is taken in above a bound, and none gives way", self._counts(spec))
        self.bytes += spec.size if spec.scheduling is None else weight(spec)
        bound = line.bounds[own]
        if line.count >= line.most or self.count >= self._total or (bound is not None and line.by_class[own] >= bound):
            spare = line.sheds
            if (
                not spare
                or line.count - spare >= line.most
                or self.count - spare >= self._total
                or (bound is not None and line.by_class[own] - spare >= bound)
            ):
                raise fault("a task is taken in above a bound", self._counts(spec))
            self._over = line
        if self.bytes > self._budget:
            raise fault("a task is taken in above the payload budget", self._counts(spec))
        self._newest = task_id
        self.count += 1
        line.count += 1
        line.by_class[own] += 1

    def back(self, spec: TaskSpec) -> None:
        """An attempt is over, and the task waits again."""
        line = self._lines.get(spec.pool)
        self.count += 1
        if line is not None:
            line.count += 1
            line.by_class[spec.priority] += 1

    def left(self, spec: TaskSpec) -> None:
        """A task that waited starts, or ends."""
        line = self._lines.get(spec.pool)
        self.count -= 1
        if line is not None:
            line.count -= 1
            line.by_class[spec.priority] -= 1

    def ended(self, spec: TaskSpec, status: int) -> None:
        """A task has ended, running or not."""
        self._free(spec.size if spec.scheduling is None else weight(spec))
        if status == SHED:
            self._over = None
            if self._newest not in self._live:
                raise fault("a task is shed for one that ends at once", f"{spec} for task {self._newest}")

    def stepped(self) -> None:
        """The writes of a step are over."""
        if self._over is not None:
            raise fault("a task is taken in above a bound, and none gives way", self._over.count)

    def _free(self, size: int) -> None:
        self.bytes -= size
        now = self._world.events
        if self._freed_at != now:
            self._freed_at, self._freed = now, 0
        self._freed += size

    # --- schedules

    def put(self, record: RecurringStored) -> None:
        """A schedule is added, or replaced."""
        spec = record.spec
        before = self.standing.get(spec.name)
        if before is not None:
            self._free(before.template.size)
        self.bytes += spec.template.size
        self.standing[spec.name] = spec
        self.changed[spec.name] = self._world.events
        if self.bytes > self._budget and not spec.configured:
            raise fault("a schedule is taken in above the payload budget", f"{spec}: {self.bytes}")

    def removed(self, record: RecurringDeleted) -> None:
        """A schedule is removed."""
        self._free(self.standing.pop(record.name).template.size)
        self.changed[record.name] = self._world.events

    # --- refusals

    def refuses(self, spec: TaskSpec, ahead: Sequence[TaskSpec], step: Sequence[Record], *, fenced: bool) -> bool:
        """Whether this task would have passed a bound behind these, at some time in this step.

        `fenced`: somebody else writes by now, and what is stored under an id may be another task.
        """
        line, own = self._lines[spec.pool], spec.priority
        mine = of_class = 0
        for other in ahead:
            if other.pool == spec.pool:
                mine += 1
                of_class += other.priority == own
        bound = line.bounds[own]
        if line.count + mine >= line.most or self.count + len(ahead) >= self._total:
            return True
        if bound is not None and line.by_class[own] + of_class >= bound:
            return True
        if self.passes_bytes(weight(spec) + sum(map(weight, ahead))):
            return True
        if not step:
            return False
        if step is not self._seen:
            self._seen, self._peaks = step, self._look_back(step, fenced)
        peaks = self._peaks
        if peaks.get(spec.pool, 0) + mine >= line.most or peaks[""] + len(ahead) >= self._total:
            return True
        return bound is not None and peaks.get((spec.pool, own), 0) + of_class >= bound

    def passes_bytes(self, size: int) -> bool:
        """So many bytes more would have been too many at some time in this step."""
        freed = self._freed if self._freed_at == self._world.events else 0
        return self.bytes + freed + size > self._budget

    def _look_back(self, step: Sequence[Record], fenced: bool) -> dict[Place, int]:
        """The most tasks that waited in this step, by pool, by pool and class, and in all (""): back from what is now.

        Tasks of which nobody knows any more what they were may have been of any pool.
        """
        new = {record.task_id: record.spec for record in step if type(record) is TaskInserted}
        now: dict[Place, int] = {"": self.count}
        for name, line in self._lines.items():
            now[name] = line.count
            for own, count in enumerate(line.by_class):
                now[name, own] = count
        most = dict(now)
        for record in reversed(step):
            change = _change(record)
            if not change:
                continue
            of = self._spec(getattr(record, "task_id", 0), new, fenced)
            places: Sequence[Place] = ("", of.pool, (of.pool, of.priority)) if of is not None else tuple(now)
            for place in places:
                if of is not None or change < 0:
                    count = now[place] = now.get(place, 0) - change
                    if count > most.get(place, 0):
                        most[place] = count
        return most

    def _spec(self, task_id: int, new: dict[int, TaskSpec], fenced: bool) -> TaskSpec | None:
        """Of a task of this step; None when it has ended and was never stored."""
        shadow = self._live.get(task_id)
        if shadow is not None:
            return shadow.spec
        row = None if fenced else self._world.store.rows.inserted.get(task_id)
        return new.get(task_id) if row is None else row.spec

    def _counts(self, spec: TaskSpec) -> str:
        line = self._lines[spec.pool]
        return f"{spec}: {line.count} {line.by_class} of {line.most}, {self.count} in all, {self.bytes} bytes"


def _change(record: Record) -> int:
    """How many more wait after this than before; where it is not sure, as if fewer did."""
    if type(record) is TaskInserted:
        return 1
    if type(record) is TaskFinished:
        return -1 if record.status in WAITED else 0
    if type(record) is not TaskChanged or record.status == BLOCKED:
        return 0
    return -1 if record.status == RUNNING else 1
