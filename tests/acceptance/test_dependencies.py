"""Tasks that wait for others, through grpcio and the package's own client, on both stores and across kill -9."""

import time

import anyio
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client, ClientError, Dep, task
from cronoq.worker import Permanent
from cronoq.worker import Worker as OwnWorker
from tests.acceptance.clients import Status, connect, reference, refused, retry, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker

SUCCESS, COMPLETE, FAILURE = pb.EDGE_COND_ON_SUCCESS, pb.EDGE_COND_ON_COMPLETE, pb.EDGE_COND_ON_FAILURE
NAMES = ("default", "diamond", "fail", "judged", "batch", "own", "cancel", "watch")
POOLS = "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in NAMES) + (
    '[[pools]]\nname = "await"\nmax = 100\nawait_unknown_dependencies_s = 3600\n'
    '[[pools]]\nname = "brief"\nmax = 100\nawait_unknown_dependencies_s = 0.3\n'
)
SERVER = {"pools": POOLS, "limits": "max_deps = 4"}


def dep(ref, cond=SUCCESS):
    return pb.Dep(target=reference(ref), cond=cond)


def batch(client, *specs):
    reply = client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=[pb.TaskSpec(**spec) for spec in specs]), timeout=HANG)
    return [member.id for member in reply.tasks]


@pytest.fixture
def key(request):
    """Keys that no other test has: `key("a")`."""
    return lambda name: f"{request.node.name} {name}"


# --- order


def test_a_diamond_in_a_batch_runs_its_last_task_once(client, key):
    a, b, c, d = (key(name) for name in "abcd")
    ids = batch(
        client,
        dict(pool="diamond", key=d, deps=[dep(b, COMPLETE), dep(c, COMPLETE)]),
        dict(pool="diamond", key=c, deps=[dep(a)]),
        dict(pool="diamond", key=b, deps=[dep(a)]),
        dict(pool="diamond", key=a),
    )
    last, third, second, first = ids
    assert [client.status(task_id) for task_id in ids] == ["blocked", "blocked", "blocked", "ready"]
    with Worker(client.channel, pool="diamond", slots=4) as worker:
        lease = worker.lease()
        assert lease.task_id == first
        worker.complete(lease.lease)
        leases = {found.task_id: found.lease for found in (worker.lease(), worker.lease())}
        assert set(leases) == {second, third}
        worker.fail(leases[second], "no", permanent=True)
        wait_until(lambda: client.status(second) == "failed", "failed")
        assert client.status(last) == "blocked" and worker.silent()
        worker.complete(leases[third])
        lease = worker.lease()
        assert (lease.task_id, lease.attempt) == (last, 1)
        worker.complete(lease.lease, b"once")
        assert client.wait(last).output == b"once"
        assert client.get(last).attempt == 1 and worker.silent()


def test_a_failure_runs_what_waits_for_it_and_skips_the_rest(client, key):
    parent = client.submit(pool="fail", key=key("parent"), retry=retry(1)).id
    good = client.submit(pool="fail", deps=[dep(parent)]).id
    after_good = client.submit(pool="fail", deps=[dep(good)]).id
    last = client.submit(pool="fail", deps=[dep(after_good, COMPLETE)]).id
    alarm = client.submit(pool="fail", deps=[dep(key("parent"), FAILURE)]).id
    with Worker(client.channel, pool="fail", slots=4) as worker:
        worker.fail(worker.lease().lease, "broken")
        for task_id, cause in ((good, parent), (after_good, good)):
            result = client.wait(task_id)
            assert word(result.status) == "skipped" and not result.HasField("output")
            assert str(cause) in result.message and client.get(task_id).message == result.message
        assert "dead_lettered" in client.wait(good).message and "skipped" in client.wait(after_good).message
        leases = {found.task_id: found for found in (worker.lease(), worker.lease())}
        assert set(leases) == {last, alarm}
        for lease in leases.values():
            worker.complete(lease.lease)
        assert [word(client.wait(task_id).status) for task_id in (last, alarm)] == ["succeeded", "succeeded"]
        assert client.get(good).attempt == 0


def test_parents_that_ended_before_are_judged_at_once(client, key):
    with Worker(client.channel, pool="judged", slots=2) as worker:
        good = client.submit(pool="judged", key=key("good")).id
        worker.complete(worker.lease().lease)
        bad = client.submit(pool="judged", key=key("bad")).id
        worker.fail(worker.lease().lease, permanent=True)
        client.wait(good), client.wait(bad)
        for deps in ([dep(good)], [dep(key("good"))], [dep(bad, FAILURE)], [dep(good), dep(bad, COMPLETE)]):
            child = client.submit(pool="judged", deps=deps).id
            lease = worker.lease()
            assert lease.task_id == child
            worker.complete(lease.lease)
        for deps in ([dep(bad)], [dep(good, FAILURE)], [dep(good), dep(key("bad"))]):
            reply = client.submit(pool="judged", wait=True, deps=deps)
            assert word(reply.result.status) == "skipped" and reply.result.message
            assert client.status(reply.id) == "skipped"
        assert worker.silent()


