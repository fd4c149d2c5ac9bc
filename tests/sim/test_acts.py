"""What happens in a simulated world: every act at any time, every fault with everything it can meet, herds, replays."""

import os
import subprocess
import sys
from collections import Counter
from itertools import count, islice
from random import Random

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings_table import LIMITS, OUTPUTS
from cronoq_sansio.sim import ALL_FAULTS, FAULTS, Coverage, run_seed
from cronoq_sansio.sim.choices import RecordedChoices
from cronoq_sansio.sim.faults import BY_NAME, Swarm
from cronoq_sansio.sim.server import specs, worlds
from cronoq_sansio.sim.server.world import BUSY_ACTS, ServerWorld
from cronoq_sansio.spec import TaskStatus
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
    assert node.engine.totals.submitted >= worlds.HUGE
    if kind == "retries":
        assert node.engine.totals.retries >= worlds.HUGE * 0.5  # more pools have less room
    world.look()
    world.heal()


def test_a_huge_herd_whose_answers_pile_up_makes_the_outbox_look_who_is_still_there():
    swept = Counter()

    class Watched(Outbox):
        def _sweep(self):
            before = self._count
            super()._sweep()
            swept["sweeps"] += 1
            swept["actions"] += before - self._count

    def machine(engine, settings, now, *, volatile):
        service = Service(engine, settings, now, volatile=volatile)
        return Watched(service, volatile=volatile), service

    for number in range(4):
        world = ServerWorld(HUGE, RecordedChoices(number), Swarm(dict.fromkeys(ALL_FAULTS, 0)), machine)
        world.together._kinds["fixed starts"](world.nodes[0], world.herd)
        if swept["actions"]:
            break
    assert swept["sweeps"] >= 1
    assert swept["actions"] > 1_000


def test_so_many_watch_a_huge_herd_that_some_are_cut_off():
    world = world_of(HUGE, 0)
    node = world.nodes[0]
    for _ in range(20):
        world.together._watch(node)
    cut = []
    rejected = world.callers.rejected

    def refused(node, action):
        cut.append(action.rejection)
        rejected(node, action)

    world.performers[m.Reject] = refused
    assert world.together._kinds["fixed starts"](node, world.herd)
    world.heal()
    assert any("events" in rejection.message for rejection in cut)


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


def test_two_runs_that_say_something_else_of_the_same_number_have_other_hashes():
    def digest(*words):
        world = world_of(DURABLE, 0)
        node = world.nodes[0]
        for word in words:
            world.words += word
            world.said(node, ())
        return world.digest()

    assert digest(1, 2) == digest(1, 2)
    assert len({digest(1, 2), digest(2, 1), digest(3, 0)}) == 3


def test_what_is_told_of_tasks_is_in_the_hash():
    world = world_of(DURABLE, 0)
    node = world.nodes[0]
    seen = []
    said = world.said

    def heard(node, actions):
        seen.append(world.words)
        said(node, actions)

    world.said = heard
    for _ in range(300):
        world.step()
    assert node.serving
    assert len(set(seen)) > 50


# --- what counts, and when


def test_a_deadline_counts_when_it_passes():
    world = world_of(DURABLE, 0)
    node = world.nodes[0]
    ask = world.callers.ask(node, "wait", m.Wait("nobody's", 0), deadline=node.now + SECOND)
    node.flush()
    assert ("deadline", "wait") not in world.coverage.counts
    world.callers.ask(node, "wait", m.Wait("nobody's", 0), deadline=node.now)
    node.flush()
    assert world.coverage.counts["deadline", "wait"] == 1
    assert ask.deadline == node.now + SECOND


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_a_batch_over_the_bound_is_refused_for_it(seed):
    world = world_of(seed, 0)
    node = world.nodes[0]
    world.swarm.rates["odd request"] = 1
    refused = []
    rejected = world.callers.rejected

    def hear(node, action):
        refused.append((action.call.sink.odd, action.rejection.code))
        rejected(node, action)

    world.performers[m.Reject] = hear
    assert world.strangers._large_batch(node)
    world.advance(0)
    assert [odd for odd, _ in refused] == ["batch over the bound"]
    assert world.coverage.counts["odd request", "batch over the bound"] == 1


def running(world):
    """A worker that runs something, in a world without faults."""
    while True:
        world.step()
        for node in world.nodes:
            for worker in node.workers:
                if worker.leases and worker.registered and not node.inbox and not node.stopping:
                    return node, worker


