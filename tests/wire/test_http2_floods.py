"""Peers that mean well pass every limit on floods; one frame more than is allowed ends the connection, and says why."""

import struct
from collections.abc import Callable

import pytest

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.wire import pb, peer_limits
from cronoq_sansio.wire.http2_events import Failed, Request, Reset
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.peer import Peer

START = 1_000 * SECOND
PROTOCOL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 1, 7, 11
RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK = [(b"grpc-status", b"0")]
PING = raw.frame(raw.PING, 0, 0, b"8 bytes.")
CANCEL = struct.pack(">L", 8)
BLOCK = raw.block()


def greeted(max_streams: int = 1_024, *, acknowledged: bool = True) -> Http2Server:
    """A server whose peer has sent its SETTINGS and acknowledged ours: two of that bucket are used."""
    machine = Http2Server(max_streams=max_streams, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
    machine.receive(raw.HELLO + (raw.frame(raw.SETTINGS, raw.ACK, 0) if acknowledged else b""), START)
    machine.take(1 << 20)
    return machine


def head(stream_id: int, *, end: bool = False) -> bytes:
    return raw.frame(raw.HEADERS, raw.END_HEADERS | (raw.END_STREAM if end else 0), stream_id, BLOCK)


def update(stream_id: int, increment: int) -> bytes:
    return raw.frame(raw.WINDOW_UPDATE, 0, stream_id, struct.pack(">L", increment))


class Talk:
    """A machine whose output is read after each frame, and what it said."""

    def __init__(self, machine: Http2Server) -> None:
        self.machine = machine
        self.now = START
        self.written: list[tuple[int, int, int, bytes]] = []
        self.events: list[object] = []

    def say(self, data: bytes) -> bool:
        """Whether the connection goes on."""
        self.events += self.machine.receive(data, self.now)
        self.written += raw.cut_frames(self.machine.take(1 << 24))
        return not self.machine.closed

    def most(self, say: Callable[[int], bytes], bound: int) -> int:
        """How many frames in a row are taken; the one after them must end the connection, calmly and with a reason."""
        for number in range(bound + 1):
            if not self.say(say(number)):
                self.calmed()
                return number
        raise AssertionError(f"{bound + 1} of them were taken")

    def calmed(self) -> None:
        kind, _, _, body = self.written[-1]
        assert kind == raw.GOAWAY and struct.unpack_from(">L", body, 4) == (ENHANCE_YOUR_CALM,)
        (failed,) = [event for event in self.events if isinstance(event, Failed)]
        assert body[8:].decode() == failed.reason != ""


# --- peers that mean well


def test_the_pings_of_a_go_client_with_small_messages() -> None:
    """15 a second, each for an answer; a minute of them."""
    talk = Talk(greeted())
    for number in range(15 * 60):
        talk.now = START + number * SECOND // 15
        stream_id = 2 * number + 1
        assert talk.say(head(stream_id, end=True))
        assert talk.machine.answer(stream_id, RESPONSE, b"12345", OK)
        assert talk.say(PING)


def test_the_pings_of_a_go_client_on_a_stream_of_small_messages() -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    talk.machine.send_headers(1, RESPONSE)
    for number in range(15 * 60):
        talk.now = START + number * SECOND // 15
        talk.machine.send_data(1, b"12345")
        assert talk.say(PING)


def test_the_pings_of_a_go_client_with_messages_of_64_kib() -> None:
    """482 a second; ten seconds of them."""
    talk = Talk(greeted())
    talk.say(raw.settings(initial_window_size=1 << 24) + update(0, 1 << 24) + head(1))
    talk.machine.send_headers(1, RESPONSE)
    for number in range(4_820):
        talk.now = START + number * SECOND // 482
        for _ in range(4):
            assert talk.machine.sendable(1) == 16_384
            talk.machine.send_data(1, bytes(16_384))
        assert talk.say(PING + update(1, 65_536) + update(0, 65_536))
        talk.written.clear()


def test_the_window_updates_of_node_for_250_mib() -> None:
    """13,454 of them: for the stream and for the connection, about one for each two frames."""
    talk = Talk(greeted())
    talk.say(head(1, end=True))
    talk.machine.send_headers(1, RESPONSE)
    left, updates, unread = 250 << 20, 0, 0
    while left:
        size = min(talk.machine.sendable(1), left)
        if size > 0:
            talk.machine.send_data(1, bytes(size))
            left -= size
            unread += size
        if unread > 38_000 or size <= 0:
            assert talk.say(update(1, unread) + update(0, unread))
            updates, unread = updates + 2, 0
        talk.written.clear()
    assert updates >= 10_000


@pytest.mark.parametrize("read_at_once", [True, False])
def test_a_thousand_calls_with_one_deadline_are_reset_at_once(read_at_once: bool) -> None:
    talk = Talk(greeted())
    for burst in range(3):
        talk.now += 60 * SECOND
        ids = [2 * number + 1 for number in range(1_000 * burst, 1_000 * (burst + 1))]
        assert talk.say(b"".join(map(head, ids)))
        resets = [raw.frame(raw.RST_STREAM, 0, stream_id, CANCEL) for stream_id in ids]
        for data in [b"".join(resets)] if read_at_once else resets:
            assert talk.say(data)
    assert sum(isinstance(event, Reset) for event in talk.events) == 3_000


def test_a_first_flight_of_500_calls_over_a_limit_of_100() -> None:
    """The peer has not read our limit: 400 are refused, it tries them again, and nothing is held against it."""
    talk = Talk(greeted(100, acknowledged=False))
    assert talk.say(b"".join(head(2 * number + 1, end=True) for number in range(500)))
    refused = [stream_id for kind, _, stream_id, _ in talk.written if kind == raw.RST_STREAM]
    assert refused == [2 * number + 1 for number in range(100, 500)]
    assert talk.say(raw.frame(raw.SETTINGS, raw.ACK, 0))
    following, waiting, answered = 1_001, [2 * number + 1 for number in range(100)], 0
    while waiting:
        for stream_id in waiting:
            assert talk.machine.answer(stream_id, RESPONSE, b"12345", OK)
        answered += len(waiting)
        waiting = [following + 2 * number for number in range(min(100, 500 - answered))]
        following += 200
        assert talk.say(b"".join(head(stream_id, end=True) for stream_id in waiting))
    assert answered == 500


def test_a_browser_sends_priorities_for_each_stream() -> None:
    talk = Talk(greeted())
    for number in range(1_000):
        stream_id = 2 * number + 1
        depends = raw.frame(raw.PRIORITY, 0, stream_id, b"\0\0\0\0\x10")
        assert talk.say(depends * 50 + head(stream_id, end=True) + depends * 50)
        talk.machine.answer(stream_id, RESPONSE, b"", OK)


def test_a_header_block_in_pieces_of_one_kib() -> None:
    talk = Talk(greeted())
    block = b"".join(b"\x00\x03x%02d\x7f\x81\x01" % number + b"y" * 256 for number in range(50))
    pieces = [block[at : at + 1_024] for at in range(0, len(block), 1_024)]
    data = raw.frame(raw.HEADERS, raw.END_STREAM, 1, BLOCK)
    data += b"".join(raw.frame(raw.CONTINUATION, 0, 1, piece) for piece in pieces)
    assert talk.say(data + raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1))
    (request,) = talk.events
    assert isinstance(request, Request) and len(request.headers.fields) == 55


