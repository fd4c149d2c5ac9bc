"""What a task asks of the scheduler, over the wire: what each field becomes, and every way in which it can be wrong."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_BATCH_EDGES
from cronoq_sansio.service.messages import Submit, SubmitBatch
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import Condition, Dependency, MissPolicy, Scheduling
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_codec import decode_batch, decode_submit

LIMITS = LimitSettings(max_key_len=8, max_tags=2, max_tag_len=4, max_deps=4, max_resources=2, max_tasks_per_batch=4)
CENTURY = "a number of seconds from 0 to 3153600000"


def submit(limits: LimitSettings = LIMITS, **fields: Any) -> Any:
    """The specification, or the rejection, that a Submit with these fields becomes."""
    request = pb.SubmitRequest(task=pb.TaskSpec(**fields))
    found = decode_submit(request.SerializeToString(), limits)
    return found.spec if isinstance(found, Submit) else found


def scheduling(**fields: Any) -> Any:
    return submit(**fields).scheduling


def dep(target: int | str | None, cond: int = 0) -> pb.Dep:
    """An edge as a caller writes it; None = without a target."""
    if target is None:
        return pb.Dep(cond=cond)  # type: ignore[arg-type]
    ref = pb.TaskRef(id=target) if isinstance(target, int) else pb.TaskRef(key=target)
    return pb.Dep(target=ref, cond=cond)  # type: ignore[arg-type]


# --- what is fine


def test_a_task_that_asks_for_nothing_has_no_scheduling() -> None:
    assert submit().scheduling is None
    assert submit(tenant="", deps=[], labels={}, resources={}, timeout_s=1, tags={"a": "b"}).scheduling is None


@pytest.mark.parametrize("policy", [0, 1, 2, 3])
def test_a_miss_policy_without_a_start_asks_for_nothing(policy: int) -> None:
    assert submit(on_miss=policy).scheduling is None
    assert scheduling(on_miss=policy, tenant="t") == Scheduling(tenant="t")


FINE: list[tuple[dict[str, Any], Scheduling]] = [
    ({"deadline_in_s": 1.5}, Scheduling(deadline_in=3 * SECOND // 2)),
    ({"deadline_in_s": 0.0}, Scheduling(deadline_in=0)),
    ({"deadline_in_s": 3_153_600_000.0}, Scheduling(deadline_in=MAX_CLIENT_DURATION)),
    ({"deadline_unix_ns": 0}, Scheduling(deadline=0)),
    ({"deadline_unix_ns": 1}, Scheduling(deadline=1)),
    ({"deadline_unix_ns": (1 << 63) - 1}, Scheduling(deadline=(1 << 63) - 1)),
    ({"duration_hint_s": 0.0}, Scheduling(duration_hint=0)),
    ({"duration_hint_s": 0.25}, Scheduling(duration_hint=SECOND // 4)),
    ({"resources": {"gpu": 2, "db": (1 << 32) - 1}}, Scheduling(resources=(("db", (1 << 32) - 1), ("gpu", 2)))),
    ({"resources": {"x" * 64: 1}}, Scheduling(resources=(("x" * 64, 1),))),
    ({"labels": {"os": "x", "arch": ""}}, Scheduling(labels=(("arch", ""), ("os", "x")))),
    ({"tenant": "x" * 8}, Scheduling(tenant="x" * 8)),
    ({"start_in_s": 0.0}, Scheduling(start_in=0, tolerance=SECOND, on_miss=MissPolicy.RUN_LATE)),
    ({"start_in_s": 3_153_600_000.0}, Scheduling(start_in=MAX_CLIENT_DURATION)),
    ({"start_unix_ns": 0}, Scheduling(start=0)),
    ({"start_unix_ns": (1 << 63) - 1}, Scheduling(start=(1 << 63) - 1)),
    ({"start_in_s": 1.5, "tolerance_s": 0.0}, Scheduling(start_in=3 * SECOND // 2, tolerance=0)),
    ({"start_unix_ns": 7, "tolerance_s": 0.25}, Scheduling(start=7, tolerance=SECOND // 4)),
    ({"start_unix_ns": 7, "tolerance_s": 3_153_600_000.0}, Scheduling(start=7, tolerance=MAX_CLIENT_DURATION)),
    ({"start_unix_ns": 7, "on_miss": 0}, Scheduling(start=7, on_miss=MissPolicy.RUN_LATE)),
    ({"start_unix_ns": 7, "on_miss": 2}, Scheduling(start=7, on_miss=MissPolicy.SKIP)),
    ({"start_in_s": 7, "on_miss": 3}, Scheduling(start_in=7 * SECOND, on_miss=MissPolicy.FAIL)),
    ({"deps": [dep(7)]}, Scheduling(dependencies=(Dependency(7, Condition.ON_SUCCESS),))),
    ({"deps": [dep((1 << 64) - 1, 2)]}, Scheduling(dependencies=(Dependency((1 << 64) - 1, 2),))),
    (
        {"deps": [dep("b", 3), dep("a", 1), dep(1, 2), dep("b", 3)]},
        Scheduling(dependencies=(Dependency("b", 3), Dependency("a", 1), Dependency(1, 2), Dependency("b", 3))),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), FINE, ids=lambda value: str(value)[:60])
def test_each_field_arrives(fields: dict[str, Any], expected: Scheduling) -> None:
    assert scheduling(**fields) == expected


def test_the_key_of_an_occurrence_may_be_depended_on() -> None:
    key = "nightly@2026-01-02T03:04:05Z"
    found = submit(replace(LIMITS, max_key_len=64), deps=[dep(key)])
    assert found.scheduling.dependencies == (Dependency(key, 1),)


def test_scheduling_counts_in_the_size() -> None:
    fields: dict[str, Any] = {"deps": [dep("a"), dep(5, 3)], "labels": {"a": "b"}, "tenant": "t", "deadline_in_s": 1}
    request = pb.SubmitBatchRequest(tasks=[pb.TaskSpec(**fields)])
    found = decode_batch(request.SerializeToString(), LIMITS)
    assert isinstance(found, SubmitBatch) and found.specs[0].size == pb.TaskSpec(**fields).ByteSize()


# --- what is not


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"deadline_in_s": 1.0, "deadline_unix_ns": 1},
        "deadline_in_s and deadline_unix_ns: both are set, at most one of them is allowed",
    ),
    (
        {"deadline_in_s": 0.0, "deadline_unix_ns": 0},
        "deadline_in_s and deadline_unix_ns: both are set, at most one of them is allowed",
    ),
    ({"deadline_in_s": math.nan}, f"deadline_in_s: nan is not {CENTURY}"),
    ({"deadline_in_s": math.inf}, f"deadline_in_s: inf is not {CENTURY}"),
    ({"deadline_in_s": -math.inf}, f"deadline_in_s: -inf is not {CENTURY}"),
    ({"deadline_in_s": -0.5}, f"deadline_in_s: -0.5 is not {CENTURY}"),
    ({"deadline_in_s": 3_153_600_001.0}, f"deadline_in_s: 3153600001.0 is not {CENTURY}"),
    ({"deadline_unix_ns": -1}, "deadline_unix_ns: found -1; allowed are nanoseconds since 1970, 0 or more"),
    (
        {"deadline_unix_ns": -(1 << 63)},
        "deadline_unix_ns: found -9223372036854775808; allowed are nanoseconds since 1970, 0 or more",
    ),
    (
        {"start_in_s": 1.0, "start_unix_ns": 1},
        "start_in_s and start_unix_ns: both are set, at most one of them is allowed",
    ),
    (
        {"start_in_s": 0.0, "start_unix_ns": 0, "tolerance_s": -1.0},
        "start_in_s and start_unix_ns: both are set, at most one of them is allowed",
    ),
    ({"start_in_s": math.nan}, f"start_in_s: nan is not {CENTURY}"),
    ({"start_in_s": -0.5}, f"start_in_s: -0.5 is not {CENTURY}"),
    ({"start_in_s": math.nextafter(3_153_600_000.0, math.inf)}, f"start_in_s: 3153600000.0000005 is not {CENTURY}"),
    ({"start_unix_ns": -1}, "start_unix_ns: found -1; allowed are nanoseconds since 1970, 0 or more"),
    (
        {"tolerance_s": 0.0},
        "tolerance_s: is set without a fixed start; set start_in_s or start_unix_ns too",
    ),
    (
        {"tolerance_s": 1.0, "on_miss": 2, "deadline_in_s": 1.0},
        "tolerance_s: is set without a fixed start; set start_in_s or start_unix_ns too",
    ),
    ({"start_in_s": 1.0, "tolerance_s": -1.0}, f"tolerance_s: -1.0 is not {CENTURY}"),
    ({"start_unix_ns": 1, "tolerance_s": math.inf}, f"tolerance_s: inf is not {CENTURY}"),
    ({"on_miss": 4}, "on_miss: 4 is not a number of the enumeration MissPolicy"),
    ({"start_in_s": 1.0, "on_miss": -1}, "on_miss: -1 is not a number of the enumeration MissPolicy"),
    ({"on_miss": (1 << 31) - 1}, "on_miss: 2147483647 is not a number of the enumeration MissPolicy"),
    ({"duration_hint_s": math.nan}, f"duration_hint_s: nan is not {CENTURY}"),
    ({"duration_hint_s": math.inf}, f"duration_hint_s: inf is not {CENTURY}"),
    ({"duration_hint_s": -1.0}, f"duration_hint_s: -1.0 is not {CENTURY}"),
    ({"duration_hint_s": 1e300}, f"duration_hint_s: 1e+300 is not {CENTURY}"),
    ({"deps": [dep(None)]}, "deps[0].target: an id or a key must be set"),
    ({"deps": [dep(1), dep(2), dep(3), pb.Dep()]}, "deps[3].target: an id or a key must be set"),
    ({"deps": [pb.Dep(target=pb.TaskRef())]}, "deps[0].target: an id or a key must be set"),
    ({"deps": [dep("")]}, "deps[0].target: an id or a key must be set"),
    ({"deps": [dep(1), dep(0)]}, "deps[1].target.id: found 0; allowed is the id of a task, which is at least 1"),
    ({"deps": [dep("x" * 9)]}, "deps[0].target.key: 9 bytes, at most 8 are allowed"),
    ({"deps": [dep("üüüüa")]}, "deps[0].target.key: 9 bytes, at most 8 are allowed"),
    ({"deps": [dep("a\0")]}, "deps[0].target.key: contains a NUL character"),
    ({"deps": [dep(1), dep("a", 4)]}, "deps[1].cond: 4 is not a number of the enumeration EdgeCond"),
    ({"deps": [dep(1, -1)]}, "deps[0].cond: -1 is not a number of the enumeration EdgeCond"),
    ({"deps": [dep(1, (1 << 31) - 1)]}, "deps[0].cond: 2147483647 is not a number of the enumeration EdgeCond"),
    ({"deps": [dep(1)] * 5}, "deps: 5 entries, at most 4 are allowed (limits.max_deps)"),
    ({"resources": {"gpu": 0}}, "resources['gpu']: found 0 units; allowed is at least 1"),
    ({"resources": {"a": 1, "b": 0}}, "resources['b']: found 0 units; allowed is at least 1"),
    ({"resources": {"": 1}}, "resources: a name is empty"),
    ({"resources": {"x" * 65: 1}}, "resources: a name: 65 bytes, at most 64 are allowed"),
    ({"resources": {"a\0": 1}}, "resources: a name: contains a NUL character"),
    (
        {"resources": {"a": 1, "b": 1, "c": 1}},
        "resources: 3 entries, at most 2 are allowed (limits.max_resources)",
    ),
    ({"labels": {"": "x"}}, "labels: a name is empty"),
    ({"labels": {"abcde": "x"}}, "labels: a name: 5 bytes, at most 4 are allowed"),
    ({"labels": {"gpu": "abcde"}}, "labels['gpu']: 5 bytes, at most 4 are allowed"),
    ({"labels": {"a": "\0"}}, "labels['a']: contains a NUL character"),
    ({"labels": {"a\0": ""}}, "labels: a name: contains a NUL character"),
    ({"labels": {"a": "", "b": "", "c": ""}}, "labels: 3 entries, at most 2 are allowed (limits.max_tags)"),
    ({"tenant": "x" * 9}, "tenant: 9 bytes, at most 8 are allowed"),
    ({"tenant": "üüüüa"}, "tenant: 9 bytes, at most 8 are allowed"),
    ({"tenant": "a\0"}, "tenant: contains a NUL character"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_wrong_is_named_with_what_is_allowed(fields: dict[str, Any], message: str) -> None:
    assert submit(**fields) == Rejection(Code.INVALID, message)


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[message for _, message in BAD])
def test_in_a_batch_the_member_is_named_too(fields: dict[str, Any], message: str) -> None:
    tasks = [pb.TaskSpec(), pb.TaskSpec(tenant="t"), pb.TaskSpec(**fields)]
    found = decode_batch(pb.SubmitBatchRequest(tasks=tasks).SerializeToString(), LIMITS)
    assert found == Rejection(Code.INVALID, f"task[2].{message}", (("cronoq-batch-index", "2"),))


@pytest.mark.parametrize(
    ("limit", "field"), [("max_deps", "deps"), ("max_resources", "resources"), ("max_tags", "labels")]
)
def test_a_limit_of_zero_allows_none(limit: str, field: str) -> None:
    entries: dict[str, Any] = {"deps": [dep(1)], "resources": {"a": 1}, "labels": {"a": ""}}
    found = submit(replace(LIMITS, **{limit: 0}), **{field: entries[field]})
    assert found == Rejection(Code.INVALID, f"{field}: 1 entries, at most 0 are allowed (limits.{limit})")


# --- any of them

seconds = st.integers(0, MAX_CLIENT_DURATION // SECOND).map(lambda count: count * SECOND)
milliseconds = st.integers(0, 10**9).map(lambda count: count * 1_000_000)
durations = st.none() | seconds | milliseconds
"""What survives the way through a float."""
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
names = texts.filter(bool)
edges = st.builds(Dependency, st.integers(1, (1 << 64) - 1) | names, st.sampled_from(Condition).map(int))


@st.composite
def schedulings(draw: st.DrawFn) -> Scheduling:
    """Anything that a caller may ask for."""
    relative, start_in = draw(durations), draw(durations)
    start = draw(st.none() | st.integers(0, (1 << 63) - 1)) if start_in is None else None
    fixed = start is not None or start_in is not None
    return Scheduling(
        draw(st.none() | st.integers(0, (1 << 63) - 1)) if relative is None else None,
        relative,
        draw(durations),
        tuple(draw(st.lists(edges, max_size=5))),
        tuple(sorted(draw(st.dictionaries(names, st.integers(1, (1 << 32) - 1), max_size=4)).items())),
        tuple(sorted(draw(st.dictionaries(names, texts, max_size=4)).items())),
        draw(texts),
        start,
        start_in,
        draw(durations.filter(lambda found: found is not None)) if fixed else SECOND,
        draw(st.sampled_from(MissPolicy).map(int)) if fixed else MissPolicy.RUN_LATE.value,
    )


def written(asked: Scheduling) -> pb.TaskSpec:
    """What a client writes for it."""
    task = pb.TaskSpec(deps=[dep(edge.ref, edge.condition) for edge in asked.dependencies], tenant=asked.tenant)
    task.resources.update(asked.resources)
    task.labels.update(asked.labels)
    if asked.deadline is not None:
        task.deadline_unix_ns = asked.deadline
    if asked.deadline_in is not None:
        task.deadline_in_s = asked.deadline_in / SECOND
    if asked.start is not None:
        task.start_unix_ns = asked.start
    if asked.start_in is not None:
        task.start_in_s = asked.start_in / SECOND
    if asked.start is not None or asked.start_in is not None:
        task.tolerance_s = asked.tolerance / SECOND
        task.on_miss = asked.on_miss  # type: ignore[assignment]
    if asked.duration_hint is not None:
        task.duration_hint_s = asked.duration_hint / SECOND
    return task


@given(schedulings())
@example(Scheduling())
def test_what_a_client_writes_arrives(asked: Scheduling) -> None:
    data = pb.SubmitRequest(task=written(asked)).SerializeToString()
    found = decode_submit(data, LimitSettings())
    assert isinstance(found, Submit)
    assert found.spec.scheduling == (None if asked == Scheduling() else asked)


@given(st.integers(-(1 << 31), (1 << 31) - 1))
@example(0)
@example(3)
@example(4)
def test_foreign_numbers_of_a_condition(number: int) -> None:
    found = submit(deps=[dep(1, number)])
    if 0 <= number <= 3:
        assert found.scheduling.dependencies[0].condition == (number or 1)
    else:
        assert isinstance(found, Rejection) and found.message.startswith(f"deps[0].cond: {number} is not")


@given(st.floats())
def test_any_number_of_seconds_is_a_duration_or_refused(number: float) -> None:
    for field in ("deadline_in_s", "duration_hint_s", "start_in_s", "tolerance_s"):
        found = submit(**{field: number}, **({"start_unix_ns": 1} if field == "tolerance_s" else {}))
        if 0 <= number <= 3_153_600_000:
            asked = found.scheduling
            assert getattr(asked, field.removesuffix("_s")) == round(number * SECOND)
        else:
            assert found == Rejection(Code.INVALID, f"{field}: {number} is not {CENTURY}")


def test_the_dependencies_of_a_batch_are_counted_before_they_are_looked_at():
    limits = LimitSettings(max_deps=MAX_BATCH_EDGES)
    half = [pb.Dep(target=pb.TaskRef(id=1))] * (MAX_BATCH_EDGES // 2)
    tasks = [pb.TaskSpec(deps=half), pb.TaskSpec(deps=half), pb.TaskSpec(deps=half[:1])]
    assert isinstance(decode_batch(pb.SubmitBatchRequest(tasks=tasks[:2]).SerializeToString(), limits), SubmitBatch)
    found = decode_batch(pb.SubmitBatchRequest(tasks=tasks).SerializeToString(), limits)
    assert isinstance(found, Rejection) and found.code is Code.INVALID
    assert found.message == f"task[2].deps: the batch has more than {MAX_BATCH_EDGES} dependencies up to here; split it"
    assert found.details == (("cronoq-batch-index", "2"),)
