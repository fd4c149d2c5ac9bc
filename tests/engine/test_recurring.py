"""Recurring schedules: what an occurrence is, when it is made, what is refused, replaced and removed."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import recurring
from cronoq_sansio.engine.actions import Answer, RecurringGone
from cronoq_sansio.engine.records import RecurringDeleted, RecurringFired, RecurringStored, TaskInserted
from cronoq_sansio.engine.recurring import DROPS
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_HOLD
from cronoq_sansio.settings import LimitSettings, ResourceSettings
from cronoq_sansio.spec import Condition, Dependency, Overlap, Scheduling
from tests.engine.harness import Rig, attempts, pool, spec
from tests.engine.schedules import HOUR, MINUTE, NINE, at, drops, live, put, put_refused, remove, schedule, to, view

TEN = NINE + HOUR
LONG = pool(lease_ttl=100 * HOUR)
"""A pool whose workers may be silent."""


# --- what an occurrence is


def test_an_occurrence_is_made_a_lead_and_its_tolerance_before_its_start():
    rig = Rig(now=NINE)
    put(rig, schedule())
    assert rig.engine.next_timeout() == TEN - 2 * SECOND, "the default duration, and the tolerance"
    to(rig, TEN - 2 * SECOND - 1)
    assert not live(rig)
    to(rig, TEN - 2 * SECOND)
    ((start, task),) = live(rig)
    assert start == TEN and rig.status(task) == "SCHEDULED"
    rig.slots(1)
    to(rig, TEN)
    assert rig.status(task) == "RUNNING"


def test_what_the_template_says_holds_for_every_occurrence():
    rig = Rig(now=NINE)
    put(rig, schedule(key="report", deadline_in=90 * SECOND, tolerance=3 * SECOND, tenant="t", kind="k", timeout=7))
    to(rig, TEN - 6 * SECOND)
    ((_, task),) = live(rig)
    made = rig.engine.tasks.live[task].spec
    assert made.key == "report@2027-03-10T10:00:00Z" and rig.engine.find(made.key).id == task
    assert made.tags == (("cronoq.recurring", "s"),)
    assert made.scheduling == Scheduling(TEN + 90 * SECOND, tenant="t", start=TEN, tolerance=3 * SECOND)
    assert (made.kind, made.timeout, made.payload) == ("k", 7, b"payload")


def test_tags_stay_in_order():
    rig = Rig(now=NINE)
    one = schedule()
    tags = (("a", "1"), ("cronoq.content_type", "x"), ("z", "2"))
    put(rig, replace(one, template=replace(one.template, tags=tags)))
    to(rig, TEN)
    ((_, task),) = live(rig)
    names = [name for name, _ in rig.engine.tasks.live[task].spec.tags]
    assert names == ["a", "cronoq.content_type", "cronoq.recurring", "z"]


@pytest.mark.parametrize(
    ("template", "ahead"),
    [
        ({}, 2 * SECOND),
        ({"tolerance": 0}, 1 * SECOND),
        ({"tolerance": 10 * SECOND}, 20 * SECOND),
        ({"tolerance": 2 * MAX_HOLD}, 3 * MAX_HOLD),
    ],
)
def test_how_long_ahead_it_is_made(template, ahead):
    rig = Rig(now=NINE)
    put(rig, schedule(**template))
    assert rig.engine.next_timeout() == TEN - ahead


def test_the_lead_is_what_the_pool_has_learned_by_then():
    rig = Rig(now=NINE)
    rig.slots(1)
    put(rig, schedule())
    (task,) = rig.submit(spec())
    rig.advance(20 * SECOND)
    rig.complete(task)
    assert rig.engine.next_timeout() == TEN - 21 * SECOND
    for _ in range(64):
        (task,) = rig.submit(spec())
        rig.complete(task)
    assert rig.engine.pools["default"].lead() == 0, "runs are short now; the tolerance is the least"
    to(rig, TEN - 2 * SECOND - 1)
    assert not live(rig)


def test_only_one_is_ahead():
    rig = Rig(now=NINE)
    put(rig, schedule(cron="* * * * *", tolerance=150 * SECOND))
    to(rig, NINE + 1)
    assert [start for start, _ in live(rig)] == [NINE + MINUTE]
    assert rig.engine.next_timeout() == NINE + MINUTE, "that it starts, and that the next one is made"
    to(rig, NINE + MINUTE)
    assert [start for start, _ in live(rig)] == [NINE + MINUTE, NINE + 2 * MINUTE]


def test_what_is_shown_of_schedules():
    rig = Rig(now=NINE)
    put(rig, schedule("b"), schedule("a", "30 * * * *"))
    assert [(one.spec.name, one.next, one.last_task) for one in rig.engine.list_recurring()] == [
        ("a", NINE + 30 * MINUTE, 0),
        ("b", TEN, 0),
    ]
    to(rig, TEN - 2 * SECOND)
    ((_, task),) = live(rig, "b")
    assert (view(rig, "b").next, view(rig, "b").last_task) == (TEN, task), "it is ahead"
    rig.handle(ev.TaskCancelled(None, task))
    assert view(rig, "b").next == TEN + 24 * HOUR, "it is not any more"
    to(rig, TEN)
    assert (view(rig, "b").next, view(rig, "b").last_task) == (TEN + 24 * HOUR, task)
    snapshot = rig.engine.snapshot(rig.now)
    assert snapshot.schedules == 2 and snapshot.occurrences_dropped == tuple((reason, 0) for reason in sorted(DROPS))


def test_what_is_written():
    rig = Rig(now=NINE)
    one = schedule()
    step = rig.handle(ev.RecurringPut("r", one))
    assert step.writes == [RecurringStored(one, NINE)]
    (answer,) = step.once_durable
    assert answer.after == step.number
    rig.now = TEN - 2 * SECOND
    step = rig.handle(ev.TimerFired())
    inserted, fired = step.writes
    assert type(inserted) is TaskInserted and inserted.spec.scheduling.start == TEN
    assert fired == RecurringFired("s", TEN, TEN, inserted.task_id)
    step = rig.handle(ev.RecurringRemoved("r", "s"))
    assert step.writes == [RecurringDeleted("s")] and step.once_durable == [
        Answer("r", RecurringGone(True), step.number)
    ]
    gone = rig.handle(ev.RecurringRemoved("r", "s"))
    assert gone.once_durable == [Answer("r", RecurringGone(False), step.number)], "shows what that one wrote"


# --- what is refused

TEMPLATES = [
    (Scheduling(deadline=1), "template.deadline_unix_ns: "),
    (Scheduling(start=1), "template.start_unix_ns: "),
    (Scheduling(start_in=1), "template.start_in_s: "),
    (Scheduling(dependencies=(Dependency(1, int(Condition.ON_SUCCESS)),)), "template.deps: "),
    (Scheduling(resources=(("gone", 1),)), "template.resources['gone']: there is no resource with that name"),
    (Scheduling(resources=(("db", 3),)), "template.resources['db']: found 3 units"),
]


@pytest.mark.parametrize(("asked", "message"), TEMPLATES)
def test_a_template_that_says_what_it_must_not(asked, message):
    rig = Rig(now=NINE, resources=(ResourceSettings("db", "semaphore", permits=2),))
    one = schedule()
    refusal = put_refused(rig, replace(one, template=replace(one.template, scheduling=asked)))
    assert refusal.code is Code.INVALID and refusal.message.startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cron": "0 0 31 2 *"}, "cron: "),
        ({"cron": "0 0 * * 8"}, "cron: "),
        ({"cron": "@daily"}, "cron: "),
        ({"tz": "Mars/Base"}, "tz: "),
        ({"pool": "gone"}, "template: unknown pool 'gone'"),
        ({"retry": attempts(0)}, "template.retry.max_attempts must be at least 1"),
        ({"size": 4_096}, "template: found 4096 bytes; limits.max_message_bytes allows 3072"),
    ],
)
def test_a_schedule_that_can_never_run(changes, message):
    rig = Rig(now=NINE, limits=LimitSettings(max_message_bytes=4_096))
    refusal = put_refused(rig, schedule(**changes))
    assert refusal.code is Code.INVALID and refusal.message.startswith(message)


def test_templates_and_tasks_share_one_budget():
    rig = Rig(now=NINE, limits=LimitSettings(max_payload_bytes=100))
    put(rig, schedule("a", size=60))
    assert rig.refused(spec(size=41)).code is Code.OVERLOADED
    rig.submit(spec(size=40))
    refusal = put_refused(rig, schedule("b", size=1))
    assert refusal.code is Code.OVERLOADED and "hold 100 bytes and this template has 1," in refusal.message
    put(rig, schedule("a", size=59), schedule("b", size=1))
    assert put_refused(rig, schedule("b", size=2)).code is Code.OVERLOADED
    remove(rig, "a")
    assert rig.engine.tasks.payload_bytes == 41


def test_there_are_only_so_many(monkeypatch):
    monkeypatch.setattr(recurring, "MAX_SCHEDULES", 2)
    rig = Rig(now=NINE)
    put(rig, schedule("a"), schedule("b"))
    refusal = put_refused(rig, schedule("c"))
    assert refusal == Rejection(Code.OVERLOADED, "there are 2 schedules already, which is the most; remove some")
    put(rig, schedule("a", "0 11 * * *"))


# --- replacing and removing


def test_a_replaced_schedule_makes_nothing_twice():
    rig = Rig(now=NINE)
    put(rig, schedule(tolerance=MINUTE))
    to(rig, TEN - MINUTE)
    (before,) = live(rig)
    put(rig, schedule(kind="new"))
    to(rig, TEN - SECOND)
    assert live(rig) == [before], "the same times: it has dealt with that one"
    put(rig, schedule(cron="* * * * *"))
    to(rig, TEN - SECOND + 1)
    assert live(rig) == [before] and view(rig).last_task == before[1], "other times, but that one exists"
    remove(rig)
    put(rig, schedule())
    to(rig, TEN)
    assert live(rig) == [before] and rig.engine.recurring.dropped == dict.fromkeys(DROPS, 0)


def test_a_schedule_with_other_times_counts_from_now():
    rig = Rig(now=NINE)
    put(rig, schedule(cron="*/5 * * * *"))
    rig.now += 7 * MINUTE
    step = rig.handle(ev.RecurringPut(None, schedule(cron="*/2 * * * *")))
    assert step.writes[1] == RecurringFired("s", rig.now, -1, 0)
    assert view(rig).next == NINE + 8 * MINUTE and not live(rig), "what the other one missed is nobody's"


def test_a_schedule_with_the_same_times_goes_on():
    rig = Rig(now=NINE)
    put(rig, schedule(cron="*/5 * * * *"))
    rig.now += 7 * MINUTE
    put(rig, schedule(cron="*/5 * * * *", kind="new"))
    rig.handle(ev.TimerFired())
    ((start, task),) = live(rig)
    assert start == NINE + 5 * MINUTE and rig.engine.tasks.live[task].spec.kind == "new"


@pytest.mark.parametrize("other", [{"gap": "skip"}, {"fold": "last"}, {"tz": "UTC"}, {"cron": "0-59/5 * * * *"}])
def test_a_schedule_whose_times_may_be_others_counts_from_now(other):
    rig = Rig(now=NINE)
    put(rig, schedule(cron="*/5 * * * *"))
    rig.now += 7 * MINUTE
    put(rig, schedule(**{"cron": "*/5 * * * *", **other}))
    rig.handle(ev.TimerFired())
    assert live(rig) == [] and view(rig).next == NINE + 10 * MINUTE


def test_removed_schedules_leave_their_tasks():
    rig = Rig(LONG, now=NINE)
    put(rig, schedule())
    to(rig, TEN - SECOND)
    ((_, task),) = live(rig)
    assert remove(rig) == RecurringGone(True) and remove(rig) == RecurringGone(False)
    rig.slots(1)
    to(rig, TEN + 24 * HOUR)
    assert rig.status(task) == "RUNNING" and len(live(rig)) == 1
    assert rig.engine.statistics()["schedules"] == 0
    rig.complete(task)
    assert rig.engine.statistics()["occurrences"] == 0


# --- overlap


def running(overlap):
    """A rig at ten, with an occurrence that runs and one a minute later that is ahead."""
    rig = Rig(LONG, now=NINE)
    rig.slots(9)
    put(rig, schedule(cron="* 10 * * *", overlap=overlap))
    to(rig, TEN + MINUTE - SECOND)
    (_, first), (_, second) = live(rig)
    assert rig.status(first) == "RUNNING"
    return rig, first, second


@pytest.mark.parametrize(
    ("overlap", "ahead", "beside", "behind"),
    [
        (Overlap.SKIP, "SCHEDULED", "SKIPPED", "SKIPPED"),
        (Overlap.ALLOW, "SCHEDULED", "RUNNING", "RUNNING"),
        (Overlap.QUEUE, "BLOCKED", "BLOCKED", "RUNNING"),
        (Overlap.QUEUE_ON_SUCCESS, "BLOCKED", "BLOCKED", "RUNNING"),
    ],
)
def test_what_happens_while_the_one_before_still_runs(overlap, ahead, beside, behind):
    rig, first, second = running(overlap)
    assert rig.status(second) == ahead
    to(rig, TEN + MINUTE)
    assert rig.status(second) == beside
    rig.complete(first)
    assert rig.status(second) == behind


@pytest.mark.parametrize(
    ("overlap", "then"), [(Overlap.QUEUE, "RUNNING"), (Overlap.QUEUE_ON_SUCCESS, "SKIPPED"), (Overlap.SKIP, "SKIPPED")]
)
def test_what_happens_when_the_one_before_fails(overlap, then):
    rig, first, second = running(overlap)
    to(rig, TEN + MINUTE)
    rig.fail(first, permanent=True)
    assert rig.status(second) == then


def test_one_that_ended_before_holds_nothing_back():
    rig, first, _ = running(Overlap.QUEUE_ON_SUCCESS)
    rig.fail(first, permanent=True)
    to(rig, TEN + 2 * MINUTE)
    assert [rig.status(task) for _, task in live(rig)] == ["RUNNING"]


def test_queued_ones_run_one_after_the_other():
    rig, first, second = running(Overlap.QUEUE)
    to(rig, TEN + 3 * MINUTE)
    assert [rig.status(task) for _, task in live(rig)] == ["RUNNING", "BLOCKED", "BLOCKED", "BLOCKED"]
    rig.complete(first)
    assert [rig.status(task) for _, task in live(rig)] == ["RUNNING", "BLOCKED", "BLOCKED"]
    rig.fail(second)
    assert rig.status(second) == "RETRYING" and rig.status(live(rig)[1][1]) == "BLOCKED", "it goes on"


def test_a_chain_that_asks_for_success_breaks_at_once():
    rig, first, _ = running(Overlap.QUEUE_ON_SUCCESS)
    to(rig, TEN + 3 * MINUTE - SECOND)
    made = [task for _, task in live(rig)]
    rig.fail(first, permanent=True)
    assert [rig.status(task) for task in made] == ["FAILED", "SKIPPED", "SKIPPED", "SKIPPED"]
    assert [drop.reason for drop in rig.drops] == ["predecessor"] * 3
    to(rig, TEN + 4 * MINUTE)
    assert [rig.status(task) for _, task in live(rig)] == ["RUNNING"]


def test_one_that_is_skipped_says_why_and_is_counted():
    rig, first, second = running(Overlap.SKIP)
    to(rig, TEN + 2 * MINUTE)
    assert rig.ended[second].task.message == f"an earlier occurrence, task {first}, is still going (overlap = skip)"
    assert drops(rig) == [
        ("overlap", TEN + MINUTE, TEN + MINUTE, 1, False),
        ("overlap", TEN + 2 * MINUTE, TEN + 2 * MINUTE, 1, False),
    ]
    assert rig.drops[0].name == "s" and rig.drops[0].detail == rig.ended[second].task.message


def test_a_retry_of_the_one_before_is_still_it():
    rig, first, second = running(Overlap.SKIP)
    rig.fail(first, retry_after=HOUR)
    to(rig, TEN + MINUTE)
    assert (rig.status(first), rig.status(second)) == ("RETRYING", "SKIPPED")


def test_the_policy_is_the_one_at_the_start():
    rig, _, second = running(Overlap.SKIP)
    put(rig, schedule(cron="* 10 * * *", overlap=Overlap.ALLOW))
    to(rig, TEN + MINUTE)
    assert rig.status(second) == "RUNNING"


def test_a_removed_schedule_skips_nothing():
    rig, _, second = running(Overlap.SKIP)
    remove(rig)
    to(rig, TEN + MINUTE)
    assert rig.status(second) == "RUNNING"


def test_two_never_run_at_a_time_when_runs_are_longer_than_the_interval():
    rig = Rig(now=NINE)
    rig.slots(9)
    put(rig, schedule(cron="* * * * * *"))
    started, ends = [], {}
    for _ in range(60 * 4):
        to(rig, rig.now + SECOND // 4)
        for lease in list(rig.engine.leases.live.values()):
            task = lease.task.id
            if task not in ends:
                ends[task] = rig.now + 2_500_000_000
                started.append(lease.task.plan.start)
            if ends[task] <= rig.now:
                rig.complete(task)
        assert len(rig.engine.leases.live) <= 1
    gaps = {later - earlier for earlier, later in zip(started, started[1:], strict=False)}
    assert gaps == {3 * SECOND}
    assert rig.engine.recurring.dropped["overlap"] == 60 - len(started)


# --- why fires are dropped


def test_a_full_calendar_drops_a_fire():
    rig = Rig(pool(max=2), now=NINE)
    rig.submit(spec(start=TEN, duration_hint=MINUTE))
    put(rig, schedule())
    to(rig, TEN)
    assert not live(rig) and drops(rig) == [("conflict", TEN, TEN, 1, False)]
    assert "reserved already" in rig.drops[0].detail and rig.engine.snapshot(rig.now).schedules == 1
    assert dict(rig.engine.snapshot(rig.now).occurrences_dropped)["conflict"] == 1
    assert view(rig).next == TEN + 24 * HOUR and view(rig).last_task == 0


def test_bounds_drop_a_fire():
    rig = Rig(pool(max_pending=1), pool("b", max_pending=1, overflow="wait"), now=NINE)
    rig.submit(spec(), spec(pool="b"))
    put(rig, schedule("a"), schedule("b", pool="b"))
    to(rig, TEN)
    assert drops(rig) == [("overload", TEN, TEN, 1, False)] * 2
    assert rig.drops[0].detail.startswith("pool 'default' has 1 pending task")
    assert rig.engine.statistics()["fixed_starts"] == 0, "what it had reserved is free again"


def test_room_is_made_for_an_occurrence():
    rig = Rig(pool(max_pending=2, overflow="shed_oldest"), now=NINE)
    old, other = rig.submit(spec(priority=3), spec(priority=3))
    put(rig, schedule())
    to(rig, TEN)
    assert rig.status(old) == "SHED" and rig.status(other) == "READY" and len(live(rig)) == 1 and not rig.drops


def test_nobody_is_shed_for_an_occurrence_that_is_skipped_at_once():
    rig = Rig(pool(max_pending=2, overflow="shed_oldest"), now=NINE)
    put(rig, schedule(tolerance=MINUTE, priority=3))
    to(rig, TEN)
    ((_, first),) = live(rig)
    (low,) = rig.submit(spec(priority=3))
    rig.now += 24 * HOUR + SECOND
    rig.handle(ev.TimerFired())
    assert rig.status(low) == rig.status(first) == "READY", "the late fire overlaps: to shed a task for it is in vain"
    assert drops(rig) == [("overload", TEN + 24 * HOUR, TEN + 24 * HOUR, 1, False)]
    assert "an earlier occurrence is still going" in rig.drops[0].detail


def test_a_key_that_somebody_else_has():
    rig = Rig(now=NINE)
    (foreign,) = rig.submit(spec("k@2027-03-10T10:00:00Z"))
    put(rig, schedule(key="k"))
    to(rig, TEN)
    ((_, task),) = live(rig)
    assert rig.engine.tasks.live[task].spec.key == "" and rig.engine.find("k@2027-03-10T10:00:00Z").id == foreign
    assert drops(rig) == [("foreign_key", TEN, TEN, 1, False)]
    to(rig, TEN + 24 * HOUR)
    assert rig.engine.find("k@2027-03-11T10:00:00Z") is not None and len(rig.drops) == 2, "and the overlap"


def test_a_key_that_a_finished_task_had():
    rig = Rig(now=TEN - MINUTE)
    (foreign,) = rig.submit(spec("k@2027-03-10T10:00:00Z"))
    rig.handle(ev.TaskCancelled(None, foreign))
    put(rig, schedule(key="k"))
    to(rig, TEN)
    assert len(live(rig)) == 1 and [drop.reason for drop in rig.drops] == ["foreign_key"]


def test_a_key_that_others_await():
    rig = Rig(pool(await_unknown_dependencies=2 * HOUR), now=NINE)
    put(rig, schedule(cron="0,1 10 * * *", key="k", overlap=Overlap.QUEUE))
    (child,) = rig.submit(spec("x", deps=["k@2027-03-10T10:01:00Z"]))
    rig.slots(2)
    to(rig, TEN + MINUTE)
    (_, first), (_, second) = live(rig)
    assert (rig.status(second), rig.status(child)) == ("BLOCKED", "BLOCKED") and not rig.drops
    for task in (first, second, child):
        rig.complete(task)


def test_a_resource_that_has_become_too_small_drops_a_fire():
    db = ResourceSettings("db", "semaphore", permits=2)
    rig = Rig(now=NINE, resources=(db,))
    put(rig, schedule(resources={"db": 2}))
    rig.handle(ev.ResourceLimitSet(replace(db, permits=1)))
    to(rig, TEN)
    assert not live(rig) and drops(rig) == [("invalid", TEN, TEN, 1, False)]
    assert "the resource never has more than 1" in rig.drops[0].detail
    rig.handle(ev.ResourceLimitSet(db))
    to(rig, TEN + 24 * HOUR)
    assert len(live(rig)) == 1


@pytest.mark.parametrize(("policy", "status"), [(2, "MISSED"), (3, "FAILED")])
def test_an_occurrence_that_misses_its_start_is_counted(policy, status):
    rig = Rig(now=NINE)
    put(rig, schedule(on_miss=policy))
    to(rig, TEN)
    ((_, task),) = live(rig)
    to(rig, TEN + MINUTE)
    assert rig.status(task) == status and drops(rig) == [("missed", TEN, TEN, 1, False)]
    assert rig.drops[0].detail == rig.ended[task].task.message


def test_tasks_with_a_fixed_start_of_their_own_are_no_occurrences():
    rig = Rig(now=NINE)
    rig.submit(spec(start=NINE + MINUTE, on_miss=2))
    to(rig, TEN)
    assert not rig.drops and rig.engine.statistics()["occurrences"] == 0


def test_a_time_zone_decides():
    rig = Rig(now=at("2027-03-12T12:00:00"))
    put(rig, schedule(cron="30 2 * * *", tz="America/New_York", overlap=Overlap.ALLOW))
    put(rig, schedule("skips", cron="30 2 * * *", tz="America/New_York", overlap=Overlap.ALLOW, gap="skip"))
    to(rig, at("2027-03-15T12:00:00"))
    fires = [at("2027-03-13T07:30:00"), at("2027-03-14T07:00:00"), at("2027-03-15T06:30:00")]
    assert [start for start, _ in live(rig)] == fires
    assert [start for start, _ in live(rig, "skips")] == [fires[0], fires[2]]


def test_a_time_that_the_clocks_skip_is_a_drop_when_it_is_left_out():
    rig = Rig(now=at("2027-03-13T08:00:00"))
    put(rig, schedule("skips", cron="30 2 * * *", tz="America/New_York", overlap=Overlap.ALLOW, gap="skip"))
    to(rig, at("2027-03-15T07:00:00"))
    gap = at("2027-03-14T07:00:00")
    assert drops(rig) == [("gap", gap, gap, 1, False)]
    assert rig.engine.recurring.dropped["gap"] == 1
    assert [start for start, _ in live(rig, "skips")] == [at("2027-03-15T06:30:00")]


def test_large_templates_are_made_in_portions():
    rig = Rig(pool(max=100), now=NINE)
    put(rig, *(schedule(f"s{number}", cron="0 10 * * *", size=1 << 20) for number in range(12)))
    rig.now = TEN
    made = []
    while (due := rig.engine.next_timeout()) is not None and due <= TEN:
        step = rig.handle(ev.TimerFired())
        made.append(sum(type(record) is TaskInserted for record in step.writes))
    assert sum(made) == 12
    assert max(made) <= 4, "about 4 MiB in a step"
