"""What a run shows is what the theory of queues says, and what the rules of the scheduler say."""

import math
from heapq import heapify, heapreplace
from itertools import islice

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.sim.scenario.draws import arrival_times, draw, generator
from cronoq_sansio.sim.scenario.report import report_of
from tests.sim.scenarios import ran, scenario, waits

POISSON = """
duration_s = {duration}
[[arrivals]]
name = "a"
rate_per_s = {rate}
duration = {{ distribution = "exponential", mean_s = 1 }}
[[workers]]
slots = {slots}
"""


def figures(run):
    return report_of(run.scenario, run.count, run.handled, run.stopped).as_json()


def drawn(found):
    """Arrival times and run times of the only entry, as a run draws them."""
    (arrivals,) = found.arrivals
    times = arrival_times(arrivals, generator(found.seed, arrivals.name, "times"))
    random = generator(found.seed, f"arrivals/{arrivals.name}", "runs")
    for time in times:
        yield time, draw(arrivals.duration, random)
        random.random()  # whether it fails


def queue(tasks, slots):
    """Waits at `slots` servers, first come first served: the recursion of Kiefer and Wolfowitz."""
    free = [0] * slots
    heapify(free)
    for arrival, duration in tasks:
        start = max(arrival, free[0])
        heapreplace(free, start + duration)
        yield start - arrival


def erlang_c(load, slots):
    """Mean wait in units of the mean run time, with Poisson arrivals and exponential run times."""
    terms = [load**n / math.factorial(n) for n in range(slots)]
    last = load**slots / math.factorial(slots) * slots / (slots - load)
    return last / (sum(terms) + last) / (slots - load)


@pytest.mark.parametrize(("slots", "rate"), [(1, 0.8), (3, 2.4)])
def test_each_wait_is_that_of_an_ideal_queue(slots, rate):
    run = ran(POISSON.format(duration=900, rate=rate, slots=slots))
    ideal = list(queue(drawn(run.scenario), slots))
    seen = list(run.count.tallies[("arrivals", "a")].waits)
    assert len(seen) > 600 and seen == ideal[: len(seen)] and max(seen) > SECOND


@pytest.mark.parametrize(("slots", "rate"), [(1, 0.5), (1, 0.7), (2, 1.2), (8, 4.8)])
def test_what_is_drawn_gives_the_waits_of_the_theory(slots, rate):
    """With the test before: so does a long run."""
    found = scenario(POISSON.format(duration=400_000, rate=rate, slots=slots))
    seen = list(islice(queue(drawn(found), slots), 150_000))
    assert sum(seen) / len(seen) / SECOND == pytest.approx(erlang_c(rate, slots), rel=0.05)


def test_regular_work_never_waits():
    run = ran("""
        duration_s = 1_000
        [[arrivals]]
        name = "a"
        every_s = 2
        duration = { mean_s = 1.5 }
        [[workers]]
        """)
    assert waits(run, "a") == [0.0] * 500
    (pool,) = figures(run)["pools"]
    assert pool["utilization"] == 0.75 and pool["longest_queue"] == 0


def test_regular_work_that_is_too_much_waits_longer_each_time():
    run = ran("""
        duration_s = 100
        [[arrivals]]
        name = "a"
        every_s = 1
        duration = { mean_s = 2 }
        [[workers]]
        """)
    assert waits(run, "a") == [float(n) for n in range(50)]
    (row,) = figures(run)["classes"]
    assert (row["not_started"], row["longest_not_started_s"], row["unfinished"]) == (50, 50.0, 51)
    (pool,) = figures(run)["pools"]
    assert (pool["longest_queue"], pool["longest_queue_at_s"], pool["utilization"]) == (50, 99.0, 1.0)


def test_the_laws_of_utilization_and_of_little():
    run = ran(POISSON.format(duration=3_000, rate=2, slots=4))
    (pool,) = figures(run)["pools"]
    (row,) = figures(run)["classes"]
    assert pool["utilization"] == pytest.approx(row["work_s"] / (4 * 3_000), abs=1e-6)
    assert pool["utilization"] == pytest.approx(2 * 1 / 4, rel=0.05)
    waited = sum(waits(run, "a")) + sum(run.count.tallies[("arrivals", "a")].unstarted) / 1e9
    assert pool["queue"] == pytest.approx(waited / 3_000, abs=1e-6), "the mean queue is rate times mean wait"


