"""A graceful stop: running attempts finish within the grace, callers go on asking, nothing new is taken."""

import time

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, retry, submission, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker


def stopping(server):
    """Ask for the stop and wait until the server has heard it."""
    server.terminate()
    wait_until(lambda: "stopping" in server.output(), "it stops")


def awaiting(client, task_id):
    """A Wait that is with the server, which stops as soon as no lease runs and then answers none any more."""
    wait = client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)), timeout=HANG)
    client.snapshot()
    return wait


def test_a_running_attempt_finishes_during_the_grace(start):
    server = start("sqlite", server="shutdown_grace_s = 60")
    with connect(server.address) as client, Worker(client.channel, slots=2) as worker:
        task_id = client.submit(retry=retry(1)).id
        lease = worker.lease().lease
        waits = [
            awaiting(client, task_id),
            client.tasks.Submit.future(submission(wait=True, key="unstarted"), timeout=HANG),
        ]
        other = worker.lease().lease
        stopping(server)
        # Everything that adds no work goes on, on this connection and on a new one.
        with connect(server.address) as late:
            for one in (client, late):
                assert one.status(task_id) == "running"
                with refused(Status.UNAVAILABLE, "stopping"):
                    one.submit()
                with refused(Status.DEADLINE_EXCEEDED):
                    one.wait(task_id, timeout=0.05)
                assert one.snapshot().running == 2
        worker.heartbeat(lease)
        assert worker.silent()
        worker.complete(lease, b"in time")
        assert waits[0].result(HANG).output == b"in time"
        assert server.process.poll() is None, "another attempt still runs"
        worker.complete(other, b"too")
        assert waits[1].result(HANG).result.output == b"too"
        # No lease runs any more: the stop does not wait for the rest of the grace.
        shutdown = worker.receive("shutdown")
        assert not shutdown.not_leader
        assert shutdown.reason
        assert worker.ended()[0] in (Status.OK, Status.UNAVAILABLE)
    assert server.wait() == 0


def test_nothing_new_is_dispatched_during_the_grace(start):
    server = start("sqlite", server="shutdown_grace_s = 60")
    with connect(server.address) as client, Worker(client.channel) as worker:
        first = client.submit().id
        lease = worker.lease().lease
        second = client.submit().id
        stopping(server)
        worker.set_slots(5)
        wait = awaiting(client, first)
        worker.complete(lease)
        assert word(wait.result(HANG).status) == "succeeded"
        worker.receive("shutdown")
    assert server.wait() == 0
    server.start()
    with connect(server.address) as client:
        assert client.status(second) == "ready"
        assert client.get(second).attempt == 0


def test_cancel_and_nack_go_on_during_the_grace(start):
    server = start("sqlite", server="shutdown_grace_s = 60")
    with connect(server.address) as client, connect(server.address) as other:
        cancelled, moved, waiting = (client.submit().id for _ in range(3))
        with Worker(client.channel, slots=2) as refuser, Worker(other.channel, slots=0) as taker:
            leases = {lease.task_id: lease.lease for lease in (refuser.lease(), refuser.lease())}
            assert set(leases) == {cancelled, moved}
            stopping(server)
            taker.set_slots(1)
            wait_until(lambda: client.snapshot().pools[0].capacity == 3, "it is on another connection")
            assert client.cancel(cancelled)
            assert refuser.receive("abort").reason == "cancelled"
            assert client.cancel(waiting)
            refuser.nack(leases[moved])
            assert taker.lease().lease == leases[moved]
            wait = awaiting(client, moved)
            taker.complete(leases[moved], b"moved")
            assert wait.result(HANG).output == b"moved"
    assert server.wait() == 0


def test_a_worker_may_come_back_during_the_grace(start):
    server = start("sqlite", server="shutdown_grace_s = 60")
    with connect(server.address) as client, Worker(client.channel) as worker:
        client.submit()
        lease = worker.lease().lease
        stopping(server)
        with connect(server.address) as late, Worker(late.channel) as other:
            assert other.registered.slots == 1
            worker.complete(lease)
            assert other.receive("shutdown").reason
    assert server.wait() == 0


def test_leases_left_after_the_grace_are_given_back(start):
    server = start("sqlite", server="shutdown_grace_s = 0.5")
    with connect(server.address) as client, Worker(client.channel) as worker:
        task_id = client.submit(retry=retry(2), payload=b"again").id
        lease = worker.lease().lease
        wait = awaiting(client, task_id)
        begun = time.monotonic()
        server.terminate()
        abort = worker.receive("abort")
        assert (abort.lease, abort.reason) == (lease, "shutdown")
        assert time.monotonic() - begun >= 0.5
        assert not worker.receive("shutdown").not_leader
        with refused(Status.UNAVAILABLE):
            wait.result(HANG)
        worker.ended()
    assert server.wait() == 0
    server.start()
    with connect(server.address) as client, Worker(client.channel) as worker:
        again = worker.lease()
        assert (again.task_id, again.attempt, again.payload) == (task_id, 2, b"again")
        worker.complete(again.lease)
        assert word(client.wait(task_id).status) == "succeeded"


def test_an_idle_server_stops_at_once(start):
    for store in ("memory", "sqlite"):
        server = start(store, server="shutdown_grace_s = 600")
        with connect(server.address) as client, Worker(client.channel, slots=3) as worker:
            begun = time.monotonic()
            server.terminate()
            assert worker.receive("shutdown").reason
            assert server.wait() == 0
            assert time.monotonic() - begun < 20


def test_a_second_signal_forces_the_stop(start):
    server = start("sqlite", server="shutdown_grace_s = 600")
    with connect(server.address) as client, Worker(client.channel) as worker:
        task_id = client.submit(retry=retry(2)).id
        worker.lease()
        stopping(server)
        server.terminate()
        assert server.wait() == 1
    server.start()
    with connect(server.address) as client, Worker(client.channel) as worker:
        assert worker.lease().task_id == task_id
