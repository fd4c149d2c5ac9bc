"""What a caller writes and the `TaskSpec` that comes of it; what is refused before anything is sent."""

import enum
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cronoq
from cronoq._client.payloads import encode_payload
from cronoq._client.specs import unix_ns
from cronoq.client import Dep, RetryPolicy, task
from cronoq_sansio.wire import pb

PAYLOADS: dict[str, tuple[Any, bytes, str]] = {
    "nothing": (None, b"", ""),
    "bytes": (b"\0\xff", b"\0\xff", "application/octet-stream"),
    "bytearray": (bytearray(b"a"), b"a", "application/octet-stream"),
    "memoryview": (memoryview(b"abc")[1:], b"bc", "application/octet-stream"),
    "text": ("ä", "ä".encode(), "text/plain; charset=utf-8"),
    "a dict": ({"ä": [1, None, True]}, b'{"\\u00e4": [1, null, true]}', "application/json"),
    "zero": (0, b"0", "application/json"),
    "false": (False, b"false", "application/json"),
}


@pytest.mark.parametrize(("payload", "data", "content_type"), PAYLOADS.values(), ids=PAYLOADS)
def test_payloads(payload: Any, data: bytes, content_type: str) -> None:
    assert encode_payload(payload) == (data, content_type)
    assert (task(payload).payload, task(payload).content_type) == (data, content_type)
    assert task(payload, content_type="text/x").content_type == "text/x"


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def loop() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({1, 2}, TypeError),
        (object(), TypeError),
        ({"a": b"b"}, TypeError),
        ({(1, 2): 3}, TypeError),
        (float("nan"), ValueError),
        ([float("inf")], ValueError),
        (loop(), ValueError),
        (deep(), ValueError),
    ],
    ids=["set", "object", "bytes within", "tuple as name", "NaN", "infinity", "cycle", "too deep"],
)
def test_what_cannot_be_a_payload(payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="cannot be written as JSON"):
        task(payload)


def test_nothing_given_is_nothing_sent_but_the_priority() -> None:
    assert task() == pb.TaskSpec(priority=pb.PRIORITY_NORMAL)


def test_all_options() -> None:
    spec = task(
        b"x",
        pool="p",
        kind="k",
        key="key",
        tenant="t",
        priority=cronoq.Priority.CRITICAL,
        deadline_in=5,
        start_at=1_700_000_000.5,
        tolerance=0.5,
        duration_hint=2,
        timeout=3,
        on_miss="Skip",
        retry={"max_attempts": 5, "initial_backoff": 0.5},
        after=[7, "a"],
        deps=[("b", "failure")],
        resources={"gpu": 2},
        tags={"n": 1},
        labels={"zone": "a"},
    )
    assert (spec.pool, spec.kind, spec.key, spec.tenant, spec.priority) == ("p", "k", "key", "t", 1)
    assert spec.start_unix_ns == 1_700_000_000_500_000_000 and not spec.HasField("start_in_s")
    assert (spec.deadline_in_s, spec.tolerance_s, spec.duration_hint_s, spec.timeout_s) == (5, 0.5, 2, 3)
    assert spec.on_miss == pb.MISS_POLICY_SKIP
    assert spec.retry == pb.RetryPolicy(max_attempts=5, initial_backoff_s=0.5, jitter=True)
    assert [dep.target.WhichOneof("target") for dep in spec.deps] == ["id", "key", "key"]
    assert [dep.cond for dep in spec.deps] == [pb.EDGE_COND_ON_SUCCESS] * 2 + [pb.EDGE_COND_ON_FAILURE]
    assert dict(spec.resources) == {"gpu": 2} and dict(spec.tags) == {"n": "1"} and dict(spec.labels) == {"zone": "a"}


class Level(enum.IntEnum):
    LOW = 3


PRIORITIES = [("critical", 1), ("HIGH", 2), (None, 3), (0, 1), (3, 4), (Level.LOW, 4), (cronoq.Priority.HIGH, 2)]


@pytest.mark.parametrize(("given_", "number"), PRIORITIES)
def test_priorities(given_: Any, number: int) -> None:
    assert task(priority=given_).priority == number


