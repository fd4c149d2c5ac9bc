"""A server inside of a test, and the clock that makes its timeouts instant.

Under Trio the server runs in the nursery of the block, and clients in the same process reach it over memory. Under
asyncio, whose loop cannot run it, it runs in a thread and is reached over loopback; there is no other clock then.
"""

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from anyio.lowlevel import current_token

from cronoq._client import dialing
from cronoq._client.specs import When, unix_ns
from cronoq.errors import ConfigError
from cronoq_sansio.clock import SECOND

if TYPE_CHECKING:
    from cronoq._runtime.serve import Server
    from cronoq._runtime.transport import MemoryTransport
    from cronoq_sansio.settings import Settings

T = TypeVar("T")

START_BOUND = 30.0
"""Seconds of the real clock within which a server in a thread must be ready."""


def run(main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run `main` under Trio on a clock that jumps to the next timeout whenever every task waits.

    So leases expire and retries come without waiting. Handlers in threads and real sockets do not hold the clock up.
    """
    import trio
    import trio.testing

    return trio.run(main, *args, clock=trio.testing.MockClock(autojump_threshold=0))


class TestServer:
    """A server of the test; made by `serve`."""

    __test__ = False  # not a class of tests

    def __init__(self, target: str, call: Callable[[Callable[["Server"], None]], None]) -> None:
        self.target = target
        """What `Client` and `Worker` take."""
        self._call = call

    def request_stop(self) -> None:
        """Begin the graceful stop, as SIGTERM does; the server is over some time after that."""
        self._call(lambda server: server.request_stop())


@asynccontextmanager
async def serve(
    *,
    pools: Iterable[str | Mapping[str, Any]] = ("default",),
    resources: Iterable[Mapping[str, Any]] = (),
    recurring: Iterable[Mapping[str, Any]] = (),
    now: When | None = None,
    **tables: Mapping[str, Any],
) -> AsyncIterator[TestServer]:
    """Run a server with the memory store while the block runs.

    `pools` are names, or tables as in `[[pools]]`; `resources` and `recurring` tables as in `[[resources]]` and
    `[[recurring]]`; `limits`, `outputs` and `server` are these tables of the configuration. `now` is what time the
    server takes it to be when it begins (Unix seconds, or a datetime with a zone), instead of the real one.
    `ConfigError` for settings that cannot be used.
    """
    settings = _settings(pools, {"resources": resources, "recurring": recurring}, tables)
    begin = time.time_ns() if now is None else unix_ns("now", now)
    if hasattr(current_token().native_token, "create_task"):
        async with _in_thread(settings, begin) as server:
            yield server
    else:
        async with _in_nursery(settings, begin) as server:
            yield server


def _settings(
    pools: Iterable[str | Mapping[str, Any]],
    repeated: Mapping[str, Iterable[Mapping[str, Any]]],
    tables: Mapping[str, Any],
) -> "Settings":
    from cronoq_sansio.engine.cron import compile_cron
    from cronoq_sansio.settings import LimitSettings
    from cronoq_sansio.settings_check import check_settings

    document: dict[str, Any] = {name: dict(table) for name, table in tables.items()}
    named = [{"name": pool, "max": 1_000} if isinstance(pool, str) else dict(pool) for pool in pools]
    document |= {"store": {"kind": "memory"}, "pools": named}
    for name, given in repeated.items():
        if listed := [dict(table) for table in given]:
            document[name] = listed
    checked = check_settings(document, payload_budget=LimitSettings().max_payload_bytes, cron_check=compile_cron)
    if isinstance(checked, tuple):
        raise ConfigError(tuple(str(problem) for problem in checked))
    server: dict[str, Any] = {"grpc_addr": ("127.0.0.1", 0)}
    if "http_addr" in {field.name for field in fields(checked.server)}:
        server["http_addr"] = None
    return replace(checked, server=replace(checked.server, **server))


@asynccontextmanager
async def _in_nursery(settings: "Settings", begin: int) -> AsyncIterator[TestServer]:
    import trio

    from cronoq._runtime.serve import Server
    from cronoq._runtime.startup import make_store
    from cronoq._runtime.transport import memory_pair

    zero = begin - round(trio.current_time() * SECOND)
    ready = trio.Event()
    bound: list[tuple[str, int]] = []

    def announce(addresses: list[tuple[str, int]]) -> None:
        bound.extend(addresses)
        ready.set()

    server = Server(
        settings, make_store(settings), announce, wall=lambda: zero + round(trio.current_time() * SECOND), abandon=_no
    )

    def connect() -> ByteStream:
        theirs, ours = memory_pair()
        server.converse(theirs, "a client in the process")
        return MemoryStream(ours)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, server)
        await ready.wait()
        target = f"127.0.0.1:{bound[0][1]}"
        dialing.IN_PROCESS[target] = connect
        try:
            yield TestServer(target, lambda act: act(server))
        finally:
            del dialing.IN_PROCESS[target]
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _in_thread(settings: "Settings", begin: int) -> AsyncIterator[TestServer]:
    import trio

    from cronoq._runtime.serve import Server
    from cronoq._runtime.startup import make_store

    ready = threading.Event()
    bound: list[tuple[str, int]] = []
    inside: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope, Server]] = []
    failed: list[BaseException] = []

    def announce(addresses: list[tuple[str, int]]) -> None:
        bound.extend(addresses)
        ready.set()

    zero = begin - time.monotonic_ns()

    async def main() -> None:
        with trio.CancelScope() as scope:
            server = Server(
                settings, make_store(settings), announce, wall=lambda: zero + time.monotonic_ns(), abandon=_no
            )
            inside.append((trio.lowlevel.current_trio_token(), scope, server))
            await server.run(signals=False)

    def thread() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    running = threading.Thread(target=thread, name="cronoq server", daemon=True)
    running.start()
    await anyio.to_thread.run_sync(ready.wait, START_BOUND)
    if failed or not bound:
        raise RuntimeError("the server did not start") from (failed[0] if failed else None)
    token, scope, server = inside[0]

    def call(act: Callable[[Server], None]) -> None:
        token.run_sync_soon(act, server)

    try:
        yield TestServer(f"127.0.0.1:{bound[0][1]}", call)
    finally:
        try:
            token.run_sync_soon(scope.cancel)
        except trio.RunFinishedError:
            pass
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.join)


async def _run(server: "Server") -> None:
    await server.run(signals=False)


def _no(_code: int) -> None:
    """A server of a test does not end the process."""


class MemoryStream(ByteStream):
    """The client's end of a connection in memory, as anyio's streams are."""

    def __init__(self, transport: "MemoryTransport") -> None:
        self._transport = transport

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """What has arrived; EndOfStream when the server has closed."""
        while (data := self._try_receive()) is None:
            try:
                await self._transport.wait_readable()
            except OSError as error:
                raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    def _try_receive(self) -> bytes | None:
        try:
            return self._transport.try_receive()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send(self, item: bytes) -> None:
        """All of it; BrokenResourceError when the server has closed."""
        rest = memoryview(item)
        try:
            while rest:
                rest = rest[self._transport.try_send(rest) :]
                if rest:
                    await self._transport.wait_writable()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Nothing more will be sent."""
        self._transport.send_eof()

    async def aclose(self) -> None:
        """Close."""
        self._transport.close()
