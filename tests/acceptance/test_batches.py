"""Batches through grpcio's synchronous and asynchronous API, on both stores."""

import asyncio

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import Status, connect, refused, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import serving

SERVER = {
    "limits": "max_tasks_per_batch = 1000",
    "pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in ("default", "run", "aio"))
    + '[[pools]]\nname = "small"\nmax_pending = 3\n',
}


def submit(client, *tasks):
    return client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=tasks), timeout=HANG)


def test_a_batch_runs_and_answers_in_the_order_of_the_request(client):
    reply = submit(client, *(pb.TaskSpec(pool="run", key=f"r{n}", payload=b"%d" % n) for n in range(50)))
    assert [member.duplicate for member in reply.tasks] == [False] * 50
    assert not any(member.HasField("result") for member in reply.tasks)
    with serving(client.channel, pool="run"):
        assert [client.wait(member.id).output for member in reply.tasks] == [b"%d" % n for n in range(50)]
    again = submit(client, pb.TaskSpec(key="r7"), pb.TaskSpec(key="r3"), pb.TaskSpec())
    assert [(member.id, member.duplicate) for member in again.tasks][:2] == [
        (reply.tasks[7].id, True),
        (reply.tasks[3].id, True),
    ]
    assert not again.tasks[2].duplicate


def test_an_empty_batch_is_fine(client):
    assert list(submit(client).tasks) == []


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (dict(pool="nowhere"), Status.NOT_FOUND, ("task[2]", "nowhere")),
        (dict(priority=9), Status.INVALID_ARGUMENT, ("task[2].priority",)),
        (dict(tolerance_s=1.0), Status.INVALID_ARGUMENT, ("task[2].tolerance_s",)),
        (dict(key="twice"), Status.INVALID_ARGUMENT, ("task[2]", "'twice'", "task[0]")),
    ],
)
def test_one_bad_member_refuses_all_and_is_named(client, bad, code, words):
    members = [pb.TaskSpec(key="twice"), pb.TaskSpec(key="other"), pb.TaskSpec(**bad)]
    with refused(code, *words) as caught:
        submit(client, *members)
    assert dict(caught.value.trailing_metadata())["cronoq-batch-index"] == "2"
    for key in ("twice", "other"):
        with refused(Status.NOT_FOUND):
            client.get(key)


def test_a_batch_fits_as_a_whole_or_not_at_all(client):
    with refused(Status.RESOURCE_EXHAUSTED, "task[3]", "small") as caught:
        submit(client, *[pb.TaskSpec(pool="small")] * 4)
    assert dict(caught.value.trailing_metadata())["cronoq-batch-index"] == "3"
    reply = submit(client, *[pb.TaskSpec(pool="small")] * 3)
    assert [word(client.get(member.id).status) for member in reply.tasks] == ["ready"] * 3


def test_the_largest_batch_and_one_more(client):
    assert len(submit(client, *[pb.TaskSpec()] * 1_000).tasks) == 1_000
    with refused(Status.INVALID_ARGUMENT, "1001", "max_tasks_per_batch"):
        submit(client, *[pb.TaskSpec()] * 1_001)


def test_batches_at_once_through_asyncio(server):
    async def scenario():
        async with grpc.aio.insecure_channel(server.address) as channel:
            tasks = stubs.TasksStub(channel)
            replies = await asyncio.gather(
                *(
                    tasks.SubmitBatch(
                        pb.SubmitBatchRequest(
                            tasks=[pb.TaskSpec(pool="aio", key="shared"), pb.TaskSpec(pool="aio", key=f"own{n}")]
                        ),
                        timeout=HANG,
                    )
                    for n in range(30)
                )
            )
        assert len({reply.tasks[0].id for reply in replies}) == 1
        assert sum(not reply.tasks[0].duplicate for reply in replies) == 1
        assert len({reply.tasks[1].id for reply in replies}) == 30

    asyncio.run(asyncio.wait_for(scenario(), 3 * HANG))


def test_a_batch_that_was_acknowledged_survives_kill_9(start):
    server = start("sqlite")
    with connect(server.address) as client:
        ids = [member.id for member in submit(client, *(pb.TaskSpec(key=f"k{n}") for n in range(100))).tasks]
    server.kill()
    server.start()
    with connect(server.address) as client:
        page = client.tasks.ListTasks(pb.ListTasksRequest(), timeout=HANG)
        assert [info.id for info in page.tasks] == ids
