"""What is said beforehand about schedules that start together: only what is true, and once per pool."""

import pytest

from cronoq._runtime.crowds import crowds
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import Cron, Fire
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.spec import RecurringSpec, Scheduling, TaskSpec

NOON = 1_805_025_600 * SECOND
"""2027-03-14T12:00:00Z."""
DAY = 86_400 * SECOND


def schedule(name: str, cron: str, pool: str = "default", tz: str = "", **scheduling: int) -> RecurringSpec:
    template = TaskSpec(b"", "", "job", pool, 2, "", None, None, (), 0, Scheduling(**scheduling))
    return RecurringSpec(name=name, cron=cron, tz=tz, template=template, configured=True)


def said(*recurring: RecurringSpec, pools: tuple[PoolSettings, ...] = (PoolSettings(),)) -> tuple[str, ...]:
    return crowds(Settings(pools=pools, recurring=recurring), NOON)


def many(count: int, cron: str = "0 0 * * *", **scheduling: int) -> list[RecurringSpec]:
    return [schedule(f"s{number}", cron, **scheduling) for number in range(count)]


def test_with_the_defaults_five_schedules_start_together_and_a_sixth_is_told() -> None:
    assert said(*many(5)) == ()
    assert said(*many(6)) == (
        "pool 'default': 6 of the schedules need a slot around 2027-03-15T00:00:00Z, and 5 fit: what is beyond is"
        " dropped as `conflict`, the last by name first; raise `max` or `reservable_fraction` of the pool, or spread"
        " the times",
    )


@pytest.mark.parametrize(
    ("pool", "room"),
    [
        (PoolSettings(max=1), 1),
        (PoolSettings(max=3), 1),
        (PoolSettings(max=8), 4),
        (PoolSettings(max=12, reservable_fraction=0.75), 9),
        (PoolSettings(max=2, reservable_fraction=1.0), 2),
    ],
)
def test_room_is_what_the_engine_reserves(pool: PoolSettings, room: int) -> None:
    assert said(*many(room), pools=(pool,)) == ()
    (text,) = said(*many(room + 1), pools=(pool,))
    assert f"{room + 1} of the schedules" in text and f"and {room} fit" in text


def test_times_apart_are_no_crowd() -> None:
    """By default a slot is reserved for 3 s, from 1 s before; intervals that touch do not overlap."""
    pools = (PoolSettings(max=1),)
    assert said(schedule("a", "0 0 0 * * *"), schedule("b", "3 0 0 * * *"), pools=pools) == ()
    (text,) = said(schedule("a", "0 0 0 * * *"), schedule("b", "2 0 0 * * *"), pools=pools)
    assert "around 2027-03-15T00:00:02Z, and 1 fits:" in text


def test_a_run_that_is_said_to_be_long_is_in_the_way_of_later_ones() -> None:
    recurring = [schedule("long", "0 0 * * *", duration_hint=3_600 * SECOND), schedule("b", "30 0 * * *")]
    (text,) = said(*recurring, pools=(PoolSettings(max=1),))
    assert "2 of the schedules need a slot around 2027-03-15T00:30:00Z" in text
    assert said(recurring[1], schedule("short", "0 0 * * *"), pools=(PoolSettings(max=1),)) == ()


def test_the_duration_of_the_pool_counts_without_a_hint() -> None:
    recurring = [schedule("a", "0 0 * * *"), schedule("b", "30 0 * * *")]
    assert said(*recurring, pools=(PoolSettings(max=1, default_duration=3_600 * SECOND),)) != ()


def test_a_schedule_is_not_in_its_own_way() -> None:
    often = schedule("often", "* * * * * *", duration_hint=600 * SECOND, tolerance=60 * SECOND)
    assert said(often, pools=(PoolSettings(max=1),)) == ()


def test_a_schedule_that_reserves_nothing_needs_no_room() -> None:
    assert said(*many(20, tolerance=0, duration_hint=0)) == ()


def test_the_first_time_and_the_most_of_it_are_told() -> None:
    """Six at one o'clock, seven within that second's reach, nine a day later."""
    recurring = [*many(6, "0 1 15 * *"), schedule("t", "1 0 1 15 * *")]
    recurring += [schedule(f"later{number}", "0 1 16 * *") for number in range(9)]
    (text,) = said(*recurring)
    assert "7 of the schedules need a slot around 2027-03-15T01:00:01Z" in text


def test_each_pool_has_its_own_schedules_and_sentence() -> None:
    pools = (PoolSettings("a", max=2), PoolSettings("b", max=2), PoolSettings("c", max=2))
    recurring = [schedule(f"s{number}", "0 0 * * *", pool) for number, pool in enumerate("abcac")]
    assert [text.partition(":")[0] for text in said(*recurring, pools=pools)] == ["pool 'a'", "pool 'c'"]


def test_zones_are_minded() -> None:
    pools = (PoolSettings(max=1),)
    assert said(schedule("a", "0 2 * * *", tz="Europe/Berlin"), schedule("b", "0 2 * * *"), pools=pools) == ()
    assert said(schedule("a", "0 2 * * *", tz="Europe/Berlin"), schedule("b", "0 1 * * *"), pools=pools) != ()


def test_only_the_near_future_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(*many(6, "0 12 22 * *", tolerance=0)) == (), "in 8 days"
    assert said(*many(6, "59 11 22 * *", tolerance=0)) != ()
    monkeypatch.setattr("cronoq._runtime.crowds.CROWD_FIRES", 3)
    pools = (PoolSettings(max=1),)
    assert said(schedule("a", "* * * * *"), schedule("b", "3 12 * * *"), pools=pools) != ()
    assert said(schedule("a", "* * * * *"), schedule("b", "4 12 * * *"), pools=pools) == ()


@pytest.mark.parametrize(
    ("schedules", "fires"), [(1, limits.CROWD_FIRES), (100, limits.MAX_CROWD_FIRES // 100), (limits.MAX_SCHEDULES, 1)]
)
def test_the_work_is_bounded_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, schedules: int, fires: int
) -> None:
    asked = 0

    class Counting(Cron):
        def __init__(self) -> None:
            pass

        def next(self, after: int) -> Fire:
            nonlocal asked
            asked += 1
            return Fire(after + SECOND, 0, "")

    monkeypatch.setattr("cronoq._runtime.crowds.compile_cron", lambda *_: Counting())
    said(*many(1) * schedules)
    assert asked == schedules * fires


def test_a_tolerance_of_a_century_is_no_trouble() -> None:
    (text,) = said(*many(6, tolerance=36_500 * DAY))
    assert "around 2027-03-15T00:00:00Z" in text
