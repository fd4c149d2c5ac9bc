"""Learned run times against the list of all samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.limits import MAX_LEARNED_KINDS


def learned(*samples, kind="mail", fixed=False):
    durations = Durations(7)
    for sample in samples:
        durations.add(kind, sample, fixed=fixed)
    return durations


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((), 7),
        ((100,), 100),
        ((100, 200), 110),
        ((200, 100), 190),
        ((100, 100, 1_000_000), 100),
        ((4, 1, 9, 2), 3),
        ((4, 1, 9, 3), 3),
        ((SECOND,) * 40 + (2 * SECOND,) * 32, SECOND * 3 // 2),
        ((SECOND,) * 40 + (2 * SECOND,) * 33, 2 * SECOND),
    ],
)
def test_estimates(samples, expected):
    durations = learned(*samples)
    assert durations.estimate("mail") == expected
    assert durations.estimate("another") == expected, "all that is known of the pool"


def test_a_kind_comes_before_its_pool():
    durations = learned(10, 20, 30, 40, kind="fast")
    durations.add("slow", 1_000)
    assert durations.estimate("fast") == 25
    assert durations.estimate("slow") == 1_000
    assert durations.estimate("") == 30


def test_fixed_starts_teach_their_kind_alone():
    durations = learned(100, kind="backup", fixed=True)
    assert durations.estimate("backup") == 100
    assert durations.estimate("mail") == 7, "of the pool nothing is known yet"
    assert durations.quantile(90) is durations.mean() is None
    durations.add("mail", 20)
    durations.add("backup", 200, fixed=True)
    assert (durations.estimate("backup"), durations.estimate("other")) == (110, 20)
    assert durations.quantile(90) == durations.mean() == 20


def test_one_kind_may_be_both():
    durations = learned(100, fixed=True)
    durations.add("mail", 200)
    assert durations.estimate("mail") == 110
    assert durations.mean() == 200


def naive(samples, default):
    if not samples:
        return default
    if len(samples) < 3:
        mean = samples[0]
        for sample in samples[1:]:
            mean += (sample - mean) // 10
        return mean
    ordered = sorted(samples[-64:])
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.one_of(st.integers(0, 9), st.integers(0, 10**9)), st.booleans(), st.booleans()
        )
    )
)
def test_against_the_list_of_all_samples(history):
    durations, known = Durations(7), []
    for kind, duration, fixed, ask in history * 3:
        durations.add(kind, duration, fixed=fixed)
        known.append((kind, duration, fixed))
        pool = [duration for _, duration, fixed in known if not fixed]
        window = pool[-64:]
        assert durations.mean() == (sum(window) // len(window) if window else None)
        if ask:
            for asked in "abcd":
                own = [duration for kind, duration, _ in known if kind == asked]
                assert durations.estimate(asked) == naive(own or pool, 7)
            assert durations.quantile(100) == max(window, default=None)
        durations.check_invariants()


def test_samples_that_nobody_asks_for_do_not_pile_up():
    durations = learned(*range(10_000))
    assert len(durations._pool.fresh) == 64
    assert durations.estimate("mail") == (9_967 + 9_968) // 2


def test_the_kind_that_came_up_first_is_forgotten_first():
    durations = Durations(7)
    for number in range(MAX_LEARNED_KINDS + 1):
        durations.add(f"kind {number}", number)
    assert durations.kinds() == MAX_LEARNED_KINDS
    assert durations.estimate("kind 1") == 1
    assert durations.estimate("kind 0") == MAX_LEARNED_KINDS - 32, "as the pool does"


@pytest.mark.parametrize(
    ("samples", "percent", "expected"),
    [
        ((5,), 0, 5),
        ((5,), 100, 5),
        (range(0, 91, 9), 90, 81),
        ((0, 10), 90, 9),
        ((10, 0, 30, 20), 50, 15),
        ((1, 2, 3), 100, 3),
        ((1, 2, 3), 0, 1),
    ],
)
def test_quantiles(samples, percent, expected):
    assert learned(*samples).quantile(percent) == expected


def test_no_quantile_of_nothing():
    assert learned().quantile(90) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=90))
def test_quantiles_ascend_and_stay_within_the_window(samples):
    durations = learned(*samples)
    found = [durations.quantile(percent) for percent in range(0, 101, 10)]
    window = sorted(samples[-64:])
    assert found == sorted(found) and found[0] == window[0] and found[-1] == window[-1]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((), None),
        ((5,), 5),
        ((1, 2), 1),
        ((1_000,) * 36 + (0,) * 64, 0),
        ((1_000,) * 32 + (0,) * 32, 500),
    ],
)
@pytest.mark.parametrize("asked_between", [False, True])
def test_the_mean_is_that_of_the_window(samples, expected, asked_between):
    durations = Durations(7)
    for sample in samples:
        durations.add("mail", sample)
        if asked_between:
            durations.quantile(50)
    assert durations.mean() == expected


def test_the_check_sees_samples_that_got_lost():
    durations = learned(1, 2, 3)
    durations.quantile(50)
    durations._pool._sorted.pop()
    with pytest.raises(AssertionError, match="window"):
        durations.check_invariants()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.lists(st.booleans(), min_size=200, max_size=200))
def test_a_watched_quantile_never_rises_without_an_alarm(samples: list[int], looks: list[bool]) -> None:
    durations = Durations(0)
    durations.watch(90)
    known = -1
    for sample, look in zip(samples, looks, strict=False):
        durations.add("kind", sample)
        found = durations.quantile(90)
        assert found is not None
        assert durations.alarmed or found <= known
        if durations.alarmed and look:
            durations.watch(90)
            known = found


def test_a_quantile_that_somebody_acted_on_never_rises_without_an_alarm():
    """It had fallen since it was watched: what was long then is longer than what was answered."""
    durations = Durations(default=SECOND)
    durations.add("kind", 3 * SECOND)
    durations.watch(90)
    for _ in range(64):
        durations.add("kind", SECOND)
    assert durations.heed(90) == SECOND and not durations.alarmed
    durations.add("kind", 2 * SECOND)
    assert durations.alarmed
