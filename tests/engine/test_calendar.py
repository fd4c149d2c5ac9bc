"""The calendar against a list of its intervals; what an operation costs is counted, not timed."""

import sys
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.engine import calendar
from cronoq_sansio.engine.calendar import Calendar

LONG = MAX_CLIENT_DURATION


def filled(*intervals):
    made = Calendar()
    for begin, end in intervals:
        made.add(begin, end)
    return made


def level(intervals, at):
    return sum(begin <= at < end for begin, end in intervals)


def naive_peak(intervals, begin, end):
    """The level rises only where an interval begins."""
    if begin >= end:
        return 0, begin
    at = [begin, *sorted(other for other, _ in intervals if begin < other < end)]
    most = max(level(intervals, instant) for instant in at)
    return most, next(instant for instant in at if level(intervals, instant) == most)


def naive_free(intervals, begin, length, limit):
    """Room comes up only where an interval ends."""
    for start in sorted({begin, *(end for _, end in intervals if end > begin)}):
        if naive_peak(intervals, start, start + length)[0] < limit:
            return start
    return None


# --- what covers what


@pytest.mark.parametrize(
    ("intervals", "asked", "expected"),
    [
        ([], (5, 9), (0, 5)),
        ([(0, 10)], (5, 9), (1, 5)),
        ([(0, 10)], (10, 20), (0, 10)),  # touching is no overlap
        ([(0, 10), (10, 20)], (0, 20), (1, 0)),
        ([(0, 10), (9, 20)], (0, 20), (2, 9)),
        ([(0, 10), (9, 20)], (0, 9), (1, 0)),
        ([(0, 10), (9, 20)], (12, 20), (1, 12)),
        ([(3, 4), (6, 8), (7, 8)], (0, 100), (2, 7)),
        ([(3, 4), (3, 4), (3, 4)], (3, 4), (3, 3)),
        ([(0, 10)], (7, 7), (0, 7)),  # an empty interval meets nothing …
        ([(5, 5)], (0, 10), (0, 0)),  # … and covers nothing
        ([(9, 5)], (0, 10), (0, 0)),
        ([(-LONG, LONG)], (-1, 1), (1, -1)),
    ],
)
def test_the_peak_and_where_it_is(intervals, asked, expected):
    assert filled(*intervals).peak(*asked) == naive_peak(intervals, *asked) == expected


@pytest.mark.parametrize(
    ("intervals", "begin", "length", "limit", "expected"),
    [
        ([], 5, 9, 1, 5),
        ([(0, 10)], 5, 9, 1, 10),
        ([(0, 10)], 5, 9, 2, 5),
        ([(0, 10), (15, 20)], 5, 5, 1, 10),  # fits exactly
        ([(0, 10), (15, 20)], 5, 6, 1, 20),
        ([(0, 10), (2, 12), (12, 14)], 0, 2, 2, 0),
        ([(0, 10), (2, 12), (12, 14)], 0, 3, 2, 10),  # the full stretch ends where one of the two does
        ([(0, 10)], 5, 0, 1, 5),
    ],
)
def test_the_next_time_that_is_free(intervals, begin, length, limit, expected):
    assert filled(*intervals).next_free(begin, length, limit, 10) == expected


@pytest.mark.parametrize("more", [[], [(-9, 500)]], ids=["begins are leaves", "ends are leaves"])
def test_of_equal_peaks_the_first_one_counts(more):
    apart = [*more, *((2 * n, 2 * n + 1) for n in range(64))]
    for begin in range(-1, 126):
        known = [*apart, (begin, 200)]
        expected = (2 + len(more), max(begin + begin % 2, 0))
        assert filled(*known).peak(-5, 1_000) == naive_peak(known, -5, 1_000) == expected


def test_a_stretch_is_passed_in_one_try():
    stairs = filled((0, 10), (0, 20), (0, 30), (5, 25))
    assert stairs.next_free(0, 5, 1, 2) == 30
    assert stairs.next_free(0, 5, 1, 1) is None
    assert stairs.next_free(0, 5, 3, 2) == 20


def test_the_search_is_given_up_after_so_many_tries():
    stretches = filled(*((2 * n, 2 * n + 1) for n in range(10)))
    assert stretches.next_free(0, 2, 1, 11) == 19
    assert stretches.next_free(0, 2, 1, 10) is None
    assert stretches.next_free(0, 2, 0, 100) is None, "nobody meets less than nobody"


def test_what_is_shown_of_an_empty_one():
    empty = filled((3, 3))
    assert (len(empty), empty.first(), empty.next_change(0)) == (0, None, None)
    empty.remove(3, 3)
    empty.check_invariants([])


