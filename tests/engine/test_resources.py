"""Resources against a naive list, and what they cost when very many tasks wait."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.settings import ResourceSettings
from tests.engine.naive_resources import NaiveResources, World

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


@given(OPERATIONS)
@settings(max_examples=300)
def test_against_a_naive_list(operations):
    real, naive = World(Resources, STOCKS), World(NaiveResources, STOCKS)
    real.pool(0).groups[0].capacity = naive.pool(0).groups[0].capacity = 2
    for number, operation in enumerate(operations):
        due = real.resources.next_timeout()
        for world in (real, naive):
            apply(world, operation, number, due)
            world.pump()
        assert real.log == naive.log
        compare(real, naive)


def compare(real, naive):
    real.resources.check_invariants(real)
    assert real.resources.statistics()["called"] == len(naive.resources.called) == 0
    parked = {task.id: task.plan.place for task in real.live.values() if task.plan.claim is not None}
    assert parked == {task.id: task.plan.place for task in naive.resources.parked}
    assert real.resources.any == bool(parked)
    for name, stock in naive.resources.stocks.items():
        assert real.resources._stocks[name].spare(real.now) == stock.spare()
    due, chance = real.resources.next_timeout(), naive.resources.next_chance()
    assert due is None or due > real.now
    if chance is not None:
        assert due is not None and due <= chance, "a task would start without an event, and no timer is set"
