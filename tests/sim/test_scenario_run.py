"""Runs of scenarios: workers that come, go and crash, what is refused, missed or late, and the report of it."""

import json
import os
import subprocess
import sys

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.sim.scenario import run as scenario_run
from cronoq_sansio.sim.scenario.figures import BUCKETS, Gauge, quantiles
from cronoq_sansio.sim.scenario.report import report_of
from cronoq_sansio.sim.scenario.run import run_scenario
from cronoq_sansio.sim.scenario.tables import number, span, spark, table
from tests.sim.scenarios import ran, scenario, waits
from tests.tidy.tree import ROOT


def figures(run):
    run._outbox.machine.check_invariants()
    return report_of(run.scenario, run.count, run.handled, run.stopped).as_json()


def entry(name, lines, duration="mean_s = 1", pool="default"):
    return f'[[arrivals]]\nname = "{name}"\npool = "{pool}"\nduration = {{ {duration} }}\n{lines}\n'


MIXED = (
    "duration_s = 300\nwarmup_s = 30\nseed = 7\n"
    + entry(
        "web",
        'rate_per_s = 4\ntenant = "x"\nfailure_rate = 0.2\ndeadline_in_s = 3',
        'distribution = "exponential", mean_s = 0.5',
    )
    + entry(
        "batch",
        'every_s = 50\nburst = 30\ntenant = "y"\nresources = { db = 1 }',
        'distribution = "uniform", min_s = 1, max_s = 3',
    )
    + entry("fixed", 'every_s = 20\nstart_in_s = 30\ntolerance_s = 0.2\non_miss = "skip"')
    + "[[workers]]\nslots = 2\ncount = 4\nfollow = true\nfollow_delay_s = 5\ncrash_every_s = 60\ncrash_noticed_s = 5\n"
)
MIXED_CONFIG = """
[[pools]]
name = "default"
max = 8
max_pending = 40
overflow = "shed_lowest"
fair_share = true
[[resources]]
name = "db"
kind = "semaphore"
permits = 2
[[recurring]]
name = "each minute"
cron = "* * * * *"
"""
SHOW = """
import tomllib, sys, json
from cronoq_sansio.sim.scenario.load import load_scenario
from cronoq_sansio.sim.scenario.run import run_scenario
text, config = sys.stdin.read().split("=====")
report = run_scenario(load_scenario(text).with_config(tomllib.loads(config)))
print(report.text(100) + json.dumps(report.as_json()))
"""


