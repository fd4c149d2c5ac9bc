"""The search structures of waiting tasks against lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.units import ByUnits, Ranked


class Thing:
    def __init__(self, place):
        self.place = place


AMOUNTS = st.one_of(st.integers(0, 9), st.integers(0, 10**12))


@given(
    st.lists(st.tuples(st.sampled_from(["put", "put", "move", "remove"]), AMOUNTS, st.integers())), st.lists(AMOUNTS)
)
def test_by_units_against_a_dictionary(operations, asked):
    structure, naive = ByUnits(), {}
    for number, (operation, units, place) in enumerate(operations):
        place = place * 1_000 + number  # no two are equal
        known = sorted(naive)
        if operation == "put" and units not in naive:
            naive[units] = Thing(place)
            structure.put(units, naive[units])
        elif operation == "move" and known:
            naive[known[units % len(known)]].place = place
            structure.put(known[units % len(known)], naive[known[units % len(known)]])
        elif operation == "remove" and known:
            structure.remove(known[units % len(known)])
            del naive[known[units % len(known)]]
        assert structure.things() == naive and len(structure) == len(naive) and bool(structure) == bool(naive)
        if naive:
            assert structure.smallest() == min(naive)
            assert structure.first() is min(naive.values(), key=lambda thing: thing.place)
        for most in (-2, -1, *asked, *naive, *(units - 1 for units in naive)):
            fitting = [thing for units, thing in naive.items() if units <= most]
            assert structure.lowest(most) is min(fitting, key=lambda thing: thing.place, default=None)
            assert structure.get(most) is naive.get(most)


def test_nothing_is_left_of_amounts_that_are_gone():
    structure = ByUnits()
    for units in range(1, 1_000):
        structure.put(units, Thing(units))
    for units in range(1, 1_000):
        structure.remove(units)
    assert not any(structure._levels)


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "discard", "take"]), st.integers(0, 9), st.integers(0, 9))))
def test_ranked_against_a_dictionary(operations):
    ranked, naive = Ranked(), {}
    for operation, member, number in operations:
        if operation == "put":
            ranked.put(member, number)
            naive[member] = number
        elif operation == "discard":
            ranked.discard(member)
            naive.pop(member, None)
        elif (first := ranked.first()) is not None:
            ranked.discard(first)
            del naive[first]
        assert ranked.numbers == naive
        first = ranked.first()
        assert (None if first is None else naive[first]) == min(naive.values(), default=None)


@pytest.mark.parametrize("steps", [range(10_000), range(10_000, 0, -1)], ids=["up", "down"])
def test_a_number_that_changes_for_ever_leaves_nothing_behind(steps):
    ranked = Ranked()
    ranked.put("other", 5_000)
    for number in steps:
        ranked.put("one", number)
    assert (
        len(ranked._heap) < 100
        and ranked.first() == min(("other", 5_000), ("one", steps[-1]), key=lambda pair: pair[1])[0]
    )