# --- one more than is allowed


def test_pings() -> None:
    talk = Talk(greeted())
    assert talk.most(lambda _: PING, 1_000) == limits.PING_BURST


@pytest.mark.parametrize("ack", [0, raw.ACK])
def test_pings_faster_than_one_a_second(ack: int) -> None:
    talk = Talk(greeted())
    ping = raw.frame(raw.PING, ack, 0, b"8 bytes.")

    def half_a_second_later(_number: int) -> bytes:
        talk.now += SECOND // 2
        return ping

    assert talk.most(half_a_second_later, 1_000) in range(2 * limits.PING_BURST - 2, 2 * limits.PING_BURST + 2)


def test_settings() -> None:
    talk = Talk(greeted())
    assert talk.most(lambda _: raw.settings(), 1_000) == limits.SETTINGS_BURST - 2


def test_acknowledgements_of_settings() -> None:
    talk = Talk(greeted())
    assert talk.most(lambda _: raw.frame(raw.SETTINGS, raw.ACK, 0), 1_000) == limits.SETTINGS_BURST - 2


def test_goaways() -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    assert talk.most(lambda _: raw.frame(raw.GOAWAY, 0, 0, bytes(8)), 1_000) == limits.SETTINGS_BURST - 2


def test_settings_of_many_entries() -> None:
    """Each change of the window is work for every stream."""
    talk = Talk(greeted())
    entry = struct.pack(">HL", 4, 70_000)
    assert talk.most(lambda number: raw.frame(raw.SETTINGS, 0, 0, entry * (limits.MAX_SETTINGS + number)), 2) == 1


