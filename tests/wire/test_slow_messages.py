"""How long a message may take: slow links are waited for, single drops are not, and a deadline passes meanwhile."""

from typing import Any

import pytest

from cronoq_sansio import limits as fixed
from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.messages import CallReceived, WorkerGone, WorkerSent
from cronoq_sansio.wire import pb, peer_limits
from cronoq_sansio.wire.framing import frame
from tests.wire.peer import SUBMIT, Peer

WATCH = "/cronoq.v1.Tasks/Watch"
MIB = 1 << 20
LONG = (4 * MIB).to_bytes(5, "big")  #: the head of a message
CALM, DEADLINE_EXCEEDED = 11, 4
PING = b"8 bytes."


def begin(peer: Peer, path: str = SUBMIT, *extra: tuple[str, str], data: bytes = LONG) -> int:
    stream_id = peer.headers(path, *extra)
    if data:
        peer.data(stream_id, data)
    peer.exchange()
    return stream_id


def feed(peer: Peer, stream_ids: list[int], size: int, *, every: int = 1, seconds: int = 200) -> int | None:
    """Bring `size` bytes for each stream every so many seconds; after how many the first one was reset, or None."""

    def bring(second: int) -> None:
        for stream_id in stream_ids:
            if second % every == 0 and size:
                peer.data(stream_id, bytes(size))

    return peer.until_reset(stream_ids, seconds, bring)


@pytest.mark.parametrize(
    ("size", "every"), [(1, 1), (1, 10), (1, 29), (100, 1), (200, 1), (230, 1), (1_000, 10), (2_300, 10), (5_000, 25)]
)
def test_a_message_that_brings_too_little_is_reset(size: int, every: int) -> None:
    """However far it is already: what came quickly is no reserve beyond the grace."""
    peer = Peer()
    stream_id = begin(peer)
    assert feed(peer, [stream_id], 50_000, seconds=30) is None
    ended = feed(peer, [stream_id], size, every=every, seconds=1_000)
    due, brings = fixed.MIN_MESSAGE_RATE, size / every
    reserve = fixed.MESSAGE_GRACE / SECOND * due
    assert ended is not None and 30 < ended <= 20 + reserve / (due - brings) + every
    assert peer.streams[stream_id].reset == CALM and not peer.server.closed
    assert peer.server.exceeded == [peer_limits.SLOW_MESSAGE] and peer.server._credit.unfinished == 0
    assert peer.events == []


@pytest.mark.parametrize(("size", "every"), [(240, 1), (2_400, 10), (6_000, 25), (7_200, 29), (125_000, 1)])
def test_a_slow_link_is_waited_for(size: int, every: int) -> None:
    """The last one is a megabit per second: 4 MiB take half a minute."""
    peer = Peer()
    stream_id = begin(peer)
    seconds = min(2_000, (4 * MIB) // size * every)
    assert feed(peer, [stream_id], size, every=every, seconds=seconds) is None
    assert peer.server.exceeded == [] and peer.server._streams[stream_id].unfinished >= size * (seconds // every)


def test_a_link_that_fails_for_a_while_is_waited_for() -> None:
    """Half a minute of nothing, again and again, between moments that bring something."""
    peer = Peer()
    stream_id = begin(peer)
    for _ in range(20):
        assert feed(peer, [stream_id], 0, seconds=25) is None
        assert feed(peer, [stream_id], 30_000, seconds=2) is None
    assert peer.server.exceeded == []


@pytest.mark.parametrize(
    ("count", "size", "kept"), [(1_000, 17, True), (100, 165, True), (100, 100, False), (1, 165, False)]
)
def test_many_messages_may_share_a_slow_link(count: int, size: int, kept: bool) -> None:
    peer = Peer()
    ids = [begin(peer) for _ in range(count)]
    assert (feed(peer, ids, 20 * size, every=20, seconds=200) is None) is kept
    assert not peer.server.closed


def test_a_message_of_a_worker_that_brings_too_little_ends_its_stream() -> None:
    peer = Peer()
    stream_id = peer.work()
    stream = peer.exchange()[0].stream
    peer.data(stream_id, LONG)
    assert feed(peer, [stream_id], 1) in range(40, 51)
    assert peer.events[-1] == WorkerGone(stream, "a message came too slowly")
    assert peer.server.exceeded == [peer_limits.SLOW_MESSAGE]


def test_a_worker_that_is_seen_within_a_small_message_each_time_is_not_slow() -> None:
    """What is behind is not this message: the one before has come meanwhile."""
    peer = Peer()
    stream_id = peer.work()
    peer.exchange()
    beat = frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=1)).SerializeToString())
    peer.data(stream_id, beat[:7])
    assert feed(peer, [stream_id], 0, seconds=5) is None
    for _ in range(30):
        peer.data(stream_id, beat[7:] + beat[:7])
        assert feed(peer, [stream_id], 0, seconds=5) is None
    assert sum(isinstance(event, WorkerSent) for event in peer.events) == 31 and peer.server.exceeded == []


def test_a_worker_between_messages_is_not_slow() -> None:
    peer = Peer()
    stream_id = peer.work()
    assert feed(peer, [stream_id], 0, seconds=1_000) is None


