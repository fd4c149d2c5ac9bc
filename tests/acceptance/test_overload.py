"""Pools that are full: each policy, seen by callers over the network, on both stores."""

from contextlib import contextmanager

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, submission, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

CRITICAL, HIGH, NORMAL, LOW = pb.PRIORITY_CRITICAL, pb.PRIORITY_HIGH, pb.PRIORITY_NORMAL, pb.PRIORITY_LOW
POLICIES = ("reject", "wait", "shed_lowest", "shed_oldest")
POOLS = '[[pools]]\nname = "default"\n' + "".join(
    f'[[pools]]\nname = "{policy}"\nmax_pending = 3\noverflow = "{policy}"\n' for policy in POLICIES
)
SERVER = {"pools": POOLS}


@pytest.fixture
def client(server):
    """Each test finds the pools empty."""
    with connect(server.address) as client:
        yield client
        for info in client.tasks.ListTasks(pb.ListTasksRequest(limit=1000), timeout=HANG).tasks:
            client.cancel(info.id)


@contextmanager
def watching(client):
    """The events of a Watch that has begun."""
    call = client.tasks.Watch(pb.WatchRequest(), timeout=HANG)
    call.initial_metadata()
    yield call
    call.cancel()


def fill(client, pool, *priorities):
    return [client.submit(pool=pool, priority=priority).id for priority in priorities]


@pytest.mark.parametrize("pool", POLICIES)
def test_a_pool_that_is_full_of_its_equals_refuses_at_once(client, pool):
    fill(client, pool, NORMAL, NORMAL, NORMAL)
    for wait in (False, True):
        with refused(Status.RESOURCE_EXHAUSTED, pool):
            client.submit(wait=wait, pool=pool)
    with Worker(client.channel, pool=pool) as worker:
        lease = worker.lease()
        assert client.status(client.submit(pool=pool).id) == "ready", "what runs is not counted"
        worker.complete(lease.lease)


def refused_batch(client, *specs):
    """The batch is refused within the two seconds that its caller has; the member that is named."""
    with refused(Status.RESOURCE_EXHAUSTED) as caught:
        client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=[pb.TaskSpec(**spec) for spec in specs]), timeout=2)
    index = dict(caught.value.trailing_metadata())["cronoq-batch-index"]
    assert caught.value.details().startswith(f"task[{index}]: pool ")
    return int(index)


def test_nobody_is_parked_by_overflow_wait(client, server):
    """Callers over the network are told at once, with and without `wait`, alone and in a batch (server.md 14.7)."""
    before = len(client.tasks.ListTasks(pb.ListTasksRequest(pools=["wait"]), timeout=HANG).tasks)
    fill(client, "wait", NORMAL)
    assert refused_batch(client, *[dict(pool="wait")] * 3) == 2
    assert refused_batch(client, dict(pool="default"), *[dict(pool="wait")] * 4) == 3, "more than it ever holds"
    fill(client, "wait", NORMAL, NORMAL)
    assert refused_batch(client, dict(pool="wait")) == 0
    for wait in (False, True):
        with refused(Status.RESOURCE_EXHAUSTED, "max_pending is 3"):
            client.tasks.Submit(submission(wait, pool="wait", priority=CRITICAL), timeout=2)
    calls = [client.tasks.Submit.future(submission(pool="wait"), timeout=2) for _ in range(50)]
    assert {call.exception(HANG).code() for call in calls} == {Status.RESOURCE_EXHAUSTED}
    assert server.statistics()["waiting_submissions"] == "0"
    with serving(client.channel, pool="wait"):
        wait_until(lambda: client.snapshot().live_tasks == 0, "the three have run")
    assert len(client.tasks.ListTasks(pb.ListTasksRequest(pools=["wait"]), timeout=HANG).tasks) == before + 3


