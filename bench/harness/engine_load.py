"""Loads for the engine alone: tasks that are submitted, dispatched and completed while others wait.

All events are built before the clock runs, since decoding them is part of the server's figures; so is everything that
follows from a step. What is timed is `Engine.handle`, CPU time of this process, in short slices between which the unit
is measured, because machines drift within seconds.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.settings import LimitSettings, PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Condition, Dependency, RecurringSpec, Scheduling, TaskSpec

SLOTS = 32
WAITING = 1_000
"""Tasks that wait behind the busy slots, where nothing else is said."""
REMEMBERED = 10_000
"""Finished tasks that are remembered. It is reached before the clock runs, so that each end makes the engine forget
another one, as in a server that has run for a while."""
SLICE = 960
"""Tasks of a slice; 16 divides it."""
SLICES = 8
"""Of a round."""
MANY = 100_000_000
TICK = 1_000
"""Nanoseconds of the engine's time from one step to the next."""
GPU = (("gpu", "h100"),)
"""What nobody carries."""
ZONE = (("zone", "a"),)
SETTINGS = Settings(
    limits=LimitSettings(max_pending_total=MANY, key_retention_max=REMEMBERED),
    pools=(
        PoolSettings(max_pending=MANY),
        PoolSettings("shared", max_pending=MANY, tenant_weights=(("a", 3.0), ("b", 1.0))),
        PoolSettings("awaiting", max_pending=MANY, await_unknown_dependencies=3_600 * SECOND),
        PoolSettings("shedding", max_pending=MANY, overflow="shed_lowest"),
    ),
    resources=(
        ResourceSettings("connections", "semaphore", permits=SLOTS),
        ResourceSettings("tokens", "token_bucket", rate=1 / 3_600, burst=1),
    ),
)
"""Everything is configured: the tasks of the pool `default` pay for what that costs, and use none of it."""

Spec = Callable[[int], TaskSpec]
"""The next task; the argument is the id of a live task that ends before this one may start, 0 where there is none."""


def plain(_parent: int = 0, key: str = "") -> TaskSpec:
    """Nothing but pool and class."""
    return TaskSpec(b"", "", "email.send", "default", 2, key, None, None, (), 40)


def using_everything(parent: int = 0) -> TaskSpec:
    """A deadline, a tenant, a label, a unit of a resource, and one dependency."""
    asked = Scheduling(
        deadline_in=3_600 * SECOND,
        dependencies=(Dependency(parent, Condition.ON_COMPLETE),) if parent else (),
        resources=(("connections", 1),),
        labels=ZONE,
        tenant="a",
    )
    return TaskSpec(b"", "", "email.send", "shared", 2, "", None, None, (), 90, asked)


def asking(asked: Scheduling, pool: str = "default") -> TaskSpec:
    """A task that asks for just this."""
    return TaskSpec(b"", "", "email.send", pool, 2, "", None, None, (), 60, asked)


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of CPU time: of one unit, and per task of each load, in turn."""

    unit: float
    costs: tuple[float, ...]


def unit(repeat: int = 500) -> float:
    """Seconds of CPU time for one ``sum(range(1000))``."""
    start = time.process_time()
    for _ in range(repeat):
        sum(range(1000))
    return (time.process_time() - start) / repeat


def relax_collector() -> None:
    """What lives now lives on, and the collector runs as seldom as in the server."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)


def submit(engine: Engine, spec: TaskSpec) -> None:
    """One task more, in a step of its own."""
    engine.handle([ev.TaskSubmitted(None, spec)], engine.now + TICK)


class Load:
    """Tasks of one kind that pass through an engine: as many as are completed are submitted.

    They wait in one queue and start in the order of their submission; so the ids of leases are known in advance, and
    with them all events.
    """

    def __init__(self, engine: Engine, spec: Spec = plain, waiting: int = WAITING) -> None:
        """The engine may hold other tasks, none of which can start."""
        self.engine = engine
        self._spec = spec
        first = spec(0)
        labels = first.scheduling.labels if first.scheduling is not None else ()
        engine.handle([ev.GroupCapacitySet(first.pool, labels, SLOTS)], engine.now + TICK)
        self._lease = engine.leases.next_id
        """The oldest that runs."""
        for _ in range(SLOTS + waiting):
            submit(engine, spec(0))
        leases = tuple(range(self._lease, self._lease + SLOTS))
        engine.handle([ev.LeasesReleased(leases)], engine.now + TICK)
        self._ahead = engine.leases.live[self._lease].task.id - self._lease
        """By how much the id of a task exceeds that of its lease."""
        self._waiting = engine.tasks.pending

    def settle(self) -> "Load":
        """Let so many tasks pass that a further one changes nothing any more."""
        self.run(REMEMBERED + WAITING, 1)
        return self

    def steps(self, tasks: int, at_once: int) -> list[list[ev.Event]]:
        """What `tasks` tasks come to, `at_once` events of one kind in each step.

        Submission, success and release are events of their own. Of each `at_once` tasks the submissions come first,
        then as many running ones succeed, then the leases that this gave are released.
        """
        steps: list[list[ev.Event]] = []
        for first in range(self._lease, self._lease + tasks, at_once):
            leases = range(first, first + at_once)
            steps.append([ev.TaskSubmitted(None, self._spec(self._ahead + lease)) for lease in leases])
            steps.append([ev.AttemptSucceeded(lease, b"", "") for lease in leases])
            steps.append([ev.LeasesReleased((lease + SLOTS,)) for lease in leases])
        return steps

    def run(self, tasks: int, at_once: int, *, check: bool = False) -> float:
        """Seconds of CPU time per task, with the invariants of each step checked or without.

        `tasks` is a multiple of `at_once`, which is at most SLOTS.
        """
        engine = self.engine
        steps = self.steps(tasks, at_once)
        succeeded = engine.totals.succeeded
        gc.collect(0)  # the events, or the next collection would have to look at them
        spent = checked(engine, steps) if check else handled(engine, steps)
        self._lease += tasks
        totals = (engine.totals.succeeded - succeeded, engine.leases.next_id, engine.tasks.pending)
        expected = (tasks, self._lease + SLOTS, self._waiting)
        assert totals == expected, f"this is not what was to be measured: {totals}, not {expected}"
        assert engine.leases.live[self._lease].task.id == self._ahead + self._lease, "tasks did not start in order"
        return spent / tasks


