"""Helpers for tests of the gRPC client machine: a server by hand, and ours joined to it by memory."""

from typing import Any

from hpack import Encoder

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire.client_call import CallEnded, ClientCall, ClientEvent, MessageReceived
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.grpc_client import GrpcClient
from tests.wire import raw
from tests.wire.patience import forgive

START = 1_000 * SECOND
PATH = b"/cronoq.v1.Tasks/Submit"
OK_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def block(fields: list[tuple[bytes, bytes]]) -> bytes:
    return Encoder().encode([(name, value, True) for name, value in fields], huffman=False)


def headers(stream_id: int, fields: list[tuple[bytes, bytes]] | None = None, *, end: bool = False) -> bytes:
    flags = raw.END_HEADERS | (raw.END_STREAM if end else 0)
    return raw.frame(raw.HEADERS, flags, stream_id, block(OK_HEADERS if fields is None else fields))


def data(stream_id: int, body: bytes, *, end: bool = False) -> bytes:
    return raw.frame(raw.DATA, raw.END_STREAM if end else 0, stream_id, body)


def message(body: bytes, flags: int = 0) -> bytes:
    return bytes((flags,)) + len(body).to_bytes(4, "big") + body


def trailers(stream_id: int, status: int = 0, text: bytes = b"", *more: tuple[bytes, bytes]) -> bytes:
    fields = [(b"grpc-status", b"%d" % status)]
    if text:
        fields.append((b"grpc-message", text))
    return headers(stream_id, [*fields, *more], end=True)


def machine(**changes: Any) -> GrpcClient:
    options: dict[str, Any] = {
        "authority": "localhost:7070",
        "ping_interval": 20 * SECOND,
        "ping_timeout": 5 * SECOND,
        "settings_timeout": 3 * SECOND,
        "max_receive": 100_000,
        **changes,
    }
    return GrpcClient(START, **options)


def connected(*, settings: bytes | None = None, **changes: Any) -> GrpcClient:
    """A client that has the server's SETTINGS, its own output taken."""
    client = machine(**changes)
    client.receive(raw.settings() if settings is None else settings, START)
    client.take(1 << 20)
    return client


def start(client: GrpcClient, body: bytes | None = b"ask", **options: Any) -> ClientCall:
    """Start a call; with a body it is sent and the call half-closed."""
    call = client.start_call(options.pop("path", PATH), options.pop("metadata", []), START, **options)
    if body is not None:
        client.send(call, body)
        client.half_close(call)
    return call


def sent(client: GrpcClient) -> list[tuple[int, int, int, bytes]]:
    return raw.cut_frames(client.take(1 << 20))


def end_of(events: list[ClientEvent], call: ClientCall) -> CallEnded:
    (end,) = [event for event in events if isinstance(event, CallEnded) and event.call is call]
    return end


def messages_of(events: list[ClientEvent], call: ClientCall) -> list[bytes]:
    """Of a stream all messages; of another call its answer, which comes with its end."""
    if call.streaming:
        return [event.data for event in events if isinstance(event, MessageReceived) and event.call is call]
    ends = [event for event in events if isinstance(event, CallEnded) and event.call is call]
    assert not any(isinstance(event, MessageReceived) and event.call is call for event in events)
    return [end.data for end in ends if end.status is GrpcStatus.OK]


class Pair:
    """Our client and our server, joined by memory. The server's service is the test."""

    def __init__(self, limits: LimitSettings | None = None, cut: int = 1 << 20, **changes: Any) -> None:
        self.client = machine(**changes)
        self.server = GrpcServer(limits or LimitSettings(), START, authenticate)
        self.now = START
        self.cut = cut
        """Bytes of each step between the two."""
        self.seen: list[ClientEvent] = []
        self.asked: list[Any] = []

    def run(self) -> None:
        """Let both speak until neither has anything to say."""
        while self._carry():
            pass

    def _carry(self) -> bool:
        there = self.client.take(1 << 20)
        self.seen += self.client.take_events()
        for at in range(0, len(there), self.cut):
            forgive(self.server.http2)
            self.asked += self.server.receive(there[at : at + self.cut], self.now)
        back = self.server.take(1 << 20)
        self.asked += self.server.take_events()
        for at in range(0, len(back), self.cut):
            self.seen += self.client.receive(back[at : at + self.cut], self.now)
        return bool(there or back)
