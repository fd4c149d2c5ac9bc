"""Programs that mix the two loops through trio-asyncio: grpclib called from Trio, and handlers made for asyncio."""

import asyncio
import re
import subprocess
import sys
import types
import warnings
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

import cronoq.client
from cronoq._proto import cronoq_grpc as stubs
from cronoq._proto import cronoq_pb2 as pb
from cronoq.worker import Permanent, Worker
from tests.acceptance.clients import reference, submission, word
from tests.acceptance.server import HANG, ROOT

with warnings.catch_warnings():
    # trio-asyncio derives a class from one that Python 3.12 deprecates and 3.14 no longer has.
    warnings.filterwarnings("ignore", ".*AbstractChildWatcher.*", DeprecationWarning)
    import trio_asyncio
    from trio_asyncio import aio_as_trio

POOLS = ("calls", "stream", "dead", "gone", "many", "slow", "handler", "abort", "stop", "recipe")
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 1000\n' for name in ("default", *POOLS))}


@pytest.fixture(autouse=True)
def imported_in_order(monkeypatch):
    """What trio-asyncio replaces, grpclib keeps, and other test modules may have loaded grpclib before."""
    monkeypatch.setattr("grpclib.utils._current_task", asyncio.current_task)


class Stubs:
    """grpclib's stubs on one connection; their methods belong to asyncio, `call` may be used from Trio."""

    def __init__(self, channel):
        self.tasks = stubs.TasksStub(channel)
        self.workers = stubs.WorkersStub(channel)
        self.admin = stubs.AdminStub(channel)

    async def call(self, method, request, **options):
        return await aio_as_trio(method)(request, **options)

    async def submit(self, wait=False, **task):
        return await self.call(self.tasks.Submit, submission(wait, **task))


@asynccontextmanager
async def connected(server):
    """A Trio program with an asyncio loop inside; what hangs fails."""
    with trio.fail_after(HANG):
        async with trio_asyncio.open_loop():
            channel = Channel("127.0.0.1", server.port)
            try:
                yield Stubs(channel)
            finally:
                channel.close()


@contextmanager
def refused(status, text=""):
    with pytest.raises(GRPCError) as caught:
        yield
    assert caught.value.status is status and text in caught.value.message


async def until(condition):
    """Ask the server, in a thread, until it says so."""
    with trio.fail_after(HANG):
        while not await trio.to_thread.run_sync(condition):
            await trio.sleep(0.01)


def waits(server):
    return int(server.statistics()["waiting_for_tasks"])


# --- grpclib from Trio


def test_a_program_that_imports_trio_asyncio_first_needs_nothing_else():
    code = "import trio_asyncio, asyncio, grpclib.utils as u; assert u._current_task is asyncio.current_task"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)


async def test_every_unary_call(server):
    async with connected(server) as on:
        reply = await on.submit(pool="calls", key="one", payload=b"x")
        assert (await on.submit(pool="calls", key="one")).duplicate
        ref = reference(reply.id)
        info = await on.call(on.tasks.Get, pb.GetRequest(task=reference("one")))
        assert (info.id, info.key, word(info.status)) == (reply.id, "one", "ready")
        specs = [pb.TaskSpec(pool="calls", key=f"batch {number}") for number in range(3)]
        batch = (await on.call(on.tasks.SubmitBatch, pb.SubmitBatchRequest(tasks=specs))).tasks
        assert [member.id for member in batch] == sorted({member.id for member in batch} - {reply.id})
        request = pb.ListTasksRequest(pools=["calls"], limit=3)
        page = await on.call(on.tasks.ListTasks, request)
        assert [info.key for info in page.tasks] == ["one", "batch 0", "batch 1"]
        request.after = page.next_after
        page = await on.call(on.tasks.ListTasks, request)
        assert [info.key for info in page.tasks] == ["batch 2"] and not page.next_after
        assert (await on.call(on.tasks.Cancel, pb.CancelRequest(task=ref))).cancelled
        assert not (await on.call(on.tasks.Cancel, pb.CancelRequest(task=ref))).cancelled
        assert word((await on.call(on.tasks.Wait, pb.WaitRequest(task=ref))).status) == "cancelled"
        figures = await on.call(on.admin.Snapshot, pb.Empty())
        assert {pool.name for pool in figures.pools} == {"default", *POOLS} and figures.totals.submitted >= 4
        assert not (await on.call(on.admin.ListWorkers, pb.Empty())).workers
        schedule = pb.RecurringRequest(name="n", cron="0 9 29 2 *")
        assert await on.call(on.admin.AddRecurring, schedule) == pb.Empty()
        assert [one.name for one in (await on.call(on.admin.ListRecurring, pb.Empty())).schedules] == ["n"]
        for removed in (True, False):
            reply = await on.call(on.admin.RemoveRecurring, pb.RemoveRecurringRequest(name="n"))
            assert reply.removed is removed
        with refused(Status.NOT_FOUND, "nowhere"):
            await on.submit(pool="nowhere")


