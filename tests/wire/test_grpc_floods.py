"""Frames that are cheap for a peer are cheap for us, however many streams wait; and nothing is kept of what is over."""

import struct
from typing import Any

import pytest

from cronoq_sansio import limits as fixed
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import CallReceived, StatusEvent, SubmitReply, TaskResult
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import credit as credits
from cronoq_sansio.wire import grpc, http2_connection, pb
from cronoq_sansio.wire.credit import Credit, Unfinished
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.http2_words import DEFAULT_WINDOW
from tests.wire import raw
from tests.wire.peer import START

MANY = 300
MESSAGE = frame(pb.SubmitRequest(task=pb.TaskSpec(key="k"), wait=True).SerializeToString())
WATCH = "/cronoq.v1.Tasks/Watch"
OUTPUT = bytes(10_000)
ROUNDS = 400


def update(stream_id: int, increment: int) -> bytes:
    return raw.frame(raw.WINDOW_UPDATE, 0, stream_id, struct.pack(">L", increment))


def head(stream_id: int, *extra: tuple[str, str], path: str = "/cronoq.v1.Tasks/Submit", end: bool = False) -> bytes:
    return raw.frame(raw.HEADERS, raw.END_HEADERS | end, stream_id, raw.block(*extra, path=path))


def connected(
    limits: LimitSettings | None = None, *, unfinished: Unfinished | None = None, **settings: int
) -> GrpcServer:
    server = GrpcServer(limits or LimitSettings(), START, authenticate, unfinished=unfinished)
    server.receive(raw.PREFACE + raw.settings(**settings), START)
    server.take(1 << 20)
    return server


def say(server: GrpcServer, data: bytes) -> list[Any]:
    return [event for event in server.receive(data, START) if isinstance(event, CallReceived)]


def sent(server: GrpcServer) -> list[int]:
    """Bytes of each DATA frame that goes out now."""
    frames = raw.cut_frames(server.take(1 << 24))
    return [len(body) for kind, _, _, body in frames if kind == raw.DATA]


def answered(server: GrpcServer, stream_id: int, output: bytes = OUTPUT) -> None:
    (event,) = say(server, head(stream_id) + raw.frame(raw.DATA, raw.END_STREAM, stream_id, MESSAGE))
    event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, output, "", "")))


class Counted:
    """How often a method is called."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.times = 0
        whole = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            self.times += 1
            return whole(*args, **kwargs)

        patch.setattr(owner, name, method)


def test_a_window_that_is_opened_byte_by_byte_costs_what_it_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many answers wait for the window of the connection: each byte of it is given to one, and the rest left alone."""
    server = connected()
    for number in range(MANY):
        answered(server, 2 * number + 1)
    assert sum(sent(server)) == DEFAULT_WINDOW
    pumps = Counted(monkeypatch, GrpcStream, "pump")
    turns = set()
    for _ in range(ROUNDS):
        say(server, update(0, 1))
        assert server.wants_write()
        frames = raw.cut_frames(server.take(1 << 24))
        ((stream_id, body),) = [(stream_id, body) for kind, _, stream_id, body in frames if kind == raw.DATA]
        assert len(body) == 1 and not server.wants_write()
        turns.add(stream_id)
    assert pumps.times <= 2 * ROUNDS
    assert len(turns) >= MANY - 10, "each has its turn"


def test_nor_are_streams_tried_whose_own_windows_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = connected(initial_window_size=0)
    for number in range(MANY):
        answered(server, 2 * number + 1)
    say(server, update(1, 9_000) + update(3, 9_000) + update(5, 1 << 20) + update(7, 1 << 20))
    for number in range(MANY, MANY + 5):
        answered(server, 2 * number + 1)
        say(server, update(2 * number + 1, 1 << 20))
    assert sum(sent(server)) > 40_000
    pumps = Counted(monkeypatch, GrpcStream, "pump")
    looks = Counted(monkeypatch, type(server.http2), "sendable")
    for _ in range(ROUNDS):
        say(server, update(0, 1) + update(1, 1))
        sent(server)
    assert pumps.times <= 3 * ROUNDS and looks.times <= 3 * ROUNDS


def test_windows_of_streams_that_settings_open_are_used() -> None:
    server = connected(initial_window_size=0)
    say(server, update(0, 1 << 24))
    for number in range(20):
        answered(server, 2 * number + 1)
    assert sent(server) == []
    say(server, raw.settings(initial_window_size=100))
    assert sent(server) == [100] * 20
    say(server, raw.settings(initial_window_size=50_000))
    assert len(sent(server)) == 20 and server._streams == {}


