"""Queues of READY tasks (engine.md section 4).

A *lane* holds the queued tasks of one class, one order and one demand for labels. Three orders exist: a FIFO lane is
sorted by id, which is the order of submission; a deadline lane by latest start, then id; a fair lane by tag, then id.
Tasks with a fixed start stand, of all classes together, in lanes by start: READY ones, and SCHEDULED ones that want a
slot held. A *line* joins the lanes of one class and order, one per demand, and knows the best head among those that a
free slot could serve.

Invariant: a lane holds each queued task exactly once, and gives them back in its order.

FIFO lanes: new tasks come in order and go to the end of a deque. A task that was there before (a retry, a dispatch
taken back) keeps its place: it comes back through a small heap, and the head is the lower of the two heads.

A cancelled task leaves its id behind until that comes up or until such ids outnumber the rest, so leaving is O(1) too.
Only the id: the task itself may hold megabytes of payload.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from cronoq_sansio.engine.labels import Demand
from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import TaskStatus

SCHEDULED = int(TaskStatus.SCHEDULED)
READY = int(TaskStatus.READY)


class Lane:
    """Queued tasks in order of submission. `live` holds every live task of the engine by id."""

    fixed = False
    """Its tasks have a fixed start."""
    __slots__ = ("_back", "_garbage", "_live", "called", "closed", "demand", "fresh", "listed", "priority", "ready")

    def __init__(self, live: Mapping[int, Task], priority: int, demand: Demand, *, called: bool = False) -> None:
        self._live = live
        self.priority = priority
        """Index of the class."""
        self.demand = demand
        self.called = called
        """Its tasks have their resources promised."""
        self.ready = 0
        """How many tasks wait here."""
        self.listed: Any = None
        """Key by which it stands in its line; None when it does not stand there."""
        self.closed = False
        """It is left out of its line until a slot that serves its demand comes free."""
        self.fresh: deque[int] = deque()
        """Ids of tasks that came in order, ascending; ended ones among them. A new one goes to the end."""
        self._back: list[int] = []
        self._garbage = 0

    def push(self, task: Task) -> None:
        """Queue a READY task at its place."""
        fresh, task_id = self.fresh, task.id
        if not fresh or task_id > fresh[-1]:
            fresh.append(task_id)
        else:
            heappush(self._back, task_id)
        self.ready += 1

    def head(self) -> Task:
        """The task that is next, left where it is; the lane is not empty."""
        fresh, back = self.fresh, self._back
        if self._garbage:
            while fresh and not self._waits(fresh[0]):
                fresh.popleft()
                self._garbage -= 1
            while back and not self._waits(back[0]):
                heappop(back)
                self._garbage -= 1
        if back and (not fresh or back[0] < fresh[0]):
            return self._live[back[0]]
        return self._live[fresh[0]]

    def key(self) -> Any:
        """Of the head: lower comes first."""
        return self.head().id

    def pop(self) -> Task:
        """Take the head; the lane is not empty."""
        if not self._back and not self._garbage:
            self.ready -= 1
            return self._live[self.fresh.popleft()]
        task = self.head()
        if self.fresh and self.fresh[0] == task.id:
            self.fresh.popleft()
        else:
            heappop(self._back)
        self.ready -= 1
        return task

    def forget(self) -> None:
        """One task of this lane is not READY any more; its id is garbage now."""
        self.ready -= 1
        self._garbage += 1
        if not self.ready or (self._garbage > MAX_LANE_GARBAGE and self._garbage > self.ready):
            self._clean()
            self._garbage = 0

    def empty(self) -> None:
        """Nothing waits here any more."""
        self.fresh.clear()
        self._back.clear()
        self.ready = self._garbage = 0

    def tasks(self) -> list[Task]:
        """Every waiting task, in no order; for invariant checks."""
        return [self._live[task_id] for task_id in self._ids() if self._waits(task_id)]

    def _ids(self) -> list[int]:
        return [*self.fresh, *self._back]

    def _clean(self) -> None:
        self.fresh = deque(task_id for task_id in self.fresh if self._waits(task_id))
        self._back = [task_id for task_id in self._back if self._waits(task_id)]
        heapify(self._back)

    def _waits(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        return task is not None and task.status == READY


class _HeapLane(Lane):
    """A lane whose order is a number of each task, then its id."""

    __slots__ = ("_heap",)

    def __init__(self, live: Mapping[int, Task], priority: int, demand: Demand, *, called: bool = False) -> None:
        super().__init__(live, priority, demand, called=called)
        self._heap: list[tuple[int, int]] = []

    def rank(self, task: Task) -> int:
        """The number; lower comes first."""
        raise NotImplementedError

    def push(self, task: Task) -> None:
        heappush(self._heap, (self.rank(task), task.id))
        self.ready += 1

    def head(self) -> Task:
        return self._live[self.key()[1]]

    def key(self) -> tuple[int, int]:
        heap = self._heap
        if self._garbage:
            while not self._waits(heap[0][1]):
                heappop(heap)
                self._garbage -= 1
        return heap[0]

    def pop(self) -> Task:
        task = self._live[self.key()[1]]
        heappop(self._heap)
        self.ready -= 1
        return task

    def empty(self) -> None:
        super().empty()
        self._heap.clear()

    def _ids(self) -> list[int]:
        return [task_id for _, task_id in self._heap]

    def _clean(self) -> None:
        self._heap = [entry for entry in self._heap if self._waits(entry[1])]
        heapify(self._heap)


class DeadlineLane(_HeapLane):
    """Queued tasks with a deadline, by their latest start."""

    __slots__ = ()

    def rank(self, task: Task) -> int:
        """Its latest start."""
        assert task.plan is not None
        return task.plan.latest_start


class FairLane(_HeapLane):
    """Queued tasks of a pool that shares between tenants, by their tags (`fair_share.py`)."""

    __slots__ = ()

    def rank(self, task: Task) -> int:
        """Its tag."""
        assert task.plan is not None
        return task.plan.tag


class StartLane(_HeapLane):
    """READY tasks with a fixed start that have no slot held, by their starts."""

    fixed = True
    __slots__ = ()

    def rank(self, task: Task) -> int:
        """Its start."""
        assert task.plan is not None
        return task.plan.start


class HoldLane(StartLane):
    """SCHEDULED tasks that want a slot held, by their starts. Whoever is taken from it gets one."""

    __slots__ = ()

    def _waits(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        if task is None or task.status != SCHEDULED:
            return False
        plan = task.plan
        return plan is not None and plan.wants and plan.hold is None


class Line:
    """The lanes of one class and order: a heap of their heads, corrected when an entry comes up.

    A head that gets a lower key is entered at once; one that gets a higher key, or is gone, is noticed later: when its
    entry comes up, or when such entries may be the majority (while a pool is full nothing comes up, and lanes of tasks
    that are cancelled leave one each). A lane whose demand no free slot serves is closed: it costs nothing until the
    slot that opens it again. Lanes that are empty or closed leave `in_play`, which the lines of a pool share.
    """

    __slots__ = ("_full", "_in_play", "_number", "heap")

    def __init__(self, in_play: dict[Lane, None]) -> None:
        self.heap: list[tuple[Any, int, Lane]] = []
        """Keys, numbers and lanes; empty when there is nothing to look at."""
        self._in_play = in_play
        self._number = 0
        self._full = MAX_LANE_GARBAGE
        """Beyond this length outdated entries are dropped."""

    def enter(self, lane: Lane) -> None:
        """A task was queued in the lane, or the lane was opened."""
        key = lane.key()
        if lane.listed is None or key < lane.listed:
            self._number += 1
            heappush(self.heap, (key, self._number, lane))
            lane.listed = key
            if len(self.heap) > self._full:
                self._clean()

    def best(self) -> Lane | None:
        """The lane with the best head among those that a free slot serves."""
        heap = self.heap
        while heap:
            key, number, lane = heap[0]
            if lane.listed != key:  # a better entry came first, or the lane was closed meanwhile
                heappop(heap)
            elif not lane.ready:
                heappop(heap)
                self._leave(lane)
            elif (actual := lane.key()) != key:
                heapreplace(heap, (actual, number, lane))
                lane.listed = actual
            elif lane.demand.has_room():
                return lane
            else:
                heappop(heap)
                self._leave(lane)
                lane.closed = True
                lane.demand.closed.append(lane)
        return None

    def _clean(self) -> None:
        self.heap = [entry for entry in self.heap if entry[2].listed == entry[0]]
        heapify(self.heap)
        self._full = 2 * len(self.heap) + MAX_LANE_GARBAGE

    def _leave(self, lane: Lane) -> None:
        lane.listed = None
        self._in_play.pop(lane, None)
