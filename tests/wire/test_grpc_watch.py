"""A call whose answer is a stream of events: headers at once, events as they come, flow control, the bound, the end."""

from typing import Any

import pytest

from cronoq_sansio import limits as fixed
from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import CallEnded, CallReceived, Shutdown, StatusEvent, Watch
from cronoq_sansio.wire import pb
from tests.wire.peer import START, Peer

WATCH = "/cronoq.v1.Tasks/Watch"
UNAVAILABLE, DATA_LOSS, INVALID_ARGUMENT = 14, 15, 3
GONE = Rejection(Code.UNAVAILABLE, "gone")
RESPONSE = {":status": "200", "content-type": "application/grpc"}


def event(number: int, message: str = "") -> StatusEvent:
    return StatusEvent(number, "default", "", 6, 1, START, message)


def watching(peer: Peer, **fields: Any) -> tuple[int, Any]:
    """A watch that was let in."""
    stream_id = peer.call(pb.WatchRequest(), WATCH, **fields)
    (received,) = peer.exchange()
    assert isinstance(received, CallReceived)
    received.call.sink.start()  # type: ignore[attr-defined]
    peer.exchange()
    return stream_id, received.call


def ids(peer: Peer, stream_id: int) -> list[int]:
    return [pb.StatusEvent.FromString(data).id for data in peer.streams[stream_id].messages()]


def test_the_request_is_one_message_like_any_other() -> None:
    peer = Peer()
    request = pb.WatchRequest(pools=["a"], ids=[3], keys=["k"], all_transitions=True)
    peer.call(request, WATCH, grpc_timeout="7S")
    (received,) = peer.exchange()
    assert received.request == Watch(("a",), (3,), ("k",), True)
    assert received.deadline == START + 7 * SECOND


def test_headers_come_at_once_and_nothing_else() -> None:
    peer = Peer()
    stream_id, _ = watching(peer)
    seen = peer.streams[stream_id]
    assert seen.headers == RESPONSE and not seen.ended and not seen.data


def test_events_come_as_they_are_sent() -> None:
    peer = Peer()
    stream_id, call = watching(peer)
    for number in range(1, 4):
        call.sink.send_event(event(number))
        peer.exchange()
        assert ids(peer, stream_id) == list(range(1, number + 1))
    assert not peer.streams[stream_id].ended


def test_events_of_one_moment_share_a_frame() -> None:
    peer = Peer()
    stream_id, call = watching(peer)
    for number in range(100):
        call.sink.send_event(event(number))
    peer.exchange()
    assert ids(peer, stream_id) == list(range(100)) and peer.streams[stream_id].frames == 1


def test_what_is_queued_comes_before_the_end() -> None:
    peer = Peer()
    stream_id, call = watching(peer)
    call.sink.send_event(event(1))
    call.sink.reject(GONE)
    call.sink.send_event(event(2))
    peer.exchange()
    seen = peer.streams[stream_id]
    assert ids(peer, stream_id) == [1]
    assert (seen.status, seen.message, seen.ended) == (UNAVAILABLE, "gone", True)
    assert peer.events[1:] == [], "the service ended it and needs not be told"


def test_a_watch_that_is_refused_gets_trailers_only() -> None:
    peer = Peer()
    stream_id = peer.call(pb.WatchRequest(), WATCH)
    peer.exchange()[0].call.sink.reject(GONE)
    peer.exchange()
    assert peer.streams[stream_id].headers["grpc-status"] == "14" and peer.streams[stream_id].ended


def test_a_bad_filter_is_refused_where_it_is_decoded() -> None:
    peer = Peer()
    stream_id = peer.call(pb.WatchRequest(keys=[""]), WATCH)
    assert peer.exchange() == []
    assert peer.streams[stream_id].status == INVALID_ARGUMENT


@pytest.mark.parametrize("how", ["reset", "lost"])
def test_the_service_hears_when_the_caller_goes_away(how: str) -> None:
    peer = Peer()
    stream_id, call = watching(peer)
    if how == "reset":
        peer.client.reset_stream(stream_id, 8)
        assert peer.exchange() == [CallEnded(call)]
    else:
        assert peer.server.receive_eof(peer.now) == [CallEnded(call)]
    call.sink.send_event(event(1))
    call.sink.reject(GONE)
    assert not peer.server.wants_write() or how == "reset"


