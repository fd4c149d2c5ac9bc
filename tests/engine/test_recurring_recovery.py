"""Recurring schedules over restarts: downtime, other configurations, other rules for a zone, damaged rows."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import schedules
from cronoq_sansio.engine.actions import RecurringAdded, RecurringGone
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import (
    RecurringDamaged,
    RecurringDeleted,
    RecurringFired,
    RecurringLoaded,
    RecurringStored,
)
from cronoq_sansio.limits import MAX_UNARMED_NAMES
from cronoq_sansio.settings import LimitSettings, ResourceSettings, Settings
from cronoq_sansio.spec import MissPolicy, Overlap
from tests.engine.harness import Rig, pool, spec
from tests.engine.naive_store import NaiveStore
from tests.engine.schedules import HOUR, MINUTE, NINE, at, drops, live, put, put_refused, remove, schedule, to, view

TEN = NINE + HOUR
DAY = 24 * HOUR
FIVE = "*/5 * * * *"


class Site:
    """A rig whose steps are written, and that can crash."""

    def __init__(self, *pools, resources=(), now=NINE):
        self.store = NaiveStore()
        self.rig = Rig(*(pools or (pool(lease_ttl=10 * DAY),)), resources=resources, now=now)
        take = self.rig.take

        def write_and_take(step):
            self.store.write(step.writes)
            take(step)

        self.rig.take = write_and_take

    def crash(self, until, *configured, settings=None, **changes):
        """Down until then; then with this configuration, and what is due at once."""
        settings = settings or self.rig.settings
        engine = self.store.recover(replace(settings, recurring=configured), until, **changes)
        engine.check_invariants(None)
        self.rig.adopt(engine)
        self.began = engine.step
        self.rig.advance(0)
        return self.rig


def names(step):
    """What a step writes of schedules."""
    found = []
    for record in step.writes:
        if isinstance(record, RecurringStored | RecurringFired | RecurringDeleted):
            name = record.spec.name if isinstance(record, RecurringStored) else record.name
            found.append((type(record).__name__.removeprefix("Recurring"), name))
    return found


# --- downtime


def test_one_that_was_made_ahead_is_the_late_one_after_a_long_time_without_service():
    site = Site()
    put(site.rig, schedule(cron=FIVE))
    to(site.rig, NINE + 5 * MINUTE - SECOND)
    ((start, ahead),) = live(site.rig)
    rig = site.crash(NINE + 182 * MINUTE)
    assert live(rig) == [(start, ahead)], "no other one is made"
    (drop,) = rig.drops
    assert (drop.reason, drop.count) == ("missed", 35)
    assert f"task {ahead} of an earlier one still has to" in drop.detail
    rig.slots(1)
    assert rig.order() == [ahead]
    rig.complete(ahead)
    to(rig, NINE + 185 * MINUTE)
    assert [start for start, _ in live(rig)] == [NINE + 185 * MINUTE], "the schedule goes on from the present"


def test_down_over_a_fire_for_three_seconds():
    """09:59:58 to 10:00:01: one task, start 10:00, late by one second."""
    site = Site()
    put(site.rig, schedule(tolerance=0))
    to(site.rig, TEN - 2 * SECOND)
    assert not live(site.rig)
    rig = site.crash(TEN + SECOND)
    rig.slots(1)
    ((start, task),) = live(rig)
    assert start == TEN and rig.status(task) == "RUNNING"
    assert rig.engine.tasks.live[task].first_started == TEN + SECOND
    to(rig, TEN + 23 * HOUR)
    assert len(live(rig)) == 1 and not rig.drops


def test_down_while_an_occurrence_was_ahead():
    site = Site()
    put(site.rig, schedule())
    to(site.rig, TEN - 2 * SECOND)
    (before,) = live(site.rig)
    rig = site.crash(TEN + SECOND)
    assert live(rig) == [before] and view(rig).last_task == before[1]
    rig.slots(1)
    assert rig.status(before[1]) == "RUNNING" and view(rig).next == TEN + DAY


def test_down_for_three_hours_of_five_minutes():
    """Exactly one late fire, then from the present on."""
    site = Site()
    put(site.rig, schedule(cron=FIVE, overlap=Overlap.ALLOW))
    to(site.rig, NINE + MINUTE)
    rig = site.crash(NINE + 3 * HOUR + 2 * MINUTE)
    assert [start for start, _ in live(rig)] == [NINE + 3 * HOUR]
    assert drops(rig) == [("missed", NINE + 5 * MINUTE, NINE + 3 * HOUR - 5 * MINUTE, 35, False)]
    to(rig, NINE + 3 * HOUR + 11 * MINUTE)
    assert [start for start, _ in live(rig)] == [NINE + 3 * HOUR + late * MINUTE for late in (0, 5, 10)]


@pytest.mark.parametrize("policy", [MissPolicy.SKIP, MissPolicy.FAIL])
def test_down_too_long_for_one_that_must_not_be_late(policy):
    site = Site()
    put(site.rig, schedule(on_miss=policy))
    rig = site.crash(TEN + MINUTE)
    assert not live(rig) and drops(rig) == [("missed", TEN, TEN, 1, False)] and view(rig).next == TEN + DAY
    rig = site.crash(TEN + 2 * MINUTE)
    assert not rig.drops, "that was stored"


def test_down_over_the_start_of_one_whose_predecessor_still_runs():
    site = Site()
    site.rig.slots(1)
    put(site.rig, schedule(cron=FIVE))
    to(site.rig, NINE + 10 * MINUTE - SECOND)
    (_, first), (_, second) = live(site.rig)
    rig = site.crash(NINE + 10 * MINUTE + SECOND)
    assert (rig.status(first), rig.status(second)) == ("RETRYING", "SKIPPED")
    assert (
        site.began.at_once[0].reason == "overlap" and dict(rig.engine.snapshot(0).occurrences_dropped)["overlap"] == 1
    )


def test_an_attempt_that_was_lost_is_never_skipped():
    site = Site()
    site.rig.slots(1)
    put(site.rig, schedule(cron=FIVE))
    to(site.rig, NINE + 5 * MINUTE)
    ((_, first),) = live(site.rig)
    rig = site.crash(NINE + 7 * MINUTE)
    rig.slots(1)
    to(rig, NINE + 9 * MINUTE)
    assert rig.status(first) == "RUNNING" and rig.lease(first).attempt == 2


def test_a_queue_goes_on_after_a_restart():
    site = Site()
    site.rig.slots(9)
    put(site.rig, schedule(cron=FIVE, overlap=Overlap.QUEUE))
    to(site.rig, NINE + 15 * MINUTE)
    assert [site.rig.status(task) for _, task in live(site.rig)] == ["RUNNING", "BLOCKED", "BLOCKED"]
    rig = site.crash(NINE + 18 * MINUTE)
    rig.slots(9)
    to(rig, NINE + 20 * MINUTE)
    made = live(rig)
    assert [start for start, _ in made] == [NINE + time * MINUTE for time in (5, 10, 15, 20)]
    for _, task in made:
        assert [rig.status(one) for _, one in live(rig)] == ["RUNNING"] + ["BLOCKED"] * (len(live(rig)) - 1)
        rig.complete(task)


# --- what is stored


def test_nothing_is_written_again_without_need():
    site = Site()
    put(site.rig, schedule("a"), schedule("b", cron=FIVE))
    rig = site.crash(NINE + MINUTE)
    assert not site.began.writes and [one.spec.name for one in rig.engine.list_recurring()] == ["a", "b"]


def test_a_schedule_that_never_fired_counts_from_its_addition():
    site = Site()
    put(site.rig, schedule(cron=FIVE))
    assert site.store.fired == {}
    rig = site.crash(NINE + 6 * MINUTE)
    assert [start for start, _ in live(rig)] == [NINE + 5 * MINUTE]


def test_what_replaced_another_one_counts_from_then():
    site = Site()
    put(site.rig, schedule(cron=FIVE))
    to(site.rig, NINE + 6 * MINUTE)
    put(site.rig, schedule(cron="0 * * * *"))
    rig = site.crash(NINE + 7 * MINUTE)
    assert len(live(rig)) == 1 and view(rig).next == TEN
    assert view(rig).last_task == live(rig)[0][1]


def test_removed_ones_stay_removed():
    site = Site()
    put(site.rig, schedule())
    remove(site.rig)
    rig = site.crash(TEN)
    assert rig.engine.list_recurring() == [] and not live(rig)


@pytest.mark.parametrize(
    ("cron", "after", "first"),
    [
        ("0 10 * * *", "Etc/GMT-1", "2027-03-11T09:00:00"),
        ("0 10 * * *", "Etc/GMT+1", "2027-03-11T11:00:00"),
        ("0 * * * *", "Etc/GMT-1", "2027-03-10T11:00:00"),
        ("0 * * * *", "Etc/GMT+1", "2027-03-10T12:00:00"),
    ],
)
def test_other_rules_for_a_zone_repeat_nothing(monkeypatch, cron, after, first):
    """Ten o'clock has been dealt with, wherever it lies now: an hour earlier, or an hour later and still to come."""
    site = Site()
    put(site.rig, schedule(cron=cron, tz="Etc/GMT"))
    to(site.rig, TEN)
    (before,) = live(site.rig)
    compiled = schedules.compile_cron
    monkeypatch.setattr(schedules, "compile_cron", lambda cron, _tz, gap, fold: compiled(cron, after, gap, fold))
    rig = site.crash(TEN + MINUTE)
    assert live(rig) == [before] and view(rig).next == at(first)


