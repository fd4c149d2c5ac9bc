"""What the log says of workers: each that registers and each end of one, once, whoever ended it."""

import re
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from h2.settings import SettingCodes
from trio.testing import MockClock

from cronoq._runtime.performer import labels_text
from cronoq._stores.memory import MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MAX_LOGGED_LABELS, OUTBOUND_PER_SLOT, OUTBOUND_SPARE
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from tests.runtime.caller import Caller
from tests.runtime.house import House

REGISTER = pb.WorkerMessage(register=pb.Register(pool="default", slots=1, protocol_version=3))


@pytest.fixture
async def house(nursery: trio.Nursery) -> AsyncIterator[House]:
    yield await House(nursery, MemoryStore(key_retention=SECOND, key_retention_max=10)).open()
    nursery.cancel_scope.cancel()


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The records about workers, their fields sorted, without times and colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [" ".join(line.partition("] ")[2].split()) for line in plain.splitlines() if "a worker " in line]


def disconnected(why: str) -> str:
    """What is said of the end of the first worker."""
    return f"a worker disconnected name=tester part=worker peer=caller pool=default why={why!r} worker=1"


async def open_and_reset(caller: Caller, count: int) -> None:
    """Worker streams that register and are reset, all in one write."""
    for _ in range(count):
        number, _stream = caller._open("/cronoq.v1.Workers/Work")
        caller.h2.send_data(number, frame(REGISTER.SerializeToString()))
        caller.h2.reset_stream(number)
    caller._flush()
    await trio.testing.wait_all_tasks_blocked()


async def test_a_worker_that_comes_and_goes_is_two_lines(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = house.caller()
    worker = await caller.work(slots=3)
    caller.h2.end_stream(worker.number)
    caller._flush()
    await trio.testing.wait_all_tasks_blocked()
    assert told(capsys) == [
        "a worker registered name=tester part=worker peer=caller pool=default slots=3 worker=1",
        disconnected("the worker closed its side of the stream"),
    ]


async def test_labels_are_cut_in_both_lines(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = house.caller()
    worker = await caller.work(slots=1, labels={f"label-{number:02}": "x" * 200 for number in range(32)})
    caller.h2.end_stream(worker.number)
    caller._flush()
    await trio.testing.wait_all_tasks_blocked()
    lines = told(capsys)
    assert len(lines) == 2
    assert all(f"labels='label-00={'x' * 200} … and 31 more'" in line for line in lines)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ((("a", "b"), ("c", "")), "a=b,c="),
        ((("a", "b" * 254),), "a=" + "b" * 254),
        ((("a", "b" * 255),), "a=" + "b" * 253 + "…"),
        ((("a", "b" * 255), ("c", "d")), "a=" + "b" * 242 + "… and 1 more"),
        ((("a", "b"), ("c", "d" * 300), ("e", "f")), "a=b … and 2 more"),
    ],
    ids=["short", "exactly full", "one long", "the first is long", "the second is long"],
)
def test_labels_have_room_for_so_many_characters(labels: tuple[tuple[str, str], ...], text: str) -> None:
    assert labels_text(labels) == text
    assert len(text) <= MAX_LOGGED_LABELS


async def test_streams_that_end_in_the_read_that_brings_them_are_not_logged(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = house.caller()
    await open_and_reset(caller, 50)
    assert told(capsys) == []
    assert (await caller.work(slots=1)).stream.ended is False, "the connection and the server go on"
    assert len(told(capsys)) == 1


async def test_a_worker_that_breaks_the_protocol_is_logged_with_the_reason(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = await house.caller().work(slots=1)
    worker.say(register=pb.Register(pool="default", slots=1, protocol_version=3))
    await trio.testing.wait_all_tasks_blocked()
    assert told(capsys)[1:] == [disconnected("a worker may register only once on a stream")]


async def test_a_worker_that_does_not_read_is_cut_and_logged(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    client, other = house.caller(), house.caller()
    await other.work(slots=1)
    other.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    other._flush()
    # A lease and an abort each; the first ones may go out before its window is seen to be closed.
    for _ in range((OUTBOUND_PER_SLOT * 10 + OUTBOUND_SPARE) // 2 + 10):
        reply = await client.submit()
        await client.call("Tasks/Cancel", pb.CancelRequest(task=pb.TaskRef(id=reply.id)), pb.CancelResponse)
    assert told(capsys)[1:] == [disconnected("worker does not read")]


async def test_a_connection_that_is_lost_is_logged_for_each_of_its_workers(
    autojump_clock: MockClock, house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = house.caller()
    await caller.work(slots=1)
    await caller.work(slots=1)
    caller.transport.send_eof()
    await trio.testing.wait_all_tasks_blocked()
    gone = told(capsys)[2:]
    assert [re.search(r"worker=(\d)", line)[1] for line in gone] == ["1", "2"]
    assert all("why='connection lost'" in line for line in gone)
