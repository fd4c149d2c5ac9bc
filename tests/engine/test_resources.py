"""Resources against a naive list, and what they cost when very many tasks wait."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.claims import Shelf
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.units import ByUnits, Ranked
from cronoq_sansio.errors import Code
from cronoq_sansio.settings import ResourceSettings
from tests.engine.naive_resources import NaiveResources, Task, World

NAMES = ("disk", "gpu", "sends", "tokens")


def semaphore(name, permits):
    return ResourceSettings(name, "semaphore", permits=permits)


def bucket(name, rate, burst):
    return ResourceSettings(name, "token_bucket", rate=rate, burst=burst)


STOCKS = (semaphore("disk", 3), semaphore("gpu", 1), bucket("sends", 2 / 3, 2), bucket("tokens", 5.0, 9))
CAPACITY = {item.name: item.capacity for item in STOCKS}

# --- against the naive one


@st.composite
def needs(draw):
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    return tuple((name, draw(st.integers(1, CAPACITY[name]))) for name in sorted(names))


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 1), st.integers(0, 1), needs(), st.integers(0, 2)),
        st.tuples(st.just("slots"), st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)),
        st.tuples(st.sampled_from(["end", "fail", "take_back"]), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("advance"), st.integers(0, 3 * SECOND)),
        st.tuples(st.just("next"), st.just(0)),
        st.tuples(st.just("limit"), st.sampled_from(NAMES), st.integers(1, 9), st.sampled_from([0.3, 2.0])),
    ),
    max_size=60,
)


def apply(world, operation, number, due):
    """One event, as far as it applies; `due` is when the timer goes off."""
    kind, *arguments = operation
    if kind == "submit":
        world.submit(number, *arguments)
    elif kind == "slots":
        pool, group, capacity = arguments
        world.pool(pool).groups[group].capacity = capacity
        world.wake(world.pool(pool))
    elif kind == "cancel":
        waiting = [task for task in world.live.values() if task.lease is None]
        if waiting:
            world.cancel(waiting[arguments[0] % len(waiting)])
    elif kind == "advance":
        world.now += arguments[0]
    elif kind == "next":
        world.now = max(world.now, due or 0)
    elif kind == "limit":
        name, capacity, rate = arguments
        of = semaphore(name, capacity) if name in ("disk", "gpu") else bucket(name, rate, capacity)
        world.resources.set_limit(of, world.now)
    elif world.running:
        getattr(world, kind)(world.running[arguments[0] % len(world.running)])


def lockstep(operations):
    """The real one and the naive one do the same."""
    real, naive = World(Resources, STOCKS), World(NaiveResources, STOCKS)
    for number, operation in enumerate(operations):
        due = real.resources.next_timeout()
        for world in (real, naive):
            apply(world, operation, number, due)
            world.pump()
        assert real.log == naive.log
        compare(real, naive)

    return real


@given(OPERATIONS)
def test_against_a_naive_list(operations):
    lockstep([("slots", 0, 0, 2), ("slots", 0, 1, 1), *operations])


@pytest.mark.parametrize("seed", range(30))
def test_against_a_naive_list_for_long(seed):
    """Long enough for states that few steps do not reach."""
    random = Random(seed)
    most = random.choice([1, 2, 9])

    def operation():
        names = sorted(random.sample(NAMES, random.choice([0, 1, 1, 2, 3])))
        return random.choice(
            4
            * [("submit", *drawn(2, 2), tuple((name, random.randint(1, min(most, CAPACITY[name]))) for name in names))]
            + [("slots", *drawn(2, 2, 4)), ("advance", random.randrange(3 * SECOND)), ("next", 0), ("next", 0)]
            + [("end", *drawn(9)), ("end", *drawn(9)), (random.choice(["fail", "take_back", "end"]), *drawn(9))]
            + [random.choice([("cancel", *drawn(30)), ("limit", random.choice(NAMES), 1 + most, 0.7), ("next", 0)])]
        )

    def drawn(*ends):
        return [random.randrange(end) for end in ends]

    real = lockstep([(*made, *drawn(3)) if made[0] == "submit" else made for made in (operation() for _ in range(300))])
    assert len({kind for kind, *_ in real.log}) == 3, "nothing waited"


def compare(real, naive):
    real.resources.check_invariants(real)
    assert real.resources.statistics()["called"] == len(naive.resources.called) == 0
    parked = {task.id: task.plan.place for task in real.live.values() if task.plan.claim is not None}
    assert parked == {task.id: task.plan.place for task in naive.resources.parked}
    assert bool(real.resources.any) == bool(parked)
    for name, stock in naive.resources.stocks.items():
        assert real.resources._stocks[name].spare(real.now) == stock.spare()
    due, chance = real.resources.next_timeout(), naive.resources.next_chance()
    assert due is None or due > real.now
    if chance is not None:
        assert due is not None and due <= chance, "a task would start without an event, and no timer is set"


# --- single rules


def world(*stocks, slots=10, pools=1):
    made = World(Resources, stocks, pools)
    for pool in made.pools.values():
        pool.groups[0].capacity = slots
    return made


def submit(world, task_id, *needs, pool=0, demand=0, rank=0):
    world.submit(task_id, pool, demand, needs, rank)
    world.pump()
    world.resources.check_invariants(world)


def end(world, *task_ids):
    for task_id in task_ids:
        world.end(world.live[task_id])
    world.pump()
    world.resources.check_invariants(world)


def started(world):
    return [entry[1] for entry in world.log if entry[0] == "start"]


def run_until(world, seconds):
    """Let time pass, with a step at each timer and at no other time; how many steps that took."""
    until, steps = world.now + round(seconds * SECOND), 0
    while (due := world.resources.next_timeout()) is not None and due <= until:
        world.now = max(world.now, due)
        world.pump()
        steps += 1
    world.now = until
    return steps


@pytest.mark.parametrize(
    ("needs", "code"),
    [
        ((), None),
        ((("disk", 3), ("tokens", 9)), None),
        ((("disc", 1),), Code.UNKNOWN_RESOURCE),
        ((("disk", 0),), Code.INVALID),
        ((("disk", 4),), Code.RESOURCE_EXCEEDS_CAPACITY),
        ((("disk", 1), ("tokens", 10)), Code.RESOURCE_EXCEEDS_CAPACITY),
    ],
)
def test_what_can_never_run_is_refused(needs, code):
    rejection = Resources(STOCKS, {}, 0).check(needs)
    assert (None if rejection is None else rejection.code) == code
    if rejection is not None:
        assert repr(needs[-1][0]) in rejection.message


def test_the_limit_that_counts_is_the_present_one():
    resources = Resources(STOCKS, {}, 0)
    resources.set_limit(semaphore("disk", 4), 0)
    assert resources.check((("disk", 4),)) is None
    resources.set_limit(semaphore("disk", 1), 0)
    assert resources.check((("disk", 2),)).code is Code.RESOURCE_EXCEEDS_CAPACITY


def test_all_or_none():
    w = world(semaphore("a", 1), semaphore("b", 1))
    submit(w, 1, ("a", 1))
    submit(w, 2, ("a", 1), ("b", 1))
    submit(w, 3, ("b", 1))
    assert started(w) == [1, 3], "what 2 cannot use yet is not kept from 3"
    end(w, 1)
    assert started(w) == [1, 3]
    end(w, 3)
    assert started(w) == [1, 3, 2]


def test_a_newcomer_takes_nothing_while_an_earlier_one_fits():
    w = world(semaphore("a", 2))
    submit(w, 1, ("a", 2))
    submit(w, 2, ("a", 1), rank=9)
    w.submit(3, 0, 0, (("a", 2),), 0)
    w.end(w.live[1])
    w.pump()
    assert started(w) == [1, 2]
    assert w.live[3].plan.place == 2


def test_small_ones_overtake_a_large_one_until_it_fits():
    w = world(semaphore("a", 3))
    submit(w, 1, ("a", 2))
    submit(w, 2, ("a", 3))
    submit(w, 3, ("a", 1))
    end(w, 1)
    submit(w, 4, ("a", 1))
    assert started(w) == [1, 3, 4]
    end(w, 3, 4)
    assert started(w) == [1, 3, 4, 2]


def test_the_place_is_kept_until_an_attempt_has_ended():
    w = world(semaphore("a", 1))
    for number in (1, 2, 3):
        submit(w, number, ("a", 1))
    end(w, 1)
    w.take_back(w.live[2])
    w.pump()
    assert started(w) == [1, 2, 3], "who is parked is offered first what comes back"
    assert w.live[2].plan.place == 1
    w.fail(w.live[3])
    w.pump()
    assert started(w) == [1, 2, 3, 2]
    assert w.live[3].plan.place == 3, "behind everybody who waits"


def test_tokens_of_a_dispatch_that_is_taken_back_come_back_and_others_do_not():
    w = world(bucket("b", 1.0, 1))
    submit(w, 1, ("b", 1))
    w.take_back(w.live[1])
    w.pump()
    assert started(w) == [1, 1]
    end(w, 1)
    submit(w, 2, ("b", 1))
    assert started(w) == [1, 1]
    w.now += SECOND - 1
    w.pump()
    assert started(w) == [1, 1]
    w.now += 1
    w.pump()
    assert started(w) == [1, 1, 2]


def test_units_go_to_those_for_whom_there_is_a_slot():
    """Of 2 and 3, for which there is one slot, one is called: what the other one would need lets 5 run elsewhere."""
    w = world(semaphore("a", 2), semaphore("b", 2), slots=1, pools=2)
    special = w.pool(0).groups[1]
    special.capacity = 1
    w.submit(1, 1, 0, (("a", 2), ("b", 1)), 0)
    w.pump()
    w.submit(2, 0, 1, (("a", 1), ("b", 1)), 1)
    w.submit(3, 0, 1, (("a", 1), ("b", 1)), 1)
    w.submit(5, 0, 0, (("a", 1),), 1)
    w.pump()
    assert started(w) == [1]
    end(w, 1)
    assert started(w) == [1, 2, 5], "3 has no slot with its label"
    assert ("call", 3, w.live[3].plan.place) not in w.log
    w.resources.check_invariants(w)


def test_a_slot_that_a_recalled_task_leaves_goes_to_another_one_at_once():
    """3 and 4 are called for both free slots, of which one has no label: it goes to 6."""
    w = world(semaphore("a", 3), semaphore("c", 1), slots=1, pools=2)
    w.pool(0).groups[1].capacity = 1
    submit(w, 1, ("a", 3), ("c", 1), pool=1)
    for number in (3, 4, 5):
        submit(w, number, ("a", 1), demand=1)
    submit(w, 6, ("c", 1))
    end(w, 1)
    assert started(w) == [1, 3, 6]


def test_the_timer_moves_when_a_newcomer_takes_what_somebody_waits_for():
    w = world(bucket("b", 1.0, 4))
    submit(w, 1, ("b", 2))
    submit(w, 2, ("b", 4))
    assert w.resources.next_timeout() == w.now + 2 * SECOND
    submit(w, 3, ("b", 1))
    assert started(w) == [1, 3]
    assert w.resources.next_timeout() == w.now + 3 * SECOND


def test_what_is_promised_is_not_counted_on_by_the_timer():
    w = world(bucket("b", 1.0, 6))
    w.pool(0).groups[1].capacity = 1
    submit(w, 1, ("b", 6))
    submit(w, 2, ("b", 2))
    submit(w, 3, ("b", 3), demand=1)
    w.now += 2 * SECOND
    w.resources.offers(w.now, [], w.call)
    assert w.live[2].plan.called and not w.live[3].plan.called
    assert w.resources.next_timeout() == w.now + 3 * SECOND
    w.cancel(w.live[2])
    assert w.resources.next_timeout() == w.now + SECOND
    w.resources.check_invariants(w)


def test_a_called_task_that_is_cancelled_leaves_its_slot_to_another():
    w = world(semaphore("a", 2), slots=1)
    w.pool(0).groups[0].capacity = 2
    submit(w, 1, ("a", 2))
    submit(w, 2, ("a", 1))
    submit(w, 3, ("a", 1))
    w.pool(0).groups[0].capacity = 1
    w.end(w.live[1])
    w.resources.offers(w.now, list(w.awake.values()), w.call)
    assert w.live[2].plan.called and not w.live[3].plan.called
    w.awake.clear()
    assert not w.resources.pending(w.now)
    w.cancel(w.live[2])
    assert w.resources.pending(w.now)
    w.pump()
    assert started(w) == [1, 3]


def test_a_promise_that_a_lowered_limit_broke_is_none():
    w = world(semaphore("a", 2))
    submit(w, 1, ("a", 2))
    submit(w, 2, ("a", 2))
    w.end(w.live[1])
    w.resources.offers(w.now, list(w.pools.values()), w.call)
    assert w.live[2].plan.called
    w.resources.set_limit(semaphore("a", 1), w.now)
    w.pump()
    assert started(w) == [1] and w.live[2].plan.place == 1
    w.resources.set_limit(semaphore("a", 2), w.now)
    assert w.resources.pending(w.now)
    w.pump()
    assert started(w) == [1, 2]


def test_a_limit_below_its_use_starts_nothing_until_it_fits():
    w = world(semaphore("a", 3))
    for number in range(1, 6):
        submit(w, number, ("a", 1))
    w.resources.set_limit(semaphore("a", 2), w.now)
    end(w, 1)
    assert started(w) == [1, 2, 3]
    end(w, 2)
    assert started(w) == [1, 2, 3, 4]


def test_a_bucket_keeps_its_tokens_when_its_rate_changes():
    w = world(bucket("b", 1 / 3, 8))
    submit(w, 1, ("b", 5))
    w.resources.set_limit(bucket("b", 0.1, 4), w.now)
    submit(w, 2, ("b", 4))
    assert run_until(w, 9.999999) == 0
    assert run_until(w, 1) == 1 and started(w) == [1, 2]


# --- time


def test_two_per_three_seconds_for_ever():
    """No timer is lost, however long nothing happened, and none is late by more than the rounding of the rate."""
    w = world(bucket("sends", 2 / 3, 2))
    number = 0
    for idle in (0, 3_600, 0.5, 86_400 * 400):
        w.now += round(idle * SECOND)
        run_until(w, 3)
        begin = w.now
        w.log.clear()
        for _ in range(10):
            number += 1
            submit(w, number, ("sends", 1))
        steps = run_until(w, 60)
        times = [at - begin for kind, _, at in w.log if kind == "start"]
        assert steps == 8 and times[:2] == [0, 0]
        for turn, time in enumerate(times[2:], 1):
            assert 0 <= time - turn * 3 * SECOND / 2 <= 10
        end(w, *range(number - 9, number + 1))


@pytest.mark.parametrize("rate", [1e-300, 5e-324, 1e300])
def test_absurd_rates_give_times_that_a_timer_can_hold(rate):
    w = world(bucket("b", rate, 1))
    submit(w, 1, ("b", 1))
    submit(w, 2, ("b", 1))
    due = w.resources.next_timeout()
    assert w.now < due < 1 << 63
    w.now = due
    w.pump()
    assert started(w) == [1, 2] if rate > 1 else [1] and w.resources.next_timeout() > due


def test_no_timer_without_anybody_who_waits_for_time():
    w = world(bucket("b", 1.0, 1), semaphore("a", 1))
    assert w.resources.next_timeout() is None
    submit(w, 1, ("a", 1), ("b", 1))
    assert w.resources.next_timeout() is None
    submit(w, 2, ("a", 1))
    assert w.resources.next_timeout() is None, "permits do not come with time"
    submit(w, 3, ("b", 1))
    assert w.resources.next_timeout() == w.now + SECOND
    w.cancel(w.live[3])
    assert w.resources.next_timeout() is None


def test_the_timer_of_a_task_without_a_slot_goes_off_once():
    w = world(bucket("b", 1.0, 5), slots=1)
    submit(w, 1, ("b", 5))
    w.pool(0).groups[0].capacity = 2
    for number in range(2, 6):
        submit(w, number, ("b", number - 1))
    w.pool(0).groups[0].capacity = 1
    assert run_until(w, 100) == 1, "later amounts need no timers of their own while there is no slot for them"
    end(w, 1)
    assert started(w) == [1, 2]


@given(st.floats(1e-3, 1e3), st.integers(1, 20), st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 20))))
def test_no_window_gives_more_than_burst_and_rate_and_no_refusal_is_unfounded(rate, burst, asked):
    w = world(bucket("b", rate, burst))
    resources, begin = w.resources, w.now
    grants, left, before = [], Fraction(burst), begin
    for number, (wait, units) in enumerate(asked):
        w.now += wait
        left, before = min(left + Fraction(rate) * (w.now - before) / SECOND, burst), w.now
        task = Task(number, w.pool(0), w.pool(0).demands[0], (("b", units),))
        w.live[number] = task
        granted = resources.acquire(task, w.now)
        assert granted == (left >= units)
        if granted:
            left -= units
            grants.append((w.now, units))
        else:
            resources.leave(task)
    for first in range(len(grants)):
        total = 0
        for at, units in grants[first:]:
            total += units
            assert total <= burst + Fraction(rate) * (at - grants[first][0]) / SECOND


# --- cost, counted and not timed


@pytest.fixture
def looks(monkeypatch):
    """How often the search structures were asked."""
    count = [0]

    def counting(kind, name):
        asked = getattr(kind, name)

        def counted(*arguments):
            count[0] += 1
            return asked(*arguments)

        monkeypatch.setattr(kind, name, counted)

    for kind, name in [(ByUnits, "lowest"), (ByUnits, "_lift"), (Ranked, "first"), (Ranked, "put"), (Shelf, "next")]:
        counting(kind, name)
    return count


def test_100_000_on_an_empty_bucket_cost_others_nothing(looks):
    w = world(bucket("b", 1e-6, 1), semaphore("a", 5), slots=100)
    submit(w, 1, ("b", 1))
    for number in range(2, 100_002):
        w.submit(number, 0, 0, (("b", 1),), 0)
        if number % 10 == 0:
            w.pump()
    w.pump()
    assert w.resources.statistics()["parked"] == 100_000 and w.resources.statistics()["claims"] == 1
    looks[0] = 0
    assert w.resources.next_timeout() > w.now
    for number in range(200_000, 200_100):
        w.submit(number, 0, 0, (("a", 1),), 0)
        w.pump()
        w.end(w.live[number])
        w.pump()
    assert looks[0] == 0


def test_thousands_of_different_amounts_cost_a_search(looks):
    """Tokens of an interface that also allows a few calls at once; slots, calls and tokens run out in turn."""
    w = world(bucket("tokens", 1e4, 50_000), semaphore("calls", 4), semaphore("wide", 10**6), slots=50)
    submit(w, 1, ("tokens", 50_000))
    for number in range(2, 10_002):
        w.submit(number, 0, 0, (("calls", 1), ("tokens", 5 + number * 7_919 % 40_000), ("wide", 1)), 0)
        w.pump()
    assert w.resources.statistics()["claims"] > 9_000
    assert len(w.resources._parking._racks) == len(w.resources._parking._shelves) == 1
    group = w.pool(0).groups[0]
    worst = 0
    for turn in range(600):
        group.capacity = (50, 0, 1)[turn // 10 % 3]
        w.wake(w.pool(0))
        w.now += (turn % 7) * SECOND
        if w.running:
            w.end(w.running[0])
        looks[0] = 0
        before = len(w.log)
        w.pump()
        worst = max(worst, looks[0] / (1 + len(w.log) - before))
    assert len(started(w)) > 300
    assert worst < 40


def test_customers_with_a_bucket_each_cost_nothing_while_they_share_a_semaphore_that_is_used_up(looks):
    customers = [bucket(f"customer {number}", 1.0, 3) for number in range(1_000)]
    w = world(*customers, semaphore("all", 2), slots=20)
    for number in range(3_000):
        w.submit(number, 0, 0, (("all", 1), (f"customer {number % 1_000}", 1)), 0)
        w.pump()
    assert len(w.running) == 2
    for _ in range(500):
        looks[0] = 0
        w.end(w.running[0])
        w.pump()
        assert len(w.running) == 2 and looks[0] < 40


def test_tasks_that_left_leave_little_behind():
    w = world(semaphore("a", 1))
    submit(w, 0, ("a", 1))
    for number in range(1, 2_001):
        w.submit(number, 0, 0, (("a", 1),), 0)
        w.pump()
    claim = w.live[1].plan.claim
    for number in range(2, 2_000):
        w.cancel(w.live[number])
    assert claim.parked == 2 and len(claim._heap) < 100
    w.cancel(w.live[1])
    assert claim.place == w.live[2_000].plan.place
    w.cancel(w.live[2_000])
    assert not w.resources.any
    parking = w.resources._parking
    assert not (parking._claims or parking._shelves or parking._racks or parking.open)
