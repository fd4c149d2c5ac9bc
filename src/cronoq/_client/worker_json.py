"""Typed values <-> JSON documents, by cattrs, strict in both directions.

Nothing is coerced: numbers, booleans and strings keep their JSON type, unknown fields are refused, missing ones take
their defaults, and each fault names its path. A type without a form is refused when a handler is registered. Only
`cronoq.handlers` imports this, because it needs cattrs.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import count, repeat
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import cattrs
from cattrs.disambiguators import create_default_dis_func
from cattrs.errors import AttributeValidationNote, IterableValidationNote

from cronoq._client.worker_json_values import VALUES, read_enum, read_literal, wants, write_enum

_ARRAYS: dict[Any, type] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: list}
_MAX_FAULTS = 5
_MAX_TEXT = 500

Read = Callable[[Any, Any], Any]
Write = Callable[[Any], Any]


class JsonFault(ValueError):
    """A document or value that does not have the form of its type; the text says where and why."""


def faults(error: Exception, path: str) -> list[str]:
    """One line for each fault, with its path first."""
    lines = []
    for line in cattrs.transform_error(error, path, lambda fault, _kind: _describe(fault)):
        text, _, where = line.rpartition(" @ ")
        lines.append(f"{where}: {text}"[:_MAX_TEXT])
    return lines


def _describe(fault: BaseException) -> str:
    if isinstance(fault, KeyError):
        return "is missing"
    if isinstance(fault, cattrs.ForbiddenExtraKeysError):
        return f"unknown: {', '.join(sorted(map(str, fault.extra_fields)))}"
    return str(fault) or type(fault).__name__


def join(lines: Sequence[str]) -> str:
    """Several faults as one text of bounded length."""
    more = f"; and {len(lines) - _MAX_FAULTS} more" if len(lines) > _MAX_FAULTS else ""
    return "; ".join(lines[:_MAX_FAULTS]) + more


def loads(data: bytes) -> Any:
    """Strict JSON: no NaN, no name twice in an object. `JsonFault` otherwise."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError is one too
        raise JsonFault(f"not valid JSON: {error}") from None


def dumps(value: Any) -> bytes:
    """Compact JSON. `JsonFault` for what is none."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise JsonFault(str(error)) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


# --- what a type is


def _is_class(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and (hasattr(origin, "__attrs_attrs__") or dataclasses.is_dataclass(origin))


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _ARRAYS


def _is_object(kind: Any) -> bool:
    return (get_origin(kind) or kind) in (dict, Mapping)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _plain(kind: Any) -> Any:
    """Without `Annotated`, `NewType` and type aliases."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        else:
            return kind


def prepare(kind: Any, converter: cattrs.Converter, seen: tuple[Any, ...] = ()) -> None:
    """Make a type known to the converter. TypeError, with the reason, for one that has no JSON form."""
    kind = _plain(kind)
    if kind in seen or kind is Any or kind in VALUES or kind is None:
        return
    if _is_enum(kind):
        _check_choices(kind, [member.value for member in kind])
        # By class, because cattrs would take an IntEnum for an int, whatever is said about enums in general.
        converter.register_structure_hook(kind, read_enum)
        converter.register_unstructure_hook(kind, write_enum)
    elif _is_literal(kind):
        _check_choices(kind, get_args(kind))
    elif _is_array(kind):
        for element in get_args(kind):
            if element is not ...:
                prepare(element, converter, seen)
    elif _is_object(kind):
        arguments = get_args(kind)
        if arguments and _plain(arguments[0]) is not str:
            raise TypeError(f"{kind}: the keys of JSON objects are strings")
        prepare(arguments[1] if arguments else Any, converter, seen)
    elif _is_class(kind):
        for name, field in _fields(kind):
            try:
                prepare(field, converter, (*seen, kind))
            except TypeError as error:
                raise TypeError(f"{_name(kind)}.{name}: {error}") from None
    elif _is_union(kind):
        for member in get_args(kind):
            prepare(member, converter, seen)
        _check_union(kind)
    else:
        raise TypeError(
            f"{_name(kind)} has no JSON form; there is one for bool, int, float, str, bytes, datetime, date, UUID, "
            "Decimal, enums, Literal, list, tuple, set, frozenset, dict, dataclasses and attrs classes"
        )


def _check_choices(kind: Any, values: Iterable[Any]) -> None:
    for value in values:
        if type(value) not in (str, int, bool, type(None)):
            raise TypeError(f"{_name(kind)}: {value!r} is neither a string nor an integer")


