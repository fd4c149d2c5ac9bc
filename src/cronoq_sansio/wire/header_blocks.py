"""HPACK (RFC 7541) where the same headers come again and again: a block that changes nothing in the table is kept.

A block made of references alone means the same as long as the dynamic table stands still. So writer and reader keep
such blocks, and drop all of them whenever the table moves.
"""

from hpack import Decoder, Encoder

from cronoq_sansio.wire.metadata import Headers

_MAX_KEPT = 64  #: blocks; callers use few methods and tokens
_MAX_BLOCK = 128  #: bytes of a block that is kept
_NOT_INDEXED = 0x00  #: section 6.2.2: a literal field whose name is a literal too


class BlockWriter:
    """Encodes request headers."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._kept: dict[tuple[tuple[bytes, bytes], ...], bytes] = {}

    def resize(self, size: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE, or less."""
        encoder = self._encoder
        if size == encoder.header_table_size:
            return  # hpack would forget an announcement that is still due
        encoder.header_table_size = size
        # Only the smallest and the last size need to be told (section 4.2); hpack would keep every one.
        changes = encoder.table_size_changes
        if len(changes) > 2:
            changes[:] = [min(changes), changes[-1]]
        self._kept.clear()

    def write(self, headers: tuple[tuple[bytes, bytes], ...], once: Headers) -> bytes:
        """The block of `headers`, and of the fields of `once`, whose values do not come again, after them."""
        block = self._kept.get(headers)
        if block is None:
            block = self._encode(headers)
        for name, value in once:
            block += _literal(name, value)
        return block

    def _encode(self, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
        encoder = self._encoder
        moving = bool(encoder.table_size_changes)
        entries = encoder.header_table.dynamic_entries
        # New entries come in at the front. The old front is held, so that no new one can have its identity.
        count, front = len(entries), entries[0] if entries else None
        block: bytes = encoder.encode(headers)
        if moving or len(entries) != count or (entries and entries[0] is not front):
            self._kept.clear()
        elif len(block) <= _MAX_BLOCK:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[headers] = block
        return block


class BlockReader:
    """Decodes response headers. The lists that it returns may be shared: they are not to be changed."""

    def __init__(self, max_list: int) -> None:
        """`max_list`: bytes of a decoded header list (RFC 9113 section 6.5.2)."""
        self._decoder = Decoder(max_header_list_size=max_list)
        self._kept: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """The fields of a block, in order. `hpack.HPACKError` when it is malformed or too long."""
        headers = self._kept.get(block)
        if headers is not None:
            return headers
        table = self._decoder.header_table
        entries, size = table.dynamic_entries, table.maxsize
        count, front = len(entries), entries[0] if entries else None
        headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        if len(entries) != count or (entries and entries[0] is not front) or table.maxsize != size:
            self._kept.clear()
        elif len(block) <= _MAX_BLOCK:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[block] = headers
        return headers


def _literal(name: bytes, value: bytes) -> bytes:
    """A field that is not to be indexed, not compressed; both parts below 127 bytes (section 5.1)."""
    assert len(name) < 127 and len(value) < 127
    return bytes((_NOT_INDEXED, len(name))) + name + bytes((len(value),)) + value
