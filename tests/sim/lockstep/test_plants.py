"""Faults planted in the engine, each of which the lockstep must find: a test that cannot fail shows nothing."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import (
    admission,
    autoscale,
    dependencies,
    dispatch,
    engine,
    labels,
    leases,
    lifecycle,
    occurrences,
    pump,
    recurring,
    reservations,
    stocks,
    victims,
)
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.autoscale import Scaler
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.fair_share import Shares
from cronoq_sansio.engine.lanes import StartLane
from cronoq_sansio.engine.occurrences import Occurrences
from cronoq_sansio.engine.records import EdgeResolved
from cronoq_sansio.engine.recurring import Recurring
from cronoq_sansio.engine.reservations import FixedStarts
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.schedules import Missed, Schedule
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.engine.waiting_room import WaitingRoom
from cronoq_sansio.sim.choices import RandomChoices
from cronoq_sansio.sim.lockstep.shorten import shortened
from cronoq_sansio.sim.lockstep.workload import Workload, some_world
from cronoq_sansio.sim.lockstep.world import Divergence
from cronoq_sansio.spec import TaskStatus


def nothing(*_):
    """Stands in for what is left out."""


def without(event):
    """The engine does not react to an event."""
    return lambda patch: patch.setitem(engine.HANDLERS, event, nothing)


def later(patch):
    before = Engine.next_timeout
    patch.setattr(Engine, "next_timeout", lambda self: (due := before(self)) and due + SECOND)


def too_early(patch):
    before = admission.submit
    patch.setattr(admission, "submit", lambda *args: (answer := before(*args)) and (answer[0], 0))


def forgets_appeared_keys(patch):
    before = dependencies.Dependencies.settle

    def settle(self, of, units):
        left = before(self, of, units)
        of.step.writes = [record for record in of.step.writes if type(record) is not EdgeResolved]
        return left

    patch.setattr(dependencies.Dependencies, "settle", settle)


def burns_an_attempt(patch):
    before = lifecycle.take_back

    def take_back(of, lease):
        before(of, lease)
        lease.task.attempt += 1

    patch.setattr(lifecycle, "take_back", take_back)


def ignores_virtual_time(patch):
    patch.setattr(Shares, "dispatched", nothing)


# --- fixed starts


def late_too_soon(patch):
    """Who stands at the last moment of its tolerance counts as missed."""
    before = reservations.missed
    for module in (reservations, pump):
        patch.setattr(module, "missed", lambda task, wall: before(task, wall + 1))


def touching_conflicts(patch):
    before = Calendar.peak
    patch.setattr(Calendar, "peak", lambda self, begin, end: before(self, begin - 1, end + 1))


def forgets_to_unbook(patch):
    patch.setattr(reservations, "unbook", nothing)


def counts_late_starts(patch):
    before = FixedStarts.started
    patch.setattr(FixedStarts, "started", lambda self, task, wall: before(self, task, 0))


def starts_teach_the_pool(patch):
    before = Durations.add
    patch.setattr(Durations, "add", lambda self, kind, duration, *, fixed=False: before(self, kind, duration))


def holds_on_crowded_groups(patch):
    patch.setattr(FixedStarts, "cut", nothing)


def sheds_fixed_starts(patch):
    patch.setattr(lifecycle, "_is_fixed", lambda _: False)


# --- recurring schedules


def guard_moves_on(patch):
    """Only the latest one before is looked at, as if those that were skipped were it."""
    before = Recurring.overlapping

    def overlapping(self, of, task):
        schedule, start = self._schedules.get(task.plan.schedule), task.plan.start
        if schedule is not None and schedule.cron is not None:
            fire = schedule.cron.latest(start - 86_400 * SECOND, start - 1)
            if fire is not None and not self.live.at(task.plan.schedule, fire.at):
                return ""
        return before(self, of, task)

    patch.setattr(Recurring, "overlapping", overlapping)


def through_goes_back(patch):
    before = Schedule.fired

    def fired(self):
        record = before(self)
        return replace(record, through=record.through - SECOND)

    patch.setattr(Schedule, "fired", fired)


def keys_without_z(patch):
    before = occurrences.key_of
    patch.setattr(occurrences, "key_of", lambda prefix, start: before(prefix, start)[:-1])


def every_missed_fire_runs(patch):
    patch.setattr(recurring, "pass_over", lambda schedule, *_: Missed(schedule.next, True, 0, 0, 0, False, ""))


def callers_change_the_file(patch):
    before = Recurring.put
    patch.setattr(Recurring, "put", lambda self, of, spec, *, configured=False: before(self, of, spec, configured=True))


def removes_for_a_while(patch):
    before = Recurring._delete

    def delete(self, of, name):
        before(self, of, name)
        of.step.writes.pop()

    patch.setattr(Recurring, "_delete", delete)


# --- the autoscaler


def goes_down_by_two(patch):
    before = Scaler._step_down

    def step_down(self, floor, tick, end):
        last = before(self, floor, tick, end)
        self.current = max(self.current - 1, floor)
        return last

    patch.setattr(Scaler, "_step_down", step_down)


PLANTS = {
    "waiting counts for less": lambda patch: patch.setattr(dispatch, "AGING", 1),
    "urgency has another horizon": lambda patch: patch.setattr(dispatch, "MIN_HORIZON", SECOND),
    "overdue tasks rise faster": lambda patch: patch.setattr(dispatch, "OVERDUE", 200),
    "dead letters are no failures": lambda patch: patch.setattr(dependencies, "FAILURES", (int(TaskStatus.FAILED),)),
    "cycles through awaited keys pass": lambda patch: patch.setattr(
        dependencies.Dependencies, "awaited", lambda *_: False
    ),
    "keys that appeared are not stored": forgets_appeared_keys,
    "the wrong victim": lambda patch: patch.setattr(victims, "SHED_LOWEST", "something else"),
    "tokens do not come back": lambda patch: patch.setattr(stocks.Bucket, "give_back", nothing),
    "places are not kept": lambda patch: patch.setattr(Resources, "give_back", Resources.release),
    "estimates learn nothing": lambda patch: patch.setattr(Durations, "estimate", lambda self, _: self._default),
    "tenants ignore virtual time": ignores_virtual_time,
    "labelled groups are no rarer": lambda patch: patch.setattr(
        labels.Group, "rank", lambda group: (0, group.busy - group.capacity, group.number)
    ),
    "heartbeats are ignored": without(ev.LeaseRenewed),
    "stalls are ignored": without(ev.Stalled),
    "limits are ignored": without(ev.ResourceLimitSet),
    "nobody can withdraw": without(ev.SubmissionWithdrawn),
    "timeouts are ignored": lambda patch: patch.setattr(
        leases, "_due", lambda lease: lease.beat + lease.task.pool.settings.lease_ttl
    ),
    "lines do not wait for their turn": lambda patch: patch.setattr(WaitingRoom, "has_line", lambda *_: False),
    "a dispatch taken back costs an attempt": burns_an_attempt,
    "wakes up too late": later,
    "answers before it is durable": too_early,
    "ended tasks are remembered too long": lambda patch: patch.setattr(TaskTable, "expire", nothing),
    "missed at the last moment": late_too_soon,
    "holds stay on slots that are gone": holds_on_crowded_groups,
    "any number of slots is held": lambda patch: patch.setattr(Pool, "may_hold", lambda _: True),
    "the lead ignores the tolerance": lambda patch: patch.setattr(reservations, "MAX_HOLD", 0),
    "the lead is the median": lambda patch: patch.setattr(dispatch, "LEAD_PERCENT", 50),
    "due starts go by their ids": lambda patch: patch.setattr(StartLane, "rank", lambda self, task: task.id),
    "touching reservations overlap": touching_conflicts,
    "refused tasks keep their reservation": forgets_to_unbook,
    "late starts are hits": counts_late_starts,
    "fixed starts teach their pool": starts_teach_the_pool,
    "fixed starts are shed": sheds_fixed_starts,
    "starts ignore the host's clock": lambda patch: patch.setattr(
        FixedStarts, "next_timeout", lambda self, _: self._due.next()
    ),
    "recovery leaves missed starts alone": lambda patch: patch.setattr(FixedStarts, "is_due", lambda *_: False),
    "the guard against overlaps moves on": guard_moves_on,
    "schedules go back": through_goes_back,
    "keys of occurrences lack their zone": keys_without_z,
    "occurrences are made twice": lambda patch: patch.setattr(Occurrences, "at", lambda *_: 0),
    "every missed fire runs": every_missed_fire_runs,
    "late fires run beside each other": lambda patch: patch.setattr(Recurring, "_still_to_run", lambda *_: 0),
    "nobody hears of dropped fires": lambda patch: patch.setattr(Recurring, "_drop", nothing),
    "occurrences do not queue": lambda patch: patch.setattr(occurrences, "QUEUES", {}),
    "replacing begins anew": lambda patch: patch.setattr(Schedule, "timing", lambda _: object()),
    "callers change what the file says": callers_change_the_file,
    "removed schedules come back": removes_for_a_while,
    "targets go down by two": goes_down_by_two,
    "targets see reservations too late": lambda patch: patch.setattr(autoscale, "SIGHT", SECOND),
    "targets forget the last minute": lambda patch: patch.setattr(autoscale, "STABLE", 1),
    "targets go up one at a time": lambda patch: patch.setattr(autoscale, "STEP_UP", 1),
}


@pytest.mark.parametrize("name", PLANTS)
def test_the_lockstep_finds(name, monkeypatch):
    PLANTS[name](monkeypatch)
    for seed in (3, 2, 5, 6, 1, 4):
        world = some_world(seed)
        try:
            Workload(world, RandomChoices(seed)).live(8_000)
        except Divergence as divergence:
            assert divergence.what in str(divergence)
            return
    raise AssertionError("nothing was found")


def test_a_difference_is_cut_down_to_a_readable_transcript(monkeypatch):
    PLANTS["labelled groups are no rarer"](monkeypatch)
    world = some_world(5)
    with pytest.raises(Divergence) as caught:
        Workload(world, RandomChoices(5)).live(8_000)
    short = shortened(world, caught.value)
    assert short.what == caught.value.what
    lines = str(short).splitlines()
    assert len(lines) < len(str(caught.value).splitlines())
    assert any("expected" in line for line in lines) and any("found" in line for line in lines)
    assert sum("Submitted" in line for line in lines) <= 2