def test_slots_are_cut_when_there_are_fewer_than_are_used():
    world = world_of(DURABLE, 0)
    node, worker = running(world)
    world.swarm.rates["slots cut"] = 1
    for _ in range(40):
        before = dict(world.coverage.counts)
        used = len(worker.leases) + len(worker.stream.session.unsent)
        world.workers.change_slots()
        sent = [event for event in node.inbox if type(getattr(event, "message", None)) is m.SetSlots]
        node.inbox.clear()
        counted = world.coverage.counts != before
        if sent and sent[-1].stream is worker.stream:
            assert counted == (sent[-1].message.slots < used)


def test_a_worker_that_is_done_and_loses_its_connection_comes_back_with_its_report():
    world = world_of(DURABLE, 0)
    node, worker = running(world)
    lease = next(iter(worker.leases))
    others = len(worker.leases) - 1
    world.workers._die_done(worker)
    kinds = [type(event) for event in node.inbox]
    assert kinds == [m.WorkerGone, m.WorkerConnected, m.WorkerSent, m.WorkerSent]
    assert type(node.inbox[-1].message) is m.Complete
    assert node.inbox[-1].message.lease in (lease, *worker.leases, *world.workers.lost_leases)
    assert len(worker.leases) == others
    before = node.engine.totals.succeeded
    node.flush()
    assert node.engine.totals.succeeded == before  # its lease ended with the connection


def test_a_worker_dies_between_its_report_and_the_commit():
    world = world_of(DURABLE, 0)
    node, worker = running(world)
    lease = world.workers.take(worker)
    node.inbox.append(m.WorkerSent(worker.stream, m.Complete(lease, b"", "")))
    world.workers._die_uncommitted(worker, lease)
    assert world.coverage.counts["worker death", "after the report before the commit"] == 1
    assert worker not in node.workers
    assert node.unwritten()


def test_a_zombie_is_not_who_holds_the_lease():
    world = world_of(DURABLE, 0)
    node, worker = running(world)
    world.swarm.rates["zombie"] = 1
    lease = world.workers.take(worker)  # and its report is lost
    for other in list(node.workers):
        if other is not worker:
            world.workers.gone(other, "closed")
    node.flush()
    world.workers.lost_leases[:] = [lease]
    world.workers.foreign_leases.clear()
    for _ in range(20):
        world.strangers.haunt()
    assert not [pair for pair in world.coverage.counts if pair[0] == "zombie"]
    assert not node.inbox


# --- several incarnations


def test_an_old_leader_is_talked_to_for_a_while():
    several = steps = 0
    for seed in (8, 9, 14, 20):
        world = world_of(seed, 0)
        world.swarm.rates |= {"take-over": 64, "stale leader": 1}
        for _ in range(800):
            world.step()
            several += len(world.nodes) > 1
            steps += 1
    assert 0.02 * steps < several < 0.5 * steps


# --- rows that cannot be read


def test_rows_that_cannot_be_read_end_as_failed():
    world = world_of(DURABLE, 0)
    while len(world.store.rows.live()) < 6:
        world.step()
    world.swarm.rates["row damaged"] = 1
    fresh(world)
    node = world.nodes[0]
    assert node.damaged
    for task_id in node.damaged:
        assert task_id not in node.engine.tasks.live
        assert node.view.ended[task_id] == TaskStatus.FAILED
    met = sum(count for (kind, _), count in world.coverage.counts.items() if kind == "row damaged")
    assert met == len(node.damaged)
    world.heal()


# --- settings


def test_ids_are_few_so_that_they_collide():
    assert len({*specs.KEYS, *specs.RARE_KEYS, *filter(None, specs.TEMPLATE_KEYS)}) == 25


def test_a_restart_brings_settings_that_are_not_the_usual_ones():
    usual = worlds.small()[0]
    assert len(worlds.OTHERS) == len(worlds.NAMES)
    assert usual not in worlds.OTHERS
    assert set(worlds.NAMES) == set(BY_NAME["other settings"].meets)


def test_zones_have_their_transitions_within_some_worlds():
    beginnings = {worlds.draw(Random(seed)).beginning // SECOND for seed in range(300)}
    assert {1_805_007_595, 1_824_944_395} <= beginnings  # 5 s before New York skips, and London repeats, an hour


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
