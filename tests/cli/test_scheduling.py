"""What a task asks of the scheduler, on the command line: what reaches the client, what is refused, what is shown."""

import json
from contextlib import asynccontextmanager

import pytest

from cronoq._cli.endpoint import Endpoint
from cronoq.client import Event, Submitted, TaskInfo, TaskPage, task
from cronoq_sansio.wire import pb

BLOCKED = TaskInfo(7, "blocked", "default", kind="k", max_attempts=3, tenant="acme", priority="low")
MARCH_14 = 1_805_007_600 * 10**9
"""2027-03-14T07:00:00Z in nanoseconds."""
SHED = TaskInfo(8, "shed", "default", kind="k", max_attempts=3)


class FakeClient:
    """Remembers what is submitted, and answers with fixed tasks and events."""

    def __init__(self):
        self.specs = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def submit(self, content, **options):
        self.specs.append(task(content, **options))
        return Submitted(7, False)

    async def get(self, reference):
        return BLOCKED

    async def list_tasks(self, **_filters):
        return TaskPage((BLOCKED, SHED), None)

    @asynccontextmanager
    async def watch(self, *_filters, **_options):
        async def events():
            for number, status in enumerate(("blocked", "skipped", "shed")):
                yield Event(number, "default", "", status, 0, 1.0, "why" if number else "", 10**9)

        yield events()


@pytest.fixture
def client(monkeypatch):
    client = FakeClient()
    monkeypatch.setattr(Endpoint, "client", lambda self: client)
    return client


def dep(reference, condition):
    target = pb.TaskRef(id=reference) if isinstance(reference, int) else pb.TaskRef(key=reference)
    return pb.Dep(target=target, cond=condition)


