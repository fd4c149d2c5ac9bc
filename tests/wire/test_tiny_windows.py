"""A peer that opens its windows by bytes: what it can make us do with that is bounded, and nobody's answer is lost."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio import limits
from cronoq_sansio.service.messages import CallReceived, TaskResult
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import peer_limits
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.http2_server import Http2Server
from tests.acceptance.flooder import update, waits
from tests.wire import raw
from tests.wire.peer import START, Peer, authenticate, pb

STREAMS = 300
OUTPUT = bytes(100_000)


class Greedy:
    """A peer with many calls that are all answered with something large."""

    def __init__(self, window: int, output: bytes = OUTPUT) -> None:
        self.server = GrpcServer(LimitSettings(), START, authenticate)
        hello = raw.PREFACE + raw.settings(initial_window_size=window)
        calls = self.server.receive(hello + waits(1, STREAMS), START)
        self.encoded = 0
        for event in calls:
            assert isinstance(event, CallReceived)
            sink: Any = event.call.sink
            sink.route = replace(sink.route, encode=partial(self.encode, sink.route.encode))
            sink.reply(TaskResult(1, 6, output, "", ""))
        self.take()

    def encode(self, encode: Callable[[Any], bytes], message: Any) -> bytes:
        self.encoded += 1
        return encode(message)

    def take(self) -> list[tuple[int, int, int, bytes]]:
        data = b""
        while self.server.wants_write():
            data += self.server.take(1 << 18)
        return raw.cut_frames(data)

    def say(self, data: bytes) -> list[tuple[int, int, int, bytes]]:
        self.server.receive(data, START)
        return self.take()


def test_a_byte_for_the_connection_is_one_turn_of_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Greedy((1 << 31) - 1)
    turns = 0
    pump = GrpcStream.pump

    def counted(stream: GrpcStream) -> int:
        nonlocal turns
        turns += 1
        return pump(stream)

    monkeypatch.setattr(GrpcStream, "pump", counted)
    looks = 0
    sendable = Http2Server.sendable

    def looked(server: Http2Server, stream_id: int) -> int:
        nonlocal looks
        looks += 1
        return sendable(server, stream_id)

    monkeypatch.setattr(Http2Server, "sendable", looked)
    for _ in range(100):
        data = [body for kind, _, _, body in peer.say(update(0, 1)) if kind == raw.DATA]
        assert list(map(len, data)) == [1]
    assert turns <= 200 and looks <= 500, "and not 300 for each"


@pytest.mark.parametrize("of_stream", [False, True])
def test_bytes_buy_no_more_bytes(of_stream: bool) -> None:
    """Each is answered with a frame of DATA, but such a frame pays for no further update."""
    peer = Greedy(0 if of_stream else (1 << 31) - 1)
    allowed = limits.WINDOW_UPDATES + limits.WINDOW_UPDATES_PER_STREAM * STREAMS + 10 * limits.WINDOW_UPDATES_PER_FRAME
    allowed += 65_535 // limits.WINDOW_UPDATE_BYTES  # what the window of the connection lets out at first
    updates = 0
    while not peer.server.closed:
        peer.say(update(2 * (updates % STREAMS) + 1 if of_stream else 0, 1))
        updates += 1
        assert updates <= allowed
    assert peer.server.exceeded == [peer_limits.WINDOW_UPDATES]


def test_a_narrow_window_that_is_opened_by_what_was_read_is_served() -> None:
    """A small device with a window of 1,000 bytes, which acknowledges each frame."""
    peer = Greedy(1_000)
    waiting = {2 * number + 1: 0 for number in range(10)}
    due = [update(0, 1 << 24), *(update(stream_id, 1_000) for stream_id in waiting)]
    while due:
        frames = peer.say(b"".join(due))
        assert not peer.server.closed
        due = [update(at, len(body)) for kind, _, at, body in frames if kind == raw.DATA and at in waiting]
        for kind, _, at, body in frames:
            if kind == raw.DATA and at in waiting:
                waiting[at] += len(body)
    assert min(waiting.values()) > len(OUTPUT) - 1_000


@pytest.mark.parametrize(("window", "most"), [(0, 1), (1, LimitSettings().max_message_bytes // len(OUTPUT) + 2)])
def test_large_answers_are_not_encoded_before_they_can_be_sent(window: int, most: int) -> None:
    """With a byte of each as many as one message of the largest size makes; the others wait for those."""
    peer = Greedy(window)
    assert peer.encoded <= most


@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=12),
    st.lists(st.integers(256, 4_000), min_size=1, max_size=30),
    st.integers(300, 5_000),
)
def test_nothing_is_stranded(sizes: list[int], steps: list[int], window: int) -> None:
    """The connection's window is used up first, and then opened by steps; each answer arrives in the end."""
    peer = Peer(window=window, connection_window=0)
    ids = []
    for size in [70_000, *sizes]:
        ids.append(peer.call(pb.WaitRequest(task=pb.TaskRef(id=1)), "/cronoq.v1.Tasks/Wait"))
        (event,) = peer.exchange()
        assert isinstance(event, CallReceived)
        event.call.sink.reply(TaskResult(1, 6, bytes(size), "", ""))  # type: ignore[attr-defined]
    peer.exchange()
    for step in steps:
        peer.client.increment_flow_control_window(step)
        peer.exchange()
    peer.client.increment_flow_control_window(1 << 20)
    peer.exchange()
    for stream_id in ids:
        assert peer.streams[stream_id].ended and len(peer.streams[stream_id].messages()) == 1
    assert not peer.server._blocked and not peer.server.starved and not peer.server.wants_write()
    assert not peer.server.closed
