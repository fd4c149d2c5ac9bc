"""grpcio's asyncio API: many calls at once on one channel and on several, deadlines, cancellation, a worker stream."""

import asyncio
import contextlib

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import Status, reference, submission, wait_until
from tests.acceptance.server import HANG

POOLS = ("many", "channels", "dead", "freed", "stream", "later")
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 500\n' for name in POOLS)}


@contextlib.asynccontextmanager
async def channel(server):
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as opened:
        await asyncio.wait_for(opened.channel_ready(), HANG)
        yield opened


@contextlib.asynccontextmanager
async def worker(opened, pool, slots):
    """Echoes every payload."""
    call = stubs.WorkersStub(opened).Work()
    await call.write(pb.WorkerMessage(register=pb.Register(pool=pool, slots=slots, protocol_version=3)))
    registered = await call.read()
    assert registered.registered.slots == slots

    async def run():
        while (message := await call.read()) is not grpc.aio.EOF:
            done = pb.Complete(lease=message.lease.lease, output=message.lease.payload)
            await call.write(pb.WorkerMessage(complete=done))

    task = asyncio.create_task(run())
    yield call
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
        await task


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 3 * HANG))


def test_many_calls_at_once_on_one_channel(server):
    async def scenario():
        async with channel(server) as opened, worker(opened, "many", 64):
            tasks = stubs.TasksStub(opened)
            replies = await asyncio.gather(
                *(tasks.Submit(submission(wait=True, pool="many", payload=b"%d" % n), timeout=HANG) for n in range(500))
            )
            assert [reply.result.output for reply in replies] == [b"%d" % n for n in range(500)]
            assert len({reply.id for reply in replies}) == 500

    run(scenario())


def test_more_calls_than_streams_are_queued_by_the_client_and_all_answered(server):
    """MAX_CONCURRENT_STREAMS is 1024: the client waits for a free stream, nothing is refused."""

    async def scenario():
        async with channel(server) as opened:
            tasks = stubs.TasksStub(opened)
            task_id = (await tasks.Submit(submission(pool="later"), timeout=HANG)).id
            waits = [
                asyncio.ensure_future(tasks.Wait(pb.WaitRequest(task=reference(task_id)), timeout=3 * HANG))
                for _ in range(1_500)
            ]
            async with channel(server) as other, worker(other, "later", 1):
                results = await asyncio.gather(*waits)
            assert {result.id for result in results} == {task_id}

    run(scenario())


def test_several_channels_at_once(server):
    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(channel(server)) for _ in range(10)]
            for one in opened[:3]:
                await stack.enter_async_context(worker(one, "channels", 4))
            calls = [
                stubs.TasksStub(opened[n % 10]).Submit(
                    submission(wait=True, pool="channels", key=f"channel-{n // 2}", payload=b"x"), timeout=HANG
                )
                for n in range(200)
            ]
            replies = await asyncio.gather(*calls)
            assert len({reply.id for reply in replies}) == 100
            assert sum(reply.duplicate for reply in replies) == 100

    run(scenario())


def test_a_deadline_passes_on_time(server):
    async def scenario():
        async with channel(server) as opened:
            tasks = stubs.TasksStub(opened)
            task_id = (await tasks.Submit(submission(pool="dead"), timeout=HANG)).id
            loop = asyncio.get_running_loop()
            begun = loop.time()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await tasks.Wait(pb.WaitRequest(task=reference(task_id)), timeout=0.3)
            assert caught.value.code() is Status.DEADLINE_EXCEEDED
            assert 0.3 <= loop.time() - begun < 3
            # A deadline in the request's own field, answered by the server with its own words.
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await tasks.Wait(pb.WaitRequest(task=reference(task_id), timeout_s=0.3), timeout=HANG)
            assert caught.value.code() is Status.DEADLINE_EXCEEDED

    run(scenario())


def test_cancelled_calls_free_what_they_held(server):
    async def scenario():
        async with channel(server) as opened:
            tasks = stubs.TasksStub(opened)
            task_id = (await tasks.Submit(submission(pool="freed"), timeout=HANG)).id
            waits = [tasks.Wait(pb.WaitRequest(task=reference(task_id))) for _ in range(300)]
            await until(lambda: int(server.statistics()["waiting_for_tasks"]) == 300, "all wait")
            for wait in waits[:250]:
                assert wait.cancel()
            await until(lambda: int(server.statistics()["waiting_for_tasks"]) == 50, "those given up are gone")
            for wait in waits[250:]:
                assert wait.cancel()
            await until(lambda: int(server.statistics()["open_waits"]) == 0, "all are gone")
            for wait in waits:
                with pytest.raises(asyncio.CancelledError):
                    await wait
            assert (await tasks.Get(pb.GetRequest(task=reference(task_id)), timeout=HANG)).status == 3
            async with worker(opened, "freed", 1):
                result = await tasks.Wait(pb.WaitRequest(task=reference(task_id)), timeout=HANG)
            assert result.status == pb.TASK_STATUS_SUCCEEDED

    run(scenario())


async def until(condition, what):
    await asyncio.to_thread(wait_until, condition, what)


def test_a_stream_and_calls_share_one_connection(server):
    async def scenario():
        async with channel(server) as opened, worker(opened, "stream", 8) as stream:
            tasks, admin = stubs.TasksStub(opened), stubs.AdminStub(opened)
            for number in range(50):
                reply = await tasks.Submit(submission(wait=True, pool="stream", payload=b"%d" % number), timeout=HANG)
                assert reply.result.output == b"%d" % number
            assert (await admin.Snapshot(pb.Empty(), timeout=HANG)).workers_connected >= 1
            await stream.done_writing()
            while (await admin.Snapshot(pb.Empty(), timeout=HANG)).workers_connected:
                await asyncio.sleep(0.01)
            assert await stream.code() is Status.OK

    run(scenario())


def test_a_cancel_tells_whether_it_came_in_time(server):
    async def scenario():
        async with channel(server) as opened:
            tasks = stubs.TasksStub(opened)
            task_id = (await tasks.Submit(submission(pool="later"), timeout=HANG)).id
            request = pb.CancelRequest(task=reference(task_id))
            assert [(await tasks.Cancel(request, timeout=HANG)).cancelled for _ in range(2)] == [True, False]

    run(scenario())
