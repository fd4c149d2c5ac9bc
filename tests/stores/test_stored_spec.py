"""The stored form of a specification: everything comes back, small by default, open to what later versions add."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq._stores.stored_spec import UndecodableSpec, decode_spec, encode_spec
from cronoq_sansio.clock import MAX_CLIENT_DURATION
from cronoq_sansio.limits import MAX_MULTIPLIER
from cronoq_sansio.spec import RetryOverride, TaskSpec

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
)


@given(specs)
def test_everything_comes_back(spec):
    assert decode_spec(encode_spec(spec), spec.pool, spec.kind, spec.key, spec.priority) == spec


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


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"", "cannot be decoded"),
        (b"\xc1", "cannot be decoded"),
        (b"\x80", "missing required field `v`"),
        (b"\x81\xa1v\x01\x00", "cannot be decoded"),
        (b"\x81\xa1v\x02", "has format 2; this version reads format 1"),
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
