"""Cron expressions against slow and foreign oracles, and in every zone of tzdata."""

from datetime import datetime, timedelta
from functools import cache

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import FOLDS, GAPS, Cron, compile_cron, zone_names
from tests.engine.cron_oracle import EPOCH, at, fires, naive_fires, offset, rules_of, transitions

HOURS = 3_600
BEGIN, END = at("2026-06-01T00:00Z"), at("2028-06-01T00:00Z")
ZONES = ("America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Europe/Dublin", "America/Santiago")


@cache
def different():
    """The zones by name, one of those with equal rules."""
    return tuple({rules_of(name): name for name in zone_names()}.values())


@cache
def moving():
    """Those whose clocks change."""
    return tuple(name for name in different() if transitions(name, BEGIN, END))


@st.composite
def numbers(draw, low, high, *, plain=False):
    """A field and what it names."""
    kinds = ["values", "range", *([] if plain else ["*", "step"])]
    kind = draw(st.sampled_from(kinds))
    values = st.integers(low, high)
    if kind == "*":
        return "*", set(range(low, high + 1))
    if kind == "step":
        step = draw(st.integers(1, high - low + 1))
        return f"*/{step}", set(range(low, high + 1, step))
    if kind == "range":
        first, last = sorted(draw(st.lists(values, min_size=2, max_size=2, unique=True)))
        return f"{first}-{last}", set(range(first, last + 1))
    found = draw(st.lists(values, min_size=1, max_size=4))
    return ",".join(str(number) for number in found), set(found)


@st.composite
def hours_near(draw, hour):
    """A field of hours that has to do with this hour."""
    if draw(st.booleans()):
        return draw(numbers(0, 23))
    found = [(hour + shift) % 24 for shift in draw(st.lists(st.integers(-2, 2), min_size=1, max_size=3))]
    return ",".join(str(number) for number in found), set(found)


@st.composite
def cases(draw):
    """An expression of minutes and hours, in a zone, near a change of its clocks."""
    zone = draw(st.sampled_from(ZONES) | st.sampled_from(moving()))
    change = draw(st.sampled_from(transitions(zone, BEGIN, END)))
    local_hour = (change + offset(zone, change)) // HOURS % 24
    minutes, hours = draw(numbers(0, 59)), draw(hours_near(local_hour))
    return zone, change, minutes, hours, draw(st.sampled_from(GAPS)), draw(st.sampled_from(FOLDS))


NEW_YORK_AHEAD = at("2027-03-14T07:00Z")
TO_34 = ("0-34", set(range(35)))


