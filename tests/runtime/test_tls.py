"""TLS on memory transports: bytes arrive whole, a peer that does not read is bounded, ends are told apart."""

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from cronoq._runtime.tls import HTTP_PROTOCOLS, TlsTransport, server_context
from cronoq._runtime.transport import MemoryTransport, Transport, memory_pair
from cronoq.errors import StartError
from cronoq_sansio.limits import MAX_TLS_UNSENT, TLS_RECORD
from cronoq_sansio.settings import TlsSettings
from tests.runtime import certificates
from tests.runtime.tls_client import Client, read, write


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    return certificates.server_side(tmp_path)


class Line:
    """Both ends of a connection after the handshake, and the bytes on their way."""

    def __init__(self, context: ssl.SSLContext, capacity: int = 1 << 20, client: ssl.SSLContext | None = None) -> None:
        self.ours, self.theirs = memory_pair(capacity)
        self.server = TlsTransport(self.ours, context)
        self.client = Client(self.theirs, client or certificates.client_side())

    async def shake(self) -> "Line":
        """Tickets of the server may be unsent afterwards, where the pipe is too narrow for them."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.server.handshake)
            await self.client.handshake()
            await write(self.client, b"")
        return self


async def test_bytes_travel_both_ways_and_the_protocol_is_agreed(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    assert line.server._object.selected_alpn_protocol() == "h2"
    assert line.server.try_send(b"hello") == 5 and not line.server.unsent
    assert await read(line.client, 5) == b"hello"
    await write(line.client, b"x" * 100_000)
    assert await read(line.server, 100_000) == b"x" * 100_000
    assert line.server.try_receive() is None


@pytest.mark.parametrize("capacity", [1, 7, 1_000, 20_000, 300_000])
async def test_any_capacity_below_carries_everything_in_order(context: ssl.SSLContext, capacity: int) -> None:
    line = await Line(context, capacity).shake()
    size = min(200 * capacity, 1_000_000)
    there, back = bytes(range(251)) * (size // 251 + 1), bytes(range(241)) * (size // 241 + 1)
    got: dict[str, bytes] = {}

    async def take(name: str, transport: Transport, size: int) -> None:
        got[name] = await read(transport, size)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, line.server, back)
            nursery.start_soon(write, line.client, there)
            nursery.start_soon(take, "there", line.server, len(there))
            nursery.start_soon(take, "back", line.client, len(back))
    assert got == {"there": there, "back": back}


async def test_a_peer_that_does_not_read_is_bounded(context: ssl.SSLContext) -> None:
    line = await Line(context, 1_000).shake()
    data = memoryview(bytes(10 << 20))
    taken = line.server.try_send(data)
    assert 0 < taken <= MAX_TLS_UNSENT + TLS_RECORD + 1_000
    assert line.server.unsent and line.server._backlog() <= MAX_TLS_UNSENT + TLS_RECORD + 1_000
    assert line.server.try_send(data[taken:]) == 0
    assert await read_while_flushing(line, taken) == bytes(taken)
    assert not line.server.unsent and line.server.try_send(b"more") == 4


async def read_while_flushing(line: Line, size: int) -> bytes:
    """Read at the client while the server does nothing but send what it has taken."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, line.server, b"")
        return await read(line.client, size)


async def test_what_came_with_the_end_of_the_handshake_is_seen_without_waiting(context: ssl.SSLContext) -> None:
    line = Line(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.client.handshake)
        # The client's last flight and its first data are one read of the server.
        with pytest.raises(ssl.SSLWantReadError):
            line.server._object.do_handshake()
        await line.ours.wait_readable()
        line.server._incoming.write(line.ours.try_receive() or b"")
        with pytest.raises(ssl.SSLWantReadError):
            line.server._object.do_handshake()
        line.server._flush()
    line.client.try_send(b"early")
    await line.server.handshake()
    with trio.fail_after(5):
        assert await read(line.server, 5) == b"early"


