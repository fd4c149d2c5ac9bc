"""Resources as one would write them without a thought for cost, and a pump that drives these or the real ones.

Everything is a list that is sorted every time, and buckets count in fractions. `World` is what surrounds resources in
the engine: pools with groups of workers, queues, and the order of steps of a pump.
"""

from fractions import Fraction

from cronoq_sansio.clock import SECOND


class Plan:
    def __init__(self, demand, needs):
        self.demand = demand
        self.needs = needs
        self.place = 0
        self.claim = None
        self.called = False
        self.hold = None


class Task:
    def __init__(self, task_id, pool, demand, needs, rank=0):
        self.id = task_id
        self.pool = pool
        self.rank = rank
        self.plan = Plan(demand, needs)
        self.lease = None  # the group that it runs on


class Group:
    def __init__(self):
        self.capacity = self.busy = 0


class Demand:
    """Any of these groups will do."""

    def __init__(self, groups):
        self.groups = groups
        self.called = 0

    def can_call(self):
        return sum(max(group.capacity - group.busy, 0) for group in self.groups) > self.called

    def best(self):
        return next((group for group in self.groups if group.busy < group.capacity), None)

    def has_room(self):
        return self.best() is not None


class Pool:
    """Two groups; tasks may demand the second one, which those without a demand take last."""

    def __init__(self, index):
        self.index = index
        self.name = f"pool {index}"
        self.called = 0
        self.groups = [Group(), Group()]
        self.demands = [Demand(self.groups), Demand(self.groups[1:])]
        self.queue = []

    def free_slots(self):
        return sum(group.capacity - group.busy for group in self.groups)

    def can_call(self, demand):
        return self.free_slots() > self.called and demand.can_call()


