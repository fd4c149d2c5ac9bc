"""What is there after a restart on SQLite: finished tasks with their outputs, waiting ones, attempts that ran."""

import sqlite3
import time
from contextlib import closing

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, refused, retry, wait_until, word
from tests.acceptance.server import ROOT, Server, free_port
from tests.acceptance.workers import Worker, serving


@pytest.fixture(params=["stop", "kill"])
def end(request):
    """The two ways in which a process ends."""
    return request.param


def test_finished_tasks_answer_as_before(start, end):
    server = start("sqlite")
    with connect(server.address) as client, Worker(client.channel, slots=4) as worker:
        good = client.submit(key="good", kind="k", priority=pb.PRIORITY_HIGH, payload=b"p", retry=retry(4)).id
        worker.fail(worker.lease().lease, "first try")
        worker.complete(worker.lease().lease, b"\x00 output", "application/x")
        client.wait(good)
        bad = client.submit(key="bad").id
        worker.fail(worker.lease().lease, "no good ü", permanent=True)
        client.wait(bad)
        empty = client.submit(key="empty").id
        worker.complete(worker.lease().lease)
        client.wait(empty)
        dead = client.submit(key="dead", retry=retry(1)).id
        worker.fail(worker.lease().lease, "once")
        client.wait(dead)
        gone = client.submit(key="gone").id
        client.cancel(gone)
        before = {task_id: (client.get(task_id), client.wait(task_id)) for task_id in (good, bad, empty, dead, gone)}
    getattr(server, end)()
    server.start()
    with connect(server.address) as client:
        for task_id, (info, result) in before.items():
            assert client.get(task_id) == info
            assert client.get(info.key) == info
            assert client.wait(task_id) == result
            assert client.wait(info.key) == result
            assert not client.cancel(task_id)
            again = client.submit(wait=True, key=info.key)
            assert (again.id, again.duplicate, again.result) == (task_id, True, result)
        assert client.wait(good).output == b"\x00 output"
        assert client.wait(empty).HasField("output")
        assert client.get(good).attempt == 2
        assert client.submit().id > gone


def test_waiting_tasks_keep_their_order_key_and_everything(start, end):
    server = start("sqlite")
    with connect(server.address) as client:
        ids = [
            client.submit(
                key=f"k{number}", payload=b"%d" % number, content_type="text/plain", kind="kind", timeout_s=7,
                tags={"n": str(number)}, priority=pb.PRIORITY_LOW, retry=retry(9),
            ).id
            for number in range(20)
        ]  # fmt: skip
        cancelled = ids.pop(7)
        client.cancel(cancelled)
        before = [client.get(task_id) for task_id in ids]
    getattr(server, end)()
    server.start()
    with connect(server.address) as client:
        assert [client.get(task_id) for task_id in ids] == before
        assert client.status(cancelled) == "cancelled"
        assert client.submit(key="k3").id == ids[3]
        with Worker(client.channel, slots=1) as worker:
            for task_id in ids:
                lease = worker.lease()
                assert lease.task_id == task_id
                assert (lease.attempt, lease.timeout_s, lease.kind, lease.content_type) == (1, 7, "kind", "text/plain")
                assert lease.tags["n"] == lease.payload.decode() == lease.key[1:]
                assert lease.priority == pb.PRIORITY_LOW
                worker.complete(lease.lease)


def test_a_running_attempt_is_lost_and_counts(start):
    server = start("sqlite")
    with connect(server.address) as client, Worker(client.channel, slots=2) as worker:
        often = client.submit(key="often", retry=retry(3)).id
        once = client.submit(key="once", retry=retry(1)).id
        leases = {worker.lease().lease, worker.lease().lease}
        server.kill()
        assert worker.ended()[0] is Status.UNAVAILABLE
    server.start()
    with connect(server.address) as client:
        assert word(client.wait(once).status) == "dead_lettered"
        assert client.get(once).attempt == 1
        assert client.get(once).HasField("started_unix_ns")
        with Worker(client.channel) as worker:
            lease = worker.lease()
            assert (lease.task_id, lease.attempt) == (often, 2)
            assert lease.lease not in leases
            for stale in leases:
                worker.complete(stale, b"of the old server")
            worker.complete(lease.lease, b"of the new one")
            assert client.wait(often).output == b"of the new one"


