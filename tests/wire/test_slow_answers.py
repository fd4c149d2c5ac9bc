"""How long an answer may take to go out: slow links are waited for, a window that opens by single bytes is not."""

import pytest

from cronoq_sansio import limits as fixed
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import AbortLease, StatusEvent, SubmitReply, TaskResult, WorkerGone
from cronoq_sansio.wire import pb, peer_limits
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.http2_choice import MakeHttp2
from tests.wire.peer import SUBMIT, Peer, on_both_machines

CALM = 11
CONNECTION = 0  #: instead of a stream


def owed(peer: Peer, size: int, path: str = SUBMIT) -> int:
    """A call whose answer has about `size` bytes."""
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()), path)
    (event,) = peer.exchange()
    event.call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, bytes(size), "", "")))
    peer.exchange()
    return stream_id


def drain(
    peer: Peer, ids: list[int], size: int, *, every: int = 1, seconds: int = 200, by: list[int] | None = None
) -> int | None:
    """Open the windows `ids` by `size` every so many seconds; after how many a stream was reset, or None."""

    def open_windows(second: int) -> None:
        if second % every == 0 and size:
            for stream_id in ids:
                if not stream_id or not peer.streams[stream_id].ended:
                    peer.client.increment_flow_control_window(size, stream_id or None)

    return peer.until_reset(by or ids, seconds, open_windows)


@on_both_machines
@pytest.mark.parametrize("window", ["stream", "connection"])
@pytest.mark.parametrize(("size", "every"), [(1, 8), (1, 1), (1, 29), (100, 1), (230, 1), (2_300, 10), (5_000, 25)])
def test_an_answer_that_is_taken_too_slowly_is_reset(size: int, every: int, window: str, machine: MakeHttp2) -> None:
    """However much of it was taken at first."""
    if window == "stream":
        peer = Peer(window=50_000, credit=False, machine=machine)
    else:
        peer = Peer(connection_window=65_535, credit=False, machine=machine)
    stream_id = owed(peer, 10_000_000)
    opened = [stream_id if window == "stream" else CONNECTION]
    ended = drain(peer, opened, size, every=every, seconds=1_000, by=[stream_id])
    lacks = fixed.MIN_MESSAGE_RATE - size / every
    reserve = fixed.MESSAGE_GRACE / SECOND * fixed.MIN_MESSAGE_RATE
    assert ended is not None and 30 < ended <= 20 + reserve / lacks + every
    assert peer.streams[stream_id].reset == CALM and not peer.server.closed
    assert peer.server.exceeded == [peer_limits.SLOW_ANSWER]
    assert not peer.server._streams and peer.server._encoded == 0


