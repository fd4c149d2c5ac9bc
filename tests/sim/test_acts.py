"""What happens in a simulated world: every act at any time, every fault with everything it can meet, herds, replays."""

import os
import subprocess
import sys
from collections import Counter
from itertools import count, islice
from random import Random

import pytest

from cronoq_sansio.service import messages as m
from cronoq_sansio.settings_table import LIMITS, OUTPUTS
from cronoq_sansio.sim import ALL_FAULTS, FAULTS, Coverage, run_seed
from cronoq_sansio.sim.choices import RecordedChoices
from cronoq_sansio.sim.faults import Swarm
from cronoq_sansio.sim.server import worlds
from cronoq_sansio.sim.server.world import BUSY_ACTS, ServerWorld
from tests.tidy.tree import ROOT

ENOUGH = 90
"""Seeds in which every pair of a fault and what it can meet must have been met; half of them are enough today."""
STEPS = 1_500
DURABLE = next(seed for seed in range(100) if not worlds.draw(Random(seed)).volatile)
HUGE = next(seed for seed in range(1_000) if worlds.draw(Random(seed)).herd == worlds.HUGE)


def world_of(seed, rate):
    return ServerWorld(seed, RecordedChoices(seed), Swarm(dict.fromkeys(ALL_FAULTS, rate)))


# --- every act at any time


def fresh(world):
    """A term that has just begun."""
    for node in list(world.nodes):
        node.end("a fault")
    world.operators.start_term()


def busy(world):
    """Calls are open, workers run something."""
    while not world.nodes or not world.nodes[0].engine.running or not world.nodes[0].asks:
        world.step()


def hanging(world):
    """A transaction is in flight."""
    busy(world)
    while not world.nodes or world.nodes[0].flight is None:
        world.callers.submit()
        world.step()


def two(world):
    """The old leader does not know yet that there is another one."""
    busy(world)
    if len(world.nodes) < 2:
        world.operators.start_term()


def stopping(world):
    """The term is told to stop, and has some time left."""
    fresh(world)
    busy(world)
    world.nodes[0].stopping = True
    world.nodes[0].handle(m.StopRequested(10**12))


def nobody(world):
    """Nobody serves."""
    for node in list(world.nodes):
        node.end("a fault")


@pytest.mark.parametrize("rate", [1, 4], ids=["every fault", "some faults"])
@pytest.mark.parametrize("phase", [fresh, busy, hanging, two, stopping, nobody])
def test_every_act_can_happen_at_any_time(phase, rate):
    world = world_of(DURABLE, 64)
    for name in dict.fromkeys(BUSY_ACTS):
        world.swarm.rates = dict.fromkeys(ALL_FAULTS, 64)
        phase(world)
        world.swarm.rates = dict.fromkeys(ALL_FAULTS, rate)
        world._acts[name]()
        for node in world.nodes:
            node.flush()


def test_no_two_actors_have_an_act_of_one_name():
    world = world_of(DURABLE, 0)
    actors = (world.callers, world.workers, world.strangers, world.operators, world.together, world.rush)
    names = Counter(name for actor in actors for name in actor.OFTEN)
    assert set(names.values()) == {1}
    assert names.keys() == {*BUSY_ACTS, "restart"}  # which happens when nobody serves, and only then


# --- every fault with everything it can meet


def test_every_fault_meets_everything_that_it_can_meet():
    coverage = Coverage()
    quiet = (seed for seed in count() if not worlds.draw(Random(seed)).busy)  # busy ones take longer to meet as much
    for seed in islice(quiet, ENOUGH):
        if not coverage.holes(ALL_FAULTS):
            break
        outcome = run_seed(seed, steps=STEPS, world="server")
        assert outcome.failure is None, (seed, outcome.failure.what)
        coverage.add(outcome.coverage)
    assert coverage.holes(ALL_FAULTS) == []
    assert coverage.counts.keys() == {(fault.name, operation) for fault in FAULTS for operation in fault.meets}


def test_a_read_brings_what_several_peers_do():
    """As on a busy server: more events than acts, and steps with many of them."""
    sizes = Counter()

    class Counting(ServerWorld):
        def count(self, node, events):
            sizes[len(events)] += 1
            super().count(node, events)

    world = Counting(DURABLE, RecordedChoices(DURABLE), Swarm(dict.fromkeys(ALL_FAULTS, 0)))
    for _ in range(600):
        world.step()
    assert world.events > 2 * 600
    assert sum(count for size, count in sizes.items() if size >= 5) > 50


# --- herds


@pytest.mark.parametrize("kind", ["fixed starts", "retries", "children", "schedules"])
def test_ten_thousand_tasks_at_one_instant(kind):
    world = world_of(HUGE, 0)
    node = world.nodes[0]
    due = world.together._kinds[kind](node, world.herd)
    assert due
    assert node.serving
    totals, least = node.engine.totals, worlds.HUGE
    assert totals.submitted >= (least if kind != "schedules" else 900)
    if kind == "retries":
        assert totals.retries >= 900
    world.look()
    world.heal()


# --- the same again


def test_worlds_are_the_same_in_processes_with_other_hashes():
    code = (
        "from cronoq_sansio.sim import run_seed\n"
        "for seed in (0, 1, 2, 3, 5, 8, 61): print(run_seed(seed, steps=250 if seed % 4 != 3 else 60).hash)"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
            text=True,
            timeout=120,
        ).stdout.split()
        for number in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == 7


# --- settings


def test_the_configurations_of_worlds_could_stand_in_a_file():
    """Where the file has a range; the smallest bounds of memory are below it, so that they are reached."""
    tables = ((LIMITS, "limits"), (OUTPUTS, "outputs"))
    seen = set()
    for seed in range(300):
        settings = worlds.draw(Random(seed)).settings
        seen.add(settings)
        for table, part in tables:
            for key in table.keys:
                if key.minimum is None or key.name.endswith("_s"):
                    continue
                value = getattr(getattr(settings, part), key.field)
                assert key.minimum <= value <= key.maximum, (seed, key.name)
        assert settings.outputs.cache_bytes or not settings.outputs.cache_entries
        assert {pool.name for pool in settings.pools} == {"a", "b", "c", "d"}
    assert len(seen) > 20
