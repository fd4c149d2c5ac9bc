"""The usual call of the gRPC client, in and out in one piece: the same comes of it as in many pieces."""

import gzip
import struct

import pytest

from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import grpc_client
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire.client_call import CallEnded, ClientEvent
from cronoq_sansio.wire.grpc_client import GrpcClient
from tests.wire import raw
from tests.wire.client_peer import (
    OK_HEADERS,
    START,
    connected,
    data,
    end_of,
    headers,
    machine,
    message,
    messages_of,
    sent,
    start,
    trailers,
)

GZIP = [*OK_HEADERS, (b"grpc-encoding", b"gzip")]
NOTE = (b"x-note", b"n")
ANSWERS: dict[str, tuple[list[tuple[bytes, bytes]], bytes, tuple[int, bytes]]] = {
    "an answer": (OK_HEADERS, message(b"reply"), (0, b"")),
    "an empty answer": (OK_HEADERS, message(b""), (0, b"")),
    "a text with success": (OK_HEADERS, message(b"reply"), (0, b"fine")),
    "metadata": ([*OK_HEADERS, NOTE], message(b"reply"), (0, b"")),
    "an answer of the largest size": (OK_HEADERS, message(bytes(1_000)), (0, b"")),
    "a message above the limit": (OK_HEADERS, message(bytes(1_001)), (0, b"")),
    "a status after a message": (OK_HEADERS, message(b"reply"), (13, b"broken")),
    "two answers": (OK_HEADERS, message(b"a") + message(b"b"), (0, b"")),
    "no answer": (OK_HEADERS, b"", (0, b"")),
    "no answer, and a status": (OK_HEADERS, b"", (5, b"no such task")),
    "half an answer": (OK_HEADERS, message(b"reply")[:-1], (0, b"")),
    "half a length": (OK_HEADERS, message(b"reply")[:3], (0, b"")),
    "a compressed answer": (GZIP, message(gzip.compress(b"reply"), 1), (0, b"")),
    "an answer that is not compressed although it may be": (GZIP, message(b"reply"), (0, b"")),
    "a compressed answer that was not announced": (OK_HEADERS, message(gzip.compress(b"x"), 1), (0, b"")),
    "unknown flags": (OK_HEADERS, message(b"x", 2), (0, b"")),
    "a web page": ([(b":status", b"200"), (b"content-type", b"text/html")], b"<html>", (0, b"")),
    "a web page that might be a message": (
        [(b":status", b"200"), (b"content-type", b"text/html")],
        message(b"x"),
        (0, b""),
    ),
    "an error of HTTP": ([(b":status", b"503"), (b"content-type", b"text/plain")], b"sorry", (0, b"")),
    "an unknown status": (OK_HEADERS, message(b"x"), (99, b"")),
}


def said(stream_id: int, name: str) -> bytes:
    fields, body, (status, text) = ANSWERS[name]
    return headers(stream_id, fields) + data(stream_id, body) + trailers(stream_id, status, text, NOTE)


def told(events: list[ClientEvent]) -> list[tuple[object, ...]]:
    return [
        (type(event), *(getattr(event, name) for name in event.__dataclass_fields__ if name != "call"))
        for event in events
    ]


