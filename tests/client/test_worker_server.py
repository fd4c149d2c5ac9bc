"""Worker and client against a real server process, over sockets, under both backends."""

import threading
import time

import anyio
import pytest

from cronoq.client import Client
from cronoq.errors import CancelTask, ClientError, Permanent
from cronoq.worker import Worker
from tests.acceptance.server import Server, free_port
from tests.client.stage import both

POOLS = """
[[pools]]
name = "default"
max = 100
max_slots_per_worker = 4
lease_ttl_s = 0.6
retry = { max_attempts = 3, initial_backoff_s = 0.05, max_backoff_s = 0.05 }
"""
PATIENCE = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, pools=POOLS, limits="max_message_bytes = 262144", port=free_port()) as running:
        yield running
    running.check_log()


def play(backend, act):
    async def bounded():
        with anyio.fail_after(PATIENCE):
            await act()

    anyio.run(bounded, backend=backend)


async def upper(lease):
    return lease.text().upper()


@both
def test_tasks_are_run_and_their_results_arrive(server, backend):
    async def script():
        async with Client(server.address) as client, Worker(server.address, "default", upper, slots=10) as worker:
            assert worker.granted_slots == 4 and worker.server_protocol == 3 and worker.lease_ttl == 0.6
            assert worker.max_message_bytes == 262_144 and worker.connections == 1
            submitted = await client.submit("hello", wait=True)
            assert submitted.result.text() == "HELLO"
            results = []

            async def one(number):
                results.append((await client.submit(f"n{number}", wait=True)).result.text())

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(one, number)
            assert sorted(results) == sorted(f"N{number}" for number in range(100))

    play(backend, script)


@both
def test_outcomes(server, backend):
    attempts = []

    async def handler(lease):
        attempts.append(lease.attempt)
        match lease.kind:
            case "permanent":
                raise Permanent("no way")
            case "cancel":
                raise CancelTask("no use")
            case "third" if lease.attempt < 3:
                raise ValueError("not yet")
            case "never":
                raise ValueError("never")
            case "large":
                return bytes(262_144)

    async def script():
        async with Client(server.address) as client, Worker(server.address, "default", handler):

            async def end(kind):
                attempts.clear()
                result = (await client.submit(kind=kind, wait=True)).result
                return result.status, result.message, list(attempts)

            assert await end("permanent") == ("failed", "no way", [1])
            assert (await end("cancel"))[0] == "cancelled"
            assert await end("third") == ("succeeded", "", [1, 2, 3])
            status, message, tries = await end("never")
            assert (status, tries) == ("dead_lettered", [1, 2, 3]) and "ValueError: never" in message
            status, message, tries = await end("large")
            assert status == "failed" and "message limit" in message and tries == [1]
            assert (await end("fine"))[0] == "succeeded", "the stream is still up"

    play(backend, script)


@both
@pytest.mark.parametrize("threaded", [False, True])
def test_a_long_handler_survives_a_short_ttl_with_one_attempt(server, backend, threaded):
    def blocks(lease):
        time.sleep(1.5)
        return "done"

    async def waits(lease):
        await anyio.sleep(1.5)
        return "done"

    async def script():
        async with (
            Client(server.address) as client,
            Worker(server.address, "default", blocks if threaded else waits),
        ):
            submitted = await client.submit(wait=True, retry={"max_attempts": 1})
            assert submitted.result.text() == "done"

    play(backend, script)


@both
def test_a_timeout_of_the_attempt_aborts_the_handler(server, backend):
    aborted = []

    async def waits(lease):
        try:
            await anyio.sleep_forever()
        finally:
            aborted.append(lease.cancelled.is_set())

    async def script():
        async with Client(server.address) as client, Worker(server.address, "default", waits) as worker:
            submitted = await client.submit(wait=True, timeout=0.2, retry={"max_attempts": 1})
            assert submitted.result.status == "dead_lettered"
            while not aborted or worker.running:
                await anyio.sleep(0.001)
            assert aborted == [True]

    play(backend, script)


@both
def test_a_lease_above_ones_own_message_size_arrives(server, backend):
    async def script():
        async with Client(server.address) as client, Worker(server.address, "default", size) as worker:
            payload = bytes(worker.max_message_bytes - 2_000)
            assert (await client.submit(payload, wait=True)).result.text() == str(len(payload))

    async def size(lease):
        return str(len(lease.payload))

    play(backend, script)


@both
def test_an_unknown_pool_is_fatal(server, backend):
    async def script():
        with pytest.raises(ClientError, match="nowhere") as caught:
            await Worker(server.address, "nowhere", upper).run()
        assert caught.value.code == "not_found"

    play(backend, script)


@both
def test_a_closed_port_is_tried_again_unless_told_not_to(backend):
    async def script():
        with pytest.raises(ClientError, match="refused") as caught:
            await Worker(f"127.0.0.1:{free_port()}", "default", upper, reconnect=False).run()
        assert caught.value.code == "unavailable"

    play(backend, script)


@both
def test_stop_lets_the_running_lease_finish_and_what_is_left_goes_to_another_worker(server, backend):
    started = threading.Event()

    async def slow(lease):
        started.set()
        await anyio.sleep(0.3 if lease.kind == "short" else 60)
        return "finished"

    async def other(lease):
        return f"attempt {lease.attempt} elsewhere"

    async def script():
        async with Client(server.address) as client, anyio.create_task_group() as tasks:
            first = Worker(server.address, "default", slow, slots=2)
            await tasks.start(first.run)
            short = await client.submit(kind="short")
            await anyio.to_thread.run_sync(started.wait)
            started.clear()
            await first.stop(grace=10)
            result = await client.wait(short.id, timeout=5)
            assert (result.text(), first.running) == ("finished", 0)
            assert [worker.pool for worker in await workers(client)] == []

            await tasks.start(first.run)
            long = await client.submit(kind="long")
            await anyio.to_thread.run_sync(started.wait)
            second = Worker(server.address, "default", other)
            await tasks.start(second.run)
            await first.stop(grace=0)
            assert (await client.wait(long.id, timeout=5)).text() == "attempt 1 elsewhere", "no attempt was lost"
            await second.stop()

    async def workers(client):
        try:
            return await client.list_workers()
        except ClientError as error:
            assert error.code == "unimplemented"
            return []

    play(backend, script)


@both
@pytest.mark.parametrize("kill", [False, True])
def test_a_worker_serves_again_after_a_restart_of_the_server(tmp_path, backend, kill):
    server = Server(tmp_path, port=free_port(), server="shutdown_grace_s = 0.2")
    server.start()

    async def script():
        async with Worker(server.address, "default", upper, backoff=(0.01, 0.05)) as worker:
            async with Client(server.address) as client:
                assert (await client.submit("a", wait=True)).result.text() == "A"
            await anyio.to_thread.run_sync(server.kill if kill else server.stop)
            await anyio.to_thread.run_sync(server.start)
            async with Client(server.address) as client:
                assert (await client.submit("b", wait=True)).result.text() == "B"
            assert worker.connections == 2
            assert worker.last_shutdown == (None if kill else "server shutting down")

    try:
        play(backend, script)
    finally:
        server.kill()
