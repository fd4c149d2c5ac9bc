"""The client's end of a TLS connection on a memory transport."""

import ssl

from cronoq._runtime.tls import TlsTransport
from cronoq._runtime.transport import Transport


class Client(TlsTransport):
    """The other end: the same machine in the client's part."""

    __slots__ = ()

    def __init__(self, below: Transport, context: ssl.SSLContext) -> None:
        super().__init__(below, context=_ServerSide())
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")


class _ServerSide(ssl.SSLContext):
    """A context for the object that a `Client` replaces at once."""

    def __new__(cls) -> "_ServerSide":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)


async def read(transport: Transport, size: int) -> bytes:
    """Read until so many bytes have come; `b""` ends it early."""
    got = b""
    while len(got) < size:
        await transport.wait_readable()
        data = transport.try_receive()
        if data == b"":
            break
        got += data or b""
    return got


async def write(transport: Transport, data: bytes) -> None:
    while data or transport.unsent:
        data = data[transport.try_send(data) :]
        if data or transport.unsent:
            await transport.wait_writable()
