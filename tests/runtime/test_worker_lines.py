"""How many lines workers have that come and go: so many a minute, and then a count."""

import re

import pytest

from cronoq._runtime.worker_log import WorkerLog
from cronoq_sansio import limits


class Rig:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.now = 0
        self.log = WorkerLog(lambda: self.now)
        self._capsys = capsys

    def come_and_go(self, count: int, address: str = "192.0.2.7") -> None:
        for number in range(count):
            fields = {"worker": number, "pool": "default", "peer": f"{address}:{number}"}
            self.log.registered(fields, 1)
            self.log.disconnected(fields, "connection lost")

    def lines(self) -> list[str]:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self._capsys.readouterr().out)
        return [" ".join(line.partition("] ")[2].split()) for line in plain.splitlines()]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str]) -> Rig:
    return Rig(capsys)


def test_hundreds_of_workers_are_told_one_by_one(rig: Rig) -> None:
    for host in range(10):
        rig.come_and_go(50, f"192.0.2.{host}")
    lines = rig.lines()
    assert len(lines) == 1_000
    assert lines[0] == "a worker registered part=worker peer=192.0.2.0:0 pool=default slots=1 worker=0"
    assert lines[-1].startswith("a worker disconnected part=worker peer=192.0.2.9:49")
    rig.now = limits.WORKER_LOG_PAUSE
    rig.log.tick()
    rig.log.close()
    assert rig.lines() == [], "nothing was counted"


def test_what_is_beyond_is_one_line_when_the_minute_is_over(rig: Rig) -> None:
    rig.come_and_go(8_000)
    assert len(rig.lines()) == limits.MAX_LOGGED_WORKERS_OF_PEER
    rig.now = limits.WORKER_LOG_PAUSE - 1
    rig.log.tick()
    assert rig.lines() == []
    rig.now += 1
    rig.log.tick()
    untold = 8_000 - limits.MAX_LOGGED_WORKERS_OF_PEER // 2
    line = f"more workers came and went disconnected={untold} mostly_from=192.0.2.7 part=worker registered={untold}"
    assert rig.lines() == [line]
    rig.log.tick()
    assert rig.lines() == []
    rig.come_and_go(1)
    assert len(rig.lines()) == 2, "another minute"


def test_one_address_does_not_silence_the_others(rig: Rig) -> None:
    rig.come_and_go(8_000)
    rig.lines()
    rig.come_and_go(3, "198.51.100.1")
    assert len(rig.lines()) == 6


def test_many_addresses_do_not_fill_the_log_nor_memory(rig: Rig) -> None:
    for number in range(5_000):
        rig.come_and_go(1, f"10.0.{number // 250}.{number % 250}")
    assert len(rig.lines()) == limits.MAX_LOGGED_WORKERS
    assert len(rig.log._told_of) + len(rig.log._untold_of) <= 2 * limits.MAX_LOGGED_WORKERS
    untold = 5_000 - limits.MAX_LOGGED_WORKERS // 2
    rig.log.close()
    assert rig.lines() == [f"more workers came and went disconnected={untold} part=worker registered={untold}"]


def test_the_next_worker_tells_of_those_before_it_if_nobody_else_did(rig: Rig) -> None:
    rig.come_and_go(300)
    rig.lines()
    rig.now = 2 * limits.WORKER_LOG_PAUSE
    rig.come_and_go(1)
    first, *others = rig.lines()
    assert first.startswith("more workers came and went disconnected=50 ") and len(others) == 2