async def test_a_worker_and_a_watch_and_a_caller_that_waits(server):
    """Streams belong to one asyncio function each; Trio's nursery runs them beside calls."""
    seen = []

    async def work(stub, task_status):
        async with stub.Work.open() as stream:
            register = pb.Register(pool="stream", slots=4, protocol_version=3, worker_name="mixed")
            await stream.send_message(pb.WorkerMessage(register=register))
            granted = (await stream.recv_message()).registered
            task_status.started(granted.worker_id)
            while True:
                lease = (await stream.recv_message()).lease
                done = pb.Complete(lease=lease.lease, output=lease.payload * 2)
                await stream.send_message(pb.WorkerMessage(complete=done))

    async def watch(stub, task_status):
        async with stub.Watch.open() as stream:
            await stream.send_message(pb.WatchRequest(pools=["stream"]), end=True)
            await stream.recv_initial_metadata()
            task_status.started()
            while len(seen) < 20:
                event = await stream.recv_message()
                seen.append((event.id, word(event.status)))
            await stream.cancel()

    async def in_asyncio(function, stub, task_status):
        await aio_as_trio(function)(stub, task_status)

    async with connected(server) as on, trio.open_nursery() as nursery:
        worker_id = await nursery.start(in_asyncio, work, on.workers)
        listed = (await on.call(on.admin.ListWorkers, pb.Empty())).workers
        assert [(worker.id, worker.name, worker.slots) for worker in listed] == [(worker_id, "mixed", 4)]
        ids = []
        async with trio.open_nursery() as watching:
            await watching.start(in_asyncio, watch, on.tasks)
            for number in range(20):
                reply = await on.submit(True, pool="stream", payload=b"%d" % number)
                assert reply.result.output == b"%d" % number * 2
                ids.append(reply.id)
        assert sorted(seen) == [(task_id, "succeeded") for task_id in ids]
        nursery.cancel_scope.cancel()
    await until(lambda: server.statistics()["open_watches"] == "0")


async def test_a_deadline_ends_a_call_on_both_sides(server):
    async with connected(server) as on:
        ref = reference((await on.submit(pool="dead")).id)
        begun = trio.current_time()
        with pytest.raises((asyncio.TimeoutError, GRPCError)):
            await on.call(on.tasks.Wait, pb.WaitRequest(task=ref), timeout=0.2)
        with refused(Status.DEADLINE_EXCEEDED):
            await on.call(on.tasks.Wait, pb.WaitRequest(task=ref, timeout_s=0.2))
        with trio.move_on_after(0.2) as scope:
            await on.call(on.tasks.Wait, pb.WaitRequest(task=ref))
        assert scope.cancelled_caught and 0.6 <= trio.current_time() - begun < 10
        await until(lambda: waits(server) == 0)
        assert (await on.call(on.tasks.Cancel, pb.CancelRequest(task=ref))).cancelled


async def test_a_scope_that_is_cancelled_gives_its_calls_up_and_no_others(server):
    async with connected(server) as on:
        ref = reference((await on.submit(pool="gone")).id)
        results = []

        async def wait():
            results.append(await on.call(on.tasks.Wait, pb.WaitRequest(task=ref)))

        async with trio.open_nursery() as staying:
            staying.start_soon(wait)
            async with trio.open_nursery() as going:
                for _ in range(20):
                    going.start_soon(wait)
                await until(lambda: waits(server) == 21)
                going.cancel_scope.cancel()
            await until(lambda: waits(server) == 1)
            assert not results
            await on.call(on.tasks.Cancel, pb.CancelRequest(task=ref))
        assert [word(result.status) for result in results] == ["cancelled"]


