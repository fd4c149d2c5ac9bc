"""HTTP/2 below gRPC: who is let in, which limits hold, how a connection ends, and its timers; of both machines."""

import struct
from collections.abc import Iterator

import pytest
from h2.settings import SettingCodes
from hpack import Decoder

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.peer import Peer

START = 1_000 * SECOND
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT = 0, 1, 3, 4
FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 9, 11
Machine = type[Http2Server] | type[H2Server]
_kind: Machine = Http2Server


@pytest.fixture(autouse=True, params=[Http2Server, H2Server], ids=["own", "h2"])
def kind(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Which machine is tested."""
    global _kind
    _kind = request.param
    yield _kind
    _kind = Http2Server


def server(max_streams: int = 100) -> Http2Server | H2Server:
    return _kind(max_streams=max_streams, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)


def greeted(max_streams: int = 100) -> Http2Server | H2Server:
    """A server past the preface, its first output taken."""
    machine = server(max_streams)
    assert machine.receive(raw.HELLO, START) == [WindowOpened(0)]
    machine.take(1 << 20)
    return machine


def output(machine: Http2Server | H2Server) -> list[tuple[int, int, int, bytes]]:
    return raw.cut_frames(machine.take(1 << 20))


def goaway(machine: Http2Server | H2Server) -> tuple[int, int]:
    """Last stream and code of the GOAWAY at the end of the output."""
    kind, _, _, body = output(machine)[-1]
    assert kind == raw.GOAWAY
    last, code = struct.unpack_from(">LL", body)
    return last, code


def failure(events: list[Event]) -> str:
    found = [event for event in events if isinstance(event, Failed)]
    assert len(found) == 1
    return found[0].reason


def opened(machine: Http2Server | H2Server, stream_id: int = 1, *, end: bool = False) -> None:
    flags = raw.END_HEADERS | (raw.END_STREAM if end else 0)
    (event,) = machine.receive(raw.frame(raw.HEADERS, flags, stream_id, raw.block()), START)
    assert isinstance(event, Request) and event.stream_id == stream_id and event.ended is end


# --- the preface

NOT_HTTP2 = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01",
    "garbage": b"\xff\x00",
    "an almost right preface": raw.PREFACE[:-1] + b"x",
}


@pytest.mark.parametrize("data", NOT_HTTP2.values(), ids=NOT_HTTP2)
@pytest.mark.parametrize("at_once", [True, False])
def test_whatever_is_not_http2_is_closed_at_the_first_wrong_byte(data: bytes, at_once: bool) -> None:
    machine = server()
    pieces = [data] if at_once else [data[at : at + 1] for at in range(len(data))]
    wrong = next(at for at, byte in enumerate(data) if byte != raw.PREFACE[at])
    own = isinstance(machine, Http2Server)
    if own and data.startswith(b"GET"):
        wrong = len(b"GET ")  # until then it is not clear what it is
    events: list[Event] = []
    for at, piece in enumerate(pieces):
        events += machine.receive(piece, START)
        assert machine.closed is (at_once or at >= wrong)
    assert failure(events) == "the peer does not speak HTTP/2"
    said = machine.take(1 << 20)
    assert said.startswith(b"HTTP/1.1 505 ") if (own or at_once) and data.startswith(b"GET") else said == b""
    assert machine.next_timeout() is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\n\r\n",
        b"POST /cronoq.v1.Tasks/Submit HTTP/1.1\r\n",
        b"PUT /",
        b"OPTIONS * HTTP/1.0\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\n",
    ],
)
def test_who_speaks_http1_is_told_in_http1(data: bytes) -> None:
    machine = Http2Server(max_streams=1, ping_interval=SECOND, ping_timeout=SECOND, now=START)
    for at in range(len(data)):
        machine.receive(data[at : at + 1], START)
    head, _, text = machine.take(1 << 20).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 505 ") and b"\r\nconnection: close" in head
    assert f"content-length: {len(text)}".encode() in head and b"gRPC" in text
    assert machine.closed and not machine.wants_write()


@pytest.mark.parametrize("data", [b"", raw.PREFACE[:10], raw.PREFACE, raw.PREFACE + raw.settings()[:5]])
def test_preface_and_settings_are_due_within_five_seconds(data: bytes) -> None:
    machine = server()
    machine.receive(data, START + SECOND)
    assert machine.next_timeout() == START + 5 * SECOND
    assert machine.handle_timer(START + 5 * SECOND - 1) == [] and not machine.closed
    assert failure(machine.handle_timer(START + 5 * SECOND)) == "no HTTP/2 preface and SETTINGS within 5 s"
    assert machine.closed
    if len(data) >= len(raw.PREFACE):
        assert goaway(machine) == (0, SETTINGS_TIMEOUT)
    else:
        assert machine.take(1 << 20) == b""


def test_nothing_is_sent_before_the_preface() -> None:
    machine = server()
    machine.receive(raw.PREFACE[:-1], START)
    assert not machine.wants_write() and machine.take(1 << 20) == b""


def test_our_settings() -> None:
    machine = server(max_streams=7)
    machine.receive(raw.PREFACE, START)
    (kind, flags, stream_id, body), window = output(machine)
    assert (kind, flags, stream_id) == (raw.SETTINGS, 0, 0)
    assert dict(struct.iter_unpack(">HL", body)) == {3: 7, 4: 65_536, 5: 65_536, 6: 16_384}
    assert window == (raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", limits.CONNECTION_WINDOW - 65_535))


@pytest.mark.parametrize(
    "first",
    [
        raw.frame(raw.PING, 0, 0, b"8 bytes."),
        raw.frame(raw.SETTINGS, raw.ACK, 0),
        raw.frame(raw.HEADERS, 4, 1, raw.block()),
    ],
    ids=["PING", "SETTINGS ACK", "HEADERS"],
)
def test_the_first_frame_must_be_settings(first: bytes) -> None:
    machine = server()
    assert failure(machine.receive(raw.PREFACE + first, START)) == "the first frame must be SETTINGS"
    assert goaway(machine) == (0, PROTOCOL_ERROR)


# --- limits

FAULTS: dict[str, tuple[bytes, int]] = {
    "frame of 65,537 bytes, first nine bytes only": (
        b"\1\0\1" + bytes([raw.DATA, 0]) + b"\0\0\0\1",
        FRAME_SIZE_ERROR,
    ),
    "DATA on an idle stream": (raw.frame(raw.DATA, 0, 1, b"x"), PROTOCOL_ERROR),
    "HEADERS on an even stream": (raw.frame(raw.HEADERS, 4, 2, raw.block()), PROTOCOL_ERROR),
    "PUSH_PROMISE": (raw.frame(raw.PUSH_PROMISE, 4, 1, b"\0\0\0\2" + raw.block()), PROTOCOL_ERROR),
    "broken HPACK": (raw.frame(raw.HEADERS, 4, 1, b"\xff\xff\xff"), COMPRESSION_ERROR),
    "PING of seven bytes": (raw.frame(raw.PING, 0, 0, b"x" * 7), FRAME_SIZE_ERROR),
    "connection window above 2^31 - 1": (raw.frame(raw.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), FLOW_CONTROL_ERROR),
    "initial window above 2^31 - 1": (raw.settings(initial_window_size=1 << 31), FLOW_CONTROL_ERROR),
    "frame within a header block": (raw.frame(raw.HEADERS, 0, 1, raw.block()) + raw.frame(raw.PING, 0, 0, b"x" * 8), 1),
    "GOAWAY within a header block": (raw.frame(raw.HEADERS, 0, 1, b"") + raw.frame(raw.GOAWAY, 0, 0, b"\0" * 8), 1),
    "GOAWAY of seven bytes": (raw.frame(raw.GOAWAY, 0, 0, b"\0" * 7), FRAME_SIZE_ERROR),
    "list above 16 KiB": (raw.frame(raw.HEADERS, 4, 1, raw.block(("x", "y" * 16_200))), ENHANCE_YOUR_CALM),
}


IN_H2 = {COMPRESSION_ERROR: PROTOCOL_ERROR, FRAME_SIZE_ERROR: PROTOCOL_ERROR}
"""What h2, and the cutter of frames before it, say where RFC 9113 has a code of its own."""


@pytest.mark.parametrize(("data", "code"), FAULTS.values(), ids=FAULTS)
def test_a_broken_rule_ends_the_connection(data: bytes, code: int, kind: Machine) -> None:
    machine = greeted()
    assert failure(machine.receive(data, START))
    assert machine.closed
    said = goaway(machine)[1]
    assert said == code or (kind is H2Server and said == IN_H2.get(code))
    # Nothing that is asked of a dead connection does anything.
    machine.send_headers(1, [(b":status", b"200")])
    machine.drain()
    machine.finish()
    assert machine.receive(raw.frame(raw.PING, 0, 0, b"x" * 8), START) == [] and machine.take(1 << 20) == b""


def test_events_before_the_fault_are_told() -> None:
    machine = greeted()
    good = raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block())
    events = machine.receive(good + raw.frame(raw.DATA, 0, 3, b"x"), START)
    assert [type(event) for event in events] == [Request, Failed]
    assert goaway(machine)[0] == 1


@pytest.mark.parametrize("size", [0, 1, 900, 16_384])
def test_a_flood_of_continuations_ends_the_connection(size: int) -> None:
    machine = greeted()
    machine.receive(raw.frame(raw.HEADERS, 0, 1, b""), START)
    sent = 0
    while not machine.closed:
        machine.receive(raw.frame(raw.CONTINUATION, 0, 1, b"\x00" * size), START)
        sent += size
        assert sent <= limits.MAX_HEADER_BLOCK + size
    assert goaway(machine)[1] in (ENHANCE_YOUR_CALM, PROTOCOL_ERROR)


def test_a_compression_bomb_ends_the_connection() -> None:
    machine = greeted()
    # One entry of 4,000 bytes in the table, then referred to by one byte, 60,000 times.
    length = b"\x7f\xa1\x1e"  # 127 + 33 + 30 * 128 = 4000
    bomb = b"\x40\x01x" + length + b"y" * 4_000 + b"\xbe" * 12_000
    failure(machine.receive(raw.frame(raw.HEADERS, raw.END_HEADERS, 1, bomb), START))
    assert goaway(machine)[1] == ENHANCE_YOUR_CALM


def test_replies_that_nobody_reads_are_bounded() -> None:
    machine = greeted()
    ping = raw.frame(raw.PING, 0, 0, b"8 bytes.")
    for number in range(limits.MAX_UNSENT_CONTROL // len(ping)):
        assert machine.receive(ping, START + number * SECOND) == []
    assert failure(machine.receive(ping, START + 9_999 * SECOND)) == "replies are not read"
    assert goaway(machine)[1] == ENHANCE_YOUR_CALM


def test_replies_that_are_read_are_not() -> None:
    machine = greeted()
    for number in range(9_000):
        machine.receive(raw.frame(raw.PING, 0, 0, b"8 bytes."), START + number * SECOND)
        assert len(machine.take(1 << 20)) == 17


def test_the_compression_table_of_our_encoder_is_ours() -> None:
    machine = greeted()
    for number, size in enumerate((1 << 30, 0, 50, 1 << 20, 100_000) * 200):
        machine.receive(raw.settings(header_table_size=size), START + number * SECOND)
        machine.take(1 << 20)
    flags = raw.END_HEADERS | raw.END_STREAM
    machine.receive(raw.frame(raw.HEADERS, flags, 1, raw.block()), START + 1_000 * SECOND)
    machine.send_headers(1, [(b":status", b"200"), (b"x", b"y" * 3_000)])
    frame, _, stream_id, body = output(machine)[-1]
    assert (frame, stream_id) == (raw.HEADERS, 1) and len(body) < 4_000
    reader = Decoder()
    reader.max_allowed_table_size = 100_000
    assert reader.decode(body)[0] == (":status", "200")
    assert reader.header_table_size == limits.ENCODER_TABLE


def test_a_header_table_size_that_is_set_twice_is_still_told() -> None:
    """Else the peer's decoder waits for an update that never comes and gives up the connection."""
    peer = Peer()
    for _ in range(2):
        peer.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 1_000})
        peer.exchange()
    stream_id = peer.call(pb.GetRequest(), "/cronoq.v1.Tasks/Nothing")
    peer.exchange()
    assert peer.streams[stream_id].status == 12


