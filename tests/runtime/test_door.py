"""What the door tells: one line a minute for each limit and address, and only so many in all; and who leaves when."""

import re

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.clock import Clock
from cronoq._runtime.door import Door, Guest, PeerLog
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.peer_limits import IDLE, PINGS, RESETS
from tests.runtime.test_connection import FakeLobby, Line


class Rig:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.seconds = 0.0
        self.log = PeerLog(Clock(lambda: self.seconds, lambda: 0))
        self._capsys = capsys

    def lines(self) -> list[str]:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self._capsys.readouterr().out)
        return [line for line in plain.splitlines() if "has exceeded" in line]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str]) -> Rig:
    return Rig(capsys)


def test_one_line_a_minute_for_each_limit_and_address(rig: Rig) -> None:
    for port in range(50):
        rig.log.note(PINGS, f"192.0.2.1:{port}")
    rig.log.note(RESETS, "192.0.2.1:7")
    rig.log.note(PINGS, "192.0.2.2:7")
    first, second, third = rig.lines()
    assert "peer=192.0.2.1:0" in first and "limit=pings" in first and "not_told" not in first
    assert "limit=resets" in second and "peer=192.0.2.2:7" in third
    rig.seconds = limits.PEER_PAUSE / SECOND
    rig.log.note(PINGS, "192.0.2.1:99")
    (line,) = rig.lines()
    assert "not_told_since_last=49" in line
    assert rig.log.counts == {"pings": 52, "resets": 1}


def test_an_attack_from_many_addresses_does_not_fill_the_log(rig: Rig) -> None:
    for number in range(1_000):
        rig.log.note(PINGS, f"10.0.{number // 250}.{number % 250}:1")
    assert len(rig.lines()) == limits.MAX_LOGGED_PEERS
    rig.seconds = limits.PEER_PAUSE / SECOND
    rig.log.note(PINGS, "192.0.2.1:1")
    (line,) = rig.lines()
    assert f"not_told_of_others={1_000 - limits.MAX_LOGGED_PEERS}" in line


def test_what_happens_to_good_peers_is_counted_and_not_told(rig: Rig) -> None:
    rig.log.note(IDLE, "192.0.2.1:1")
    assert rig.lines() == [] and rig.log.counts == {"idle": 1}


def test_what_was_charged_once_is_not_charged_again(rig: Rig) -> None:
    door = Door(10, 10, rig.log, Clock(lambda: rig.seconds, lambda: 0))
    guest = door.enter("192.0.2.1:1")
    assert isinstance(guest, Guest)
    guest.wasted = 100
    assert [guest.charge(0), guest.charge(0)] == [100, 0]
    guest.wasted = 130
    assert guest.charge(0) == 30


async def test_after_our_last_words_no_more_is_read_than_may_be_on_its_way(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A peer that goes on sending does not keep us reading for the whole second."""
    line = Line(nursery, FakeLobby())
    await line.exchange(b"close")
    sent = 0
    with pytest.raises(BrokenPipeError):
        while True:
            sent += line.peer.try_send(bytes(1 << 18))
            await trio.testing.wait_all_tasks_blocked()
    assert limits.MAX_CLOSE_DISCARD <= sent <= limits.MAX_CLOSE_DISCARD + (2 << 20)
    assert trio.current_time() == 0
    nursery.cancel_scope.cancel()
