"""Schedules and figures on the command line: what reaches the client, what is refused, what is shown."""

import io
import json
import sys

import pytest

from cronoq._cli.endpoint import Endpoint
from cronoq._client.results import read_schedules, read_snapshot
from cronoq.client import ClientError, task
from cronoq_sansio.wire import pb

MARCH_14 = 1_805_007_600 * 10**9
"""2027-03-14T07:00:00Z in nanoseconds."""

SCHEDULES = pb.ListRecurringResponse(
    schedules=[
        pb.RecurringInfo(
            name="nightly",
            cron="30 2 * * *",
            tz="America/New_York",
            pool="default",
            kind="report",
            overlap=pb.OVERLAP_QUEUE_ON_SUCCESS,
            next_unix_ns=MARCH_14,
            last_task_id=7,
        ),
        pb.RecurringInfo(name="over\x1b", cron="0 0 29 2 *", pool="default", kind="default"),
    ]
)


class FakeClient:
    """Remembers what is asked, and answers with fixed values."""

    def __init__(self):
        self.asked = []
        self.schedules = SCHEDULES
        self.failure = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def add_recurring(self, name, cron, content, *, tz, overlap, **options):
        if self.failure is not None:
            raise self.failure
        self.asked.append((name, cron, tz, overlap, task(content, **options)))

    async def remove_recurring(self, name):
        self.asked.append(name)
        return name == "nightly"

    async def list_recurring(self):
        if self.failure is not None:
            raise self.failure
        return read_schedules(self.schedules)

    async def snapshot(self):
        return read_snapshot(SNAPSHOT)


@pytest.fixture
def client(monkeypatch):
    client = FakeClient()
    monkeypatch.setattr(Endpoint, "client", lambda self: client)
    return client


# --- add

SENT = {
    "nothing else": ([], "skip", None, {}),
    "a payload": (["text"], "skip", None, {"payload": b"text", "content_type": "text/plain; charset=utf-8"}),
    "JSON": (["--data", "[1]"], "skip", None, {"payload": b"[1]", "content_type": "application/json"}),
    "a zone": (["--tz", "Europe/Berlin"], "skip", "Europe/Berlin", {}),
    "an overlap": (["--overlap", "queue"], "queue", None, {}),
    "an overlap with underscores": (["--overlap", "queue_on_success"], "queue_on_success", None, {}),
    "an overlap with hyphens": (["--overlap", "queue-on-success"], "queue_on_success", None, {}),
    "a prefix": (["--key", "report"], "skip", None, {"key": "report"}),
    "times": (
        ["--deadline-in", "60", "--tolerance", "5", "--on-miss", "skip", "--duration-hint", "2", "--timeout-s", "9"],
        "skip",
        None,
        {
            "deadline_in_s": 60.0,
            "tolerance_s": 5.0,
            "on_miss": pb.MISS_POLICY_SKIP,
            "duration_hint_s": 2.0,
            "timeout_s": 9.0,
        },
    ),
    "the rest": (
        [
            *("--pool", "p", "--kind", "k", "--priority", "low", "--tenant", "acme", "--label", "zone=eu"),
            *("--tag", "a=b", "--resource", "gpu=2", "--content-type", "x/y"),
        ],
        "skip",
        None,
        {
            "pool": "p",
            "kind": "k",
            "priority": pb.PRIORITY_LOW,
            "tenant": "acme",
            "labels": {"zone": "eu"},
            "tags": {"a": "b"},
            "resources": {"gpu": 2},
            "content_type": "x/y",
        },
    ),
}


@pytest.mark.parametrize(("arguments", "overlap", "tz", "fields"), SENT.values(), ids=SENT)
def test_what_is_asked_reaches_the_client(run, client, arguments, overlap, tz, fields):
    assert run("recurring", "add", "nightly", "30 2 * * *", *arguments) == (0, "", "")
    template = pb.TaskSpec(**{"priority": pb.PRIORITY_NORMAL, **fields})
    assert client.asked == [("nightly", "30 2 * * *", tz, overlap, template)]


