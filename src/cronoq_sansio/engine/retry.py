"""When a failed attempt is repeated (engine.md section 6).

Delay before attempt n (n ≥ 2): ``min(initial · multiplier^(n-2), max)``; with jitter uniform in [0, delay]; never less
than what the worker asked for. Any overflow means the maximum: attempt 2,000 is as far away as attempt 80.
"""

from random import Random

from cronoq_sansio.spec import RetryOverride, RetryPolicy


def resolve(override: RetryOverride | None, policy: RetryPolicy) -> RetryPolicy:
    """The policy of a task: what the submission says, and the pool's for the rest."""
    if override is None:
        return policy
    return RetryPolicy(
        policy.max_attempts if override.max_attempts is None else override.max_attempts,
        policy.initial_backoff if override.initial_backoff is None else override.initial_backoff,
        policy.multiplier if override.multiplier is None else override.multiplier,
        policy.max_backoff if override.max_backoff is None else override.max_backoff,
        policy.jitter if override.jitter is None else override.jitter,
    )


def full_delay(policy: RetryPolicy, attempt: int) -> int:
    """Nanoseconds before attempt number `attempt` (≥ 2), without jitter."""
    try:
        delay = policy.initial_backoff * policy.multiplier ** (attempt - 2)
    except OverflowError:
        return policy.max_backoff if policy.initial_backoff else 0
    return int(min(delay, policy.max_backoff))


def delay(policy: RetryPolicy, attempt: int, retry_after: int, random: Random) -> int:
    """Nanoseconds before attempt number `attempt`; `retry_after` is a floor that jitter never lowers."""
    nanoseconds = full_delay(policy, attempt)
    if policy.jitter:
        nanoseconds = random.randint(0, nanoseconds)
    return max(nanoseconds, retry_after)
