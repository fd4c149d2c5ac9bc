"""The states of a stream: the table against RFC 9113 section 5.1 in other words, and the machine in every place."""

import struct
from collections.abc import Callable

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MAX_CLOSED_STREAMS
from cronoq_sansio.wire.http2_events import Data, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.http2_streams import Breach, Input, OverStreams, State, table
from tests.wire import raw

START = 1_000 * SECOND
PROTOCOL_ERROR, CANCEL, STREAM_CLOSED = 1, 8, 5
RESPONSE = [(b":status", b"200")]
S, F = State, Input
HEADERS = {F.HEADERS, F.HEADERS_END}
CONTENT = {*HEADERS, F.DATA, F.DATA_END}
ENDING = {F.HEADERS_END, F.DATA_END}
ALL = set(Input)

# --- the section, sentence by sentence: where, which frames, what follows

SENTENCES: list[tuple[str, set[State], set[Input], Callable[[State, Input], int]]] = [
    (
        "idle: receiving a HEADERS frame causes the stream to become open; the same HEADERS frame can also cause a "
        "stream to immediately become half-closed",
        {S.IDLE},
        HEADERS,
        lambda _, frame: S.REMOTE_ENDED if frame in ENDING else S.OPEN,
    ),
    (
        "idle: receiving any frame other than HEADERS or PRIORITY MUST be treated as a connection error of type "
        "PROTOCOL_ERROR",
        {S.IDLE},
        ALL - HEADERS,
        lambda *_: Breach.PROTOCOL,
    ),
    (
        "open: may be used by both peers to send frames of any type; an END_STREAM flag causes the stream to become "
        "half-closed (remote)",
        {S.OPEN},
        ALL - {F.RST_STREAM},
        lambda _, frame: S.REMOTE_ENDED if frame in ENDING else S.OPEN,
    ),
    (
        "open, half-closed: either endpoint can send RST_STREAM, which makes the stream closed",
        {S.OPEN, S.REMOTE_ENDED, S.LOCAL_ENDED},
        {F.RST_STREAM},
        lambda *_: S.RESET,
    ),
    (
        "half-closed (local): an endpoint can receive any type of frame; the stream becomes closed when a frame with "
        "the END_STREAM flag is received",
        {S.LOCAL_ENDED},
        ALL - {F.RST_STREAM},
        lambda _, frame: S.ENDED if frame in ENDING else S.LOCAL_ENDED,
    ),
    (
        "half-closed (remote): frames other than WINDOW_UPDATE, PRIORITY or RST_STREAM are a stream error of type "
        "STREAM_CLOSED",
        {S.REMOTE_ENDED},
        CONTENT,
        lambda *_: Breach.STREAM,
    ),
    (
        "half-closed (remote): WINDOW_UPDATE still opens the window",
        {S.REMOTE_ENDED},
        {F.WINDOW_UPDATE},
        lambda *_: S.REMOTE_ENDED,
    ),
    (
        "closed: frames after END_STREAM was received are a connection error of type STREAM_CLOSED",
        {S.ENDED},
        CONTENT,
        lambda *_: Breach.CLOSED,
    ),
    (
        "closed: WINDOW_UPDATE and RST_STREAM can be received for a short period after END_STREAM was sent; "
        "an endpoint must not answer RST_STREAM with RST_STREAM (section 5.4.2)",
        {S.ENDED, S.RESET},
        {F.WINDOW_UPDATE, F.RST_STREAM},
        lambda *_: Breach.LATE,
    ),
    (
        "closed: frames after RST_STREAM was received are a stream error of type STREAM_CLOSED",
        {S.RESET},
        CONTENT,
        lambda *_: Breach.STREAM,
    ),
    (
        "closed: an endpoint that has sent RST_STREAM MUST ignore frames that arrive after it",
        {S.DROPPED},
        ALL,
        lambda *_: Breach.LATE,
    ),
    (
        "5.1.1: the first use of an id closes all idle streams below it; an unexpected id is a connection error of "
        "type PROTOCOL_ERROR",
        {S.SKIPPED},
        ALL,
        lambda *_: Breach.PROTOCOL,
    ),
]
PLACES = [(state, frame) for state in State for frame in Input]


