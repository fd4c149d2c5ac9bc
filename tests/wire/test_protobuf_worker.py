"""Messages of worker streams."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.task import Lease, Task
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service.messages import (
    AbortLease,
    AttemptAborted,
    Complete,
    EmptyMessage,
    Fail,
    Heartbeat,
    Nack,
    Register,
    Registered,
    SetSlots,
    Shutdown,
)
from cronoq_sansio.service.messages_recurring import AddRecurring
from cronoq_sansio.settings import LimitSettings, PoolSettings
from cronoq_sansio.spec import RetryPolicy, Scheduling, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_recurring import decode_add_recurring
from cronoq_sansio.wire.protobuf_worker import decode_worker, encode_for_worker

LIMITS = LimitSettings(max_message_bytes=8_192, max_tags=2, max_tag_len=8)


def decode(**message: Any) -> Any:
    return decode_worker(pb.WorkerMessage(**message).SerializeToString(), LIMITS)


def registered(**fields: Any) -> Any:
    return decode(register=pb.Register(**{"protocol_version": 3, "pool": "p", **fields}))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, EmptyMessage()),
        ({"heartbeat": pb.Heartbeat(lease=7)}, Heartbeat(7)),
        ({"complete": pb.Complete(lease=7, output=b"o", content_type="a/b")}, Complete(7, b"o", "a/b")),
        ({"complete": pb.Complete(lease=7, content_type="x" * 129)}, Complete(7, b"", "")),
        ({"complete": pb.Complete(lease=7, content_type="\0")}, Complete(7, b"", "")),
        ({"fail": pb.Fail(lease=7, message="m", permanent=True)}, Fail(7, "m", True, 0)),
        ({"fail": pb.Fail(lease=7, retry_after_s=1.5)}, Fail(7, "", False, 3 * SECOND // 2)),
        ({"fail": pb.Fail(lease=7, retry_after_s=math.nan)}, Fail(7, "", False, 0)),
        ({"fail": pb.Fail(lease=7, retry_after_s=-1)}, Fail(7, "", False, 0)),
        ({"fail": pb.Fail(lease=7, message="a\0b")}, Fail(7, "a\ufffdb", False, 0)),
        ({"fail": pb.Fail(lease=7, message="ü" * 1_025)}, Fail(7, "ü" * 1_024, False, 0)),
        ({"nack": pb.Nack(lease=7, reason="x" * 2_049)}, Nack(7, "x" * 2_048)),
        ({"set_slots": pb.SetSlots(slots=3)}, SetSlots(3)),
        ({"cancelled": pb.Cancelled(lease=7)}, AttemptAborted(7)),
    ],
)
def test_messages(message: dict[str, Any], expected: Any) -> None:
    assert decode(**message) == expected


def test_a_member_that_is_new_to_us_is_ignored() -> None:
    assert decode_worker(b"\x7a\x02\x08\x01", LIMITS) == EmptyMessage()


def test_messages_are_cut_to_the_fixed_limit_too() -> None:
    limits = LimitSettings(max_message_bytes=1 << 20)
    data = pb.WorkerMessage(fail=pb.Fail(lease=1, message="x" * 9_000)).SerializeToString()
    decoded = decode_worker(data, limits)
    assert isinstance(decoded, Fail) and len(decoded.message) == 8_192


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Register("p", 0, "", 3, ())),
        ({"pool": ""}, Register("default", 0, "", 3, ())),
        ({"slots": 4, "worker_name": "a\nb" + "x" * 70}, Register("p", 4, "ab" + "x" * 62, 3, ())),
        ({"labels": {"b": "2", "a": ""}}, Register("p", 0, "", 3, (("a", ""), ("b", "2")))),
        ({"protocol_version": 9}, Register("p", 0, "", 9, ())),
        ({"protocol_version": 0}, Register("p", 0, "", 1, ())),
        # The version is judged first, by the service: what else is wrong does not matter then.
        ({"protocol_version": 2, "pool": "x" * 65, "labels": {"": "x"}}, Register("x" * 65, 0, "", 2, (("", "x"),))),
    ],
)
def test_register(fields: dict[str, Any], expected: Register) -> None:
    assert registered(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pool": "x" * 65}, "pool: 65 bytes"),
        ({"pool": "a\0"}, "pool: contains a NUL"),
        ({"labels": {"a": "", "b": "", "c": ""}}, "labels: 3 entries, at most 2"),
        ({"labels": {"a": "x" * 9}}, "labels['a']: 9 bytes"),
        ({"labels": {"a" * 9: ""}}, "labels: a name: 9 bytes"),
        ({"labels": {"": "x"}}, "labels: a name is empty"),
    ],
)
def test_register_refused(fields: dict[str, Any], words: str) -> None:
    refusal = registered(**fields)
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID and refusal.message.startswith(words)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05a", b"\x0a\x03\x0a\x01\xff"])
def test_undecodable(data: bytes) -> None:
    refusal = decode_worker(data, LIMITS)
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID


@given(st.binary(max_size=60))
def test_no_bytes_make_decoding_fail(data: bytes) -> None:
    decode_worker(data, LIMITS)


def lease(spec: TaskSpec) -> Lease:
    pool = Pool(PoolSettings(lease_ttl=20 * SECOND), {}, 0)
    task = Task(5, spec, pool, RetryPolicy(3, 0, 1.0, 0, True), 0, 0)
    task.attempt = 2
    return Lease(77, task, (), 0)


def test_a_lease_carries_everything() -> None:
    spec = TaskSpec(b"p", "a/b", "k", "pool", 0, "key", SECOND // 2, None, (("a", "1"), ("b", "")), 9)
    found = pb.ServerMessage.FromString(encode_for_worker(lease(spec)))
    assert found.lease == pb.Lease(
        lease=77,
        task_id=5,
        attempt=2,
        payload=b"p",
        content_type="a/b",
        kind="k",
        key="key",
        tags={"a": "1", "b": ""},
        timeout_s=0.5,
        pool="pool",
        priority=pb.PRIORITY_CRITICAL,
        lease_ttl_s=20.0,
    )


def test_what_a_task_has_not_is_not_sent() -> None:
    found = pb.ServerMessage.FromString(encode_for_worker(lease(TaskSpec(b"", "", "k", "p", 3, "", None, None, (), 0))))
    assert found.lease == pb.Lease(
        lease=77, task_id=5, attempt=2, kind="k", pool="p", priority=pb.PRIORITY_LOW, lease_ttl_s=20.0
    )
    assert not found.lease.HasField("timeout_s") and not found.lease.HasField("deadline_unix_ns")


@pytest.mark.parametrize(("deadline", "sent"), [(None, False), (0, True), ((1 << 63) - 1, True)])
def test_a_lease_carries_the_deadline_of_its_task(deadline: int | None, sent: bool) -> None:
    asked = Scheduling(deadline=deadline, tenant="t", labels=(("a", "b"),))
    spec = TaskSpec(b"", "", "k", "p", 3, "", None, None, (), 0, asked)
    found = pb.ServerMessage.FromString(encode_for_worker(lease(spec))).lease
    assert found.HasField("deadline_unix_ns") is sent and found.deadline_unix_ns == (deadline or 0)


def test_a_lease_names_the_schedule_that_made_its_task() -> None:
    tags = (("a", "1"), ("cronoq.recurring", "nightly"))
    spec = TaskSpec(
        b"", "", "k", "p", 3, "n@2027-03-14T07:00:00Z", None, None, tags, 0, Scheduling(deadline=7, start=5)
    )
    found = pb.ServerMessage.FromString(encode_for_worker(lease(spec))).lease
    assert dict(found.tags) == {"a": "1", "cronoq.recurring": "nightly"}
    assert found.key == "n@2027-03-14T07:00:00Z" and found.deadline_unix_ns == 7


def test_the_largest_template_makes_tasks_whose_leases_fit_one_message() -> None:
    limits = LimitSettings(max_message_bytes=8_192)
    template = pb.TaskSpec(kind="k" * 128, pool="p" * 64, key="x" * 235, timeout_s=1, deadline_in_s=1)
    template.payload = b"x" * (limits.max_message_bytes - MESSAGE_HEADROOM - template.ByteSize() - 3)
    request = pb.RecurringRequest(name="n" * 256, template=template)
    added = decode_add_recurring(request.SerializeToString(), limits)
    assert isinstance(added, AddRecurring)
    spec = replace(
        added.spec.template,
        key="x" * 235 + "@2027-03-14T07:00:00Z",
        tags=(("cronoq.recurring", "n" * 256),),
        scheduling=Scheduling(deadline=(1 << 63) - 1, start=1),
    )
    assert len(encode_for_worker(lease(spec))) <= limits.max_message_bytes


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            Registered(3, 30 * SECOND, 4, 1_000),
            {
                "registered": pb.Registered(
                    worker_id=3, lease_ttl_s=30, slots=4, protocol_version=3, max_message_bytes=1_000
                )
            },
        ),
        (AbortLease(7, "cancelled"), {"abort": pb.Abort(lease=7, reason="cancelled")}),
        (Shutdown("bye", True), {"shutdown": pb.Shutdown(reason="bye", not_leader=True)}),
    ],
)
def test_other_messages(message: Any, expected: dict[str, Any]) -> None:
    assert pb.ServerMessage.FromString(encode_for_worker(message)) == pb.ServerMessage(**expected)
