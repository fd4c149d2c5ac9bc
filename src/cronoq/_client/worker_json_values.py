"""Single values and their one JSON form each: strict readers and writers. The table is in the how-to page of handlers.

A reader takes what `json.loads` gives; a writer gives what `json.dumps` takes. TypeError for a value of another type,
ValueError for one that has no such form.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from typing import Any, get_args
from uuid import UUID

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}.*")


def wants(what: str, value: object) -> TypeError:
    """The error for a value of another type."""
    return TypeError(f"{what} is needed, not {_kind(value)}")


def _kind(value: object) -> str:
    """As people call it who write JSON."""
    names = {type(None): "null", dict: "an object", list: "an array", str: "a string", bool: "true or false"}
    names |= {int: "an integer", float: "a number"}
    return names.get(type(value)) or f"a value of type {type(value).__name__}"


def _exact(kind: type, what: str, value: Any, _type: Any = None) -> Any:
    if type(value) is not kind:
        raise wants(what, value)
    return value


def _read_float(value: Any, _type: Any = None) -> float:
    if type(value) not in (int, float):
        raise wants("a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("the number is too large") from None
    if not math.isfinite(number):
        raise ValueError("NaN and infinity have no form in JSON")
    return number


def _text(what: str, value: Any) -> str:
    if type(value) is not str:
        raise wants(f"a string with {what}", value)
    return value


def _read_bytes(value: Any, _type: Any = None) -> bytes:
    try:
        return base64.b64decode(_text("base64", value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the string is not base64") from None


def _write_bytes(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray)):
        raise wants("bytes", value)
    return base64.b64encode(value).decode("ascii")


def _read_datetime(value: Any, _type: Any = None) -> datetime:
    text = _text("a time", value)
    try:
        read = datetime.fromisoformat(text) if _DATETIME.fullmatch(text) else None
    except ValueError:
        read = None
    if read is None:
        raise ValueError(f"{text!r} is not a time like 2026-01-31T12:00:00+00:00")
    return _aware(read)


def _aware(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("the time has no offset from UTC")
    return value


def _write_datetime(value: Any) -> str:
    if not isinstance(value, datetime):
        raise wants("a datetime", value)
    return _aware(value).isoformat()


def _read_date(value: Any, _type: Any = None) -> date:
    text = _text("a date", value)
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a date like 2026-01-31")


def _write_date(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wants("a date", value)
    return value.isoformat()


def _read_uuid(value: Any, _type: Any = None) -> UUID:
    text = _text("a UUID", value)
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not a UUID like 123e4567-e89b-12d3-a456-426614174000")
    return UUID(text)


def _write_uuid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise wants("a UUID", value)
    return str(value)


def _read_decimal(value: Any, _type: Any = None) -> Decimal:
    text = _text("a decimal number", value)
    try:
        if _DECIMAL.fullmatch(text):
            return Decimal(text)
    except InvalidOperation:
        pass
    raise ValueError(f"{text!r} is not a decimal number like 12.50")


def _write_decimal(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise wants("a Decimal", value)
    if not value.is_finite():
        raise ValueError("NaN and infinity have no form in JSON")
    return str(value)


def read_enum(value: Any, kind: type[Enum]) -> Enum:
    """A member by its value, whose type counts: 1 is not True."""
    for member in kind:
        if type(member.value) is type(value) and member.value == value:
            return member
    allowed = ", ".join(json.dumps(member.value, default=str) for member in kind)
    raise ValueError(f"{json.dumps(value, default=str)[:100]} is not one of {allowed}")


def write_enum(value: Any) -> Any:
    """The value of a member."""
    if not isinstance(value, Enum):
        raise wants("a member of the enum", value)
    return value.value


def read_literal(value: Any, kind: Any) -> Any:
    """One of the choices; its type counts."""
    for choice in get_args(kind):
        if type(choice) is type(value) and choice == value:
            return choice
    allowed = ", ".join(json.dumps(choice, default=str) for choice in get_args(kind))
    raise ValueError(f"{json.dumps(value, default=str)[:100]} is not one of {allowed}")


VALUES: dict[type, tuple[Callable[..., Any], Callable[[Any], Any], type]] = {
    int: (partial(_exact, int, "an integer"), partial(_exact, int, "an integer"), int),
    str: (partial(_exact, str, "a string"), partial(_exact, str, "a string"), str),
    bool: (partial(_exact, bool, "true or false"), partial(_exact, bool, "true or false"), bool),
    type(None): (partial(_exact, type(None), "null"), partial(_exact, type(None), "null"), type(None)),
    float: (_read_float, _read_float, float),
    bytes: (_read_bytes, _write_bytes, str),
    datetime: (_read_datetime, _write_datetime, str),
    date: (_read_date, _write_date, str),
    UUID: (_read_uuid, _write_uuid, str),
    Decimal: (_read_decimal, _write_decimal, str),
}
"""Reader, writer, and what `json.loads` makes of the form."""
