"""Settings of what the scheduler works with: resources, bounds by class, policies, tenants, estimates, awaited keys."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import PoolSettings, ResourceSettings, ScalerSettings, Settings
from cronoq_sansio.settings_check import check_settings
from cronoq_sansio.settings_text import plain

SEMAPHORE = {"name": "gpu", "kind": "semaphore", "permits": 2}
BUCKET = {"name": "mail", "kind": "token_bucket", "rate": 0.5, "burst": 3}


def accepted(document):
    settings = check_settings(document, payload_budget=1 << 32)
    assert isinstance(settings, Settings), [str(problem) for problem in settings]
    return settings


def refused(document):
    problems = check_settings(document, payload_budget=1 << 32)
    assert isinstance(problems, tuple)
    return [str(problem) for problem in problems]


def pool(**keys):
    """The settings of one pool with these keys."""
    (found,) = accepted({"pools": [{"name": "p", **keys}]}).pools
    return found


def test_without_any_of_it_nothing_is_shared_shed_or_awaited():
    settings = accepted({})
    assert settings.resources == () and settings.pools == (PoolSettings(),)
    assert (settings.limits.max_deps, settings.limits.max_resources) == (256, 16)
    (found,) = settings.pools
    assert (found.overflow, found.max_pending_by_class) == ("reject", (None,) * 4)
    assert (found.default_duration, found.await_unknown_dependencies) == (SECOND, None)
    assert (found.fair_share, found.tenant_weights) == (False, ())


def test_resources_of_both_kinds():
    settings = accepted({"resources": [SEMAPHORE, BUCKET]})
    assert settings.resources == (
        ResourceSettings("gpu", "semaphore", permits=2),
        ResourceSettings("mail", "token_bucket", rate=0.5, burst=3),
    )
    assert [resource.capacity for resource in settings.resources] == [2, 3]
    assert isinstance(accepted({"resources": [{**BUCKET, "rate": 2}]}).resources[0].rate, float)
    assert accepted({"resources": []}).resources == ()


@pytest.mark.parametrize("word", ["reject", "wait", "shed_lowest", "shed_oldest"])
def test_each_policy_arrives(word):
    assert pool(overflow=word).overflow == word


def test_the_other_keys_of_a_pool():
    assert pool(max_pending_by_class={"low": 0, "critical": 9}).max_pending_by_class == (9, None, None, 0)
    assert pool(max_pending_by_class={}).max_pending_by_class == (None,) * 4
    assert pool(default_duration_s=0.5).default_duration == SECOND // 2
    assert pool(default_duration_s=0).default_duration == 0
    assert pool(await_unknown_dependencies_s=0).await_unknown_dependencies == 0, "0 is on: for no time"
    assert pool(fair_share=True).fair_share
    assert pool(tenant_weights={"b c": 2, "acme": 0.5, "": 10**9}).tenant_weights == (
        ("", 1e9),
        ("acme", 0.5),
        ("b c", 2.0),
    )


def test_the_keys_of_fixed_starts_and_autoscaling():
    assert (pool(reservable_fraction=1).reservable_fraction, pool(min=3).min) == (1.0, 3)
    assert pool(min=10).min == pool().max == 10, "as many as there may be"
    assert not pool(autoscale=False).autoscale
    assert pool(target_utilization=0.9).target_utilization == 0.9
    assert pool(drain_time_s=0.001).drain_time == SECOND // 1_000
    assert (pool(cooldown_s=0).cooldown, pool(cost_per_worker_second=0).cost_per_worker_second) == (0, 0.0)
    assert isinstance(pool(cost_per_worker_second=2).cost_per_worker_second, float)
    assert pool(slo_s={"low": 60, "high": 0.5}).slo == (None, SECOND // 2, None, 60 * SECOND)
    assert pool(slo_s={}).slo == (None,) * 4
    assert pool(scaler={"kind": "external"}).scaler == pool(scaler={}).scaler == ScalerSettings("external")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"resources": {"name": "r"}},
            "resources: found a table; allowed is an array of tables, each written [[resources]]",
        ),
        (
            {"resources": [{"name": "r"}]},
            'resources[0].kind: missing; required is "semaphore" or "token_bucket"',
        ),
        (
            {"resources": [SEMAPHORE, BUCKET, {**BUCKET, "name": "gpu"}]},
            'resources[2].name: "gpu" is the name of resources[0] already; names are unique',
        ),
        (
            {"resources": [{"name": "r", "kind": "semaphore"}]},
            'resources[0].permits: missing; kind "semaphore" requires an integer from 1 to 1000000000000',
        ),
        (
            {"resources": [{**SEMAPHORE, "rate": 1}]},
            'resources[0].rate: has no meaning with kind "semaphore"; leave it out, or use kind "token_bucket"',
        ),
        (
            {"resources": [{**BUCKET, "permits": 1}]},
            'resources[0].permits: has no meaning with kind "token_bucket"; leave it out, or use kind "semaphore"',
        ),
        (
            {"resources": [{**BUCKET, "rate": 0}]},
            "resources[0].rate: found 0; allowed is a number from 0.000000001 to 1000000000000",
        ),
        (
            {"resources": [{**SEMAPHORE, "name": "a b"}]},
            'resources[0].name: found "a b"; allowed is 1 to 64 characters of A-Z a-z 0-9 _ . : -',
        ),
        (
            {"resources": [{**SEMAPHORE, "kind": "mutex"}]},
            'resources[0].kind: found "mutex"; allowed is "semaphore" or "token_bucket"',
        ),
        (
            {"pools": [{"name": "a", "overflow": "shed"}]},
            'pools[0].overflow: found "shed"; allowed is "reject" or "wait" or "shed_lowest" or "shed_oldest"',
        ),
        (
            {"pools": [{"name": "a", "max": 4, "min": 5}]},
            "pools[0].min: found 5; allowed is at most the pool's max, here 4",
        ),
        (
            {"pools": [{"name": "a", "min": 11}]},
            "pools[0].min: found 11; allowed is at most the pool's max, here 10",
        ),
        (
            {"pools": [{"name": "a", "target_utilization": 0}]},
            "pools[0].target_utilization: found 0; allowed is a number from 0.000000001 to 1",
        ),
        (
            {"pools": [{"name": "a", "reservable_fraction": 1.01}]},
            "pools[0].reservable_fraction: found 1.01; allowed is a number from 0.000000001 to 1",
        ),
        (
            {"pools": [{"name": "a", "slo_s": {"low": 0}}]},
            "pools[0].slo_s.low: found 0; allowed is a number of seconds from 0.001 to 31536000",
        ),
        (
            {"pools": [{"name": "a", "scaler": {"kind": "webhook"}}]},
            'pools[0].scaler.kind: "webhook" is not built in this version; allowed is "external"',
        ),
        (
            {"pools": [{"name": "a", "max_pending_by_class": {"hi": 1}}]},
            "pools[0].max_pending_by_class.hi: unknown key; did you mean `high`?",
        ),
        (
            {"pools": [{"name": "a", "max_pending_by_class": {"low": -1}}]},
            "pools[0].max_pending_by_class.low: found -1; allowed is an integer from 0 to 1000000000000",
        ),
        (
            {"pools": [{"name": "a", "tenant_weights": {"acme": 0}}]},
            "pools[0].tenant_weights.acme: found 0; allowed is a number from 0.000000001 to 1000000000",
        ),
        (
            {"pools": [{"name": "a", "tenant_weights": {"a b": math.inf, "c": 2}}]},
            'pools[0].tenant_weights."a b": found inf; allowed is a number from 0.000000001 to 1000000000',
        ),
        (
            {"pools": [{"name": "a", "tenant_weights": {"ü" * 129: 1}}]},
            f'pools[0].tenant_weights."{"ü" * 58}…: the name has 258 bytes;'
            " allowed are names of at most 256 bytes without NUL characters",
        ),
        (
            {"limits": {"max_key_len": 4}, "pools": [{"name": "a", "tenant_weights": {"acme": 1, "other": 1}}]},
            "pools[0].tenant_weights.other: the name has 5 bytes;"
            " allowed are names of at most 4 bytes without NUL characters",
        ),
        (
            {"pools": [{"name": "a", "tenant_weights": {"a\0": 1}}]},
            r'pools[0].tenant_weights."a\u0000": the name contains a NUL character;'
            " allowed are names of at most 256 bytes without NUL characters",
        ),
    ],
)
def test_problems_read_well(document, line):
    assert refused(document) == [line]


def test_every_wrong_weight_is_told():
    assert refused({"pools": [{"name": "a", "tenant_weights": {"b": "x", "a": True, "c": {}, "d": 1}}]}) == [
        f"pools[0].tenant_weights.{name}: found {found}; allowed is a number from 0.000000001 to 1000000000"
        for name, found in (("b", '"x"'), ("a", "true"), ("c", "a table"))
    ]


def test_a_limit_of_zero_turns_a_capability_off():
    limits = accepted({"limits": {"max_deps": 0, "max_resources": 0}}).limits
    assert (limits.max_deps, limits.max_resources) == (0, 0)


@given(st.dictionaries(st.text(max_size=9), st.floats() | st.integers() | st.text(max_size=3), max_size=5))
def test_weights_are_sorted_finite_and_positive_or_refused(weights):
    found = check_settings({"pools": [{"name": "p", "tenant_weights": weights}]}, payload_budget=1 << 32)
    if isinstance(found, Settings):
        pairs = found.pools[0].tenant_weights
        assert pairs == tuple(sorted(weights.items()))
        assert all(type(weight) is float and 0 < weight < math.inf for _, weight in pairs)
    else:
        assert all(problem.path.startswith("pools[0].tenant_weights.") for problem in found)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1e-9, "0.000000001"), (0.1, "0.1"), (1.0, "1"), (10**12, "1000000000000")]
)
def test_numbers_are_shown_without_an_exponent(number, text):
    assert plain(number) == text
