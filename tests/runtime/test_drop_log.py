"""What the log says of fires that did not happen: each schedule and reason now and then, and never too much."""

import re
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from cronoq._runtime.clock import Clock
from cronoq._runtime.drop_log import DropLog, moment
from cronoq._runtime.lobby import Lobby
from cronoq._runtime.performer import Performer
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.wire import pb
from tests.runtime.house import DurableStore, House

AT = 1_805_007_600 * SECOND
DROP = OccurrenceDropped("nightly", "conflict", AT, AT, 1, False, "the calendar is full")


class Rig:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.now = 0
        self.log = DropLog(lambda: self.now)
        self._capsys = capsys

    def lines(self) -> list[str]:
        """What was logged since the last look, without time and colours, fields as they come."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self._capsys.readouterr().out)
        return [" ".join(line.partition("[")[2].split()) for line in plain.splitlines() if "an occurrence" in line]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str]) -> Rig:
    return Rig(capsys)


def test_a_drop_is_one_line_with_all_that_is_known(rig: Rig) -> None:
    rig.log.note(DROP)
    (line,) = rig.lines()
    assert line.startswith("warning ] an occurrence did not happen")
    assert "schedule=nightly" in line and "reason=conflict" in line and "at=2027-03-14T07:00:00Z" in line
    assert "why='the calendar is full'" in line and "part=recurring" in line
    assert "count" not in line and "last" not in line and "not_told" not in line


@pytest.mark.parametrize(("more", "text"), [(False, "count=3"), (True, "count='3 or more'")])
def test_several_fires_are_counted(rig: Rig, more: bool, text: str) -> None:
    rig.log.note(replace(DROP, reason="missed", count=3, more=more, last=AT + 60 * SECOND))
    (line,) = rig.lines()
    assert text in line and "at=2027-03-14T07:00:00Z" in line and "last=2027-03-14T07:01:00Z" in line


@pytest.mark.parametrize(
    ("reason", "begins"),
    [
        ("missed", "warning ] an occurrence did not happen"),
        ("conflict", "warning ] an occurrence did not happen"),
        ("overload", "warning ] an occurrence did not happen"),
        ("invalid", "warning ] an occurrence did not happen"),
        ("overlap", "info ] an occurrence did not happen"),
        ("predecessor", "info ] an occurrence did not happen"),
        ("gap", "info ] an occurrence did not happen"),
        ("foreign_key", "warning ] an occurrence has no key"),
    ],
)
def test_the_level_of_a_reason(rig: Rig, reason: str, begins: str) -> None:
    rig.log.note(replace(DROP, reason=reason))
    (line,) = rig.lines()
    assert line.startswith(begins)


def test_keys_are_not_logged(rig: Rig) -> None:
    rig.log.note(replace(DROP, reason="foreign_key", detail="the key 'secret' belongs to another task"))
    (line,) = rig.lines()
    assert "secret" not in line and "another task has the key" in line


def test_one_line_a_minute_says_how_many_there_were(rig: Rig) -> None:
    for second in range(121):
        rig.now = second * SECOND
        rig.log.note(replace(DROP, count=2))
    lines = rig.lines()
    assert len(lines) == 3, "at 0, 60 and 120 s"
    assert "not_told" not in lines[0]
    assert all("not_told_since_last=118" in line for line in lines[1:])


def test_each_schedule_and_reason_has_its_own(rig: Rig) -> None:
    drops = [DROP, replace(DROP, name="hourly"), replace(DROP, reason="missed")]
    for drop in drops * 5:
        rig.log.note(drop)
    assert len(rig.lines()) == 3
    assert rig.log.pairs() == 3


def test_what_is_beyond_the_table_is_counted_in_the_next_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGGED_DROPS", 10)
    rig.log = DropLog(lambda: rig.now)
    for number in range(1_000):
        rig.log.note(replace(DROP, name=f"s{number}"))
    rig.log.note(replace(DROP, name="s0"))
    assert len(rig.lines()) == rig.log.pairs() == 10
    rig.now += limits.DROP_PAUSE - 1
    rig.log.note(replace(DROP, name="new"))
    assert rig.lines() == [], "nobody's minute is over"
    rig.now += 1
    rig.log.note(replace(DROP, name="new"))
    (line,) = rig.lines()
    assert "schedule=new" in line and "not_told_of_other_schedules=992" in line, "990, one before, and one of s0"
    assert rig.log.pairs() == 10
    rig.log.note(replace(DROP, name="s1"))
    (line,) = rig.lines()
    assert "not_told" not in line, "told once"


def test_the_performer_logs_them(rig: Rig) -> None:
    performer = Performer(Lobby(Clock(lambda: 0.0)), lambda: None)
    performer.perform([LogDrop(DROP), LogDrop(DROP)])
    assert len(rig.lines()) == 1
    assert performer.flush() == [], "it concerns no connection"


async def test_what_recovery_drops_is_told_too(nursery: trio.Nursery, autojump_clock: MockClock, rig: Rig) -> None:
    """An occurrence that was made ahead of a fault is missed when the next term begins."""
    store = DurableStore()
    house = await House(nursery, store).open()
    template = pb.TaskSpec(on_miss=pb.MISS_POLICY_SKIP)
    request = pb.RecurringRequest(name="nightly", cron="15 22 * * *", template=template)
    assert isinstance(await house.caller().call("Admin/AddRecurring", request, pb.Empty), pb.Empty)
    await trio.sleep(99.5)  # it is 22:13:20 when the test begins
    house.server.request_stop()
    await trio.sleep(3)
    assert house.code == 0 and rig.lines() == []
    house = await House(nursery, store).open()
    await trio.sleep(1)
    (line,) = rig.lines()
    assert "schedule=nightly" in line and "reason=missed" in line and "at=2023-11-14T22:15:00Z" in line
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("wall", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (AT + SECOND - 1, "2027-03-14T07:00:00Z"),
        (-1, "1970-01-01T00:00:00Z"),
        ((1 << 63) - 1, "2262-04-11T23:47:16Z"),
        (1 << 80, "9999-12-31T23:59:59Z"),
    ],
)
def test_moments(wall: int, text: str) -> None:
    assert moment(wall) == text
