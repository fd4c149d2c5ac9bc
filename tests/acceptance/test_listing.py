"""Pages of tasks and the list of workers through grpcio, on both stores."""

import time

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, refused, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

POOLS = ("pages", "filters", "workers", "bytes")
SERVER = {
    "limits": "max_list = 50\nmax_message_bytes = 65536",
    "pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in ("default", *POOLS)),
}


def page(client, **fields):
    return client.tasks.ListTasks(pb.ListTasksRequest(**fields), timeout=HANG)


def pages(client, **fields):
    """Every task, page by page."""
    found, after = [], 0
    while True:
        answer = page(client, after=after, **fields)
        found += answer.tasks
        if not answer.next_after:
            return found
        assert answer.next_after > after
        after = answer.next_after


def shown(tasks):
    return [(info.key, word(info.status)) for info in tasks]


def test_pages_are_in_id_order_and_hold_live_and_finished_tasks(client):
    ids = [client.submit(pool="pages", key=f"p{n}").id for n in range(12)]
    client.cancel("p3")
    client.cancel("p8")
    assert [info.id for info in page(client, pools=["pages"]).tasks] == ids
    first = page(client, pools=["pages"], limit=5)
    assert [info.key for info in first.tasks] == [f"p{n}" for n in range(5)] and first.next_after == ids[4]
    for limit in (1, 5, 12, 0):
        everything = pages(client, pools=["pages"], limit=limit)
        assert shown(everything) == [(f"p{n}", "cancelled" if n in (3, 8) else "ready") for n in range(12)]
    assert list(everything) == [client.get(info.id) for info in everything]
    assert list(first.unavailable_shards) == []


def test_a_page_of_exactly_all_tasks_is_the_last_one(client):
    count = len(pages(client, pools=["pages"])) or 1
    assert page(client, pools=["pages"], limit=count).next_after == 0


def test_filters(client):
    with serving(client.channel, pool="filters"):
        done = client.submit(wait=True, pool="filters", key="f0", payload=b"x")
    waiting = client.submit(pool="filters", key="f1")
    client.cancel(client.submit(pool="filters", key="f2").id)
    wanted = {
        (pb.TASK_STATUS_SUCCEEDED,): ["f0"],
        (pb.TASK_STATUS_READY,): ["f1"],
        (pb.TASK_STATUS_READY, pb.TASK_STATUS_CANCELLED): ["f1", "f2"],
        (pb.TASK_STATUS_FAILED,): [],
        (): ["f0", "f1", "f2"],
    }
    for statuses, keys in wanted.items():
        assert [info.key for info in pages(client, pools=["filters"], statuses=statuses)] == keys
    info = page(client, pools=["filters"]).tasks[0]
    assert (info.id, info.output_available, info.message) == (done.id, True, "")
    assert page(client, pools=["filters"], after=waiting.id).tasks[0].key == "f2"


def test_the_default_and_the_largest_page(client):
    client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=[pb.TaskSpec()] * 60), timeout=HANG)
    assert len(page(client, pools=["default"]).tasks) == 50, "100, capped by max_list"
    assert len(page(client, pools=["default"], limit=1_000_000).tasks) == 50


def test_pages_are_cut_by_bytes(client):
    def fail(lease):
        return {"fail": pb.Fail(lease=lease.lease, message="m" * 8_000, permanent=True)}

    with serving(client.channel, fail, pool="bytes"):
        ids = [client.submit(wait=True, pool="bytes").id for _ in range(20)]
    first = page(client, pools=["bytes"])
    assert 50_000 < first.ByteSize() <= 65_536
    assert len(first.tasks) < 20 and first.next_after == first.tasks[-1].id
    assert [info.id for info in pages(client, pools=["bytes"])] == ids


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        (dict(pools=["nowhere"]), Status.NOT_FOUND, "nowhere"),
        (dict(pools=["p" * 65]), Status.INVALID_ARGUMENT, "pools[0]"),
        (dict(statuses=[pb.TASK_STATUS_UNSPECIFIED]), Status.INVALID_ARGUMENT, "statuses"),
        (dict(statuses=[77]), Status.INVALID_ARGUMENT, "statuses"),
        (dict(pools=["default"] * 1_001), Status.INVALID_ARGUMENT, "max_tasks_per_batch"),
    ],
)
def test_what_is_refused(client, fields, code, words):
    with refused(code, words):
        page(client, **fields)


def test_finished_tasks_are_listed_by_the_next_server(start):
    server = start("sqlite")
    with connect(server.address) as client:
        with serving(client.channel):
            ids = [client.submit(wait=True, payload=b"x" * n).id for n in (0, 10, 5_000)]
        ids.append(client.submit().id)
    assert server.stop() == 0
    server.start()
    with connect(server.address) as client:
        found = pages(client, limit=2)
        assert [info.id for info in found] == ids
        assert [word(info.status) for info in found] == ["succeeded"] * 3 + ["ready"]
        assert [info.output_available for info in found] == [True, True, True, False]


def test_workers_are_listed(client):
    before = time.time_ns()
    with (
        Worker(client.channel, pool="workers", slots=3, name="one", labels={"gpu": "a100"}) as first,
        Worker(client.channel, pool="workers", slots=1, name="two") as second,
    ):
        client.submit(pool="workers")
        first_or_second = wait_until(
            lambda: next((w for w in client.admin.ListWorkers(pb.Empty(), timeout=HANG).workers if w.busy), None),
            "a busy worker",
        )
        assert first_or_second.name == "two", "the least labelled worker comes first"
        workers = [w for w in client.admin.ListWorkers(pb.Empty(), timeout=HANG).workers if w.pool == "workers"]
        assert [(w.id, w.name, w.slots, dict(w.labels)) for w in workers] == [
            (first.registered.worker_id, "one", 3, {"gpu": "a100"}),
            (second.registered.worker_id, "two", 1, {}),
        ]
        assert before <= workers[0].connected_unix_ns <= workers[1].connected_unix_ns <= time.time_ns()
    wait_until(lambda: not client.admin.ListWorkers(pb.Empty(), timeout=HANG).workers, "no worker")
