"""A server that comes back with another configuration: what becomes of the tasks that it finds (howto "configure")."""

import json
import time
from contextlib import contextmanager

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, retry, wait_until, word
from tests.acceptance.server import HANG, run_cli
from tests.acceptance.workers import Worker, serving

SUCCESS, COMPLETE, FAILURE = pb.EDGE_COND_ON_SUCCESS, pb.EDGE_COND_ON_COMPLETE, pb.EDGE_COND_ON_FAILURE
LOW, HIGH = pb.PRIORITY_LOW, pb.PRIORITY_HIGH


def pools(*names, **settings):
    """Pools of these names; `name="lines"` for those with more settings."""
    tables = {**dict.fromkeys(names, ""), **settings}
    return "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n{lines}\n' for name, lines in tables.items())


def semaphore(name, permits):
    return f'[[resources]]\nname = "{name}"\nkind = "semaphore"\npermits = {permits}\n'


def dep(ref, cond=SUCCESS):
    return pb.Dep(target=reference(ref), cond=cond)


BOTH = pytest.mark.parametrize("again", ["stop", "kill"], indirect=True)
"""The two ways in which a process ends."""


@pytest.fixture
def again(request):
    """Ends the server and starts it with other tables."""
    end = getattr(request, "param", "stop")

    @contextmanager
    def restart(server, **tables):
        getattr(server, end)()
        server.configure(**tables)
        server.start()
        with connect(server.address) as client:
            yield client

    return restart


def ends(client, *ids):
    return [word(client.wait(task_id).status) for task_id in ids]


def order(client, count, **fields):
    """The ids of so many tasks in the order in which a worker with one slot gets them; it takes no further one."""
    with Worker(client.channel, slots=1, **fields) as worker:
        found = []
        while len(found) < count:
            lease = worker.lease()
            found.append(lease.task_id)
            if len(found) == count:
                worker.set_slots(0)
            worker.complete(lease.lease)
        client.wait(found[-1])
    return found


def cli(server, *arguments):
    done = run_cli(*arguments, "--server", server.address, folder=server.folder)
    assert "Traceback" not in done.stderr
    return done


# --- pools