def test_resets() -> None:
    """Rapid reset."""
    talk = Talk(greeted(100))

    def reset(number: int) -> bytes:
        return head(2 * number + 1) + raw.frame(raw.RST_STREAM, 0, 2 * number + 1, CANCEL)

    assert talk.most(reset, 10_000) == 100 + limits.RESET_SPARE


OUR_RESETS: dict[str, Callable[[int], bytes]] = {
    "a malformed request": lambda stream_id: raw.frame(raw.HEADERS, 5, stream_id, raw.block(("te", "gzip"))),
    "a window update of nothing": lambda stream_id: head(stream_id) + update(stream_id, 0),
    "a window too wide": lambda stream_id: head(stream_id) + update(stream_id, 2**31 - 1),
    "a priority that is too short": lambda stream_id: head(stream_id) + raw.frame(raw.PRIORITY, 0, stream_id, b"1234"),
    "a stream that depends on itself": lambda stream_id: (
        head(stream_id) + raw.frame(raw.PRIORITY, 0, stream_id, struct.pack(">LB", stream_id, 1))
    ),
    "data after the end": lambda stream_id: head(stream_id, end=True) + raw.frame(raw.DATA, 0, stream_id, b"x"),
    "headers after the end": lambda stream_id: head(stream_id, end=True) + head(stream_id),
    "headers that are no trailers": lambda stream_id: head(stream_id) * 2,
    "more content than was said": lambda stream_id: (
        raw.frame(raw.HEADERS, 4, stream_id, raw.block(("content-length", "1")))
        + raw.frame(raw.DATA, 0, stream_id, b"xy")
    ),
    "data after its reset": lambda stream_id: (
        head(stream_id) + raw.frame(raw.RST_STREAM, 0, stream_id, CANCEL) + raw.frame(raw.DATA, 0, stream_id, b"x")
    ),
}


@pytest.mark.parametrize("breach", OUR_RESETS.values(), ids=OUR_RESETS)
def test_our_own_resets_count(breach: Callable[[int], bytes]) -> None:
    """The reverse of rapid reset: the peer makes us do it."""
    talk = Talk(greeted(100))
    told = talk.most(lambda number: breach(2 * number + 1), 10_000)
    each = 2 if breach is OUR_RESETS["data after its reset"] else 1
    assert told == (100 + limits.RESET_SPARE) // each


@pytest.mark.parametrize("acknowledged", [True, False])
def test_streams_too_many(acknowledged: bool) -> None:
    talk = Talk(greeted(10, acknowledged=acknowledged))
    first = 0 if acknowledged else limits.FIRST_REFUSALS
    taken = talk.most(lambda number: head(2 * number + 1), 10_000)
    assert taken == 10 + first + 10 + limits.RESET_SPARE
    refused = [body for kind, _, _, body in talk.written if kind == raw.RST_STREAM]
    assert set(refused) == {struct.pack(">L", REFUSED_STREAM)}


def test_resets_come_back_at_their_rate() -> None:
    talk = Talk(greeted(100))
    for number in range(300):
        assert talk.say(head(2 * number + 1) + raw.frame(raw.RST_STREAM, 0, 2 * number + 1, CANCEL))
    talk.now += SECOND

    def reset(number: int) -> bytes:
        stream_id = 2 * (300 + number) + 1
        return head(stream_id) + raw.frame(raw.RST_STREAM, 0, stream_id, CANCEL)

    assert talk.most(reset, 1_000) == limits.RESET_RATE


def test_continuations_by_frames() -> None:
    talk = Talk(greeted())
    talk.say(raw.frame(raw.HEADERS, 0, 1, BLOCK))
    assert talk.most(lambda _: raw.frame(raw.CONTINUATION, 0, 1), 1_000) == limits.MAX_CONTINUATIONS - 1


