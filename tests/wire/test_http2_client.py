"""HTTP/2 below the gRPC client: who answers there, which rules a server may not break, windows, ends and timers."""

import struct

import pytest
from hpack import Decoder, Encoder

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.http2_events import (
    ClientSideEvent,
    Data,
    Failed,
    GoneAway,
    ResetByServer,
    Response,
    Trailers,
    WindowOpened,
)
from tests.wire import raw
from tests.wire.http2_peer import (
    FIELDS,
    OK,
    START,
    block,
    client,
    data,
    goaway,
    greeted,
    headers,
    number,
    opened,
    output,
    plain,
)

# --- the first bytes


def test_preface_settings_and_window_go_out_first() -> None:
    machine = client()
    sent = machine.take(1 << 20)
    assert sent.startswith(raw.PREFACE)
    settings, window = raw.cut_frames(sent[len(raw.PREFACE) :])
    assert settings[0] == raw.SETTINGS and struct.pack(">HL", 2, 0) in settings[3], "push is off"
    assert window == (raw.WINDOW_UPDATE, 0, 0, number(limits.CONNECTION_WINDOW - 65_535))


STRANGERS = {
    "HTTP/1.1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", words.SPEAKS_HTTP1),
    "a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x46", words.SPEAKS_TLS),
    "a TLS handshake": (b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", words.SPEAKS_TLS),
    "text": (b"220 mail.example.org ESMTP\r\n", words.NOT_HTTP2),
    "HTTP/2 without SETTINGS": (raw.frame(raw.PING, 0, 0, b"12345678"), words.NOT_HTTP2),
    "an acknowledgement first": (raw.frame(raw.SETTINGS, raw.ACK, 0), words.NOT_HTTP2),
}


@pytest.mark.parametrize(("said", "reason"), STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_who_answers_something_else_is_named(said: bytes, reason: str, at_once: bool, ends: bool) -> None:
    machine = client()
    events: list[ClientSideEvent] = []
    for piece in [said] if at_once else [said[at : at + 1] for at in range(len(said))]:
        events += machine.receive(piece, START)
    if ends:
        events += machine.receive_eof()
    elif len(said) < 9:
        return
    assert events == [Failed(reason)] and machine.closed and machine.next_timeout() is None


def test_an_end_before_anything_was_said() -> None:
    machine = client()
    assert machine.receive_eof() == [Failed("the server closed the connection before it said anything")]
    assert machine.receive_eof() == []


def test_silence_is_noticed_and_nothing_is_opened_before_settings() -> None:
    machine = client()
    assert not machine.may_open()
    assert machine.next_timeout() == START + 3 * SECOND
    assert machine.handle_timer(START + 3 * SECOND - 1) == []
    assert machine.handle_timer(START + 3 * SECOND) == [Failed(words.SILENT)]
    assert machine.closed


# --- the life of a stream


def test_an_answer() -> None:
    machine = greeted()
    stream = machine.open(FIELDS, START, [(b"grpc-timeout", b"1S")])
    machine.send_data(stream, b"ask", end=True)
    (kind, flags, _, body), asked = output(machine)
    assert (kind, flags) == (raw.HEADERS, raw.END_HEADERS)
    assert Decoder().decode(body, raw=True) == [*FIELDS, (b"grpc-timeout", b"1S")]
    assert asked == (raw.DATA, raw.END_STREAM, stream, b"ask")
    trailers = [(b"grpc-status", b"0")]
    events = machine.receive(headers(1) + data(1, b"answer") + headers(1, *trailers, end=True), START)
    assert plain(events) == [(Response, 1, OK, False), (Data, 1, b"answer", 6, False), (Trailers, 1, trailers)]
    assert machine.next_timeout() is None, "nothing is open, so nothing is due"


def test_headers_alone_may_be_the_answer_and_interim_ones_are_skipped() -> None:
    machine = greeted()
    opened(machine, end=True)
    assert machine.receive(headers(1, (b":status", b"103")), START) == []
    assert plain(machine.receive(headers(1, *OK, end=True), START)) == [(Response, 1, OK, True)]


def test_padding_and_priority_are_taken_off() -> None:
    machine = greeted()
    opened(machine)
    fields = block()
    padded = raw.frame(raw.HEADERS, raw.END_HEADERS | raw.PADDED | 0x20, 1, b"\x03" + bytes(5) + fields + bytes(3))
    body = raw.frame(raw.DATA, raw.PADDED, 1, b"\x02abc\0\0")
    assert plain(machine.receive(padded + body, START)) == [(Response, 1, OK, False), (Data, 1, b"abc", 6, False)]


def test_a_header_block_in_pieces() -> None:
    machine = greeted()
    opened(machine)
    fields = block()
    first = raw.frame(raw.HEADERS, raw.END_STREAM, 1, fields[:3])
    rest = raw.frame(raw.CONTINUATION, 0, 1, b"") + raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1, fields[3:])
    assert plain(machine.receive(first + rest, START)) == [(Response, 1, OK, True)]