@on_both_machines
@pytest.mark.parametrize(("size", "every"), [(240, 1), (2_400, 10), (6_000, 25), (7_200, 29), (125_000, 1)])
def test_a_slow_link_is_waited_for(size: int, every: int, machine: MakeHttp2) -> None:
    peer = Peer(window=1_000, credit=False, machine=machine)
    stream_id = owed(peer, min(4_000_000, size // every * 1_000))
    for _ in range(1_100 // every):
        assert drain(peer, [stream_id], size, every=every, seconds=every) is None
        if peer.streams[stream_id].ended:
            break
    assert peer.streams[stream_id].status == 0 and peer.server.exceeded == []


def test_a_window_that_larger_settings_open_byte_by_byte_is_no_progress() -> None:
    """Each of them moves all streams of the connection."""
    peer = Peer(window=0, credit=False)
    ids = [owed(peer, 1_000) for _ in range(50)]

    def larger(second: int) -> None:
        if second % 8 == 0:
            peer.client.update_settings({4: second // 8})

    ended = peer.until_reset(ids, 100, larger)
    assert ended is not None and ended <= 52 and all(peer.streams[stream_id].reset == CALM for stream_id in ids)
    assert peer.server.exceeded == [peer_limits.SLOW_ANSWER] * 50 and not peer.server.closed


@pytest.mark.parametrize(
    ("count", "size", "kept"), [(1_000, 17, True), (100, 165, True), (100, 100, False), (1_000, 13, False)]
)
def test_many_answers_may_share_a_slow_link(count: int, size: int, kept: bool) -> None:
    """All together as much as one peer has to take; and none for much longer than a single one."""
    peer = Peer(window=0, credit=False)
    ids = [owed(peer, 10_000 if count == 1_000 else 100_000) for _ in range(count)]
    ended = drain(peer, ids, 20 * size, every=20, seconds=240)
    assert (ended is None) is kept and not peer.server.closed
    if kept:
        ended = drain(peer, ids, 1, every=20, seconds=60)
        assert ended is not None and ended <= 51


def test_answers_that_stand_back_for_others_are_not_slow() -> None:
    """No more than a bound is encoded at a time: those that are not have nothing to be taken from."""
    peer = Peer(window=0, credit=False)
    ids = [owed(peer, 9_000_000) for _ in range(4)]
    assert drain(peer, ids[:2], 240, seconds=120) is None
    assert [len(peer.streams[stream_id].data) for stream_id in ids] == [120 * 240, 120 * 240, 0, 0]


def test_a_call_that_waited_for_long_has_the_whole_time_for_its_answer() -> None:
    """Its message came as slowly as it may, and that is over."""
    peer = Peer(window=0, credit=False)
    stream_id = peer.headers(SUBMIT)
    body = frame(pb.SubmitRequest(task=pb.TaskSpec(payload=bytes(5_000))).SerializeToString())
    for second in range(29):
        peer.data(stream_id, body[second * 100 : second * 100 + 100])
        peer.timer(SECOND)
        peer.exchange()
    peer.data(stream_id, body[2_900:], end=True)
    (event,) = peer.exchange()
    event.call.sink.reply(Submitted(1, False))
    peer.exchange()
    assert drain(peer, [stream_id], 0) in range(30, 51)


def test_the_last_words_to_a_worker_have_to_be_taken() -> None:
    """While its stream goes on, what counts is how much of its queue it has not read."""
    peer = Peer(window=10, credit=False)
    stream_id = peer.work()
    stream = peer.exchange()[0].stream
    for number in range(3):
        stream.sink.send(AbortLease(number, "x" * 1_000))
    peer.exchange()
    assert drain(peer, [stream_id], 1, every=8) is None
    stream.sink.close(Rejection(Code.UNAVAILABLE, "enough"))
    assert drain(peer, [stream_id], 1, every=8) in range(40, 52)
    assert peer.server.exceeded == [peer_limits.SLOW_ANSWER]
    assert not any(isinstance(event, WorkerGone) for event in peer.events), "the service has ended it"


def test_the_last_events_have_to_be_taken() -> None:
    peer = Peer(window=10, credit=False)
    stream_id = peer.call(pb.WatchRequest(), "/cronoq.v1.Tasks/Watch")
    (event,) = peer.exchange()
    event.call.sink.start()
    for number in range(100):
        event.call.sink.send_event(StatusEvent(number, "default", "", 6, 1, SECOND, "x" * 1_000))
    peer.exchange()
    assert drain(peer, [stream_id], 1, every=8) is None, "its queue is bounded by the number of events"
    event.call.sink.reject(Rejection(Code.UNAVAILABLE, "enough"))
    assert drain(peer, [stream_id], 1, every=8) in range(40, 52)
    assert peer.server.exceeded == [peer_limits.SLOW_ANSWER]


def test_the_text_for_who_speaks_no_grpc_has_to_be_taken() -> None:
    peer = Peer(window=0, credit=False)
    stream_id = peer.headers(SUBMIT, method="GET", end=True)
    peer.exchange()
    assert drain(peer, [stream_id], 1, every=20) in range(30, 60)
    assert peer.server.exceeded == [peer_limits.SLOW_ANSWER]
