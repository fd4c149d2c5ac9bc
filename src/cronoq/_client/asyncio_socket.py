"""A TCP connection straight on asyncio.

anyio's stream starts and stops reading for each read, which costs more than the read itself.
"""

import asyncio
import ipaddress
from collections import deque
from typing import Any

import anyio

from cronoq_sansio.limits import READ_SIZE

_READ = 64 << 10  #: bytes; the loop's own reads ask for more, which the system gives as fresh memory and takes back
_LARGE = 64 << 10  #: bytes of a write after which others have their turn
_HEAD_START = 0.25  #: seconds that one address of a host is tried before the next (RFC 8305 section 5)


async def connect(host: str, port: int) -> "AsyncioSocket | None":
    """None when that fails; whoever wants to know why tries again in another way."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {}
    # Other loops than asyncio's own try one address after the other. Where there is only one, nothing is to be raced:
    # asyncio's race forgets a socket that is connected when the race is cancelled, and leaves it to the collector.
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(host):
        options["happy_eyeballs_delay"] = _HEAD_START
    try:
        _, wire = await loop.create_connection(AsyncioSocket, host, port, **options)
    except OSError:
        return None
    return wire


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class AsyncioSocket(asyncio.BufferedProtocol):
    """What `create_connection` is given, and gives back. One task may receive and another send."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._buffer = bytearray(_READ)
        self._arrived: deque[bytes] = deque()
        self._size = 0
        """Bytes of `_arrived`."""
        self._ended = False
        """Nothing more comes."""
        self._lost = False
        self._error: Exception | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self._full = False
        """The system does not take what was sent."""

    # --- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(0)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """They came. More than a read in store, and the peer has to wait."""
        self._arrived.append(bytes(memoryview(self._buffer)[:nbytes]))
        self._size += nbytes
        if self._size >= READ_SIZE:
            self._transport.pause_reading()
        _wake(self._receiver)

    def eof_received(self) -> bool:
        """The peer has ended; what is to be sent still is."""
        self._ended = True
        _wake(self._receiver)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._ended = self._lost = True
        self._error = exc
        _wake(self._receiver)
        _wake(self._sender)

    def pause_writing(self) -> None:
        """The system takes no more."""
        self._full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._full = False
        _wake(self._sender)

    # --- what a connection asks for

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        """As `Wire` says; all that is there, whatever `max_bytes` is."""
        while not self._arrived:
            if self._error is not None:
                raise anyio.BrokenResourceError from self._error
            if self._ended:
                raise anyio.EndOfStream
            self._receiver = self._loop.create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        data = self._arrived[0] if len(self._arrived) == 1 else b"".join(self._arrived)
        self._arrived.clear()
        if self._size >= READ_SIZE and not self._transport.is_closing():
            self._transport.resume_reading()
        self._size = 0
        return data

    async def send(self, item: bytes) -> None:
        """As `Wire` says."""
        if self._transport.is_closing():
            raise anyio.BrokenResourceError from self._error
        self._transport.write(item)
        while self._full and not self._transport.is_closing():
            self._sender = self._loop.create_future()
            try:
                await self._sender
            finally:
                self._sender = None
        if self._error is not None:
            raise anyio.BrokenResourceError from self._error
        if len(item) >= _LARGE:
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        """As `Wire` says."""
        self._transport.close()
        try:
            await asyncio.sleep(0)
        finally:
            if not self._lost:  # else asyncio has forgotten its loop
                self._transport.abort()


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
