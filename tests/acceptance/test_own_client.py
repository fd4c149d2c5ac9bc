"""The package's own client and worker against a server process: every method, tokens and TLS, on both event loops."""

import threading
import time

import anyio
import pytest
import trustme

from cronoq.client import Client, ClientError, PemPaths, task
from cronoq.worker import Worker
from tests.acceptance.server import HANG, Server, environment

POOLS = ("calls", "waits", "batch", "pages", "watch", "loop", "workers", "slow", "figures", "many")
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 2000\n' for name in ("default", *POOLS))}
TOKENS = {role: f"canary-{role}-".ljust(40, "x") for role in ("client", "worker", "metrics", "admin")}
ENTRIES = "".join(f'[[auth.tokens]]\nrole = "{role}"\ntoken = "{token}"\n' for role, token in TOKENS.items())


@pytest.fixture(params=["trio", "asyncio"])
def run(request):
    """Run a coroutine function to its end on one of the two loops; what hangs fails."""

    def run(function):
        async def bounded():
            with anyio.fail_after(HANG):
                await function()

        anyio.run(bounded, backend=request.param)

    return run


@pytest.fixture
def name(request):
    """A word that no other test has, for keys."""
    return request.node.name


async def until(condition):
    while not await anyio.to_thread.run_sync(condition):
        await anyio.sleep(0.01)


async def echo(lease):
    return lease.payload


# --- every method


def test_submitting_waiting_and_looking(server, run, name):
    async def main():
        before = time.time()
        async with Client(server.address) as client, Worker(server.address, "calls", echo, slots=4):
            done = await client.submit({"a": [1, None]}, pool="calls", key=name, wait=True, tags={"x": 1})
            assert (done.duplicate, done.result.ok, done.result.json()) == (False, True, {"a": [1, None]})
            assert done.result.id == done.id and done.result.output_available
            again = await client.submit("other", pool="calls", key=name, wait=True)
            assert (again.id, again.duplicate, again.result.json()) == (done.id, True, {"a": [1, None]})
            for reference in (done.id, name):
                info = await client.get(reference)
                assert (info.id, info.key, info.status, info.attempt, info.done) == (
                    done.id,
                    name,
                    "succeeded",
                    1,
                    True,
                )
                assert before <= info.created_at <= info.started_at <= info.finished_at <= time.time()
                assert (await client.wait(reference)).json() == {"a": [1, None]}
                assert await client.cancel(reference) is False
            for call in (client.get, client.wait, client.cancel):
                with pytest.raises(ClientError, match="not_found"):
                    await call(f"nothing {name}")
            for options, code in (
                ({"pool": "nowhere"}, "not_found"),
                ({"kind": "k" * 129}, "invalid_argument"),
                ({"start_in": -1}, "invalid_argument"),
            ):
                with pytest.raises(ClientError) as caught:
                    await client.submit(**options)
                assert caught.value.code == code and caught.value.message

    run(main)


def test_a_time_to_wait_and_a_time_to_call_and_a_cancelled_call(server, run, name):
    async def main():
        async with Client(server.address) as client:
            task_id = (await client.submit(pool="waits", key=name)).id
            begun = anyio.current_time()
            with pytest.raises(TimeoutError):
                await client.wait(task_id, timeout=0.2)
            with pytest.raises(TimeoutError):
                await client.wait(task_id, call_timeout=0.2)
            with pytest.raises(TimeoutError):
                await client.submit(pool="waits", key=name, wait=True, wait_timeout=0.2)
            with anyio.move_on_after(0.2) as scope:
                await client.wait(task_id)
            assert scope.cancelled_caught and 0.8 <= anyio.current_time() - begun < 10
            await until(lambda: server.statistics()["open_waits"] == "0")
            assert (await client.get(task_id)).status == "ready", "giving up a call gives up no task"
            assert await client.cancel(task_id) is True
            assert (await client.wait(task_id)).status == "cancelled"

    run(main)


