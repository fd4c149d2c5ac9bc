"""The words of HTTP/2: frames, codes, and how a server is told apart that is something else.

RFC 9113: section 6 for frames and settings, section 7 for codes.
"""

import struct

from cronoq_sansio.limits import MAX_FRAME

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER = 9
MAX_STREAM_ID = 2**31 - 1
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
MAX_DATA = 4 * MAX_FRAME  #: of one DATA frame to a peer that would take larger ones: other streams want a turn

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


def name_peer(first: bytes) -> str | None:
    """What answers there, if it is not HTTP/2; None for the head of a SETTINGS frame."""
    if first.startswith(b"HTTP/1"):
        return SPEAKS_HTTP1
    if len(first) > 1 and first[0] in _TLS_RECORDS and first[1] == 3:
        return SPEAKS_TLS
    if len(first) < FRAME_HEADER or first[3] != SETTINGS or first[4] & ACK or first[5:9] != b"\0\0\0\0":
        return NOT_HTTP2
    return None