def test_two_processes_print_the_same_bytes():
    shown = [
        subprocess.run(
            [sys.executable, "-c", SHOW],
            input=f"{MIXED}====={MIXED_CONFIG}".encode(),
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert shown[0] == shown[1]
    for part in (
        "WAITS",
        "ENDS",
        "TENANTS",
        "DEADLINES",
        "FIXED STARTS",
        "SCHEDULES",
        "RESOURCES",
        "POOLS",
        "over time",
    ):
        assert part in shown[0].decode()


def test_everything_adds_up():
    run = ran(MIXED, MIXED_CONFIG)
    found = figures(run)
    (pool,) = found["pools"]
    assert json.loads(json.dumps(found)) == found
    for row in found["classes"] + found["arrivals"] + found["schedules"]:
        assert row["submitted"] == sum(row["ended"].values()) + row["unfinished"]
        assert row["started"] == (row["wait"]["count"] if row["wait"] else 0)
        assert row["submitted"] >= row["started"] + row["not_started"]
    for name in ("submitted", "started", "retries", "not_started", "deadlines_met"):
        parts = sum(row[name] for row in found["arrivals"] + found["schedules"])
        assert sum(row[name] for row in found["classes"]) == parts == sum(row[name] for row in found["tenants"])
    assert sum(row["share"] for row in found["tenants"]) == pytest.approx(1)
    assert 0 < pool["busy"] <= pool["slots"] <= 8 and pool["target"]["max"] <= 8


def test_the_same_work_arrives_whatever_the_configuration_is():
    first, second = ran(MIXED, MIXED_CONFIG), ran(MIXED, MIXED_CONFIG.replace("max_pending = 40", "max_pending = 20"))
    came = [
        {row["arrivals"]: row["submitted"] + row["refused"] for row in figures(run)["arrivals"]}
        for run in (first, second)
    ]
    assert (
        came[0] == came[1]
        and first.count.tallies["arrivals", "web"].ends != second.count.tallies["arrivals", "web"].ends
    )


def test_a_lease_that_is_longer_than_its_time_to_live_is_kept_alive():
    run = ran(
        "duration_s = 1_000\n" + entry("a", "every_s = 1_000", "mean_s = 500") + "[[workers]]\n",
        '[[pools]]\nname = "default"\nlease_ttl_s = 10',
    )
    (row,) = figures(run)["arrivals"]
    assert row["ended"]["succeeded"] == 1 and row["retries"] == 0 and row["in_system"]["max"] == 500


@pytest.mark.parametrize(("noticed", "lost"), [(0, 0), (100, 10), (4, 4)])
def test_a_crash_costs_an_attempt_and_the_time_until_it_is_noticed(noticed, lost):
    """A lease that nobody renews is over after 10 s; then the server may give the next one to the same dead worker."""
    run = ran(
        "duration_s = 20_000\n"
        + entry("a", "every_s = 100\nretry = { initial_backoff_s = 0, max_attempts = 100 }", "mean_s = 50")
        + f"[[workers]]\nslots = 2\ncount = 2\ncrash_every_s = 500\ncrash_noticed_s = {noticed}\nrestart_s = 120\n",
        '[[pools]]\nname = "default"\nlease_ttl_s = 10\nmax = 2',
    )
    (row,) = figures(run)["arrivals"]
    assert 10 < row["retries"] < (200 if noticed == 100 else 80) and row["ended"]["succeeded"] >= 195
    busy = figures(run)["pools"][0]["busy"] * 20_000
    between = (busy - row["work_s"]) / row["retries"]
    assert lost - 4 <= between <= lost + 0.001, "the server takes the slots of the dead for busy"


def test_workers_join_and_leave_in_order():
    run = ran(
        "duration_s = 100\n"
        + entry("a", "every_s = 1", "mean_s = 4")
        + "[[workers]]\nslots = 4\n[[workers]]\nslots = 4\nfrom_s = 20.5\nuntil_s = 60.5\n"
    )
    found = figures(run)
    (row,), (pool,) = found["arrivals"], found["pools"]
    assert row["ended"]["succeeded"] == 96 and row["retries"] == 0, "what runs is finished"
    assert pool["slots"] == pytest.approx((400 + 4 * 40 + 5) / 100, abs=0.08)


def test_a_worker_that_leaves_while_it_is_idle_is_gone():
    run = ran("duration_s = 10\n" + entry("a", "every_s = 9") + "[[workers]]\n[[workers]]\nuntil_s = 5\n")
    assert figures(run)["pools"][0]["slots"] == 1.5
    assert run._engine.pools["default"].groups.capacity == 1


def test_a_fleet_follows_the_target_after_its_delay():
    run = ran(
        "duration_s = 600\n"
        + entry("a", "every_s = 1\nfrom_s = 100\nuntil_s = 300", "mean_s = 5")
        + "[[workers]]\n[[workers]]\ncount = 20\nfollow = true\nfollow_every_s = 1\nfollow_delay_s = 30\n",
        '[[pools]]\nname = "default"\nmax = 12\nmin = 2\ncooldown_s = 1',
    )
    (pool,) = figures(run)["pools"]
    slots, target = pool["line"]["slots"], pool["line"]["target"]
    assert slots[1] == 1 and slots[8] == 2, "30 s after the beginning it is at the least that is asked for"
    assert max(target) == max(slots) > 7 and target[10] > slots[10], "asked for, and not there yet"
    assert slots[-1] == target[-1] == 2


def test_what_is_refused_has_its_code_and_its_reason():
    run = ran(
        "duration_s = 10\n" + entry("a", "every_s = 1\nburst = 5", "mean_s = 10") + "[[workers]]\n",
        '[[pools]]\nname = "default"\nmax_pending = 3',
    )
    found = figures(run)
    (refused,) = found["refusals"]
    assert (refused["arrivals"], refused["code"], refused["count"]) == ("a", "overloaded", 46)
    assert refused["first"].startswith("pool 'default' has 3 pending tasks, its max_pending is 3")
    assert found["classes"][0]["refused"] == 46 and found["classes"][0]["submitted"] == 4


def test_what_is_shed_ends_as_shed():
    run = ran(
        "duration_s = 10\n"
        + entry("low", 'every_s = 10\nburst = 3\npriority = "low"', "mean_s = 10")
        + entry("high", 'every_s = 10\nfrom_s = 1\nburst = 2\npriority = "high"')
        + "[[workers]]\n",
        '[[pools]]\nname = "default"\nmax_pending = 3\noverflow = "shed_lowest"',
    )
    low, high = figures(run)["arrivals"]
    assert (low["ended"]["shed"], low["unfinished"], high["refused"]) == (1, 2, 0)


def test_fixed_starts_that_do_not_fit_are_refused():
    run = ran(
        "duration_s = 100\n" + entry("a", "every_s = 100\nburst = 3\nstart_in_s = 50", "mean_s = 2") + "[[workers]]\n",
        '[[pools]]\nname = "default"\nmax = 4',
    )
    found = figures(run)
    assert [(row["code"], row["count"]) for row in found["refusals"]] == [("reservation_conflict", 1)]
    (row,) = found["fixed_starts"]
    assert (row["due"], row["in_time"], row["late"]) == (2, 1, 1), "there is one slot"


def test_deadlines_are_met_or_missed():
    run = ran(
        "duration_s = 100\n"
        + entry("met", "every_s = 50\ndeadline_in_s = 2")
        + entry("late", "every_s = 100\nfrom_s = 10\ndeadline_in_s = 2", "mean_s = 3")
        + entry("still there", "every_s = 100\nfrom_s = 60\ndeadline_in_s = 2", "mean_s = 50")
        + entry("not due", "every_s = 100\nfrom_s = 99\ndeadline_in_s = 2", "mean_s = 50")
        + "[[workers]]\nslots = 9\n"
    )
    found = {row["arrivals"]: (row["deadlines_met"], row["deadlines_missed"]) for row in figures(run)["arrivals"]}
    assert found == {"met": (2, 0), "late": (0, 1), "still there": (0, 1), "not due": (0, 0)}


def test_attempts_that_take_too_long_are_aborted_and_their_slots_come_back():
    run = ran(
        "duration_s = 100\n"
        + entry(
            "a",
            "every_s = 10\nuntil_s = 45\ntimeout_s = 2\nretry = { max_attempts = 2, initial_backoff_s = 0 }",
            "mean_s = 9",
        )
        + "[[workers]]\n"
    )
    found = figures(run)
    (row,) = found["arrivals"]
    assert (row["ended"]["dead_lettered"], row["retries"], row["work_s"]) == (5, 5, 20.0)
    assert found["pools"][0]["busy"] == 0.2 and run._engine.totals.stale_completions == 0


def test_a_share_of_the_attempts_fails():
    run = ran(
        "duration_s = 2_000\n"
        + entry(
            "a", "every_s = 1\nfailure_rate = 0.3\nretry = { max_attempts = 2, initial_backoff_s = 0 }", "mean_s = 0.1"
        )
        + "[[workers]]\nslots = 5\n"
    )
    (row,) = figures(run)["arrivals"]
    assert row["retries"] == pytest.approx(600, rel=0.15)
    assert row["ended"]["dead_lettered"] == pytest.approx(180, rel=0.25)


SCHEDULE = """
[[pools]]
name = "default"
[[recurring]]
name = "night"
cron = "30 3 * * *"
tz = "Europe/Helsinki"
dst_gap = "{gap}"
dst_fold = "both"
"""


@pytest.mark.parametrize(
    ("start", "duration", "gap", "made", "dropped"),
    [
        ("2027-03-27T12:00:00Z", 86_000, "shift", 1, {}),
        ("2027-03-27T12:00:00Z", 86_000, "skip", 0, {}),
        ("2027-03-27T12:00:00Z", 150_000, "skip", 1, {"gap": 1}),  # told when the next one is made
        ("2027-10-30T12:00:00Z", 86_000, "shift", 2, {}),
        ("2027-10-29T12:00:00Z", 86_000, "shift", 1, {}),
    ],
)
def test_schedules_fire_by_the_clock_of_their_zone(start, duration, gap, made, dropped):
    run = ran(
        f'duration_s = {duration}\nstart = "{start}"\n'
        '[[recurring]]\nname = "night"\nduration = { mean_s = 60 }\n[[workers]]\n',
        SCHEDULE.format(gap=gap),
    )
    (row,) = figures(run)["schedules"]
    assert (row["submitted"], row["ended"]["succeeded"], row["dropped"]) == (made, made, dropped)
    assert row["work_s"] == 60 * made


def test_occurrences_that_overlap_are_skipped():
    run = ran(
        'duration_s = 1_000\n[[recurring]]\nname = "n"\nduration = { mean_s = 90 }\n[[workers]]\n',
        '[[pools]]\nname = "default"\n[[recurring]]\nname = "n"\ncron = "* * * * *"',
    )
    (row,) = figures(run)["schedules"]
    assert (row["started"], row["ended"]["skipped"]) == (8, 8)
    assert sum(row["dropped"].values()) == 8


def test_the_warm_up_is_run_and_not_counted():
    text = entry("a", "every_s = 1", "mean_s = 1") + "[[workers]]\n"
    found = figures(ran("duration_s = 100\nwarmup_s = 40\n" + text))
    (row,), (pool,) = found["arrivals"], found["pools"]
    assert (found["tasks"], row["submitted"], row["work_s"]) == (100, 60, 60.0) and pool["busy"] == 1.0


@pytest.mark.parametrize(
    ("limit", "bound", "sentence"),
    [
        ("MAX_SCENARIO_LIVE", 50, "more than 50 tasks were there at a time, after 50 s"),
        ("MAX_SCENARIO_TASKS", 70, "there were more than 70 tasks, after 70 s"),
        ("MAX_SCENARIO_EVENTS", 99, "there were more than 99 events, after"),
    ],
)
def test_a_run_that_passes_a_bound_stops_and_says_so(monkeypatch, limit, bound, sentence):
    monkeypatch.setattr(scenario_run, limit, bound)
    report = run_scenario(
        scenario("duration_s = 100\n" + entry("a", "every_s = 1", "mean_s = 1_000") + "[[workers]]\n")
    )
    assert report.stopped.startswith(sentence)
    assert report.text().startswith(f"STOPPED EARLY: {sentence}")
    assert report.as_json()["pools"][0]["utilization"] == 1.0


def test_a_fleet_that_is_larger_than_a_server_takes_it_tries_again(monkeypatch):
    monkeypatch.setattr("cronoq_sansio.service.workers.MAX_WORKER_STREAMS", 3)
    run = ran("duration_s = 100\n" + entry("a", "every_s = 1", "mean_s = 1") + "[[workers]]\ncount = 5\nuntil_s = 50\n")
    assert run._engine.pools["default"].groups.capacity == 0 and figures(run)["pools"][0]["slots"] == 1.5


def test_times_that_no_calendar_has_are_refused_and_no_fault():
    run = ran(
        "duration_s = 10\nstart = '2199-12-31T00:00:00Z'\n"
        + entry("start", "every_s = 1\nstart_in_s = 3_153_600_000")
        + entry("deadline", "every_s = 1\ndeadline_in_s = 3_153_600_000")
        + entry("timeout", "every_s = 1\ntimeout_s = 3_153_600_000\nduration_hint_s = 3_153_600_000")
        + "[[workers]]\nslots = 5\n"
    )
    assert len(waits(run, "timeout")) == 10 and figures(run)["tasks"] >= 10


def test_progress_is_told_a_hundred_times_at_most():
    told = []
    run_scenario(
        scenario("duration_s = 500\n" + entry("a", "every_s = 1", "mean_s = 1") + "[[workers]]\n"),
        lambda share, tasks: told.append((share, tasks)),
    )
    assert 90 <= len(told) <= 100 and told == sorted(told) and told[-1][0] <= 1


def test_progress_is_told_while_time_stands_still(monkeypatch):
    monkeypatch.setattr(scenario_run, "MAX_SCENARIO_EVENTS", 300)
    monkeypatch.setattr(scenario_run, "PROGRESS_EVENTS", 50)
    told = []
    lines = "every_s = 1\nfailure_rate = 1\nretry = { max_attempts = 1_000, initial_backoff_s = 0 }"
    report = run_scenario(
        scenario("duration_s = 10\n" + entry("a", lines, "mean_s = 0") + "[[workers]]\n"),
        lambda share, _tasks: told.append(share),
    )
    assert report.stopped and told == [0.0] * len(told) and len(told) >= 4


def test_a_burst_of_any_size_is_taken_in_reads():
    run = ran(
        "duration_s = 10\n"
        + entry("a", "every_s = 100\nburst = 5_000", "mean_s = 0.001")
        + "[[workers]]\nslots = 10\n",
        '[limits]\nmax_concurrent_requests = 7\n[[pools]]\nname = "default"',
    )
    assert len(waits(run, "a")) == 5_000 and figures(run)["refusals"] == []


# --- tables


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_lines_keep_to_the_width(width):
    text = run_scenario(scenario(MIXED.replace("duration_s = 300", "duration_s = 100"), MIXED_CONFIG)).text(width)
    bars = [line for line in text.splitlines() if "▁" in line or "█" in line]
    assert bars and max(map(len, bars)) <= max(width, 60)
    if width >= 150:
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "-"), (0, "0"), (5e-7, "0.5 µs"), (0.000_123, "123 µs"), (0.012_34, "12.3 ms"), (0.9996, "1,000 ms")),
        *((1.234, "1.23 s"), (119.9, "120 s"), (600, "10 min"), (7_199, "120 min"), (7_200, "2 h"), (864_000, "240 h")),
    ],
)
def test_spans(value, text):
    assert span(value) == text


