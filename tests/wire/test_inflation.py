"""Compressed messages: the same whatever the portions are, no more of it than that in a turn, and what may wait."""

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import INFLATE_INPUT, INFLATED_AT_ONCE
from cronoq_sansio.service.messages import CallEnded, CallReceived, WorkerConnected, WorkerGone, WorkerSent
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import credit, pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.inflation import Inflation, Portion
from tests.wire.peer import SUBMIT, WORK, Peer

GZIP = ("grpc-encoding", "gzip")
GET = "/cronoq.v1.Tasks/Get"
LARGE = 2 << 20
LIMIT = 1_000


def packed(message: bytes) -> bytes:
    compressed = gzip.compress(message, mtime=0)
    return b"\x01" + len(compressed).to_bytes(4, "big") + compressed


def submit(size: int) -> bytes:
    return pb.SubmitRequest(task=pb.TaskSpec(kind="k", payload=bytes(size))).SerializeToString()


def call(peer: Peer, size: int, *, end: bool = True, extra: tuple[tuple[str, str], ...] = ()) -> int:
    """A compressed Submit, handed to the client whole; its events are those of the next `exchange`."""
    stream_id = peer.headers(SUBMIT, GZIP, *extra)
    peer.data(stream_id, packed(submit(size)), end=end)
    return stream_id


def sizes(events: list[Any]) -> list[int]:
    return [len(event.request.spec.payload) for event in events if isinstance(event, CallReceived)]


def turns(peer: Peer, most: int = 1_000) -> int:
    """Let all turns be had that are due now; how many there were."""
    for count in range(most):
        due = peer.server.next_timeout()
        if due is None or due > peer.now:
            return count
        peer.events += peer.server.handle_timer(peer.now)
    raise AssertionError("it does not come to rest")


# --- one message


def in_portions(data: bytes, portion: int) -> bytes | Rejection:
    inflation, left, before = Inflation(data, LIMIT, "the limit"), Portion(), 0
    while True:
        left.left = portion
        message = inflation.go_on(left)
        assert inflation.size - before <= portion, "more came out than the portion"
        before = inflation.size
        if message is not None:
            return message


@settings(max_examples=200)
@given(
    message=st.binary(max_size=400) | st.integers(0, 1_200).map(bytes),
    portion=st.integers(1, 1_500),
    cut=st.integers(0, 30),
    more=st.binary(max_size=3),
    level=st.integers(0, 9),
)
def test_portions_change_nothing(message: bytes, portion: int, cut: int, more: bytes, level: int) -> None:
    data = gzip.compress(message, level, mtime=0)
    data = data[: len(data) - cut] + more
    expected = Inflation(data, LIMIT, "the limit").go_on()
    assert in_portions(data, portion) == expected
    if len(message) > LIMIT and not cut:
        assert isinstance(expected, Rejection) and expected.code is Code.TOO_LARGE
    elif not cut and not more:
        assert expected == message
    else:
        assert expected == message or isinstance(expected, Rejection)


def test_input_without_output_counts_too() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH)
    data += b"\0\0\0\xff\xff" * 100_000 + packer.flush()
    inflation, portion, rounds = Inflation(data, LIMIT, "the limit"), Portion(), 0
    portion.renew(0)
    while inflation.go_on(portion) is None:
        rounds += 1
        portion.renew(rounds)
    assert rounds >= len(data) * INFLATE_INPUT // INFLATED_AT_ONCE // 2


# --- a connection


@pytest.mark.parametrize("apart", [False, True])
def test_a_small_one_is_a_call_at_once(apart: bool) -> None:
    peer = Peer()
    stream_id = call(peer, 1_000, end=not apart)
    if apart:
        assert sizes(peer.exchange()) == []
        peer.data(stream_id, b"", end=True)
    assert sizes(peer.exchange()) == [1_000]
    assert turns(peer) == 0 and peer.server._credit.unfinished == 0


@pytest.mark.parametrize("machine", [Http2Server, H2Server])
@pytest.mark.parametrize("apart", [False, True])
def test_a_large_one_takes_turns_and_others_are_served_in_between(machine: MakeHttp2, apart: bool) -> None:
    peer = Peer(machine=machine)
    stream_id = call(peer, LARGE, end=not apart)
    first = peer.exchange()
    if apart:
        peer.data(stream_id, b"", end=True)
        first += peer.exchange()
    assert first == [] and peer.server.stalls.due == peer.server.next_timeout() == peer.now
    peer.call(pb.GetRequest(task=pb.TaskRef(id=1)), GET)
    assert len(peer.exchange()) == 1, "a call that is not compressed does not wait"
    peer.events.clear()
    before, most, rounds = peer.server._credit.unfinished, 0, 1
    while not peer.events:
        peer.events += peer.server.handle_timer(peer.now)
        held = peer.server._credit.unfinished
        most, before, rounds = max(most, held - before), held, rounds + 1
    assert sizes(peer.events) == [LARGE] and LARGE // INFLATED_AT_ONCE <= rounds <= LARGE // INFLATED_AT_ONCE + 2
    assert most <= INFLATED_AT_ONCE
    assert peer.server._credit.unfinished == 0 and peer.server.next_timeout() != peer.now