def test_other_rules_for_a_zone_and_another_template_in_the_file_repeat_nothing(monkeypatch):
    """One restart brings both: what is put in again goes on behind the time that was dealt with, too."""
    mine = schedule(cron="0 10 * * *", tz="Etc/GMT", configured=True)
    site = Site()
    site.crash(NINE, mine)
    to(site.rig, TEN)
    (before,) = live(site.rig)
    site.rig.slots(1)
    site.rig.complete(before[1])
    compiled = schedules.compile_cron
    monkeypatch.setattr(schedules, "compile_cron", lambda cron, _tz, gap, fold: compiled(cron, "Etc/GMT+1", gap, fold))
    rig = site.crash(TEN + MINUTE, replace(mine, template=replace(mine.template, kind="other")))
    assert view(rig).next == at("2027-03-11T11:00:00")
    to(rig, TEN + 2 * HOUR)
    assert live(rig) == []


# --- other configurations


def test_what_is_not_supported_any_more_stays_stored_and_is_not_armed():
    db = ResourceSettings("db", "semaphore", permits=2)
    site = Site(pool("a"), pool("b"), resources=(db,))
    put(site.rig, schedule("x", pool="a"), schedule("y", pool="b", resources={"db": 2}), schedule("z", pool="b"))
    poorer = Settings(pools=(pool("b"),), resources=(replace(db, permits=1),))
    rig = site.crash(TEN + 2 * SECOND, settings=poorer)
    assert [(one.spec.name, one.next is None) for one in rig.engine.list_recurring()] == [
        ("x", True),
        ("y", True),
        ("z", False),
    ]
    assert live(rig, "x") == live(rig, "y") == [] and len(live(rig, "z")) == 1
    assert rig.engine.recurring.unarmed == 2 and rig.engine.recurring.notes == [
        ("x", "template: unknown pool 'a'"),
        ("y", "template.resources['db']: found 2 units; the resource never has more than 1"),
    ]
    assert names(site.began) == [] and rig.engine.snapshot(rig.now).schedules == 3
    put(rig, schedule("y", pool="b"))
    assert view(rig, "y").next is not None, "it can be replaced"
    assert remove(rig, "x") == RecurringGone(True)


