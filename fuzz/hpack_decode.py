"""Of the same header blocks our HPACK decoder and hpack read the same lists, or ours refuses by a limit of its own.

An input is one connection's blocks, each with two bytes of length before it. What was refused ends the connection.
Lists that are read again from memory are those that were read first.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from hpack import Decoder as Reader  # noqa: E402
from hpack.exceptions import HPACKError  # noqa: E402

from cronoq_sansio.limits import MAX_HEADER_LIST  # noqa: E402
from cronoq_sansio.wire.hpack_decoder import Decoder, Unreadable  # noqa: E402
from fuzz.engine import main  # noqa: E402


def blocks(data: bytes) -> list[bytes]:
    """The blocks of an input; a length that is too large takes what there is."""
    found, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def check(data: bytes) -> None:
    """The invariant."""
    ours, theirs = Decoder(MAX_HEADER_LIST), Reader(MAX_HEADER_LIST)
    for block in blocks(data):
        known = ours.known(block)
        mine = ours.decode(block)
        if known is not None:
            assert mine is known
        try:
            other = [(bytes(name), bytes(text)) for name, text in theirs.decode(block, raw=True)]
        except HPACKError:
            assert isinstance(mine, Unreadable), (block, mine.fields)
            return
        if isinstance(mine, Unreadable):
            assert beyond(block), (block, mine, other)
            return
        assert mine.fields == other, block
        assert ours._entries[::-1] == [(bytes(name), bytes(text)) for name, text in theirs.header_table.dynamic_entries]


def beyond(block: bytes) -> bool:
    """Whether ours may refuse it: table sizes after the second, and integers of more than five bytes."""
    sizes = at = 0
    while at < len(block) and block[at] & 0xE0 == 0x20:
        sizes += 1
        at += 1
        if block[at - 1] & 0x1F == 0x1F:
            while at < len(block) and block[at] & 0x80:
                at += 1
            at += 1
    return sizes > 2 or any(all(byte & 0x80 for byte in block[at + 1 : at + 5]) for at in range(len(block) - 5))


if __name__ == "__main__":
    sys.exit(main(check, __file__))
