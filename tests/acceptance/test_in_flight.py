"""A thousand calls of grpcio on one connection, all of them with the server before the first is answered."""

import asyncio

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import connect, reference, submission, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import serving

COUNT = 1_000
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 2000\n' for name in ("waits", "submits", "aio"))}


def in_flight(server, expected):
    figures = server.statistics()
    return (figures["connections"], figures["waiting_for_tasks"]) == expected


def test_a_thousand_waits_for_one_task(server, client):
    task_id = client.submit(pool="waits").id
    request = pb.WaitRequest(task=reference(task_id))
    waits = [client.tasks.Wait.future(request, timeout=2 * HANG) for _ in range(COUNT)]
    wait_until(lambda: in_flight(server, ("1", str(COUNT))), "all of them wait")
    assert client.status(task_id) == "ready", "other calls go through meanwhile"
    assert client.cancel(task_id)
    assert {(result.id, word(result.status)) for result in (wait.result(HANG) for wait in waits)} == {
        (task_id, "cancelled")
    }


def test_a_thousand_tasks_and_their_results(server, client):
    submits = [
        client.tasks.Submit.future(submission(wait=True, pool="submits", payload=b"%d" % number), timeout=2 * HANG)
        for number in range(COUNT)
    ]
    wait_until(lambda: in_flight(server, ("1", str(COUNT))), "all of them wait")
    with connect(server.address) as other, serving(other.channel, pool="submits", slots=50):
        replies = [submit.result(HANG) for submit in submits]
    assert [reply.result.output for reply in replies] == [b"%d" % number for number in range(COUNT)]
    assert len({reply.id for reply in replies}) == COUNT


def test_a_thousand_coroutines(server):
    async def scenario():
        async with grpc.aio.insecure_channel(server.address) as channel:
            tasks = stubs.TasksStub(channel)
            task_id = (await tasks.Submit(submission(pool="aio"), timeout=HANG)).id
            request = pb.WaitRequest(task=reference(task_id))
            waits = [asyncio.ensure_future(tasks.Wait(request, timeout=2 * HANG)) for _ in range(COUNT)]
            await asyncio.to_thread(wait_until, lambda: in_flight(server, ("1", str(COUNT))), "all of them wait")
            await tasks.Cancel(pb.CancelRequest(task=reference(task_id)), timeout=HANG)
            assert {result.id for result in await asyncio.gather(*waits)} == {task_id}

    asyncio.run(asyncio.wait_for(scenario(), 3 * HANG))
