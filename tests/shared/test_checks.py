"""Checks of single values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.checks import check_key, check_key_prefix, check_pairs, check_text, clean_name, cut_text, duration
from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.errors import Rejection


@pytest.mark.parametrize(
    ("value", "fine"),
    [("", True), ("abcd", True), ("abcde", False), ("üü", True), ("üüa", False), ("a\0b", False), ("\0", False)],
)
def test_text_counts_bytes_and_refuses_nul(value: str, fine: bool) -> None:
    fault = check_text("kind", value, 4)
    assert (fault is None) is fine
    assert fault is None or fault.message.startswith("kind: ")


@pytest.mark.parametrize(
    ("key", "fine"),
    [
        ("plain", True),
        ("Z", True),
        ("a@2026-01-02T03:04:05", True),
        ("a@2026-01-02T03:04:05Zx", True),
        ("a@2026-1-02T03:04:05Z", True),
        ("a@2026-01-02T03:04:05Z", False),
        ("@2026-01-02T03:04:05Z", False),
        ("x\ny@9999-99-99T99:99:99Z", False),
        ("a@2026-01-02T03:04:05Z\n", True),
    ],
)
def test_keys_of_recurring_tasks_are_reserved(key: str, fine: bool) -> None:
    assert (check_key("key", key, 100) is None) is fine


@pytest.mark.parametrize(
    ("prefix", "fine"),
    [("", True), ("abcd", True), ("abcde", False), ("\u00fc\u00fc", True), ("\u00fc\u00fca", False), ("a\0", False)],
)
def test_a_prefix_leaves_room_for_the_start_of_its_occurrence(prefix: str, fine: bool) -> None:
    fault = check_key_prefix("key", prefix, 25)
    assert (fault is None) is fine
    assert fault is not None or check_text("key", f"{prefix}@2027-03-14T07:00:00Z", 25) is None


def test_without_room_for_any_prefix_there_may_be_none() -> None:
    assert check_key_prefix("key", "", 5) is None
    fault = check_key_prefix("key", "a", 5)
    assert fault is not None and "at most 0 are allowed" in fault.message
    reserved = check_key_prefix("key", "a@2026-01-02T03:04:05Z", 100)
    assert reserved is not None and "reserved" in reserved.message


@pytest.mark.parametrize(
    ("pairs", "fine"),
    [
        ((), True),
        ((("a", "b"), ("c", "d")), True),
        ((("a", "b"), ("c", "d"), ("e", "f")), False),
        ((("abcde", ""),), False),
        ((("a", "abcde"),), False),
        ((("a", "\0"),), False),
    ],
)
def test_pairs(pairs: tuple[tuple[str, str], ...], fine: bool) -> None:
    fault = check_pairs("tags", pairs, len(pairs), 2, 4)
    assert (fault is None) is fine
    assert fault is None or fault.message.startswith("tags")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, 0),
        (-0.0, 0),
        (1.5, 3 * SECOND // 2),
        (1e-9, 1),
        (3_153_600_000.0, MAX_CLIENT_DURATION),
        (math.nextafter(3_153_600_000.0, math.inf), None),
        (-1e-9, None),
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
    ],
)
def test_durations(value: float, expected: int | None) -> None:
    found = duration("timeout_s", value)
    if expected is None:
        assert isinstance(found, Rejection) and found.message.startswith("timeout_s: ")
    else:
        assert found == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 40))
def test_worker_messages_are_cut_on_a_character(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    assert len(cut.encode()) <= limit and "\0" not in cut
    clean = text.replace("\0", "\ufffd")
    assert clean.startswith(cut)
    assert cut == clean or len(clean[: len(cut) + 1].encode()) > limit


@pytest.mark.parametrize(
    ("name", "expected"),
    [("abc", "abc"), ("a\x00\x1f\x7f\x9fb", "ab"), ("ü€", "ü€"), ("x" * 70, "x" * 64), ("\n" * 70 + "y", "y")],
)
def test_worker_names(name: str, expected: str) -> None:
    assert clean_name(name, 64) == expected
