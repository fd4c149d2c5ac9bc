"""Fixed starts: when they run, what is held for them, and what happens to those that come too late."""

from typing import Any

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.errors import Code
from cronoq_sansio.settings import LimitSettings, ResourceSettings
from cronoq_sansio.spec import Condition, MissPolicy, Priority, TaskStatus
from tests.engine.harness import START, Rig, attempts, dep, pool, spec

SKIP, FAIL, RUN_LATE = MissPolicy.SKIP, MissPolicy.FAIL, MissPolicy.RUN_LATE


def at(seconds: float) -> int:
    return START + round(seconds * SECOND)


def held(rig: Rig, name: str = "default") -> int:
    return rig.engine.snapshot(rig.now).pools[[*rig.engine.pools].index(name)].held


def moves(rig: Rig, task_id: int) -> list[str]:
    return [TaskStatus(move.status).name for move in rig.moves if move.task_id == task_id]


def rig_of(capacity: int = 1, **changes: Any) -> Rig:
    rig = Rig(pool(**changes))
    rig.handle(ev.TransitionsWatched(True))
    rig.slots(capacity)
    return rig


def test_it_starts_at_its_time() -> None:
    rig = rig_of()
    [task] = rig.submit(spec(start=at(10)))
    assert rig.status(task) == "SCHEDULED"
    rig.advance(10 * SECOND - 1)
    assert rig.status(task) == "SCHEDULED"
    rig.advance(1)
    assert rig.status(task) == "RUNNING"
    assert rig.engine.tasks.live[task].first_started == at(10)
    assert moves(rig, task) == ["BLOCKED", "SCHEDULED", "READY", "RUNNING"]


def test_a_relative_start_counts_from_the_arrival_on_the_wall_clock() -> None:
    rig = rig_of()
    rig.handle(ev.WallClockMoved(500 * SECOND))
    rig.advance(3 * SECOND)
    [task] = rig.submit(spec(start_in=7 * SECOND))
    asked = rig.engine.tasks.live[task].spec.scheduling
    assert asked is not None and asked.start == at(510) and asked.start_in is None
    rig.advance(7 * SECOND)
    assert rig.status(task) == "RUNNING"


@pytest.mark.parametrize("offset", [3600, -3600])
def test_a_start_follows_the_wall_clock(offset: int) -> None:
    rig = rig_of(2, default_duration=0)
    [task] = rig.submit(spec(start=at(7200)))
    rig.advance(100 * SECOND)
    rig.handle(ev.WallClockMoved(offset * SECOND))
    rig.advance((7100 - offset) * SECOND - 1)
    assert rig.status(task) == "SCHEDULED"
    rig.advance(1)
    assert rig.status(task) == "RUNNING"


def test_a_past_start_is_ready_at_once() -> None:
    rig = rig_of()
    [task] = rig.submit(spec(start=at(-5)))
    assert moves(rig, task) == ["BLOCKED", "READY", "RUNNING"]


def test_a_slot_is_held_from_the_lead_on() -> None:
    rig = rig_of(2, default_duration=4 * SECOND)
    [task] = rig.submit(spec(start=at(10)))
    rig.advance(6 * SECOND - 1)
    assert held(rig) == 0
    rig.advance(1)
    assert held(rig) == 1
    first, second = rig.submit(spec(), spec())
    assert (rig.status(first), rig.status(second)) == ("RUNNING", "READY")
    rig.complete(first)
    assert rig.status(second) == "RUNNING"
    rig.advance(4 * SECOND)
    assert rig.status(task) == "RUNNING"
    assert held(rig) == 0