def test_continuations_by_bytes() -> None:
    talk = Talk(greeted())
    talk.say(raw.frame(raw.HEADERS, 0, 1, bytes(16_384)))
    assert talk.most(lambda _: raw.frame(raw.CONTINUATION, 0, 1, bytes(16_000)), 1_000) == 3
    assert talk.machine._block == []


@pytest.mark.parametrize("size", [0, 100, 4_000])
def test_a_bomb_of_references(size: int) -> None:
    """One entry in the table, and a block of one-byte references to it."""
    talk = Talk(greeted())
    text = b"y" * size
    length = bytes([size]) if size < 127 else b"\x7f" + bytes([(size - 127) & 127 | 128, (size - 127) >> 7])
    bomb = b"\x40\x01x" + length + text + b"\xbe" * 10_000
    assert not talk.say(raw.frame(raw.HEADERS, raw.END_HEADERS, 1, bomb))
    talk.calmed()


def test_a_list_of_the_most_bytes_and_one_more() -> None:
    """Counted with 32 for each field (RFC 9113 section 6.5.2)."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]
    used = sum(len(name) + len(text) + 32 for name, text in fields) + len("x") + 32
    for more in (0, 1):
        talk = Talk(greeted())
        block = b"\x83\x86\x84\x01\x01a\x00\x01x"
        size = limits.MAX_HEADER_LIST - used + more
        block += b"\x7f" + bytes([(size - 127) & 127 | 128, (size - 127) >> 7]) + b"y" * size
        data = raw.frame(raw.HEADERS, 0, 1, block[:10_000])
        assert talk.say(data + raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1, block[10_000:])) is not bool(more)
        if more:
            talk.calmed()


@pytest.mark.parametrize("updates", [b"\x20\x3f\xe1\x1f\x20", b"\x20" * 3, b"\x20" * 10_000])
def test_table_sizes_within_a_block(updates: bytes) -> None:
    """Two may stand at the beginning of a block (RFC 7541 section 4.2)."""
    talk = Talk(greeted())
    assert talk.say(raw.frame(raw.HEADERS, 4, 1, updates[:2] + BLOCK)) or len(updates) == 5
    assert not Talk(greeted()).say(raw.frame(raw.HEADERS, 4, 1, updates + BLOCK))


def test_table_sizes_from_block_to_block_keep_nothing() -> None:
    """Filled, emptied and filled again: what is kept stays below a table's size."""
    talk = Talk(greeted())
    for number in range(500):
        filled = b"".join(b"\x40\x02%02d\x64" % (at % 100) + b"y" * 100 for at in range(20))
        block = b"\x20\x3f\xe1\x1f" + BLOCK + filled
        assert talk.say(raw.frame(raw.HEADERS, 5, 2 * number + 1, block))
        talk.machine.answer(2 * number + 1, RESPONSE, b"", OK)
    decoder = talk.machine._decoder
    assert decoder._size <= 4_096 and len(decoder._entries) <= 128 and len(decoder._kept) <= 64


def test_table_sizes_that_the_peer_sets_for_us() -> None:
    """However large: ours is 4,096 bytes, and however often: two sizes are told."""
    talk = Talk(greeted())
    for number in range(200):
        talk.now += 3 * SECOND
        assert talk.say(raw.settings(header_table_size=(0, 1 << 31, 17, 4_096)[number % 4]))
    assert talk.say(head(1, end=True))
    talk.machine.answer(1, RESPONSE, b"", OK)
    kind, _, _, block = raw.cut_frames(talk.machine.take(1 << 20))[0]
    assert kind == raw.HEADERS and block[:4] == b"\x20\x3f\xe1\x1f" and block[4] & 0xE0 != 0x20
    for number in range(1, 400):
        stream_id = 2 * number + 1
        assert talk.say(head(stream_id, end=True))
        talk.machine.send_headers(stream_id, [*RESPONSE, (b"x", b"y" * 100 + b"%d" % number)], end=True)
    assert talk.machine._encoder._size <= limits.ENCODER_TABLE


@pytest.mark.parametrize("padded", [False, True])
def test_data_without_a_byte(padded: bool) -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    empty = raw.frame(raw.DATA, raw.PADDED, 1, b"\x00") if padded else raw.frame(raw.DATA, 0, 1)
    assert talk.most(lambda _: empty, 10_000) == limits.EMPTY_DATA_BURST


