"""The codec of recordings: every class that a recording may hold comes back as it was, and nothing else is accepted."""

import dataclasses
import json
import types
from enum import Enum
from math import isnan
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.engine.records import LoadedRecord, TaskInserted
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.recording.digests import Digested, digest_of
from cronoq_sansio.recording.format import End, Head, Recorded, References
from cronoq_sansio.recording.words import Malformed, Words
from cronoq_sansio.service.access import ANYONE, Principal
from cronoq_sansio.service.messages import Call, CallReceived, Complete, Submit, WorkerSent, WorkerStream
from cronoq_sansio.settings import ResourceSettings, Settings
from cronoq_sansio.spec import RetryPolicy, TaskSpec

SPEC = TaskSpec(b"payload", "", "", "default", 2, "", None, None, (), 40)
REFERENCES = (Call, WorkerStream)
NUMBER = st.integers(1, 5)
TEXT = st.text(max_size=5)


def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Principal": Principal})


def classes_of(annotation: Any, found: dict[type, None]) -> dict[type, None]:
    """All value classes that values of this annotation may hold."""
    for argument in get_args(annotation):
        classes_of(argument, found)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation) and annotation not in found:
        found[annotation] = None
        for field in dataclasses.fields(annotation):
            classes_of(hints_of(annotation)[field.name], found)
    return found


CLASSES = [
    *classes_of(Recorded, classes_of(LoadedRecord, classes_of(Settings, {}))),
    Head,
    End,
]


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, small ones."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        return st.one_of(*map(values, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=2)
    if annotation in REFERENCES:
        return st.deferred(lambda: st.sampled_from(THINGS[annotation]))
    if dataclasses.is_dataclass(annotation):
        fields = dataclasses.fields(annotation)
        drawn = st.tuples(*(values(hints_of(annotation)[field.name]) for field in fields))  # type: ignore[arg-type]
        return drawn.map(lambda each: annotation(*each))  # type: ignore[operator]
    if issubclass(annotation, Enum):
        return st.sampled_from(list(annotation))
    return PLAIN[annotation]


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 64) - 1),
    bool: st.booleans(),
    str: TEXT | st.just("\ud800"),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=5),
    types.NoneType: st.none(),
}
THINGS: dict[Any, list[Any]] = {Call: [Call(n) for n in range(3)], WorkerStream: [WorkerStream(n) for n in range(3)]}


def test_all_that_is_recorded_is_tried() -> None:
    names = {kind.__name__ for kind in CLASSES}
    events = {kind.__name__ for kind in get_args(Recorded)}
    assert (
        events < names and {"TaskSpec", "RecurringSpec", "StoredTask", "Register", "TaskLoaded", "PoolSettings"} < names
    )
    assert len(names) == len(CLASSES), "classes are told apart by their names"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@settings(max_examples=10)
@given(data=st.data())
def test_each_class_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    thing = data.draw(values(kind))
    references = References()
    words = references.words()
    text = json.dumps(words.encoder(kind)(thing), allow_nan=False)
    assert words.decoder(kind)(json.loads(text)) == thing


@given(data=st.data())
def test_each_event_comes_back_as_it_was(data: st.DataObject) -> None:
    thing = data.draw(values(Recorded))
    words = References().words()
    text = json.dumps(words.encoder(Recorded)(thing), allow_nan=False)
    assert words.decoder(Recorded)(json.loads(text)) == thing


def test_nan_and_infinity_come_back() -> None:
    words = Words()
    for rate in (float("inf"), float("-inf"), float("nan")):
        encoded = words.encoder(ResourceSettings)(ResourceSettings("r", "token_bucket", rate=rate))
        back = words.decoder(ResourceSettings)(json.loads(json.dumps(encoded, allow_nan=False))).rate
        assert back == rate or (isnan(back) and isnan(rate))


def test_bytes_are_length_and_digest_and_behave_like_the_bytes() -> None:
    words = References().words()
    secret = b"canary " * 100
    event = WorkerSent(WorkerStream(None), Complete(1, secret, ""))
    text = json.dumps(words.encoder(Recorded)(event))
    assert "canary" not in text and len(text) < 250
    back = words.decoder(Recorded)(json.loads(text)).message.output
    assert type(back) is Digested and len(back) == len(secret) and back and back == secret and secret == back
    assert (
        back != b"other" and back == Digested(700, digest_of(secret)) and hash(back) == hash(Digested(700, back.digest))
    )
    assert (
        back != Digested(701, back.digest) and not Digested(0, digest_of(b"")) and digest_of(back) == digest_of(secret)
    )
    assert "700 bytes" in repr(back)


