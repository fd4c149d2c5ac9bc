"""Flow control both ways, bounded memory, and streams that make no progress."""

import gzip
from itertools import pairwise
from typing import Any

import pytest

from cronoq_sansio import limits as fixed
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.service.messages import (
    AbortLease,
    CallEnded,
    CallReceived,
    Complete,
    Registered,
    SubmitReply,
    TaskResult,
    WorkerGone,
    WorkerSent,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc_stream import GrpcStream
from tests.wire.peer import SUBMIT, Peer

RESOURCE_EXHAUSTED = 8
MIB = 1 << 20


def answer(peer: Peer, output: bytes) -> tuple[int, Any]:
    """A call whose reply carries `output`."""
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    (event,) = peer.exchange()
    assert isinstance(event, CallReceived)
    event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, output, "", "")))  # type: ignore[attr-defined]
    return stream_id, event.call


def worker(peer: Peer, slots: int = 1_000) -> tuple[int, Any]:
    stream_id = peer.work(slots)
    stream = peer.exchange()[0].stream
    stream.max_queued = 2 * slots + 16
    return stream_id, stream


# --- sending


def test_large_replies_that_nobody_takes_are_not_all_encoded() -> None:
    """A peer asks often and takes a byte of each reply: no more than what is being sent is there as bytes."""
    limits = LimitSettings(max_message_bytes=4_096)
    peer = Peer(limits, window=1, credit=False)
    ids = [answer(peer, b"o" * 3_000)[0] for _ in range(20)]
    peer.exchange()
    held = [len(stream.partial) for stream in peer.server._streams.values() if stream.partial is not None]
    assert len(held) == 2 and sum(held) <= 2 * limits.max_message_bytes
    for stream_id in ids:  # each in its turn gets through
        peer.client.increment_flow_control_window(100_000, stream_id)
        peer.exchange()
    assert all(peer.streams[stream_id].ended for stream_id in ids)
    assert peer.server._encoded == 0 and not peer.server._streams


def test_a_stream_that_stands_back_for_another_is_not_reset_as_stalled() -> None:
    peer = Peer(LimitSettings(max_message_bytes=4_096), window=1, credit=False)
    for _ in range(4):
        answer(peer, b"o" * 3_000)
    peer.exchange()
    left = []
    for _ in range(8):
        peer.timer(fixed.STALL_SCAN)
        peer.exchange()
        left.append(len(peer.server._streams))
    assert left[:3] == [4, 4, 4] and 2 in left and left[-1] == 0, "two at a time: those that are being sent"


def test_a_reply_waits_for_the_streams_window() -> None:
    peer = Peer(window=100, credit=False)
    stream_id, _ = answer(peer, b"o" * 250)
    peer.exchange()
    seen = peer.streams[stream_id]
    assert len(seen.data) == 100 and not seen.ended and not peer.server.wants_write()
    while not seen.ended:
        before = len(seen.data)
        peer.client.increment_flow_control_window(60, stream_id)
        peer.exchange()
        assert len(seen.data) == before + 60 or seen.ended
    assert seen.status == 0
    assert pb.SubmitResponse.FromString(seen.messages()[0]).result.output == b"o" * 250


def test_replies_wait_for_the_connections_window() -> None:
    peer = Peer(connection_window=65_535, credit=False)
    ids = [answer(peer, b"o" * 40_000)[0] for _ in range(3)]
    peer.exchange()
    assert sum(len(peer.streams[stream_id].data) for stream_id in ids) == 65_535
    peer.client.increment_flow_control_window(100_000)
    peer.exchange()
    assert all(peer.streams[stream_id].status == 0 for stream_id in ids)


def test_a_larger_initial_window_in_settings_opens_the_streams() -> None:
    peer = Peer(window=0)
    stream_id, _ = answer(peer, b"o" * 40_000)
    peer.exchange()
    assert not peer.streams[stream_id].data
    peer.client.update_settings({4: 1_000_000})
    peer.exchange()
    assert peer.streams[stream_id].status == 0


def test_a_window_below_zero_is_waited_out() -> None:
    peer = Peer(window=1_000, credit=False)
    stream_id, _ = answer(peer, b"o" * 3_000)
    peer.exchange()
    peer.client.update_settings({4: 100})
    peer.exchange()
    peer.client.increment_flow_control_window(500, stream_id)
    peer.exchange()
    assert len(peer.streams[stream_id].data) == 1_000
    peer.client.increment_flow_control_window(5_000, stream_id)
    peer.exchange()
    assert peer.streams[stream_id].ended


def test_streams_take_turns() -> None:
    peer = Peer()
    large, small = (peer.call(pb.SubmitRequest(task=pb.TaskSpec())) for _ in range(2))
    for event, output in zip(peer.exchange(), (b"o" * 900_000, b"o"), strict=True):
        event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, output, "", "")))
    order = []
    while peer.server.wants_write():
        peer.watch(peer.server.take(20_000))
        order.append((peer.streams[large].ended, peer.streams[small].ended))
    assert (False, True) in order and order[-1] == (True, True)