def name(place: object) -> str:
    return place.name if isinstance(place, (State, Input)) else str(place)


@pytest.mark.parametrize(("state", "frame"), PLACES, ids=name)
def test_the_table_says_what_the_section_says(state: State, frame: Input) -> None:
    (follows,) = [follows for _, states, frames, follows in SENTENCES if state in states and frame in frames]
    assert table(server=True)[state][frame] == follows(state, frame)


def test_to_a_client_the_peer_opens_nothing() -> None:
    ours, theirs = table(server=True), table(server=False)
    assert set(theirs[S.IDLE]) == {Breach.PROTOCOL}
    assert [row for state, row in enumerate(ours) if state != S.IDLE] == [
        row for state, row in enumerate(theirs) if state != S.IDLE
    ]


# --- every place on the machine

OPENED = raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block())
WAYS: dict[State, list[list[bytes | str]]] = {
    S.IDLE: [[]],
    S.OPEN: [[OPENED], [OPENED, "start"]],
    S.REMOTE_ENDED: [
        [raw.frame(raw.HEADERS, 5, 1, raw.block())],
        [OPENED, raw.frame(raw.DATA, 1, 1, b"x")],
        [OPENED, raw.frame(raw.HEADERS, 5, 1, b"\x00\x01x\x01y")],
    ],
    S.LOCAL_ENDED: [[OPENED, "answer"]],
    S.ENDED: [
        [raw.frame(raw.HEADERS, 5, 1, raw.block()), "answer"],
        [OPENED, "answer", raw.frame(raw.DATA, 1, 1)],
    ],
    S.RESET: [
        [OPENED, raw.frame(raw.RST_STREAM, 0, 1, bytes(4))],
        [OPENED, "answer", raw.frame(raw.RST_STREAM, 0, 1, bytes(4))],
    ],
    S.DROPPED: [
        [OPENED, "reset"],
        [OPENED, raw.frame(raw.WINDOW_UPDATE, 0, 1, bytes(4))],
        [raw.frame(raw.HEADERS, 4, 1, b"")],
    ],
    S.SKIPPED: [[raw.frame(raw.HEADERS, raw.END_HEADERS, number, raw.block())] for number in (3, 5)],
}
"""Ways into each state of stream 1: what the peer sends, and what the service does."""
FRAMES = {
    F.HEADERS: raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block()),
    F.HEADERS_END: raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1, raw.block()),
    F.DATA: raw.frame(raw.DATA, 0, 1, b"x"),
    F.DATA_END: raw.frame(raw.DATA, raw.END_STREAM, 1, b"x"),
    F.RST_STREAM: raw.frame(raw.RST_STREAM, 0, 1, struct.pack(">L", CANCEL)),
    F.WINDOW_UPDATE: raw.frame(raw.WINDOW_UPDATE, 0, 1, struct.pack(">L", 5)),
}
TRAILERS = raw.frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, 1, b"\x00\x01x\x01y")