class Stock:
    def __init__(self, settings):
        self.settings = settings
        self.left = Fraction(settings.capacity)
        self.promised = 0

    def spare(self):
        return self.left // 1 - self.promised

    def pass_time(self, nanoseconds):
        if self.settings.kind == "token_bucket":
            self.left = min(self.left + Fraction(self.settings.rate) * nanoseconds / SECOND, self.settings.capacity)

    def wait(self, units):
        """Nanoseconds until that many are spare, None when time does not bring them."""
        missing = units + self.promised - self.left
        if missing <= 0:
            return 0
        if self.settings.kind == "semaphore" or units + self.promised > self.settings.capacity:
            return None
        return -(-missing * SECOND // Fraction(self.settings.rate))


class NaiveResources:
    def __init__(self, settings, _live, now):
        self.stocks = {item.name: Stock(item) for item in settings}
        self.now = now
        self.parked = []
        self.called = []
        self.places = 0

    def at(self, now):
        for stock in self.stocks.values():
            stock.pass_time(now - self.now)
        self.now = now

    def fits(self, task):
        return all(self.stocks[name].spare() >= units for name, units in task.plan.needs)

    def add(self, task, attribute, sign):
        for name, units in task.plan.needs:
            stock = self.stocks[name]
            setattr(stock, attribute, getattr(stock, attribute) + sign * units)

    def park(self, task):
        if not task.plan.place:
            self.places += 1
            task.plan.place = self.places
        self.parked.append(task)

    def uncall(self, task):
        task.plan.called = False
        task.pool.called -= 1
        task.plan.demand.called -= 1
        self.called.remove(task)
        self.add(task, "promised", -1)

    def acquire(self, task, now):
        self.at(now)
        if task.plan.called:
            self.uncall(task)
        if not self.fits(task):
            self.park(task)
            return False
        self.add(task, "left", -1)
        return True

    def release(self, task, now):
        self.at(now)
        task.plan.place = 0
        for name, units in task.plan.needs:
            if self.stocks[name].settings.kind == "semaphore":
                self.stocks[name].left += units

    def give_back(self, task, now):
        self.at(now)
        self.add(task, "left", +1)
        self.at(now)

    def leave(self, task):
        if task.plan.called:
            self.uncall(task)
        elif task in self.parked:
            self.parked.remove(task)

    def callable(self):
        return [
            task
            for task in sorted(self.parked, key=lambda task: task.plan.place)
            if self.fits(task) and task.pool.free_slots() > task.pool.called and task.plan.demand.can_call()
        ]

    def offers(self, now, _awake, call):
        self.at(now)
        while fitting := self.callable():
            task = fitting[0]
            self.parked.remove(task)
            self.called.append(task)
            task.plan.called = True
            task.pool.called += 1
            task.plan.demand.called += 1
            self.add(task, "promised", +1)
            call(task)

    def recall(self, now, park):
        for task in list(self.called):
            self.uncall(task)
            park(task)
            self.park(task)

    def pending(self, now):
        self.at(now)
        return bool(self.callable())

    def active(self, _now):
        return True

    def next_chance(self):
        """When time alone makes a parked task fit that has a free slot; None when it does not."""
        waits = []
        for task in self.parked:
            if task.pool.free_slots() > task.pool.called and task.plan.demand.can_call():
                each = [self.stocks[name].wait(units) for name, units in task.plan.needs]
                if None not in each:
                    waits.append(max(each))
        return self.now + min(waits) if waits else None

    def set_limit(self, settings, now):
        self.at(now)
        stock = self.stocks[settings.name]
        if settings.kind == "semaphore":
            stock.left += settings.capacity - stock.settings.capacity
        else:
            stock.left = min(stock.left, Fraction(settings.capacity))
        stock.settings = settings


class World:
    """Pools, tasks and a pump around resources of either make."""

    def __init__(self, make, settings, pools=2):
        self.live = {}
        self.now = 1_000 * SECOND
        self.pools = {f"pool {index}": Pool(index) for index in range(pools)}
        self.resources = make(settings, self.live, self.now)
        self.tasks = self
        self.awake = {}
        self.log = []
        """What happened, in order."""
        self.running = []

    def pool(self, index):
        return self.pools[f"pool {index}"]

    def wake(self, pool):
        self.awake[pool.index] = pool

    def submit(self, task_id, pool, demand, needs, rank):
        pool = self.pool(pool)
        task = self.live[task_id] = Task(task_id, pool, pool.demands[demand], needs, rank)
        pool.queue.append(task)
        self.wake(pool)

    def call(self, task):
        self.log.append(("call", task.id, task.plan.place))
        task.pool.queue.append(task)
        self.wake(task.pool)

    def pump(self):
        """As the engine does it: offers, picks, recall, until nothing changes; only picks where these do nothing."""
        resources = self.resources
        if not self.awake and not resources.pending(self.now):
            return
        if len(self.awake) == 1 and not resources.active(self.now):
            self.pick(self.awake.popitem()[1])
            return
        for _ in range(1_000):
            resources.offers(self.now, list(self.awake.values()), self.call)
            for index in sorted(self.awake):
                self.pick(self.awake.pop(index))
            resources.recall(self.now, lambda task: task.pool.queue.remove(task))
            if not self.awake and not resources.pending(self.now):
                return
        raise AssertionError("the pump never comes to rest")

    def pick(self, pool):
        while candidates := [task for task in pool.queue if task.plan.demand.has_room()]:
            task = min(candidates, key=lambda task: (task.rank, task.id))
            pool.queue.remove(task)
            if not self.resources.acquire(task, self.now):
                self.log.append(("park", task.id, task.plan.place))
                continue
            task.lease = task.plan.demand.best()
            task.lease.busy += 1
            self.running.append(task)
            self.log.append(("start", task.id, self.now))

    def free(self, task):
        self.running.remove(task)
        task.lease.busy -= 1
        task.lease = None
        self.wake(task.pool)

    def end(self, task):
        """An attempt is over, and the task with it."""
        self.resources.release(task, self.now)
        self.free(task)
        del self.live[task.id]

    def fail(self, task):
        """An attempt is over, and the next one may start at once."""
        self.resources.release(task, self.now)
        self.free(task)
        task.pool.queue.append(task)

    def take_back(self, task):
        self.resources.give_back(task, self.now)
        self.free(task)
        task.pool.queue.append(task)

    def cancel(self, task):
        """A task that does not run ends."""
        del self.live[task.id]
        if task in task.pool.queue:
            task.pool.queue.remove(task)
        if task.plan.called or task.plan.claim is not None or task.plan.place:
            self.resources.leave(task)