def handled(engine: Engine, steps: Sequence[list[ev.Event]]) -> float:
    """Seconds of CPU time for these steps."""
    now, handle = engine.now, engine.handle
    start = time.process_time()
    for events in steps:
        now += TICK
        handle(events, now)
    return time.process_time() - start


def checked(engine: Engine, steps: Sequence[list[ev.Event]]) -> float:
    """The same, with the invariants checked after each step."""
    now, handle, check = engine.now, engine.handle, engine.check_invariants
    start = time.process_time()
    for events in steps:
        now += TICK
        check(handle(events, now))
    return time.process_time() - start


def in_turn(runs: Sequence[Callable[[int], float]], rounds: int) -> list[Round]:
    """Rounds in which each of `runs` gets SLICES slices in turn, with a measurement of the unit before each turn.

    A run gets the number of tasks and returns seconds per task.
    """
    found = []
    for _ in range(rounds):
        units, costs = 0.0, [0.0] * len(runs)
        for _ in range(SLICES):
            units += unit()
            for position, run in enumerate(runs):
                costs[position] += run(SLICE)
        found.append(Round(units / SLICES, tuple(cost / SLICES for cost in costs)))
    return found


# --- what may wait beside a load


def park(engine: Engine, tasks: int, pool: str = "default") -> None:
    """So many tasks wait for a token of a bucket that is empty and will be for an hour."""
    engine.handle([ev.GroupCapacitySet(pool, (), 1)], engine.now + TICK)
    spec = asking(Scheduling(resources=(("tokens", 1),)), pool)
    for _ in range(1 + tasks):
        submit(engine, spec)
        if engine.leases.live:  # the first one took the only token
            (lease,) = engine.leases.live
            engine.handle([ev.LeasesReleased((lease,))], engine.now + TICK)
            engine.handle([ev.AttemptSucceeded(lease, b"", "")], engine.now + TICK)
    assert engine.resources.statistics()["parked"] == tasks


def label(engine: Engine, tasks: int, pool: str = "default") -> None:
    """So many tasks wait for a worker with a label that no worker has."""
    spec = asking(Scheduling(labels=GPU), pool)
    for _ in range(tasks):
        submit(engine, spec)
    assert engine.pools[pool].groups.demands[GPU].tasks == tasks


def block(engine: Engine, tasks: int) -> None:
    """So many tasks wait for a key that nobody has."""
    spec = asking(Scheduling(dependencies=(Dependency("nobody", Condition.ON_SUCCESS),)), "awaiting")
    for _ in range(tasks):
        submit(engine, spec)
    assert len(engine.dependencies.any) == tasks


def time_ahead(engine: Engine, pool: str = "default") -> None:
    """One task has a fixed start in a day, and one schedule fires once a year."""
    submit(engine, asking(Scheduling(start_in=86_400 * SECOND), pool))
    yearly = RecurringSpec("yearly", "0 0 1 1 *", "Europe/Berlin", asking(Scheduling(), pool))
    engine.handle([ev.RecurringPut(None, yearly)], engine.now + TICK)
    figures = engine.statistics()
    assert (figures["scheduled"], figures["schedules"]) == (1, 1)


# --- memory


def resident() -> int:
    """Bytes of VmRSS; 0 where the kernel does not say."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def memory(tasks: int) -> float:
    """KiB by which this process grows per waiting task with a 16-byte key and no payload."""
    relax_collector()
    before = resident()
    engine = Engine.fresh(SETTINGS, now=0)
    for number in range(tasks):
        submit(engine, plain(key=f"key-{number:012d}"))
    grown = resident() - before
    assert len(engine.tasks.live) == tasks
    return grown / tasks / 1024
