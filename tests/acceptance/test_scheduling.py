"""What runs next: deadlines, resources, labels, tenants; with foreign and own workers, on both stores."""

import time

import anyio
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client as OwnClient
from cronoq.client import task
from cronoq.worker import Worker as OwnWorker
from tests.acceptance.clients import Status, connect, refused, retry, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

NAMES = (
    *("default", "deadline", "urgent", "hint", "one", "dead", "both", "bucket", "labels", "groups", "plain"),
    *("gone", "figures"),
)
POOLS = "".join(f'[[pools]]\nname = "{name}"\nmax = 100\nlease_ttl_s = 30\n' for name in NAMES) + (
    '[[pools]]\nname = "weights"\nmax = 100\ntenant_weights = { heavy = 3.0 }\n'
    '[[pools]]\nname = "fair"\nmax = 100\nfair_share = true\n'
    '[[pools]]\nname = "small"\nmax = 100\nmax_pending = 2\n'
)
RESOURCES = "".join(
    f'[[resources]]\nname = "{name}"\nkind = "semaphore"\npermits = {permits}\n'
    for name, permits in (("one", 1), ("dead", 1), ("pair", 2), ("gpu", 4), ("gone", 1))
) + (
    '[[resources]]\nname = "slow"\nkind = "token_bucket"\nrate = 0.000001\nburst = 1\n'
    '[[resources]]\nname = "quick"\nkind = "token_bucket"\nrate = 10\nburst = 2\n'
)
SERVER = {
    "pools": POOLS,
    "extra": RESOURCES,
    "limits": "max_tags = 3\nmax_tag_len = 16\nmax_key_len = 64\nmax_resources = 3",
}
NAN, INFINITY = float("nan"), float("inf")


def order(client, pool, count, **fields):
    """The ids of tasks in the order in which a worker with one slot gets them."""
    with Worker(client.channel, pool=pool, slots=1, **fields) as worker:
        found = []
        for _ in range(count):
            lease = worker.lease()
            found.append(lease.task_id)
            worker.complete(lease.lease)
        client.wait(found[-1])
    return found


# --- deadlines


def test_the_earliest_deadline_runs_first_and_workers_see_it(client):
    before = time.time_ns()
    late, early, middle = (client.submit(pool="deadline", deadline_in_s=s).id for s in (3e6, 1e6, 2e6))
    at = time.time_ns() + 4_000_000 * 10**9
    last = client.submit(pool="deadline", deadline_unix_ns=at).id
    with Worker(client.channel, pool="deadline", slots=4) as worker:
        leases = [worker.lease() for _ in range(4)]
        assert [lease.task_id for lease in leases] == [early, middle, late, last]
        assert leases[3].deadline_unix_ns == at
        assert before <= leases[0].deadline_unix_ns - 10**15 <= time.time_ns()
        for lease in leases:
            worker.complete(lease.lease)


def test_a_task_that_is_late_overtakes_a_better_class(client):
    high = client.submit(pool="urgent", priority=pb.PRIORITY_HIGH).id
    far = client.submit(pool="urgent", deadline_in_s=1e6).id
    late = client.submit(pool="urgent", priority=pb.PRIORITY_LOW, deadline_unix_ns=0).id
    critical = client.submit(pool="urgent", priority=pb.PRIORITY_CRITICAL).id
    assert order(client, "urgent", 4) == [critical, late, high, far]


def test_a_hint_says_how_early_a_task_must_start(client):
    at = time.time_ns() + 10**15
    short = client.submit(pool="hint", deadline_unix_ns=at, duration_hint_s=1).id
    long = client.submit(pool="hint", deadline_unix_ns=at, duration_hint_s=60).id
    assert order(client, "hint", 2) == [long, short]


# --- resources


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_semaphore_of_one_never_lets_two_run(server, backend):
    """Two workers with room for eight; the handlers count what runs beside them."""
    running, most, plain = set(), 0, 0

    async def handle(lease):
        nonlocal most, plain
        if lease.text() == "plain":
            plain += 1
            return
        running.add(lease.task_id)
        most = max(most, len(running))
        await anyio.sleep(0.005)
        running.remove(lease.task_id)

    async def main():
        spec = task("one", pool="one", resources={"one": 1})
        workers = [OwnWorker(server.address, "one", handle, slots=4) for _ in range(2)]
        with anyio.fail_after(HANG):
            async with OwnClient(server.address) as client, workers[0], workers[1]:
                tasks = await client.submit_batch([spec] * 12 + [task("plain", pool="one")])
                assert {(await client.wait(one.id)).status for one in tasks} == {"succeeded"}
                assert {(await client.get(one.id)).attempt for one in tasks} == {1}

    anyio.run(main, backend=backend)
    assert (most, plain) == (1, 1)


