"""HPACK, reading: header blocks -> header lists (RFC 7541 section 3.2 and 6). One decoder per connection.

Peers send the same headers again and again. A block that changes nothing in the dynamic table means the same as long as
the table stands still, so it is decoded once and kept, with whatever the reader of the list has found out about it. A
block that moves the table makes it forget all of them: an index then leads elsewhere.

What a peer can make this keep: a dynamic table of `DEFAULT_TABLE` bytes, and `_MAX_KEPT` blocks of `_MAX_BLOCK` bytes.
What it can make this do: a list is built up to `max_list` bytes, where a block of references to one large entry stops.
"""

from cronoq_sansio.values import value
from cronoq_sansio.wire import huffman
from cronoq_sansio.wire.hpack_tables import (
    DEFAULT_TABLE,
    FIRST_DYNAMIC,
    HUFFMAN,
    INDEXED,
    INDEXED_LITERAL,
    OVERHEAD,
    RESIZED,
    STATIC,
    Field,
)
from cronoq_sansio.wire.http2_words import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

_MAX_KEPT = 64  #: blocks; a client has few methods and tokens
_MAX_BLOCK = 256  #: bytes of a block that is kept
_MAX_INTEGER = 4  #: bytes after the first: 2**28, above every length and index that can be meant
_MAX_RESIZES = 2  #: at the beginning of a block (section 4.2): the smallest and the last


@value
class Unreadable:
    """A block that cannot be read, or is too much; the connection must end."""

    code: int
    """Of RFC 9113 section 7."""
    reason: str


class HeaderList:
    """The fields of a block, in order. It may be that of many requests: `fields` is not to be changed."""

    __slots__ = ("fault", "fields", "length", "memo", "trailing")

    def __init__(self, fields: list[Field]) -> None:
        self.fields = fields
        self.fault: str | None = None
        """What is wrong with them as those of a request or response; None = nobody has looked, empty = nothing."""
        self.trailing: str | None = None
        """The same as those of trailers."""
        self.length = 0
        """The `content-length` (`http2_fields.content_length`), once somebody has looked."""
        self.memo: object = None
        """What a reader of well-formed headers or trailers knows about them; it goes when they do."""


class Decoder:
    """Of one direction of one connection. After a `Unreadable` it is not to be used any more."""

    __slots__ = ("_allowed", "_entries", "_kept", "_limit", "_max_list", "_size", "known")

    def __init__(self, max_list: int) -> None:
        """`max_list`: bytes of a header list, counted as in RFC 9113 section 6.5.2."""
        self._max_list = max_list
        self._entries: list[Field] = []
        """Oldest first."""
        self._size = 0
        self._limit = self._allowed = DEFAULT_TABLE
        self._kept: dict[bytes, HeaderList] = {}
        self.known = self._kept.get
        """The header list of a block that came before and still means the same; None for any other."""

    def decode(self, block: bytes) -> HeaderList | Unreadable:
        """The header list of a whole block. A fault is of the connection: what follows cannot be read any more."""
        known = self._kept.get(block)
        if known is not None:
            return known
        at = 0
        if block and block[0] & 0xE0 == RESIZED:
            at = self._resize(block)
            if at < 0:
                return _malformed("a table size that is not allowed")
        found = self._fields(block, at)
        if isinstance(found, Unreadable):
            return found
        fields, still = found
        headers = HeaderList(fields)
        if still and not at and len(block) <= _MAX_BLOCK:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[block] = headers
        return headers

    def _fields(self, block: bytes, at: int) -> tuple[list[Field], bool] | Unreadable:
        """The fields from a place on, and whether the table stands still."""
        fields: list[Field] = []
        room, end, still = self._max_list, len(block), True
        while at < end:
            first = block[at]
            if first & INDEXED:
                index, at = integer(block, at, 0x7F)
                field = self._at(index)
                if field is None:
                    return _malformed("an index that leads nowhere")
            else:
                if first & INDEXED_LITERAL:
                    index, at = integer(block, at, 0x3F)
                elif first & RESIZED:
                    return _malformed("a table size within a block")
                else:
                    index, at = integer(block, at, 0x0F)
                name: bytes | None
                if index:
                    named = self._at(index)
                    name = None if named is None else named[0]
                else:
                    name, at = _string(block, at)
                if name is None:
                    return _malformed("a field without a name")
                value, at = _string(block, at)
                if value is None:
                    return _malformed("a field without a value")
                field = name, value
                if first & INDEXED_LITERAL:
                    self._insert(field)
                    still = False
            room -= len(field[0]) + len(field[1]) + OVERHEAD
            if room < 0:
                return Unreadable(ENHANCE_YOUR_CALM, f"header list above {self._max_list} bytes")
            fields.append(field)
        return fields, still

    def _at(self, index: int) -> Field | None:
        if index < FIRST_DYNAMIC:
            return STATIC[index - 1] if index > 0 else None
        behind = index - FIRST_DYNAMIC + 1
        return self._entries[-behind] if behind <= len(self._entries) else None

    def _insert(self, field: Field) -> None:
        """Section 4.4: an entry that is too large leaves the table empty, and is no fault."""
        size = len(field[0]) + len(field[1]) + OVERHEAD
        self._kept.clear()
        self._evict(self._limit - size)
        if size <= self._limit:
            self._entries.append(field)
            self._size += size

    def _evict(self, limit: int) -> None:
        entries, size, count = self._entries, self._size, 0
        while size > limit and count < len(entries):
            name, value = entries[count]
            size -= len(name) + len(value) + OVERHEAD
            count += 1
        if count:
            del entries[:count]
            self._size = size

    def _resize(self, block: bytes) -> int:
        """Take over the table sizes that a block begins with: where they end, or -1."""
        at = 0
        for _ in range(_MAX_RESIZES):
            if at >= len(block) or block[at] & 0xE0 != RESIZED:
                break
            size, at = integer(block, at, 0x1F)
            if not 0 <= size <= self._allowed:
                return -1
            self._limit = size
            self._kept.clear()
            self._evict(size)
        return at


def integer(block: bytes, at: int, most: int) -> tuple[int, int]:
    """Section 5.1: an integer and the place after it; -1 when it is cut off, or larger than any that is meant."""
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 7 * _MAX_INTEGER, 7):
        if at >= len(block):
            break
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return -1, at


def _string(block: bytes, at: int) -> tuple[bytes | None, int]:
    """Section 5.2: a string and the place after it; None when it is cut off, or not in the code."""
    if at >= len(block):
        return None, at
    first = block[at]
    size, at = integer(block, at, 0x7F)
    end = at + size
    if size < 0 or end > len(block):
        return None, at
    text = block[at:end]
    return (huffman.decode(text) if first & HUFFMAN else text), end


def _malformed(what: str) -> Unreadable:
    return Unreadable(COMPRESSION_ERROR, f"header block: {what}")
