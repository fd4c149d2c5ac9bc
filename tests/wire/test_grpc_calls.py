"""Unary calls: each gRPC rule as bytes in, events and status out."""

import gzip
from typing import Any

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import Code, GrpcStatus, Rejection
from cronoq_sansio.service.access import Principal
from cronoq_sansio.service.messages import (
    CallEnded,
    CallReceived,
    Get,
    Shutdown,
    Submit,
    SubmitReply,
    TaskResult,
    WorkerConnected,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc_admission import Refusal
from cronoq_sansio.wire.protobuf_codec import ROUTES
from tests.wire.peer import START, SUBMIT, WORK, Peer

CANCELLED, UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 1, 2, 3, 5, 7, 8
UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 12, 14, 16
EMPTY = frame(pb.SubmitRequest(task=pb.TaskSpec()).SerializeToString())
GET = "/cronoq.v1.Tasks/Get"


def one_call(peer: Peer, stream_id: int | None = None) -> CallReceived:
    (event,) = peer.exchange()
    assert isinstance(event, CallReceived)
    return event


def test_a_call_and_its_reply() -> None:
    peer = Peer()
    stream_id = peer.call(pb.GetRequest(task=pb.TaskRef(key="k")), GET)
    event = one_call(peer)
    assert event.request == Get("k") and event.deadline is None and "admin" in event.principal.roles
    assert event.call.sink.connection is peer.server  # type: ignore[attr-defined]
    event.call.sink.reject(Rejection(Code.NOT_FOUND, "no task 100%", (("cronoq-task-id", "7"),)))  # type: ignore[attr-defined]
    peer.exchange()
    seen = peer.streams[stream_id]
    assert seen.headers == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "5",
        "grpc-message": "no task 100%25",
        "cronoq-task-id": "7",
    }
    assert seen.ended and seen.reset is None and not seen.data


def test_a_reply_has_headers_one_message_and_trailers() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    one_call(peer).call.sink.reply(Submitted(7, True))  # type: ignore[attr-defined]
    peer.exchange()
    seen = peer.streams[stream_id]
    assert seen.headers == {":status": "200", "content-type": "application/grpc"}
    assert [pb.SubmitResponse.FromString(data) for data in seen.messages()] == [pb.SubmitResponse(id=7, duplicate=True)]
    assert seen.trailers == {"grpc-status": "0"} and seen.ended


def test_calls_share_a_read_and_are_answered_in_any_order() -> None:
    peer = Peer()
    ids = [peer.call(pb.SubmitRequest(task=pb.TaskSpec(key=str(number)))) for number in range(20)]
    events = peer.exchange()
    assert [event.request.spec.key for event in events] == [str(number) for number in range(20)]
    for number, event in reversed(list(enumerate(events))):
        event.call.sink.reply(Submitted(number + 1, False))
    peer.exchange()
    found = [pb.SubmitResponse.FromString(peer.streams[stream_id].messages()[0]).id for stream_id in ids]
    assert found == list(range(1, 21))


# --- requests that are not gRPC

HTTP: list[tuple[dict[str, Any], str]] = [
    ({"content_type": "application/json"}, "415"),
    ({"content_type": "application/grpc-web+proto"}, "415"),
    ({"content_type": None}, "415"),
    ({"method": "GET"}, "405"),
    ({"method": "OPTIONS", "content_type": None}, "405"),
]


@pytest.mark.parametrize(("fields", "status"), HTTP)
def test_http_statuses(fields: dict[str, Any], status: str) -> None:
    peer = Peer()
    stream_id = peer.headers(SUBMIT, end=True, **fields)
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.headers[":status"] == status and seen.ended
    assert ("allow" in seen.headers) is (status == "405")
    assert seen.data == seen.message.encode() + b"\n" and seen.headers["content-type"] == "text/plain"