def test_a_backoff_goes_on(start, end):
    server = start("sqlite")
    with connect(server.address) as client, Worker(client.channel) as worker:
        policy = pb.RetryPolicy(max_attempts=2, initial_backoff_s=2, max_backoff_s=2, multiplier=1)
        task_id = client.submit(retry=policy).id
        worker.fail(worker.lease().lease, "later")
        failed = time.time()
        wait_until(lambda: client.status(task_id) == "retrying", "retrying")
    getattr(server, end)()
    server.start()
    with connect(server.address) as client, Worker(client.channel) as worker:
        if time.time() - failed < 1.5:
            assert client.status(task_id) == "retrying"
            assert client.get(task_id).message == "later"
        lease = worker.lease()
        assert lease.attempt == 2
        assert time.time() - failed >= 2 - 0.05
        worker.complete(lease.lease)


def test_a_client_and_a_worker_that_reconnect_by_themselves_find_the_new_process(start):
    server = start("sqlite", port=free_port())
    with connect(server.address) as client:
        task_id = client.submit(key="survivor", payload=b"s").id
        server.kill()
        with refused(Status.UNAVAILABLE):
            client.get(task_id)
        server.start()
        request = pb.GetRequest(task=pb.TaskRef(key="survivor"))
        assert client.tasks.Get(request, timeout=30, wait_for_ready=True).id == task_id
        with serving(client.channel):
            assert client.wait(task_id).output == b"s"


def test_ids_of_the_memory_store_are_not_given_twice(start):
    server = start("memory")
    with connect(server.address) as client:
        old = client.submit().id
    server.kill()
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second, "ids begin with the second of the start")
    server.start()
    with connect(server.address) as client:
        with refused(Status.NOT_FOUND):
            client.get(old)
        assert client.submit().id != old


def test_outputs_that_left_the_cache_come_from_the_store(start):
    server = start("sqlite", outputs="cache_entries = 1\ninfo_entries = 1")
    with connect(server.address) as client, serving(client.channel):
        ids = [client.submit(wait=True, payload=b"%d" % number, key=f"k{number}").id for number in range(20)]
        for number, task_id in enumerate(ids):
            for ref in (task_id, f"k{number}"):
                assert client.wait(ref).output == b"%d" % number
                info = client.get(ref)
                assert (info.id, info.output_available, info.attempt, info.kind) == (task_id, True, 1, "default")
                assert info.created_unix_ns <= info.started_unix_ns <= info.finished_unix_ns


def test_outputs_that_left_the_cache_of_the_memory_store_are_gone_but_not_their_end(start):
    server = start("memory", outputs="cache_entries = 1\ninfo_entries = 1")
    with connect(server.address) as client, serving(client.channel):
        ids = [client.submit(wait=True, payload=b"x", key=f"k{number}").id for number in range(5)]
        for ref in (ids[0], "k0"):
            result = client.wait(ref)
            assert (word(result.status), result.output_available) == ("succeeded", False)
            assert not result.HasField("output")
            assert client.status(ref) == "succeeded"


def test_a_database_of_the_previous_schema_goes_on_with_its_tasks(tmp_path):
    """As after an upgrade: what waited, was retried or ran is run; what had ended is known. Twice."""
    script = ROOT / "tests" / "stores" / "schema_1.sql"
    server = Server(tmp_path, "sqlite")
    now = time.time_ns()
    with closing(sqlite3.connect(server.database)) as database, database:
        database.executescript(script.read_text(encoding="utf-8"))
        database.execute("UPDATE cronoq_trio_states SET due = ?1, finished = ?1 * (finished > 0)", (now,))
    first = 1 << 48 | 1
    attempts = {0: 1, 1: 3, 2: 2, 7: 1, 8: 1}
    with server:
        with connect(server.address) as client:
            assert client.submit(key="key-7").id == first + 7
            assert client.submit(key="key-3").id == first + 3
            assert word(client.wait(first + 5).status) == "failed"
            assert (word(client.wait("key-3").status), client.wait("key-3").output) == ("succeeded", b"small")
            assert client.wait(first + 4).output == bytes(range(256)) * 5
            with serving(client.channel):
                for number in attempts:
                    result = client.wait(first + number)
                    assert (word(result.status), result.output[:7]) == ("succeeded", b"payload" * (number != 8))
        assert server.stop() == 0
        server.start()
        with connect(server.address) as client:
            assert {number: client.get(first + number).attempt for number in attempts} == attempts
            assert [info.id - first for info in client.tasks.ListTasks(pb.ListTasksRequest()).tasks] == list(range(9))
        assert server.stop() == 0
    server.check_log()
