"""Targets of pools: tables of the formula and of the steps, and a naive reading of the rules tick by tick."""

from fractions import Fraction
from math import ceil, floor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.autoscale import Autoscale, Scaler
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.limits import MAX_SCALING_LOOKS
from cronoq_sansio.settings import PoolSettings

START = 5_000 * SECOND
DAY = 86_400


class FakePool:
    """What is looked at of a pool, as plain attributes."""

    def __init__(self, settings, **changes):
        self.settings = settings
        self.name = settings.name
        self.arrivals = 0
        self.pending_by_class = [0, 0, 0, 0]
        self.apart_by_class = [0, 0, 0, 0]
        self.groups = SimpleNamespace(busy=0)
        self.durations = Durations(settings.default_duration)
        self.unstarted = None
        self.reservations = []
        self.set(**changes)

    def set(self, *, arrivals=0, backlog=None, busy=None, ran=(), reserve=(), start=()):
        """Something happens."""
        self.arrivals += arrivals
        if backlog is not None:
            self.pending_by_class = [waiting + 3 for waiting in backlog]
            self.apart_by_class = [3] * 4
        if busy is not None:
            self.groups.busy = busy
        for duration in ran:
            self.durations.add("kind", duration)
        for interval in reserve:
            self.unstarted = self.unstarted or Calendar()
            self.unstarted.add(*interval)
            self.reservations.append(interval)
        for interval in start:
            self.unstarted.remove(*interval)
            self.reservations.remove(interval)


def settings(**changes):
    return PoolSettings(**{"name": "default", "max": 1_000, **changes})


class Rig:
    """Pools, a clock and their targets."""

    def __init__(self, *pools, offset=0):
        self.pools = pools
        self.now = START
        self.wall_offset = offset
        self.scale = Autoscale(pools, START)

    def sleep(self, seconds):
        self.now += round(seconds * SECOND)
        self.scale.tick(self, self.now)
        self.scale.check_invariants()
        return self.desired()

    def desired(self):
        return self.scale.desired(self.pools[0])


def rig(table=None, /, **state):
    return Rig(FakePool(table or settings(), **state))


# --- the formula