def test_large_requests_are_continued() -> None:
    machine = greeted()
    fields = ((b":path", b"/" + b"\xff" * 40_000),)
    machine.open(fields, START, [])
    sent = output(machine)
    assert [kind for kind, *_ in sent] == [raw.HEADERS] + [raw.CONTINUATION] * (len(sent) - 1) and len(sent) > 2
    assert [flags for _, flags, _, _ in sent] == [0] * (len(sent) - 1) + [raw.END_HEADERS]
    assert Decoder(max_header_list_size=1 << 20).decode(b"".join(body for *_, body in sent), raw=True) == list(fields)


def test_a_reset_tells_its_code_and_late_frames_are_dropped() -> None:
    machine = greeted()
    opened(machine)
    assert machine.receive(raw.frame(raw.RST_STREAM, 0, 1, number(8)), START) == [ResetByServer(1, 8, "")]
    late = headers(1) + data(1, b"late") + raw.frame(raw.RST_STREAM, 0, 1, number(8))
    assert machine.receive(late + raw.frame(raw.WINDOW_UPDATE, 0, 1, number(5)), START) == []
    assert not machine.closed


def test_our_reset_frees_the_place_of_the_stream() -> None:
    machine = greeted(max_concurrent_streams=1)
    opened(machine)
    assert not machine.may_open()
    machine.reset(1, 8)
    assert output(machine) == [(raw.RST_STREAM, 0, 1, number(8))]
    assert machine.may_open()
    machine.reset(1, 8)
    machine.send_data(1, b"late")
    machine.credit(1, 5)
    assert output(machine) == [] and machine.sendable(1) == 0


def test_headers_of_a_stream_that_is_over_still_move_the_table() -> None:
    machine = greeted()
    opened(machine)
    machine.reset(1, 8)
    encoder = Encoder()
    fields = [(b":status", b"200"), (b"x-odd", b"value")]
    late = raw.frame(raw.HEADERS, raw.END_HEADERS, 1, encoder.encode(fields))
    opened(machine)
    again = raw.frame(raw.HEADERS, raw.END_HEADERS, 3, encoder.encode(fields))
    assert plain(machine.receive(late + again, START)) == [(Response, 3, fields, False)]


