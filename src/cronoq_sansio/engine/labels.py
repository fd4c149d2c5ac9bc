"""Worker groups and what tasks demand of them (engine.md section 8, "Worker labels").

A *group* is the set of the workers of a pool that carry exactly the same labels. A *demand* is a set of labels that
tasks require; a group serves it when it carries all of them, and every group serves the demand for nothing. A task
whose demand no group with a free slot serves waits aside and delays nobody.

Of several groups with room the least labelled wins, so that special workers stay free for special tasks; between
equals the one with more slots free, then the older one.

Invariants: ``filled`` of a group is the number of live leases on it and of slots held there for a fixed start;
``capacity`` and ``filled`` of the pool are the sums over its groups. A group with neither capacity nor leases does not
exist, nor does a demand of no live task: a label such as ``host=…`` would otherwise leak one of each per value. A
demand lists exactly the groups that serve it, and a group the demands that it serves.

Cost. With one group and one demand, which is most pools, a pick is a comparison. Otherwise each demand keeps a heap of
the ranks of its groups, whose outdated entries are dropped when they come up; a slot that fills or empties costs one
push for each demand that its group serves, usually two or three. Which group serves which demand is found by their
labels, not by comparing all with all. A group that comes or goes costs as many pushes, however many others there are:
a switch that fails may take thousands with it.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from cronoq_sansio.engine.events import Labels

if TYPE_CHECKING:
    from cronoq_sansio.engine.lanes import Lane
    from cronoq_sansio.engine.task import Task


class Group:
    """The slots of one group."""

    __slots__ = ("capacity", "counted", "demands", "filled", "holders", "labels", "number")

    def __init__(self, labels: Labels, number: int) -> None:
        self.labels = labels
        self.number = number
        self.capacity = 0
        self.filled = 0
        """Slots with a lease, and slots that are held."""
        self.holders: dict[int, Task] = {}
        """Tasks with a fixed start for which a slot is held, by id."""
        self.demands: list[Demand] = []
        """Those that it serves."""
        self.counted = 0
        """Free slots as its demands count them."""

    @property
    def busy(self) -> int:
        """Slots with a lease."""
        return self.filled - len(self.holders)

    def free_slots(self) -> int:
        """Slots that are neither used nor held."""
        return max(self.capacity - self.filled, 0)

    def rank(self) -> tuple[int, int, int]:
        """Lower is better."""
        return len(self.labels), self.filled - self.capacity, self.number

    def serves(self, labels: Labels) -> bool:
        """True when it carries all of these labels."""
        return not labels or set(labels).issubset(self.labels)


class Demand:
    """A set of labels that live tasks require."""

    __slots__ = ("_free", "_heap", "called", "closed", "groups", "labels", "number", "only", "tasks")

    def __init__(self, labels: Labels, number: int) -> None:
        self.labels = labels
        self.number = number
        """Ascending in the order in which demands came up."""
        self.tasks = 0
        """Live tasks that require it; not counted for the demand for nothing."""
        self.groups: dict[Labels, Group] = {}
        """Those that serve it."""
        self.only: Group | None = None
        """Of `groups`, when there is just one."""
        self.called = 0
        """Tasks that require it, are queued, and have their resources promised."""
        self._free = 0
        """Free slots of the groups, while there are several."""
        self.closed: list[Lane] = []
        """Lanes that wait for a slot of a group that serves it."""
        self._heap: list[tuple[tuple[int, int, int], Group]] = []

    def best(self) -> Group | None:
        """The group that the next lease goes to; None when no slot is free."""
        only = self.only
        if only is not None:
            return only if only.filled < only.capacity else None
        groups, heap = self.groups, self._heap
        while heap:
            rank, group = heap[0]
            if rank == group.rank() and group.filled < group.capacity and groups.get(group.labels) is group:
                return group
            heappop(heap)
        return None

    def has_room(self) -> bool:
        """True when a group that serves it has a free slot."""
        return self.best() is not None

    def free_slots(self) -> int:
        """Free slots of the groups that serve it."""
        return self.only.free_slots() if self.only is not None else self._free

    def can_call(self) -> bool:
        """True when a slot is free for one more task whose resources are promised."""
        return self.free_slots() > self.called

    def add(self, group: Group) -> None:
        """One more group serves it."""
        self.groups[group.labels] = group
        group.demands.append(self)
        if len(self.groups) > 2:
            self.changed(group, group.counted)
        else:
            self._count()

    def remove(self, group: Group) -> None:
        """A group that served it is gone; what the heap has of it is dropped when it comes up."""
        del self.groups[group.labels]
        if len(self.groups) > 1:
            self._free -= group.counted
            self._tidy()
        else:
            self._count()

    def changed(self, group: Group, difference: int) -> None:
        """A group that serves it has so many more free slots."""
        self._free += difference
        if self.only is None and group.filled < group.capacity:
            heappush(self._heap, (group.rank(), group))
            self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 4 * len(self.groups) + 64:
            self._rebuild()

    def _count(self) -> None:
        """From one group to several or back: with many of them thousands may come or go, so that is all."""
        groups = self.groups.values()
        self.only = next(iter(groups)) if len(groups) == 1 else None
        self._free = 0
        for group in groups:
            group.counted = group.free_slots()
            self._free += group.counted
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(group.rank(), group) for group in self.groups.values()]
        heapify(self._heap)


class Groups:
    """The worker groups of one pool, and the demands of its tasks."""

    __slots__ = (
        "_demanding",
        "_labelled",
        "_number",
        "by_labels",
        "capacity",
        "demands",
        "filled",
        "held",
        "overbusy",
        "plain",
        "varied",
    )

    def __init__(self) -> None:
        self.by_labels: dict[Labels, Group] = {}
        self.capacity = 0
        self.filled = 0
        """Slots with a lease, and slots that are held."""
        self.held = 0
        """Of these, slots that are held."""
        self.overbusy = 0
        """Filled beyond the capacities of their groups: who runs more than it offers takes no slot of others."""
        self.plain = Demand((), 0)
        """The demand for nothing, which always exists."""
        self.demands: dict[Labels, Demand] = {(): self.plain}
        self.varied = False
        """There are several groups, or the only one serves several demands."""
        self._labelled: dict[tuple[str, str], dict[Labels, Group]] = {}
        """Groups by each label that they carry."""
        self._demanding: dict[tuple[str, str], dict[Labels, Demand]] = {}
        """Demands by their first label."""
        self._number = 0

    # --- groups

    def set_capacity(self, labels: Labels, capacity: int) -> list["Lane"]:
        """The group offers `capacity` slots in all from now on; running leases stay. Lanes that it may open again."""
        group = self.by_labels.get(labels)
        if group is None:
            if not capacity:
                return []
            group = self._new_group(labels)
        self.capacity += capacity - group.capacity
        self.overbusy += max(group.filled - capacity, 0) - max(group.filled - group.capacity, 0)
        group.capacity = capacity
        return self._changed(group)

    def best(self) -> Group | None:
        """The group that the next lease of a task without demands goes to; None when no slot is free."""
        return self.plain.best()

    def best_of(self, names: Iterable[Labels], leaving: Labels, required: Labels) -> Group | None:
        """The best of the named groups that serves `required` and has room once a lease has left the group `leaving`.

        That slot may be gone already: a worker that offers fewer slots than it runs loses one with each report.
        """
        groups = [self.by_labels[labels] for labels in names if labels in self.by_labels]
        room = (
            group
            for group in groups
            if group.filled - (group.labels == leaving) < group.capacity and group.serves(required)
        )
        return min(room, key=Group.rank, default=None)

    @property
    def busy(self) -> int:
        """Slots with a lease."""
        return self.filled - self.held

    def hold(self, group: Group, task: "Task") -> None:
        """Keep a free slot for the task."""
        group.holders[task.id] = task
        self.held += 1
        self.take(group)

    def use_hold(self, group: Group, task: "Task") -> None:
        """The task gets the slot that was held for it."""
        del group.holders[task.id]
        self.held -= 1

    def unhold(self, group: Group, task: "Task") -> list["Lane"]:
        """Keep no slot for the task any more. Lanes that may open again."""
        self.use_hold(group, task)
        return self.free(group.labels) or []

    def take(self, group: Group) -> None:
        """Fill a slot."""
        group.filled += 1
        self.filled += 1
        if group.filled > group.capacity:
            self.overbusy += 1
        if self.varied:
            self._changed(group)

    def free(self, labels: Labels) -> list["Lane"] | None:
        """Empty a slot. Lanes that may open again."""
        group = self.by_labels[labels]
        if group.filled > group.capacity:
            self.overbusy -= 1
        group.filled -= 1
        self.filled -= 1
        if self.varied or not group.capacity or self.plain.closed:
            return self._changed(group)
        return None

    # --- demands

    def demand(self, labels: Labels) -> Demand:
        """A live task requires these labels from now on; `drop` when it has ended."""
        if not labels:
            return self.plain
        demand = self.demands.get(labels)
        if demand is None:
            demand = self._new_demand(labels)
        demand.tasks += 1
        return demand

    def drop(self, demand: Demand) -> bool:
        """A task that required it has ended; True when nobody requires it any more."""
        if demand is self.plain:
            return False
        demand.tasks -= 1
        if demand.tasks:
            return False
        del self.demands[demand.labels]
        first = self._demanding[demand.labels[0]]
        del first[demand.labels]
        if not first:
            del self._demanding[demand.labels[0]]
        for group in demand.groups.values():
            group.demands.remove(demand)
        self._vary()
        return True

    # --- inside

    def _new_group(self, labels: Labels) -> Group:
        self._number += 1
        group = self.by_labels[labels] = Group(labels, self._number)
        self.plain.add(group)
        for label in labels:
            self._labelled.setdefault(label, {})[labels] = group
            for demand in self._demanding.get(label, {}).values():
                if group.serves(demand.labels):
                    demand.add(group)
        self._vary()
        return group

    def _new_demand(self, labels: Labels) -> Demand:
        self._number += 1
        demand = self.demands[labels] = Demand(labels, self._number)
        self._demanding.setdefault(labels[0], {})[labels] = demand
        for group in self._labelled.get(labels[0], {}).values():
            if group.serves(labels):
                demand.add(group)
        self._vary()
        return demand

    def _changed(self, group: Group) -> list["Lane"]:
        if not group.capacity and not group.filled:
            self._drop_group(group)
            return []
        opened: list[Lane] = []
        free = group.free_slots()
        difference, group.counted = free - group.counted, free
        for demand in group.demands:
            demand.changed(group, difference)
            if demand.closed and group.filled < group.capacity:
                opened += demand.closed
                demand.closed = []
        return opened

    def _drop_group(self, group: Group) -> None:
        del self.by_labels[group.labels]
        for demand in group.demands:
            demand.remove(group)
        for label in group.labels:
            carriers = self._labelled[label]
            del carriers[group.labels]
            if not carriers:
                del self._labelled[label]
        self._vary()

    def _vary(self) -> None:
        groups = self.by_labels
        self.varied = len(groups) > 1 or any(len(group.demands) > 1 for group in groups.values())