# --- streams


def test_a_stream_too_many_is_refused_and_the_connection_goes_on() -> None:
    machine = greeted(max_streams=2)
    opened(machine, 1)
    opened(machine, 3)
    refused = raw.frame(raw.HEADERS, raw.END_HEADERS, 5, raw.block()) + raw.frame(raw.DATA, raw.END_STREAM, 5, b"x")
    assert machine.receive(refused, START) == []
    assert output(machine)[0] == (raw.RST_STREAM, 0, 5, struct.pack(">L", REFUSED_STREAM))
    assert machine.receive(raw.frame(raw.RST_STREAM, 0, 3, b"\0\0\0\x08"), START) == [Reset(3)]
    opened(machine, 7)


def test_data_and_trailers() -> None:
    machine = greeted()
    opened(machine)
    padded = raw.frame(raw.DATA, raw.PADDED, 1, b"\x02abcPP")
    assert machine.receive(padded, START) == [Data(1, b"abc", 6, False)]
    trailers = raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1, b"\x00\x01x\x01y")
    assert machine.receive(trailers, START) == [Data(1, b"", 0, True)]


def test_unknown_frames_and_priorities_are_ignored() -> None:
    machine = greeted()
    unknown = raw.frame(0xFA, 0xFF, 9, b"anything") + raw.frame(raw.PRIORITY, 0, 3, b"\0\0\0\0\x10")
    assert machine.receive(unknown, START) == [] and machine.take(1 << 20) == b""


