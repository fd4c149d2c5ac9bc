"""The words of HTTP/2: frames, codes, and who is something else.

RFC 9113: section 6 for frames and settings, section 7 for codes.
"""

import re
import struct

from cronoq_sansio.limits import MAX_FRAME

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER = 9
MAX_STREAM_ID = 2**31 - 1
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
SMALLEST_FRAME = 16_384  #: that a peer must take, and what it takes unless it says more (section 6.5.2)
MAX_DATA = MAX_FRAME  #: of one DATA frame to a peer that would take larger ones: other streams want a turn
WHOLE_DATA = DEFAULT_WINDOW // 2  #: what a connection gets room for again, if its peer opens a half-used window

#: Reasons of `Failed` that tell what the other side is, for whoever knows a remedy.
SPEAKS_HTTP1 = "the server answers in HTTP/1, not in HTTP/2"
SPEAKS_TLS = "the server answers in TLS"
NOT_HTTP2 = "what answers there does not speak HTTP/2"
HUNG_UP = "the server closed the connection before it said anything"
SILENT = "the server accepted the connection and then sent nothing"
PING_LOST = "the server does not answer any more (no reply to a ping)"

# Section 6: frame types and flags; section 7: error codes; section 6.5.2: settings.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT = 0, 1, 3, 4
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 5, 6, 7, 8, 9, 11
TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME_SIZE, MAX_HEADER_LIST = 1, 2, 3, 4, 5, 6

HEAD = struct.Struct(">BHBBL")
SETTING = struct.Struct(">HL")
LONG = struct.Struct(">L")
PING_PAYLOAD = b"cronoq\0\0"
_TLS_RECORDS = (0x15, 0x16)  #: alert and handshake
MAX_REASON = 256  #: bytes of a GOAWAY's debug data that are kept


class Fault(Exception):
    """The peer broke a rule of the connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def unpad(payload: bytes) -> bytes:
    """Section 6.1: the first byte says how many bytes of padding are at the end."""
    if not payload or payload[0] >= len(payload):
        raise Fault(PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]


def strip(flags: int, stream_id: int, payload: bytes) -> bytes:
    """The header block of HEADERS: without padding, and without a priority, which has no meaning (section 6.2)."""
    if flags & PADDED:
        payload = unpad(payload)
    if flags & WITH_PRIORITY:
        if len(payload) < 5:
            raise Fault(PROTOCOL_ERROR if flags & PADDED else FRAME_SIZE_ERROR, "HEADERS too short for their priority")
        if LONG.unpack_from(payload)[0] & MAX_STREAM_ID == stream_id:
            raise Fault(PROTOCOL_ERROR, "a stream that depends on itself")
        payload = payload[5:]
    return payload


def cut(parts: list[bytes], limit: int) -> tuple[list[bytes], list[bytes]]:
    """The first `limit` bytes, and the rest. There are more than that; what is long is copied once."""
    size = count = 0
    while size < limit:
        size += len(parts[count])
        count += 1
    first, rest = parts[:count], parts[count:]
    if size > limit:
        last = first.pop()
        at = limit - size + len(last)
        first.append(last[:at])
        rest.insert(0, last[at:])
    return first, rest


def name_peer(first: bytes) -> str | None:
    """What answers there, if it is not HTTP/2; None for the head of a SETTINGS frame."""
    if first.startswith(b"HTTP/1"):
        return SPEAKS_HTTP1
    if len(first) > 1 and first[0] in _TLS_RECORDS and first[1] == 3:
        return SPEAKS_TLS
    if len(first) < FRAME_HEADER or first[3] != SETTINGS or first[4] & ACK or first[5:9] != b"\0\0\0\0":
        return NOT_HTTP2
    return None


def may_be_http1(first: bytes) -> bool:
    """So far these could be the first bytes of a request of HTTP/1, and it is not sure."""
    return _HTTP1_BEGUN.fullmatch(first) is not None


def answer_to(first: bytes) -> bytes:
    """What somebody is told who speaks HTTP/1 to a server of HTTP/2 (RFC 9110 section 15.6.6); others: nothing."""
    return _ANSWER if _HTTP1_REQUEST.match(first) else b""


LONGEST_METHOD = 10
_HTTP1_BEGUN = re.compile(rb"[A-Z]{1,%d}|(?!PRI )[A-Z]{3,%d} " % (LONGEST_METHOD, LONGEST_METHOD))
_HTTP1_REQUEST = re.compile(rb"CONNECT [!-~]|(?!PRI )[A-Z]{3,%d} (?:/|\*|h)" % LONGEST_METHOD)
_TEXT = b"This port is for gRPC: it speaks HTTP/2 with prior knowledge. Health checks: see server.http_addr.\n"
_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\n"
    b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TEXT), _TEXT)
)
