"""Worker streams: what comes in, what goes out, and the ways in which one ends."""

from typing import Any

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import OUTBOUND_SPARE
from cronoq_sansio.service.messages import (
    AbortLease,
    Complete,
    EmptyMessage,
    Heartbeat,
    Register,
    Registered,
    SetSlots,
    Shutdown,
    WorkerConnected,
    WorkerGone,
    WorkerSent,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from tests.wire.peer import WORK, Peer

OK, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAVAILABLE = 0, 3, 5, 8, 9, 14
ENHANCE_YOUR_CALM = 11


def connected(peer: Peer, slots: int = 4) -> tuple[int, Any]:
    """A registered worker: stream id, `WorkerStream`."""
    stream_id = peer.work(slots)
    connect, register = peer.exchange()
    assert isinstance(connect, WorkerConnected) and isinstance(register, WorkerSent)
    assert register.message == Register("default", slots, "w", 3, ()) and register.stream is connect.stream
    connect.stream.max_queued = 2 * slots + OUTBOUND_SPARE
    connect.stream.sink.send(Registered(1, 30 * SECOND, slots, 1 << 24))
    assert peer.exchange() == []
    return stream_id, connect.stream


def received(peer: Peer, stream_id: int) -> list[str]:
    """Which messages the worker got."""
    found = [pb.ServerMessage.FromString(data).WhichOneof("msg") for data in peer.streams[stream_id].messages()]
    return [name or "" for name in found]


def test_headers_go_out_with_the_first_message() -> None:
    peer = Peer()
    stream_id = peer.work()
    (connect, _) = peer.exchange()
    assert peer.streams[stream_id].headers == {}
    connect.stream.sink.send(Registered(1, SECOND, 4, 5))
    peer.exchange()
    assert peer.streams[stream_id].headers == {":status": "200", "content-type": "application/grpc"}
    assert received(peer, stream_id) == ["registered"] and not peer.streams[stream_id].ended


def test_many_messages_in_one_frame_and_one_over_many() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    messages = [pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=number)) for number in range(50)]
    messages.append(pb.WorkerMessage(complete=pb.Complete(lease=50, output=b"o" * 70_000)))
    messages.append(pb.WorkerMessage(set_slots=pb.SetSlots(slots=1)))
    messages.append(pb.WorkerMessage())
    data = b"".join(frame(message.SerializeToString()) for message in messages)
    peer.data(stream_id, data)
    expected = [Heartbeat(number) for number in range(50)]
    expected += [Complete(50, b"o" * 70_000, ""), SetSlots(1), EmptyMessage()]  # type: ignore[list-item]
    assert peer.exchange() == [WorkerSent(stream, message) for message in expected]


def test_messages_to_the_worker_share_frames() -> None:
    peer = Peer()
    stream_id, stream = connected(peer, slots=100)
    before = peer.streams[stream_id].frames
    for number in range(100):
        stream.sink.send(AbortLease(number, "cancelled"))
    peer.exchange()
    assert received(peer, stream_id)[1:] == ["abort"] * 100
    assert peer.streams[stream_id].frames == before + 1


@pytest.mark.parametrize(
    ("rejection", "status"),
    [(None, OK), (Rejection(Code.NOT_FOUND, "no pool"), NOT_FOUND), (Rejection(Code.FAILED_PRECONDITION, "old"), 9)],
)
def test_closing_flushes_what_is_queued(rejection: Rejection | None, status: int) -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    sink = stream.sink
    sink.send(Shutdown("bye", False))
    sink.close(rejection)
    sink.send(AbortLease(1, "late"))
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert received(peer, stream_id) == ["registered", "shutdown"]
    assert seen.status == status and seen.ended and seen.reset is None
    peer.say(stream_id, pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=1)))  # crossed the end: nobody hears it
    assert peer.exchange() == []


def test_refusing_before_the_first_message_is_trailers_only() -> None:
    peer = Peer()
    stream_id = peer.work()
    connect, _ = peer.exchange()
    connect.stream.sink.close(Rejection(Code.NOT_FOUND, "no pool named x"))
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.headers["grpc-status"] == "5" and seen.trailers == {} and seen.ended


# --- the worker's fault

BAD: dict[str, tuple[bytes, int, str]] = {
    "undecodable": (frame(b"\xff"), INVALID_ARGUMENT, "the message is not a valid cronoq.v1.WorkerMessage"),
    "too large": ((8_193).to_bytes(5, "big"), RESOURCE_EXHAUSTED, "message of 8193 bytes is above the limit of 8192"),
    "flags": (b"\x05\0\0\0\0", INVALID_ARGUMENT, "message flags are 5"),
    "bad labels": (
        frame(
            pb.WorkerMessage(register=pb.Register(protocol_version=3, labels={"": "x"})).SerializeToString(),
        ),
        INVALID_ARGUMENT,
        "labels: a name is empty",
    ),
}


@pytest.mark.parametrize(("data", "status", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("registered", [True, False])
def test_a_bad_message_ends_the_stream_with_its_reason(data: bytes, status: int, words: str, registered: bool) -> None:
    peer = Peer(LimitSettings(max_message_bytes=8_192))
    if registered:
        stream_id, stream = connected(peer)
    else:
        stream_id = peer.headers(WORK)
        stream = peer.exchange()[0].stream
    good = frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=7)).SerializeToString())
    peer.data(stream_id, good + data + good)
    sent, gone = peer.exchange()
    assert sent == WorkerSent(stream, Heartbeat(7))
    assert isinstance(gone, WorkerGone) and gone.stream is stream and gone.why.startswith(words)
    seen = peer.streams[stream_id]
    assert seen.status == status and seen.message.startswith(words) and seen.ended
    peer.data(stream_id, good)
    assert peer.exchange() == []
    _, other = connected(peer)  # the connection goes on
    assert other is not stream