PROTOCOL, CLOSED = words.PROTOCOL_ERROR, words.STREAM_CLOSED
BROKEN_STREAMS: dict[str, tuple[bytes, int, str]] = {
    "data after the end": (headers(1, end=True) + data(1, b"x"), CLOSED, "after its end"),
    "headers after the end": (headers(1, end=True) + headers(1, end=True), CLOSED, "after its end"),
    "trailers that do not end": (headers(1) + headers(1, (b"grpc-status", b"0")), PROTOCOL, "do not end"),
    "data before headers": (data(1, b"x"), PROTOCOL, "before headers"),
    "data before headers, and the end": (data(1, b"x", end=True), PROTOCOL, "before headers"),
    "no status": (headers(1, (b"content-type", b"application/grpc")), PROTOCOL, "no status"),
    "a status that is not there": (headers(1, (b":status", b"20")), PROTOCOL, "no status"),
    "two statuses": (headers(1, (b":status", b"200"), (b":status", b"200")), PROTOCOL, "pseudo-header"),
    "a method": (headers(1, (b":status", b"200"), (b":method", b"GET")), PROTOCOL, "pseudo-header"),
    "a status behind others": (headers(1, (b"a", b"b"), (b":status", b"200")), PROTOCOL, "no status"),
    "capitals": (headers(1, *OK, (b"Upper", b"x")), PROTOCOL, "field name"),
    "a line break in a value": (headers(1, *OK, (b"a", b"x\r\ny: z")), PROTOCOL, "control characters"),
    "a field of the connection": (headers(1, *OK, (b"connection", b"close")), PROTOCOL, "connection"),
    "a switch of protocols": (headers(1, (b":status", b"101")), PROTOCOL, "101"),
    "an interim response that ends": (headers(1, (b":status", b"103"), end=True), PROTOCOL, "interim"),
    "a status in trailers": (headers(1) + headers(1, (b":status", b"200"), end=True), PROTOCOL, "pseudo-header"),
    "a field of the connection in trailers": (
        headers(1) + headers(1, (b"upgrade", b"h2c"), end=True),
        PROTOCOL,
        "connection",
    ),
    "a length that is none": (headers(1, *OK, (b"content-length", b"-1")), PROTOCOL, "cannot be read"),
    "two lengths": (headers(1, *OK, (b"content-length", b"1"), (b"content-length", b"2")), PROTOCOL, "cannot be read"),
    "more content than its length": (
        headers(1, *OK, (b"content-length", b"2")) + data(1, b"abc"),
        PROTOCOL,
        "another length",
    ),
    "less content than its length": (
        headers(1, *OK, (b"content-length", b"2")) + data(1, b"a", end=True),
        PROTOCOL,
        "another length",
    ),
    "trailers before the length is reached": (
        headers(1, *OK, (b"content-length", b"2")) + headers(1, (b"a", b"b"), end=True),
        PROTOCOL,
        "another length",
    ),
    "no content although there is a length": (
        headers(1, *OK, (b"content-length", b"2"), end=True),
        PROTOCOL,
        "although it says its length",
    ),
    "a window by nothing": (raw.frame(raw.WINDOW_UPDATE, 0, 1, number(0)), PROTOCOL, "malformed frame"),
    "a window by too much": (
        raw.frame(raw.WINDOW_UPDATE, 0, 1, number(2**31 - 1)),
        words.FLOW_CONTROL_ERROR,
        "above 2^31",
    ),
    "a priority of another size": (
        raw.frame(raw.PRIORITY, 0, 1, b"1234"),
        words.FRAME_SIZE_ERROR,
        "a size that it cannot have",
    ),
}


