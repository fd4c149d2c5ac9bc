"""The tools for tests of users: handlers without a server, a server in the process, a worker that a test plays."""

from datetime import UTC, datetime

import anyio
import pytest

from cronoq.client import Client, Dep, task
from cronoq.errors import CancelTask, ClientError, ConfigError, Permanent, Reject, Retryable
from cronoq.testing import FakeWorker, HandlerResult, run, run_handler, serve
from cronoq.worker import Worker
from tests.client.stage import PATIENCE, both, play


async def upper(lease):
    return lease.text().upper()


@both
def test_handlers_without_a_server(backend):
    async def raises(error):
        async def handler(lease):
            raise error

        return await run_handler(handler)

    async def script():
        result = await run_handler(upper, "hello", attempt=3)
        assert result.ok and result.text() == "HELLO"
        result = await run_handler(lambda lease: {"attempt": lease.attempt, "kind": lease.kind}, attempt=3, kind="k")
        assert result.json() == {"attempt": 3, "kind": "k"}
        assert (await run_handler(lambda lease: lease.deadline, deadline=1.5)).json() == 1.5
        assert (await run_handler(lambda lease: lease.deadline)).text() == ""
        assert await raises(Permanent("no")) == HandlerResult("failed", message="no", permanent=True)
        assert await raises(Retryable("no", 2.0)) == HandlerResult("failed", message="no", retry_after=2.0)
        assert await raises(ValueError("no")) == HandlerResult("failed", message="ValueError: no")
        assert await raises(Reject("no")) == HandlerResult("rejected", message="no")
        assert await raises(CancelTask("no")) == HandlerResult("cancelled", message="no")
        with pytest.raises(SystemExit):
            await raises(SystemExit(3))
        with pytest.raises(ValueError, match="no output"):
            (await raises(Permanent("no"))).json()

    play(backend, script)


@both
def test_an_abort_of_a_handler(backend):
    seen = []

    async def handler(lease):
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(lease.cancelled.is_set())

    async def script():
        assert (await run_handler(handler, abort_after=0.01)).outcome == "aborted" and seen == [True]
        sync = await run_handler(lambda lease: lease.cancelled.wait_in_thread(5), abort_after=0.01)
        assert sync.outcome == "aborted"

    play(backend, script)


@both
def test_a_server_in_the_process_and_a_worker_that_the_test_plays(backend):
    async def script():
        async with (
            serve(pools=["default", {"name": "small", "max": 1, "lease_ttl_s": 5}]) as server,
            Client(server.target) as client,
            FakeWorker(server.target, "default", slots=2) as worker,
        ):
            first = await client.submit("one", key="k")
            second = await client.submit("two")
            leases = [await worker.next(), await worker.next()]
            assert [lease.text() for lease in leases] == ["one", "two"] and worker.running == 2
            worker.complete(leases[0], {"done": 1})
            worker.fail(leases[1], Permanent("broken"))
            assert (await client.wait(first.id)).json() == {"done": 1}
            result = await client.wait(second.id)
            assert (result.status, result.message) == ("failed", "broken")
            with pytest.raises(ValueError, match="not held any more"):
                worker.complete(leases[0])
            with pytest.raises(TimeoutError):
                await worker.next(timeout=0.01)
            with pytest.raises(ClientError, match="nowhere"):
                await client.submit(pool="nowhere")

    play(backend, script)


@both
def test_settings_that_cannot_be_used(backend):
    async def script():
        with pytest.raises(ConfigError, match="max"):
            async with serve(pools=[{"name": "x", "max": -1}]):
                pass

    play(backend, script)


def test_two_servers_side_by_side():
    async def script():
        async with serve() as one, serve() as two:
            assert one.target != two.target
            async with Client(one.target) as first, Client(two.target) as second:
                task = await first.submit("x")
                assert (await first.get(task.id)).status == "ready"
                with pytest.raises(ClientError):
                    await second.get(task.id)

    play("trio", script)


def test_a_clock_that_jumps():
    """An hour of leases, retries and pauses in no time."""

    async def handler(lease):
        if lease.attempt < 3:
            raise ValueError("not yet")
        await anyio.sleep(1_000)
        return f"attempt {lease.attempt} at {anyio.current_time() >= 3_000}"

    async def main():
        began = anyio.current_time()
        pool = {
            "name": "default",
            "max": 10,
            "lease_ttl_s": 5,
            "retry": {"max_attempts": 3, "initial_backoff_s": 1000, "jitter": False, "max_backoff_s": 5000},
        }
        async with (
            serve(pools=[pool]) as server,
            Client(server.target) as client,
            Worker(server.target, "default", handler),
        ):
            result = (await client.submit(wait=True)).result
        assert result.text() == "attempt 3 at True"
        return anyio.current_time() - began

    assert 4_000 <= run(main) < 4_100


def test_a_lease_expires_on_that_clock():
    async def main():
        pool = {"name": "default", "max": 10, "lease_ttl_s": 5, "retry": {"max_attempts": 1}}
        async with (
            serve(pools=[pool]) as server,
            Client(server.target) as client,
            FakeWorker(server.target, "default") as worker,
        ):
            task = await client.submit(timeout=60)
            lease = await worker.next()
            await lease.cancelled.wait()
            assert 60 <= anyio.current_time() < 70
            return (await client.wait(task.id)).status

    assert run(main) == "dead_lettered"


