"""Runs that once failed. Seeds must pass now; a trace fails with its planted bug, as it did, and passes without.

The traces are the shortest ways to bugs of each kind. A change of the simulated world may make another run of them:
`--rewrite` looks for each bug anew, cuts the trace down and writes it.
"""

from dataclasses import replace

import pytest

from cronoq_sansio.sim import replay, run_seed, shrunk, trace
from cronoq_sansio.sim.plants import PLANTS
from tests.tidy.tree import ROOT

FOLDER = ROOT / "tests" / "sim" / "traces"

SEEDS = {
    29: "a process that was doomed to die died after everything had healed",
    38: "a bucket was not full when all was at rest",
    50: "a moment never ended while everything healed",
    53: "a task waited for labels that nobody brought",
    75: "a stop was complete while a schedule still fired",
    78: "the backoff of an attempt that was lost at a restart",
    356: "a report and the end of its worker in one read",
    601: "a moment never ended while everything healed",
    640: "a key that was awaited came while cascades were held, and its time passed",
    2_040: "a fire of a schedule, an uncommitted state and a take-over",
    20_169: "a schedule of the file had no room when its term began, and has now",
}
"""What was wrong, in the world, its checks, or the code under test."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_failed_once_passes(seed):
    failure = run_seed(seed, world="server").failure
    assert failure is None, f"{failure.what}: {failure.details}"


def found(plant):
    """The shortest trace of a planted bug."""
    for seed in range(200):
        failure = run_seed(seed, plant=plant).failure
        if failure is not None:
            return shrunk(failure, 60_000)
    raise AssertionError(f"{plant} is not found")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_kept_trace_fails_with_its_bug_and_passes_without(path, request):
    if request.config.getoption("--rewrite"):
        path.write_text(trace.encode(trace.of_failure(found(path.stem))), encoding="utf-8")
    written = trace.decode(path.read_text(encoding="utf-8"), tuple(PLANTS))
    assert written.trace.plant == path.stem
    failure = replay(written.trace, narrate=False).failure
    assert failure is not None and (failure.kind, failure.what) == (written.kind, written.what)
    without = replay(replace(written.trace, plant="", hash=""), narrate=False).failure
    assert without is None, f"{without.what}: {without.details}"


def test_traces_of_every_kind_of_bug_are_kept():
    assert len(list(FOLDER.glob("*.json"))) >= 8