def test_with_its_pool_back_it_goes_on():
    site = Site(pool("a"), pool("b"))
    put(site.rig, schedule("x", cron=FIVE, pool="a"))
    site.crash(NINE + 7 * MINUTE, settings=Settings(pools=(pool("b"),)))
    rig = site.crash(NINE + 12 * MINUTE, settings=Settings(pools=(pool("a"),)))
    assert [start for start, _ in live(rig, "x")] == [NINE + 10 * MINUTE] and rig.engine.recurring.notes == []


def test_a_lowered_limit_disarms():
    site = Site()
    put(site.rig, schedule(size=5_000))
    rig = site.crash(TEN, settings=Settings(limits=LimitSettings(max_message_bytes=4_096), pools=(pool(),)))
    assert view(rig).next is None and "5000 bytes" in rig.engine.recurring.notes[0][1]


def test_only_so_many_names_are_noted():
    site = Site(pool("a"))
    put(site.rig, *(schedule(f"n{number}", pool="a") for number in range(MAX_UNARMED_NAMES + 3)))
    rig = site.crash(TEN, settings=Settings(pools=(pool("b"),)))
    assert len(rig.engine.recurring.notes) == MAX_UNARMED_NAMES
    assert rig.engine.recurring.unarmed == MAX_UNARMED_NAMES + 3


