"""Tasks that start at a time of their own: met, reserved, refused, missed; with foreign and own workers."""

import re
import time

import anyio
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client as OwnClient
from cronoq.client import ClientError, task
from cronoq.worker import Worker as OwnWorker
from tests.acceptance.clients import Status, connect, refused, retry, wait_until, word
from tests.acceptance.server import HANG, run_cli
from tests.acceptance.workers import Worker, serving

NAMES = ("default", "met", "full", "missed", "shown", "cancelled", "retried", "batch")
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in NAMES) + (
    '[[pools]]\nname = "two"\nmax = 2\n[[pools]]\nname = "busy"\nmax = 2\n'
)}  # fmt: skip
SECOND = 10**9
ON_TIME = 0.2
"""Seconds by which a start may be late here."""


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_start_is_met(server, backend, absolute):
    """By a real worker, whose one slot other work would like to have."""
    started = {}

    async def handle(lease):
        started[lease.task_id] = time.time()
        await anyio.sleep(0.01)

    async def main():
        async with OwnClient(server.address) as client, OwnWorker(server.address, "met", handle):
            wanted = time.time() + 1.5
            when = {"start_at": wanted} if absolute else {"start_in": 1.5}
            exact = await client.submit(pool="met", kind="exact", duration_hint=0.1, **when)
            assert (await client.get(exact.id)).status == "scheduled"
            await client.submit_batch([task(pool="met", kind="other") for _ in range(300)])
            assert (await client.wait(exact.id)).ok
            info = await client.get(exact.id)
            for at in (started[exact.id], info.started_at):
                assert -0.001 <= at - wanted <= ON_TIME
            for page in (await client.list_tasks(pools=["met"], statuses=["ready"])).tasks:
                await client.cancel(page.id)

    play(backend, main)


def play(backend, main):
    async def bounded():
        with anyio.fail_after(HANG):
            await main()

    anyio.run(bounded, backend=backend)


def test_a_second_start_at_the_same_time_conflicts_and_is_told_when(client, server):
    """Half of two slots may be reserved: one."""
    at = time.time_ns() + 3_600 * SECOND
    first = client.submit(pool="two", start_unix_ns=at, duration_hint_s=10, tolerance_s=1, key="first").id
    with refused(Status.FAILED_PRECONDITION, "two") as caught:
        client.submit(pool="two", start_unix_ns=at + 5 * SECOND, duration_hint_s=10, tolerance_s=1)
    moments = re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", caught.value.details())
    assert moments, "the message names the time"
    assert time.strftime("%Y-%m-%d", time.gmtime(at // SECOND)) in caught.value.details()
    touching = client.submit(pool="two", start_unix_ns=at + 12 * SECOND, duration_hint_s=10, tolerance_s=1).id
    assert client.cancel(first), "its reservation ends with it"
    again = client.submit(pool="two", start_unix_ns=at, duration_hint_s=10, tolerance_s=1).id
    for task_id in (touching, again):
        assert client.cancel(task_id)

    async def main():
        async with OwnClient(server.address) as own:
            kept = await own.submit(pool="two", start_in=3_600, duration_hint=10)
            with pytest.raises(ClientError) as caught:
                await own.submit(pool="two", start_in=3_605, duration_hint=10)
            assert caught.value.code == "failed_precondition" and not caught.value.retryable
            assert await own.cancel(kept.id)

    play("trio", main)


def test_in_a_batch_a_conflict_refuses_all_and_names_the_member(client):
    at = time.time_ns() + 3_600 * SECOND
    both = [pb.TaskSpec(pool="two", key=key, start_unix_ns=at, duration_hint_s=10) for key in ("c1", "c2")]
    with refused(Status.FAILED_PRECONDITION, "task[1]"):
        client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=both), timeout=HANG)
    with refused(Status.NOT_FOUND):
        client.get("c1")


def test_a_start_that_nobody_could_meet_is_missed_as_it_asked(client):
    """Without a worker: skipped, failed, or run late as soon as one comes."""
    missed = client.snapshot().totals.missed
    common = {"pool": "missed", "start_in_s": 0.1, "tolerance_s": 0.1, "duration_hint_s": 0.1}
    skip = client.submit(**common, on_miss=pb.MISS_POLICY_SKIP).id
    fail = client.submit(**common, on_miss=pb.MISS_POLICY_FAIL).id
    late = client.submit(**common).id
    assert [word(client.wait(one).status) for one in (skip, fail)] == ["missed", "failed"]
    assert all(client.wait(one).message for one in (skip, fail))
    assert client.get(skip).attempt == 0 and client.status(late) == "ready"
    assert client.snapshot().totals.missed == missed + 1
    before = client.submit(pool="missed", priority=pb.PRIORITY_CRITICAL).id
    with Worker(client.channel, pool="missed") as worker:
        for expected in (late, before):
            lease = worker.lease()
            assert lease.task_id == expected, "what is late goes before everything else"
            worker.complete(lease.lease)
        client.wait(before)


def test_a_start_in_the_past_is_due_at_once(client):
    past = client.submit(pool="missed", start_unix_ns=0, on_miss=pb.MISS_POLICY_SKIP).id
    assert word(client.wait(past).status) == "missed"
    late = client.submit(pool="missed", start_unix_ns=0).id
    with serving(client.channel, pool="missed"):
        assert word(client.wait(late).status) == "succeeded"


