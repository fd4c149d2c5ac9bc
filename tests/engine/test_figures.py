"""Figures of a pool over the last minute, against the events that made them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.figures import INTERVAL, WINDOW, Figures, PoolFigures, histogram, middle_of, quantiles
from cronoq_sansio.spec import Priority
from tests.engine.harness import Rig, pool, spec

GROUP = ("default", ())


def figures(rig, name="default"):
    (found,) = (pool.figures for pool in rig.engine.snapshot(rig.now).pools if pool.name == name)
    return found


def counts(rig):
    shown = figures(rig)
    return shown.dispatched, shown.succeeded, shown.failed


def test_an_empty_window_has_rates_of_1_and_nothing_else():
    """server.md section 10."""
    assert figures(Rig()) == PoolFigures(0, 0, 0, 1.0, 0.0, 0.0, 0.0, 0.0)


def test_attempts_are_counted():
    rig = Rig()
    rig.submit(spec(), spec(), spec())
    rig.slots(2)
    assert counts(rig) == (2, 0, 0)
    rig.complete(1)
    rig.fail(2)
    assert counts(rig) == (3, 1, 1)
    rig.handle(ev.TaskCancelled(None, 3))
    assert counts(rig) == (3, 1, 1), "a cancelled attempt neither succeeded nor failed"


def test_a_dispatch_that_is_taken_back_did_not_happen():
    rig = Rig(release=False)
    rig.submit(spec())
    rig.slots(1)
    assert counts(rig) == (1, 0, 0)
    rig.handle(ev.GroupCapacitySet(*GROUP, 0), ev.DispatchReturned(rig.leases[0].id))
    assert counts(rig) == (0, 0, 0)


def test_a_lease_that_passes_on_is_one_dispatch():
    rig = Rig()
    rig.submit(spec())
    rig.slots(1)
    rig.slots(1, (("gpu", "1"),))
    rig.handle(ev.AttemptNacked(rig.leases[0].id, "busy", ((("gpu", "1"),),)))
    assert counts(rig) == (1, 0, 0)


def test_expired_leases_and_lost_workers_are_failures():
    rig = Rig(pool(lease_ttl=5 * SECOND))
    rig.submit(spec(), spec())
    rig.slots(2)
    rig.handle(ev.LeasesLost((rig.leases[0].id,), "gone"))
    rig.slots(0)
    rig.advance(5 * SECOND)
    assert counts(rig) == (2, 0, 2)


@pytest.mark.parametrize("quiet", [True, False])
def test_what_is_older_than_the_window_does_not_count(quiet):
    """Also when nothing at all happens meanwhile, so that nothing is noted."""
    rig = Rig()
    rig.submit(*[spec()] * 3)
    rig.slots(1)
    rig.complete(1)
    rig.slots(0)
    rig.complete(2)
    for _ in range(12):
        rig.now += 5 * SECOND
        if not quiet:
            rig.handle()
    assert counts(rig)[0] == 2, "60 s later it still may"
    rig.now += INTERVAL
    assert counts(rig) == (0, 0, 0)
    assert figures(rig).wait_p50 == 0
    rig.now += 1_000 * SECOND
    assert figures(rig) == PoolFigures()


@given(st.lists(st.tuples(st.integers(0, 40 * SECOND), st.booleans()), max_size=25), st.integers(0, 100 * SECOND))
def test_the_window_is_the_last_60_to_65_seconds(script, quiet):
    """Against counting the events themselves."""
    rig = Rig()
    rig.slots(1)
    ended = []
    for gap, succeeds in script:
        rig.now += gap
        (task,) = rig.submit(spec())
        lease = rig.lease(task).id
        rig.handle(ev.AttemptSucceeded(lease, b"", "") if succeeds else ev.AttemptFailed(lease, "e", True, 0))
        ended.append((rig.now, succeeds))
    rig.now += quiet
    dispatched, succeeded, failed = counts(rig)
    for kind, count in ((True, succeeded), (False, failed)):
        ages = [rig.now - at for at, succeeds in ended if succeeds is kind]
        assert sum(age < WINDOW for age in ages) <= count <= sum(age <= WINDOW + INTERVAL for age in ages)
    assert dispatched == succeeded + failed


# --- priorities


def test_adherence_is_the_share_of_dispatches_that_overtook_nobody():
    rig = Rig()
    old = rig.submit(spec(priority=Priority.LOW))
    rig.now += 200 * SECOND
    rig.submit(spec(priority=Priority.NORMAL))
    rig.slots(1)
    assert rig.order() == old, "aging lifted it above fresh NORMAL work"
    assert figures(rig).priority_adherence == 0.0
    rig.complete(1)
    assert figures(rig).priority_adherence == 0.5


def test_the_usual_order_is_full_adherence():
    rig = Rig()
    rig.submit(*(spec(priority=priority) for priority in (3, 2, 1, 0)))
    rig.slots(4)
    assert figures(rig).priority_adherence == 1.0


# --- slots


def test_utilization_is_busy_of_offered_slot_seconds():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.slots(4)
    rig.now += 10 * SECOND
    rig.submit(spec(), spec())
    rig.now += 10 * SECOND
    rig.complete(1)
    assert figures(rig).utilization == pytest.approx(20 / 80)
    rig.now += 10 * SECOND
    assert figures(rig).utilization == pytest.approx(30 / 120), "the one that runs counts up to now"
    rig.slots(0)
    rig.complete(2)
    rig.now += 10 * SECOND
    assert figures(rig).utilization == pytest.approx(30 / 120), "no slots, no time"


def test_utilization_stays_below_1_when_workers_offer_less_than_runs():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.slots(1)
    rig.submit(spec())
    rig.now += SECOND
    rig.slots(0)
    rig.now += 30 * SECOND
    assert figures(rig).utilization == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from(["slots", "submit", "complete", "fail", "hold", "go"]), st.integers(0, 9 * SECOND)),
        max_size=25,
    )
)
def test_utilization_against_a_plain_integral(script):
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    busy = offered = elapsed = 0
    for index, (what, gap) in enumerate(script):
        groups = rig.engine.pools["default"].groups
        if elapsed + gap > WINDOW:
            break
        elapsed += gap
        busy += groups.busy * gap
        offered += groups.capacity * gap
        rig.now += gap
        running = list(rig.engine.leases.live)
        if what == "slots":
            rig.slots(index % 4)
        elif what == "submit":
            rig.submit(spec())
        elif what in ("hold", "go"):
            rig.handle(ev.DispatchHeld(what == "hold"))
        elif running:
            complete = ev.AttemptSucceeded(running[0], b"", "")
            rig.handle(complete if what == "complete" else ev.AttemptFailed(running[0], "e", True, 0))
    assert figures(rig).utilization == pytest.approx(min(busy / offered, 1.0) if offered else 0.0)


# --- what the slots brought forth


def test_efficiency_is_the_run_time_of_successes_of_offered_slot_seconds():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.slots(2)
    rig.submit(spec(), spec())
    rig.now += 10 * SECOND
    assert figures(rig).schedule_efficiency == 0.0, "what runs has brought forth nothing yet"
    rig.complete(1)
    rig.fail(2, permanent=True)
    rig.now += 10 * SECOND
    assert figures(rig).schedule_efficiency == pytest.approx(10 / 40)
    assert figures(rig).utilization == pytest.approx(20 / 40)


def test_an_attempt_that_is_older_than_the_window_does_not_lift_efficiency_above_1():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.slots(1)
    rig.submit(spec())
    for _ in range(40):
        rig.now += 5 * SECOND
        rig.handle()
    rig.complete(1)
    assert figures(rig).schedule_efficiency == 1.0
    rig.now += WINDOW + 2 * INTERVAL
    assert figures(rig).schedule_efficiency == 0.0


def test_time_that_is_excused_is_no_work():
    rig = Rig(pool(lease_ttl=1_000 * SECOND))
    rig.slots(1)
    rig.submit(spec(), spec())
    rig.now += 10 * SECOND
    rig.handle(ev.Stalled(4 * SECOND))
    rig.complete(1)
    assert figures(rig).schedule_efficiency == pytest.approx(6 / 10)
    rig.handle(ev.Stalled(20 * SECOND))
    rig.complete(2)
    assert figures(rig).schedule_efficiency == 0.0, "lease time went back"


def test_cost_is_that_of_every_offered_slot_second_since_the_term_began():
    rig = Rig(pool(cost_per_worker_second=0.5), pool("free"))

    def costs():
        return [pool.cost for pool in rig.engine.snapshot(rig.now).pools]

    rig.now += 10 * SECOND
    assert costs() == [0.0, 0.0]
    rig.slots(3)
    rig.slots(1, (("gpu", "1"),))
    rig.slots(5, name="free")
    rig.now += 1_000 * SECOND
    assert costs() == [2_000.0, 0.0], "longer than the window"
    rig.slots(1)
    rig.now += 10 * SECOND
    assert costs() == [2_010.0, 0.0]
    rig.slots(0)
    rig.slots(0, (("gpu", "1"),))
    rig.now += 10 * SECOND
    assert costs() == [2_010.0, 0.0]


# --- fixed starts


@given(
    st.lists(st.tuples(st.integers(0, 20 * SECOND), st.sampled_from(["hit", "late", "missed", "back"])), max_size=30),
    st.integers(0, 5 * SECOND),
)
def test_the_hit_rate_is_that_of_the_window(script, later):
    """Noted as the engine does it; whoever dispatches counts. A dispatch that is taken back counts no more."""
    sums, now, due, seen = Figures(0), 0, INTERVAL, []
    for gap, what in [*script, (later, "")]:
        now += gap
        while due <= now:
            sums.note(due, 0)
            due += INTERVAL
        hit = what == "hit"
        if what == "back" and seen and seen[-1][1] is not None:
            sums.fixed_starts -= 1
            sums.hits -= seen.pop()[1]
        elif what in ("hit", "late", "missed"):
            sums.fixed_starts += 1
            sums.hits += hit
            seen.append((now, hit))
        sums.check_invariants()
    edge = max((note for note in range(0, now + 1, INTERVAL) if note <= now - WINDOW), default=0)
    within = [hit for at, hit in seen if at > edge or not edge]
    taken_back = any(what == "back" for _, what in script)
    rate = sums.show(now, 0).fixed_start_hit_rate
    assert 0.0 <= rate <= 1.0
    if not taken_back:
        assert rate == (sum(within) / len(within) if within else 1.0)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0, 0), (0, 0), 1.0),
        ((0, 0), (4, 3), 0.75),
        ((5, 5), (6, 5), 0.0),
        ((5, 5), (4, 4), 1.0),  # one that had been noted was taken back
        ((5, 4), (6, 3), 0.0),
        ((5, 3), (6, 5), 1.0),
    ],
)
def test_hit_rates_stay_between_0_and_1(before, after, expected):
    sums = Figures(0)
    sums.fixed_starts, sums.hits = before
    sums.note(INTERVAL, 0)
    sums.note(INTERVAL + WINDOW, 0)
    sums.fixed_starts, sums.hits = after
    assert sums.show(INTERVAL + WINDOW, 0).fixed_start_hit_rate == expected


@pytest.mark.parametrize(("name", "value"), [("hits", 1), ("hits", -1), ("failed", -1)])
def test_the_check_sees_wrong_counts(name, value):
    sums = Figures(0)
    sums.check_invariants()
    setattr(sums, name, value)
    with pytest.raises(AssertionError, match=r"negative|in time"):
        sums.check_invariants()


# --- waits


def test_waits_are_from_submission_to_first_start():
    rig = Rig()
    rig.submit(spec())
    rig.now += 4 * SECOND
    rig.slots(1)
    assert figures(rig).wait_p50 == pytest.approx(4, rel=0.09)
    rig.fail(1)
    rig.advance(20 * SECOND)
    assert counts(rig)[0] == 2
    assert figures(rig).wait_p99 == pytest.approx(4, rel=0.09), "a second attempt is no first start"


def exact(durations, share):
    """The smallest duration that so many are within."""
    ordered = sorted(durations)
    return next(d for n, d in enumerate(ordered, 1) if n >= share * len(ordered))


@given(st.lists(st.integers(0, 10_000 * SECOND), min_size=1, max_size=60))
def test_quantiles_are_right_within_9_percent(durations):
    shares = (0.5, 0.9, 0.99)
    for share, found in zip(shares, quantiles(histogram(durations), shares), strict=True):
        assert found * SECOND == pytest.approx(exact(durations, share), rel=0.09, abs=2)


@given(st.integers(0, 1 << 62))
def test_every_duration_has_a_step_close_to_it(nanoseconds):
    (step,) = histogram([nanoseconds])
    assert abs(middle_of(step) - nanoseconds) <= 0.0625 * nanoseconds + 0.5


def test_steps_ascend_with_durations():
    durations = [*range(64), *(1 << n for n in range(6, 62)), (1 << 62) - 1]
    steps = [next(iter(histogram([duration]))) for duration in durations]
    assert steps == sorted(steps)


def test_memory_is_bounded_by_the_window():
    rig = Rig()
    rig.slots(1)
    for _ in range(200):
        rig.now += SECOND
        (task,) = rig.submit(spec())
        rig.complete(task)
    figures_of = rig.engine.pools["default"].figures
    assert len(figures_of._notes) <= WINDOW // INTERVAL + 2
    assert len(figures_of.waits) <= INTERVAL // SECOND + 1