def watching(server: GrpcServer, stream_id: int) -> Any:
    (event,) = say(server, head(stream_id, path=WATCH) + raw.frame(raw.DATA, raw.END_STREAM, stream_id, frame(b"")))
    event.call.sink.start()
    return event.call.sink


def test_events_that_the_connection_has_no_room_for_are_not_tried_for_each_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = connected(initial_window_size=1 << 20)
    watchers = [watching(server, 2 * number + 1) for number in range(50)]
    server.take(1 << 20)
    encoded = 0

    def encode(event: StatusEvent) -> bytes:
        nonlocal encoded
        encoded += 1
        return event.message.encode()

    for watcher in watchers:
        watcher.encode = encode
        watcher.send_event(StatusEvent(1, "default", "", 6, 1, START, "x" * 4_995))
    assert len(sent(server)) == DEFAULT_WINDOW // 5_000
    waiting = 50 - DEFAULT_WINDOW // 5_000
    encoded = 0
    for _ in range(4_999 - DEFAULT_WINDOW % 5_000):
        server.http2._floods.sent += 1
        say(server, update(0, 1))
        assert sent(server) == []
    assert encoded == 0
    say(server, update(0, 1))
    assert sent(server) == [5_000] and encoded == 1
    say(server, update(0, 12_000))
    assert sent(server) == [5_000] * 2 and encoded == 3
    say(server, update(0, 1 << 20))
    assert sent(server) == [5_000] * (waiting - 3)


def test_an_event_in_wait_is_dropped_with_its_watch() -> None:
    server = connected(initial_window_size=1 << 20)
    watcher, other = watching(server, 1), watching(server, 3)
    for number in range(14):
        watcher.send_event(StatusEvent(number, "default", "", 6, 1, START, "x" * 4_900))
    sent(server)
    other.send_event(StatusEvent(1, "default", "", 6, 1, START, "x" * 4_900))
    sent(server)
    assert list(server._narrow) == [1, 3]
    server.receive(raw.frame(raw.RST_STREAM, 0, 1, bytes(4)), START)
    other.reject(Rejection(Code.UNAVAILABLE, "gone"))
    server.take(1 << 20)
    say(server, update(0, 1 << 20))
    assert sent(server) != [] and server._streams == {} and server._narrow == {}


def test_settings_of_many_entries_are_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    server = connected()
    for number in range(10):
        say(server, head(2 * number + 1))
    moves = Counted(monkeypatch, http2_connection, "move_windows")
    entries = [struct.pack(">HL", 4, size) for size in (0, 1 << 30, 5, (1 << 31) - 1, 70_000)]
    say(server, raw.frame(raw.SETTINGS, 0, 0, b"".join(entries)))
    assert moves.times == 1
    assert {stream.send_window for stream in server.http2._streams.values()} == {70_000}
    say(server, update(1, 1))
    say(server, raw.frame(raw.SETTINGS, 0, 0, b"".join(entries[3:])))
    assert server.closed, "the window of stream 1 was too wide on the way"


def test_a_refusal_is_worked_out_once_for_headers_that_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = connected()
    looks = Counted(monkeypatch, grpc, "look")
    for number in range(50):
        say(server, head(2 * number + 1, path="/" + "x" * 150, end=True))
        kinds = [kind for kind, _, _, _ in raw.cut_frames(server.take(1 << 20))]
        assert kinds == [raw.HEADERS]
    assert looks.times <= 2


def test_an_error_repeats_some_of_a_long_path() -> None:
    server = connected()
    say(server, head(1, path="/" + "x" * 4_000, end=True))
    assert len(server.take(1 << 20)) < 400


def test_answers_that_stand_back_are_forgotten_with_their_streams() -> None:
    """Calls that are reset while another one's long answer is being sent."""
    server = connected(LimitSettings(max_message_bytes=100_000), initial_window_size=10)
    for stream_id in (1, 3):
        answered(server, stream_id, bytes(90_000))
        sent(server)
    for number in range(2, 102):
        answered(server, 2 * number + 1)
        sent(server)
        assert server._crowded
        server.receive(raw.frame(raw.RST_STREAM, 0, 2 * number + 1, bytes(4)), START)
        assert not server._crowded
    assert list(server._streams) == [1, 3]