def test_a_graceful_stop_of_the_server():
    async def main():
        async with serve() as server, Worker(server.target, "default", upper) as worker:
            server.request_stop()
            while worker.last_shutdown is None:
                await anyio.sleep(0.1)
            return worker.last_shutdown

    assert run(main) == "server shutting down"


SCHEDULING = {
    "pools": [{"name": "default", "max": 10, "tenant_weights": {"acme": 3.0}}],
    "resources": [
        {"name": "gpu", "kind": "semaphore", "permits": 1},
        {"name": "api", "kind": "token_bucket", "rate": 0.001, "burst": 2},
    ],
}


@both
def test_what_runs_next_inside_a_test(backend):
    """Dependencies, deadlines, resources, labels and tenants, with a server in the process."""

    async def script():
        async with (
            serve(**SCHEDULING) as server,
            Client(server.target) as client,
            FakeWorker(server.target, "default", slots=3, labels={"zone": "a"}) as worker,
        ):
            at = 4_102_444_800
            first = await client.submit(
                "first", resources={"gpu": 1}, deadline_at=at, labels={"zone": "a"}, tenant="acme"
            )
            lease = await worker.next()
            assert (lease.task_id, lease.deadline) == (first.id, float(at))
            second = await client.submit("second", resources={"gpu": 1, "api": 2})
            third = await client.submit("third", after=first.id)
            never = await client.submit("never", deps=[Dep(first.id, "failure")])
            missing = await client.submit("missing", labels={"zone": "b"})
            statuses = [(await client.get(one.id)).status for one in (second, third, never, missing)]
            assert statuses == ["ready", "blocked", "blocked", "ready"]
            worker.complete(lease)
            leases = {lease.text(): lease for lease in (await worker.next(), await worker.next())}
            assert set(leases) == {"second", "third"} and leases["third"].deadline is None
            result = await client.wait(never.id)
            assert (result.status, result.ok) == ("skipped", False) and str(first.id) in result.message
            info = await client.get(first.id)
            assert (info.tenant, info.priority, info.status) == ("acme", "normal", "succeeded")
            with pytest.raises(ClientError, match="tpu") as caught:
                await client.submit(resources={"tpu": 1})
            assert caught.value.code == "not_found" and not caught.value.retryable
            assert (await client.get(missing.id)).status == "ready"
            for lease in leases.values():
                worker.complete(lease)
            assert (await client.wait(third.id)).ok

    play(backend, script)


def test_a_bucket_refills_on_that_clock():
    """A token a thousand seconds: five tasks after a burst of two take three thousand."""

    async def main():
        began = anyio.current_time()
        async with (
            serve(**SCHEDULING) as server,
            Client(server.target) as client,
            Worker(server.target, "default", upper, slots=5),
        ):
            tasks = await client.submit_batch([task("x", resources={"api": 1}) for _ in range(5)])
            for submitted in tasks:
                assert (await client.wait(submitted.id)).ok
                assert (await client.get(submitted.id)).attempt == 1
        return anyio.current_time() - began

    assert 2_999 <= run(main) < 3_100


NOON = datetime(2027, 3, 13, 12, tzinfo=UTC)


@both
def test_a_server_that_takes_it_to_be_another_time(backend):
    async def script():
        async with serve(now=NOON) as server, Client(server.target) as client:
            submitted = await client.submit()
            assert 0 <= (await client.get(submitted.id)).created_at - NOON.timestamp() < PATIENCE
        with pytest.raises(ValueError, match="now: the datetime has no time zone"):
            async with serve(now=datetime(2027, 3, 13)):
                pass

    play(backend, script)


def test_a_fixed_start_on_that_clock():
    """Weeks ahead and exact, though the slot is busy before and other work waits."""

    async def main():
        async with (
            serve(now=NOON) as server,
            Client(server.target) as client,
            FakeWorker(server.target, "default") as worker,
        ):
            at = datetime(2027, 3, 13, 13, tzinfo=UTC)
            exact = await client.submit("exact", start_at=at, tolerance=5, duration_hint=60)
            assert (await client.get(exact.id)).status == "scheduled"
            await client.submit("other", timeout=3_000)
            worker.complete(await worker.next())
            lease = await worker.next()
            assert lease.task_id == exact.id
            info = await client.get(exact.id)
            assert 0 <= info.started_at - at.timestamp() < 1
            worker.complete(lease)

    run(main)


def test_a_schedule_in_the_night_in_which_the_clock_is_set_forward():
    starts = []

    async def handle(lease):
        starts.append((lease.key, lease.tags["cronoq.recurring"]))

    async def main():
        nightly = {"name": "of the file", "cron": "30 2 * * *", "tz": "America/New_York", "key": "file"}
        async with (
            serve(now=MARCH_14 - 300, recurring=[nightly]) as server,
            Client(server.target) as client,
            Worker(server.target, "default", handle),
        ):
            await client.add_recurring("called", "30 2 * * *", tz="America/New_York", key="called")
            found = {one.name: one.next_at for one in await client.list_recurring()}
            assert found == {"called": MARCH_14, "of the file": MARCH_14}
            await anyio.sleep(600)
            with pytest.raises(ClientError) as caught:
                await client.remove_recurring("of the file")
            assert caught.value.code == "failed_precondition"

    run(main)
    assert sorted(starts) == [
        ("called@2027-03-14T07:00:00Z", "called"),
        ("file@2027-03-14T07:00:00Z", "of the file"),
    ]


MARCH_14 = datetime(2027, 3, 14, 7, tzinfo=UTC).timestamp()
