"""Every planted bug has a name and a sentence, goes in and comes out without a trace, and is found."""

import importlib
import pkgutil
import re

import pytest

import cronoq_sansio
from bench.harness.plant_ledger import Entry, Ledger
from cronoq_sansio.sim import run_seed
from cronoq_sansio.sim.plants import BEDS, HOLES, PLANTS, planted
from tests.tidy.tree import ROOT

LEDGER = Ledger(ROOT / "bench" / "plants.json", 0)
MOST = 200
"""Seeds that a bug may need, in the median and here."""

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(cronoq_sansio.__path__, "cronoq_sansio.")
    if not found.name.endswith("__main__") and not found.name.startswith("cronoq_sansio.wire")
]


def everything():
    """Every attribute of the package's modules and classes, and every entry of the mappings among them."""
    found = {}
    for module in MODULES:
        for name, value in vars(module).items():
            found[module.__name__, name] = value
            if isinstance(value, dict):
                found |= {(module.__name__, name, str(key)): entry for key, entry in value.items()}
            if isinstance(value, type) and value.__module__ == module.__name__:
                found |= {(module.__name__, name, attribute): entry for attribute, entry in vars(value).items()}
    return found


def changed(before, after):
    """What is there in one and not, or as another object, in the other."""
    return [key for key in {**before, **after} if before.get(key) is not after.get(key)]


def test_there_are_many():
    assert len(PLANTS) >= 40
    assert len(PLANTS) == sum(len(bed.plants) for bed in BEDS.values()), "two have one name"
    assert not PLANTS.keys() & HOLES.keys()


@pytest.mark.parametrize("name", PLANTS)
def test_each_has_a_name_and_a_sentence(name):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", name)
    what = PLANTS[name].what
    assert re.fullmatch(r"[A-Z][^.|\n]+\.", what), what
    assert len(what) <= 120
    assert [plant.name for plant in PLANTS.values() if plant.what == what] == [name]


def test_each_goes_in_and_comes_out():
    before = everything()
    for name in (*PLANTS, *HOLES):
        with planted(name):
            inside = changed(before, everything())
        assert 1 <= len(inside) <= 3, f"{name} changes {inside}"
        assert not changed(before, everything()), name


def test_it_comes_out_after_a_fault():
    before = everything()
    with pytest.raises(ZeroDivisionError), planted("heartbeats-are-ignored"):
        raise ZeroDivisionError
    assert not changed(before, everything())


def test_an_unknown_one():
    with pytest.raises(KeyError):
        planted("no-such-bug").__enter__()


def test_each_was_measured_and_none_is_rare():
    assert list(LEDGER.plants) == [*PLANTS, *HOLES], "run bench/plants_bench.py, then tools/generate_reference.py"
    medians = {name: LEDGER.plants[name].median(LEDGER.cap) for name in PLANTS}
    assert LEDGER.cap <= MOST
    assert not {name: median for name, median in medians.items() if median > LEDGER.cap}


@pytest.mark.parametrize("name", PLANTS)
def test_it_is_found(name):
    """By a seed that found it before; when the simulator has changed since, by one of the next ones."""
    known = LEDGER.plants.get(name, Entry()).seeds()
    for seed in (*known, *range(MOST)):
        if run_seed(seed, plant=name).failure is not None:
            return
    raise AssertionError(f"not found by the seeds {known}, nor by one of the first {MOST}")
