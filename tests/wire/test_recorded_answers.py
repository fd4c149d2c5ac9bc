"""Our client machine on what real servers have said: wherever the network cuts it, the same is told and answered.

They are recorded over sockets by `tests/foreign/record.py`; h2's client says what is in them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_events import Answer, Data, Failed, ResetByServer, Response, Trailers
from tests.wire import raw

NEVER = 1 << 60
FRAME_HEADER = 9
FIELDS = [(name.encode(), value.encode()) for name, value in [*raw.REQUEST, ("te", "trailers")]]
RECORDED = {
    f"{found['name']} {number}": bytes.fromhex(whole)
    for found in (json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "recorded").glob("*.json")))
    for number, whole in enumerate(found.get("whole", ()))
}
every = pytest.mark.parametrize("whole", RECORDED.values(), ids=RECORDED)


def streams(whole: bytes) -> int:
    """How many are spoken of."""
    return (max(stream_id for _, _, stream_id, _ in raw.cut_frames(whole)) + 1) // 2


def settings(whole: bytes) -> int:
    """Where the first frame ends: no stream is opened before it is here."""
    assert whole[3] == raw.SETTINGS
    return FRAME_HEADER + int.from_bytes(whole[:3], "big")


class Told:
    """What a machine has told, in order; content in pieces is one content."""

    def __init__(self) -> None:
        self.events: list[list[Any]] = []

    def add(self, stream_id: int, kind: str, what: Any) -> None:
        last = self.events[-1] if self.events else None
        if kind == "content" and last is not None and last[:2] == [stream_id, kind]:
            last[2] += what
        elif kind != "content" or what:
            self.events.append([stream_id, kind, what])


class Run:
    """Our machine, which has asked for everything that the server answers."""

    def __init__(self, whole: bytes) -> None:
        self.machine = Http2Client(ping_interval=NEVER, ping_timeout=NEVER, settings_timeout=NEVER, now=0)
        self.told = Told()
        self.said = b""
        self.answers = 0
        self.missing = streams(whole)

    def receive(self, data: bytes) -> None:
        for event in self.machine.receive(data, 0):
            self.tell(event)
        while self.missing and self.machine.may_open():
            assert self.machine.ask(FIELDS, b"", 0)
            self.missing -= 1
        self.said += self.machine.take(1 << 20)
        assert not self.machine.closed

    def tell(self, event: Any) -> None:
        add = self.told.add
        if isinstance(event, Response):
            add(event.stream_id, "headers", event.headers.fields)
            if event.ended:
                add(event.stream_id, "end", None)
        elif isinstance(event, Data):
            add(event.stream_id, "content", event.data)
            if event.ended:
                add(event.stream_id, "end", None)
        elif isinstance(event, Trailers):
            add(event.stream_id, "trailers", event.headers.fields)
            add(event.stream_id, "end", None)
        elif isinstance(event, Answer):
            self.answers += 1
            add(event.stream_id, "headers", event.headers.fields)
            add(event.stream_id, "content", event.data)
            add(event.stream_id, "trailers", event.trailers.fields)
            add(event.stream_id, "end", None)
        else:
            assert not isinstance(event, Failed), event
            if isinstance(event, ResetByServer):
                assert not event.fault
                add(event.stream_id, "reset", event.code)


def run(whole: bytes, pieces: list[bytes]) -> Run:
    """The first frame goes in by itself: what follows it answers what the client has said since."""
    done = Run(whole)
    assert b"".join(pieces) == whole
    for piece in pieces:
        done.receive(piece)
    return done


def in_two(whole: bytes, cut: int) -> list[bytes]:
    """The bytes, cut behind the SETTINGS and at one place more."""
    edges = sorted({0, settings(whole), cut, len(whole)})
    return [whole[start:end] for start, end in zip(edges, edges[1:], strict=False)]


def by_h2(whole: bytes) -> list[list[Any]]:
    """What h2 tells of the same bytes."""
    client, told = H2Connection(H2Configuration(client_side=True, header_encoding=None)), Told()
    client.initiate_connection()
    events = client.receive_data(whole[: settings(whole)])
    for number in range(streams(whole)):
        client.send_headers(2 * number + 1, FIELDS, end_stream=True)
    events += client.receive_data(whole[settings(whole) :])
    for event in events:
        if isinstance(event, ResponseReceived | TrailersReceived):
            assert event.stream_id is not None and event.headers is not None
            kind = "headers" if isinstance(event, ResponseReceived) else "trailers"
            told.add(event.stream_id, kind, [(bytes(name), bytes(value)) for name, value in event.headers])
        elif isinstance(event, DataReceived):
            assert event.stream_id is not None
            told.add(event.stream_id, "content", event.data)
        elif isinstance(event, StreamEnded):
            assert event.stream_id is not None
            told.add(event.stream_id, "end", None)
        elif isinstance(event, StreamReset):
            assert event.stream_id is not None
            told.add(event.stream_id, "reset", event.error_code)
    return told.events


def test_there_is_something() -> None:
    assert len(RECORDED) >= 4 and min(map(streams, RECORDED.values())) >= 10


@every
def test_the_same_as_h2_tells(whole: bytes) -> None:
    found = run(whole, in_two(whole, len(whole)))
    assert found.told.events == by_h2(whole)


@every
def test_cut_at_every_place(whole: bytes) -> None:
    expected = run(whole, in_two(whole, len(whole)))
    assert expected.answers, "some are recognised whole"
    for cut in range(1, len(whole)):
        found = run(whole, in_two(whole, cut))
        assert found.told.events == expected.told.events, cut
        assert found.said == expected.said, cut


@every
def test_in_reads_of_every_size(whole: bytes) -> None:
    expected = run(whole, in_two(whole, len(whole)))
    first, rest = whole[: settings(whole)], whole[settings(whole) :]
    for size in range(1, 200):
        pieces = [part[at : at + size] for part in (first, rest) for at in range(0, len(part), size)]
        found = run(whole, pieces)
        assert found.told.events == expected.told.events, size
        assert found.said == expected.said, size
