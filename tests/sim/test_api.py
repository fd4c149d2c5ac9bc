"""`cronoq_sansio.sim.run` refuses what it does not know: a test with a slip of the pen must not pass for nothing."""

import pytest

from cronoq_sansio.sim import run, run_seed


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"faults": ("nonsense",)}, ValueError, "no such kind of fault: 'nonsense'"),
        ({"faults": "zombie"}, TypeError, "names of kinds in a tuple, not the text 'zombie'"),
        ({"seeds": 0}, ValueError, "seeds is 1 or more, not 0"),
        ({"steps": -1}, ValueError, "steps is 0 or more, not -1"),
        ({"seed": -1}, ValueError, "seed is 0 or more, not -1"),
        ({"seed": "1"}, TypeError, "seed is an integer, not '1'"),
        ({"steps": True}, TypeError, "steps is an integer, not True"),
        ({"world": "mars"}, ValueError, "world is one of server, lockstep, isolation, or empty"),
        ({"plant": "oak"}, ValueError, "no such planted bug: 'oak'"),
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
