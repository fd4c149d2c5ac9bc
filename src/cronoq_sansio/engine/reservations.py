"""Fixed starts: reservations, slots held ahead of time, and what becomes of missed ones (engine.md section 7).

Rules. A task with a fixed start reserves ``[start − tolerance, start + estimate + tolerance)`` in the calendar of its
pool from its admission to its end, of tolerance and estimate a week at most; it is refused when that would put more
reservations side by side than the pool allows. It is SCHEDULED until its start, then READY, and goes before all work
without a fixed start. A *lead* before the start it *wants a hold*: the next free slot that serves it is kept free for
it, as long as no more are held than may be reserved of the slots that there are. Whoever has a hold starts at once when
the time comes; without one it takes the first slot that is free.

A BLOCKED task wants no hold: the parent that it waits for may need that very slot. A hold is on a worker group; when
the group's slots do not cover its leases and holds any more, the holds of the latest starts go.

Missed is a task that was never dispatched and whose start is longer ago than its tolerance. It ends then, unless its
policy is to run late.

Invariants: one reservation per live task with a fixed start, none else; one hold per slot that counts as held, on a
task that is SCHEDULED or READY; a SCHEDULED task has its start ahead, as far as timers have fired; a task that may
still be missed has a timer for that.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from cronoq_sansio.clock import LAST_UNIX_NS, seconds, utc_text
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.ahead import Leads
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_FREE_TRIES, MAX_HOLD, MAX_RESERVED
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.spec import MissPolicy, Scheduling, TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool
    from cronoq_sansio.engine.engine import Engine
    from cronoq_sansio.engine.labels import Group
    from cronoq_sansio.engine.task import Plan, Task

Booking = tuple[int, int]
"""A reserved interval, half open, wall time."""

RUN_LATE = int(MissPolicy.RUN_LATE)
MIN_GARBAGE = 64  #: below this many entries that do not count any more a rebuild costs more than it frees


class ByTime:
    """Ids of tasks by a time, then by id. Tasks that do not count any more leave theirs behind, until they come up."""

    __slots__ = ("_counts", "_heap", "_live", "count")

    def __init__(self, live: Mapping[int, "Task"], counts: "Callable[[Task], bool]") -> None:
        """`live`: every live task of the engine by id. `counts`: whether a task still stands here."""
        self.count = 0
        """How many tasks count. Whoever changes that says so."""
        self._live = live
        self._counts = counts
        self._heap: list[tuple[int, int]] = []

    def add(self, when: int, task: "Task") -> None:
        """It counts from now on."""
        self.count += 1
        heappush(self._heap, (when, task.id))
        if len(self._heap) > 2 * self.count + MIN_GARBAGE:
            kept = dict.fromkeys(self._heap)  # once each: a task that counted before may have an entry from then
            self._heap = [entry for entry in kept if self._stands(entry[1])]
            heapify(self._heap)

    def next(self) -> int | None:
        """The first time."""
        heap = self._heap
        while heap and not self._stands(heap[0][1]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> "Task":
        """Take the first task; `next` has just said that there is one. It counts until that is said."""
        return self._live[heappop(self._heap)[1]]

    def pop_due(self, wall: int) -> "Task | None":
        """Take the first task whose time has come; it counts until that is said."""
        when = self.next()
        return self.pop() if when is not None and when <= wall else None

    def tasks(self) -> "list[Task]":
        """Those that count, in no order; for invariant checks."""
        return [self._live[task_id] for task_id in {entry[1]: None for entry in self._heap} if self._stands(task_id)]

    def _stands(self, task_id: int) -> bool:
        task = self._live.get(task_id)
        return task is not None and self._counts(task)


class PoolStarts:
    """The fixed starts of one pool."""

    __slots__ = ("armed", "calendar", "limit", "unstarted")

    def __init__(self, settings: PoolSettings, live: Mapping[int, "Task"]) -> None:
        self.calendar = Calendar()
        """Every reservation."""
        self.unstarted = Calendar()
        """Those of tasks that were never dispatched."""
        self.limit = max(1, int(settings.max * settings.reservable_fraction))
        """Reservations that may stand side by side."""
        self.armed = ByTime(live, _armed)
        """READY tasks with a hold that need nothing but it, by start."""


class FixedStarts:
    """The fixed starts of all pools. `live` holds every live task of the engine by id."""

    __slots__ = ("_due", "_holds", "_misses", "_stale", "_wakes", "count")

    def __init__(self, live: Mapping[int, "Task"]) -> None:
        self.count = 0
        """Live tasks with a fixed start. Without any there is nothing to look at."""
        self._due = ByTime(live, _scheduled)
        """SCHEDULED tasks, by start."""
        self._misses = ByTime(live, _missable)
        """Tasks that end when they are missed, by the first moment at which they are."""
        self._holds: Leads[Task] = Leads()
        """SCHEDULED tasks that do not want a hold yet."""
        self._wakes: int | None = None
        """When `fire` has something to do, wall time …"""
        self._stale = False
        """… as far as nothing has changed since."""

    # --- one task

    def adopt(self, task: "Task", booking: Booking | None = None) -> None:
        """A new live task with a fixed start. `booking`: it stands in the calendar already; None at recovery."""
        self._stale = True
        plan = _plan(task)
        starts = _starts(task.pool)
        self.count += 1
        if booking is None:
            booking = _interval(task.pool, task.spec, plan.start)
            starts.calendar.add(*booking)
        plan.booking = booking
        if not task.first_started:
            starts.unstarted.add(*booking)
        if _missable(task):
            self._misses.add(plan.late + 1, task)

    def schedule(self, task: "Task") -> None:
        """It is SCHEDULED from now on."""
        self._stale = True
        plan = _plan(task)
        self._due.add(plan.start, task)
        plan.ahead = self._holds.add(task.pool, plan.start, min(plan.late - plan.start, MAX_HOLD), task)

    def arm(self, task: "Task") -> None:
        """It is READY, has a hold, and lacks no resource as far as is known."""
        _starts(task.pool).armed.add(_plan(task).start, task)

    def disarm(self, task: "Task") -> None:
        """It was armed, and is not any more: it starts, has ended, or lost its slot."""
        _starts(task.pool).armed.count -= 1

    def leave(self, task: "Task") -> None:
        """It has just stopped to be SCHEDULED: it wants no hold any more. One that it has stays."""
        self._stale = True
        plan = _plan(task)
        self._due.count -= 1
        assert plan.ahead is not None
        self._holds.cancel(task.pool, plan.ahead)
        plan.ahead = None
        queued = plan.wants and plan.hold is None
        plan.wants = False
        if queued:
            task.pool.forget(task)

    def started(self, task: "Task", wall: int) -> None:
        """Its first dispatch."""
        self._stale = True
        plan, pool = _plan(task), task.pool
        _starts(pool).unstarted.remove(*_booked(plan))
        if plan.on_miss != RUN_LATE:
            self._misses.count -= 1
        pool.figures.fixed_starts += 1
        pool.figures.hits += wall <= plan.late

    def unstarted(self, task: "Task", first_started: int) -> None:
        """Its first dispatch is taken back: it was none."""
        self._stale = True
        plan, pool = _plan(task), task.pool
        _starts(pool).unstarted.add(*_booked(plan))
        if plan.on_miss != RUN_LATE:
            self._misses.add(plan.late + 1, task)
        pool.figures.fixed_starts -= 1
        pool.figures.hits -= first_started <= plan.late

    def ended(self, task: "Task") -> None:
        """It is not live any more."""
        self._stale = True
        plan = _plan(task)
        starts = _starts(task.pool)
        self.count -= 1
        starts.calendar.remove(*_booked(plan))
        if not task.first_started:
            starts.unstarted.remove(*_booked(plan))
            if plan.on_miss != RUN_LATE:
                self._misses.count -= 1

    # --- holds

    def hold(self, task: "Task", group: "Group") -> None:
        """A free slot of the group is held for a SCHEDULED task that was taken from its lane."""
        _plan(task).hold = group
        task.pool.groups.hold(group, task)

    def drop_hold(self, engine: "Engine", task: "Task") -> None:
        """The slot that was held for it is free, or gone; whether the task wants another is for the caller to say."""
        plan = _plan(task)
        group, plan.hold = plan.hold, None
        assert group is not None
        task.pool.open(task.pool.groups.unhold(group, task))
        engine.wake(task.pool)

    def cut(self, engine: "Engine", pool: "Pool", group: "Group") -> None:
        """The group has fewer slots: holds that they do not cover go, those of the latest starts first."""
        holders = sorted(group.holders.values(), key=_order)
        while holders and group.filled > group.capacity:
            task = holders.pop()
            plan = _plan(task)
            short = plan.claim is not None or plan.called
            if _armed(task):
                self.disarm(task)
            if short:
                engine.resources.leave(task)
            self.drop_hold(engine, task)
            if short:
                engine.resources.park(task, engine.now)
            else:
                pool.push(task)

    # --- time

    def miss(self, engine: "Engine", task: "Task") -> None:
        """End a task that was missed."""
        lifecycle.miss(engine, task, _miss_text(task))

    def next_timeout(self, engine: "Engine") -> int | None:
        """When `fire` is due, on the `now` scale."""
        if self._stale:  # asked after every step, and nearly all of them change nothing here
            times = (self._due.next(), self._misses.next(), self._holds.next())
            self._wakes = min((time for time in times if time is not None), default=None)
            self._stale = False
        return None if self._wakes is None else self._wakes - engine.wall_offset

    def look(self, pool: "Pool") -> None:
        """The lead of the pool may have changed."""
        self._stale = True
        self._holds.look(pool)

    def fire(self, engine: "Engine", units: int) -> int:
        """Do what is due: ends of those that are missed, starts, wishes for a hold. The units that are left."""
        self._stale = True
        wall = engine.wall()
        while units and (task := self._misses.pop_due(wall)) is not None:
            units -= 1
            self.miss(engine, task)
        while units and (task := self._due.pop_due(wall)) is not None:
            units -= 1
            lifecycle.start_is_due(engine, task)
        while units and (wanting := self._holds.pop_due(wall)) is not None:
            units -= 1
            _plan(wanting).wants = True
            wanting.pool.push(wanting)
            engine.wake(wanting.pool)
        return units

    def is_due(self, engine: "Engine") -> bool:
        """True while `fire` has something to do."""
        due = self.next_timeout(engine)
        return due is not None and due <= engine.now

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of what grows."""
        return {"fixed_starts": self.count, "scheduled": self._due.count, "missable": self._misses.count}

    def check_invariants(self, engine: "Engine") -> None:
        """Recount everything."""
        fixed = [task for task in engine.tasks.live.values() if task.plan is not None and task.plan.fixed]
        assert self.count == len(fixed), "tasks with a fixed start are miscounted"
        for heap, counts, what in ((self._due, _scheduled, "SCHEDULED"), (self._misses, _missable, "missable")):
            those = sorted(task.id for task in fixed if counts(task))
            assert heap.count == len(those) and sorted(task.id for task in heap.tasks()) == those, f"{what} tasks"
        idle = sum(task.status == TaskStatus.SCHEDULED and not _plan(task).wants for task in fixed)
        assert len(self._holds) == idle, "there is not one entry per SCHEDULED task that does not want a hold yet"
        for pool in engine.pools.values():
            mine = [task for task in fixed if task.pool is pool]
            if pool.starts is not None:
                _check_pool(pool, pool.starts, mine)
            assert pool.starts is not None or not mine, f"pool {pool.name} knows nothing of its fixed starts"


