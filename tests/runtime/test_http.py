"""HTTP: what is answered, and that no connection can hold up the others, the stop, or the check of health."""

import json
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime import http_listener
from cronoq._runtime.http_api import Answer, HttpApi
from cronoq._runtime.http_listener import HttpListener
from cronoq_sansio import limits
from cronoq_sansio.clock import seconds
from cronoq_sansio.wire.frames import PREFACE

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
IDLE, BUSY, SEND = (
    seconds(limit) for limit in (limits.HTTP_IDLE_TIMEOUT, limits.HTTP_BUSY_TIMEOUT, limits.HTTP_SEND_TIMEOUT)
)

# --- the routes


def answer(method: str, target: bytes, unready: str = "") -> Answer:
    return HttpApi(lambda: unready).answer(method, target)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("target", "unready", "status", "body"),
    [
        (b"/healthz", "", 200, b"ok"),
        (b"/healthz", "stopping", 200, b"ok"),
        (b"/readyz", "", 200, b"ready"),
        (b"/readyz", "standby", 503, b"standby"),
        (b"/readyz", "store", 503, b"store"),
        (b"http://server:7071/healthz", "", 200, b"ok"),
        (b"https://[::1]/healthz", "", 200, b"ok"),
    ],
)
def test_health(method: str, target: bytes, unready: str, status: int, body: bytes) -> None:
    found = answer(method, target, unready)
    assert (found.status, found.body, found.content_type) == (status, body, b"text/plain; charset=utf-8")


@pytest.mark.parametrize(
    "target",
    [
        *(b"/", b"", b"*", b"/healthz/", b"/Healthz", b"//healthz", b"/%68ealthz", b"/healthz%00", b"/v1/tasks"),
        *(b"/\xff", b"ftp://x/healthz", b"http://[/healthz", b"healthz", b"x:1/healthz"),
    ],
)
def test_what_is_not_there_is_json(target: bytes) -> None:
    for method in ("GET", "POST", "BREW"):
        found = answer(method, target)
        assert (found.status, found.content_type) == (404, b"application/json")
        assert found.body.startswith(b'{"code":"not_found","error":"')


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get"])
def test_another_method_is_told_which_ones_there_are(method: str) -> None:
    found = answer(method, b"/readyz", "standby")
    assert (found.status, found.headers) == (405, ((b"allow", b"GET, HEAD"),))
    assert json.loads(found.body) == {"code": "method_not_allowed", "error": "allowed here: GET, HEAD"}


# --- connections


class Address:
    """The socket of a connection in memory, as far as hypercorn asks."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.1", 1

    getsockname = getpeername


class Stream:
    """The server's end of a connection in memory; it may stop taking bytes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.socket = Address()
        self.stuck = False
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        if self.stuck:
            await trio.sleep_forever()
        await self.stream.send_all(data)