def test_a_stream_that_was_answered_early_lingers_and_is_then_reset() -> None:
    machine = greeted()
    opened(machine)
    machine.send_headers(1, [(b":status", b"200")], end=True)
    assert [kind for kind, *_ in output(machine)] == [raw.HEADERS]
    # What still comes is thrown away, and credit is given, so that a client can finish its message.
    got = 0
    for _ in range(200):
        assert machine.receive(raw.frame(raw.DATA, 0, 1, b"x" * 16_000), START) == []
        got += sum(struct.unpack(">L", body)[0] for kind, _, sid, body in output(machine) if (kind, sid) == (8, 1))
    assert got > 200 * 16_000 - limits.INITIAL_WINDOW
    assert machine.next_timeout() == START + limits.STREAM_LINGER
    machine.handle_timer(START + limits.STREAM_LINGER)
    assert output(machine) == [(raw.RST_STREAM, 0, 1, struct.pack(">L", NO_ERROR))]


@pytest.mark.parametrize("sent", [100, 20_000, limits.INITIAL_WINDOW])
def test_what_came_before_an_early_answer_does_not_keep_the_peer_from_its_end(sent: int) -> None:
    """A client sends all that the first window allows; the answer is on its way, and it waits for the window."""
    machine = greeted()
    opened(machine)
    for at in range(0, sent, 16_000):
        machine.receive(raw.frame(raw.DATA, 0, 1, b"x" * min(16_000, sent - at)), START)
    output(machine)
    machine.send_headers(1, [(b":status", b"200")], end=True)
    got = sum(struct.unpack(">L", body)[0] for kind, _, sid, body in output(machine) if (kind, sid) == (8, 1))
    assert got == (sent if sent >= limits.INITIAL_WINDOW // 4 else 0)
    machine.receive(raw.frame(raw.DATA, raw.END_STREAM, 1, b"x" * 16_000), START)
    assert not machine.closed and machine.next_timeout() == START + 20 * SECOND, "nothing lingers"


def test_a_stream_that_ends_on_both_sides_leaves_nothing() -> None:
    machine = greeted()
    opened(machine)
    machine.send_headers(1, [(b":status", b"200")], end=True)
    machine.receive(raw.frame(raw.DATA, raw.END_STREAM, 1, b"x"), START)
    assert machine.next_timeout() == START + 20 * SECOND  # the next ping
    machine.take(1 << 20)
    assert machine.receive(raw.frame(raw.RST_STREAM, 0, 1, b"\0\0\0\x08"), START) == []


def test_the_connection_window_is_given_back_for_streams_that_are_over_too() -> None:
    machine = greeted(max_streams=1)
    window = limits.CONNECTION_WINDOW
    for number in range(1_500):
        stream_id = 2 * number + 1
        head = raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, raw.block())
        reset = raw.frame(raw.RST_STREAM, 0, stream_id, b"\0\0\0\x08")
        late = raw.frame(raw.DATA, 0, stream_id, b"x" * 10_000)
        machine.receive(head + (late + reset if number % 2 else reset + late), START + number * SECOND)
        assert not machine.closed
        window -= 10_000
        window += sum(struct.unpack(">L", body)[0] for kind, _, sid, body in output(machine) if (kind, sid) == (8, 0))
        assert window > 100_000