def test_messages_are_encoded_when_flow_control_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(window=50, credit=False)
    stream_id, stream = worker(peer)
    encoded: list[Any] = []
    sink: GrpcStream = stream.sink
    encode = sink.encode
    sink.encode = lambda message: encoded.append(message) or encode(message)
    for number in range(1_000):
        stream.sink.send(AbortLease(number, "x" * 30))
    peer.exchange()
    assert len(peer.streams[stream_id].data) == 50 and 1 <= len(encoded) <= 3
    assert len(sink.queue) + len(encoded) == 1_000
    peer.client.increment_flow_control_window(100_000, stream_id)
    peer.exchange()
    assert len(peer.streams[stream_id].messages()) == 1_000


def test_a_worker_without_window_is_cut_when_its_queue_is_full() -> None:
    peer = Peer(window=10, credit=False)
    stream_id, stream = worker(peer, slots=4)
    events = []
    for number in range(100):
        stream.sink.send(AbortLease(number, "x"))
        events += peer.exchange()
    assert events == [WorkerGone(stream, "worker does not read")]
    assert peer.streams[stream_id].reset == 11


def test_take_gives_about_what_is_asked_for() -> None:
    peer = Peer()
    answer(peer, b"o" * 500_000)
    while peer.server.wants_write():
        data = peer.server.take(30_000)
        assert 0 < len(data) <= 30_000
        assert peer.server.http2.unsent <= 65_536  # nothing is encoded far ahead
        peer.watch(data)


# --- receiving


def test_large_messages_get_credit_as_they_come() -> None:
    peer = Peer()
    payload = bytes(range(256)) * 40_000  # 10 MB, ten times the window of a stream
    stream_id = peer.headers()
    data = frame(pb.SubmitRequest(task=pb.TaskSpec(payload=payload)).SerializeToString())
    events: list[Any] = []
    while data:
        room = min(peer.client.local_flow_control_window(stream_id), 16_384, len(data))
        assert room > 0, "the server gives no credit"
        peer.client.send_data(stream_id, data[:room], end_stream=room == len(data))
        data = data[room:]
        events += peer.exchange()
    assert [event.request.spec.payload for event in events] == [payload]


def fill(peer: Peer, stream_id: int, size: int) -> int:
    """Send up to `size` bytes as far as the windows allow; how many went."""
    sent = 0
    while sent < size:
        room = min(peer.client.local_flow_control_window(stream_id), 16_384, size - sent)
        if room <= 0:
            break
        peer.client.send_data(stream_id, b"x" * room)
        sent += room
        peer.exchange()
    return sent


def begin(peer: Peer, size: int) -> int:
    """A unary call of which only the prefix has come."""
    stream_id = peer.headers(SUBMIT)
    peer.data(stream_id, size.to_bytes(5, "big"))
    peer.exchange()
    return stream_id


def missing(peer: Peer, stream_id: int) -> int:
    """Bytes that the message of a stream still lacks."""
    return peer.server._streams[stream_id].missing


def test_held_calls_get_no_credit_and_workers_do() -> None:
    peer = Peer()
    work, _ = worker(peer)
    peer.server.hold_credit(calls=True, workers=False)
    call = begin(peer, 10 * MIB)
    assert fill(peer, call, 10 * MIB) == fixed.INITIAL_WINDOW - 5
    peer.data(work, (3 * MIB).to_bytes(5, "big"))
    assert fill(peer, work, 3 * MIB - 1) == 3 * MIB - 1
    peer.server.hold_credit(calls=False, workers=False)
    peer.exchange()
    assert fill(peer, call, 9 * MIB) == 9 * MIB


def test_held_workers_get_no_credit() -> None:
    peer = Peer()
    work, stream = worker(peer)
    peer.server.hold_credit(calls=True, workers=True)
    complete = frame(pb.WorkerMessage(complete=pb.Complete(lease=1, output=b"o" * 10_000)).SerializeToString())
    heard = 0
    while peer.client.local_flow_control_window(work) >= len(complete):
        peer.data(work, complete)
        (event,) = peer.exchange()
        assert event == WorkerSent(stream, Complete(1, b"o" * 10_000, ""))
        heard += 1
    assert heard == 6  # what the first window allows, each of them whole
    peer.server.hold_credit(calls=True, workers=False)
    peer.exchange()
    assert peer.client.local_flow_control_window(work) == fixed.INITIAL_WINDOW