@BOTH
def test_tasks_of_a_pool_that_is_gone_have_failed_and_others_go_by_that(start, again):
    """Seen over gRPC and with the command line; it stays so when the pool comes back."""
    server = start("sqlite", pools=pools("default", "old"))
    with connect(server.address) as client:
        parent = client.submit(pool="old", key="parent").id
        needs, cleans, alarms = (client.submit(deps=[dep(parent, cond)]).id for cond in (SUCCESS, COMPLETE, FAILURE))
        after = client.submit(deps=[dep(needs, COMPLETE)]).id
        waiting = client.submit(key="waiting").id
        blocked = client.submit(pool="old", deps=[dep(waiting)]).id
        last = client.submit(deps=[dep(blocked)]).id
    gone = "pool 'old' is not configured any more"
    with again(server, pools=pools("default")) as client:
        log = server.log.read_text()
        told = [line for line in log.splitlines() if "tasks ended for good" in line]
        assert len(told) == 2 and all("[warning" in line for line in told)
        assert gone in told[0] and "tasks=2" in told[0] and "put back what is missing before a start" in told[0]
        assert "as skipped" in told[1] and "tasks=2" in told[1]
        assert [line for line in log.splitlines() if "] recovered" in line and "tasks=4 finished=4" in line]
        for task_id in (parent, blocked):
            result = client.wait(task_id)
            assert (word(result.status), result.message) == ("failed", gone)
            assert client.get(task_id).attempt == 0 and client.get(task_id).pool == "old"
        skipped = {needs: "(key 'parent') ended as failed", last: f"task {blocked} ended as failed"}
        for task_id, words in skipped.items():
            result = client.wait(task_id)
            assert word(result.status) == "skipped" and words in result.message, result
        with refused(Status.NOT_FOUND, "old"):
            client.submit(pool="old")
        with refused(Status.NOT_FOUND, "old"):
            client.tasks.ListTasks(pb.ListTasksRequest(pools=["old"]), timeout=HANG)
        assert client.submit(pool="default", key="parent").id == parent, "its key is remembered"
        assert order(client, 4) == [cleans, alarms, after, waiting]

        done = cli(server, "wait", "parent", "--key")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"Error: task {parent} failed: {gone}\n"
        done = cli(server, "get", str(last), "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["status"] == "skipped"
        done = cli(server, "list", "--status", "failed", "--json")
        assert [(task["id"], task["pool"]) for task in json.loads(done.stdout)["tasks"]] == [
            (str(parent), "old"), (str(blocked), "old")
        ]  # fmt: skip
        done = cli(server, "list", "--pool", "old")
        assert done.returncode == 3 and "unknown pool 'old'" in done.stderr
    with again(server, pools=pools("default", "old")) as client:
        everything = (parent, blocked, needs, last, cleans, alarms, after, waiting)
        assert ends(client, *everything) == ["failed"] * 2 + ["skipped"] * 2 + ["succeeded"] * 4


def test_an_attempt_that_ran_in_a_pool_that_is_gone_has_failed(start):
    server = start("sqlite", pools=pools("default", "old"))
    with connect(server.address) as client, Worker(client.channel, pool="old") as worker:
        task_id = client.submit(pool="old", retry=retry(5)).id
        child = client.submit(deps=[dep(task_id, FAILURE)]).id
        worker.lease()
        server.kill()
        worker.ended()
    server.configure(pools=pools("default"))
    server.start()
    with connect(server.address) as client:
        assert client.wait(task_id).message == "pool 'old' is not configured any more"
        assert (client.status(task_id), client.get(task_id).attempt) == ("failed", 1)
        assert order(client, 1) == [child]
        with refused(Status.NOT_FOUND, "old"), Worker(client.channel, pool="old", register=False) as worker:
            worker.register(pool="old", slots=1)
            worker.call.code()  # waits for the end
            raise worker.call


# --- awaited keys


@BOTH
def test_a_wait_for_a_key_goes_on_in_a_pool_that_does_not_await_any_more(start, again):
    server = start("sqlite", pools=pools(default="await_unknown_dependencies_s = 3600"))
    with connect(server.address) as client:
        child = client.submit(deps=[dep("late")]).id
    with again(server, pools=pools("default")) as client:
        assert client.status(child) == "blocked"
        done = cli(server, "list", "--status", "blocked")
        assert str(child) in done.stdout
        with refused(Status.NOT_FOUND, "deps[0]", "'late'", "await_unknown_dependencies_s"):
            client.submit(deps=[dep("late")])
        late = client.submit(key="late").id
        assert order(client, 2) == [late, child]


@pytest.mark.parametrize("setting", ["", "await_unknown_dependencies_s = 3600"], ids=["gone", "longer"])
def test_the_time_for_a_key_is_the_one_of_the_submission(start, again, setting):
    server = start("sqlite", pools=pools(default="await_unknown_dependencies_s = 3"))
    with connect(server.address) as client:
        begun = time.monotonic()
        child = client.submit(deps=[dep("never")]).id
        last = client.submit(deps=[dep(child)]).id
    with again(server, pools=pools(default=setting)) as client:
        result = client.wait(child)
        assert 2.9 <= time.monotonic() - begun < HANG
        assert word(result.status) == "skipped" and "no task with the key 'never' came within" in result.message
        assert ends(client, last) == ["skipped"]
        done = cli(server, "wait", str(child))
        assert done.returncode == 1 and "skipped" in done.stderr and "'never'" in done.stderr


def test_a_time_that_ran_out_while_nobody_served_is_over_before_anything_runs(start):
    server = start("sqlite", pools=pools(default="await_unknown_dependencies_s = 0.3"))
    with connect(server.address) as client:
        child = client.submit(deps=[dep("never")]).id
        created = client.get(child).created_unix_ns
    server.kill()
    wait_until(lambda: time.time_ns() - created > 300_000_000, "the time is over")
    server.start()
    with connect(server.address) as client:
        assert client.status(child) == "skipped"
        late = client.submit(key="never").id
        assert ends(client, child) == ["skipped"] and order(client, 1) == [late]


# --- resources


@BOTH
def test_what_a_resource_does_not_have_any_more_fails_whoever_asks_for_it(start, again):
    """Ready or blocked; what asks for no more than there is goes on."""
    resources = semaphore("gone", 1) + semaphore("shrunk", 4)
    server = start("sqlite", extra=resources)
    with connect(server.address) as client:
        first = client.submit(resources={"gone": 1}).id
        parked = client.submit(resources={"gone": 1}, key="parked").id
        many = client.submit(resources={"shrunk": 3}).id
        few = client.submit(resources={"shrunk": 2}).id
        root = client.submit().id
        blocked = client.submit(resources={"gone": 1, "shrunk": 1}, deps=[dep(root)]).id
        skipped = client.submit(deps=[dep(blocked)]).id
        alarm = client.submit(deps=[dep(parked, FAILURE), dep(many, FAILURE)]).id
    with again(server, extra=semaphore("shrunk", 2)) as client:
        unknown = "resources['gone']: there is no resource with that name"
        shrunk = "resources['shrunk']: found 3 units; the resource never has more than 2"
        messages = {first: unknown, parked: unknown, blocked: unknown, many: shrunk}
        for task_id, message in messages.items():
            result = client.wait(task_id)
            assert (word(result.status), result.message) == ("failed", f"the task cannot run any more: {message}")
        assert ends(client, skipped) == ["skipped"]
        with refused(Status.NOT_FOUND, "gone"):
            client.submit(resources={"gone": 1})
        with refused(Status.INVALID_ARGUMENT, "shrunk", "2"):
            client.submit(resources={"shrunk": 3})
        assert order(client, 3) == [few, root, alarm]
        done = cli(server, "wait", "parked", "--key")
        assert (
            done.returncode == 1
            and "cannot run any more: resources['gone']: there is no resource with that name" in done.stderr
        )
        done = cli(server, "get", str(many))
        assert "status: failed\n" in done.stdout and "never has more than 2" in done.stdout
    with again(server, extra=resources) as client:
        assert ends(client, *messages, skipped) == ["failed"] * 4 + ["skipped"]


def test_the_holder_of_units_that_are_gone_has_failed_and_a_smaller_limit_holds(start):
    """Two ran side by side; after the restart their attempts count as lost, and the one permit serves one at a time."""
    server = start("sqlite", extra=semaphore("gone", 1) + semaphore("smaller", 2))
    with connect(server.address) as client, Worker(client.channel, slots=9) as worker:
        held = client.submit(resources={"gone": 1}, retry=retry(5)).id
        pair = [client.submit(resources={"smaller": 1}, retry=retry(5)).id for _ in range(2)]
        assert {worker.lease().task_id for _ in range(3)} == {held, *pair}
        server.kill()
        worker.ended()
    server.configure(extra=semaphore("smaller", 1))
    server.start()
    with connect(server.address) as client:
        assert (
            ends(client, held) == ["failed"]
            and "resources['gone']: there is no resource with that name" in client.get(held).message
        )
        with Worker(client.channel, slots=9) as worker:
            first = worker.lease()
            assert first.attempt == 2
            plain = client.submit().id
            other = worker.lease()
            assert other.task_id == plain, "the second one has no permit"
            for lease in (first, other):
                worker.complete(lease.lease)
            second = worker.lease()
            assert {first.task_id, second.task_id} == set(pair)
            worker.complete(second.lease)
            assert ends(client, *pair) == ["succeeded"] * 2


def test_a_semaphore_may_become_a_bucket(start, again):
    server = start("sqlite", extra=semaphore("it", 1))
    with connect(server.address) as client:
        ids = [client.submit(resources={"it": 1}).id for _ in range(3)]
    bucket = '[[resources]]\nname = "it"\nkind = "token_bucket"\nrate = 0.000001\nburst = 2\n'
    with again(server, extra=bucket) as client, serving(client.channel):
        assert ends(client, *ids[:2]) == ["succeeded"] * 2
        assert (client.status(ids[2]), client.get(ids[2]).attempt) == ("ready", 0), "the tokens do not come back"


# --- shares and bounds


def test_changed_weights_hold_for_what_waits_already(start, again):
    server = start("sqlite", pools=pools("default"))
    with connect(server.address) as client:
        tenants = {client.submit(tenant=name).id: name for name in ("heavy", "light") for _ in range(20)}
    with again(server, pools=pools(default="tenant_weights = { heavy = 3 }")) as client:
        started = [tenants[task_id] for task_id in order(client, 16)]
        assert 11 <= started.count("heavy") <= 13
    with again(server, pools=pools(default="tenant_weights = { light = 3 }")) as client:
        started = [tenants[task_id] for task_id in order(client, 8)]
        assert 5 <= started.count("light") <= 7
    with again(server, pools=pools("default")) as client:
        rest = [task_id for task_id in tenants if client.status(task_id) == "ready"]
        assert len(rest) == 16 and order(client, 16) == rest, "in the order of submission again"
        assert {client.get(task_id).tenant for task_id in rest} <= {"heavy", "light"}


def test_a_changed_policy_and_lower_bounds_hold_for_newcomers(start, again):
    """Nothing that waits is shed by the start. Full by the new bound, the pool gives way one for one, or not at all."""
    server = start("sqlite", pools=pools(default='max_pending = 4\noverflow = "wait"'))
    with connect(server.address) as client:
        ids = [client.submit(priority=LOW, key=f"k{number}").id for number in range(4)]
        with refused(Status.RESOURCE_EXHAUSTED):
            client.submit(priority=HIGH)
    with again(server, pools=pools(default='max_pending = 4\noverflow = "shed_oldest"')) as client:
        first = client.submit(priority=LOW).id
        assert [client.status(task_id) for task_id in ids] == ["shed", "ready", "ready", "ready"]
    with again(server, pools=pools(default='max_pending = 4\noverflow = "shed_lowest"')) as client:
        second = client.submit(priority=HIGH).id
        assert (client.status(first), client.wait(ids[0]).message != "") == ("shed", True)
        done = cli(server, "wait", str(first))
        assert done.returncode == 1 and f"task {first} shed: shed for a task of class high" in done.stderr
        done = cli(server, "list", "--status", "shed", "--json")
        assert [task["id"] for task in json.loads(done.stdout)["tasks"]] == [str(ids[0]), str(first)]
    with again(server, pools=pools(default='max_pending = 2\noverflow = "shed_lowest"')) as client:
        with refused(Status.RESOURCE_EXHAUSTED, "has 4 pending tasks, its max_pending is 2"):
            client.submit(priority=HIGH)
        waiting = [*ids[1:], second]
        assert [client.status(task_id) for task_id in waiting] == ["ready"] * 4
        assert client.submit(key="k1").id == ids[1], "a key that exists needs no room"
        assert order(client, 4) == [second, *ids[1:]]


def test_tasks_that_ask_for_more_than_new_limits_allow_still_run(start, again):
    """Limits judge what is handed in."""
    server = start("sqlite")
    labels, tags = {"a": "b"}, {"a": "long enough", "b": "2"}
    with connect(server.address) as client:
        parents = [client.submit().id for _ in range(3)]
        child = client.submit(
            key="k" * 20, tenant="t" * 20, labels=labels, tags=tags, deps=[dep(ref) for ref in parents]
        ).id
    with again(server, limits="max_deps = 1\nmax_tags = 1\nmax_tag_len = 3\nmax_key_len = 3") as client:
        with refused(Status.INVALID_ARGUMENT, "deps"):
            client.submit(deps=[dep(ref) for ref in parents])
        assert order(client, 4, labels=labels) == [*parents, child]
        assert client.get(child).tenant == "t" * 20


def test_the_number_of_attempts_is_the_one_of_the_submission(start, again):
    server = start("sqlite", pools=pools(default="retry = { max_attempts = 2, initial_backoff_s = 3600 }"))
    with connect(server.address) as client:
        task_id = client.submit().id
    with again(server, pools=pools(default="retry = { max_attempts = 1, initial_backoff_s = 0.01 }")) as client:
        with Worker(client.channel) as worker:
            newer = client.submit().id
            for expected, attempt in ((task_id, 1), (newer, 1), (task_id, 2)):
                if attempt == 2:
                    assert ends(client, newer) == ["dead_lettered"]
                lease = worker.lease()
                assert (lease.task_id, lease.attempt) == (expected, attempt)
                worker.fail(lease.lease, "no")
        assert ends(client, task_id) == ["dead_lettered"]
