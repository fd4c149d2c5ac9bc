"""Frames that never end: small reads that complete nothing are counted, the rest has a time, and little is kept."""

import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.access import Principal, authenticate
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import peer_limits, strangers
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_events import Data, Failed
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.strangers import Strangers
from tests.wire import raw
from tests.wire.test_http2_floods import START, Talk, greeted, head

BLOCK = raw.block()
FREE = limits.TINY_READS_PER_FRAME
MOST = limits.TINY_READ_BURST + FREE
LONG = 60_000
UNKNOWN = raw.frame(0x55, 0, 0, bytes(LONG))
BEGUN = {
    "of a type that nobody knows": UNKNOWN,
    "of content": head(1) + raw.frame(raw.DATA, 0, 1, bytes(LONG)),
    "of content of a stream that was not opened": raw.frame(raw.DATA, 0, 1, bytes(LONG)),
    "of headers": raw.frame(raw.HEADERS, 0, 1, bytes(LONG)),
    "of headers that go on": raw.frame(raw.HEADERS, 0, 1, BLOCK) + raw.frame(raw.CONTINUATION, 0, 1, bytes(LONG)),
    "of a farewell": raw.frame(raw.GOAWAY, 0, 0, bytes(LONG)),
}
kinds = pytest.mark.parametrize("begun", [data[:-LONG] for data in BEGUN.values()], ids=BEGUN)


def hostile(begun: bytes) -> Talk:
    """Somebody who has begun a frame, with a read that completed something."""
    talk = Talk(greeted())
    assert talk.say(raw.frame(raw.PING, 0, 0, bytes(8)) + begun)
    return talk


# --- small reads


@kinds
@pytest.mark.parametrize("size", [1, 50])
def test_a_frame_in_small_pieces(begun: bytes, size: int) -> None:
    talk = hostile(begun)
    assert talk.most(lambda _: b"x" * size, 2_000) == MOST
    assert peer_limits.TINY_READS.says in str(talk.events[-1])


def test_pieces_come_back_at_their_rate() -> None:
    talk = hostile(UNKNOWN[:9])
    for _ in range(MOST):
        assert talk.say(b"x")
    talk.now += 10 * SECOND
    assert talk.most(lambda _: b"x", 1_000) == 10 * limits.TINY_READ_RATE


