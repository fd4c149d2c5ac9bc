"""Every limit that a peer can exceed, at the running server: who is closed, what it hears, what the operator sees.

Another connection has a call answered before and after each of them.
"""

import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from hpack import Decoder
from trio.testing import MockClock

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.messages import Shutdown
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import backlog, pb, peer_limits
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.peer_limits import PeerLimit
from tests.runtime import certificates, tls_client
from tests.runtime.scene import (
    BREACH,
    CALM,
    LONG,
    PING,
    Scene,
    begin,
    bodies,
    called,
    head,
    hear,
    on_both_machines,
    settings,
    submitted,
    waits,
)
from tests.wire import raw

NO_ERROR, SETTINGS_TIMEOUT = 0, 4
BLOCK = raw.block()
UNKNOWN = raw.block(path="/grpc.health.v1.Health/Check")
BOMB = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4_000 + b"\xbe" * 5
FULL = bytes(limits.MAX_FRAME)
ENDLESS = raw.frame(0x55, 0, 0, FULL)[:9]
SMALL = 4_096  #: bytes on their way to a peer that does not read


def resets(count: int) -> bytes:
    cancel = struct.pack(">L", 8)
    return b"".join(head(at) + raw.frame(raw.RST_STREAM, 0, at, cancel) for at in range(1, 2 * count, 2))


FLOODS = {
    peer_limits.RESETS: resets(1_300),
    peer_limits.PINGS: PING * 21,
    peer_limits.SETTINGS: raw.settings() * 21,
    peer_limits.SETTINGS_ENTRIES: raw.frame(raw.SETTINGS, 0, 0, struct.pack(">HL", 3, 1) * 33),
    peer_limits.GOAWAYS: head(1) + raw.frame(raw.GOAWAY, 0, 0, bytes(8)) * 21,
    peer_limits.EMPTY_DATA: head(1) + raw.frame(raw.DATA, 0, 1) * 1_001,
    peer_limits.TINY_DATA: head(1) + raw.frame(raw.DATA, 0, 1, LONG) + raw.frame(raw.DATA, 0, 1, b"x") * 1_010,
    peer_limits.PRIORITIES: raw.frame(raw.PRIORITY, 0, 1, bytes(3) + b"\3\x10") * 101,
    peer_limits.UNKNOWN_FRAMES: raw.frame(0x42, 0, 0) * 101,
    peer_limits.WINDOW_UPDATES: raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1)) * 1_001,
    peer_limits.HEADER_BYTES: raw.frame(raw.HEADERS, 0, 1, BLOCK) + raw.frame(raw.CONTINUATION, 0, 1, FULL) * 4,
    peer_limits.CONTINUATIONS: raw.frame(raw.HEADERS, 0, 1, BLOCK) + raw.frame(raw.CONTINUATION, 0, 1) * 65,
    peer_limits.REFUSED_CALLS: b"".join(head(at, UNKNOWN, end=True) for at in range(1, 403, 2)),
    peer_limits.HEADER_LIST: head(1, BLOCK + BOMB),
}


Play = Callable[[Scene], Awaitable[None]]
PLAYS: dict[PeerLimit, Play] = {}


def of(limit: PeerLimit) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        PLAYS[limit] = play
        return play

    return keep


def flood(limit: PeerLimit, data: bytes) -> Play:
    async def play(scene: Scene) -> None:
        peer = scene.connect()
        await scene.say(peer, raw.HELLO + data)
        assert await scene.closed(peer, limit) < 2, "at once, and a second to hear why"

    return play


PLAYS |= {limit: flood(limit, data) for limit, data in FLOODS.items()}


@of(peer_limits.UNREAD_REPLIES)
async def too_many_answers_that_nobody_reads(scene: Scene) -> None:
    peer = scene.connect(SMALL)
    await scene.say(peer, called())
    for at in range(3, 10_000, 2):  # another answer each time: one that comes again takes a few bytes
        await scene.say(peer, head(at, raw.block(path=f"/{at:x>1000}"), end=True))
        if scene.counted():
            break
    assert peer.try_receive()


@of(peer_limits.NOT_HTTP2)
async def something_else(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, b"\x16\x03\x01\x02\x00\x01")
    assert await hear(peer) == b""
    peer.close()


@of(peer_limits.BROKEN_RULE)
async def a_client_that_pushes(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, BREACH)
    (body,) = bodies(await hear(peer), raw.GOAWAY)
    assert struct.unpack_from(">L", body, 4) == (1,), "PROTOCOL_ERROR"
    assert trio.current_time() < 2
    peer.close()


