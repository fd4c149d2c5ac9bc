"""The server process: listeners, connections, signals and terms, each in the nursery that owns it.

    serve
    ├─ listener: one task per connection (and one more while a connection has something unsent)
    ├─ signals: SIGTERM and SIGINT stop gracefully, a second one forces the stop; SIGUSR1 logs statistics
    ├─ the overdue watch: once a stop was asked for, it is over after the grace plus `limits.STOP_SLACK`, come what may
    └─ terms, one after the other (`term.py`)

Start: bind, open the store, accept, claim, recover, serve; then the last start-up line, which begins with `ready:`,
names the real addresses. Stop: the term refuses new work and lets attempts finish for the grace, tells workers and
waiters, and ends; GOAWAY in two steps, a second apart; the store is closed.
"""

import gc
import os
import signal
import socket
import time
from collections.abc import Callable

import trio

from cronoq import __version__
from cronoq._observe.logs import configure, get_logger
from cronoq._runtime import listeners, startup
from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.lobby import Lobby
from cronoq._runtime.statistics import Statistics
from cronoq._runtime.term import Terms
from cronoq._runtime.transport import SocketTransport, Transport
from cronoq._stores.base import Store, StoreError
from cronoq.errors import CronoqError, StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.settings import Settings
from cronoq_sansio.wire.grpc import GrpcServer

log = get_logger("server")

DONE, FAILED = 0, 1
FORCE = 5 * SECOND
"""What remains of `limits.STOP_SLACK` when a stop that does not end by itself is forced."""


def run(settings: Settings, *, config_source: str = "built-in") -> int:
    """Serve until a signal stops it; returns the exit code. Raises `CronoqError` when it cannot start, or not go on."""
    try:
        announce = configure()
    except ValueError as error:
        raise StartError(str(error)) from error
    store = startup.make_store(settings)

    relax_collector()

    def ready(bound: list[tuple[str, int]]) -> None:
        gc.freeze()  # what lives after the start lives as long as the process
        startup.announce(announce, settings, config_source, __version__, bound)

    async def serve() -> int:
        return await Server(settings, store, ready).run()

    return trio.run(serve)


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
    ) -> None:
        """`announce` is given the real addresses when the server is ready; `abandon` ends a process that hangs.

        `wall` is the host's wall clock in Unix nanoseconds.
        """
        self.clock = Clock(trio.current_time, wall)
        self.lobby = Lobby(self.clock)
        self.terms = Terms(settings, store, self.clock, self.lobby, self._serving)
        self._settings = settings
        self._store = store
        self._announce: Callable[[list[tuple[str, int]]], None] | None = announce
        self._abandon = abandon
        self._listener: socket.socket | None = None
        self._work = trio.CancelScope()
        self._stopping = trio.Event()
        self._force_asked = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, signals: bool = True) -> int:
        """Serve until stopped; returns the exit code. `signals`: listen to the process's. Raises `CronoqError`."""
        self._listener = listener = listeners.bind(self._settings.server.grpc_addr, "server.grpc_addr")
        failure: CronoqError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if signals:
                await nursery.start(self._signals)
            nursery.start_soon(self._watch_overdue)
            nursery.start_soon(listeners.accept_all, listener, self._accepted)
            try:
                with self._work:
                    await self._serve()
            except CronoqError as error:
                failure = error
            finally:
                listeners.close_listener(listener)
                try:
                    with trio.CancelScope(shield=True):
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
        """Serve one connection until it ends, in a task of its own."""
        assert self._nursery is not None
        machine = GrpcServer(self._settings.limits, self.clock.now(), authenticate, self.lobby.refusal)
        connection = Connection(transport, machine, self.lobby, self.clock, self._nursery, peer)
        self._nursery.start_soon(connection.run)

    def _accepted(self, connected: socket.socket, peer: str) -> None:
        self.converse(SocketTransport(connected), peer)

    async def _serve(self) -> None:
        """Open the store and serve until a graceful stop is complete."""
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
        self.lobby.shut()
        if not self.lobby.connections:
            return
        await trio.sleep(seconds(limits.SHUTDOWN_LINGER))
        self.lobby.finish()
        with trio.move_on_after(seconds(limits.CLOSE_LINGER)):
            while self.lobby.connections:
                await self.lobby.wait_left()

    def _serving(self, epoch: int) -> None:
        """A term begins to serve."""
        announce, self._announce = self._announce, None
        if announce is None:
            log.info("ready again", epoch=epoch)
            return
        assert self._listener is not None
        announce([listeners.local_address(self._listener)])

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