def test_higher_classes_go_first_and_low_work_ages():
    """One slot, 100 s each. A task of the class low gets up to 800 points for 400 s of waiting, and begins with 10.

    At 900 s the oldest normal task has waited for 349 s and has 100 + 698: less than 810 for the first time.
    """
    run = ran("""
        duration_s = 100_000
        [[arrivals]]
        name = "low"
        priority = "low"
        every_s = 100_000
        burst = 3
        duration = { mean_s = 100 }
        [[arrivals]]
        name = "normal"
        from_s = 1
        every_s = 110
        until_s = 2_000
        duration = { mean_s = 100 }
        [[arrivals]]
        name = "high"
        from_s = 1
        every_s = 100_000
        burst = 3
        priority = "high"
        duration = { mean_s = 100 }
        [[workers]]
        """)
    assert waits(run, "low")[0] == 0, "it came first"
    assert waits(run, "high") == [99, 199, 299]
    assert waits(run, "normal")[:6] == [399, 389, 379, 369, 359, 449]
    assert waits(run, "low")[1] == 900


def test_shares_are_those_of_the_weights():
    run = ran(
        """
        duration_s = 2_000
        [[arrivals]]
        name = "gold"
        tenant = "gold"
        rate_per_s = 4
        duration = { distribution = "exponential", mean_s = 1 }
        [[arrivals]]
        name = "other"
        tenant = "other"
        rate_per_s = 4
        duration = { distribution = "exponential", mean_s = 1 }
        [[workers]]
        slots = 4
        """,
        '[[pools]]\nname = "default"\ntenant_weights = { gold = 3 }',
    )
    rows = {row["tenant"]: row for row in figures(run)["tenants"]}
    assert rows["gold"]["share"] == pytest.approx(0.75, abs=0.02) and rows["other"]["weight"] == 1


def test_a_bucket_gives_what_comes_back():
    run = ran(
        """
        duration_s = 1_000
        [[arrivals]]
        name = "a"
        rate_per_s = 5
        resources = { mail = 2 }
        duration = { mean_s = 0.01 }
        [[workers]]
        slots = 10
        """,
        '[[pools]]\nname = "default"\n[[resources]]\nname = "mail"\nkind = "token_bucket"\nrate = 4\nburst = 20',
    )
    (bucket,) = figures(run)["resources"]
    assert 20 + 4 * 1_000 - 2 <= bucket["taken"] <= 20 + 4 * 1_000
    assert bucket["utilization"] == pytest.approx(1.0, abs=0.01)


def test_permits_bound_what_runs():
    run = ran(
        """
        duration_s = 1_000
        [[arrivals]]
        name = "a"
        rate_per_s = 5
        resources = { db = 2 }
        duration = { mean_s = 2 }
        [[workers]]
        slots = 10
        """,
        '[[pools]]\nname = "default"\n[[resources]]\nname = "db"\nkind = "semaphore"\npermits = 6',
    )
    (found,) = figures(run)["resources"]
    assert found["used"] == pytest.approx(6, abs=0.05)
    assert figures(run)["pools"][0]["busy"] == pytest.approx(3, abs=0.05)


def test_a_fixed_start_is_missed_when_all_slots_are_busy():
    """A slot is held for it while there is one that comes free; tasks of 1,000 s leave none."""
    run = ran("""
        duration_s = 900
        [[arrivals]]
        name = "long"
        every_s = 900
        burst = 2
        duration = { mean_s = 1_000 }
        [[arrivals]]
        name = "fixed"
        every_s = 900
        from_s = 100
        start_in_s = 50
        tolerance_s = 5
        on_miss = "skip"
        duration_hint_s = 1
        duration = { mean_s = 1 }
        [[arrivals]]
        name = "patient"
        every_s = 900
        from_s = 100
        start_in_s = 250
        duration_hint_s = 1
        duration = { mean_s = 1 }
        [[workers]]
        slots = 2
        [[workers]]
        from_s = 700
        """)
    rows = {row["on_miss"]: row for row in figures(run)["fixed_starts"]}
    assert rows["skip"]["missed"] == rows["skip"]["due"] == 1 and rows["skip"]["lateness"] is None
    assert rows["run_late"]["late"] == 1 and rows["run_late"]["lateness"]["max"] == 350, "the worker of second 700"