def test_when_the_holder_dies_one_more_runs_and_never_two(client, server):
    ids = {client.submit(pool="dead", resources={"dead": 1}, retry=retry(3)).id for _ in range(3)}
    with Worker(client.channel, pool="dead", slots=4) as living:
        with connect(server.address) as other, Worker(other.channel, pool="dead", slots=4) as dying:
            held = living.lease()
            waiting = ids - {held.task_id}
            assert [client.get(task_id).attempt for task_id in waiting] == [0, 0]
            living.set_slots(0)
            wait_until(lambda: capacity(client, "dead") == 4, "only the other one takes more")
            living.complete(held.lease)
            lost = dying.lease()
        living.set_slots(4)
        done = {held.task_id}
        while len(done) < 3:
            lease = living.lease()
            assert lease.attempt == (2 if lease.task_id == lost.task_id else 1)
            assert living.silent(), "two hold a semaphore of one"
            living.complete(lease.lease)
            done.add(lease.task_id)
        assert done == ids
        assert {word(client.wait(task_id).status) for task_id in ids} == {"succeeded"}


def capacity(client, pool):
    (found,) = (found for found in client.snapshot().pools if found.name == pool)
    return found.capacity


def test_all_units_or_none_and_nobody_behind_waits(client):
    """A task that lacks one of its units takes none of the others, counts no attempt and holds nobody up."""
    with Worker(client.channel, pool="both", slots=8) as worker:
        client.submit(pool="both", resources={"slow": 1})
        worker.complete(worker.lease().lease)
        stuck = client.submit(pool="both", resources={"pair": 2, "slow": 1}).id
        pair = client.submit(pool="both", resources={"pair": 2}).id
        lease = worker.lease()
        assert lease.task_id == pair
        half = client.submit(pool="both", resources={"pair": 1}).id
        plain = client.submit(pool="both").id
        other = worker.lease()
        assert other.task_id == plain
        assert [client.get(task_id).attempt for task_id in (stuck, half)] == [0, 0]
        assert [client.status(task_id) for task_id in (stuck, half)] == ["ready", "ready"]
        worker.complete(lease.lease)
        lease = worker.lease()
        assert lease.task_id == half
        for one in (lease, other):
            worker.complete(one.lease)
        assert client.cancel(stuck)


def test_a_bucket_gives_its_burst_and_then_its_rate(client):
    with serving(client.channel, pool="bucket"):
        ids = [client.submit(pool="bucket", resources={"quick": 1}).id for _ in range(8)]
        for task_id in ids:
            client.wait(task_id)
    started = sorted(client.get(task_id).started_unix_ns for task_id in ids)
    taken = (started[-1] - started[0]) / 1e9
    assert 0.55 <= taken < 5, "two at once, six more at ten per second"
    assert {client.get(task_id).attempt for task_id in ids} == {1}


# --- labels


def test_labels_choose_the_worker_and_hold_nobody_up(client, server):
    wanting = [client.submit(pool="labels", labels={"zone": "a"}).id for _ in range(10)]
    exact = client.submit(pool="labels", labels={"zone": "a", "gpu": "yes"}).id
    plain = client.submit(pool="labels").id
    assert order(client, "labels", 1) == [plain]
    with connect(server.address) as second, Worker(second.channel, pool="labels", labels={"zone": "b"}) as wrong:
        assert order(client, "labels", 10, labels={"zone": "a"}) == wanting
        assert client.status(exact) == "ready" and wrong.silent()
        assert order(client, "labels", 1, labels={"zone": "a", "gpu": "yes", "more": "1"}) == [exact]
        assert wrong.silent()


def test_a_plain_task_goes_to_the_least_labelled_worker(client, server):
    with (
        connect(server.address) as second,
        Worker(second.channel, pool="groups", labels={"zone": "a"}) as labelled,
        Worker(client.channel, pool="groups") as plain,
    ):
        first, other = client.submit(pool="groups").id, client.submit(pool="groups").id
        assert (plain.lease().task_id, labelled.lease().task_id) == (first, other)


# --- tenants


def test_a_tenant_of_weight_three_gets_three_of_four(client):
    tenants = {}
    for tenant in ("heavy", "light"):
        for _ in range(30):
            tenants[client.submit(pool="weights", tenant=tenant).id] = tenant
    started = [tenants[task_id] for task_id in order(client, "weights", 60)]
    assert 13 <= started[:20].count("heavy") <= 16
    assert started[40:].count("light") == 20, "the heavy one has no more"


