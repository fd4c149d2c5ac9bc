"""The healed phase: sound servers come to rest, and each way of not coming to rest is noticed and named."""

from random import Random

import pytest

from cronoq_sansio.engine.leases import Leases
from cronoq_sansio.engine.stocks import Semaphore
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.lookups import Lookups
from cronoq_sansio.service.stopping import Stopping
from cronoq_sansio.service.waits import Waits
from cronoq_sansio.service.watches import Watches
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim import ALL_FAULTS, Kind, run_seed
from cronoq_sansio.sim.choices import RecordedChoices
from cronoq_sansio.sim.faults import Swarm
from cronoq_sansio.sim.plants.planting import Patch, nothing
from cronoq_sansio.sim.server.sizes import sizes
from cronoq_sansio.sim.server.world import ServerWorld

SEEDS = tuple(seed for seed in range(80) if seed % 4 != 3)


def forget_but_not_the_key(table):
    del table._retained[table.finished.popleft().task_id]


def close_without_timer(calls, call):
    """`Calls.close` as it is, but the timer of the call stays."""
    call.open = False
    calls._detach(call)
    if call.budget is not None:
        call.budget.open -= 1
        call.budget = None


PLANTED = {
    "a wait that its task does not answer": (Waits, "take", nothing, {"a call is never answered"}),
    "an answer of the store that nobody gets": (Lookups, "take", nothing, {"a call is never answered"}),
    "watchers that hear nothing": (Watches, "ended", nothing, {"a watcher never hears of an end"}),
    "heartbeats that count for nothing": (
        Workers,
        "_heartbeat",
        nothing,
        {"a lease expires although its worker keeps it"},
    ),
    "a stop that never gets to its end": (Stopping, "advance", nothing, {"a stop in order never ends"}),
    "leases that are never taken back": (Leases, "pop_due", nothing, {"timers never come to rest"}),
    "permits that do not come back": (
        Semaphore,
        "attempt_ended",
        nothing,
        {"units of a resource are never returned", "a task never ends: READY in pool d"},
    ),
    "keys that are remembered for ever": (TaskTable, "expire", nothing, {"a size does not return: retained_tasks"}),
    "a size that nobody publishes": (
        TaskTable,
        "_forget",
        forget_but_not_the_key,
        {"a size does not return: engine.tasks.keys"},
    ),
    "timers of calls that are over": (
        Calls,
        "close",
        close_without_timer,
        {"a size does not return: service_timers", "a size does not return: service._timers.heap"},
    ),
}


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_a_sound_server_comes_to_rest(seed):
    assert run_seed(seed, steps=250, world="server").failure is None


@pytest.mark.parametrize("name", PLANTED)
def test_what_never_comes_to_rest_is_noticed(name):
    target, attribute, stand_in, wanted = PLANTED[name]
    patch = Patch()
    patch.setattr(target, attribute, stand_in)
    found = {}
    try:
        for seed in SEEDS:
            failure = run_seed(seed, steps=200, world="server").failure
            if failure is not None:
                found[failure.what] = failure.kind
            if found.keys() & wanted:
                break
    finally:
        patch.undo()
    assert [found[what] for what in found if what in wanted] == [Kind.LIVENESS], found


@pytest.mark.parametrize("seed", [1, 9])
def test_nothing_is_chosen_and_everybody_has_gone(seed):
    choices = RecordedChoices(seed)
    world = ServerWorld(seed, choices, Swarm.draw(choices, ALL_FAULTS))
    choices.begin_step()
    for _ in range(200):
        world.step()
    picks = choices.steps()
    world.heal()
    assert choices.steps() == picks
    (node,) = world.nodes
    assert not node.asks and not node.workers and not node.flight
    assert not world.store.rows.live()


def test_sizes_names_what_has_grown():
    table = TaskTable.__new__(TaskTable)
    table.keys = {"k": object()}
    table._retained = {1: [Random(0)], 2: [7, 8]}
    assert sizes("table", table) == {"table.keys": 1, "table._retained": 2, "table._retained[]": 3}
