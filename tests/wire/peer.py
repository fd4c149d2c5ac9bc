"""A gRPC client without a socket, for the tests: h2's client role, and what it saw of each stream."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    PingAckReceived,
    PingReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.backlog import Waiting
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_server import Http2Server

GOAWAY = 7
START = 1_000 * SECOND
SUBMIT = "/cronoq.v1.Tasks/Submit"
WORK = "/cronoq.v1.Workers/Work"
on_both_machines = pytest.mark.parametrize("machine", [Http2Server, H2Server])


@dataclass
class Seen:
    """One stream as the client sees it."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    frames: int = 0
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """`grpc-status`, from trailers or a trailers-only answer."""
        text = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if text is None else int(text)

    @property
    def message(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))

    def messages(self) -> list[bytes]:
        """The messages that came; fails on an incomplete one."""
        found, rest = [], self.data
        while rest:
            size = int.from_bytes(rest[1:5], "big")
            assert rest[0] == 0 and len(rest) >= 5 + size
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found


class Peer:
    """Client and server joined by memory. `events` collects what the server machine reported."""

    def __init__(
        self,
        limits: LimitSettings | None = None,
        *,
        window: int = 1 << 20,
        connection_window: int | None = None,
        frame_size: int = 16_384,
        credit: bool = True,
        auth: Any = authenticate,
        refusal: Any = None,
        machine: MakeHttp2 = Http2Server,
        waiting: Waiting | None = None,
    ) -> None:
        self.now = START
        self.server = GrpcServer(limits or LimitSettings(), START, auth, refusal, machine, waiting=waiting)
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: frame_size})
        if connection_window is None:
            self.client.increment_flow_control_window(16 << 20)
        self.credit = credit
        self.events: list[Any] = []
        self.unsent: list[tuple[int, bytes, bool]] = []
        self.streams: dict[int, Seen] = {}
        self.goaways: list[tuple[int, int]] = []
        self.unread = b""
        self.pings = 0
        self.acks = 0
        self.exchange()

    # --- what the client does

    def headers(self, path: str = SUBMIT, *extra: tuple[str, str], end: bool = False, **over: str | None) -> int:
        """Open a stream; `over` replaces (or with None leaves out) header fields, `_` in names is `-`."""
        stream_id: int = self.client.get_next_available_stream_id()
        fields: dict[str, str | None] = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        for name, text in over.items():
            fields[(":" if name in ("method", "path") else "") + name.replace("_", "-")] = text
        list_of_fields = [(name, text) for name, text in fields.items() if text is not None]
        self.client.send_headers(stream_id, list_of_fields + list(extra), end_stream=end)
        self.streams[stream_id] = Seen()
        return stream_id

    def data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Send as far as the windows allow; `exchange` sends the rest when there is credit."""
        self.unsent.append((stream_id, data, end))
        self._send()

    def _send(self) -> None:
        waiting, self.unsent = self.unsent, []
        for stream_id, data, end in waiting:
            while True:
                window = self.client.local_flow_control_window(stream_id)
                room = min(self.client.max_outbound_frame_size, window, len(data))
                if data and room <= 0:
                    self.unsent.append((stream_id, data, end))
                    break
                piece, data = data[:room], data[room:]
                self.client.send_data(stream_id, piece, end_stream=end and not data)
                if not data:
                    break

    def call(self, message: Any, path: str = SUBMIT, *extra: tuple[str, str], **over: str | None) -> int:
        """A whole unary call."""
        stream_id = self.headers(path, *extra, **over)
        self.data(stream_id, frame(message.SerializeToString()), end=True)
        return stream_id

    def work(self, slots: int = 4) -> int:
        """A worker stream with its Register."""
        stream_id = self.headers(WORK)
        register = pb.Register(pool="default", slots=slots, worker_name="w", protocol_version=3)
        self.say(stream_id, pb.WorkerMessage(register=register))
        return stream_id

    def say(self, stream_id: int, message: Any) -> None:
        self.data(stream_id, frame(message.SerializeToString()))

    # --- what moves

    def exchange(self, after: int = 0, *, limit: int = 1 << 20, server_events: bool = True) -> list[Any]:
        """Move bytes both ways until nothing moves; the events of the server machine."""
        self.now += after
        fresh: list[Any] = []
        while True:
            self._send()
            sent = self.client.data_to_send()
            if sent:
                fresh += self.server.receive(sent, self.now)
            got = self.server.take(limit) if self.server.wants_write() else b""
            if got:
                self.watch(got)
            if not sent and not got:
                break
        fresh += self.server.take_events()
        self.events += fresh
        return fresh

    def timer(self, after: int) -> list[Any]:
        """Let time pass; every timer that is due on the way fires on time."""
        until = self.now + after
        fresh: list[Any] = []
        while (due := self.server.next_timeout()) is not None and due <= until:
            self.now = max(self.now, due)
            fresh += self.server.handle_timer(self.now)
        self.now = until
        self.events += fresh
        return fresh

    def until_reset(self, stream_ids: list[int], seconds: int, act: Callable[[int], None]) -> int | None:
        """Let seconds pass, each with `act` and a PING; after how many one of the streams was reset, or None."""
        for second in range(1, seconds + 1):
            self.timer(SECOND)
            act(second)
            self.client.ping(b"8 bytes.")
            self.exchange()
            if any(self.streams[stream_id].reset is not None for stream_id in stream_ids):
                return second
        return None

    def watch(self, data: bytes) -> None:
        """What the server wrote. GOAWAY is noted here, because h2's client drops its streams when it sees one."""
        self.unread += data
        while len(self.unread) >= 9:
            end = 9 + int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < end:
                return
            whole, self.unread = self.unread[:end], self.unread[end:]
            if whole[3] == GOAWAY:
                self.goaways.append((int.from_bytes(whole[9:13], "big"), int.from_bytes(whole[13:17], "big")))
            else:
                self._watch(whole)

    def _watch(self, data: bytes) -> None:
        for event in self.client.receive_data(data):
            seen = self.streams.get(getattr(event, "stream_id", None) or 0)
            if isinstance(event, ResponseReceived):
                assert seen is not None
                seen.headers = dict(event.headers)  # type: ignore[arg-type]
            elif isinstance(event, DataReceived):
                assert seen is not None
                seen.data += event.data
                seen.frames += 1
                if self.credit:
                    self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, TrailersReceived):
                assert seen is not None
                seen.trailers = dict(event.headers)  # type: ignore[arg-type]
            elif isinstance(event, StreamEnded):
                assert seen is not None
                seen.ended = True
            elif isinstance(event, StreamReset):
                assert seen is not None
                seen.reset = int(event.error_code or 0)
            elif isinstance(event, PingReceived):
                self.pings += 1
            elif isinstance(event, PingAckReceived):
                self.acks += 1
