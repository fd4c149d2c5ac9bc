"""Two HTTP/2 machines that are told the same, step by step, and what each makes of it."""

import struct
from collections.abc import Iterable
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.values import value
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_events import Data, Event, Failed, Request, Reset, WindowOpened
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.http2_scripts import Step

START = 1_000 * SECOND
MAX_STREAMS = 4
RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]


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
        if isinstance(event, Request):
            found.append(("request", event.stream_id, tuple(event.headers.fields)))
            if event.data:
                found.append(("data", event.stream_id, event.data, len(event.data)))
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


class Side:
    """One machine past the greetings."""

    def __init__(self, kind: type[Http2Server] | type[H2Server]) -> None:
        self.machine = kind(max_streams=MAX_STREAMS, ping_interval=20 * SECOND, ping_timeout=20 * SECOND, now=START)
        self.receive(raw.HELLO)

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

    @property
    def started(self) -> set[int]:
        """Streams whose headers are out: h2 refuses a second head."""
        if not hasattr(self, "_started"):
            self._started: set[int] = set()
        return self._started

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
        return Outcome(told(events), resets, code, why)


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