# --- the end


def test_goaway_in_two_steps() -> None:
    machine = greeted()
    opened(machine)
    machine.drain()
    machine.drain()
    assert [(kind, body) for kind, _, _, body in output(machine)] == [
        (raw.GOAWAY, struct.pack(">LL", 2**31 - 1, NO_ERROR))
    ]
    opened(machine, 3)  # it crossed our GOAWAY: still taken
    machine.send_headers(1, [(b":status", b"200")])
    assert not machine.closed
    machine.finish()
    assert machine.closed and goaway(machine) == (3, NO_ERROR)
    machine.send_headers(3, [(b":status", b"200")])  # flushed before the socket closes
    assert output(machine)[0][2] == 3


def test_the_peers_goaway_lets_its_streams_end() -> None:
    machine = greeted()
    opened(machine, 1, end=True)
    assert machine.receive(raw.frame(raw.GOAWAY, 0, 0, b"\0" * 8), START) == [] and not machine.closed
    machine.send_headers(1, [(b":status", b"200")], end=True)
    assert machine.closed
    assert [kind for kind, *_ in output(machine)] == [raw.HEADERS, raw.GOAWAY]


def test_the_peers_goaway_closes_an_idle_connection() -> None:
    machine = greeted()
    machine.receive(raw.frame(raw.GOAWAY, 0, 0, b"\0" * 8), START)
    assert machine.closed