def test_a_preface_and_settings_byte_by_byte_are_a_few_pieces() -> None:
    machine = Http2Server(max_streams=8, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
    for at in range(len(raw.HELLO)):
        machine.receive(raw.HELLO[at : at + 1], START)
    assert not machine.closed and machine.tiny_reads == len(raw.HELLO) - 1 - FREE
    assert machine.useless(START) >= machine.tiny_reads * limits.USELESS_READ


def segments(data: bytes, *sizes: int) -> Iterator[bytes]:
    """The data, in pieces of these sizes again and again."""
    at, number = 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        yield data[at : at + size]
        at, number = at + size, number + 1


MESSAGES = [raw.frame(raw.DATA, 0, 1, bytes(16_384)) for _ in range(60)]
GOOD: dict[str, list[bytes]] = {
    "segments of Ethernet": [*segments(b"".join(MESSAGES), 1_448)],
    "the smallest segments": [*segments(b"".join(MESSAGES), 536)],
    "the smallest records of TLS": [*segments(b"".join(MESSAGES), 512)],
    "heads apart from their frames": [piece for frame in MESSAGES for piece in (frame[:9], frame[9:])],
    "heads in two pieces": [piece for frame in MESSAGES for piece in (frame[:3], frame[3:9], frame[9:])],
    "writes of 4 KiB, each with a rest": [
        piece for frame in MESSAGES for write in segments(frame, 4_096) for piece in segments(write, 1_448)
    ],
    "reads of 4 KiB with what a buffer has left": [*segments(b"".join(MESSAGES), 4_096, 100)],
    "half of them small": [*segments(b"".join(MESSAGES), 512, 1)],
}


@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
def test_peers_that_mean_well(pieces: list[bytes]) -> None:
    """A megabyte as networks and libraries cut it, all in no time."""
    talk = Talk(greeted())
    talk.say(head(1))
    talk.machine.credit(1, 2 << 20)
    for piece in pieces:
        assert talk.say(piece)
    assert sum(event.size for event in talk.events if isinstance(event, Data)) == 60 * 16_384
    assert talk.machine.tiny_reads == 0


def test_five_calls_byte_by_byte() -> None:
    talk = Talk(greeted())
    for number in range(5):
        call = head(2 * number + 1) + raw.frame(raw.DATA, raw.END_STREAM, 2 * number + 1, bytes(60))
        assert all(talk.say(call[at : at + 1]) for at in range(len(call)))


def test_frames_that_are_complete_are_no_pieces() -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    assert all(talk.say(raw.frame(raw.DATA, 0, 1, b"x")) for _ in range(5_000))
    assert talk.machine.tiny_reads == 0


def test_pieces_are_held_against_the_address_however_slowly_they_come() -> None:
    talk = hostile(UNKNOWN[:9])
    for _ in range(500):
        talk.now += SECOND
        assert talk.say(b"x")
    assert talk.machine.useless(talk.now) >= (500 - FREE) * limits.USELESS_READ


def test_what_tls_reads_for_nothing_counts_alike() -> None:
    machine = greeted()
    assert all(machine.fragment(1, START) for _ in range(MOST))
    assert not machine.fragment(1, START)
    machine = greeted()
    assert all(machine.fragment(1_448, START) for _ in range(5_000)) and machine.tiny_reads == 0


def test_a_frame_whose_record_comes_in_pieces_forgives_them_however_usual_it_is() -> None:
    """Whoever is behind a tunnel that cuts records has a piece or two with each call."""
    machine = greeted()
    fields, trailers = ((b":status", b"200"),), ((b"grpc-status", b"0"),)
    for stream in range(1, 6 * MOST, 2):
        assert machine.fragment(100, START)
        call = raw.frame(raw.HEADERS, raw.END_HEADERS, stream, BLOCK) + raw.frame(raw.DATA, 1, stream, b"x")
        assert machine.receive(call, START)
        machine.answer(stream, fields, b"", trailers)
        machine.take(1 << 16)
    assert machine.tiny_reads == 0 and not machine.closed


# --- time


@pytest.mark.parametrize("kind", [Http2Server, H2Server])
@pytest.mark.parametrize("name", BEGUN)
def test_a_frame_has_a_time(name: str, kind: type[Http2Server] | type[H2Server]) -> None:
    """However often a byte comes."""
    if kind is H2Server and "not opened" in name:
        return
    machine = kind(max_streams=8, ping_interval=3_000 * SECOND, ping_timeout=SECOND, now=START)
    machine.receive(raw.HELLO, START)
    now = START + SECOND
    machine.receive(BEGUN[name][:-LONG], now)
    content = "content" in name
    allowed = limits.FRAME_TIMEOUT
    if content:
        allowed = limits.MESSAGE_GRACE + LONG * SECOND // limits.MIN_MESSAGE_RATE
    while not machine.closed:
        now += SECOND
        machine.receive(b"x", now)
        failed = machine.handle_timer(now)
    said = peer_limits.HEADERS if "headers" in name else peer_limits.SLOW_FRAME
    idle = "not opened" in name  # nothing else is open there
    assert now - START - SECOND == pytest.approx(allowed, abs=2 * SECOND) or idle
    assert idle or [event.limit for event in failed if isinstance(event, Failed)] == [said]


def test_content_at_the_slowest_rate_is_in_time() -> None:
    talk = hostile(head(1) + raw.frame(raw.DATA, 0, 1, bytes(LONG))[:9])
    left = LONG
    while left:
        size = min(left, 600)
        left -= size
        talk.now += size * SECOND // limits.MIN_MESSAGE_RATE
        assert talk.say(bytes(size))
        talk.machine._heard = talk.now
        assert not [event for event in talk.machine.handle_timer(talk.now) if isinstance(event, Failed)]


# --- what is kept


def filled(begun: bytes, reads: int = LONG - 1) -> Http2Server:
    """A frame that lacks its last byte, in so many bytes of a read."""
    machine = greeted()
    machine.receive(begun, START)
    for piece in segments(bytes(LONG - 1), reads):
        machine.receive(piece, START)
    assert not machine.closed
    return machine


@pytest.mark.parametrize("reads", [LONG, 700])
@kinds
def test_little_is_kept_of_what_nobody_waits_for(begun: bytes, reads: int) -> None:
    machine = filled(begun, reads)
    nothing = begun[3] in (0x55, raw.DATA)
    assert machine.kept <= 10 if nothing else LONG <= machine.kept <= LONG + 9 + len(BLOCK)


ENDED = {"reset by its peer": False, "answered, and it goes on": True}


@pytest.mark.parametrize("lingers", ENDED.values(), ids=ENDED)
@pytest.mark.parametrize("padding", [0, 200])
@pytest.mark.parametrize("reads", [1 << 20, 40_000, 700])
def test_content_of_a_stream_that_is_over_is_counted_all_the_same(lingers: bool, padding: int, reads: int) -> None:
    results = []
    frame = raw.frame(raw.DATA, raw.PADDED if padding else 0, 1, bytes([padding]) + bytes(LONG))
    for size in (len(frame), reads):
        machine = greeted()
        machine.receive(head(1), START)
        if lingers:
            machine.send_headers(1, [(b":status", b"200")], end=True)
        else:
            machine.receive(raw.frame(raw.RST_STREAM, 0, 1, struct.pack(">L", 8)), START)
        machine.take(1 << 20)
        for piece in segments(frame, size):
            machine.receive(piece, START)
            assert machine.kept <= 10
        results.append((machine._receive_window, machine.take(1 << 20), machine.closed))
    assert results[0] == results[1] and not results[0][2]


def test_a_stream_that_ends_within_a_frame_lets_go_of_it() -> None:
    machine = greeted()
    machine.receive(head(1) + raw.frame(raw.DATA, 0, 1, bytes(LONG))[: 50_000 - LONG], START)
    machine.reset(1, 0)
    assert machine.kept > 9_000
    machine.receive(b"x", START)
    assert machine.kept == 10
    machine.receive(bytes(9_999) + head(3), START)
    assert 3 in machine._streams and not machine.kept


@pytest.mark.parametrize("begun", [UNKNOWN[:9], raw.frame(raw.HEADERS, 0, 1, bytes(LONG))[:9]])
def test_what_is_kept_takes_as_much_as_was_sent(begun: bytes) -> None:
    machine = greeted()
    machine.receive(begun, START)
    tracemalloc.start()
    try:
        for piece in segments(bytes(LONG - 1), 600):
            machine.receive(piece, START)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size <= machine.kept * 5 // 4 + 2_000 and peak < 5 * LONG // 2


# --- of all connections


def crowd(count: int, everybody: Strangers, data: bytes) -> list[GrpcServer]:
    def refuse(_headers: object) -> Principal:
        raise AssertionError("nobody calls")

    servers = []
    for _ in range(count):
        server = GrpcServer(LimitSettings(), START, refuse, strangers=everybody)
        server.receive(raw.HELLO + data, START)
        servers.append(server)
    return servers


HALF = raw.frame(raw.HEADERS, 0, 1, bytes(LONG))[:-1]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Strangers:
    """A bound of half a megabyte."""
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 500_000)
    return Strangers()


