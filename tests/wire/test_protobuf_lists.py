"""Batches, pages, watches and workers: what each field becomes, and what is refused with which words."""

from dataclasses import replace
from typing import Any

import pytest

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import MAPPINGS, Code, GrpcStatus, Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_codec import ROUTES
from cronoq_sansio.wire.protobuf_counts import BATCH_ENTRY_BYTES

LIMITS = LimitSettings(max_tasks_per_batch=4, max_key_len=8)


def decode(name: str, message: Any, limits: LimitSettings = LIMITS) -> Any:
    (route,) = (route for route in ROUTES.values() if route.name == name)
    assert route.decode is not None
    return route.decode(message.SerializeToString(), limits)


def encoded(name: str, reply: Any) -> bytes:
    (route,) = (route for route in ROUTES.values() if route.name == name)
    assert route.encode is not None
    return route.encode(reply)


# --- batches


def batch(*tasks: pb.TaskSpec, limits: LimitSettings = LIMITS) -> Any:
    return decode("Tasks.SubmitBatch", pb.SubmitBatchRequest(tasks=tasks), limits)


def test_members_are_what_submit_makes_of_them() -> None:
    tasks = [pb.TaskSpec(key="a", payload=b"1"), pb.TaskSpec(), pb.TaskSpec(pool="p", tags={"t": "1"})]
    found = batch(*tasks)
    assert isinstance(found, m.SubmitBatch)
    for task, spec in zip(tasks, found.specs, strict=True):
        alone = decode("Tasks.Submit", pb.SubmitRequest(task=task))
        assert replace(spec, size=0) == replace(alone.spec, size=0)
        assert spec.size == task.ByteSize(), "each counts with its own bytes against limits.max_payload_bytes"


def test_an_empty_batch_is_fine() -> None:
    assert batch() == m.SubmitBatch(())


BAD: list[tuple[pb.TaskSpec, Code, str]] = [
    (pb.TaskSpec(pool="x" * 65), Code.INVALID, "task[2].pool: 65 bytes"),
    (pb.TaskSpec(key="x" * 9), Code.INVALID, "task[2].key: 9 bytes"),
    (pb.TaskSpec(priority=9), Code.INVALID, "task[2].priority: 9"),
    (pb.TaskSpec(timeout_s=-1), Code.INVALID, "task[2].timeout_s: -1"),
    (pb.TaskSpec(retry=pb.RetryPolicy(multiplier=-1)), Code.INVALID, "task[2].retry.multiplier: -1"),
    (pb.TaskSpec(tags={"cronoq.x": ""}), Code.INVALID, "task[2].tags: names that begin"),
    (pb.TaskSpec(on_miss=9), Code.INVALID, "task[2].on_miss: 9"),
]


@pytest.mark.parametrize(("task", "code", "words"), BAD, ids=[words for _, _, words in BAD])
def test_a_bad_member_is_named_in_message_and_metadata(task: pb.TaskSpec, code: Code, words: str) -> None:
    refusal = batch(pb.TaskSpec(), pb.TaskSpec(), task, pb.TaskSpec())
    assert isinstance(refusal, Rejection) and refusal.code is code
    assert refusal.message.startswith(words)
    assert refusal.details == (("cronoq-batch-index", "2"),)


def test_a_member_that_is_too_large_is_named() -> None:
    limits = replace(LIMITS, max_message_bytes=8_192)
    refusal = batch(pb.TaskSpec(), pb.TaskSpec(payload=b"x" * 7_500), limits=limits)
    assert refusal.code is Code.TOO_LARGE and refusal.message.startswith("task[1]: message of 75")
    assert refusal.details == (("cronoq-batch-index", "1"),)
    assert len(batch(*[pb.TaskSpec(payload=b"x" * 2_000)] * 4, limits=limits).specs) == 4


def test_the_size_limit_comes_first() -> None:
    refusal = batch(*[pb.TaskSpec(priority=9)] * 5)
    assert refusal.message == "tasks: 5 members, at most 4 are allowed (limits.max_tasks_per_batch)"
    assert refusal.details == ()


def test_the_answer_to_a_batch_fits_one_message() -> None:
    limits = replace(LIMITS, max_tasks_per_batch=10_000, max_message_bytes=4_096)
    most = (4_096 - 1_024) // BATCH_ENTRY_BYTES
    assert isinstance(batch(*[pb.TaskSpec()] * most, limits=limits), m.SubmitBatch)
    assert batch(*[pb.TaskSpec()] * (most + 1), limits=limits).message.startswith(f"tasks: {most + 1} members")
    largest = m.BatchReply((Submitted((1 << 63) - 1, True),) * most)
    assert len(encoded("Tasks.SubmitBatch", largest)) <= 4_096