def test_a_newcomer_does_not_wait_behind_fifty_of_somebody_else(client):
    ids = [client.submit(pool="fair", tenant="many").id for _ in range(50)]
    late = client.submit(pool="fair", tenant="few").id
    assert order(client, "fair", 51).index(late) <= 2
    info = client.get(late)
    assert (info.tenant, info.priority) == ("few", pb.PRIORITY_NORMAL) and client.get(ids[0]).tenant == "many"


# --- what cannot be asked

BAD = {
    "both deadlines": (dict(deadline_in_s=1, deadline_unix_ns=1), "deadline"),
    "a deadline that is no number": (dict(deadline_in_s=NAN), "deadline_in_s"),
    "a negative deadline": (dict(deadline_in_s=-1), "deadline_in_s"),
    "an infinite deadline": (dict(deadline_in_s=INFINITY), "deadline_in_s"),
    "a deadline beyond 100 years": (dict(deadline_in_s=3_153_600_001.0), "deadline_in_s"),
    "a deadline before 1970": (dict(deadline_unix_ns=-1), "deadline_unix_ns"),
    "a hint that is no number": (dict(duration_hint_s=NAN), "duration_hint_s"),
    "a negative hint": (dict(duration_hint_s=-0.1), "duration_hint_s"),
    "a hint beyond 100 years": (dict(duration_hint_s=1e10), "duration_hint_s"),
    "no units": (dict(resources={"gpu": 0}), "resources"),
    "more units than there are": (dict(resources={"gpu": 5}), "gpu"),
    "more than the burst": (dict(resources={"quick": 3}), "quick"),
    "too many resources": (dict(resources={str(number): 1 for number in range(4)}), "resources"),
    "a resource with a long name": (dict(resources={"r" * 65: 1}), "resources"),
    "too many labels": (dict(labels={str(number): "" for number in range(4)}), "labels"),
    "a label without a name": (dict(labels={"": "x"}), "labels"),
    "a label that is too long": (dict(labels={"a": "x" * 17}), "labels"),
    "a label with NUL": (dict(labels={"a": "\0"}), "labels"),
    "a tenant that is too long": (dict(tenant="t" * 65), "tenant"),
    "a tenant with NUL": (dict(tenant="a\0"), "tenant"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_asked_is_invalid_and_named(client, case):
    fields, name = BAD[case]
    with refused(Status.INVALID_ARGUMENT, name):
        client.submit(**fields)
    with refused(Status.INVALID_ARGUMENT, "task[1]", name) as caught:
        specs = [pb.TaskSpec(), pb.TaskSpec(**fields)]
        client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=specs), timeout=HANG)
    assert dict(caught.value.trailing_metadata())["cronoq-batch-index"] == "1"


def test_an_unknown_resource_is_not_found(client):
    with refused(Status.NOT_FOUND, "tpu"):
        client.submit(resources={"gpu": 1, "tpu": 1})


# --- across a crash


def test_all_of_it_survives_kill_9(start):
    server = start("sqlite", **SERVER)
    fields = dict(pool="gone", deadline_in_s=1e6, duration_hint_s=3, tenant="t", labels={"a": "b"})
    with connect(server.address) as client, Worker(client.channel, pool="gone", labels={"a": "b"}, slots=2) as worker:
        held = client.submit(**fields, resources={"gone": 1}, retry=retry(2)).id
        lease = worker.lease()
        waiting = client.submit(**{**fields, "deadline_in_s": 1e5}, resources={"gone": 1}).id
        plain = client.submit(pool="gone", labels={"a": "c"}).id
        before = client.get(waiting)
        assert (before.tenant, before.attempt, word(before.status)) == ("t", 0, "ready")
        server.kill()
        worker.ended()
    server.start()
    with connect(server.address) as client:
        wait_until(lambda: client.status(held) == "ready", "the backoff is over")
        assert client.get(waiting) == before
        with Worker(client.channel, pool="gone", labels={"a": "b"}, slots=2) as worker:
            first = worker.lease()
            assert first.task_id == waiting, "the nearer deadline"
            assert client.get(held).attempt == 1, "the permit is taken"
            worker.complete(first.lease)
            second = worker.lease()
            assert (second.task_id, second.attempt) == (held, 2)
            assert second.deadline_unix_ns == lease.deadline_unix_ns
            worker.complete(second.lease)
            client.wait(held)
            assert client.status(plain) == "ready" and worker.silent()
        assert order(client, "gone", 1, labels={"a": "c"}) == [plain]
