"""The server process: listeners, connections, signals and terms, each in the nursery that owns it.

    serve
    ├─ gRPC listener: one task per connection (and one more while a connection has something unsent)
    ├─ turns of calls that look at much, of all connections (`looks.py`)
    ├─ HTTP listener: health (`http_listener.py`), from the moment of the start to that of the end
    ├─ signals: SIGTERM and SIGINT stop gracefully, a second one forces the stop; SIGUSR1 logs statistics
    ├─ the overdue watch: once a stop was asked for, it is over after the grace plus `limits.STOP_SLACK`, come what may
    └─ terms, one after the other (`term.py`)

Start: read the TLS files, bind, accept, open the store, claim, recover, serve; then the last start-up line, which
begins with `ready:`, names the real addresses. Stop: the term refuses new work and lets attempts finish for the grace,
tells workers and waiters, and ends; HTTP connections end, GOAWAY goes out in two steps, a second apart; the store is
closed.
"""

import gc
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
import trio.abc

from cronoq import __version__
from cronoq._observe.logs import configure, get_logger
from cronoq._runtime import listeners, open_files, startup
from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.crowds import crowds
from cronoq._runtime.door import Door, Guest
from cronoq._runtime.http_api import HttpApi
from cronoq._runtime.lobby import Lobby
from cronoq._runtime.statistics import Statistics
from cronoq._runtime.term import Terms
from cronoq._runtime.tls import GRPC_PROTOCOLS, HTTP_PROTOCOLS, TlsTransport, server_context
from cronoq._runtime.transport import SocketTransport, Transport
from cronoq._stores.base import Store, StoreError
from cronoq.errors import CronoqError, StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.engine.cron import TZDATA_VERSION
from cronoq_sansio.service.access import Authenticator
from cronoq_sansio.settings import Settings
from cronoq_sansio.wire.backlog import Waiting
from cronoq_sansio.wire.credit import Unfinished
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.http2_choice import H2, choose
from cronoq_sansio.wire.peer_limits import HANDSHAKE, tls_failed
from cronoq_sansio.wire.strangers import Strangers

if TYPE_CHECKING:
    from cronoq._runtime.http_listener import HttpListener
    from cronoq._runtime.recording_files import Recordings

log = get_logger("server")

DONE, FAILED = 0, 1
FORCE = 5 * SECOND
"""What remains of `limits.STOP_SLACK` when a stop that does not end by itself is forced."""


def run(settings: Settings, *, config_source: str = "built-in", recordings: "Recordings | None" = None) -> int:
    """Serve until a signal stops it; returns the exit code. Raises `CronoqError` when it cannot start, or not go on.

    `recordings`: where every term is recorded.
    """
    try:
        announce = configure()
    except ValueError as error:
        raise StartError(str(error)) from error
    store = startup.make_store(settings)
    crowded = crowds(settings, time.time_ns())  # now, while nobody is served yet

    relax_collector()
    open_files.allow(settings.limits.max_connections)

    def ready(bound: list[tuple[str, int]]) -> None:
        gc.freeze()  # what lives after the start lives as long as the process
        startup.announce(announce, settings, config_source, __version__, bound, crowded)

    async def serve() -> int:
        return await Server(settings, store, ready, recordings=recordings).run()

    return trio.run(serve, clock=LoopClock())


