"""Labels, kinds and tenants of which new ones never end: the server's tables do not grow with them."""

from cronoq._proto import cronoq_pb2 as pb
from cronoq_sansio.limits import MAX_LEARNED_KINDS, MAX_TENANTS
from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

STORES = ["memory"]
SERVER = {
    "pools": '[[pools]]\nname = "hosts"\nmax = 100\n[[pools]]\nname = "fair"\nmax = 100\nfair_share = true\n',
}
TABLES = ("groups", "demands", "worker_groups", "workers", "service_timers", "live_tasks")


def sizes(server, *names):
    figures = server.statistics()
    return {name: int(figures[name]) for name in names}


def run_batch(client, specs):
    """Have a batch run to its end by whoever serves."""
    client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=specs), timeout=HANG)
    wait_until(lambda: client.snapshot().live_tasks == 0, "all of them have ended")


def test_every_host_its_own_label(client, server):
    """Workers that come, run the task for their host alone, and go: as with pods whose names are new each time."""
    before = sizes(server, *TABLES)
    for number in range(150):
        label = {"host": f"pod-{number}"}
        task_id = client.submit(pool="hosts", labels=label).id
        with Worker(client.channel, pool="hosts", labels=label) as worker:
            lease = worker.lease()
            assert lease.task_id == task_id
            if number % 2:
                worker.complete(lease.lease)
                client.wait(task_id)
            else:
                client.cancel(task_id)
                worker.receive("abort")
            if number % 3 == 0:
                client.cancel(client.submit(pool="hosts", labels={"host": f"nobody-{number}"}).id)
    wait_until(lambda: sizes(server, *TABLES) == before, "everything is as before")
    (pool,) = (pool for pool in client.snapshot().pools if pool.name == "hosts")
    assert [dict(group.labels) for group in pool.groups] == [{}]


def test_many_hosts_at_a_time_are_as_many_groups_and_then_none(client, server):
    before = sizes(server, *TABLES)
    with connect(server.address) as other:
        workers = [Worker(other.channel, pool="hosts", labels={"host": f"h{number}"}) for number in range(60)]
        ids = [client.submit(pool="hosts", labels={"host": f"h{number}"}).id for number in range(60)]
        leases = [worker.lease() for worker in workers]
        assert [lease.task_id for lease in leases] == ids
        found = sizes(server, *TABLES)
        assert [found[name] - before[name] for name in ("groups", "demands", "worker_groups")] == [60, 60, 60]
        for worker, lease in zip(workers, leases, strict=True):
            worker.complete(lease.lease)
            client.wait(lease.task_id)
        for worker in workers:
            worker.leave()
    wait_until(lambda: sizes(server, *TABLES) == before, "everything is as before")


def test_every_task_its_own_kind_and_tenant(client, server):
    """So many are remembered as `limits` says, however many come."""
    rounds, at_a_time = MAX_TENANTS // 1_000 + 2, 1_000
    of_others = sizes(server, "learned_kinds")["learned_kinds"]
    with serving(client.channel, pool="fair", slots=100):
        for turn in range(rounds):
            names = [f"{turn}-{number}" for number in range(at_a_time)]
            run_batch(
                client, [pb.TaskSpec(pool="fair", kind=f"kind-{name}", tenant=f"tenant-{name}") for name in names]
            )
    found = sizes(server, "learned_kinds", "tenants")
    assert found["learned_kinds"] - of_others == MAX_LEARNED_KINDS
    assert found["tenants"] <= MAX_TENANTS < rounds * at_a_time
