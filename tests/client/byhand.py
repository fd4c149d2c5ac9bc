"""Servers by hand, in the loop of the test: what they say is bytes, so they can say anything."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute
from hpack import Decoder

from tests.wire import raw
from tests.wire.client_peer import data, headers, message, trailers

Handler = Callable[[ByteStream], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler, context: Any = None) -> AsyncIterator[str]:
    """A listener whose connections are given to `handler`; yields its address."""

    async def guarded(stream: ByteStream) -> None:
        async with stream:
            try:
                await handler(stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, guarded)
        yield f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def saying(*pieces: bytes, stay: bool = True) -> Handler:
    """Say this as soon as somebody connects, then read on, or close."""

    async def handler(stream: ByteStream) -> None:
        for piece in pieces:
            await stream.send(piece)
        while stay:
            await stream.receive()
        if pieces:
            # Closing with unread bytes would take back what was said.
            await stream.receive()

    return handler


class Asked:
    """A request as a server by hand sees it."""

    def __init__(self, stream_id: int, fields: dict[bytes, bytes]) -> None:
        self.stream_id = stream_id
        self.fields = fields
        self.body = b""
        self.ended = False


class HandServer:
    """Cuts what comes into requests. `decide(server, asked)` is called for each complete one, and may `say` bytes."""

    def __init__(self, decide: Callable[["HandServer", Asked], Awaitable[None]], settings: bytes | None = None) -> None:
        self._decide = decide
        self._settings = raw.settings() if settings is None else settings
        self.connections = 0
        self.asked: list[Asked] = []
        self.resets: list[int] = []
        self.reset = anyio.Event()
        self._stream: ByteStream | None = None

    async def __call__(self, stream: ByteStream) -> None:
        self.connections += 1
        self._stream = stream
        await self.say(self._settings)
        decoder, buffer, requests = Decoder(), b"", dict[int, Asked]()
        while True:
            buffer += await stream.receive()
            buffer = buffer.removeprefix(raw.PREFACE)
            while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
                size = 9 + int.from_bytes(buffer[:3], "big")
                ((kind, flags, stream_id, body),) = raw.cut_frames(buffer[:size])
                buffer = buffer[size:]
                if kind == raw.HEADERS:
                    requests[stream_id] = Asked(stream_id, dict(decoder.decode(body, raw=True)))
                elif kind == raw.DATA:
                    requests[stream_id].body += body
                    if flags & raw.END_STREAM:
                        self.asked.append(requests[stream_id])
                        await self._decide(self, requests[stream_id])
                elif kind == raw.RST_STREAM:
                    self.resets.append(stream_id)
                    self.reset.set()

    async def say(self, *pieces: bytes) -> None:
        assert self._stream is not None
        await self._stream.send(b"".join(pieces))

    async def answer(self, asked: Asked, body: bytes = b"") -> None:
        await self.say(headers(asked.stream_id), data(asked.stream_id, message(body)), trailers(asked.stream_id))

    async def leave(self) -> None:
        assert self._stream is not None
        await self._stream.aclose()