async def test_a_thousand_calls_in_flight_on_one_connection(server):
    async with connected(server) as on:
        ref = reference((await on.submit(pool="many")).id)
        results = []

        async def wait():
            results.append(await on.call(on.tasks.Wait, pb.WaitRequest(task=ref)))

        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                nursery.start_soon(wait)
            await until(lambda: waits(server) == 1_000)
            await on.call(on.tasks.Cancel, pb.CancelRequest(task=ref))
        assert [result.id for result in results] == [ref.id] * 1_000


async def test_a_watcher_that_stops_reading_is_told_of_its_loss(server):
    """It has a connection of its own: grpclib gives all its streams one window, which an idle one can fill."""
    count = 0

    async def idle(stub, busy):
        async with stub.Watch.open() as stream:
            await stream.send_message(pb.WatchRequest(pools=["slow"], all_transitions=True), end=True)
            await stream.recv_initial_metadata()
            await busy()
            with refused(Status.DATA_LOSS, "were dropped"):
                while await stream.recv_message() is not None:
                    pass
                await stream.recv_trailing_metadata()

    async with connected(server) as on:
        channel = Channel("127.0.0.1", server.port)

        async def busy():
            """Until the server has dropped the watcher; meanwhile it serves others."""
            nonlocal count
            loop = asyncio.get_running_loop()
            while (await loop.run_in_executor(None, server.statistics))["open_watches"] == "1":
                for _ in range(10):
                    specs = [pb.TaskSpec(pool="slow", key=f"{count + n}".ljust(240, "k")) for n in range(200)]
                    await on.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=specs))
                    count += 200
                assert count < 60_000

        try:
            await aio_as_trio(idle)(stubs.TasksStub(channel), busy)
        finally:
            channel.close()


# --- handlers for asyncio in a worker under Trio


async def test_handlers_for_asyncio_run_in_a_worker_under_trio(server):
    loops = set()

    async def handle(lease):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        if lease.kind == "hopeless":
            raise Permanent("never")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0.01, lease.text().upper())) for _ in range(2)]
        return "".join(task.result() for task in tasks)

    with trio.fail_after(HANG):
        async with (
            trio_asyncio.open_loop() as loop,
            cronoq.client.Client(server.address) as client,
            Worker(server.address, "handler", aio_as_trio(handle), slots=5),
        ):
            outputs = []

            async def one(number):
                outputs.append((await client.submit(f"n{number}", pool="handler", wait=True)).result.text())

            async with trio.open_nursery() as nursery:
                for number in range(30):
                    nursery.start_soon(one, number)
            assert sorted(outputs) == sorted(f"N{number}N{number}" for number in range(30))
            result = (await client.submit(kind="hopeless", pool="handler", wait=True)).result
            assert (result.status, result.message) == ("failed", "never")
            assert loops == {loop}


@pytest.mark.parametrize("how", ["abort", "stop"])
async def test_giving_an_attempt_up_cancels_what_runs_in_asyncio(server, how):
    started, ended = trio.Event(), []

    async def handle(lease):
        started.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            ended.append(lease.cancelled.is_set())
            raise

    with trio.fail_after(HANG):
        async with trio_asyncio.open_loop(), cronoq.client.Client(server.address) as client:
            async with Worker(server.address, how, aio_as_trio(handle), grace=0) as worker:
                task_id = (await client.submit(pool=how, retry={"max_attempts": 1})).id
                await started.wait()
                if how == "abort":
                    assert await client.cancel(task_id)
                    while worker.running or not ended:
                        await trio.sleep(0.001)
                    assert ended == [True]
            assert len(ended) == 1
            if how == "abort":
                assert (await client.wait(task_id)).status == "cancelled"
            else:
                await client.cancel(task_id)


async def test_the_recipe_of_the_manual_works_as_printed(server):
    page = (ROOT / "docs" / "howto" / "worker.md").read_text(encoding="utf-8")
    (recipe,) = [text for text in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "trio_asyncio" in text]
    assert "127.0.0.1:7070" in recipe and '"default"' in recipe
    recipe = recipe.replace("127.0.0.1:7070", server.address).replace('"default"', '"recipe"')
    program = types.ModuleType("recipe")
    exec(compile(recipe, "recipe", "exec"), program.__dict__)
    with trio.fail_after(HANG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.main)
            async with cronoq.client.Client(server.address) as client:
                assert (await client.submit("hello", pool="recipe", wait=True)).result.text() == "HELLO"
            nursery.cancel_scope.cancel()