class LoopClock(trio.abc.Clock):
    """Trio's own clock, but for its readings, of which each pass of the loop takes two: they are no calls of Python."""

    current_time = staticmethod(time.perf_counter)

    def start_clock(self) -> None:
        """It runs always."""

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Seconds from now, below 0 when it has passed."""
        return deadline - time.perf_counter()


def relax_collector() -> None:
    """Have the collector look at new objects less often, because hardly any of ours is part of a cycle.

    A call makes about a hundred of them. Recovery makes millions that stay: with the interpreter's thresholds the
    collector would take more than half of its time (`bench/recovery_bench.py`).
    """
    gc.collect()
    gc.set_threshold(50_000, 50, 1_000)


class Server:
    """One server process. `run` once."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        announce: Callable[[list[tuple[str, int]]], None],
        *,
        wall: Callable[[], int] = time.time_ns,
        abandon: Callable[[int], None] = os._exit,
        recordings: "Recordings | None" = None,
    ) -> None:
        """`announce` is given the real addresses when the server is ready; `abandon` ends a process that hangs.

        `wall` is the host's wall clock in Unix nanoseconds, `recordings` where every term is recorded.
        """
        self.clock = Clock(trio.lowlevel.current_clock().current_time, wall)
        self.lobby = Lobby(self.clock)
        bounds = settings.limits
        self.door = Door(bounds.max_connections, bounds.max_connections_per_peer, self.lobby.peer_log, self.clock)
        self._unfinished, self._waiting, self._strangers = Unfinished(), Waiting(), Strangers()
        self.terms = Terms(settings, store, self.clock, self.lobby, self._serving, recordings)
        self._settings = settings
        self._store = store
        self._announce: Callable[[list[tuple[str, int]]], None] | None = announce
        self._abandon = abandon
        self._authenticate = Authenticator(settings.auth.tokens)
        self._http2 = choose(settings.server.http2)
        self._tls: ssl.SSLContext | None = None
        self._bound: list[tuple[str, int]] = []
        self._listener: socket.socket | None = None
        self._http: HttpListener | None = None
        self._work = trio.CancelScope()
        self._stopping = trio.Event()
        self._force_asked = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, signals: bool = True) -> int:
        """Serve until stopped; returns the exit code. `signals`: listen to the process's. Raises `CronoqError`."""
        listener = self._listen()
        if self._settings.server.http2 == H2:
            log.warning("HTTP/2 is served by the library h2", remedy=startup.ONLY_FOR_DIAGNOSIS)
        failure: CronoqError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if signals:
                await nursery.start(self._signals)
            nursery.start_soon(self._watch_overdue)
            nursery.start_soon(self.lobby.looks.run)
            nursery.start_soon(listeners.accept_all, listener, self._accepted)
            if self._http is not None:
                nursery.start_soon(self._http.run)
            try:
                with self._work:
                    await self._serve()
            except CronoqError as error:
                failure = error
            finally:
                listeners.close_listener(listener)
                try:
                    with trio.CancelScope(shield=True):
                        if self._http is not None:
                            await self._http.stop()
                        await self._store.close()
                except StoreError as error:
                    failure = failure or StartError(str(error))
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return FAILED if self._force_asked.is_set() else DONE

    def request_stop(self) -> None:
        """Stop gracefully; when that was asked for before, force the stop."""
        if not self._stopping.is_set():
            grace = seconds(self._settings.server.shutdown_grace)
            log.info("stopping: no new tasks, running attempts may finish", grace_seconds=grace)
            self._stopping.set()
            self.terms.request_stop()
        elif not self._force_asked.is_set():
            log.warning("the stop is forced")
            self._force()

    def converse(self, transport: Transport, peer: str) -> None:
        """Serve one connection until it ends, in a task of its own, if it may come in."""
        assert self._nursery is not None
        guest = self.door.enter(peer)
        if isinstance(guest, Guest):
            self._nursery.start_soon(self._host, guest, transport)
        else:
            transport.close()

    async def _host(self, guest: Guest, transport: Transport) -> None:
        try:
            if self._tls is not None and not guest.leaving:
                secure = TlsTransport(transport, self._tls)
                if not await self._agree(guest, secure):
                    return
                transport = secure
            if guest.leaving:
                transport.close()
                return
            guest.connection = connection = self._connection(transport, guest.peer)
            connection.guest = guest
            await connection.run()
        finally:
            self.door.leave(guest)

    async def _agree(self, guest: Guest, transport: TlsTransport) -> bool:
        """The handshake has a time of its own; whoever comes through is a connection like any other."""
        agreed = False
        due = trio.current_time() + seconds(limits.TLS_HANDSHAKE_TIMEOUT)
        try:
            with trio.CancelScope(deadline=due) as guest.scope:
                await transport.handshake()
                agreed = True
            if guest.scope.cancelled_caught and trio.current_time() >= due:
                self.lobby.exceeded(HANDSHAKE, guest.peer)
        except ssl.SSLError as error:
            self.lobby.exceeded(tls_failed(error.reason or str(error)), guest.peer)
        except (OSError, trio.ClosedResourceError) as error:
            log.debug("a TLS handshake failed", peer=guest.peer, cause=str(error))
        finally:
            guest.scope = None
            if not agreed:
                guest.wasted = limits.USELESS_HANDSHAKE
                transport.close()
        return agreed

    def _connection(self, transport: Transport, peer: str) -> Connection:
        assert self._nursery is not None
        machine = GrpcServer(
            self._settings.limits,
            self.clock.now(),
            self._authenticate,
            self.lobby.refusal,
            self._http2,
            self._unfinished,
            self._waiting,
            self.lobby.calls,
            self._strangers,
        )
        return Connection(transport, machine, self.lobby, self.clock, self._nursery, peer)

    def _accepted(self, connected: socket.socket, peer: str) -> None:
        if self.door.keeps_out(peer):
            connected.close()
        else:
            self.converse(SocketTransport(connected), peer)

    def _listen(self) -> socket.socket:
        """Read the TLS files and bind every address; returns gRPC's listener. Raises `StartError`."""
        server = self._settings.server
        http_tls: ssl.SSLContext | None = None
        if server.tls is not None:
            self._tls = server_context(server.tls, GRPC_PROTOCOLS)
            http_tls = server_context(server.tls, HTTP_PROTOCOLS)
        self._listener = listener = listeners.bind(server.grpc_addr, "server.grpc_addr")
        self._bound = [listeners.local_address(listener)]
        if server.http_addr is not None:
            try:
                http = listeners.bind(server.http_addr, "server.http_addr")
            except StartError:
                listener.close()
                raise
            self._bound.append(listeners.local_address(http))
            from cronoq._runtime.http_listener import HttpListener

            self._http = HttpListener(http, HttpApi(self._unready), http_tls, self.lobby.exceeded)
        return listener

    def _unready(self) -> str:
        """Why no work can be taken now, in the words of `/readyz`; empty when it can."""
        if self._stopping.is_set():
            return "stopping"
        driver = self.terms.driver
        if not self.lobby.serving or driver is None:
            return "standby"
        return "" if driver.committer.ready else "store"

    async def _serve(self) -> None:
        """Open the store and serve until a graceful stop is complete."""
        log.info("time zones", version=TZDATA_VERSION)
        try:
            await self._store.open()
        except StoreError as error:
            raise StartError(str(error)) from error
        await self.terms.run()
        await self._part()
        log.info("stopped")

    async def _part(self) -> None:
        """Say good-bye to the connections: nothing new on them, a second to hear it, then the end."""
        if self._listener is not None:
            listeners.close_listener(self._listener)
        if self._http is not None:
            await self._http.stop()
        self.lobby.shut()
        if self.lobby.connections:
            await trio.sleep(seconds(limits.SHUTDOWN_LINGER))
            self.lobby.finish()
        with trio.move_on_after(seconds(limits.CLOSE_LINGER)):
            while self.lobby.connections:
                await self.lobby.wait_left()
            if self._http is not None:
                await self._http.wait_left()

    def _serving(self, epoch: int) -> None:
        """A term begins to serve."""
        announce, self._announce = self._announce, None
        if announce is None:
            log.info("ready again", epoch=epoch)
            return
        announce(self._bound)

    # --- signals and the end

    async def _signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        stops = {signal.SIGTERM, signal.SIGINT}
        looks = {number for number in (getattr(signal, "SIGUSR1", None),) if number is not None}
        statistics = Statistics(self.lobby, self.terms)
        with trio.open_signal_receiver(*stops, *looks) as received:
            task_status.started()
            async for number in received:
                if number in stops:
                    self.request_stop()
                else:
                    statistics.log()

    async def _watch_overdue(self) -> None:
        """A stop that hangs is forced, and a forced stop that hangs is abandoned."""
        await self._stopping.wait()
        slack = limits.STOP_SLACK - FORCE
        with trio.move_on_after(seconds(self._settings.server.shutdown_grace + slack)):
            await self._force_asked.wait()
        if not self._force_asked.is_set():
            log.error("the graceful stop takes too long and is forced")
            self._force()
        await trio.sleep(seconds(FORCE))
        log.error("the stop hangs, probably in the store: the process ends; nothing that was acknowledged is lost")
        self._abandon(FAILED)

    def _force(self) -> None:
        self._force_asked.set()
        self._work.cancel()