@of(peer_limits.PREFACE)
async def nothing_after_the_preface(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.PREFACE)
    when = await scene.closed(peer, peer_limits.PREFACE, SETTINGS_TIMEOUT)
    assert when == limits.PREFACE_TIMEOUT / SECOND


@of(peer_limits.HEADERS)
async def headers_byte_by_byte(scene: Scene) -> None:
    peer = scene.connect()
    data = head(1)
    await scene.say(peer, raw.HELLO)
    for at in range(9):
        await scene.say(peer, data[at : at + 1])
        await trio.sleep(1)
    assert await scene.closed(peer, peer_limits.HEADERS) == limits.HEADERS_TIMEOUT / SECOND


@of(peer_limits.TINY_READS)
async def a_frame_byte_by_byte(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO + ENDLESS)
    for _ in range(limits.TINY_READ_BURST + 10):
        await scene.say(peer, b"x")
    assert await scene.closed(peer, peer_limits.TINY_READS) < 2


@of(peer_limits.SLOW_FRAME)
async def a_frame_that_does_not_end(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO + ENDLESS)
    for _ in range(9):
        await trio.sleep(1)
        await scene.say(peer, bytes(1_000))
    assert await scene.closed(peer, peer_limits.SLOW_FRAME) == limits.FRAME_TIMEOUT / SECOND


@of(peer_limits.UNFINISHED)
async def blocks_that_nobody_ends(scene: Scene) -> None:
    """What the others have begun is kept, and forgotten when they go."""
    strangers = scene.house.server._strangers
    half = raw.HELLO + raw.frame(raw.HEADERS, 0, 1, bytes(60_000))[:-1]
    scene.house.server.door._peers._most = 10_000
    begun = scene.crowd(limits.MAX_STRANGERS // 60_000, "198.51.100.1")
    for peer in begun:
        peer.try_send(half)
    await trio.testing.wait_all_tasks_blocked()
    assert limits.MAX_STRANGERS - 60_000 < strangers.total <= limits.MAX_STRANGERS
    peer = scene.connect()
    peer.try_send(half)
    assert await scene.closed(peer, peer_limits.UNFINISHED) < 2
    for peer in begun:
        peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert strangers.total == 0


@of(peer_limits.KEEPALIVE)
async def a_host_that_vanished(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO)
    assert await scene.closed(peer, peer_limits.KEEPALIVE, NO_ERROR) == 40, "an interval and the time for its answer"


@of(peer_limits.IDLE)
async def a_connection_without_a_stream(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO)
    while trio.current_time() < 295:
        await trio.sleep(15)
        await scene.say(peer, raw.frame(raw.PING, raw.ACK, 0, b"cronoq\0\0"))
    assert await scene.closed(peer, peer_limits.IDLE, NO_ERROR) == limits.IDLE_TIMEOUT / SECOND


@of(peer_limits.UNREAD)
async def answers_that_nobody_reads(scene: Scene) -> None:
    task = await scene.finished(15_000, times=2)
    windows = raw.settings(initial_window_size=1 << 20) + raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 20))
    peer = scene.connect(SMALL)
    begun = trio.current_time()
    await scene.say(peer, raw.PREFACE + windows + waits(20, task))
    while not scene.counted():
        await trio.sleep(1)
        await scene.say(peer, PING)
    assert trio.current_time() - begun == pytest.approx(30, abs=1.5)
    await hear(peer)


@of(peer_limits.STALLED)
async def a_body_that_does_not_come(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO + head(1) + raw.frame(raw.DATA, 0, 1, frame(bytes(100))[:50]))
    while not scene.counted():
        await trio.sleep(1)
        if trio.current_time() % 15 == 0:
            await scene.say(peer, PING)
    assert 30 <= trio.current_time() <= 41
    await scene.only_reset(peer)


@of(peer_limits.SLOW_MESSAGE)
async def a_message_that_comes_byte_by_byte(scene: Scene) -> None:
    peer = scene.connect()
    await scene.say(peer, raw.HELLO + head(1) + raw.frame(raw.DATA, 0, 1, LONG))
    while not scene.counted():
        await trio.sleep(1)
        await scene.say(peer, raw.frame(raw.DATA, 0, 1, b"x"))
    assert 40 <= trio.current_time() <= 51
    await scene.only_reset(peer)


