"""The benchmark of cron expressions: what it draws is accepted, covers the grammar, and is measured fairly."""

import sys
from random import Random

import cron_bench
import pytest
from harness import cron_load
from harness.cron_load import HARD, Costs, crons, measure

from cronoq_sansio.engine.cron import Cron, compile_cron, zone_names


def test_what_is_drawn_covers_the_grammar_and_the_zones():
    found = crons(Random(1), 2_000, 50)
    texts = [text for text, _, _ in found]
    assert set(HARD) <= set(texts) and len({zone for _, zone, _ in found}) == 50
    for kind in ("*/", "#", "L", "-", ",", "mon"):
        assert any(kind in text for text in texts), kind
    assert {len(text.split()) for text in texts} == {5, 6}
    refused = [text for text in (cron_load.expression(Random(seed)) for seed in range(2_000)) if _fault(text)]
    assert all("never fires" in _fault(text) for text in refused) and len(refused) < 20


def _fault(text):
    cron = compile_cron(text, "")
    return "" if isinstance(cron, Cron) else cron


def test_an_interruption_is_no_cost(monkeypatch):
    """Each look at the clock is a microsecond after the last one, but one: the process was interrupted."""
    now = iter(range(0, 10**9, 1_000))
    late = iter([*[0] * 5, *[90_000] * 10**5])
    monkeypatch.setattr(cron_load, "process_time_ns", lambda: next(now) + next(late))
    costs = measure(1, 20, 3)
    assert costs[:3] == (1_000, 1_000, 1_000) and costs.hardest


def test_what_is_expensive_again_is_believed(monkeypatch):
    monkeypatch.setattr(cron_load, "again", lambda cron, start: 10**12)
    monkeypatch.setattr(cron_load, "OUTLIER", 0)
    costs = measure(2, 30, 3)
    assert costs.worst < 10**12, "the cheapest of all measurements counts"


def test_a_round_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr(cron_bench, "measure", lambda seed, count, zones: Costs(40_000, 32_000, 640_000, f"x {seed}"))
    monkeypatch.setattr(sys, "argv", ["cron_bench.py", "--rounds", "2", "--expressions", "16", "--zones", "1"])
    cron_bench.main()
    assert capsys.readouterr().out.splitlines() == [
        f"bare 32.0 µs   median 1.25 ×   worst 20.0 ×: x {seed}" for seed in (1, 2)
    ]


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [("--expressions", "1", str(len(HARD))), ("--zones", "0", f"1 to {len(zone_names())}"), ("--rounds", "0", "1")],
)
def test_numbers_that_cannot_be_measured_are_refused(monkeypatch, capsys, option, value, allowed):
    monkeypatch.setattr(sys, "argv", ["cron_bench.py", option, value])
    with pytest.raises(SystemExit):
        cron_bench.main()
    assert allowed in capsys.readouterr().err
