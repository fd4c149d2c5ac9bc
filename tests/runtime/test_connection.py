"""One connection on memory transports: always read, written once per read, its time kept, its failure its own."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.faults import TermEnded
from cronoq._runtime.transport import MemoryTransport, memory_pair
from cronoq_sansio.clock import NEVER, SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_TURN, MIN_READ, READ_SIZE, WRITE_SIZE
from cronoq_sansio.service.messages import Shutdown
from cronoq_sansio.wire.peer_limits import PeerLimit

GONE = Rejection(Code.UNAVAILABLE, "gone")


class FakeWire:
    """A machine that speaks lines: each one is an event; what is in `out` is to be written."""

    def __init__(self) -> None:
        self.owner: object = None
        self.out = bytearray()
        self.taken: list[int] = []
        self.late_events: list[Any] = []
        self.http2 = self
        self.stalls = self
        self.looks = self
        self.waiting: dict[int, Any] = {}
        self.due = NEVER
        self.fired: list[int] = []
        self.closed = False
        self.eofs = 0
        self.exceeded: list[PeerLimit] = []
        self.proven = False
        self.frames = 0
        self.credit = (False, False)
        self.refused = False
        self.reads: list[int] = []
        self.work: Callable[[], None] = lambda: None
        """What a read costs."""

    def receive(self, data: bytes, now: int) -> list[Any]:
        self.reads.append(len(data))
        self.work()
        if b"bug" in data:
            raise KeyError("a bug in the machine")
        if b"close" in data:
            self.closed = True
            self.out += b"bye"
        return [line for line in data.split(b"\n") if line]

    def useless(self, now: int) -> int:
        return self.frames

    def receive_eof(self, now: int) -> list[Any]:
        self.eofs += 1
        return [b"eof"]

    def take_events(self) -> list[Any]:
        late, self.late_events = self.late_events, []
        return late

    def next_timeout(self) -> int | None:
        return None if self.due == NEVER else self.due

    def handle_timer(self, now: int) -> list[Any]:
        self.fired.append(now)
        self.due = NEVER
        return [b"timer"]

    def take(self, limit: int) -> bytes:
        data = bytes(self.out[:limit])
        del self.out[:limit]
        self.taken.append(len(data))
        return data

    @property
    def unsent(self) -> int:
        return len(self.out)

    def wants_write(self) -> bool:
        return bool(self.out)

    @property
    def more(self) -> bool:
        return bool(self.out)

    def hold_credit(self, *, calls: bool, workers: bool) -> None:
        self.credit = (calls, workers)

    def drain(self) -> None:
        self.out += b"drain;"

    def finish(self) -> None:
        self.out += b"finish;"
        self.closed = True

    def refuse_open(self, rejection: Rejection, shutdown: Shutdown) -> None:
        self.refused = True
        self.out += b"refused;"


class FakeDriver:
    """Hands on to the lobby what its one connection has read."""

    def __init__(self, lobby: "FakeLobby") -> None:
        self.lobby = lobby

    def handle(self, events: Sequence[Any], now: int) -> None:
        self.lobby.handle(next(iter(self.lobby.connections)), events, now)


class FakeLobby:
    """Answers events as the test says."""

    def __init__(self) -> None:
        self.driver = FakeDriver(self)
        self.connections: dict[Connection, None] = {}
        self.events: list[Any] = []
        self.answers: dict[bytes, bytes] = {}
        self.calls = 0
        self.limits: list[tuple[str, str]] = []
        self.serving = True

    def enter(self, connection: Connection) -> None:
        self.connections[connection] = None

    def leave(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    def exceeded(self, limit: PeerLimit, peer: str) -> None:
        self.limits.append((limit.name, peer))

    def handle(self, connection: Connection, events: Sequence[Any], now: int | None = None) -> None:
        self.calls += 1
        self.events += events
        if b"break the term" in events:
            raise TermEnded("broken")
        for event in events:
            connection._machine.out += self.answers.get(event, b"")  # type: ignore[attr-defined]
        late = connection.flush()
        if late:
            self.handle(connection, late)


class Line:
    """A connection, its machine, and the peer's end."""

    def __init__(self, nursery: trio.Nursery, lobby: FakeLobby, capacity: int = 1 << 20) -> None:
        ours, self.peer = memory_pair(capacity)
        self.transport: MemoryTransport = ours
        self.machine = FakeWire()
        self.clock = Clock(trio.current_time, lambda: 0)
        self.connection = Connection(ours, self.machine, lobby, self.clock, nursery, "peer")  # type: ignore[arg-type]
        nursery.start_soon(self.connection.run)

    async def exchange(self, data: bytes) -> bytes:
        self.peer.try_send(data)
        await trio.testing.wait_all_tasks_blocked()
        return self.peer.try_receive() or b""

    async def read_all(self) -> bytes:
        """Read until the end of the connection."""
        read = b""
        while True:
            await self.peer.wait_readable()
            data = self.peer.try_receive()
            if data == b"":
                return read
            read += data or b""


