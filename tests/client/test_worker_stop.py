"""Stopping a worker at each step of its life, and a connection that stalls."""

import threading

import anyio
import anyio.lowlevel
import pytest

from cronoq.errors import ClientError
from tests.client.stage import both, make, play, raises, stage

__all__ = ["stage"]


async def echo(lease):
    await anyio.lowlevel.checkpoint()
    return lease.payload


@both
def test_stop_while_connecting(stage, backend):
    stage.unreachable = True
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            while not stage.attempts:
                await anyio.lowlevel.checkpoint()
            await worker.stop()

    play(backend, script)


@both
def test_stop_during_a_pause(stage, backend):
    stage.unreachable, stage.refuse = True, ClientError("unavailable", "refused")
    worker = make(echo, backoff=(1_000.0, 1_000.0))

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            while not stage.attempts:
                await anyio.lowlevel.checkpoint()
            await worker.stop()

    play(backend, script)


@both
def test_stop_while_registering_gives_back_what_comes(stage, backend):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.stream()
            await stream.next("register")
            tasks.start_soon(worker.stop)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            stream.register()
            stream.lease(1)
            assert (await stream.next()).slots == 0
            assert (await stream.next("nack")).reason == "worker is draining"

    play(backend, script)
    assert worker.connections == 1


@both
def test_stop_lets_handlers_finish(stage, backend):
    go_on = []

    async def slow(lease):
        go_on.append(anyio.Event())
        await go_on[0].wait()
        return "done"

    worker = make(slow)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            while not go_on:
                await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as stops:
                stops.start_soon(worker.stop, 60)
                assert (await stream.next()).slots == 0
                stops.start_soon(worker.stop, 0)
                stream.lease(2)
                assert (await stream.next("nack")).lease == 2
                go_on[0].set()
                assert (await stream.next("complete")).output == b"done"
            assert worker.running == 0

    play(backend, script)


@both
@pytest.mark.parametrize("version", [3, 1])
def test_stop_reports_what_it_cuts_off(stage, backend, version):
    async def forever(lease):
        await anyio.sleep_forever()

    worker = make(forever)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(version=version)
            stream.lease(1)
            stream.lease(2)
            while worker.running < 2:
                await anyio.lowlevel.checkpoint()
            await worker.stop(grace=0)
            assert (await stream.next()).slots == 0
            reports = [await stream.next("nack" if version == 3 else "fail") for _ in range(2)]
            assert sorted(report.lease for report in reports) == [1, 2]
            assert stream.half_closed

    play(backend, script)


@both
def test_what_a_handler_returns_although_it_was_cut_off_counts(stage, backend):
    async def stubborn(lease):
        with anyio.CancelScope(shield=True):
            await lease.cancelled.wait()
        return "after all"

    worker = make(stubborn)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            while not worker.running:
                await anyio.lowlevel.checkpoint()
            await worker.stop(grace=0)
            await stream.next("set_slots")
            assert (await stream.next("complete")).output == b"after all"

    play(backend, script)


@both
@pytest.mark.parametrize("end", [True, ClientError("unavailable", "gone")])
def test_a_connection_lost_while_draining_ends_the_worker(stage, backend, end):
    async def forever(lease):
        await anyio.sleep_forever()

    worker = make(forever)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            tasks.start_soon(worker.stop, 60)
            await stream.next("set_slots")
            stream.end(end)

    play(backend, script)
    assert len(stage.attempts) == 1


@both
def test_a_server_that_does_not_end_the_stream_is_left(stage, backend, monkeypatch):
    monkeypatch.setattr("cronoq_sansio.limits.WORKER_PART_TIMEOUT", 20_000_000)
    stage.polite = False
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            await worker.wait_registered()
            await worker.stop()
            assert stream.half_closed and stream.closed

    play(backend, script)


@both
def test_a_server_that_does_not_answer_the_registration_is_left(stage, backend, monkeypatch):
    monkeypatch.setattr("cronoq_sansio.limits.WORKER_REGISTER_TIMEOUT", 20_000_000)
    worker = make(echo, reconnect=False)

    async def script():
        with raises("unavailable", "did not answer the registration"):
            await worker.run()

    play(backend, script)


@both
def test_stop_from_a_handler_returns_at_once(stage, backend):
    async def last(lease):
        await worker.stop()
        return "the last one"

    worker = make(last)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            await stream.next("set_slots")
            assert (await stream.next("complete")).output == b"the last one"

    play(backend, script)


@both
def test_stop_waits_for_a_thread(stage, backend):
    started, finished = threading.Event(), threading.Event()

    def stuck(lease):
        started.set()
        lease.cancelled.wait_in_thread(5)
        finished.set()

    worker = make(stuck)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            await anyio.to_thread.run_sync(started.wait)
            await worker.stop(grace=0)
            assert finished.is_set()

    play(backend, script)


# --- what goes out when the connection stalls


@both
def test_heartbeats_do_not_pile_up_and_results_wait_when_the_connection_stalls(stage, backend):
    async def handle(lease):
        if lease.id == 1:
            await anyio.sleep_forever()

    worker = make(handle)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(ttl=0.03)
            stream.set_room(False)
            stream.lease(1)
            stream.lease(2)
            await anyio.sleep(0.1)
            assert not stream.sent
            stream.set_room(True)
            kinds = [type(await stream.next()).__name__ for _ in range(2)]
            assert sorted(kinds) == ["Complete", "Heartbeat"]
            await worker.stop(grace=0)

    play(backend, script)