def _check_union(kind: Any) -> None:
    """Which member is meant must show in the document."""
    members = [_plain(member) for member in get_args(kind)]
    if Any in members:
        raise TypeError(f"{kind}: Any takes everything already")
    forms: dict[Any, Any] = {}
    for member in members:
        for form in _forms(member):
            other = forms.setdefault(form, member)
            if other is not member and not (_is_class(other) and _is_class(member)):
                raise TypeError(f"{kind}: {_name(other)} and {_name(member)} look the same in JSON")


def _forms(kind: Any) -> list[type]:
    """What `json.loads` may make of it."""
    if kind in VALUES:
        return [VALUES[kind][2]]
    if _is_enum(kind):
        return sorted({type(member.value) for member in kind}, key=str)
    if _is_literal(kind):
        return sorted({type(choice) for choice in get_args(kind)}, key=str)
    return [list] if _is_array(kind) else [dict]


def _fields(kind: Any) -> list[tuple[str, Any]]:
    origin = get_origin(kind) or kind
    try:
        hints = get_type_hints(origin)
    except NameError as error:
        raise TypeError(f"{_name(kind)}: its fields cannot be read ({error})") from None
    fields = getattr(origin, "__attrs_attrs__", None) or dataclasses.fields(origin)
    return [(field.name, hints.get(field.name, Any)) for field in fields if field.init]


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)


# --- the converter


def make_converter() -> cattrs.Converter:
    """A converter with these forms and no others."""
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind, (read, write, _) in VALUES.items():
        converter.register_structure_hook(kind, read)
        converter.register_unstructure_hook(kind, write)
    for predicate, make_read, make_write in (
        (lambda kind: kind is Any, lambda *_: lambda value, _kind: value, lambda *_: lambda value: value),
        (_is_class, _class_reader, _class_writer),
        (_is_array, _array_reader, _array_writer),
        (_is_object, _object_reader, _object_writer),
        (_is_union, _union_reader, _union_writer),
        (_is_literal, lambda *_: read_literal, _literal_writer),
    ):
        converter.register_structure_hook_factory(predicate, make_read)
        converter.register_unstructure_hook_factory(predicate, make_write)
    return converter


def _class_reader(kind: Any, converter: cattrs.Converter) -> Read:
    inner = converter.gen_structure_attrs_fromdict(kind)

    def read(value: Any, _kind: Any) -> Any:
        if type(value) is not dict:
            raise wants("an object", value)
        return inner(value, kind)

    return read


def _class_writer(kind: Any, converter: cattrs.Converter) -> Write:
    origin = get_origin(kind) or kind
    writers: dict[str, Write] = {}

    def write(value: Any) -> Any:
        if type(value) is not origin:  # a subclass would lose its own fields on the way
            raise TypeError(f"a value of {origin.__qualname__} is needed, not of {type(value).__qualname__}")
        if not writers:  # asked for only now, because a class may contain itself
            writers.update((name, converter.get_unstructure_hook(field)) for name, field in _fields(kind))
        done, wrong = {}, []
        for name, writer in writers.items():
            try:
                done[name] = writer(getattr(value, name))
            except Exception as error:
                error.__notes__ = [*getattr(error, "__notes__", ()), AttributeValidationNote(name, name, None)]
                wrong.append(error)
        if wrong:
            raise cattrs.ClassValidationError("fields", wrong, origin)
        return done

    return write


def _reader(kind: Any, converter: cattrs.Converter) -> Write:
    """The hook of a type as a function of the value alone."""
    hook = converter.get_structure_hook(kind)
    return lambda value: hook(value, kind)


def _each(indices: Iterable[Any], values: Any, converts: Iterable[Write], kind: Any) -> list[Any]:
    """Convert each value; all faults at once, with their indices."""
    done, wrong = [], []
    for index, value, convert in zip(indices, values, converts):  # noqa: B905 - the shortest is `values`
        try:
            done.append(convert(value))
        except Exception as error:
            note = IterableValidationNote(f"at {index}", index, kind)
            error.__notes__ = [*getattr(error, "__notes__", ()), note]
            wrong.append(error)
    if wrong:
        raise cattrs.IterableValidationError("elements", wrong, kind)
    return done


def _elements(kind: Any) -> tuple[Any, ...] | None:
    """The types of a tuple of fixed length; None = all elements have one type."""
    arguments = get_args(kind)
    if (get_origin(kind) or kind) is not tuple or not arguments or arguments[-1] is ...:
        return None
    return () if arguments == ((),) else arguments