def test_streams_that_wait_for_credit_are_not_looked_at_for_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 1 << 20
    server = connected(LimitSettings(max_message_bytes=limit))
    prefix = struct.pack(">BL", 0, 900_000)
    for number in range(MANY):
        server.receive(head(2 * number + 1), START)
        for piece in (prefix + bytes(16_000), bytes(16_384), bytes(8_000)):
            server.receive(raw.frame(raw.DATA, 0, 2 * number + 1, piece), START)
    assert len(server._credit.withheld) > MANY - 10
    server.take(1 << 20)
    looks = 0
    missing = GrpcStream.missing

    def counted(stream: GrpcStream) -> int:
        nonlocal looks
        looks += 1
        return missing.fget(stream)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(GrpcStream, "missing", property(counted))
    for number in range(ROUNDS):
        server.receive(raw.frame(raw.DATA, 0, 2 * (number % MANY) + 1, b"x"), START)
    assert looks <= 4 * ROUNDS and not server.closed


def test_the_message_that_was_begun_first_gets_done_first() -> None:
    """Then the next one, and so on: all of them, however little is promised at a time."""
    server = connected(LimitSettings(max_message_bytes=200_000))
    body = frame(pb.SubmitRequest(task=pb.TaskSpec(payload=bytes(150_000))).SerializeToString())
    rest = {2 * number + 1: body for number in range(30)}
    windows = dict.fromkeys(rest, fixed.INITIAL_WINDOW)
    ended: list[int] = []
    for stream_id in rest:
        server.receive(head(stream_id), START)
    while rest:
        moved = False
        for stream_id in list(rest):
            size = min(windows[stream_id], 16_384, len(rest[stream_id]))
            if not size:
                continue
            moved = True
            piece, rest[stream_id] = rest[stream_id][:size], rest[stream_id][size:]
            windows[stream_id] -= size
            end = not rest[stream_id]
            calls = say(server, raw.frame(raw.DATA, raw.END_STREAM * end, stream_id, piece))
            assert len(calls) == end
            if end:
                ended.append(stream_id)
                del rest[stream_id]
            for kind, _, opened, number in raw.cut_frames(server.take(1 << 20)):
                if kind == raw.WINDOW_UPDATE and opened:
                    windows[opened] += int.from_bytes(number, "big")
        assert moved, "somebody always may send"
        assert server._credit.promised <= 2 * 200_000 + fixed.MESSAGE_WINDOW
    assert len(ended) == 30
    credit: Credit = server._credit
    assert credit.withheld == {} and credit.promised == credit.unfinished == 0 and credit._unfinished == {}


def begin(server: GrpcServer, stream_id: int, size: int = 60_000) -> None:
    """A call whose message is long, and of which so much comes."""
    server.receive(head(stream_id), START)
    said = struct.pack(">BL", 0, 900_000) + bytes(size - 5)
    for at in range(0, size, 16_000):
        server.receive(raw.frame(raw.DATA, 0, stream_id, said[at : at + 16_000]), START)


def test_unfinished_messages_of_many_connections_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream may hold its first window without being asked, and there may be many streams, and connections."""
    monkeypatch.setattr(credits, "MAX_UNFINISHED", 2_000_000)
    unfinished = Unfinished()
    servers = [connected(unfinished=unfinished) for _ in range(5)]
    for number in range(40):
        for server in servers:
            begin(server, 2 * number + 1)
    assert unfinished.total == sum(server._credit.unfinished for server in servers) < 2_000_000 + 5 * 60_000
    refused = [[kind for kind, *_ in raw.cut_frames(server.take(1 << 20))].count(raw.HEADERS) for server in servers]
    assert sum(refused) > 5 * 40 - 2_000_000 // 60_000 - 10
    for server in servers:
        assert not server.closed and server._streams[1].unfinished > 0, "the oldest one goes on"
        server.receive_eof(START)
    assert unfinished.total == 0


def test_from_half_of_that_on_only_the_oldest_of_a_connection_gets_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credits, "MAX_UNFINISHED", 1_000_000)
    unfinished = Unfinished()
    first, second = connected(unfinished=unfinished), connected(unfinished=unfinished)
    for number in range(9):
        begin(first, 2 * number + 1)
    first.take(1 << 20)
    begin(second, 1)
    begin(second, 3)
    updates = [frame[2] for frame in raw.cut_frames(second.take(1 << 20)) if frame[0] == raw.WINDOW_UPDATE]
    assert set(updates) == {1}
    first.receive_eof(START)
    begin(second, 5)
    updates = [frame[2] for frame in raw.cut_frames(second.take(1 << 20)) if frame[0] == raw.WINDOW_UPDATE]
    assert 5 in updates
