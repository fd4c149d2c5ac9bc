"""Large messages: how many entries each may have, what is refused before the parse, and what that costs."""

from typing import Any, SupportsIndex

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.checks import clean_name
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_BATCH_EDGES, MAX_OTHER_FIELDS, MAX_SEARCHED_NAME, MAX_STATUSES, MAX_UNCOUNTED
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb, protobuf_counts
from cronoq_sansio.wire.protobuf_bytes import LENGTH, VARINT, tag, varint
from cronoq_sansio.wire.protobuf_codec import ROUTES
from cronoq_sansio.wire.protobuf_counts import TABLES, Table, check_counts, parse
from cronoq_sansio.wire.protobuf_worker import decode_worker

LIMITS = LimitSettings()
SIZE = 1 << 20
PATHS = {kind.DESCRIPTOR.name: kind for kind in TABLES}


def decode(kind: str, data: bytes, limits: LimitSettings = LIMITS) -> Any:
    """As the service gets it."""
    if kind == "WorkerMessage":
        return decode_worker(data, limits)
    method = {
        "SubmitRequest": "Tasks.Submit",
        "SubmitBatchRequest": "Tasks.SubmitBatch",
        "CancelRequest": "Tasks.Cancel",
        "GetRequest": "Tasks.Get",
        "WaitRequest": "Tasks.Wait",
        "ListTasksRequest": "Tasks.ListTasks",
        "WatchRequest": "Tasks.Watch",
        "RecurringRequest": "Admin.AddRecurring",
        "RemoveRecurringRequest": "Admin.RemoveRecurring",
        "Empty": "Admin.Snapshot",
    }[kind]
    (route,) = (route for route in ROUTES.values() if route.name == method)
    assert route.decode is not None
    return route.decode(data, limits)