def test_a_batch_is_all_or_nothing(server, run, name):
    async def main():
        async with Client(server.address) as client:
            specs = [task(f"{number}", pool="batch", key=f"{name} {number}") for number in range(10)]
            first = await client.submit_batch(specs)
            assert [entry.duplicate for entry in first] == [False] * 10
            assert [entry.id for entry in first] == sorted({entry.id for entry in first})
            again = await client.submit_batch([*specs, task(pool="batch", key=f"{name} new")])
            assert [entry.id for entry in again[:10]] == [entry.id for entry in first]
            assert [entry.duplicate for entry in again] == [True] * 10 + [False]
            with pytest.raises(ClientError, match=r"task\[1\]") as caught:
                await client.submit_batch([task(pool="batch", key=f"{name} lost"), task(pool="nowhere")])
            assert caught.value.code == "not_found"
            with pytest.raises(ClientError, match="not_found"):
                await client.get(f"{name} lost")

    run(main)


def test_pages_and_all_of_them(server, run):
    async def main():
        async with Client(server.address) as client:
            highest = max([info.id async for info in client.iter_tasks(pools=["pages"])], default=0)
            ids = [entry.id for entry in await client.submit_batch([task(pool="pages")] * 25)]
            for task_id in ids[:5]:
                await client.cancel(task_id)
            page = await client.list_tasks(pools=["pages"], after=highest, limit=10)
            assert [info.id for info in page.tasks] == ids[:10] and page.next_after == ids[9]
            page = await client.list_tasks(pools=["pages"], after=ids[9])
            assert [info.id for info in page.tasks] == ids[10:] and page.next_after is None
            page = await client.list_tasks(pools=["pages"], statuses=["cancelled"], after=highest)
            assert [(info.id, info.status, info.done) for info in page.tasks] == [
                (task_id, "cancelled", True) for task_id in ids[:5]
            ]
            for size in (0, 7):
                found = [info.id async for info in client.iter_tasks(pools=["pages"], page_size=size)]
                assert found[-25:] == ids
            ready = [info.id async for info in client.iter_tasks(pools=["pages"], statuses=["READY"], page_size=3)]
            assert ready[-20:] == ids[5:]
            with pytest.raises(ClientError, match="not_found"):
                await client.list_tasks(pools=["nowhere"])

    run(main)


def test_watching_in_a_block_and_in_a_loop(server, run, name):
    async def main():
        async with Client(server.address) as client:
            async with client.watch(["watch"], keys=[name], all_transitions=True) as events:
                task_id = (await client.submit(pool="watch", key=name)).id
                await client.submit(pool="watch")
                async with Worker(server.address, "watch", echo):
                    seen = []
                    async for event in events:
                        seen.append((event.id, event.key, event.pool, event.status, event.attempt))
                        if event.done:
                            break
            assert seen == [
                (task_id, name, "watch", status, attempt)
                for status, attempt in (("blocked", 0), ("ready", 0), ("running", 1), ("succeeded", 1))
            ]
            await until(lambda: server.statistics()["open_watches"] == "0")
            ended = []

            async def loop():
                async for event in client.watch(["loop"]):
                    ended.append((event.id, event.status))
                    if len(ended) == 3:
                        break

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(loop)
                await until(lambda: server.statistics()["open_watches"] == "1")
                ids = [(await client.submit(pool="loop")).id for _ in range(3)]
                for task_id in ids:
                    assert await client.cancel(task_id)
            assert ended == [(task_id, "cancelled") for task_id in ids]
            with pytest.raises(ClientError, match="nowhere") as caught:
                async with client.watch(["nowhere"]):
                    pass
            assert caught.value.code == "not_found"

    run(main)


def test_a_watcher_that_stops_reading_is_told_of_its_loss(server, run):
    async def main():
        async with Client(server.address) as client, client.watch(["slow"], all_transitions=True) as events:
            count = 0
            while (await anyio.to_thread.run_sync(server.statistics))["open_watches"] == "1":
                for _ in range(10):
                    # What a key costs is held against the watcher, and no key may come twice.
                    stamp = f"{time.time_ns()}"
                    await client.submit_batch(
                        [task(pool="slow", key=f"{stamp} {number}".ljust(240, "k")) for number in range(200)]
                    )
                    count += 200
                assert count < 60_000
            read = 0
            with pytest.raises(ClientError, match="were dropped") as caught:
                async for _ in events:
                    read += 1
            assert caught.value.code == "data_loss" and 0 < read < 2 * count

    run(main)


