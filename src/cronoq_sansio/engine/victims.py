"""Which READY task of a pool is shed next (engine.md section 9), found without a scan.

`shed_lowest` takes the latest submission of a class, `shed_oldest` the earliest `low` one. READY is READY: queued, or
parked for a resource, fresh, or back after a backoff.

A queue holds the ids of a class as tasks become READY: new ones in order at the end of a deque, those that come back in
a small heap. Leaving costs nothing: an id whose task is not READY any more is dropped when it comes up. Invariant:
each READY task of a watched class has its id there, and there are at most ``2 · pending + MAX_LANE_GARBAGE`` ids when
one has been added, so every compaction drops at least half of them and costs what their arrivals have paid for.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import Priority, TaskStatus

READY = int(TaskStatus.READY)
LOW = int(Priority.LOW)

SHED_LOWEST = "shed_lowest"
SHED_OLDEST = "shed_oldest"


class _Ids:
    """Ids of the READY tasks of one class, and of some that were; the best is the latest or the earliest."""

    __slots__ = ("_back", "_fresh", "_latest", "_live")

    def __init__(self, live: Mapping[int, Task], latest: bool) -> None:
        self._live = live
        self._latest = latest
        self._fresh: deque[int] = deque()
        self._back: list[int] = []  # a heap; negated for the latest

    def __len__(self) -> int:
        return len(self._fresh) + len(self._back)

    def add(self, task_id: int) -> None:
        fresh = self._fresh
        if not fresh or task_id > fresh[-1]:
            fresh.append(task_id)
        else:
            heappush(self._back, -task_id if self._latest else task_id)

    def best(self) -> Task | None:
        fresh, back = self._fresh, self._back
        end = -1 if self._latest else 0
        while fresh and not self._waits(fresh[end]):
            if self._latest:
                fresh.pop()
            else:
                fresh.popleft()
        while back and not self._waits(abs(back[0])):
            heappop(back)
        heads = [fresh[end]] if fresh else []
        if back:
            heads.append(abs(back[0]))
        if not heads:
            return None
        return self._live[max(heads) if self._latest else min(heads)]

    def compact(self) -> None:
        """Only what is READY, each id once."""
        ids = dict.fromkeys(task_id for task_id in (*self._fresh, *map(abs, self._back)) if self._waits(task_id))
        self._fresh = deque(sorted(ids))
        self._back = []

    def _waits(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        return task is not None and task.status == READY


class Victims:
    """What a pool with one of the policies that shed may shed."""

    __slots__ = ("_by_class", "_pending_by_class")

    def __init__(self, overflow: str, live: Mapping[int, Task], pending_by_class: Sequence[int]) -> None:
        """`live`: every live task by id. `pending_by_class`: the pool's own counts, as they change."""
        latest = overflow == SHED_LOWEST
        # Nothing ranks below `low`, and `critical` ranks below nothing: neither policy ever asks for all four.
        watched = range(LOW, Priority.CRITICAL, -1) if latest else (LOW,)
        self._by_class = {index: _Ids(live, latest) for index in watched}
        self._pending_by_class = pending_by_class

    def add(self, task: Task) -> None:
        """A task of the pool has become READY."""
        index = task.spec.priority
        ids = self._by_class.get(index)
        if ids is None:
            return
        ids.add(task.id)
        if len(ids) > 2 * self._pending_by_class[index] + MAX_LANE_GARBAGE:
            ids.compact()

    def pick(self, priority: int) -> Task | None:
        """Whom a newcomer of the class `priority` displaces, if anybody."""
        by_class = self._by_class
        for index, ids in by_class.items():  # from `low` upwards
            if len(by_class) > 1 and index <= priority:
                return None
            victim = ids.best()
            if victim is not None:
                return victim
        return None

    def check_invariants(self, ready: Iterable[Task]) -> None:
        """Assert that nothing which may be shed is missing; `ready`: every READY task of the pool."""
        by_class: dict[int, list[int]] = {index: [] for index in self._by_class}
        for task in ready:
            if task.spec.priority in by_class:
                by_class[task.spec.priority].append(task.id)
        for index, ids in self._by_class.items():
            known = {*ids._fresh, *map(abs, ids._back)}
            missing = [task_id for task_id in by_class[index] if task_id not in known]
            assert not missing, f"class {index}: READY tasks {missing} could never be shed"
            assert list(ids._fresh) == sorted(ids._fresh), f"class {index}: ids to shed are not in order"


def for_pool(overflow: str, live: Mapping[int, Task], pending_by_class: Sequence[int]) -> Victims | None:
    """The victims of a pool; None where the policy `overflow` sheds nothing."""
    return Victims(overflow, live, pending_by_class) if overflow in (SHED_LOWEST, SHED_OLDEST) else None
