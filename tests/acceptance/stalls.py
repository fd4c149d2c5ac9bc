"""Time that nobody could use: a store that does not write, a server that does not run. No lease may expire by it."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import grpc

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Client, Status, connect, reference, retry, submission, wait_until, word
from tests.acceptance.ledger import record
from tests.acceptance.server import HANG, Server
from tests.acceptance.workers import Worker

TTL = 5
POOLS = f'[[pools]]\nname = "default"\nlease_ttl_s = {TTL}\n[[pools]]\nname = "idle"\n'
RECOVERS = 30.0
"""Seconds after a stall until new work is taken; 0 to 5 s were measured, the pause between two tries of a commit."""


@contextmanager
def lock_held(server: Server) -> Iterator[None]:
    """Another process than the server, this one, holds the write lock of its database."""
    connection = sqlite3.connect(server.database, isolation_level=None, timeout=HANG)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The server's process does not run."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


class Heart(threading.Thread):
    """Heartbeats of the worker's leases, every third of the time to live."""

    def __init__(self, worker: Worker, leases: list[int]) -> None:
        super().__init__(daemon=True)
        self.worker, self.leases = worker, leases
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(TTL / 3):
            for lease in tuple(self.leases):
                self.worker.heartbeat(lease)

    def stop(self) -> None:
        self.over.set()
        self.join(HANG)


def both_at_once(locked: Server, frozen: Server, seconds: float) -> None:
    """Both kinds of stall, on two servers with `POOLS`, beside each other."""
    with ThreadPoolExecutor() as threads:
        runs = [
            threads.submit(hold_through, locked, lock_held(locked), seconds, frozen=False),
            threads.submit(hold_through, frozen, stopped(frozen), seconds, frozen=True),
        ]
    for run in runs:
        run.result()
    for server in (locked, frozen):
        assert server.stop() == 0


def hold_through(server: Server, stall: AbstractContextManager[None], seconds: float, *, frozen: bool) -> None:
    """Workers hold leases through the stall: none expires, no attempt is lost, and everything goes on by itself."""
    with connect(server.address) as client, connect(server.address) as far, Worker(far.channel, slots=4) as worker:
        ids = [client.submit(key=f"held-{number}", retry=retry(1)).id for number in range(4)]
        leases = {lease.task_id: lease.lease for lease in (worker.lease() for _ in ids)}
        waits = [client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)), timeout=300) for task_id in ids]
        heart = Heart(worker, list(leases.values()))
        heart.start()
        with stall:
            begun = time.monotonic()
            # One ends while nothing can be written or read: its result is told later, and once. Of another nothing is
            # heard, and a third goes on to beat.
            early, silent = ids[:2]
            for task_id in (early, silent):
                heart.leases.remove(leases[task_id])
            worker.complete(leases[early], b"early")
            if not frozen:
                refuses_new_work(client, begun)
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
            assert not waits[0].done(), "a result was told that is not stored"
            assert worker.silent(), "something came that must wait for the store"
        ended = time.monotonic()
        heart.leases.append(leases[silent])
        wait_until(lambda: takes_work(client), "new work is taken again", bound=RECOVERS)
        recovered = time.monotonic() - ended
        assert waits[0].result(HANG).output == b"early"
        time.sleep(TTL * 1.5)  # long enough for a lease to expire whose time was not given back
        assert worker.silent()
        heart.stop()
        for task_id in ids[1:]:
            worker.complete(leases[task_id], b"late")
        for wait in waits[1:]:
            assert wait.result(HANG).output == b"late"
        assert [client.get(task_id).attempt for task_id in ids] == [1, 1, 1, 1]
        totals = client.snapshot().totals
        assert (totals.lease_expiries, totals.retries, totals.timeouts, totals.stale_completions) == (0, 0, 0, 0)
    what = "stopped by SIGSTOP" if frozen else "write lock held by another process"
    record(
        f"{what} for {seconds:g} s, leases of {TTL} s",
        seconds_until_new_work_is_taken=round(recovered, 3),
        lease_expiries=totals.lease_expiries,
        attempts_lost=totals.retries,
    )


def refuses_new_work(client: Client, begun: float) -> None:
    """At first a submit waits for the store; after some seconds it is refused at once. Reading goes on."""
    unknown = 0
    while True:
        try:
            client.tasks.Submit(submission(pool="idle", key=f"unknown-{unknown}"), timeout=1)
            raise AssertionError("a submit was acknowledged that nobody can have stored")
        except grpc.RpcError as error:
            if error.code() is Status.UNAVAILABLE:
                break
            assert error.code() is Status.DEADLINE_EXCEEDED, error
            unknown += 1
        assert time.monotonic() < begun + HANG, "new work is not refused"
    assert client.snapshot().running == 3
    assert word(client.get("held-1").status) == "running"


def takes_work(client: Client) -> bool:
    try:
        return bool(client.tasks.Submit(submission(pool="idle", key="after"), timeout=5).id)
    except grpc.RpcError as error:
        assert error.code() in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED), error
        return False