def test_a_slot_is_held_shown_and_left_alone(client):
    """From a tolerance before the start on; other work gets the rest."""
    with Worker(client.channel, pool="shown", slots=2) as worker:
        task_id = client.submit(pool="shown", start_in_s=1.5, tolerance_s=60, duration_hint_s=1).id

        def pool():
            return next(pool for pool in client.snapshot().pools if pool.name == "shown")

        wait_until(lambda: pool().held == 1, "a slot is held")
        assert (pool().reservations, pool().busy, client.status(task_id)) == (1, 0, "scheduled")
        others = [client.submit(pool="shown").id for _ in range(2)]
        lease = worker.lease()
        assert lease.task_id == others[0]
        exact = worker.lease()
        assert exact.task_id == task_id
        wait_until(lambda: (pool().held, pool().busy) == (0, 2), "the hold became the lease")
        worker.complete(lease.lease)
        worker.complete(worker.lease().lease)
        worker.complete(exact.lease)
        client.wait(task_id)
        assert (pool().reservations, pool().fixed_start_hit_rate) == (0, 1.0)


def test_a_scheduled_task_can_be_found_and_cancelled(client, server):
    task_id = client.submit(pool="cancelled", key="later", start_in_s=3_600).id
    assert client.status("later") == "scheduled"
    page = client.tasks.ListTasks(pb.ListTasksRequest(statuses=[pb.TASK_STATUS_SCHEDULED]), timeout=HANG)
    assert task_id in [info.id for info in page.tasks]
    events = client.tasks.Watch(pb.WatchRequest(all_transitions=True, keys=["soon"]), timeout=HANG)
    events.initial_metadata()
    client.submit(pool="cancelled", key="soon", start_in_s=0.2)
    assert [word(next(events).status) for _ in range(3)] == ["blocked", "scheduled", "ready"]
    events.cancel()
    for key in ("later", "soon"):
        assert client.cancel(key) and client.status(key) == "cancelled"


def test_a_start_that_retries_is_not_missed(client):
    fields = {"on_miss": pb.MISS_POLICY_FAIL, "tolerance_s": 0.3, "retry": retry(3, 0.5)}
    with Worker(client.channel, pool="retried") as worker:
        task_id = client.submit(pool="retried", start_in_s=0.1, **fields).id
        worker.fail(worker.lease().lease, "not yet")
        lease = worker.lease()
        assert (lease.task_id, lease.attempt) == (task_id, 2)
        worker.complete(lease.lease)
        assert word(client.wait(task_id).status) == "succeeded"


INVALID = {
    "both starts": (dict(start_in_s=1.0, start_unix_ns=1), "start"),
    "a negative start": (dict(start_in_s=-1.0), "start_in_s"),
    "a start that is no number": (dict(start_in_s=float("nan")), "start_in_s"),
    "a start beyond 100 years": (dict(start_in_s=3_153_600_001.0), "start_in_s"),
    "a start before 1970": (dict(start_unix_ns=-1), "start_unix_ns"),
    "a negative tolerance": (dict(start_in_s=1.0, tolerance_s=-0.1), "tolerance_s"),
    "an infinite tolerance": (dict(start_in_s=1.0, tolerance_s=float("inf")), "tolerance_s"),
    "an unknown miss": (dict(start_in_s=1.0, on_miss=9), "on_miss"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_start_that_makes_no_sense_is_invalid(client, case):
    fields, name = INVALID[case]
    with refused(Status.INVALID_ARGUMENT, name):
        client.submit(**fields)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_is_kept_over_a_restart(start, end):
    server = start("sqlite")
    with connect(server.address) as client:
        at = time.time_ns() + 4 * SECOND
        task_id = client.submit(key="kept", start_unix_ns=at, duration_hint_s=1, tolerance_s=2).id
        gone = client.submit(key="gone", start_in_s=0.01, tolerance_s=0.0, on_miss=pb.MISS_POLICY_SKIP).id
        wait_until(lambda: client.status(gone) == "missed", "missed")
    getattr(server, end)()
    server.start()
    with connect(server.address) as client, serving(client.channel):
        in_time = time.time_ns() < at - SECOND
        assert client.status("gone") == "missed"
        assert client.submit(key="kept").duplicate
        client.wait(task_id)
        late = (client.get(task_id).started_unix_ns - at) / SECOND
        assert 0 <= late <= (ON_TIME if in_time else HANG), "where server and worker are there before"


def test_the_command_line_knows_starts(server, tmp_path):
    def cli(*arguments):
        return run_cli("--server", server.address, *arguments, folder=tmp_path)

    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))
    done = cli("submit", "x", "--pool", "busy", "--key", "cli", "--start-at", when, "--duration-hint", "60")
    assert done.returncode == 0, done.stderr
    assert "status: scheduled\n" in cli("get", "cli", "--key").stdout
    assert "scheduled" in cli("list", "--pool", "busy", "--status", "scheduled").stdout
    conflict = cli("submit", "x", "--pool", "busy", "--start-at", when, "--tolerance", "2", "--on-miss", "skip")
    assert conflict.returncode == 3 and conflict.stdout == ""
    assert conflict.stderr.startswith("Error: failed_precondition: ") and when[:10] in conflict.stderr
    assert cli("cancel", "cli", "--key").stdout == "cancelled\n"
