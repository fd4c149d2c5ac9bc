"""Every unary call of this slice through grpcio's synchronous API, on both stores."""

import time

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, retry, submission, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

# Each test has a pool of its own, so that no other test's worker takes its tasks.
POOLS = ("submit", "key", "wait", "cancel", "order", "info", "fail", "spent", "withdrawn", "snapshot", "empty")
SERVER = {
    "pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\nlease_ttl_s = 20\n' for name in ("default", *POOLS))
}


def test_a_task_goes_in_and_its_result_comes_out(client):
    with serving(client.channel, pool="submit"):
        reply = client.submit(pool="submit", payload=b"hello")
        assert reply.id > 0
        assert not reply.duplicate
        assert not reply.HasField("result")
        result = client.wait(reply.id)
    assert (result.id, word(result.status), result.output) == (reply.id, "succeeded", b"hello")
    assert result.output_available
    assert result.message == ""


def test_submit_can_wait_for_the_result(client):
    with serving(client.channel, pool="submit"):
        reply = client.submit(wait=True, pool="submit", payload=b"\x00\xff" * 50)
    assert word(reply.result.status) == "succeeded"
    assert reply.result.id == reply.id
    assert reply.result.output == b"\x00\xff" * 50


def test_an_empty_output_is_present(client):
    with serving(client.channel, pool="empty"):
        result = client.submit(wait=True, pool="empty").result
    assert result.HasField("output")
    assert result.output == b""
    assert result.output_available


def test_a_task_without_anything_goes_to_the_default_pool(client):
    info = client.get(client.tasks.Submit(pb.SubmitRequest(task=pb.TaskSpec()), timeout=HANG).id)
    assert (info.pool, info.kind, info.key, word(info.status)) == ("default", "default", "", "ready")
    assert (info.attempt, info.max_attempts, info.priority) == (0, 3, pb.PRIORITY_NORMAL)


def test_a_number_that_is_0_in_the_retry_policy_takes_the_pools_value(client):
    task_id = client.submit(retry=pb.RetryPolicy(initial_backoff_s=0.1)).id
    assert client.get(task_id).max_attempts == 3


def test_a_key_makes_one_task_however_often_it_is_submitted(client):
    first = client.submit(pool="key", key="once", payload=b"1")
    again = client.submit(pool="key", key="once", payload=b"2")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.id == again.id
    with serving(client.channel, pool="key"):
        waited = client.submit(wait=True, pool="key", key="once", payload=b"3")
    assert waited.duplicate
    assert waited.result.output == b"1"
    after = client.submit(pool="key", key="once")
    assert (after.id, after.duplicate) == (first.id, True)
    assert client.wait("once").output == b"1"
    assert client.get("once").id == first.id


def test_a_duplicate_is_found_before_the_rest_of_the_task_is_looked_at(client):
    first = client.submit(pool="key", key="other-pool")
    again = client.submit(pool="nowhere", key="other-pool")
    assert (again.id, again.duplicate) == (first.id, True)


def test_get_tells_the_whole_life(client):
    before = time.time_ns()
    task_id = client.submit(
        pool="info", key="life", kind="mail", priority=pb.PRIORITY_HIGH, retry=retry(2), payload=b"x"
    ).id
    info = client.get("life")
    assert (info.id, info.pool, info.key, info.kind, info.priority) == (task_id, "info", "life", "mail", 2)
    assert (word(info.status), info.attempt, info.max_attempts) == ("ready", 0, 2)
    assert not info.HasField("started_unix_ns")
    assert not info.HasField("finished_unix_ns")
    with Worker(client.channel, pool="info") as worker:
        lease = worker.lease()
        running = wait_until(lambda: client.status(task_id) == "running" and client.get(task_id), "running")
        assert running.attempt == 1
        worker.fail(lease.lease, "no luck")
        lease = worker.lease()
        assert lease.attempt == 2
        assert client.get(task_id).message == "no luck"
        worker.complete(lease.lease, b"done")
        assert client.wait(task_id).output == b"done"
    info = client.get(task_id)
    assert (word(info.status), info.attempt, info.output_available) == ("succeeded", 2, True)
    assert info.message == "", "the error of an earlier attempt is none of a task that succeeded"
    assert before <= info.created_unix_ns <= info.started_unix_ns <= info.finished_unix_ns <= time.time_ns()


