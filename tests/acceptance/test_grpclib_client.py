"""A second foreign client, with an HTTP/2 of its own: grpclib over asyncio, through the stubs that its users get."""

import asyncio

import pytest
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from cronoq._proto import cronoq_grpc as stubs
from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import reference, submission
from tests.acceptance.server import HANG


def run(server, scenario):
    async def inside():
        channel = Channel("127.0.0.1", server.port)
        try:
            await asyncio.wait_for(scenario(channel), HANG)
        finally:
            channel.close()

    asyncio.run(inside())


def test_submit_work_and_wait(server):
    async def scenario(channel):
        tasks = stubs.TasksStub(channel)
        async with stubs.WorkersStub(channel).Work.open() as stream:
            register = pb.Register(slots=4, protocol_version=3, worker_name="grpclib")
            await stream.send_message(pb.WorkerMessage(register=register))
            assert (await stream.recv_message()).registered.slots == 4
            ids = [(await tasks.Submit(submission(payload=b"%d" % n))).id for n in range(20)]
            for _ in ids:
                lease = (await stream.recv_message()).lease
                await stream.send_message(
                    pb.WorkerMessage(complete=pb.Complete(lease=lease.lease, output=lease.payload * 2))
                )
            for number, task_id in enumerate(ids):
                result = await tasks.Wait(pb.WaitRequest(task=reference(task_id)))
                assert result.output == b"%d" % number * 2
            await stream.end()
            assert await stream.recv_message() is None

    run(server, scenario)


def test_every_other_call(server):
    async def scenario(channel):
        tasks = stubs.TasksStub(channel)
        task_id = (await tasks.Submit(submission(key="grpclib"))).id
        assert (await tasks.Submit(submission(key="grpclib"))).duplicate
        assert (await tasks.Get(pb.GetRequest(task=reference("grpclib")))).id == task_id
        assert (await tasks.Cancel(pb.CancelRequest(task=reference(task_id)))).cancelled
        assert (await tasks.Wait(pb.WaitRequest(task=reference(task_id)))).status == pb.TASK_STATUS_CANCELLED
        admin = stubs.AdminStub(channel)
        assert len((await admin.Snapshot(pb.Empty())).pools) == 1
        await admin.AddRecurring(pb.RecurringRequest(name="n", cron="0 9 29 2 *", tz="Asia/Tokyo"))
        (schedule,) = (await admin.ListRecurring(pb.Empty())).schedules
        assert (schedule.name, schedule.tz, schedule.overlap) == ("n", "Asia/Tokyo", pb.OVERLAP_SKIP)
        for removed in (True, False):
            assert (await admin.RemoveRecurring(pb.RemoveRecurringRequest(name="n"))).removed is removed

    run(server, scenario)


def test_errors_have_their_status_and_text(server):
    async def scenario(channel):
        tasks = stubs.TasksStub(channel)
        for request, status, text in (
            (submission(pool="nowhere"), Status.NOT_FOUND, "nowhere"),
            (submission(start_in_s=-1), Status.INVALID_ARGUMENT, "start_in_s"),
            (submission(wait=True, wait_timeout=0.1), Status.DEADLINE_EXCEEDED, ""),
        ):
            with pytest.raises(GRPCError) as caught:
                await tasks.Submit(request)
            assert caught.value.status is status
            assert text in caught.value.message
        with pytest.raises(GRPCError) as caught:
            await stubs.AdminStub(channel).AddRecurring(pb.RecurringRequest(name="n", cron="0 0 31 2 *"))
        assert caught.value.status is Status.INVALID_ARGUMENT and "cron" in caught.value.message

    run(server, scenario)


def test_batches_pages_and_watches(server):
    async def scenario(channel):
        tasks = stubs.TasksStub(channel)
        async with tasks.Watch.open(timeout=HANG) as stream:
            await stream.send_message(pb.WatchRequest(all_transitions=True, keys=["b1"]), end=True)
            await stream.recv_initial_metadata()
            batch = await tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=[pb.TaskSpec(key="b0"), pb.TaskSpec(key="b1")]))
            events = [await stream.recv_message() for _ in range(2)]
            assert [(event.id, event.status) for event in events] == [
                (batch.tasks[1].id, pb.TASK_STATUS_BLOCKED),
                (batch.tasks[1].id, pb.TASK_STATUS_READY),
            ]
            await stream.cancel()
        page = await tasks.ListTasks(pb.ListTasksRequest(after=batch.tasks[0].id - 1))
        assert [info.key for info in page.tasks][:2] == ["b0", "b1"]
        with pytest.raises(GRPCError) as caught:
            await tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=[pb.TaskSpec(), pb.TaskSpec(pool="nowhere")]))
        assert caught.value.status is Status.NOT_FOUND and "task[1]" in caught.value.message

    run(server, scenario)


def test_a_deadline_and_a_cancelled_call(server):
    async def scenario(channel):
        tasks = stubs.TasksStub(channel)
        task_id = (await tasks.Submit(submission())).id
        with pytest.raises((asyncio.TimeoutError, GRPCError)):
            await tasks.Wait(pb.WaitRequest(task=reference(task_id)), timeout=0.2)
        wait = asyncio.create_task(tasks.Wait(pb.WaitRequest(task=reference(task_id))))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        assert (await tasks.Cancel(pb.CancelRequest(task=reference(task_id)))).cancelled

    run(server, scenario)