def test_shed_lowest_evicts_the_latest_of_the_lowest_class(client):
    normal, first, second = fill(client, "shed_lowest", NORMAL, LOW, LOW)
    with watching(client) as events:
        high = client.submit(pool="shed_lowest", priority=HIGH).id
        event = next(events)
    assert (event.id, word(event.status), event.pool) == (second, "shed", "shed_lowest")
    result = client.wait(second)
    assert word(result.status) == "shed" and result.message and client.get(second).message == result.message
    with refused(Status.RESOURCE_EXHAUSTED, "shed_lowest"):
        client.submit(pool="shed_lowest", priority=LOW)
    other = client.submit(pool="shed_lowest").id
    third = client.submit(pool="shed_lowest", priority=CRITICAL).id
    statuses = {task_id: client.status(task_id) for task_id in (normal, first, second, high, other, third)}
    assert statuses == {
        normal: "ready", first: "shed", second: "shed", high: "ready", other: "shed", third: "ready"
    }  # fmt: skip
    assert client.snapshot().totals.shed >= 3


def test_shed_oldest_evicts_the_earliest_low_one(client):
    normal, first, second = fill(client, "shed_oldest", NORMAL, LOW, LOW)
    newest = client.submit(pool="shed_oldest", priority=LOW).id
    assert [client.status(task_id) for task_id in (normal, first, second, newest)] == [
        *("ready", "shed", "ready", "ready")
    ]
    for victim in (second, newest):
        client.submit(pool="shed_oldest")
        assert client.status(victim) == "shed"
    with refused(Status.RESOURCE_EXHAUSTED, "shed_oldest"):
        client.submit(pool="shed_oldest", priority=CRITICAL)


@pytest.mark.parametrize("pool", ["shed_lowest", "shed_oldest"])
def test_what_waits_for_others_or_runs_is_never_evicted(client, pool):
    with Worker(client.channel, pool=pool, slots=1) as worker:
        (running,) = fill(client, pool, LOW)
        lease = worker.lease()
        edge = [pb.Dep(target=reference(running))]
        blocked = [client.submit(pool=pool, priority=LOW, deps=edge).id for _ in range(3)]
        with refused(Status.RESOURCE_EXHAUSTED, pool):
            client.submit(pool=pool, priority=CRITICAL)
        assert {client.status(task_id) for task_id in blocked} == {"blocked"}
        worker.complete(lease.lease)
        assert word(client.wait(running).status) == "succeeded"


def test_what_depends_on_an_evicted_task_is_skipped(client):
    victim = client.submit(pool="shed_lowest", priority=LOW).id
    child = client.submit(deps=[pb.Dep(target=reference(victim))]).id
    fill(client, "shed_lowest", HIGH, HIGH, HIGH)
    assert client.status(victim) == "shed"
    assert word(client.wait(child).status) == "skipped" and "shed" in client.wait(child).message


def test_a_batch_evicts_nothing(client):
    ids = fill(client, "shed_lowest", LOW, LOW)
    specs = [pb.TaskSpec(pool="shed_lowest", priority=HIGH)] * 2
    with refused(Status.RESOURCE_EXHAUSTED, "task[1]", "shed_lowest"):
        client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=specs), timeout=HANG)
    assert [client.status(task_id) for task_id in ids] == ["ready", "ready"]


def test_a_duplicate_needs_no_room(client):
    first = client.submit(pool="reject", key="there").id
    fill(client, "reject", NORMAL, NORMAL)
    reply = client.submit(pool="reject", key="there")
    assert (reply.id, reply.duplicate) == (first, True)


def test_an_eviction_that_was_acknowledged_survives_kill_9(start):
    server = start("sqlite", pools=POOLS)
    with connect(server.address) as client:
        victim, *_ = fill(client, "shed_lowest", LOW, NORMAL, NORMAL)
        newcomer = client.submit(pool="shed_lowest", priority=HIGH).id
        message = client.wait(victim).message
    server.kill()
    server.start()
    with connect(server.address) as client:
        assert (word(client.wait(victim).status), client.wait(victim).message) == ("shed", message)
        assert client.status(newcomer) == "ready"
        with refused(Status.RESOURCE_EXHAUSTED, "shed_lowest"):
            client.submit(pool="shed_lowest")
