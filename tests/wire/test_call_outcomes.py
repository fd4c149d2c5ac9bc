"""Calls that end before the service hears of them are counted by method and outcome, each once, and others are not."""

import gzip
from collections.abc import Callable

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import CallReceived
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc_admission import Refusal
from tests.wire.peer import SUBMIT, WORK, Peer

TASK = pb.SubmitRequest(task=pb.TaskSpec(pool="default", kind="k"))


def whole(data: bytes, *extra: tuple[str, str], path: str = SUBMIT) -> Callable[[Peer], None]:
    """Headers, and this as the content."""

    def play(peer: Peer) -> None:
        stream_id = peer.headers(path, *extra)
        peer.data(stream_id, data, end=True)

    return play


def in_two(data: bytes, *extra: tuple[str, str], path: str = SUBMIT) -> Callable[[Peer], None]:
    """The same in two reads."""

    def play(peer: Peer) -> None:
        stream_id = peer.headers(path, *extra)
        peer.data(stream_id, data[:-1])
        peer.exchange()
        peer.data(stream_id, data[-1:], end=True)

    return play


def headers(path: str = SUBMIT, **over: str | None) -> Callable[[Peer], None]:
    def play(peer: Peer) -> None:
        peer.headers(path, end=True, **over)

    return play


GZIP = ("grpc-encoding", "gzip")
BAD_GZIP = b"\1\0\0\0\7notgzip"
ENDS: dict[str, tuple[Callable[[Peer], None], tuple[str, str]]] = {
    "no message": (headers(), ("Tasks.Submit", "invalid")),
    "half a message": (whole(b"\0\0\0\0\7abc"), ("Tasks.Submit", "invalid")),
    "half a message in pieces": (in_two(b"\0\0\0\0\7abc"), ("Tasks.Submit", "invalid")),
    "several messages": (in_two(2 * frame(TASK.SerializeToString())), ("Tasks.Submit", "invalid")),
    "no protobuf": (whole(frame(b"\xff\xff")), ("Tasks.Submit", "invalid")),
    "no protobuf in pieces": (in_two(frame(b"\xff\xff")), ("Tasks.Submit", "invalid")),
    "no gzip": (whole(BAD_GZIP, GZIP), ("Tasks.Submit", "invalid")),
    "too long": (whole(b"\0\x7f\xff\xff\xffabc"), ("Tasks.Submit", "too_large")),
    "an encoding that is not there": (
        whole(frame(b""), ("grpc-encoding", "snappy")),
        ("Tasks.Submit", "unimplemented"),
    ),
    "no such method": (headers("/cronoq.v1.Tasks/Nothing"), ("unknown", "unimplemented")),
    "no gRPC": (headers(method="GET"), ("unknown", "invalid")),
    "a worker without a word": (headers(WORK), ("Workers.Work", "invalid")),
    "a worker with half a message": (whole(b"\0\0\0\0\7abc", path=WORK), ("Workers.Work", "invalid")),
    "a worker that sends no protobuf": (whole(frame(b"\xff\xff"), path=WORK), ("Workers.Work", "invalid")),
}


@pytest.mark.parametrize(("play", "outcome"), ENDS.values(), ids=list(ENDS))
def test_each_is_counted_once(play: Callable[[Peer], None], outcome: tuple[str, str]) -> None:
    peer = Peer()
    for _ in range(3):
        play(peer)
        peer.exchange()
    assert peer.server._outcomes == {outcome: 3}
    assert not [event for event in peer.events if isinstance(event, CallReceived)]


def test_whoever_may_not_is_counted_by_the_method() -> None:
    def nobody(_metadata: object) -> Rejection:
        return Rejection(Code.UNAUTHENTICATED, "who are you?")

    peer = Peer(auth=nobody)
    peer.call(TASK)
    peer.headers("/" + 100 * "x", end=True)
    peer.exchange()
    assert peer.server._outcomes == {("Tasks.Submit", "unauthenticated"): 1, ("unknown", "unimplemented"): 1}


def test_calls_that_are_not_served_now_are_counted() -> None:
    peer = Peer(refusal=Refusal(Rejection(Code.UNAVAILABLE, "the server is starting")))
    peer.call(TASK)
    peer.headers(WORK)
    peer.exchange()
    assert peer.server._outcomes == {("Tasks.Submit", "unavailable"): 1, ("Workers.Work", "unavailable"): 1}


def test_a_deadline_that_passes_within_the_message_is_counted() -> None:
    peer = Peer()
    peer.data(peer.headers(SUBMIT, ("grpc-timeout", "1S")), b"\0\0\0\0\7abc")
    peer.exchange()
    peer.timer(2 * SECOND)
    assert peer.server._outcomes == {("Tasks.Submit", "deadline_exceeded"): 1}


def test_what_the_service_hears_of_is_counted_by_whoever_answers() -> None:
    peer = Peer()
    peer.call(TASK)
    whole(b"\1" + frame(gzip.compress(TASK.SerializeToString()))[1:], GZIP)(peer)
    worker = peer.work()
    peer.exchange()
    peer.client.end_stream(worker)
    peer.exchange()
    assert len([event for event in peer.events if isinstance(event, CallReceived)]) == 2
    assert peer.server._outcomes == {}