def test_workers_and_figures(server, run, name):
    async def main():
        release, started = threading.Event(), threading.Event()

        def hold(_lease):
            started.set()
            release.wait(HANG)

        async with (
            Client(server.address) as client,
            Worker(server.address, "workers", hold, slots=3, name=name, labels={"gpu": "a"}) as worker,
        ):
            before = time.time()
            submitted = await client.submit(pool="workers")
            await anyio.to_thread.run_sync(started.wait)
            (found,) = await client.list_workers()
            assert (found.id, found.name, found.pool, dict(found.labels)) == (
                worker.worker_id,
                name[:64],
                "workers",
                {"gpu": "a"},
            )
            assert (found.slots, found.busy) == (3, 1) and before - HANG < found.connected_at <= time.time()
            snapshot = await client.snapshot()
            figures = snapshot.pool("workers")
            assert (figures.capacity, figures.busy, figures.workers_connected) == (3, 1, 1)
            assert (snapshot.running, snapshot.workers_connected) == (1, 1)
            assert [(dict(group.labels), group.capacity, group.busy) for group in figures.groups if group.labels] == [
                ({"gpu": "a"}, 3, 1)
            ]
            await client.submit_batch([task(pool="figures", priority=word) for word in ("critical", "high", "high")])
            pending = (await client.snapshot()).pool("figures").pending_by_class
            assert pending[0] * 2 == pending[1] > 0 and pending[2:] == (0, 0)
            release.set()
            assert (await client.wait(submitted.id)).ok
            after = (await client.snapshot()).totals
            assert after.succeeded == snapshot.totals.succeeded + 1
            assert after.submitted == snapshot.totals.submitted + 3
        async with Client(server.address) as client:
            while await client.list_workers():
                await anyio.sleep(0.01)

    run(main)


def test_schedules(server, run):
    async def main():
        async with Client(server.address) as client:
            template = task({"n": 1}, kind="k", key="n", tolerance=5, on_miss="skip", deadline_in=60)
            await client.add_recurring("nightly", "0 3 29 2 *", template, tz="Europe/Berlin", overlap="queue")
            await client.add_recurring("a", "0 3 * * *", "x", pool="figures")
            first, second = schedules = await client.list_recurring()
            assert (first.name, first.pool, first.tz, first.overlap) == ("a", "figures", "", "skip")
            assert (second.name, second.cron, second.kind, second.overlap) == ("nightly", "0 3 29 2 *", "k", "queue")
            assert second.next_at == second.next_at_ns / 1e9 > time.time() and second.next_at % 86_400 == 2 * 3_600
            assert second.last_task_id is None and schedules.unavailable_shards == ()
            for name in ("a", "nightly"):
                assert await client.remove_recurring(name) is True
                assert await client.remove_recurring(name) is False
            assert await client.list_recurring() == []

    run(main)


def test_a_thousand_calls_in_flight_on_one_connection(server, run):
    """They wait on the server, all at once, before the first is answered."""

    async def main():
        async with Client(server.address) as client:
            task_id = (await client.submit(pool="many")).id
            results = []

            async def wait():
                results.append(await client.wait(task_id))

            async with anyio.create_task_group() as tasks:
                for _ in range(1_000):
                    tasks.start_soon(wait)
                await until(lambda: server.statistics()["waiting_for_tasks"] == "1000")
                assert (await anyio.to_thread.run_sync(server.statistics))["connections"] == "1"
                assert await client.cancel(task_id)
            assert [(result.id, result.status) for result in results] == [(task_id, "cancelled")] * 1_000

    run(main)


# --- TLS and tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A certificate for this machine, and the authority to trust."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    return folder


@pytest.fixture(scope="module")
def guarded(folder, tmp_path_factory):
    """A server behind TLS that asks for tokens."""
    extra = f'[server.tls]\ncert = "{folder / "cert.pem"}"\nkey = "{folder / "key.pem"}"\n{ENTRIES}'
    home = tmp_path_factory.mktemp("guarded")
    server = Server(home, "memory", extra=extra, environ=environment(CRONOQ_LOG="debug"), **SERVER)
    with server:
        yield server
        assert server.stop() == 0
    server.check_log()
    assert "canary" not in server.log.read_text()


