"""Watches through grpcio's synchronous and asynchronous API, on both stores."""

import asyncio
import threading
import time

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import Status, connect, refused, retry, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

POOLS = ("ends", "moves", "one", "other", "slow", "many", "aio", "deadline")
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in ("default", *POOLS))}


class Watcher:
    """A watch that was let in, and what it got so far."""

    def __init__(self, client, **filters):
        self.call = client.tasks.Watch(pb.WatchRequest(**filters))
        self.metadata = dict(self.call.initial_metadata())
        self.events = []
        self.error = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.call.cancel()
        self._thread.join(HANG)

    def _read(self):
        try:
            self.events.extend(self.call)
        except grpc.RpcError as error:
            self.error = error

    def wait(self, count):
        """The first `count` events: key or id, and status."""
        wait_until(lambda: len(self.events) >= count, f"{count} events, there are {self.events}")
        return [(event.key or event.id, word(event.status)) for event in self.events]


def test_ends_by_default_and_every_status_on_demand(client):
    with Watcher(client, pools=["ends"]) as ends, Watcher(client, pools=["ends"], all_transitions=True) as moves:
        before = time.time_ns()
        with Worker(client.channel, pool="ends") as worker:
            task_id = client.submit(pool="ends", key="life", retry=retry(2)).id
            worker.fail(worker.lease().lease, "no luck")
            worker.complete(worker.lease().lease, b"out")
            client.wait(task_id)
        assert moves.wait(7) == [
            ("life", status) for status in ("blocked", "ready", "running", "retrying", "ready", "running", "succeeded")
        ]
        assert ends.wait(1) == [("life", "succeeded")]
        assert [event.message for event in moves.events] == ["", "", "", "no luck", "", "", ""]
        assert [event.attempt for event in moves.events] == [0, 0, 1, 1, 1, 2, 2]
        assert {(event.id, event.pool) for event in moves.events} == {(task_id, "ends")}
        times = [event.at_unix_ns for event in moves.events]
        assert before <= times[0] and times == sorted(times) and times[-1] <= time.time_ns()
        assert client.get(task_id).finished_unix_ns == ends.events[0].at_unix_ns


def test_filters(client):
    watched = client.submit(pool="one", key="w1").id
    with (
        Watcher(client, ids=[watched]) as by_id,
        Watcher(client, keys=["w2", "w3"]) as by_key,
        Watcher(client, ids=[watched], keys=["w2"]) as either,
        Watcher(client, pools=["other"], keys=["w2", "w3"]) as both,
        Watcher(client, pools=["one", "other"]) as by_pool,
    ):
        client.submit(pool="one", key="w2")
        client.submit(pool="other", key="w3")
        for key in ("w1", "w2", "w3"):
            assert client.cancel(key)
        assert by_pool.wait(3) == [("w1", "cancelled"), ("w2", "cancelled"), ("w3", "cancelled")]
        assert by_key.wait(2) == [("w2", "cancelled"), ("w3", "cancelled")]
        assert either.wait(2) == [("w1", "cancelled"), ("w2", "cancelled")]
        assert by_id.wait(1) == [("w1", "cancelled")]
        assert both.wait(1) == [("w3", "cancelled")]


def test_nothing_that_happened_before_is_told(client):
    client.cancel(client.submit(pool="moves").id)
    with Watcher(client, pools=["moves"]) as watcher:
        task_id = client.submit(pool="moves").id
        client.cancel(task_id)
        assert watcher.wait(1) == [(task_id, "cancelled")]


def test_a_batch_of_a_thousand_is_told_whole(client):
    with Watcher(client, pools=["many"], all_transitions=True) as watcher:
        tasks = [pb.TaskSpec(pool="many")] * 1_000
        ids = [m.id for m in client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=tasks), timeout=HANG).tasks]
        with serving(client.channel, pool="many", slots=50):
            client.wait(ids[-1])
            wait_until(lambda: len(watcher.events) >= 4_000, "every event")
        for task_id in ids[::100]:
            life = [word(event.status) for event in watcher.events if event.id == task_id]
            assert life == ["blocked", "ready", "running", "succeeded"]


@pytest.mark.parametrize(
    ("filters", "code", "words"),
    [
        (dict(pools=["nowhere"]), Status.NOT_FOUND, "nowhere"),
        (dict(keys=[""]), Status.INVALID_ARGUMENT, "keys[0]"),
        (dict(keys=["k" * 257]), Status.INVALID_ARGUMENT, "keys[0]"),
        (dict(ids=range(1_001)), Status.INVALID_ARGUMENT, "max_tasks_per_batch"),
    ],
)
def test_what_is_refused(client, filters, code, words):
    with refused(code, words):
        next(client.tasks.Watch(pb.WatchRequest(**filters), timeout=HANG))


def test_a_deadline_of_the_caller_ends_it_and_nothing_else_does(client):
    with refused(Status.DEADLINE_EXCEEDED):
        list(client.tasks.Watch(pb.WatchRequest(pools=["deadline"]), timeout=0.3))


def test_a_watcher_that_goes_away_is_forgotten(server, client):
    with Watcher(client, all_transitions=True):
        assert wait_until(lambda: int(server.statistics()["open_watches"]) >= 1, "a watch")
    wait_until(lambda: server.statistics()["open_watches"] == "0", "none")


def test_a_watcher_that_stops_reading_loses_its_events_and_is_told(server, client):
    """It holds up nobody meanwhile: tasks go on, and another watcher gets everything."""
    with connect(server.address) as idle, Watcher(client, pools=["slow"], all_transitions=True) as reader:
        call = idle.tasks.Watch(pb.WatchRequest(pools=["slow"], all_transitions=True))
        call.initial_metadata()
        key = "k" * 240
        count = 0
        while server.statistics()["open_watches"] == "2":
            for _ in range(20):
                tasks = [pb.TaskSpec(pool="slow", key=f"{count + n}{key}") for n in range(100)]
                client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=tasks), timeout=HANG)
                count += 100
            assert count < 60_000
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is Status.DATA_LOSS
        assert "were dropped" in caught.value.details()
        reader.wait(2 * count)


def test_a_watch_ends_as_unavailable_when_the_server_stops(start):
    server = start("memory", server="shutdown_grace_s = 0")
    with connect(server.address) as client, Watcher(client) as watcher, Worker(client.channel):
        client.submit(retry=retry(1))
        wait_until(lambda: client.snapshot().running == 1, "a running task")
        server.terminate()
        wait_until(lambda: watcher.error is not None, "the end")
        assert watcher.error.code() is Status.UNAVAILABLE
        assert [word(event.status) for event in watcher.events] == ["dead_lettered"], "told before the end"
    assert server.wait() == 0


def test_a_watch_through_asyncio(server):
    async def scenario():
        async with grpc.aio.insecure_channel(server.address) as channel:
            tasks = stubs.TasksStub(channel)
            call = tasks.Watch(pb.WatchRequest(pools=["aio"], all_transitions=True))
            await call.initial_metadata()
            reply = await tasks.Submit(pb.SubmitRequest(task=pb.TaskSpec(pool="aio")), timeout=HANG)
            await tasks.Cancel(pb.CancelRequest(task=pb.TaskRef(id=reply.id)), timeout=HANG)
            events = [await call.read() for _ in range(3)]
            assert [(event.id, word(event.status)) for event in events] == [
                (reply.id, status) for status in ("blocked", "ready", "cancelled")
            ]
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call.read()

    asyncio.run(asyncio.wait_for(scenario(), 3 * HANG))
