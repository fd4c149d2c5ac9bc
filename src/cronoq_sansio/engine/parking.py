"""Where tasks that wait for resources stand, and when they are looked at (`resources.py` decides who gets what).

Parked tasks stand in racks, on shelves, in claims (`claims.py`): one rack per resource that they wait for, pool and
labels. A rack is *shut* while its resource has too little for every task in it: it is registered there with the least
amount that helps, and costs nothing, per step and per tick, until that amount is spare (for buckets that moment is a
timer, one per bucket). Then it is *open*, and looked at whenever its pool can start something, until it is found short
again. So a step costs a search in the racks that could have something to call, O(log) of places, amounts, shelves and
racks, however many tasks are parked. What moves one by one are shelves, to the rack of another resource that they lack
too; and open racks whose first task needs more than is spare, while later ones need less, are looked at each time.

Invariant: a rack is registered with its resource while shut, and among those of its pool while open; a resource whose
amounts, or whose shut racks, have changed is noted until its timer is set anew.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cronoq_sansio.engine.claims import Claim, Needs, Rack, Shelf
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.engine.units import Ranked

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.labels import Demand
    from cronoq_sansio.engine.stocks import Stock
    from cronoq_sansio.engine.task import Plan, Task


class Parking:
    """The tasks that wait. `live` holds every live task by id, `stocks` every resource by name."""

    __slots__ = (
        "_claims",
        "_due",
        "_live",
        "_noted",
        "_racks",
        "_shelves",
        "_stocks",
        "_timers",
        "count",
        "open",
        "stirred",
    )

    def __init__(self, stocks: "Mapping[str, Stock]", live: Mapping[int, "Task"]) -> None:
        self._stocks = stocks
        self._live = live
        self.count = 0
        """How many tasks are parked."""
        self.open: dict[int, dict[Demand, Ranked[Rack]]] = {}
        """Open racks by the index of their pool and their labels, by place."""
        self.stirred: dict[int, Pool] = {}
        """Pools that may have something to call for other reasons than a slot that came free."""
        self._claims: dict[tuple[Demand, Needs], Claim] = {}
        self._shelves: dict[tuple[Demand, Stock, tuple[tuple[Stock, int], ...]], Shelf] = {}
        self._racks: dict[tuple[Demand, Stock], Rack] = {}
        self._noted: list[Stock] = []
        """Resources that may have enough for a shut rack, or at another time than was known."""
        self._timers: TimerHeap[Stock] = TimerHeap()
        self._due: int | None = None
        """When the first of them goes off."""

    # --- tasks

    def park(self, task: "Task", plan: "Plan", now: int) -> None:
        """A task with a place waits from now on."""
        demand = plan.demand if plan.hold is None else task.pool.own_slots
        claim = self._claims.get((demand, plan.needs))
        fresh = claim is None
        if claim is None:
            claim = self._claim(task.pool, demand, plan.needs)
        before = claim.place
        claim.push(task)
        self.count += 1
        if not fresh and claim.place == before:
            return
        shelf = claim.shelf
        shelf.claims.put(claim.units, claim)
        rack = shelf.rack
        if rack is not None and (rack.open or shelf.useful(rack.stock) > rack.stock.spare(now)):
            self.refresh(shelf)
        else:  # a new shelf, or what it waited for would be enough for this claim: it lacks something else
            shelf.place = shelf.claims.first().place
            self.move(shelf, now)

    def take(self, claim: Claim) -> "Task":
        """The first task of a claim waits no more."""
        task = claim.pop()
        self.count -= 1
        self._changed(claim)
        return task

    def leave(self, task: "Task", claim: Claim) -> None:
        """A parked task has ended."""
        before = claim.place
        claim.leave(task)
        self.count -= 1
        if not claim.parked or claim.place != before:
            self._changed(claim)

    def _claim(self, pool: "Pool", demand: "Demand", needs: Needs) -> Claim:
        """A new claim on the shelf of its needs."""
        stocked = [(self._stocks[name], units) for name, units in needs]
        main, amount = min(stocked, key=lambda need: (-need[1], need[0].rank))
        others = tuple((stock, units) for stock, units in stocked if stock is not main)
        shelf = self._shelves.get((demand, main, others))
        if shelf is None:
            shelf = self._shelves[demand, main, others] = Shelf(pool, demand, main, others)
        claim = self._claims[demand, needs] = Claim(shelf, amount, needs, self._live)
        return claim

    def _changed(self, claim: Claim) -> None:
        """A claim lost its first task."""
        shelf = claim.shelf
        if claim.parked:
            shelf.claims.put(claim.units, claim)
        else:
            shelf.claims.remove(claim.units)
            del self._claims[shelf.demand, claim.needs]
            if not shelf.claims:
                del self._shelves[shelf.demand, shelf.main, shelf.others]
                rack = shelf.rack
                assert rack is not None
                rack.remove(shelf)
                self._register(rack)
                return
        self.refresh(shelf)

    # --- shelves and racks

    def refresh(self, shelf: Shelf) -> None:
        """The claims of the shelf have changed; it stays in its rack."""
        shelf.place = shelf.claims.first().place
        self.place(shelf)

    def place(self, shelf: Shelf) -> None:
        """The shelf has another place, in the same rack."""
        rack = shelf.rack
        assert rack is not None
        rack.put(shelf)
        self._register(rack)

    def move(self, shelf: Shelf, now: int) -> None:
        """Put the shelf where it is short of something; where its main resource is when it is not."""
        before = shelf.rack
        if before is not None:
            before.remove(shelf)
            self._register(before)
        stock = shelf.short(now) or shelf.main
        rack = self._racks.get((shelf.demand, stock))
        if rack is None:
            rack = self._racks[shelf.demand, stock] = Rack(shelf.pool, shelf.demand, stock)
        rack.put(shelf)
        self._register(rack)

    def shut(self, rack: Rack) -> None:
        """The resource of an open rack has nothing of use any more."""
        self._leave_open(rack)
        rack.stock.shut.put(rack, rack.least())
        self.note(rack.stock)

    def _register(self, rack: Rack) -> None:
        """The shelves of the rack have changed."""
        if not rack:
            del self._racks[rack.demand, rack.stock]
            if rack.open:
                self._leave_open(rack)
            else:
                rack.stock.shut.discard(rack)
                self.note(rack.stock)
        elif rack.open:
            self.open[rack.pool.index][rack.demand].put(rack, rack.place)
        elif rack.stock.shut.numbers.get(rack) != rack.least():
            rack.stock.shut.put(rack, rack.least())
            self.note(rack.stock)

    def _leave_open(self, rack: Rack) -> None:
        rack.open = False
        rooms = self.open[rack.pool.index]
        racks = rooms[rack.demand]
        racks.discard(rack)
        if not racks.numbers:
            del rooms[rack.demand]
            if not rooms:
                del self.open[rack.pool.index]

    # --- when to look

    def stir(self, pool: "Pool") -> None:
        """Fewer tasks of the pool are called than before."""
        if pool.index in self.open and pool.free_slots() > pool.called:
            self.stirred[pool.index] = pool

    def note(self, stock: "Stock") -> None:
        """What a resource has, or who waits for it, has changed."""
        if not stock.noted:
            stock.noted = True
            self._noted.append(stock)

    def rest(self) -> None:
        """Nobody waits any more, parked or called: nothing is left to look at, now or later."""
        self._set_timers()

    def due(self) -> int | None:
        """When a resource has enough for a shut rack, if time alone decides; the past when it has; None for never."""
        if self._noted:
            self._set_timers()
        return self._due

    def open_racks(self, now: int) -> None:
        """Open every rack whose resource has something of use by now."""
        while (stock := self._timers.pop_due(now)) is not None:
            stock.timer = stock.due_at = None
            spare = stock.spare(now)
            shut = stock.shut
            while (rack := shut.first()) is not None and shut.numbers[rack] <= spare:
                shut.discard(rack)
                rack.open = True
                rooms = self.open.setdefault(rack.pool.index, {})
                rooms.setdefault(rack.demand, Ranked()).put(rack, rack.place)
                self.stirred[rack.pool.index] = rack.pool
            self.note(stock)
        self._set_timers()

    def _set_timers(self) -> None:
        for stock in self._noted:
            stock.noted = False
            first = stock.shut.first()
            due = None if first is None else stock.due(stock.shut.numbers[first])
            if due != stock.due_at:
                if stock.timer is not None:
                    self._timers.cancel(stock.timer)
                stock.timer = None if due is None else self._timers.add(due, stock)
                stock.due_at = due
        self._noted.clear()
        self._due = self._timers.next()

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of what grows."""
        return {"parked": self.count, "claims": len(self._claims)}

    def waiting(self) -> "Iterator[tuple[Pool, Demand, Needs]]":
        """Pool, labels and needs of everybody who is parked, each once; for invariant checks."""
        for (demand, needs), claim in self._claims.items():
            yield claim.shelf.pool, demand, needs

    def rests(self) -> bool:
        """True when there is nothing to look at, now or later; for invariant checks."""
        return not self._noted and self._due is None

    def check_invariants(self) -> None:
        """Recount everything."""
        seen = 0
        for (demand, needs), claim in self._claims.items():
            shelf = claim.shelf
            assert claim.check(demand, needs) and shelf.claims.get(claim.units) is claim
            seen += claim.parked
        assert seen == self.count
        assert sum(len(shelf.claims) for shelf in self._shelves.values()) == len(self._claims)
        for shelf in self._shelves.values():
            assert shelf.place == min(claim.place for claim in shelf.claims.things().values())
            assert shelf.rack is not None and self._racks[shelf.demand, shelf.rack.stock] is shelf.rack
            assert shelf.least == shelf.useful(shelf.rack.stock)
        assert sum(len(rack.shelves()) for rack in self._racks.values()) == len(self._shelves)
        open_racks = [rack for rooms in self.open.values() for racks in rooms.values() for rack in racks.numbers]
        for rack in self._racks.values():
            assert rack.place == min(shelf.place for shelf in rack.shelves())
            if rack.open:
                assert self.open[rack.pool.index][rack.demand].numbers[rack] == rack.place
            else:
                assert rack.stock.shut.numbers[rack] == rack.least() == min(shelf.least for shelf in rack.shelves())
        for stock in self._stocks.values():
            first = stock.shut.first()
            due = None if first is None else stock.due(stock.shut.numbers[first])
            assert stock.noted or stock.due_at == due, f"timer of {stock.name}: {stock.due_at}, not {due}"
        shut = sum(len(stock.shut.numbers) for stock in self._stocks.values())
        assert len(open_racks) + shut == len(self._racks)
