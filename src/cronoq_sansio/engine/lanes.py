"""The FIFO lane of one class in one pool (engine.md section 4).

Invariant: the lane holds each READY task of its class exactly once, and gives them back in the order of their ids,
which is the order of submission. New tasks come in order and go to the end of a deque. A task that was there before
(a retry, a dispatch taken back) keeps its place: it comes back through a small heap, and the head is the lower of the
two heads.

A cancelled task stays behind as garbage until it comes up or until garbage outnumbers the rest, so leaving is O(1) too.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import TaskStatus

READY = int(TaskStatus.READY)


class Lane:
    """READY tasks of one class, in order of submission."""

    __slots__ = ("_back", "_fresh", "_garbage", "ready")

    def __init__(self) -> None:
        self._fresh: deque[Task] = deque()
        self._back: list[tuple[int, Task]] = []
        self._garbage = 0
        self.ready = 0
        """How many tasks wait here."""

    def push(self, task: Task) -> None:
        """Queue a READY task at its place."""
        fresh = self._fresh
        if not fresh or task.id > fresh[-1].id:
            fresh.append(task)
        else:
            heappush(self._back, (task.id, task))
        self.ready += 1

    def head(self) -> Task:
        """The task that is next, left where it is; the lane is not empty."""
        fresh, back = self._fresh, self._back
        if self._garbage:
            while fresh and fresh[0].status != READY:
                fresh.popleft()
                self._garbage -= 1
            while back and back[0][1].status != READY:
                heappop(back)
                self._garbage -= 1
        if back and (not fresh or back[0][0] < fresh[0].id):
            return back[0][1]
        return fresh[0]

    def pop(self) -> Task:
        """Take the head; the lane is not empty."""
        task = self.head()
        if self._fresh and self._fresh[0] is task:
            self._fresh.popleft()
        else:
            heappop(self._back)
        self.ready -= 1
        return task

    def forget(self) -> None:
        """One task of this lane is not READY any more; its entry is garbage now."""
        self.ready -= 1
        self._garbage += 1
        if not self.ready or (self._garbage > MAX_LANE_GARBAGE and self._garbage > self.ready):
            self._fresh = deque(task for task in self._fresh if task.status == READY)
            self._back = [entry for entry in self._back if entry[1].status == READY]
            heapify(self._back)
            self._garbage = 0

    def tasks(self) -> list[Task]:
        """Every waiting task, in no order; for invariant checks."""
        everything = [*self._fresh, *(entry[1] for entry in self._back)]
        return [task for task in everything if task.status == READY]