def test_time_without_credit_is_ours_and_after_it_the_peers() -> None:
    peer = Peer()
    peer.server.hold_credit(calls=True, workers=False)
    stream_id = begin(peer, data=LONG + bytes(fixed.INITIAL_WINDOW - 6))
    assert feed(peer, [stream_id], 0, seconds=500) is None
    peer.server.hold_credit(calls=False, workers=False)
    assert feed(peer, [stream_id], 1) in range(40, 62)
    assert peer.server.exceeded == [peer_limits.SLOW_MESSAGE]


def test_a_peer_that_is_silent_after_the_credit_came_is_noticed() -> None:
    peer = Peer()
    peer.server.hold_credit(calls=True, workers=False)
    stream_id = begin(peer, data=LONG + bytes(fixed.INITIAL_WINDOW - 6))
    assert feed(peer, [stream_id], 0, seconds=500) is None
    peer.server.hold_credit(calls=False, workers=False)
    assert feed(peer, [stream_id], 0) in range(30, 52)
    assert peer.server.exceeded == [peer_limits.STALLED]


def test_time_in_which_the_process_could_not_run_does_not_count() -> None:
    """Whoever comes late has not read either."""
    peer = Peer()
    stream_id = begin(peer)
    for _ in range(20):
        peer.now += 15 * SECOND
        while (due := peer.server.next_timeout()) is not None and due <= peer.now:
            peer.server.handle_timer(peer.now)
        peer.client.ping(PING)
        peer.exchange()
    assert peer.streams[stream_id].reset is None and peer.server.exceeded == []
    assert feed(peer, [stream_id], 0) in range(30, 52)


# --- deadlines

INCOMPLETE = {
    "nothing": b"",
    "a part of its head": LONG[:3],
    "a part": LONG + bytes(1_000),
    "all but its end": frame(b""),
}


@pytest.mark.parametrize("path", [SUBMIT, WATCH])
@pytest.mark.parametrize("data", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_deadline_passes_while_the_message_is_coming(data: bytes, path: str) -> None:
    peer = Peer()
    stream_id = begin(peer, path, ("grpc-timeout", "7S"), data=data)
    other = begin(peer, path)
    seen = peer.streams[stream_id]
    assert peer.timer(7 * SECOND - 1) == [] and peer.exchange() == [] and not seen.ended
    assert peer.timer(1) == []
    peer.exchange()
    assert seen.status == DEADLINE_EXCEEDED and seen.ended and "before its message was complete" in seen.message
    assert peer.server._credit.unfinished == 5 and list(peer.server._streams) == [other]
    assert peer.server.exceeded == [] and not peer.server.closed


def test_each_call_has_its_own_deadline() -> None:
    peer = Peer()
    ids = {begin(peer, SUBMIT, ("grpc-timeout", f"{seconds}S")): seconds for seconds in (5, 3, 9, 3, 8)}
    begin(peer)
    for second in range(1, 12):
        peer.timer(SECOND)
        peer.exchange()
        assert {stream_id for stream_id in ids if peer.streams[stream_id].ended} == {
            stream_id for stream_id, seconds in ids.items() if seconds <= second
        }


@pytest.mark.parametrize("apart", [False, True])
def test_a_message_that_is_complete_is_left_to_the_service(apart: bool) -> None:
    peer = Peer()
    body = frame(pb.SubmitRequest(task=pb.TaskSpec(), wait=True).SerializeToString())
    stream_id = peer.headers(SUBMIT, ("grpc-timeout", "2S"))
    for piece in (body[:5], body[5:]) if apart else (body,):
        peer.data(stream_id, piece, end=piece == body[5:] or piece == body)
        peer.exchange()
    (event,) = peer.events
    assert isinstance(event, CallReceived) and event.deadline == peer.now + 2 * SECOND
    peer.timer(5 * SECOND)
    assert peer.exchange() == [] and not peer.streams[stream_id].ended


def test_a_deadline_that_is_over_at_once() -> None:
    peer = Peer()
    stream_id = begin(peer, SUBMIT, ("grpc-timeout", "0n"))
    peer.timer(0)
    peer.exchange()
    assert peer.streams[stream_id].status == DEADLINE_EXCEEDED


def test_a_deadline_is_the_callers_also_without_credit() -> None:
    peer = Peer()
    peer.server.hold_credit(calls=True, workers=False)
    stream_id = begin(peer, SUBMIT, ("grpc-timeout", "20S"), data=LONG + bytes(60_000))
    peer.timer(20 * SECOND)
    peer.exchange()
    assert peer.streams[stream_id].status == DEADLINE_EXCEEDED and peer.server._credit.withheld == {}


def test_what_still_comes_after_the_deadline_is_dropped() -> None:
    peer = Peer()
    stream_id = begin(peer, SUBMIT, ("grpc-timeout", "1S"))
    peer.timer(SECOND)
    peer.exchange()
    events: list[Any] = []
    for _ in range(20):
        peer.data(stream_id, bytes(16_384))
        events += peer.exchange()
    peer.data(stream_id, b"", end=True)
    assert events + peer.exchange() == [] and peer.unsent == [] and peer.streams[stream_id].reset is None
    assert peer.server.http2._streams == {}  # type: ignore[attr-defined]


def test_deadlines_that_are_far_away_or_many_keep_nothing() -> None:
    peer = Peer()
    for unit in "HMSmun" * 50:
        stream_id = begin(peer, SUBMIT, ("grpc-timeout", f"99999999{unit}"))
        peer.client.reset_stream(stream_id)
    peer.exchange()
    assert peer.server._streams == {}
    peer.timer(200 * SECOND)
    assert peer.server.stalls.due > peer.now