def test_the_answer_to_a_batch() -> None:
    reply = m.BatchReply((Submitted(4, False), Submitted(2, True)))
    found = pb.SubmitBatchResponse.FromString(encoded("Tasks.SubmitBatch", reply))
    assert found == pb.SubmitBatchResponse(tasks=[pb.SubmitResponse(id=4), pb.SubmitResponse(id=2, duplicate=True)])


# --- pages


def test_a_list_request() -> None:
    message = pb.ListTasksRequest(pools=["a", "b"], statuses=[9, 3, 9], after=7, limit=20)
    assert decode("Tasks.ListTasks", message) == m.ListTasks(("a", "b"), (3, 9), 7, 20)
    assert decode("Tasks.ListTasks", pb.ListTasksRequest()) == m.ListTasks((), (), 0, 0)


@pytest.mark.parametrize("status", [0, 13, -1, 1 << 30])
def test_a_status_that_is_none_is_refused(status: int) -> None:
    refusal = decode("Tasks.ListTasks", pb.ListTasksRequest(statuses=[3, status]))
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID
    assert refusal.message.startswith(f"statuses: {status} is not")


@pytest.mark.parametrize("name", ["Tasks.ListTasks", "Tasks.Watch"])
@pytest.mark.parametrize(
    ("pools", "words"),
    [
        (["a"] * 5, "pools: 5 entries, at most 4 are allowed (limits.max_tasks_per_batch)"),
        (["a", "x" * 65], "pools[1]: 65 bytes, at most 64"),
        (["a\0"], "pools[0]: contains a NUL"),
    ],
)
def test_filters_of_pools(name: str, pools: list[str], words: str) -> None:
    request = pb.ListTasksRequest if name == "Tasks.ListTasks" else pb.WatchRequest
    refusal = decode(name, request(pools=pools))
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID
    assert refusal.message.startswith(words)


def test_a_page() -> None:
    info = m.TaskInfo(9, 1, "p", "k", "kind", 0, 3, 100, None, None, "", False, 3, "acme")
    found = pb.ListTasksResponse.FromString(encoded("Tasks.ListTasks", m.TaskPage((info,), 9)))
    (alone,) = found.tasks
    assert alone == pb.TaskInfo.FromString(encoded("Tasks.Get", info))
    assert (alone.status, alone.tenant) == (pb.TASK_STATUS_BLOCKED, "acme")
    assert (found.next_after, list(found.unavailable_shards)) == (9, [])


# --- watches


def test_a_watch_request() -> None:
    message = pb.WatchRequest(pools=["a"], ids=[1, 2], keys=["k", "l"], all_transitions=True)
    assert decode("Tasks.Watch", message) == m.Watch(("a",), (1, 2), ("k", "l"), True)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.WatchRequest(ids=[1, 2, 3], keys=["a", "b"]), "ids and keys: 5 entries, at most 4"),
        (pb.WatchRequest(keys=["a", "x" * 9]), "keys[1]: 9 bytes, at most 8"),
        (pb.WatchRequest(keys=["\0"]), "keys[0]: contains a NUL"),
        (pb.WatchRequest(keys=["a", ""]), "keys[1]: is empty"),
    ],
)
def test_filters_of_a_watch(message: pb.WatchRequest, words: str) -> None:
    refusal = decode("Tasks.Watch", message)
    assert isinstance(refusal, Rejection) and refusal.code is Code.INVALID
    assert refusal.message.startswith(words)


def test_an_event() -> None:
    event = m.StatusEvent(7, "p", "k", 5, 2, 123, "broke")
    assert pb.StatusEvent.FromString(encoded("Tasks.Watch", event)) == pb.StatusEvent(
        id=7,
        pool="p",
        key="k",
        status=pb.TASK_STATUS_RETRYING,
        attempt=2,
        at_unix_ns=123,
        message="broke",
    )


def test_a_loss_has_its_own_status() -> None:
    assert MAPPINGS[Code.DATA_LOSS].grpc is GrpcStatus.DATA_LOSS


# --- workers


def test_workers() -> None:
    assert decode("Admin.ListWorkers", pb.Empty()) == m.ListWorkers()
    worker = m.WorkerInfo(3, "w", "p", (("gpu", "a"),), 4, 1, 123)
    found = pb.ListWorkersResponse.FromString(encoded("Admin.ListWorkers", m.WorkerList((worker,))))
    assert list(found.workers) == [
        pb.WorkerInfo(id=3, name="w", pool="p", labels={"gpu": "a"}, slots=4, busy=1, connected_unix_ns=123)
    ]
