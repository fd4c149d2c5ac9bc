"""Our client and our worker against foreign servers, under both event loops.

They are on grpcio, its synchronous API and asyncio's (`noop_server.py`), on grpc-go (`go/serve.go`), and on Connect-ES
(`node/serve.mjs`).
"""

import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from cronoq.client import Client, ClientError
from cronoq.worker import Worker
from tests.acceptance.server import HANG, ROOT, environment
from tests.foreign.noop_server import HUNG, LEASES, MISSING, STREAMS
from tests.foreign.programs import server_command

Run = Callable[[Callable[[Client], Awaitable[None]]], None]


@pytest.fixture(scope="module", params=["grpcio sync", "grpcio aio", "grpc-go", "Connect-ES"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = server_command(request.param, tmp_path_factory.mktemp("server"))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        assert process.wait(HANG) == 0


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest, address: str) -> Run:
    """Run a function of a client to its end; what hangs fails."""

    def run(function: Callable[[Client], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(HANG):
                async with Client(address) as client:
                    await function(client)

        anyio.run(bounded, backend=request.param)

    return run


async def until(client: Client, condition: Callable[[Any], bool]) -> None:
    """Until the server's figures are as they should be."""
    while not condition(await client.snapshot()):
        await anyio.sleep(0.01)


@pytest.mark.parametrize("size", [0, 10, 70_000, 5_000_000])
def test_calls_of_all_sizes(run: Run, size: int) -> None:
    async def calls(client: Client) -> None:
        payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
        for _ in range(3):
            submitted = await client.submit(payload, wait=True)
            assert submitted.result is not None and submitted.result.output == payload
            assert (await client.wait(submitted.id)).output == payload

    run(calls)


def test_more_calls_at_once_than_the_server_takes_streams(run: Run) -> None:
    async def calls(client: Client) -> None:
        ids = []

        async def submit() -> None:
            ids.append((await client.submit(b"x")).id)

        async with anyio.create_task_group() as tasks:
            for _ in range(10 * STREAMS):
                tasks.start_soon(submit)
        assert len(set(ids)) == 10 * STREAMS

    run(calls)


def test_errors(run: Run) -> None:
    async def calls(client: Client) -> None:
        with pytest.raises(ClientError) as caught:
            await client.submit(pool="nowhere")
        assert (caught.value.code, caught.value.message) == ("not_found", MISSING)
        with pytest.raises(ClientError) as caught:
            await client.remove_recurring("n")
        assert caught.value.code == "unimplemented"

    run(calls)


def test_a_deadline_and_a_cancelled_call(run: Run) -> None:
    """The server hears of both."""

    async def calls(client: Client) -> None:
        before = (await client.snapshot()).totals.cancelled
        with pytest.raises(TimeoutError):
            await client.wait(HUNG, call_timeout=0.5)
        await until(client, lambda found: found.running == 0 and found.totals.cancelled == before + 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.wait, HUNG)
            await until(client, lambda found: found.running == 1)
            tasks.cancel_scope.cancel()
        await until(client, lambda found: found.running == 0 and found.totals.cancelled == before + 2)

    run(calls)


def test_a_watch(run: Run) -> None:
    async def calls(client: Client) -> None:
        async with client.watch() as events:
            seen = [(await anext(events)).id for _ in range(100)]
            await until(client, lambda found: found.running == 1)
        assert seen == list(range(1, 101))
        await until(client, lambda found: found.running == 0)

    run(calls)


@pytest.mark.parametrize("slots", [1, 20])
def test_a_worker(address: str, run: Run, slots: int) -> None:
    async def work(client: Client) -> None:
        async def echo(lease: Any) -> bytes:
            payload: bytes = lease.payload
            return payload

        before = (await client.snapshot()).totals.succeeded
        async with Worker(address, "default", echo, slots=slots) as worker:
            assert worker.granted_slots == slots
            await until(client, lambda found: found.totals.succeeded == before + LEASES)

    run(work)
