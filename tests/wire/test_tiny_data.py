"""Messages in pieces of a few bytes: what good clients do passes, a flood of them ends its connection."""

import struct
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Any

import pytest

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import CallEnded, CallReceived, SubmitReply, TaskResult, WorkerGone, WorkerSent
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb, peer_limits
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.peer import START, WORK, on_both_machines

ENHANCE_YOUR_CALM = 11
MESSAGE = frame(pb.SubmitRequest(task=pb.TaskSpec(key="k"), wait=True).SerializeToString())
REGISTER = pb.Register(pool="default", slots=4, worker_name="w", protocol_version=3)
BEAT = frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=1)).SerializeToString())
LONG = (4 << 20).to_bytes(5, "big")  #: the head of a message
FREE = limits.TINY_DATA_PER_MESSAGE
BURST = limits.TINY_DATA_BURST


class Talk:
    """A server, and what it was told and said."""

    def __init__(self, machine: MakeHttp2 = Http2Server, **settings: int) -> None:
        self.server = GrpcServer(LimitSettings(), START, authenticate, machine=machine)
        self.now = START
        self.events: list[Any] = []
        self.written: list[tuple[int, int, int, bytes]] = []
        self.say(raw.PREFACE + raw.settings(**settings))

    def say(self, data: bytes) -> bool:
        """Whether the connection goes on."""
        self.events += self.server.receive(data, self.now)
        self.written += raw.cut_frames(self.server.take(1 << 24))
        self.events += self.server.take_events()
        return not self.server.closed

    def open(self, stream_id: int = 1, path: str = "/cronoq.v1.Tasks/Submit") -> None:
        self.say(raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, raw.block(path=path)))

    def data(self, data: bytes, stream_id: int = 1, *, end: bool = False) -> bool:
        return self.say(raw.frame(raw.DATA, raw.END_STREAM if end else 0, stream_id, data))

    def taken(self, pieces: Iterable[bytes], stream_id: int = 1) -> int:
        """How many of them are, each in a read of its own, before the connection ends calmly and with a reason."""
        for number, piece in enumerate(pieces):
            if not self.data(piece, stream_id):
                kind, _, _, body = self.written[-1]
                assert kind == raw.GOAWAY and struct.unpack_from(">L", body, 4) == (ENHANCE_YOUR_CALM,)
                assert body[8:].decode() == peer_limits.TINY_DATA.says
                assert self.server.exceeded == [peer_limits.TINY_DATA]
                return number
        raise AssertionError("all of them were taken")


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


# --- one more than is allowed


@on_both_machines
@pytest.mark.parametrize("size", [1, 5, limits.TINY_DATA - 1])
def test_a_call_in_tiny_pieces(machine: MakeHttp2, size: int) -> None:
    talk = Talk(machine)
    talk.open()
    talk.data(LONG + bytes(limits.GOOD_DATA))
    assert talk.taken(repeat(bytes(size), 10_000)) == FREE + BURST


@on_both_machines
def test_a_message_of_a_worker_in_tiny_pieces(machine: MakeHttp2) -> None:
    talk = Talk(machine)
    talk.open(path=WORK)
    talk.data(frame(pb.WorkerMessage(register=REGISTER).SerializeToString()))
    stream = talk.events[0].stream
    assert talk.taken([LONG, *repeat(b"x", 10_000)]) == FREE + BURST
    assert talk.events[-1] == WorkerGone(stream, peer_limits.TINY_DATA.says)


@on_both_machines
def test_many_in_one_read(machine: MakeHttp2) -> None:
    talk = Talk(machine)
    talk.open()
    talk.data(LONG)
    other = raw.frame(raw.HEADERS, raw.END_HEADERS, 3, raw.block()) + raw.frame(raw.DATA, raw.END_STREAM, 3, MESSAGE)
    assert not talk.say(other + raw.frame(raw.DATA, 0, 1, b"x") * 5_000)
    assert [type(event) for event in talk.events] == [CallReceived, CallEnded]
    assert talk.server.exceeded == [peer_limits.TINY_DATA] and talk.server._streams == {}


@on_both_machines
def test_what_comes_behind_them_in_the_same_read_is_not_looked_at(machine: MakeHttp2) -> None:
    """Not even a breach of HTTP/2, which the layer below has seen already."""
    talk = Talk(machine)
    talk.open()
    talk.data(LONG)
    assert not talk.say(raw.frame(raw.DATA, 0, 1, b"x") * 2_000 + raw.frame(raw.PING, 0, 0, b"short"))
    assert talk.server.exceeded == [peer_limits.TINY_DATA]
    assert talk.server.receive_eof(START) == [] and talk.server._streams == {}


def test_messages_that_are_small_and_cut_all_the_same() -> None:
    talk = Talk()
    talk.open(path=WORK)
    talk.data(frame(pb.WorkerMessage(register=REGISTER).SerializeToString()))
    taken = talk.taken(piece for beat in repeat(BEAT, 10_000) for piece in cut(beat, 1))
    counted = len(BEAT) - 1 - FREE
    assert taken // len(BEAT) == BURST // counted


