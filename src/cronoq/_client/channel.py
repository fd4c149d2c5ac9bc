"""Calls to one server, over a connection that is made when it is needed and made anew when it is lost.

Works under Trio and asyncio. Under Trio the channel is used as `async with Channel(…) as channel:`, because the tasks
of a connection need an owner. Under asyncio that is the best form too, but not needed: the tasks belong to the loop.

A channel belongs to one event loop at a time. When that loop is closed, the next one gets a fresh connection; a second
loop at the same time is an error, and so is any use after `aclose` or the end of the block.
"""

import math
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from cronoq._client.calls import Stream, UnaryOwner, decode, failure
from cronoq._client.dialing import Credentials, PemPaths
from cronoq._client.link import Link, LinkSettings
from cronoq._client.loops import Loop, current_loop, current_run, is_asyncio
from cronoq._client.methods import Method
from cronoq._client.options import read_options
from cronoq._client.target import parse_target
from cronoq.errors import ClientError
from cronoq_sansio.clock import SECOND, ns, seconds
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.limits import CLIENT_CONNECT_TIMEOUT, MAX_CALL_MOVES, MAX_CALL_REFUSALS, REFUSAL_PAUSE
from cronoq_sansio.wire.client_call import CallEnded
from cronoq_sansio.wire.hpack_tables import Field
from cronoq_sansio.wire.metadata import Headers, Metadata, request_entry

Token = str | Callable[[], str | None] | None
CallMetadata = Iterable[tuple[str, str | bytes]]

_FOREVER = 100 * 365 * 86_400
_NO_HEADERS: Headers = []  #: not to be changed