def test_configured_ones_are_added_changed_and_removed():
    one, two, gone = (schedule(name, configured=True) for name in ("one", "two", "gone"))
    site = Site()
    rig = site.crash(NINE, one, two, gone)
    assert names(site.began) == [("Stored", "one"), ("Stored", "two"), ("Stored", "gone")]
    to(rig, TEN - SECOND)
    made = live(rig, "gone")
    other = schedule("two", cron=FIVE, configured=True)
    site.store.write(rig.engine.handle([], rig.now).writes)
    rig = site.crash(TEN - SECOND // 2, one, other)
    assert names(site.began) == [("Deleted", "gone"), ("Stored", "two"), ("Fired", "two")]
    assert [found.spec for found in rig.engine.list_recurring()] == [one, other]
    assert live(rig, "gone") == made, "its task stays"
    site.crash(TEN - SECOND // 2, one, other)
    assert names(site.began) == []


def test_the_file_wins_over_a_caller():
    site = Site()
    put(site.rig, schedule(kind="caller's"))
    configured = schedule(kind="file's", configured=True)
    rig = site.crash(NINE + MINUTE, configured)
    assert view(rig).spec == configured
    assert put_refused(rig, schedule()).code.value == "failed_precondition"
    assert "the configuration file of the server, which alone may change it" in remove(rig).message
    to(rig, TEN)
    assert len(live(rig)) == 1
    rig = site.crash(TEN + MINUTE)
    assert rig.engine.list_recurring() == [], "it is the file's, which does not have it any more"


def test_a_configured_one_that_cannot_run_is_noted():
    site = Site()
    put(site.rig, schedule("known"))
    bad = [schedule(name, pool="gone", configured=True) for name in ("known", "new")]
    rig = site.crash(TEN, *bad)
    reason = "template: unknown pool 'gone'"
    assert rig.engine.recurring.notes == [("known", reason), ("new", reason)] and names(site.began) == []
    assert [(one.spec.name, one.next) for one in rig.engine.list_recurring()] == [("known", None)]


def test_a_damaged_one_stays_stored_until_somebody_replaces_it():
    rig = Rig(now=NINE)
    engine = Engine.recover(rig.settings, first_task_id=1, first_lease_id=1, seed=0, now=NINE, wall_offset=0)
    engine.load([RecurringDamaged("a", "not a schedule"), RecurringDamaged("b", "nor this")])
    while engine.settle(NINE):
        pass
    assert engine.begin(NINE).writes == [] and engine.list_recurring() == []
    assert engine.recurring.notes[0] == ("a", "the stored schedule cannot be read: not a schedule")
    rig.adopt(engine)
    step = rig.handle(ev.RecurringPut(None, schedule("a")))
    assert rig.answers == [RecurringAdded()] and step.writes[1] == RecurringFired("a", NINE, -1, 0)
    assert remove(rig, "b") == RecurringGone(True)
    assert engine.statistics()["schedules"] == 1


# --- how long it takes


def test_ten_thousand_are_armed_in_portions():
    """Each counts like an occurrence that is made, so that no portion takes longer than a step."""
    engine = Engine.recover(Settings(), first_task_id=1, first_lease_id=1, seed=0, now=NINE, wall_offset=0)
    stored = (RecurringStored(schedule(f"n{number}", f"{number % 60} * * * *"), NINE) for number in range(10_000))
    engine.load(RecurringLoaded(one, None) for one in stored)
    portions = 0
    while engine.settle(NINE):
        portions += 1
    engine.begin(NINE)
    assert portions >= 199
    assert engine.recurring.armed == 10_000
    engine.recurring.check_invariants(engine)
    assert engine.next_timeout() == NINE + MINUTE - 2 * SECOND


def test_a_task_of_a_schedule_is_known_after_a_restart():
    site = Site()
    put(site.rig, schedule(tolerance=MINUTE))
    to(site.rig, TEN - MINUTE)
    (before,) = live(site.rig)
    remove(site.rig)
    rig = site.crash(TEN - MINUTE // 2)
    assert rig.engine.statistics()["occurrences"] == 1
    put(rig, schedule(tolerance=MINUTE))
    rig.advance(0)
    assert live(rig) == [before] and view(rig).last_task == before[1], "no second one for the same fire"
    rig.handle(ev.TaskCancelled(None, before[1]))
    assert rig.engine.statistics()["occurrences"] == 0


def test_other_tasks_of_a_restart_are_no_occurrences():
    site = Site()
    site.rig.submit(spec(start=TEN), spec())
    assert site.crash(TEN + MINUTE).engine.statistics()["occurrences"] == 0
