"""The client benchmark: what it counts, what it refuses, and a worker on grpcio that does what ours does."""

import asyncio
import json
import time

import pytest
from harness import client_load, clients, grpcio_worker, load
from harness.grpcio_worker import GrpcioWorker
from harness.rounds import Burst, Results

from cronoq._client.payloads import encode_payload
from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client
from cronoq.errors import CancelTask, Permanent, Reject, Retryable
from cronoq.testing import serve
from tests.tidy.tree import ROOT


def test_a_meter_leaves_the_warm_up_out(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(client_load, "WARM_UP", 2)
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr(time, "perf_counter", lambda: 10 * clock[0])
    meter = client_load.Meter(6)
    for cost in (100, 100, 1, 2, 3, 2):
        assert not meter.done.is_set()
        clock[0] += cost
        meter.tick()
    assert meter.done.is_set() and meter.figures == {"rate": 4 / 80, "cpu_us": 2e6}


def test_every_client_hands_in_and_works(monkeypatch):
    monkeypatch.setattr(client_load, "WARM_UP", 5)

    async def main():
        async with serve(pools=["default"]) as server:
            port = int(server.target.rpartition(":")[2])
            for number in range(2):
                for name, ways in client_load.LOADS.items():
                    figures = await ways[number](port, 25)
                    assert set(figures) == {"rate", "cpu_us"} and min(figures.values()) > 0, name
            async with Client(server.target) as client:
                totals = (await client.snapshot()).totals
                assert (totals.submitted, totals.succeeded) == (50, 50)

    asyncio.run(main())


class Fake:
    name, port = "fake", 1

    def check(self):
        pass

    def log(self):
        return "last words"


def test_clients_take_turns_in_each_round_and_everything_is_counted(monkeypatch):
    turns, lines = [], []

    def child(kind, *arguments, **options):
        if kind == "totals":
            return {"submitted": 6 * clients.COUNT, "succeeded": 6 * clients.COUNT}
        turns.append((kind, arguments[0]))
        return {"rate": len(turns), "cpu_us": 2 * len(turns)}

    monkeypatch.setattr(load, "child", child)
    results = clients.run(Fake(), 2, lambda name, _: lines.append(name))
    one = [(kind, client) for client in ("grpcio", "asyncio", "trio") for kind in ("submit", "worker")]
    assert turns == 2 * one and lines == ["submit", "worker"]
    assert results.bursts["worker"]["asyncio"] == [Burst(4, 8), Burst(10, 20)]


@pytest.mark.parametrize(("submitted", "succeeded"), [(41, 42), (42, 41), (42, 0)])
def test_tasks_that_were_not_done_are_not_measured(monkeypatch, submitted, succeeded):
    monkeypatch.setattr(load, "child", lambda kind, port: {"submitted": submitted, "succeeded": succeeded})
    with pytest.raises(SystemExit, match=f"of 42 tasks {submitted} were handed in and {succeeded} done:\nlast words"):
        clients.verify(Fake(), 42)


def test_imports_are_compared_round_by_round(monkeypatch):
    times = iter([10, 20, 100, 100, 20, 30])
    monkeypatch.setattr(clients, "import_time", lambda module: next(times))
    figures = clients.imports(3)
    assert (figures["ratio"], figures["ratio_low"], figures["ratio_high"]) == (1.5, 1, 2)
    assert (figures["trio_ms"], figures["client_ms"]) == (20, 30)


def test_an_import_takes_time(monkeypatch):
    monkeypatch.setattr(clients, "FRESH", 1)
    assert 0 < clients.import_time("cronoq.errors") < 60_000


def test_the_results_have_every_client_in_every_round():
    data = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    bursts = Results(data["client"]["bursts"]).bursts
    assert list(bursts) == list(clients.LOADS) and all(list(of) == list(clients.CLIENTS) for of in bursts.values())
    assert {len(rounds) for of in bursts.values() for rounds in of.values()} == {data["imports"]["rounds"]}


# --- the worker on grpcio


def lease(number, **fields):
    return pb.ServerMessage(lease=pb.Lease(lease=number, task_id=7, attempt=1, **fields))


def serving(handler, steps, slots=2):
    """Run `steps(worker, said)` with a worker that was registered; `said()` waits for what it says next."""

    async def main():
        worker = GrpcioWorker("nowhere:1", "default", handler, slots)
        worker._take(pb.ServerMessage(registered=pb.Registered(worker_id=1, lease_ttl_s=60, max_message_bytes=5_000)))
        async with asyncio.timeout(30):
            await steps(worker, worker._queue.get)
        assert not worker._held and not worker._timers and worker._queue.empty()

    asyncio.run(main())


class Raises:
    def __init__(self, error):
        self.error = error

    async def __call__(self, lease):
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Reject("busy"), pb.WorkerMessage(nack=pb.Nack(lease=1, reason="busy"))),
        (CancelTask("off"), pb.WorkerMessage(cancelled=pb.Cancelled(lease=1))),
        (Permanent("bad"), pb.WorkerMessage(fail=pb.Fail(lease=1, message="bad", permanent=True))),
        (Retryable("later", 2), pb.WorkerMessage(fail=pb.Fail(lease=1, message="Retryable: later", retry_after_s=2))),
        (OSError("x"), pb.WorkerMessage(fail=pb.Fail(lease=1, message="OSError: x"))),
    ],
)
def test_each_exception_has_its_message(error, message):
    async def steps(worker, said):
        worker._take(lease(1))
        assert await said() == message

    serving(Raises(error), steps)


@pytest.mark.parametrize("result", [b"out", "text", None, {"a": [1, None]}])
def test_outputs_are_encoded_as_ours(result):
    assert grpcio_worker.encode(result) == encode_payload(result)


@pytest.mark.parametrize(
    ("result", "text"), [(object(), "not bytes, str or JSON"), (bytes(4_000), "does not fit"), (float("nan"), "JSON")]
)
def test_outputs_that_cannot_be_sent_fail_for_good(result, text):
    async def handler(lease):
        return result

    async def steps(worker, said):
        worker._take(lease(1))
        fail = (await said()).fail
        assert fail.permanent and text in fail.message

    serving(handler, steps)


def test_leases_have_heartbeats_until_their_report():
    async def steps(worker, said):
        done = asyncio.Event()

        async def handler(lease):
            await done.wait()

        worker._handler = handler
        worker._take(lease(1, lease_ttl_s=0.03))
        for _ in range(2):
            assert await said() == pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=1))
        done.set()
        while (message := await said()).WhichOneof("msg") == "heartbeat":
            pass
        assert message == pb.WorkerMessage(complete=pb.Complete(lease=1))

    serving(None, steps)


def test_an_abort_cancels_and_reports_nothing_and_too_many_leases_go_back():
    seen = []

    async def handler(lease):
        seen.append(lease)
        await asyncio.Event().wait()

    async def steps(worker, said):
        worker._take(lease(1, kind="k", tags={"a": "b"}))
        worker._take(lease(2))
        assert await said() == pb.WorkerMessage(nack=pb.Nack(lease=2, reason="worker has no free slot"))
        await asyncio.sleep(0)
        (task,) = worker._held.values()
        worker._take(pb.ServerMessage(abort=pb.Abort(lease=1)))
        await asyncio.wait([task])
        (first,) = seen
        assert (first.id, first.kind, first.tags, first.lease_ttl) == (1, "k", {"a": "b"}, 60)
        assert task.cancelled() and first.cancelled.is_set()

    serving(handler, steps, slots=1)