# --- time


def test_a_silent_peer_is_pinged_and_then_dropped() -> None:
    machine = greeted()
    opened(machine)
    assert machine.next_timeout() == START + 20 * SECOND
    machine.handle_timer(START + 20 * SECOND)
    (ping,) = output(machine)
    assert ping[:3] == (raw.PING, 0, 0)
    assert machine.next_timeout() == START + 40 * SECOND
    assert failure(machine.handle_timer(START + 40 * SECOND)) == "ping not answered"
    assert machine.closed


def test_whatever_the_peer_sends_shows_that_it_lives() -> None:
    machine = greeted()
    opened(machine)
    now = START
    for _ in range(30):
        now += 20 * SECOND
        machine.handle_timer(now)
        assert [kind for kind, *_ in output(machine)] == [raw.PING]
        now += 19 * SECOND
        machine.receive(raw.frame(raw.PING, raw.ACK, 0, b"cronoq\0\0"), now)
        assert machine.next_timeout() == now + 20 * SECOND


def test_a_connection_without_streams_ends_after_five_minutes() -> None:
    machine = greeted()
    opened(machine, end=True)
    machine.send_headers(1, [(b":status", b"200")], end=True)
    now = START
    while not machine.closed:
        due = machine.next_timeout()
        assert due is not None and now < due <= START + 300 * SECOND
        now = due
        assert machine.handle_timer(now) == []
        machine.receive(raw.frame(raw.PING, raw.ACK, 0, b"cronoq\0\0"), now)
    assert now == START + 300 * SECOND
    assert goaway(machine) == (1, NO_ERROR)


