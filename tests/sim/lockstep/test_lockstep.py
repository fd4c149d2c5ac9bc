"""Engine and naive model under the same events: long seeded runs that must reach every rule, short ones that shrink."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from cronoq_sansio.sim.choices import RandomChoices
from cronoq_sansio.sim.lockstep.shorten import shortened
from cronoq_sansio.sim.lockstep.workload import BEGINNINGS, FEATURES, OFTEN, Workload, small_settings, some_world
from cronoq_sansio.sim.lockstep.world import Divergence, World

#: Every rule of the model, as operation and outcome. A run that leaves one of them out shows nothing about it.
REACHED = {
    "submit": "admitted waits duplicate invalid unknown_pool unknown_resource resource_exceeds_capacity "
    "unknown_dependency cycle reservation_conflict overloaded full",
    "turn": "admitted duplicate overloaded unknown_dependency resource_exceeds_capacity reservation_conflict",
    "withdraw": "withdrawn, nobody waits",
    "batch": "admitted, with duplicates, invalid, unknown_pool, unknown_resource, resource_exceeds_capacity, "
    "unknown_dependency, cycle, duplicate_key_in_batch, reservation_conflict, overloaded, full",
    "bounds": "never, too large",
    "reject": "fits overloaded",
    "wait": "fits full",
    "shed_lowest": "fits, shed, no victim, a victim would not help, in vain",
    "shed_oldest": "fits, shed, no victim, a victim would not help, in vain",
    "cancel": "blocked, scheduled, ready, parked, running, retrying, not live",
    "start": "has come; has come, held; on a free slot; on the held slot",
    "hold a slot": "held; lost, scheduled; lost, ready; lost, parked",
    "missed": "skipped at once, skipped at its turn, skipped blocked, skipped scheduled, skipped ready, "
    "failed at once, failed at its turn, failed blocked, failed scheduled, failed ready",
    "put": "added, kept on, begins anew, invalid, overloaded, failed_precondition",
    "remove": "removed, nobody has it, configured",
    "fire": "made in time, made late, one missed, several missed, exists, overlap, conflict, overload, invalid, "
    "foreign key, first pass, second pass, predecessor, an earlier one runs late",
    "scale": "up; up half the way; down; rests; stays as it was within the last minute",
    "capacity": "set, group dropped",
    "limit": "semaphore, token_bucket",
    "return": "taken back, ignored",
    "release": "released, ignored",
    "renew": "renewed, stale",
    "succeed": "taken, stale",
    "fail": "taken, stale, retried, dead-lettered, for ever",
    "cancelled by the worker": "taken, stale",
    "nack": "passed on, failed, stale",
    "lose": "failed, ignored",
    "hold": "True, False",
    "cascades": "held, go on",
    "watch": "True, False",
    "timer": "attempt timed out, lease expired, backoff over, awaited in vain",
    "edge": "to a live task, awaited, its key appeared, met at once, impossible at once, met later, impossible later",
    "resource": "parked, parked at its place, parked with a slot held, called, recalled",
    "recovery": "ready, running, retrying, blocked, edge met, edge impossible, awaited in vain, cannot run any more, "
    "schedule, schedule without support, schedule is not configured any more, configured schedule is new, "
    "configured schedule is as it was, configured schedule replaces a stored one",
}
PAIRS = {
    (operation, outcome)
    for operation, outcomes in REACHED.items()
    for outcome in outcomes.split("; " if "; " in outcomes else ", " if ", " in outcomes else None)
}
#: Needs a coincidence: a wall clock that goes back, and a key that retention had forgotten because too many ended; a
#: file with a schedule that does not fit into the memory; a schedule that is there in the very moment of a gap.
RARE = {
    ("recovery", "its key appeared"),
    ("recovery", "configured schedule does not fit"),
    ("fire", "moved"),
    ("fire", "left out by the clocks"),
}
SEEDS = (1, 2, 3, 4, 5)
STEPS = 12_000


@pytest.fixture(scope="module")
def notes():
    """How often each rule was followed in runs that are always the same."""
    found = Counter()
    for seed in SEEDS:
        world = some_world(seed)
        try:
            Workload(world, RandomChoices(seed)).live(STEPS)
        except Divergence as divergence:
            raise shortened(world, divergence) from None
        found.update(world.model.notes)
    return found


def test_every_rule_was_followed(notes):
    assert not [pair for pair in sorted(PAIRS) if not notes[pair]]


def test_the_table_of_rules_is_complete(notes):
    assert not [pair for pair in sorted(notes) if pair not in PAIRS | RARE]


class DrawnChoices:
    """Choices that hypothesis makes, and can make smaller."""

    def __init__(self):
        self.data = None

    def pick(self, options):
        return self.data.draw(st.sampled_from(options))


class Lockstep(RuleBasedStateMachine):
    """Whatever happens, in any order. One rule for each thing that can happen to a world."""

    @initialize(features=st.sets(st.sampled_from(FEATURES)), beginning=st.sampled_from(BEGINNINGS))
    def begin(self, features, beginning):
        self.choices = DrawnChoices()
        self.load = Workload(World(small_settings(), now=beginning), self.choices, sorted(features))

    def happen(self, data, name):
        self.choices.data = data
        getattr(self.load, name)()


def _rule(name):
    def happens(self, data):
        self.happen(data, name)

    happens.__name__ = name
    return rule(data=st.data())(happens)


for _name in OFTEN:
    setattr(Lockstep, _name, _rule(_name))

TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(max_examples=40, stateful_step_count=40)