class House:
    """A listener without a network: connections are made in memory."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.ready = ""
        self.api: Any = HttpApi(lambda: self.ready)
        self.exceeded: list[tuple[str, str]] = []
        self.listener = HttpListener(
            socket.create_server(("127.0.0.1", 0)),
            self.api,
            None,
            lambda limit, peer: self.exceeded.append((limit.name, peer)),
        )
        nursery.start_soon(self.listener.run)

    def connect(self) -> "Client":
        ours, theirs = trio.testing.memory_stream_pair()
        stream: Any = Stream(ours)
        listener = self.listener
        flooded = partial(listener._exceeded, peer="peer")
        connection = http_listener._Connection(listener._app, listener._config, listener._context, stream, flooded)
        listener.connections[connection] = None
        self.nursery.start_soon(listener._serve, connection, "peer")
        return Client(theirs, stream)


class Client:
    def __init__(self, stream: Any, theirs: Stream) -> None:
        self.stream = stream
        self.theirs = theirs
        self.ended_at: float | None = None

    async def ask(self, data: bytes, until: Callable[[bytes], bool] = lambda got: b"\r\n\r\n" in got) -> bytes:
        await self.stream.send_all(data)
        got = b""
        while not until(got):
            data = await self.stream.receive_some()
            if not data:
                break
            got += data
        return got

    async def end(self) -> float:
        """When the server closes."""
        while await self.stream.receive_some():
            pass
        return trio.current_time()


@pytest.fixture
async def house(nursery: trio.Nursery) -> Any:
    await trio.sleep(0)
    house = House(nursery)
    await trio.testing.wait_all_tasks_blocked()
    yield house
    await house.listener.stop()
    nursery.cancel_scope.cancel()


async def test_a_connection_takes_one_request_after_the_other(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    for _ in range(3):
        got = await client.ask(GET, lambda got: got.endswith(b"ok"))
        assert got.startswith(b"HTTP/1.1 200 ") and b"content-length: 2\r\n" in got and b"server:" not in got
    house.ready = "store"
    got = await client.ask(GET.replace(b"healthz", b"readyz"), lambda got: got.endswith(b"store"))
    assert got.startswith(b"HTTP/1.1 503 ")
    got = await client.ask(GET.replace(b"GET", b"HEAD"))
    assert b"content-length: 2\r\n" in got and got.endswith(b"\r\n\r\n")
    body = b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    assert (await client.ask(body, lambda got: got.endswith(b"}"))).startswith(b"HTTP/1.1 405 ")
    assert (await client.ask(GET, lambda got: got.endswith(b"ok"))).startswith(b"HTTP/1.1 200 "), "it goes on"


@pytest.mark.parametrize(
    ("said", "bound"),
    [(b"", IDLE), (b"GET /heal", IDLE), (GET[:-2], IDLE), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BUSY)],
)
async def test_a_head_has_its_time(autojump_clock: MockClock, house: House, said: bytes, bound: float) -> None:
    client = house.connect()
    await client.stream.send_all(said)
    assert await client.end() == pytest.approx(bound)


async def test_an_idle_connection_is_closed_after_ten_seconds(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    await trio.sleep(IDLE - 1)
    await client.ask(GET)
    asked = trio.current_time()
    assert await client.end() - asked == pytest.approx(IDLE)


async def test_a_body_that_does_not_come_costs_a_bounded_time(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    got = await client.ask(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 405 ") and trio.current_time() == pytest.approx(SEND)
    assert await client.end() == pytest.approx(SEND)


async def test_a_long_body_is_not_read_to_its_end(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    await client.stream.send_all(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
    sent = 0
    with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
        while True:
            await client.stream.send_all(bytes(10_000))
            await trio.testing.wait_all_tasks_blocked()
            sent += 10_000
    assert sent < limits.MAX_HTTP_DISCARD * 3
    assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 404 ")


async def test_a_peer_that_does_not_read_is_cut(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    client.theirs.stuck = True
    await client.stream.send_all(GET)
    assert await client.end() == pytest.approx(SEND)
    await house.listener.wait_left()


async def test_a_peer_that_does_not_read_does_not_hold_up_the_end(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        client = house.connect()
        client.theirs.stuck = True
        await client.stream.send_all(GET)
        await trio.testing.wait_all_tasks_blocked()
        await house.listener.stop()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == 0


def http2(window: int) -> h2.connection.H2Connection:
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    return client


def ask2(client: h2.connection.H2Connection, path: str = "/readyz") -> int:
    stream_id: int = client.get_next_available_stream_id()
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)]
    client.send_headers(stream_id, fields, end_stream=True)
    return stream_id


async def test_http2_with_prior_knowledge(autojump_clock: MockClock, house: House) -> None:
    client, protocol = house.connect(), http2(65_535)
    ids = [ask2(protocol) for _ in range(5)]
    await client.stream.send_all(protocol.data_to_send())
    ended: list[int] = []
    body = b""
    while len(ended) < len(ids):
        for event in protocol.receive_data(await client.stream.receive_some()):
            if isinstance(event, h2.events.DataReceived):
                body += event.data
            elif isinstance(event, h2.events.StreamEnded):
                ended.append(event.stream_id)
    assert sorted(ended) == ids and body == b"ready" * 5


PRIORITY = bytes((0, 0, 5, 2, 0, 0, 0, 0, 1)) + bytes(5)
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
MORE = bytes((0, 64, 0, 9, 0, 0, 0, 0, 1)) + bytes(16_384)  #: of a header block


@pytest.mark.parametrize(
    "said",
    [
        PRIORITY * (limits.HTTP_FRAMES + 1),
        bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) * 1 + bytes(8) + PRIORITY * limits.HTTP_FRAMES,
        SETTINGS * (limits.HTTP_FRAMES + 1),
        b"\x46\0\0\0\0\0\0\0\1",
        bytes((0, 64, 0, 1, 0, 0, 0, 0, 1)) + bytes(16_384) + MORE * (limits.MAX_HEADER_BLOCK // 16_384),
        b"\0\0\0\0\0\0\0\0\1",
    ],
)
async def test_floods_of_http2_end_their_connection(autojump_clock: MockClock, house: House, said: bytes) -> None:
    good, protocol = house.connect(), http2(65_535)
    bad = house.connect()
    hello = http2(65_535).data_to_send() if said[0] or said[3] else PREFACE
    await bad.stream.send_all(hello + said)
    assert await bad.end() == 0 and house.exceeded == [("http_frames", "peer")]
    ask2(protocol)
    await good.stream.send_all(protocol.data_to_send())
    assert protocol.receive_data(await good.stream.receive_some())


CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("said", [GET * 400, CHUNKED + b"1\r\nx\r\n" * 600])
async def test_floods_of_http1_end_their_connection(autojump_clock: MockClock, house: House, said: bytes) -> None:
    good, bad = house.connect(), house.connect()
    await bad.stream.send_all(said)
    assert await bad.end() == 0 and house.exceeded == [("http_lines", "peer")]
    await good.stream.send_all(GET)
    assert (await good.stream.receive_some()).startswith(b"HTTP/1.1 200")


async def test_checks_that_come_in_their_time_are_no_flood(autojump_clock: MockClock, house: House) -> None:
    """A dozen lines each, eight times a second."""
    client = house.connect()
    check = GET[:-2] + b"".join(b"X-Field-%d: text\r\n" % number for number in range(9)) + b"\r\n"
    for _ in range(8 * 100):
        await client.stream.send_all(check)
        answer = b""
        while not answer.endswith(b"ok"):
            answer += await client.stream.receive_some()
        await trio.sleep(1 / 8)
    assert not house.exceeded


async def test_frames_that_come_slowly_are_no_flood(autojump_clock: MockClock, house: House) -> None:
    client, protocol = house.connect(), http2(65_535)
    for _ in range(4):
        ask2(protocol)
        await client.stream.send_all(protocol.data_to_send() + PRIORITY * (limits.HTTP_FRAMES // 2))
        await trio.sleep(1)
        protocol.receive_data(await client.stream.receive_some())
    assert not house.exceeded


UPGRADE = GET[:-2] + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"


async def test_a_wish_for_an_upgrade_to_http2_is_ignored(autojump_clock: MockClock, house: House) -> None:
    """RFC 9110 section 7.8: a server may go on in HTTP/1.1, and curl --http2 takes that."""
    client = house.connect()
    for _ in range(2):
        await client.stream.send_all(UPGRADE)
        answer = b""
        while not answer.endswith(b"ok"):
            answer += await client.stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 200") and b"upgrade" not in answer.lower()


async def test_an_upgrade_to_http2_that_is_not_seen_ends_the_connection(
    autojump_clock: MockClock, house: House
) -> None:
    client = house.connect()
    at = UPGRADE.index(b"h2c")
    await client.stream.send_all(UPGRADE[:at])
    await trio.sleep(0.1)
    await client.stream.send_all(UPGRADE[at:])
    assert await client.end() < IDLE


async def test_a_window_that_stays_shut_has_a_bound(autojump_clock: MockClock, house: House) -> None:
    client, protocol = house.connect(), http2(0)
    for _ in range(9):
        ask2(protocol)
        await client.stream.send_all(protocol.data_to_send())
        await trio.sleep(3)
    assert await client.end() == pytest.approx(BUSY)


async def test_what_the_library_does_not_bear_ends_that_connection_alone(
    autojump_clock: MockClock, house: House
) -> None:
    good = house.connect()
    bad, protocol = house.connect(), http2(0)
    protocol.config.validate_outbound_headers = False
    ask2(protocol, "/\xff")
    await bad.stream.send_all(protocol.data_to_send())
    assert await bad.end() == 0
    assert (await good.ask(GET)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\x02\x00\x01\x00", b"garbage\r\n\r\n", b"GET / HTTP/9\r\n\r\n", bytes(99)]
)
async def test_what_is_not_http_is_refused_and_closed(autojump_clock: MockClock, house: House, said: bytes) -> None:
    client = house.connect()
    got = await client.ask(said, lambda got: False)
    assert got.startswith(b"HTTP/1.1 4") or got == b""
    assert await client.end() <= IDLE


async def test_a_head_that_is_too_large_is_refused(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    got = await client.ask(b"GET / HTTP/1.1\r\nx: " + b"y" * 2 * limits.MAX_HEADER_LIST, lambda got: False)
    assert got.startswith(b"HTTP/1.1 431 ") and trio.current_time() == 0


async def test_an_upgrade_to_websocket_is_refused(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    fields = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    got = await client.ask(GET[:-2] + fields + b"MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 403 ")


async def test_a_fault_of_ours_is_500_and_concerns_one_request(autojump_clock: MockClock, house: House) -> None:
    def broken(method: str, target: bytes) -> Answer:
        raise ZeroDivisionError("secret")

    house.api.answer = broken
    got = await house.connect().ask(GET)
    assert got.startswith(b"HTTP/1.1 500 ") and b"secret" not in got
    del house.api.answer
    assert (await house.connect().ask(GET)).startswith(b"HTTP/1.1 200 ")


async def test_the_stop_ends_what_is_idle_at_once(autojump_clock: MockClock, house: House) -> None:
    fresh, idle = house.connect(), house.connect()
    await idle.ask(GET)
    await house.listener.stop()
    assert (await fresh.end(), await idle.end()) == (0, 0)
    await house.listener.wait_left()


async def test_the_stop_lets_a_request_have_its_answer(autojump_clock: MockClock, house: House) -> None:
    client = house.connect()
    await client.stream.send_all(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()
    await house.listener.stop()
    await trio.sleep(1)
    assert (await client.ask(b"abc")).startswith(b"HTTP/1.1 405 ")
    assert await client.end() == 1
    await house.listener.wait_left()


async def test_the_oldest_idle_connection_makes_room(autojump_clock: MockClock, house: House) -> None:
    busy, idle, other = house.connect(), house.connect(), house.connect()
    await busy.stream.send_all(GET[:-2] + b"Content-Length: 3\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()
    ended: list[str] = []

    async def watch(name: str, client: Client) -> None:
        await client.end()
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for name, client in (("busy", busy), ("idle", idle), ("other", other)):
            nursery.start_soon(watch, name, client)
        house.listener._make_room()
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["idle"]
        house.listener._make_room()
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["idle", "other"]
        house.listener._make_room()
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["idle", "other", "busy"]