def test_over_many_streams() -> None:
    """Each has a few for nothing."""
    talk = Talk()
    for stream_id in range(1, 401, 2):
        talk.open(stream_id)
    for piece in (LONG, *repeat(b"x", FREE - 1 + BURST // 200)):
        for stream_id in range(1, 401, 2):
            assert talk.data(piece, stream_id)
    assert not talk.data(b"x", 399)


def test_they_come_back_at_their_rate() -> None:
    talk = Talk()
    talk.open()
    talk.data(LONG)
    assert all(talk.data(b"x") for _ in range(FREE - 1 + BURST))
    talk.now += SECOND
    assert talk.taken(repeat(b"x", 1_000)) == limits.TINY_DATA_RATE


@on_both_machines
def test_on_a_stream_whose_answer_waits_for_a_window(machine: MakeHttp2) -> None:
    """Nothing that comes means anything any more, and it costs as much."""
    talk = Talk(machine, initial_window_size=0)
    talk.open()
    talk.data(MESSAGE, end=True)
    block = raw.block().replace(b"application/grpc", b"application/what")
    talk.say(raw.frame(raw.HEADERS, raw.END_HEADERS, 3, block))
    assert talk.server._streams[3].closing
    assert talk.taken(repeat(b"x", 10_000), 3) == FREE + BURST


def answered_early(talk: Talk) -> None:
    talk.say(raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block(path="/a/b")))


def dropped(talk: Talk) -> None:
    talk.open()
    talk.server.http2.reset(1, 0)


@pytest.mark.parametrize("over", [answered_early, dropped])
def test_on_a_stream_that_is_over_for_us(over: Any) -> None:
    talk = Talk()
    over(talk)
    assert talk.taken(repeat(b"x", 10_000)) == 2 * limits.PRIORITIES_PER_STREAM


def test_they_are_counted_among_what_is_useless_and_forgiven() -> None:
    talk = Talk()
    talk.open()
    talk.data(LONG)
    assert talk.server.useless(START) == 0
    talk.say(raw.frame(raw.DATA, 0, 1, b"x") * (FREE - 1 + 500))
    assert talk.server.useless(START) == 500
    assert talk.server.useless(START + 10 * SECOND) == 500 - 10 * limits.TINY_DATA_RATE


# --- clients that mean well


def reply(talk: Talk) -> None:
    event = talk.events.pop()
    assert isinstance(event, CallReceived)
    event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, b"", "", "")))
    talk.written.clear()


@on_both_machines
def test_heads_of_messages_that_come_apart(machine: MakeHttp2) -> None:
    """Of a thousand calls at a time, and of many after one another."""
    talk = Talk(machine)
    ids = [2 * number + 1 for number in range(1_000)]
    for stream_id in ids:
        talk.open(stream_id)
    for piece in (MESSAGE[:5], MESSAGE[5:], b""):
        for stream_id in ids:
            assert talk.data(piece, stream_id, end=not piece)
    while talk.events:
        reply(talk)
    for stream_id in range(2_001, 6_001, 2):
        talk.open(stream_id)
        assert talk.data(MESSAGE[:5], stream_id) and talk.data(MESSAGE[5:], stream_id, end=True)
        reply(talk)
    assert talk.server.useless(START) == 0


def test_small_messages_of_a_worker() -> None:
    talk = Talk()
    talk.open(path=WORK)
    talk.data(frame(pb.WorkerMessage(register=REGISTER).SerializeToString()))
    for _ in range(5_000):
        assert talk.data(BEAT)
    for _ in range(2_000):
        assert talk.data(BEAT[:5]) and talk.data(BEAT[5:])
    for piece in cut(BEAT * 3_000, len(BEAT) // 2 + 1):
        assert talk.data(piece)
    assert sum(isinstance(event, WorkerSent) for event in talk.events) == 10_001
    assert talk.server.useless(START) == 0


def test_a_long_message_in_small_pieces() -> None:
    talk = Talk()
    talk.open()
    assert talk.data(LONG)
    assert all(talk.data(piece) for piece in cut(bytes(4 << 20), limits.TINY_DATA))
    assert talk.server.useless(START) == 0


def test_what_windows_cut_off_a_long_message() -> None:
    talk = Talk()
    talk.open()
    assert talk.data(LONG)
    for _ in range((4 << 20) // (limits.GOOD_DATA + 2 * FREE)):
        assert talk.data(bytes(limits.GOOD_DATA))
        assert all(talk.data(bytes(2)) for _ in range(FREE))
    assert talk.server.useless(START) == 0


@on_both_machines
@pytest.mark.parametrize("size", range(1, 8))
def test_somebody_who_tries_how_a_message_may_be_cut(machine: MakeHttp2, size: int) -> None:
    talk = Talk(machine)
    for number in range(20):
        talk.open(2 * number + 1)
        *pieces, last = cut(MESSAGE, size)
        assert all(talk.data(piece, 2 * number + 1) for piece in pieces)
        assert talk.data(last, 2 * number + 1, end=True)
        reply(talk)


def test_whole_messages_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual way costs nothing."""
    talk = Talk()
    talk.open(path=WORK)
    talk.data(frame(pb.WorkerMessage(register=REGISTER).SerializeToString()))
    monkeypatch.delattr(type(talk.server._pieces), "note")
    assert all(islice((talk.data(BEAT) for _ in range(100)), 100))
    talk.open(3)
    assert talk.data(MESSAGE, 3, end=True)
    whole = raw.frame(raw.HEADERS, raw.END_HEADERS, 5, raw.block()) + raw.frame(raw.DATA, raw.END_STREAM, 5, MESSAGE)
    assert talk.say(whole) and isinstance(talk.events[-1], CallReceived)
