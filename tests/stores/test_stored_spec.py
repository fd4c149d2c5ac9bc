"""The stored form of a specification: everything comes back, small by default, open to what later versions add."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq._stores.stored_spec import (
    UndecodableSpec,
    decode_spec,
    decode_template,
    encode_spec,
    encode_template,
)
from cronoq_sansio.clock import MAX_CLIENT_DURATION
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.limits import MAX_MULTIPLIER
from cronoq_sansio.spec import (
    DEFAULT_TOLERANCE,
    Condition,
    Dependency,
    MissPolicy,
    RetryOverride,
    Scheduling,
    TaskSpec,
)

durations = st.integers(0, MAX_CLIENT_DURATION)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
retries = st.builds(
    RetryOverride,
    st.none() | st.integers(1, 2**32 - 1),
    st.none() | durations,
    st.none() | st.floats(1, MAX_MULTIPLIER),
    st.none() | durations,
    st.none() | st.booleans(),
)
tags = st.lists(st.tuples(texts, texts), max_size=4).map(tuple)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
schedulings = st.builds(
    Scheduling,
    deadline=st.none() | st.integers(0, 1 << 62),
    deadline_in=st.none(),
    duration_hint=st.none() | durations,
    dependencies=st.just(()),
    resources=st.lists(st.tuples(texts, st.integers(1, 2**32 - 1)), max_size=3).map(tuple),
    labels=pairs,
    tenant=texts,
    start=st.none() | st.integers(0, 1 << 62),
    start_in=st.none(),
    tolerance=st.just(DEFAULT_TOLERANCE) | durations,
    on_miss=st.sampled_from(MissPolicy),
)
edges = st.lists(
    st.builds(Edge, st.integers(1, 1 << 62), st.just(""), st.sampled_from(Condition))
    | st.builds(Edge, st.just(0), st.text(min_size=1, max_size=5), st.sampled_from(Condition)),
    max_size=4,
).map(tuple)
specs = st.builds(
    TaskSpec,
    payload=st.binary(max_size=200),
    content_type=texts,
    kind=texts,
    pool=texts,
    priority=st.integers(0, 3),
    key=texts,
    timeout=st.none() | durations,
    retry=st.none() | retries,
    tags=tags,
    size=st.integers(0, 1 << 40),
    scheduling=st.none() | schedulings,
)


def with_dependencies(spec, edges):
    """What must come back: no dependencies but those that the edges name, and nothing instead of nothing at all."""
    named = tuple(Dependency(edge.parent or edge.key, edge.condition) for edge in edges)
    scheduling = replace(spec.scheduling or Scheduling(), dependencies=named)
    return replace(spec, scheduling=None if scheduling == Scheduling() else scheduling)


@given(specs, edges)
def test_everything_comes_back(spec, edges):
    tenant = spec.scheduling.tenant if spec.scheduling else ""
    stored = encode_spec(spec, len(edges))
    decoded = decode_spec(stored, spec.pool, spec.kind, spec.key, spec.priority, tenant, edges)
    assert decoded == with_dependencies(spec, edges)
    assert msgspec.msgpack.decode(stored)["v"] == lowest_format(decoded.scheduling)


def lowest_format(asked):
    """The one that says everything."""
    if asked is None or asked == Scheduling(tenant=asked.tenant):
        return 1
    timed = replace(Scheduling(), start=asked.start, tolerance=asked.tolerance, on_miss=asked.on_miss)
    return 3 if asked.deadline_in is not None or timed != Scheduling() else 2


templates = st.builds(
    replace,
    specs,
    scheduling=st.none()
    | st.builds(replace, schedulings, deadline=st.none(), start=st.none(), deadline_in=st.none() | durations),
)


@given(templates)
def test_everything_of_a_template_comes_back(template):
    tenant = template.scheduling.tenant if template.scheduling else ""
    stored = encode_template(template)
    decoded = decode_template(stored, template.pool, template.kind, template.key, template.priority, tenant)
    assert decoded == with_dependencies(template, ())
    assert msgspec.msgpack.decode(stored)["v"] == lowest_format(decoded.scheduling)


@pytest.mark.parametrize(
    "asked", [Scheduling(deadline=5), Scheduling(start=5), Scheduling(dependencies=(Dependency("k", 1),))]
)
def test_a_template_has_neither_times_of_its_own_nor_dependencies(asked):
    task = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0, asked)
    with pytest.raises(AssertionError):
        encode_template(task)
    with pytest.raises(UndecodableSpec, match="a template has dependencies, or times of its own"):
        decode_template(encode_spec(task, len(asked.dependencies)), "p", "", "", 2, "")


def test_the_columns_are_not_stored_twice_and_defaults_not_at_all():
    spec = TaskSpec(b"", "", "a-long-kind", "a-long-pool", 2, "a-long-key", None, None, (), 0)
    assert msgspec.msgpack.decode(encode_spec(spec)) == {"v": 1}


def test_the_format_does_not_change_by_accident():
    retry = RetryOverride(5, 1, 2.0, 3, False)
    spec = TaskSpec(b"p", "c", "k", "pool", 2, "key", 7, retry, (("a", "b"),), 9)
    assert msgspec.msgpack.decode(encode_spec(spec)) == {
        "v": 1,
        "p": b"p",
        "c": "c",
        "t": 7,
        "r": {"a": 5, "i": 1, "m": 2.0, "b": 3, "j": False},
        "g": [["a", "b"]],
        "s": 9,
    }


def test_the_second_format_does_not_change_by_accident():
    asked = Scheduling(7, None, 8, (Dependency("k", 1),), (("gpu", 2),), (("zone", "a"),), "acme")
    spec = TaskSpec(b"", "", "k", "pool", 2, "key", None, None, (), 0, asked)
    assert msgspec.msgpack.decode(encode_spec(spec, 3)) == {
        "v": 2,
        "d": 7,
        "h": 8,
        "u": [["gpu", 2]],
        "l": [["zone", "a"]],
        "e": 3,
    }


def test_the_third_format_does_not_change_by_accident():
    asked = Scheduling(start=7, tolerance=8, on_miss=MissPolicy.FAIL)
    spec = TaskSpec(b"", "", "k", "pool", 2, "key", None, None, (), 0, asked)
    assert msgspec.msgpack.decode(encode_spec(spec)) == {"v": 3, "b": 7, "o": 8, "m": 3}
    template = replace(spec, scheduling=Scheduling(deadline_in=9))
    assert msgspec.msgpack.decode(encode_template(template)) == {"v": 3, "f": 9}


def test_what_a_row_leaves_out_means_what_it_meant_when_it_was_written():
    """Another default for submissions changes no stored task."""
    spec = TaskSpec(b"", "", "k", "pool", 2, "key", None, None, (), 0, Scheduling(start=7))
    stored = encode_spec(spec)
    assert msgspec.msgpack.decode(stored) == {"v": 3, "b": 7}
    asked = decode_spec(stored, "pool", "k", "key", 2).scheduling
    assert (asked.tolerance, asked.on_miss) == (1_000_000_000, MissPolicy.RUN_LATE)


@pytest.mark.parametrize("asked", [Scheduling(start=0), Scheduling(tolerance=0), Scheduling(on_miss=MissPolicy.SKIP)])
def test_a_start_makes_a_task_unreadable_for_readers_of_the_second_format(asked):
    spec = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0, asked)
    assert msgspec.msgpack.decode(encode_spec(spec))["v"] == 3
    assert decode_spec(encode_spec(spec), "p", "", "", 2) == spec


@pytest.mark.parametrize(
    "asked",
    [
        Scheduling(deadline=0),
        Scheduling(duration_hint=0),
        Scheduling(resources=(("r", 1),)),
        Scheduling(labels=(("l", ""),)),
    ],
)
def test_whatever_a_task_asks_for_makes_it_unreadable_for_readers_of_the_first_format(asked):
    spec = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0, asked)
    assert msgspec.msgpack.decode(encode_spec(spec))["v"] == 2
    assert decode_spec(encode_spec(spec), "p", "", "", 2) == spec


@pytest.mark.parametrize("asked", [Scheduling(deadline_in=5), Scheduling(start_in=5)])
def test_the_times_of_a_task_are_stored_only_when_they_are_absolute(asked):
    spec = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0, asked)
    with pytest.raises(AssertionError):
        encode_spec(spec)


@pytest.mark.parametrize(("stored", "there"), [(0, 1), (1, 0), (3, 2)])
def test_edges_that_are_lost_are_noticed(stored, there):
    spec = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0)
    edges = tuple(Edge(n + 1, "", 1) for n in range(there))
    with pytest.raises(UndecodableSpec, match=f"it had {stored} dependencies, and {there} are there"):
        decode_spec(encode_spec(spec, stored), "p", "", "", 2, "", edges)


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"", "cannot be decoded"),
        (b"\xc1", "cannot be decoded"),
        (b"\x80", "missing required field `v`"),
        (b"\x81\xa1v\x01\x00", "cannot be decoded"),
        (b"\x81\xa1v\x04", "has format 4; this version reads formats 1 to 3"),
        (b"\x81\xa1v\x00", "has format 0; this version reads formats 1 to 3"),
        (b"\x82\xa1v\x03\xa1m\x00", "cannot be decoded"),
        (b"\x82\xa1v\x03\xa1m\x04", "cannot be decoded"),
        (b"\x82\xa1v\x03\xa1o\xff", "cannot be decoded"),
        (b"\x82\xa1v\x03\xa1f\x01", "the deadline of a task counts from its start"),
        (b"\x82\xa1v\x02\xa1u\x91\x91\x01", "cannot be decoded"),
        (b"\x82\xa1v\x02\xa1e\x01", "had 1 dependencies"),
        (b"\x82\xa1v\x01\xa1p\x05", "cannot be decoded"),
        (b"\x82\xa1v\x01\xa1c\xa1\xff", "cannot be decoded"),
    ],
)
def test_what_cannot_be_read_says_why(stored, reason):
    with pytest.raises(UndecodableSpec, match=reason):
        decode_spec(stored, "p", "k", "", 2)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(stored):
    try:
        decode_spec(stored, "p", "k", "", 2)
    except UndecodableSpec:
        pass
    try:
        decode_template(stored, "p", "k", "", 2, "")
    except UndecodableSpec:
        pass