small = st.tuples(st.integers(-3, 12), st.integers(-3, 12))
large = st.tuples(st.integers(0, LONG), st.integers(0, LONG)).map(lambda pair: (pair[0], pair[0] + pair[1]))
intervals = st.lists(small | large, max_size=30)


@given(st.lists(st.tuples(st.booleans(), small | large, st.integers(0, 99)), max_size=40), small | large)
def test_against_the_list_of_intervals(script, asked):
    made, known = Calendar(), []
    for add, interval, index in script:
        if add or not known:
            made.add(*interval)
            known.append(interval)
        else:
            made.remove(*known.pop(index % len(known)))
        made.check_invariants(known)
        real = [interval for interval in known if interval[0] < interval[1]]
        assert len(made) == len(real)
        assert made.first() == min((begin for begin, _ in real), default=None)
        assert made.peak(*interval) == naive_peak(real, *interval)
    assert made.peak(*asked) == naive_peak(real if script else [], *asked)


@given(intervals, st.integers(-5, 15), st.integers(1, 9) | st.just(LONG), st.integers(1, 3))
def test_the_next_free_time_against_trying_all(known, begin, length, limit):
    made = filled(*known)
    real = [interval for interval in known if interval[0] < interval[1]]
    expected = naive_free(real, begin, length, limit)
    assert made.next_free(begin, length, limit, len(known) + 1) == expected
    assert made.next_free(begin, length, limit, 2) in (None, expected)


@given(intervals, st.integers(-5, 15))
def test_the_level_stays_until_the_next_change(known, after):
    made = filled(*known)
    real = [interval for interval in known if interval[0] < interval[1]]
    ends = sorted(end for interval in real for end in interval if end > after)
    changes = [at for at in ends if level(real, at) != level(real, at - 1)]
    assert made.next_change(after) == (changes[0] if changes else None)


@given(intervals)
def test_what_is_taken_out_leaves_nothing(known):
    made = filled(*known)
    for interval in reversed(known):
        made.remove(*interval)
    made.check_invariants([])
    assert made._root is calendar.NOTHING


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        ([], "are counted"),
        ([(0, 5), (5, 11)], "not those"),
        ([(0, 5), (4, 10), (5, 10)], "are counted"),
    ],
)
def test_the_check_sees_other_intervals(claimed, message):
    with pytest.raises(AssertionError, match=message):
        filled((0, 5), (5, 10)).check_invariants(claimed)


@pytest.mark.parametrize(("name", "value"), [("top", 7), ("low", -1), ("total", 1), ("height", 9), ("top_at", 3)])
def test_the_check_sees_wrong_sums(name, value):
    made = filled((0, 5), (5, 10), (2, 8))
    setattr(made._root, name, value)
    with pytest.raises(AssertionError, match=r"sums|balance"):
        made.check_invariants([(0, 5), (5, 10), (2, 8)])


# --- cost


def lines_of(call, *arguments):
    """How many lines of the module are run."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        if frame.f_code.co_filename != calendar.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*arguments)
    finally:
        sys.settrace(before)
    return count


def zigzag(n):
    """The next one between the last two."""
    low, high = 0, LONG
    for index in range(n):
        yield (low, high)
        if index % 2:
            low += (high - low) // 3
        else:
            high -= (high - low) // 3


ORDERS = {
    "ascending": lambda n: ((i * SECOND, i * SECOND + LONG) for i in range(n)),
    "descending": lambda n: ((-i * SECOND, LONG - i * SECOND) for i in range(n)),
    "nested": lambda n: ((i, LONG - i) for i in range(n)),
    "one over all": lambda n: ((i, LONG) for i in range(n)),
    "apart": lambda n: ((2 * i, 2 * i + 1) for i in range(n)),
    "zigzag": zigzag,
    "scattered": lambda n: ((i * 7_919 % 10_007 * SECOND, i * 7_919 % 10_007 * SECOND + LONG) for i in range(n)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [100, 5_000])
def test_every_operation_costs_a_path_in_whatever_order_they_come(order, n):
    known = list(ORDERS[order](n))
    made = filled(*known)
    depth = 1.4405 * log2(2 * n + 2)
    assert made._root.height <= depth
    for begin, end in known[:: n // 50]:
        assert lines_of(made.peak, begin, end) <= 45 * depth
        assert lines_of(made.next_change, begin) <= 4 * depth + 5
        assert lines_of(made.remove, begin, end) <= 60 * depth
        assert lines_of(made.add, begin, end) <= 60 * depth
        assert lines_of(made.next_free, begin, SECOND, 1, 3) <= 3 * 60 * depth
    assert lines_of(made.first) <= 4 * depth + 5
    for begin, end in known[: n // 2]:
        made.remove(begin, end)
    assert made._root.height <= 1.4405 * log2(n + 2)
    made.check_invariants(known[n // 2 :])