@pytest.mark.parametrize(("said", "code", "why"), BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
@pytest.mark.parametrize("ended", [False, True])
def test_a_broken_stream_is_reset_and_the_others_go_on(said: bytes, code: int, why: str, ended: bool) -> None:
    machine = greeted()
    opened(machine, end=ended)
    opened(machine)
    if ended and code == CLOSED:
        return  # nothing is left to be reset: see the rules of the connection
    event = machine.receive(said, START)[-1]
    assert isinstance(event, ResetByServer) and (event.stream_id, event.code) == (1, code) and why in event.fault
    assert output(machine) == [(raw.RST_STREAM, 0, 1, number(code))]
    late = data(1, b"late") + headers(1, end=True)
    assert machine.receive(late, START) == [] and not machine.closed
    assert plain(machine.receive(headers(3), START)) == [(Response, 3, OK, False)]


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_an_answer_without_content_may_name_the_length_of_another_one(status: bytes) -> None:
    machine = greeted()
    opened(machine, end=True)
    fields = [(b":status", status), (b"content-length", b"100")]
    assert plain(machine.receive(headers(1, *fields, end=True), START)) == [(Response, 1, fields, True)]


def test_a_length_that_is_kept() -> None:
    machine = greeted()
    opened(machine, end=True)
    events = machine.receive(
        headers(1, *OK, (b"content-length", b"3")) + data(1, b"ab") + data(1, b"c", end=True), START
    )
    assert [type(event) for event in events] == [Response, Data, Data]
    assert machine.next_timeout() is None


# --- rules of the connection

BREACHES: dict[str, tuple[bytes, int]] = {
    "a frame that is too long": (b"\x01\x00\x01\x00\x00\x00\x00\x00\x01", words.FRAME_SIZE_ERROR),
    "push": (raw.frame(raw.PUSH_PROMISE, raw.END_HEADERS, 1, number(2)), words.PROTOCOL_ERROR),
    "data on no stream": (data(0, b"x"), words.PROTOCOL_ERROR),
    "data on a stream to come": (data(5, b"x"), words.PROTOCOL_ERROR),
    "data on a stream of the server's": (data(2, b"x"), words.PROTOCOL_ERROR),
    "headers on a stream to come": (headers(5), words.PROTOCOL_ERROR),
    "a reset of a stream to come": (raw.frame(raw.RST_STREAM, 0, 5, number(0)), words.PROTOCOL_ERROR),
    "a reset that is too short": (raw.frame(raw.RST_STREAM, 0, 1, b"abc"), words.FRAME_SIZE_ERROR),
    "more padding than frame": (raw.frame(raw.DATA, raw.PADDED, 1, b"\x04abc"), words.PROTOCOL_ERROR),
    "padding without a length": (raw.frame(raw.DATA, raw.PADDED, 1, b""), words.PROTOCOL_ERROR),
    "a header block that is garbage": (
        raw.frame(raw.HEADERS, raw.END_HEADERS, 1, b"\xff\xff"),
        words.COMPRESSION_ERROR,
    ),
    "a header list that is too long": (
        raw.frame(raw.HEADERS, raw.END_HEADERS, 1, Encoder().encode([(b"x", b"y" * 4_000)] * 5)),
        words.ENHANCE_YOUR_CALM,
    ),
    "a continuation of nothing": (raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1), words.PROTOCOL_ERROR),
    "headers too short for priority": (
        raw.frame(raw.HEADERS, raw.END_HEADERS | 0x20, 1, b"1234"),
        words.FRAME_SIZE_ERROR,
    ),
    "an interrupted block": (
        raw.frame(raw.HEADERS, 0, 1, block()[:2]) + raw.frame(raw.PING, 0, 0, bytes(8)),
        words.PROTOCOL_ERROR,
    ),
    "a block continued elsewhere": (
        raw.frame(raw.HEADERS, 0, 1, block()[:2]) + raw.frame(raw.CONTINUATION, raw.END_HEADERS, 3, block()[2:]),
        words.PROTOCOL_ERROR,
    ),
    "a block without end": (
        raw.frame(raw.HEADERS, 0, 1, block()[:2]) + raw.frame(raw.CONTINUATION, 0, 1, bytes(16_384)) * 5,
        words.ENHANCE_YOUR_CALM,
    ),
    "a block of empty pieces": (
        raw.frame(raw.HEADERS, 0, 1, b"") + raw.frame(raw.CONTINUATION, 0, 1) * 70_000,
        words.ENHANCE_YOUR_CALM,
    ),
    "settings on a stream": (raw.frame(raw.SETTINGS, 0, 1), words.PROTOCOL_ERROR),
    "settings of an odd length": (raw.frame(raw.SETTINGS, 0, 0, b"12345"), words.FRAME_SIZE_ERROR),
    "an acknowledgement that says something": (raw.frame(raw.SETTINGS, raw.ACK, 0, bytes(6)), words.FRAME_SIZE_ERROR),
    "a server that enables push": (raw.settings(enable_push=1), words.PROTOCOL_ERROR),
    "a window that is too large": (raw.settings(initial_window_size=2**31), words.FLOW_CONTROL_ERROR),
    "frames that are too small": (raw.settings(max_frame_size=16_383), words.PROTOCOL_ERROR),
    "frames that are too large": (raw.settings(max_frame_size=1 << 24), words.PROTOCOL_ERROR),
    "a ping of another size": (raw.frame(raw.PING, 0, 0, b"1234567"), words.FRAME_SIZE_ERROR),
    "a ping on a stream": (raw.frame(raw.PING, 0, 1, bytes(8)), words.PROTOCOL_ERROR),
    "a farewell that is too short": (raw.frame(raw.GOAWAY, 0, 0, bytes(7)), words.FRAME_SIZE_ERROR),
    "a farewell on a stream": (raw.frame(raw.GOAWAY, 0, 1, bytes(8)), words.PROTOCOL_ERROR),
    "a window by nothing": (raw.frame(raw.WINDOW_UPDATE, 0, 0, number(0)), words.PROTOCOL_ERROR),
    "a window by too much": (raw.frame(raw.WINDOW_UPDATE, 0, 0, number(2**31 - 1)), words.FLOW_CONTROL_ERROR),
    "a window of another size": (raw.frame(raw.WINDOW_UPDATE, 0, 0, b"123"), words.FRAME_SIZE_ERROR),
    "a priority on no stream": (raw.frame(raw.PRIORITY, 0, 0, bytes(5)), words.PROTOCOL_ERROR),
    "more data than the stream's window": (
        headers(1) + data(1, bytes(16_384)) * (limits.CLIENT_WINDOW // 16_384) + data(1, b"x"),
        words.FLOW_CONTROL_ERROR,
    ),
    "data after both sides have ended": (
        headers(3) + data(3, b"x", end=True) + data(3, b"y"),
        words.STREAM_CLOSED,
    ),
    "headers after both sides have ended": (headers(3, end=True) + headers(3, end=True), words.STREAM_CLOSED),
}


@pytest.mark.parametrize(("said", "code"), BREACHES.values(), ids=BREACHES)
def test_a_server_that_breaks_a_rule_is_left(said: bytes, code: int) -> None:
    machine = greeted()
    opened(machine)
    opened(machine, end=True)
    last = machine.receive(said, START)[-1]
    assert isinstance(last, Failed) and last.reason.startswith("the server broke HTTP/2: ")
    assert machine.closed and machine.next_timeout() is None
    kind, _, _, body = output(machine)[-1]
    assert kind == raw.GOAWAY and struct.unpack_from(">LL", body) == (0, code)
    assert machine.receive(headers(1), START) == [] and machine.receive_eof() == []


HARMLESS = {
    "an unknown kind of frame": raw.frame(0xEE, 0xFF, 7, b"what"),
    "an unknown setting": raw.frame(raw.SETTINGS, 0, 0, struct.pack(">HL", 0xFF, 1)),
    "a priority": raw.frame(raw.PRIORITY, 0, 1, bytes(5)),
    "an answer to a ping": raw.frame(raw.PING, raw.ACK, 0, bytes(8)),
    "our settings acknowledged": raw.frame(raw.SETTINGS, raw.ACK, 0),
}


@pytest.mark.parametrize("said", HARMLESS.values(), ids=HARMLESS)
def test_what_a_server_may_say(said: bytes) -> None:
    machine = greeted()
    opened(machine)
    machine.receive(said, START)
    assert not machine.closed
    assert plain(machine.receive(headers(1), START)) == [(Response, 1, OK, False)]


def test_pings_and_settings_are_answered() -> None:
    machine = greeted()
    machine.receive(raw.frame(raw.PING, 0, 0, b"12345678") + raw.settings(), START)
    assert output(machine) == [(raw.PING, raw.ACK, 0, b"12345678"), (raw.SETTINGS, raw.ACK, 0, b"")]


# --- windows


def test_sending_keeps_to_both_windows_and_the_largest_frame() -> None:
    machine = greeted(initial_window_size=100_000)
    opened(machine)
    assert machine.sendable(1) == 16_384
    for _ in range(3):
        machine.send_data(1, bytes(16_384))
    assert machine.sendable(1) == 65_535 - 3 * 16_384, "the window of the connection"
    machine.send_data(1, bytes(machine.sendable(1)))
    assert machine.sendable(1) == 0
    assert machine.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, number(1 << 20)), START) == [WindowOpened(0)]
    assert machine.sendable(1) == 16_384
    machine.receive(raw.settings(initial_window_size=65_540), START)
    assert machine.sendable(1) == 5, "what was sent counts against a new initial window"
    machine.receive(raw.settings(initial_window_size=1), START)
    assert machine.sendable(1) < 0
    assert machine.receive(raw.frame(raw.WINDOW_UPDATE, 0, 1, number(100_000)), START) == [WindowOpened(1)]
    assert machine.sendable(1) > 0


