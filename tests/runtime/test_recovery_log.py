"""What the log says of tasks that the configuration ended at a start."""

import re

import pytest

from cronoq._runtime.term import MAX_REASONS, tell_hopeless


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line for line in plain.splitlines() if "ended for good" in line]


def test_nothing_is_said_when_nothing_ended(capsys: pytest.CaptureFixture[str]) -> None:
    tell_hopeless({}, 5)
    assert told(capsys) == []


def test_each_reason_is_a_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    tell_hopeless({"pool 'a' is gone": 1, "pool 'b' is gone": 7}, 3)
    lines = told(capsys)
    assert [re.search(r"tasks=(\d+)", line)[1] for line in lines] == ["7", "1", "3"]
    assert "pool 'b' is gone" in lines[0] and all("before a start" in line for line in lines[:2])
    assert all("warning" in line for line in lines) and "as skipped" in lines[2]


def test_further_reasons_are_one_sum(capsys: pytest.CaptureFixture[str]) -> None:
    tell_hopeless({f"reason {number}": number for number in range(1, MAX_REASONS + 4)}, 0)
    lines = told(capsys)
    assert len(lines) == MAX_REASONS + 1
    assert "further reasons" in lines[-1] and lines[-1].endswith("tasks=6")