def test_held_streams_are_not_taken_for_stalled_ones() -> None:
    peer = Peer()
    peer.server.hold_credit(calls=True, workers=True)
    call = begin(peer, 10 * MIB)
    fill(peer, call, 10 * MIB)
    for _ in range(12):
        peer.timer(10 * SECOND)
        peer.exchange()
    assert peer.streams[call].reset is None and not peer.server.closed
    peer.server.hold_credit(calls=False, workers=False)
    peer.exchange()
    assert fill(peer, call, MIB) == MIB


def test_unfinished_messages_of_a_connection_are_bounded_and_none_is_refused() -> None:
    limit = 2 * MIB
    peer = Peer(LimitSettings(max_message_bytes=limit))
    ids = [begin(peer, limit) for _ in range(20)]
    credit = peer.server._credit
    while any(fill(peer, stream_id, min(100_000, missing(peer, stream_id))) for stream_id in ids):
        assert credit.promised <= 2 * limit + fixed.MESSAGE_WINDOW
        assert credit.unfinished <= credit.promised + 20 * fixed.INITIAL_WINDOW
    # The oldest is all there; some are as far as they were let, the others have used their first window.
    sizes = [peer.server._streams[stream_id].unfinished for stream_id in ids]
    assert sizes[0] == limit and sizes[-10:] == [fixed.INITIAL_WINDOW] * 10
    for number, stream_id in enumerate(ids):
        rest = missing(peer, stream_id)
        assert fill(peer, stream_id, rest) == rest, f"number {number} gets no credit when it is the oldest"
        peer.data(stream_id, b"", end=True)
        peer.exchange()
        assert peer.streams[stream_id].status == 3  # it was no task, but it was read
    assert (credit.unfinished, credit.promised, credit.withheld) == (0, 0, {})


def test_only_the_oldest_gets_credit_above_one_message() -> None:
    limit = 4 * MIB
    peer = Peer(LimitSettings(max_message_bytes=limit))
    ids = [begin(peer, limit) for _ in range(8)]
    for stream_id in ids[1:]:
        fill(peer, stream_id, 900_000)
    assert peer.server._credit.promised > limit
    assert fill(peer, ids[7], MIB) == 0
    assert fill(peer, ids[0], 2 * MIB) == 2 * MIB
    assert all(peer.streams[stream_id].status is None for stream_id in ids)


def test_many_messages_at_once_all_arrive() -> None:
    """A client that starts sixty at once and sends them in turns: each waits for its credit, none is refused."""
    peer = Peer(LimitSettings(max_message_bytes=MIB))
    payload = bytes(1_000_000)
    ids = [peer.headers() for _ in range(60)]
    data = frame(pb.SubmitRequest(task=pb.TaskSpec(payload=payload)).SerializeToString())
    for stream_id in ids:
        peer.data(stream_id, data, end=True)
    events = peer.exchange()
    assert [event.request.spec.payload for event in events] == [payload] * 60
    assert peer.unsent == [] and peer.server._credit.promised == 0


@pytest.mark.parametrize("size", [1, 30_000, 40_000, 65_530, 65_531, 65_535, 100_000, MIB - 5, MIB, MIB + 1, 3_000_000])
@pytest.mark.parametrize("cut", [1, 16_384])
def test_a_window_is_never_closed_at_the_end_of_a_message(size: int, cut: int) -> None:
    """A peer that ends its stream by an empty frame may do so only while its window is open."""
    peer = Peer()
    stream_id = begin(peer, size)
    assert fill(peer, stream_id, size - cut) == max(0, size - cut)
    assert fill(peer, stream_id, min(size, cut)) == min(size, cut)
    assert peer.client.local_flow_control_window(stream_id) > 0
    peer.data(stream_id, b"", end=True)
    peer.exchange()
    assert peer.streams[stream_id].status == 3  # it was no task, but it was read


@pytest.mark.parametrize("size", [65_530, 1_000_000])
def test_the_window_at_the_end_of_a_message_opens_when_calls_are_no_longer_held(size: int) -> None:
    peer = Peer()
    stream_id = begin(peer, size)
    fill(peer, stream_id, size - 10_000)
    peer.server.hold_credit(calls=True, workers=False)
    fill(peer, stream_id, 10_000)
    peer.server.hold_credit(calls=False, workers=False)
    peer.exchange()
    assert peer.client.local_flow_control_window(stream_id) > 0


def test_a_compressed_message_that_fills_the_first_window_can_be_ended() -> None:
    """It is whole, and unfolded it is larger than that window."""
    packed = gzip.compress(bytes(MIB))
    name = b"n" * (fixed.INITIAL_WINDOW - 5 - len(packed) - 1) + b"\0"
    packed = packed[:3] + b"\x08" + packed[4:10] + name + packed[10:]
    assert gzip.decompress(packed) == bytes(MIB)
    peer = Peer()
    stream_id = peer.headers(SUBMIT, ("grpc-encoding", "gzip"))
    peer.data(stream_id, b"\1" + len(packed).to_bytes(4, "big") + packed)
    peer.exchange()
    assert missing(peer, stream_id) == 0 < peer.client.local_flow_control_window(stream_id)


