"""Much traffic on one connection: memory stays flat, a limit on streams loses no call, a window may fall below zero."""

import gc
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.limits import MAX_CLOSED_STREAMS, RESET_RATE
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import CallReceived, SubmitReply, TaskResult
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc import GrpcServer
from tests.acceptance.ledger import record
from tests.wire import client_peer, raw
from tests.wire.peer import START, Peer

AT_ONCE = 20
"""Calls of one read."""
GROWTH = 16 << 10
"""Bytes that a connection may hold more after many calls than after a few, with as many resets remembered as ever are.

A call that is not forgotten costs about a thousand: 18 MB after 20,000.
"""
RESETS = 2 * MAX_CLOSED_STREAMS
MESSAGE = frame(pb.SubmitRequest(task=pb.TaskSpec(key="k", payload=b"p" * 50)).SerializeToString())
BLOCKS = [raw.block(), raw.block(("authorization", "Bearer of something")), raw.block(("grpc-timeout", "1S"))]


def reset_many(server: GrpcServer, now: int) -> int:
    """Fill what is remembered of streams that were reset; what time it is then."""
    for number in range(RESETS):
        now += SECOND // RESET_RATE + 1
        stream_id = 2 * number + 1
        head = raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, BLOCKS[0])
        server.receive(head + raw.frame(raw.RST_STREAM, 0, stream_id, b"\0\0\0\x08"), now)
        server.take(1 << 20)
    return now


def reads(calls: int) -> Iterator[bytes]:
    """What a client sends: most calls whole, some in parts, some reset, some refused by what they ask for."""
    block = raw.block(path="/cronoq.v1.Tasks/Nothing")
    for first in range(0, calls, AT_ONCE):
        data = b""
        for number in range(first, first + AT_ONCE):
            stream_id = 2 * (RESETS + number) + 1
            data += raw.frame(
                raw.HEADERS, raw.END_HEADERS, stream_id, block if number % 50 == 7 else BLOCKS[number % 3]
            )
            if number % 10 == 3:
                data += raw.frame(raw.DATA, 0, stream_id, MESSAGE[:20])
                data += raw.frame(raw.DATA, raw.END_STREAM | raw.PADDED, stream_id, b"\2" + MESSAGE[20:] + b"\0\0")
            elif number % 500 == 11:
                data += raw.frame(raw.RST_STREAM, 0, stream_id, b"\0\0\0\x08")
            else:
                data += raw.frame(raw.DATA, raw.END_STREAM, stream_id, MESSAGE)
        yield data


def run(server: GrpcServer, calls: int) -> tuple[int, int]:
    """Serve; how many calls were received, and by how much the memory grew in the last nine tenths."""
    received, before = 0, 0
    tracemalloc.start()
    try:
        now = reset_many(server, START)
        for number, data in enumerate(reads(calls)):
            now += 10_000_000
            for event in server.receive(data, now):
                if isinstance(event, CallReceived):
                    received += 1
                    event.call.sink.reply(Submitted(received, False))
            assert server.take_events() == []
            written = server.take(1 << 20)
            if number == calls // AT_ONCE // 10:
                before = tracemalloc.get_traced_memory()[0]
        del data, written, event
        return received, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def served(calls: int) -> None:
    server = GrpcServer(LimitSettings(max_concurrent_streams=AT_ONCE), START, authenticate)
    server.receive(raw.HELLO + raw.frame(raw.WINDOW_UPDATE, 0, 0, b"\x7f\0\0\0"), START)
    received, growth = run(server, calls)
    record(f"{calls} calls on one connection", received=received, growth_bytes=growth)
    assert not server.closed and server.http2._streams == {} and server._streams == {} and server.calls == {}
    unknown = len(range(7, calls, 50))
    resets = len([number for number in range(11, calls, 500) if number % 10 != 3 and number % 50 != 7])
    assert received == calls - unknown - resets
    assert growth < GROWTH


def test_20_000_calls_on_one_connection() -> None:
    served(20_000)


@pytest.mark.long
def test_1_000_000_calls_on_one_connection() -> None:
    served(1_000_000)


def test_500_parallel_calls_over_a_limit_of_100() -> None:
    """A client that knows the limit keeps to it; every call is answered, in whatever order."""
    peer = Peer(LimitSettings(max_concurrent_streams=100))
    waiting = [pb.SubmitRequest(task=pb.TaskSpec(key=f"k{number}"), wait=True) for number in range(500)]
    answered: dict[int, int] = {}
    while waiting or peer.client.open_outbound_streams:
        while waiting and peer.client.open_outbound_streams < peer.client.remote_settings.max_concurrent_streams:
            peer.call(waiting.pop())
        for event in reversed(peer.exchange()):
            number = answered[event.call.sink.id] = len(answered) + 1
            event.call.sink.reply(Submitted(number, False))
        peer.exchange()
    assert len(answered) == 500 and not peer.server.closed
    for stream_id, number in answered.items():
        assert pb.SubmitResponse.FromString(peer.streams[stream_id].messages()[0]).id == number


