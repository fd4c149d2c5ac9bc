"""Targets for the slots of pools as the engine keeps and shows them; the rules themselves are in test_autoscale."""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from tests.engine.harness import Rig, pool, spec
from tests.engine.naive_store import NaiveStore

DAY = 86_400


def targets(rig, seconds=0):
    """What is shown so much later."""
    rig.now += seconds * SECOND
    return {pool.name: pool.desired for pool in rig.engine.snapshot(rig.now).pools}


def test_they_are_shown_for_each_pool():
    rig = Rig(pool("mail"), pool("still", autoscale=False), pool("low", min=2))
    assert targets(rig) == {"mail": 0, "still": 0, "low": 2}
    rig.submit(*(spec(pool=name) for name in ("mail", "still", "low") for _ in range(4)))
    assert targets(rig) == {"mail": 0, "still": 0, "low": 2}, "no second is over yet"
    assert targets(rig, 1) == {"mail": 2, "still": 0, "low": 2}, "1.2 / 0.75 + 4 / 30, rounded up"
    assert targets(rig, DAY) == {"mail": 1, "still": 0, "low": 2}, "four wait and none comes"


def test_what_an_event_changes_counts_from_the_next_second_on():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.submit(*[spec()] * 3)
    rig.now += 100 * SECOND
    rig.slots(3)
    assert targets(rig) == {"default": 1}, "in the seconds before nothing ran"
    assert targets(rig, 1) == {"default": 3}


def test_what_waits_for_others_has_arrived_and_is_no_backlog():
    rig = Rig(pool(drain_time=SECOND, max=100))
    rig.submit(spec("parent"), *[spec(deps=["parent"])] * 9)
    assert rig.engine.pools["default"].arrivals == 10
    assert targets(rig, 1) == {"default": 4}, "3 / 0.75 + 1, of which 4 in a second"
    assert targets(rig, 10 * DAY) == {"default": 1}


def test_whoever_backs_off_is_no_backlog():
    rig = Rig(pool(drain_time=SECOND))
    rig.submit(*[spec()] * 5)
    rig.slots(5)
    rig.slots(0)
    for task in range(1, 6):
        rig.fail(task, retry_after=10 * DAY * SECOND)
    assert targets(rig, DAY) == {"default": 0}


def test_fixed_starts_do_not_arrive_and_are_seen_a_minute_ahead():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.submit(*(spec(start_in=100 * SECOND, tolerance=0, duration_hint=9 * SECOND) for _ in range(2)))
    assert rig.engine.pools["default"].arrivals == 0
    assert [targets(rig, seconds)["default"] for seconds in (40, 1)] == [0, 2]
    rig.slots(2)
    rig.advance(59 * SECOND)
    assert rig.engine.running == 2
    assert targets(rig, 1) == {"default": 2}, "they run, and are not counted twice"


def test_a_wall_clock_that_moves_brings_reservations_into_sight():
    rig = Rig()
    rig.submit(spec(start_in=DAY * SECOND, tolerance=0))
    assert targets(rig, 1) == {"default": 0}
    rig.handle(ev.WallClockMoved((DAY - 50) * SECOND))
    assert targets(rig, 1) == {"default": 1}


def test_a_restart_begins_with_the_minimum_and_what_waits():
    table = pool(max=100, min=1)
    rig, store = Rig(table), NaiveStore()
    store.write(rig.handle(*(ev.TaskSubmitted(None, spec()) for _ in range(90))).writes)
    assert targets(rig, 10) == {"default": 20}, "1, 5, 10, 20; by then no more is wanted"
    again = Rig(table)
    again.adopt(store.recover(rig.settings, rig.now))
    assert targets(again) == {"default": 1}
    assert targets(again, 1) == {"default": 3}, "nothing has arrived"


def test_nobody_is_woken_for_them():
    rig = Rig()
    rig.submit(spec())
    assert rig.engine.next_timeout() is None