def test_the_payload_may_come_through_a_pipe_and_the_connection_be_named_first(run, client, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    code, out, err = run("--server", "127.0.0.1:1", "--json", "recurring", "add", "n", "* * * * *", "-")
    assert (code, json.loads(out), err) == (0, {"name": "n"}, "")
    assert client.asked[0][-1].payload == b"\xff"


REFUSED = {
    "no cron": (["n"], "parameter CRON requires an argument"),
    "a start": (["n", "* * * * *", "--start-in", "1"], "--start-in"),
    "a dependency": (["n", "* * * * *", "--after", "1"], "--after"),
    "a cron that was not quoted": (
        ["n", "*", "*", "*", "*", "*"],
        'Unexpected argument: * * *. CRON needs quotes, as in "',
    ),
    "an unknown overlap": (["n", "* * * * *", "--overlap", "maybe"], "'maybe' is not one of skip, allow, queue, queue"),
    "an unknown miss": (["n", "* * * * *", "--on-miss", "late"], "'late' is not one of run_late, skip, fail"),
    "a negative tolerance": (["n", "* * * * *", "--tolerance", "-1"], "--tolerance: -1 is not a number of seconds"),
    "a name that is not UTF-8": (["\udcff", "* * * * *"], "NAME: what is not UTF-8 cannot be sent"),
    "a cron that is not UTF-8": (["n", "\udcff"], "CRON: what is not UTF-8 cannot be sent"),
    "a zone that is not UTF-8": (["n", "* * * * *", "--tz", "\udcff"], "--tz: what is not UTF-8 cannot be sent"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_asked_is_one_sentence(run, client, arguments, words):
    code, out, err = run("recurring", "add", *arguments)
    assert (code, out, client.asked) == (2, "", [])
    assert err.startswith("Error: ") and words in err and err.count("\n") == 1


def test_what_the_server_refuses_ends_with_its_sentence(run, client):
    client.failure = ClientError("invalid_argument", "cron: '* * *' has 3 fields")
    assert run("recurring", "add", "n", "* * *") == (3, "", "Error: invalid_argument: cron: '* * *' has 3 fields\n")
    client.failure = TimeoutError("no answer within 30 s")
    code, out, err = run("recurring", "add", "n", "* * * * *")
    assert (code, out) == (5, "") and err.startswith("Error: deadline_exceeded: ")


# --- remove


def test_remove_says_whether_there_was_one(run):
    assert run("recurring", "remove", "nightly") == (0, "removed\n", "")
    assert run("recurring", "remove", "n\x1b") == (3, "", "Error: no such schedule: n\\u{1b}\n")
    assert run("recurring", "remove", "nightly", "--json") == (0, '{\n  "removed": true\n}\n', "")
    error = "Error: no such schedule: n\n"
    assert run("recurring", "remove", "n", "--json") == (3, '{\n  "removed": false\n}\n', error)


def test_remove_needs_a_name(run, client):
    code, out, err = run("recurring", "remove")
    assert (code, out, client.asked) == (2, "", []) and "NAME requires an argument" in err
    assert run("recurring", "remove", "\udcff")[0] == 2 and client.asked == []


# --- the list


def test_the_list_is_a_table(run):
    code, out, err = run("recurring")
    heading, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split() == ["NAME", "CRON", "TZ", "POOL", "OVERLAP", "NEXT", "LAST", "TASK"]
    assert first.split() == [
        *("nightly", "30", "2", "*", "*", "*", "America/New_York", "default", "queue_on_success"),
        *("2027-03-14T07:00:00Z", "7"),
    ]
    assert second.split() == ["over\\u{1b}", "0", "0", "29", "2", "*", "UTC", "default", "skip", "-", "-"]


def test_the_list_as_json_leaves_out_what_is_not_known(run):
    code, out, err = run("recurring", "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["schedules"]
    assert first == {
        "name": "nightly",
        "cron": "30 2 * * *",
        "tz": "America/New_York",
        "pool": "default",
        "kind": "report",
        "overlap": "queue_on_success",
        "next_unix_ns": str(MARCH_14),
        "last_task_id": "7",
    }
    assert set(second) == {"name", "cron", "pool", "kind", "overlap"} and second["overlap"] == "skip"
    assert set(json.loads(out)) == {"schedules"}


def test_shards_that_did_not_answer_are_named(run, client):
    client.schedules = pb.ListRecurringResponse(unavailable_shards=["eu"])
    code, out, err = run("recurring")
    assert (code, out.split()[0], err) == (0, "NAME", "Warning: shards that did not answer: eu\n")
    code, out, err = run("recurring", "--json")
    assert (code, json.loads(out), err) == (0, {"schedules": [], "unavailable_shards": ["eu"]}, "")


def test_a_list_that_is_refused(run, client):
    client.failure = ClientError("permission_denied", "the role metrics is needed")
    assert run("recurring") == (3, "", "Error: permission_denied: the role metrics is needed\n")
    client.failure = TimeoutError("no answer within 30 s")
    assert run("recurring")[0] == 5


def test_an_unknown_word_behind_recurring(run, client):
    code, out, err = run("recurring", "drop", "nightly")
    assert (code, out) == (2, "") and "Unexpected argument: drop nightly" in err and "quotes" not in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_list_is_the_same_as_no_word(run, options):
    assert run("recurring", "list", *options) == run("recurring", *options)
    assert run(*options, "recurring", "list") == run("recurring", *options)


# --- the snapshot

POOL = pb.PoolSnapshot(
    name="default",
    capacity=10,
    busy=4,
    held=2,
    desired=7,
    pending_by_class=[0, 1, 20, 0],
    reservations=3,
    dispatched=50,
    succeeded=40,
    failed=5,
    priority_adherence=0.99,
    fixed_start_hit_rate=0.75,
    utilization=0.5,
    schedule_efficiency=0.45,
    wait_p50_s=0.001,
    wait_p90_s=2.0,
    wait_p99_s=30.0,
    cost=12.5,
    workers_connected=6,
    groups=[pb.WorkerGroup(capacity=8, busy=4), pb.WorkerGroup(labels={"gpu": "a"}, capacity=2)],
)
TOTALS = pb.Totals(**{field.name: 100 + field.number for field in pb.Totals.DESCRIPTOR.fields})
SNAPSHOT = pb.SnapshotResponse(pools=[POOL], live_tasks=25, running=4, pending=21, workers_connected=6, totals=TOTALS)


def test_the_snapshot_as_text_has_every_figure(run):
    code, out, err = run("snapshot")
    assert (code, err) == (0, "")
    now, lately, totals = out.split("\n\n")
    heading, row = now.splitlines()
    assert dict(zip(heading.split(), row.split(), strict=True)) == {
        "POOL": "default",
        "CAPACITY": "10",
        "BUSY": "4",
        "HELD": "2",
        "DESIRED": "7",
        "PENDING": "21",
        "RESERVED": "3",
        "WORKERS": "6",
        "COST": "12.5",
    }
    heading, row = lately.splitlines()
    assert heading.split() == [
        *("POOL", "STARTED", "SUCCEEDED", "FAILED", "WAIT", "P50", "WAIT", "P90", "WAIT", "P99"),
        *("UTIL", "EFFICIENCY", "IN", "ORDER", "HIT", "RATE"),
    ]
    assert row.split() == ["default", "50", "40", "5", "1ms", "2s", "30s", "50%", "45%", "99%", "75%"]
    assert max(map(len, out.splitlines())) <= 140
    for field in TOTALS.DESCRIPTOR.fields:
        assert str(getattr(TOTALS, field.name)) in totals, field.name
    assert "108 missed" in totals


def test_the_snapshot_as_json_omits_nothing_of_the_contract(run):
    code, out, err = run("snapshot", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {field.name for field in pb.SnapshotResponse.DESCRIPTOR.fields}
    assert found["totals"] == {field.name: getattr(TOTALS, field.name) for field in TOTALS.DESCRIPTOR.fields}
    (pool,) = found["pools"]
    assert set(pool) == {field.name for field in pb.PoolSnapshot.DESCRIPTOR.fields} | {"pending"}
    for field in pb.PoolSnapshot.DESCRIPTOR.fields:
        if field.name != "groups":
            assert pool[field.name] == getattr(POOL, field.name), field.name
    assert pool["groups"][1] == {"labels": {"gpu": "a"}, "capacity": 2, "busy": 0} and pool["pending"] == 21