def test_they_are_done_one_after_the_other_in_their_order() -> None:
    peer = Peer()
    expected = [LARGE, 5, LARGE + 1, 6]
    for size in expected:
        call(peer, size)
    assert peer.exchange() == []
    while peer.server.next_timeout() == peer.now:
        peer.events += peer.server.handle_timer(peer.now)
        assert peer.server._credit.unfinished <= 2 * LARGE, "of one of them more is kept than came"
    assert sizes(peer.events) == expected


def test_many_small_ones_share_a_turn() -> None:
    peer = Peer(window=1 << 20)
    ids = [call(peer, 50_000) for _ in range(20)]
    at_once = sizes(peer.exchange())
    assert 1 <= len(at_once) <= INFLATED_AT_ONCE // 50_000
    rounds = turns(peer)
    assert rounds >= (len(ids) - len(at_once)) * 50_000 // INFLATED_AT_ONCE
    assert len(sizes(peer.events)) == len(ids)


def test_a_message_whose_peer_does_not_end_its_side_is_not_begun() -> None:
    """Else a thousand open calls would be gigabytes."""
    peer = Peer()
    for _ in range(100):
        call(peer, LARGE, end=False)
    assert peer.exchange() == [] and turns(peer) == 0
    assert peer.server._credit.unfinished < 100 * 4_096
    for _ in range(5):
        peer.timer(10 * SECOND)
        peer.exchange()
    assert {seen.reset for seen in peer.streams.values()} == {11}, "and does not wait for ever"


def test_a_deadline_passes_while_it_waits() -> None:
    peer = Peer()
    stream_id = call(peer, LARGE, extra=(("grpc-timeout", "1S"),))
    peer.exchange()
    peer.now += SECOND
    assert sizes(peer.server.handle_timer(peer.now)) == []
    peer.exchange()
    assert peer.streams[stream_id].status == 4
    assert turns(peer) <= 1 and sizes(peer.events) == []


@pytest.mark.parametrize("end", ["reset", "lost"])
def test_nothing_is_left_of_one_that_is_over(end: str) -> None:
    peer = Peer()
    stream_id = call(peer, LARGE)
    peer.exchange()
    peer.server.handle_timer(peer.now)
    if end == "reset":
        peer.client.reset_stream(stream_id)
        peer.exchange()
        assert turns(peer) <= 1
        call(peer, 10)
        assert sizes(peer.exchange()) == [10]
    else:
        peer.server.receive_eof(peer.now)
    assert peer.server._credit.unfinished == 0 and sizes(peer.events) in ([], [10])
    assert not any(isinstance(event, CallEnded) for event in peer.events)


def test_one_that_is_too_large_inside_is_refused_when_that_is_known() -> None:
    peer = Peer(LimitSettings(max_message_bytes=LARGE))
    stream_id = call(peer, 2 * LARGE)
    peer.exchange()
    turns(peer)
    peer.exchange()
    assert peer.streams[stream_id].status == 8 and "after decompression" in peer.streams[stream_id].message
    assert peer.server._credit.unfinished == 0


def test_all_connections_together_hold_no_more_than_of_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credit, "MAX_UNFINISHED", LARGE)
    peer = Peer()
    peer.server._credit._everywhere.total = LARGE - INFLATED_AT_ONCE
    stream_id = call(peer, LARGE)
    peer.exchange()
    turns(peer)
    peer.exchange()
    assert peer.streams[stream_id].status == 8 and "unfinished messages" in peer.streams[stream_id].message
    assert peer.server._credit._everywhere.total == LARGE - INFLATED_AT_ONCE


def test_messages_of_a_worker_stay_in_order() -> None:
    peer = Peer()
    stream_id = peer.headers(WORK, GZIP)
    register = pb.WorkerMessage(register=pb.Register(pool="default", slots=4, worker_name="w", protocol_version=3))
    peer.data(stream_id, packed(register.SerializeToString()))
    output = pb.WorkerMessage(complete=pb.Complete(lease=1, output=bytes(LARGE)))
    slots = pb.WorkerMessage(set_slots=pb.SetSlots(slots=2))
    peer.data(stream_id, packed(output.SerializeToString()) + frame(slots.SerializeToString()))
    peer.data(stream_id, packed(output.SerializeToString()), end=True)
    peer.exchange()
    assert [type(event) for event in peer.events] == [WorkerConnected, WorkerSent]
    assert turns(peer) > LARGE // INFLATED_AT_ONCE
    kinds = [type(event.message).__name__ for event in peer.events if isinstance(event, WorkerSent)]
    assert kinds == ["Register", "Complete", "SetSlots", "Complete"]
    assert isinstance(peer.events[-1], WorkerGone)