@pytest.mark.parametrize(
    ("tolerance", "default_duration", "lead"),
    [(1, 0, 1), (5, 2, 5), (2, 5, 5), (1000, 0, 300), (0, 1000, 300), (0, 0, 0)],
)
def test_the_lead_is_the_larger_of_tolerance_and_run_time(tolerance: int, default_duration: int, lead: int) -> None:
    rig = rig_of(1, default_duration=default_duration * SECOND)
    rig.submit(spec(start=at(5000), tolerance=tolerance * SECOND))
    if lead:
        rig.advance((5000 - lead) * SECOND - 1)
        assert held(rig) == 0
        rig.advance(1)
        assert held(rig) == 1
    else:
        rig.advance(5000 * SECOND - 1)
        assert held(rig) == 0


def test_the_lead_follows_what_the_pool_learns_from_work_without_a_fixed_start() -> None:
    rig = rig_of(2, default_duration=1 * SECOND, lease_ttl=10_000 * SECOND)
    rig.submit(spec(start=at(1000)))
    [fixed] = rig.submit(spec(start=at(0)))
    rig.advance(90 * SECOND)
    rig.complete(fixed)
    assert rig.engine.pools["default"].lead() == 1 * SECOND
    [plain] = rig.submit(spec())
    rig.advance(100 * SECOND)
    rig.complete(plain)
    assert rig.engine.pools["default"].lead() == 100 * SECOND
    rig.advance(710 * SECOND - 1)
    assert held(rig) == 0
    rig.advance(1)
    assert held(rig) == 1


def test_a_late_slot_goes_to_the_hold_before_ready_work() -> None:
    rig = rig_of(1, default_duration=4 * SECOND)
    [busy] = rig.submit(spec())
    [task] = rig.submit(spec(start=at(10)))
    [waiting] = rig.submit(spec(priority=Priority.CRITICAL))
    rig.advance(7 * SECOND)
    rig.complete(busy)
    assert (held(rig), rig.status(waiting)) == (1, "READY")
    rig.advance(3 * SECOND)
    assert rig.status(task) == "RUNNING"


def test_one_that_is_due_without_a_hold_goes_before_ready_work() -> None:
    rig = rig_of(1)
    [busy] = rig.submit(spec())
    [task] = rig.submit(spec(start=at(10), priority=Priority.LOW))
    [waiting] = rig.submit(spec(priority=Priority.CRITICAL))
    rig.advance(15 * SECOND)
    rig.complete(busy)
    assert (rig.status(task), rig.status(waiting)) == ("RUNNING", "READY")


def test_starts_go_in_their_order_whatever_their_classes() -> None:
    rig = rig_of(1, default_duration=0, reservable_fraction=1.0)
    [busy] = rig.submit(spec())
    late, early = rig.submit(
        spec(start=at(6), priority=Priority.CRITICAL, tolerance=0),
        spec(start=at(5), priority=Priority.LOW, tolerance=0),
    )
    rig.advance(10 * SECOND)
    rig.complete(busy)
    assert (rig.status(early), rig.status(late)) == ("RUNNING", "READY")


def test_the_latest_start_loses_its_hold_when_slots_go() -> None:
    rig = rig_of(3, default_duration=100 * SECOND, reservable_fraction=1.0)
    early, late = rig.submit(spec(start=at(50), duration_hint=0), spec(start=at(60), duration_hint=0))
    rig.advance(0)
    assert held(rig) == 2
    rig.slots(1)
    assert held(rig) == 1
    plan = rig.engine.tasks.live[early].plan
    assert plan is not None and plan.hold is not None
    rig.slots(2)
    assert held(rig) == 2
    rig.slots(0)
    assert held(rig) == 0
    rig.advance(60 * SECOND)
    assert (rig.status(early), rig.status(late)) == ("READY", "READY")
    rig.slots(1)
    assert rig.status(early) == "RUNNING"


def test_of_the_slots_that_there_are_no_more_are_held_than_may_be_reserved() -> None:
    rig = rig_of(4, default_duration=100 * SECOND)
    rig.submit(*(spec(start=at(50), duration_hint=0) for _ in range(5)))
    rig.advance(0)
    assert held(rig) == 2, "half of them"
    plain = rig.submit(spec(), spec(), spec())
    assert [rig.status(task) for task in plain] == ["RUNNING", "RUNNING", "READY"]
    rig.slots(6)
    assert held(rig) == 3
    rig.slots(1)
    rig.advance(50 * SECOND)
    rig.slots(6)
    assert rig.engine.running == 6, "those that found no slot held start at their time"


