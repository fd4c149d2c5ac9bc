"""A server that floods a client: each kind of frame that costs and carries nothing ends its connection at some number.

And servers that mean well: what they were seen to send passes.
"""

import struct

import pytest

from cronoq_sansio import limits
from cronoq_sansio.clock import MILLISECOND, SECOND
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_events import Failed, ResetByServer, Response
from tests.wire import client_peer, raw
from tests.wire.http2_peer import FIELDS, OK, START, data, goaway, greeted, headers, number, opened, output

PING = raw.frame(raw.PING, 0, 0, bytes(8))
RESET = raw.frame(raw.RST_STREAM, 0, 3, number(8))
WINDOWS = limits.WINDOW_UPDATES + 3 * limits.WINDOW_UPDATES_PER_STREAM
FLOODS: dict[str, tuple[bytes, int, str]] = {
    "pings": (PING, limits.PING_BURST, "PINGs"),
    "answers to pings": (raw.frame(raw.PING, raw.ACK, 0, bytes(8)), limits.PING_BURST, "PINGs"),
    "settings": (raw.settings(), limits.SETTINGS_BURST - 1, "SETTINGS"),
    "acknowledgements": (raw.frame(raw.SETTINGS, raw.ACK, 0), limits.SETTINGS_BURST - 1, "SETTINGS"),
    "settings that move our table": (
        raw.settings(header_table_size=0) + raw.settings(header_table_size=4_096),
        (limits.SETTINGS_BURST - 1) // 2,
        "SETTINGS",
    ),
    "farewells": (goaway(1, 0, b"bye"), limits.SETTINGS_BURST - 1, "GOAWAYs"),
    "windows": (raw.frame(raw.WINDOW_UPDATE, 0, 0, number(1)), WINDOWS, "WINDOW_UPDATEs"),
    "windows of a stream that is over": (raw.frame(raw.WINDOW_UPDATE, 0, 3, number(1)), WINDOWS, "WINDOW_UPDATEs"),
    "priorities": (raw.frame(raw.PRIORITY, 0, 1, bytes(5)), 4 * limits.PRIORITIES_PER_STREAM, "PRIORITY"),
    "frames of an unknown type": (raw.frame(0xEE, 0, 1), 4 * limits.PRIORITIES_PER_STREAM, "unknown types"),
    "data without a byte": (data(1, b""), limits.EMPTY_DATA_BURST, "DATA frames without a byte"),
    "padding": (raw.frame(raw.DATA, raw.PADDED, 1, b"\x01\0"), limits.EMPTY_DATA_BURST, "DATA frames without a byte"),
    "interim responses": (headers(5, (b":status", b"103")), limits.EMPTY_DATA_BURST, "interim responses"),
    "resets of a stream that is over": (RESET, limits.RESET_SPARE + 2, "streams are reset"),
}


