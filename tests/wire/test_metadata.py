"""Call metadata: timeouts, content types, status messages, binary values."""

import base64
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.errors import MAPPINGS, Code, Rejection
from cronoq_sansio.limits import MAX_STATUS_MESSAGE
from cronoq_sansio.wire import status
from cronoq_sansio.wire.metadata import (
    application_metadata,
    decode_binary,
    encode_entry,
    is_grpc,
    parse_timeout,
    percent_encode,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"1n", 1),
        (b"20u", 20_000),
        (b"20m", 20_000_000),
        (b"3S", 3 * SECOND),
        (b"2M", 120 * SECOND),
        (b"1H", 3_600 * SECOND),
        (b"0S", 0),
        (b"00000001S", SECOND),
        (b"99999999n", 99_999_999),
        (b"99999999H", MAX_CLIENT_DURATION),
        (b"123456789S", None),
        (b"S", None),
        (b"", None),
        (b"1", None),
        (b"1s", None),
        (b"1.5S", None),
        (b"-1S", None),
        (b"+1S", None),
        (b" 1S", None),
        (b"1S ", None),
        (b"1S\n", None),
        ("١S".encode(), None),
    ],
)
def test_timeouts(value: bytes, expected: int | None) -> None:
    assert parse_timeout(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"Application/GRPC", True),
        (b"application/grpc+proto; a=b", True),
        (b"application/grpc+json", False),
        (b"application/grpc-web", False),
        (b"application/grpcfoo", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_content_types(value: bytes, expected: bool) -> None:
    assert is_grpc(value) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ~text", b"plain ~text"),
        ("100%", b"100%25"),
        ("ü\n", b"%C3%BC%0A"),
        ("\U0001f600", b"%F0%9F%98%80"),
        ("\x7f", b"%7F"),
        ("", b""),
        ("\ud800", b"?"),
    ],
)
def test_percent_encoding(text: str, expected: bytes) -> None:
    assert percent_encode(text, 100) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 60))
def test_percent_encoding_is_bounded_and_comes_back(text: str, limit: int) -> None:
    encoded = percent_encode(text, limit)
    assert len(encoded) <= limit
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    decoded = unquote_to_bytes(encoded).decode()  # never cut within a character
    assert text.startswith(decoded)
    assert decoded == text or len(percent_encode(text, 10**6)) > limit


@given(st.binary())
def test_binary_values_come_back_with_and_without_padding(value: bytes) -> None:
    encoded = base64.b64encode(value)
    assert decode_binary(encoded) == decode_binary(encoded.rstrip(b"=")) == value


def test_binary_values_that_are_wrong() -> None:
    assert decode_binary(b"!!") is None
    assert decode_binary(b"abcde") is None
    assert decode_binary(b"YQ==, Yg") == b"a,b"


def test_application_metadata() -> None:
    headers = [(b":path", b"/x"), (b"authorization", b"Bearer t"), (b"trace-bin", b"YWI"), (b"a", b"1"), (b"a", b"2")]
    assert application_metadata(headers) == [
        (b"authorization", b"Bearer t"),
        (b"trace-bin", b"ab"),
        (b"a", b"1"),
        (b"a", b"2"),
    ]
    assert application_metadata([(b"x-bin", b"%")]) is None


def test_entries_of_ours() -> None:
    assert encode_entry("cronoq-task-id", "12") == (b"cronoq-task-id", b"12")
    assert encode_entry("cronoq-shard", "ü") == (b"cronoq-shard", b"%C3%BC")
    assert encode_entry("x-bin", "ab") == (b"x-bin", b"YWI")


@pytest.mark.parametrize("code", list(Code))
def test_every_code_becomes_trailers(code: Code) -> None:
    fields = dict(status.trailers(Rejection(code, "why: 100%", (("cronoq-task-id", "7"),))))
    assert fields == {
        b"grpc-status": str(int(MAPPINGS[code].grpc)).encode(),
        b"grpc-message": b"why: 100%25",
        b"cronoq-task-id": b"7",
    }


def test_status_messages_are_cut() -> None:
    fields = dict(status.trailers(Rejection(Code.INVALID, "ü" * 5_000)))
    assert len(fields[b"grpc-message"]) <= MAX_STATUS_MESSAGE
