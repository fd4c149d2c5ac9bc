"""How a call ends, as HTTP/2 header fields (gRPC over HTTP/2, "Responses").

A caller's fault gets the status of its code in `errors.MAPPINGS`. What is no gRPC call at all gets an HTTP status.
"""

from cronoq_sansio.errors import MAPPINGS, Rejection
from cronoq_sansio.limits import MAX_STATUS_MESSAGE
from cronoq_sansio.wire.metadata import Headers, encode_entry, percent_encode

RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
OK = ((b"grpc-status", b"0"),)
"""What goes with nearly every answer."""


def trailers(rejection: Rejection) -> Headers:
    """The trailers of a call that failed. Details of the rejection become metadata."""
    fields = [
        (b"grpc-status", b"%d" % MAPPINGS[rejection.code].grpc),
        (b"grpc-message", percent_encode(rejection.message, MAX_STATUS_MESSAGE)),
    ]
    fields.extend(encode_entry(name, value) for name, value in rejection.details)
    return fields


def http_refusal(status: int) -> Headers:
    """The head of the answer to a request that is not a gRPC call; why is said in its content, and in its trailers."""
    fields = [(b":status", b"%d" % status), (b"content-type", b"text/plain")]
    if status == 405:
        fields.append((b"allow", b"POST"))
    return fields