def test_small_messages_of_a_worker_get_credit_in_portions() -> None:
    peer = Peer()
    work, _ = worker(peer)
    beat = frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=1)).SerializeToString())
    windows = []
    for _ in range(100):
        peer.data(work, beat * 100)
        peer.exchange()
        windows.append(peer.client.local_flow_control_window(work))
    assert min(windows) > fixed.INITIAL_WINDOW // 3
    assert max(windows) <= fixed.INITIAL_WINDOW
    assert sum(later > earlier for earlier, later in pairwise(windows)) < 10
    assert peer.server._credit.promised == 0


def test_a_message_before_which_the_window_was_partly_used_gets_credit_too() -> None:
    peer = Peer()
    work, stream = worker(peer)
    for size in (20_000, 60_000, 10_000, 200_000, 5_000_000, 1):
        complete = frame(pb.WorkerMessage(complete=pb.Complete(lease=1, output=b"o" * size)).SerializeToString())
        peer.data(work, complete)
        assert peer.exchange() == [WorkerSent(stream, Complete(1, b"o" * size, ""))]
    assert peer.unsent == []


# --- stalls


def until_reset(peer: Peer, stream_id: int) -> int:
    """Seconds until the stream is reset, while the connection lives."""
    start = peer.now
    while peer.streams[stream_id].reset is None:
        peer.timer(SECOND)
        peer.exchange()
        peer.client.ping(b"8 bytes.")
        assert peer.now - start < 100 * SECOND, "not reset"
    return (peer.now - start) // SECOND


def test_a_reply_that_is_not_taken_is_reset() -> None:
    peer = Peer(window=100, credit=False)
    stream_id, _ = answer(peer, b"o" * 250)
    peer.exchange()
    assert 30 <= until_reset(peer, stream_id) <= 41
    assert peer.events[1:] == []  # the call was over for the service


def test_a_worker_that_does_not_take_its_leases_is_cut() -> None:
    peer = Peer(window=10, credit=False)
    stream_id, stream = worker(peer)
    stream.sink.send(Registered(1, SECOND, 4, 5))
    peer.exchange()
    assert 30 <= until_reset(peer, stream_id) <= 41
    assert peer.events[-1] == WorkerGone(stream, "the stream made no progress")


def test_progress_keeps_a_slow_worker() -> None:
    """Its stream goes on: how much of its queue it has not read is what counts."""
    peer = Peer(window=10, credit=False)
    stream_id, stream = worker(peer)
    stream.sink.send(AbortLease(1, "x" * 100))
    for _ in range(8):
        peer.exchange()
        peer.client.increment_flow_control_window(10, stream_id)
        for _ in range(25):
            peer.timer(SECOND)
            peer.client.ping(b"8 bytes.")
            peer.exchange()
    assert peer.streams[stream_id].reset is None and len(peer.streams[stream_id].data) >= 80


@pytest.mark.parametrize("size", [None, 0, 3, 10])
def test_a_call_that_does_not_come_whole_is_reset(size: int | None) -> None:
    peer = Peer()
    stream_id = peer.headers()
    if size is not None:
        peer.data(stream_id, b"\0\0\0\0\x40abcdefgh"[:size])
    peer.exchange()
    assert 30 <= until_reset(peer, stream_id) <= 41
    assert peer.events == [] and peer.server._credit.unfinished == 0


def test_half_a_message_of_a_worker_is_waited_for_and_a_quiet_worker_is_not_disturbed() -> None:
    peer = Peer()
    stream_id, stream = worker(peer)
    peer.exchange()
    for _ in range(100):
        peer.timer(SECOND)
        peer.client.ping(b"8 bytes.")
        peer.exchange()
    assert peer.streams[stream_id].reset is None
    peer.data(stream_id, b"\0\0\0\0\x40abc")
    peer.exchange()
    assert 30 <= until_reset(peer, stream_id) <= 41
    assert peer.events[-1] == WorkerGone(stream, "the stream made no progress")


def test_a_call_that_waits_for_its_answer_is_not_a_stall() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec(), wait=True))
    (event,) = peer.exchange()
    for _ in range(400):
        peer.timer(SECOND)
        peer.client.ping(b"8 bytes.")
        assert peer.exchange() == []
    event.call.sink.reply(Submitted(1, False))
    peer.exchange()
    assert peer.streams[stream_id].status == 0


def test_a_silent_connection_ends_its_calls() -> None:
    peer = Peer()
    peer.call(pb.SubmitRequest(task=pb.TaskSpec(), wait=True))
    (event,) = peer.exchange()
    assert peer.timer(41 * SECOND) == [CallEnded(event.call)]
    assert peer.server.closed