def test_head_has_no_content() -> None:
    peer = Peer()
    stream_id = peer.headers(SUBMIT, end=True, method="HEAD")
    peer.exchange()
    seen = peer.streams[stream_id]
    assert (seen.headers[":status"], seen.data, seen.ended) == ("405", b"", True)


def test_the_text_of_a_refusal_waits_for_the_window() -> None:
    peer = Peer(window=3, credit=False)
    stream_id, other = peer.headers(SUBMIT, end=True, method="GET"), peer.headers(SUBMIT, end=True, method="GET")
    peer.exchange()
    seen = peer.streams[stream_id]
    assert (seen.data, seen.ended) == (b"gRP", False)
    peer.client.increment_flow_control_window(100, stream_id)
    peer.exchange()
    assert (seen.data, seen.ended) == (b"gRPC calls are POST requests\n", True)
    for _ in range(41):  # the other one is not taken
        peer.timer(SECOND)
        peer.client.ping(b"8 bytes.")
        peer.exchange()
    assert peer.streams[other].reset == 11 and not peer.server.closed and peer.server._streams == {}


def test_too_many_header_fields() -> None:
    peer = Peer()
    stream_id = peer.headers(SUBMIT, *[(f"x{number}", "y") for number in range(95)], end=True)
    assert peer.exchange() == []
    assert peer.streams[stream_id].headers[":status"] == "431"
    assert peer.call(pb.SubmitRequest(task=pb.TaskSpec()), SUBMIT, *[(f"x{number}", "y") for number in range(94)])
    one_call(peer)


def test_te_is_not_required() -> None:
    peer = Peer()
    peer.call(pb.SubmitRequest(task=pb.TaskSpec()), te=None)
    one_call(peer)


# --- calls that are refused


@pytest.mark.parametrize("path", ["/", "/cronoq.v1.Tasks/Nope", "/grpc.health.v1.Health/Check", "/x%c3%bc%/y"])
def test_unknown_methods(path: str) -> None:
    peer = Peer()
    stream_id = peer.headers(path)
    peer.data(stream_id, EMPTY, end=True)
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.status == UNIMPLEMENTED and seen.message.startswith("unknown method /") and seen.ended


def body(data: bytes, **fields: Any) -> tuple[bytes, dict[str, Any]]:
    return data, fields


REFUSED: dict[str, tuple[tuple[bytes, dict[str, Any]], int, str]] = {
    "no message": (body(b""), INVALID_ARGUMENT, "the call ended without a complete message"),
    "half a prefix": (body(b"\0\0\0"), INVALID_ARGUMENT, "the call ended without a complete message"),
    "half a message": (body(EMPTY[:-1]), INVALID_ARGUMENT, "the call ended without a complete message"),
    "two messages": (body(EMPTY + EMPTY), INVALID_ARGUMENT, "Tasks.Submit takes one message, not several"),
    "a message and a half": (body(EMPTY + b"\0\0"), INVALID_ARGUMENT, "the call ended without a complete message"),
    "undecodable": (body(frame(b"\xff")), INVALID_ARGUMENT, "the message is not a valid cronoq.v1.SubmitRequest"),
    "unknown flags": (body(b"\x80" + EMPTY[1:]), INVALID_ARGUMENT, "message flags are 128"),
    "compressed without encoding": (body(b"\x01" + EMPTY[1:]), INVALID_ARGUMENT, "compressed message, but"),
    "compressed, encoding identity": (
        body(b"\x01" + EMPTY[1:], grpc_encoding="identity"),
        INVALID_ARGUMENT,
        "compressed message, but",
    ),
    "not gzip": (body(b"\x01" + EMPTY[1:], grpc_encoding="gzip"), INVALID_ARGUMENT, "message is not valid gzip"),
    "unknown encoding": (body(EMPTY, grpc_encoding="zstd"), UNIMPLEMENTED, "grpc-encoding: only identity and gzip"),
    "bad timeout": (body(EMPTY, grpc_timeout="1s"), INVALID_ARGUMENT, "grpc-timeout: must be"),
    "bad binary metadata": (body(EMPTY, trace_bin="%"), INVALID_ARGUMENT, "metadata: a -bin value"),
    "above the limit": (body(b"\0\0\1\0\1"), RESOURCE_EXHAUSTED, "message of 65537 bytes is above the limit of 65536"),
    "invalid task": (
        body(frame(pb.SubmitRequest(task=pb.TaskSpec(priority=9)).SerializeToString())),  # type: ignore[arg-type]
        INVALID_ARGUMENT,
        "priority: 9",
    ),
}


