"""The gRPC client machine against a server by hand: what it sends, and what becomes of a call."""

import gzip
import struct

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.client_call import (
    CallEnded,
    ClientEvent,
    Connected,
    ConnectionLost,
    GoingAway,
    HeadersReceived,
    MessageReceived,
    SendingResumed,
)
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


def answer(stream_id: int = 1, body: bytes = b"reply") -> bytes:
    return headers(stream_id) + data(stream_id, message(body)) + trailers(stream_id)


# --- what goes out


def test_a_call_on_the_wire() -> None:
    client = connected(user_agent="test/1")
    start(client, b"ask", metadata=[(b"x-tag", b"v")], deadline=START + 1_500_000_000)
    (kind, flags, stream, block), (_, end, _, body) = sent(client)
    assert (kind, flags, stream) == (raw.HEADERS, raw.END_HEADERS, 1)
    assert Decoder().decode(block, raw=True) == [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/cronoq.v1.Tasks/Submit"),
        (b":authority", b"localhost:7070"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"test/1"),
        (b"grpc-accept-encoding", b"identity,gzip"),
        (b"x-tag", b"v"),
        (b"grpc-timeout", b"1500m"),
    ]
    assert (end, body) == (raw.END_STREAM, message(b"ask"))


def test_calls_wait_for_settings_and_for_places() -> None:
    client = machine()
    calls = [start(client) for _ in range(3)]
    assert [call.waiting for call in calls] == [True] * 3
    client.take(1 << 20)
    assert client.receive(raw.settings(max_concurrent_streams=2), START) == [Connected()]
    assert {stream for _, _, stream, _ in sent(client)} == {0, 1, 3}
    assert [call.waiting for call in calls] == [False, False, True]
    events = client.receive(answer(1), START)
    assert messages_of(events, calls[0]) == [b"reply"]
    assert {stream for _, _, stream, _ in sent(client)} == {5}, "the third takes the place of the first"
    client.receive(raw.settings(max_concurrent_streams=10), START)
    assert client.open_calls == 2


def test_more_places_than_before() -> None:
    client = connected(settings=raw.settings(max_concurrent_streams=0))
    call = start(client)
    assert not client.wants_write()
    client.receive(raw.settings(max_concurrent_streams=1), START)
    assert client.wants_write() and sent(client) and not call.waiting


def test_messages_of_a_stream_share_frames_and_half_close_ends_them() -> None:
    client = connected()
    call = start(client, None, streaming=True)
    for body in (b"one", b"two", b"three"):
        client.send(call, body)
    _, (kind, flags, _, body_sent) = sent(client)
    assert (kind, flags) == (raw.DATA, 0) and body_sent == message(b"one") + message(b"two") + message(b"three")
    client.half_close(call)
    client.half_close(call)
    client.send(call, b"too late")
    assert sent(client) == [(raw.DATA, raw.END_STREAM, 1, b"")]


def test_a_large_message_goes_out_as_the_windows_open() -> None:
    client = connected()
    body = bytes(range(256)) * 1_000
    call = start(client, body, streaming=True)
    got = b"".join(frame[3] for frame in sent(client) if frame[0] == raw.DATA)
    assert len(got) == 65_535 and call.unsent == len(message(body)) - 65_535 and not client.wants_write()
    client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 1, struct.pack(">L", 1 << 20)), START)
    assert sent(client) == [], "the window of the connection is still shut"
    client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 20)), START)
    rest = sent(client)
    assert got + b"".join(frame[3] for frame in rest) == message(body)
    assert [frame[1] for frame in rest] == [0] * (len(rest) - 1) + [raw.END_STREAM]
    assert call.unsent == 0
    assert SendingResumed(call) not in client.take_events(), "it never stood above the bound at which senders wait"


def test_a_sender_that_waits_is_told_when_there_is_room() -> None:
    client = connected()
    call = start(client, None, streaming=True)
    client.send(call, bytes(limits.CLIENT_UNSENT + 100_000))
    client.take(1 << 20)
    assert client.take_events() == []
    for stream in (0, 1):
        client.receive(raw.frame(raw.WINDOW_UPDATE, 0, stream, struct.pack(">L", 1 << 20)), START)
    client.take(1 << 20)
    assert client.take_events() == [SendingResumed(call)]


