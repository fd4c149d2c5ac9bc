"""The JSON form of each type, strict in both directions, with the path of each fault."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq._client.worker_json import JsonFault, dumps, faults, join, loads, make_converter, prepare

CONVERTER = make_converter()


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Address:
    street: str
    number: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)


@attrs.define
class Person:
    name: str
    address: Address
    color: Color = Color.RED
    manager: "Person | None" = None


@dataclasses.dataclass(frozen=True)
class Circle:
    radius: float


@dataclasses.dataclass(frozen=True)
class Square:
    side: float


@dataclasses.dataclass
class Special(Address):
    extra: int = 0


UserId = NewType("UserId", int)
AWARE = datetime(2026, 1, 31, 12, 30, 0, 5, timezone(timedelta(hours=2)))
ID = UUID("123e4567-e89b-12d3-a456-426614174000")

FORMS = [
    (bool, True, "true"),
    (int, -5, "-5"),
    (int, 2**70, str(2**70)),
    (float, 1.5, "1.5"),
    (float, 2.0, "2.0"),
    (str, "ü\n", '"\\u00fc\\n"'),
    (type(None), None, "null"),
    (bytes, b"\x00\xff", '"AP8="'),
    (datetime, AWARE, '"2026-01-31T12:30:00.000005+02:00"'),
    (datetime, datetime(2026, 1, 31, tzinfo=UTC), '"2026-01-31T00:00:00+00:00"'),
    (date, date(2026, 1, 31), '"2026-01-31"'),
    (UUID, ID, f'"{ID}"'),
    (Decimal, Decimal("12.50"), '"12.50"'),
    (Color, Color.BLUE, '"blue"'),
    (Level, Level.HIGH, "2"),
    (Literal["a", 1], 1, "1"),
    (list[int], [1, 2], "[1,2]"),
    (list, [1, "a", None], '[1,"a",null]'),
    (Sequence[int], [1], "[1]"),
    (tuple[int, ...], (1, 2), "[1,2]"),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[()], (), "[]"),
    (set[int], {2, 1}, "[1,2]"),
    (frozenset[str], frozenset({"b", "a"}), '["a","b"]'),
    (dict[str, float], {"a": 1.0}, '{"a":1.0}'),
    (dict, {"a": [1]}, '{"a":[1]}'),
    (Mapping[str, int], {"a": 1}, '{"a":1}'),
    (Address, Address("s"), '{"street":"s","number":1,"tags":[]}'),
    (
        Person,
        Person("p", Address("s", 2, ["t"]), Color.BLUE, Person("m", Address("x"))),
        '{"name":"p","address":{"street":"s","number":2,"tags":["t"]},"color":"blue","manager":'
        '{"name":"m","address":{"street":"x","number":1,"tags":[]},"color":"red","manager":null}}',
    ),
    (int | None, None, "null"),
    (int | str, "5", '"5"'),
    (int | float, 5, "5"),
    (float | str, 5.0, "5.0"),
    (datetime | None, AWARE, '"2026-01-31T12:30:00.000005+02:00"'),
    (Circle | Square, Square(2.0), '{"side":2.0}'),
    (list[int] | dict[str, int], {"a": 1}, '{"a":1}'),
    (Color | None, Color.RED, '"red"'),
    (Annotated[int, "a note"], 5, "5"),
    (UserId, 5, "5"),
    (Any, {"a": [1, None]}, '{"a":[1,null]}'),
]


@pytest.mark.parametrize(("kind", "value", "text"), FORMS)
def test_forms(kind, value, text):
    prepare(kind, CONVERTER)
    document = CONVERTER.get_unstructure_hook(kind)(value)
    assert dumps(document).decode() == text
    back = CONVERTER.structure(loads(text.encode()), kind)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (float, "2", 2.0),
        (datetime, '"2026-01-31T12:30:00Z"', datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        (UUID, f'"{str(ID).upper()}"', ID),
        (Address, '{"street":"s"}', Address("s")),
        (float | None, "2", 2.0),
    ],
)
def test_what_is_read_too(kind, text, value):
    back = CONVERTER.structure(loads(text.encode()), kind)
    assert back == value and type(back) is type(value)


for prepared in (Color, Level):
    prepare(prepared, CONVERTER)

WRONG = [
    (int, "true", "an integer is needed, not true or false"),
    (int, "1.0", "an integer is needed, not a number"),
    (int, '"1"', "an integer is needed, not a string"),
    (int, "null", "an integer is needed, not null"),
    (bool, "1", "true or false is needed, not an integer"),
    (float, '"1"', "a number is needed"),
    (float, "true", "a number is needed"),
    (float, "1" + "0" * 400, "too large"),
    (str, "1", "a string is needed, not an integer"),
    (str, "[]", "not an array"),
    (type(None), "0", "null is needed"),
    (bytes, '"?"', "not base64"),
    (bytes, '"AP8"', "not base64"),
    (bytes, "1", "base64"),
    (datetime, '"2026-01-31T12:30:00"', "no offset"),
    (datetime, '"2026-01-31"', "not a time"),
    (datetime, '"yesterday"', "not a time"),
    (datetime, '"2026-13-31T12:30:00Z"', "not a time"),
    (datetime, "5", "a time"),
    (date, '"20260131"', "not a date"),
    (date, '"2026-02-30"', "not a date"),
    (date, '"2026-W05"', "not a date"),
    (UUID, '"123e4567e89b12d3a456426614174000"', "not a UUID"),
    (UUID, '"{123e4567-e89b-12d3-a456-426614174000}"', "not a UUID"),
    (Decimal, "12.5", "a decimal number is needed"),
    (Decimal, '"NaN"', "not a decimal"),
    (Decimal, '"1_000"', "not a decimal"),
    (Decimal, '"1e9999999999"', "not a decimal"),
    (Color, '"green"', '"red", "blue"'),
    (Color, "[]", "is not one of"),
    (Level, "true", "is not one of 1, 2"),
    (Level, "1.0", "is not one of 1, 2"),
    (Literal["a", 1], "true", "is not one of"),
    (list[int], '"12"', "an array is needed, not a string"),
    (list[int], "{}", "an array is needed, not an object"),
    (tuple[int, str], "[1]", "2 elements are needed, not 1"),
    (set[int], "[1,1]", "twice"),
    (dict[str, int], "[]", "an object is needed, not an array"),
    (Address, '"s"', "an object is needed, not a string"),
    (int | str, "true", "int or str is needed, not true or false"),
    (int | None, "1.5", "not a number"),
    (Circle | Square, '{"a":1}', "ouldn't disambiguate"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), WRONG)
def test_nothing_is_coerced(kind, text, expected):
    with pytest.raises(Exception) as caught:
        CONVERTER.structure(loads(text.encode()), kind)
    (line,) = faults(caught.value, "payload")
    assert line.startswith("payload: ") and expected in line


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (list[int], '[1,"a",true]', ["payload[1]: an integer", "payload[2]: an integer"]),
        (dict[str, int], '{"a":"x"}', ["payload['a']: an integer"]),
        (tuple[int, str], '["a","b"]', ["payload[0]: an integer"]),
        (Address, "{}", ["payload.street: is missing"]),
        (Address, '{"street":"s","zip":1,"city":2}', ["payload: unknown: city, zip"]),
        (
            Person,
            '{"name":1,"address":{"street":"s","tags":["a",2]},"manager":{"name":"m"}}',
            ["payload.name: a string", "payload.address.tags[1]: a string", "payload.manager.address: is missing"],
        ),
    ],
)
def test_faults_name_their_paths(kind, text, expected):
    with pytest.raises(Exception) as caught:
        CONVERTER.structure(loads(text.encode()), kind)
    lines = faults(caught.value, "payload")
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)


def test_many_faults_make_a_text_of_bounded_length():
    with pytest.raises(Exception) as caught:
        CONVERTER.structure(["x" * 10_000] * 1_000, list[UUID])
    text = join(faults(caught.value, "payload"))
    assert len(text) < 3_000 and "and 995 more" in text


UNWRITABLE = [
    (int, True),
    (int, 1.0),
    (float, float("nan")),
    (float, "1"),
    (str, b"s"),
    (bytes, "s"),
    (datetime, datetime(2026, 1, 31)),
    (datetime, date(2026, 1, 31)),
    (date, AWARE),
    (UUID, str(ID)),
    (Decimal, Decimal("Infinity")),
    (Decimal, 1.5),
    (Color, "red"),
    (list[str], "ab"),
    (list[int], (1, 2)),
    (list[int], ["1"]),
    (tuple[int, str], (1,)),
    (set[int], [1]),
    (dict[str, int], {1: 2}),
    (dict[str, int], [1]),
    (Address, {"street": "s"}),
    (Address, Special("s")),
    (int | str, 1.5),
    (int | None, True),
    (Literal["a"], "b"),
]


@pytest.mark.parametrize(("kind", "value"), UNWRITABLE)
def test_values_of_other_types_are_not_written(kind, value):
    with pytest.raises((TypeError, ValueError, ExceptionGroup)):
        CONVERTER.get_unstructure_hook(kind)(value)


class Plain:
    pass


@dataclasses.dataclass
class Holder:
    inside: Plain


class Odd(enum.Enum):
    A = (1, 2)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Plain, "Plain has no JSON form"),
        (list[Plain], "Plain has no JSON form"),
        (Holder, "Holder.inside: "),
        (dict[int, str], "keys of JSON objects are strings"),
        (Odd, "neither a string nor an integer"),
        (timedelta, "no JSON form"),
        (complex, "no JSON form"),
        (str | datetime, "look the same in JSON"),
        (list[int] | tuple[int, ...], "look the same in JSON"),
        (bytes | UUID | None, "look the same in JSON"),
        (Address | dict[str, int], "look the same in JSON"),
        (Any | None, "Any takes everything"),
    ],
)
def test_types_without_a_form_are_refused(kind, text):
    with pytest.raises(TypeError, match=text):
        prepare(kind, CONVERTER)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"NaN", "NaN is not allowed"),
        (b"[Infinity]", "Infinity is not allowed"),
        (b'{"a":1,"a":2}', "'a' is there twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "not valid JSON"),
    ],
)
def test_documents_that_are_none(data, text):
    with pytest.raises(JsonFault, match=text):
        loads(data)


@pytest.mark.parametrize("value", [float("nan"), object(), {1: {}}.keys(), "\ud800" and float("inf")])
def test_what_is_no_document_is_not_written(value):
    with pytest.raises(JsonFault):
        dumps([value])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_documents_survive(value):
    assert loads(dumps(value)) == value


@given(
    st.builds(
        Person,
        name=st.text(),
        address=st.builds(Address, street=st.text(), number=st.integers(), tags=st.lists(st.text(), max_size=3)),
        color=st.sampled_from(Color),
    )
)
def test_objects_survive(person):
    assert CONVERTER.structure(loads(dumps(CONVERTER.get_unstructure_hook(Person)(person))), Person) == person


@given(VALUES, st.sampled_from([kind for kind, _, _ in FORMS if kind is not Any]))
def test_any_document_is_read_or_refused_with_a_path(value, kind):
    try:
        CONVERTER.structure(value, kind)
    except Exception as error:
        assert all(line.startswith("payload") for line in faults(error, "payload"))
