"""What a peer can run into, in words: for the peer, for the operator's log and counters, and for the documentation.

Whoever exceeds one of these loses a connection, or a stream where it says so; nobody else does. The numbers, each with
its reason, are in `limits.py`.
"""

from dataclasses import replace

from cronoq_sansio import limits
from cronoq_sansio.clock import seconds
from cronoq_sansio.values import value
from cronoq_sansio.wire.http2_words import ENHANCE_YOUR_CALM, Fault


@value
class PeerLimit:
    """One limit."""

    name: str
    """Of its counter; unique."""
    says: str
    """What the peer is told: the debug data of a GOAWAY. Where nothing can be told, what happened."""
    remedy: str
    """What an operator can do about it."""
    flood: bool = False
    """Frames that cost us and that no peer needs: those that send them again and again are kept out for a while."""
    usual: bool = False
    """Happens to peers that mean well, too, so there is no line in the log."""
    debt: int = 0
    """Useless frames that the end of a connection by this counts as, beside its own."""


_HOSTILE = "it is hostile or broken: find out what runs there; if it goes on, keep the address out with a firewall"
_SLOW = "look at the network between, and at what runs there: it may be no gRPC client, or one that hangs"


def _flood(name: str, says: str, remedy: str = _HOSTILE) -> PeerLimit:
    return PeerLimit(name, says, remedy, flood=True, debt=limits.USELESS_CONNECTION)


RESETS = _flood("resets", "too many streams are reset")
PINGS = _flood("pings", "too many PINGs", "its keepalive is too frequent: at most one PING a second while it is silent")
SETTINGS = _flood("settings", "too many SETTINGS")
SETTINGS_ENTRIES = _flood("settings_entries", f"more than {limits.MAX_SETTINGS} SETTINGS in a frame")
GOAWAYS = _flood("goaways", "too many GOAWAYs")
EMPTY_DATA = _flood("empty_data", "too many DATA frames without a byte")
TINY_DATA = _flood(
    "tiny_data",
    f"too many DATA frames of less than {limits.TINY_DATA} bytes that complete no message",
    "it cuts its messages into pieces of a few bytes: let it send them whole; or it is hostile",
)
TINY_READS = _flood(
    "tiny_reads",
    f"too many reads of less than {limits.TINY_READ} bytes that complete no frame",
    "it sends its frames in pieces of a few bytes: let it write them whole; or it is hostile",
)
PRIORITIES = _flood("priorities", "too many PRIORITY frames")
UNKNOWN_FRAMES = _flood("unknown_frames", "too many frames of unknown types")
WINDOW_UPDATES = _flood("window_updates", "too many WINDOW_UPDATEs")
HEADER_BYTES = _flood("header_bytes", f"a header block above {limits.MAX_HEADER_BLOCK} bytes")
CONTINUATIONS = _flood("continuations", f"a header block in more than {limits.MAX_CONTINUATIONS} frames")
HEADER_LIST = _flood(
    "header_list", f"header list above {limits.MAX_HEADER_LIST} bytes", "it sends too much metadata, or is hostile"
)
REFUSED_CALLS = _flood(
    "refused_calls",
    "too many calls that were refused",
    "its credentials are wrong, or it speaks another protocol; or it is hostile",
)
UNREAD_REPLIES = _flood("unread_replies", "replies are not read", "it sends and does not read: it hangs or is hostile")

