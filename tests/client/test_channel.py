"""Channels: whose loop they belong to, what happens to calls when connections come and go, streams, cancellation."""

import asyncio
import gc
import threading
import warnings

import anyio
import pytest

from cronoq._client.channel import Channel
from cronoq._client.methods import CANCEL, GET, WATCH, WORK
from cronoq.client import Client, ClientError
from cronoq_sansio import limits
from cronoq_sansio.wire import pb
from tests.acceptance.server import Server, environment, free_port
from tests.client.byhand import Asked, HandServer, listening
from tests.client.conftest import Run
from tests.client.foreign import ForeignServer
from tests.wire import raw
from tests.wire.client_peer import OK_HEADERS, data, headers, message, trailers

NUMBER = (7).to_bytes(4, "big")


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + why)


async def answer(server: HandServer, asked: Asked) -> None:
    await server.answer(asked, pb.CancelResponse(cancelled=True).SerializeToString())


# --- loops and ends


def test_nothing_happens_before_the_first_call() -> None:
    client = Client("localhost:1")
    assert client.target == "localhost:1"
    del client
    gc.collect()


def test_after_the_block_a_client_is_closed(run: Run, server: Server) -> None:
    async def main() -> None:
        client = Client(server.address)
        async with client as entered:
            assert entered is client
            assert await client.cancel((await client.submit()).id)
        for use in (client.get(1), client.__aenter__(), client.submit()):
            with pytest.raises(RuntimeError, match="closed; make a new one"):
                await use
        await client.close()

    run(main)


def test_a_client_cannot_be_entered_twice(run: Run) -> None:
    async def main() -> None:
        async with Client("localhost:1") as client:
            with pytest.raises(RuntimeError, match="in use"):
                await client.__aenter__()

    run(main)


def test_closing_inside_the_block_is_allowed(run: Run, server: Server) -> None:
    async def main() -> None:
        async with Client(server.address) as client:
            await client.submit()
            await client.close()
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await client.submit()

    run(main)


def test_errors_in_the_block_come_out_as_they_are(run: Run, server: Server) -> None:
    async def main() -> None:
        with pytest.raises(ClientError, match="not_found"):
            async with Client(server.address) as client:
                await client.get(1)
        with pytest.raises(KeyError):
            async with Client(server.address):
                raise KeyError

    run(main)


def test_closing_ends_what_is_waiting(run: Run, server: Server) -> None:
    async def main() -> None:
        caught: list[str] = []

        async def wait(client: Client) -> None:
            try:
                await client.wait((await client.submit()).id)
            except ClientError as error:
                caught.append(str(error))

        async with Client(server.address) as client, anyio.create_task_group() as tasks:
            await client.submit()
            for _ in range(3):
                tasks.start_soon(wait, client)
            await anyio.wait_all_tasks_blocked()
            await client.close()
        assert caught == ["cancelled: the client was closed"] * 3

    run(main)


def test_trio_needs_the_block(server: Server) -> None:
    async def main() -> None:
        client = Client(server.address)
        with pytest.raises(RuntimeError, match="async with Client"):
            await client.submit()

    anyio.run(main, backend="trio")


def test_asyncio_scripts_need_no_block_and_may_run_several_times(server: Server) -> None:
    client = Client(server.address)

    async def script() -> int:
        return (await client.submit(key="again")).id

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert asyncio.run(script()) == asyncio.run(script())
        asyncio.run(client.close())
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(script())


def test_a_client_that_nobody_closes_ends_with_its_loop(server: Server) -> None:
    async def script() -> None:
        await Client(server.address).submit()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(script(), debug=False)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_second_loop_at_the_same_time_is_an_error(server: Server) -> None:
    client = Client(server.address)
    failures: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(client.submit())
        except RuntimeError as error:
            failures.append(error)

    async def main() -> None:
        await client.submit()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        await client.submit()
        await client.close()

    asyncio.run(main())
    assert len(failures) == 1 and "another event loop" in str(failures[0])


# --- connections come and go


