"""Backoff: the formula, its cap, jitter, and the floor that a worker may set."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import retry
from cronoq_sansio.engine.events import AttemptFailed
from cronoq_sansio.spec import RetryOverride, RetryPolicy
from tests.engine.harness import STEADY, Rig, attempts, pool, spec

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 10_000),
    initial_backoff=st.integers(0, 3_153_600_000 * SECOND),
    multiplier=st.floats(1, 1000),
    max_backoff=st.integers(0, 3_153_600_000 * SECOND),
    jitter=st.booleans(),
)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (80, 60), (2_000, 60), (2_000_000_000, 60)]
)
def test_the_formula_and_its_cap(attempt, seconds):
    assert retry.delay(STEADY, attempt, 0, Random(0)) == seconds * SECOND


def test_a_multiplier_near_one_grows_for_long():
    policy = RetryPolicy(9_999, SECOND, 1.001, 60 * SECOND, False)
    assert retry.full_delay(policy, 2_002) == int(1.001**2_000 * SECOND)


@given(policies, st.integers(2, 2**32 - 1), st.integers(0, 10**18), st.integers(0))
def test_bounds(policy, attempt, retry_after, seed):
    delay = retry.delay(policy, attempt, retry_after, Random(seed))
    assert retry_after <= delay <= max(retry_after, policy.max_backoff)
    if not policy.jitter:
        assert delay == max(retry_after, retry.full_delay(policy, attempt))


@given(policies, st.integers(2, 300))
def test_delays_never_shrink(policy, attempt):
    assert retry.full_delay(policy, attempt) <= retry.full_delay(policy, attempt + 1)


def test_jitter_spreads_tasks_that_fail_together():
    rig = Rig(pool(retry=RetryPolicy(3, 60 * SECOND, 2.0, 60 * SECOND, True)))
    tasks = rig.submit(*(spec() for _ in range(1_000)))
    rig.slots(1_000)
    rig.handle(*(AttemptFailed(rig.lease(task).id, "boom", False, 0) for task in tasks))
    due = sorted(entry[0] - rig.now for entry in rig.engine.retries.heap)
    assert len(due) == 1_000
    for index in range(10):  # uniform: no tenth of the minute stays empty or gets twice its share
        share = sum(index * 6 * SECOND <= when < (index + 1) * 6 * SECOND for when in due)
        assert 50 < share < 200


def test_retry_after_is_a_floor():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.fail(task, retry_after=10 * SECOND)
    rig.advance(10 * SECOND - 1)
    assert rig.status(task) == "RETRYING"
    rig.advance(1)
    assert rig.status(task) == "RUNNING"


def test_unset_fields_take_the_pools_values():
    override = RetryOverride(None, 5, None, None, True)
    assert retry.resolve(override, STEADY) == RetryPolicy(3, 5, 2.0, 60 * SECOND, True)
    assert retry.resolve(None, STEADY) is STEADY


def test_a_budget_of_zero_is_invalid():
    rejection = Rig().refused(spec(retry=attempts(0)))
    assert rejection.code.value == "invalid" and "max_attempts" in rejection.message


def test_the_same_seed_gives_the_same_backoffs():
    def run(seed):
        rig = Rig(pool(retry=RetryPolicy(3, 60 * SECOND, 2.0, 60 * SECOND, True)), seed=seed)
        (task,) = rig.submit(spec())
        rig.slots(1)
        rig.fail(task)
        return rig.engine.next_timeout()

    assert run(7) == run(7) != run(8)
