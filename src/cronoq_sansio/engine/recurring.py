"""Recurring schedules: which occurrence is made when, and what becomes of fires that pass (engine.md section 11).

Rules. A schedule has dealt with every fire of its cron expression up to `through`. Its next fire becomes a task, the
*occurrence*, some time before its start: the tolerance and a lead, which is that of a hold (`reservations.py`). No
other one is made before the start of the one made last has come, so that at most one is ahead.

A fire is *missed* when it is longer ago than its tolerance, or when a later one has come as well: nobody served, or the
clock of the host jumped. Of all
fires that passed meanwhile at most the latest one still runs: when it is not missed itself; or when the template says
`run_late`, and the occurrence before it was not made ahead, so that it has to run late itself. The others are dropped,
and the schedule goes on from the present.

An occurrence is admitted like any other task. One that exists, live and with the same start, is not made again,
whatever was replaced or removed since. A fire that becomes nothing is dropped, for one of the reasons in `DROPS`.

What does not suit the configuration any more after a restart (a pool or a resource that is gone) stays stored and is
not armed: it has no next fire.

Invariants: `next` is the first fire after `through`; a schedule with a next fire stands in one place exactly, among
those that wait for their time or among those that wait for a start; the templates count against
`limits.max_payload_bytes` together with live tasks.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from cronoq_sansio.engine import admission, occurrences
from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.engine.ahead import Leads
from cronoq_sansio.engine.cron import Fire
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.occurrences import Occurrences
from cronoq_sansio.engine.records import RecurringDamaged, RecurringDeleted, RecurringLoaded, RecurringStored
from cronoq_sansio.engine.schedules import Schedule, check, in_file, pass_over
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.engine.task import Task
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import FIRE_BYTES, FIRE_UNITS, MAX_SCHEDULES, MAX_UNARMED_NAMES
from cronoq_sansio.spec import Overlap, RecurringSpec, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

MISSED, OVERLAP, PREDECESSOR, GAP, CONFLICT, OVERLOAD, INVALID, FOREIGN_KEY = DROPS = (
    "missed",
    "overlap",
    "predecessor",
    "gap",
    "conflict",
    "overload",
    "invalid",
    "foreign_key",
)
#: Why an occurrence that was refused is dropped; for all other codes it is `invalid`.
REFUSALS = {Code.RESERVATION_CONFLICT: CONFLICT, Code.OVERLOADED: OVERLOAD, Code.FULL: OVERLOAD}


class Recurring:
    """All schedules of a term, and the live tasks that they have made."""

    __slots__ = (
        "_ahead",
        "_damaged",
        "_schedules",
        "_waiting",
        "armed",
        "dropped",
        "live",
        "notes",
        "template_bytes",
        "unarmed",
    )

    def __init__(self) -> None:
        self.armed = 0
        """Schedules that may have a next fire."""
        self.live = Occurrences()
        self.dropped = dict.fromkeys(DROPS, 0)
        """Fires that did not happen, or not as asked, since the term began, by reason."""
        self.template_bytes = 0
        """What the templates count."""
        self.notes: list[tuple[str, str]] = []
        """Names of schedules that recovery did not arm, with the reasons; the first `MAX_UNARMED_NAMES`."""
        self.unarmed = 0
        """How many recovery did not arm, in all."""
        self._schedules: dict[str, Schedule] = {}
        self._damaged: dict[str, str] = {}
        """Stored ones that cannot be read, and why."""
        self._ahead: Leads[Schedule] = Leads()
        """Those whose next occurrence is due some time ahead of its start."""
        self._waiting: TimerHeap[Schedule] = TimerHeap()
        """Those whose last occurrence has to start before; wall time."""

    def __len__(self) -> int:
        """Schedules, armed or not."""
        return len(self._schedules) + len(self._damaged)

    # --- adding and removing

    def put(self, engine: "Engine", spec: RecurringSpec, *, configured: bool = False) -> Rejection | None:
        """Add a schedule, or replace the one of its name. `configured`: the configuration file asks for it."""
        name = spec.name
        known = self._schedules.get(name)
        if known is not None and known.spec.configured and not configured:
            return in_file(name)
        checked = check(engine, spec)
        if isinstance(checked, Rejection):
            return checked
        refusal = self._room(engine, spec, known)
        if refusal is not None:
            return refusal
        cron, pool = checked
        wall = engine.wall()
        schedule = Schedule(spec, wall, wall, -1, 0)
        if known is not None:
            schedule.last_task = known.last_task
            if known.timing() == schedule.timing():
                schedule.added, schedule.through, schedule.local = known.added, known.through, known.local
        schedule.set_out(cron, pool)
        if schedule.next is None:
            return Rejection(Code.INVALID, f"cron: {spec.cron!r} names no time that is still to come")
        replaces = known is not None or name in self._damaged
        self._drop_known(engine, name)
        self._keep(engine, schedule)
        self._arm(schedule)
        writes = engine.step.writes
        writes.append(RecurringStored(spec, schedule.added))
        if replaces:
            writes.append(schedule.fired())
        return None

    def remove(self, engine: "Engine", name: str) -> Rejection | bool:
        """Remove a schedule, its tasks stay; False = there is none of that name."""
        known = self._schedules.get(name)
        if known is not None and known.spec.configured:
            return in_file(name)
        if known is None and name not in self._damaged:
            return False
        self._delete(engine, name)
        return True

    def _delete(self, engine: "Engine", name: str) -> None:
        self._drop_known(engine, name)
        engine.step.writes.append(RecurringDeleted(name))

    def _keep(self, engine: "Engine", schedule: Schedule) -> None:
        self._schedules[schedule.spec.name] = schedule
        self._count(engine, schedule.spec.template.size)

    def _arm(self, schedule: Schedule) -> None:
        """It has its place in time from now on."""
        assert schedule.pool is not None
        self.armed += 1
        schedule.pool.schedules += 1
        self._place(schedule)

    def _drop_known(self, engine: "Engine", name: str) -> None:
        self._damaged.pop(name, None)
        known = self._schedules.pop(name, None)
        if known is None:
            return
        self._count(engine, -known.spec.template.size)
        if known.pool is not None:
            self.armed -= 1
            known.pool.schedules -= 1
        if known.entry is not None and known.pool is not None:
            self._ahead.cancel(known.pool, known.entry)
        if known.timer is not None:
            self._waiting.cancel(known.timer)

    def _count(self, engine: "Engine", size: int) -> None:
        self.template_bytes += size
        engine.tasks.payload_bytes += size

    def _room(self, engine: "Engine", spec: RecurringSpec, known: Schedule | None) -> Rejection | None:
        if known is None and spec.name not in self._damaged and len(self) >= MAX_SCHEDULES:
            return Rejection(
                Code.OVERLOADED, f"there are {len(self)} schedules already, which is the most; remove some"
            )
        size, budget = spec.template.size, engine.limits.max_payload_bytes
        held = engine.tasks.payload_bytes - (0 if known is None else known.spec.template.size)
        if held + size <= budget:
            return None
        text = f"live tasks and schedules hold {held} bytes and this template has {size}"
        return Rejection(Code.OVERLOADED, f"{text}, limits.max_payload_bytes is {budget}; retry later, or raise it")

    # --- time

    def next_timeout(self, engine: "Engine") -> int | None:
        """When `fire` has something to do, on the `now` scale."""
        ahead, waiting = self._ahead.next(), self._waiting.next()
        first = waiting if ahead is None else ahead if waiting is None else min(ahead, waiting)
        return None if first is None else first - engine.wall_offset

    def look(self, pool: Pool) -> None:
        """The lead of the pool may have changed."""
        self._ahead.look(pool)

    def fire(self, engine: "Engine", units: int) -> int:
        """Deal with the fires that are due, by due time and then by name; the units that are left.

        One that is dealt with costs FIRE_UNITS, and one more for each fire that is counted as missed and for each
        FIRE_BYTES of the template: the driver, which sees what waits for the store, has its say in between.
        """
        wall = engine.wall()
        while units >= FIRE_UNITS:
            ahead, waiting = self._ahead.first(), self._waiting.first()
            if ahead is not None and (waiting is None or ahead <= waiting):
                if ahead[0] > wall:
                    break
                schedule = self._ahead.pop_due(wall)
                if schedule is None:
                    continue  # the lead of its pool has shrunk: it is due later
                schedule.entry = None
                due = schedule.due()
                placed = schedule.through <= due and (waiting is None or (due, schedule.spec.name) <= waiting)
            else:
                if waiting is None or waiting[0] > wall:
                    break
                schedule = self._waiting.pop_due(wall)
                assert schedule is not None
                schedule.timer = None
                placed = schedule.through >= schedule.due()
            if placed:
                units -= FIRE_UNITS + schedule.spec.template.size // FIRE_BYTES + self._fire(engine, schedule, wall)
            else:
                units -= 1  # the lead has changed since it was placed
                self._place(schedule)
        return max(units, 0)

    def _place(self, schedule: Schedule) -> None:
        """It waits for what comes last: the start of the occurrence before, or some time ahead of its own start."""
        if schedule.next is None:
            return
        name = schedule.spec.name
        if schedule.through > schedule.due():
            schedule.timer = self._waiting.add(schedule.through, schedule, name)
        else:
            assert schedule.pool is not None
            schedule.entry = self._ahead.add(schedule.pool, *schedule.start_and_margin(), schedule, name)

    def _fire(self, engine: "Engine", schedule: Schedule, wall: int) -> int:
        """The time of its next fire has come, or has passed; how many missed ones were counted."""
        fire, cron, counted = schedule.next, schedule.cron, 0
        assert fire is not None and cron is not None
        for skipped in fire.skipped:
            self._drop(engine, schedule.spec.name, GAP, skipped, skipped, "the clocks skip that time (dst_gap = skip)")
        after = cron.next(fire.at)
        if fire.at + schedule.tolerance() < wall or (after is not None and after.at <= wall):
            passed = pass_over(schedule, wall, lambda start: self._still_to_run(engine, schedule.spec.name, start))
            fire, runs, counted = passed.latest, passed.runs, passed.count
            after = cron.next(fire.at)
            if counted:
                name, times = schedule.spec.name, (passed.first, passed.last)
                self._drop(engine, name, MISSED, *times, passed.detail, counted, more=passed.more)
        else:
            runs = True
        if runs:
            self._make(engine, schedule, fire)
        schedule.through, schedule.local = fire.at, fire.local
        schedule.next = after
        engine.step.writes.append(schedule.fired())
        self._place(schedule)
        return counted

    def _still_to_run(self, engine: "Engine", name: str, start: int) -> int:
        """Id of the latest occurrence before `start`, when it was never dispatched; else 0."""
        task = engine.tasks.live.get(self.live.before(name, start))
        return task.id if task is not None and not task.first_started else 0

    def _make(self, engine: "Engine", schedule: Schedule, fire: Fire) -> None:
        """Make the occurrence of this fire, unless it exists."""
        spec, name, start = schedule.spec, schedule.spec.name, fire.at
        existing = self.live.at(name, start)
        if existing:
            schedule.last_task = existing
            return
        key = occurrences.key_of(spec.template.key, start)
        foreign = bool(key) and engine.tasks.by_key(key, engine.now) is not None
        before = self.live.before(name, start)
        place = admission.find_place(engine, occurrences.build(spec, start, "" if foreign else key, before))
        if isinstance(place, Rejection):
            self._drop(engine, name, REFUSALS.get(place.code, INVALID), start, start, place.message)
            return
        if foreign:
            detail = f"the key {key!r} belongs to another task; this one has no key"
            self._drop(engine, name, FOREIGN_KEY, start, start, detail)
        schedule.last_task = admission.take_place(engine, place).id

    # --- the tasks that were made

    def adopt(self, task: Task) -> None:
        """A new live task with a fixed start; nothing follows unless a schedule made it, now or before a restart."""
        name = occurrences.schedule_of(task.spec)
        if name:
            assert task.plan is not None
            task.plan.schedule = name
            self.live.add(name, task)

    def ended(self, task: Task) -> None:
        """An adopted task is not live any more."""
        assert task.plan is not None
        self.live.remove(task.plan.schedule, task)

    def overlapping(self, engine: "Engine", task: Task) -> str:
        """Why an adopted task that nothing else keeps has to be skipped; empty while its start has not come, too.

        Who asks skips it then: the drop is counted here.
        """
        plan = task.plan
        assert plan is not None
        before = self._still_going(engine, plan.schedule, plan.start)
        if not before:
            return ""
        over = f"an earlier occurrence, task {before}, is still going (overlap = skip)"
        self._drop_task(engine, task, OVERLAP, over)
        return over

    def gives_way(self, engine: "Engine", spec: TaskSpec) -> bool:
        """Whether a task that is not taken in yet would be skipped at once: see `overlapping`."""
        name = occurrences.schedule_of(spec) if spec.tags else ""
        asked = spec.scheduling
        if not name or asked is None or asked.start is None:
            return False
        return self._still_going(engine, name, asked.start) > 0

    def _still_going(self, engine: "Engine", name: str, start: int) -> int:
        """The earliest live occurrence, if its schedule skips the one whose start has come for its sake; else 0."""
        schedule = self._schedules.get(name)
        if start > engine.wall() or schedule is None or schedule.spec.overlap != Overlap.SKIP:
            return 0
        return self.live.first_before(name, start)

    def skipped(self, engine: "Engine", task: Task, message: str) -> None:
        """An adopted task ends because the one that it depends on did not succeed."""
        self._drop_task(engine, task, PREDECESSOR, message)

    def missed(self, engine: "Engine", task: Task, message: str) -> None:
        """An adopted task ends because its start was missed, as its policy says."""
        self._drop_task(engine, task, MISSED, message)

    def _drop_task(self, engine: "Engine", task: Task, reason: str, detail: str) -> None:
        plan = task.plan
        assert plan is not None
        self._drop(engine, plan.schedule, reason, plan.start, plan.start, detail)

    def _drop(
        self,
        engine: "Engine",
        name: str,
        reason: str,
        first: int,
        last: int,
        detail: str,
        count: int = 1,
        *,
        more: bool = False,
    ) -> None:
        self.dropped[reason] += count
        engine.step.at_once.append(OccurrenceDropped(name, reason, first, last, count, more, detail))

    # --- recovery

    def load(self, engine: "Engine", record: RecurringLoaded | RecurringDamaged) -> None:
        """Take in a stored schedule; it is armed by `recover`."""
        if isinstance(record, RecurringDamaged):
            self._damaged[record.name] = record.reason
            return
        stored, fired = record.stored, record.fired
        through, local, last = (stored.added, -1, 0) if fired is None else (fired.through, fired.local, fired.last_task)
        self._keep(engine, Schedule(stored.spec, stored.added, through, local, last))

    def recover(self, engine: "Engine") -> Iterator[None]:
        """Arm what is stored and what is configured, a unit of work per turn."""
        configured = {spec.name: spec for spec in engine.settings.recurring}
        for name, schedule in list(self._schedules.items()):
            asked = configured.get(name)
            if schedule.spec.configured and asked is None:
                self._delete(engine, name)
            elif asked is None or asked == schedule.spec:
                self._rearm(engine, schedule)
            yield from repeat(None, FIRE_UNITS)
        for name, asked in configured.items():
            known = self._schedules.get(name)
            if known is None or known.spec != asked:
                refusal = self.put(engine, asked, configured=True)
                if refusal is not None:
                    self._note(name, refusal.message)
                    if known is not None:
                        known.unarmed = refusal.message
            yield from repeat(None, FIRE_UNITS)
        for name, reason in self._damaged.items():
            self._note(name, f"the stored schedule cannot be read: {reason}")

    def _rearm(self, engine: "Engine", schedule: Schedule) -> None:
        checked = check(engine, schedule.spec, again=True)
        if isinstance(checked, Rejection):
            schedule.unarmed = checked.message
            self._note(schedule.spec.name, checked.message)
            return
        schedule.set_out(*checked)
        self._arm(schedule)

    def _note(self, name: str, reason: str) -> None:
        self.unarmed += 1
        if len(self.notes) < MAX_UNARMED_NAMES:
            self.notes.append((name, reason))

    # --- looking

    def views(self, engine: "Engine") -> list[RecurringView]:
        """All schedules that can be read, by name."""
        return [self._view(engine, self._schedules[name]) for name in sorted(self._schedules)]

    def _view(self, engine: "Engine", schedule: Schedule) -> RecurringView:
        upcoming = None if schedule.next is None else schedule.next.at
        if schedule.through > engine.wall() and upcoming is not None:
            ahead = self.live.at(schedule.spec.name, schedule.through)
            upcoming = schedule.through if ahead and ahead == schedule.last_task else upcoming
        return RecurringView(schedule.spec, upcoming, schedule.last_task)

    def statistics(self) -> dict[str, int]:
        """Sizes of what grows."""
        return {"schedules": len(self), "occurrences": self.live.count, "template_bytes": self.template_bytes}

    def check_invariants(self, engine: "Engine") -> None:
        """Recount everything."""
        schedules = self._schedules.values()
        size = sum(schedule.spec.template.size for schedule in schedules)
        assert self.template_bytes == size, "bytes of templates are miscounted"
        for schedule in schedules:
            places = (schedule.entry is not None) + (schedule.timer is not None)
            assert places == (schedule.next is not None), f"{schedule} does not stand in one place"
            assert schedule.next is None or schedule.next.at > schedule.through, f"{schedule} fires again"
            assert schedule.next is None or not schedule.unarmed, f"{schedule} is not armed but fires"
            assert schedule.spec.name not in self._damaged, f"{schedule} is there and damaged"
        armed = [schedule for schedule in schedules if schedule.pool is not None]
        assert self.armed == len(armed), "armed schedules are miscounted"
        for pool in engine.pools.values():
            mine = sum(schedule.pool is pool for schedule in armed)
            assert pool.schedules == mine, f"pool {pool.name}: its schedules are miscounted"
        assert len(self._ahead) == sum(schedule.entry is not None for schedule in schedules), "schedules ahead"
        assert len(self._waiting) == sum(schedule.timer is not None for schedule in schedules), "waiting schedules"
        plans = [(task.id, task.plan) for task in engine.tasks.live.values() if task.plan is not None]
        index = sorted((plan.schedule, plan.start, task_id) for task_id, plan in plans if plan.schedule)
        assert index == sorted(self.live.all()), "the index of occurrences is not what the tasks say"
        assert len(index) == self.live.count, "live occurrences are miscounted"