def test_of_a_tolerance_and_an_estimate_a_week_counts() -> None:
    rig = rig_of(0, max=2)
    week, century = 604_800 * SECOND, 3_153_600_000 * SECOND
    rig.submit(spec(start=at(0) + century, tolerance=century, duration_hint=century))
    assert rig.refused(spec(start=at(0) + century - week)).code is Code.RESERVATION_CONFLICT
    rig.submit(spec(start=at(100)))
    rig.submit(spec(start=at(0) + century + 2 * week + SECOND))


def test_a_hold_is_on_a_group_that_carries_the_labels() -> None:
    rig = Rig(pool(default_duration=100 * SECOND))
    rig.slots(1)
    [task] = rig.submit(spec(start=at(50), labels={"gpu": "a"}))
    rig.advance(10 * SECOND)
    assert held(rig) == 0
    [plain] = rig.submit(spec())
    assert rig.status(plain) == "RUNNING"
    rig.slots(1, (("gpu", "a"),))
    assert held(rig) == 1
    [other] = rig.submit(spec())
    assert rig.status(other) == "READY"
    rig.advance(40 * SECOND)
    assert rig.lease(task).group == (("gpu", "a"),)


def test_one_whose_labels_nobody_carries_delays_no_other_start() -> None:
    rig = Rig(pool(default_duration=0))
    rig.slots(1)
    without, plain = rig.submit(
        spec(start=at(5), labels={"gpu": "a"}, tolerance=0), spec(start=at(6), tolerance=0, duration_hint=0)
    )
    rig.advance(6 * SECOND)
    assert (rig.status(without), rig.status(plain)) == ("READY", "RUNNING")


def test_a_nack_never_takes_a_held_slot() -> None:
    rig = rig_of(2, default_duration=100 * SECOND)
    [plain] = rig.submit(spec())
    rig.submit(spec(start=at(50)))
    rig.advance(0)
    assert held(rig) == 1
    rig.slots(1)
    assert held(rig) == 0
    rig.slots(2)
    lease = rig.lease(plain)
    rig.handle(ev.AttemptNacked(lease.id, "", ((),)))
    assert rig.lease(plain) is lease  # it goes back to its own slot, which is free meanwhile


# --- missed


@pytest.mark.parametrize(("policy", "status"), [(SKIP, "MISSED"), (FAIL, "FAILED"), (RUN_LATE, "READY")])
def test_missed_is_strictly_later_than_the_tolerance(policy: MissPolicy, status: str) -> None:
    rig = rig_of(0)
    [task] = rig.submit(spec(start=at(10), tolerance=2 * SECOND, on_miss=policy))
    rig.advance(12 * SECOND)
    assert rig.status(task) == "READY"
    rig.advance(1)
    assert rig.status(task) == status