@pytest.mark.parametrize("window", [0, 1, 1_000])
def test_an_answer_whose_window_falls_below_zero_comes_whole(window: int) -> None:
    peer = Peer(window=50_000, credit=False)
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec(), wait=True))
    (event,) = peer.exchange()
    output = bytes(range(256)) * 1_000
    event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, output, "", "")))
    peer.exchange()
    seen = peer.streams[stream_id]
    assert len(seen.data) == 50_000 and not seen.ended
    peer.client.update_settings({4: window})
    peer.exchange()
    assert peer.server.http2.sendable(stream_id) == window - 50_000
    peer.client.increment_flow_control_window(50_000 - window, stream_id)
    peer.exchange()
    assert len(seen.data) == 50_000
    while not seen.ended:
        peer.client.increment_flow_control_window(33_333, stream_id)
        peer.client.increment_flow_control_window(33_333)
        peer.exchange()
    assert pb.SubmitResponse.FromString(seen.messages()[0]).result.output == output and seen.status == 0


@pytest.mark.parametrize("window", [0, 1, 1_000])
def test_a_request_whose_window_falls_below_zero_comes_whole(window: int) -> None:
    """The same of our client: the server takes back what it allowed, while a long message is under way."""
    client = client_peer.connected(settings=raw.settings(initial_window_size=50_000))
    call = client_peer.start(client, body := bytes(range(256)) * 1_000)
    sent = [frame for frame in client_peer.sent(client) if frame[0] == raw.DATA]
    assert sum(len(frame[3]) for frame in sent) == 50_000
    client.receive(raw.settings(initial_window_size=window), START)
    assert client.http2.sendable(call.stream_id) == window - 50_000
    update = struct.pack(">L", 50_000 - window)
    client.receive(raw.frame(raw.WINDOW_UPDATE, 0, call.stream_id, update), START)
    assert [frame[0] for frame in client_peer.sent(client)] == [raw.SETTINGS], "nothing but the acknowledgement"
    while not sent[-1][1] & raw.END_STREAM:
        for stream_id in (0, call.stream_id):
            client.receive(raw.frame(raw.WINDOW_UPDATE, 0, stream_id, struct.pack(">L", 33_333)), START)
        sent += client_peer.sent(client)
    assert b"".join(frame[3] for frame in sent) == client_peer.message(body)


IDLE = 12 << 10
"""Bytes of a connection that had some calls and is idle: 4 KiB without any, 7 KiB after five."""
MOST = 768 << 10
"""The most that a peer can leave behind on a connection without a stream: resets, header blocks, and both tables."""


def traced(make: Callable[[], object], count: int) -> int:
    """Bytes of each of so many objects."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        made = [make() for _ in range(count)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // len(made)
    finally:
        tracemalloc.stop()


def after_calls(calls: int) -> GrpcServer:
    server = GrpcServer(LimitSettings(), START, authenticate)
    server.receive(raw.HELLO + raw.frame(raw.SETTINGS, raw.ACK, 0), START)
    for stream_id in range(1, 2 * calls, 2):
        head = raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, BLOCKS[1])
        for event in server.receive(head + raw.frame(raw.DATA, raw.END_STREAM, stream_id, MESSAGE), START):
            event.call.sink.reply(Submitted(1, False))  # type: ignore[union-attr]
        assert server.take_events() == []
    server.take(1 << 20)
    return server


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_an_idle_connection_takes_little_memory(calls: int) -> None:
    size = traced(lambda: after_calls(calls), 100)
    record(f"an idle connection after {calls} calls", machine_bytes=size)
    assert size < IDLE


def test_what_a_peer_can_leave_behind_is_bounded() -> None:
    def filled() -> GrpcServer:
        server = GrpcServer(LimitSettings(), START, authenticate)
        server.receive(raw.HELLO, START)
        now = reset_many(server, START)
        entry = b"\x40\x01x" + b"\x7f\xc9\x1e" + b"y" * 4_040  # one that leaves no room for others
        for number in range(100):
            refused = raw.block(path=f"/{number:03}") + b"\x83" * 150  # kept, with many fields
            stream_id = 2 * (RESETS + number) + 1
            block = entry if number == 0 else refused
            server.receive(raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, stream_id, block), now + number)
            server.take(1 << 20)
        assert not server.closed and not server._streams and len(server.http2._decoder._kept) > 30
        assert len(server.http2._over._ends) == MAX_CLOSED_STREAMS
        return server

    size = traced(filled, 1)
    record("what a peer can leave behind on a connection", machine_bytes=size)
    assert size < MOST
