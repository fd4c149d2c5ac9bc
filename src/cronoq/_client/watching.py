"""A watch: a stream of events that can be entered, so that one knows when the server has subscribed."""

from types import TracebackType
from typing import Self

from cronoq._client import methods
from cronoq._client.calls import Stream
from cronoq._client.channel import Channel
from cronoq._client.results import Event, read_event
from cronoq_sansio.wire import pb


class Watch:
    """Made by `Client.watch`. Iterating yields `Event`s until the server ends the stream; its errors raise.

    Either `async with` it and iterate inside, or iterate at once; then the call ends at `aclose`, or once the iterator
    is collected. `ClientError` `data_loss`: this side read too slowly, events are missing.
    """

    def __init__(self, channel: Channel, request: pb.WatchRequest, timeout: float | None) -> None:
        self._channel = channel
        self._request = request
        self._timeout = timeout
        self._stream: Stream | None = None
        self._over = False

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        stream = await self._subscribe()
        try:
            message = await stream.receive()
        except BaseException:
            self._close()
            raise
        if message is None:
            self._close()
            raise StopAsyncIteration
        return read_event(message)

    async def aclose(self) -> None:
        """End the call. Idempotent."""
        self._close()

    def __del__(self) -> None:
        # The collector may run anywhere, so the connection does the rest when it is awake.
        if self._stream is not None and not self._over:
            self._stream.abandon()

    async def _subscribe(self) -> Stream:
        if self._stream is None:
            self._stream = await self._channel.open_stream(methods.WATCH, self._request, timeout=self._timeout)
        return self._stream

    def _close(self) -> None:
        self._over = True
        if self._stream is not None:
            self._stream.close()
