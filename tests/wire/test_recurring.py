"""Recurring schedules over the wire: what each field becomes, every way in which it can be wrong, and the replies."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service import messages_recurring as words
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import MissPolicy, Overlap, RecurringSpec, RetryOverride, Scheduling, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_codec import ROUTES, decode_submit

LIMITS = LimitSettings(max_key_len=30, max_tags=2, max_tag_len=8, max_kind_len=16)
EMPTY = TaskSpec(b"", "", "default", "default", 2, "", None, None, (), 0)
"""What a missing template becomes, apart from its size."""


def route(method: str) -> Any:
    return ROUTES[f"/cronoq.v1.Admin/{method}".encode()]


def decode(method: str, message: Any, limits: LimitSettings = LIMITS) -> Any:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return route(method).decode(data, limits)


def add(limits: LimitSettings = LIMITS, **fields: Any) -> Any:
    """The schedule, or the rejection, that an AddRecurring with these fields becomes."""
    fields = {"name": "n", "cron": "* * * * *", **fields}
    found = decode("AddRecurring", pb.RecurringRequest(**fields), limits)
    return found.spec if isinstance(found, words.AddRecurring) else found


def template(limits: LimitSettings = LIMITS, **fields: Any) -> Any:
    """The template, or the rejection, of one with these fields."""
    found = add(limits, template=pb.TaskSpec(**fields))
    return found.template if isinstance(found, RecurringSpec) else found


# --- what is fine


def test_a_request_with_nothing_but_a_name_and_times() -> None:
    found = add()
    assert replace(found, template=EMPTY) == RecurringSpec("n", "* * * * *", "", EMPTY, Overlap.SKIP)
    assert replace(found.template, size=0) == EMPTY
    assert add(template=pb.TaskSpec()).template.scheduling is None


def test_each_field_of_a_request_arrives() -> None:
    found = add(name="ü", cron="0 30 2 * * MON", tz="Europe/Helsinki", overlap=3, template=pb.TaskSpec(pool="p"))
    assert found.name == "ü" and found.cron == "0 30 2 * * MON" and found.tz == "Europe/Helsinki"
    assert found.overlap == Overlap.QUEUE and found.template.pool == "p"
    assert (found.gap, found.fold, found.configured) == ("shift", "first", False), "the contract has no words for them"


def test_every_field_of_a_request_is_read() -> None:
    names = {field.name for field in pb.RecurringRequest.DESCRIPTOR.fields}
    assert names == {"name", "cron", "tz", "template", "overlap"}


@pytest.mark.parametrize(("number", "expected"), [(0, Overlap.SKIP), *((int(one), one) for one in Overlap)])
def test_overlaps(number: int, expected: Overlap) -> None:
    assert add(overlap=number).overlap == expected


def test_lengths_up_to_their_limits() -> None:
    found = add(name="x" * 256, cron="x" * 256, tz="x" * 64)
    assert isinstance(found, RecurringSpec), "what a cron expression means is not asked here"


def test_a_template_is_a_task_like_any_other() -> None:
    """All that a Submit may ask for without a time of its own means the same here."""
    task = pb.TaskSpec(
        payload=b"p",
        content_type="t",
        kind="k",
        pool="p",
        priority=pb.PRIORITY_LOW,
        deadline_in_s=2,
        duration_hint_s=3,
        timeout_s=4,
        retry=pb.RetryPolicy(max_attempts=5, jitter=True),
        resources={"gpu": 1},
        tags={"a": "b"},
        labels={"c": "d"},
        tenant="e",
    )
    submitted: Any = decode_submit(pb.SubmitRequest(task=task).SerializeToString(), LIMITS)
    found = add(template=task).template
    assert replace(found, size=0) == replace(submitted.spec, size=0)
    assert found.retry == RetryOverride(5, None, None, None, True) and found.size >= task.ByteSize()


TIMED: list[tuple[dict[str, Any], Scheduling | None]] = [
    ({"deadline_in_s": 1.5}, Scheduling(deadline_in=3 * SECOND // 2)),
    ({"tolerance_s": 0.0}, Scheduling(tolerance=0)),
    ({"tolerance_s": 2.5}, Scheduling(tolerance=5 * SECOND // 2)),
    ({"tolerance_s": 1.0}, None),
    ({"on_miss": 0}, None),
    ({"on_miss": 1}, None),
    ({"on_miss": 2}, Scheduling(on_miss=MissPolicy.SKIP)),
    ({"on_miss": 3}, Scheduling(on_miss=MissPolicy.FAIL)),
    (
        {"on_miss": 3, "tolerance_s": 0.0, "tenant": "t", "deadline_in_s": 0},
        Scheduling(on_miss=MissPolicy.FAIL, tolerance=0, tenant="t", deadline_in=0),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), TIMED, ids=lambda value: str(value)[:60])
def test_tolerance_and_miss_policy_count_without_a_start(fields: dict[str, Any], expected: Scheduling | None) -> None:
    assert template(**fields).scheduling == expected


def test_the_key_of_a_template_leaves_room_for_the_time() -> None:
    assert template(key="x" * 9).key == "x" * 9
    occurrence = "x" * 9 + "@2027-03-14T07:00:00Z"
    assert len(occurrence) == LIMITS.max_key_len
    reference: Any = decode_submit(
        pb.SubmitRequest(task=pb.TaskSpec(deps=[pb.Dep(target=pb.TaskRef(key=occurrence))])).SerializeToString(), LIMITS
    )
    assert reference.spec.scheduling.dependencies[0].ref == occurrence, "and can be depended on"


# --- what is not

BAD_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: must be set"),
    ({"name": "x" * 257}, "name: 257 bytes, at most 256 are allowed"),
    ({"name": "ü" * 129}, "name: 258 bytes, at most 256 are allowed"),
    ({"name": "a\0"}, "name: contains a NUL character"),
    ({"cron": "*" * 257}, "cron: 257 bytes, at most 256 are allowed"),
    ({"cron": "* * * * *\0"}, "cron: contains a NUL character"),
    ({"tz": "x" * 65}, "tz: 65 bytes, at most 64 are allowed"),
    ({"tz": "UTC\0"}, "tz: contains a NUL character"),
    ({"overlap": 5}, "overlap: 5 is not a number of the enumeration Overlap"),
    ({"overlap": -1}, "overlap: -1 is not a number of the enumeration Overlap"),
]


@pytest.mark.parametrize(("fields", "message"), BAD_REQUESTS, ids=[message for _, message in BAD_REQUESTS])
def test_what_is_wrong_with_a_request(fields: dict[str, Any], message: str) -> None:
    assert add(**fields) == Rejection(Code.INVALID, message)


NO_TIME = "a template has no time of its own, each occurrence starts when `cron` says"
NO_DEPS = "deps: a template has no dependencies; `overlap` says whether a run waits for the one before"
SUFFIX = "(limits.max_key_len less 21 for the time of the occurrence)"
CENTURY = "a number of seconds from 0 to 3153600000"
BAD_TEMPLATES: list[tuple[dict[str, Any], str]] = [
    ({"deadline_unix_ns": 0}, f"deadline_unix_ns: {NO_TIME}"),
    ({"deadline_unix_ns": -1}, f"deadline_unix_ns: {NO_TIME}"),
    ({"start_in_s": 0.0}, f"start_in_s: {NO_TIME}"),
    ({"start_unix_ns": 5}, f"start_unix_ns: {NO_TIME}"),
    ({"deps": [pb.Dep(target=pb.TaskRef(id=1))]}, NO_DEPS),
    ({"deps": [pb.Dep()]}, NO_DEPS),
    ({"key": "x" * 10}, f"key: 10 bytes, at most 9 are allowed {SUFFIX}"),
    ({"key": "üüüüü"}, f"key: 10 bytes, at most 9 are allowed {SUFFIX}"),
    ({"key": "a\0"}, "key: contains a NUL character"),
    ({"tolerance_s": -1.0}, f"tolerance_s: -1.0 is not {CENTURY}"),
    ({"tolerance_s": math.nan}, f"tolerance_s: nan is not {CENTURY}"),
    ({"on_miss": 4}, "on_miss: 4 is not a number of the enumeration MissPolicy"),
    ({"deadline_in_s": -1.0}, f"deadline_in_s: -1.0 is not {CENTURY}"),
    ({"pool": "x" * 65}, "pool: 65 bytes, at most 64 are allowed"),
    ({"priority": 5}, "priority: 5 is not a number of the enumeration Priority"),
    ({"tags": {"cronoq.recurring": "x"}}, "tags: names that begin with 'cronoq.' are reserved"),
    ({"resources": {"gpu": 0}}, "resources['gpu']: found 0 units; allowed is at least 1"),
    ({"retry": pb.RetryPolicy(multiplier=-1)}, "retry.multiplier: -1.0 is not a number from 0 to 1000"),
]


@pytest.mark.parametrize(("fields", "message"), BAD_TEMPLATES, ids=[message for _, message in BAD_TEMPLATES])
def test_what_is_wrong_with_a_template_is_named_in_it(fields: dict[str, Any], message: str) -> None:
    assert template(**fields) == Rejection(Code.INVALID, f"template.{message}")


def test_a_key_that_looks_like_an_occurrences_is_no_prefix() -> None:
    found = template(replace(LIMITS, max_key_len=100), key="a@2027-03-14T07:00:00Z")
    assert found.message.startswith("template.key: keys that end in @YYYY-MM-DDTHH:MM:SSZ are reserved")


@pytest.mark.parametrize("longest", [1, 20, 21])
def test_where_keys_are_short_a_template_has_none(longest: int) -> None:
    limits = replace(LIMITS, max_key_len=longest)
    assert template(limits, key="a") == Rejection(
        Code.INVALID, f"template.key: 1 bytes, at most 0 are allowed {SUFFIX}"
    )
    assert template(limits).key == ""


def test_a_template_that_no_lease_could_carry() -> None:
    limits = replace(LIMITS, max_message_bytes=4_096)
    most = limits.max_message_bytes - MESSAGE_HEADROOM
    fits = pb.TaskSpec(payload=b"x" * (most - 3))
    assert fits.ByteSize() == most and isinstance(add(limits, template=fits), RecurringSpec)
    found = template(limits, payload=b"x" * (most - 2))
    assert found.code is Code.TOO_LARGE and found.message.startswith(f"template: message of {most + 1} bytes")


@pytest.mark.parametrize("method", ["AddRecurring", "RemoveRecurring", "ListRecurring"])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05a", b"\x0b"])
def test_bytes_that_are_no_message(method: str, data: bytes) -> None:
    found = decode(method, data)
    assert found.code is Code.INVALID and "is not a valid cronoq.v1." in found.message


# --- any of them

texts = st.text(max_size=12) | st.sampled_from(["default", "a\0", "UTC", "x" * 300, "a@2027-03-14T07:00:00Z"])
numbers = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-1, 5)
templates: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "payload": st.binary(max_size=8),
        "content_type": texts,
        "kind": texts,
        "pool": texts,
        "key": texts,
        "tenant": texts,
        "priority": numbers,
        "on_miss": numbers,
        "deadline_in_s": st.floats(),
        "deadline_unix_ns": st.integers(-(1 << 63), (1 << 63) - 1),
        "start_in_s": st.floats(),
        "start_unix_ns": st.integers(-(1 << 63), (1 << 63) - 1),
        "tolerance_s": st.floats(),
        "duration_hint_s": st.floats(),
        "timeout_s": st.floats(),
        "retry": st.builds(pb.RetryPolicy, max_attempts=st.integers(0, (1 << 32) - 1), multiplier=st.floats()),
        "deps": st.lists(st.builds(pb.Dep, cond=numbers), max_size=2),
        "resources": st.dictionaries(texts, st.integers(0, (1 << 32) - 1), max_size=2),
        "tags": st.dictionaries(texts, texts, max_size=3),
        "labels": st.dictionaries(texts, texts, max_size=3),
    },
)
requests: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "cron": texts,
        "tz": texts,
        "overlap": numbers,
        "template": templates.map(lambda fields: pb.TaskSpec(**fields)),
    },
)


@given(requests)
@example({"name": "n", "template": pb.TaskSpec(on_miss=2, tolerance_s=1e9)})
def test_any_request_is_a_schedule_or_is_told_what_is_wrong(fields: dict[str, Any]) -> None:
    found = add(**fields)
    if isinstance(found, Rejection):
        field = found.message.partition(":")[0]
        assert found.code is Code.INVALID and found.message and field
        assert field.partition(".")[0] in {"name", "cron", "tz", "overlap", "template"}
        return
    assert isinstance(found, RecurringSpec) and found.name and found.overlap in list(Overlap)
    asked = found.template.scheduling or Scheduling()
    assert (asked.deadline, asked.start, asked.start_in, asked.dependencies) == (None, None, None, ())
    assert asked.tolerance >= 0 and asked.on_miss in list(MissPolicy)
    assert len(found.template.key.encode()) + 21 <= LIMITS.max_key_len or not found.template.key


@given(st.sampled_from(["AddRecurring", "RemoveRecurring", "ListRecurring"]), st.binary(max_size=80))
def test_no_bytes_make_decoding_fail(method: str, data: bytes) -> None:
    found = decode(method, data)
    assert not isinstance(found, Rejection) or found.message


# --- the other requests


def test_a_removal() -> None:
    assert decode("RemoveRecurring", pb.RemoveRecurringRequest(name="n")) == words.RemoveRecurring("n")


@pytest.mark.parametrize(("name", "text"), [("", "name: must be set"), ("x" * 257, "name: 257 bytes, at most 256")])
def test_a_removal_of_what_no_schedule_is_called(name: str, text: str) -> None:
    found = decode("RemoveRecurring", pb.RemoveRecurringRequest(name=name))
    assert found.code is Code.INVALID and found.message.startswith(text)


def test_a_listing_asks_for_nothing() -> None:
    assert decode("ListRecurring", b"") == decode("ListRecurring", b"\x08\x01") == words.ListRecurring()


# --- replies


def test_an_addition_and_a_removal_are_answered() -> None:
    assert route("AddRecurring").encode(words.RecurringAddedReply()) == b""
    for removed in (True, False):
        data = route("RemoveRecurring").encode(words.RecurringRemovedReply(removed))
        assert pb.RemoveRecurringResponse.FromString(data).removed is removed


def test_a_list() -> None:
    made = RecurringSpec(
        "a", "0 2 * * *", "Europe/Paris", replace(EMPTY, pool="p", kind="k"), Overlap.QUEUE_ON_SUCCESS.value
    )
    fresh = RecurringSpec("b", "* * * * *", "", EMPTY)
    views = (RecurringView(made, 1_900_000_000 * SECOND, (5 << 48) + 7), RecurringView(fresh, None, 0))
    found = pb.ListRecurringResponse.FromString(route("ListRecurring").encode(words.RecurringListReply(views)))
    assert list(found.schedules) == [
        pb.RecurringInfo(
            name="a",
            cron="0 2 * * *",
            tz="Europe/Paris",
            pool="p",
            kind="k",
            overlap=pb.OVERLAP_QUEUE_ON_SUCCESS,
            next_unix_ns=1_900_000_000 * SECOND,
            last_task_id=(5 << 48) + 7,
        ),
        pb.RecurringInfo(name="b", cron="* * * * *", pool="default", kind="default", overlap=pb.OVERLAP_SKIP),
    ]
    assert not found.schedules[1].HasField("next_unix_ns") and not found.schedules[1].HasField("last_task_id")
    assert list(found.unavailable_shards) == []


def test_an_empty_list() -> None:
    assert route("ListRecurring").encode(words.RecurringListReply(())) == b""
