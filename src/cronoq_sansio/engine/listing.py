"""Live tasks in the order of their ids, a page at a time (source page "ListTasks").

Each pool keeps the ids of its live tasks in a list. Ids are issued in ascending order, so that a new one goes to the
end and the list stays sorted. An id that ended stays behind; the list is cleaned when it has doubled since the last
time, and before a page when such ids are the majority, so an end costs nothing here. A page starts with a binary search
and costs what it looks at, however many tasks wait elsewhere.

Invariant: every live task of the pool is in its list once, and the list is strictly ascending.

A page looks at no more than `limits.MAX_LIST_SCAN` tasks, whatever a filter leaves out: then it is shorter than asked
for, and says from where to go on.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING

from cronoq_sansio.engine.task import Task
from cronoq_sansio.limits import MAX_LANE_GARBAGE, MAX_LIST_SCAN

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool


class LiveIds:
    """Ids of the live tasks of one pool, ascending. `live` holds every live task of the engine by id."""

    __slots__ = ("_live", "full", "ids")

    def __init__(self, live: Mapping[int, Task]) -> None:
        self._live = live
        self.ids: list[int] = []
        """Ended ones among them."""
        self.full = 2 * MAX_LANE_GARBAGE
        """Beyond this length the list is cleaned."""

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, task_id: int) -> None:
        """A live task above all that were here."""
        ids = self.ids
        ids.append(task_id)
        if len(ids) > self.full:
            self.clean()

    def tidy(self, live: int) -> None:
        """So many tasks of the pool live: clean the list if the others are the majority."""
        if len(self.ids) > 2 * live + MAX_LANE_GARBAGE:
            self.clean()

    def after(self, task_id: int) -> Iterator[int]:
        """Ids above `task_id`, ascending, ended ones among them."""
        ids = self.ids
        for position in range(bisect_right(ids, task_id), len(ids)):
            yield ids[position]

    def clean(self) -> None:
        """Forget those that have ended."""
        live = self._live
        self.ids = [task_id for task_id in self.ids if task_id in live]
        self.full = 2 * (len(self.ids) + MAX_LANE_GARBAGE)


def page(
    live: Mapping[int, Task], pools: Sequence["Pool"], statuses: Collection[int], after: int, limit: int
) -> tuple[list[Task], int]:
    """Up to `limit` tasks with one of `statuses` (none = any) above `after`, and the id up to which was looked.

    The second is 0 when everything was looked at.
    """
    for pool in pools:
        pool.ids.tidy(pool.pending + pool.groups.busy)
    found: list[Task] = []
    for looked, task_id in enumerate(merge(*(pool.ids.after(after) for pool in pools))):
        if looked == MAX_LIST_SCAN or len(found) == limit:
            return found, after
        after = task_id
        task = live.get(task_id)
        if task is not None and (not statuses or task.status in statuses):
            found.append(task)
    return found, 0