@pytest.fixture
def lobby() -> FakeLobby:
    return FakeLobby()


@pytest.fixture
async def line(nursery: trio.Nursery, lobby: FakeLobby) -> AsyncIterator[Line]:
    line = Line(nursery, lobby)
    await trio.testing.wait_all_tasks_blocked()
    yield line
    nursery.cancel_scope.cancel()


async def test_all_events_of_a_read_are_one_call_and_one_write(
    autojump_clock: MockClock, line: Line, lobby: FakeLobby
) -> None:
    lobby.answers = {b"a": b"1", b"b": b"2"}
    assert await line.exchange(b"a\nb\na\n") == b"121"
    assert lobby.calls == 1
    assert [size for size in line.machine.taken if size] == [3]


async def test_reads_that_cost_much_become_small_and_grow_again(autojump_clock: MockClock, line: Line) -> None:
    """Else a peer that sends the smallest frames makes all others wait for tens of thousands of them."""
    machine = line.machine
    machine.work = lambda: autojump_clock.jump(2 * MAX_TURN / SECOND)
    await line.exchange(bytes(4 * READ_SIZE))
    assert machine.reads[:3] == [READ_SIZE, READ_SIZE // 2, READ_SIZE // 4]
    assert min(machine.reads[:20]) == MIN_READ and sum(machine.reads) == 4 * READ_SIZE
    machine.reads.clear()
    machine.work = lambda: None
    await line.exchange(bytes(4 * READ_SIZE))
    assert machine.reads[:3] == [MIN_READ, 2 * MIN_READ, 4 * MIN_READ] and READ_SIZE in machine.reads


async def test_what_the_machine_says_by_itself_is_written(autojump_clock: MockClock, line: Line) -> None:
    line.machine.out += b"preface"
    line.connection.flush()
    assert await line.exchange(b"") == b"preface"


async def test_a_partial_write_is_finished_by_a_second_task(
    autojump_clock: MockClock, nursery: trio.Nursery, lobby: FakeLobby
) -> None:
    line = Line(nursery, lobby, capacity=10)
    lobby.answers = {b"a": bytes(range(100))}
    line.peer.try_send(b"a\n")
    await trio.testing.wait_all_tasks_blocked()
    line.peer.try_send(b"b\n")
    await trio.testing.wait_all_tasks_blocked()
    assert lobby.events == [b"a", b"b"], "not read while something was unsent"
    read = b""
    while len(read) < 100:
        await line.peer.wait_readable()
        read += line.peer.try_receive() or b""
    assert read == bytes(range(100))
    lobby.answers = {b"c": b"again"}
    assert await line.exchange(b"c\n") == b"again", "written at once again when nothing is unsent"
    nursery.cancel_scope.cancel()


async def test_unsent_bytes_are_bounded_by_one_write(
    autojump_clock: MockClock, nursery: trio.Nursery, lobby: FakeLobby
) -> None:
    line = Line(nursery, lobby, capacity=10)
    await trio.testing.wait_all_tasks_blocked()
    line.machine.out += bytes(5 * WRITE_SIZE)
    for _ in range(5):
        line.connection.flush()
        await trio.testing.wait_all_tasks_blocked()
    assert len(line.machine.out) == 4 * WRITE_SIZE, "taken from the machine although the peer takes nothing"
    nursery.cancel_scope.cancel()


async def test_a_reset_ends_this_connection_alone(
    autojump_clock: MockClock, nursery: trio.Nursery, lobby: FakeLobby, line: Line
) -> None:
    other = Line(nursery, lobby)
    lobby.answers = {b"a": b"1"}
    line.peer.reset()
    assert await other.exchange(b"a\n") == b"1"
    assert list(lobby.connections) == [other.connection]
    assert line.machine.eofs == 1


async def test_a_send_that_fails_in_somebody_elses_hands_ends_the_connection(
    autojump_clock: MockClock, lobby: FakeLobby, line: Line
) -> None:
    line.machine.out += b"x"
    line.transport._outgoing.broken = True
    assert line.connection.flush() == []
    await trio.testing.wait_all_tasks_blocked()
    assert not lobby.connections
    assert line.machine.eofs == 1
    assert line.connection.flush() == []


async def test_a_bug_in_the_machine_ends_the_connection_alone(
    autojump_clock: MockClock, nursery: trio.Nursery, lobby: FakeLobby, line: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Line(nursery, lobby)
    lobby.answers = {b"a": b"1"}
    await line.exchange(b"bug\n")
    assert await other.exchange(b"a\n") == b"1"
    assert list(lobby.connections) == [other.connection]
    logged = capsys.readouterr().out
    assert "KeyError at" in logged and "Traceback" not in logged


async def test_the_machine_gets_its_timer_on_time(autojump_clock: MockClock, line: Line, lobby: FakeLobby) -> None:
    line.machine.due = line.clock.now() + 20 * SECOND
    await line.exchange(b"a\n")
    due = line.clock.now() + SECOND
    line.machine.due = due
    line.connection.flush()
    await trio.sleep(0.99)
    assert not line.machine.fired
    await trio.sleep(0.02)
    assert line.machine.fired == [due]
    assert lobby.events == [b"a", b"timer"]
    line.machine.due = line.clock.now() + SECOND
    await line.exchange(b"b\n")
    await trio.sleep(1.01)
    assert len(line.machine.fired) == 2, "a timer set while reading"


async def test_a_timer_that_moved_away_does_not_fire(autojump_clock: MockClock, line: Line) -> None:
    line.machine.due = line.clock.now() + SECOND
    line.connection.flush()
    line.machine.due = line.clock.now() + 10 * SECOND
    await trio.sleep(5)
    assert not line.machine.fired
    await trio.sleep(5.1)
    assert len(line.machine.fired) == 1


async def test_events_that_arise_while_sending_are_handed_on(
    autojump_clock: MockClock, line: Line, lobby: FakeLobby
) -> None:
    lobby.answers = {b"late": b"more"}
    line.machine.late_events = [b"late"]
    line.machine.out += b"x"
    assert await line.exchange(b"a\n") == b"xmore"


async def test_the_last_bytes_of_a_closed_machine_reach_the_peer(
    autojump_clock: MockClock, line: Line, lobby: FakeLobby
) -> None:
    line.peer.try_send(b"close\n")
    assert await line.read_all() == b"bye"
    assert lobby.events[-1] == b"eof"
    await trio.sleep(1.1)
    assert not lobby.connections, "the peer did not close, and was waited for too long"


async def test_a_peer_that_takes_nothing_does_not_hold_up_the_end(
    autojump_clock: MockClock, nursery: trio.Nursery, lobby: FakeLobby
) -> None:
    line = Line(nursery, lobby, capacity=1)
    line.peer.try_send(b"c")
    await trio.testing.wait_all_tasks_blocked()
    line.machine.out += bytes(100)
    line.connection.finish()
    await trio.sleep(5.1)
    assert not lobby.connections
    nursery.cancel_scope.cancel()


async def test_finish_wakes_a_connection_that_only_waits(
    autojump_clock: MockClock, line: Line, lobby: FakeLobby
) -> None:
    line.connection.drain()
    line.connection.finish()
    assert await line.read_all() == b"drain;finish;"
    line.peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert not lobby.connections


async def test_a_dismissed_connection_answers_at_once_and_closes_a_second_later(
    autojump_clock: MockClock, line: Line, lobby: FakeLobby
) -> None:
    line.connection.dismiss(GONE, Shutdown("over", True), line.clock.now() + SECOND)
    assert line.machine.refused and line.connection.dismissed
    assert line.peer.try_receive() == b"refused;"
    await trio.sleep(0.99)
    assert line.peer.try_receive() is None
    await trio.sleep(0.02)
    assert await line.read_all() == b"finish;"


async def test_the_event_that_broke_the_term_costs_its_connection(
    autojump_clock: MockClock, nursery: trio.Nursery, line: Line, lobby: FakeLobby
) -> None:
    other = Line(nursery, lobby)
    line.peer.try_send(b"break the term\n")
    assert await line.read_all() == b"finish;"
    line.peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert list(lobby.connections) == [other.connection]


async def test_credit_is_held_and_given(autojump_clock: MockClock, line: Line) -> None:
    line.connection.hold(True, False)
    assert line.machine.credit == (True, False)
    line.connection.hold(False, False)
    assert line.machine.credit == (False, False)


async def test_cancelling_tells_the_service_that_the_peer_is_gone(autojump_clock: MockClock, lobby: FakeLobby) -> None:
    async with trio.open_nursery() as nursery:
        line = Line(nursery, lobby)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert lobby.events == [b"eof"]
    assert line.peer.try_receive() == b""
