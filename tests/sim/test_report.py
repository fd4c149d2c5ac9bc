"""What a run says at its end: the sentences, the table of coverage, the exit code, the same as JSON."""

import json

import pytest

from cronoq_sansio.sim import report
from cronoq_sansio.sim.arguments import parse
from cronoq_sansio.sim.failure import Failure, Kind, Trace
from cronoq_sansio.sim.faults import FAULTS, Coverage
from cronoq_sansio.sim.plants import BEDS, PLANTS
from cronoq_sansio.sim.progress import Progress, clock, fitted
from cronoq_sansio.sim.run import ALL_FAULTS, Outcome, Report
from cronoq_sansio.sim.seeds import Played
from cronoq_sansio.sim.tally import (
    JUDGED_SEEDS,
    KEPT,
    FoundPlant,
    Plants,
    Tally,
    Told,
    differs,
    judged,
    not_the_same,
)
from cronoq_sansio.sim.trace import of_failure


def outcome(seed, failure=None, coverage=None, *, hash="00ff", world="server"):
    return Outcome(seed, world, 10, 20, hash, coverage or Coverage(), failure)


def failed(seed, kind=Kind.SAFETY, what="two leases", step=3):
    rates = dict.fromkeys(ALL_FAULTS, 0) | {"zombie": 4}
    return Failure(kind, what, "lease 5\nlease 6", seed, step, Trace("server", seed, rates, [[1]] * step, hash="00ff"))


def tally(*outcomes, arguments=("--quiet",), cover=()):
    options = parse(arguments, PLANTS)
    found = Tally(options, Report(options.faults), seconds=2.0)
    for one in outcomes:
        found.add(Played(one, 0.001, 100.0))
    for pair in cover:
        found.report.coverage.note(*pair)
    return found


EVERY = [(fault.name, operation) for fault in FAULTS for operation in fault.meets]
ENOUGH = [outcome(seed) for seed in range(JUDGED_SEEDS)]


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([], 0),
        ([Kind.SAFETY], 3),
        ([Kind.LIVENESS], 4),
        ([Kind.DIVERGENCE], 5),
        ([Kind.DIVERGENCE, Kind.LIVENESS], 4),
        ([Kind.LIVENESS, Kind.DIVERGENCE, Kind.SAFETY], 3),
    ],
)
def test_the_gravest_failure_is_the_exit_code(kinds, code):
    assert tally(*[outcome(seed, failed(seed, kind)) for seed, kind in enumerate(kinds)]).exit_code == code


def test_what_ended_the_run_counts_too():
    found = tally(outcome(0, failed(0)))
    found.broken = "a process died"
    assert found.exit_code == 3, "a broken promise is graver"
    found.interrupted = True
    assert found.exit_code == 130 and "Interrupted" in report.text(found)
    found = tally(outcome(0))
    found.broken = "a process died"
    assert found.exit_code == 1 and "Broken off: a process died" in report.text(found)


@pytest.mark.parametrize(
    ("arguments", "cover", "outcomes", "code"),
    [
        ([], EVERY, ENOUGH, 0),
        ([], EVERY[1:], ENOUGH, 0),
        ([], [pair for pair in EVERY if pair[0] != "zombie"], ENOUGH, 6),
        ([], [], ENOUGH[1:], 0),
        ([], [], [outcome(seed, world="lockstep") for seed in range(JUDGED_SEEDS)], 0),
        (["--steps", "100"], [], ENOUGH, 0),
        (["--faults", "-zombie"], [pair for pair in EVERY if pair[0] != "zombie"], ENOUGH, 0),
        (["--faults", "none"], [], ENOUGH, 0),
        (["--coverage", "off"], [], ENOUGH, 0),
        (["--coverage", "pairs"], EVERY, ENOUGH, 0),
        (["--coverage", "pairs"], EVERY[1:], ENOUGH, 6),
    ],
)
def test_when_a_hole_in_the_coverage_counts(arguments, cover, outcomes, code):
    found = tally(*outcomes, arguments=arguments, cover=cover)
    assert found.exit_code == code
    assert bool(found.holes()) is (code == 6)
    assert ("Coverage has holes" in report.text(found)) is (code == 6)


def test_an_interrupted_run_is_not_judged():
    found = tally(*ENOUGH)
    assert found.exit_code == 6
    found.interrupted = True
    assert not found.holes()


def test_failures_that_are_alike_are_told_once_and_few_are_kept():
    found = tally(
        outcome(4, failed(4)),
        outcome(5, failed(5)),
        outcome(6),
        *[outcome(10 + n, failed(10 + n, what=f"{n}")) for n in range(KEPT + 5)],
    )
    assert [told.alike for told in found.told] == [2] + [1] * (KEPT - 1)
    assert found.told[0].failure.seed == 4
    assert len(found.report.failures) == KEPT and found.others == 6 and found.failed == KEPT + 7
    text = report.text(found)
    assert "2 seeds failed like this, this is the first" in text
    assert "6 seeds more failed in yet other ways." in text and f"{KEPT + 7} seeds failed." in text