SENT = {
    "a deadline": (["--deadline-in", "0.5"], {"deadline_in_s": 0.5}),
    "a deadline now": (["--deadline-in", "0"], {"deadline_in_s": 0.0}),
    "a start": (["--start-in", "2.5"], {"start_in_s": 2.5}),
    "a start now": (["--start-in", "0"], {"start_in_s": 0.0}),
    "a start in UTC": (["--start-at", "2027-03-14T07:00:00Z"], {"start_unix_ns": MARCH_14}),
    "a start elsewhere": (["--start-at", "2027-03-14T09:00:00.000001+02:00"], {"start_unix_ns": MARCH_14 + 1_000}),
    "a start in Unix seconds": (["--start-at", "1805007600"], {"start_unix_ns": MARCH_14}),
    "a start between seconds": (["--start-at", "1805007600.5"], {"start_unix_ns": MARCH_14 + 10**9 // 2}),
    "a tolerance": (["--start-in", "1", "--tolerance", "0"], {"start_in_s": 1.0, "tolerance_s": 0.0}),
    "a miss that is skipped": (["--on-miss", "skip"], {"on_miss": pb.MISS_POLICY_SKIP}),
    "a miss that fails": (["--on-miss", "fail"], {"on_miss": pb.MISS_POLICY_FAIL}),
    "a miss that runs": (["--on-miss", "run_late"], {"on_miss": pb.MISS_POLICY_RUN_LATE}),
    "a miss that runs, as in other programs": (["--on-miss", "run-late"], {"on_miss": pb.MISS_POLICY_RUN_LATE}),
    "a hint": (["--duration-hint", "90"], {"duration_hint_s": 90.0}),
    "a tenant": (["--tenant", "acme"], {"tenant": "acme"}),
    "labels": (["--label", "gpu=a", "--label", "zone="], {"labels": {"gpu": "a", "zone": ""}}),
    "resources": (["--resource", "api=1", "--resource", "gpu=4294967295"], {"resources": {"api": 1, "gpu": 2**32 - 1}}),
    "after an id and a key": (["--after", "7", "--after", "k"], {"deps": [dep(7, 1), dep("k", 1)]}),
    "after what is no id": (["--after", "18446744073709551616"], {"deps": [dep("18446744073709551616", 1)]}),
    "the three conditions": (
        ["--after-failure", "c", "--after-complete", "b", "--after", "a", "--after-complete", "5"],
        {"deps": [dep("a", 1), dep("b", 2), dep(5, 2), dep("c", 3)]},
    ),
    "keys that look like ids": (
        ["--after-keys", "--after", "2031", "--after-failure", "7"],
        {"deps": [dep("2031", 1), dep("7", 3)]},
    ),
}


@pytest.mark.parametrize(("options", "fields"), SENT.values(), ids=SENT)
def test_what_is_asked_reaches_the_client(run, client, options, fields):
    assert run("submit", *options) == (0, "7\n", "")
    assert client.specs == [pb.TaskSpec(priority=pb.PRIORITY_NORMAL, **fields)]


REFUSED = {
    "a negative deadline": (
        ["--deadline-in", "-1"],
        "--deadline-in: -1 is not a number of seconds from 0 to 3153600000",
    ),
    "a deadline that is no number": (["--deadline-in", "nan"], "--deadline-in: nan is not"),
    "a deadline beyond all": (["--deadline-in", "inf"], "--deadline-in: inf is not"),
    "a hint of 101 years": (["--duration-hint", "3.2e9"], "--duration-hint: 3.2e+09 is not"),
    "a negative timeout": (["--timeout-s", "-0.1"], "--timeout-s: -0.1 is not"),
    "a negative start": (["--start-in", "-1"], "--start-in: -1 is not"),
    "two starts": (["--start-in", "1", "--start-at", "1"], "--start-in and --start-at: only one of them"),
    "a start in words": (["--start-at", "noon"], "--start-at: 'noon' is not a time like 2027-03-14T07:00:00Z"),
    "a start without a zone": (["--start-at", "2027-03-14T07:00"], "'2027-03-14T07:00' has no time zone; Z at"),
    "a start before all": (["--start-at", "-1"], "00:00Z, and no Unix seconds, a number from 0"),
    "a start beyond what can be sent": (["--start-at", "99999999999"], "start_at: 99999999999 is outside of"),
    "a tolerance of nothing": (["--tolerance", "5"], "--tolerance is of use only with --start-in or --start-at"),
    "a negative tolerance": (["--start-in", "1", "--tolerance", "-1"], "--tolerance: -1 is not"),
    "an unknown miss": (["--on-miss", "later"], "'later' is not one of run_late, skip, fail"),
    "a deadline in words": (["--deadline-in", "soon"], "--deadline-in"),
    "no units": (["--resource", "gpu=0"], "--resource: gpu=0: the units must be a whole number from 1 to 4294967295"),
    "negative units": (["--resource", "gpu=-1"], "--resource: gpu=-1: the units"),
    "half a unit": (["--resource", "gpu=0.5"], "--resource: gpu=0.5: the units"),
    "too many units": (["--resource", "gpu=4294967296"], "--resource: gpu=4294967296: the units"),
    "a resource without units": (["--resource", "gpu"], "--resource: 'gpu' is not NAME=VALUE"),
    "a label without a name": (["--label", "=a"], "--label: '=a' is not NAME=VALUE"),
    "a label twice": (["--label", "a=1", "--label", "a=2"], "--label: 'a' is given twice"),
    "after an empty key": (["--after", ""], "--after: a key cannot be empty"),
    "after a failed empty key": (["--after-failure", ""], "--after-failure: a key cannot be empty"),
    "after a key that is not UTF-8": (["--after-complete", "\udcff"], "--after-complete: what is not UTF-8"),
    "keys of nothing": (["--after-keys"], "--after-keys is of use only with --after"),
    "a tenant that is not UTF-8": (["--tenant", "\udcff"], "tenant: "),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_asked_is_one_sentence(run, client, options, words):
    code, out, err = run("submit", *options)
    assert (code, out, client.specs) == (2, "", [])
    assert err.startswith("Error: ") and words in err and err.count("\n") == 1


def test_tenant_and_priority_are_shown(run):
    code, out, err = run("list")
    heading, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split() == ["ID", "STATUS", "POOL", "KIND", "KEY", "PRIORITY", "TENANT", "ATTEMPT", "AGE"]
    assert first.split() == ["7", "blocked", "default", "k", "-", "low", "acme", "0/3", "-"]
    assert second.split() == ["8", "shed", "default", "k", "-", "-", "-", "0/3", "-"]
    _, out, _ = run("get", "7")
    assert "status: blocked\n" in out and "tenant: acme\n" in out and "priority: low\n" in out
    for document in (json.loads(run("get", "7", "--json")[1]), json.loads(run("list", "--json")[1])["tasks"][0]):
        assert (document["status"], document["tenant"], document["priority"]) == ("blocked", "acme", "low")


def test_watch_shows_tasks_that_wait_and_those_that_never_ran(run):
    code, out, err = run("watch", "--all")
    assert code == 0 and err.startswith("Watching ")
    assert [line.split()[1:] for line in out.splitlines()] == [
        ["blocked", "0", "pool=default", "attempt=0"],
        ["skipped", "1", "pool=default", "attempt=0", "why"],
        ["shed", "2", "pool=default", "attempt=0", "why"],
    ]
    _, out, _ = run("watch", "--json")
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["blocked", "skipped", "shed"]
