"""Value classes as JSON and back, derived from their annotations: none is written down here, so no field is forgotten.

A value becomes an object with its fields by name; fields that have their default are left out. Where several classes
may stand, the object says which by `"is"` (a keyword of Python, so no field has that name). Tuples become arrays,
enumerations their values, sets sorted arrays, bytes their length and digest (`digests.py`), and infinite numbers and
NaN texts. What lives only as long as a process does, a call for example, is given to `Words` with what stands for it.

Decoding is strict: the wrong type, a field that is missing or that nobody knows is `Malformed`, whose text begins with
where it stands: `events[0].request.spec.priority: expected an integer, found "high"`.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from math import inf, isfinite, nan
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cronoq_sansio.limits import MAX_RECORDED_ENTRIES, MAX_RECORDED_NUMBER
from cronoq_sansio.recording.digests import DIGEST_DIGITS, Digested, digest_of
from cronoq_sansio.service.access import Principal

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]

TAG = "is"
MAX_SHOWN = 40  #: characters of what was found, in an error
MIN_NUMBER = -(1 << 63)  #: the least that 64 bits hold; the most is `MAX_RECORDED_NUMBER`
MAX_LENGTH = (1 << 32) - 1  #: of bytes that were left out; a message of gRPC, whose length has 32 bits, has no more
NOT_FINITE = {"nan": nan, "inf": inf, "-inf": -inf}
#: Names that annotations use and that their modules import for type checkers only.
NAMES = {"Principal": Principal}


class Malformed(Exception):
    """What was read cannot be what was written. `place` says where in it: `events[0].request`, empty for the whole."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.place = place

    def within(self, place: str) -> "Malformed":
        """The same, as part of something larger."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return Malformed(self.reason, f"{place}{joint}{self.place}")


class Codec:
    """How values of one annotation are written and read. `encode` None: they are JSON as they are."""

    __slots__ = ("decode", "encode", "kinds", "word")

    def __init__(self, kinds: tuple[type, ...], encode: Encode | None, decode: Decode, word: str) -> None:
        self.kinds = kinds
        """The types that such values have."""
        self.encode = encode
        self.decode = decode
        self.word = word
        """For people: what is expected."""


class Words:
    """Codecs by annotation."""

    def __init__(
        self,
        references: Mapping[type, tuple[Encode, Callable[[int], Any]]] | None = None,
        checks: Mapping[type, Callable[[Any], None]] | None = None,
    ) -> None:
        """`references`: for classes that are no values, how one becomes an integer, and which one an integer names.

        `checks`: for classes that are values, what is asked of each that was read; it may raise `Malformed`.
        """
        self._checks = checks or {}
        self._codecs: dict[Any, Codec] = dict(_PLAIN)
        for kind, (encode, decode) in (references or {}).items():
            self._codecs[kind] = _reference(kind, encode, decode)

    def encoder(self, annotation: Any) -> Encode:
        """From a value to what `json.dumps` takes."""
        encode = self.codec(annotation).encode
        return _as_it_is if encode is None else encode

    def decoder(self, annotation: Any) -> Decode:
        """From what `json.loads` gives to a value; raises `Malformed`."""
        return self.codec(annotation).decode

    def codec(self, annotation: Any) -> Codec:
        """Of an annotation; a `TypeError` for one that nothing is known of, which is a mistake in our code."""
        known = self._codecs.get(annotation)
        if known is None:
            known = self._codecs[annotation] = self._make(annotation)
        return known

    def _make(self, annotation: Any) -> Codec:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin in (types.UnionType, Union):
            return self._union(arguments)
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return _array(self.codec(arguments[0]))
            return _fixed(tuple(map(self.codec, arguments)))
        if origin is frozenset:
            return _set(self.codec(arguments[0]))
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return _enumeration(annotation)
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return self._value(annotation)
        raise TypeError(f"nothing is known of {annotation!r}")

    def _value(self, kind: type) -> Codec:
        hints = get_type_hints(kind, localns=NAMES)
        fields = [(field.name, self.codec(hints[field.name]), field.default) for field in dataclasses.fields(kind)]
        return Codec(
            (kind,),
            _value_encoder(fields),
            _value_decoder(kind, fields, self._checks.get(kind)),
            f"an object ({kind.__name__})",
        )

    def _union(self, kinds_of: tuple[Any, ...]) -> Codec:
        codecs = [self.codec(member) for member in kinds_of]
        values = [codec for codec in codecs if dataclasses.is_dataclass(codec.kinds[0])]
        tagged = {codec.kinds[0].__name__: codec for codec in values} if len(values) > 1 else {}
        word = " or ".join(codec.word for codec in codecs) if not tagged else f"an object with {TAG!r}"
        kinds = tuple(kind for codec in codecs for kind in codec.kinds)
        encoders = {
            kind: _tagging(kind.__name__, codec.encode) if codec in tagged.values() else codec.encode
            for codec in codecs
            for kind in codec.kinds
        }
        untagged = [codec for codec in codecs if codec not in tagged.values()]
        return Codec(kinds, _choice_encoder(encoders), _choice_decoder(tagged, untagged, word), word)


V = TypeVar("V")


def shown(found: object) -> str:
    """A part of what was found, for an error."""
    if found is None:
        return "null"
    if isinstance(found, dict | list):
        return "an object" if isinstance(found, dict) else "an array"
    text = f'"{found}"' if isinstance(found, str) else str(found).lower() if isinstance(found, bool) else repr(found)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def fields_of(found: object, names: Mapping[str, bool]) -> dict[str, Any]:
    """An object with exactly these names, of which those with True must be there; raises `Malformed`."""
    if type(found) is not dict:
        raise Malformed(f"expected an object, found {shown(found)}")
    for name in found:
        if name not in names:
            raise Malformed(f"there is no {shown(name)} here; known are {', '.join(names)}")
    for name, needed in names.items():
        if needed and name not in found:
            raise Malformed(f"{name!r} is missing")
    return found


def _as_it_is(found: V) -> V:
    return found


def _within(place: str, decode: Decode, found: object) -> Any:
    try:
        return decode(found)
    except Malformed as error:
        raise error.within(place) from None


def _exactly(kind: type, word: str) -> Codec:
    def decode(found: object) -> Any:
        if type(found) is not kind:
            raise Malformed(f"expected {word}, found {shown(found)}")
        return found

    return Codec((kind,), None, decode, word)


def in_64_bits(found: int) -> int:
    """The integer; raises `Malformed` for one that no 64 bits hold, signed or not."""
    if not MIN_NUMBER <= found <= MAX_RECORDED_NUMBER:
        raise Malformed(f"expected a number from {MIN_NUMBER} to {MAX_RECORDED_NUMBER}, found {shown(found)}")
    return found


def _integer() -> Codec:
    def decode(found: object) -> int:
        if type(found) is not int:
            raise Malformed(f"expected an integer, found {shown(found)}")
        return in_64_bits(found)

    return Codec((int,), None, decode, "an integer")


def _number() -> Codec:
    def encode(given: float) -> object:
        return given if isfinite(given) else str(given)

    def decode(found: object) -> float:
        if type(found) is float:
            return found
        if type(found) is int:
            return in_64_bits(found)
        if type(found) is str and found in NOT_FINITE:
            return NOT_FINITE[found]
        raise Malformed(f"expected a number, found {shown(found)}")

    return Codec((float,), encode, decode, "a number")


def _bytes() -> Codec:
    def encode(given: bytes) -> object:
        return {"length": len(given), "sha256": digest_of(given)}

    def decode(found: object) -> Digested:
        known = fields_of(found, {"length": True, "sha256": True})
        length, digest = known["length"], known["sha256"]
        if type(length) is not int or not 0 <= length <= MAX_LENGTH:
            raise Malformed(f"expected a number of bytes, found {shown(length)}", "length")
        digits = type(digest) is str and len(digest) == DIGEST_DIGITS and digest.isascii()
        if not digits or set(digest) - set("0123456789abcdef"):
            raise Malformed(f"expected {DIGEST_DIGITS} hexadecimal digits, found {shown(digest)}", "sha256")
        return Digested(length, digest)

    return Codec((bytes, Digested), encode, decode, "an object with length and sha256")


def _reference(kind: type, encode: Encode, known: Callable[[int], Any]) -> Codec:
    def decode(found: object) -> Any:
        if type(found) is not int or not 0 <= found <= MAX_RECORDED_NUMBER:
            raise Malformed(f"expected a number from 0 to {MAX_RECORDED_NUMBER}, found {shown(found)}")
        return known(found)

    return Codec((kind,), encode, decode, "a number from 0")


def _enumeration(kind: type[Enum]) -> Codec:
    known = {member.value: member for member in kind}

    def encode(given: Enum) -> Any:
        return given.value

    def decode(found: object) -> Enum:
        if type(found) is not str or found not in known:
            raise Malformed(f"expected one of {', '.join(map(str, known))}, found {shown(found)}")
        return known[found]

    return Codec((kind,), encode, decode, f"a word ({kind.__name__})")


def _array(member: Codec) -> Codec:
    encode_member, decode_member = member.encode, member.decode

    def encode(given: tuple[Any, ...]) -> object:
        return given if encode_member is None else [encode_member(each) for each in given]

    def decode(found: object) -> tuple[Any, ...]:
        if type(found) is not list:
            raise Malformed(f"expected an array, found {shown(found)}")
        if len(found) > MAX_RECORDED_ENTRIES:
            raise Malformed(f"expected at most {MAX_RECORDED_ENTRIES} entries, found {len(found)}")
        return tuple([_within(f"[{index}]", decode_member, each) for index, each in enumerate(found)])

    return Codec((tuple,), encode, decode, "an array")


def _fixed(codecs: tuple[Codec, ...]) -> Codec:
    plain = all(member.encode is None for member in codecs)

    def encode(given: tuple[Any, ...]) -> object:
        if plain:
            return given
        pairs = zip(codecs, given, strict=True)
        return [each if member.encode is None else member.encode(each) for member, each in pairs]

    def decode(found: object) -> tuple[Any, ...]:
        if type(found) is not list or len(found) != len(codecs):
            raise Malformed(f"expected an array of {len(codecs)}, found {shown(found)}")
        pairs = enumerate(zip(codecs, found, strict=True))
        return tuple([_within(f"[{index}]", member.decode, each) for index, (member, each) in pairs])

    return Codec((tuple,), encode, decode, f"an array of {len(codecs)}")


def _set(member: Codec) -> Codec:
    array = _array(member)

    def encode(members: frozenset[Any]) -> object:
        return sorted(members)

    def decode(found: object) -> frozenset[Any]:
        return frozenset(array.decode(found))

    return Codec((frozenset,), encode, decode, "an array")


def _value_encoder(fields: list[tuple[str, Codec, Any]]) -> Encode:
    get = _getter([name for name, _, _ in fields])
    parts = [(name, codec.encode, default) for name, codec, default in fields]

    def encode(given: Any) -> object:
        found = {}
        for (name, encode_field, default), each in zip(parts, get(given), strict=True):
            if each is default or (each == default and type(each) is type(default)):
                continue
            found[name] = each if encode_field is None else encode_field(each)
        return found

    return encode


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All fields at once; `attrgetter` of one name gives no tuple, and takes no none."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda given: tuple([getattr(given, name) for name in names])


def _value_decoder(kind: type, fields: list[tuple[str, Codec, Any]], check: Callable[[Any], None] | None) -> Decode:
    names = {name: default is dataclasses.MISSING for name, _, default in fields}

    def decode(found: object) -> Any:
        known = fields_of(found, names)
        given = [
            _within(name, codec.decode, known[name]) if name in known else default for name, codec, default in fields
        ]
        made = kind(*given)
        if check is not None:
            check(made)
        return made

    return decode


def _tagging(name: str, encode: Encode | None) -> Encode:
    assert encode is not None

    def tagged(given: Any) -> object:
        return {TAG: name, **encode(given)}

    return tagged


def _choice_encoder(encoders: dict[type, Encode | None]) -> Encode:
    def encode(given: Any) -> object:
        encode_kind = encoders[type(given)]
        return given if encode_kind is None else encode_kind(given)

    return encode


def _choice_decoder(tagged: dict[str, Codec], untagged: list[Codec], word: str) -> Decode:
    others = [codec for codec in untagged if codec.kinds != (types.NoneType,)]
    optional = len(others) < len(untagged)

    def decode(found: object) -> Any:
        if found is None and optional:
            return None
        if tagged and type(found) is dict:
            rest = dict(found)
            name = rest.pop(TAG, None)
            codec = tagged.get(name) if type(name) is str else None
            if codec is None:
                raise Malformed(f"expected one of {', '.join(tagged)}, found {shown(name)}", TAG)
            return codec.decode(rest)
        if len(others) == 1 and not tagged:
            return others[0].decode(found)
        for codec in others:
            try:
                return codec.decode(found)
            except Malformed:
                continue
        raise Malformed(f"expected {word}, found {shown(found)}")

    return decode


def _nothing() -> Codec:
    def decode(found: object) -> None:
        if found is not None:
            raise Malformed(f"expected null, found {shown(found)}")

    return Codec((types.NoneType,), None, decode, "null")


_PLAIN: dict[Any, Codec] = {
    int: _integer(),
    bool: _exactly(bool, "true or false"),
    str: _exactly(str, "a text"),
    float: _number(),
    bytes: _bytes(),
    types.NoneType: _nothing(),
    None: _nothing(),
}
