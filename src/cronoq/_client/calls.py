"""Calls as their callers see them: one answer, or a stream."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from cronoq._client.loops import Event
from cronoq._client.methods import Method
from cronoq.errors import ClientError
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.limits import CLIENT_UNSENT
from cronoq_sansio.wire.client_call import CallEnded, ClientCall, MessageReceived
from cronoq_sansio.wire.metadata import Metadata

if TYPE_CHECKING:
    from cronoq._client.link import Link


def failure(end: CallEnded) -> ClientError | TimeoutError:
    """What a caller gets for a status that is not OK.

    DEADLINE_EXCEEDED, and CANCELLED for the same reason (client.md section 2), is the builtin `TimeoutError`; its
    `__cause__` is the `ClientError`.
    """
    code = end.status.name.lower()
    error = ClientError(code, end.message, metadata=end.metadata, unprocessed=end.unprocessed)
    if end.status is GrpcStatus.DEADLINE_EXCEEDED or (
        end.status is GrpcStatus.CANCELLED and "timeout expired" in end.message.lower()
    ):
        late = TimeoutError(end.message or "the deadline of the call passed")
        late.__cause__ = error
        return late
    return error


def decode(method: Method, data: bytes) -> Any:
    """A message of the server. `ClientError` `internal` when it is not one of this method."""
    try:
        return method.response.FromString(data)
    except DecodeError:
        raise _unreadable(method) from None


def _unreadable(method: Method) -> ClientError:
    return ClientError("internal", f"{method.name}: the server's answer is not a valid message")


class UnaryOwner:
    """Waits for one answer."""

    __slots__ = ("done", "end")

    def __init__(self, done: Event) -> None:
        self.done = done
        self.end: CallEnded | None = None

    def on_headers(self, metadata: Metadata) -> None:
        """Comes of streams only."""

    def on_message(self, event: MessageReceived) -> None:
        """Comes of streams only."""

    def on_resumed(self) -> None:
        """Comes of streams only."""

    def on_end(self, event: CallEnded) -> None:
        """Wake the caller."""
        self.end = event
        self.done.set()


class Stream:
    """A call whose messages come one by one; made by `Channel.stream`.

    One task may send and another receive; not two of the same.
    """

    def __init__(self, method: Method, link: "Link") -> None:
        self.initial_metadata: Metadata = ()
        """What the server sent with its headers."""
        self._method = method
        self._link = link
        self._call: ClientCall | None = None
        self._inbox: deque[MessageReceived] = deque()
        self._accepted = False
        self._end: CallEnded | None = None
        self._closed = False
        self._news: Event = link.loop.new_event()
        self._room: Event = link.loop.new_event()

    def attach(self, call: ClientCall) -> None:
        """The call was started."""
        self._call = call

    # --- what the connection tells

    def on_headers(self, metadata: Metadata) -> None:
        """The server has accepted the call."""
        self.initial_metadata = metadata
        self._accepted = True
        self._news.set()

    def on_message(self, event: MessageReceived) -> None:
        """A message; flow control bounds how many wait here."""
        if not self._inbox:
            self._news.set()
        self._inbox.append(event)

    def on_resumed(self) -> None:
        """`send` may go on."""
        self._room.set()

    def on_end(self, event: CallEnded) -> None:
        """No more messages after those that are here."""
        self._end = event
        self._news.set()
        self._room.set()

    # --- what the caller does

    @property
    def end(self) -> CallEnded | None:
        """How the server ended the call; messages from before may still wait."""
        return self._end

    @property
    def max_receive_bytes(self) -> int:
        """Bound of a message, in bytes; may be changed."""
        assert self._call is not None
        return self._call.max_receive

    @max_receive_bytes.setter
    def max_receive_bytes(self, limit: int) -> None:
        assert self._call is not None
        self._call.max_receive = limit

    async def wait_headers(self) -> None:
        """Until the server has accepted the call. `ClientError` or TimeoutError when it ends with an error instead."""
        while not self._accepted and self._end is None:
            await self._wait_news()
        if not self._accepted and self._end is not None and self._end.status is not GrpcStatus.OK:
            raise failure(self._end)

    async def receive(self) -> Any:
        """The next message; None = the server ended the call with OK. `ClientError` or TimeoutError otherwise."""
        if not await self._wait_message():
            return None
        event = self._inbox.popleft()
        self._link.consumed(event.call, event.size)
        return decode(self._method, event.data)

    async def receive_all(self) -> list[Any] | None:
        """All messages that are here, at least one; else like `receive`."""
        if not await self._wait_message():
            return None
        events = list(self._inbox)
        self._inbox.clear()
        self._link.consumed(events[0].call, sum([event.size for event in events]))
        parse = self._method.response.FromString
        try:
            return [parse(event.data) for event in events]
        except DecodeError:
            raise _unreadable(self._method) from None

    async def _wait_message(self) -> bool:
        """Until there is one; False = there will be none."""
        while not self._inbox:
            if self._closed:
                raise ClientError("cancelled", "the stream was closed")
            if self._end is not None:
                if self._end.status is GrpcStatus.OK:
                    return False
                raise failure(self._end)
            await self._wait_news()
        return True

    @property
    def room(self) -> int:
        """Bytes that `send_all` may be given without having waited; 0 or less = wait first."""
        return CLIENT_UNSENT if self._call is None else CLIENT_UNSENT - self._call.unsent

    async def send(self, message: Any) -> None:
        """Send a message; waits while `limits.CLIENT_UNSENT` bytes are unsent.

        Does nothing when the call is over: `receive` says how it ended.
        """
        await self.wait_room()
        self.send_nowait(message)

    async def wait_room(self) -> None:
        """Until `send` would not wait, or the call is over."""
        call = self._call
        assert call is not None
        while call.unsent >= CLIENT_UNSENT and self._end is None and not self._closed:
            self._room = self._link.loop.new_event()
            await self._room.wait()

    def send_nowait(self, message: Any) -> None:
        """The same without waiting, whatever is unsent."""
        if self._call is not None and self._end is None and not self._closed:
            self._link.machine.send(self._call, message.SerializeToString())
            self._link.poke()

    def send_all(self, messages: list[bytes]) -> None:
        """Send messages that are encoded already, without waiting."""
        if self._call is not None and self._end is None and not self._closed:
            self._link.machine.send_all(self._call, messages)
            self._link.poke()

    def before_write(self, ask: Callable[[], None]) -> None:
        """Call `ask` once, before the connection writes next, which it does at once."""
        self._link.defer(ask)

    async def half_close(self) -> None:
        """Nothing more will be sent; the server ends the call when it has answered."""
        if self._call is not None and self._end is None and not self._closed:
            self._link.machine.half_close(self._call)
            self._link.poke()

    def close(self) -> None:
        """Leave: a call that is not over is cancelled. Idempotent."""
        if not self._closed:
            self._closed = True
            self._inbox.clear()
            if self._call is not None and self._end is None:
                self._link.machine.cancel(self._call)
                self._link.poke()
            self._news.set()
            self._room.set()

    def abandon(self) -> None:
        """`close`, from any thread and at any time: it is done when the connection hears something next."""
        self._link.abandoned.append(self)

    async def _wait_news(self) -> None:
        self._news = self._link.loop.new_event()
        await self._news.wait()