@pytest.mark.parametrize(("frame", "allowed", "why"), FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_flood_ends_the_connection(frame: bytes, allowed: int, why: str, at_once: bool) -> None:
    machine = greeted()
    for _ in range(3):
        opened(machine)
    machine.receive(headers(1) + RESET, START)
    if at_once:
        machine.receive(frame * allowed, START)
        machine.take(1 << 20)
    else:
        for _ in range(allowed):
            machine.receive(frame, START)
            machine.take(1 << 20)
    assert not machine.closed
    last = machine.receive(frame, START)[-1]
    assert isinstance(last, Failed) and why in last.reason
    kind, _, _, body = output(machine)[-1]
    assert kind == raw.GOAWAY and struct.unpack_from(">LL", body) == (0, words.ENHANCE_YOUR_CALM)


RATES = {"pings": (PING, limits.PING_RATE), "settings": (raw.settings(), limits.SETTINGS_RATE)}


@pytest.mark.parametrize(("frame", "rate"), RATES.values(), ids=RATES)
def test_what_comes_at_its_rate_may_come_for_ever(frame: bytes, rate: int) -> None:
    machine = greeted()
    opened(machine)
    for step in range(1_000):
        machine.receive(frame, START + step * SECOND // rate)
        machine.take(1 << 20)
    assert not machine.closed


def test_answers_that_cannot_be_taken_count_like_resets() -> None:
    """Each stream may end with one; what a server opens none of for us, it cannot break for ever."""
    machine = greeted()
    streams = [opened(machine, end=True) for _ in range(1_000)]
    broken = [headers(stream, (b":status", b"20")) for stream in streams]
    events = machine.receive(b"".join(broken), START)
    assert [type(event) for event in events] == [ResetByServer] * 1_000 and not machine.closed


@pytest.mark.parametrize("crossing", [False, True])
def test_a_server_may_reset_all_streams_at_once(crossing: bool) -> None:
    """1,000 calls have one deadline, which both sides keep."""
    machine = greeted()
    streams = [opened(machine) for _ in range(1_000)]
    if crossing:
        for stream in streams:
            machine.reset(stream, words.CANCEL)
    resets = b"".join(raw.frame(raw.RST_STREAM, 0, stream, number(8)) for stream in streams)
    events = machine.receive(resets, START)
    assert len(events) == (0 if crossing else 1_000) and not machine.closed
    assert machine.next_timeout() is None


def test_late_answers_of_many_cancelled_streams_are_dropped() -> None:
    """More than are remembered; those that were forgotten are not taken for streams that have ended in order."""
    machine = greeted()
    streams = [opened(machine) for _ in range(limits.MAX_CLOSED_STREAMS + 500)]
    for stream in streams:
        machine.reset(stream, words.CANCEL)
    machine.take(1 << 20)
    for stream in streams:
        assert machine.receive(headers(stream) + data(stream, b"late") + headers(stream, end=True), START) == []
    assert not machine.closed and machine.unsent == 0


def test_a_go_servers_pings_are_answered() -> None:
    """It measures the path when it is sent something: 15 a second with small messages, 482 with some of 64 KiB."""
    machine = greeted(initial_window_size=1 << 30)
    stream = opened(machine)
    machine.receive(headers(stream) + raw.frame(raw.WINDOW_UPDATE, 0, 0, number(1 << 30)), START)
    now = START
    for _ in range(5 * 482):
        now += SECOND // 482
        machine.send_data(stream, bytes(16_384))
        machine.receive(PING, now)
        assert (raw.PING, raw.ACK, 0, bytes(8)) in output(machine)
    for _ in range(100):
        now += SECOND // 15
        call = machine.ask(FIELDS, b"x", now)
        machine.receive(PING + headers(call, end=True), now)
        machine.take(1 << 20)
    assert not machine.closed


def test_windows_are_opened_as_often_as_frames_go_out() -> None:
    """A server that opens its windows with every frame that it reads, both of them."""
    machine = greeted()
    stream = opened(machine)
    for _ in range(10_000):
        machine.send_data(stream, bytes(100))
        both = b"".join(raw.frame(raw.WINDOW_UPDATE, 0, opened_id, number(100)) for opened_id in (0, stream))
        machine.receive(both, START)
        machine.take(1 << 20)
    assert not machine.closed


def test_a_server_that_adapts_its_windows_says_so_often() -> None:
    """GRPC's own library sends SETTINGS whenever its estimate of the path doubles."""
    machine = greeted()
    stream = opened(machine)
    for step in range(15):
        machine.receive(raw.settings(initial_window_size=65_535 << min(step, 9)), START + step * 100 * MILLISECOND)
    assert not machine.closed and machine.sendable(stream) > 0


def test_replies_that_cannot_be_written_are_bounded() -> None:
    machine = greeted()
    opened(machine)
    while not machine.closed:
        machine.ask(FIELDS, b"", START)  # each request lets the server ping again
        machine.receive(PING * limits.PING_BURST, START)
        assert machine.unsent <= limits.MAX_UNSENT
    assert output(machine)[-1][0] == raw.GOAWAY


def test_a_window_that_is_opened_byte_by_byte_costs_what_it_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls wait for the window of the connection: each byte of it is given to one, and the rest is left alone."""
    client = client_peer.connected()
    calls = [client_peer.start(client, bytes(20_000)) for _ in range(300)]
    client.take(1 << 20)
    looked = 0
    sendable = Http2Client.sendable

    def counted(self: Http2Client, stream_id: int) -> int:
        nonlocal looked
        looked += 1
        return sendable(self, stream_id)

    monkeypatch.setattr(Http2Client, "sendable", counted)
    for _ in range(400):
        client.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, number(1)), START)
        assert client.wants_write()
        assert [len(frame[3]) for frame in client_peer.sent(client)] == [1]
        assert not client.wants_write()
    assert looked <= 800
    assert client.open_calls == len(calls)


def test_a_server_that_answers_after_a_flood_of_its_own_is_not_heard() -> None:
    machine = greeted()
    opened(machine, end=True)
    machine.receive(PING * (limits.PING_BURST + 1) + headers(1), START)
    assert machine.closed and machine.receive(headers(1), START) == []


def test_interim_responses_are_few_and_pass() -> None:
    machine = greeted()
    opened(machine, end=True)
    hints = headers(1, (b":status", b"100")) + headers(1, (b":status", b"103"), (b"link", b"</a>"))
    events = machine.receive(hints + headers(1), START)
    assert [type(event) for event in events] == [Response]
    assert isinstance(events[0], Response) and events[0].headers.fields == OK