def test_a_term_that_is_lost_ends_watches() -> None:
    peer = Peer()
    stream_id, call = watching(peer)
    peer.server.refuse_open(GONE, Shutdown("x", True))
    peer.exchange()
    assert peer.streams[stream_id].status == UNAVAILABLE
    call.sink.send_event(event(1))
    assert peer.exchange() == []


# --- callers that do not read


def test_events_are_encoded_when_flow_control_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(window=200, credit=False)
    stream_id, call = watching(peer)
    for number in range(50):
        call.sink.send_event(event(number))
    peer.exchange()
    queued = len(call.sink.queue)
    assert 0 < len(ids(peer, stream_id)) == 50 - queued, "whole events only"
    peer.client.increment_flow_control_window(100_000, stream_id)
    peer.exchange()
    assert ids(peer, stream_id) == list(range(50))


def test_a_caller_that_does_not_read_is_told_how_many_events_it_lost() -> None:
    peer = Peer(window=200, credit=False)
    stream_id, call = watching(peer)
    sent = 0
    while not peer.streams[stream_id].ended:
        sent += 1
        call.sink.send_event(event(sent))
        peer.exchange()
        assert len(call.sink.queue) <= fixed.MAX_UNREAD_EVENTS
    seen = peer.streams[stream_id]
    got = ids(peer, stream_id)
    assert got == list(range(1, len(got) + 1)), "what was delivered has no gap"
    assert seen.status == DATA_LOSS
    assert f"{sent - len(got)} of them were dropped" in seen.message and sent - len(got) == fixed.MAX_UNREAD_EVENTS + 1
    assert peer.events[1:] == [CallEnded(call)]


def test_the_loss_is_told_without_any_window() -> None:
    """Trailers need no flow control: the caller learns it, however long it did not read."""
    peer = Peer(window=100, credit=False)
    stream_id, call = watching(peer)
    for number in range(fixed.MAX_UNREAD_EVENTS + 100):
        call.sink.send_event(event(number))
        if number == 50:
            peer.exchange()
    peer.exchange()
    assert peer.streams[stream_id].status == DATA_LOSS and peer.streams[stream_id].ended


def test_a_burst_below_the_bound_is_no_loss() -> None:
    """A batch of a thousand tasks moves twice in one step; nobody could have read meanwhile."""
    peer = Peer(window=65_535)
    stream_id, call = watching(peer)
    for number in range(2_000):
        call.sink.send_event(event(number))
    peer.exchange()
    assert ids(peer, stream_id) == list(range(2_000))


def test_a_caller_may_read_late_within_the_bound() -> None:
    """There is no time limit: whoever pauses for an hour finds its events."""
    peer = Peer(window=100, credit=False)
    stream_id, call = watching(peer)
    for number in range(20):
        call.sink.send_event(event(number))
    for _ in range(180):
        peer.exchange(after=20 * SECOND)
        peer.timer(0)
    peer.client.increment_flow_control_window(100_000, stream_id)
    peer.exchange()
    assert ids(peer, stream_id) == list(range(20))


def test_a_caller_that_does_not_take_the_end_is_reset() -> None:
    peer = Peer(window=100, credit=False)
    stream_id, call = watching(peer)
    for number in range(20):
        call.sink.send_event(event(number))
    call.sink.reject(GONE)
    peer.exchange()
    for _ in range(45):
        peer.timer(SECOND)
        peer.client.ping(b"8 bytes.")
        peer.exchange()
    assert peer.streams[stream_id].reset is not None


@pytest.mark.parametrize("window", [1, 7, 50])
def test_an_event_wider_than_any_window_comes_in_parts(window: int) -> None:
    peer = Peer(window=window)
    stream_id, call = watching(peer)
    for number in range(3):
        call.sink.send_event(event(number, "m" * 100))
    for _ in range(600):
        peer.client.increment_flow_control_window(window, stream_id)
        peer.exchange()
    assert ids(peer, stream_id) == [0, 1, 2]


def test_watches_do_not_hold_up_each_other() -> None:
    peer = Peer(window=100, credit=False)
    first, slow = watching(peer)
    for number in range(50):
        slow.sink.send_event(event(number))
    peer.exchange()
    second, call = watching(peer)
    call.sink.send_event(event(7))
    peer.exchange()
    assert ids(peer, second) == [7] and len(ids(peer, first)) < 50