@pytest.mark.parametrize(("request_", "status", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_calls(request_: tuple[bytes, dict[str, Any]], status: int, words: str) -> None:
    data, fields = request_
    for pieces in (1, 3, max(1, len(data))):
        peer = Peer(LimitSettings(max_message_bytes=65_536))
        stream_id = peer.headers(SUBMIT, **fields)
        step = max(1, -(-len(data) // pieces))
        for at in range(0, len(data), step):
            peer.data(stream_id, data[at : at + step])
        peer.data(stream_id, b"", end=True)
        assert peer.exchange() == []
        seen = peer.streams[stream_id]
        assert seen.status == status and seen.message.startswith(words), seen
        assert seen.ended and seen.reset is None and seen.headers[":status"] == "200"
        peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
        one_call(peer)  # the connection goes on


def test_unknown_encodings_are_told_which_are_known() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(), grpc_encoding="zstd")
    peer.exchange()
    assert peer.streams[stream_id].headers["grpc-accept-encoding"] == "identity,gzip"


def test_headers_that_end_the_stream_are_a_call_without_a_message() -> None:
    peer = Peer()
    stream_id = peer.headers(SUBMIT, end=True)
    assert peer.exchange() == []
    assert peer.streams[stream_id].status == INVALID_ARGUMENT


def test_the_refusal_of_a_large_message_does_not_wait_for_it() -> None:
    peer = Peer(LimitSettings(max_message_bytes=65_536))
    stream_id = peer.headers(SUBMIT)
    peer.data(stream_id, (1 << 24).to_bytes(5, "big"))
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.status == RESOURCE_EXHAUSTED and seen.ended
    for _ in range(200):  # what was on the way is thrown away, and nothing of it is kept
        peer.client.send_data(stream_id, b"x" * 16_000)
        assert peer.exchange() == []
    assert peer.server._credit.unfinished == 0


# --- requests that are fine in unusual clothes


def test_gzip_requests() -> None:
    peer = Peer()
    message = pb.SubmitRequest(task=pb.TaskSpec(payload=b"x" * 10_000)).SerializeToString()
    packed = gzip.compress(message)
    stream_id = peer.headers(SUBMIT, grpc_encoding="gzip")
    peer.data(stream_id, b"\x01" + len(packed).to_bytes(4, "big") + packed, end=True)
    event = one_call(peer)
    assert isinstance(event.request, Submit) and event.request.spec.payload == b"x" * 10_000


def test_an_encoding_is_announced_but_not_used() -> None:
    peer = Peer()
    peer.call(pb.SubmitRequest(task=pb.TaskSpec()), grpc_encoding="gzip")
    one_call(peer)


def test_the_end_may_come_in_a_frame_of_its_own_or_as_trailers() -> None:
    peer = Peer()
    stream_id = peer.headers()
    peer.data(stream_id, EMPTY)
    assert peer.exchange() == []
    peer.data(stream_id, b"", end=True)
    one_call(peer)
    stream_id = peer.headers()
    peer.data(stream_id, EMPTY)
    peer.client.send_headers(stream_id, [("x", "y")], end_stream=True)
    one_call(peer)


def test_a_message_of_exactly_the_limit() -> None:
    limits = LimitSettings(max_message_bytes=65_536)
    peer = Peer(limits)
    # An unknown field (number 1023) makes the request that large without making the task too large.
    message = pb.SubmitRequest(task=pb.TaskSpec()).SerializeToString()
    message += b"\xfa\x3f\xf7\xff\x03" + b"x" * 65_527
    assert len(message) == 65_534
    for filler, status in ((b"\x10\x01", None), (b"\x10\x81\x00", RESOURCE_EXHAUSTED)):
        stream_id = peer.headers()
        peer.data(stream_id, frame(message + filler), end=True)
        events = peer.exchange()
        assert peer.streams[stream_id].status == status and len(events) == (status is None)


@pytest.mark.parametrize(("text", "deadline"), [("250m", SECOND // 4), ("0n", 0), ("5S", 5 * SECOND)])
def test_deadlines_count_from_the_headers(text: str, deadline: int) -> None:
    peer = Peer()
    stream_id = peer.headers(SUBMIT, grpc_timeout=text)
    peer.exchange()
    peer.data(stream_id, EMPTY, end=True)
    (event,) = peer.exchange(after=3 * SECOND)
    assert isinstance(event, CallReceived) and event.deadline == START + deadline


# --- who may call


def test_credentials_come_first_and_see_the_metadata() -> None:
    seen: list[Any] = []

    def auth(metadata: Any) -> Any:
        seen.append(metadata)
        return Rejection(Code.UNAUTHENTICATED, "credentials are missing or unknown")

    peer = Peer(auth=auth)
    stream_id = peer.headers(SUBMIT, authorization="Bearer x", trace_bin="YWI")
    peer.exchange()  # no byte of a message is needed
    assert peer.streams[stream_id].status == UNAUTHENTICATED
    assert (b"authorization", b"Bearer x") in seen[0] and (b"trace-bin", b"ab") in seen[0]
    assert not any(name.startswith(b":") for name, _ in seen[0])
    work = peer.headers(WORK)
    assert peer.exchange() == []
    assert peer.streams[work].status == UNAUTHENTICATED


@pytest.mark.parametrize("route", ROUTES.values(), ids=[route.name for route in ROUTES.values()])
def test_each_method_needs_its_role(route: Any) -> None:
    others = {"client", "worker", "metrics"} - {route.role}
    peer = Peer(auth=lambda metadata: Principal("other", frozenset(others)))
    stream_id = peer.headers(route.path.decode())
    assert peer.exchange() == []
    seen = peer.streams[stream_id]
    assert seen.status == PERMISSION_DENIED and seen.message == f"{route.name} needs the role {route.role}"
    peer = Peer(auth=lambda metadata: Principal("right", frozenset({route.role})))
    stream_id = peer.headers(route.path.decode())
    events = peer.exchange()
    assert peer.streams[stream_id].status != PERMISSION_DENIED
    assert [type(event) for event in events] == ([WorkerConnected] if route.streaming else [])


# --- calls that end early


def test_a_server_that_does_not_serve_says_so_before_it_looks_at_arguments() -> None:
    """Order of server.md section 3: authentication, role, leader, arguments."""
    starting = Rejection(Code.UNAVAILABLE, "the server is starting")
    allowed = Peer(refusal=Refusal(starting))
    for message in (b"\xff not a message", pb.SubmitRequest(task=pb.TaskSpec()).SerializeToString()):
        stream_id = allowed.headers()
        allowed.data(stream_id, frame(message), end=True)
        assert allowed.exchange() == []
        assert allowed.streams[stream_id].status == GrpcStatus.UNAVAILABLE
    nobody = Rejection(Code.UNAUTHENTICATED, "who is it?")
    stranger = Peer(auth=lambda _metadata: nobody, refusal=Refusal(starting))
    stream_id = stranger.call(pb.SubmitRequest(task=pb.TaskSpec()))
    stranger.exchange()
    assert stranger.streams[stream_id].status == GrpcStatus.UNAUTHENTICATED


def test_a_reset_ends_the_call() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    call = one_call(peer).call
    peer.client.reset_stream(stream_id, 8)
    assert peer.exchange() == [CallEnded(call)]
    call.sink.reply(Submitted(1, False))  # type: ignore[attr-defined]
    assert not peer.server.wants_write()


def test_a_reset_before_the_message_is_whole_says_nothing() -> None:
    peer = Peer()
    stream_id = peer.headers()
    peer.data(stream_id, EMPTY[:3])
    peer.exchange()
    peer.client.reset_stream(stream_id, 8)
    assert peer.exchange() == [] and peer.server._credit.unfinished == 0


def test_a_reset_after_the_reply_was_decided_says_nothing() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    call = one_call(peer).call
    call.sink.reply(Submitted(1, False))  # type: ignore[attr-defined]
    peer.client.reset_stream(stream_id, 8)
    assert peer.server.receive(peer.client.data_to_send(), peer.now) == []
    assert peer.server.take(1 << 20) == b""


def test_only_the_first_answer_counts() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    sink: Any = one_call(peer).call.sink
    sink.reply(Submitted(1, False))
    sink.reject(Rejection(Code.INTERNAL, "no"))
    sink.reply(Submitted(2, False))
    peer.exchange()
    sink.reject(Rejection(Code.INTERNAL, "no"))
    peer.exchange()
    seen = peer.streams[stream_id]
    assert seen.status == 0 and [pb.SubmitResponse.FromString(data).id for data in seen.messages()] == [1]


def test_a_lost_connection_ends_every_call() -> None:
    peer = Peer()
    for _ in range(3):
        peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    events = peer.exchange()
    events[1].call.sink.reply(Submitted(1, False))
    ended = peer.server.receive_eof(peer.now)
    assert ended == [CallEnded(events[0].call), CallEnded(events[2].call)]
    assert peer.server.closed and peer.server.receive_eof(peer.now) == []
    assert peer.server.take(1 << 20) == b"" and not peer.server.wants_write()


def test_a_broken_connection_ends_every_call() -> None:
    peer = Peer()
    peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    call = one_call(peer).call
    assert peer.server.receive(b"\xff" * 9, peer.now) == [CallEnded(call)]
    assert peer.server.closed and peer.server.receive_eof(peer.now) == []


def test_the_end_of_a_term_answers_every_call() -> None:
    peer = Peer()
    whole = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    call = one_call(peer).call
    half = peer.headers()
    peer.exchange()
    peer.server.refuse_open(Rejection(Code.UNAVAILABLE, "the term has ended"), Shutdown("bye", True))
    assert peer.exchange() == []
    assert peer.streams[whole].status == UNAVAILABLE
    call.sink.reply(Submitted(1, False))  # type: ignore[attr-defined]
    peer.data(half, EMPTY, end=True)  # nobody has heard of this one: the next term answers it
    one_call(peer)


def test_finishing_ends_what_is_open() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec()))
    call = one_call(peer).call
    peer.server.drain()
    peer.exchange()
    assert peer.goaways == [(2**31 - 1, 0)]
    peer.server.finish()
    assert peer.server.closed
    peer.watch(peer.server.take(1 << 20))
    assert peer.goaways == [(2**31 - 1, 0), (stream_id, 0)] and not peer.server.wants_write()
    assert peer.streams[stream_id].status == UNAVAILABLE
    assert peer.server.receive_eof(peer.now) == [CallEnded(call)]


def test_results_with_output_above_one_frame() -> None:
    peer = Peer()
    stream_id = peer.call(pb.SubmitRequest(task=pb.TaskSpec(), wait=True))
    output = bytes(range(256)) * 1_000
    one_call(peer).call.sink.reply(SubmitReply(1, False, TaskResult(1, 6, output, "", "")))  # type: ignore[attr-defined]
    peer.exchange()
    seen = peer.streams[stream_id]
    assert pb.SubmitResponse.FromString(seen.messages()[0]).result.output == output
    assert seen.status == 0 and seen.frames > 10