def _hooks(kind: Any, make: Callable[[Any], Write]) -> Iterable[Write]:
    """One for each element of an array."""
    fixed = _elements(kind)
    if fixed is None:
        return repeat(make((get_args(kind) or (Any,))[0]))
    return [make(element) for element in fixed]


def _check_length(kind: Any, values: Any) -> None:
    fixed = _elements(kind)
    if fixed is not None and len(values) != len(fixed):
        raise ValueError(f"{len(fixed)} elements are needed, not {len(values)}")


def _array_reader(kind: Any, converter: cattrs.Converter) -> Read:
    make = _ARRAYS[get_origin(kind) or kind]
    hooks = _hooks(kind, lambda element: _reader(element, converter))

    def read(value: Any, _kind: Any) -> Any:
        if type(value) is not list:
            raise wants("an array", value)
        _check_length(kind, value)
        done = make(_each(count(), value, hooks, kind))
        if len(done) < len(value):
            raise ValueError("an element is there twice")
        return done

    return read


def _array_writer(kind: Any, converter: cattrs.Converter) -> Write:
    origin = get_origin(kind) or kind
    allowed: Any = (list, tuple) if origin is Sequence else _ARRAYS[origin]
    hooks = _hooks(kind, converter.get_unstructure_hook)

    def write(value: Any) -> Any:
        if not isinstance(value, allowed):
            raise TypeError(f"a {origin.__name__} is needed, not a value of type {type(value).__name__}")
        _check_length(kind, value)
        done = _each(count(), value, hooks, kind)
        return sorted(done, key=json.dumps) if isinstance(value, (set, frozenset)) else done

    return write


def _object_reader(kind: Any, converter: cattrs.Converter) -> Read:
    reader = _reader((get_args(kind) or (str, Any))[1], converter)

    def read(value: Any, _kind: Any) -> Any:
        if type(value) is not dict:
            raise wants("an object", value)
        return dict(zip(value, _each(value, value.values(), repeat(reader), kind), strict=True))

    return read


def _object_writer(kind: Any, converter: cattrs.Converter) -> Write:
    writer = converter.get_unstructure_hook((get_args(kind) or (str, Any))[1])

    def write(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"a dict is needed, not a value of type {type(value).__name__}")
        for name in value:
            if type(name) is not str:
                raise TypeError(f"the keys of JSON objects are strings, not {type(name).__name__}")
        return dict(zip(value, _each(value, value.values(), repeat(writer), kind), strict=True))

    return write


def _union_reader(kind: Any, converter: cattrs.Converter) -> Read:
    members = [_plain(member) for member in get_args(kind)]
    hooks: dict[type, tuple[Any, Any]] = {}
    for member in members:
        for form in _forms(member):
            hooks[form] = (converter.get_structure_hook(member), member)
    if float in hooks and int not in hooks:
        hooks[int] = hooks[float]
    classes = [member for member in members if _is_class(member)]
    if len(classes) > 1:
        choose = create_default_dis_func(converter, *classes)
        readers = {member: converter.get_structure_hook(member) for member in classes}
        hooks[dict] = (lambda value, _kind: readers[choose(value)](value, None), None)
    what = " or ".join(_name(member) for member in members)

    def read(value: Any, _kind: Any) -> Any:
        found = hooks.get(type(value))
        if found is None:
            raise wants(what, value)
        return found[0](value, found[1])

    return read


def _union_writer(kind: Any, converter: cattrs.Converter) -> Write:
    members = [_plain(member) for member in get_args(kind)]
    hooks = [(_python_types(member), converter.get_unstructure_hook(member)) for member in members]
    what = " or ".join(_name(member) for member in members)

    def write(value: Any) -> Any:
        for kinds, hook in hooks:
            if type(value) in kinds:
                return hook(value)
        raise TypeError(f"{what} is needed, not a value of type {type(value).__name__}")

    return write


def _python_types(kind: Any) -> tuple[type, ...]:
    """Of the values that a member of a union stands for."""
    if kind in VALUES:
        return (kind,)
    if _is_literal(kind):
        return tuple(_forms(kind))
    origin = get_origin(kind) or kind
    return (list, tuple) if origin is Sequence else (dict,) if origin is Mapping else (origin,)


def _literal_writer(kind: Any, _converter: cattrs.Converter) -> Write:
    return lambda value: read_literal(value, kind)
