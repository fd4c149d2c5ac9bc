"""TLS above a transport, with a synchronous send: an `ssl.SSLObject` between two memory BIOs (RFC 8446, RFC 5246).

`handshake` comes first. After it the transport behaves like the one below, with three rules:

- Plaintext is taken only while less than `limits.MAX_TLS_UNSENT` of ciphertext is unsent, in records of
  `limits.TLS_RECORD`, so a peer that does not read makes us keep no more than that. What was taken and is not sent yet
  shows in `unsent`, and whoever writes waits and calls `try_send` again, if need be with nothing.
- A read takes everything that has arrived out of the records, so that nothing readable stays behind while somebody
  waits for the socket; and what reading produces (alerts, key updates) is sent.
- An end without close_notify is a reset, because anybody on the way could have cut the connection there (RFC 8446
  section 6.1).
"""

import ssl
from collections.abc import Sequence

import trio

from cronoq._runtime.transport import Patient, Transport
from cronoq.errors import StartError
from cronoq_sansio.limits import MAX_CONFIG_FILE, MAX_TLS_UNSENT, READ_SIZE, TLS_RECORD
from cronoq_sansio.settings import TlsSettings

GRPC_PROTOCOLS = ("h2",)
HTTP_PROTOCOLS = ("h2", "http/1.1")
"""What ALPN offers on each listener (server.md section 6)."""


class TlsTransport(Patient):
    """The server's end of one TLS connection, above the transport that carries it."""

    __slots__ = ("_arrived", "_below", "_ended", "_incoming", "_left", "_object", "_outgoing", "arrived")

    def __init__(self, below: Transport, context: ssl.SSLContext) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._left: memoryview | bytes = b""
        """Ciphertext that the transport below did not take; goes before what is in `_outgoing`."""
        self.arrived = 0
        """Ciphertext of the last read that has brought no plaintext."""
        self._arrived = False
        """Bytes after the handshake may have come with it: look before waiting."""
        self._ended = False
        """Our close_notify is out: nothing that still comes is looked at."""

    async def handshake(self) -> None:
        """Agree with the peer. Raises `OSError` when that fails or the connection ends; takes as long as it takes.

        Our last words may be `unsent` still.
        """
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush_all()
                await self._below.wait_readable()
                data = self._below.try_receive()
                if data:
                    self._incoming.write(data)
                elif data is not None:
                    raise ConnectionResetError("the peer left during the TLS handshake") from None
            except ssl.SSLError:
                self._flush_quietly()  # the alert tells the peer what was wrong
                raise
            else:
                break
        self._arrived = True
        self._flush()

    @property
    def unsent(self) -> bool:
        """Ciphertext waits until the transport below takes it."""
        return bool(self._left) or self._outgoing.pending > 0

    def try_send(self, data: bytes | memoryview) -> int:
        """Encrypt and send what fits now; returns how many bytes of plaintext were taken."""
        self._flush()
        view, taken = memoryview(data), 0
        while taken < len(view) and self._backlog() < MAX_TLS_UNSENT:
            try:
                taken += self._object.write(view[taken : taken + TLS_RECORD])
            except ssl.SSLWantReadError:
                break  # a handshake message of the peer must be read first
            if self._backlog() >= MAX_TLS_UNSENT:
                self._flush()
        self._flush()
        return taken

    def try_receive(self, most: int = READ_SIZE) -> bytes | None:
        """All plaintext of one read below; `b""` after close_notify. `ConnectionResetError` at any other end."""
        self._arrived = False
        data = self._below.try_receive(most)
        if self._ended:
            return data
        if data:
            self._incoming.write(data)
        elif data is not None:
            self._incoming.write_eof()
        parts: list[bytes] = []
        try:
            while part := self._object.read(TLS_RECORD):
                parts.append(part)
        except ssl.SSLWantReadError:
            self._flush()
            self.arrived = 0 if parts or not data else len(data)
            return b"".join(parts) or None
        except ssl.SSLEOFError:
            if not parts:
                raise ConnectionResetError("the peer ended the connection without close_notify") from None
        except ssl.SSLError:
            self._flush_quietly()
            raise
        self._arrived = True  # the end, which the next call tells
        return b"".join(parts)

    async def wait_readable(self) -> None:
        """Until `try_receive` has something to say."""
        if self._arrived:
            await trio.lowlevel.checkpoint()
        else:
            await self._below.wait_readable()

    async def wait_writable(self) -> None:
        """Until `try_send` takes something, or sends what it took before."""
        await self._below.wait_writable()

    def send_eof(self) -> None:
        """Close_notify, and the end of the connection's sending side. What is `unsent` then is lost."""
        self._ended = True
        try:
            self._object.unwrap()
        except ssl.SSLError:
            pass  # it waits for the peer's close_notify; ours is out
        self._flush()
        if not self.unsent:
            self._below.send_eof()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._below.close()

    def _backlog(self) -> int:
        return len(self._left) + self._outgoing.pending

    def _flush(self) -> None:
        """Send ciphertext as far as the transport below takes it."""
        while True:
            if not self._left:
                if not self._outgoing.pending:
                    return
                self._left = memoryview(self._outgoing.read())
            sent = self._below.try_send(self._left)
            if sent < len(self._left):
                self._left = self._left[sent:]
                return
            self._left = b""

    def _flush_quietly(self) -> None:
        try:
            self._flush()
        except OSError:
            pass  # the connection is lost anyway

    async def _flush_all(self) -> None:
        self._flush()
        while self.unsent:
            await self._below.wait_writable()
            self._flush()


class _Encrypted(Exception):
    """OpenSSL asked for a passphrase."""


def server_context(settings: TlsSettings, protocols: Sequence[str]) -> ssl.SSLContext:
    """A context with the certificate of the settings; ALPN offers `protocols`.

    Raises `StartError`, one sentence that names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION  # RFC 9113 section 9.2.1
    context.set_alpn_protocols(list(protocols))
    cert, key = settings.cert, settings.key
    _require(cert, "server.tls.cert", "CERTIFICATE-----")
    _require(key, "server.tls.key", "PRIVATE KEY-----")
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except _Encrypted:
        raise StartError(f"server.tls.key: {key} is encrypted; the server needs it without a passphrase") from None
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            raise StartError(f"server.tls.key: {key} is not the key of the certificate in {cert}") from error
        reason = error.reason or "damaged"
        of_cert = reason.startswith(("EE_", "CA_")) or _is_broken(cert)  # a weak key or digest of the certificate
        name, path = ("cert", cert) if of_cert else ("key", key)
        raise StartError(f"server.tls.{name}: {path} cannot be used: {reason.replace('_', ' ').lower()}") from error
    except OSError as error:
        raise StartError(f"server.tls: {cert} and {key} cannot be read: {error.strerror or error}") from error
    return context


def _require(path: str, key: str, mark: str) -> None:
    """The file can be read and has a PEM block of that kind."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_CONFIG_FILE)
    except OSError as error:
        raise StartError(f"{key}: {path} cannot be read: {error.strerror or error}") from error
    if mark.encode() not in content:
        what = mark.rstrip("-").lower()
        raise StartError(f"{key}: {path} holds no {what} in PEM form")


def _no_passphrase() -> str:
    raise _Encrypted


def _is_broken(cert: str) -> bool:
    """Whether the certificate itself cannot be read, as opposed to the key beside it."""
    try:
        with open(cert, encoding="ascii", errors="replace") as file:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=file.read())
    except ssl.SSLError:
        return True
    return False
