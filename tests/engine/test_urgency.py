"""Deadlines: urgency, latest start, estimates; and how long a low task waits (engine.md section 4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.dispatch import AGE_CAP, BASE, score
from cronoq_sansio.spec import Priority
from tests.engine.harness import START, STEADY, Rig, pool, spec

NORMAL, LOW, HIGH, CRITICAL = Priority.NORMAL, Priority.LOW, Priority.HIGH, Priority.CRITICAL


def urgency(rig, task_id):
    """What the deadline adds, in points."""
    task = rig.engine.tasks.live[task_id]
    waited = min(2 * (rig.now - task.arrival), AGE_CAP)
    return (score(task, rig.now, rig.engine.wall()) - BASE[task.spec.priority] - waited) / SECOND


@pytest.mark.parametrize(
    ("seconds_to_latest_start", "points"),
    [
        (60, 0),
        (10, 0),
        (9, 500),
        (5, 2500),
        (1, 4500),
        (0, 5000),
        (-1, 5100),
        (-30, 8000),
        (-31, 8000),
        (-(10**6), 8000),
    ],
)
def test_urgency_rises_over_the_estimate_and_then_with_lateness(seconds_to_latest_start, points):
    rig = Rig()
    deadline = rig.engine.wall() + (seconds_to_latest_start + 10) * SECOND
    (task,) = rig.submit(spec(deadline=deadline, duration_hint=10 * SECOND))
    assert urgency(rig, task) == points


@pytest.mark.parametrize(("left", "points"), [(5, 0), (4, 1000), (2.5, 2500)])
def test_short_tasks_become_urgent_five_seconds_ahead(left, points):
    rig = Rig()
    (task,) = rig.submit(spec(deadline_in=int(left * SECOND), duration_hint=0))
    assert urgency(rig, task) == points


def test_a_past_deadline_is_allowed_and_most_urgent():
    rig = Rig()
    ids = rig.submit(
        spec(priority=HIGH),
        spec(priority=LOW, deadline=1),
        spec(priority=NORMAL, deadline_in=0),
        spec(priority=CRITICAL),
    )
    rig.slots(4)
    critical = ids[3]
    assert rig.order() == [critical, ids[1], ids[2], ids[0]]


def test_the_earliest_latest_start_comes_first_whatever_the_order_of_submission():
    rig = Rig()
    late, early, long = rig.submit(
        spec(deadline_in=900 * SECOND),
        spec(deadline_in=500 * SECOND),
        spec(deadline_in=1_000 * SECOND, duration_hint=700 * SECOND),
    )
    rig.slots(3)
    assert rig.order() == [long, early, late]


def test_a_deadline_far_away_changes_nothing():
    rig = Rig()
    first, second, third = rig.submit(spec(), spec(deadline_in=10**6 * SECOND), spec())
    rig.slots(3)
    assert rig.order() == [first, second, third]


def test_the_estimate_is_the_hint_or_learned_or_the_pools_default():
    rig = Rig(pool(default_duration=7 * SECOND, lease_ttl=100 * SECOND))
    (unknown,) = rig.submit(spec(deadline_in=1_000 * SECOND))
    assert rig.engine.tasks.live[unknown].plan.estimate == 7 * SECOND
    rig.slots(1)
    rig.now += 3 * SECOND
    rig.complete(unknown)
    (learned,) = rig.submit(spec(deadline_in=1_000 * SECOND))
    rig.handle(ev.TaskCancelled(None, rig.submit(spec())[0]))
    assert rig.engine.tasks.live[learned].plan.estimate == 3 * SECOND
    rig.slots(0)
    (hinted,) = rig.submit(spec(deadline_in=1_000 * SECOND, duration_hint=SECOND))
    assert rig.engine.tasks.live[hinted].plan.estimate == SECOND


def test_time_in_which_the_process_could_not_run_is_not_learned():
    rig = Rig(pool(lease_ttl=100 * SECOND))
    rig.slots(1)
    (task,) = rig.submit(spec())
    rig.now += 30 * SECOND
    rig.handle(ev.Stalled(28 * SECOND))
    rig.complete(task)
    (learned,) = rig.submit(spec(deadline_in=1_000 * SECOND))
    assert rig.engine.tasks.live[learned].plan.estimate == 2 * SECOND


def test_deadlines_are_wall_time():
    """The host's clock was set: a deadline that is over by it is over."""
    rig = Rig()
    _, urgent = rig.submit(spec(priority=HIGH), spec(priority=LOW, deadline_in=3_600 * SECOND))
    rig.handle(ev.WallClockMoved(7_200 * SECOND))
    rig.slots(2)
    assert rig.order()[0] == urgent


@given(st.integers(-(10**13), 10**13), st.integers(0, 10**12), st.sampled_from(list(Priority)))
def test_urgency_never_falls_while_time_passes(left, hint, priority):
    rig = Rig()
    (task_id,) = rig.submit(spec(priority=priority, deadline=max(rig.engine.wall() + left, 0), duration_hint=hint))
    task = rig.engine.tasks.live[task_id]
    points = [score(task, START, START + step * SECOND) for step in range(0, 200, 7)]
    assert points == sorted(points)
    assert all(0 <= each - BASE[priority] <= 8_000 * SECOND for each in points)


def test_a_low_task_has_a_bound_under_steady_fresh_normal_load():
    """90 points apart at 2 per second: after 45 s it passes work that has just come, however much comes."""
    rig = Rig(pool(retry=STEADY, max_pending=10_000))
    rig.slots(1)
    rig.submit(spec())
    (low,) = rig.submit(spec(priority=LOW))
    second = 0
    while low not in rig.order():
        running = rig.leases[-1].task.id
        rig.submit(spec())
        rig.now += SECOND
        rig.complete(running)
        second += 1
    assert 45 <= second <= 47  # what has just come has waited for up to a second already


@pytest.mark.parametrize("priority", [HIGH, CRITICAL])
def test_a_low_task_has_no_bound_under_steady_high_load(priority):
    rig = Rig(pool(retry=STEADY, max_pending=10_000, lease_ttl=10**5 * SECOND))
    rig.slots(1)
    rig.submit(spec(priority=priority))
    (low,) = rig.submit(spec(priority=LOW))
    for _ in range(50):
        running = rig.leases[-1].task.id
        rig.submit(spec(priority=priority))
        rig.now += 1_000 * SECOND
        rig.complete(running)
    assert low not in rig.order()