@example(("America/New_York", NEW_YORK_AHEAD, TO_34, ("4,2,1", {1, 2, 4}), "skip", "first"), -1_561)
@given(cases(), st.integers(-5 * HOURS, 5 * HOURS))
def test_fires_near_changes_of_clocks_are_those_of_the_rules(case, shift):
    zone, change, (minutes, named_minutes), (hours, named_hours), gap, fold = case
    every = "*" in hours or "/" in hours or len(named_hours) == 24

    def named(local):
        return local // 60 % 60 in named_minutes and local // HOURS % 24 in named_hours

    cron = compile_cron(f"{minutes} {hours} * * *", zone, gap, fold)
    begin, start, end = change - 30 * HOURS, change + shift, change + 6 * HOURS
    rules = {"gap": gap, "fold": "every" if every else fold}
    everything = naive_fires(named, zone, begin, end + 24 * HOURS, 60, **rules)
    expected = [second for second in everything if start < second < end]
    found = fires(cron, start * SECOND, end * SECOND)
    assert [fire.at // SECOND for fire in found] == expected
    latest = cron.latest(start * SECOND, (end - 1) * SECOND)
    assert latest == (found[-1] if found else None)
    assert [cron.latest(start * SECOND, fire.at) for fire in found[:3]] == found[:3]
    for fire in found:
        if fire.mark != "second pass" or cron._fold == "last":
            assert cron.resolve(fire.local) == fire.at


@settings(max_examples=20)
@given(st.sampled_from(ZONES), st.data())
def test_seconds_near_changes_of_clocks_are_those_of_the_rules(zone, data):
    change = data.draw(st.sampled_from(transitions(zone, BEGIN, END)))
    seconds, named_seconds = data.draw(numbers(0, 59))
    gap, fold = data.draw(st.sampled_from(GAPS)), data.draw(st.sampled_from(FOLDS))
    hour = (change + offset(zone, change)) // HOURS % 24

    def named(local):
        return local % 60 in named_seconds and local // 60 % 60 == 59 and local // HOURS % 24 in (hour, (hour - 1) % 24)

    cron = compile_cron(f"{seconds} 59 {hour},{(hour - 1) % 24} * * *", zone, gap, fold)
    everything = naive_fires(named, zone, change - 3 * HOURS, change + 4 * HOURS, 1, gap=gap, fold=fold)
    start, end = change - 2 * HOURS, change + 2 * HOURS
    found = [fire.at // SECOND for fire in fires(cron, start * SECOND, end * SECOND)]
    assert found == [second for second in everything if start < second < end]


@pytest.mark.parametrize(("gap", "fold"), [("shift", "first"), ("skip", "last"), ("shift", "both")])
def test_fires_increase_strictly_in_every_zone_over_two_years(gap, fold):
    """Closely where the clocks change, and every month in between."""
    for zone in different():
        windows = [(BEGIN, END, "0 12 1 * *")]
        for change in transitions(zone, BEGIN, END):
            around = (change - 3 * HOURS, change + 3 * HOURS)
            windows += [(*around, "30 * * * *"), (*around, "*/25 0-22 * * *"), (*around, "15 0,1,2,3 * * *")]
        for begin, end, expression in windows:
            cron = compile_cron(expression, zone, gap, fold)
            instants = [begin * SECOND, *(fire.at for fire in fires(cron, begin * SECOND, end * SECOND))]
            assert all(one < other for one, other in zip(instants, instants[1:], strict=False)), (zone, expression)
            assert len(instants) > 23 or end - begin < 7 * HOURS


@st.composite
def expressions(draw):
    """Of the grammar that cronsim reads alike."""
    minutes, hours = draw(numbers(0, 59))[0], draw(numbers(0, 23))[0]
    months = draw(st.just("*") | numbers(1, 12).map(lambda field: field[0]) | st.sampled_from(["jan", "Feb,NOV"]))
    day = draw(st.sampled_from(["*", "L"]) | numbers(1, 28, plain=True).map(lambda field: field[0]))
    weekday = draw(st.just("*") | numbers(0, 6, plain=True).map(lambda field: field[0]) | st.just("Mon"))
    if day == "*" and draw(st.booleans()):
        weekday = f"{draw(st.integers(0, 6))}#{draw(st.integers(1, 5))}"
    seconds = draw(st.none() | numbers(0, 59).map(lambda field: field[0]))
    return " ".join([*([] if seconds is None else [seconds]), minutes, hours, day, months, weekday])


@given(expressions(), st.integers(0, 2**32))
def test_where_clocks_never_change_another_program_finds_the_same(expression, start):
    cron = compile_cron(expression, "Asia/Tokyo")
    zone_offset = 9 * HOURS
    other = CronSim(expression, (EPOCH + timedelta(seconds=start + zone_offset)).replace(tzinfo=None))
    now = start * SECOND
    for _ in range(4):
        fire = cron.next(now)
        local = next(other) - datetime(1970, 1, 1)
        assert fire.at == (local // timedelta(seconds=1) - zone_offset) * SECOND
        assert (fire.local, fire.mark) == (fire.at + zone_offset * SECOND, "")
        now = fire.at


@given(expressions(), st.integers(0, 2**32), st.integers(1, 2**26))
def test_the_latest_fire_is_the_last_of_all(expression, start, length):
    cron = compile_cron(expression, "Europe/Berlin")
    until = (start + length) * SECOND
    latest = cron.latest(start * SECOND, until)
    if latest is None:
        first = cron.next(start * SECOND)
        assert first is None or first.at > until
    else:
        assert start * SECOND < latest.at <= until
        following = cron.next(latest.at)
        assert following is None or following.at > until


WORDS = ["*", "/", "-", ",", "?", "#", "L", "l", "H", "R", "W", "mon", "Feb", "0", "5", "31", "59", "100", "@daily"]
FIELD = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("".join)


@given(st.lists(FIELD, min_size=4, max_size=7).map(" ".join) | st.text(max_size=300))
def test_any_text_is_a_schedule_or_a_sentence(text):
    cron = compile_cron(text, "Europe/Berlin")
    if isinstance(cron, Cron):
        begin = at("2027-01-01T00:00Z") * SECOND
        assert cron.next(begin).at > begin, "what is accepted fires"
    else:
        assert cron.startswith("cron: ") and cron.isprintable() and len(cron) < 300
