"""Two HTTP/2 machines that are told the same, step by step, and what each makes of it."""

import struct
from collections.abc import Iterable
from typing import Any

from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, TrailersReceived

from cronoq_sansio.clock import SECOND
from cronoq_sansio.values import value
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_fields import content_length
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.http2_streams import Stream
from tests.wire import raw
from tests.wire.http2_scripts import Step

START = 1_000 * SECOND
MAX_STREAMS = 4
Fields = tuple[tuple[bytes, bytes], ...]
RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]


@value
class Trailers:
    """What ended a request that had begun."""

    fields: Fields
    owed: bool
    """The content is shorter than its content-length."""


@value
class Outcome:
    """What a machine made of a step."""

    events: tuple[Any, ...]
    resets: tuple[tuple[int, int], ...]
    """Streams that it has reset, and the codes."""
    code: int | None
    """Of the GOAWAY with which it has ended the connection; -1 = it has ended it without one."""
    why: str = ""
    """In its own words."""
    trailers: "Trailers | None" = None
    """That it took, or is looking at."""

    @property
    def failed(self) -> bool:
        """The connection is over."""
        return self.code is not None

    def same(self, other: "Outcome") -> bool:
        """Codes of a connection's end, and words, may differ: h2 does not look at everything in our order."""
        return (self.events, self.resets) == (other.events, other.resets)


def told(events: Iterable[Event]) -> tuple[Any, ...]:
    """Events in one form, however a message was recognised: its head, its content, its end."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, tuple):
            stream_id, headers, data = event
            found.append(("request", stream_id, tuple(headers.fields)))
            if data:
                found.append(("data", stream_id, data, len(data)))
            found.append(("end", stream_id))
        elif isinstance(event, Request):
            found.append(("request", event.stream_id, tuple(event.headers.fields)))
            if event.ended:
                found.append(("end", event.stream_id))
        elif isinstance(event, Data):
            if event.data or event.size:
                found.append(("data", event.stream_id, event.data, event.size))
            if event.ended:
                found.append(("end", event.stream_id))
        elif isinstance(event, Reset):
            found.append(("reset", event.stream_id))
        elif isinstance(event, WindowOpened):
            if event.stream_id:  # a hint; on a connection not every one is told
                found.append(("window", event.stream_id))
        else:
            assert isinstance(event, Failed)
            found.append(("failed",))
    return tuple(found)


class _Ours(Http2Server):
    """Tells what is in trailers."""

    trailers: Trailers | None = None

    def _on_more_headers(self, stream_id: int, stream: Stream, headers: HeaderList, **more: Any) -> None:
        self.trailers = Trailers(tuple(headers.fields), stream.expected > 0)
        super()._on_more_headers(stream_id, stream, headers, **more)


class Side:
    """One machine past the greetings."""

    def __init__(self, kind: type[Http2Server] | type[H2Server]) -> None:
        kind = _Ours if kind is Http2Server else kind
        self.machine = kind(max_streams=MAX_STREAMS, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
        self.started: set[int] = set()
        """Streams whose headers are out: h2 refuses a second head."""
        self._owed: dict[int | None, int] = {}
        """What is missing of each request's content; < 0 = it did not say how long it is."""
        self._trailers: Trailers | None = None
        """Of the last step, which our adapter of h2 does not tell."""
        if isinstance(self.machine, H2Server):
            self._listen(self.machine._machine)
        self.receive(raw.HELLO)

    def _listen(self, machine: H2Connection) -> None:
        receive = machine.receive_data

        def heard(data: bytes) -> list[Any]:
            events = receive(data)
            for event in events:
                self._hear(event)
            return events

        machine.receive_data = heard  # type: ignore[method-assign]

    def _hear(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            self._owed[event.stream_id] = content_length(_fields(event)) or 0
        elif isinstance(event, DataReceived):
            self._owed[event.stream_id] -= len(event.data)
        elif isinstance(event, TrailersReceived):
            self._trailers = Trailers(_fields(event), self._owed[event.stream_id] > 0)

    def receive(self, data: bytes) -> Outcome:
        return self._outcome(self.machine.receive(data, START))

    def serve(self, name: str, stream_id: int) -> Outcome:
        """What a service does with a stream; nothing where there is none."""
        machine = self.machine
        if name == "answer":
            machine.send_headers(stream_id, RESPONSE, end=True)
        elif name == "start":
            if stream_id not in self.started:
                self.started.add(stream_id)
                machine.send_headers(stream_id, RESPONSE)
        elif name == "reset":
            machine.reset(stream_id, 2)
        else:
            machine.credit(stream_id, 100)
        return self._outcome([])

    def do(self, step: Step) -> Outcome:
        return self.receive(step) if isinstance(step, bytes) else self.serve(*step)

    def _outcome(self, events: list[Event]) -> Outcome:
        frames = raw.cut_frames(self.machine.take(1 << 24))
        resets = tuple(
            (stream_id, struct.unpack(">L", body)[0]) for kind, _, stream_id, body in frames if kind == raw.RST_STREAM
        )
        code, why = None, "".join(event.reason for event in events if isinstance(event, Failed))
        if why:
            codes = [struct.unpack_from(">L", body, 4)[0] for kind, _, _, body in frames if kind == raw.GOAWAY]
            code = codes[-1] if codes else -1
        trailers, self._trailers = self._trailers, None
        if isinstance(self.machine, _Ours):
            trailers, self.machine.trailers = self.machine.trailers, None
        return Outcome(told(events), resets, code, why, trailers)


def _fields(event: RequestReceived | TrailersReceived) -> Fields:
    return tuple((bytes(name), bytes(text)) for name, text in event.headers or ())


def whole_frames(steps: list[Step]) -> list[Step]:
    """The steps, with bytes cut where a reader of their lengths cuts them."""
    found: list[Step] = []
    rest = b""
    for step in steps:
        if not isinstance(step, bytes):
            found.append(step)
            continue
        rest += step
        while len(rest) >= 9 and len(rest) >= (size := 9 + int.from_bytes(rest[:3], "big")):
            found.append(rest[:size])
            rest = rest[size:]
    return [*found, rest] if rest else found
