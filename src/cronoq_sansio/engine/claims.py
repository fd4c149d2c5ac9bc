"""Tasks that wait for resources, grouped so that many of them cost what one does (`parking.py` moves them).

A *claim* is what tasks of one pool with the same labels and the same needs have in common: all of them fit what is
spare, or none does. It keeps their ids in a heap by place.

A *shelf* has the claims of one pool and labels that differ in the units of one resource only, their *main* one: the one
of which they need most. So whether the shelf is of any use now takes one look at each of the other resources, and which
of its claims is next one search among the amounts of the main one. Tasks that each ask for their own number of tokens
and for one connection stand on one shelf, 300,000 of them.

A *rack* has the shelves of one pool and labels that wait for the same resource, by the least amount that is of use to
them. Customers with a bucket each who share a semaphore have a shelf each, in one rack while that is used up.

Invariant: a parked task is in exactly one claim, a claim on the shelf of its needs, a shelf in one rack; the place of
each is the lowest of what it holds. Of tasks that left only ids stay behind, fewer than those that wait.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from cronoq_sansio.engine.units import ByUnits, Ranked
from cronoq_sansio.limits import MAX_LANE_GARBAGE

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.labels import Demand
    from cronoq_sansio.engine.stocks import Stock
    from cronoq_sansio.engine.task import Task

Needs = tuple[tuple[str, int], ...]


class Claim:
    """Parked tasks that need the same. `live` holds every live task of the engine by id."""

    __slots__ = ("_heap", "_live", "needs", "parked", "place", "shelf", "units")

    def __init__(self, shelf: "Shelf", units: int, needs: Needs, live: Mapping[int, "Task"]) -> None:
        self.shelf = shelf
        self.units = units
        """Of the shelf's main resource."""
        self.needs = needs
        self.parked = 0
        """How many tasks wait here."""
        self.place = 0
        """The lowest of theirs, while there are any."""
        self._live = live
        self._heap: list[tuple[int, int]] = []

    def push(self, task: "Task") -> None:
        """Park a task, at its place."""
        plan = task.plan
        assert plan is not None
        plan.claim = self
        heappush(self._heap, (plan.place, task.id))
        if not self.parked or plan.place < self.place:
            self.place = plan.place
        self.parked += 1

    def pop(self) -> "Task":
        """Take the task with the lowest place; there is one."""
        task = self._live[heappop(self._heap)[1]]
        plan = task.plan
        assert plan is not None
        plan.claim = None
        self.parked -= 1
        self._advance()
        return task

    def leave(self, task: "Task") -> None:
        """A parked task has ended; its id is garbage now."""
        plan = task.plan
        assert plan is not None
        plan.claim = None
        self.parked -= 1
        if len(self._heap) > 2 * self.parked + MAX_LANE_GARBAGE:
            self._heap = [entry for entry in self._heap if self._waits(entry[1])]
            heapify(self._heap)
        if plan.place == self.place:
            self._advance()

    def check(self, demand: "Demand", needs: Needs) -> bool:
        """Assert the invariant, and that its tasks have these labels and needs."""
        plans = []
        for task in (self._live[task_id] for _, task_id in self._heap if self._waits(task_id)):
            assert task.plan is not None and task.pool is self.shelf.pool and task.lease is None
            assert (task.plan.needs, task.plan.called) == (needs, False)
            assert demand is (task.plan.demand if task.plan.hold is None else task.pool.own_slots)
            plans.append(task.plan)
        return len(plans) == self.parked > 0 and self.place == min(plan.place for plan in plans)

    def _advance(self) -> None:
        heap = self._heap
        while heap and not self._waits(heap[0][1]):
            heappop(heap)
        if heap:
            self.place = heap[0][0]

    def _waits(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        return task is not None and task.plan is not None and task.plan.claim is self


class Shelf:
    """Claims that differ in the units of their main resource only."""

    __slots__ = ("claims", "demand", "least", "main", "others", "place", "pool", "rack")

    def __init__(self, pool: "Pool", demand: "Demand", main: "Stock", others: tuple[tuple["Stock", int], ...]) -> None:
        self.pool = pool
        self.demand = demand
        self.main = main
        self.others = others
        """The other resources, and the units that every claim needs of them."""
        self.claims: ByUnits[Claim] = ByUnits()
        self.place = 0
        """The lowest of the claims'; higher while it is known that those before do not fit."""
        self.rack: Rack | None = None
        self.least = 0
        """Units of the rack's resource that are of use to it."""

    def short(self, now: int) -> "Stock | None":
        """A resource that has too little for every claim; None when a claim fits."""
        for stock, units in self.others:
            if stock.spare(now) < units:
                return stock
        return self.main if self.main.spare(now) < self.claims.smallest() else None

    def next(self, now: int) -> Claim | None:
        """The claim with the lowest place among those that fit what is spare; None when none does."""
        for stock, units in self.others:
            if stock.spare(now) < units:
                return None
        return self.claims.lowest(self.main.spare(now))

    def useful(self, stock: "Stock") -> int:
        """The least amount of one of its resources that is of use to it."""
        for other, units in self.others:
            if other is stock:
                return units
        return self.claims.smallest()


class Crowd(Ranked[Shelf]):
    """The shelves of a rack to which the same amount is of use, by place."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        super().__init__()
        self.place = 0
        """The lowest of the shelves'."""


class Rack:
    """Shelves that wait for one resource."""

    __slots__ = ("_crowds", "demand", "open", "pool", "stock")

    def __init__(self, pool: "Pool", demand: "Demand", stock: "Stock") -> None:
        self.pool = pool
        self.demand = demand
        self.stock = stock
        self.open = False
        """The resource had something of use when it was looked at last; otherwise the rack is shut."""
        self._crowds: ByUnits[Crowd] = ByUnits()

    def __bool__(self) -> bool:
        return bool(self._crowds)

    @property
    def place(self) -> int:
        """The lowest place of a shelf."""
        return self._crowds.first().place

    def least(self) -> int:
        """The least amount that is of use to a shelf."""
        return self._crowds.smallest()

    def put(self, shelf: Shelf) -> None:
        """The shelf stands here from now on, or its place or amount has changed."""
        least = shelf.useful(self.stock)
        if shelf.rack is self and shelf.least != least:
            self.remove(shelf)
        shelf.rack, shelf.least = self, least
        crowd = self._crowds.get(least) or Crowd()
        crowd.put(shelf, shelf.place)
        self._placed(least, crowd)

    def remove(self, shelf: Shelf) -> None:
        """The shelf stands here no more."""
        crowd = self._crowds.get(shelf.least)
        assert crowd is not None
        shelf.rack = None
        crowd.discard(shelf)
        self._placed(shelf.least, crowd)

    def lowest(self, spare: int) -> Shelf | None:
        """The shelf with the lowest place among those to which what is spare is of use."""
        crowd = self._crowds.lowest(spare)
        return None if crowd is None else crowd.first()

    def shelves(self) -> list[Shelf]:
        """All of them; for invariant checks."""
        return [shelf for crowd in self._crowds.things().values() for shelf in crowd.numbers]

    def _placed(self, units: int, crowd: Crowd) -> None:
        first = crowd.first()
        if first is None:
            self._crowds.remove(units)
        else:
            crowd.place = crowd.numbers[first]
            self._crowds.put(units, crowd)