HALF_HEADERS = {
    "no END_HEADERS": raw.frame(raw.HEADERS, 0, 1, raw.block()),
    "half a frame": raw.frame(raw.HEADERS, 4, 1, raw.block())[:-1],
    "two bytes": b"\0\0",
}


@pytest.mark.parametrize("data", HALF_HEADERS.values(), ids=HALF_HEADERS)
def test_headers_are_due_within_ten_seconds(data: bytes) -> None:
    machine = greeted()
    machine.receive(data, START + SECOND)
    machine.receive(
        raw.frame(raw.CONTINUATION, 0, 1, b"") if len(data) > 9 and not data[4] else b"", START + 9 * SECOND
    )
    assert machine.next_timeout() == START + 11 * SECOND
    failure(machine.handle_timer(START + 11 * SECOND))
    assert machine.closed


def test_half_frames_of_a_busy_peer_are_no_unfinished_headers() -> None:
    machine = greeted()
    frames = b"".join(raw.frame(raw.HEADERS, 5, 2 * number + 1, raw.block()) for number in range(50))
    now, step = START, len(frames) // 50 + 1
    for at in range(0, len(frames), step):  # every read ends within a frame
        now += 3 * SECOND
        machine.receive(frames[at : at + step], now)
        due = machine.next_timeout()
        assert due is not None and due > now + 6 * SECOND


def test_time_in_which_the_process_could_not_read_does_not_count() -> None:
    machine = greeted()
    opened(machine)
    machine.handle_timer(START + 20 * SECOND)
    machine.take(1 << 20)
    assert machine.handle_timer(START + 90 * SECOND) == [] and not machine.closed  # stopped for 50 s
    assert machine.next_timeout() == START + 91 * SECOND
    machine.receive(raw.frame(raw.PING, raw.ACK, 0, b"cronoq\0\0"), START + 90 * SECOND)
    assert machine.next_timeout() == START + 110 * SECOND


def test_a_peer_that_is_gone_after_such_a_stop_is_dropped_soon() -> None:
    machine = greeted()
    opened(machine)
    machine.handle_timer(START + 20 * SECOND)
    machine.handle_timer(START + 90 * SECOND)
    failure(machine.handle_timer(START + 91 * SECOND))


def test_a_timer_that_is_not_due_does_nothing() -> None:
    machine = greeted()
    assert machine.handle_timer(START + 20 * SECOND - 1) == [] and machine.take(1 << 20) == b""


@pytest.mark.parametrize("limit", [1, 7, 100, 1 << 20])
def test_output_comes_in_pieces(limit: int) -> None:
    machine = greeted()
    opened(machine)
    machine.receive(raw.frame(raw.PING, 0, 0, b"8 bytes.") * 5, START)
    data = b""
    while machine.wants_write():
        piece = machine.take(limit)
        assert 0 < len(piece) <= limit
        data += piece
    assert len(raw.cut_frames(data)) == 5


