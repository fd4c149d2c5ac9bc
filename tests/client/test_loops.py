"""Whose loop a client belongs to, and how it ends."""

import asyncio
import gc
import threading
import warnings

import anyio
import pytest

from cronoq.client import Client, ClientError
from cronoq_sansio.wire import pb
from tests.acceptance.server import Server
from tests.client.byhand import Asked, HandServer
from tests.client.conftest import Run
from tests.wire import raw

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
