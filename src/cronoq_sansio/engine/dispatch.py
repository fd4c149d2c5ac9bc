"""Which task of a pool runs next (engine.md section 4).

Each READY task has a score, ``base[class] + min(aging · waited, cap)``. Inside a lane the order is the order of
submission, whatever the scores; scores compare the heads of the lanes only. So a pick looks at no more than four tasks,
however many wait. The highest score wins, ties go to the higher class.

Waiting lifts LOW over fresh NORMAL work and NORMAL nearly to HIGH, never past a class with a higher base beyond the
cap: a LOW task has a bound against steady fresh NORMAL work, and none against steady HIGH or CRITICAL work that uses
all slots.

Invariant: ``pending`` counts live tasks of the pool that are not running, in all and per class.
"""

from collections.abc import Mapping

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.figures import Figures
from cronoq_sansio.engine.labels import Groups
from cronoq_sansio.engine.lanes import Lane
from cronoq_sansio.engine.listing import LiveIds
from cronoq_sansio.engine.snapshot import GroupSnapshot, PoolSnapshot
from cronoq_sansio.engine.task import Task
from cronoq_sansio.engine.victims import for_pool
from cronoq_sansio.settings import PoolSettings

#: Points are counted in billionths, so that a score is an integer: 10,000, 1,000, 100 and 10 points per class …
BASE = tuple(points * SECOND for points in (10_000, 1_000, 100, 10))
AGING = 2  #: … 2 points per second waited …
AGE_CAP = 800 * SECOND  #: … and at most 800 for waiting.


def score(task: Task, now: int) -> int:
    """The score of a READY task at `now`, in billionths of a point."""
    return BASE[task.spec.priority] + min(AGING * (now - task.arrival), AGE_CAP)


class Pool:
    """Tasks and slots of one pool."""

    __slots__ = (
        "figures",
        "groups",
        "ids",
        "lanes",
        "name",
        "pending",
        "pending_by_class",
        "queued",
        "settings",
        "victims",
    )

    def __init__(self, settings: PoolSettings, live: Mapping[int, Task], now: int) -> None:
        """`live`: every live task of the engine by id."""
        self.settings = settings
        self.name = settings.name
        self.lanes = tuple(Lane(live) for _ in BASE)
        self.groups = Groups()
        self.ids = LiveIds(live)
        self.figures = Figures(now)
        self.pending = 0
        self.pending_by_class = [0] * len(BASE)
        self.victims = for_pool(settings.overflow, live, self.pending_by_class)
        """Whom the policy sheds next; None when it sheds nobody."""
        self.queued = False
        """The pool stands in the engine's list of pools that may have something to dispatch."""

    def count_pending(self, task: Task, difference: int) -> None:
        """A task starts (+1) or stops (-1) to be pending."""
        self.pending += difference
        self.pending_by_class[task.spec.priority] += difference

    def best(self, now: int) -> Lane | None:
        """The lane whose head is started next; None when nothing is ready."""
        first = winner = None
        highest = -1
        for lane in self.lanes:
            if not lane.ready:
                continue
            if winner is None:
                first = winner = lane
                continue
            if highest < 0:  # the second lane with work: only now is there something to compare
                highest = score(winner.head(), now)
            points = score(lane.head(), now)
            if points > highest:
                winner, highest = lane, points
        if winner is not first:
            self.figures.overtakes += 1
        return winner

    def snapshot(self, now: int) -> PoolSnapshot:
        """What the engine shows of the pool."""
        groups = [GroupSnapshot(group.labels, group.capacity, group.busy) for group in self.groups.by_labels.values()]
        if not any(group.labels == () for group in groups):
            groups.append(GroupSnapshot((), 0, 0))
        groups.sort(key=lambda group: (len(group.labels), group.labels))
        critical, high, normal, low = self.pending_by_class
        busy, capacity = self.groups.busy, self.groups.capacity
        figures = self.figures.show(now, capacity)
        return PoolSnapshot(self.name, capacity, busy, (critical, high, normal, low), tuple(groups), figures)
