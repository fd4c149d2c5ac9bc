"""Schedules as their users meet them: over the wire, from Python, on the command line, over restarts."""

import json
import re
import time
from datetime import UTC, datetime

import anyio
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client as OwnClient
from cronoq.client import ClientError, task
from cronoq.worker import Worker as OwnWorker
from tests.acceptance.clients import Status, connect, refused, wait_until, word
from tests.acceptance.server import HANG, run_cli
from tests.acceptance.workers import serving

NAMES = ("default", "often", "foreign", "overlap", "cli", "queue", "own")
STORES = ["sqlite"]
SERVER = {"pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in NAMES)}
SECOND = 10**9
EVERY_SECOND = "* * * * * *"


def add(client, name, cron, *, tz="", overlap=pb.OVERLAP_UNSPECIFIED, **template):
    request = pb.RecurringRequest(name=name, cron=cron, tz=tz, overlap=overlap, template=pb.TaskSpec(**template))
    assert client.admin.AddRecurring(request, timeout=HANG) == pb.Empty()


def remove(client, name):
    return client.admin.RemoveRecurring(pb.RemoveRecurringRequest(name=name), timeout=HANG).removed


def listed(client):
    found = client.admin.ListRecurring(pb.Empty(), timeout=HANG).schedules
    assert [one.name for one in found] == sorted(one.name for one in found)
    return {one.name: one for one in found}


def tasks_of(client, pool):
    request = pb.ListTasksRequest(pools=[pool], limit=1_000)
    return list(client.tasks.ListTasks(request, timeout=HANG).tasks)


# --- firing


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_every_second_for_a_while(server, backend):
    leases = []

    async def handle(lease):
        leases.append((time.time(), lease))

    async def main():
        with anyio.fail_after(HANG):
            async with OwnClient(server.address) as client, OwnWorker(server.address, "often", handle, slots=4):
                await client.add_recurring(
                    "tick", EVERY_SECOND, {"n": 1}, pool="often", kind="tick", key="tick", deadline_in=5, tags={"a": 1}
                )
                await anyio.sleep(2.6)
                assert await client.remove_recurring("tick") is True
                count = len(leases)
                assert 2 <= count <= 4
                await anyio.sleep(1.5)
                assert len(leases) <= count + 1, "only what was made before the removal still runs"
                assert await client.remove_recurring("tick") is False

    anyio.run(main, backend=backend)
    for at, lease in leases:
        assert (lease.kind, lease.json(), lease.tags) == ("tick", {"n": 1}, {"a": "1", "cronoq.recurring": "tick"})
        start = datetime.fromisoformat(re.fullmatch(r"tick@(.*Z)", lease.key)[1]).timestamp()
        assert start == int(start) and 0 <= at - start <= 1.0
        assert lease.deadline == start + 5
    assert len({lease.key for _, lease in leases}) == len(leases)


def test_a_foreign_client_adds_lists_replaces_and_removes(client):
    add(client, "f", "0 3 * * *", tz="Europe/Helsinki", pool="foreign", kind="k", overlap=pb.OVERLAP_QUEUE)
    found = listed(client)["f"]
    assert (found.cron, found.tz, found.pool, found.kind) == ("0 3 * * *", "Europe/Helsinki", "foreign", "k")
    assert found.overlap == pb.OVERLAP_QUEUE and not found.HasField("last_task_id")
    due = datetime.fromtimestamp(found.next_unix_ns // SECOND, UTC)
    assert found.next_unix_ns % SECOND == 0 and due.hour in (0, 1) and (due.minute, due.second) == (0, 0)
    assert 0 < found.next_unix_ns - time.time_ns() < 26 * 3_600 * SECOND
    add(client, "f", EVERY_SECOND, pool="foreign", kind="other")
    found = listed(client)["f"]
    assert (found.cron, found.tz, found.kind, found.overlap) == (EVERY_SECOND, "", "other", pb.OVERLAP_SKIP)
    with serving(client.channel, pool="foreign"):
        last = wait_until(lambda: listed(client)["f"].last_task_id, "a task was made")
        assert client.get(last).kind == "other"
        assert word(client.wait(last).status) == "succeeded"
    assert remove(client, "f") and not remove(client, "f") and "f" not in listed(client)


def test_occurrences_of_an_own_start_are_fixed_starts(client):
    add(client, "shown", "*/5 * * * * *", pool="foreign", tolerance_s=60, on_miss=pb.MISS_POLICY_SKIP, key="shown")
    made = wait_until(
        lambda: [one for one in tasks_of(client, "foreign") if one.key.startswith("shown@")], "made ahead"
    )
    assert word(made[0].status) in ("scheduled", "ready")
    pool = next(pool for pool in client.snapshot().pools if pool.name == "foreign")
    assert pool.reservations >= 1
    assert remove(client, "shown")
    for one in made:
        client.cancel(one.id)


def test_skip_never_lets_two_run_and_ends_the_others_as_skipped(server):
    running, most, runs = 0, 0, 0

    async def handle(lease):
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        try:
            await anyio.sleep(2.5)
        finally:
            running -= 1

    async def main():
        with anyio.fail_after(HANG):
            async with OwnClient(server.address) as client, OwnWorker(server.address, "overlap", handle, slots=4):
                await client.add_recurring("slow", EVERY_SECOND, pool="overlap")
                while runs < 3:
                    await anyio.sleep(0.05)
                await client.remove_recurring("slow")
                page = await client.list_tasks(pools=["overlap"], statuses=["skipped"])
                assert len(page.tasks) >= 2 and all(info.message for info in page.tasks)

    anyio.run(main, backend="trio")
    assert most == 1


def test_queue_lets_them_wait_for_each_other(client):
    add(client, "q", EVERY_SECOND, pool="queue", key="q", overlap=pb.OVERLAP_QUEUE)
    with serving(client.channel, lambda lease: time.sleep(1.3) or done(lease), pool="queue"):
        wait_until(lambda: sum(word(one.status) == "succeeded" for one in tasks_of(client, "queue")) >= 3, "three ran")
        assert remove(client, "q")
        found = tasks_of(client, "queue")
        assert not {word(one.status) for one in found} & {"skipped", "failed", "missed"}
        keys = [one.key for one in found]
        assert keys == sorted(keys) and all(re.fullmatch(r"q@.*Z", key) for key in keys)
        starts = sorted(one.started_unix_ns for one in found if one.HasField("started_unix_ns"))
        assert all(later - earlier >= 1.2 * SECOND for earlier, later in zip(starts, starts[1:], strict=False))


def done(lease):
    return {"complete": pb.Complete(lease=lease.lease)}


# --- what is refused

INVALID = {
    "no name": ("", EVERY_SECOND, "", {}, "name"),
    "a long name": ("n" * 257, EVERY_SECOND, "", {}, "name"),
    "no cron": ("n", "", "", {}, "cron"),
    "four fields": ("n", "* * * *", "", {}, "cron"),
    "an eighth day": ("n", "0 0 * * 8", "", {}, "cron"),
    "what never comes": ("n", "0 0 31 2 *", "", {}, "cron"),
    "an unknown zone": ("n", EVERY_SECOND, "Europe/Nowhere", {}, "tz"),
    "a zone that is a path": ("n", EVERY_SECOND, "../UTC", {}, "tz"),
    "an absolute deadline": ("n", EVERY_SECOND, "", {"deadline_unix_ns": 1}, "deadline_unix_ns"),
    "a start": ("n", EVERY_SECOND, "", {"start_in_s": 1}, "start_in_s"),
    "an absolute start": ("n", EVERY_SECOND, "", {"start_unix_ns": 1}, "start_unix_ns"),
    "a dependency": ("n", EVERY_SECOND, "", {"deps": [pb.Dep(target=pb.TaskRef(id=1))]}, "deps"),
    "an unknown pool": ("n", EVERY_SECOND, "", {"pool": "nowhere"}, "nowhere"),
    "an unknown resource": ("n", EVERY_SECOND, "", {"resources": {"gpu": 1}}, "gpu"),
    "a negative tolerance": ("n", EVERY_SECOND, "", {"tolerance_s": -1}, "tolerance_s"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_schedule_that_cannot_work_is_invalid(client, case):
    name, cron, tz, template, words = INVALID[case]
    with refused(Status.INVALID_ARGUMENT, words):
        add(client, name, cron, tz=tz, **template)
    assert name not in listed(client)


def test_the_own_client_gets_the_same_sentence(server):
    async def main():
        async with OwnClient(server.address) as client:
            with pytest.raises(ClientError, match="cron") as caught:
                await client.add_recurring("n", "0 0 * * 8", pool="own")
            assert caught.value.code == "invalid_argument"
            with pytest.raises(ClientError, match="start_in_s"):
                await client.add_recurring("n", EVERY_SECOND, task(pool="own", start_in=5))
            assert await client.list_recurring() == []

    anyio.run(main, backend="trio")


# --- restarts


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_schedule_goes_on_after_a_restart(start, end):
    server = start("sqlite")
    with connect(server.address) as client:
        add(client, "on", EVERY_SECOND, key="on", kind="k", tolerance_s=0.5)
        add(client, "far", "0 9 29 2 *", tz="Europe/Berlin", overlap=pb.OVERLAP_ALLOW)
        add(client, "gone", "0 0 1 1 *")
        assert remove(client, "gone")
        far = listed(client)["far"]
        with serving(client.channel):
            wait_until(lambda: sum(word(one.status) == "succeeded" for one in tasks_of(client, "default")) >= 2, "two")
    getattr(server, end)()
    server.start()
    with connect(server.address) as client, serving(client.channel):
        found = listed(client)
        assert set(found) == {"on", "far"} and found["far"] == far
        known = {one.key for one in tasks_of(client, "default")}
        fresh = wait_until(
            lambda: [
                one
                for one in tasks_of(client, "default")
                if one.key not in known and word(one.status) == "succeeded"
            ],
            "a run after the restart",
        )  # fmt: skip
        keys = [one.key for one in tasks_of(client, "default")]
        assert len(keys) == len(set(keys)) and fresh[0].kind == "k"
        assert remove(client, "on") and remove(client, "far")
    assert server.stop() == 0


def test_what_passed_while_the_server_was_down_runs_once(start):
    """Several fires were missed; `run_late` makes one of them, late."""
    server = start("sqlite")
    with connect(server.address) as client:
        add(client, "late", "*/2 * * * * *", key="late", tolerance_s=0.1, overlap=pb.OVERLAP_ALLOW)
        made = wait_until(lambda: tasks_of(client, "default"), "the first one")
        remaining = [one.id for one in made]
        server.kill()
    time.sleep(6.5)
    server.start()
    ready = time.time()
    with connect(server.address) as client, serving(client.channel):
        wait_until(
            lambda: sum(word(one.status) == "succeeded" for one in tasks_of(client, "default")) > len(remaining) + 1,
            "late and fresh runs",
        )
        starts = {
            datetime.fromisoformat(one.key.partition("@")[2]).timestamp()
            for one in tasks_of(client, "default")
            if one.id not in remaining
        }
        assert sum(at < ready - server.started_in for at in starts) <= 1, "of the time without a server at most one"
        assert remove(client, "late")


# --- the command line


def test_a_schedule_by_commands(server, tmp_path):
    def cli(*arguments, code=0):
        done = run_cli("--server", server.address, *arguments, folder=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    arguments = ("--data", '{"n": 1}', "--pool", "cli", "--kind", "report", "--key", "r", "--deadline-in", "60")
    assert cli("recurring", "add", "r", "30 2 * * *", *arguments, "--tz", "America/New_York") == ("", "")
    out, err = cli("recurring")
    heading, row = out.splitlines()
    assert (heading.split()[:4], err) == (["NAME", "CRON", "TZ", "POOL"], "")
    assert re.fullmatch(
        r"r +30 2 \* \* \* +America/New_York +cli +skip +20\d\d-\d\d-\d\dT0[67]:30:00Z +-|"
        r"r +30 2 \* \* \* +America/New_York +cli +skip +20\d\d-03-\d\dT07:00:00Z +-",
        row,
    )
    (found,) = json.loads(cli("recurring", "--json")[0])["schedules"]
    assert (found["name"], found["kind"], found["tz"]) == ("r", "report", "America/New_York")
    out, err = cli("recurring", "add", "bad", "61 * * * *", code=3)
    assert out == "" and err.startswith("Error: invalid_argument: ") and "cron" in err
    assert cli("recurring", "remove", "r") == ("removed\n", "")
    assert cli("recurring", "remove", "r", code=3) == ("", "Error: no such schedule: r\n")
    assert json.loads(cli("recurring", "--json")[0]) == {"schedules": []}