@pytest.mark.parametrize("opened", [False, True])
def test_cancelling(opened: bool) -> None:
    client = connected(settings=None if opened else raw.settings(max_concurrent_streams=0))
    call = start(client, deadline=START + SECOND)
    client.take(1 << 20)
    client.cancel(call)
    client.cancel(call)
    assert sent(client) == ([(raw.RST_STREAM, 0, 1, struct.pack(">L", 8))] if opened else [])
    assert client.open_calls == 0 and client.next_timeout() is None
    assert client.receive(answer() if opened else b"", START) == []


# --- what comes back


def test_an_answer() -> None:
    client = connected()
    call = start(client)
    client.take(1 << 20)
    fields = [*OK_HEADERS, (b"x-first", b"1")]
    said = headers(1, fields) + data(1, message(b"reply")) + trailers(1, 0, b"", (b"x-last-bin", b"AAE"))
    events = client.receive(said, START)
    assert messages_of(events, call) == [b"reply"]
    assert end_of(events, call) == CallEnded(
        call, GrpcStatus.OK, "", (("x-first", "1"), ("x-last-bin", b"\0\1")), unprocessed=False, data=b"reply"
    )
    assert sent(client) == [], "both sides have ended: nothing is left to be reset"


def test_a_stream_tells_when_it_was_accepted() -> None:
    client = connected()
    call = start(client, streaming=True)
    client.take(1 << 20)
    assert client.receive(headers(1, [*OK_HEADERS, (b"x-a", b"b")]), START) == [HeadersReceived(call, (("x-a", "b"),))]
    two = data(1, message(b"one") + message(b"two")[:3]) + data(1, message(b"two")[3:])
    assert messages_of(client.receive(two, START), call) == [b"one", b"two"]
    assert end_of(client.receive(trailers(1, 15, b"too slow"), START), call).status is GrpcStatus.DATA_LOSS


ONLY = [*OK_HEADERS, (b"grpc-status", b"5"), (b"grpc-message", b"no%20task%3A %C3%A4%zz")]
ENDS: dict[str, tuple[bytes, GrpcStatus, str]] = {
    "trailers only": (headers(1, ONLY, end=True), GrpcStatus.NOT_FOUND, "no task: ä%zz"),
    "an early error": (headers(1, ONLY, end=True), GrpcStatus.NOT_FOUND, "no task: ä%zz"),
    "a status after a message": (
        headers(1) + data(1, message(b"x")) + trailers(1, 13, b"broken"),
        GrpcStatus.INTERNAL,
        "broken",
    ),
    "no status in trailers": (
        headers(1) + headers(1, [(b"x", b"y")], end=True),
        GrpcStatus.UNKNOWN,
        "without a grpc-status",
    ),
    "no trailers at all": (headers(1) + data(1, message(b"x"), end=True), GrpcStatus.UNKNOWN, "without a grpc-status"),
    "headers that end without status": (headers(1, end=True), GrpcStatus.UNKNOWN, "without a grpc-status"),
    "a status that is no number": (
        headers(1, [*OK_HEADERS, (b"grpc-status", b"abc")], end=True),
        GrpcStatus.UNKNOWN,
        "unknown status 'abc'",
    ),
    "a status of the future": (
        headers(1, [*OK_HEADERS, (b"grpc-status", b"17")], end=True),
        GrpcStatus.UNKNOWN,
        "unknown status '17'",
    ),
    "success without an answer": (headers(1) + trailers(1), GrpcStatus.INTERNAL, "without an answer"),
    "success within a message": (
        headers(1) + data(1, message(b"abc")[:6]) + trailers(1),
        GrpcStatus.INTERNAL,
        "within a message",
    ),
    "two answers": (
        headers(1) + data(1, message(b"a") + message(b"b")) + trailers(1),
        GrpcStatus.INTERNAL,
        "several messages",
    ),
    "data before headers": (data(1, message(b"a")), GrpcStatus.INTERNAL, "data before headers"),
    "a message above the limit": (
        headers(1) + data(1, b"\0" + (100_001).to_bytes(4, "big")),
        GrpcStatus.RESOURCE_EXHAUSTED,
        "message of 100001 bytes is above the limit of 100000 (grpc.max_receive_message_length)",
    ),
    "a compressed message that was not announced": (
        headers(1) + data(1, message(gzip.compress(b"x"), 1)),
        GrpcStatus.INTERNAL,
        "grpc-encoding names no compression",
    ),
    "unknown message flags": (headers(1) + data(1, message(b"x", 2)), GrpcStatus.INTERNAL, "flags are 2"),
    "an unknown compression": (
        headers(1, [*OK_HEADERS, (b"grpc-encoding", b"br")]),
        GrpcStatus.INTERNAL,
        "compresses with 'br'",
    ),
    "a web page": (
        headers(1, [(b":status", b"200"), (b"content-type", b"text/html")]),
        GrpcStatus.UNKNOWN,
        "content-type 'text/html' instead of application/grpc",
    ),
    "no content-type": (headers(1, [(b":status", b"200")]), GrpcStatus.UNKNOWN, "no content-type"),
}
HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14, 418: 2, 500: 2, 302: 2}
for http_status, code in HTTP.items():
    page = [(b":status", b"%d" % http_status), (b"content-type", b"text/plain")]
    ENDS[f"HTTP {http_status}"] = (
        headers(1, page) + data(1, b"sorry", end=True),
        GrpcStatus(code),
        f"HTTP {http_status} (text/plain) instead of gRPC",
    )