def machine_in(way: list[bytes | str]) -> Http2Server:
    machine = Http2Server(max_streams=10, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
    machine.receive(raw.HELLO, START)
    for step in way:
        if isinstance(step, bytes):
            machine.receive(step, START)
        elif step == "reset":
            machine.reset(1, CANCEL)
        else:
            machine.send_headers(1, RESPONSE, end=step == "answer")
    machine.take(1 << 20)
    return machine


def state_of(machine: Http2Server) -> int:
    stream = machine._streams.get(1)
    return machine._state_of(1) if stream is None else stream.state


REACHED = [(state, way, frame) for state in State for way in WAYS[state] for frame in Input]


@pytest.mark.parametrize(
    ("state", "way", "frame"), REACHED, ids=lambda part: "" if isinstance(part, list) else name(part)
)
def test_the_machine_in_every_place(state: State, way: list[bytes | str], frame: Input) -> None:
    machine = machine_in(way)
    assert state_of(machine) == state
    follows = table(server=True)[state][frame]
    sent = TRAILERS if frame is F.HEADERS_END and state in (S.OPEN, S.LOCAL_ENDED) else FRAMES[frame]
    events = machine.receive(sent, START)
    said = [(kind, body) for kind, _, _, body in raw.cut_frames(machine.take(1 << 20))]
    if frame is F.HEADERS and state in (S.OPEN, S.LOCAL_ENDED):  # trailers end a stream: section 8.1
        assert said == [(raw.RST_STREAM, struct.pack(">L", PROTOCOL_ERROR))] and events == [Reset(1)]
        assert state_of(machine) == S.DROPPED
    elif follows in (Breach.PROTOCOL, Breach.CLOSED):
        code = PROTOCOL_ERROR if follows == Breach.PROTOCOL else STREAM_CLOSED
        (failed,) = events
        assert isinstance(failed, Failed) and machine.closed
        ((kind, body),) = said
        assert kind == raw.GOAWAY and struct.unpack_from(">L", body, 4) == (code,)
    elif follows == Breach.STREAM:
        assert said == [(raw.RST_STREAM, struct.pack(">L", STREAM_CLOSED))]
        assert events == ([] if state == S.RESET else [Reset(1)])
        assert state_of(machine) == S.DROPPED
    elif follows == Breach.LATE:
        assert said == [] and events == [] and state_of(machine) == state and not machine.closed
    else:
        assert said == [] and state_of(machine) == follows and not machine.closed
        assert [type(event) for event in events] == told(state, frame)


def told(state: State, frame: Input) -> list[type]:
    """What the service learns of a frame that may be there; of content only while it may still answer."""
    if state is S.IDLE:
        return [Request]
    if frame is F.RST_STREAM:
        return [Reset]
    if frame is F.WINDOW_UPDATE:
        return [WindowOpened]
    return [] if state is S.LOCAL_ENDED else [Data]


@pytest.mark.parametrize("way", [way for ways in WAYS.values() for way in ways])
def test_priority_does_nothing_anywhere(way: list[bytes | str]) -> None:
    machine = machine_in(way)
    before = state_of(machine)
    assert machine.receive(raw.frame(raw.PRIORITY, 0, 1, b"\0\0\0\3\x10"), START) == []
    assert state_of(machine) == before and not machine.closed and not machine.wants_write()


@pytest.mark.parametrize(("frame", "sent"), FRAMES.items(), ids=name)
def test_an_even_stream_is_nobodys(frame: Input, sent: bytes) -> None:
    machine = machine_in([OPENED])
    (failed,) = machine.receive(sent[:5] + struct.pack(">L", 2) + sent[9:], START)
    assert isinstance(failed, Failed) and "wrong side" in failed.reason


def test_the_reserved_bit_of_a_stream_id_means_nothing() -> None:
    machine = machine_in([OPENED])
    sent = FRAMES[F.DATA_END]
    assert machine.receive(sent[:5] + struct.pack(">L", 1 << 31 | 1) + sent[9:], START) == [Data(1, b"x", 1, True)]


def test_what_is_remembered_of_streams_that_are_over_is_bounded() -> None:
    over = OverStreams()
    for number in range(2 * MAX_CLOSED_STREAMS):
        over.note(2 * number + 1, S.RESET)
        over.skip(4 * number + 100_001, 4 * number + 100_001)
    assert len(over._ends) == MAX_CLOSED_STREAMS and len(over._skipped) <= 64
    assert over.state(4 * MAX_CLOSED_STREAMS - 1) == S.RESET
    assert over.state(1) == S.DROPPED, "how it has ended is forgotten: what comes for it is not held against the peer"
    assert over.state(4 * MAX_CLOSED_STREAMS + 1) == S.ENDED


def test_no_stream_follows_the_last_one() -> None:
    """The highest bit of an id is not looked at (RFC 9113 section 4.1): behind the last comes the first."""
    machine = Http2Server(max_streams=9, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
    head = raw.frame(raw.HEADERS, raw.END_HEADERS, 2**31 - 3, raw.block())
    machine.receive(raw.HELLO + head, START)
    whole = [raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block()), raw.frame(raw.DATA, raw.END_STREAM, 1, b"x")]
    for stream_id in (2**31 - 1, 2**31 + 1):
        data = b"".join(frame[:5] + struct.pack(">L", stream_id) + frame[9:] for frame in whole)
        events = machine.receive(data, START)
    (event,) = events
    assert isinstance(event, Failed) and event.reason == "HEADERS on a stream that was not opened" and machine.closed