def test_the_message_says_which_start_was_missed() -> None:
    rig = rig_of(0)
    [task] = rig.submit(spec(start=at(10), tolerance=SECOND // 2, on_miss=SKIP))
    rig.advance(20 * SECOND)
    assert rig.ended[task].task.message == (
        "missed its fixed start at 1970-01-12T13:46:50Z: not started within 0.5 s of it"
    )


@pytest.mark.parametrize(("policy", "status"), [(SKIP, "MISSED"), (FAIL, "FAILED"), (RUN_LATE, "RUNNING")])
def test_missed_when_it_arrives(policy: MissPolicy, status: str) -> None:
    rig = rig_of(1)
    [task] = rig.submit(spec(start=at(-2), on_miss=policy))
    assert rig.status(task) == status


def test_one_that_can_never_run_is_skipped_although_its_start_was_missed() -> None:
    rig = rig_of()
    [parent] = rig.submit(spec("parent"))
    rig.complete(parent)
    [task] = rig.submit(spec(start=at(-100), on_miss=FAIL, deps=[dep(parent, Condition.ON_FAILURE)]))
    assert rig.status(task) == "SKIPPED"


def test_a_blocked_task_is_missed_too() -> None:
    rig = rig_of(0)
    [parent] = rig.submit(spec("parent"))
    [child] = rig.submit(spec(start=at(10), deps=["parent"], on_miss=SKIP))
    assert rig.status(child) == "BLOCKED"
    rig.advance(11 * SECOND + 1)
    assert (rig.status(parent), rig.status(child)) == ("READY", "MISSED")


def test_who_depends_on_a_missed_task_hears_of_it() -> None:
    rig = rig_of(0)
    rig.submit(spec("parent", start=at(10), on_miss=SKIP))
    [child] = rig.submit(spec(deps=["parent"]))
    rig.advance(12 * SECOND)
    assert rig.status(child) == "SKIPPED"


def test_the_pump_starts_none_that_is_missed_although_no_timer_fired() -> None:
    rig = rig_of(0)
    [task] = rig.submit(spec(start=at(10), on_miss=SKIP))
    rig.advance(10 * SECOND)
    rig.now += 5 * SECOND
    rig.slots(1)
    assert rig.status(task) == "MISSED"


def test_the_slot_that_is_held_starts_none_that_is_missed_although_no_timer_fired() -> None:
    rig = rig_of()
    [task] = rig.submit(spec(start=at(10), tolerance=SECOND, on_miss=SKIP))
    rig.advance(9 * SECOND)
    rig.handle(ev.DispatchHeld(True))
    rig.advance(1 * SECOND)
    assert (rig.status(task), held(rig)) == ("READY", 1)
    rig.now += 2 * SECOND
    rig.handle(ev.DispatchHeld(False))
    assert (rig.status(task), held(rig)) == ("MISSED", 0)


def test_a_task_that_has_started_is_never_missed() -> None:
    rig = rig_of(1)
    [task] = rig.submit(spec(start=at(10), on_miss=SKIP))
    rig.advance(10 * SECOND)
    rig.fail(task)
    assert rig.status(task) == "RETRYING"
    rig.advance(60 * SECOND)
    assert rig.status(task) == "RUNNING"


def test_dispatches_that_are_taken_back_again_and_again_leave_nothing():
    rig = Rig(release=False)
    rig.slots(1)
    rig.submit(spec(start=rig.now, on_miss=MissPolicy.SKIP))
    for _ in range(500):
        rig.handle(ev.DispatchReturned(rig.leases[-1].id))
    assert len(rig.engine.starts._misses._heap) < 100


def test_a_dispatch_that_is_taken_back_was_none() -> None:
    rig = Rig(pool(), release=False)
    rig.slots(1)
    [task] = rig.submit(spec(start=at(10), on_miss=SKIP))
    rig.advance(10 * SECOND)
    lease = rig.lease(task)
    rig.handle(ev.GroupCapacitySet("default", (), 0), ev.DispatchReturned(lease.id))
    assert rig.status(task) == "READY"
    figures = rig.engine.snapshot(rig.now).pools[0].figures
    assert figures.fixed_start_hit_rate == 1.0
    rig.advance(SECOND + 1)
    assert rig.status(task) == "MISSED"


def test_a_retry_goes_before_ready_work() -> None:
    rig = rig_of(1)
    [task] = rig.submit(spec(start=at(1), retry=attempts(2)))
    rig.advance(1 * SECOND)
    [waiting] = rig.submit(spec(priority=Priority.CRITICAL))
    rig.fail(task, retry_after=1 * SECOND)
    assert rig.status(waiting) == "RUNNING"
    [other] = rig.submit(spec(priority=Priority.CRITICAL))
    rig.advance(2 * SECOND)
    assert rig.status(task) == "READY"
    rig.complete(waiting)
    assert (rig.status(task), rig.status(other)) == ("RUNNING", "READY")


# --- dependencies, resources, bounds


def test_a_blocked_task_holds_no_slot_that_its_parent_may_need() -> None:
    rig = rig_of(1, default_duration=100 * SECOND)
    [busy] = rig.submit(spec())
    [parent] = rig.submit(spec("parent"))
    [child] = rig.submit(spec(start=at(50), deps=["parent"]))
    rig.advance(10 * SECOND)
    rig.complete(busy)
    assert (rig.status(parent), held(rig)) == ("RUNNING", 0)
    rig.complete(parent)
    assert rig.status(child) == "SCHEDULED"
    rig.advance(39 * SECOND)
    assert held(rig) == 1


def test_one_whose_parent_ended_long_before_is_woken_for_its_start() -> None:
    rig = Rig(pool(), pool("other"))
    rig.slots(1)
    rig.handle(ev.GroupCapacitySet("other", (), 1))
    [parent] = rig.submit(spec("parent", pool="other"))
    [child] = rig.submit(spec(start=at(100), deps=["parent"]))
    assert rig.engine.next_timeout() != at(99), "while it is blocked it wants no slot"
    rig.complete(parent)
    assert rig.status(child) == "SCHEDULED" and rig.engine.next_timeout() == at(99)
    rig.advance(100 * SECOND)
    assert rig.status(child) == "RUNNING"


def test_it_waits_for_a_resource_and_keeps_its_slot() -> None:
    rig = Rig(pool(), pool("other"), resources=(ResourceSettings("gpu", "semaphore", 1),))
    rig.slots(1)
    rig.slots(1, name="other")
    [owner] = rig.submit(spec(pool="other", resources={"gpu": 1}))
    [task] = rig.submit(spec(start=at(10), resources={"gpu": 1}))
    rig.advance(10 * SECOND)
    assert (rig.status(task), held(rig)) == ("READY", 1)
    [plain] = rig.submit(spec())
    assert rig.status(plain) == "READY"
    rig.complete(owner)
    assert (rig.status(task), held(rig)) == ("RUNNING", 0)


def test_one_that_waits_for_a_resource_goes_on_waiting_when_its_slot_goes() -> None:
    rig = Rig(pool(), pool("other"), resources=(ResourceSettings("gpu", "semaphore", 1),))
    rig.slots(1)
    rig.slots(1, name="other")
    [owner] = rig.submit(spec(pool="other", resources={"gpu": 1}))
    [task] = rig.submit(spec(start=at(10), resources={"gpu": 1}))
    rig.advance(10 * SECOND)
    rig.slots(0)
    rig.complete(owner)
    assert (rig.status(task), held(rig)) == ("READY", 0)
    rig.slots(1)
    assert rig.status(task) == "RUNNING"


@pytest.mark.parametrize("when", [5, 9.5, 15])
def test_a_cancelled_one_leaves_nothing_behind(when: float) -> None:
    rig = rig_of(1)
    [task] = rig.submit(spec(start=at(10)))
    [blocker] = rig.submit(spec()) if when == 15 else [0]
    rig.advance(round(when * SECOND))
    rig.handle(ev.TaskCancelled(None, task))
    assert held(rig) == 0
    statistics = rig.engine.statistics()
    assert {statistics[name] for name in ("fixed_starts", "scheduled", "missable")} == {0}
    assert not blocker or rig.status(blocker) == "RUNNING"


def test_it_is_never_shed() -> None:
    rig = Rig(pool(overflow="shed_oldest", max_pending=1))
    rig.submit(spec(start=at(-1), priority=Priority.LOW))
    assert rig.refused(spec()).code is Code.OVERLOADED


def test_a_full_calendar_comes_before_full_queues() -> None:
    rig = Rig(pool(overflow="shed_oldest", max_pending=2, max=2))
    rig.submit(spec(start=at(10)))
    [victim] = rig.submit(spec(priority=Priority.LOW))
    assert rig.refused(spec(start=at(10))).code is Code.RESERVATION_CONFLICT
    assert rig.status(victim) == "READY"


# --- conflicts


@pytest.mark.parametrize(
    ("maximum", "fraction", "limit"), [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 1), (5, 0.5, 2), (4, 1.0, 4), (3, 0.1, 1)]
)
def test_so_many_may_stand_side_by_side(maximum: int, fraction: float, limit: int) -> None:
    rig = rig_of(0, max=maximum, reservable_fraction=fraction)
    rig.submit(*(spec(start=at(100)) for _ in range(limit)))
    assert rig.refused(spec(start=at(100))).code is Code.RESERVATION_CONFLICT


def test_touching_reservations_do_not_overlap() -> None:
    rig = rig_of(0, max=1)
    rig.submit(spec(start=at(100), duration_hint=10 * SECOND))  # 99 … 111
    rig.submit(spec(start=at(112), duration_hint=10 * SECOND))  # 111 … 123
    rig.submit(spec(start=at(94), duration_hint=4 * SECOND))  # 93 … 99
    refusal = rig.refused(spec(start=at(112) - 1, duration_hint=0))
    assert refusal.message == (
        "start_unix_ns: a start at 1970-01-12T13:48:31.999999999Z does not fit into pool 'default': it would reserve a"
        " slot from 1970-01-12T13:48:30.999999999Z to 1970-01-12T13:48:32.999999999Z, and at"
        " 1970-01-12T13:48:30.999999999Z 1 of 1 reservable slots are reserved already;"
        " the next start that fits is 1970-01-12T13:48:44Z"
    )
    assert dict(refusal.details)["cronoq-next-start-unix-ns"] == str(at(124))


def test_a_reservation_ends_with_its_task() -> None:
    rig = rig_of(1, max=1)
    [task] = rig.submit(spec(start=at(5), duration_hint=1000 * SECOND))
    assert rig.refused(spec(start=at(500))).code is Code.RESERVATION_CONFLICT
    rig.advance(6 * SECOND)
    rig.complete(task)
    rig.submit(spec(start=at(500)))


def test_members_of_a_batch_are_in_each_others_way() -> None:
    rig = rig_of(0, max=4)
    refusal = rig.batch_refused(*(spec(start=at(100)) for _ in range(3)))
    assert (refusal.code, dict(refusal.details)["cronoq-batch-index"]) == (Code.RESERVATION_CONFLICT, "2")
    rig.batch(*(spec(start=at(100)) for _ in range(2)))


def test_a_batch_that_is_refused_for_another_reason_reserves_nothing() -> None:
    rig = rig_of(0, max=2, max_pending=1)
    assert rig.batch_refused(spec(start=at(100)), spec()).code is Code.OVERLOADED
    rig.submit(spec(start=at(100)))


def test_who_waits_for_room_reserves_nothing_meanwhile() -> None:
    rig = Rig(pool(overflow="wait", max_pending=1, max=2))
    [first] = rig.submit(spec())
    rig.handle(ev.TaskSubmitted("second", spec(start=at(100)), may_wait=True))
    assert len(rig.engine.pools["default"].starts.calendar) == 0  # type: ignore[union-attr]
    rig.handle(ev.TaskCancelled(None, first))
    assert len(rig.engine.pools["default"].starts.calendar) == 1  # type: ignore[union-attr]


# --- figures


def test_the_hit_rate_counts_first_starts_and_missed_ones() -> None:
    rig = rig_of(1, max=100)
    [first] = rig.submit(spec(start=at(1)))
    rig.advance(1 * SECOND)
    late, missed = rig.submit(spec(start=at(2)), spec(start=at(2), on_miss=SKIP))
    rig.advance(5 * SECOND)
    rig.complete(first)
    assert (rig.status(late), rig.status(missed)) == ("RUNNING", "MISSED")
    assert rig.engine.snapshot(rig.now).pools[0].figures.fixed_start_hit_rate == pytest.approx(1 / 3)


def test_the_wait_of_a_fixed_start_counts_from_its_start() -> None:
    rig = rig_of(1)
    rig.submit(spec(start=at(1000)))
    rig.advance(1000 * SECOND)
    assert rig.engine.snapshot(rig.now).pools[0].figures.wait_p99 == 0


def test_ten_thousand_due_in_one_second_come_in_portions() -> None:
    rig = Rig(pool(max=100_000, reservable_fraction=1.0, default_duration=0), limits=LimitSettings())
    for _ in range(10):
        events = [ev.TaskSubmitted(None, spec(start=at(100))) for _ in range(1000)]
        rig.engine.handle(events, rig.now)
    rig.engine.handle([ev.GroupCapacitySet("default", (), 10_000)], rig.now)
    steps = 0
    now = rig.now
    while (due := rig.engine.next_timeout()) is not None and due <= at(100):
        now = max(now, due)
        step = rig.engine.handle([ev.TimerFired()], now)
        assert sum(type(action) is not Answer for action in step.once_durable) <= 1000
        steps += 1
    assert rig.engine.running == 10_000
    assert 20 <= steps <= 40
    rig.engine.check_invariants(None)


def test_who_depends_on_one_that_the_pump_found_missed_hears_of_it_in_the_same_step() -> None:
    rig = rig_of(0)
    rig.submit(spec("parent", start=at(10), on_miss=SKIP))
    [child] = rig.submit(spec(deps=["parent"]))
    rig.advance(10 * SECOND)
    rig.now += 5 * SECOND
    rig.slots(1)
    assert rig.status(child) == "SKIPPED"


def test_equal_starts_lose_their_holds_latest_id_first() -> None:
    rig = rig_of(3, default_duration=100 * SECOND, reservable_fraction=1.0)
    first, second = rig.submit(spec(start=at(50), duration_hint=0), spec(start=at(50), duration_hint=0))
    rig.advance(0)
    assert held(rig) == 2
    rig.slots(1)
    plans = [rig.engine.tasks.live[task].plan for task in (first, second)]
    assert [plan is not None and plan.hold is not None for plan in plans] == [True, False]


def test_one_that_is_missed_keeps_nobody_behind_it_from_starting() -> None:
    rig = rig_of(2, default_duration=100 * SECOND, reservable_fraction=1.0)
    missed, late = rig.submit(
        spec(start=at(10), on_miss=SKIP, duration_hint=0, tolerance=0), spec(start=at(11), duration_hint=0)
    )
    rig.advance(0)
    assert held(rig) == 2
    rig.handle(ev.DispatchHeld(True))
    rig.now = at(12)
    rig.engine.handle([ev.LeaseRenewed(0)], rig.now)  # no timer has fired: both are still scheduled
    rig.handle(ev.TimerFired(), ev.DispatchHeld(False))
    assert (rig.status(missed), rig.status(late)) == ("MISSED", "RUNNING")


def test_held_starts_and_others_count_against_the_units_of_a_step() -> None:
    rig = Rig(pool(max=100_000, reservable_fraction=1.0, default_duration=100 * SECOND))
    rig.engine.handle([ev.TaskSubmitted(None, spec(start=at(50), duration_hint=0)) for _ in range(1_500)], rig.now)
    rig.engine.handle([ev.GroupCapacitySet("default", (), 1_500)], rig.now)
    while (due := rig.engine.next_timeout()) is not None and due <= rig.now:
        rig.engine.handle([ev.TimerFired()], rig.now)
    assert held(rig) == 1_500
    rig.now = at(50)
    started = []
    while (due := rig.engine.next_timeout()) is not None and due <= rig.now:
        before = rig.engine.running
        rig.engine.handle([ev.TimerFired()], rig.now)
        started.append(rig.engine.running - before)
    assert max(started) <= 1_000
    assert sum(started) == 1_500
