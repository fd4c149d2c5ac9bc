"""Metadata as a client writes and reads it: escaped texts, timeouts, names, values."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.wire.metadata import (
    encode_timeout,
    parse_timeout,
    percent_decode,
    percent_encode,
    request_entry,
    response_metadata,
    timeout_step,
)


@given(st.text())
def test_texts_come_back(text: str) -> None:
    readable = text.encode("utf-8", "replace").decode()
    assert percent_decode(percent_encode(text, 1 << 20)) == readable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"plain", "plain"),
        (b"100%", "100%"),
        (b"%zz%4", "%zz%4"),
        (b"%e2%82%ac%E2%82%AC", "€€"),
        (b"%ff", "\N{REPLACEMENT CHARACTER}"),
        (b"\xe2\x82\xac \xff", "€ \N{REPLACEMENT CHARACTER}"),
        (b"%25", "%"),
    ],
)
def test_texts_that_are_not_well_escaped_are_kept_as_far_as_they_can_be_read(value: bytes, text: str) -> None:
    assert percent_decode(value) == text


@given(st.integers(1, MAX_CLIENT_DURATION))
def test_timeouts_are_never_shorter_and_hardly_longer(duration: int) -> None:
    sent = encode_timeout(duration)
    read = parse_timeout(sent)
    assert read is not None and len(sent) <= 9
    assert duration <= read <= duration + max(1, duration // 1_000)


@given(st.integers(-1, MAX_CLIENT_DURATION), st.integers(0, 1_000_000))
@example(10_000, 0)
@example(99_999_999, 1)
def test_a_step_says_for_which_timeouts_the_same_is_sent(duration: int, place: int) -> None:
    above, up_to = timeout_step(duration)
    assert above < duration <= up_to
    within = up_to - place * (up_to - above - 1) // 1_000_000
    assert encode_timeout(within) == encode_timeout(duration) == encode_timeout(above + 1) == encode_timeout(up_to)


def test_a_step_is_as_long_as_it_can_be() -> None:
    for duration in (10_001, 99_995, 30 * SECOND, 29_995 * SECOND):
        above, up_to = timeout_step(duration)
        assert encode_timeout(above) != encode_timeout(duration) != encode_timeout(up_to + 1)


def test_timeouts_at_the_edges() -> None:
    assert encode_timeout(0) == encode_timeout(-5) == b"1n"
    assert encode_timeout(9_999) == b"9999n" and encode_timeout(10_001) == b"10010n"
    assert encode_timeout(99_999_999) == b"100m" and encode_timeout(100_000_001) == b"100100u"
    assert encode_timeout(30 * SECOND) == encode_timeout(30 * SECOND - 9_000_000) == b"30S"
    assert encode_timeout(1_500 * SECOND) == b"25M" and encode_timeout(1_501 * SECOND) == b"1501S"
    assert encode_timeout(10**17 + 1) == b"1666667M", "no finer unit holds it"
    assert encode_timeout(10**30) == b"99999999H"


def test_entries_of_a_request() -> None:
    assert request_entry("x-a.b_c", "v w") == (b"x-a.b_c", b"v w")
    assert request_entry("x-bin", b"\0\xff") == (b"x-bin", b"AP8")
    assert request_entry("x", b"bytes") == (b"x", b"bytes")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("", "v"),
            ("A", "v"),
            ("a b", "v"),
            (":path", "v"),
            ("grpc-status", "1"),
            ("te", "x"),
            ("content-type", "x"),
        ),
        *(("user-agent", "x"), ("a", "ä"), ("a", "a\n"), ("a", " a"), ("a", "a "), ("a-bin", "text"), ("a", b"\xff")),
    ],
)
def test_entries_that_cannot_be_sent(name: str, value: str | bytes) -> None:
    with pytest.raises(ValueError, match="metadata"):
        request_entry(name, value)


def test_what_a_server_sent_beside_grpcs_own_fields() -> None:
    first = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-a", b"1"), (b"x-bin", b"AP8=")]
    last = [(b"grpc-status", b"0"), (b"grpc-message", b"m"), (b"x-a", b"2"), (b"y-bin", b"!!"), (b"z-bin", b"")]
    assert response_metadata(first, last) == (
        ("x-a", "1"),
        ("x-bin", b"\0\xff"),
        ("x-a", "2"),
        ("y-bin", b"!!"),
        ("z-bin", b""),
    )
