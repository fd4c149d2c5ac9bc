"""Watching: entered, iterated, left, ended."""

import gc
from typing import Any

import anyio
import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import (
    Client,
    ClientError,
    Event,
)
from tests.client.conftest import Run
from tests.client.foreign import INFO, ForeignServer, Refusal, each

# --- watching

EVENTS = [pb.StatusEvent(id=1, status=6, key="k", at_unix_ns=1_500_000_000), pb.StatusEvent(id=2, status=99)]


def test_watching_inside_a_block(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=EVENTS)

    async def calls(client: Client) -> None:
        async with client.watch(["p"], ids=[1, 2], keys=["k"], all_transitions=True) as events:
            assert [name for name, _ in foreign.asked] == ["Watch"], "the server has subscribed"
            found = [event async for event in events]
        assert found[0] == Event(1, "", "k", "succeeded", 0, 1.5, "", 1_500_000_000) and found[0].done
        assert found[1].status == "unknown_99"

    each(run, foreign, calls)
    request = foreign.asked[0][1]
    assert (list(request.pools), list(request.ids), list(request.keys)) == (["p"], [1, 2], ["k"])
    assert request.all_transitions


def test_watching_as_scripts_do(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=[*EVENTS, "hang"])

    async def calls(client: Client) -> None:
        watch = client.watch()
        assert (await anext(watch)).id == 1
        async for event in watch:
            assert event.id == 2
            break
        await watch.aclose()
        await watch.aclose()
        assert await anyio.to_thread.run_sync(foreign.watchers_gone.acquire, True, 10.0)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    while foreign.watchers_gone.acquire(blocking=False):
        pass
    each(run, foreign, calls)


def test_a_watch_that_nobody_holds_any_more_ends(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=[EVENTS[0], "hang"], Get=INFO)

    async def calls(client: Client) -> None:
        async for _ in client.watch():
            break
        gc.collect()
        await client.get(1)
        assert await anyio.to_thread.run_sync(foreign.watchers_gone.acquire, True, 10.0)

    while foreign.watchers_gone.acquire(blocking=False):
        pass
    each(run, foreign, calls)


@pytest.mark.parametrize("how", ["block", "loop"])
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (grpc.StatusCode.DATA_LOSS, "data_loss"),
        (grpc.StatusCode.UNAVAILABLE, "unavailable"),
        (grpc.StatusCode.CANCELLED, "cancelled"),
    ],
)
def test_a_watch_that_ends_with_an_error_raises(
    run: Run, foreign: ForeignServer, how: str, code: grpc.StatusCode, name: str
) -> None:
    foreign.reset(Watch=[EVENTS[0], Refusal(code, "gone")])

    async def calls(client: Client) -> None:
        found = []
        with pytest.raises(ClientError) as caught:
            if how == "block":
                async with client.watch() as events:
                    async for event in events:
                        found.append(event.id)
            else:
                async for event in client.watch():
                    found.append(event.id)
        assert (found, caught.value.code, caught.value.message) == ([1], name, "gone")

    each(run, foreign, calls)


@pytest.mark.realtime
def test_a_watch_may_have_a_limit(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=["hang"])

    async def calls(client: Client) -> None:
        with pytest.raises(TimeoutError):
            async with client.watch(timeout=0.2) as events:
                async for _ in events:
                    pass

    each(run, foreign, calls)


@pytest.mark.parametrize(
    "wrong", [{"pools": "p"}, {"ids": ["1"]}, {"ids": [True]}, {"keys": "k"}, {"keys": [1]}, {"pools": [b"p"]}]
)
def test_what_cannot_be_watched(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Client("localhost:1").watch(**wrong)