def test_data_without_a_byte_on_a_stream_that_is_over() -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    talk.machine.reset(1, 0)
    assert talk.most(lambda _: raw.frame(raw.DATA, 0, 1), 10_000) == limits.EMPTY_DATA_BURST


@pytest.mark.parametrize("kind", [raw.PRIORITY, 0x10, 0xFF])
def test_priorities_and_frames_of_unknown_types(kind: int) -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    frame = raw.frame(kind, 0, 3, b"\0\0\0\0\x10")
    assert talk.most(lambda _: frame, 10_000) == 2 * limits.PRIORITIES_PER_STREAM


@pytest.mark.parametrize("cut", [1 << 20, 512])
def test_large_frames_of_unknown_types(cut: int) -> None:
    """Or a few of them would be many reads."""
    talk = Talk(greeted())
    frame = raw.frame(0x42, 0, 3, bytes(30 * limits.UNKNOWN_BYTES))
    pieces = [frame[at : at + cut] for at in range(0, len(frame), cut)]
    assert all(talk.say(piece) for _ in range(3) for piece in pieces)
    assert not talk.say(frame[:9])
    talk.calmed()


@pytest.mark.parametrize("stream_id", [0, 1])
def test_window_updates(stream_id: int) -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    taken = talk.most(lambda _: update(stream_id, 1), 10_000)
    assert taken == limits.WINDOW_UPDATES + limits.WINDOW_UPDATES_PER_STREAM


def test_window_updates_for_frames_that_were_sent() -> None:
    talk = Talk(greeted())
    talk.say(head(1))
    talk.machine.send_headers(1, RESPONSE)
    for _ in range(100):
        talk.machine.send_data(1, b"x")
    taken = talk.most(lambda _: update(1, 1), 10_000)
    paid = 100 * limits.WINDOW_UPDATES_PER_FRAME + 100 // limits.WINDOW_UPDATE_BYTES
    assert taken == limits.WINDOW_UPDATES + limits.WINDOW_UPDATES_PER_STREAM + paid


def test_the_window_updates_of_grpcio_for_each_message_of_a_worker() -> None:
    """A hundred leases of 30 bytes share a frame, and each of them opens the window again."""
    talk = Talk(greeted())
    talk.say(head(1))
    talk.machine.send_headers(1, RESPONSE)
    for _ in range(500):
        talk.machine.send_data(1, bytes(3_000))
        assert talk.say(update(1, 30) * 100 + update(0, 3_000))


# --- peers that do not read