def test_a_thousand_calls_at_once_on_one_connection(run: Run, server: Server) -> None:
    async def main() -> None:
        ids: set[int] = set()

        async def submit(client: Client, number: int) -> None:
            ids.add((await client.submit(b"x" * number, pool="other")).id)

        async with Client(server.address, timeout=60) as client:
            async with anyio.create_task_group() as tasks:
                for number in range(1_000):
                    tasks.start_soon(submit, client, number)
            assert len(client._channel._links) == 1
        assert len(ids) == 1_000

    run(main)


def test_a_call_that_nobody_looked_at_moves_to_a_fresh_connection(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        if server.connections == 1:
            await server.say(goaway(0))
        elif server.connections == 2:
            await server.say(raw.frame(raw.RST_STREAM, 0, asked.stream_id, NUMBER))
        else:
            await answer(server, asked)

    async def main() -> None:
        hand = HandServer(decide)
        async with listening(hand) as address, Client(address) as client:
            with pytest.raises(ClientError, match="before the server looked") as caught:
                await client.cancel(1)
            assert caught.value.code == "unavailable" and caught.value.unprocessed
            assert hand.connections == 2, "a refused stream tells nothing against its connection"

    async def easier() -> None:
        async def once(server: HandServer, asked: Asked) -> None:
            if server.connections == 1:
                await server.say(goaway(0))
            else:
                await answer(server, asked)

        hand = HandServer(once)
        async with listening(hand) as address, Client(address) as client:
            assert await client.cancel(1) is True
            assert hand.connections == 2

    run(main)
    run(easier)


def test_calls_of_a_connection_that_says_goodbye_end_there_and_new_ones_go_elsewhere(run: Run) -> None:
    held: list[tuple[HandServer, Asked]] = []

    async def decide(server: HandServer, asked: Asked) -> None:
        if server.connections == 1:
            await server.say(goaway(asked.stream_id))
            held.append((server, asked))
            seen.set()
            await release.wait()
        await answer(server, asked)

    async def main() -> None:
        nonlocal seen, release
        seen, release = anyio.Event(), anyio.Event()
        first, second = HandServer(decide), HandServer(decide)
        second.connections = 1
        order = iter([first, second])

        async def choose(stream: object) -> None:
            await next(order)(stream)  # type: ignore[arg-type]

        async with listening(choose) as address, Client(address) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.cancel, 1)
            await seen.wait()
            while client._channel._link is not None and client._channel._link.usable:
                await anyio.lowlevel.checkpoint()
            assert await client.cancel(2) is True
            assert len(second.asked) == 1
            release.set()

    seen = release = anyio.Event()
    run(main)


def test_a_server_that_restarts_under_the_client(run: Run, tmp_path) -> None:
    port = free_port()
    server = Server(tmp_path, "sqlite", port=port, environ=environment())
    server.start()
    try:

        async def main() -> None:
            async with Client(server.address) as client:
                task_id = (await client.submit("kept", key="kept")).id
                assert await anyio.to_thread.run_sync(server.stop) == 0
                with pytest.raises(ClientError) as caught:
                    await client.get(task_id)
                assert caught.value.code == "unavailable"
                await anyio.to_thread.run_sync(server.start)
                assert (await client.get("kept")).id == task_id
                server.kill()
                await anyio.to_thread.run_sync(server.start)
                # The old connection may not have been seen to end yet.
                try:
                    info = await client.get(task_id)
                except ClientError as error:
                    assert error.code == "unavailable"
                    info = await client.get(task_id)
                assert info.key == "kept"

        run(main)
    finally:
        server.kill()


