"""What answers there is something else, or nothing: a `ClientError` in time that names target and remedy."""

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
import trustme
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from cronoq._client.channel import Channel
from cronoq._client.methods import GET
from cronoq.client import Client, ClientError, PemPaths
from cronoq_sansio.wire import pb
from tests.client.byhand import Asked, HandServer, listening, saying
from tests.client.conftest import Run
from tests.wire import raw
from tests.wire.client_peer import OK_HEADERS, headers

STRANGERS = {
    "an HTTP/1.1 server": (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", stay=False), "HTTP/1.*server.grpc_addr"),
    "an HTTP/1.1 server that stays": (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "HTTP/1.*server.grpc_addr"),
    "a TLS port in clear": (saying(b"\x15\x03\x01\x00\x02\x02\x46", stay=False), "TLS.*https://"),
    "a mail server": (saying(b"220 mail.example.org ESMTP ready\r\n"), "does not speak HTTP/2.*check host and port"),
    "a few odd bytes": (saying(b"?", stay=False), "does not speak HTTP/2"),
    "somebody who hangs up": (saying(stay=False), "(closed the connection before it said anything|broke).*https://"),
    "garbage after settings": (saying(raw.settings(), b"\xff" * 30), "broke HTTP/2"),
}


@pytest.mark.parametrize(("handler", "pattern"), STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("kind", ["call", "watch"])
def test_strangers(run: Run, handler: object, pattern: str, kind: str) -> None:
    async def main() -> None:
        async with listening(handler) as address, Client(address, timeout=10) as client:  # type: ignore[arg-type]
            with pytest.raises(ClientError) as caught:
                if kind == "call":
                    await client.get(1)
                else:
                    async with client.watch():
                        pass
            assert caught.value.code == "unavailable"
            assert re.search(pattern, caught.value.message), caught.value.message
            assert address in caught.value.message

    run(main)


def test_a_closed_port(run: Run) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"

        async def main() -> None:
            async with Client(address) as client:
                for _ in range(2):
                    with pytest.raises(ClientError) as caught:
                        await client.get(1)
                    assert caught.value.code == "unavailable" and caught.value.unprocessed
                    assert caught.value.message == f"{address}: connection refused; is the server running there?"

        run(main)


def test_a_name_that_does_not_exist(run: Run) -> None:
    async def main() -> None:
        async with Client("nowhere.invalid:7070") as client:
            with pytest.raises(ClientError, match=r"nowhere\.invalid:7070: the host name cannot be resolved"):
                await client.get(1)

    run(main)


@pytest.mark.realtime
@pytest.mark.parametrize("whose", ["call", "connection"])
def test_silence(run: Run, whose: str) -> None:
    async def main() -> None:
        patience = 0.2 if whose == "connection" else 10
        async with listening(saying()) as address, Channel(address, connect_timeout=patience) as channel:
            with pytest.raises(ClientError, match=f"{address}: .*then use tls=True") as caught:
                await channel.unary(GET, pb.GetRequest(), timeout=0.2 if whose == "call" else 10)
            assert caught.value.code == "unavailable" and caught.value.unprocessed

    run(main)


@pytest.mark.realtime
def test_a_host_that_never_answers_the_greeting_of_tls(run: Run) -> None:
    async def main() -> None:
        async with listening(saying()) as address, Channel(address, tls=True, connect_timeout=0.2) as channel:
            with pytest.raises(ClientError, match=f"{address}: no connection within 0.2 s"):
                await channel.unary(GET, pb.GetRequest())

    run(main)


# --- TLS


def tls_listening(context: ssl.SSLContext) -> AbstractAsyncContextManager[str]:
    """A server behind TLS that knows no task."""

    async def decide(server: HandServer, asked: Asked) -> None:
        await server.say(headers(asked.stream_id, [*OK_HEADERS, (b"grpc-status", b"5")], end=True))

    async def handler(stream: ByteStream) -> None:
        try:
            secured = await TLSStream.wrap(stream, server_side=True, ssl_context=context, standard_compatible=False)
        except ssl.SSLError:
            return
        await HandServer(decide)(secured)

    return listening(handler)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ssl.SSLContext, PemPaths, str]]:
    """A server's context, credentials that trust it, and the path of a file that is no certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    root, junk = folder / "root.pem", folder / "junk.pem"
    authority.cert_pem.write_to_path(root)
    junk.write_text("no certificate\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "cronoq.test").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    yield context, PemPaths(ca=root), str(junk)


def test_a_clear_port_spoken_to_in_tls(run: Run) -> None:
    async def main() -> None:
        web = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", stay=False)
        async with listening(web) as address, Client(f"https://{address}") as client:
            with pytest.raises(ClientError, match=f"{address}: the server does not speak TLS there; leave out"):
                await client.get(1)

    run(main)


def test_a_certificate_that_is_not_trusted(run: Run, certificates: tuple[ssl.SSLContext, PemPaths, str]) -> None:
    context, _, _ = certificates

    async def main() -> None:
        async with tls_listening(context) as address, Client(address, tls=True) as client:
            with pytest.raises(ClientError, match=r"certificate is not accepted \(.*credentials=PemPaths"):
                await client.get(1)

    run(main)


def test_a_certificate_of_another_name(run: Run, certificates: tuple[ssl.SSLContext, PemPaths, str]) -> None:
    context, credentials, _ = certificates

    async def main() -> None:
        async with tls_listening(context) as address:
            wrong = [("grpc.ssl_target_name_override", "other.test")]
            async with Client(address, credentials=credentials, options=wrong) as client:
                with pytest.raises(ClientError, match=r"certificate is not accepted .*other\.test"):
                    await client.get(1)
            right = [("grpc.ssl_target_name_override", "cronoq.test")]
            async with Client(address, credentials=credentials, options=right) as client:
                with pytest.raises(ClientError, match="not_found"):
                    await client.get(1)

    run(main)


def test_tls_files_that_cannot_be_used(run: Run, certificates: tuple[ssl.SSLContext, PemPaths, str]) -> None:
    junk = certificates[2]

    async def main() -> None:
        for credentials in (
            PemPaths(ca="/does/not/exist.pem"),
            PemPaths(ca=junk),
            PemPaths(cert=junk, key=junk),
            PemPaths(key=junk),
        ):
            async with Client("localhost:1", credentials=credentials) as client:
                with pytest.raises(
                    ClientError, match="localhost:1: the TLS files of the client cannot be used"
                ) as caught:
                    await client.get(1)
                assert caught.value.code == "unavailable"

    run(main)


# --- the present one goes away


def test_a_server_that_dies_with_calls_open(run: Run) -> None:
    async def main() -> None:
        async def decide(server: HandServer, asked: Asked) -> None:
            await server.leave()

        async with listening(HandServer(decide)) as address, Client(address) as client:
            for _ in range(2):
                with pytest.raises(ClientError, match=r"closed the connection|broke") as caught:
                    await client.get(1)
                assert caught.value.code == "unavailable" and not caught.value.unprocessed

    run(main)


@pytest.mark.realtime
def test_a_peer_that_is_half_open_is_noticed_by_pings(run: Run) -> None:
    async def main() -> None:
        async def decide(server: HandServer, asked: Asked) -> None:
            """Say nothing, not even to pings: HandServer answers none."""

        options = [("grpc.keepalive_time_ms", 100), ("grpc.keepalive_timeout_ms", 100)]
        async with listening(HandServer(decide)) as address, Client(address, timeout=None, options=options) as client:
            with anyio.fail_after(10), pytest.raises(ClientError, match="does not answer any more"):
                await client.wait(1)

    run(main)