@of(peer_limits.SLOW_ANSWER)
async def an_answer_that_is_taken_byte_by_byte(scene: Scene) -> None:
    """By larger settings, which move all streams of the connection at once."""
    task = await scene.finished(14_000, times=2)
    peer = scene.connect()
    begun = trio.current_time()
    await scene.say(peer, raw.PREFACE + raw.settings(initial_window_size=0) + waits(15, task))
    for size in range(1, 10):
        await trio.sleep(8)
        await scene.say(peer, PING + raw.settings(initial_window_size=size))
        if scene.counted():
            break
    assert 40 <= trio.current_time() - begun <= 58
    assert await scene.only_reset(peer) == {CALM}


@of(peer_limits.WORKER_BEHIND)
async def a_worker_that_does_not_read(scene: Scene) -> None:
    peer = scene.connect()
    register = pb.Register(pool="default", slots=1, worker_name="w", protocol_version=3)
    body = frame(pb.WorkerMessage(register=register).SerializeToString())
    work = head(1, raw.block(("te", "trailers"), path="/cronoq.v1.Workers/Work")) + raw.frame(raw.DATA, 0, 1, body)
    await scene.say(peer, raw.PREFACE + raw.settings(initial_window_size=0) + work)
    connection = list(scene.house.server.lobby.connections)[-1]
    (stream,) = connection._machine._streams.values()
    (slots,) = (pool.max for pool in scene.house.server._settings.pools)
    for _ in range(2 * slots + limits.OUTBOUND_SPARE):
        stream.send(Shutdown("", False))
    connection._pass_on(connection.flush())
    await trio.testing.wait_all_tasks_blocked()
    assert bodies(peer.try_receive() or b"", raw.RST_STREAM)


@of(peer_limits.CONNECTIONS)
async def all_places_are_taken(scene: Scene) -> None:
    for peer in scene.crowd(9):
        await scene.say(peer, called())
    late = scene.connect(address="198.51.100.1")
    assert await hear(late) == b"" and trio.current_time() == 0, "so that clients wait before they try again"


@of(peer_limits.CONNECTIONS_OF_PEER)
async def all_places_of_an_address_are_taken(scene: Scene) -> None:
    scene.house.server.door._peers._most_of_peer = 5
    for peer in scene.crowd(5):
        await scene.say(peer, called())
    late = scene.connect()
    assert await hear(late) == b"" and trio.current_time() == 0
    other = scene.connect(address="198.51.100.1")
    await scene.answered(other, called())


@of(peer_limits.MADE_ROOM)
async def somebody_who_just_sits_there(scene: Scene) -> None:
    first, *_ = scene.crowd(9)
    await scene.say(first, raw.HELLO)
    late = scene.connect(address="198.51.100.1")
    assert await scene.closed(first, peer_limits.MADE_ROOM) == 0
    await scene.answered(late, called())


@of(peer_limits.KEPT_OUT)
async def who_comes_back_again_and_again(scene: Scene) -> None:
    """At first it is let in each time; in the end no oftener than its frames are forgiven."""
    let_in = []
    while trio.current_time() < 30:
        peer = scene.connect()
        await scene.say(peer, raw.HELLO + FLOODS[peer_limits.RESETS])
        if len(raw.cut_frames(await hear(peer))) > 2:
            let_in.append(trio.current_time())
        peer.close()
        await trio.sleep(0.1)
    connections = scene.counted()["resets"]
    assert connections == len(let_in) and scene.counted()[peer_limits.KEPT_OUT.name] > 100
    forgiven = limits.PEER_USELESS_BURST + 30 * limits.PEER_USELESS_RATE
    assert connections == pytest.approx(forgiven / (limits.USELESS_CONNECTION + 1_224), rel=0.1)
    assert let_in[5] < 12 and let_in[-1] > 25


@pytest.fixture
async def scene(nursery: trio.Nursery) -> Scene:
    return await begin(nursery, settings(limits=LimitSettings(max_connections=10)))


NO_FLOODS = [limit for limit in PLAYS if not limit.flood and limit is not peer_limits.KEPT_OUT]
ELSEWHERE = {peer_limits.HANDSHAKE, peer_limits.TLS_FAILED, peer_limits.HTTP_FRAMES, peer_limits.HTTP_LINES}
"""Met with TLS alone, and on the HTTP port: test_server_tls.py, test_http.py."""


def test_every_limit_has_a_test() -> None:
    assert set(PLAYS) | ELSEWHERE == set(peer_limits.ALL)
    assert len({limit.name for limit in peer_limits.ALL}) == len(peer_limits.ALL)


