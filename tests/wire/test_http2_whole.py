"""Requests that are taken apart at once, on an HTTP/2 server, and those that differ from them in one thing."""

import pytest

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.http2_events import Event, Failed
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.http2_pair import told
from tests.wire.patience import forgive

START = 10**18
STREAMS = 4
OK = ((b":status", b"200"),)
END = ((b"grpc-status", b"0"),)
MESSAGE = b"question"
PLAIN, FAULTY, SIZED = raw.block(), raw.block(("connection", "close")), raw.block(("content-length", "8"))
RESERVED = 1 << 31


def head(stream_id: int, block: bytes = PLAIN, flags: int = raw.END_HEADERS) -> bytes:
    return raw.frame(raw.HEADERS, flags, stream_id, block)


def body(stream_id: int, data: bytes = MESSAGE, flags: int = raw.END_STREAM) -> bytes:
    return raw.frame(raw.DATA, flags, stream_id, data)


def call(stream_id: int, data: bytes = MESSAGE) -> bytes:
    return head(stream_id) + body(stream_id, data)


def ready() -> Http2Server:
    """It has seen the blocks that are used here; the next stream is 7."""
    machine = Http2Server(max_streams=STREAMS, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
    machine.receive(raw.HELLO, START)
    for stream_id, block in ((1, PLAIN), (3, FAULTY), (5, SIZED)):
        machine.receive(head(stream_id, block), START)
        machine.reset(stream_id, 8)
    machine.take(1 << 20)
    return machine


def by_stream(events: list[Event]) -> list[object]:
    """Whole requests of a read are told before others."""
    return sorted(told(events), key=lambda event: event[1] if len(event) > 1 else 1 << 32)


def unusual(n: int) -> dict[str, bytes]:
    """Where `n` is the next stream."""
    plain, end = head(n), raw.END_HEADERS | raw.END_STREAM
    return {
        "a block that did not come before": head(n, raw.block(("x", "y"))) + body(n),
        "a block that is none": head(n, b"\xff" * 5) + body(n),
        "fields that are not well formed": head(n, FAULTY) + body(n),
        "content of the length that was said": head(n, SIZED) + body(n),
        "content of another length": head(n, SIZED) + body(n, b"questions"),
        "a stream that is skipped": call(n + 2),
        "a stream that was opened before": call(5),
        "a stream of the other side": call(n + 1),
        "content of another stream": plain + body(n + 2),
        "content of a stream that is over": plain + body(5),
        "a reserved bit in the headers": head(n | RESERVED) + body(n),
        "a reserved bit in the content": plain + body(n | RESERVED),
        "headers that end the stream": head(n, flags=end) + body(n),
        "headers that are not whole": head(n, flags=0) + body(n),
        "content that does not end the stream": plain + body(n, flags=0),
        "content with padding": plain + body(n, b"\2" + MESSAGE + b"\0\0", raw.END_STREAM | raw.PADDED),
        "content with a flag that nobody knows": plain + body(n, flags=raw.END_STREAM | 0x40),
        "trailers": plain + head(n, flags=end),
        "another frame than DATA": plain + raw.frame(raw.PING, raw.END_STREAM, n, MESSAGE),
        "a frame that nobody knows": plain + raw.frame(0x0A, raw.END_STREAM, n, MESSAGE),
        "another frame than HEADERS": raw.frame(0x0A, raw.END_HEADERS, n, PLAIN) + body(n),
        "a frame of the largest size": plain + body(n, bytes(limits.MAX_FRAME)),
        "a frame that is too large": plain + body(n, bytes(limits.MAX_FRAME + 1)),
        "headers that are too large": b"\2" + plain[1:] + body(n) + bytes(1 << 17),
        "headers of 64 KiB and more": b"\0\1" + plain[2:] + body(n) + bytes(256),
        "a part of the content": call(n)[:-1],
        "a part of its head": call(n)[: len(plain) + 8],
        "a part of the headers": plain[:-1],
        "a frame between": plain + raw.frame(raw.PING, 0, 0, b"12345678") + body(n),
        "a stream too many": b"".join(map(call, range(n, n + 2 * STREAMS + 2, 2))),
        "headers before contents": plain + head(n + 2) + body(n) + body(n + 2),
        "a usual one between others": plain + call(n + 2) + body(n),
    }


def usual(n: int) -> dict[str, bytes]:
    return {"usual": call(n), "usual without a byte": call(n, b""), "two": call(n) + call(n + 2)}


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", [*unusual(7), *usual(7)])
def test_what_is_read_at_once_means_the_same_in_pieces(name: str, ahead: int) -> None:
    """No piece holds a whole request."""
    said = (unusual(7 + 2 * ahead) | usual(7 + 2 * ahead))[name]
    said = call(7) * ahead + said
    outcomes = []
    for size in (len(said), 11):
        machine, events = ready(), []
        for at in range(0, len(said), size):
            forgive(machine)
            events += machine.receive(said[at : at + size], START)
        state = sorted(machine._streams), machine._highest, machine._receive_window, machine._floods.opened
        outcomes.append((by_stream(events), machine.closed, machine.take(1 << 20), state))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", unusual(7))
def test_whatever_is_unusual_goes_the_long_way(name: str) -> None:
    """The one that was asked for, and not a later one: that begins anew."""
    machine, events = ready(), list[Event]()
    at = machine._whole(unusual(7)[name], 0, len(unusual(7)[name]), events)
    whole = {"a frame of the largest size": 1, "a stream too many": STREAMS}.get(name, 0)
    assert len(events) == whole and bool(at) is bool(whole)


@pytest.mark.parametrize("name", usual(7))
def test_what_is_usual_is_one_tuple(name: str) -> None:
    events = ready().receive(usual(7)[name], START)
    assert [(event[0], event[2]) for event in events if isinstance(event, tuple)] == [
        (7, b"" if "without" in name else MESSAGE),
        (9, MESSAGE),
    ][: len(events)]
    assert len(events) == 1 + (name == "two")


def test_after_the_last_stream_there_is_none() -> None:
    last = (1 << 31) - 1
    machine = ready()
    machine.receive(head(last - 2) + body(last - 2), START)
    assert [type(event) for event in machine.receive(call(last), START)] == [tuple]
    assert machine.receive(call(last + 2), START) == [], "that would be stream 1 again"


def test_whole_requests_move_the_window_of_the_connection() -> None:
    machine, stream_id, used = ready(), 7, 0
    for _ in range(3 * limits.CONNECTION_WINDOW // limits.MAX_FRAME):
        machine.receive(call(stream_id, bytes(limits.MAX_FRAME)), START)
        machine.reset(stream_id, 8)
        stream_id += 2
        used += limits.MAX_FRAME
        for kind, _, stream, data in raw.cut_frames(machine.take(1 << 20)):
            if kind == raw.WINDOW_UPDATE:
                assert stream == 0 and int.from_bytes(data, "big") == used > limits.CONNECTION_WINDOW // 2
                used = 0
        assert used <= limits.CONNECTION_WINDOW // 2


def test_the_stream_of_an_answer_serves_the_next_call_as_if_it_were_new() -> None:
    """Windows of the peer, and what has become of the one before, concern the one before."""
    machine = ready()
    for stream_id, window in ((7, 65_535), (9, 100), (11, 100)):
        machine.receive(raw.settings(initial_window_size=window), START)
        machine.receive(call(stream_id), START)
        assert machine.sendable(stream_id) == min(window, 16_384)
        update = raw.frame(raw.WINDOW_UPDATE, 0, stream_id, (7).to_bytes(4, "big"))
        machine.receive(update, START)
        assert machine._streams[stream_id].send_window == window + 7
        assert machine.answer(stream_id, OK, b"answer", END) and not machine._streams
    machine.receive(call(13) + call(15), START)
    assert machine.answer(13, OK, bytes(101), END) is False
    assert machine._streams[13] is not machine._streams[15]
    assert machine.answer(15, OK, bytes(100), END) and machine.answer(13, OK, bytes(100), END)


def test_answers_of_any_length_have_the_same_form() -> None:
    machine = ready()
    for stream_id, size in ((7, 0), (9, 5), (11, 5), (13, 300), (15, 5)):
        machine.receive(call(stream_id), START)
        assert machine.answer(stream_id, OK, bytes(size), END)
        frames = raw.cut_frames(machine.take(1 << 20))
        assert [(kind, flags, stream, len(data)) for kind, flags, stream, data in frames[1:2]] == [
            (raw.DATA, 0, stream_id, size)
        ]
        assert [(kind, flags, stream) for kind, flags, stream, _ in frames] == [
            (raw.HEADERS, raw.END_HEADERS, stream_id),
            (raw.DATA, 0, stream_id),
            (raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, stream_id),
        ]
        assert machine.unsent == 0


@pytest.mark.parametrize("pinged", [False, True])
@pytest.mark.parametrize(("interval", "timeout"), [(20, 20), (600, 20), (20, 600), (300, 300)])
def test_nobody_asks_too_late_whether_a_connection_was_idle_for_too_long(
    interval: int, timeout: int, pinged: bool
) -> None:
    """Whatever is due first, also when the last answer goes out while a ping is on its way."""
    machine = Http2Server(max_streams=1, ping_interval=interval * SECOND, ping_timeout=timeout * SECOND, now=START)
    machine.receive(raw.HELLO + call(1), START)
    now, ping = START + SECOND, machine.next_timeout()
    if pinged:
        assert ping is not None and machine.handle_timer(ping) == []
        now = ping + SECOND
        machine.next_timeout()
    machine.tick(now)
    assert machine.answer(1, OK, b"answer", END)
    due, exact = machine.due, machine.next_timeout()
    assert exact is not None and due <= exact <= now + limits.IDLE_TIMEOUT


def test_what_looks_like_a_request_within_a_frame_is_none() -> None:
    machine, said = ready(), call(9)
    opened = machine.receive(head(7) + raw.frame(raw.DATA, raw.END_STREAM, 7, said)[: -len(said)], START)
    assert by_stream(opened + machine.receive(said, START)) == by_stream(ready().receive(call(7, said), START))
    machine.receive(head(9, flags=0), START)
    assert [type(event) for event in machine.receive(call(11), START)] == [Failed], "a header block was interrupted"


def test_a_peer_that_asks_on_and_reads_nothing_is_cut_off() -> None:
    machine, stream_id = ready(), 7
    wide = (1 << 30).to_bytes(4, "big")
    machine.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, wide), START)
    while machine.unsent <= limits.MAX_UNSENT:
        assert [type(event) for event in machine.receive(call(stream_id), START)] == [tuple]
        assert machine.answer(stream_id, OK, bytes(16_384), END)
        stream_id += 2
    assert [type(event) for event in machine.receive(call(stream_id), START)] == [tuple, Failed]
