"""What the headers of a gRPC call ask for, and whether whoever sent them may (gRPC over HTTP/2, "Requests").

Order: is it gRPC at all, is there such a method, credentials, role; then, when calls are served at all, encoding and
timeout. All of it follows from the headers, so it is looked at once for a block of headers that comes again and again.
"""

from collections.abc import Callable, Sequence

from cronoq_sansio import limits as fixed
from cronoq_sansio.checks import invalid
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.access import Principal, allows
from cronoq_sansio.wire import status
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.metadata import Headers, application_metadata, is_grpc, parse_timeout
from cronoq_sansio.wire.protobuf_codec import ROUTES, Route

Outcome = tuple[str, str]
"""Of a call, for counters: its method, and `ok` or the code of the rejection."""
UNKNOWN = "unknown"
"""In place of a method that there is not: whoever asks for it chooses its name."""
Authenticate = Callable[[Headers], Principal | Rejection]
_MAX_PATH = 256  #: bytes of a path that an error repeats: a path of one byte, by its index, may be one of 4 KiB
_BAD_TIMEOUT = invalid("grpc-timeout: must be 1 to 8 digits and one of H, M, S, m, u, n")


class Refusal:
    """Whether calls are served at all: one for all connections of a process."""

    __slots__ = ("now",)

    def __init__(self, now: Rejection | None = None) -> None:
        self.now = now
        """What every call is told; None while calls are served."""


class Admitted:
    """What the headers of a call ask for, by somebody who may."""

    __slots__ = ("fault", "gzip", "principal", "route", "timeout")

    def __init__(
        self,
        route: Route,
        principal: Principal,
        timeout: int | None,
        gzip: bool,
        fault: Rejection | None,
    ) -> None:
        self.route = route
        self.principal = principal
        self.timeout = timeout
        self.gzip = gzip
        self.fault = fault
        """What is wrong with the call beside that: it is looked at when calls are served at all."""


class Refused:
    """What somebody is told who may not."""

    __slots__ = ("fields", "outcome", "text", "trailers")

    def __init__(self, fields: Sequence[Field], text: bytes, trailers: Headers, outcome: Outcome) -> None:
        self.fields = fields
        self.text = text
        """Content for somebody who does not speak gRPC; where there is none, all is one block."""
        self.trailers = trailers
        self.outcome = outcome


def look(headers: list[Field], authenticate: Authenticate) -> Admitted | Refused:
    """What a header list asks for, or what its sender is told."""
    fields = dict(headers)
    refused = _refuse_http(fields, len(headers))
    if refused is None:
        found = _judge(fields, headers, authenticate)
        if isinstance(found, Admitted):
            return found
        route = ROUTES.get(fields.get(b":path", b""))
        outcome = UNKNOWN if route is None else route.name, found.code.value
        return Refused(status.RESPONSE, b"", status.trailers(found), outcome)
    return refused


def _judge(fields: dict[bytes, bytes], headers: list[Field], authenticate: Authenticate) -> Admitted | Rejection:
    path = fields.get(b":path", b"")
    route = ROUTES.get(path)
    if route is None:
        return Rejection(Code.UNIMPLEMENTED, f"unknown method {path[:_MAX_PATH].decode('utf-8', 'replace')}")
    metadata = application_metadata(headers)
    if metadata is None:
        return invalid("metadata: a -bin value is not base64")
    principal = authenticate(metadata)
    if isinstance(principal, Rejection):
        return principal
    if not allows(principal, route.role):
        return Rejection(Code.PERMISSION_DENIED, f"{route.name} needs the role {route.role}")
    fault = None
    encoding, timeout, allowed = fields.get(b"grpc-encoding", b"identity"), fields.get(b"grpc-timeout"), None
    if encoding not in (b"identity", b"gzip"):
        details = (("grpc-accept-encoding", "identity,gzip"),)
        text = "grpc-encoding: only identity and gzip are supported"
        fault = Rejection(Code.UNIMPLEMENTED, text, details)
    elif timeout is not None:
        allowed = parse_timeout(timeout)
        if allowed is None:
            fault = _BAD_TIMEOUT
    deadline = None if route.streaming else allowed
    return Admitted(route, principal, deadline, encoding == b"gzip", fault)


def _refuse_http(fields: dict[bytes, bytes], count: int) -> Refused | None:
    """The answer to a request that is not gRPC, or whose headers are too many."""
    if count > fixed.MAX_HEADER_FIELDS:
        return _http(fields, 431, f"{count} header fields, at most {fixed.MAX_HEADER_FIELDS} are allowed")
    if fields.get(b":method") != b"POST":
        return _http(fields, 405, "gRPC calls are POST requests")
    if not is_grpc(fields.get(b"content-type", b"")):
        return _http(fields, 415, "content-type must be application/grpc")
    return None


def _http(fields: dict[bytes, bytes], code: int, message: str) -> Refused:
    text = b"" if fields.get(b":method") == b"HEAD" else message.encode() + b"\n"  # RFC 9110 section 9.3.2
    rejection = invalid(message)
    return Refused(status.http_refusal(code), text, status.trailers(rejection), (UNKNOWN, rejection.code.value))