def test_a_cancelled_parent_skips_and_a_cancelled_child_is_no_more(client, key):
    parent = client.submit(pool="cancel", key=key("parent")).id
    child = client.submit(pool="cancel", deps=[dep(parent)]).id
    other = client.submit(pool="cancel", deps=[dep(parent, COMPLETE)]).id
    assert client.cancel(other) and client.status(other) == "cancelled"
    assert client.cancel(parent)
    assert word(client.wait(child).status) == "skipped" and "cancelled" in client.wait(child).message
    assert client.status(other) == "cancelled" and not client.cancel(child)


# --- keys that nobody has


def test_an_unknown_parent_is_refused_and_named(client, key):
    known = client.submit(key=key("known")).id
    for unknown in (5, key("nobody")):
        with refused(Status.NOT_FOUND, "deps[1]", str(unknown)):
            client.submit(deps=[dep(known), dep(unknown)])
    with refused(Status.NOT_FOUND, "task[1]", "deps[0]", key("nobody")) as caught:
        batch(client, dict(key=key("lost")), dict(deps=[dep(key("nobody"))]))
    assert dict(caught.value.trailing_metadata())["cronoq-batch-index"] == "1"
    with refused(Status.NOT_FOUND):
        client.get(key("lost"))
    with refused(Status.NOT_FOUND, "deps[0]"):
        client.submit(pool="await", deps=[dep(5)])


def test_a_pool_may_wait_for_a_key(client, key):
    child = client.submit(pool="await", deps=[dep(key("late")), dep(key("later"), COMPLETE)]).id
    assert client.status(child) == "blocked"
    with Worker(client.channel, pool="await", slots=2) as worker:
        for name in ("later", "late"):
            client.submit(pool="await", key=key(name))
            assert client.status(child) == "blocked"
            worker.complete(worker.lease().lease)
        lease = worker.lease()
        assert lease.task_id == child
        worker.complete(lease.lease)


def test_and_gives_up_after_a_time(client, key):
    begun = time.monotonic()
    reply = client.submit(pool="brief", wait=True, deps=[dep(key("never"))])
    assert word(reply.result.status) == "skipped" and key("never") in reply.result.message
    assert 0.25 <= time.monotonic() - begun < 10


# --- cycles


def test_cycles_are_refused_and_their_members_named(client, key):
    a, b, c = key("a"), key("b"), key("c")
    with refused(Status.INVALID_ARGUMENT, "cycle", a, b, c) as caught:
        batch(
            client,
            dict(key=key("beside")),
            dict(key=a, deps=[dep(b)]),
            dict(key=b, deps=[dep(c, COMPLETE)]),
            dict(key=c, deps=[dep(a, FAILURE)]),
        )
    assert dict(caught.value.trailing_metadata())["cronoq-batch-index"] == "1"
    for name in (a, key("beside")):
        with refused(Status.NOT_FOUND):
            client.get(name)
    with refused(Status.INVALID_ARGUMENT, "deps[0]", f"{a} -> {a}"):
        client.submit(key=a, deps=[dep(a)])
    first = client.submit(pool="await", key=a, deps=[dep(b)]).id
    second = client.submit(pool="await", key=c, deps=[dep(first)]).id
    with refused(Status.INVALID_ARGUMENT, "cycle"):
        client.submit(pool="await", key=b, deps=[dep(second)])
    assert client.status(first) == "blocked"
    third = client.submit(pool="await", key=b).id
    assert [client.status(task_id) for task_id in (first, second, third)] == ["blocked", "blocked", "ready"]


# --- what cannot be asked

