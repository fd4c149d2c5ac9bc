"""The words of the gRPC client: a call, and the events that tell what became of it."""

from collections import deque
from typing import Any

from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.values import value
from cronoq_sansio.wire.client_status import Accepted
from cronoq_sansio.wire.framing import MessageReader
from cronoq_sansio.wire.metadata import Headers, Metadata


class ClientCall:
    """One call. `owner` is the caller's; the rest belongs to the machine."""

    # Most of these are the same for most calls: then they are the class's alone.
    stream_id = 0
    """0 = waiting for a stream."""
    over = False
    # sending
    queue: deque[bytes] | None = None
    """Of a stream: messages after `partial`, framed."""
    partial = b""
    """What is being sent …"""
    sent = 0
    """… and how much of it is out."""
    unsent = 0
    """Bytes of messages that are not out yet."""
    ended = False
    """Nothing more will be sent."""
    end_sent = False
    ready = False
    # receiving
    accepted: Accepted | None = None
    """What the headers of the response said."""
    reader: MessageReader | None = None
    answer = b""
    """Unless `streaming`: the message that came …"""
    messages = 0
    """… and how many did."""
    held = 0
    """Bytes of messages that the owner has not taken yet."""
    credit = 0
    """Bytes that came and for which the server got no new credit yet."""

    def __init__(
        self, path: bytes, headers: Headers, deadline: int | None, streaming: bool, max_receive: int, owner: Any
    ) -> None:
        self.path = path
        self.headers = headers
        self.deadline = deadline
        self.streaming = streaming
        self.max_receive = max_receive
        """Bound of a message; the owner may change it."""
        self.owner = owner

    @property
    def waiting(self) -> bool:
        """No stream yet."""
        return not self.stream_id and not self.over


@value
class Connected:
    """The server speaks HTTP/2."""


@value
class HeadersReceived:
    """The server has accepted the call."""

    call: ClientCall
    metadata: Metadata


@value
class MessageReceived:
    """A message of a stream, decompressed. Tell `consumed` when it was taken."""

    call: ClientCall
    data: bytes
    size: int
    """For `consumed`."""


@value
class CallEnded:
    """The call is over."""

    call: ClientCall
    status: GrpcStatus
    message: str
    metadata: Metadata
    """Initial and trailing, in order."""
    unprocessed: bool
    """No server has looked at it."""
    data: bytes = b""
    """The answer, decompressed, of a call that is no stream and whose status is OK."""


@value
class SendingResumed:
    """What a stream had to send is below `limits.CLIENT_UNSENT` again."""

    call: ClientCall


@value
class GoingAway:
    """No new calls on this connection. `too_many_pings`: the server wants fewer of them."""

    reason: str
    too_many_pings: bool


@value
class ConnectionLost:
    """The connection is over, and all its calls are."""

    reason: str


ClientEvent = Connected | HeadersReceived | MessageReceived | CallEnded | SendingResumed | GoingAway | ConnectionLost