def test_fewer_pings_when_the_server_asks_for_it(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        await server.say(goaway(0, 11, b"too_many_pings"))

    async def main() -> None:
        async with listening(HandServer(decide)) as address, Client(address) as client:
            with pytest.raises(ClientError, match="3 connections in a row"):
                await client.cancel(1)
            assert client._channel._settings.ping_interval == 8 * limits.CLIENT_PING_INTERVAL

    run(main)


# --- sizes


def test_an_answer_above_the_limit(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        await server.answer(asked, bytes(5_001))

    async def main() -> None:
        options = [("grpc.max_receive_message_length", 5_000), ("grpc.max_send_message_length", 100)]
        async with listening(HandServer(decide)) as address, Client(address, options=options) as client:
            with pytest.raises(ClientError) as caught:
                await client.get(1)
            assert caught.value.code == "resource_exhausted"
            assert "5001 bytes is above the limit of 5000" in caught.value.message
            with pytest.raises(ClientError, match=r"above the limit of 100 \(grpc\.max_send_message_length"):
                await client.submit(bytes(101))

    run(main)


def test_a_payload_above_the_limit_of_the_server(run: Run, server: Server) -> None:
    async def main() -> None:
        async with Client(server.address) as client:
            await client.submit(bytes(260_000), pool="other")
            with pytest.raises(ClientError, match=r"resource_exhausted: .*limits\.max_message_bytes"):
                await client.submit(bytes(3_000_000))
            await client.submit(pool="other")

    run(main)


def test_an_answer_that_is_no_message_of_the_method(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        await server.answer(asked, b"\xff\xff")

    async def main() -> None:
        async with listening(HandServer(decide)) as address, Client(address) as client:
            with pytest.raises(ClientError, match=r"internal: Tasks\.Get: the server's answer is not a valid message"):
                await client.get(1)

    run(main)


# --- cancellation and time


def test_cancelling_one_call_leaves_the_others(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        if len(server.asked) == 2:
            started.set()

    async def main() -> None:
        nonlocal started
        started = anyio.Event()
        hand = HandServer(decide)
        async with listening(hand) as address, Channel(address) as channel:
            answers: list[bool] = []

            async def other() -> None:
                reply = await channel.unary(CANCEL, pb.CancelRequest())
                answers.append(reply.cancelled)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                with anyio.CancelScope() as scope:

                    async def cancel() -> None:
                        await started.wait()
                        scope.cancel()

                    tasks.start_soon(cancel)
                    await channel.unary(GET, pb.GetRequest())
                assert scope.cancelled_caught
                await hand.reset.wait()
                (left,) = [asked for asked in hand.asked if asked.stream_id not in hand.resets]
                await answer(hand, left)
            assert answers == [True]

    started = anyio.Event()
    run(main)


def test_cancelling_while_connecting_leaves_others_who_wait(run: Run) -> None:
    async def main() -> None:
        release = anyio.Event()

        async def slow(stream: object) -> None:
            await release.wait()
            await HandServer(answer)(stream)  # type: ignore[arg-type]

        async with listening(slow) as address, Channel(address) as channel, anyio.create_task_group() as tasks:
            done: list[bool] = []

            async def other() -> None:
                done.append((await channel.unary(CANCEL, pb.CancelRequest())).cancelled)

            with anyio.CancelScope() as scope:
                tasks.start_soon(other)

                async def cancel() -> None:
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
                    release.set()

                tasks.start_soon(cancel)
                await channel.unary(CANCEL, pb.CancelRequest())
            assert scope.cancelled_caught
        assert done == [True]

    run(main)


@pytest.mark.realtime
def test_a_deadline_is_kept_though_the_server_says_nothing(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        assert asked.fields[b"grpc-timeout"].endswith(b"u") and int(asked.fields[b"grpc-timeout"][:-1]) <= 200_000

    async def main() -> None:
        hand = HandServer(decide)
        async with listening(hand) as address, Client(address) as client:
            await client._channel._connected(None)
            began = anyio.current_time()
            with pytest.raises(TimeoutError, match="the deadline of the call passed") as caught:
                await client.get(1, timeout=0.2)
            assert 0.19 <= anyio.current_time() - began < 5
            assert isinstance(caught.value.__cause__, ClientError)
            assert caught.value.__cause__.code == "deadline_exceeded"
            await hand.reset.wait()

    run(main)


@pytest.mark.parametrize(
    ("timeout", "error"), [(True, TypeError), ("1", TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_timeouts_that_are_none(run: Run, server: Server, timeout: object, error: type[Exception]) -> None:
    async def main() -> None:
        async with Client(server.address) as client:
            with pytest.raises(error, match="timeout"):
                await client.get(1, timeout=timeout)  # type: ignore[arg-type]
            with pytest.raises(ClientError, match="not_found"):
                await client.get(1, timeout=float("inf"))

    run(main)


# --- streams


def test_a_stream_in_both_directions(run: Run, foreign: ForeignServer) -> None:
    async def main() -> None:
        async with Channel(foreign.address) as channel:
            register = pb.WorkerMessage(register=pb.Register(slots=3))
            async with channel.stream(WORK, register) as stream:
                assert (await stream.receive()).registered.slots == 3
                body = bytes(range(256)) * 1_000
                for lease in range(20):
                    await stream.send(pb.WorkerMessage(complete=pb.Complete(lease=lease, output=body)))
                for lease in range(20):
                    echoed = (await stream.receive()).lease
                    assert (echoed.lease, echoed.payload) == (lease, body)
                await stream.half_close()
                assert await stream.receive() is None and await stream.receive() is None
                await stream.send(register)  # of no consequence

    run(main)


def test_a_stream_without_a_first_message_is_entered_at_once(run: Run, foreign: ForeignServer) -> None:
    async def main() -> None:
        async with Channel(foreign.address) as channel, channel.stream(WORK) as stream:
            stream.send_nowait(pb.WorkerMessage(register=pb.Register(slots=1)))
            await stream.wait_headers()
            assert (await stream.receive()).registered.worker_id == 1

    run(main)


def test_a_sender_waits_for_a_server_that_does_not_read(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        raise AssertionError("the stream is never half-closed")

    async def main() -> None:
        async with (
            listening(HandServer(decide)) as address,
            Channel(address) as channel,
            channel.stream(WORK) as stream,
        ):
            sent = 0
            with anyio.move_on_after(0.3) as scope:
                while True:
                    await stream.send(pb.WorkerMessage(complete=pb.Complete(output=bytes(50_000))))
                    sent += 50_000
            assert scope.cancelled_caught
            assert limits.CLIENT_UNSENT <= sent < limits.CLIENT_UNSENT + 65_535 + 2 * 50_000

    run(main)


def test_a_reader_that_stops_holds_the_server_back(run: Run) -> None:
    """What nobody takes is bounded by the window; taking it lets the rest come."""
    event = pb.StatusEvent(message="m" * 60_000)
    framed = message(event.SerializeToString())
    total = 60

    async def decide(server: HandServer, asked: Asked) -> None:
        await server.say(headers(asked.stream_id))
        room = limits.INITIAL_WINDOW
        sent = 0
        while room >= len(framed):
            for at in range(0, len(framed), 16_384):
                await server.say(data(asked.stream_id, framed[at : at + 16_384]))
            room -= len(framed)
            sent += 1
        first.append(sent)

    async def main() -> None:
        hand = HandServer(decide)
        async with listening(hand) as address, Channel(address) as channel:
            async with channel.stream(WATCH, pb.WatchRequest()) as stream:
                while not first:
                    await anyio.lowlevel.checkpoint()
                for _ in range(first[0]):
                    assert (await stream.receive()).message == "m" * 60_000
            await hand.reset.wait()

    first: list[int] = []
    run(main)
    assert 0 < first[0] < total


def test_leaving_a_stream_cancels_it(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=["hang"])

    async def main() -> None:
        async with Channel(foreign.address) as channel:
            async with channel.stream(WATCH, pb.WatchRequest()) as stream:
                assert ("x-subscribed", "yes") in stream.initial_metadata
            assert await anyio.to_thread.run_sync(foreign.watchers_gone.acquire, True, 10.0)
            with pytest.raises(ClientError, match="cancelled: the stream was closed"):
                await stream.receive()

    run(main)


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
