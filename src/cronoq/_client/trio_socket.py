"""A TCP connection straight on Trio.

anyio's stream asks the socket before it waits, and goes through the loop once more after each send: both cost more than
the read and the write themselves.
"""

from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from cronoq_sansio.limits import READ_SIZE

_SMALL = 64 << 10  #: bytes of a read while little comes: for more the system gives fresh memory and takes it back
_LARGE = 64 << 10  #: bytes of a write after which others have their turn


class TrioSocket:
    """A connection of anyio's under Trio, from which it takes the socket."""

    def __init__(self, trio: Any, stream: SocketStream) -> None:
        self._trio = trio
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self._next = _SMALL

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        """As `Wire` says."""
        wait = self._trio.lowlevel.wait_readable
        while True:
            await wait(self._socket)
            try:
                data = self._socket.recv(min(self._next, max_bytes))
            except BlockingIOError:
                continue
            if not data:
                raise anyio.EndOfStream
            self._next = max_bytes if len(data) == self._next else _SMALL
            return data

    async def send(self, item: bytes) -> None:
        """As `Wire` says."""
        left = memoryview(item)
        while True:
            try:
                sent = self._socket.send(left)
            except BlockingIOError:
                await self._trio.lowlevel.wait_writable(self._socket)
                continue
            if sent == len(left):
                break
            left = left[sent:]
        if len(item) >= _LARGE:
            await self._trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """As `Wire` says."""
        await self._stream.aclose()
