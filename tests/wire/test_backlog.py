"""Answers that their peers do not take: how much of them all connections keep together, and who is refused then."""

from dataclasses import replace
from typing import Any

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.service.messages import (
    BatchReply,
    CancelReply,
    Message,
    SubmitReply,
    TaskInfo,
    TaskPage,
    TaskResult,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import backlog, pb
from cronoq_sansio.wire.backlog import Waiting, weight
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.protobuf_codec import ROUTES, encode_page
from tests.wire.peer import SUBMIT, Peer, on_both_machines

RESOURCE_EXHAUSTED = 8
MOST = 1_000_000
SIZE = 10_000
WAIT = "/cronoq.v1.Tasks/Wait"


@pytest.fixture(autouse=True)
def _bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_WAITING", MOST)


def peer_of(**settings: Any) -> Peer:
    return Peer(LimitSettings(max_message_bytes=MOST // 2), **settings)


def info(message: str = "") -> TaskInfo:
    return TaskInfo(1, 6, "default", "", "k", 1, 1, 1, 1, 1, message, False, 1)


def result(size: int) -> TaskResult:
    return TaskResult(1, 6, bytes(size), "", "")


def ask(peer: Peer, message: Message, path: str = WAIT) -> int:
    """A call that is answered with that."""
    request: Any = pb.WaitRequest(task=pb.TaskRef(id=1)) if path == WAIT else pb.SubmitRequest(task=pb.TaskSpec())
    stream_id = peer.call(request, path)
    (event,) = peer.exchange()
    event.call.sink.reply(message)
    peer.exchange()
    return stream_id


WEIGHTS: list[tuple[Message | bytes, int]] = [
    (result(5_000), 5_000),
    (TaskResult(1, 7, None, "", "m" * 70), 70),
    (Submitted(1, False), 0),
    (SubmitReply(1, False, result(77)), 77),
    (CancelReply(True), 0),
    (info("m" * 100), 612),
    (b"e" * 70, 70),
    (BatchReply((Submitted(1, False),) * 1_000), 512_000),
]


@pytest.mark.parametrize(("message", "size"), WEIGHTS)
def test_what_an_answer_counts(message: Message | bytes, size: int) -> None:
    assert weight(message) == size


@on_both_machines
def test_one_connection_may_keep_a_fifth(machine: MakeHttp2) -> None:
    waiting = Waiting()
    peer = peer_of(window=0, machine=machine, waiting=waiting)
    ids = [ask(peer, result(SIZE)) for _ in range(100)]
    kept = [stream_id for stream_id in ids if peer.streams[stream_id].status is None]
    assert kept == ids[: MOST // 5 // SIZE] and waiting.total == peer.server.backlog.held == MOST // 5
    for stream_id in ids[len(kept) :]:
        seen = peer.streams[stream_id]
        assert seen.status == RESOURCE_EXHAUSTED and seen.ended and not seen.data and "do not read" in seen.message
        assert not seen.trailers, "headers alone: they need no window"
    assert not peer.server.closed and peer.server.exceeded == []
    peer.client.update_settings({4: 1 << 20})
    peer.exchange()
    assert all(peer.streams[stream_id].status == 0 for stream_id in kept)
    assert (waiting.total, peer.server.backlog.held) == (0, 0)


def test_many_connections_leave_room_for_the_next_one() -> None:
    waiting = Waiting()
    hostile = [peer_of(window=0, waiting=waiting) for _ in range(15)]
    for _ in range(20):
        for peer in hostile:
            ask(peer, result(SIZE))
        assert waiting.total == sum(peer.server.backlog.held for peer in hostile) <= MOST * 17 // 20
    assert waiting.total > MOST * 3 // 5
    reader = peer_of(window=20_000, waiting=waiting)
    assert reader.streams[ask(reader, result(MOST // 10))].status == 0
    assert reader.streams[ask(reader, result(MOST // 2))].status == RESOURCE_EXHAUSTED
    assert reader.streams[ask(reader, result(SIZE))].status == 0


def test_they_may_come_one_after_the_other_too() -> None:
    waiting = Waiting()
    for _ in range(10):
        peer = peer_of(window=0, waiting=waiting)
        for _ in range(50):
            ask(peer, result(SIZE))
    assert MOST // 20 < MOST - waiting.total < MOST // 4
    reader = peer_of(window=20_000, waiting=waiting)
    assert reader.streams[ask(reader, result(MOST // 20))].status == 0


def test_nothing_is_kept_beyond_the_bound_however_many_connections_there_are() -> None:
    waiting = Waiting()
    peers = [peer_of(window=0, waiting=waiting) for _ in range(200)]
    for peer in peers:
        ask(peer, result(SIZE))
        assert waiting.total <= MOST
    assert waiting.total == MOST


@on_both_machines
@pytest.mark.parametrize("apart", [False, True])
def test_what_can_go_out_at_once_does(machine: MakeHttp2, apart: bool) -> None:
    waiting = Waiting()
    waiting.total = MOST
    peer = peer_of(machine=machine, waiting=waiting)
    for _ in range(3):
        stream_id = peer.headers(WAIT)
        if apart:
            peer.exchange()
        peer.data(stream_id, frame(pb.WaitRequest(task=pb.TaskRef(id=1)).SerializeToString()), end=True)
        (event,) = peer.exchange()
        event.call.sink.reply(result(SIZE))
        assert peer.server._encoded == 0
        peer.exchange()
        assert peer.streams[stream_id].status == 0 and waiting.total == MOST


def test_an_answer_that_goes_out_as_one_piece_is_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every one does: it costs nothing more."""
    peer = peer_of()
    for _ in range(3):
        ask(peer, result(SIZE))  # then the block of its headers is known
    monkeypatch.setattr(backlog, "weight", None)
    assert [peer.streams[ask(peer, result(SIZE))].status for _ in range(3)] == [0, 0, 0]


def test_small_answers_are_kept_however_much_waits() -> None:
    waiting = Waiting()
    waiting.total = MOST
    peer = peer_of(window=0, waiting=waiting)
    ids = [ask(peer, message) for message in (result(1_000), result(0), result(1_023))]
    assert [peer.streams[stream_id].status for stream_id in ids] == [None] * 3 and waiting.total == MOST
    peer.client.update_settings({4: 1 << 20})
    peer.exchange()
    assert [peer.streams[stream_id].status for stream_id in ids] == [0] * 3 and waiting.total == MOST


def test_a_submission_whose_answer_is_refused_names_its_task() -> None:
    """It was taken: whoever would submit it again should know."""
    waiting = Waiting()
    waiting.total = MOST
    peer = peer_of(window=0, waiting=waiting)
    seen = peer.streams[ask(peer, SubmitReply(17, False, result(SIZE)), SUBMIT)]
    assert seen.status == RESOURCE_EXHAUSTED
    assert seen.message.startswith("task 17: ") and "was carried out" in seen.message


def test_a_call_that_came_in_parts_is_held_to_it_too() -> None:
    waiting = Waiting()
    waiting.total = MOST
    peer = peer_of(window=0, waiting=waiting)
    stream_id = peer.headers(WAIT)
    body = frame(pb.WaitRequest(task=pb.TaskRef(id=1)).SerializeToString())
    for piece in (body[:3], body[3:]):
        peer.data(stream_id, piece)
        peer.exchange()
    peer.data(stream_id, b"", end=True)
    (event,) = peer.exchange()
    event.call.sink.reply(result(SIZE))
    peer.exchange()
    assert peer.streams[stream_id].status == RESOURCE_EXHAUSTED


@pytest.mark.parametrize("end", ["reset", "lost", "stalled", "goaway", "finished"])
def test_nothing_is_counted_of_streams_that_are_over(end: str) -> None:
    waiting = Waiting()
    peer = peer_of(window=0, waiting=waiting)
    ids = [ask(peer, result(SIZE)) for _ in range(10)]
    assert waiting.total == 10 * SIZE
    if end == "reset":
        for stream_id in ids:
            peer.client.reset_stream(stream_id)
        peer.exchange()
    elif end == "lost":
        peer.server.receive_eof(peer.now)
    elif end == "goaway":
        peer.server.receive(b"\0\0\1\6\0\0\0\0\0x", peer.now)
    elif end == "finished":
        peer.server.finish()
        peer.server.receive_eof(peer.now)
    else:
        for _ in range(50):
            peer.timer(SECOND)
            peer.client.ping(b"8 bytes.")
            peer.exchange()
    assert (waiting.total, peer.server.backlog.held) == (0, 0)
    assert not any(stream.kept for stream in peer.server._streams.values())


def test_the_largest_message_may_always_wait_alone() -> None:
    waiting = Waiting()
    peer = Peer(LimitSettings(max_message_bytes=5 * MOST), window=0, waiting=waiting)
    assert peer.streams[ask(peer, result(5 * MOST))].status is None and waiting.total == 5 * MOST
    assert peer.streams[ask(peer, result(MOST))].status == RESOURCE_EXHAUSTED


@on_both_machines
def test_a_page_is_encoded_when_it_is_given_and_counts_its_bytes(
    machine: MakeHttp2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a peer could have the pages of a thousand calls encoded in one instant, by opening its windows."""
    path, encoded = "/cronoq.v1.Tasks/ListTasks", 0
    route = ROUTES[path.encode()]

    def encode(message: Any) -> bytes:
        nonlocal encoded
        encoded += 1
        return encode_page(message)

    monkeypatch.setitem(ROUTES, route.path, replace(route, encode=encode, write=lambda message: frame(encode(message))))
    waiting = Waiting()
    peer = peer_of(window=0, machine=machine, waiting=waiting)
    page = TaskPage(tuple(info("m" * n) for n in range(100)), 7)
    stream_id = peer.call(pb.ListTasksRequest(), path)
    assert peer.exchange() == []
    (event,) = peer.server.take_look()
    event.call.sink.reply(page)
    given = encoded
    assert given and waiting.total == len(encode_page(page))
    peer.exchange()
    assert peer.streams[stream_id].status is None
    peer.client.update_settings({4: 1 << 20})
    peer.exchange()
    assert encoded == given and waiting.total == 0
    assert peer.streams[stream_id].data == frame(encode_page(page)) and peer.streams[stream_id].status == 0