BAD = {
    "neither id nor key": ([pb.Dep()], "deps[0]"),
    "an empty key": ([dep(7), pb.Dep(target=pb.TaskRef(key=""))], "deps[1]"),
    "a key that is too long": ([dep("k" * 257)], "deps[0]"),
    "a key with NUL": ([dep("a\0b")], "deps[0]"),
    "an unknown condition": ([dep(7, 9)], "deps[0]"),
    "too many": ([dep(7)] * 5, "deps"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_dependencies_are_invalid(client, case):
    deps, field = BAD[case]
    with refused(Status.INVALID_ARGUMENT, field):
        client.submit(deps=deps)
    with refused(Status.INVALID_ARGUMENT, "task[1]", field):
        batch(client, {}, dict(deps=deps))


# --- the package's own client


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_same_through_our_own_client(server, key, backend):
    ran = []

    async def handle(lease):
        ran.append(lease.key.rpartition(" ")[2])
        if lease.kind == "fail":
            raise Permanent("no")

    async def main():
        name = [f"{key(letter)}" for letter in "abcd"]
        tasks = [
            task(pool="own", key=name[3], deps=[Dep(name[1], "complete"), (name[2], "on_complete")]),
            task(pool="own", after=name[1]),
            task(pool="own", key=name[1], kind="fail", after=[name[0]]),
            task(pool="own", key=name[2], deps=[name[0]]),
            task(pool="own", key=name[0]),
        ]
        async with Client(server.address) as client:
            handed_in = await client.submit_batch(tasks)
            assert [(await client.get(one.id)).status for one in handed_in] == ["blocked"] * 4 + ["ready"]
            async with client.watch(ids=[handed_in[1].id]) as events, OwnWorker(server.address, "own", handle):
                results = [await client.wait(one.id) for one in handed_in]
                event = await anext(aiter(events))
            assert [result.status for result in results] == ["succeeded", "skipped", "failed", "succeeded", "succeeded"]
            skipped = results[1]
            assert (event.id, event.status, event.done, event.message) == (skipped.id, "skipped", True, skipped.message)
            assert ran[0] == "a" and sorted(ran[1:3]) == ["b", "c"] and ran[3:] == ["d"]
            for options, code, words in (
                ({"after": "nobody"}, "not_found", "deps[0]"),
                ({"deps": [(name[0], "success"), (5, "failure")]}, "not_found", "deps[1]"),
                ({"key": "self", "after": "self"}, "invalid_argument", "deps[0]: the task depends on itself"),
            ):
                with pytest.raises(ClientError) as caught:
                    await client.submit(**options)
                assert caught.value.code == code and words in caught.value.message and not caught.value.retryable

    async def bounded():
        with anyio.fail_after(HANG):
            await main()

    anyio.run(bounded, backend=backend)


# --- many


def test_a_wave_of_consequences_leaves_room_for_others(start):
    """60,000 dependencies to be rewritten at once: far more than the store writes while somebody waits."""
    server = start("sqlite", pools='[[pools]]\nname = "wave"\nawait_unknown_dependencies_s = 3600\n')
    names = [f"k{number}" for number in range(200)]
    with connect(server.address) as client:
        child = dict(pool="wave", deps=[dep(name) for name in names])
        children = [task_id for _ in range(3) for task_id in batch(client, *[child] * 100)]
        parents = batch(client, *[dict(pool="wave", key=name) for name in names])
        for _ in range(3):
            begun = time.monotonic()
            assert client.submit(pool="wave").id and client.status(children[0]) == "blocked"
            assert time.monotonic() - begun < 5, "0.3 s was measured"
        assert client.cancel(parents[0])
        for task_id in (children[0], children[-1]):
            assert word(client.wait(task_id).status) == "skipped"
        wait_until(lambda: client.snapshot().live_tasks == len(parents) - 1 + 3, "the whole wave is over")
    assert server.stop() == 0
    assert "not ready" not in server.output()
    server.start()
    with connect(server.address) as client:
        assert client.snapshot().live_tasks == len(parents) - 1 + 3


# --- across a crash


def test_edges_awaited_keys_and_finished_parents_survive_kill_9(start):
    server = start("sqlite", pools=POOLS)
    with connect(server.address) as client:
        with Worker(client.channel, pool="await", slots=1) as worker:
            good = client.submit(pool="await", key="good").id
            worker.complete(worker.lease().lease)
            bad = client.submit(pool="await", key="bad").id
            worker.fail(worker.lease().lease, "broken", permanent=True)
            client.wait(good), client.wait(bad)
        wait_until(lambda: client.snapshot().workers_connected == 0, "the worker is gone")
        parent = client.submit(pool="await", key="parent").id
        both = client.submit(pool="await", deps=[dep(parent), dep(good)]).id
        last = client.submit(pool="await", key="last", deps=[dep(both)]).id
        waiting = client.submit(pool="await", deps=[dep("unborn"), dep("bad", FAILURE)]).id
        brief = client.submit(pool="brief", deps=[dep("never")]).id
        skipped = client.submit(pool="await", deps=[dep(bad)]).id
        before = [client.get(task_id) for task_id in (parent, both, last, waiting, skipped)]
        assert [word(info.status) for info in before] == ["ready", "blocked", "blocked", "blocked", "skipped"]
    server.kill()
    server.start()
    with connect(server.address) as client:
        assert [client.get(task_id) for task_id in (parent, both, last, waiting, skipped)] == before
        assert word(client.wait(brief).status) == "skipped" and "never" in client.wait(brief).message
        judged = client.submit(pool="await", deps=[dep(good), dep("bad", FAILURE)]).id
        assert client.status(judged) == "ready"
        assert word(client.submit(pool="await", wait=True, deps=[dep("bad")]).result.status) == "skipped"
        with refused(Status.INVALID_ARGUMENT, "cycle"):
            client.submit(pool="await", key="unborn", deps=[dep(waiting)])
        unborn = client.submit(pool="await", key="unborn", deps=[dep(last)]).id
    server.kill()
    server.start()
    with connect(server.address) as client, Worker(client.channel, pool="await", slots=1) as worker:
        for expected in (parent, both, last, judged, unborn, waiting):
            lease = worker.lease()
            assert (lease.task_id, lease.attempt) == (expected, 1)
            worker.complete(lease.lease)
        assert word(client.wait(waiting).status) == "succeeded"
