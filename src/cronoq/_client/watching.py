"""A watch: a stream of events that can be entered, so that one knows when the server has subscribed."""

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from cronoq._client import methods
from cronoq._client.calls import Stream
from cronoq._client.channel import Channel
from cronoq._client.results import Event, read_event
from cronoq_sansio.wire import pb


class Watch:
    """Made by `Client.watch`. Iterating yields `Event`s until the server ends the stream; its errors raise.

    Either `async with` it and iterate inside, or iterate at once; then leaving the loop ends the call as soon as the
    iterator is collected, or at `aclose`. `ClientError` `data_loss`: this side read too slowly, events are missing.
    """

    def __init__(self, channel: Channel, request: pb.WatchRequest, timeout: float | None) -> None:
        self._channel = channel
        self._request = request
        self._timeout = timeout
        self._stream: Stream | None = None
        self._events = self._iterate()

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        """End the call. Idempotent."""
        await self._events.aclose()
        if self._stream is not None:
            self._stream.close()

    async def _subscribe(self) -> Stream:
        if self._stream is None:
            self._stream = await self._channel.open_stream(methods.WATCH, self._request, timeout=self._timeout)
        return self._stream

    async def _iterate(self) -> AsyncGenerator[Event, None]:
        stream = await self._subscribe()
        try:
            while (message := await stream.receive()) is not None:
                yield read_event(message)
        finally:
            stream.close()
