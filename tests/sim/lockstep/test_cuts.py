"""Where a batch ends is part of the input: the same batches give the same steps, and every rule holds for all."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.engine import events as ev
from cronoq_sansio.sim.choices import RandomChoices
from cronoq_sansio.sim.lockstep.workload import Workload, some_world
from cronoq_sansio.sim.lockstep.world import Happened

ANSWERS = ("submitted", "batch", "cancelled", "refused", "recurring added", "recurring gone")


def recorded(seed, happenings):
    """What was done to some world."""
    world = some_world(seed)
    Workload(world, RandomChoices(seed)).live(happenings)
    return world


def cut(deeds, random):
    """The same events in other batches, each at the time of its last event. Nothing moves over a commit or a crash."""
    found, events, now = [], [], 0
    for deed in deeds:
        if not isinstance(deed, Happened):
            if events:
                found.append(Happened(tuple(events), now))
            found.append(deed)
            events = []
            continue
        for event in deed.events:
            events.append(event)
            now = deed.now
            if random.random() < 0.4:
                found.append(Happened(tuple(events), now))
                events = []
    return [*found, Happened(tuple(events), now)] if events else found


def asked(deeds):
    """Requests of a run."""
    kinds = (ev.TaskSubmitted, ev.BatchSubmitted, ev.TaskCancelled, ev.RecurringPut, ev.RecurringRemoved)
    return [
        event.request
        for deed in deeds
        if isinstance(deed, Happened)
        for event in deed.events
        if isinstance(event, kinds)
    ]


@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=25)
def test_every_rule_holds_for_every_cut(seed, way):
    """The model judges each step; beside it every request is answered at most once, and only what waits is not."""
    first = recorded(seed, 150)
    deeds = cut(first.deeds, Random(way))
    assert asked(deeds) == asked(first.deeds)
    again = some_world(seed)
    answered = []
    for deed in deeds:
        answered += [said[1] for said in again.do(deed) if said[0] in ANSWERS]
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(asked(deeds))
    if not any(waits for waits in again.model.notes if waits[0] in ("turn", "withdraw") or waits[1] == "waits"):
        assert answered == asked(deeds)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_batches_give_the_same_steps(seed):
    first = recorded(seed, 300)
    again = some_world(seed)
    again.play(first.deeds)
    assert again.lines == first.lines
    assert again.rows.inserted == first.rows.inserted
    assert again.rows.states == first.rows.states
    assert again.rows.fired == first.rows.fired