def test_waiting_runs_out_and_the_task_goes_on(client):
    started = time.monotonic()
    with refused(Status.DEADLINE_EXCEEDED) as caught:
        client.submit(wait=True, wait_timeout=0.2, pool="wait", key="slow", payload=b"s")
    assert time.monotonic() - started >= 0.2
    told = dict(caught.value.trailing_metadata())
    task_id = int(told["cronoq-task-id"])
    assert client.get("slow").id == task_id
    with refused(Status.DEADLINE_EXCEEDED):
        client.wait(task_id, timeout=0.1)
    with refused(Status.DEADLINE_EXCEEDED):
        client.wait(task_id, timeout=0)
    with serving(client.channel, pool="wait"):
        assert client.wait("slow").output == b"s"


def test_many_wait_for_one_task(client):
    task_id = client.submit(pool="wait", key="awaited", payload=b"one").id
    waits = [client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)), timeout=HANG) for _ in range(50)]
    with serving(client.channel, pool="wait"):
        assert {wait.result(HANG).output for wait in waits} == {b"one"}


def test_cancel_ends_a_waiting_task(client):
    task_id = client.submit(pool="cancel", key="unwanted").id
    wait = client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)), timeout=HANG)
    assert client.cancel("unwanted")
    result = wait.result(HANG)
    assert (word(result.status), result.output_available, result.HasField("output")) == ("cancelled", False, False)
    assert result.message
    assert not client.cancel(task_id), "it had ended before"
    assert client.get(task_id).attempt == 0
    with serving(client.channel, pool="cancel"):
        assert word(client.submit(wait=True, pool="cancel").result.status) == "succeeded"


def test_cancel_stops_a_running_attempt(client):
    before = client.snapshot().totals.stale_completions
    task_id = client.submit(pool="cancel").id
    with Worker(client.channel, pool="cancel") as worker:
        lease = worker.lease()
        assert lease.task_id == task_id
        assert client.cancel(task_id)
        abort = worker.receive("abort")
        assert (abort.lease, abort.reason) == (lease.lease, "cancelled")
        assert client.status(task_id) == "cancelled"
        worker.cancelled(lease.lease)
        worker.complete(worker_probe(client, worker))
        assert client.snapshot().totals.stale_completions == before


def worker_probe(client, worker):
    """A lease of another task: what the worker said before it has been read when this one arrives."""
    client.submit(pool="cancel")
    return worker.lease().lease


def test_the_worker_may_cancel_the_attempt(client):
    task_id = client.submit(pool="withdrawn").id
    with Worker(client.channel, pool="withdrawn") as worker:
        worker.cancelled(worker.lease().lease)
        assert word(client.wait(task_id).status) == "cancelled"


def test_a_permanent_failure_ends_the_task(client):
    task_id = client.submit(pool="fail").id
    with Worker(client.channel, pool="fail") as worker:
        worker.fail(worker.lease().lease, "no such address", permanent=True)
        result = client.wait(task_id)
    assert (word(result.status), result.message) == ("failed", "no such address")


def test_attempts_run_out(client):
    task_id = client.submit(pool="spent", retry=retry(3)).id
    with Worker(client.channel, pool="spent") as worker:
        for attempt in (1, 2, 3):
            lease = worker.lease()
            assert lease.attempt == attempt
            worker.fail(lease.lease, f"attempt {attempt} failed")
        result = client.wait(task_id)
    assert (word(result.status), result.message) == ("dead_lettered", "attempt 3 failed")


def test_retry_after_is_kept(client):
    client.submit(pool="spent", retry=retry(2, backoff=0.001))
    with Worker(client.channel, pool="spent") as worker:
        first = worker.lease()
        failed = time.monotonic()
        worker.fail(first.lease, "busy", retry_after=0.4)
        worker.complete(worker.lease().lease)
        assert time.monotonic() - failed >= 0.4


def test_better_classes_go_first_and_equals_in_their_order(client):
    for name, priority in (("l", 4), ("n1", 3), ("h", 2), ("n2", 0), ("c", 1)):
        client.submit(pool="order", key=name, priority=priority)
    with Worker(client.channel, pool="order") as worker:
        order = []
        for _ in range(5):
            lease = worker.lease()
            order.append((lease.key, lease.priority))
            worker.complete(lease.lease)
    assert order == [("c", 1), ("h", 2), ("n1", 3), ("n2", 3), ("l", 4)]