def test_larger_frames_are_used_when_allowed() -> None:
    machine = greeted(max_frame_size=1 << 20, initial_window_size=1 << 20)
    opened(machine)
    assert machine.sendable(1) == 65_535


def test_the_window_of_the_connection_is_opened_again_whoever_reads() -> None:
    machine = greeted()
    frames = limits.CONNECTION_WINDOW // 2 // 16_384 + 1
    opened(machine)
    machine.receive(headers(1), START)
    machine.take(1 << 20)
    for _ in range(frames):
        machine.receive(data(1, bytes(16_384)), START)
        machine.credit(1, 16_384)
    windows = [frame for frame in output(machine) if frame[0] == raw.WINDOW_UPDATE and frame[2] == 0]
    assert windows == [(raw.WINDOW_UPDATE, 0, 0, number(frames * 16_384))]


def test_credit_opens_the_window_of_a_stream() -> None:
    machine = greeted()
    opened(machine, end=True)
    machine.receive(headers(1) + data(1, bytes(100)), START)
    machine.credit(1, 100)
    assert output(machine) == [(raw.WINDOW_UPDATE, 0, 1, number(100))]
    machine.credit(1, 0)
    machine.receive(headers(1, (b"grpc-status", b"0"), end=True), START)
    machine.credit(1, 5)
    assert output(machine) == []


