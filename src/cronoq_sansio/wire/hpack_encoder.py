"""HPACK, writing: header lists -> header blocks (RFC 7541 sections 2.3, 4 and 6). One encoder per connection.

Two kinds of fields. Those that come again are put into the dynamic table, so that next time each is one or two bytes,
and the block of a list that changes nothing in the table is kept and written again as it is. Those that do not come
again, such as the message of an error or a time, are literals that leave the table alone; they follow at the end.
"""

from collections.abc import Iterable, Sequence

from cronoq_sansio.limits import ENCODER_TABLE
from cronoq_sansio.wire import huffman
from cronoq_sansio.wire.hpack_tables import (
    FIRST_DYNAMIC,
    HUFFMAN,
    INDEXED,
    INDEXED_LITERAL,
    OVERHEAD,
    PLAIN_LITERAL,
    RESIZED,
    STATIC,
    Field,
    integer,
)

_MAX_KEPT = 64  #: lists; a client has few methods and tokens, a server few kinds of answers
_MAX_LITERAL = 128  #: bytes of a field in `once` that is kept: time limits come again, texts of errors rarely
_MAX_CODED = 256  #: bytes of a string that is written in the code; beyond, time counts more than some bytes less
_STATIC_FIELDS = {field: index for index, field in reversed(list(enumerate(STATIC, 1)))}
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(STATIC, 1)))}


class Encoder:
    """Of one direction of one connection. Blocks must be sent in the order in which they were written."""

    __slots__ = ("_count", "_entries", "_kept", "_limit", "_literals", "_size", "_smallest", "version")

    def __init__(self) -> None:
        self.version = 0
        """As long as it stays the same, a block without `once` that was written stays what it is."""
        self._entries: dict[Field, int] = {}
        """Of the dynamic table, oldest first, with the number of each: they are counted as they come."""
        self._count = 0
        self._size = 0
        self._limit = ENCODER_TABLE
        self._smallest: int | None = None
        """The smallest limit since the last block, when there was another one."""
        self._kept: dict[tuple[Field, ...], bytes] = {}
        self._literals: dict[Field, bytes] = {}
        """Of fields in `once`; they mean the same whatever the table holds."""

    def resize(self, size: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE; the table is never larger than `limits.ENCODER_TABLE`."""
        limit = min(size, ENCODER_TABLE)
        if limit == self._limit:
            return
        if self._smallest is None or limit < self._smallest:
            self._smallest = limit
        self._limit = limit
        self._forget()
        self._evict(limit)

    def encode(self, fields: Sequence[Field], once: Iterable[Field] = ()) -> bytes:
        """The block of `fields`, which may come again, and of those in `once` after them."""
        key = tuple(fields)
        block = self._kept.get(key) if self._smallest is None else None
        if block is None:
            block = self._write(key)
        for field in once:
            block += self._literals.get(field) or self._write_literal(field)
        return block

    def _write_literal(self, field: Field) -> bytes:
        name, value = field
        literal = _literal(PLAIN_LITERAL, 4, _STATIC_NAMES.get(name, 0), name, value)
        if len(literal) <= _MAX_LITERAL:
            if len(self._literals) >= _MAX_KEPT:
                self._literals.clear()
            self._literals[field] = literal
        return literal

    def _write(self, fields: tuple[Field, ...]) -> bytes:
        count = self._count
        parts = [self._announcement(), *map(self._field, fields)]
        block = b"".join(parts)
        if self._count == count and not parts[0]:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[fields] = block
        return block

    def _announcement(self) -> bytes:
        """Section 4.2: the smallest limit since the last block, and the last one."""
        smallest, self._smallest = self._smallest, None
        if smallest is None:
            return b""
        self.version += 1
        announced = integer(smallest, 5, RESIZED)
        return announced if smallest == self._limit else announced + integer(self._limit, 5, RESIZED)

    def _field(self, field: Field) -> bytes:
        index = _STATIC_FIELDS.get(field)
        if index is not None:
            return integer(index, 7, INDEXED)
        number = self._entries.get(field)
        if number is not None:
            return integer(FIRST_DYNAMIC + self._count - number, 7, INDEXED)
        name, value = field
        size = len(name) + len(value) + OVERHEAD
        index = _STATIC_NAMES.get(name, 0)
        if 2 * size > self._limit:  # it would drive out most of the others
            return _literal(PLAIN_LITERAL, 4, index, name, value)
        self._forget()
        self._evict(self._limit - size)
        self._count += 1
        self._entries[field] = self._count
        self._size += size
        return _literal(INDEXED_LITERAL, 6, index, name, value)

    def _forget(self) -> None:
        """The table moves: blocks that were written mean something else from now on."""
        self._kept.clear()
        self.version += 1

    def _evict(self, limit: int) -> None:
        entries = self._entries
        while self._size > limit:
            name, value = oldest = next(iter(entries))
            del entries[oldest]
            self._size -= len(name) + len(value) + OVERHEAD


def _literal(kind: int, prefix: int, index: int, name: bytes, value: bytes) -> bytes:
    """A field that is written out, its name at least where the static table does not have it (section 6.2)."""
    head = integer(index, prefix, kind)
    return head + _string(value) if index else head + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """Section 5.2: in the code where that is shorter."""
    if len(text) <= _MAX_CODED:
        code = huffman.encode(text)
        if len(code) < len(text):
            return integer(len(code), 7, HUFFMAN) + code
    return integer(len(text), 7, 0) + text