@pytest.mark.parametrize(
    ("table", "state", "expected"),
    [
        ({}, {}, 0),
        ({"min": 2}, {}, 2),
        # 10 tasks of 1 s, at first 3 per second by the average: 3 / 0.75
        ({}, {"arrivals": 10}, 4),
        ({"target_utilization": 1.0}, {"arrivals": 10}, 3),
        ({"target_utilization": 0.7}, {"arrivals": 7}, 3),  # 2.1 / 0.7, and 0.7 is a little less as a float
        ({"default_duration": SECOND // 2}, {"arrivals": 10}, 2),
        ({}, {"arrivals": 10, "ran": (SECOND // 4, 3 * SECOND // 4)}, 2),
        ({}, {"arrivals": 1}, 1),
        # backlog: 60 tasks of 1 s in 30 s
        ({}, {"backlog": (0, 0, 60, 0)}, 2),
        ({}, {"backlog": (15, 15, 15, 16)}, 3),
        ({"drain_time": 10 * SECOND}, {"backlog": (0, 0, 40, 0)}, 4),
        ({}, {"arrivals": 10, "backlog": (0, 0, 60, 0)}, 4),  # 4 + 2, but no more than 4 at a time
        # aims: class and above
        ({"slo": (SECOND, None, None, None)}, {"backlog": (3, 9, 9, 9)}, 3),
        ({"slo": (None, None, 20 * SECOND, None)}, {"backlog": (20, 20, 20, 60)}, 4),  # 3, but all of it in 30 s is 4
        ({"slo": (None, None, None, 20 * SECOND), "drain_time": 100 * SECOND}, {"backlog": (15, 15, 15, 15)}, 3),
        ({"slo": (10 * SECOND, 5 * SECOND, None, None), "drain_time": 100 * SECOND}, {"backlog": (10, 5, 0, 0)}, 3),
        # busy
        ({}, {"busy": 3}, 3),
        ({}, {"busy": 3, "backlog": (0, 0, 90, 0)}, 3),
        # reservations on top
        ({}, {"busy": 1, "reserve": [(START, START + 9)] * 2}, 1),  # over when the first tick comes
        ({}, {"busy": 1, "reserve": [(START + 60 * SECOND, START + 90 * SECOND)] * 2}, 3),
        ({}, {"busy": 1, "reserve": [(START + 61 * SECOND, START + 90 * SECOND)] * 2}, 1),  # not in sight yet
        ({}, {"reserve": [(START + n * SECOND, START + n * SECOND + SECOND) for n in range(40)]}, 1),
        # less than a hundredth of a slot is none
        ({}, {"arrivals": 1, "ran": (24_999_999,)}, 0),  # 0.3 · 0.025 / 0.75 = 0.01
        ({}, {"arrivals": 1, "ran": (25_000_000,)}, 1),
        ({}, {"backlog": (0, 0, 0, 1), "ran": (299_999_999,)}, 0),
        ({}, {"backlog": (0, 0, 0, 1), "ran": (300_000_000,)}, 1),
        # bounds
        ({"max": 2}, {"busy": 3}, 2),
        ({"min": 3, "max": 3}, {"busy": 9}, 3),
        ({"autoscale": False}, {"busy": 3}, 0),
        ({"autoscale": False, "min": 2}, {}, 0),
    ],
)
def test_one_tick(table, state, expected):
    assert rig(settings(**table), **state).sleep(1) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((10,), [3_000_000]), ((0, 0), [0, 0]), ((1, 0, 0), [300_000, 210_000, 147_000])],
)
def test_the_rate_is_an_average_of_the_last_seconds(numbers, expected):
    scaler = Scaler(settings())
    rates = []
    for arrivals in numbers:
        scaler.average(arrivals)
        rates.append(scaler.rate)
    assert rates == expected


@given(st.integers(0, 10**9))
def test_a_rate_goes_to_nothing_and_stays_there(arrivals):
    scaler = Scaler(settings())
    scaler.average(arrivals)
    ticks = 0
    while scaler.rate:
        before = scaler.rate
        scaler.average(0)
        assert 0 <= scaler.rate < before
        ticks += 1
    assert ticks <= 100
    scaler.average(0)
    assert scaler.rate == 0


def test_nothing_happens_before_the_first_second_is_over():
    scaled = rig(busy=3)
    assert [scaled.sleep(0.999_999_999), scaled.sleep(0.000_000_001)] == [0, 3]


def test_reservations_are_those_of_wall_time():
    pool = FakePool(settings(), reserve=[(START + 1_000 * SECOND, START + 1_001 * SECOND)])
    assert Rig(pool).sleep(1) == 0
    assert Rig(pool, offset=950 * SECOND).sleep(1) == 1


def test_a_reservation_whose_task_has_started_counts_no_more():
    scaled = rig(reserve=[(START, START + 100 * SECOND)] * 2)
    assert scaled.sleep(1) == 2
    scaled.pools[0].set(start=[(START, START + 100 * SECOND)], busy=1)
    assert scaled.sleep(1) == 2, "one runs, one is to start"


# --- the steps


def test_up_by_as_much_as_there_is_or_by_4():
    scaled = rig(settings(max=40), busy=1_000)
    assert [scaled.sleep(1) for _ in range(5)] == [4, 8, 16, 32, 40]


def test_up_from_a_minimum():
    scaled = rig(settings(min=3), busy=1_000)
    assert [scaled.sleep(1) for _ in range(3)] == [7, 14, 28]


def downs(scaled, seconds):
    """(second, desired) of each change."""
    found, before = [], scaled.desired()
    for second in range(1, seconds + 1):
        if (after := scaled.sleep(1)) != before:
            found.append((second, after))
            before = after
    return found


def test_down_by_one_after_a_minute_and_then_after_each_cooldown():
    scaled = rig(busy=3)
    scaled.sleep(1)
    scaled.pools[0].set(busy=0)
    assert downs(scaled, 200) == [(60, 2), (90, 1), (120, 0)]


@pytest.mark.parametrize(
    ("cooldown", "expected"),
    [
        (0, [(60, 2), (61, 1), (62, 0)]),
        (1, [(60, 2), (61, 1), (62, 0)]),
        (SECOND, [(60, 2), (61, 1), (62, 0)]),
        (SECOND + 1, [(60, 2), (62, 1), (64, 0)]),
        (2_500_000_000, [(60, 2), (63, 1), (66, 0)]),
    ],
)
def test_cooldowns(cooldown, expected):
    scaled = rig(settings(cooldown=cooldown), busy=3)
    scaled.sleep(1)
    scaled.pools[0].set(busy=0)
    assert downs(scaled, 100) == expected


def test_down_only_as_far_as_the_last_minute_wanted():
    scaled = rig(settings(cooldown=0), busy=9)
    assert [scaled.sleep(1) for _ in range(3)] == [4, 8, 9]
    scaled.pools[0].set(busy=5)
    scaled.sleep(1)
    scaled.pools[0].set(busy=2)
    assert downs(scaled, 100) == [(59, 8), (60, 7), (61, 6), (62, 5), (63, 4), (64, 3), (65, 2)]
    for busy in (5, 2):
        scaled.pools[0].set(busy=busy)
        scaled.sleep(1)
    assert downs(scaled, 100) == [(59, 4), (60, 3), (61, 2)], "the 5 of a minute ago was in the way"


def test_a_peak_in_between_holds_it_up():
    scaled = rig(busy=2)
    scaled.sleep(1)
    scaled.pools[0].set(busy=0)
    assert downs(scaled, 59) == []
    scaled.pools[0].set(busy=2)
    scaled.sleep(1)
    scaled.pools[0].set(busy=0)
    assert downs(scaled, 91) == [(60, 1), (90, 0)]


def test_it_may_go_up_while_it_cools_down():
    scaled = rig(busy=2)
    scaled.sleep(1)
    scaled.pools[0].set(busy=0)
    assert downs(scaled, 60) == [(60, 1)]
    scaled.pools[0].set(busy=3)
    assert scaled.sleep(1) == 3


# --- against the rules as they are written


class Naive:
    """One tick after the other, in fractions, with all that was ever wanted."""

    def __init__(self, pool):
        self.pool = pool
        self.rate = 0
        self.current = pool.settings.min
        self.history = []
        self.last_down = None

    def tick(self, now, wall):
        pool, table = self.pool, self.pool.settings
        arrivals, pool.arrivals = pool.arrivals, 0
        self.rate += floor(Fraction(3, 10) * (arrivals * 10**6 - self.rate))
        service = pool.durations.mean()
        service = table.default_duration if service is None else service
        backlog = [pending - apart for pending, apart in zip(pool.pending_by_class, pool.apart_by_class, strict=True)]
        base = floor(Fraction(self.rate * service) / Fraction(table.target_utilization) / 10**9)
        drain = floor(Fraction(sum(backlog) * 10**6 * service, table.drain_time))
        aims = [
            floor(Fraction(sum(backlog[: priority + 1]) * 10**6 * service, slo))
            for priority, slo in enumerate(table.slo)
            if slo is not None
        ]
        instants = [wall, *(begin for begin, _ in pool.reservations if wall < begin < wall + 60 * SECOND)]
        reserved = max(sum(begin <= at < end for begin, end in pool.reservations) for at in instants)
        demand = max([base + drain, pool.groups.busy * 10**6, *aims]) + reserved * 10**6
        wanted = 0 if demand < 10_000 else ceil(Fraction(demand, 10**6))
        wanted = min(max(wanted, table.min), table.max)
        self.history.append(wanted)
        if wanted > self.current:
            self.current = min(wanted, self.current + max(self.current, 4))
        elif max(self.history[-60:]) < self.current and (
            self.last_down is None or now - self.last_down >= table.cooldown
        ):
            self.current -= 1
            self.last_down = now


tables = st.builds(
    settings,
    min=st.integers(0, 3),
    max=st.sampled_from([3, 10, 200]),
    target_utilization=st.sampled_from([0.75, 1.0, 0.7, 0.1]),
    drain_time=st.sampled_from([SECOND // 1_000, 7 * SECOND, 30 * SECOND]),
    cooldown=st.sampled_from([0, 1, SECOND, 2_500_000_000, 30 * SECOND, 1_000 * SECOND]),
    default_duration=st.sampled_from([0, 1, 300_000_000, SECOND]),
    slo=st.tuples(*[st.sampled_from([None, SECOND // 3, 20 * SECOND])] * 4),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "arrivals": st.integers(0, 50),
        "backlog": st.tuples(*[st.integers(0, 20)] * 4),
        "busy": st.integers(0, 30),
        "ran": st.lists(st.integers(0, 3 * SECOND), max_size=3),
        "reserve": st.lists(st.tuples(st.integers(0, 900), st.integers(1, 90)), max_size=3),
    },
)
gaps = st.one_of(
    st.integers(0, 3 * SECOND), st.integers(0, 200).map(lambda seconds: seconds * SECOND), st.just(777 * SECOND)
)


@given(tables, st.lists(st.tuples(changes, gaps), max_size=10), st.integers(-100, 100))
def test_against_every_tick_by_itself(table, script, offset):
    offset *= SECOND // 3
    pool, shadow = FakePool(table), FakePool(table)
    scaled, naive, due = Rig(pool, offset=offset), Naive(shadow), START + SECOND
    for change, gap in script:
        begun = scaled.now + offset
        reserve = [
            (begun + at * SECOND // 3, begun + (at + length) * SECOND // 3) for at, length in change.get("reserve", ())
        ]
        for either in (pool, shadow):
            either.set(**{**change, "reserve": reserve})
        scaled.sleep(gap / SECOND if gap % SECOND == 0 else Fraction(gap, SECOND))
        while due <= scaled.now:
            naive.tick(due, due + offset)
            due += SECOND
        assert scaled.desired() == naive.current
        assert scaled.scale._pools["default"][1].rate == naive.rate


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 400)), min_size=1, max_size=6), st.integers(0, 3 * SECOND))
def test_looking_in_between_changes_nothing(script, cooldown):
    seen, unseen = (rig(settings(cooldown=cooldown, max=50)) for _ in range(2))
    for busy, seconds in script:
        for scaled in (seen, unseen):
            scaled.pools[0].set(busy=busy, arrivals=busy)
        for _ in range(seconds):
            seen.sleep(1)
        unseen.sleep(seconds)
        assert seen.desired() == unseen.desired()


def wave():
    """Three levels of demand, a second each."""
    return [{"busy": 9}, {"busy": 9}, {"busy": 9}, {"busy": 5}, {"busy": 2}]


def one_in_sight_in_a_second():
    return [{"reserve": [(START + 62 * SECOND, START + 900 * SECOND)]}]


def two_that_end_at_ticks():
    return [{"reserve": [(START + 3 * SECOND, START + 40 * SECOND), (START, START + 99 * SECOND)]}]


def two_that_end_between_ticks():
    third = SECOND // 3
    return [{"reserve": [(START + 10 * third, START + 100 * third), (START, START + 301 * third)]}]


def some_in_a_row():
    return [{"reserve": [(START + n * n * SECOND, START + n * n * SECOND + 7 * SECOND) for n in range(20)]}]


@pytest.mark.parametrize(
    "script",
    [wave, one_in_sight_in_a_second, two_that_end_at_ticks, two_that_end_between_ticks, some_in_a_row],
    ids=lambda script: script.__name__,
)
def test_asleep_and_awake_it_comes_to_the_same_second_by_second(script):
    def begun():
        scaled = rig(settings(cooldown=0))
        for change in script():
            scaled.pools[0].set(**change)
            scaled.sleep(1)
        return scaled

    awake = begun()
    for seconds in range(1, 300):
        assert begun().sleep(seconds) == awake.sleep(1), seconds


def test_a_rate_that_asks_for_nothing_is_a_rate():
    scaled = rig(settings(default_duration=0), arrivals=10)
    assert [scaled.sleep(1), scaled.sleep(1)] == [0, 0]
    assert scaled.scale._pools["default"][1].rate == 2_100_000


# --- cost


@pytest.fixture
def looks(monkeypatch):
    """Demands that are computed."""
    count = []
    wanted = Scaler.wanted
    monkeypatch.setattr(Scaler, "wanted", lambda *arguments: count.append(1) or wanted(*arguments))
    return count


def test_a_pool_where_nothing_happens_costs_nothing(looks):
    scaled = rig(settings(min=2))
    assert scaled.sleep(DAY) == 2
    scaled.pools[0].set(backlog=(0, 0, 0, 0))
    scaled.sleep(DAY)
    assert not looks, "tasks that wait for something else are no backlog"


def test_a_day_asleep_costs_a_hundred_ticks(looks):
    scaled = rig(settings(max=10**9, cooldown=0), arrivals=10**6)
    assert scaled.sleep(30) > 1_000
    looks.clear()
    scaled.sleep(DAY)
    assert len(looks) <= 100
    assert scaled.sleep(400 * DAY) == 0
    assert len(looks) <= 101


def test_steps_down_of_a_whole_day_are_one_computation(looks):
    scaled = rig(settings(max=10**9, cooldown=2 * SECOND), busy=50_000)
    scaled.sleep(20)
    scaled.pools[0].set(busy=7)
    looks.clear()
    assert scaled.sleep(60 + DAY) == 50_000 - DAY // 2 - 1
    assert len(looks) == 1
    assert scaled.sleep(DAY) == 7


def test_a_full_calendar_is_looked_at_so_often_and_not_more(looks):
    """A process that was stopped; else each start is an event."""
    reserve = [(START + n * 10 * SECOND, START + n * 10 * SECOND + SECOND) for n in range(1_000)]
    scaled = rig(reserve=reserve, busy=0)
    scaled.sleep(DAY)
    assert len(looks) == MAX_SCALING_LOOKS
    assert scaled.sleep(59) == 1
    assert scaled.sleep(1) == 0, "the next ticks see that all of it is over"


def test_a_few_reservations_far_ahead_cost_a_look_at_each_change(looks):
    scaled = rig(reserve=[(START + n * 3_600 * SECOND, START + n * 3_600 * SECOND + SECOND) for n in range(1, 24)])
    scaled.sleep(DAY)
    assert len(looks) <= 4 * 24


def test_arrivals_of_a_pool_that_is_not_scaled_are_left_alone():
    scaled = rig(settings(autoscale=False), arrivals=5)
    scaled.sleep(100)
    assert scaled.pools[0].arrivals == 5


# --- invariants


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda scaler: setattr(scaler, "current", 11), "within min and max"),
        (lambda scaler: setattr(scaler, "rate", -1), "negative"),
        (lambda scaler: scaler._highest.append((500, 4)), "in order"),
        (lambda scaler: scaler._highest.append((500, 1)), "long ago"),
    ],
)
def test_the_check_sees(break_it, message):
    scaled = rig(settings(max=10), busy=3)
    scaled.sleep(2)
    break_it(scaled.scale._pools["default"][1])
    with pytest.raises(AssertionError, match=message):
        scaled.scale.check_invariants()
