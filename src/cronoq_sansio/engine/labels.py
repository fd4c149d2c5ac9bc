"""Worker groups: the workers of a pool that carry exactly the same labels (engine.md section 8).

Invariant: ``busy`` of a group is the number of live leases on it, ``capacity`` and ``busy`` of the pool are the sums
over its groups, and a group with neither capacity nor leases does not exist (a label such as ``host=…`` would
otherwise leak one group per value).

Of several groups with room the least labelled wins, so that special workers stay free for special tasks; between
equals the one with more slots free, then the older one. With one group that is a comparison; with more, a heap of
(labels, free, number) whose outdated entries are dropped when they come up.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from cronoq_sansio.engine.events import Labels


class Group:
    """The slots of one group."""

    __slots__ = ("busy", "capacity", "labels", "number")

    def __init__(self, labels: Labels, number: int) -> None:
        self.labels = labels
        self.number = number
        self.capacity = 0
        self.busy = 0

    def rank(self) -> tuple[int, int, int]:
        """Lower is better."""
        return len(self.labels), self.busy - self.capacity, self.number


class Groups:
    """The worker groups of one pool."""

    __slots__ = ("_heap", "_number", "busy", "by_labels", "capacity")

    def __init__(self) -> None:
        self.by_labels: dict[Labels, Group] = {}
        self.capacity = 0
        self.busy = 0
        self._heap: list[tuple[tuple[int, int, int], Group]] = []
        self._number = 0

    def set_capacity(self, labels: Labels, capacity: int) -> None:
        """The group offers `capacity` slots in all from now on; running leases stay."""
        group = self.by_labels.get(labels)
        if group is None:
            if not capacity:
                return
            self._number += 1
            group = self.by_labels[labels] = Group(labels, self._number)
            if len(self.by_labels) == 2:  # the second one: from now on a heap is needed
                self._rebuild()
        self.capacity += capacity - group.capacity
        group.capacity = capacity
        self._changed(group)

    def best(self) -> Group | None:
        """The group that the next lease goes to; None when no slot is free."""
        if self.busy >= self.capacity and len(self.by_labels) <= 1:
            return None
        if len(self.by_labels) == 1:
            return next(iter(self.by_labels.values()))
        heap = self._heap
        while heap:
            rank, group = heap[0]
            if rank == group.rank() and group.busy < group.capacity and self.by_labels.get(group.labels) is group:
                return group
            heappop(heap)
        return None

    def best_of(self, names: Iterable[Labels], leaving: Labels) -> Group | None:
        """The best of the named groups that has room once a lease has left its slot in the group `leaving`.

        That slot may be gone already: a worker that offers fewer slots than it runs loses one with each report.
        """
        groups = [self.by_labels[labels] for labels in names if labels in self.by_labels]
        room = (group for group in groups if group.busy - (group.labels == leaving) < group.capacity)
        return min(room, key=Group.rank, default=None)

    def take(self, group: Group) -> None:
        """Fill a slot."""
        group.busy += 1
        self.busy += 1
        if len(self.by_labels) > 1:
            self._changed(group)

    def free(self, labels: Labels) -> None:
        """Empty a slot."""
        group = self.by_labels[labels]
        group.busy -= 1
        self.busy -= 1
        if len(self.by_labels) > 1 or not group.capacity:
            self._changed(group)

    def _changed(self, group: Group) -> None:
        if not group.capacity and not group.busy:
            del self.by_labels[group.labels]
        elif len(self.by_labels) > 1 and group.busy < group.capacity:
            heappush(self._heap, (group.rank(), group))
            if len(self._heap) > 4 * len(self.by_labels) + 64:
                self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(group.rank(), group) for group in self.by_labels.values()]
        heapify(self._heap)
