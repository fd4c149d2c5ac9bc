"""What happens to calls when connections come and go, are too large, late, or cancelled."""

import anyio
import pytest
from pytest import MonkeyPatch

from cronoq._client import channel
from cronoq._client.channel import Channel
from cronoq._client.methods import CANCEL, GET
from cronoq.client import Client, ClientError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import pb
from tests.acceptance.server import Server, environment, free_port
from tests.client.byhand import Asked, HandServer, listening
from tests.client.conftest import Run
from tests.wire import raw

NUMBER = (7).to_bytes(4, "big")


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + why)


async def answer(server: HandServer, asked: Asked) -> None:
    await server.answer(asked, pb.CancelResponse(cancelled=True).SerializeToString())


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
    async def once(server: HandServer, asked: Asked) -> None:
        if server.connections == 1:
            await server.say(goaway(0))
        else:
            await answer(server, asked)

    async def main() -> None:
        hand = HandServer(once)
        async with listening(hand) as address, Client(address) as client:
            assert await client.cancel(1) is True
            assert hand.connections == 2

    run(main)


def refusing(times: int) -> HandServer:
    """It takes so many calls for too many, and serves on."""

    async def decide(server: HandServer, asked: Asked) -> None:
        if len(server.asked) <= times:
            await server.say(raw.frame(raw.RST_STREAM, 0, asked.stream_id, NUMBER))
        else:
            await answer(server, asked)

    return HandServer(decide)


@pytest.mark.parametrize("times", [1, limits.MAX_CALL_REFUSALS])
def test_a_refused_call_is_tried_again_on_its_connection(run: Run, monkeypatch: MonkeyPatch, times: int) -> None:
    pauses: list[float] = []

    async def sleep(delay: float) -> None:
        pauses.append(delay)

    monkeypatch.setattr(anyio, "sleep", sleep)

    async def main() -> None:
        hand = refusing(times)
        async with listening(hand) as address, Client(address) as client:
            assert await client.cancel(1) is True
            assert hand.connections == 1, "a refused stream tells nothing against its connection"

    run(main)
    assert pauses == [limits.REFUSAL_PAUSE / SECOND * 2**number for number in range(times)]


def test_a_refused_watch_is_tried_again(run: Run, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "REFUSAL_PAUSE", 1)

    async def main() -> None:
        hand = refusing(3)
        async with listening(hand) as address, Client(address) as client, client.watch() as events:
            assert (await anext(events)).id == 1
            assert (hand.connections, len(hand.asked)) == (1, 4)

    run(main)


def test_a_call_that_is_refused_again_and_again(run: Run, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "REFUSAL_PAUSE", 1)

    async def main() -> None:
        hand = refusing(limits.MAX_CALL_REFUSALS + 1)
        async with listening(hand) as address, Client(address) as client:
            with pytest.raises(ClientError, match="REFUSED_STREAM") as caught:
                await client.cancel(1)
            assert caught.value.code == "unavailable" and caught.value.unprocessed
            assert (hand.connections, len(hand.asked)) == (1, limits.MAX_CALL_REFUSALS + 1)

    run(main)


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
            assert f"{address} sent what is not accepted here" in caught.value.message
            assert "5001 bytes is above the limit of 5000 (grpc.max_receive_message_length)" in caught.value.message
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


def test_cancelling_everything_around_an_open_client(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        started.set()

    async def main() -> None:
        nonlocal started
        started = anyio.Event()
        async with listening(HandServer(decide)) as address:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks, Client(address) as client:

                    async def cancel() -> None:
                        await started.wait()
                        scope.cancel()

                    tasks.start_soon(cancel)
                    tasks.start_soon(client.get, 1)
                    async with client.watch():
                        raise AssertionError("the server never answers")
            assert scope.cancelled_caught
            with pytest.raises(RuntimeError, match="closed"):
                await client.get(1)

    started = anyio.Event()
    run(main)


@pytest.mark.realtime
def test_a_deadline_is_kept_though_the_server_says_nothing(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        assert asked.fields[b"grpc-timeout"] == b"200m"

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
