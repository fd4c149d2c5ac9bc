"""The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).

The code is canonical: of two symbols the one with the shorter code comes first, of two with codes of the same length
the smaller one, and each code is the one before it plus one, shifted to its own length. So the lengths in appendix B
are the whole table.

Decoding walks the tree of the code a byte at a time: from the node that was reached, over the symbols that end in the
byte, to another node. Where a byte leads from a node is worked out when that is met for the first time. 256 nodes and
256 bytes bound what is remembered; what peers send meets some hundreds.
"""

_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
)
"""Bits of the code of each byte. The code of EOS, which no string contains, is 30 ones: the last of the longest."""
_EOS, _EOS_BITS = 256, 30
_MAX_PADDING = 7  #: bits, all of them ones; 8 would be a byte that says nothing
_ROOT = 0


def _codes() -> list[str]:
    """The bits of each symbol, EOS included, as text."""
    lengths = [*_LENGTHS, _EOS_BITS]
    codes = [""] * len(lengths)
    code = before = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        code <<= length - before
        codes[symbol] = f"{code:0{length}b}"
        code, before = code + 1, length
    return codes


def _tree(codes: list[str]) -> tuple[list[list[int]], frozenset[int]]:
    """Per node where 0 and 1 lead: another node, or ~symbol; and the nodes in which a string may end."""
    nodes: list[list[int]] = [[_ROOT, _ROOT]]
    for symbol, code in enumerate(codes):
        at = _ROOT
        for bit in code[:-1]:
            following = nodes[at][bit == "1"]
            if following == _ROOT:
                following = nodes[at][bit == "1"] = len(nodes)
                nodes.append([_ROOT, _ROOT])
            at = following
        nodes[at][code[-1] == "1"] = ~symbol
    ends = [_ROOT]
    for _ in range(_MAX_PADDING):
        ends.append(nodes[ends[-1]][1])
    return nodes, frozenset(ends)


_CODES = _codes()
_BITS = dict(enumerate(_CODES[:_EOS]))
_NODES, _ENDS = _tree(_CODES)
_steps: dict[int, tuple[bytes, int]] = {}
"""By node << 8 | byte: the symbols that end in the byte, and the node that it leads to."""


def encode(text: bytes) -> bytes:
    """The code of a string."""
    bits = text.decode("latin-1").translate(_BITS)
    if not bits:
        return b""
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def decode(code: bytes) -> bytes | None:
    """The string of a code; None when it contains EOS, or ends in something else than up to seven ones."""
    steps, node = _steps, _ROOT
    found = []
    for byte in code:
        step = steps.get(node << 8 | byte) or _step(node, byte)
        if step is None:
            return None
        symbols, node = step
        if symbols:
            found.append(symbols)
    return b"".join(found) if node in _ENDS else None


def _step(node: int, byte: int) -> tuple[bytes, int] | None:
    """Where the byte leads from the node; None = EOS."""
    symbols = bytearray()
    at = node
    for shift in range(7, -1, -1):
        at = _NODES[at][byte >> shift & 1]
        if at < 0:
            if ~at == _EOS:
                return None
            symbols.append(~at)
            at = _ROOT
    _steps[node << 8 | byte] = step = (bytes(symbols), at)
    return step