RESETS = {0: 13, 1: 13, 2: 13, 3: 13, 4: 13, 6: 13, 9: 13, 10: 13, 8: 1, 7: 14, 11: 8, 12: 7, 5: 2, 99: 2}
for reset, code in RESETS.items():
    ENDS[f"reset {reset}"] = (
        raw.frame(raw.RST_STREAM, 0, 1, struct.pack(">L", reset)),
        GrpcStatus(code),
        "the server reset the call",
    )


@pytest.mark.parametrize(("said", "status", "text"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("at_once", [True, False])
def test_how_a_call_may_end(said: bytes, status: GrpcStatus, text: str, at_once: bool) -> None:
    client = connected()
    call, other = start(client), start(client)
    client.take(1 << 20)
    events: list[ClientEvent] = []
    for piece in [said] if at_once else [said[at : at + 1] for at in range(len(said))]:
        events += client.receive(piece, START)
    end = end_of(events, call)
    assert end.status is status and text in end.message
    assert end.unprocessed is (said == raw.frame(raw.RST_STREAM, 0, 1, struct.pack(">L", 7)))
    assert call.over and not client.closed
    assert messages_of(client.receive(answer(3), START), other) == [b"reply"], "the other call goes on"
    assert client.open_calls == 0


@pytest.mark.parametrize(
    ("code", "deadline", "after", "status"),
    [
        (8, SECOND, SECOND, GrpcStatus.DEADLINE_EXCEEDED),
        (8, SECOND, SECOND - 1, GrpcStatus.CANCELLED),
        (8, None, SECOND, GrpcStatus.CANCELLED),
        (2, SECOND, SECOND, GrpcStatus.INTERNAL),
    ],
)
def test_a_server_that_sees_the_deadline_pass_first(
    code: int, deadline: int | None, after: int, status: GrpcStatus
) -> None:
    """It may reset the call for that, as grpc-go's does, before our own timer was looked at."""
    client = connected()
    call = start(client, deadline=None if deadline is None else START + deadline)
    client.take(1 << 20)
    events = client.receive(raw.frame(raw.RST_STREAM, 0, 1, struct.pack(">L", code)), START + after)
    assert end_of(events, call).status is status


def test_a_call_that_is_answered_early_is_reset() -> None:
    client = connected()
    call = start(client, None, streaming=True)
    client.send(call, b"x")
    client.take(1 << 20)
    client.receive(headers(1, ONLY, end=True), START)
    assert sent(client) == [(raw.RST_STREAM, 0, 1, struct.pack(">L", 8))]


def test_gzip_answers() -> None:
    client = connected()
    call = start(client)
    client.take(1 << 20)
    fields = [*OK_HEADERS, (b"grpc-encoding", b"gzip")]
    said = headers(1, fields) + data(1, message(gzip.compress(b"z" * 50_000), 1)) + trailers(1)
    assert messages_of(client.receive(said, START), call) == [b"z" * 50_000]
    bomb = start(client)
    client.take(1 << 20)
    said = headers(3, fields) + data(3, message(gzip.compress(b"z" * 100_001), 1))
    end = end_of(client.receive(said, START), bomb)
    assert end.status is GrpcStatus.RESOURCE_EXHAUSTED and "after decompression" in end.message


def test_the_limit_of_a_stream_may_be_raised_while_it_runs() -> None:
    client = connected()
    call = start(client, streaming=True, max_receive=10)
    client.take(1 << 20)
    client.receive(headers(1) + data(1, message(b"x" * 10)), START)
    call.max_receive = 20
    assert messages_of(client.receive(data(1, message(b"y" * 20)), START), call) == [b"y" * 20]
    assert end_of(client.receive(data(1, message(b"y" * 21)), START), call).status is GrpcStatus.RESOURCE_EXHAUSTED


@given(st.lists(st.integers(1, 400), max_size=30))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    said = b"".join(
        (
            headers(1) + data(1, message(b"a" * 300)[:7]),
            headers(3, [*OK_HEADERS, (b"grpc-encoding", b"gzip")]),
            data(1, message(b"a" * 300)[7:]) + trailers(1),
            data(3, message(gzip.compress(b"zip"), 1) + message(b"plain")),
            raw.frame(raw.PING, 0, 0, bytes(8)),
            trailers(3, 8, b"enough"),
        )
    )

    def play(pieces: list[bytes]) -> list[tuple[object, ...]]:
        client = connected()
        first, second = start(client), start(client, streaming=True)
        client.take(1 << 20)
        names = {id(first): 1, id(second): 3}
        seen: list[tuple[object, ...]] = []
        for piece in pieces:
            for event in client.receive(piece, START):
                fields = [getattr(event, name) for name in event.__dataclass_fields__ if name != "call"]
                seen.append((type(event).__name__, names[id(event.call)], *fields))
        return seen

    pieces, at = [], 0
    for cut in cuts:
        pieces.append(said[at : at + cut])
        at += cut
    pieces.append(said[at:])
    assert play([piece for piece in pieces if piece]) == play([said])


# --- flow control


def test_credit_of_a_stream_waits_for_its_owner_and_that_of_an_answer_does_not() -> None:
    client = connected(max_receive=4 << 20)
    stream, answered = start(client, streaming=True), start(client)
    client.take(1 << 20)
    piece = message(bytes(16_000))
    client.receive(headers(1) + headers(3), START)
    held = []
    for _ in range(40):
        held += [event for event in client.receive(data(1, piece), START) if isinstance(event, MessageReceived)]
    assert [frame for frame in sent(client) if frame[2] == 1] == []
    for event in held:
        client.consumed(stream, event.size)
    assert sum(int.from_bytes(frame[3], "big") for frame in sent(client) if frame[2] == 1) >= limits.CLIENT_WINDOW // 2
    client.receive(data(3, message(bytes(900_000))[:16_000]), START)
    for _ in range(40):
        client.receive(data(3, bytes(16_000)), START)
    assert [frame[0] for frame in sent(client) if frame[2] == 3] == [raw.WINDOW_UPDATE], "an answer in pieces"
    assert not answered.over


def test_a_message_larger_than_the_window_of_a_stream_gets_through() -> None:
    client = connected(max_receive=4 << 20)
    call = start(client, streaming=True)
    client.take(1 << 20)
    client.receive(headers(1), START)
    body = message(bytes(3 << 20))
    room = limits.CLIENT_WINDOW
    at = 0
    events: list[ClientEvent] = []
    while at < len(body):
        step = min(16_384, room, len(body) - at)
        assert step > 0, "the client gives no credit for a message that is not complete"
        events += client.receive(data(1, body[at : at + step]), START)
        at, room = at + step, room - step
        room += sum(int.from_bytes(f[3], "big") for f in sent(client) if f[0] == raw.WINDOW_UPDATE and f[2] == 1)
    assert messages_of(events, call) == [bytes(3 << 20)]


# --- deadlines


def test_deadlines_are_kept_here_too() -> None:
    client = connected(settings=raw.settings(max_concurrent_streams=1))
    first = start(client, deadline=START + 2 * SECOND)
    waiting = start(client, deadline=START + SECOND)
    client.take(1 << 20)
    assert client.next_timeout() == START + SECOND
    assert client.handle_timer(START + SECOND - 1) == []
    events = client.handle_timer(START + SECOND)
    assert end_of(events, waiting).status is GrpcStatus.DEADLINE_EXCEEDED
    assert client.next_timeout() == START + 2 * SECOND
    events = client.handle_timer(START + 2 * SECOND)
    assert end_of(events, first).status is GrpcStatus.DEADLINE_EXCEEDED
    assert sent(client) == [(raw.RST_STREAM, 0, 1, struct.pack(">L", 8))]
    assert client.next_timeout() is None


def test_the_server_is_told_what_is_left_when_the_call_goes_out() -> None:
    client = machine()
    start(client, deadline=START + 3 * SECOND)
    client.take(1 << 20)
    client.receive(raw.settings(), START + 2 * SECOND)
    (_, _, _, block) = next(frame for frame in sent(client) if frame[0] == raw.HEADERS)
    assert dict(Decoder().decode(block, raw=True))[b"grpc-timeout"] == b"1S"


def test_deadlines_of_calls_that_are_over_take_no_memory() -> None:
    client = connected()
    for _ in range(1_000):
        client.cancel(start(client, deadline=START + SECOND))
        client.take(1 << 20)
    assert len(client._deadlines) < 200 and client.next_timeout() is None


# --- ends of the connection


def test_a_farewell_sorts_the_calls() -> None:
    client = connected(settings=raw.settings(max_concurrent_streams=2))
    kept, late, waiting = start(client), start(client), start(client)
    client.take(1 << 20)
    goaway = raw.frame(raw.GOAWAY, 0, 0, struct.pack(">LL", 1, 0) + b"bye")
    events = client.receive(goaway, START)
    assert events[0] == GoingAway("localhost:7070: the server closes the connection (bye)", too_many_pings=False)
    for call in (late, waiting):
        end = end_of(events, call)
        assert end.status is GrpcStatus.UNAVAILABLE and end.unprocessed and "closes the connection" in end.message
    assert not client.usable and not client.closed and not kept.over
    assert messages_of(client.receive(answer(1), START), kept) == [b"reply"]
    assert client.closed


def test_a_server_that_wants_fewer_pings_is_heard() -> None:
    client = connected()
    start(client)
    client.take(1 << 20)
    goaway = raw.frame(raw.GOAWAY, 0, 0, struct.pack(">LL", 0, 11) + b"too_many_pings")
    assert client.receive(goaway, START)[0] == GoingAway(
        "localhost:7070: the server closes the connection (ENHANCE_YOUR_CALM: too_many_pings)", too_many_pings=True
    )


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("eof", "the server closed the connection"),
        ("broken", "the connection broke"),
        ("garbage", "the server broke HTTP/2: DATA without a stream"),
        ("silent", words.PING_LOST),
    ],
)
def test_when_the_connection_is_lost_every_call_ends(how: str, reason: str) -> None:
    client = connected(settings=raw.settings(max_concurrent_streams=1))
    first, waiting = start(client), start(client)
    client.take(1 << 20)
    if how == "garbage":
        events = client.receive(data(0, b""), START)
    elif how == "silent":
        assert client.handle_timer(START + 20 * SECOND) == []
        assert client.wants_write(), "a ping"
        events = client.handle_timer(START + 25 * SECOND)
    else:
        events = client.receive_eof(START, reason if how == "broken" else "")
    lost = events[-1]
    assert isinstance(lost, ConnectionLost) and lost.reason.lower().startswith(reason.lower())
    assert (end_of(events, first).unprocessed, end_of(events, waiting).unprocessed) == (False, True)
    assert end_of(events, first).status is GrpcStatus.UNAVAILABLE
    assert end_of(events, first).message == end_of(events, waiting).message == f"localhost:7070: {lost.reason}"
    assert client.closed and not client.usable and client.next_timeout() is None
    assert client.receive_eof(START) == []


def test_closing_ends_all_calls_and_says_goodbye() -> None:
    client = connected()
    call = start(client)
    client.take(1 << 20)
    events = client.close()
    assert end_of(events, call).status is GrpcStatus.CANCELLED
    assert client.closed
    assert [frame[0] for frame in sent(client)] == [raw.RST_STREAM, raw.GOAWAY]


@given(st.binary(max_size=200), st.integers(1, 50))
def test_garbage_never_raises(said: bytes, cut: int) -> None:
    for client in (machine(), connected()):
        start(client, deadline=START + SECOND)
        start(client, streaming=True)
        client.take(1 << 20)
        for at in range(0, len(said), cut):
            client.receive(said[at : at + cut], START)
        client.receive_eof(START)
        client.take(1 << 20)
        assert client.open_calls == 0
