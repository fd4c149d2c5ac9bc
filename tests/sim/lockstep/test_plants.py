"""Bugs planted in the engine, each of which the lockstep must find: a test that cannot fail shows nothing."""

import pytest

from cronoq_sansio.sim.choices import RandomChoices
from cronoq_sansio.sim.lockstep.shorten import shortened
from cronoq_sansio.sim.lockstep.workload import Workload, some_world
from cronoq_sansio.sim.lockstep.world import Divergence
from cronoq_sansio.sim.plants import engine as plants_engine
from cronoq_sansio.sim.plants import planted
from cronoq_sansio.sim.plants import time as plants_time

NAMES = [plant.name for bed in (plants_engine.BED, plants_time.BED) for plant in bed.plants]


@pytest.mark.parametrize("name", NAMES)
def test_the_lockstep_finds(name):
    with planted(name):
        for seed in (3, 2, 5, 6, 1, 4):
            world = some_world(seed)
            try:
                Workload(world, RandomChoices(seed)).live(8_000)
            except Divergence as divergence:
                assert divergence.what in str(divergence)
                return
    raise AssertionError("nothing was found")


def test_a_difference_is_cut_down_to_a_readable_transcript():
    with planted("labelled-groups-are-no-rarer"):
        world = some_world(5)
        with pytest.raises(Divergence) as caught:
            Workload(world, RandomChoices(5)).live(8_000)
        short = shortened(world, caught.value)
    assert short.what == caught.value.what
    lines = str(short).splitlines()
    assert len(lines) < len(str(caught.value).splitlines())
    assert any("expected" in line for line in lines) and any("found" in line for line in lines)
    assert sum("Submitted" in line for line in lines) <= 2
