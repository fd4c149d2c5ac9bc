"""What our HPACK encoder writes, our decoder and hpack read back as it was, whatever table sizes the peer sets.

An input is a list of orders: a header list of fields that come again or once, or a table size.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from hpack import Decoder as Reader  # noqa: E402

from cronoq_sansio.limits import ENCODER_TABLE  # noqa: E402
from cronoq_sansio.wire.hpack_decoder import Decoder, Unreadable  # noqa: E402
from cronoq_sansio.wire.hpack_encoder import Encoder  # noqa: E402
from cronoq_sansio.wire.hpack_tables import STATIC, Field  # noqa: E402
from fuzz.engine import main  # noqa: E402

TEXTS = (b"", b"a", b"cronoq", bytes(range(256)), b"long text " * 20, b"\xff" * 30, b"y" * 1_900, b"z" * 2_100)
MAX_LIST = 1 << 20


class Orders:
    """Reads numbers and texts off an input; zero and nothing behind its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        """A byte."""
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def text(self) -> bytes:
        """One that comes again and again, or bytes of the input."""
        kind = self.number()
        if kind < 128:
            return TEXTS[kind % len(TEXTS)] + bytes([kind]) * (kind % 3)
        start, self.at = self.at, self.at + kind - 128
        return self.data[start : self.at]

    def field(self) -> Field:
        """One of the static table, a value for one of its names, or anything."""
        kind = self.number()
        if kind < 64:
            return STATIC[kind % len(STATIC)]
        return (STATIC[kind % len(STATIC)][0] if kind < 160 else self.text()), self.text()


def check(data: bytes) -> None:
    """The invariant."""
    orders, encoder, ours, theirs = Orders(data), Encoder(), Decoder(MAX_LIST), Reader(MAX_LIST)
    while orders.at < len(data):
        order = orders.number()
        if order >= 224:
            size = orders.number() << 8 | orders.number()
            encoder.resize(size)
            allowed = min(size, ENCODER_TABLE)
            ours._allowed = allowed
            theirs.max_allowed_table_size = allowed
            continue
        fields = [orders.field() for _ in range(order % 8)]
        once = [orders.field() for _ in range(order // 8 % 3)]
        block = encoder.encode(fields, once)
        assert encoder._size == sum(len(name) + len(text) + 32 for name, text in encoder._entries) <= encoder._limit
        mine = ours.decode(block)
        assert not isinstance(mine, Unreadable), mine
        assert mine.fields == [*fields, *once]
        assert [(bytes(name), bytes(text)) for name, text in theirs.decode(block, raw=True)] == mine.fields
        assert list(encoder._entries) == ours._entries


if __name__ == "__main__":
    sys.exit(main(check, __file__))
