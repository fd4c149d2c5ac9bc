"""What both directions of HPACK share: the static table (RFC 7541 appendix A), and integers (section 5.1)."""

Field = tuple[bytes, bytes]

STATIC: tuple[Field, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *((name, b"") for name in b"accept-language accept-ranges accept access-control-allow-origin age allow".split()),
    *((name, b"") for name in b"authorization cache-control content-disposition content-encoding".split()),
    *((name, b"") for name in b"content-language content-length content-location content-range content-type".split()),
    *((name, b"") for name in b"cookie date etag expect expires from host if-match if-modified-since".split()),
    *((name, b"") for name in b"if-none-match if-range if-unmodified-since last-modified link location".split()),
    *((name, b"") for name in b"max-forwards proxy-authenticate proxy-authorization range referer refresh".split()),
    *((name, b"") for name in b"retry-after server set-cookie strict-transport-security transfer-encoding".split()),
    *((name, b"") for name in b"user-agent vary via www-authenticate".split()),
)
"""Entry k has the index k + 1."""
FIRST_DYNAMIC = len(STATIC) + 1
"""Index of the newest entry of a dynamic table."""
DEFAULT_TABLE = 4_096  #: bytes of a dynamic table, when nobody has said anything else (RFC 9113 section 6.5.2)
OVERHEAD = 32  #: what an entry counts beside its name and value (section 4.1)

# The first bits of each representation (section 6)
INDEXED, INDEXED_LITERAL, RESIZED, NEVER_INDEXED, PLAIN_LITERAL = 0x80, 0x40, 0x20, 0x10, 0x00
HUFFMAN = 0x80  #: of a string's length


def integer(value: int, prefix: int, first: int) -> bytes:
    """An integer whose first bits share a byte with those of `first`; `prefix` is how many bits are left in it."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes((first | value,))
    parts = [first | most]
    value -= most
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
