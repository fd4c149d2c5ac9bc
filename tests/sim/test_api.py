"""`cronoq_sansio.sim.run` refuses what it does not know: a test with a slip of the pen must not pass for nothing."""

import pytest

from cronoq_sansio.service import messages as m
from cronoq_sansio.sim import run, run_seed
from cronoq_sansio.sim.server.world import machine_of


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"faults": ("nonsense",)}, ValueError, "no such kind of fault: 'nonsense'"),
        ({"faults": "zombie"}, TypeError, "names of kinds in a tuple, not the text 'zombie'"),
        ({"seeds": 0}, ValueError, "seeds is 1 or more, not 0"),
        ({"steps": -1}, ValueError, "steps is 1 or more, not -1"),
        ({"seed": -1}, ValueError, "seed is 0 or more, not -1"),
        ({"seed": "1"}, TypeError, "seed is an integer, not '1'"),
        ({"steps": True}, TypeError, "steps is an integer, not True"),
        ({"world": "mars"}, ValueError, "world is one of server, lockstep, isolation, or empty"),
        ({"plant": "oak"}, ValueError, "no such planted bug: 'oak'"),
        ({"machine": machine_of}, ValueError, "the engine beside the model has none: ask for world='server'"),
        ({"machine": machine_of, "world": "lockstep"}, ValueError, "ask for world='server'"),
    ],
)
def test_what_is_wrong_is_named(given, error, words):
    with pytest.raises(error, match=words):
        run(**{"steps": 10, **given})
    if "seeds" not in given:
        with pytest.raises(error, match=words):
            run_seed(**{"seed": 0, "steps": 10, **given})


def test_calls_are_counted():
    report = run(seeds=2, steps=200, world="server")
    assert report.answered > 20 and sum(report.refused.values()) > 5 and "not_found" in report.refused
    assert run(seed=2, steps=100, world="lockstep").refused == {}


def test_faults_may_come_from_a_generator():
    allowed = ("report lost", "zombie")
    report = run(seeds=2, steps=50, world="server", faults=(name for name in allowed))
    assert report.ok and report.faults == allowed
    assert report.hash == run(seeds=2, steps=50, world="server", faults=allowed).hash


def test_a_world_with_dearer_steps_does_one_at_least():
    for world in ("lockstep", "isolation"):
        assert run_seed(3, steps=1, world=world).steps == 1


def test_a_machine_that_cannot_even_begin_is_a_failure_of_its_seed():
    def broken(*_, **__):
        raise RuntimeError("no machine")

    failure = run(7, machine=broken, world="server").failures[0]
    assert (failure.seed, failure.step) == (7, 0) and failure.what.startswith("RuntimeError in ")
    assert "no machine" in failure.details


class Odd:
    """A machine that loses, or repeats, one kind of action."""

    def __init__(self, inner, kind, times):
        self.inner, self.kind, self.times = inner, kind, times

    def handle(self, events, now):
        step = self.inner.handle(events, now)
        step.at_once[:] = [
            action for action in step.at_once for _ in range(self.times if type(action) is self.kind else 1)
        ]
        return step

    def next_timeout(self):
        return self.inner.next_timeout()


@pytest.mark.parametrize(
    ("kind", "times", "what"),
    [
        (m.StartEvents, 0, "a watch never begins"),
        (m.StartEvents, 2, "a watch begins twice"),
        (m.ReadStore, 2, "the store is asked twice, or out of order"),
    ],
)
def test_what_a_machine_loses_or_repeats_is_named(kind, times, what):
    def odd(engine, settings, now, *, volatile):
        machine, inspected = machine_of(engine, settings, now, volatile=volatile)
        return Odd(machine, kind, times), inspected

    assert run(seeds=30, steps=600, machine=odd, world="server").failures[0].what == what