def _check_pool(pool: "Pool", starts: PoolStarts, mine: "list[Task]") -> None:
    unstarted = [task for task in mine if not task.first_started]
    for calendar, tasks in ((starts.calendar, mine), (starts.unstarted, unstarted)):
        calendar.check_invariants([_booked(_plan(task)) for task in tasks])
    armed = [task for task in mine if _armed(task)]
    assert starts.armed.count == len(armed) == len(starts.armed.tasks()), f"pool {pool.name}: tasks that start at once"
    holders = {task.id: task for group in pool.groups.by_labels.values() for task in group.holders.values()}
    holding = {task.id: task for task in mine if _plan(task).hold is not None}
    assert holders == holding and pool.groups.held == len(holders), f"pool {pool.name}: held slots are miscounted"
    for task in holding.values():
        group = _plan(task).hold
        assert group is not None and task.id in group.holders, f"{task} holds a slot that does not know it"
        assert task.status in (TaskStatus.SCHEDULED, TaskStatus.READY), f"{task} holds a slot"


# --- reservations


def book(engine: "Engine", spec: TaskSpec, pool: "Pool") -> Booking | Rejection | None:
    """Reserve what a task with a fixed start needs, or say why that cannot be; None without a fixed start."""
    asked = spec.scheduling
    if asked is None or (asked.start is None and asked.start_in is None):
        return None
    start = _start_of(asked, engine.wall())
    begin, end = _interval(pool, spec, start)
    starts = _starts(pool)
    most, at = starts.calendar.peak(begin, end)
    if most >= starts.limit:
        return _conflict(pool, starts, asked, start, (begin, end), most, at)
    starts.calendar.add(begin, end)
    return begin, end


