"""Two servers, one of them with a neighbour: the tenant sees no difference, and each way of showing one is noticed."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.worker_session import Group
from cronoq_sansio.sim import Kind, replay, run_seed
from cronoq_sansio.sim.plants.planting import Patch
from cronoq_sansio.sim.run import world_of
from cronoq_sansio.sim.server import isolation
from cronoq_sansio.sim.server.anonymous import FIRST_TASK, LEASES, Names, translated
from cronoq_sansio.sim.server.neighbour import POOL
from cronoq_sansio.sim.shrinking import shrunk

SHOWS = "another tenant's load shows"
SEEDS = range(5)


def common_turn(patch):
    """Whose turn it is among the workers of a group depends on how many workers others have."""

    def choose(group, refused=()):
        free = [worker_id for worker_id in group.free if worker_id not in refused]
        return group.sessions[free[free[0] % len(free)]] if free else None

    patch.setattr(Group, "choose", choose)


def common_backoffs(patch):
    """Backoffs are drawn, all of them from one generator."""
    plan_for = isolation.plan_for

    def with_jitter(seed):
        plan = plan_for(seed)
        pools = tuple(replace(pool, retry=replace(pool.retry, jitter=True)) for pool in plan.settings.pools)
        return replace(plan, settings=replace(plan.settings, pools=pools))

    patch.setattr(isolation, "plan_for", with_jitter)


def outcome(seed, **asked):
    return run_seed(seed, steps=400, world="isolation", **asked)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_shows(seed):
    found = outcome(seed)
    assert found.failure is None and found.events > 200


def test_the_same_seed_is_the_same_run():
    first, second = outcome(5), outcome(5)
    assert (first.hash, first.events) == (second.hash, second.events) and first.hash != outcome(6).hash
    assert [seed for seed in range(32) if world_of(seed) == "isolation"] == [5, 21]


@pytest.mark.parametrize("plant", [common_backoffs, common_turn])
def test_what_shows_is_noticed_played_again_and_cut_down(plant):
    patch = Patch()
    plant(patch)
    try:
        failure = next(failure for seed in range(20) if (failure := outcome(seed).failure) is not None)
        assert (failure.kind, failure.what) == (Kind.SAFETY, SHOWS), failure
        again = replay(failure.trace)
        assert again.failure is not None and again.failure.what == SHOWS and again.hash == failure.trace.hash
        short = shrunk(failure, budget=3_000)
        assert short.what == SHOWS and len(short.trace.steps) < len(failure.trace.steps)
        assert "\n- " in short.transcript or "\n+ " in short.transcript
    finally:
        patch.undo()


def test_names_are_given_in_the_order_of_appearance():
    names = Names(POOL)
    lease, task = LEASES.start + 7, FIRST_TASK + 40
    said = m.TaskResult(task, 6, b"%d" % task, "", f"task {task} and {task + 1}, not {SECOND}")
    assert names.plain(said) == ("TaskResult", "task#0", 6, b"%d" % task, "", f"task task#0 and task#1, not {SECOND}")
    assert names.plain(m.AbortLease(lease, "cancelled")) == ("AbortLease", "lease#2", "cancelled")
    assert names.plain(m.Registered(9, 5, 1, 2)) == ("Registered", 0, 5, 1, 2)
    page = m.TaskPage((), task)
    assert names.plain(page) == ("TaskPage", ())


def test_messages_are_translated_between_two_servers():
    here, there = Names(), Names()
    for names, first in ((here, FIRST_TASK), (there, FIRST_TASK + 100)):
        names.plain(first)
        names.plain(first + 5)
    assert translated(m.Wait(FIRST_TASK + 5, None), here, there) == m.Wait(FIRST_TASK + 105, None)
    assert translated(m.Cancel("key"), here, there) == m.Cancel("key")
    assert translated(m.Get(3), here, there) == m.Get(3)
