"""Which kinds of faults are on in a world, how often they strike, and what counts as met."""

from collections import Counter

import pytest

from cronoq_sansio.sim import ALL_FAULTS, FAULTS, Coverage, run_seed
from cronoq_sansio.sim.choices import RandomChoices, RecordedChoices
from cronoq_sansio.sim.faults import BY_NAME, LOTS, RATES, Swarm
from cronoq_sansio.sim.server.world import ServerWorld

DRAWS = 400


def rates(**given):
    return dict.fromkeys(ALL_FAULTS, 0) | {name.replace("_", " "): rate for name, rate in given.items()}


def test_every_kind_has_one_name_and_meets_each_of_its_operations_once():
    assert len(BY_NAME) == len(FAULTS)
    for fault in FAULTS:
        assert fault.meets
        assert len(set(fault.meets)) == len(fault.meets)


def test_each_kind_is_on_in_about_half_of_the_worlds():
    on = Counter()
    for seed in range(DRAWS):
        on.update(name for name, rate in Swarm.draw(RandomChoices(seed), ALL_FAULTS).rates.items() if rate)
    assert on.keys() == set(ALL_FAULTS)
    assert all(0.38 * DRAWS < count < 0.62 * DRAWS for count in on.values())


def test_a_kind_that_is_on_strikes_at_one_of_the_rates_and_rarer_ones_less_often():
    drawn = {name: set() for name in ALL_FAULTS}
    for seed in range(DRAWS):
        for name, rate in Swarm.draw(RandomChoices(seed), ALL_FAULTS).rates.items():
            drawn[name].add(rate)
    for name, found in drawn.items():
        assert found == {0, *(rate * BY_NAME[name].rarer for rate in RATES)}
    assert BY_NAME["crash before commit"].rarer > BY_NAME["report lost"].rarer == 1


def test_a_kind_that_is_not_allowed_is_never_on():
    for seed in range(50):
        swarm = Swarm.draw(RandomChoices(seed), ("zombie", "pause"))
        assert {name for name, rate in swarm.rates.items() if rate} <= {"zombie", "pause"}


def test_lots_hold_each_kind_as_often_as_its_rate_says():
    swarm = Swarm(rates(report_lost=4, report_delayed=64, worker_death=8))
    lots = Counter(swarm.lots({"report lost": 1, "report delayed": 1, "worker death": 8, "zombie": 1}))
    assert lots == {
        "report lost": LOTS // 4,
        "report delayed": LOTS // 64,
        "worker death": LOTS // 64,
        "": LOTS - LOTS // 4 - 2 * (LOTS // 64),
    }


def test_lots_without_a_kind_that_is_on_are_one_blank():
    assert Swarm(rates()).lots({"report lost": 1, "zombie": 1}) == [""]


def test_nothing_strikes_any_more_once_everything_is_healed():
    swarm = Swarm(rates(report_lost=4, pause=8))
    lots = swarm.lots({"report lost": 1})
    assert "report lost" in lots
    swarm.heal()
    assert set(lots) == {""}
    assert not any(swarm.rates.values())


@pytest.mark.parametrize(("rate", "often", "expected"), [(0, 16, 0), (8, 1, 8), (8, 4, 2), (8, 16, 1)])
def test_what_is_rarely_met_is_struck_more_often(rate, often, expected):
    world = ServerWorld(1, RecordedChoices(1), Swarm(rates(pause=rate)))
    struck = sum(world.strikes("pause", "nothing running", often) for _ in range(800))
    assert struck == world.coverage.counts.get(("pause", "nothing running"), 0)
    assert struck == 0 if not expected else 0.75 * 800 / expected < struck <= 1.25 * 800 / expected


# --- coverage


def test_coverage_counts_and_adds_up():
    one, other = Coverage(), Coverage()
    one.note("pause", "nothing running")
    other.note("pause", "nothing running")
    other.note("zombie", "nack")
    one.add(other)
    assert one.counts == {("pause", "nothing running"): 2, ("zombie", "nack"): 1}


def test_a_hole_is_an_operation_that_a_kind_can_meet_and_did_not():
    coverage = Coverage()
    coverage.note("pause", "nothing running")
    assert coverage.holes(("pause", "clock step")) == [
        ("clock step", "forward"),
        ("clock step", "back"),
        ("pause", "leases running"),
        ("pause", "commit in flight"),
    ]
    assert coverage.idle_kinds(("pause", "clock step")) == ["clock step"]
    assert coverage.idle_kinds(("pause",)) == []


def test_a_world_without_faults_meets_none():
    for seed in (0, 1, 2):
        outcome = run_seed(seed, steps=300, faults=(), world="server")
        assert outcome.failure is None
        assert outcome.coverage.counts == {}


@pytest.mark.parametrize("kind", ALL_FAULTS)
def test_a_world_with_one_kind_meets_no_other(kind):
    for seed in range(40):
        if Swarm.draw(RandomChoices(seed), (kind,)).rates[kind]:
            outcome = run_seed(seed, steps=250, faults=(kind,), world="server")
            assert outcome.failure is None
            assert {met for met, _ in outcome.coverage.counts} <= {kind}
            return
    raise AssertionError("the kind is on in none of 40 worlds")


def test_what_is_drawn_means_the_same_when_another_kind_is_off():
    kinds = {"deadline": 1, "asked twice": 1, "caller gone at once": 1}
    whole = Swarm(rates(deadline=4, asked_twice=4, caller_gone_at_once=8)).lots(kinds)
    less = Swarm(rates(deadline=4, caller_gone_at_once=8)).lots(kinds)
    assert less == ["" if kind == "asked twice" else kind for kind in whole]