def unbook(pool: "Pool", booking: Booking) -> None:
    """The task is not taken in after all."""
    _starts(pool).calendar.remove(*booking)


def _conflict(
    pool: "Pool", starts: PoolStarts, asked: Scheduling, start: int, booking: Booking, most: int, at: int
) -> Rejection:
    begin, end = booking
    field = "start_in_s" if asked.start is None else "start_unix_ns"
    text = (
        f"{field}: a start at {utc_text(start)} does not fit into pool {pool.name!r}: it would reserve a slot from "
        f"{utc_text(begin)} to {utc_text(end)}, and at {utc_text(at)} {most} of {starts.limit} reservable slots are "
        "reserved already"
    )
    free = starts.calendar.next_free(begin, end - begin, starts.limit, MAX_FREE_TRIES)
    later = None if free is None else start + free - begin
    if later is None or later > LAST_UNIX_NS:
        return Rejection(Code.RESERVATION_CONFLICT, text)
    return Rejection(
        Code.RESERVATION_CONFLICT,
        f"{text}; the next start that fits is {utc_text(later)}",
        (("cronoq-next-start-unix-ns", str(later)),),
    )


def _interval(pool: "Pool", spec: TaskSpec, start: int) -> Booking:
    asked = spec.scheduling
    assert asked is not None
    estimate = pool.durations.estimate(spec.kind) if asked.duration_hint is None else asked.duration_hint
    tolerance = min(asked.tolerance, MAX_RESERVED)  # or a few tasks would fill a calendar for a century
    return start - tolerance, start + min(estimate, MAX_RESERVED) + tolerance