class Channel:
    """Calls to one server. Making one does no I/O and needs no event loop.

    `target` is `host:port`, see `parse_target`; `token` a text, or a callable that gives one for each call; `tls` is
    implied by `https://` and by `credentials`. `max_receive_bytes` bounds an answer or message (16 MiB), `options` are
    gRPC channel arguments of which the known ones work and the others warn, `connect_timeout` is in seconds.
    `quiet`: what there is to warn of was warned of before.
    """

    def __init__(
        self,
        target: str,
        *,
        token: Token = None,
        tls: bool = False,
        credentials: Credentials | None = None,
        max_receive_bytes: int | None = None,
        options: Sequence[tuple[str, Any]] | None = None,
        connect_timeout: float = seconds(CLIENT_CONNECT_TIMEOUT),
        quiet: bool = False,
    ) -> None:
        self.target = target
        parsed = parse_target(target)
        if credentials is not None and not _is_credentials(credentials):
            raise TypeError(
                "credentials: an ssl.SSLContext or PemPaths(ca=…, cert=…, key=…) is needed, "
                f"not {type(credentials).__module__}.{type(credentials).__name__}"
            )
        self._token = token
        self._secure = bool(tls or credentials is not None or parsed.tls)
        known = read_options(options or (), quiet=quiet)
        self._max_send = known.max_send
        self._settings = LinkSettings(
            target=parsed,
            tls=self._secure,
            credentials=credentials,
            server_name=known.server_name,
            authority=known.authority or known.server_name or parsed.authority,
            max_receive=max_receive_bytes or known.max_receive,
            ping_interval=known.ping_interval,
            ping_timeout=known.ping_timeout,
            connect_timeout=ns(connect_timeout),
        )
        if token and not self._secure and not parsed.is_loopback and not quiet:
            warnings.warn(
                f"the token goes to {parsed.authority} in clear: use TLS (https://… or tls=True)", stacklevel=3
            )
        self._said: tuple[str, Field] = "", (b"", b"")
        """The token of the latest call, and its header field."""
        self._run: Any = None
        self._loop: Loop | None = None
        """Of `_run`."""
        self._tasks: TaskGroup | None = None
        self._links: dict[Link, Any] = {}
        """Those that are running; under asyncio with their tasks."""
        self._link: Link | None = None
        self._entered = False
        self._closed = False

    # --- life

    async def __aenter__(self) -> Self:
        """Bind to the running loop; no connection is made yet."""
        run = current_run()
        self._check_run(run)
        if self._entered:
            raise RuntimeError("this client is in use in an `async with` block already")
        self._entered = True
        if not is_asyncio(run):
            tasks = anyio.create_task_group()
            await tasks.__aenter__()
            self._tasks = tasks
        self._bind(run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        await self._close()
        if tasks is not None:
            # The block's own error is not handed over: it would come back in an exception group.
            await tasks.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """End all calls and disconnect. Idempotent. Under Trio leaving the `async with` block does it."""
        await self._close()

    async def _close(self) -> None:
        self._closed = True
        links, self._link = list(self._links.items()), None
        for link, _ in links:
            link.close()
        if is_asyncio(self._run) and self._run is current_run():
            for _, task in links:
                await _joined(task)

    def _check_run(self, run: Any) -> None:
        if self._closed:
            raise RuntimeError("this client is closed; make a new one")
        if self._run is not None and self._run is not run and not (is_asyncio(self._run) and self._run.is_closed()):
            raise RuntimeError("this client is in use in another event loop; make one for each")

    def _bind(self, run: Any) -> None:
        if self._run is not run:
            self._run = run
            self._loop = current_loop()
            self._link = None
            self._links.clear()

    def _acquire_loop(self) -> Loop:
        """The loop that runs, to which the channel belongs from now on."""
        loop = self._loop
        if loop is None or self._closed or not loop.here():
            run = current_run()
            self._check_run(run)
            if not is_asyncio(run) and self._tasks is None:
                raise RuntimeError("under Trio a client is used as `async with Client(…) as client:`")
            self._bind(run)
            loop = self._loop
            assert loop is not None
        return loop

    def _spawn(self, link: Link) -> None:
        if self._tasks is not None:
            self._links[link] = None
            self._tasks.start_soon(self._run_link, link)
        else:
            self._links[link] = self._run.create_task(self._run_link(link))

    async def _run_link(self, link: Link) -> None:
        try:
            await link.run()
        finally:
            self._links.pop(link, None)

    async def _connected(self, deadline: int | None) -> Link:
        """A connection on which calls can be started."""
        loop = self._acquire_loop()
        link = self._link
        if link is None or not link.usable:
            link = self._link = Link(self._settings, loop, self._ping_less)
            self._spawn(link)
        if not link.ready.is_set():
            began = loop.now()
            left = None if deadline is None else max(deadline - began, 0) / SECOND
            with anyio.move_on_after(left):
                await link.ready.wait()
            if not link.ready.is_set():
                raise link.describe_silence(seconds(loop.now() - began))
        if link.error is not None:
            raise ClientError(link.error.code, link.error.message, unprocessed=True)
        return link

    def _ping_less(self) -> None:
        self._settings.ping_interval *= 2

    # --- calls

    async def unary(
        self, method: Method, request: Any, *, timeout: float | None = None, metadata: CallMetadata = ()
    ) -> Any:
        """Call a method with one answer; `timeout` in seconds, None = no limit.

        Raises `ClientError`, and the builtin TimeoutError when the time is up, here or at the server. A call that no
        server has looked at moves to a fresh connection by itself.
        """
        answer, _ = await self.unary_with_metadata(method, request, timeout=timeout, metadata=metadata)
        return answer

    async def unary_with_metadata(
        self, method: Method, request: Any, *, timeout: float | None = None, metadata: CallMetadata = ()
    ) -> tuple[Any, Metadata]:
        """The same, with what the server sent beside the answer."""
        data: bytes = request.SerializeToString()
        if self._max_send is not None:
            self._check_size(method, self._max_send, len(data))
        loop = self._acquire_loop()
        now = loop.now()
        deadline = None if timeout is None else _deadline(timeout, now)
        moved = refused = 0
        while moved < MAX_CALL_MOVES:
            link = self._link
            if link is None or not link.serves:
                link = await self._connected(deadline)
                now = loop.now()
                if not link.usable:
                    moved += 1
                    continue
            owner = UnaryOwner(loop.new_event())
            call = link.ask(method.path, self._headers(metadata), data, now, deadline, owner)
            try:
                await owner.done.wait()
            except BaseException:
                if owner.end is None:
                    link.machine.cancel(call)
                    link.poke()
                raise
            end, owner.end = owner.end, None  # else call, owner and end would keep each other for the collector
            assert end is not None
            if end.status is GrpcStatus.OK:
                return decode(method, end.data), end.metadata
            if not self._may_move(end):
                raise failure(end)
            if await self._stood_back(link, end, refused):
                refused += 1
            else:
                moved += 1
            now = loop.now()
        raise self._turned_away()

    @asynccontextmanager
    async def stream(
        self,
        method: Method,
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: CallMetadata = (),
        max_receive_bytes: int | None = None,
    ) -> AsyncIterator[Stream]:
        """Call a method that answers with a stream: `open_stream`, closed when the block is left."""
        stream = await self.open_stream(
            method, request, timeout=timeout, metadata=metadata, max_receive_bytes=max_receive_bytes
        )
        try:
            yield stream
        finally:
            stream.close()

    async def open_stream(
        self,
        method: Method,
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: CallMetadata = (),
        max_receive_bytes: int | None = None,
    ) -> Stream:
        """Call a method that answers with a stream; `timeout` bounds the whole stream, in seconds.

        With a `request` it is sent first, and this returns once the server's headers are here, or raises what the
        call ended with. Without one it returns at once, and `Stream.wait_headers` waits. A method that takes one
        request is half-closed after it. `Stream.close` cancels a call that is not over.
        """
        deadline = None if timeout is None else _deadline(timeout, self._acquire_loop().now())
        moved = refused = 0
        while moved < MAX_CALL_MOVES:
            link = await self._connected(deadline)
            if not link.usable:
                moved += 1
                continue
            stream = Stream(method, link)
            headers = self._headers(metadata)
            stream.attach(link.start(method.path, headers, deadline, stream, max_receive=max_receive_bytes))
            if request is None:
                link.poke()
                return stream
            stream.send_nowait(request)
            if not method.sends_stream:
                await stream.half_close()
            try:
                await stream.wait_headers()
            except BaseException:
                stream.close()
                if stream.end is None or not self._may_move(stream.end):
                    raise
                if await self._stood_back(link, stream.end, refused):
                    refused += 1
                else:
                    moved += 1
                continue
            return stream
        raise self._turned_away()

    def _may_move(self, end: CallEnded) -> bool:
        """Whether the call may be tried on another connection without anybody noticing."""
        return end.unprocessed and not self._closed

    async def _stood_back(self, link: Link, end: CallEnded, refused: int) -> bool:
        """Wait a little, once more, before a call goes to the server that refused it and serves on; False = it left.

        A server may count a stream until its program is through with it, long after our side has seen its end; so
        even one that has told how many it takes refuses some of them (grpcio's does, RFC 9113 section 8.7).
        """
        if not link.serves:
            return False
        if refused == MAX_CALL_REFUSALS:
            raise failure(end)
        await anyio.sleep((REFUSAL_PAUSE << refused) / SECOND)
        return True

    def _turned_away(self) -> ClientError:
        text = f"{self.target}: {MAX_CALL_MOVES} connections in a row were closed before the server looked at the call"
        return ClientError("unavailable", text, unprocessed=True)

    def _headers(self, metadata: CallMetadata) -> Headers:
        token = self._token
        if token is None and not metadata:
            return _NO_HEADERS
        headers = [request_entry(name, value) for name, value in metadata]
        if callable(token):
            token = token()
        if token:
            if token != self._said[0]:
                self._said = token, _authorization(token)
            headers.append(self._said[1])
        return headers

    def _check_size(self, method: Method, most: int, size: int) -> None:
        if size > most:
            raise ClientError(
                "resource_exhausted",
                f"{method.name}: message of {size} bytes is above the limit of {most} (grpc.max_send_message_length)",
            )


def _is_credentials(credentials: object) -> bool:
    import ssl

    return isinstance(credentials, (ssl.SSLContext, PemPaths))


async def _joined(task: Any) -> None:
    """Wait for a task of asyncio, whatever becomes of it."""
    import asyncio

    await asyncio.wait([task])


def _authorization(token: str) -> Field:
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise ValueError("token: only printable ASCII characters can be sent, without spaces around")
    return b"authorization", b"Bearer " + token.encode("ascii")


def _deadline(timeout: float, now: int) -> int | None:
    if type(timeout) is float and 0 <= timeout < _FOREVER:
        return now + ns(timeout)
    if timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout: a number of seconds is needed, not {type(timeout).__name__}")
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(f"timeout: {timeout} is not a number of seconds from 0")
    return now + ns(min(timeout, _FOREVER))
