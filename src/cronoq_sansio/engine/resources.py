"""Resources: how tasks wait for units, and who gets them (engine.md section 8).

Rules. A task takes all units that it needs, or none. One that lacks some leaves its queue and is *parked* with a
*place*, a number that it keeps until an attempt of it has ended. When units come free, or a slot for a parked task
does, parked tasks that now fit are *called*, lowest place first, over all pools: the units are promised to them and
they are queued again. So a newcomer takes no units while an earlier waiter fits. Called ones that found no slot in the
end are *recalled*: parked again, their place kept, the promise dropped.

Cost. Parked tasks stand in racks, on shelves, in claims (`claims.py`): one rack per resource that they wait for, pool
and labels. A rack is *shut* while its resource has too little for every task in it: it is registered there with the
least amount that helps, and costs nothing, per step and per tick, until that amount is spare (for buckets that moment
is a timer, one per bucket). Then it is *open*, and looked at whenever its pool can start something, until it is found
short again. So a step costs a search in the racks that could have something to call, O(log) of places, amounts,
shelves and racks, however many tasks are parked. What moves one by one are shelves, to the rack of another resource
that they lack too; and open racks whose first task needs more than is spare, while later ones need less, are looked at
each time.

Invariants: units used and promised never exceed what there is, apart from limits lowered later; a rack is registered
with its resource while shut, and among those of its pool while open; after a pump no parked task is left that fits and
has a free slot.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from cronoq_sansio.engine import stocks
from cronoq_sansio.engine.claims import Claim, Needs, Rack, Shelf
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.engine.units import Ranked
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.settings import ResourceSettings

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.engine import Engine
    from cronoq_sansio.engine.labels import Demand
    from cronoq_sansio.engine.stocks import Stock
    from cronoq_sansio.engine.task import Plan, Task


class Resources:
    """All resources of an engine, and the tasks that wait for them. `live` holds every live task by id."""

    __slots__ = (
        "_called",
        "_claims",
        "_live",
        "_noted",
        "_open",
        "_parked",
        "_places",
        "_racks",
        "_shelves",
        "_stirred",
        "_stocks",
        "_timers",
    )

    def __init__(self, settings: Iterable[ResourceSettings], live: Mapping[int, "Task"], now: int) -> None:
        self._stocks = {item.name: stocks.stock(item, now) for item in settings}
        self._live = live
        self._places = 0
        """The last place that was given."""
        self._parked = 0
        self._called: dict[int, Task] = {}
        self._claims: dict[tuple[Demand, Needs], Claim] = {}
        self._shelves: dict[tuple[Demand, Stock, tuple[tuple[Stock, int], ...]], Shelf] = {}
        self._racks: dict[tuple[Demand, Stock], Rack] = {}
        self._open: dict[int, dict[Demand, Ranked[Rack]]] = {}
        """Open racks by the index of their pool and their labels, by place."""
        self._stirred: dict[int, Pool] = {}
        """Pools that may have something to call for other reasons than a slot that came free."""
        self._noted: list[Stock] = []
        """Resources that may have enough for a shut rack, or at another time than was known."""
        self._timers: TimerHeap[Stock] = TimerHeap()

    @property
    def any(self) -> bool:
        """True while tasks are parked or called. Otherwise there is nothing to offer, recall or wait for."""
        return bool(self._parked or self._called)

    def check(self, needs: Needs) -> Rejection | None:
        """Why no task can need this; None when it can."""
        for name, units in needs:
            stock = self._stocks.get(name)
            if stock is None:
                return Rejection(Code.UNKNOWN_RESOURCE, f"unknown resource {name!r}")
            if units < 1:
                return Rejection(Code.INVALID, f"resources[{name!r}]: found {units} units; at least 1 is needed")
            if units > stock.capacity:
                return Rejection(
                    Code.RESOURCE_EXCEEDS_CAPACITY,
                    f"resources[{name!r}]: found {units} units; the resource never has more than {stock.capacity}",
                )
        return None

    # --- one task

    def acquire(self, task: "Task", now: int) -> bool:
        """Take everything that a task which is about to start needs; or park it (False)."""
        plan = _plan(task)
        if plan.called:
            self._drop_promise(task, plan)  # what was promised is spare for a moment, and so taken below
        known = self._stocks
        for name, units in plan.needs:
            if known[name].spare(now) < units:
                self._park(task, plan, now)
                return False
        for name, units in plan.needs:
            stock = known[name]
            stock.take(units)
            if stock.shut.numbers:
                self._note(stock)
        return True

    def release(self, task: "Task", now: int) -> None:
        """An attempt is over: its permits come back, its tokens do not; the next attempt waits at a new place."""
        plan = _plan(task)
        plan.place = 0
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.attempt_ended(units)
            if stock.shut.numbers:
                self._note(stock)

    def give_back(self, task: "Task", now: int) -> None:
        """A dispatch is taken back: permits and tokens come back, and the place is kept."""
        for name, units in _plan(task).needs:
            stock = self._stocks[name]
            stock.give_back(units, now)
            if stock.shut.numbers:
                self._note(stock)

    def leave(self, task: "Task") -> None:
        """A parked or called task has ended."""
        plan = _plan(task)
        if plan.called:
            self._drop_promise(task, plan)
            self._stir(task.pool)
        elif plan.claim is not None:
            claim = plan.claim
            before = claim.place
            claim.leave(task)
            self._parked -= 1
            if not claim.parked or claim.place != before:
                self._changed(claim)

    # --- the pump

    def offers(self, now: int, awake: Iterable["Pool"], call: "Callable[[Task], None]") -> None:
        """Call every parked task that fits what is spare and has a free slot, lowest place first.

        `awake`: pools that may have more free slots than at the last time.
        """
        self._open_racks(now)
        pools, self._stirred = self._stirred, {}
        if not self._open:
            return
        for pool in awake:
            pools[pool.index] = pool
        rooms = [
            (racks.numbers[rack], pool, racks)
            for pool in pools.values()
            if pool.free_slots() > pool.called
            for demand, racks in self._open.get(pool.index, {}).items()
            if demand.has_room() and (rack := racks.first()) is not None
        ]
        heapify(rooms)
        passed: list[Shelf] = []
        while rooms:
            place, pool, racks = rooms[0]
            rack = racks.first()
            if rack is None or pool.free_slots() <= pool.called:
                heappop(rooms)
                continue
            self._look(rack, place, now, call, passed)
            rack = racks.first()
            if rack is None:
                heappop(rooms)
            else:
                heapreplace(rooms, (racks.numbers[rack], pool, racks))
        for shelf in passed:
            if shelf.claims:
                self._refresh(shelf)

    def _look(self, rack: Rack, place: int, now: int, call: "Callable[[Task], None]", passed: list[Shelf]) -> None:
        """One step ahead in a rack which has nothing before `place`: call a task, or learn that it needs more."""
        shelf = rack.lowest(rack.stock.spare(now))
        if shelf is None:
            self._shut(rack)
        elif shelf.place > place:
            self._open[rack.pool.index][rack.demand].put(rack, shelf.place)
            passed.append(shelf)  # it is in the same rack, whose own place is looked at anew with it
        elif (claim := shelf.next(now)) is None:
            self._move(shelf, now)
        elif claim.place > place:
            shelf.place = claim.place
            rack.put(shelf)
            self._register(rack)
            passed.append(shelf)
        else:
            self._call(claim, call)

    def recall(self, now: int, park: "Callable[[Task], None]") -> None:
        """Park called tasks that did not start; `park` takes each of them from its queue."""
        if not self._called:
            return
        tasks = list(self._called.values())
        for task in tasks:
            plan = _plan(task)
            self._drop_promise(task, plan)
            park(task)
            self._park(task, plan, now)
        for task in tasks:
            self._stir(task.pool)

    def pending(self, now: int) -> bool:
        """True when `offers` may have something to call although no slot came free."""
        if self._stirred and self._open:
            return True
        due = self.next_timeout()
        return due is not None and due <= now

    def next_timeout(self) -> int | None:
        """When a resource has enough for a parked task that waits for it, as far as time alone decides.

        The past when it has enough already. None when nothing waits, or not for time.
        """
        if self._noted:
            self._set_timers()
        return self._timers.next()

    def set_limit(self, settings: ResourceSettings, now: int) -> None:
        """A resource has other limits from now on."""
        stock = self._stocks[settings.name]
        stock.set_limit(settings, now)
        self._note(stock)

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of what grows."""
        return {"parked": self._parked, "called": len(self._called), "claims": len(self._claims)}

    def check_invariants(self, engine: "Engine") -> None:
        """Recount everything."""
        used = dict.fromkeys(self._stocks, 0)
        promised = dict.fromkeys(self._stocks, 0)
        called: dict[int, int] = {}
        parked = 0
        for task in engine.tasks.live.values():
            plan = task.plan
            if plan is None or not plan.needs:
                continue
            if plan.called:
                assert self._called[task.id] is task and plan.claim is None
                called[task.pool.index] = called.get(task.pool.index, 0) + 1
            parked += plan.claim is not None
            for name, units in plan.needs:
                if name in used:
                    used[name] += units if task.lease is not None else 0
                    promised[name] += units if plan.called else 0
        assert parked == self._parked, f"{parked} tasks are parked, not {self._parked}"
        assert sum(called.values()) == len(self._called)
        for pool in engine.pools.values():
            assert pool.called == called.get(pool.index, 0), f"called tasks of pool {pool.name}"
        for name, stock in self._stocks.items():
            assert stock.promised == promised[name], f"promised units of {name}"
            stock.check(used[name])
        self._check_claims()

    def _check_claims(self) -> None:
        seen = 0
        for (demand, needs), claim in self._claims.items():
            shelf = claim.shelf
            tasks = claim.tasks()
            assert len(tasks) == claim.parked > 0 and shelf.claims.get(claim.units) is claim
            assert claim.place == min(_plan(task).place for task in tasks)
            for task in tasks:
                plan = _plan(task)
                assert (plan.claim, plan.demand, plan.needs, plan.called) == (claim, demand, needs, False)
                assert task.pool is shelf.pool and task.lease is None
            seen += len(tasks)
        assert seen == self._parked
        assert sum(len(shelf.claims) for shelf in self._shelves.values()) == len(self._claims)
        for shelf in self._shelves.values():
            assert shelf.place == min(claim.place for claim in shelf.claims.things().values())
            assert shelf.rack is not None and self._racks[shelf.demand, shelf.rack.stock] is shelf.rack
            assert shelf.least == shelf.useful(shelf.rack.stock)
        assert sum(len(rack.shelves()) for rack in self._racks.values()) == len(self._shelves)
        open_racks = [rack for rooms in self._open.values() for racks in rooms.values() for rack in racks.numbers]
        for rack in self._racks.values():
            assert rack.place == min(shelf.place for shelf in rack.shelves())
            if rack.open:
                assert self._open[rack.pool.index][rack.demand].numbers[rack] == rack.place
            else:
                assert rack.stock.shut.numbers[rack] == rack.least() == min(shelf.least for shelf in rack.shelves())
        shut = sum(len(stock.shut.numbers) for stock in self._stocks.values())
        assert len(open_racks) + shut == len(self._racks)

    # --- parking

    def _park(self, task: "Task", plan: "Plan", now: int) -> None:
        if not plan.place:
            self._places += 1
            plan.place = self._places
        claim = self._claims.get((plan.demand, plan.needs))
        fresh = claim is None
        if claim is None:
            claim = self._claim(task.pool, plan.demand, plan.needs)
        before = claim.place
        claim.push(task)
        self._parked += 1
        if not fresh and claim.place == before:
            return
        shelf = claim.shelf
        shelf.claims.put(claim.units, claim)
        if shelf.rack is None:
            shelf.place = shelf.claims.first().place
            self._move(shelf, now)
        else:
            self._refresh(shelf)

    def _claim(self, pool: "Pool", demand: "Demand", needs: Needs) -> Claim:
        """A new claim on the shelf of its needs."""
        stocked = [(self._stocks[name], units) for name, units in needs]
        main, amount = min(stocked, key=lambda need: need[0].rank)
        others = tuple((stock, units) for stock, units in stocked if stock is not main)
        shelf = self._shelves.get((demand, main, others))
        if shelf is None:
            shelf = self._shelves[demand, main, others] = Shelf(pool, demand, main, others)
        claim = self._claims[demand, needs] = Claim(shelf, amount, needs, self._live)
        return claim

    def _call(self, claim: Claim, call: "Callable[[Task], None]") -> None:
        task = claim.pop()
        self._parked -= 1
        self._changed(claim)
        plan = _plan(task)
        plan.called = True
        self._called[task.id] = task
        task.pool.called += 1
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.promised += units
            if stock.shut.numbers:
                self._note(stock)
        call(task)

    def _drop_promise(self, task: "Task", plan: "Plan") -> None:
        plan.called = False
        del self._called[task.id]
        task.pool.called -= 1
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.promised -= units
            if stock.shut.numbers:
                self._note(stock)

    def _stir(self, pool: "Pool") -> None:
        """Fewer tasks of the pool are called than before."""
        if pool.index in self._open and pool.free_slots() > pool.called:
            self._stirred[pool.index] = pool

    # --- where everything stands

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
        self._refresh(shelf)

    def _refresh(self, shelf: Shelf) -> None:
        """The claims of the shelf have changed; it stays in its rack."""
        rack = shelf.rack
        assert rack is not None
        shelf.place = shelf.claims.first().place
        rack.put(shelf)
        self._register(rack)

    def _move(self, shelf: Shelf, now: int) -> None:
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

    def _register(self, rack: Rack) -> None:
        """The shelves of the rack have changed."""
        if not rack:
            del self._racks[rack.demand, rack.stock]
            if rack.open:
                self._leave_open(rack)
            else:
                rack.stock.shut.discard(rack)
                self._note(rack.stock)
        elif rack.open:
            self._open[rack.pool.index][rack.demand].put(rack, rack.place)
        elif rack.stock.shut.numbers.get(rack) != rack.least():
            rack.stock.shut.put(rack, rack.least())
            self._note(rack.stock)

    def _open_racks(self, now: int) -> None:
        """Open every rack whose resource has something of use now."""
        if self._noted:
            self._set_timers()
        while (stock := self._timers.pop_due(now)) is not None:
            stock.timer = stock.due_at = None
            spare = stock.spare(now)
            shut = stock.shut
            while (rack := shut.first()) is not None and shut.numbers[rack] <= spare:
                shut.discard(rack)
                rack.open = True
                rooms = self._open.setdefault(rack.pool.index, {})
                rooms.setdefault(rack.demand, Ranked()).put(rack, rack.place)
                self._stirred[rack.pool.index] = rack.pool
            self._note(stock)
        if self._noted:
            self._set_timers()

    def _shut(self, rack: Rack) -> None:
        """The resource has nothing of use any more."""
        self._leave_open(rack)
        rack.stock.shut.put(rack, rack.least())
        self._note(rack.stock)

    def _leave_open(self, rack: Rack) -> None:
        rack.open = False
        rooms = self._open[rack.pool.index]
        racks = rooms[rack.demand]
        racks.discard(rack)
        if not racks.numbers:
            del rooms[rack.demand]
            if not rooms:
                del self._open[rack.pool.index]

    def _note(self, stock: "Stock") -> None:
        if not stock.noted:
            stock.noted = True
            self._noted.append(stock)

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


def _plan(task: "Task") -> "Plan":
    plan = task.plan
    assert plan is not None
    return plan
