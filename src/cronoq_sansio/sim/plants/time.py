"""Bugs in what happens at a time of the wall clock: fixed starts, recurring schedules, targets for slots."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import autoscale, dispatch, lifecycle, occurrences, pump, recurring, reservations
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.engine.lanes import StartLane
from cronoq_sansio.engine.occurrences import Occurrences
from cronoq_sansio.engine.recurring import Recurring
from cronoq_sansio.engine.reservations import FixedStarts
from cronoq_sansio.engine.schedules import Missed, Schedule
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing

BED = Bed()
plant = BED.plant


# --- fixed starts


@plant
def missed_at_the_last_moment(patch: Patch) -> None:
    """A start at the very end of its tolerance counts as missed."""
    before = reservations.missed
    for module in (reservations, pump):
        patch.setattr(module, "missed", lambda task, wall: before(task, wall + 1))


@plant
def holds_stay_on_slots_that_are_gone(patch: Patch) -> None:
    """A worker leaves, and a fixed start still counts on its slot."""
    patch.setattr(FixedStarts, "cut", nothing)


@plant
def any_number_of_slots_is_held(patch: Patch) -> None:
    """Fixed starts may hold every slot of a pool."""
    patch.setattr(Pool, "may_hold", lambda _: True)


@plant
def the_lead_ignores_the_tolerance(patch: Patch) -> None:
    """A slot is held only from the moment of the start on."""
    patch.setattr(reservations, "MAX_HOLD", 0)


@plant
def the_lead_is_the_median(patch: Patch) -> None:
    """A slot is held so late that every second start finds its pool busy."""
    patch.setattr(dispatch, "LEAD_PERCENT", 50)


@plant
def due_starts_go_by_their_ids(patch: Patch) -> None:
    """Of the starts that are due the oldest task goes first, not the earliest start."""
    patch.setattr(StartLane, "rank", lambda self, task: task.id)


@plant
def touching_reservations_overlap(patch: Patch) -> None:
    """A start is refused because another reservation ends in the moment in which it begins."""
    patch.wrap(Calendar, "peak", lambda before: lambda self, begin, end: before(self, begin - 1, end + 1))


@plant
def refused_tasks_keep_their_reservation(patch: Patch) -> None:
    """A task that is not taken in stays in the calendar."""
    patch.setattr(reservations, "unbook", nothing)


@plant
def late_starts_are_hits(patch: Patch) -> None:
    """The figures count a late start as one in time."""
    patch.wrap(FixedStarts, "started", lambda before: lambda self, task, wall: before(self, task, 0))


@plant
def fixed_starts_teach_their_pool(patch: Patch) -> None:
    """The durations of tasks with a fixed start change what is thought of all others."""
    patch.wrap(
        Durations, "add", lambda before: lambda self, kind, duration, *, fixed=False: before(self, kind, duration)
    )


@plant
def fixed_starts_are_shed(patch: Patch) -> None:
    """A full pool drops a task whose start was promised."""
    patch.setattr(lifecycle, "_is_fixed", lambda _: False)


@plant
def starts_ignore_the_clock_of_the_host(patch: Patch) -> None:
    """After the wall clock was set a start is looked for at its old moment."""
    patch.setattr(FixedStarts, "next_timeout", lambda self, _: self._due.next())


@plant
def recovery_leaves_missed_starts_alone(patch: Patch) -> None:
    """A start that was missed while no server ran still runs."""
    patch.setattr(FixedStarts, "is_due", lambda *_: False)


# --- recurring schedules


@plant
def the_guard_against_overlaps_moves_on(patch: Patch) -> None:
    """Only the occurrence just before is looked at, as if one that was skipped were it."""

    def make(before: Any) -> Any:
        def overlapping(self: Any, of: Any, task: Any) -> str:
            schedule, start = self._schedules.get(task.plan.schedule), task.plan.start
            if schedule is not None and schedule.cron is not None:
                fire = schedule.cron.latest(start - 86_400 * SECOND, start - 1)
                if fire is not None and not self.live.at(task.plan.schedule, fire.at):
                    return ""
            return str(before(self, of, task))

        return overlapping

    patch.wrap(Recurring, "overlapping", make)


@plant
def schedules_go_back(patch: Patch) -> None:
    """The row of a schedule says that it has dealt with less than it has."""

    def make(before: Any) -> Any:
        def fired(self: Any) -> Any:
            record = before(self)
            return replace(record, through=record.through - SECOND)

        return fired

    patch.wrap(Schedule, "fired", make)


@plant
def keys_of_occurrences_lack_their_zone(patch: Patch) -> None:
    """The key of an occurrence does not say that its time is UTC."""
    patch.wrap(occurrences, "key_of", lambda before: lambda prefix, start: before(prefix, start)[:-1])


@plant
def occurrences_are_made_twice(patch: Patch) -> None:
    """After a restart an occurrence that exists is made once more."""
    patch.setattr(Occurrences, "at", lambda *_: 0)


@plant
def every_missed_fire_runs(patch: Patch) -> None:
    """Each fire that passed while nobody served becomes a task."""
    patch.setattr(recurring, "pass_over", lambda schedule, *_: Missed(schedule.next, True, 0, 0, 0, False, ""))


@plant
def late_fires_run_beside_each_other(patch: Patch) -> None:
    """A missed fire runs late although the one before it still has to run late itself."""
    patch.setattr(Recurring, "_still_to_run", lambda *_: 0)


@plant
def nobody_hears_of_dropped_fires(patch: Patch) -> None:
    """A fire becomes nothing, and no counter and no line of the log says so."""
    patch.setattr(Recurring, "_drop", nothing)


@plant
def occurrences_do_not_queue(patch: Patch) -> None:
    """An occurrence does not wait for the one before it, whatever its schedule asks for."""
    patch.setattr(occurrences, "QUEUES", {})


@plant
def replacing_begins_anew(patch: Patch) -> None:
    """A schedule that is put again with the same times forgets which fires it has dealt with."""
    patch.setattr(Schedule, "timing", lambda _: object())


@plant
def callers_change_what_the_file_says(patch: Patch) -> None:
    """A caller replaces a schedule of the configuration file."""
    patch.wrap(
        Recurring,
        "put",
        lambda before: lambda self, of, spec, *, configured=False: before(self, of, spec, configured=True),
    )


@plant
def removed_schedules_come_back(patch: Patch) -> None:
    """A schedule that was removed is there again after a restart."""

    def make(before: Any) -> Any:
        def delete(self: Any, of: Any, name: str) -> None:
            before(self, of, name)
            of.step.writes.pop()

        return delete

    patch.wrap(Recurring, "_delete", make)


# --- the autoscaler


@plant
def targets_go_down_by_two(patch: Patch) -> None:
    """A pool loses two slots where it should lose one at a time."""

    def make(before: Any) -> Any:
        def step_down(self: Any, floor: int, tick: int, end: int) -> Any:
            last = before(self, floor, tick, end)
            self.current = max(self.current - 1, floor)
            return last

        return step_down

    patch.wrap(autoscale.Scaler, "_step_down", make)


@plant
def targets_see_reservations_too_late(patch: Patch) -> None:
    """A pool is scaled up for a fixed start only a second before it."""
    patch.setattr(autoscale, "SIGHT", SECOND)


@plant
def targets_forget_the_last_minute(patch: Patch) -> None:
    """A pool is scaled down as soon as it looks idle."""
    patch.setattr(autoscale, "STABLE", 1)


@plant
def targets_go_up_one_at_a_time(patch: Patch) -> None:
    """A pool under load gets one slot where it should get half of what is missing."""
    patch.setattr(autoscale, "STEP_UP", 1)
