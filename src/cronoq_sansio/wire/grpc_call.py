"""A unary call that was recognised whole: its message is here, and what is left to do is to answer it.

That is nearly every call, so it costs little: no reader, no queue, no window. Its answer goes out as one piece when the
peer's windows and the output have room for it; when they do not, the call becomes a `GrpcStream`, which has all that.
"""

from typing import TYPE_CHECKING

from cronoq_sansio import limits as fixed
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.messages import Call, Message
from cronoq_sansio.wire import status
from cronoq_sansio.wire.protobuf_codec import Route

if TYPE_CHECKING:
    from cronoq_sansio.service.access import Principal
    from cronoq_sansio.wire.grpc import GrpcServer
    from cronoq_sansio.wire.grpc_stream import GrpcStream


class QuickCall(Call):
    """What the service knows of such a call, and its `sink` in one; that is None once the call is over.

    Whoever makes one sets everything: a constructor in Python would cost more than all of that.
    """

    __slots__ = ("connection", "id", "principal", "route")

    __init__ = object.__init__

    connection: "GrpcServer"
    id: int
    route: Route
    principal: "Principal"

    @property
    def call(self) -> Call:
        """Like that of a `GrpcStream`."""
        return self

    def reply(self, message: Message) -> Rejection | None:
        """Answer: status OK, or as `GrpcStream.reply` says."""
        connection = self.connection
        http2 = connection.http2
        # `prompt`, in one piece with this: else a peer could have a thousand large answers encoded for nothing.
        if http2.unsent < fixed.MAX_PROMPT and not connection.ready and not connection.starved:
            data = self.route.write(message)  # type: ignore[misc]
            if http2.answer(self.id, status.RESPONSE, data, status.OK):
                self.sink = None  # itself: nothing would be freed before the next collection of garbage
                del connection.calls[self.id]
                return None
        return connection.grow(self).reply(message)

    def reject(self, rejection: Rejection) -> None:
        """End with the status of the rejection."""
        connection = self.connection
        connection.http2.send_headers(self.id, status.RESPONSE, status.trailers(rejection), end=True)
        connection.forget_call(self)


def whole_call(connection: "GrpcServer", stream: "GrpcStream") -> QuickCall:
    """What a stream becomes of which nothing but the request was kept, and that is handed on."""
    call: QuickCall = QuickCall()
    call.sink = call
    call.open = True
    call.budget = call.timer = call.wait = None
    call.connection = connection
    call.id = stream.id
    call.route = stream.route
    call.principal = stream.principal
    return call