def test_conditions_with_and_without_on_and_as_mappings() -> None:
    spec = task(deps=[("a", "on_complete"), [1, "SUCCESS"], {"ref": "b"}, {"ref": "c", "cond": "failure"}])
    assert [dep.cond for dep in spec.deps] == [2, 1, 1, 3]
    assert [dep.cond for dep in task(deps=["a", 7, Dep("b"), Dep(8, "on_failure"), Dep(9, on="Complete")]).deps] == [
        *(1, 1, 1, 3, 2)
    ]
    assert task(after="a").deps == task(after=["a"]).deps and task(after=7).deps[0].target.id == 7
    assert [dep.target.id for dep in task(after=(number for number in (1, 2))).deps] == [1, 2]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an unknown option": ({"colour": 1}, TypeError, "colour"),
    "a pool that is no text": ({"pool": 1}, TypeError, "pool: a str"),
    "a key that is bytes": ({"key": b"k"}, TypeError, "key: a str"),
    "a content type that is no text": ({"content_type": 1}, TypeError, "content_type"),
    "an unknown priority": ({"priority": "urgent"}, ValueError, "not one of critical, high, normal, low"),
    "a priority out of range": ({"priority": 4}, ValueError, "priority: 4"),
    "a negative priority": ({"priority": -1}, ValueError, "priority: -1"),
    "a priority that is a bool": ({"priority": True}, TypeError, "priority: .* not bool"),
    "a priority that is a float": ({"priority": 1.7}, TypeError, "priority: .* not float"),
    "both deadlines": ({"deadline_in": 1, "deadline_at": 1}, ValueError, "deadline_in and deadline_at"),
    "both starts": ({"start_in": 1, "start_at": 1}, ValueError, "start_in and start_at"),
    "a naive time": ({"start_at": datetime(2026, 1, 1)}, ValueError, "no time zone"),
    "a time that is text": ({"start_at": "now"}, TypeError, "start_at"),
    "a time that is a bool": ({"start_at": True}, TypeError, "start_at"),
    "a time that is no number": ({"deadline_at": float("nan")}, ValueError, "deadline_at: nan"),
    "a time too far": ({"deadline_at": 10**11}, ValueError, "outside of what can be sent"),
    "a duration that is text": ({"timeout": "3"}, TypeError, "timeout: a number"),
    "a duration that is a bool": ({"start_in": True}, TypeError, "start_in: a number"),
    "a duration too large": ({"timeout": 10**400}, ValueError, "timeout: .* too large"),
    "an unknown miss": ({"on_miss": "later"}, ValueError, "not one of run_late, skip, fail"),
    "a miss that is unspecified": ({"on_miss": "unspecified"}, ValueError, "on_miss"),
    "retry with a misspelt key": ({"retry": {"attempts": 3}}, ValueError, "attempts unknown; there are max_attempts"),
    "retry with a zero backoff": ({"retry": {"initial_backoff": 0}}, ValueError, "initial_backoff: 0 cannot be sent"),
    "retry with no attempts": ({"retry": {"max_attempts": 0}}, ValueError, "max_attempts: 0 cannot be sent"),
    "retry with half an attempt": ({"retry": {"max_attempts": 1.5}}, TypeError, "max_attempts"),
    "retry with a jitter of 1": ({"retry": {"jitter": 1}}, TypeError, "jitter"),
    "retry that is a number": ({"retry": 3}, TypeError, "RetryPolicy or a mapping"),
    "after a dict": ({"after": {"a": 1}}, TypeError, "after"),
    "after bytes": ({"after": b"ab"}, TypeError, "after"),
    "after a float": ({"after": 1.5}, TypeError, "after"),
    "after a bool": ({"after": True}, TypeError, "bool"),
    "after a list with a dict": ({"after": [{}]}, TypeError, "dict"),
    "after a negative id": ({"after": -1}, ValueError, "-1 is not an id"),
    "dependencies that are a text": ({"deps": "ab"}, TypeError, "deps: a list is needed, not str"),
    "dependencies that are a mapping": ({"deps": {"ref": 1}}, TypeError, "deps: a list"),
    "dependencies that are None": ({"deps": None}, TypeError, "deps: a list"),
    "a dependency that is a float": ({"deps": ["a", 1.5]}, TypeError, r"deps\[1\]: a key, an id, a Dep, a pair"),
    "a dependency of three": ({"deps": [(1, "success", 2)]}, TypeError, r"deps\[0\]: "),
    "a dependency on a bool": ({"deps": [Dep(True)]}, TypeError, r"deps\[0\]: .* not by bool"),
    "a dependency on an id too high": ({"deps": [1, (2**64, "failure")]}, ValueError, r"deps\[1\]: .* is not an id"),
    "a Dep with an unknown condition": ({"deps": [Dep("a", "end")]}, ValueError, r"deps\[0\]: .* 'end' is not one of"),
    "a dependency without ref": ({"deps": [{"cond": "success"}]}, ValueError, "deps"),
    "a dependency with more": ({"deps": [{"ref": 1, "when": 2}]}, ValueError, "deps"),
    "an unknown condition": ({"deps": [(1, "maybe")]}, ValueError, "'maybe' is not one of success, complete, failure$"),
    "an unspecified condition": ({"deps": [(1, "unspecified")]}, ValueError, "not one of success"),
    "a condition that is none": ({"deps": [(1, None)]}, TypeError, "the condition is a str, not NoneType"),
    "a naive deadline": ({"deadline_at": datetime(2026, 1, 1)}, ValueError, "deadline_at: .* no time zone"),
    "a deadline that is text": ({"deadline_in": "5"}, TypeError, "deadline_in: a number"),
    "a hint that is text": ({"duration_hint": "5"}, TypeError, "duration_hint: a number"),
    "a tenant that is a number": ({"tenant": 5}, TypeError, "tenant: a str"),
    "half a character": ({"tenant": "\ud800"}, ValueError, "tenant: .* not valid Unicode"),
    "half a character in a label": ({"labels": {"a": "\ud800"}}, ValueError, r"labels\['a'\]: .* Unicode"),
    "half a character in a key": ({"after": ["a", "\ud800"]}, ValueError, r"after\[1\]: the key: .* Unicode"),
    "negative units": ({"resources": {"gpu": -1}}, ValueError, r"resources\['gpu'\]"),
    "resources that are a list": ({"resources": ["gpu"]}, TypeError, "resources: a mapping"),
    "labels that are a text": ({"labels": "gpu"}, TypeError, "labels: a mapping"),
    "half a unit": ({"resources": {"gpu": 0.5}}, TypeError, r"resources\['gpu'\]"),
    "too many units": ({"resources": {"gpu": 2**32}}, ValueError, r"resources\['gpu'\]"),
    "a tag without a name": ({"tags": {1: "a"}}, TypeError, "tags"),
}


