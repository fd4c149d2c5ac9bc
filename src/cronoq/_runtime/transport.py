"""Byte transports with a synchronous send: what a connection needs and `trio.SocketStream` does not have.

Whoever performs an answer writes it straight to the socket, without a task and without awaiting. So a transport sends
what it can now and says how much that was; waiting is separate. `SocketTransport` owns a non-blocking socket of the
standard library, `MemoryTransport` is the same in memory.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import trio

from cronoq_sansio.limits import READ_SIZE

#: TCP keepalive of accepted sockets, in seconds: a host that vanished is noticed after about 60 + 6 × 10 s even where
#: the pings of HTTP/2 are switched off by a long interval. (Option, value); what the platform lacks is left out.
KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


class Transport(Protocol):
    """One connection's bytes. Every method but `close` may raise `OSError` when the connection is broken."""

    @property
    def unsent(self) -> bool:
        """Bytes that `try_send` took wait here: wait until writable and call it again, if need be with nothing."""

    @property
    def arrived(self) -> int:
        """Bytes that the last `try_receive` has taken and of which it has nothing to say yet."""

    def try_send(self, data: bytes | memoryview) -> int:
        """Send what fits now; returns how many bytes that was, 0 when nothing does."""

    def try_receive(self, most: int = READ_SIZE) -> bytes | None:
        """What has arrived, about `most` bytes; `b""` at the end, None when nothing is there yet."""

    @property
    def send(self) -> Callable[[bytes | memoryview], int]:
        """`try_send`, which may raise `BlockingIOError` where that returns 0: of a socket there is no cheaper one."""

    @property
    def recv(self) -> Callable[[int], bytes | None]:
        """`try_receive`, which may raise `BlockingIOError` where that returns None."""

    def wait_readable(self) -> Awaitable[None]:
        """Until `try_receive` has something to say."""

    def wait_writable(self) -> Awaitable[None]:
        """Until `try_send` takes something."""

    def send_eof(self) -> None:
        """Nothing more will be sent; receiving goes on."""

    def close(self) -> None:
        """Close. Tasks that wait get `trio.ClosedResourceError`. Idempotent."""


class Patient(ABC):
    """A transport that never raises `BlockingIOError`."""

    __slots__ = ()

    @abstractmethod
    def try_send(self, data: bytes | memoryview) -> int:
        """As of `Transport`."""

    @abstractmethod
    def try_receive(self, most: int = READ_SIZE) -> bytes | None:
        """As of `Transport`."""

    @property
    def send(self) -> Callable[[bytes | memoryview], int]:
        """`try_send`."""
        return self.try_send

    @property
    def recv(self) -> Callable[[int], bytes | None]:
        """`try_receive`."""
        return self.try_receive


class SocketTransport:
    """A connected stream socket."""

    __slots__ = ("_socket", "recv", "send", "wait_readable")

    unsent = False
    arrived = 0

    def __init__(self, connected: socket.socket) -> None:
        """Takes over the socket: non-blocking, no delay for small writes, keepalive."""
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                option = getattr(socket, name, None)
                if option is not None:
                    connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self._socket = connected
        self.recv = connected.recv
        self.send = connected.send
        self.wait_readable = partial(trio.lowlevel.wait_readable, connected.fileno())
        """Until the socket is readable. Trio's own awaitable: a coroutine around it would be resumed with each read."""

    def try_send(self, data: bytes | memoryview) -> int:
        """Send what the socket's buffer takes."""
        try:
            return self.send(data)
        except BlockingIOError:
            return 0

    def try_receive(self, most: int = READ_SIZE) -> bytes | None:
        """Take what the socket's buffer has."""
        try:
            return self.recv(most)
        except BlockingIOError:
            return None

    def wait_writable(self) -> Awaitable[None]:
        """Until the socket is writable."""
        return trio.lowlevel.wait_writable(self._socket)  # noqa: ASYNC105 - for the caller to await

    def send_eof(self) -> None:
        """Shut down the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket and wake whoever waits for it."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self.wait_readable = partial(trio.lowlevel.wait_readable, self._socket)  # its number is another's soon


class _Pipe:
    """One direction of a memory connection: at most `capacity` bytes are on their way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray()
        self.ended = False
        self.broken = False
        self.changed = trio.lowlevel.ParkingLot()

    async def wait(self, condition: Callable[[], bool]) -> None:
        await trio.lowlevel.checkpoint()
        while not condition():
            await self.changed.park()


class MemoryTransport(Patient):
    """One end of a connection in memory; `memory_pair` makes both."""

    unsent = False
    arrived = 0

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    def try_send(self, data: bytes | memoryview) -> int:
        """Send what the pipe takes. `BrokenPipeError` when the peer has closed."""
        pipe = self._outgoing
        if pipe.broken or self._closed:
            raise BrokenPipeError("the peer has closed the connection")
        taken = data[: max(pipe.capacity - len(pipe.data), 0)]
        pipe.data += taken
        if taken:
            pipe.changed.unpark_all()
        return len(taken)

    def try_receive(self, most: int = READ_SIZE) -> bytes | None:
        """Take what has arrived. `ConnectionResetError` when the peer has broken the connection."""
        pipe = self._incoming
        if pipe.data:
            data = bytes(pipe.data[:most])
            del pipe.data[:most]
            pipe.changed.unpark_all()
            return data
        if pipe.broken:
            raise ConnectionResetError("the peer has reset the connection")
        return b"" if pipe.ended else None

    async def wait_readable(self) -> None:
        """Until something has arrived, or the end."""
        pipe = self._incoming
        await pipe.wait(lambda: bool(pipe.data) or pipe.ended or pipe.broken or self._closed)
        self._check()

    async def wait_writable(self) -> None:
        """Until the pipe has room."""
        pipe = self._outgoing
        await pipe.wait(lambda: len(pipe.data) < pipe.capacity or pipe.broken or self._closed)
        self._check()

    def send_eof(self) -> None:
        """The peer reads the end after what is on its way."""
        self._outgoing.ended = True
        self._outgoing.changed.unpark_all()

    def reset(self) -> None:
        """Break the connection: the peer gets `OSError` from every call."""
        for pipe in (self._incoming, self._outgoing):
            pipe.broken = True
            pipe.changed.unpark_all()

    def close(self) -> None:
        """The peer reads the end after what is on its way, and cannot send any more."""
        self._closed = True
        self._outgoing.ended = True
        self._incoming.broken = True
        for pipe in (self._incoming, self._outgoing):
            pipe.changed.unpark_all()

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end was closed")


def memory_pair(capacity: int = 1 << 20) -> tuple[MemoryTransport, MemoryTransport]:
    """Two ends of a connection in memory; each direction holds at most `capacity` bytes, like a socket's buffer."""
    there, back = _Pipe(capacity), _Pipe(capacity)
    return MemoryTransport(back, there), MemoryTransport(there, back)