def test_the_summary():
    text = report.text(tally(outcome(7), outcome(8, world="lockstep"), arguments=["--seed", "7", "--seeds", "2"]))
    assert text.startswith("2 seeds from 7 (1 server, 1 lockstep)\n  20 steps, 40 events (server 20, lockstep 20)\n")
    assert "20 events/s in 1 process, 0:02; an event costs 50.0 µs of a core = 5.00 × sum(range(1000))" in text


def test_a_failure_says_how_to_see_it_again():
    told = Told(failed(9), again="python -m x --seed 9", trace="a.json", short=failed(9, step=1), short_trace="b.json")
    told.short.transcript = "\n".join(f"line {number}" for number in range(100))
    text = report.failure_text(told)
    assert text.splitlines()[:2] == ["SAFETY: two leases", "  seed 9, step 3"]
    for words in ("  lease 6", "again:  python -m x --seed 9", "trace:  a.json (3 steps, 1 kind of faults)"):
        assert words in text
    assert "short:  b.json (1 step, 1 kind of faults)" in text
    assert "… 40 lines before" in text and "line 99" in text and "line 39\n" not in text


def test_the_table_of_coverage():
    cover = [("zombie", "fail"), ("zombie", "fail"), ("clock step", "back"), ("clock step", "forward")]
    kinds = report.coverage_text(tally(outcome(0), cover=cover)).splitlines()
    assert len([line for line in kinds if not line.startswith(" ")]) == len(FAULTS) + 1
    (zombie,) = [line for line in kinds if line.startswith("zombie  ")]
    assert zombie.split(maxsplit=2)[1:] == ["2", "1 of 5; not complete, nack, heartbeat, aborted"]
    pairs = report.coverage_text(tally(outcome(0), arguments=["--coverage", "pairs"], cover=cover))
    assert "complete 0, fail 2, nack 0" in pairs
    assert max(map(len, pairs.splitlines())) <= 120
    some = report.coverage_text(tally(outcome(0), arguments=["--faults", "zombie"], cover=cover))
    assert "clock step" not in some


def test_json_has_everything_and_is_stable():
    found = tally(outcome(0, failed(0)), outcome(1), cover=EVERY)
    found.told[0].short = failed(0, step=1)
    read = json.loads(report.as_json(found, "a note"))
    assert read["exit_code"] == 3 and read["seeds"] == 2 and read["note"] == "a note"
    assert read["failures"][0]["what"] == "two leases" and read["failures"][0]["short"]["steps"] == 1
    assert read["coverage"]["zombie"]["fail"] == 1
    assert (read["us_per_event"], read["yardsticks_per_event"]) == (50.0, 5.0)
    assert json.loads(report.as_json(tally()))["us_per_event"] is None


def test_a_run_without_seeds_has_a_report():
    text = report.text(tally())
    assert text.startswith("0 seeds from 0\n")


# --- the same twice


def test_two_runs_of_a_seed_are_compared():
    assert differs(outcome(1), outcome(1)) is None
    assert differs(outcome(1, failed(1)), outcome(1, failed(1))) is None
    for other in (outcome(1, hash="1"), outcome(1, failed(1)), Outcome(1, "server", 10, 21, "00ff", Coverage())):
        found = differs(outcome(1), other)
        assert found.kind is Kind.DIVERGENCE and "hash 00ff" in found.details
    found = tally(outcome(1))
    found.compare(outcome(1), outcome(1, hash="1"))
    assert found.exit_code == 5 and found.compared == 1


def test_a_replay_that_is_another_run_says_what_was_expected_and_what_came():
    found = tally(outcome(1, failed(1)))
    difference, _ = judged(
        of_failure(failed(1)), outcome(1, failed(1, Kind.LIVENESS, "a task stays", 7), hash="1"), True
    )
    found.replace(difference)
    assert (found.exit_code, found.failed, found.report.failures) == (5, 1, [difference])
    found.told[0].trace = "t.json"
    text = report.text(found)
    assert "  expected, by the file:  hash 00ff, safety at step 3: two leases\n" in text
    assert "  came, from its steps:   hash 1, liveness at step 7: a task stays\n" in text
    assert '"hash": "" into the file' in text and "--twice" in text
    assert "  trace:  t.json\n" in text and text.endswith("\n1 seed failed.\n") and "SAFETY" not in text


def test_refused_calls_are_counted_by_their_code():
    one, other = outcome(0), outcome(1)
    one.answered, one.refused, other.refused = 1_234, {"not_found": 3}, {"unavailable": 2_000, "not_found": 1}
    found = tally(one, other)
    assert "  calls of whole servers: 1,234 answered, 2,004 refused (unavailable 2,000, not_found 4)\n" in report.text(
        found
    )
    assert "Every call was refused" not in report.text(found)
    as_json = json.loads(report.as_json(found))
    assert as_json["calls_answered"] == 1_234
    assert as_json["calls_refused"] == {"not_found": 4, "unavailable": 2_000}
    assert "Every call was refused: this says next to nothing about the server.\n" in report.text(tally(other))
    assert "refused" not in report.text(tally(outcome(0)))


