"""Which header lists are well formed (RFC 9113 sections 8.1.1, 8.2 and 8.3; characters: RFC 9110 section 5).

A list that breaks a rule makes its message malformed: the stream is reset with PROTOCOL_ERROR and nobody looks at it.
Every rule here closes a hole: a field that two programs read in different ways, a line break that begins another field
in HTTP/1.1, a length that is not the length.
"""

import re
from collections.abc import Sequence

from cronoq_sansio.wire.hpack_tables import Field

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""A token without capitals: a field whose name has some is malformed (section 8.2.1)."""
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t !-~\x80-\xff]*[!-~\x80-\xff])?)?")
"""No control characters but tabs, and no blanks around it."""
_PATH = re.compile(rb"/[!$-~]*")
"""No blanks, no quotes and no fragment; what a path means is not looked at. `"` is 0x22, `#` is 0x23."""
_AUTHORITY = re.compile(rb"[!$-.0-9:;=A-Z\[\]_a-z~]*")
"""The characters of host and port (RFC 3986 section 3.2); no `@`: user information is not allowed (section 8.3.1)."""
_SCHEME = re.compile(rb"[a-z][a-z0-9+.\-]*", re.IGNORECASE)
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS = re.compile(rb"[1-9][0-9]{2}")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_OF_CONNECTION = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_OF_REQUEST = frozenset((b":method", b":scheme", b":path", b":authority"))
_CONNECT = b"CONNECT"

NO_LENGTH = -1  #: nobody said how long the content is


def request_fault(fields: Sequence[Field]) -> str:
    """What is wrong with the header list of a request; empty when nothing is."""
    pseudo: dict[bytes, bytes] = {}
    count = 0
    for name, value in fields:
        if not name.startswith(b":"):
            break
        if name not in _OF_REQUEST or name in pseudo:
            return "a pseudo-header field that is unknown, or there twice"
        pseudo[name] = value
        count += 1
    return _pseudo_fault(pseudo) or _regular_fault(fields[count:]) or _host_fault(pseudo, fields[count:])


def _pseudo_fault(pseudo: dict[bytes, bytes]) -> str:
    method, authority = pseudo.get(b":method"), pseudo.get(b":authority")
    if method is None or not _METHOD.fullmatch(method):
        return "no method, or none that can be"
    if authority is not None and not _AUTHORITY.fullmatch(authority):
        return "an authority with characters that none has"
    if method == _CONNECT:
        return "" if len(pseudo) == 2 and authority else "CONNECT is asked for with method and authority alone"
    path, scheme = pseudo.get(b":path"), pseudo.get(b":scheme")
    if scheme is None or not _SCHEME.fullmatch(scheme):
        return "no scheme, or none that can be"
    if path is None or not (_PATH.fullmatch(path) or (path == b"*" and method == b"OPTIONS")):
        return "no path, or one with characters that none has"
    return ""


def _host_fault(pseudo: dict[bytes, bytes], fields: Sequence[Field]) -> str:
    """Section 8.3.1: who is asked is said once, or twice alike."""
    authority = pseudo.get(b":authority")
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or (hosts and authority is not None and hosts[0] != authority):
        return "host and authority that are not the same"
    return ""


def response_fault(fields: Sequence[Field]) -> str:
    """What is wrong with the header list of a response; empty when nothing is."""
    if not fields or fields[0][0] != b":status" or not _STATUS.fullmatch(fields[0][1]):
        return "no status, or none that can be"
    if fields[0][1] == b"101":
        return "status 101, which HTTP/2 does not have"
    return _regular_fault(fields[1:])


def trailers_fault(fields: Sequence[Field]) -> str:
    """What is wrong with trailers; empty when nothing is."""
    return _regular_fault(fields)


def _regular_fault(fields: Sequence[Field]) -> str:
    """What is wrong with fields behind the pseudo-header fields."""
    for name, value in fields:
        if not _NAME.fullmatch(name):
            return "a pseudo-header field behind others" if name.startswith(b":") else "a field name that none can be"
        if not _VALUE.fullmatch(value):
            return "a field value with control characters, or blanks around it"
        if name in _OF_CONNECTION:
            return "a field that speaks of a connection, which HTTP/2 has no use for"
        if name == b"te" and value.lower() != b"trailers":
            return "a te that is not trailers"
    return ""


def content_length(fields: Sequence[Field]) -> int | None:
    """The length that a message says it has; `NO_LENGTH` when it says none, None when that cannot be read."""
    found = NO_LENGTH
    for name, value in fields:
        if name == b"content-length":
            if not _LENGTH.fullmatch(value) or (found != NO_LENGTH and int(value) != found):
                return None
            found = int(value)
    return found