def _start_of(asked: Scheduling, arrival: int) -> int:
    if asked.start is not None:
        return asked.start
    assert asked.start_in is not None
    return arrival + asked.start_in


# --- what is the case


def missed(task: "Task", wall: int) -> bool:
    """True when the task has to end now because its start was missed."""
    plan = task.plan
    return plan is not None and plan.fixed and wall > plan.late and _missable(task)


def is_too_late(spec: TaskSpec, wall: int) -> bool:
    """True when a task like this would be missed as soon as it is taken in."""
    asked = spec.scheduling
    if asked is None or asked.start is None or asked.on_miss == RUN_LATE:
        return False
    return wall > asked.start + asked.tolerance


def _miss_text(task: "Task") -> str:
    """Why a task ended that was missed."""
    plan = _plan(task)
    tolerance = seconds(plan.late - plan.start)
    return f"missed its fixed start at {utc_text(plan.start)}: not started within {tolerance:.10g} s of it"


def _scheduled(task: "Task") -> bool:
    return task.status == TaskStatus.SCHEDULED


def _missable(task: "Task") -> bool:
    return not task.first_started and _plan(task).on_miss != RUN_LATE


def _armed(task: "Task") -> bool:
    plan = _plan(task)
    return task.status == TaskStatus.READY and plan.hold is not None and plan.claim is None


def _order(task: "Task") -> tuple[int, int]:
    return _plan(task).start, task.id


def _plan(task: "Task") -> "Plan":
    plan = task.plan
    assert plan is not None
    return plan


def _booked(plan: "Plan") -> Booking:
    assert plan.booking is not None
    return plan.booking


def _starts(pool: "Pool") -> PoolStarts:
    starts = pool.starts
    if starts is None:
        starts = pool.starts = PoolStarts(pool.settings, pool.live)
    return starts