@pytest.fixture
def trust(folder):
    return {"tls": True, "credentials": PemPaths(ca=folder / "ca.pem")}


def test_a_task_through_tls_with_a_token_for_each_part(guarded, run, trust, name):
    async def main():
        tokens = iter(["old and wrong", *[TOKENS["client"]] * 1_000])
        async with (
            Client(guarded.address, token=lambda: next(tokens), **trust) as changing,
            Client(
                f"https://localhost:{guarded.port}", token=TOKENS["client"], credentials=trust["credentials"]
            ) as client,
            Worker(guarded.address, "calls", echo, slots=4, token=TOKENS["worker"], name=name, **trust) as worker,
        ):
            assert worker.granted_slots == 4
            for size in (0, 70_000, 3_000_000):
                payload = bytes(range(256)) * (size // 256)
                assert (await client.submit(payload, pool="calls", wait=True)).result.output == payload
            with pytest.raises(ClientError, match="unauthenticated"):
                await changing.submit()
            assert (await changing.submit(pool="waits")).id
            async with client.watch(["loop"]) as events:
                task_id = (await client.submit(pool="loop")).id
                await client.cancel(task_id)
                assert (await anext(events)).id == task_id
            async with Client(guarded.address, token=TOKENS["metrics"], **trust) as metrics:
                assert [found.name for found in await metrics.list_workers()] == [name[:64]]
                assert (await metrics.snapshot()).totals.succeeded >= 3

    run(main)


def test_wrong_tokens_and_wrong_roles(guarded, run, trust):
    async def refused(code, token, call):
        async with Client(guarded.address, token=token, **trust) as client:
            with pytest.raises(ClientError) as caught:
                await call(client)
            assert caught.value.code == code
            assert "canary" not in str(caught.value)

    async def watch(client):
        async with client.watch():
            pass

    tasks = (
        lambda client: client.submit(),
        lambda client: client.submit_batch([task()]),
        lambda client: client.get(1),
        lambda client: client.wait(1),
        lambda client: client.cancel(1),
        lambda client: client.list_tasks(),
        watch,
    )
    figures = (lambda client: client.snapshot(), lambda client: client.list_workers())

    async def main():
        for call in (*tasks, *figures):
            for token in (None, "canary-wrong-".ljust(40, "y")):
                await refused("unauthenticated", token, call)
        for call in tasks:
            await refused("permission_denied", TOKENS["metrics"], call)
            await refused("permission_denied", TOKENS["worker"], call)
        for call in figures:
            await refused("permission_denied", TOKENS["client"], call)
        await refused("permission_denied", TOKENS["metrics"], lambda client: client.remove_recurring("n"))
        await refused("permission_denied", TOKENS["client"], lambda client: client.list_recurring())
        await refused("invalid_argument", TOKENS["admin"], lambda client: client.add_recurring("n", "never"))

    run(main)


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, "unauthenticated"),
        ("canary-wrong-".ljust(40, "y"), "unauthenticated"),
        (TOKENS["client"], "permission_denied"),
    ],
)
def test_a_worker_without_the_right_token_ends_at_once(guarded, run, trust, token, code):
    """Connecting again would not help, so it does not."""

    async def main():
        with pytest.raises(ClientError) as caught:
            await Worker(guarded.address, "calls", echo, token=token, **trust).run()
        assert caught.value.code == code and "canary" not in str(caught.value)

    run(main)


def test_peers_that_do_not_trust_each_other_or_do_not_use_tls(guarded, run, folder):
    async def main():
        stranger = PemPaths(ca=folder / "other.pem")
        for target, options, words in (
            (guarded.address, {"tls": True, "credentials": stranger}, "certificate"),
            (guarded.address, {}, "TLS, use it: https://"),
        ):
            async with Client(target, token=TOKENS["client"], timeout=10, **options) as client:
                with pytest.raises(ClientError, match=words) as caught:
                    await client.submit()
                assert caught.value.code == "unavailable" and target in caught.value.message
            with pytest.raises(ClientError, match=words):
                await Worker(target, "calls", echo, token=TOKENS["worker"], reconnect=False, **options).run()

    run(main)
