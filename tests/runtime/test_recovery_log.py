"""What the log says of tasks that the configuration ended at a start, and of schedules."""

import re

import pytest

from cronoq._runtime.recovery_log import MAX_NAMES, MAX_REASONS, tell_hopeless, tell_schedules


def told(capsys: pytest.CaptureFixture[str], about: str = "ended for good") -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line for line in plain.splitlines() if about in line]


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


def test_nothing_is_said_of_schedules_when_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    tell_schedules(0, 0, [], [])
    assert told(capsys, "schedule") == []


def test_schedules_that_do_nothing_are_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    tell_schedules(7, 2, [("a", "no pool 'x'"), ("b", "tz: no zone")], [])
    count, *lines = told(capsys, "schedule")
    assert "armed=5" in count and "not_armed=2" in count and "info" in count
    assert len(lines) == 2 and all("warning" in line and "it stays stored" in line for line in lines)
    assert "no pool 'x'" in lines[0] and "schedule=a" in lines[0] and "schedule=b" in lines[1]


@pytest.mark.parametrize(("notes", "unarmed"), [(MAX_NAMES + 3, MAX_NAMES + 5), (MAX_NAMES, MAX_NAMES + 5)])
def test_further_schedules_that_do_nothing_are_counted(
    capsys: pytest.CaptureFixture[str], notes: int, unarmed: int
) -> None:
    tell_schedules(99, unarmed, [(f"s{number}", "why") for number in range(notes)], [])
    lines = told(capsys, "nothing")
    assert len(lines) == MAX_NAMES + 1
    assert "further" in lines[-1] and lines[-1].endswith("schedules=5")


def test_schedules_that_the_file_no_longer_has_are_named_up_to_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    tell_schedules(0, 0, [], [f"s{number}" for number in range(MAX_NAMES + 2)])
    lines = told(capsys, "removed")
    assert len(lines) == MAX_NAMES + 1
    assert lines[0].endswith("schedule=s0") and lines[-1].endswith("schedules=2")