async def test_a_closing_peer_is_the_end_and_data_before_it_counts(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    line.client.try_send(b"last")
    line.client.send_eof()
    assert await read(line.server, 4) == b"last"
    await line.server.wait_readable()
    assert line.server.try_receive() == b""


async def test_a_close_notify_is_the_end_although_the_connection_stays_open(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    line.client._object.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        line.client._object.unwrap()
    line.client._flush()
    with trio.fail_after(5):
        assert await read(line.server, 5) == b"last"


async def test_what_reading_produces_is_sent(context: ssl.SSLContext) -> None:
    """A key update, for example. This client cannot ask for one, so the answer is put where it would be."""
    line = await Line(context).shake()
    await read_all_now(line.theirs)
    line.server._outgoing.write(b"an answer of TLS")
    line.client.try_send(b"x")
    assert line.server.try_receive() == b"x"
    assert await read_all_now(line.theirs) == b"an answer of TLS"


async def read_all_now(below: MemoryTransport) -> bytes:
    """What lies in the pipe."""
    await trio.testing.wait_all_tasks_blocked()
    return below.try_receive() or b""


async def test_an_end_without_close_notify_is_a_reset(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    line.client.try_send(b"last")
    line.theirs.send_eof()
    assert await read(line.server, 4) == b"last"
    await line.server.wait_readable()
    with pytest.raises(ConnectionResetError, match="without close_notify"):
        line.server.try_receive()


async def test_our_end_is_a_close_notify_and_what_comes_after_is_thrown_away(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    line.server.try_send(b"bye")
    line.server.send_eof()
    assert await read(line.client, 9) == b"bye"
    line.theirs.try_send(b"not even TLS")
    assert line.server.try_receive() == b"not even TLS", "unread bytes would reset the connection"
    line.theirs.send_eof()
    assert line.server.try_receive() == b""


async def test_a_forged_record_ends_the_connection_with_an_alert(context: ssl.SSLContext) -> None:
    line = await Line(context).shake()
    line.theirs.try_send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(OSError):
        line.server.try_receive()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        line.client.try_receive()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(100), b"\xff" * 5]
)
async def test_a_plain_client_fails_in_the_handshake(context: ssl.SSLContext, said: bytes) -> None:
    ours, theirs = memory_pair()
    theirs.try_send(said)
    with pytest.raises(OSError):
        await TlsTransport(ours, context).handshake()


async def test_a_client_that_leaves_during_the_handshake(context: ssl.SSLContext) -> None:
    ours, theirs = memory_pair()
    theirs.try_send(b"\x16\x03\x01")
    theirs.send_eof()
    with pytest.raises(ConnectionResetError, match="handshake"):
        await TlsTransport(ours, context).handshake()


async def test_a_client_that_does_not_trust_us_ends_it(context: ssl.SSLContext) -> None:
    line = Line(context, client=ssl.create_default_context())
    errors: list[BaseException] = []

    async def shake(transport: TlsTransport, below: MemoryTransport) -> None:
        try:
            await transport.handshake()
            transport.try_receive()
        except OSError as error:
            errors.append(error)
            below.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake, line.client, line.theirs)
        nursery.start_soon(shake, line.server, line.ours)
    assert errors


def test_versions_and_protocols(tmp_path: Path) -> None:
    context = server_context(certificates.write(tmp_path), HTTP_PROTOCOLS)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    client = certificates.client_side()
    client.minimum_version = client.maximum_version = version
    line = await Line(context, client=client).shake()
    await write(line.client, b"x")
    assert await read(line.server, 1) == b"x"
    assert line.server._object.version() == version.name.replace("_", ".")


async def test_without_a_common_protocol_the_first_bytes_decide(context: ssl.SSLContext) -> None:
    line = await Line(context, client=certificates.client_side("http/1.1")).shake()
    assert line.server._object.selected_alpn_protocol() is None


# --- files


def damage(path: str, letter: bytes = b"*") -> None:
    """Other letters in the middle."""
    text = Path(path).read_bytes()
    middle = len(text) // 2
    Path(path).write_bytes(text[: middle - 40] + letter * 40 + text[middle:])


def encrypt(path: str) -> None:
    """What OpenSSL takes for a key under a passphrase (RFC 1421 section 4.6)."""
    head, _, rest = Path(path).read_text().partition("\n")
    lines = (head, "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF", "", rest)
    Path(path).write_text("\n".join(lines))


def spoil(kind: str, files: TlsSettings) -> None:
    cert, key = Path(files.cert), Path(files.key)
    if kind == "no cert":
        cert.unlink()
    elif kind == "no key":
        key.unlink()
    elif kind == "empty cert":
        cert.write_bytes(b"")
    elif kind == "key is text":
        key.write_text("my key")
    elif kind == "swapped":
        first = cert.read_bytes()
        cert.write_bytes(key.read_bytes())
        key.write_bytes(first)
    elif kind == "folder":
        cert.unlink()
        cert.mkdir()
    elif kind == "another key":
        key.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
    elif kind == "encrypted":
        encrypt(files.key)
    elif kind == "damaged public key":
        damage(files.cert, b"A")
    else:
        damage(files.cert if kind == "damaged cert" else files.key)


FILES = {
    "no cert": "server.tls.cert: CERT cannot be read: No such file or directory",
    "no key": "server.tls.key: KEY cannot be read: No such file or directory",
    "empty cert": "server.tls.cert: CERT holds no certificate in PEM form",
    "key is text": "server.tls.key: KEY holds no private key in PEM form",
    "swapped": "server.tls.cert: CERT holds no certificate in PEM form",
    "folder": "server.tls.cert: CERT cannot be read: Is a directory",
    "another key": "server.tls.key: KEY is not the key of the certificate in CERT",
    "encrypted": "server.tls.key: KEY is encrypted; the server needs it without a passphrase",
    "damaged cert": "server.tls.cert: CERT cannot be used: ",
    "damaged public key": "server.tls.cert: CERT cannot be used: ",
    "damaged key": "server.tls.key: KEY cannot be used: ",
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, kind: str) -> None:
    files = certificates.write(tmp_path)
    spoil(kind, files)
    with pytest.raises(StartError) as caught:
        server_context(files, HTTP_PROTOCOLS)
    text = str(caught.value).replace(files.cert, "CERT").replace(files.key, "KEY")
    assert text.startswith(FILES[kind]) and "\n" not in text
    assert text == FILES[kind] or kind.startswith("damaged")