def test_numbers():
    assert [number(value) for value in (0, 1_234, 0.5, 1.005, 12.34, 999.4, 12_345.6)] == [
        *("0", "1,234", "0.5", "1", "12.3", "999", "12,346")
    ]


def test_sparks():
    assert spark([0, 1, 4, 8], 8, 10) == " ▁▄█"
    assert spark([0, 1, 4, 8], 8, 2) == "▁█", "the highest of those that share a column"
    assert spark([0.001], 8, 1) == "▁", "what is not nothing is seen"


def test_tables_leave_out_what_nobody_has():
    rows = [["a" * 30, "1", "0", "-"], ["b", "22", "0", "-"]]
    assert table("T", ("name", "n", "shed", "p50"), rows, 1, 14) == f"T\nname         n\n{'a' * 9}…   1\nb           22"
    assert table("T", ("name",), [], 1, 80) == ""


def test_quantiles_are_exact():
    assert quantiles([]) is None
    values = [n * SECOND for n in range(1, 101)]
    assert quantiles(values) == [50.0, 90.0, 99.0, 100.0]
    assert quantiles([3 * SECOND]) == [3.0] * 4


def test_a_gauge_sums_areas_over_its_parts():
    gauge = Gauge(0, 30, 60 * BUCKETS)
    gauge.set(0, 5, 1, 2)
    gauge.set(90, 0, 0, 2)
    gauge.flush(60 * BUCKETS)
    assert (gauge.queue_area, gauge.busy_area, gauge.offered_area) == (5 * 60, 60, 2 * (60 * BUCKETS - 30))
    assert gauge.busy_line[:3] == [60, 30, 0] and gauge.queue_line[:3] == [5, 5, 0] and gauge.offered_line[-1] == 120
