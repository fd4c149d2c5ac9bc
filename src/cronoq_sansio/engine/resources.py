"""Resources: how tasks wait for units, and who gets them (engine.md section 8).

Rules. A task takes all units that it needs, or none. One that lacks some leaves its queue and is *parked* with a
*place*, a number that it keeps until an attempt of it has ended. When units come free, or a slot for a parked task
does, parked tasks that now fit are *called*, lowest place first, over all pools: the units are promised to them and
they are queued again. So a newcomer takes no units while an earlier waiter fits. Called ones that found no slot in the
end are *recalled*: parked again, their place kept, the promise dropped.

Where parked tasks stand, so that any number of them costs nothing, is `parking.py`.

Invariants: units used and promised never exceed what there is, apart from limits lowered later; after a pump no parked
task is left that fits and has a free slot.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from cronoq_sansio.engine import stocks
from cronoq_sansio.engine.claims import Claim, Needs, Rack, Shelf
from cronoq_sansio.engine.parking import Parking
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.settings import ResourceSettings

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.engine import Engine
    from cronoq_sansio.engine.task import Plan, Task


class Resources:
    """All resources of an engine, and the tasks that wait for them. `live` holds every live task by id."""

    __slots__ = ("_called", "_parking", "_places", "_stocks", "any")

    def __init__(self, settings: Iterable[ResourceSettings], live: Mapping[int, "Task"], now: int) -> None:
        self._stocks = {item.name: stocks.stock(item, now) for item in settings}
        self._parking = Parking(self._stocks, live)
        self._places = 0
        """The last place that was given."""
        self._called: dict[int, Task] = {}
        self.any = 0
        """How many tasks are parked or called. Without any there is nothing to offer, recall or wait for."""

    def check(self, needs: Needs) -> Rejection | None:
        """Why no task can need this; None when it can."""
        for name, units in needs:
            stock = self._stocks.get(name)
            if stock is None:
                return Rejection(Code.UNKNOWN_RESOURCE, f"resources[{name!r}]: there is no resource with that name")
            if units < 1:
                return Rejection(Code.INVALID, f"resources[{name!r}]: found {units} units; at least 1 is needed")
            if units > stock.capacity:
                return Rejection(
                    Code.RESOURCE_EXCEEDS_CAPACITY,
                    f"resources[{name!r}]: found {units} units; the resource never has more than {stock.capacity}",
                )
        return None

    def active(self, now: int) -> bool:
        """False while `offers` and `recall` would find nothing to do: whoever is parked waits for what is not there."""
        due = self._parking.due()
        return bool(self._parking.open or self._called) or (due is not None and due <= now)

    # --- one task

    def acquire(self, task: "Task", now: int) -> bool:
        """Take everything that a task which is about to start needs; or park it (False)."""
        plan = _plan(task)
        called = plan.called
        if called:
            self._drop_promise(task, plan)  # what was promised is spare for a moment, and so taken below
        known = self._stocks
        for name, units in plan.needs:
            if known[name].spare(now) < units:
                self._park(task, plan, now)
                if called:  # a limit was lowered since: what else was promised to it, and its slot, may serve others
                    self._parking.stir(task.pool)
                return False
        for name, units in plan.needs:
            stock = known[name]
            stock.take(units)
            if stock.shut.numbers:
                self._parking.note(stock)
        return True

    def release(self, task: "Task", now: int) -> None:
        """An attempt is over: its permits come back, its tokens do not; the next attempt waits at a new place."""
        plan = _plan(task)
        plan.place = 0
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.attempt_ended(units)
            if stock.shut.numbers:
                self._parking.note(stock)

    def give_back(self, task: "Task", now: int) -> None:
        """A dispatch is taken back: permits and tokens come back, and the place is kept."""
        for name, units in _plan(task).needs:
            stock = self._stocks[name]
            stock.give_back(units, now)
            if stock.shut.numbers:
                self._parking.note(stock)

    def park(self, task: "Task", now: int) -> None:
        """A task that has just left waits on, at its place, with or without a slot of its own as it is now."""
        self._park(task, _plan(task), now)

    def leave(self, task: "Task") -> None:
        """A parked or called task has ended, or is to be parked anew."""
        plan = _plan(task)
        if plan.called:
            self._drop_promise(task, plan)
            self._parking.stir(task.pool)
        elif plan.claim is not None:
            self._parking.leave(task, plan.claim)
            self.any -= 1
            if not self.any:
                self._parking.rest()

    # --- the pump

    def offers(self, now: int, awake: Iterable["Pool"], call: "Callable[[Task], None]") -> None:
        """Call every parked task that fits what is spare and has a free slot, lowest place first.

        `awake`: pools that may have more free slots than at the last time.
        """
        parking = self._parking
        due = parking.due()
        if due is not None and due <= now:
            parking.open_racks(now)
        pools, parking.stirred = parking.stirred, {}
        if not parking.open:
            return
        for pool in awake:
            pools[pool.index] = pool
        rooms = [
            (racks.numbers[rack], pool, racks)
            for pool in pools.values()
            for demand, racks in parking.open.get(pool.index, {}).items()
            if pool.can_call(demand) and (rack := racks.first()) is not None
        ]
        heapify(rooms)
        passed: list[Shelf] = []
        while rooms:
            place, pool, racks = rooms[0]
            rack = racks.first()
            if rack is None or not pool.can_call(rack.demand):
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
                parking.refresh(shelf)

    def _look(self, rack: Rack, place: int, now: int, call: "Callable[[Task], None]", passed: list[Shelf]) -> None:
        """One step ahead in a rack which has nothing before `place`: call a task, or learn that it needs more."""
        parking = self._parking
        shelf = rack.lowest(rack.stock.spare(now))
        if shelf is None:
            parking.shut(rack)
        elif shelf.place > place:
            parking.open[rack.pool.index][rack.demand].put(rack, shelf.place)
            passed.append(shelf)  # it is in the same rack, whose own place is looked at anew with it
        elif (claim := shelf.next(now)) is None:
            parking.move(shelf, now)
        elif claim.place > place:
            shelf.place = claim.place
            parking.place(shelf)
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
            self._parking.stir(task.pool)

    def pending(self, now: int) -> bool:
        """True when `offers` may have something to call although no slot came free."""
        if self._parking.stirred and self._parking.open:
            return True
        due = self._parking.due()
        return due is not None and due <= now

    def next_timeout(self) -> int | None:
        """When a resource has enough for a parked task that waits for it, as far as time alone decides.

        The past when it has enough already. None when nothing waits, or not for time.
        """
        return self._parking.due()

    def set_limit(self, settings: ResourceSettings, now: int) -> None:
        """A resource has other limits from now on."""
        stock = self._stocks[settings.name]
        stock.set_limit(settings, now)
        if stock.shut.numbers:
            self._parking.note(stock)

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of what grows."""
        return {"called": len(self._called), **self._parking.statistics()}

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
                called[task.pool.index] = called.get(task.pool.index, 0) + (plan.hold is None)
            parked += plan.claim is not None
            for name, units in plan.needs:
                if name in used:
                    used[name] += units if task.lease is not None else 0
                    promised[name] += units if plan.called else 0
        assert parked == self._parking.count, f"{parked} tasks are parked, not {self._parking.count}"
        assert len(self._called) == self.any - parked
        assert self.any or self._parking.rests(), "nobody waits for a resource, and something is left to look at"
        for pool in engine.pools.values():
            assert pool.called == called.get(pool.index, 0), f"called tasks of pool {pool.name}"
        for name, stock in self._stocks.items():
            assert stock.promised == promised[name], f"promised units of {name}"
            stock.check(used[name])
        self._parking.check_invariants()

    def check_idle(self, now: int) -> None:
        """Assert that a pump has left nobody who fits and has a free slot."""
        if (due := self._parking.due()) is not None and due <= now:
            return  # something came free with time: the next pump looks at it
        for pool, demand, needs in self._parking.waiting():
            fits = all(units <= self._stocks[name].spare(now) for name, units in needs)
            idle = fits and pool.can_call(demand)
            assert not idle, f"pool {pool.name}: tasks that need {needs} are parked, they fit and a slot is free"

    # --- promises

    def _park(self, task: "Task", plan: "Plan", now: int) -> None:
        if not plan.place:
            self._places += 1
            plan.place = self._places
        self._parking.park(task, plan, now)
        self.any += 1

    def _call(self, claim: Claim, call: "Callable[[Task], None]") -> None:
        task = self._parking.take(claim)
        plan = _plan(task)
        plan.called = True
        self._called[task.id] = task
        if plan.hold is None:
            task.pool.called += 1
            plan.demand.called += 1
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.promised += units
            if stock.shut.numbers:
                self._parking.note(stock)
        call(task)

    def _drop_promise(self, task: "Task", plan: "Plan") -> None:
        plan.called = False
        del self._called[task.id]
        self.any -= 1
        if plan.hold is None:
            task.pool.called -= 1
            plan.demand.called -= 1
        for name, units in plan.needs:
            stock = self._stocks[name]
            stock.promised -= units
            if stock.shut.numbers:
                self._parking.note(stock)
        if not self.any:
            self._parking.rest()


def _plan(task: "Task") -> "Plan":
    plan = task.plan
    assert plan is not None
    return plan
