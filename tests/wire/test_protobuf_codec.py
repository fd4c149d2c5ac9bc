"""Requests and replies: what each field becomes, and what is refused with which words."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.figures import PoolFigures
from cronoq_sansio.engine.snapshot import EngineSnapshot, GroupSnapshot, PoolSnapshot, Totals
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import (
    Cancel,
    CancelReply,
    Get,
    GetSnapshot,
    SnapshotReply,
    Submit,
    SubmitReply,
    TaskInfo,
    TaskResult,
    Wait,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import RetryOverride, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_codec import ROUTES, Route

LIMITS = LimitSettings(max_message_bytes=8_192, max_key_len=32, max_kind_len=16, max_tags=2, max_tag_len=8)


def route(name: str) -> Route:
    (found,) = (route for route in ROUTES.values() if route.name == name)
    return found


def decode(name: str, message: Any) -> Any:
    built = route(name).decode
    assert built is not None
    return built(message if isinstance(message, bytes) else message.SerializeToString(), LIMITS)


def submit(task: pb.TaskSpec, **fields: Any) -> Any:
    return decode("Tasks.Submit", pb.SubmitRequest(task=task, **fields))


def test_every_method_of_the_contract_has_a_route() -> None:
    contract = {
        f"/{service.full_name}/{method.name}".encode()
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(ROUTES) == contract
    for path, found in ROUTES.items():
        assert found.path == path and path.decode().endswith(found.name.replace(".", "/"))


def test_an_empty_task_gets_the_defaults() -> None:
    request = submit(pb.TaskSpec())
    assert request == Submit(TaskSpec(b"", "", "default", "default", 2, "", None, None, (), 2), False, None)


def test_every_field_arrives() -> None:
    task = pb.TaskSpec(
        payload=b"\0p", content_type="text/plain", kind="k", pool="p", priority=pb.PRIORITY_CRITICAL, key="key"
    )
    task.timeout_s = 1.5
    task.tags.update({"b": "2", "a": ""})
    task.retry.CopyFrom(
        pb.RetryPolicy(max_attempts=5, initial_backoff_s=0.5, multiplier=3, max_backoff_s=9, jitter=True)
    )
    request = submit(task, wait=True, wait_timeout_s=2)
    retry = RetryOverride(5, SECOND // 2, 3.0, 9 * SECOND, True)
    spec = request.spec
    assert spec == TaskSpec(
        b"\0p", "text/plain", "k", "p", 0, "key", 3 * SECOND // 2, retry, (("a", ""), ("b", "2")), spec.size
    )
    assert (request.wait, request.wait_timeout) == (True, 2 * SECOND)
    assert task.ByteSize() <= spec.size <= task.ByteSize() + 16


@pytest.mark.parametrize(("number", "index"), [(0, 2), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_priorities(number: int, index: int) -> None:
    assert submit(pb.TaskSpec(priority=number)).spec.priority == index  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, RetryOverride(None, None, None, None, False)),
        ({"jitter": True}, RetryOverride(None, None, None, None, True)),
        ({"multiplier": 0.5}, RetryOverride(None, None, 1.0, None, False)),
        ({"multiplier": 1000.0}, RetryOverride(None, None, 1000.0, None, False)),
        ({"max_attempts": 1, "max_backoff_s": 1.0}, RetryOverride(1, None, None, SECOND, False)),
    ],
)
def test_a_retry_number_of_zero_is_unset(policy: dict[str, Any], expected: RetryOverride) -> None:
    assert submit(pb.TaskSpec(retry=pb.RetryPolicy(**policy))).spec.retry == expected


TOO_MANY = {"a": "", "b": "", "c": ""}
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"priority": 5}, "priority: 5"),
    ({"priority": -1}, "priority: -1"),
    ({"timeout_s": math.nan}, "timeout_s: nan"),
    ({"timeout_s": math.inf}, "timeout_s: inf"),
    ({"timeout_s": -0.1}, "timeout_s: -0.1"),
    ({"timeout_s": 3_153_600_001.0}, "timeout_s: 3153600001.0"),
    ({"content_type": "x" * 129}, "content_type: 129 bytes, at most 128"),
    ({"kind": "x" * 17}, "kind: 17 bytes, at most 16"),
    ({"kind": "ü" * 9}, "kind: 18 bytes, at most 16"),
    ({"pool": "x" * 65}, "pool: 65 bytes, at most 64"),
    ({"key": "x" * 33}, "key: 33 bytes, at most 32"),
    ({"key": "a\0"}, "key: contains a NUL"),
    ({"pool": "\0"}, "pool: contains a NUL"),
    ({"key": "a@2026-01-02T03:04:05Z"}, "key: keys that end in @YYYY"),
    ({"tags": TOO_MANY}, "tags: 3 entries, at most 2"),
    ({"tags": {"a": "x" * 9}}, "tags['a']: 9 bytes"),
    ({"tags": {"a" * 9: ""}}, "tags: a name: 9 bytes"),
    ({"tags": {"cronoq.content_type": "x"}}, "tags: names that begin with 'cronoq.'"),
    ({"retry": pb.RetryPolicy(multiplier=1000.5)}, "retry.multiplier: 1000.5"),
    ({"retry": pb.RetryPolicy(multiplier=-1)}, "retry.multiplier: -1.0"),
    ({"retry": pb.RetryPolicy(multiplier=math.nan)}, "retry.multiplier: nan"),
    ({"retry": pb.RetryPolicy(initial_backoff_s=math.inf)}, "retry.initial_backoff_s: inf"),
    ({"retry": pb.RetryPolicy(max_backoff_s=-1)}, "retry.max_backoff_s: -1.0"),
]


@pytest.mark.parametrize(("fields", "words"), INVALID, ids=[words for _, words in INVALID])
def test_what_is_invalid_names_the_field(fields: dict[str, Any], words: str) -> None:
    refusal = submit(pb.TaskSpec(**fields))
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID
    assert refusal.message.startswith(words)


def test_every_field_of_a_task_is_read() -> None:
    read = {"payload", "content_type", "kind", "pool", "priority", "key", "timeout_s", "retry", "tags"}
    read |= {"deadline_in_s", "deadline_unix_ns", "duration_hint_s", "deps", "resources", "labels", "tenant"}
    read |= {"start_in_s", "start_unix_ns", "tolerance_s", "on_miss"}
    assert read == {field.name for field in pb.TaskSpec.DESCRIPTOR.fields}


def test_the_task_must_be_there() -> None:
    refusal = decode("Tasks.Submit", pb.SubmitRequest())
    assert isinstance(refusal, Rejection) and refusal.message == "task: must be set"


@pytest.mark.parametrize("timeout", [math.nan, -1.0, 4e9])
def test_wait_timeouts_are_durations(timeout: float) -> None:
    refusal = submit(pb.TaskSpec(), wait_timeout_s=timeout)
    assert isinstance(refusal, Rejection) and refusal.message.startswith("wait_timeout_s: ")


def test_a_task_leaves_head_room_for_the_lease() -> None:
    limit = LIMITS.max_message_bytes - 1_024
    overhead = pb.TaskSpec(payload=b"x" * limit).ByteSize() - limit
    fits = pb.TaskSpec(payload=b"x" * (limit - overhead))
    assert fits.ByteSize() == limit
    request = submit(fits, wait=True)
    assert isinstance(request, Submit) and request.spec.size == limit  # a later recovery judges it the same way
    refusal = submit(pb.TaskSpec(payload=b"x" * (limit - overhead + 1)))
    assert isinstance(refusal, Rejection) and refusal.code is Code.TOO_LARGE
    assert str(limit) in refusal.message and str(limit + 1) in refusal.message


REFERENCES: list[tuple[pb.TaskRef, Any]] = [
    (pb.TaskRef(id=7), 7),
    (pb.TaskRef(id=0), 0),
    (pb.TaskRef(key="k"), "k"),
    (pb.TaskRef(key="a@2026-01-02T03:04:05Z"), "a@2026-01-02T03:04:05Z"),
    (pb.TaskRef(), None),
    (pb.TaskRef(key=""), None),
    (pb.TaskRef(key="x" * 33), None),
    (pb.TaskRef(key="\0"), None),
]


@pytest.mark.parametrize(("reference", "target"), REFERENCES)
def test_references(reference: pb.TaskRef, target: Any) -> None:
    found = [
        decode("Tasks.Cancel", pb.CancelRequest(task=reference)),
        decode("Tasks.Get", pb.GetRequest(task=reference)),
        decode("Tasks.Wait", pb.WaitRequest(task=reference, timeout_s=3)),
    ]
    if target is None:
        assert all(isinstance(item, Rejection) and item.message.startswith("task") for item in found)
    else:
        assert found == [Cancel(target), Get(target), Wait(target, 3 * SECOND)]


def test_wait_without_a_timeout_and_with_a_bad_one() -> None:
    assert decode("Tasks.Wait", pb.WaitRequest(task=pb.TaskRef(id=1))) == Wait(1, None)
    refusal = decode("Tasks.Wait", pb.WaitRequest(task=pb.TaskRef(id=1), timeout_s=-1))
    assert isinstance(refusal, Rejection) and refusal.message.startswith("timeout_s: ")


def test_snapshot_takes_anything_that_is_a_message() -> None:
    assert decode("Admin.Snapshot", b"") == GetSnapshot()
    assert decode("Admin.Snapshot", b"\x08\x01") == GetSnapshot()


BUILT = [found for found in ROUTES.values() if found.decode is not None]


@pytest.mark.parametrize("found", BUILT, ids=[found.name for found in BUILT])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05a", b"\x0b"], ids=["bad tag", "cut off", "open group"])
def test_undecodable_requests(found: Route, data: bytes) -> None:
    assert found.decode is not None
    refusal = found.decode(data, LIMITS)
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID
    assert "not a valid cronoq.v1." in refusal.message


def test_text_that_is_not_utf8_is_undecodable() -> None:
    refusal = decode("Tasks.Submit", b"\x0a\x03\x32\x01\xff")
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID


@given(st.sampled_from(BUILT), st.binary(max_size=60))
def test_no_bytes_make_decoding_fail(found: Route, data: bytes) -> None:
    assert found.decode is not None
    found.decode(data, LIMITS)


# --- replies


def encoded(name: str, reply: Any) -> bytes:
    encode = route(name).encode
    assert encode is not None
    return encode(reply)


def test_submit_replies() -> None:
    assert pb.SubmitResponse.FromString(encoded("Tasks.Submit", Submitted(5, True))) == pb.SubmitResponse(
        id=5, duplicate=True
    )
    result = TaskResult(5, 6, b"", "text/plain", "")
    assert pb.SubmitResponse.FromString(encoded("Tasks.Submit", SubmitReply(5, False, result))) == pb.SubmitResponse(
        id=5, result=pb.TaskResult(id=5, status=pb.TASK_STATUS_SUCCEEDED, output=b"", output_available=True)
    )


def test_an_empty_output_is_there_and_a_missing_one_is_not() -> None:
    empty = pb.TaskResult.FromString(encoded("Tasks.Wait", TaskResult(1, 6, b"", "", "")))
    assert empty.HasField("output") and empty.output_available
    gone = pb.TaskResult.FromString(encoded("Tasks.Wait", TaskResult(1, 7, None, "", "no")))
    assert not gone.HasField("output") and not gone.output_available and gone.message == "no"


def test_cancel_reply() -> None:
    assert pb.CancelResponse.FromString(encoded("Tasks.Cancel", CancelReply(True))).cancelled


def test_task_info() -> None:
    info = TaskInfo(9, 5, "p", "k", "kind", 2, 3, 100, None, None, "broke", False, 3, "acme")
    assert pb.TaskInfo.FromString(encoded("Tasks.Get", info)) == pb.TaskInfo(
        id=9,
        status=pb.TASK_STATUS_RETRYING,
        pool="p",
        key="k",
        kind="kind",
        attempt=2,
        max_attempts=3,
        created_unix_ns=100,
        message="broke",
        tenant="acme",
        priority=pb.PRIORITY_LOW,
    )
    unknown = TaskInfo(9, 6, "", "", "", 0, 0, None, None, 0, "", True, -1)
    found = pb.TaskInfo.FromString(encoded("Tasks.Get", unknown))
    assert found.priority == 0 and found.HasField("finished_unix_ns") and not found.HasField("created_unix_ns")


def test_snapshot_reply() -> None:
    groups = (GroupSnapshot((), 0, 0), GroupSnapshot((("gpu", "a"),), 4, 1))
    totals = Totals()
    counts = {name: index + 1 for index, name in enumerate(totals.__slots__)}
    figures = PoolFigures(7, 5, 2, 0.75, 0.5, 0.25, 1.5, 4.0, 0.875, 0.625)
    shown = PoolSnapshot("p", 4, 1, (1, 2, 3, 4), groups, figures, held=3, desired=9, reservations=8, cost=1.25)
    engine = EngineSnapshot((shown,), 11, 1, 10, counts)
    found = pb.SnapshotResponse.FromString(encoded("Admin.Snapshot", SnapshotReply(engine, 2, {"p": 2})))
    assert (found.live_tasks, found.running, found.pending, found.workers_connected) == (11, 1, 10, 2)
    (pool,) = found.pools
    assert (pool.name, pool.capacity, pool.busy, pool.workers_connected) == ("p", 4, 1, 2)
    assert list(pool.pending_by_class) == [1, 2, 3, 4]
    assert (pool.dispatched, pool.succeeded, pool.failed) == (7, 5, 2)
    assert (pool.priority_adherence, pool.utilization) == (0.75, 0.5)
    assert (pool.wait_p50_s, pool.wait_p90_s, pool.wait_p99_s) == (0.25, 1.5, 4.0)
    assert (pool.fixed_start_hit_rate, pool.schedule_efficiency) == (0.875, 0.625)
    assert (pool.held, pool.desired, pool.reservations, pool.cost) == (3, 9, 8, 1.25)
    assert [dict(group.labels) for group in pool.groups] == [{}, {"gpu": "a"}]
    assert {field.name: getattr(found.totals, field.name) for field in pb.Totals.DESCRIPTOR.fields} == counts
