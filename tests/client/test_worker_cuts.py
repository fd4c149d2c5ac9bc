"""A connection that breaks, and a stop, at each single step: a server in the process, on a clock that jumps."""

from contextlib import suppress

import anyio
import pytest
from anyio.abc import ByteStream

from cronoq._client import dialing
from cronoq.client import Client
from cronoq.errors import ClientError
from cronoq.testing import run, serve
from cronoq.worker import Worker

POOL = {
    "name": "default",
    "max": 10,
    "lease_ttl_s": 3,
    "retry": {"max_attempts": 3, "initial_backoff_s": 0.1, "jitter": False, "max_backoff_s": 1},
}
TASKS = 4


class Breaking(ByteStream):
    """Does `on_step` before each read and after each write."""

    def __init__(self, inner, on_step):
        self.inner = inner
        self.on_step = on_step

    async def receive(self, max_bytes=65_536):
        data = await self.inner.receive(max_bytes)
        self.on_step()
        return data

    async def send(self, item):
        await self.inner.send(item)
        self.on_step()

    async def send_eof(self):
        await self.inner.send_eof()

    async def aclose(self):
        await self.inner.aclose()


class Steps:
    """Counts the steps of the worker's first connection, and acts at one of them."""

    def __init__(self, act_at, act):
        self.act_at = act_at
        self.act = act
        self.seen = 0
        self.connections = 0

    def watch(self, target):
        connect = dialing.IN_PROCESS[target]

        def watched():
            self.connections += 1
            if self.connections != 2:  # the first is the client's
                return connect()
            self.stream = connect()
            return Breaking(self.stream, self.step)

        dialing.IN_PROCESS[target] = watched

    def step(self):
        self.seen += 1
        if self.seen == self.act_at:
            self.act(self)


async def slow(lease):
    """Two heartbeats long, so that they are among the steps."""
    await anyio.sleep(2.5)
    return lease.text().upper()


def cut(steps):
    steps.stream._transport.reset()


def half_close(steps):
    steps.stream._transport.close()


async def with_cuts(act_at, act):
    steps = Steps(act_at, act)
    async with serve(pools=[POOL]) as server, Client(server.target) as client:
        steps.watch(server.target)
        ids = [(await client.submit(f"n{number}")).id for number in range(TASKS)]
        async with Worker(server.target, "default", slow, slots=2) as worker:
            with anyio.fail_after(60):
                texts = [(await client.wait(task_id)).text() for task_id in ids]
        assert texts == [f"N{number}" for number in range(TASKS)]
        assert worker.running == 0
    return steps


@pytest.mark.parametrize("act", [cut, half_close])
def test_a_connection_that_breaks_at_any_step_loses_nothing(act):
    act_at = 1
    while (steps := run(with_cuts, act_at, act)).seen >= act_at:
        assert steps.connections == 3 or act_at > 10, "it was replaced, unless the worker was leaving anyway"
        act_at += 1
    assert act_at > 10, "the steps of a whole session were tried"


async def with_stops(act_at, grace):
    attempts = []

    async def note(lease):
        attempts.append((lease.task_id, lease.attempt))
        return await slow(lease)

    async with serve(pools=[POOL]) as server, Client(server.target) as client, anyio.create_task_group() as tasks:
        steps = Steps(act_at, lambda _steps: tasks.start_soon(first.stop, grace))
        await client.submit("the client has its connection now", key="x")
        await client.cancel("x")
        second = Worker(server.target, "default", note, slots=8)
        await tasks.start(second.run)
        steps.watch(server.target)
        steps.connections = 1
        first = Worker(server.target, "default", note, slots=8)
        tasks.start_soon(first.run)
        with anyio.move_on_after(1), suppress(ClientError):
            await first.wait_registered()
        with anyio.fail_after(60):
            ids = [(await client.submit(f"n{number}")).id for number in range(TASKS)]
            texts = [(await client.wait(task_id)).text() for task_id in ids]
            began = anyio.current_time()
            await first.stop()
            assert anyio.current_time() - began < 12
            await second.stop()
        assert texts == [f"N{number}" for number in range(TASKS)]
        assert all(attempt == 1 for _, attempt in attempts), f"a stop cost an attempt: {attempts}"
    return steps


@pytest.mark.parametrize("grace", [0, 60])
def test_a_stop_at_any_step_loses_nothing(grace):
    act_at = 1
    while run(with_stops, act_at, grace).seen >= act_at:
        act_at += 1
    assert act_at > 10


def test_a_server_that_is_never_there_is_an_error_without_reconnecting():
    async def main():
        async with serve(pools=[POOL]) as server:
            target = server.target
        with pytest.raises(ClientError, match="refused"):
            await Worker(target, "default", slow, reconnect=False).run()

    run(main)
