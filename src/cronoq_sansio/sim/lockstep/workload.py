"""What callers, workers, clocks and crashes do to a world, chosen by whoever makes the choices.

Each method is one thing that happens. The choices come from a seeded generator in a long run and from hypothesis in a
short one that is to be shrunk; both find the same things to do here. Few keys, ids and labels, so that they collide.
"""

from collections.abc import Sequence
from dataclasses import replace

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.settings import LimitSettings, PoolSettings, ResourceSettings, Settings
from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.sim.lockstep.model_recurring import utc
from cronoq_sansio.sim.lockstep.world import Committed, World
from cronoq_sansio.spec import (
    Condition,
    Dependency,
    MissPolicy,
    Overlap,
    Priority,
    RecurringSpec,
    RetryOverride,
    RetryPolicy,
    Scheduling,
    TaskSpec,
)

#: What a run may leave out, so that the rest is seen more often.
FEATURES = ("deadlines", "dependencies", "labels", "recurring", "resources", "starts", "tenants", "waiting")

KEYS = tuple(f"k{number}" for number in range(24))
GPU: ev.Labels = (("gpu", "a100"),)
GROUPS: tuple[ev.Labels, ...] = ((), GPU, (*GPU, ("zone", "b")))
DEMANDS: tuple[ev.Labels, ...] = (GPU, GPU, GPU, (("zone", "b"),), (("zone", "nowhere"),))
NOBODY = 1 << 62  #: an id that no task and no lease has
OUTAGES = (0, 0, 1, SECOND // 2, SECOND, 2 * SECOND, 5 * SECOND, 12 * SECOND, 120 * SECOND)
SPANS = (0, 1, SECOND // 2, SECOND, 2 * SECOND, 5 * SECOND, 12 * SECOND)

#: When a world may begin: somewhere, and shortly before New York skips an hour and London repeats one.
BEGINNINGS = (1_000_000 * SECOND, 1_805_007_000 * SECOND, 1_824_943_800 * SECOND)
SCHEDULES = ("s1", "s2", "s3", "s4")
#: Seconds first. Some fire in those hours only.
CRONS = ("*/3 * * * * *", "*/7 * * * * *", "30 * * * * *", "*/5 * 1-2 * * *", "*/4 */4 1-2 * * *", "* * * * * *")
BAD_CRONS = ("61 * * * *", "0 0 31 2 *", "")
ZONES = ("", "America/New_York", "America/New_York", "Europe/London")
NIGHTLY = TaskSpec(b"", "", "x", "a", 1, "nightly", None, None, (), 10)

RESOURCES = (
    ResourceSettings("api", "token_bucket", rate=2 / 3, burst=2),
    ResourceSettings("db", "semaphore", permits=1),
    ResourceSettings("disk", "semaphore", permits=3),
    ResourceSettings("mail", "token_bucket", rate=1.5, burst=4),
)
POLICY = RetryPolicy(3, SECOND, 2.0, 8 * SECOND, True)
POOLS = (
    PoolSettings(
        "a",
        max=4,
        min=1,
        lease_ttl=5 * SECOND,
        max_pending=8,
        retry=POLICY,
        max_pending_by_class=(None, None, 4, 3),
        cooldown=5 * SECOND,
        slo=(SECOND, None, None, 7 * SECOND),
    ),
    PoolSettings(
        "b",
        reservable_fraction=0.2,
        lease_ttl=9 * SECOND,
        max_pending=5,
        retry=POLICY,
        overflow="wait",
        await_unknown_dependencies=6 * SECOND,
        max_pending_by_class=(None, None, 3, 0),
        default_duration=3 * SECOND,
        drain_time=SECOND,
    ),
    PoolSettings(
        "c",
        max=3,
        reservable_fraction=0.3,
        target_utilization=0.37,
        cooldown=0,
        max_pending=6,
        retry=POLICY,
        overflow="shed_lowest",
        tenant_weights=(("red", 3.0), ("white", 0.7)),
        max_pending_by_class=(2, None, None, None),
        await_unknown_dependencies=20 * SECOND,
    ),
    PoolSettings(
        "d",
        max=2,
        reservable_fraction=1.0,
        autoscale=False,
        max_pending=4,
        retry=POLICY,
        overflow="shed_oldest",
        fair_share=True,
    ),
)
LIMITS = LimitSettings(key_retention=20 * SECOND, key_retention_max=12, max_pending_total=16, max_payload_bytes=5_000)


def small_settings() -> Settings:
    """Every policy once, and bounds that are reached all the time."""
    return Settings(limits=LIMITS, pools=POOLS, resources=RESOURCES)


def other_settings() -> tuple[Settings, ...]:
    """What an operator may have made of the configuration meanwhile."""
    usual = small_settings()
    impatient = tuple(replace(pool, await_unknown_dependencies=SECOND) for pool in POOLS)
    strict = tuple(replace(pool, max_pending=2, overflow="reject", lease_ttl=SECOND) for pool in POOLS)
    nightly = RecurringSpec("s1", "*/7 * * * * *", "", NIGHTLY, Overlap.ALLOW.value, configured=True)
    return (
        replace(usual, recurring=(nightly, replace(nightly, name="file", cron="*/5 * 1-2 * * *", tz="Europe/London"))),
        replace(usual, recurring=(replace(nightly, cron=CRONS[0]),)),
        replace(usual, pools=(POOLS[3], POOLS[0], POOLS[1])),
        replace(usual, resources=(RESOURCES[0], replace(RESOURCES[2], permits=1))),
        replace(usual, pools=impatient),
        replace(usual, pools=strict),
        replace(usual, limits=replace(LIMITS, key_retention_max=3, max_pending_total=5)),
    )


def some_world(seed: int) -> World:
    """A world of its own for each seed."""
    return World(small_settings(), now=BEGINNINGS[seed % len(BEGINNINGS)], seed=seed)


class Workload:
    """Things that happen to one world."""

    def __init__(self, world: World, choices: Choices, features: Sequence[str] = FEATURES) -> None:
        self.world = world
        self.choices = choices
        self.features = features
        self.requests = 0
        self.together: list[ev.Event] | None = None
        """While events are gathered for one step."""

    # --- choosing

    def one_in(self, number: int) -> bool:
        """True once in so many times."""
        return self.choices.pick(range(number)) == number - 1

    def request(self) -> int:
        """Names a request."""
        self.requests += 1
        return self.requests

    def some_task(self) -> int:
        """Mostly a live task, else one that ended, is forgotten, or never was."""
        live = sorted(self.world.model.tasks)
        ended = [known.id for known in self.world.model.remembered]
        if live and not self.one_in(6):
            return self.choices.pick(live)
        forgotten = max(self.world.model.next_task - 1 - self.choices.pick(range(60)), 1)
        return self.choices.pick([*ended, forgotten, forgotten, NOBODY])

    def some_lease(self, held: bool | None = None) -> int:
        """Mostly a live lease, else one that ended."""
        leases = [lease.id for lease in self.world.model.leases if held in (None, lease.held)]
        leases = leases or [lease.id for lease in self.world.model.leases]
        if leases and not self.one_in(12):
            return self.choices.pick(leases)
        return max(self.world.model.next_lease - 1 - self.choices.pick(range(5)), 0)

    def send(self, *events: ev.Event) -> None:
        """These happen, in a step of their own unless steps are gathered."""
        if self.together is not None:
            self.together += events
        else:
            self.world.handle(*events)

    # --- specifications

    def spec(self, keys: Sequence[str] = KEYS) -> TaskSpec:
        """Some task."""
        pick = self.choices.pick
        pool = pick(["a", "b", "c", "d"]) if not self.one_in(40) else "nowhere"
        attempts = pick([1, 2, 3]) if not self.one_in(50) else 0
        retry = pick([None, RetryOverride(attempts, None, None, None, None), RetryOverride(2, 0, None, None, False)])
        size = pick([10, 20, 300]) if not self.one_in(40) else 5_000
        coveted = [edge.key for task in self.world.model.tasks.values() for edge in task.edges if edge.key]
        coveted += [
            f"{known.spec.template.key}@{utc(known.next)}"
            for known in self.world.model.schedules.values()
            if known.spec.template.key and known.next is not None
        ]
        key = pick(["", pick(keys)]) if not coveted or not self.one_in(3) else pick(coveted)
        timeout = pick([None, None, 3 * SECOND])
        asked = self.scheduling(keys)
        return TaskSpec(b"", "", pick(["", "x", "y"]), pool, pick(range(4)), key, timeout, retry, (), size, asked)

    def scheduling(self, keys: Sequence[str]) -> Scheduling | None:
        """What some task asks for beside pool and class."""
        pick, features = self.choices.pick, self.features
        deadline = deadline_in = hint = None
        if "deadlines" in features and self.one_in(3):
            if self.one_in(2):
                deadline = max(self.world.model.wall() + pick([-40, -5, 0, 1, 3, 8, 20]) * SECOND, 0)
            else:
                deadline_in = pick([0, 1, 4, 10, 30]) * SECOND
            hint = pick([None, None, 0, 2 * SECOND, 8 * SECOND])
        dependencies: tuple[Dependency, ...] = ()
        if "dependencies" in features and self.one_in(3):
            dependencies = tuple(self.dependency(keys) for _ in range(pick([1, 1, 1, 2, 3])))
        resources: dict[str, int] = {}
        if "resources" in features and self.one_in(2):
            for _ in range(pick([1, 1, 2])):
                resources[pick(["api", "db", "disk", "mail"])] = pick([1, 1, 1, 2])
            if self.one_in(25):
                resources[pick(["api", "db", "nothing"])] = pick([0, 1, 9])
        labels = pick(DEMANDS) if "labels" in features and self.one_in(3) else ()
        tenant = pick(["", "red", "white", "blue"]) if "tenants" in features else ""
        asked = Scheduling(deadline, deadline_in, hint, dependencies, tuple(sorted(resources.items())), labels, tenant)
        return self.with_start(asked) if "starts" in features and self.one_in(3) else asked

    def with_start(self, asked: Scheduling) -> Scheduling:
        """The same with a fixed start: in the past, now, or soon."""
        pick = self.choices.pick
        tolerance, policy = pick([0, 1, SECOND, SECOND, 4 * SECOND]), pick(list(MissPolicy)).value
        hint = pick([asked.duration_hint, 0, SECOND, 6 * SECOND])
        start = start_in = None
        if self.one_in(2):
            start = max(self.world.model.wall() + pick([-20, -1, 0, 1, 2, 3, 5, 8, 15, 40]) * SECOND, 0)
        else:
            start_in = pick([0, 1, SECOND, 2 * SECOND, 4 * SECOND, 9 * SECOND])
        return replace(asked, duration_hint=hint, start=start, start_in=start_in, tolerance=tolerance, on_miss=policy)

    def dependency(self, keys: Sequence[str]) -> Dependency:
        """An edge, mostly to a task that exists."""
        condition = self.choices.pick(list(Condition))
        if self.one_in(3):
            return Dependency(self.choices.pick(keys), condition)
        blocked = [task.id for task in self.world.model.tasks.values() if task.edges]
        if blocked and self.one_in(4):
            return Dependency(self.choices.pick(blocked), condition)
        low = [task.id for task in self.world.model.tasks.values() if task.queued and task.priority == Priority.LOW]
        if low and self.one_in(4):  # one that may be shed
            return Dependency(self.choices.pick(low), condition)
        return Dependency(self.some_task(), condition)

    # --- callers

    def submit(self) -> None:
        """Somebody submits a few tasks."""
        for _ in range(self.choices.pick([1, 1, 2, 3])):
            may_wait = "waiting" in self.features and self.one_in(2)
            self.send(ev.TaskSubmitted(self.request(), self.spec(), may_wait))

    def crowd(self) -> None:
        """More want into the pool that lets callers wait than there is room for, and perhaps somebody leaves it."""
        if "waiting" not in self.features:
            return
        events: list[ev.Event] = []
        inside = [task.id for task in self.world.model.tasks.values() if task.spec.pool == "b"]
        if inside and self.one_in(3):
            events.append(ev.TaskCancelled(self.request(), self.choices.pick(inside)))
        specs = [replace(self.spec(), pool="b") for _ in range(self.choices.pick([2, 4, 6]))]
        events += [ev.TaskSubmitted(self.request(), spec, True) for spec in specs]
        self.send(*events)

    def submit_again(self) -> None:
        """Somebody does not know whether a submission arrived, and repeats it."""
        model = self.world.model
        specs = [task.spec for task in model.tasks.values() if not task.schedule]  # those have a tag that is reserved
        specs = [waiting.spec for waiting in model.waiting] or specs
        if specs:
            self.send(ev.TaskSubmitted(self.request(), self.choices.pick(specs), self.one_in(2)))

    def submit_batch(self) -> None:
        """Somebody submits some tasks as one."""
        keys = [self.choices.pick(KEYS) for _ in range(3)]
        number = self.choices.pick([0, 1, 2, 3, 3, 4])
        self.send(ev.BatchSubmitted(self.request(), tuple(self.spec(keys) for _ in range(number))))

    def cancel(self) -> None:
        """Somebody cancels a task."""
        self.send(ev.TaskCancelled(self.request(), self.some_task()))

    def withdraw(self) -> None:
        """Somebody does not want to wait for room any longer."""
        waiting = [waiting.request for waiting in self.world.model.waiting]
        self.send(ev.SubmissionWithdrawn(self.choices.pick([*waiting, *waiting, NOBODY])))

    def watch(self) -> None:
        """Somebody begins or ends to watch."""
        self.send(ev.TransitionsWatched(self.one_in(2)))

    # --- schedules

    def put_schedule(self) -> None:
        """Somebody adds a schedule, or replaces one."""
        if "recurring" not in self.features:
            self.remove_schedule()
            return
        pick, one_in = self.choices.pick, self.one_in
        cron = pick(CRONS[:-1]) if not one_in(8) else pick([CRONS[-1], *BAD_CRONS])
        zone = pick(ZONES) if not one_in(30) else "Mars/Base"
        overlap, gap, fold = pick(list(Overlap)).value, pick(["shift", "skip"]), pick(["first", "last", "both"])
        known = self.world.model.schedules.get(name := pick(SCHEDULES))
        if known is not None and one_in(2):
            cron, zone, gap, fold = known.spec.cron, known.spec.tz, known.spec.gap, known.spec.fold
        self.send(ev.RecurringPut(self.request(), RecurringSpec(name, cron, zone, self.template(), overlap, gap, fold)))

    def template(self) -> TaskSpec:
        """Of a schedule, nearly always without what a template must not have."""
        pick, one_in, spec = self.choices.pick, self.one_in, self.spec()
        asked = spec.scheduling
        if asked is not None and not one_in(30):
            asked = replace(asked, deadline=None, start=None, start_in=None, dependencies=())
            asked = replace(asked, tolerance=pick([0, SECOND, 2 * SECOND]), on_miss=pick(list(MissPolicy)).value)
            if "resources" in self.features and one_in(3):
                asked = replace(asked, resources=(("disk", 3),))  # too many once somebody changes the limit
        return replace(spec, key=pick(["", "nightly", "hourly"]), scheduling=pick([asked, asked, None]))

    def remove_schedule(self) -> None:
        """Somebody removes a schedule."""
        self.send(ev.RecurringRemoved(self.request(), self.choices.pick(SCHEDULES)))

    def begin_again(self) -> None:
        """Somebody removes a schedule and adds it again, and perhaps cancels its last task before."""
        schedules = sorted(self.world.model.schedules.items())
        if schedules:
            name, known = self.choices.pick(schedules)
            if self.one_in(2):
                self.send(ev.TaskCancelled(self.request(), known.last_task))
            self.send(ev.RecurringRemoved(self.request(), name))
            self.send(ev.RecurringPut(self.request(), replace(known.spec, configured=False)))

    # --- workers

    def offer_slots(self) -> None:
        """Workers come or go."""
        pool, labels = self.choices.pick(self.world.settings.pools), self.choices.pick(GROUPS)
        self.send(ev.GroupCapacitySet(pool.name, labels, self.choices.pick([0, 1, 1, 2, 3])))

    def lose_slots(self) -> None:
        """A worker leaves from whose group a slot was held, or any other."""
        holders = [task for task in self.world.model.tasks.values() if task.hold is not None]
        holders = [task for task in holders if task.parked] or holders
        if not holders:
            self.offer_slots()
            return
        pool, labels = self.choices.pick(sorted((task.spec.pool, task.hold or ()) for task in holders))
        self.send(ev.GroupCapacitySet(pool, labels, self.choices.pick([0, 1, 1])))

    def release(self) -> None:
        """A lease reaches its worker."""
        self.send(ev.LeasesReleased((self.some_lease(held=False),)))

    def release_all(self) -> None:
        """Every lease reaches its worker."""
        self.send(ev.LeasesReleased(tuple(lease.id for lease in self.world.model.leases)))

    def give_back(self) -> None:
        """A lease cannot be placed."""
        lease = self.some_lease(held=False)
        live = self.world.model.lease(lease)
        if live is not None and self.one_in(2):
            self.send(ev.GroupCapacitySet(live.task.spec.pool, live.labels, 0))
        self.send(ev.DispatchReturned(lease))

    def renew(self) -> None:
        """A heartbeat."""
        self.send(ev.LeaseRenewed(self.some_lease()))

    def succeed(self) -> None:
        """A worker finished."""
        self.send(ev.AttemptSucceeded(self.some_lease(held=True), b"", ""))

    def fail(self) -> None:
        """A worker failed."""
        retry_after = self.choices.pick([0, 0, 3 * SECOND])
        self.send(ev.AttemptFailed(self.some_lease(held=True), "broken", self.one_in(3), retry_after))

    def give_up(self) -> None:
        """A worker cancelled."""
        self.send(ev.AttemptCancelled(self.some_lease(held=True)))

    def refuse(self) -> None:
        """A worker passes a lease on."""
        groups = tuple(labels for labels in GROUPS if not self.one_in(4))
        self.send(ev.AttemptNacked(self.some_lease(held=True), "busy", groups))

    def lose(self) -> None:
        """A worker is gone."""
        self.send(ev.LeasesLost(tuple(self.some_lease() for _ in range(self.choices.pick([1, 2]))), "gone"))

    # --- operation and time

    def set_limit(self) -> None:
        """An operator changes a resource."""
        resource = self.choices.pick(self.world.settings.resources)
        factor = self.choices.pick([1, 1, 2])
        if resource.kind == "semaphore":
            changed = ResourceSettings(resource.name, resource.kind, permits=self.choices.pick([1, 1, 2, 3]))
        else:
            burst = self.choices.pick([1, 2, 4])
            changed = ResourceSettings(resource.name, resource.kind, rate=resource.rate * factor, burst=burst)
        self.send(ev.ResourceLimitSet(changed))

    def hold(self) -> None:
        """Dispatch is held back, or not any more."""
        self.send(ev.DispatchHeld(self.one_in(3)))

    def hold_cascades(self) -> None:
        """The store falls behind, or catches up."""
        self.send(ev.CascadesHeld(self.one_in(2)))

    def pass_time(self) -> None:
        """Time passes, with every timer when it is due."""
        if self.together is None:
            self.world.wait(self.choices.pick(SPANS))

    def oversleep(self) -> None:
        """Time passes, and timers fire late, or not yet."""
        if self.together is None:
            self.world.now += self.choices.pick(SPANS)
        if self.one_in(2):
            self.send(ev.TimerFired())

    def move_clock(self) -> None:
        """The host's wall clock jumps."""
        self.send(ev.WallClockMoved(self.choices.pick([-30, -3, 0, 0, 2, 25, 100]) * SECOND))

    def stall(self) -> None:
        """The process stands still."""
        lateness = self.choices.pick([SECOND // 2, 3 * SECOND, 20 * SECOND])
        if self.together is None:
            self.world.now += lateness
        self.send(ev.Stalled(lateness))

    def stall_commits(self) -> None:
        """A commit hangs for a while."""
        duration = self.choices.pick([SECOND, 7 * SECOND])
        self.send(ev.CommitsStalled())
        if self.together is None:
            self.world.now += duration
            self.world.handle(ev.TimerFired())
        self.send(ev.CommitsResumed(duration))

    def commit(self) -> None:
        """The store catches up."""
        if self.together is None:
            self.world.do(Committed())

    def crash(self) -> None:
        """The process dies and another takes over."""
        if self.together is None:
            changed = small_settings() if not self.one_in(4) else self.choices.pick(other_settings())
            changed = self.world.settings if self.one_in(4) else changed
            self.world.crash(self.choices.pick(OUTAGES), self.choices.pick([-10, 0, 0, 10]) * SECOND, changed)
            for _ in range(self.choices.pick([0, 4, 8])):
                self.offer_slots()

    def at_once(self) -> None:
        """Several things happen in one step."""
        if self.together is not None:
            return
        self.together = []
        for _ in range(self.choices.pick([2, 3, 4, 6])):
            self.happen()
        events, self.together = self.together, None
        self.world.handle(*events)

    def live(self, happenings: int, phase: int = 200) -> None:
        """Let so much happen, in phases; in each of them tasks ask for other things."""
        for number in range(happenings):
            if number % phase == 0:
                self.features = [name for name in FEATURES if not self.one_in(3)]
            self.happen()

    def happen(self) -> None:
        """Something happens."""
        name = self.choices.pick(DOINGS)
        getattr(self, name)()


#: How often each thing happens, of so many times in all.
OFTEN = {
    "submit": 20,
    "crowd": 4,
    "submit_again": 3,
    "submit_batch": 6,
    "cancel": 4,
    "withdraw": 2,
    "put_schedule": 3,
    "remove_schedule": 1,
    "begin_again": 1,
    "watch": 1,
    "offer_slots": 10,
    "lose_slots": 2,
    "release": 5,
    "release_all": 12,
    "give_back": 3,
    "renew": 4,
    "succeed": 20,
    "fail": 8,
    "give_up": 2,
    "refuse": 4,
    "lose": 2,
    "set_limit": 2,
    "hold": 3,
    "hold_cascades": 4,
    "pass_time": 14,
    "oversleep": 3,
    "move_clock": 2,
    "stall": 1,
    "stall_commits": 1,
    "commit": 6,
    "crash": 1,
    "at_once": 12,
}
DOINGS = tuple(name for name, times in OFTEN.items() for _ in range(times))