def test_fields_with_their_default_are_left_out_and_what_is_over_is_zero() -> None:
    references = References()
    words = references.words()
    call, over = Call(None), Call(None)
    over.open = False
    encode = words.encoder(Recorded)
    first = encode(CallReceived(call, ANYONE, Submit(SPEC, False, None), None))
    assert first["is"] == "CallReceived" and first["call"] == 1 and "scheduling" not in first["request"]["spec"]
    assert encode(CallReceived(over, ANYONE, Submit(SPEC, False, None), None))["call"] == 0
    assert references.call(1) is call and not references.call(0).open and references.call(7) is references.call(7)


TASK = Words().encoder(TaskSpec)(SPEC)
WRONG: list[tuple[Any, Any, str]] = [
    (TaskSpec, 7, "expected an object, found 7"),
    (TaskSpec, {}, "'payload' is missing"),
    (TaskSpec, {**TASK, "colour": 1}, 'there is no "colour" here; known are payload'),
    (TaskSpec, {**TASK, "priority": "high"}, 'priority: expected an integer, found "high"'),
    (TaskSpec, {**TASK, "priority": True}, "priority: expected an integer, found true"),
    (TaskSpec, {**TASK, "priority": 1.0}, "priority: expected an integer, found 1.0"),
    (TaskSpec, {**TASK, "tags": [["a", 1]]}, "tags[0][1]: expected a text, found 1"),
    (TaskSpec, {**TASK, "tags": [["a"]]}, "tags[0]: expected an array of 2, found an array"),
    (TaskSpec, {**TASK, "tags": {}}, "tags: expected an array, found an object"),
    (TaskSpec, {**TASK, "payload": "x"}, 'payload: expected an object, found "x"'),
    (TaskSpec, {**TASK, "payload": {"length": -1, "sha256": "0" * 32}}, "payload.length: expected a number of bytes"),
    (TaskSpec, {**TASK, "payload": {"length": 1, "sha256": "G" * 32}}, "payload.sha256: expected 32"),
    (TaskSpec, {**TASK, "timeout": "1"}, 'timeout: expected an integer, found "1"'),
    (TaskSpec, {**TASK, "retry": {}}, "retry: 'max_attempts' is missing"),
    (int | str, [], "expected an integer or a text, found an array"),
    (int | None, "x", 'expected an integer, found "x"'),
    (Recorded, {}, "is: expected one of CallReceived"),
    (Recorded, {"is": ["x"]}, "is: expected one of CallReceived"),
    (Recorded, [], "found an array"),
    (Recorded, {"is": "StepsDurable", "through": None}, "through: expected an integer, found null"),
    (Recorded, {"is": "CallEnded", "call": -1}, "call: expected a number from 0 to 18446744073709551615, found -1"),
    (RetryPolicy, {"max_attempts": 1, "initial_backoff": 1, "multiplier": "x"}, "'max_backoff' is missing"),
    (float, "x" * 99, f'expected a number, found "{"x" * 39}…'),
    (Rejection, {"code": "odd", "message": ""}, 'code: expected one of invalid, unknown_pool'),
    (frozenset[str], [1], "[0]: expected a text, found 1"),
    (None, 1, "expected null, found 1"),
    (bool, 1, "expected true or false, found 1"),
]  # fmt: skip


@pytest.mark.parametrize("annotation, found, text", WRONG)
def test_what_is_wrong_is_said_with_its_place(annotation: Any, found: Any, text: str) -> None:
    with pytest.raises(Malformed) as caught:
        References().words().decoder(annotation)(found)
    assert text in str(caught.value)


def test_places_are_joined() -> None:
    error = Malformed("no", "[0].spec").within("events").within("line")
    assert str(error) == "line.events[0].spec: no" and str(Malformed("no").within("x")) == "x: no"


def test_what_nothing_is_known_of_is_a_mistake_in_our_code() -> None:
    for unknown in (object, list[int], Call):
        with pytest.raises(TypeError, match="nothing is known"):
            Words().codec(unknown)
    assert Words().encoder(Code)(Code.FULL) == "full" and Words().encoder(int)(5) == 5
    assert Words().decoder(TaskInserted)({"task_id": 1, "spec": TASK, "max_attempts": 1, "arrival": 2}) == TaskInserted(
        1, SPEC, 1, 2
    )
