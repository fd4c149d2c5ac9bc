"""The clock: never back, driven by the loop, and the wall clock's moves noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq._runtime.clock import WALL_THRESHOLD, Clock, WallDrift
from cronoq_sansio.clock import SECOND

START = 1_700_000_000 * SECOND


class Host:
    """Two clocks that a test turns."""

    def __init__(self) -> None:
        self.monotonic = 123_456.789
        self.wall = START

    def run(self, nanoseconds: int) -> None:
        self.monotonic += nanoseconds / SECOND
        self.wall += nanoseconds


def test_now_begins_at_unix_time_and_follows_the_monotonic_clock() -> None:
    host = Host()
    clock = Clock(lambda: host.monotonic, lambda: host.wall)
    assert clock.now() == START
    host.run(5 * SECOND)
    host.wall -= 3_600 * SECOND
    assert clock.now() == START + 5 * SECOND


def test_a_deadline_is_the_same_instant_on_the_loops_scale() -> None:
    host = Host()
    clock = Clock(lambda: host.monotonic, lambda: host.wall)
    when = START + 7 * SECOND + 1
    host.monotonic = clock.deadline(when)
    assert abs(clock.now() - when) <= 20, "rounding of a float, far below what a timer resolves"


@given(st.integers(0, 100 * 86_400 * SECOND))
def test_a_clock_that_stands_at_a_deadline_has_reached_it(later: int) -> None:
    """A test's clock jumps to just there: what is due a nanosecond later would be waited for for ever."""
    clock = Clock(lambda: 0.0, lambda: START)
    when = START + later
    stands = clock.deadline(when)
    clock._monotonic = lambda: stands
    assert clock.now() >= when - 1
    if later < 50 * 86_400 * SECOND:
        assert clock.now() == when


@pytest.mark.parametrize("step", [3 * SECOND, -3 * SECOND, WALL_THRESHOLD + 1_000, -WALL_THRESHOLD - 1_000])
def test_a_step_of_the_wall_clock_is_told_once(step: int) -> None:
    host = Host()
    clock = Clock(lambda: host.monotonic, lambda: host.wall)
    drift = WallDrift(clock, clock.wall_offset())
    host.run(SECOND)
    assert drift.check() is None
    host.wall += step
    assert drift.check() == pytest.approx(step, abs=50)
    assert drift.check() is None
    host.wall -= step
    assert drift.check() == pytest.approx(0, abs=50)


def test_slewing_adds_up_until_it_is_told() -> None:
    host = Host()
    clock = Clock(lambda: host.monotonic, lambda: host.wall)
    drift = WallDrift(clock, clock.wall_offset())
    told = 0
    for _ in range(1_000):
        host.run(SECOND)
        host.wall += 500_000  # 500 ppm, the most that NTP slews
        told += drift.check() is not None
    assert told == pytest.approx(1_000 * 500_000 / WALL_THRESHOLD, abs=1)
