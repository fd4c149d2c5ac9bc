"""Pieces of protobuf's encoding that the hot path reads and writes itself (the Protobuf encoding specification).

A message within a message costs the library a second object, and a number that it serializes a whole message. Where
that is most of the work, what is inside is cut out here, and numbers are written here; all else is the library's.
"""


def tag(number: int, wire_type: int) -> int:
    """How a field begins; `number` up to 15."""
    return number << 3 | wire_type


VARINT, LENGTH = 0, 2  #: wire types
MAX_INSIDE = 0x3FFF  #: bytes of a message that is found inside another one
SHORT = [bytes((number,)) for number in range(0x80)]  #: numbers of one byte


class Only:
    """Finds the message inside a message that has nothing else.

    Of a message of some length that is so there is one beginning: those are remembered.
    """

    __slots__ = ("_beginnings", "_tag")

    def __init__(self, tag: int) -> None:
        """`tag`: of the field."""
        self._tag = tag
        self._beginnings: dict[int, bytes] = {}
        """By length of the whole."""

    def begins(self, message: bytes) -> int:
        """Where the one inside begins; 0 when it is not so, or above `MAX_INSIDE`: this saves nothing there."""
        beginning = self._beginnings.get(len(message))
        if beginning is None:
            beginning = self._find(len(message))
        return len(beginning) if message.startswith(beginning) else 0

    def _find(self, whole: int) -> bytes:
        for inside in (whole - 2, whole - 3):
            if 0 <= inside <= MAX_INSIDE:
                beginning = bytes((self._tag,)) + varint(inside)
                if len(beginning) + inside == whole:
                    self._beginnings[whole] = beginning
                    return beginning
        return b""


def varint(number: int) -> bytes:
    """A number from 0 to 2^64 - 1. Ids that follow each other have all bytes but one in common: they are remembered."""
    if number < 0x80:
        return SHORT[number]
    rest = REST.get(number >> 7)
    if rest is None:
        rest = _write(number >> 7)
        if len(REST) >= _MAX_REST:
            REST.clear()
        REST[number >> 7] = rest
    return MORE[number & 0x7F] + rest


def _write(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


REST: dict[int, bytes] = {}
"""All bits of a number but the last 7, by these; what `varint` has written lately."""
_MAX_REST = 1_024
MORE = [bytes((number | 0x80,)) for number in range(0x80)]  #: the last 7 bits of a number, and more follow
