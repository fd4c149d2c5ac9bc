"""A disk that is full: new work is refused, nothing is falsely acknowledged, and with room it goes on by itself."""

import resource
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, retry, submission, wait_until, word
from tests.acceptance.ledger import record
from tests.acceptance.server import Server
from tests.acceptance.workers import Worker, serving
from tests.small_disk import small_disk

PAYLOAD = bytes(20_000)
RECOVERS = 60.0
"""Seconds until work is taken again; at most 5 s, the longest pause between two tries of a commit, were measured."""


class Limited:
    """No file of the server may grow any more: RLIMIT_FSIZE, set from outside."""

    def __init__(self, server):
        self.server = server

    def fill(self):
        largest = max(path.stat().st_size for path in self.server.folder.iterdir())
        _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (largest + 100_000, hard))

    def free(self):
        _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (hard, hard))


class Filled:
    """The file system has no free block: a small one of its own, filled by another file."""

    def __init__(self, server):
        self.filler = server.database.with_name("filler")

    def fill(self):
        with self.filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4_096)):
                    pass
            except OSError:
                pass

    def free(self):
        self.filler.unlink()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process: Linux only")
def test_a_full_disk_costs_nothing_that_was_acknowledged(tmp_path):
    """Two kinds at once: files that may not grow, and, where root runs this, a file system without a free block."""
    limited, filled = Server(tmp_path / "limited", "sqlite"), Server(tmp_path / "filled", "sqlite")
    for server in (limited, filled):
        server.folder.mkdir()
    with small_disk("4m") as disk, ThreadPoolExecutor() as threads:
        runs = [threads.submit(survives_a_full_disk, limited, Limited, "no file may grow (RLIMIT_FSIZE)")]
        if disk is not None:
            filled.database = disk / "tasks.db"
            runs.append(threads.submit(survives_a_full_disk, filled, Filled, "no free block (tmpfs of 4 MB)"))
        for run in runs:
            run.result()


def survives_a_full_disk(server, disk_of, name):
    with server:
        disk = disk_of(server)
        with connect(server.address) as client, connect(server.address) as other:
            acknowledged = {f"before-{n}": client.submit(key=f"before-{n}", payload=PAYLOAD).id for n in range(10)}
            with Worker(other.channel, slots=1) as worker:
                held = worker.lease()
                disk.fill()
                refused = fill_up(client, acknowledged)
                worker.complete(held.lease, b"done while it was full")
                assert not tells_the_end(client, held.task_id), "it is not stored"
                assert not takes_work(client)
                disk.free()
                wait_until(lambda: takes_work(client), "work is taken again", bound=RECOVERS)
                result = client.wait(held.task_id)
                assert (word(result.status), result.output) == ("succeeded", b"done while it was full")
            for key, task_id in acknowledged.items():
                assert client.get(key).id == task_id
        server.kill()  # what was acknowledged must be in the file, not in the memory of the process
        server.start()
        with connect(server.address) as client, serving(client.channel):
            for key, task_id in acknowledged.items():
                assert client.get(key).id == task_id
                assert word(client.wait(task_id).status) == "succeeded"
            for key in refused:
                client.submit(key=key)  # never acknowledged: absent or whole
                assert word(client.wait(key).status) == "succeeded"
        assert server.stop() == 0
    server.check_log()
    record(f"full disk, {name}", acknowledged=len(acknowledged), not_acknowledged=len(refused))


def fill_up(client, acknowledged):
    """Submit until the server refuses; the keys that got no answer or a refusal."""
    refused = []
    for number in range(10_000):
        key = f"full-{number}"
        try:
            reply = client.tasks.Submit(submission(key=key, payload=PAYLOAD, retry=retry(3)), timeout=2)
        except grpc.RpcError as error:
            refused.append(key)
            if error.code() is Status.UNAVAILABLE:
                return refused
            assert error.code() is Status.DEADLINE_EXCEEDED, error
        else:
            acknowledged[key] = reply.id
    raise AssertionError("the disk never became full")


def tells_the_end(client, task_id):
    """Whether Get shows a final status within a second. It may also wait until the end is stored."""
    try:
        request = pb.GetRequest(task=reference(task_id))
        return client.tasks.Get(request, timeout=1).status >= pb.TASK_STATUS_SUCCEEDED
    except grpc.RpcError as error:
        assert error.code() is Status.DEADLINE_EXCEEDED, error
        return False


def takes_work(client):
    try:
        return client.tasks.Submit(submission(key="after"), timeout=5).id
    except grpc.RpcError as error:
        assert error.code() in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED), error
        return 0