def test_half_closing_is_a_disconnect() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    stream.sink.send(AbortLease(1, "queued"))
    peer.data(stream_id, frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=7)).SerializeToString()), end=True)
    data = peer.client.data_to_send()
    events = peer.server.receive(data, peer.now)
    assert events == [WorkerSent(stream, Heartbeat(7)), WorkerGone(stream, "the worker closed its side of the stream")]
    peer.exchange()
    seen = peer.streams[stream_id]
    assert seen.status == OK and seen.ended and received(peer, stream_id) == ["registered"]


def test_half_closing_without_a_message() -> None:
    peer = Peer()
    for end_with_headers in (True, False):
        stream_id = peer.headers(WORK, end=end_with_headers)
        if not end_with_headers:
            peer.data(stream_id, b"", end=True)
        connect, gone = peer.exchange()
        assert isinstance(gone, WorkerGone) and gone.stream is connect.stream
        assert peer.streams[stream_id].status == INVALID_ARGUMENT
        assert "first one must be Register" in peer.streams[stream_id].message


def test_half_closing_within_a_message() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    peer.data(stream_id, b"\0\0\0\0\5abc", end=True)
    assert peer.exchange() == [WorkerGone(stream, "the worker closed its side of the stream")]
    assert peer.streams[stream_id].status == INVALID_ARGUMENT


def test_the_service_may_still_say_why_after_the_worker_closed() -> None:
    peer = Peer()
    stream_id = peer.headers(WORK)
    peer.data(stream_id, frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=7)).SerializeToString()), end=True)
    events = peer.server.receive(peer.client.data_to_send(), peer.now)
    assert [type(event) for event in events] == [WorkerConnected, WorkerSent, WorkerGone]
    sink = events[0].stream.sink  # type: ignore[union-attr]
    sink.send(Registered(1, SECOND, 1, 1))
    sink.close(Rejection(Code.INVALID, "the first message must be Register"))
    sink.close(None)
    peer.exchange()
    seen = peer.streams[stream_id]
    assert seen.status == INVALID_ARGUMENT and seen.message == "the first message must be Register" and not seen.data


@pytest.mark.parametrize("how", ["reset", "lost", "broken"])
def test_other_ends(how: str) -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    if how == "reset":
        peer.client.reset_stream(stream_id, 8)
        events: list[Any] = peer.exchange()
    elif how == "lost":
        events = peer.server.receive_eof(peer.now)
    else:
        events = peer.server.receive(b"\xff" * 9, peer.now)
    (gone,) = events
    assert isinstance(gone, WorkerGone) and gone.stream is stream and gone.why
    for action in (lambda: stream.sink.send(AbortLease(1, "x")), lambda: stream.sink.close(None)):
        action()
    assert peer.server.take_events() == [] and peer.server.receive_eof(peer.now) == []


def test_a_stream_that_the_service_closed_is_not_gone_again() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    stream.sink.close(None)
    peer.data(stream_id, b"", end=True)
    assert peer.server.receive(peer.client.data_to_send(), peer.now) == []
    assert peer.server.receive_eof(peer.now) == []


# --- a worker that does not read


def test_one_message_too_many_cuts_the_stream() -> None:
    peer = Peer()
    stream_id, stream = connected(peer, slots=2)
    for number in range(20):
        stream.sink.send(AbortLease(number, "x"))
    assert peer.server.take_events() == []
    stream.sink.send(AbortLease(20, "x"))
    assert peer.server.take_events() == [WorkerGone(stream, "worker does not read")]
    stream.sink.send(AbortLease(21, "x"))
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.reset == ENHANCE_YOUR_CALM and received(peer, stream_id) == ["registered"]


def test_what_flow_control_took_does_not_count_against_the_queue() -> None:
    peer = Peer()
    stream_id, stream = connected(peer, slots=2)
    for number in range(500):
        stream.sink.send(AbortLease(number, "x"))
        if number % 15 == 0:
            assert peer.exchange() == []
    assert peer.exchange() == []
    assert received(peer, stream_id) == ["registered"] + ["abort"] * 500


# --- the end of the server


def test_the_end_of_a_term_tells_every_worker() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    peer.server.refuse_open(Rejection(Code.UNAVAILABLE, "over"), Shutdown("not leader", True))
    assert peer.exchange() == []
    assert received(peer, stream_id) == ["registered", "shutdown"] and not peer.streams[stream_id].ended
    peer.say(stream_id, pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=7)))
    assert peer.exchange() == []  # the term that knew this stream is gone
    (sink,) = peer.server._streams.values()
    assert sink is stream.sink
    sink.close(Rejection(Code.UNAVAILABLE, "over"))
    peer.exchange()
    assert peer.streams[stream_id].status == UNAVAILABLE
    assert not peer.server._streams and peer.server.receive_eof(peer.now) == []


def test_finishing_ends_worker_streams_with_a_status() -> None:
    peer = Peer()
    stream_id, stream = connected(peer)
    peer.server.finish()
    peer.watch(peer.server.take(1 << 20))
    assert peer.streams[stream_id].status == UNAVAILABLE
    assert peer.server.receive_eof(peer.now) == [WorkerGone(stream, "the server closes the connection; connect again")]