def test_a_lease_says_everything_that_the_task_said(client):
    client.submit(
        pool="info", payload=b"{}", content_type="application/json", kind="k", key="said", timeout_s=12.5,
        priority=pb.PRIORITY_LOW, tags={"team": "core", "für": "ü"},
    )  # fmt: skip
    with Worker(client.channel, pool="info") as worker:
        lease = worker.lease()
        worker.complete(lease.lease)
    assert (lease.payload, lease.content_type, lease.kind, lease.key) == (b"{}", "application/json", "k", "said")
    assert (lease.timeout_s, lease.pool, lease.priority, lease.attempt) == (12.5, "info", pb.PRIORITY_LOW, 1)
    assert dict(lease.tags) == {"team": "core", "für": "ü"}
    assert lease.lease_ttl_s == 20
    assert not lease.HasField("deadline_unix_ns")


def test_the_snapshot_counts(client):
    before = client.snapshot().totals
    for priority in (1, 3, 3, 4):
        client.submit(pool="snapshot", priority=priority)
    with Worker(client.channel, pool="snapshot", slots=1) as worker:
        lease = worker.lease()
        wait_until(lambda: client.snapshot().running >= 1, "running")
        pool = pool_of(client.snapshot(), "snapshot")
        assert (pool.capacity, pool.busy, pool.workers_connected) == (1, 1, 1)
        assert list(pool.pending_by_class) == [0, 0, 2, 1]
        assert [(dict(g.labels), g.capacity, g.busy) for g in pool.groups] == [({}, 1, 1)]
        worker.complete(lease.lease)
        for _ in range(3):
            worker.complete(worker.lease().lease)
        wait_until(lambda: pool_of(client.snapshot(), "snapshot").busy == 0, "all done")
    pool = pool_of(client.snapshot(), "snapshot")
    assert (pool.dispatched, pool.succeeded, pool.failed, pool.priority_adherence) == (4, 4, 0, 1.0)
    assert 0 < pool.utilization <= 1
    assert 0 < pool.wait_p50_s <= pool.wait_p90_s <= pool.wait_p99_s < HANG
    after = client.snapshot().totals
    for field in ("submitted", "dispatched", "succeeded"):
        assert getattr(after, field) - getattr(before, field) == 4
    wait_until(lambda: pool_of(client.snapshot(), "snapshot").workers_connected == 0, "the worker left")


def pool_of(snapshot, name):
    (pool,) = [pool for pool in snapshot.pools if pool.name == name]
    return pool


@pytest.mark.parametrize("method", ["get", "wait", "cancel"])
@pytest.mark.parametrize("ref", [77, 2**63, 2**64 - 1, "nobody-has-this"])
def test_an_unknown_task_is_not_found(client, method, ref):
    with refused(Status.NOT_FOUND, str(ref)):
        getattr(client, method)(ref)


def test_the_clients_deadline_ends_the_wait(server):
    with connect(server.address) as client:
        task_id = client.submit(pool="wait").id
        with refused(Status.DEADLINE_EXCEEDED):
            client.tasks.Wait(pb.WaitRequest(task=reference(task_id)), timeout=0.2)
        with refused(Status.DEADLINE_EXCEEDED):
            client.tasks.Submit(submission(wait=True, pool="wait"), timeout=0.2)
        assert client.cancel(task_id)


def test_a_cancelled_call_leaves_the_task_alone(client):
    task_id = client.submit(pool="wait", payload=b"stays").id
    wait = client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)))
    submit = client.tasks.Submit.future(submission(wait=True, pool="wait", key="left-behind"))
    wait_until(lambda: exists(client, "left-behind"), "submitted")
    wait.cancel()
    submit.cancel()
    for call in (wait, submit):
        with pytest.raises(grpc.FutureCancelledError):
            call.result(HANG)
    with serving(client.channel, pool="wait"):
        assert client.wait(task_id).output == b"stays"
        assert word(client.wait("left-behind").status) == "succeeded"


def exists(client, ref):
    try:
        return client.get(ref)
    except grpc.RpcError as error:
        assert error.code() is Status.NOT_FOUND
        return None
