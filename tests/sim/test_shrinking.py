"""A failed run is cut down to what it needs, and nothing is played beyond the budget."""

import pytest

from cronoq_sansio.sim import shrinking
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.plants import PLANTS
from cronoq_sansio.sim.plants.planting import Plant
from cronoq_sansio.sim.run import replay, run_seed
from cronoq_sansio.sim.server import checks
from cronoq_sansio.sim.shrinking import TRY, shrunk
from tests.sim.bugs import on_lost_reports, plant


def after_five_events(world):
    """Needs no fault, and some steps."""
    return world.events >= 5


@pytest.fixture
def lost(monkeypatch):
    name = plant(monkeypatch, "loses", on_lost_reports)
    return next(found for seed in range(9, 30) if (found := run_seed(seed, steps=400, plant=name).failure))


def kinds(failure):
    return [name for name, rate in failure.trace.rates.items() if rate]


def test_less_with_the_same_failure(lost):
    steps = len(lost.trace.steps)
    short = shrunk(lost, 30_000)
    assert (short.kind, short.what) == (lost.kind, lost.what)
    assert kinds(short) == ["report lost"] and len(kinds(lost)) > 1
    assert len(short.trace.steps) < min(steps, 20)
    assert sum(map(len, short.trace.steps)) < sum(map(len, lost.trace.steps))
    assert short.transcript
    assert len(lost.trace.steps) == steps, "what was given is as it was"


def test_the_short_one_is_a_trace_like_every_other(lost):
    short = shrunk(lost, 10_000)
    again = replay(short.trace)
    assert again.failure.what == short.what and again.failure.step == short.step == len(short.trace.steps)
    assert again.hash == short.trace.hash


def test_no_step_can_be_left_out(lost):
    short = shrunk(lost, 60_000)
    for index in range(len(short.trace.steps)):
        less = replay(
            type(short.trace)(
                short.trace.world,
                short.trace.seed,
                short.trace.rates,
                short.trace.steps[:index] + short.trace.steps[index + 1 :],
                short.trace.plant,
            ),
            narrate=False,
        )
        assert less.failure is None or less.failure.what != short.what


def test_without_faults_when_it_needs_none(monkeypatch):
    name = plant(monkeypatch, "fifth", after_five_events, Kind.LIVENESS)
    failure = run_seed(2, steps=100, plant=name).failure
    short = shrunk(failure, 20_000)
    assert kinds(short) == [] and short.kind is Kind.LIVENESS and len(short.trace.steps) <= 5


def test_what_only_a_recount_finds_is_found_early(monkeypatch):
    def apply(patch):
        def scan_of(scan):
            def broken(world):
                raise Violation(Kind.SAFETY, "a recount", "")

            return broken

        patch.wrap(checks, "scan", scan_of)

    monkeypatch.setitem(PLANTS, "recount", Plant("recount", "A recount fails.", apply))
    failure = run_seed(0, steps=2_000, plant="recount").failure
    assert failure.step > 50, "a thousand events"
    short = shrunk(failure, 20_000)
    assert len(short.trace.steps) <= 2 and 0 < short.trace.scan <= 64
    assert replay(short.trace).failure.what == "a recount"


@pytest.mark.parametrize("budget", [1, 500, 3_000])
def test_the_budget_is_kept(lost, monkeypatch, budget):
    spent = []

    def counted(trace, **more):
        outcome = replay(trace, **more)
        if not more.get("narrate", True):
            spent.append(outcome.steps + TRY)
        return outcome

    monkeypatch.setattr(shrinking, "replay", counted)
    short = shrunk(lost, budget)
    assert sum(spent[:-1]) < budget, "only the last try may begin within it and end beyond"
    assert short.what == lost.what


def test_progress_is_told(lost):
    told = []
    shrunk(lost, 3_000, lambda steps, kinds, share: told.append((steps, kinds, share)))
    shares = [share for _, _, share in told]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] <= 1
    assert told[-1][0] <= len(lost.trace.steps)


def test_a_failure_that_does_not_repeat_stays_as_it_is(lost):
    lost.what = "something else"
    short = shrunk(lost, 2_000)
    assert short.what == "something else" and short.trace.rates == lost.trace.rates
    assert len(short.trace.steps) == len(lost.trace.steps)