def in_pieces(client: GrpcClient, stream_id: int, name: str) -> list[ClientEvent]:
    events: list[ClientEvent] = []
    for byte in said(stream_id, name):
        events += client.receive(bytes((byte,)), START)
    return events


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_answer_in_one_piece_is_the_same_as_in_many(
    name: str, streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    handle = grpc_client._HANDLERS[http2.Answer]

    def watched(client: GrpcClient, event: http2.Answer, events: list[ClientEvent]) -> None:
        whole.append(event.stream_id)
        handle(client, event, events)

    monkeypatch.setitem(grpc_client._HANDLERS, http2.Answer, watched)
    client = connected(max_receive=1_000)
    first = start(client, streaming=streaming)
    client.take(1 << 20)
    expected = told(in_pieces(client, 1, name))
    # Its trailers may not have been looked at, because the call was over: look at them.
    start(client)
    client.take(1 << 20)
    client.receive(headers(3) + data(3, message(b"x")), START)
    client.receive(trailers(3, *ANSWERS[name][2], NOTE), START)
    second = start(client, streaming=streaming)
    client.take(1 << 20)
    assert told(client.receive(said(5, name), START)) == expected and expected[-1][0] is CallEnded
    assert whole == [5]
    assert first.over and second.over and client.open_calls == 0 and not client.closed
    assert sent(client) == [], "nothing is left to be reset"


def test_what_comes_for_a_call_that_is_over_is_dropped() -> None:
    client = connected()
    for stream in (1, 3):
        start(client)
        client.take(1 << 20)
        client.receive(said(stream, "an answer"), START)
    call = start(client)
    client.take(1 << 20)
    client.cancel(call)
    assert client.receive(said(5, "an answer"), START) == []


# --- out


def test_a_call_in_one_go_is_that_in_three() -> None:
    client = connected()
    call = client.ask(b"/a/b", [(b"x-tag", b"v")], b"question", START)
    assert call.unsent == len(message(b"question"))
    first = client.take(1 << 20)
    assert call.unsent == 0 and call.end_sent and not call.streaming
    other = connected()
    start(other, b"question", path=b"/a/b", metadata=[(b"x-tag", b"v")])
    assert other.take(1 << 20) == first
    (event,) = client.receive(said(1, "an answer"), START)
    assert event == CallEnded(call, GrpcStatus.OK, "", (("x-note", "n"),), False, b"reply")


def test_what_is_asked_while_nobody_writes_goes_out_in_portions() -> None:
    client = connected()
    for _ in range(100):
        client.ask(b"/a/b", [], bytes(500), START)
    portions = []
    while client.wants_write():
        portions.append(len(client.take(2_000)))
        assert client.http2.unsent < 1_000, "the rest waits as calls, which may still end"
    assert max(portions) <= 2_000 and len(portions) >= 25
    assert client.http2.unsent == 0


def test_a_stream_with_several_messages_before_it_is_open_sends_them_all() -> None:
    client = machine()
    call = start(client, None, streaming=True)
    for text in (b"one", b"two", b"three"):
        client.send(call, text)
    client.half_close(call)
    client.receive(raw.settings(), START)
    frames = [frame for frame in raw.cut_frames(client.take(1 << 20)[len(raw.PREFACE) :]) if frame[2] == 1]
    assert [(kind, flags) for kind, flags, *_ in frames] == [(raw.HEADERS, raw.END_HEADERS), (raw.DATA, raw.END_STREAM)]
    assert frames[1][3] == message(b"one") + message(b"two") + message(b"three")


def test_settings_that_open_the_windows_let_calls_go_on() -> None:
    client = connected(settings=raw.settings(initial_window_size=10))
    calls = [start(client, bytes(100)) for _ in range(3)]
    assert sum(len(frame[3]) for frame in sent(client) if frame[0] == raw.DATA) == 30
    assert not client.wants_write()
    client.receive(raw.settings(initial_window_size=200), START)
    assert sum(len(frame[3]) for frame in sent(client) if frame[0] == raw.DATA) == 3 * 105 - 30
    assert [call.unsent for call in calls] == [0, 0, 0]


@pytest.mark.parametrize("window", ["stream", "connection"])
def test_calls_that_wait_for_a_window_and_end_leave_nothing_behind(window: str) -> None:
    settings = raw.settings(initial_window_size=10) if window == "stream" else raw.settings()
    client = connected(settings=settings)
    calls = [start(client, bytes(70_000)) for _ in range(5)]
    client.take(1 << 20)
    assert len(client._blocked if window == "stream" else client._starved) >= 4
    for call in calls:
        client.cancel(call)
    assert not client._blocked and not client._starved and client.open_calls == 0
    client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 20)), START)
    assert [frame[0] for frame in sent(client)] == [raw.RST_STREAM] * 5


def test_the_last_byte_of_a_window_is_used_in_turn() -> None:
    client = connected()
    calls = [start(client, bytes(60_000)) for _ in range(2)]
    client.take(1 << 20)
    for _ in range(10):
        client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1_000)), START)
        client.take(1 << 20)
    assert abs(calls[0].unsent - calls[1].unsent) <= 16_384 + 1_000
    client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 20)), START)
    client.take(1 << 20)
    assert [call.unsent for call in calls] == [0, 0] and all(call.end_sent for call in calls)
    for stream in (1, 3):
        (event,) = client.receive(said(stream, "an answer"), START)
        assert isinstance(event, CallEnded) and event.data == b"reply"
    assert end_of([event], calls[1]).status is GrpcStatus.OK and messages_of([event], calls[1]) == [b"reply"]
