"""From a target to a byte stream that speaks HTTP/2, or to a `ClientError` that says what was met and what to do."""

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute, TLSStream

from cronoq._client.loops import running_trio
from cronoq._client.target import Target
from cronoq._client.trio_socket import TrioSocket
from cronoq.errors import ClientError
from cronoq_sansio.wire import http2_words as http2

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class PemPaths:
    """TLS credentials as files in PEM format.

    `ca` holds the roots to trust instead of the system's; `cert` (a chain) and `key` are the client's own.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


Credentials = ssl.SSLContext | PemPaths

#: What to do about a server that is something else; by the reason that the machine gives.
REMEDIES = {
    http2.SPEAKS_HTTP1: "give the address of the gRPC listener (server.grpc_addr), not that of the HTTP one or a proxy",
    http2.SPEAKS_TLS: "use TLS: https://… as the target, or tls=True",
    http2.NOT_HTTP2: "check host and port: is a cronoq server listening there?",
    http2.SILENT: "check host and port; a server behind TLS may wait for a handshake: then use tls=True",
}

#: A server behind TLS may leave a client that speaks in clear without a word.
MAYBE_TLS = "if the server speaks TLS, use it: https://… as the target, or tls=True"

#: Servers in this process and how to connect to them, by `host:port`; `cronoq.testing` fills it.
IN_PROCESS: dict[str, Callable[[], ByteStream]] = {}


def make_context(credentials: Credentials | None) -> ssl.SSLContext:
    """The TLS settings of a client, with ALPN `h2`. OSError, ssl.SSLError or ValueError when files cannot be used."""
    if isinstance(credentials, ssl.SSLContext):
        credentials.set_alpn_protocols(["h2"])
        return credentials
    paths = credentials or PemPaths()
    if paths.key is not None and paths.cert is None:
        raise ValueError("credentials: a key needs its cert")
    context = ssl.create_default_context(cafile=paths.ca)
    if paths.cert is not None:
        context.load_cert_chain(paths.cert, paths.key)
    context.set_alpn_protocols(["h2"])
    return context


class Wire(Protocol):
    """A stream of bytes; as anyio's `ByteStream`, without what nobody uses here."""

    async def receive(self, max_bytes: int = ..., /) -> bytes:
        """What is there, at least a byte. `anyio.EndOfStream` when the peer has ended, OSError when it broke."""

    async def send(self, item: bytes, /) -> None:
        """Returns when it is handed to the system. OSError when it broke."""

    async def aclose(self) -> None:
        """Idempotent."""


async def dial(target: Target, context: ssl.SSLContext | None, server_name: str | None) -> Wire:
    """Connect. `ClientError` `unavailable` when that fails."""
    inside = IN_PROCESS.get(target.authority)
    if inside is not None:
        return inside()
    trio = running_trio()
    if trio is None and context is None:
        from cronoq._client import asyncio_socket

        wire = await asyncio_socket.connect(target.host, target.port)
        if wire is not None:
            return wire
    try:
        stream = await anyio.connect_tcp(target.host, target.port)
    except OSError as error:
        raise unreachable(target, _describe(error), "is the server running there?") from error
    if context is None:
        return stream if trio is None else TrioSocket(trio, stream)
    try:
        secured = await TLSStream.wrap(
            stream, hostname=server_name or target.host, ssl_context=context, standard_compatible=False
        )
    except (ssl.SSLError, ssl.CertificateError) as error:
        await anyio.aclose_forcefully(stream)
        raise unreachable(target, *_explain_tls(error)) from error
    except (anyio.BrokenResourceError, anyio.EndOfStream, OSError) as error:
        await anyio.aclose_forcefully(stream)
        raise unreachable(
            target, "the server closed the connection during the TLS handshake", "does it speak TLS there at all?"
        ) from error
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise
    protocol = secured.extra(TLSAttribute.alpn_protocol)
    if protocol not in ("h2", None):
        await anyio.aclose_forcefully(secured)
        raise unreachable(target, f"the server chose {protocol!r} instead of HTTP/2", REMEDIES[http2.SPEAKS_HTTP1])
    return secured


def unreachable(target: Target, what: str, remedy: str = "") -> ClientError:
    """There is no connection: to whom, what was met, what to do."""
    text = f"{target.authority}: {what}; {remedy}" if remedy else f"{target.authority}: {what}"
    return ClientError("unavailable", text, unprocessed=True)


def _describe(error: OSError) -> str:
    """One sentence instead of the group of errors that several addresses of a host give."""
    cause: BaseException | None = error.__cause__ or error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, socket.gaierror):
        return f"the host name cannot be resolved ({cause.strerror})"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"cannot connect ({text})"


def _explain_tls(error: Exception) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not accepted ({error.verify_message})",
            "give its root with credentials=PemPaths(ca=…), or connect to the name it was issued for",
        )
    reason = getattr(error, "reason", None) or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "the server does not speak TLS there", "leave out tls=True, credentials and https://"
    return f"the TLS handshake failed ({reason})", "compare versions and certificates of both sides"
