"""Live tasks in the order of their ids, a page at a time (source page "ListTasks").

Each pool keeps the ids of its live tasks in a list. Ids are issued in ascending order, so that a new one goes to the
end and the list stays sorted; an id that ended stays behind until such ids are the majority. So a page starts with a
binary search and costs what it looks at, however many tasks wait elsewhere.

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
    """Ids of the live tasks of one pool, ascending."""

    __slots__ = ("_ended", "_ids")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ended = 0

    def add(self, task_id: int) -> None:
        """A task above all that were here."""
        self._ids.append(task_id)

    def discard(self, live: Mapping[int, Task]) -> None:
        """One task has ended and is not in `live` any more."""
        self._ended += 1
        if self._ended > MAX_LANE_GARBAGE and self._ended * 2 > len(self._ids):
            self._ids = [task_id for task_id in self._ids if task_id in live]
            self._ended = 0

    def after(self, task_id: int) -> Iterator[int]:
        """Ids above `task_id`, ascending, ended ones among them."""
        ids = self._ids
        for position in range(bisect_right(ids, task_id), len(ids)):
            yield ids[position]


def page(
    live: Mapping[int, Task], pools: Sequence["Pool"], statuses: Collection[int], after: int, limit: int
) -> tuple[list[Task], int]:
    """Up to `limit` tasks with one of `statuses` (none = any) above `after`, and the id up to which was looked.

    The second is 0 when everything was looked at.
    """
    found: list[Task] = []
    for looked, task_id in enumerate(merge(*(pool.ids.after(after) for pool in pools))):
        if looked == MAX_LIST_SCAN or len(found) == limit:
            return found, after
        after = task_id
        task = live.get(task_id)
        if task is not None and (not statuses or task.status in statuses):
            found.append(task)
    return found, 0