def test_long_details_are_cut_for_people_and_whole_in_json():
    failure = failed(0)
    failure.details = "x" * 5_000
    found = tally(outcome(0, failure))
    assert f"  {'x' * 299}…\n" in report.text(found)
    assert json.loads(report.as_json(found))["failures"][0]["details"] == "x" * 5_000


def test_a_failed_seed_must_fail_again():
    assert not_the_same(failed(1), outcome(1, failed(1))) is None
    for other in (outcome(1), outcome(1, failed(1, step=4)), outcome(1, failed(1), hash="1")):
        assert not_the_same(failed(1), other).kind is Kind.DIVERGENCE


@pytest.mark.parametrize(
    ("expected", "again", "same_program", "diverges", "words"),
    [
        ("00ff", outcome(1, failed(1)), True, False, "came to the hash and to the end"),
        ("00ff", outcome(1, failed(1), hash="1"), True, True, ""),
        ("00ff", outcome(1), True, True, ""),
        ("00ff", outcome(1, failed(1, what="other")), True, True, ""),
        ("00ff", outcome(1, hash="1"), False, False, "Another version of the program wrote the trace"),
        ("", outcome(1, hash="1"), True, False, "carries no hash to compare"),
    ],
)
def test_what_a_trace_says_is_compared_with_its_replay(expected, again, same_program, diverges, words):
    written = of_failure(failed(1))
    written.trace.hash = expected
    difference, note = judged(written, again, same_program)
    assert (difference is not None) is diverges
    assert words in note and bool(note) is not diverges


# --- planted bugs


def plants(*found, **more):
    return Plants(parse(["--plant", "all"], PLANTS), list(found), **more)


def test_planted_bugs():
    good = FoundPlant("good", 3, failed(2), None)
    other = FoundPlant("other", 3, failed(2), failed(2, what="something else"))
    missed = FoundPlant("missed", 200)
    anyway = FoundPlant("anyway", 1, failed(0, Kind.LIVENESS), failed(0, Kind.LIVENESS))
    assert plants(good, other).exit_code == 0
    assert plants(good, missed).exit_code == 6
    assert plants(good, missed, anyway).exit_code == 4
    assert plants(good, interrupted=True).exit_code == 130
    assert plants(good, broken="died").exit_code == 1
    text = report.plants_found_text(plants(good, missed, anyway, broken="died"))
    rows = [line.split(maxsplit=2) for line in text.splitlines()[1:4]]
    assert rows[0] == ["good", "3", "safety: two leases"] and rows[1] == ["missed", "200", "NOT FOUND"]
    assert rows[2][2].startswith("FAILS WITHOUT THE BUG TOO: liveness")
    assert "Broken off: died" in text and text.endswith("1 of 3 planted bugs found.\n")
    assert "late       0  not looked for" in report.plants_found_text(plants(good, FoundPlant("late")))
    read = json.loads(report.plants_json(plants(good, missed)))
    assert [row["found"] for row in read["plants"]] == [True, False] and read["exit_code"] == 6


def test_lists():
    faults = report.faults_text()
    assert all(fault.name in faults and fault.what.split()[-1] in faults for fault in FAULTS)
    planted = report.plants_text(BEDS)
    assert all(f"  {name}\n" in planted for name in PLANTS) and all(title in planted for title in BEDS)


# --- progress


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (99, "[#####...............]  25%  1 of 4 seeds  1,000 events  200/s  no failure  0:15 left"),
        (61, "25%  1 of 4 seeds  1,000 events  200/s  no failure  0:15 left"),
        (59, "25%  1 of 4 seeds  1,000 events  no failure  0:15 left"),
        (40, "25%  1 of 4 seeds  no failure  0:15 left"),
        (39, "25%  1 of 4 seeds  no failure"),
        (28, "25%  1 of 4 seeds  no failur"),
        (2, "25"),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most(width, shown):
    line = Progress(0, 4, None, None).line(5, 1, 1_000, 0)
    assert fitted(line, width) == shown and len(shown) <= width


def test_progress_with_every_bound():
    assert Progress(0, 10, None, None).line(5, 5, 1_000, 0) == (
        "[##########..........]  50%  5 of 10 seeds  1,000 events  200/s  no failure  0:05 left"
    )
    assert Progress(0, None, 20, None).line(5, 5, 1_000, 1).startswith("[#####...............]  25%  5 seeds")
    assert "0:15 left" in Progress(0, None, None, 4_000).line(5, 5, 1_000, 2)
    assert Progress(0, 10, 5, None).share(4, 1, 0) == 0.8, "the bound that will be met first"
    assert Progress(0, None, None, None, "a bug").line(1, 1, 10, 3) == "a bug  1 seed  10 events  10/s  3 failures"
    assert Progress(0, 10, None, None).line(0, 0, 0, 0).endswith("no failure")


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (750, "12:30"), (11_100, "3:05:00")])
def test_times(seconds, text):
    assert clock(seconds) == text