@pytest.mark.parametrize(("options", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        task(**options)


# --- times


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_datetimes_are_exact_to_the_microsecond(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
    assert epoch + timedelta(microseconds=unix_ns("at", zoned) // 1_000) == zoned
    assert unix_ns("at", zoned) % 1_000 == 0


@given(st.integers(0, 9 * 10**9))
def test_whole_seconds_are_exact_as_int_and_as_float(seconds: int) -> None:
    assert unix_ns("at", seconds) == unix_ns("at", float(seconds)) == seconds * 10**9


@pytest.mark.parametrize(
    ("when", "nanoseconds"),
    [(0.1, 100_000_000), (1e-9, 1), (1_700_000_000.25, 1_700_000_000_250_000_000), (-1.5, -1_500_000_000)],
)
def test_fractions_of_a_second(when: float, nanoseconds: int) -> None:
    assert unix_ns("at", when) == nanoseconds


# --- retry


def test_a_policy_object_is_read_and_anything_that_looks_like_one() -> None:
    own = task(retry=RetryPolicy(max_attempts=2, initial_backoff=0.5, multiplier=3, max_backoff=9, jitter=False)).retry
    assert own == pb.RetryPolicy(max_attempts=2, initial_backoff_s=0.5, multiplier=3, max_backoff_s=9, jitter=False)
    assert task(retry=SimpleNamespace(max_attempts=4)).retry == pb.RetryPolicy(max_attempts=4, jitter=True)
    assert task(retry={}).retry == pb.RetryPolicy(jitter=True) and task(retry={}).HasField("retry")
    assert task(retry={"max_attempts": None, "jitter": False}).retry == pb.RetryPolicy()
    assert not task().HasField("retry")
    assert cronoq.RetryPolicy is RetryPolicy and RetryPolicy.none().max_attempts == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_attempts": 0}, ValueError),
        ({"max_attempts": True}, TypeError),
        ({"max_attempts": 1.0}, TypeError),
        ({"initial_backoff": -1}, ValueError),
        ({"max_backoff": float("inf")}, ValueError),
        ({"multiplier": 0.5}, ValueError),
        ({"multiplier": "2"}, TypeError),
    ],
)
def test_policies_that_make_no_sense(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RetryPolicy(**options)


# --- what is built says what was asked

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
REFS = st.integers(0, 2**64 - 1) | NAMES
CONDITIONS = st.sampled_from(["success", "complete", "failure"])
SPELLINGS = [lambda word: word, str.upper, lambda word: f"on_{word}", lambda word: f"ON_{word.upper()}"]


@st.composite
def dependencies(draw: st.DrawFn) -> tuple[Any, tuple[int | str, str]]:
    """(one entry of `deps` in any of its forms, the reference and the condition that it means)."""
    reference, condition = draw(REFS), draw(CONDITIONS)
    spelt = draw(st.sampled_from(SPELLINGS))(condition)
    forms: list[Any] = [
        (reference, spelt),
        [reference, spelt],
        Dep(reference, spelt),
        {"ref": reference, "cond": spelt},
    ]
    if condition == "success":
        forms += [reference, Dep(reference), {"ref": reference}]
    return draw(st.sampled_from(forms)), (reference, condition)


def asked(spec: pb.TaskSpec) -> list[tuple[int | str, str]]:
    return [
        (
            dep.target.id if dep.target.WhichOneof("target") == "id" else dep.target.key,
            pb.EdgeCond.Name(dep.cond).removeprefix("EDGE_COND_ON_").lower(),
        )
        for dep in spec.deps
    ]


@given(st.lists(REFS, max_size=4), st.lists(dependencies(), max_size=4))
def test_dependencies_are_sent_as_asked_and_in_order(
    after: list[int | str], deps: list[tuple[Any, tuple[int | str, str]]]
) -> None:
    sent = pb.TaskSpec.FromString(task(after=after, deps=[form for form, _ in deps]).SerializeToString())
    assert asked(sent) == [(reference, "success") for reference in after] + [meaning for _, meaning in deps]


@given(
    deadline=st.none() | st.tuples(st.just("in"), st.floats(0, 1e9)) | st.tuples(st.just("at"), st.integers(0, 2**32)),
    hint=st.none() | st.floats(0, 1e9),
    resources=st.dictionaries(NAMES, st.integers(0, 2**32 - 1), max_size=3),
    labels=st.dictionaries(NAMES, NAMES | st.integers() | st.booleans(), max_size=3),
    tenant=st.none() | NAMES,
)
def test_what_is_asked_of_the_scheduler_is_sent(
    deadline: tuple[str, float] | None,
    hint: float | None,
    resources: dict[str, int],
    labels: dict[str, Any],
    tenant: str | None,
) -> None:
    options: dict[str, Any] = {} if deadline is None else {f"deadline_{deadline[0]}": deadline[1]}
    spec = task(duration_hint=hint, resources=resources, labels=labels, tenant=tenant, **options)
    sent = pb.TaskSpec.FromString(spec.SerializeToString())
    expected = pb.TaskSpec(
        priority=pb.PRIORITY_NORMAL,
        deadline_in_s=deadline[1] if deadline is not None and deadline[0] == "in" else None,
        deadline_unix_ns=int(deadline[1]) * 10**9 if deadline is not None and deadline[0] == "at" else None,
        duration_hint_s=hint,
        resources=resources,
        labels={name: str(value) for name, value in labels.items()},
        tenant=tenant or "",
    )
    assert sent == expected