@pytest.mark.parametrize("limit", PLAYS, ids=lambda limit: limit.name)
async def test_who_goes_too_far_loses_this_connection_alone(
    limit: PeerLimit,
    autojump_clock: MockClock,
    scene: Scene,
    nursery: trio.Nursery,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = scene.house.caller()
    await other.submit()
    await PLAYS[limit](scene)
    if limit is peer_limits.IDLE:
        other = scene.house.caller()
    assert scene.counted().get(limit.name, 0) >= 1
    await other.submit()
    check_line(limit, capsys)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("limit", [*NO_FLOODS, peer_limits.TINY_DATA], ids=lambda limit: limit.name)
async def test_bounds_on_time_number_and_pieces_hold_on_h2_too(
    limit: PeerLimit, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    scene = await begin(nursery, settings("h2", limits=LimitSettings(max_connections=10)))
    await scene.house.caller().submit()
    await PLAYS[limit](scene)
    assert scene.counted()[limit.name] >= 1
    nursery.cancel_scope.cancel()


@on_both_machines
async def test_a_deadline_passes_while_the_message_is_coming(
    http2: str, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The caller is told in time, and nobody is blamed."""
    scene = await begin(nursery, settings(http2))
    peer = scene.connect()
    await scene.say(peer, raw.HELLO + head(1, raw.block(("te", "trailers"), ("grpc-timeout", "1500m"))))
    await scene.say(peer, raw.frame(raw.DATA, 0, 1, LONG + bytes(100)))
    peer.try_receive()
    await peer.wait_readable()
    assert trio.current_time() == 1.5
    ((kind, flags, stream_id, body),) = raw.cut_frames(peer.try_receive() or b"")
    assert (kind, flags, stream_id) == (raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1)
    trailers = dict(Decoder().decode(body))
    assert trailers["grpc-status"] == "4" and "deadline" in trailers["grpc-message"]
    assert scene.counted() == {}
    nursery.cancel_scope.cancel()


@on_both_machines
async def test_answers_that_nobody_takes_are_bounded_over_all_connections(
    http2: str, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes its answers gets them meanwhile."""
    most = 2 << 20
    monkeypatch.setattr(backlog, "MAX_WAITING", most)
    scene = await begin(nursery, settings(http2, limits=LimitSettings(max_message_bytes=most // 2)))
    task = await scene.finished(14_000)
    peers = scene.crowd(15)
    for peer in peers:
        await scene.say(peer, raw.PREFACE + raw.settings(initial_window_size=0) + waits(100, task))
    waiting = scene.house.server._waiting
    assert most * 3 // 4 < waiting.total < most
    assert (await scene.house.caller().wait(task)).output == bytes(14_000)
    heard = [raw.cut_frames(peer.try_receive() or b"") for peer in peers]
    refused = [len([1 for kind, flags, _, _ in frames if kind == raw.HEADERS and flags & 1]) for frames in heard]
    assert sum(refused) == 15 * 100 - waiting.total // 14_000 and refused[0] > 60
    await trio.sleep(41)
    assert waiting.total == 0 and scene.counted().keys() <= {"stalled", "keepalive"}
    nursery.cancel_scope.cancel()


def check_line(limit: PeerLimit, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for the operator, which says who, which limit, and what to do."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line for line in text.splitlines() if f"limit={limit.name} " in line]
    if limit.usual:
        assert all("[debug" in line for line in lines)
        return
    assert len(lines) == 1 and "[warning" in lines[0]
    assert "peer=192.0.2.7:4711" in lines[0] or "peer=198.51.100.1:4711" in lines[0]
    assert limit.says in lines[0] and limit.remedy in lines[0]


async def test_a_tls_handshake_that_does_not_come(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path)))
    peer = scene.connect()
    assert await hear(peer) == b""
    assert trio.current_time() == limits.TLS_HANDSHAKE_TIMEOUT / SECOND
    assert scene.counted() == {"handshake": 1}
    check_line(peer_limits.HANDSHAKE, capsys)
    nursery.cancel_scope.cancel()


async def test_a_client_without_tls_is_told_of(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commonest mistake when TLS is introduced: an operator sees who has not heard of it."""
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path)))
    peer = scene.connect()
    peer.try_send(raw.PREFACE)
    await hear(peer)
    assert scene.counted() == {"tls_failed": 1}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "limit=tls_failed" in line]
    assert "the TLS handshake failed: " in line and peer_limits.TLS_FAILED.remedy in line
    nursery.cancel_scope.cancel()


async def test_handshakes_that_come_to_nothing_keep_their_address_out(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path)))
    tries = 0
    while not scene.counted():
        await scene.visit(b"\x16\x03\x01\x00\x05")
        tries += 1
        assert tries < 1_000
    assert scene.counted() == {"kept_out": 1}
    assert tries == limits.PEER_USELESS_BURST // (limits.USELESS_HANDSHAKE + limits.USELESS_VISIT) + 2
    nursery.cancel_scope.cancel()


async def test_connections_that_come_and_go_keep_their_address_out(
    autojump_clock: MockClock, scene: Scene, nursery: trio.Nursery
) -> None:
    """Unless they call: then there is no bound but that on connections at a time."""
    visits = 0
    while not scene.counted():
        await scene.visit(raw.HELLO)
        await scene.visit(submitted(), "198.51.100.1")
        visits += 1
        assert visits < 2_000
    assert visits == limits.PEER_USELESS_BURST // limits.USELESS_VISIT + 2
    late = scene.connect(address="198.51.100.1")
    await scene.answered(late, called())
    nursery.cancel_scope.cancel()


async def test_a_byte_now_and_then_on_many_connections_keeps_their_address_out(
    autojump_clock: MockClock, scene: Scene, nursery: trio.Nursery
) -> None:
    """None of them gets far enough to exceed a limit of its own."""
    scene.house.server.door._peers._most = 1_000
    hostile = scene.crowd(100)
    for peer in hostile:
        peer.try_send(raw.HELLO + b"\0\3\xe8" + ENDLESS[3:])  # 1,000 bytes, which count for nothing
    rounds = 0
    while not scene.counted():
        await trio.sleep(0.001)
        for peer in hostile:
            await scene.say(peer, b"x")
        rounds += 1
        assert rounds < 100
    paid = limits.PEER_USELESS_BURST // limits.USELESS_READ // 100
    assert rounds == pytest.approx(paid + limits.TINY_READS_PER_FRAME, abs=2)
    for peer in hostile:
        await scene.say(peer, b"x")
    for peer in hostile:
        await hear(peer)
    assert scene.counted() == {"kept_out": 100}
    other = scene.connect(address="198.51.100.1")
    await scene.answered(other, called())
    nursery.cancel_scope.cancel()


async def test_a_record_of_tls_byte_by_byte(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What comes is nothing yet, for HTTP/2: it costs a turn each time all the same."""
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path)))
    peer = scene.connect()
    client = tls_client.Client(peer, certificates.client_side())
    await client.handshake()
    await tls_client.write(client, raw.HELLO)
    await trio.testing.wait_all_tasks_blocked()
    for byte in b"\x17\x03\x03\x40\x00" + bytes(limits.TINY_READ_BURST):
        if scene.counted():
            break
        await scene.say(peer, bytes([byte]))
    assert scene.counted() == {"tiny_reads": 1}
    check_line(peer_limits.TINY_READS, capsys)
    await hear(peer)
    nursery.cancel_scope.cancel()


async def test_a_handshake_makes_room(autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    few = LimitSettings(max_connections=3)
    scene = await begin(nursery, settings(tls=certificates.write(tmp_path), limits=few))
    first, *_ = scene.crowd(4)
    assert await hear(first) == b"" and trio.current_time() == 0
    assert scene.counted() == {"made_room": 1} and len(scene.house.server.door._peers) == 3
    nursery.cancel_scope.cancel()


async def test_who_has_not_had_a_call_goes_with_the_others_of_a_hostile_address(
    autojump_clock: MockClock, scene: Scene, nursery: trio.Nursery
) -> None:
    """Many connections that begin to flood together: a few of them are looked at, the others are closed unread."""
    scene.house.server.door._peers._most = 1_000
    calm = scene.connect()
    await scene.say(calm, called())
    hostile = scene.crowd(100)
    other = scene.connect(address="198.51.100.1")
    for peer in hostile:
        await scene.say(peer, raw.HELLO)
        peer.try_receive()
    for peer in hostile:
        peer.try_send(FLOODS[peer_limits.RESETS])
    for peer in hostile:
        await hear(peer)
    counted = scene.counted()
    assert counted.get("resets", 0) <= 12 and counted["kept_out"] == 100 - counted.get("resets", 0)
    for peer in (calm, other):
        await scene.answered(peer, PING if peer is calm else called())
    nursery.cancel_scope.cancel()