NOT_HTTP2 = PeerLimit(
    "not_http2",
    "the peer does not speak HTTP/2",
    "it may speak HTTP/1.1, or TLS to a port without it, or no TLS to one with it: look at its address of the server",
)
BROKEN_RULE = PeerLimit(
    "broken_rule",
    "a rule of HTTP/2 was broken",
    "find out what runs there: another version of its HTTP/2 library may keep the rule; if it comes back again and"
    " again, it is hostile: keep the address out with a firewall",
    debt=limits.USELESS_BREACH,
)
PREFACE = PeerLimit("preface", f"no HTTP/2 preface and SETTINGS within {seconds(limits.PREFACE_TIMEOUT):g} s", _SLOW)
HEADERS = PeerLimit("headers", f"header block not complete within {seconds(limits.HEADERS_TIMEOUT):g} s", _SLOW)
SLOW_FRAME = PeerLimit(
    "slow_frame",
    f"a frame not complete within {seconds(limits.FRAME_TIMEOUT):g} s, or one of content that brought less than"
    f" {limits.MIN_MESSAGE_RATE} bytes a second",
    _SLOW,
)
UNFINISHED = PeerLimit(
    "unfinished",
    "clients that had no call yet have sent too much that is not complete",
    "find out who sends frames and headers and does not end them; if it goes on, keep the address out with a firewall",
)
HANDSHAKE = PeerLimit("handshake", f"no TLS handshake within {seconds(limits.TLS_HANDSHAKE_TIMEOUT):g} s", _SLOW)
TLS_FAILED = PeerLimit(
    "tls_failed",
    "the TLS handshake failed",
    "a peer without TLS belongs to a server without it; or it does not trust our certificate, or the name in it",
)
KEEPALIVE = PeerLimit("keepalive", "ping not answered", "", usual=True)
IDLE = PeerLimit("idle", f"no open stream for {seconds(limits.IDLE_TIMEOUT):g} s", "", usual=True)
UNREAD = PeerLimit(
    "unread", f"the peer has read nothing for {seconds(limits.STREAM_STALL_TIMEOUT):g} s", "it hangs, or is hostile"
)
STALLED = PeerLimit(
    "stalled", f"a stream made no progress for {seconds(limits.STREAM_STALL_TIMEOUT):g} s and was reset", _SLOW
)
SLOW_MESSAGE = PeerLimit(
    "slow_message",
    f"a message brought less than {limits.MIN_MESSAGE_RATE} bytes a second and its stream was reset",
    _SLOW,
)
SLOW_ANSWER = PeerLimit(
    "slow_answer",
    f"an answer was taken at less than {limits.MIN_MESSAGE_RATE} bytes a second and its stream was reset",
    _SLOW,
)
WORKER_BEHIND = PeerLimit(
    "worker_behind", "a worker does not read and its stream was reset", "look at what keeps the worker from reading"
)

HTTP_FRAMES = PeerLimit(
    "http_frames",
    "too many or too large HTTP/2 frames on the HTTP port",
    "only checks of health belong there, and few of them; or it is hostile: let http_addr be reached by those alone",
)

HTTP_LINES = PeerLimit("http_lines", "too many requests, or lines of requests, on the HTTP port", HTTP_FRAMES.remedy)

CONNECTIONS = PeerLimit(
    "connections",
    "too many connections",
    "raise limits.max_connections, and the limit of open files with it, or let fewer connect",
)
CONNECTIONS_OF_PEER = PeerLimit(
    "connections_of_peer",
    "too many connections from this address",
    "raise limits.max_connections_per_peer, or let fewer connect from there",
)
MADE_ROOM = PeerLimit(
    "made_room",
    "too many connections: this one had no call and made room for another one",
    "find out who connects and asks for nothing, or raise limits.max_connections or limits.max_connections_per_peer",
)
KEPT_OUT = PeerLimit(
    "kept_out",
    "connections from this address have wasted too much; try again later",
    "see the lines before this one; where a proxy hides the addresses of its clients, set"
    " limits.max_connections_per_peer = 0",
)

ALL = (
    *(RESETS, PINGS, SETTINGS, SETTINGS_ENTRIES, GOAWAYS, EMPTY_DATA, TINY_DATA, TINY_READS, PRIORITIES),
    *(UNKNOWN_FRAMES, WINDOW_UPDATES, HEADER_BYTES, CONTINUATIONS, HEADER_LIST, REFUSED_CALLS, UNREAD_REPLIES),
    *(NOT_HTTP2, BROKEN_RULE, PREFACE, HEADERS, SLOW_FRAME, UNFINISHED, HANDSHAKE, TLS_FAILED, KEEPALIVE, IDLE, UNREAD),
    *(STALLED, SLOW_MESSAGE, SLOW_ANSWER, WORKER_BEHIND, HTTP_FRAMES, HTTP_LINES),
    *(CONNECTIONS, CONNECTIONS_OF_PEER, MADE_ROOM, KEPT_OUT),
)
"""Every limit, in the order of the documentation."""


def broken(rule: str) -> PeerLimit:
    """`BROKEN_RULE`, and which one it was."""
    return replace(BROKEN_RULE, says=f"{BROKEN_RULE.says}: {rule}")


def tls_failed(cause: str) -> PeerLimit:
    """`TLS_FAILED`, and why: the words of OpenSSL."""
    return replace(TLS_FAILED, says=f"{TLS_FAILED.says}: {cause}")


class Exceeded(Fault):
    """The peer has exceeded a limit."""

    def __init__(self, limit: PeerLimit) -> None:
        super().__init__(ENHANCE_YOUR_CALM, limit.says)
        self.limit = limit