def many(piece: bytes) -> bytes:
    return piece * (SIZE // len(piece))


def within(number: int, content: bytes) -> bytes:
    return varint(tag(number, LENGTH)) + varint(len(content)) + content


class Counted(bytes):
    """Counts how often a byte or a piece of it is looked at."""

    looks = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(at)


# --- the tables


def test_everything_that_may_come_more_than_once_is_counted() -> None:
    for kind, table in TABLES.items():
        compare(kind.DESCRIPTOR, table)


def compare(descriptor: Descriptor, table: Table) -> None:
    for field in descriptor.fields:
        found = table.get(tag(field.number, LENGTH))
        if field.is_repeated:
            assert found is not None and found.name, field.full_name
            if field.message_type is None and field.type != field.TYPE_STRING:
                assert found.packed and table[tag(field.number, VARINT)] is found
        if field.message_type is not None:
            assert found is not None and found.inside is not None, field.full_name
            compare(field.message_type, found.inside)


def test_there_is_a_table_for_every_message_of_a_client() -> None:
    tasks, workers, admin = (pb.DESCRIPTOR.services_by_name[name] for name in ("Tasks", "Workers", "Admin"))
    inputs = {method.input_type.name for service in (tasks, workers, admin) for method in service.methods}
    assert inputs == set(PATHS)


# --- bombs

_OTHERS = f"at most {MAX_OTHER_FIELDS} fields of a message may be unknown, or come again and replace others"
_IDS = "ids and keys: more than 1000 entries, at most 1000 are allowed (limits.max_tasks_per_batch)"
_TAGS = "tags: more than 32 entries, at most 32 are allowed (limits.max_tags)"
_DEPS = "deps: more than 256 entries, at most 256 are allowed (limits.max_deps)"
_EDGES = f"deps: the batch has more than {MAX_BATCH_EDGES} dependencies up to here; split it"
_MEMBERS = "tasks: more than 1000 members, at most 1000 are allowed (limits.max_tasks_per_batch)"

BOMBS = [
    ("SubmitBatchRequest", many(b"\x0a\x00"), _MEMBERS),
    ("SubmitBatchRequest", many(b"\x8a\x00\x00"), _MEMBERS),
    ("SubmitBatchRequest", many(within(1, b"x" * 0)) + within(1, b"x" * 5_000), _MEMBERS),
    ("SubmitBatchRequest", many(b"\x78\x01"), f"field 15: {_OTHERS}"),
    ("SubmitBatchRequest", within(1, many(b"\x28\x01")), f"task[0].field 5: {_OTHERS}"),
    ("SubmitBatchRequest", b"\x0a\x00" * 7 + within(1, many(b"\x82\x01\x00")), f"task[7].{_DEPS}"),
    ("SubmitBatchRequest", within(1, b"\x82\x01\x00" * 256 + within(1, b"x" * 5_000)) * 100, f"task[78].{_EDGES}"),
    ("SubmitRequest", many(b"\x0a\x00"), f"field 1: {_OTHERS}"),
    ("SubmitRequest", many(b"\x0b"), f"field 1: {_OTHERS}"),
    ("SubmitRequest", many(b"\xfb\x07\xfc\x07"), f"field 127: {_OTHERS}"),
    ("SubmitRequest", within(1, many(b"\x0a\x00")), f"field 1: {_OTHERS}"),
    ("SubmitRequest", within(1, many(b"\x7a\x00")), f"field 15: {_OTHERS}"),
    ("SubmitRequest", within(1, within(15, many(b"\x28\x00"))), f"retry.field 5: {_OTHERS}"),
    ("SubmitRequest", within(1, many(b"\x82\x01\x00")), _DEPS),
    ("SubmitRequest", within(1, many(b"\x82\x81\x80\x00\x00")), _DEPS),
    ("SubmitRequest", within(1, b"\x82\x01\x00" * 200 + within(1, b"x" * 5_000)) * 2, _DEPS),
    ("SubmitRequest", within(1, many(b"\x92\x01\x00")), _TAGS),
    ("SubmitRequest", within(1, within(18, within(1, b"x"))) * 1_000, _TAGS),
    (
        "SubmitRequest",
        within(1, b"\x92\x01\x00" * 32 + b"\x0a\x00" * 250) * 3 + within(1, within(1, b"x" * 5_000)),
        _TAGS,
    ),
    ("SubmitRequest", within(1, many(b"\x9a\x01\x00")), _TAGS.replace("tags:", "labels:")),
    (
        "SubmitRequest",
        within(1, many(b"\x8a\x01\x00")),
        "resources: more than 16 entries, at most 16 are allowed (limits.max_resources)",
    ),
    ("SubmitRequest", within(1, within(18, many(b"\x0a\x00"))), f"tags: entry 0: field 1: {_OTHERS}"),
    ("SubmitRequest", within(1, within(16, within(1, many(b"\x08\x01")))), f"deps[0].target.field 1: {_OTHERS}"),
    ("ListTasksRequest", many(b"\x10\x01"), "statuses: more than 64 entries, at most 64 are allowed"),
    ("ListTasksRequest", within(2, many(b"\x01")), "statuses: more than 64 entries, at most 64 are allowed"),
    ("ListTasksRequest", many(b"\x12\x01\x01"), "statuses: more than 64 entries, at most 64 are allowed"),
    ("ListTasksRequest", many(b"\x12\x00"), "statuses: more than 64 entries, at most 64 are allowed"),
    (
        "ListTasksRequest",
        many(b"\x0a\x00"),
        "pools: more than 1000 entries, at most 1000 are allowed (limits.max_tasks_per_batch)",
    ),
    ("WatchRequest", within(2, many(b"\x01")), _IDS),
    ("WatchRequest", many(b"\x10\x01"), _IDS),
    ("WatchRequest", many(b"\x1a\x00"), _IDS),
    ("WatchRequest", many(b"\x1a\x00\x10\x01"), _IDS),
    ("GetRequest", many(b"\x0a\x00"), f"field 1: {_OTHERS}"),
    ("CancelRequest", within(1, many(b"\x12\x00")), f"task.field 2: {_OTHERS}"),
    ("WaitRequest", many(b"\x11" + b"\0" * 8), f"field 2: {_OTHERS}"),
    ("RemoveRecurringRequest", many(b"\x0a\x00"), f"field 1: {_OTHERS}"),
    ("Empty", many(b"\x0d\0\0\0\0"), f"field 1: {_OTHERS}"),
    ("RecurringRequest", many(b"\x22\x00"), f"field 4: {_OTHERS}"),
    ("RecurringRequest", within(4, many(b"\x92\x01\x00")), f"template.{_TAGS}"),
    ("WorkerMessage", within(1, many(b"\x2a\x00")), "register." + _TAGS.replace("tags:", "labels:")),
    ("WorkerMessage", within(3, many(b"\x08\x01")), f"complete.field 1: {_OTHERS}"),
    ("WorkerMessage", many(b"\x12\x00"), f"field 2: {_OTHERS}"),
]


@pytest.mark.parametrize(("kind", "data", "text"), BOMBS, ids=[f"{kind}-{at}" for at, (kind, _, _) in enumerate(BOMBS)])
def test_a_bomb_is_refused_at_the_first_entry_too_many(kind: str, data: bytes, text: str) -> None:
    refusal = decode(kind, data)
    assert isinstance(refusal, Rejection)
    assert (refusal.code, refusal.message) == (Code.INVALID, text)
    counted = Counted(data)
    assert check_counts(PATHS[kind], counted, LIMITS) == refusal
    entries = MAX_BATCH_EDGES if "split it" in text else 2_000
    assert counted.looks <= 5 * entries, "no more steps than the limits allow entries"


def test_a_member_is_named_in_the_metadata() -> None:
    refusal = decode("SubmitBatchRequest", b"\x0a\x00" * 7 + within(1, many(b"\x82\x01\x00")))
    assert refusal.details == (("cronoq-batch-index", "7"),)


def test_the_answer_bounds_a_batch_as_well() -> None:
    limits = LimitSettings(max_tasks_per_batch=1 << 30, max_message_bytes=65_536)
    refusal = decode("SubmitBatchRequest", b"\x0a\x00" * 33_000, limits)
    assert refusal.message == "tasks: more than 4032 members, the answer to these is above max_message_bytes"


def test_small_messages_have_the_exact_number() -> None:
    refusal = decode("SubmitBatchRequest", b"\x0a\x00" * (MAX_UNCOUNTED // 2))
    assert refusal.message == "tasks: 2048 members, at most 1000 are allowed (limits.max_tasks_per_batch)"
    refusal = decode("ListTasksRequest", pb.ListTasksRequest(statuses=[1] * (MAX_STATUSES + 1)).SerializeToString())
    assert refusal.message == "statuses: 65 entries, at most 64 are allowed"


# --- what is honest


def full_task(number: int, deps: int) -> pb.TaskSpec:
    return pb.TaskSpec(
        payload=b"\x82\x8a\x92\x9a" * 2_000,
        kind="k" * 128,
        key=f"{number:0256}",
        deps=[pb.Dep(target=pb.TaskRef(key="d" * 256), cond=1)] * deps,  # type: ignore[arg-type]
        resources={f"{at:064}": 1 for at in range(16)},
        tags={f"{at:01000}": "x" * 1_000 for at in range(32)},
        labels={f"{at:0100}": "x" * 100 for at in range(32)},
        tenant="t" * 256,
        retry=pb.RetryPolicy(max_attempts=3, jitter=True, multiplier=2.0),
        timeout_s=1.0,
        deadline_in_s=1.0,
    )


def full(deps: int) -> list[pb.TaskSpec]:
    return [full_task(number, deps) for number in range(100)]


HONEST = [
    pb.SubmitRequest(task=full_task(1, 256), wait=True, wait_timeout_s=1),
    pb.SubmitBatchRequest(tasks=full(200)),
    pb.SubmitBatchRequest(tasks=[pb.TaskSpec(payload=b"x" * size) for size in range(1_000)]),
    pb.SubmitBatchRequest(tasks=[pb.TaskSpec()] * 1_000),
    pb.SubmitBatchRequest(tasks=[pb.TaskSpec(deps=[pb.Dep(target=pb.TaskRef(id=1))] * 20)] * 1_000),
    pb.ListTasksRequest(pools=["p" * 64] * 1_000, statuses=[*range(1, 13)] * 5, after=5, limit=5),  # type: ignore[list-item]
    pb.WatchRequest(pools=["p" * 64] * 1_000, ids=[(1 << 64) - 1] * 500, keys=["k" * 256] * 500),
    pb.RecurringRequest(name="n", cron="* * * * *", template=pb.TaskSpec(tags={f"{at:0900}": "" for at in range(32)})),
    pb.WorkerMessage(register=pb.Register(slots=1, protocol_version=3, labels={f"{at:01000}": "" for at in range(32)})),
    pb.WorkerMessage(complete=pb.Complete(lease=1, output=many(b"\x12\x00"))),
    pb.WorkerMessage(fail=pb.Fail(lease=1, message="x" * 100_000)),
    pb.GetRequest(task=pb.TaskRef(key="k" * 200)),
]


@pytest.mark.parametrize("message", HONEST, ids=[f"{type(m).DESCRIPTOR.name}-{at}" for at, m in enumerate(HONEST)])
def test_what_the_limits_allow_passes(message: Any) -> None:
    data = message.SerializeToString()
    assert not isinstance(decode(type(message).DESCRIPTOR.name, data), Rejection)
    assert check_counts(type(message), data, LIMITS) is None


SMALL = LimitSettings(max_tasks_per_batch=6, max_deps=3, max_tags=3, max_resources=2)
texts = st.text(max_size=3)
blobs = st.sampled_from([b"", b"x", b"\x0a\x00" * 40, b"\x82\x01\x00" * 500, b"x" * 5_000])
pairs = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), texts, max_size=5)
task_specs = st.builds(
    pb.TaskSpec,
    payload=blobs,
    kind=texts,
    key=texts,
    deps=st.lists(st.builds(lambda at: pb.Dep(target=pb.TaskRef(id=at)), st.integers(1, 1 << 40)), max_size=5),
    resources=st.dictionaries(st.text("ab", min_size=1, max_size=2), st.integers(1, 9), max_size=4),
    tags=pairs,
    labels=pairs,
    retry=st.builds(pb.RetryPolicy, max_attempts=st.integers(0, 1 << 31)),
    content_type=texts,
)
messages = st.one_of(
    st.builds(pb.SubmitRequest, task=task_specs),
    st.builds(pb.SubmitBatchRequest, tasks=st.lists(task_specs, max_size=9)),
    st.builds(pb.RecurringRequest, name=texts, cron=texts, template=task_specs),
    st.builds(pb.ListTasksRequest, pools=st.lists(texts, max_size=9), statuses=st.lists(st.integers(1, 12))),
    st.builds(
        pb.WatchRequest,
        pools=st.lists(texts, max_size=9),
        ids=st.lists(st.integers(0, (1 << 64) - 1), max_size=9),
        keys=st.lists(st.text("ab", min_size=1), max_size=5),
    ),
    st.builds(lambda labels: pb.WorkerMessage(register=pb.Register(protocol_version=3, labels=labels)), pairs),
)


@given(messages, st.booleans())
@settings(deadline=None)
def test_what_is_refused_would_have_been_refused_after_the_parse(message: Any, everything: bool) -> None:
    kind, data = type(message), message.SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        if everything:  # nothing is left out for being small
            for free in ("MAX_UNCOUNTED", "MAX_UNCOUNTED_TASK", "MAX_UNCOUNTED_MEMBER"):
                patch.setattr(protobuf_counts, free, 0)
        found = check_counts(kind, data, SMALL)
        patch.setattr(protobuf_counts, "MAX_UNCOUNTED", 1 << 30)
        plain = decode(kind.DESCRIPTOR.name, data, SMALL)
    if found is not None:
        assert isinstance(plain, Rejection), found
        assert found.code is Code.INVALID


# --- what is damaged

pieces = st.sampled_from(
    [
        b"\x0a",
        b"\x00",
        b"\x82\x01",
        b"\x80",
        b"\xff",
        b"\x0b",
        b"\x0c",
        b"\x0f",
        b"\x7f",
        b"\x12\x01\x01",
        b"\x0a\x80\x10",
    ]
)
rubbish = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=30).map(b"".join))


