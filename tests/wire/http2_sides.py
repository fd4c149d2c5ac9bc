"""Four sides of an HTTP/2 connection that speak to each other in tests: our two roles, and those of h2.

A client sends content and counts what it gets for an answer, a server answers each request that has ended. Both send in
pieces, give credit late, and change the windows that they allow, below zero too.
"""

import random
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import http2_events as http2
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire.http2_peer import START

REQUEST = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"host"))
RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
TRAILERS = ((b"grpc-status", b"0"),)
FRAMES = (16_384, 20_000, 1 << 20)
SIZES = (0, 0, 1, 50, 300, 16_384, 16_385, 90_000)
WINDOWS = (0, 1, 100, 30_000, 65_535)
MAX_STREAMS = 5
CANCEL = 8


def body(number: int, size: int, mark: bytes) -> bytes:
    """Content in which nothing can be swapped unnoticed."""
    return b"".join(b"%s%d.%d," % (mark, number, at) for at in range(size // 5 + 1))[:size]


class Side:
    """What all of them keep."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.got: dict[int, bytes] = {}
        self.seen: dict[int, list[str]] = {}
        self.to_send: dict[int, bytes] = {}
        self.owed: list[tuple[int, int]] = []
        self.gone: set[int] = set()
        """Streams that were reset, by either side."""

    def note(self, stream_id: int, what: str, data: bytes = b"") -> None:
        """Something came on a stream."""
        self.seen.setdefault(stream_id, []).append(what)
        self.got[stream_id] = self.got.get(stream_id, b"") + data

    def forget(self, stream_id: int) -> None:
        """The stream was reset."""
        self.gone.add(stream_id)
        self.to_send.pop(stream_id, None)

    # what each of them does in its own way

    def take(self, limit: int) -> bytes:
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        raise NotImplementedError

    def room(self, stream_id: int) -> int:
        raise NotImplementedError

    def put(self, stream_id: int, data: bytes, *, last: bool) -> None:
        raise NotImplementedError

    def give(self, stream_id: int, size: int) -> None:
        raise NotImplementedError

    def change(self, window: int) -> None:
        """Allow another window for each stream."""
        raise NotImplementedError

    def cancel(self, stream_id: int) -> None:
        raise NotImplementedError

    # and what they do alike

    def send(self, most: int) -> None:
        """A piece of up to three streams."""
        for stream_id in self.draw.sample(list(self.to_send), min(len(self.to_send), 3)):
            rest = self.to_send[stream_id]
            size = min(most, len(rest), max(self.room(stream_id), 0))
            if size or not rest:
                last = size == len(rest)
                self.to_send[stream_id] = rest[size:]
                if last:
                    del self.to_send[stream_id]
                self.put(stream_id, rest[:size], last=last)

    def credit(self) -> None:
        """For one piece that came."""
        if self.owed:
            self.give(*self.owed.pop(0))


class OurSide(Side):
    """What our two roles have in common."""

    machine: Any
    allowed: int

    def take(self, limit: int) -> bytes:
        return bytes(self.machine.take(limit))

    def receive(self, data: bytes) -> None:
        for event in self.machine.receive(data, START):
            assert not isinstance(event, http2.Failed), event
            self.on(event)

    def on(self, event: Any) -> None:
        raise NotImplementedError

    def room(self, stream_id: int) -> int:
        return int(self.machine.sendable(stream_id))

    def give(self, stream_id: int, size: int) -> None:
        self.machine.credit(stream_id, size)

    def change(self, window: int) -> None:
        """The machine has no use for it, so it is only told: never more than what it takes."""
        if self.machine._settled:  # and ours went out before
            entry = words.SETTING.pack(words.INITIAL_WINDOW, min(window, self.allowed))
            self.machine._send(words.SETTINGS, 0, 0, entry)

    def cancel(self, stream_id: int) -> None:
        self.machine.reset(stream_id, CANCEL)
        self.forget(stream_id)

    def on_data(self, event: http2.Data) -> None:
        if event.size:
            self.note(event.stream_id, "data", event.data)
            self.owed.append((event.stream_id, event.size))
        if event.ended:
            self.note(event.stream_id, "end")


class OurClient(OurSide):
    """`Http2Client`."""

    allowed = limits.CLIENT_WINDOW

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.machine = Http2Client(
            ping_interval=20 * SECOND, ping_timeout=5 * SECOND, settings_timeout=3 * SECOND, now=START
        )

    def may_open(self) -> bool:
        return bool(self.machine.may_open())

    def open(self, content: bytes) -> int:
        """Ask for something; its stream."""
        stream_id = 0
        if self.draw.random() < 0.5:
            stream_id = self.machine.ask(REQUEST, content, START)
        if not stream_id:
            stream_id = self.machine.open(REQUEST, START)
            self.to_send[stream_id] = content
        return int(stream_id)

    def put(self, stream_id: int, data: bytes, *, last: bool) -> None:
        self.machine.send_data(stream_id, data, end=last)

    def on(self, event: Any) -> None:
        if isinstance(event, http2.Response):
            self.note(event.stream_id, "head")
        elif isinstance(event, http2.Data):
            self.on_data(event)
        elif isinstance(event, http2.Trailers):
            self.note(event.stream_id, "end")
        elif isinstance(event, http2.Answer):
            for what, data in (("head", b""), ("data", event.data), ("end", b"")):
                self.note(event.stream_id, what, data)
        elif isinstance(event, http2.ResetByServer):
            assert not event.fault, event
            self.forget(event.stream_id)


class OurServer(OurSide):
    """`Http2Server`."""

    allowed = limits.INITIAL_WINDOW

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.answers: dict[int, bytes] = {}
        self.machine = Http2Server(
            max_streams=MAX_STREAMS, ping_interval=20 * SECOND, ping_timeout=5 * SECOND, now=START
        )

    def on(self, event: Any) -> None:
        if isinstance(event, tuple):
            stream_id, headers, data = event
            assert tuple(headers.fields[:3]) == REQUEST[:3]
            self.note(stream_id, "head", data)
            self.note(stream_id, "end")
            self.answer(stream_id)
        elif isinstance(event, http2.Request):
            assert tuple(event.headers.fields[:3]) == REQUEST[:3]
            self.note(event.stream_id, "head")
            if event.ended:
                self.note(event.stream_id, "end")
                self.answer(event.stream_id)
        elif isinstance(event, http2.Data):
            self.on_data(event)
            if event.ended:
                self.answer(event.stream_id)
        elif isinstance(event, http2.Reset):
            self.forget(event.stream_id)

    def answer(self, stream_id: int) -> None:
        """At once where the windows allow it, or bit by bit."""
        answer = self.answers[stream_id] = body(stream_id, self.draw.choice(SIZES), b"s")
        if self.draw.random() < 0.5 and self.machine.answer(stream_id, RESPONSE, answer, TRAILERS):
            return
        self.machine.send_headers(stream_id, RESPONSE)
        self.to_send[stream_id] = answer

    def put(self, stream_id: int, data: bytes, *, last: bool) -> None:
        if data:
            self.machine.send_data(stream_id, data)
        if last:
            self.machine.send_headers(stream_id, TRAILERS, end=True)


class TheirSide(Side):
    """What the two roles of h2 have in common."""

    def __init__(self, draw: random.Random, client: bool) -> None:
        super().__init__(draw)
        frame = draw.choice(FRAMES)
        self.h2 = H2Connection(H2Configuration(client_side=client, header_encoding=None))
        values = {SettingCodes.MAX_FRAME_SIZE: frame, SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS}
        if client:
            values[SettingCodes.ENABLE_PUSH] = 0
        self.h2.local_settings = Settings(client=client, initial_values=values)
        self.h2.max_inbound_frame_size = frame
        self.h2.initiate_connection()
        self.out = b""
        self.acknowledged = False
        """h2 takes the acknowledgement of its first SETTINGS for that of a change that was told before it."""

    def take(self, limit: int) -> bytes:
        self.out += self.h2.data_to_send()
        piece, self.out = self.out[:limit], self.out[limit:]
        return piece

    def receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, SettingsAcknowledged):
                self.acknowledged = True
            elif isinstance(event, StreamReset):
                assert event.error_code == CANCEL and event.stream_id is not None
                self.forget(event.stream_id)
            elif isinstance(event, DataReceived):
                assert event.stream_id is not None and event.data is not None
                self.note(event.stream_id, "data", event.data)
                self.owed.append((event.stream_id, event.flow_controlled_length or 0))
            else:
                self.on(event)

    def on(self, event: Any) -> None:
        raise NotImplementedError

    def room(self, stream_id: int) -> int:
        return min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)

    def give(self, stream_id: int, size: int) -> None:
        self.h2.acknowledge_received_data(size, stream_id)

    def change(self, window: int) -> None:
        if self.acknowledged:
            self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})

    def cancel(self, stream_id: int) -> None:
        self.h2.reset_stream(stream_id, CANCEL)
        self.forget(stream_id)


class TheirClient(TheirSide):
    """h2 as a client."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw, client=True)
        self.settled = False

    def may_open(self) -> bool:
        return self.settled and self.h2.open_outbound_streams < self.h2.remote_settings.max_concurrent_streams

    def open(self, content: bytes) -> int:
        """Ask for something; its stream."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, REQUEST)
        self.to_send[stream_id] = content
        if self.draw.random() < 0.5:
            self.send(16_384)
        return stream_id

    def put(self, stream_id: int, data: bytes, *, last: bool) -> None:
        self.h2.send_data(stream_id, data, end_stream=last)

    def on(self, event: Any) -> None:
        if isinstance(event, RemoteSettingsChanged):
            self.settled = True
        elif isinstance(event, ResponseReceived):
            self.note(event.stream_id or 0, "head")
        elif isinstance(event, TrailersReceived):
            assert event.headers is not None and tuple(map(tuple, event.headers)) == TRAILERS
        elif isinstance(event, StreamEnded):
            self.note(event.stream_id or 0, "end")


class TheirServer(TheirSide):
    """h2 as a server."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw, client=False)
        self.answers: dict[int, bytes] = {}

    def on(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            self.note(event.stream_id or 0, "head")
        elif isinstance(event, StreamEnded):
            stream_id = event.stream_id or 0
            self.note(stream_id, "end")
            if stream_id in self.gone:
                return
            self.h2.send_headers(stream_id, RESPONSE)
            self.answers[stream_id] = self.to_send[stream_id] = body(stream_id, self.draw.choice(SIZES), b"s")
            if self.draw.random() < 0.5:
                self.send(16_384)  # at once: it may be recognised whole

    def put(self, stream_id: int, data: bytes, *, last: bool) -> None:
        if data:
            self.h2.send_data(stream_id, data)
        if last:
            self.h2.send_headers(stream_id, TRAILERS, end_stream=True)
