"""What a client sends along and how it is set up: tokens, metadata, channel options, credentials."""

import warnings

import pytest

from cronoq._client.channel import Channel
from cronoq._client.methods import CANCEL
from cronoq.client import Client
from cronoq_sansio.wire import pb
from tests.acceptance.server import Server
from tests.client.byhand import Asked, HandServer, listening
from tests.client.conftest import Run
from tests.wire import raw
from tests.wire.client_peer import OK_HEADERS, data, headers, message, trailers

NUMBER = (7).to_bytes(4, "big")


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + why)


async def answer(server: HandServer, asked: Asked) -> None:
    await server.answer(asked, pb.CancelResponse(cancelled=True).SerializeToString())


# --- tokens and metadata


def test_tokens(run: Run) -> None:
    async def main() -> None:
        hand = HandServer(answer)
        async with listening(hand) as address:
            for token in ("secret", lambda: "fresh", "", None, lambda: None):
                async with Client(address, token=token) as client:
                    await client.cancel(1)
        found = [asked.fields.get(b"authorization") for asked in hand.asked]
        assert found == [b"Bearer secret", b"Bearer fresh", None, None, None]

    run(main)


def test_a_token_is_asked_for_at_each_call(run: Run) -> None:
    async def main() -> None:
        hand = HandServer(answer)
        names = iter(["one", "two"])
        async with listening(hand) as address, Client(address, token=lambda: next(names)) as client:
            await client.cancel(1)
            await client.cancel(1)
        assert [asked.fields[b"authorization"] for asked in hand.asked] == [b"Bearer one", b"Bearer two"]

    run(main)


@pytest.mark.parametrize("token", ["with\nnewline", "ünï", " space"])
def test_a_token_that_cannot_be_sent(run: Run, server: Server, token: str) -> None:
    async def main() -> None:
        async with Client(server.address, token=token) as client:
            with pytest.raises(ValueError, match="token"):
                await client.get(1)

    run(main)


@pytest.mark.parametrize(
    ("target", "warned"),
    [
        ("localhost:1", False),
        ("127.0.0.9:1", False),
        ("[::1]:1", False),
        ("http://10.0.0.1:1", True),
        ("example.test:1", True),
        ("https://example.test", False),
    ],
)
def test_a_token_in_clear_is_warned_of(target: str, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Client(target, token="secret")
        Client(target)
    assert [("in clear" in str(warning.message), warning.filename) for warning in caught] == [(True, __file__)] * warned


def test_metadata_of_a_call(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        await server.say(
            headers(asked.stream_id, [*OK_HEADERS, (b"x-early", b"1")]),
            data(asked.stream_id, message(b"")),
            trailers(asked.stream_id, 0, b"", (b"x-late", b"2")),
        )

    async def main() -> None:
        hand = HandServer(decide)
        async with listening(hand) as address, Channel(address) as channel:
            entries = (("x-text", "value"), ("x-bytes-bin", b"\0\xff"))
            _, metadata = await channel.unary_with_metadata(CANCEL, pb.CancelRequest(), metadata=entries)
            assert metadata == (("x-early", "1"), ("x-late", "2"))
            assert hand.asked[0].fields[b"x-bytes-bin"] == b"AP8"
            for bad in (("X-Upper", "v"), ("grpc-x", "v"), ("x", "é"), ("x-bin", "text"), ("te", "v")):
                with pytest.raises(ValueError, match="metadata"):
                    await channel.unary(CANCEL, pb.CancelRequest(), metadata=[bad])

    run(main)


# --- options and credentials


def test_options_that_have_no_effect_are_named() -> None:
    with pytest.warns(UserWarning, match=r"'grpc\.lb_policy_name' has no effect"):
        Client("localhost:1", options=[("grpc.lb_policy_name", "round_robin")])


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("grpc.max_receive_message_length", "1", TypeError),
        ("grpc.max_receive_message_length", 0, ValueError),
        ("grpc.max_send_message_length", True, TypeError),
        ("grpc.keepalive_time_ms", -5, ValueError),
        ("grpc.keepalive_timeout_ms", 1.5, TypeError),
        ("grpc.default_authority", 5, TypeError),
        ("grpc.default_authority", "a\nb", ValueError),
        ("grpc.ssl_target_name_override", "", ValueError),
    ],
)
def test_options_that_make_no_sense(option: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=option):
        Client("localhost:1", options=[(option, value)])


def test_the_authority_can_be_set(run: Run) -> None:
    async def main() -> None:
        hand = HandServer(answer)
        options = [("grpc.default_authority", "cronoq.test"), ("grpc.max_receive_message_length", -1)]
        async with listening(hand) as address, Client(address, options=options) as client:
            await client.cancel(1)
        assert hand.asked[0].fields[b":authority"] == b"cronoq.test"

    run(main)


def test_credentials_of_grpcio_are_of_no_use() -> None:
    import grpc

    with pytest.raises(TypeError, match=r"credentials: an ssl\.SSLContext or PemPaths.*not grpc\.ChannelCredentials"):
        Client("localhost:1", credentials=grpc.ssl_channel_credentials())  # type: ignore[arg-type]