@given(st.sampled_from(list(TABLES)), rubbish, rubbish)
def test_nothing_is_raised_and_the_parser_has_the_last_word(kind: Any, head: bytes, tail: bytes) -> None:
    for data in (head, head + b"\x0a" + varint(5_000) + b"x" * 5_000 + tail, head + b"\x80" * 5_000, head * 200):
        found = check_counts(kind, data, LIMITS)
        assert found is None or found.code is Code.INVALID
        result = parse(kind, data, LIMITS)
        assert not isinstance(result, Rejection) or result.code is Code.INVALID


@pytest.mark.parametrize("tail", [b"\x0a", b"\x0a\xff", b"\x0f", b"\x0c", b"\x80" * 11, b"\x0a\x7f", b"\x0d"])
def test_damage_is_called_damage(tail: bytes) -> None:
    refusal = decode("SubmitBatchRequest", within(1, within(1, b"x" * 5_000)) + tail)
    assert refusal.message.startswith("the message is not a valid cronoq.v1.SubmitBatchRequest")


# --- memory


@pytest.mark.parametrize("fault", [MemoryError(), DecodeError("Error parsing message: Arena alloc failed")])
def test_our_own_lack_of_memory_is_not_the_callers_fault(fault: Exception) -> None:
    class Kind:
        @staticmethod
        def FromString(data: bytes) -> None:
            raise fault

    refusal = parse(Kind, b"", LIMITS)  # type: ignore[type-var]
    assert refusal == Rejection(Code.OVERLOADED, "the server lacks the memory to read the message; try again later")


def test_a_name_is_looked_for_where_it_may_be() -> None:
    assert clean_name("\x01" * (MAX_SEARCHED_NAME - 1) + "worker", 64) == "w"
    assert clean_name("\x01" * (1 << 20) + "worker", 64) == ""
