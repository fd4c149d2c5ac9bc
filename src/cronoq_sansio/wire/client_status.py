"""How the answers of a server become gRPC statuses, with a text that says what was met.

gRPC over HTTP/2, "Errors" and "Responses"; "HTTP to gRPC Status Code Mapping".
"""

from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.values import value
from cronoq_sansio.wire.hpack_decoder import HeaderList
from cronoq_sansio.wire.metadata import Metadata, percent_decode, response_metadata

REFUSED_STREAM = 7
NO_STATUS = "the server ended the call without a grpc-status"

#: gRPC over HTTP/2, "Errors": RST_STREAM code -> status, and its name for people.
_RESETS: dict[int, tuple[GrpcStatus, str]] = {
    0: (GrpcStatus.INTERNAL, "NO_ERROR"),
    1: (GrpcStatus.INTERNAL, "PROTOCOL_ERROR"),
    2: (GrpcStatus.INTERNAL, "INTERNAL_ERROR"),
    3: (GrpcStatus.INTERNAL, "FLOW_CONTROL_ERROR"),
    4: (GrpcStatus.INTERNAL, "SETTINGS_TIMEOUT"),
    5: (GrpcStatus.UNKNOWN, "STREAM_CLOSED"),
    6: (GrpcStatus.INTERNAL, "FRAME_SIZE_ERROR"),
    7: (GrpcStatus.UNAVAILABLE, "REFUSED_STREAM"),
    8: (GrpcStatus.CANCELLED, "CANCEL"),
    9: (GrpcStatus.INTERNAL, "COMPRESSION_ERROR"),
    10: (GrpcStatus.INTERNAL, "CONNECT_ERROR"),
    11: (GrpcStatus.RESOURCE_EXHAUSTED, "ENHANCE_YOUR_CALM"),
    12: (GrpcStatus.PERMISSION_DENIED, "INADEQUATE_SECURITY"),
}

#: "HTTP to gRPC Status Code Mapping"; anything else is UNKNOWN.
_HTTP: dict[bytes, GrpcStatus] = {
    b"400": GrpcStatus.INTERNAL,
    b"401": GrpcStatus.UNAUTHENTICATED,
    b"403": GrpcStatus.PERMISSION_DENIED,
    b"404": GrpcStatus.UNIMPLEMENTED,
    b"429": GrpcStatus.UNAVAILABLE,
    b"502": GrpcStatus.UNAVAILABLE,
    b"503": GrpcStatus.UNAVAILABLE,
    b"504": GrpcStatus.UNAVAILABLE,
}


@value
class Accepted:
    """What the headers of a response say."""

    fault: tuple[GrpcStatus, str] | None
    """Why it is not one of gRPC's."""
    gzip: bool
    """Messages may be compressed."""
    metadata: Metadata


@value
class Ended:
    """What trailers say."""

    status: GrpcStatus
    message: str
    metadata: Metadata


def read_response(headers: HeaderList) -> Accepted:
    """What well-formed headers of a response say; looked at once, as long as the header list is kept."""
    known = headers.memo
    if isinstance(known, Accepted):
        return known
    fields = dict(headers.fields)
    gzip = fields.get(b"grpc-encoding") == b"gzip"
    headers.memo = found = Accepted(_check_response(fields), gzip, response_metadata(headers.fields))
    return found


def read_trailers(headers: HeaderList) -> Ended:
    """What well-formed trailers say, or headers that are the whole answer; looked at once like those of a response."""
    known = headers.memo
    if isinstance(known, Ended):
        return known
    status, message = _read_status(dict(headers.fields))
    headers.memo = found = Ended(status, message, response_metadata(headers.fields))
    return found


def _check_response(fields: dict[bytes, bytes]) -> tuple[GrpcStatus, str] | None:
    """What is wrong with the headers of a response, if anything."""
    status = fields.get(b":status", b"")
    content_type = fields.get(b"content-type", b"")
    kind = content_type.decode("latin-1") or "no content-type"
    if status != b"200":
        code = _HTTP.get(status, GrpcStatus.UNKNOWN)
        return code, f"the server answered HTTP {status.decode('latin-1')} ({kind}) instead of gRPC"
    if not content_type.startswith(b"application/grpc"):
        return GrpcStatus.UNKNOWN, f"the server answered with content-type {kind!r} instead of application/grpc"
    encoding = fields.get(b"grpc-encoding", b"identity")
    if encoding not in (b"identity", b"gzip"):
        return GrpcStatus.INTERNAL, f"the server compresses with {encoding.decode('latin-1')!r}, which was not offered"
    return None


def _read_status(fields: dict[bytes, bytes]) -> tuple[GrpcStatus, str]:
    """`grpc-status` and `grpc-message` of trailers."""
    raw = fields.get(b"grpc-status")
    text = percent_decode(fields.get(b"grpc-message", b""))
    if raw is None:
        return GrpcStatus.UNKNOWN, NO_STATUS
    if raw.isdigit() and len(raw) <= 2 and int(raw) <= GrpcStatus.UNAUTHENTICATED:
        return GrpcStatus(int(raw)), text
    return GrpcStatus.UNKNOWN, f"the server ended the call with the unknown status {raw.decode('latin-1')!r}: {text}"


def describe_reset(code: int, fault: str) -> tuple[GrpcStatus, str]:
    """What the code of an RST_STREAM means for the call; `fault`: what the server did wrong, if it is our reset."""
    status, name = _RESETS.get(code, (GrpcStatus.UNKNOWN, f"code {code}"))
    if fault:
        return GrpcStatus.INTERNAL, f"the server's answer breaks HTTP/2: {fault}"
    return status, f"the server reset the call ({name})"


def describe_goaway(code: int, reason: str) -> str:
    """A GOAWAY in words; `reason` is its debug data."""
    name = _RESETS.get(code, (None, f"code {code}"))[1] if code else ""
    said = ": ".join(part for part in (name, reason) if part)
    return f"the server closes the connection ({said})" if said else "the server closes the connection"