def test_replies_that_are_not_read() -> None:
    """Pings are answered as slowly as they are allowed, and nobody takes the answers."""
    machine = greeted()
    for number in range(limits.MAX_UNSENT_CONTROL // 17):
        assert machine.receive(PING, START + number * SECOND) == []
    assert machine.receive(PING, START + 9_999 * SECOND) == [Failed("replies are not read", peer_limits.UNREAD_REPLIES)]
    assert machine.unsent <= limits.MAX_UNSENT_CONTROL + 100


def test_output_that_is_not_read() -> None:
    """A service that goes on answering somebody who does not read is stopped by the next thing that comes in."""
    machine = greeted()
    now, stream_id = START, 1
    while not machine.closed:
        machine.receive(head(stream_id, end=True), now)
        machine.send_headers(stream_id, RESPONSE, [(b"x", b"y" * 2_000)], end=True)
        stream_id += 2
    assert machine.unsent <= limits.MAX_UNSENT + 3_000


def test_a_window_of_zero_keeps_content_back_and_nothing_else() -> None:
    talk = Talk(greeted())
    talk.say(raw.settings(initial_window_size=0) + head(1, end=True) + head(3, end=True))
    assert talk.machine.sendable(1) == 0 and talk.machine.whole_window == 0
    assert not talk.machine.answer(1, RESPONSE, b"x", OK)
    assert not talk.machine.wants_write()
    assert talk.machine.answer(3, RESPONSE, b"", OK)
    assert [kind for kind, *_ in raw.cut_frames(talk.machine.take(1 << 20))] == [raw.HEADERS, raw.DATA, raw.HEADERS]


@pytest.mark.parametrize("ours", [0, 1, 30_000])
def test_a_window_that_shrinks_below_zero_under_way(ours: int) -> None:
    """RFC 9113 section 6.9.2: what was sent stays sent, and no byte goes out until the sum is above zero again."""
    talk = Talk(greeted())
    talk.say(head(1, end=True))
    talk.machine.send_headers(1, RESPONSE)
    for _ in range(3):
        talk.machine.send_data(1, bytes(15_000))
    assert talk.say(raw.settings(initial_window_size=ours))
    assert talk.machine.sendable(1) == ours - 45_000 and talk.machine._send_window == 65_535 - 45_000
    assert not talk.machine.answer(1, RESPONSE, b"x", OK)
    assert talk.say(update(1, 45_000 - ours)) and talk.machine.sendable(1) == 0
    assert talk.say(update(1, 7)) and talk.machine.sendable(1) == 7
    assert talk.say(raw.settings(initial_window_size=ours + 100)) and talk.machine.sendable(1) == 107


def test_a_tiny_window_of_the_connection_gives_closed_streams_no_turn() -> None:
    """Else 13 bytes would cost a turn of each of a thousand answers that wait."""
    peer = Peer(window=0, connection_window=0, credit=False)
    for _ in range(20):
        peer.call(pb.SubmitRequest(task=pb.TaskSpec(), wait=True))
    for event in peer.exchange():
        event.call.sink.reply(Submitted(1, False))
    peer.exchange()
    assert len(peer.server._blocked) == 20
    peer.server.receive(update(0, 1), peer.now)
    assert not peer.server.wants_write()
    peer.client.increment_flow_control_window(100, 3)
    peer.exchange()
    assert peer.streams[3].status == 0 and len(peer.server._blocked) == 19


def test_a_window_that_shrinks_and_then_grows_too_far() -> None:
    talk = Talk(greeted())
    talk.say(head(1) + update(1, 2**31 - 1 - 65_535))
    assert talk.machine._streams[1].send_window == 2**31 - 1
    assert talk.say(raw.settings(initial_window_size=0))
    assert not talk.say(raw.settings(initial_window_size=65_536))
    kind, _, _, body = talk.written[-1]
    assert kind == raw.GOAWAY and struct.unpack_from(">L", body, 4) == (3,)


# --- what a connection leaves unpaid


def resets(count: int) -> bytes:
    ids = range(1, 2 * count, 2)
    return b"".join(head(at) + raw.frame(raw.RST_STREAM, 0, at, CANCEL) for at in ids)


@pytest.mark.parametrize(
    ("said", "useless"),
    [
        (b"", 0),
        (head(1, end=True) + head(3, end=True), 0),
        (resets(300), 300),
        (PING * 7, 7),
        (raw.settings() * 5, 5 * limits.USELESS_SETTINGS),
        (head(1) + raw.frame(raw.DATA, 0, 1) * 9, 9),
        (update(0, 1) * 50, 50),
        (raw.frame(raw.PRIORITY, 0, 1, b"\0\0\0\3\x10") * 8, 8),
        (raw.frame(0x42, 0, 0) * 8, 8),
        (head(1) + update(0, 1) * limits.WINDOW_UPDATES_PER_STREAM, 0),
    ],
)
def test_frames_that_nothing_pays_for_are_counted(said: bytes, useless: int) -> None:
    """A greeting and its acknowledgement are free."""
    machine = greeted()
    machine.receive(said, START)
    assert machine.useless(START) == useless


def test_refused_streams_are_counted_also_where_the_peer_could_not_know() -> None:
    machine = greeted(10, acknowledged=False)
    machine.receive(b"".join(head(2 * number + 1) for number in range(200)), START)
    assert machine.useless(START) == 190
    machine.receive(raw.frame(raw.SETTINGS, raw.ACK, 0), START)
    assert machine.useless(START) == 190


def test_what_is_unpaid_is_forgiven_with_time_and_with_answers() -> None:
    talk = Talk(greeted())
    talk.say(resets(330) + PING * 5)
    assert talk.machine.useless(START) == 335
    assert talk.machine.useless(START + 5 * SECOND) == 330 - 5 * limits.RESET_RATE
    assert talk.machine.useless(START + 60 * SECOND) == 0
    talk.say(head(1_001, end=True))
    talk.machine.answer(1_001, RESPONSE, b"12345", OK)
    assert talk.machine.useless(START) == 330