@pytest.mark.parametrize("interval", [SECOND // 10, 4 * SECOND, 60 * SECOND])
def test_the_first_ping_does_not_wait_for_the_time_of_the_preface(interval: int) -> None:
    """Whoever asks at once what is due, and later only whether something is due earlier, is not late."""
    machine = _kind(max_streams=10, ping_interval=interval, ping_timeout=SECOND, now=START)
    armed = machine.next_timeout()
    machine.receive(raw.HELLO, START)
    assert armed == START + limits.PREFACE_TIMEOUT
    assert min(armed, machine.due) == min(armed, START + interval)


def test_replies_among_output_that_never_ends_are_no_flood() -> None:
    """A peer that reads a large answer and measures the path with pings meanwhile; there is always more to write."""
    machine = greeted()
    update = raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 30))
    machine.receive(raw.settings(initial_window_size=1 << 30) + update, START)
    machine.receive(raw.frame(raw.HEADERS, 5, 1, raw.block()), START)
    machine.send_headers(1, [(b":status", b"200")])
    machine.send_data(1, bytes(10_000))
    pings = 0
    for _ in range(2 * limits.MAX_UNSENT_CONTROL // 17):
        machine.send_data(1, bytes(1_000))
        assert machine.receive(raw.frame(raw.PING, 0, 0, b"12345678"), START) == []
        pings += machine.take(9 + 1_000 + 17).count(b"12345678")
        assert machine.wants_write()
    assert pings > 2_000


OK = ((b":status", b"200"),)
END = ((b"grpc-status", b"0"),)
CALL = raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1, raw.block())


def test_a_long_answer_is_no_single_frame_whatever_the_peer_would_take() -> None:
    """As one it would be more than may wait for the socket, and the next PING would end the connection."""
    machine = greeted()
    wide = struct.pack(">L", 1 << 30)
    machine.receive(raw.settings(initial_window_size=1 << 30, max_frame_size=(1 << 24) - 1), START)
    machine.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, wide) + CALL, START)
    assert not machine.answer(1, OK, bytes(8 << 20), END)
    assert machine.answer(1, OK, bytes(1_000), END)


@pytest.mark.parametrize("kind", [Http2Server, H2Server])
def test_whoever_waits_for_the_peer_is_told_that_the_connection_is_over(kind: Machine) -> None:
    """The last answer after the peer's GOAWAY comes when nothing is read: from a commit."""
    machine = kind(max_streams=10, ping_interval=SECOND, ping_timeout=SECOND, now=START)
    machine.receive(raw.HELLO + CALL + raw.frame(raw.GOAWAY, 0, 0, bytes(8)), START)
    machine.next_timeout()
    assert not machine.closed and machine.due > START
    machine.answer(1, OK, b"", END)
    assert machine.closed and machine.due == 0


@pytest.mark.parametrize(("interval", "timeout"), [(1, 12), (5, 20), (20, 5)])
def test_pings_keep_their_interval_whatever_the_time_for_their_answer(interval: int, timeout: int) -> None:
    machine = Http2Server(max_streams=1, ping_interval=interval * SECOND, ping_timeout=timeout * SECOND, now=START)
    machine.receive(raw.HELLO, START)
    machine.take(1 << 20)
    now = START
    for _ in range(3):
        armed = machine.next_timeout()
        assert armed == now + interval * SECOND
        machine.handle_timer(armed)
        ping = raw.cut_frames(machine.take(1 << 20))[0]
        assert ping[0] == raw.PING
        machine.next_timeout()
        now = armed + SECOND // 10
        machine.receive(raw.frame(raw.PING, raw.ACK, 0, ping[3]), now)
        assert machine.due <= now + interval * SECOND, "nobody would have asked in time"


def test_what_begins_with_an_answer_counts_from_it_and_not_from_the_last_read() -> None:
    machine = greeted()
    machine.receive(raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block()), START)
    later = START + 15 * SECOND
    machine.tick(later)
    machine.send_headers(1, OK, end=True)
    assert machine._lingering == {1: later + limits.STREAM_LINGER}