# --- ends


def test_after_a_farewell_the_streams_up_to_its_last_go_on() -> None:
    machine = greeted()
    for _ in range(3):
        opened(machine, end=True)
    assert machine.receive(goaway(3, 11, b"too_many_pings"), START) == [GoneAway(3, 11, "too_many_pings")]
    assert machine.leaving and not machine.may_open() and not machine.closed
    assert machine.receive(headers(5), START) == [], "the third is over"
    assert plain(machine.receive(headers(1, end=True), START)) == [(Response, 1, OK, True)]
    assert not machine.closed
    assert plain(machine.receive(headers(3, end=True), START)) == [(Response, 3, OK, True)]
    assert machine.closed, "the last one has ended"
    assert output(machine)[-1][0] == raw.GOAWAY


def test_a_farewell_with_nothing_open_closes() -> None:
    machine = greeted()
    assert machine.receive(goaway(0), START) == [GoneAway(0, 0, "")]
    assert machine.closed


def test_the_reason_of_a_farewell_is_cut() -> None:
    machine = greeted()
    (event,) = machine.receive(goaway(0, 2, b"\xff" + b"x" * 9_000), START)
    assert isinstance(event, GoneAway) and len(event.reason) == 256


def test_an_end_of_the_connection() -> None:
    machine = greeted()
    opened(machine)
    assert machine.receive_eof() == [Failed("the server closed the connection")]


def test_stream_ids_run_out() -> None:
    machine = greeted()
    machine._highest = 2**31 - 3
    assert machine.may_open()
    assert machine.open(FIELDS, START, []) == 2**31 - 1
    assert machine.leaving and not machine.may_open()


# --- time


def test_a_silent_server_is_pinged_while_something_is_open() -> None:
    machine = greeted()
    assert machine.next_timeout() is None
    opened(machine)
    assert machine.next_timeout() == START + 20 * SECOND
    assert machine.handle_timer(START + 20 * SECOND) == []
    assert output(machine) == [(raw.PING, 0, 0, words.PING_PAYLOAD)]
    assert machine.next_timeout() == START + 25 * SECOND
    assert machine.handle_timer(START + 25 * SECOND) == [Failed(words.PING_LOST)]
    assert machine.closed


def test_whatever_the_server_says_answers_a_ping() -> None:
    machine = greeted()
    opened(machine)
    machine.handle_timer(START + 20 * SECOND)
    machine.receive(raw.frame(raw.SETTINGS, raw.ACK, 0), START + 24 * SECOND)
    assert machine.handle_timer(START + 25 * SECOND) == []
    assert machine.next_timeout() == START + 44 * SECOND


@pytest.mark.parametrize("idle", [20, 3_600])
def test_after_a_long_silence_the_first_stream_asks_at_once(idle: int) -> None:
    machine = greeted()
    later = START + idle * SECOND
    machine.open(FIELDS, later, [])
    assert (raw.PING, 0, 0, words.PING_PAYLOAD) in output(machine)
    assert machine.next_timeout() == later + 5 * SECOND
    assert machine.handle_timer(later + 5 * SECOND) == [Failed(words.PING_LOST)]


def test_a_timer_that_comes_late_lets_the_socket_be_read_first() -> None:
    machine = greeted()
    opened(machine)
    machine.handle_timer(START + 20 * SECOND)
    late = START + 25 * SECOND + limits.LATE_TIMER + 1
    assert machine.handle_timer(late) == []
    assert machine.next_timeout() == late + SECOND
    assert machine.handle_timer(late + SECOND) == [Failed(words.PING_LOST)]


def test_an_unfinished_header_block_is_not_waited_for() -> None:
    machine = greeted()
    opened(machine)
    machine.receive(raw.frame(raw.HEADERS, 0, 1, block()[:2]), START)
    assert machine.next_timeout() == START + limits.HEADERS_TIMEOUT
    machine.receive(headers(1)[:2], START + SECOND)
    (event,) = machine.handle_timer(START + limits.HEADERS_TIMEOUT)
    assert isinstance(event, Failed) and "header block" in event.reason
