"""The FIFO lane of one class in one pool (engine.md section 4).

Invariant: the lane holds each READY task of its class exactly once, and gives them back in the order of their ids,
which is the order of submission. New tasks come in order and go to the end of a deque. A task that was there before
(a retry, a dispatch taken back) keeps its place: it comes back through a small heap, and the head is the lower of the
two heads.

A cancelled task leaves its id behind until that comes up or until such ids outnumber the rest, so leaving is O(1) too.
Only the id: the task itself may hold megabytes of payload.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import TaskStatus

READY = int(TaskStatus.READY)


class Lane:
    """READY tasks of one class, in order of submission. `live` holds every live task of the engine by id."""

    __slots__ = ("_back", "_fresh", "_garbage", "_live", "ready")

    def __init__(self, live: Mapping[int, Task]) -> None:
        self._live = live
        self._fresh: deque[int] = deque()
        self._back: list[int] = []
        self._garbage = 0
        self.ready = 0
        """How many tasks wait here."""

    def push(self, task: Task) -> None:
        """Queue a READY task at its place."""
        fresh = self._fresh
        if not fresh or task.id > fresh[-1]:
            fresh.append(task.id)
        else:
            heappush(self._back, task.id)
        self.ready += 1

    def head(self) -> Task:
        """The task that is next, left where it is; the lane is not empty."""
        fresh, back = self._fresh, self._back
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

    def pop(self) -> Task:
        """Take the head; the lane is not empty."""
        task = self.head()
        if self._fresh and self._fresh[0] == task.id:
            self._fresh.popleft()
        else:
            heappop(self._back)
        self.ready -= 1
        return task

    def forget(self) -> None:
        """One task of this lane is not READY any more; its id is garbage now."""
        self.ready -= 1
        self._garbage += 1
        if not self.ready or (self._garbage > MAX_LANE_GARBAGE and self._garbage > self.ready):
            self._fresh = deque(task_id for task_id in self._fresh if self._waits(task_id))
            self._back = [task_id for task_id in self._back if self._waits(task_id)]
            heapify(self._back)
            self._garbage = 0

    def tasks(self) -> list[Task]:
        """Every waiting task, in no order; for invariant checks."""
        return [self._live[task_id] for task_id in (*self._fresh, *self._back) if self._waits(task_id)]

    def _waits(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        return task is not None and task.status == READY
