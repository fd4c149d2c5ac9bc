"""Faults planted in the engine, each of which the lockstep must find: a test that cannot fail shows nothing."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import admission, dependencies, dispatch, engine, labels, leases, lifecycle, stocks, victims
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.fair_share import Shares
from cronoq_sansio.engine.records import EdgeResolved
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.engine.waiting_room import WaitingRoom
from cronoq_sansio.sim.shrink import shortened
from cronoq_sansio.sim.workload import RandomChoices, Workload, small_settings
from cronoq_sansio.sim.world import Divergence, World
from cronoq_sansio.spec import TaskStatus


def nothing(*_):
    """Stands in for what is left out."""


def without(event):
    """The engine does not react to an event."""
    return lambda patch: patch.setitem(engine.HANDLERS, event, nothing)


def later(patch):
    before = Engine.next_timeout
    patch.setattr(Engine, "next_timeout", lambda self: (due := before(self)) and due + SECOND)


def too_early(patch):
    before = admission.submit
    patch.setattr(admission, "submit", lambda *args: (answer := before(*args)) and (answer[0], 0))


def forgets_appeared_keys(patch):
    before = dependencies.Dependencies.settle

    def settle(self, of, units):
        left = before(self, of, units)
        of.step.writes = [record for record in of.step.writes if type(record) is not EdgeResolved]
        return left

    patch.setattr(dependencies.Dependencies, "settle", settle)


def burns_an_attempt(patch):
    before = lifecycle.take_back

    def take_back(of, lease):
        before(of, lease)
        lease.task.attempt += 1

    patch.setattr(lifecycle, "take_back", take_back)


def ignores_virtual_time(patch):
    patch.setattr(Shares, "dispatched", nothing)


PLANTS = {
    "waiting counts for less": lambda patch: patch.setattr(dispatch, "AGING", 1),
    "urgency has another horizon": lambda patch: patch.setattr(dispatch, "MIN_HORIZON", SECOND),
    "overdue tasks rise faster": lambda patch: patch.setattr(dispatch, "OVERDUE", 200),
    "dead letters are no failures": lambda patch: patch.setattr(dependencies, "FAILURES", (int(TaskStatus.FAILED),)),
    "cycles through awaited keys pass": lambda patch: patch.setattr(
        dependencies.Dependencies, "awaited", lambda *_: False
    ),
    "keys that appeared are not stored": forgets_appeared_keys,
    "the wrong victim": lambda patch: patch.setattr(victims, "SHED_LOWEST", "something else"),
    "tokens do not come back": lambda patch: patch.setattr(stocks.Bucket, "give_back", nothing),
    "places are not kept": lambda patch: patch.setattr(Resources, "give_back", Resources.release),
    "estimates learn nothing": lambda patch: patch.setattr(Durations, "estimate", lambda self, _: self._default),
    "tenants ignore virtual time": ignores_virtual_time,
    "labelled groups are no rarer": lambda patch: patch.setattr(
        labels.Group, "rank", lambda group: (0, group.busy - group.capacity, group.number)
    ),
    "heartbeats are ignored": without(ev.LeaseRenewed),
    "stalls are ignored": without(ev.Stalled),
    "limits are ignored": without(ev.ResourceLimitSet),
    "nobody can withdraw": without(ev.SubmissionWithdrawn),
    "timeouts are ignored": lambda patch: patch.setattr(
        leases, "_due", lambda lease: lease.beat + lease.task.pool.settings.lease_ttl
    ),
    "lines do not wait for their turn": lambda patch: patch.setattr(WaitingRoom, "has_line", lambda *_: False),
    "a dispatch taken back costs an attempt": burns_an_attempt,
    "wakes up too late": later,
    "answers before it is durable": too_early,
    "ended tasks are remembered too long": lambda patch: patch.setattr(TaskTable, "expire", nothing),
}


@pytest.mark.parametrize("name", PLANTS)
def test_the_lockstep_finds(name, monkeypatch):
    PLANTS[name](monkeypatch)
    for seed in (3, 2, 5, 6, 1, 4):
        world = World(small_settings(), seed=seed)
        try:
            Workload(world, RandomChoices(seed)).live(8_000)
        except Divergence as divergence:
            assert divergence.what in str(divergence)
            return
    raise AssertionError("nothing was found")


def test_a_difference_is_cut_down_to_a_readable_transcript(monkeypatch):
    PLANTS["labelled groups are no rarer"](monkeypatch)
    world = World(small_settings(), seed=5)
    with pytest.raises(Divergence) as caught:
        Workload(world, RandomChoices(5)).live(8_000)
    short = shortened(world, caught.value)
    assert short.what == caught.value.what
    lines = str(short).splitlines()
    assert len(lines) < len(str(caught.value).splitlines())
    assert any("expected" in line for line in lines) and any("found" in line for line in lines)
    assert sum("Submitted" in line for line in lines) <= 2
