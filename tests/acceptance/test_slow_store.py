"""A store that takes its time: calls end by their own bounds, a repeated submit makes one task, reading goes on."""

import sqlite3
import time

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, submission, word
from tests.acceptance.server import HANG
from tests.acceptance.stalls import lock_held
from tests.acceptance.workers import Worker, serving

BOUNDS = "max_wait_s = 0.3\nrequest_timeout_s = 0.4"


def test_a_call_without_a_deadline_ends_at_the_servers_own(start):
    server = start("sqlite", limits=BOUNDS)
    with connect(server.address) as client:
        client.submit(key="before")
        with lock_held(server):
            begun = time.monotonic()
            with refused(Status.CANCELLED):
                client.tasks.Submit(submission(key="held"))
            assert 0.6 <= time.monotonic() - begun < 7
            with refused(Status.DEADLINE_EXCEEDED):
                client.tasks.Submit(submission(key="held"), timeout=0.1)
            assert client.get("before").key == "before"
        assert client.submit(key="held").duplicate, "it was stored as soon as that was possible"
        assert client.snapshot().live_tasks == 2


def test_a_wait_ends_at_the_servers_longest(start):
    server = start("memory", limits=BOUNDS)
    with connect(server.address) as client:
        task_id = client.submit().id
        for timeout in (None, 1_000.0):
            begun = time.monotonic()
            with refused(Status.DEADLINE_EXCEEDED):
                client.tasks.Wait(pb.WaitRequest(task=reference(task_id), timeout_s=timeout))
            assert 0.3 <= time.monotonic() - begun < 3


def test_what_is_not_stored_is_not_told(start):
    """Whoever asks for a task or a result that is on its way into the store waits like the one who caused it."""
    server = start("sqlite")
    with connect(server.address) as client, Worker(client.channel) as worker:
        ended = client.submit(key="ended").id
        lease = worker.lease().lease
        with lock_held(server):
            submit = client.tasks.Submit.future(submission(key="new"), timeout=HANG)
            again = client.tasks.Submit.future(submission(key="new"), timeout=HANG)
            worker.complete(lease, b"output")
            wait = client.tasks.Wait.future(pb.WaitRequest(task=reference(ended)), timeout=HANG)
            cancel = client.tasks.Cancel.future(pb.CancelRequest(task=reference("new")), timeout=HANG)
            with pytest.raises(grpc.FutureTimeoutError):
                wait.result(0.5)
            assert not any(call.done() for call in (submit, again, wait, cancel))
            assert worker.silent()
        assert submit.result(HANG).id == again.result(HANG).id
        assert (submit.result().duplicate, again.result().duplicate) in ((False, True), (True, False))
        assert wait.result(HANG).output == b"output"
        assert cancel.result(HANG).cancelled
        assert word(client.wait("new").status) == "cancelled"


def test_the_content_type_of_an_output_is_stored(start):
    server = start("sqlite")
    with connect(server.address) as client, serving(client.channel):
        small = client.submit(wait=True, payload=b"{}", content_type="application/json").id
        large = client.submit(wait=True, payload=bytes(1 << 20), content_type="image/png").id
    assert server.stop() == 0
    connection = sqlite3.connect(server.database)
    query = "SELECT content_type FROM cronoq_trio_{} WHERE id = ? AND content_type IS NOT NULL"
    found = [
        row[0]
        for task_id in (small, large)
        for table in ("states", "outputs")
        for row in connection.execute(query.format(table), (task_id,))
    ]
    connection.close()
    assert found == ["application/json", "image/png"]
