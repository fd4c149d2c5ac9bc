"""Recurring schedules (engine.md section 11), one fire after the other.

A schedule knows how far it has come (`through`) and looks at the next fire after that. Whether occurrences exist is
counted from the live tasks, whose tag says whose they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.cron import Cron, compile_cron
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import FIRE_UNITS, MAX_COUNTED_FIRES, MAX_HOLD, MAX_UNITS
from cronoq_sansio.sim.lockstep import model_admission as admission
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep.model_state import PLAIN, RECURRING, NaiveSchedule, NaiveTask, Refusal
from cronoq_sansio.spec import Condition, Dependency, MissPolicy, Overlap, RecurringSpec, TaskSpec, TaskStatus, weight

if TYPE_CHECKING:
    from cronoq_sansio.sim.lockstep.model import Model

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# --- adding and removing


def put(model: "Model", event: ev.RecurringPut) -> None:
    """Somebody adds or replaces a schedule."""
    spec = event.spec
    known = model.schedules.get(spec.name)
    if known is not None and known.spec.configured:
        refusal: Refusal | None = Refusal(Code.FAILED_PRECONDITION.value)
    else:
        refusal = refused(model, spec)
    if refusal is not None:
        model.note("put", refusal.code)
        model.said.append(("refused", event.request, refusal.code, ()))
        return
    model.note("put", "added" if known is None else "kept on" if same_times(known.spec, spec) else "begins anew")
    arm(model, spec)
    model.said.append(("recurring added", event.request))


def refused(model: "Model", spec: RecurringSpec) -> Refusal | None:
    """Why this schedule cannot be there from now on."""
    if not supported(model, spec) or begun(model, spec).next is None:
        return Refusal(Code.INVALID.value)
    others = [known.spec.template for name, known in model.schedules.items() if name != spec.name]
    held = sum(template.size for template in others) + sum(weight(task.spec) for task in model.tasks.values())
    if held + spec.template.size > model.limits.max_payload_bytes:
        return Refusal(Code.OVERLOADED.value)
    return None


def arm(model: "Model", spec: RecurringSpec) -> None:
    """The schedule is there from now on."""
    model.schedules[spec.name] = begun(model, spec)


def begun(model: "Model", spec: RecurringSpec) -> NaiveSchedule:
    """The schedule as it begins now, or goes on where the one of its name was."""
    known = model.schedules.get(spec.name)
    schedule = NaiveSchedule(spec, compiled(spec), model.wall())
    if known is not None:
        schedule.last_task = known.last_task
        if same_times(known.spec, spec):
            schedule.through, schedule.local = known.through, known.local
    schedule.resume()
    return schedule


def same_times(one: RecurringSpec, other: RecurringSpec) -> bool:
    """Both fire at the same times."""
    return (one.cron, one.tz, one.gap, one.fold) == (other.cron, other.tz, other.gap, other.fold)


def compiled(spec: RecurringSpec) -> Cron | None:
    """The expression; None when there is none such."""
    cron = compile_cron(spec.cron, spec.tz, spec.gap, spec.fold)
    return None if isinstance(cron, str) else cron


def supported(model: "Model", spec: RecurringSpec) -> bool:
    """The tasks of this schedule could run."""
    asked = spec.template.scheduling or PLAIN
    times = (asked.deadline, asked.start, asked.start_in)
    if compiled(spec) is None or asked.dependencies or times != (None, None, None):
        return False
    return admission.check(model, spec.template, {}) is None


def remove(model: "Model", event: ev.RecurringRemoved) -> None:
    """Somebody removes a schedule; its tasks stay."""
    known = model.schedules.get(event.name)
    if known is not None and known.spec.configured:
        model.note("remove", "configured")
        model.said.append(("refused", event.request, Code.FAILED_PRECONDITION.value, ()))
        return
    model.note("remove", "nobody has it" if known is None else "removed")
    model.schedules.pop(event.name, None)
    model.said.append(("recurring gone", event.request, known is not None))


# --- time


def due(model: "Model", schedule: NaiveSchedule) -> int:
    """When the next fire is dealt with, wall time: some time ahead, but one occurrence at a time."""
    assert schedule.next is not None
    pool = admission.pool_of(model, schedule.spec.template)
    assert pool is not None
    tolerance = schedule.asked.tolerance
    ahead = tolerance + max(min(tolerance, MAX_HOLD), starts.lead(model, pool))
    return max(schedule.through, schedule.next - ahead)


def moments(model: "Model") -> list[int]:
    """When a schedule is due, wall time."""
    return [due(model, schedule) for schedule in model.schedules.values() if schedule.next is not None]


def fire(model: "Model") -> None:
    """A timer fired: what is due happens, the earliest first."""
    for _ in range(MAX_UNITS // FIRE_UNITS):
        armed = [schedule for schedule in model.schedules.values() if schedule.next is not None]
        ready = [(due(model, schedule), schedule.spec.name) for schedule in armed]
        ready = [entry for entry in ready if entry[0] <= model.wall()]
        if not ready:
            return
        act(model, model.schedules[min(ready)[1]])


def act(model: "Model", schedule: NaiveSchedule) -> None:
    """One fire is dealt with, or all that passed while nobody looked."""
    assert schedule.fire is not None and schedule.cron is not None
    wall, tolerance = model.wall(), schedule.asked.tolerance
    fires = [schedule.fire]
    for skipped in schedule.fire.skipped:
        model.note("fire", "left out by the clocks")
        drop(model, schedule.spec.name, "gap", [skipped])
    while (after := schedule.cron.next(fires[-1].at)) is not None and after.at <= wall:
        fires.append(after)
    last, late = fires[-1].at, fires[-1].at + tolerance < wall
    earlier = [task for task in occurrences(model, schedule.spec.name) if (task.asked.start or 0) < last]
    latest = max(earlier, key=lambda task: (task.asked.start, task.id), default=None)
    waits = latest is not None and not latest.attempt  # it is late itself: one late run is enough
    runs = not late or (schedule.asked.on_miss == MissPolicy.RUN_LATE and not waits)
    if late and waits:
        model.note("fire", "an earlier one runs late")
    lost = [one.at for one in (fires[:-1] if runs else fires)]
    if lost:
        model.note("fire", "one missed" if len(lost) == 1 else "several missed")
        drop(model, schedule.spec.name, "missed", lost)
    if runs:
        occur(model, schedule, last, "late" if late else "in time", fires[-1].mark)
    schedule.through, schedule.local = last, fires[-1].local
    schedule.fire = schedule.cron.next(last)


def drop(model: "Model", name: str, reason: str, fires: Sequence[int]) -> None:
    """These fires do not happen, or not as asked."""
    count = min(len(fires), MAX_COUNTED_FIRES)
    model.dropped[reason] += count
    model.said.append(("dropped", name, reason, fires[0], fires[-1], count, count < len(fires)))


# --- occurrences


def shown_next(model: "Model", schedule: NaiveSchedule) -> int | None:
    """The next start: of the occurrence that is there already, if it was made last; else the next fire."""
    ahead = [task for task in occurrences(model, schedule.spec.name) if task.fixed_start == schedule.through]
    if schedule.through > model.wall() and schedule.next is not None and ahead and ahead[0].id == schedule.last_task:
        return schedule.through
    return schedule.next


def occurrences(model: "Model", name: str) -> list[NaiveTask]:
    """Live ones, earliest start first."""
    return [task for task in starts.fixed(model) if task.schedule == name]


def occur(model: "Model", schedule: NaiveSchedule, at: int, how: str, mark: str) -> None:
    """Make the occurrence of a fire, unless it exists. `mark`: what day-light saving made of it."""
    name = schedule.spec.name
    alike = occurrences(model, name)
    existing = next((task for task in alike if task.fixed_start == at), None)
    if existing is not None:
        model.note("fire", "exists")
        schedule.last_task = existing.id
        return
    spec = occurrence_of(schedule, at, [task for task in alike if task.fixed_start < at])
    foreign = bool(spec.key) and model.by_key(spec.key) is not None
    if foreign:
        spec = replace(spec, key="")
    refusal = admission.take(model, spec)
    if isinstance(refusal, Refusal):
        reason = REASONS.get(refusal.code, "invalid")
        model.note("fire", reason)
        drop(model, name, reason, [at])
        return
    model.note("fire", f"made {how}")
    if mark:
        model.note("fire", mark)
    if foreign:
        model.note("fire", "foreign key")
        drop(model, name, "foreign_key", [at])
    task = admission.admit(model, spec, admission.parents_of(model, spec), {})
    if refusal is not None:
        model.end(refusal, TaskStatus.SHED)
    schedule.last_task = task.id


REASONS = {
    Code.RESERVATION_CONFLICT.value: "conflict",
    Code.OVERLOADED.value: "overload",
    Code.FULL.value: "overload",
}


def occurrence_of(schedule: NaiveSchedule, at: int, before: Sequence[NaiveTask]) -> TaskSpec:
    """The task of the fire `at`; `before`: live ones with an earlier start."""
    template, asked = schedule.spec.template, schedule.asked
    conditions = {Overlap.QUEUE: Condition.ON_COMPLETE, Overlap.QUEUE_ON_SUCCESS: Condition.ON_SUCCESS}
    condition = conditions.get(Overlap(schedule.spec.overlap))
    edges = (Dependency(before[-1].id, condition.value),) if before and condition is not None else ()
    deadline = None if asked.deadline_in is None else at + asked.deadline_in
    scheduling = replace(asked, start=at, deadline=deadline, deadline_in=None, dependencies=edges)
    key = f"{template.key}@{utc(at)}" if template.key else ""
    tags = tuple(sorted([*template.tags, (RECURRING, schedule.spec.name)]))
    return replace(template, key=key, tags=tags, scheduling=scheduling)


def utc(at: int) -> str:
    """A wall time of whole seconds as RFC 3339 has it."""
    return (EPOCH + timedelta(seconds=at // SECOND)).strftime("%Y-%m-%dT%H:%M:%SZ")


def overlaps(model: "Model", task: NaiveTask) -> bool:
    """The start of an occurrence has come, and an earlier one is still live that it must not run beside."""
    schedule = model.schedules.get(task.schedule)
    if schedule is None or schedule.spec.overlap != Overlap.SKIP:
        return False
    return any(other.fixed_start < task.fixed_start for other in occurrences(model, task.schedule))


def fail(model: "Model", task: NaiveTask) -> None:
    """The task is left out because the one that it depends on did not end as it has to."""
    if task.schedule:
        model.note("fire", "predecessor")
        drop(model, task.schedule, "predecessor", [task.fixed_start])
    model.end(task, TaskStatus.SKIPPED)


def skip(model: "Model", task: NaiveTask) -> None:
    """The occurrence is left out for the sake of an earlier one."""
    model.note("fire", "overlap")
    drop(model, task.schedule, "overlap", [task.fixed_start])
    model.end(task, TaskStatus.SKIPPED)
