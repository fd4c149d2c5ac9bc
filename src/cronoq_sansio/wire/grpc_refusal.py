"""What calls are told that end here. Of one that is no gRPC: an HTTP status, and a sentence for who reads it with curl.

Text is DATA, so it may have to wait for the peer's window. Then it is a stream like any other: it counts against
`max_concurrent_streams`, and is reset when the peer does not take it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.access import Principal
from cronoq_sansio.wire.grpc_stream import GrpcStream
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.metadata import Headers
from cronoq_sansio.wire.protobuf_codec import Route

if TYPE_CHECKING:
    from cronoq_sansio.wire.grpc import GrpcServer

FINISHED = Rejection(Code.UNAVAILABLE, "the server closes the connection; connect again")
TOO_LATE = Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline passed before its message was complete")
NO_TURN = Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline passed before its turn came")
CROWDED = Rejection(Code.OVERLOADED, "the server holds too many unfinished messages of all clients; try again later")
WORKER_ENDED = "the worker closed its side of the stream"

_NOBODY = Principal("", frozenset())
_NONE = Route(b"", "", "", False, None, None)


class Text(GrpcStream):
    """A text that waits to go out; nothing that comes in means anything."""

    __slots__ = ("fields", "text", "trailers")

    def __init__(
        self, connection: "GrpcServer", stream_id: int, fields: Sequence[Field], text: bytes, trailers: Headers
    ) -> None:
        super().__init__(connection, stream_id, _NONE, _NOBODY)
        self.fields = fields
        self.text = text
        self.trailers = trailers
        self.closing = True

    def pump(self) -> int:
        """Send what the windows allow, and the trailers behind the last of it. Returns the bytes of DATA."""
        http2 = self.connection.http2
        if not self.headers_sent:
            self.headers_sent = True
            http2.send_headers(self.id, self.fields)
        data = self.text[: max(0, http2.sendable(self.id))]
        if data:
            http2.send_data(self.id, data)
            self.progress += len(data)
            self.text = self.text[len(data) :]
        self.blocked = bool(self.text)
        if not self.blocked:
            http2.send_headers(self.id, (), self.trailers, end=True)
            self.connection.forget(self)
        return len(data)
