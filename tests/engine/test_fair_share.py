"""Shares of tenants: who runs when everybody has work, and what is remembered of those who have none."""

from fractions import Fraction
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.fair_share import SCALE, Shares
from cronoq_sansio.limits import MAX_TENANTS
from tests.engine.harness import Rig, pool, spec


class Queue:
    """Tasks of one class in order of tag, then id."""

    def __init__(self, weights=()):
        self.shares = Shares(dict(weights))
        self.waiting = []
        self.number = 0

    def submit(self, tenant, count=1):
        for _ in range(count):
            self.number += 1
            heappush(self.waiting, (self.shares.tag(tenant), self.number, tenant))

    def run(self, count=1):
        ran = []
        for _ in range(min(count, len(self.waiting))):
            tag, _, tenant = heappop(self.waiting)
            self.shares.dispatched(tag)
            ran.append(tenant)
        return "".join(ran)


def test_equal_tenants_take_turns():
    queue = Queue()
    queue.submit("a", 4)
    queue.submit("b", 2)
    queue.submit("c")
    assert queue.run(9) == "abcabaa"


def test_weights_are_shares():
    queue = Queue({"a": 3, "b": 1})
    queue.submit("b", 100)
    queue.submit("a", 100)
    ran = queue.run(80)
    assert ran.count("a") == 60 and ran.count("b") == 20


def test_who_comes_later_waits_for_one_task_of_each_and_not_for_all():
    queue = Queue()
    queue.submit("a", 1_000)
    assert queue.run(10) == "a" * 10
    queue.submit("b", 3)
    assert queue.run(6) == "bababa"


def test_idle_tenants_save_nothing_up():
    queue = Queue()
    queue.submit("b")
    queue.submit("a", 1_000)
    queue.run(501)
    queue.submit("b", 100)
    ran = queue.run(100)
    assert abs(ran.count("a") - ran.count("b")) <= 2


def test_idle_tenants_save_nothing_up_in_a_pool_either():
    rig = Rig(pool(fair_share=True))
    rig.slots(1)
    busy = rig.submit(*(spec(tenant="a") for _ in range(9)))
    for task in busy[:5]:
        rig.complete(task)
    idle = rig.submit(*(spec(tenant="b") for _ in range(3)))
    for _ in range(6):
        rig.complete(rig.order()[-1])
    assert rig.order()[6:12] == [task for pair in zip(idle, busy[6:], strict=True) for task in pair]


def test_a_retry_keeps_its_tag():
    rig = Rig(pool(fair_share=True))
    rig.slots(1)
    first, second, third, other = rig.submit(*(spec(tenant=tenant) for tenant in "aaab"))
    rig.fail(first)
    rig.now += SECOND
    rig.handle(ev.TimerFired())
    rig.complete(other)
    assert rig.order() == [first, other, first]
    rig.complete(first)
    assert rig.order()[3:] == [second] and rig.status(third) == "READY"


@pytest.mark.parametrize(
    ("weight", "step"), [(1.0, SCALE), (3.0, 1_431_655_765), (0.5, 2 * SCALE), (1e300, 1), (5e-324, SCALE << 1074)]
)
def test_steps(weight, step):
    shares = Shares({"a": weight})
    assert [shares.tag("a"), shares.tag("a")] == [0, step]
    assert [shares.tag("b"), shares.tag("b")] == [0, SCALE]


def test_tags_and_virtual_time_never_go_back():
    shares = Shares({})
    shares.dispatched(5 * SCALE)
    shares.dispatched(2 * SCALE)
    assert shares.virtual == 5 * SCALE and shares.tag("a") == 5 * SCALE and shares.tag("a") == 6 * SCALE


WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.3}
TURNS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4), st.integers(0, 4)), max_size=150)


@given(TURNS)
def test_shares_of_tenants_that_have_work_differ_by_less_than_a_task_of_each(turns):
    """While both always have work: |tasks of a / weight of a − tasks of b / weight of b| ≤ 1/a + 1/b."""
    queue = Queue(WEIGHTS)
    served, waiting = dict.fromkeys("abcd", Fraction(0)), dict.fromkeys("abcd", 0)
    since = {}  # pair of tenants that both have work -> what each had got when that began
    for tenant, submitted, runs in turns:
        queue.submit(tenant, submitted)
        waiting[tenant] += submitted
        for _ in range(runs):
            for one in "abcd":
                for other in "abcd":
                    if waiting[one] and waiting[other]:
                        since.setdefault((one, other), []).append((served[one], served[other]))
                    else:
                        since.pop((one, other), None)
            ran = queue.run()
            if not ran:
                break
            waiting[ran] -= 1
            served[ran] += 1 / Fraction(WEIGHTS.get(ran, 1.0))
            for (one, other), begins in since.items():
                bound = 1 / Fraction(WEIGHTS.get(one, 1.0)) + 1 / Fraction(WEIGHTS.get(other, 1.0))
                for had, other_had in begins:
                    assert abs((served[one] - had) - (served[other] - other_had)) <= bound + Fraction(1, 10**6)


@given(TURNS)
def test_what_is_forgotten_makes_no_difference(turns):
    forgetful, mindful = Queue(WEIGHTS), Queue(WEIGHTS)
    for tenant, submitted, runs in turns:
        forgetful.shares._forget()
        for queue in (forgetful, mindful):
            queue.submit(tenant, submitted)
        assert forgetful.waiting == mindful.waiting
        assert forgetful.run(runs) == mindful.run(runs)


def test_tenants_that_come_once_are_forgotten():
    queue = Queue()
    queue.submit("always", 20_000)
    for number in range(10_000):
        queue.submit(f"tenant {number}")
        queue.run(2)
    assert queue.shares.tenants() < 200


def test_tenants_that_lie_ahead_are_bounded_too():
    """Nobody waits, so virtual time stands still, and each has had one task."""
    shares = Shares({})
    for number in range(3 * MAX_TENANTS):
        shares.dispatched(shares.tag(f"tenant {number}"))
    assert shares.tenants() <= MAX_TENANTS
    for _ in range(9):
        last = shares.tag("busy")
    for number in range(3 * MAX_TENANTS):
        shares.dispatched(shares.tag(f"tenant {number}"))
    assert shares.tag("busy") == last + SCALE, "who is far ahead is remembered"