def test_what_strangers_leave_unfinished_is_bounded_in_all(few: Strangers) -> None:
    servers = crowd(20, few, HALF)
    assert [server.closed for server in servers] == [False] * 8 + [True] * 12
    assert all(server.exceeded == [peer_limits.UNFINISHED] for server in servers[8:])
    assert few.total == 8 * len(HALF) == sum(server.http2.kept for server in servers)
    for server in servers:
        server.receive_eof(START)
    assert few.total == 0


def test_a_usual_call_in_pieces_gets_in_meanwhile(few: Strangers) -> None:
    crowd(8, few, HALF)
    server = GrpcServer(LimitSettings(), START, authenticate, strangers=few)
    call = raw.HELLO + head(1)
    server.receive(call[:-5], START)
    assert not server.closed and not server.proven
    server.receive(call[-5:] + raw.frame(raw.DATA, 0, 1, bytes(LONG))[:-1], START)
    assert not server.closed and server.proven, "who has called may send a long message"
    assert few.total == 8 * len(HALF)


def test_what_was_held_is_given_back_with_the_first_call(few: Strangers) -> None:
    server = GrpcServer(LimitSettings(), START, authenticate, strangers=few)
    block = BLOCK + b"".join(b"\x00\x02%02d\x7f\xff\x01" % at + b"y" * 382 for at in range(20))
    server.receive(raw.HELLO + raw.frame(raw.HEADERS, 0, 1, block[:6_000]), START)
    assert few.total == 6_000
    server.receive(raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1, block[6_000:]), START)
    assert server.proven and few.total == 0
