"""The HTTP listener: hypercorn's protocols on connections that we accept, bound in time and number, and end.

hypercorn brings HTTP/1.1 and HTTP/2 for ASGI applications and keeps the time between requests. What it leaves open is
settled here:

- It shields its writes from cancellation, so that a peer that does not read would hang the stop: ours have a bound.
- A connection whose requests never end (a body that does not come, a window that stays shut) has a bound too.
- Connections are accepted beyond any number, but the oldest, best one without a request, makes room: a check of the
  server's health always comes through.
- It counts neither frames of HTTP/2 nor lines of HTTP/1.1: what a peer may send is judged before (`http_guard.py`).
- What fails in one connection ends that connection.

Importing this module takes a tenth of a second, so it is imported only by who listens.
"""

import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from cronoq._observe.logs import get_logger
from cronoq._runtime import listeners
from cronoq._runtime.faults import describe
from cronoq._runtime.http_api import HttpApi
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.wire.http_guard import HttpGuard
from cronoq_sansio.wire.peer_limits import PeerLimit

log = get_logger("http")


class HttpListener:
    """One listening socket and its connections. `run` once; `stop` ends what is idle and accepts nothing new."""

    def __init__(
        self,
        listener: socket.socket,
        api: HttpApi,
        tls: ssl.SSLContext | None,
        exceeded: Callable[[PeerLimit, str], None],
    ) -> None:
        """Takes over the listening socket. With `tls`, every connection begins with a handshake.

        `exceeded` hears of a limit that a peer has exceeded, and of its address.
        """
        self._exceeded = exceeded
        self._listener = listener
        self._app = ASGIWrapper(cast(ASGIFramework, api))
        self._tls = tls
        self._config = _config()
        self._context = WorkerContext(None)
        self._left = trio.Event()
        self._nursery: trio.Nursery | None = None
        self.connections: dict[_Connection, None] = {}
        """In the order in which they were accepted."""

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await listeners.accept_all(self._listener, self._accepted)

    async def stop(self) -> None:
        """Accept nothing more; idle connections end now, others after their answer. Idempotent."""
        listeners.close_listener(self._listener)
        await self._context.terminated.set()

    async def wait_left(self) -> None:
        """Until no connection is left."""
        while self.connections:
            self._left = trio.Event()
            await self._left.wait()

    def _accepted(self, connected: socket.socket, peer: str) -> None:
        assert self._nursery is not None
        if len(self.connections) >= limits.MAX_HTTP_CONNECTIONS:
            self._make_room()
        stream: Any = trio.SocketStream(trio.socket.from_stdlib_socket(connected))
        if self._tls is not None:
            stream = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)

        def flooded(limit: PeerLimit) -> None:
            self._exceeded(limit, peer)

        connection = _Connection(self._app, self._config, self._context, stream, flooded)
        self.connections[connection] = None
        self._nursery.start_soon(self._serve, connection, peer)

    def _make_room(self) -> None:
        idle = (connection for connection in self.connections if not connection.busy)
        oldest = next(idle, None) or next(iter(self.connections))
        del self.connections[oldest]
        oldest.end()

    async def _serve(self, connection: "_Connection", peer: str) -> None:
        """One connection. What it raises concerns nobody else."""
        try:
            await connection.run()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        except BaseExceptionGroup as group:
            faults, rest = group.split(Exception)
            if faults is not None:
                log.debug("an HTTP connection failed", peer=peer, fault=describe(faults.exceptions[0]))
            if rest is not None:
                raise rest from None
        except Exception as error:
            log.debug("an HTTP connection failed", peer=peer, fault=describe(error))
        finally:
            self.connections.pop(connection, None)
            self._left.set()
            await trio.aclose_forcefully(connection.stream)


class _Connection(TCPServer):
    """One connection of hypercorn's Trio worker, all of whose waiting can be cancelled."""

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        stream: Any,
        flooded: Callable[[PeerLimit], None],
    ) -> None:
        super().__init__(app, config, context, {}, stream)
        self._flooded = flooded
        self._guard = HttpGuard()
        self.busy = False
        """A request is open."""
        self._scope = trio.CancelScope()

    def end(self) -> None:
        """End it now."""
        self._scope.cancel()

    async def run(self) -> None:
        """Serve requests until either side ends it."""
        with self._scope:
            await super().run()

    async def _read_data(self) -> None:
        """Hand on what is read, until the end."""
        while True:
            try:
                data = bytes(await self.stream.receive_some(limits.HTTP_READ_SIZE))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if not self._guard.admits(data, round(trio.current_time() * SECOND)):
                self._flooded(self._guard.limit)
                self.end()
                break
            await self.protocol.handle(RawData(self._guard.without_upgrade(data)))
            if isinstance(self.protocol.protocol, H2Protocol) and not self._guard.http2:
                self.end()  # an upgrade to HTTP/2, which nobody offers any more
            if not data:
                break
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        """Called by the protocol: bytes for the peer, a change between busy and idle, the end."""
        if isinstance(event, RawData):
            await self._send(event.data)
            return
        if isinstance(event, Updated):
            if event.idle:
                self._scope.deadline = math.inf
            elif not self.busy:
                self._scope.deadline = trio.current_time() + seconds(limits.HTTP_BUSY_TIMEOUT)
            self.busy = not event.idle
        await super().protocol_send(event)

    async def _send(self, data: bytes) -> None:
        async with self.send_lock:
            try:
                with trio.move_on_after(seconds(limits.HTTP_SEND_TIMEOUT)):
                    await self.stream.send_all(data)
                    return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        self.end()

    async def _idle_timeout(self) -> None:
        with trio.move_on_after(self.config.keep_alive_timeout):
            await self.context.terminated.wait()
        self.end()


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("cronoq.http")
    config.include_server_header = False
    config.keep_alive_timeout = seconds(limits.HTTP_IDLE_TIMEOUT)
    config.ssl_handshake_timeout = seconds(limits.TLS_HANDSHAKE_TIMEOUT)
    config.h11_max_incomplete_size = limits.MAX_HEADER_LIST
    config.h2_max_header_list_size = limits.MAX_HEADER_LIST
    config.h2_max_concurrent_streams = limits.HTTP_STREAMS
    return config
