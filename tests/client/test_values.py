"""Results, errors and targets as values: frozen, picklable, exact."""

import dataclasses
import pickle

import pytest

from cronoq import client as api
from cronoq._client.results import number, word
from cronoq._client.target import Target, parse_target
from cronoq.client import Client, ClientError, Event, Result, Submitted, TaskInfo
from cronoq.errors import CronoqError
from cronoq_sansio.spec import Priority, TaskStatus

RESULTS = [
    kind
    for name in api.__all__
    if isinstance(kind := getattr(api, name), type) and dataclasses.is_dataclass(kind)
    if name != "Lease"  # a handler may change its own
]


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_results_are_frozen_and_slotted(kind: type) -> None:
    assert (kind.__dataclass_params__.frozen and not hasattr(kind, "__dict__")) or "__slots__" in vars(kind)


def test_fields_stand_in_the_described_order() -> None:
    described = {
        Submitted: "id duplicate result",
        Result: "id status output message output_available",
        TaskInfo: "id status pool key kind attempt max_attempts created_at started_at finished_at message "
        "output_available tenant priority",
        Event: "id pool key status attempt at message",
        api.WorkerInfo: "id name pool labels slots busy connected_at",
        api.RecurringInfo: "name cron tz pool kind overlap next_at last_task_id",
        api.TaskPage: "tasks next_after unavailable_shards",
        api.WorkerGroup: "labels capacity busy",
        api.Snapshot: "pools live_tasks running pending totals workers_connected unavailable_shards",
    }
    for kind, names in described.items():
        fields = [field.name for field in dataclasses.fields(kind)]
        assert fields[: len(names.split())] == names.split()
    assert len(dataclasses.fields(api.Totals)) == 13


def test_results_pickle_and_compare() -> None:
    result = Result(1, "succeeded", b"[1]")
    for value in (result, Submitted(1, False, result), TaskInfo(1, "ready"), Event(1, "p", "", "shed", 1, 2.0, "m")):
        assert pickle.loads(pickle.dumps(value)) == value
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.id = 2  # type: ignore[misc]


def test_outputs() -> None:
    assert Result(1, "succeeded", b"[1]").json() == [1] and Result(1, "succeeded", b"").json() is None
    assert Result(1, "succeeded", "ä".encode()).text() == "ä" and Result(1, "failed", None).text() == ""
    with pytest.raises(ValueError, match="task 1 has no output: its status is failed"):
        Result(1, "failed", None).json()
    with pytest.raises(ValueError):
        Result(1, "succeeded", b"{").json()


def test_words_are_those_of_the_core() -> None:
    for status in TaskStatus:
        assert word("TaskStatus", status) == status.name.lower()
        assert number("TaskStatus", status.name) == status
        assert TaskInfo(1, status.name.lower()).done is status.terminal
    for priority in Priority:
        assert word("Priority", priority + 1) == priority.name.lower()
    assert word("TaskStatus", 13) == "unknown_13" and number("TaskStatus", "unspecified") is None


# --- errors


def test_errors_carry_code_message_and_metadata() -> None:
    error = ClientError("not_found", "no task", metadata=(("cronoq-shard", "eu"), ("x-bin", b"\0")), unprocessed=True)
    assert isinstance(error, CronoqError) and str(error) == "not_found: no task"
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert type(one) is ClientError
        assert (one.code, one.message, str(one)) == ("not_found", "no task", "not_found: no task")
        assert (one.metadata, one.shard, one.endpoint, one.unprocessed) == (error.metadata, "eu", None, True)
    retryable = {code: ClientError(code).retryable for code in ("unavailable", "resource_exhausted", "not_found")}
    assert retryable == {"unavailable": True, "resource_exhausted": True, "not_found": False}
    assert str(ClientError("internal")) == "internal" and ClientError("internal").message == ""


# --- targets

TARGETS = {
    "localhost:7070": Target("localhost", 7070, None),
    "http://localhost:7070/": Target("localhost", 7070, False),
    "HTTPS://host.test:1///": Target("host.test", 1, True),
    "https://host.test": Target("host.test", 443, True),
    "grpc://10.0.0.1:65535": Target("10.0.0.1", 65535, None),
    "[::1]:7070": Target("::1", 7070, None),
    "https://[2001:db8::1]": Target("2001:db8::1", 443, True),
    "a_b-c.d:5": Target("a_b-c.d", 5, None),
}


@pytest.mark.parametrize(("text", "target"), TARGETS.items())
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost", ":7070", "host:", "host:0", "host:65536", "host:x", "host:1:2", "::1:7070", "[::1]"),
        *("[::1:7070", "[localhost]:1", "[::1]x:1", "http://host", "ftp://host:1", "user@host:1", "host/path:1"),
        *(
            "host:1/path",
            "h st:1",
            "-host:1",
            "host:+1",
            "host:\u0661",
            "host:1\n",
            "unix:/run/x.sock",
            "dns:///host:1",
        ),
    ],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match="target"):
        Client(text)


@pytest.mark.parametrize("target", [None, 7070, b"localhost:7070", ("localhost", 7070)])
def test_a_target_is_a_text(target: object) -> None:
    with pytest.raises(TypeError, match="target"):
        Client(target)  # type: ignore[arg-type]


def test_the_authority_and_who_is_loopback() -> None:
    assert parse_target("[::1]:5").authority == "[::1]:5" and parse_target("h:5").authority == "h:5"
    loopback = ["localhost:1", "LOCALHOST.:1", "127.1.2.3:1", "[::1]:1"]
    others = ["localhost.test:1", "128.0.0.1:1", "[::2]:1", "10.0.0.1:1", "127.0.0.1.test:1"]
    assert [parse_target(text).is_loopback for text in loopback + others] == [True] * 4 + [False] * 5
