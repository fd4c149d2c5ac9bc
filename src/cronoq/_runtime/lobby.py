"""The lobby, where connections stay while terms come and go: connections outlive terms, their events do not.

While a term serves, events of connections go to its driver. Otherwise calls and worker streams are refused with the
reason that is in force, and connections stay open. When a term ends, every call that is open is answered, workers are
told, and their connections are closed a second later, because the next term knows none of their streams.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import trio

from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.door import PeerLog
from cronoq._runtime.driver import Driver
from cronoq._runtime.looks import Looks
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import SHUTDOWN_LINGER
from cronoq_sansio.service.messages import CallReceived, Shutdown, WorkerConnected
from cronoq_sansio.wire.grpc_admission import Refusal
from cronoq_sansio.wire.peer_limits import PeerLimit

STARTING = Rejection(Code.UNAVAILABLE, "the server is starting: it reads its store; try again")
LOST = Rejection(Code.UNAVAILABLE, "the server starts anew; the outcome of this call is unknown: try again, with a key")
"""For calls that were open when a term ended."""
RESTARTING = Rejection(Code.UNAVAILABLE, "no term serves now: the server starts anew from its store; try again")
"""For calls that come later: nothing became of them."""
STOPPED = Rejection(Code.UNAVAILABLE, "the server has stopped")


class Lobby:
    """All connections of the process, and the driver of the term that serves, if one does."""

    def __init__(self, clock: Clock) -> None:
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self.calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Calls that were answered, by method and outcome: `ok` or the code of the rejection."""
        self.peer_log = PeerLog(clock)
        self.looks = Looks(clock)
        self._clock = clock
        self.driver: Driver | None = None
        """Of the term that serves."""
        self.refusal = Refusal(STARTING)
        self._last_refusal = STARTING
        self._held = (False, False)
        self._left = trio.Event()

    @property
    def serving(self) -> bool:
        """True while a term serves."""
        return self.driver is not None

    # --- connections

    def enter(self, connection: Connection) -> None:
        """A connection begins."""
        self.connections[connection] = None
        if self._held != (False, False):
            connection.hold(*self._held)

    def leave(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.pop(connection, None)
        self.looks.leave(connection)
        self._left.set()

    async def wait_left(self) -> None:
        """Until the next connection has left."""
        self._left = trio.Event()
        await self._left.wait()

    def handle(self, connection: Connection, events: Sequence[Any], now: int | None = None) -> None:
        """Pass on the events of a connection. Raises `TermEnded` when the term ends with them."""
        driver = self.driver
        if driver is None or connection.dismissed:
            self.refuse(events)
            return
        driver.handle(events, now)

    def refuse(self, events: Sequence[Any]) -> None:
        """Nobody serves whoever sent these."""
        refusal = self._last_refusal
        for event in events:
            if type(event) is CallReceived:
                sink: Any = event.call.sink
                if sink is None:  # reset with what was read last
                    continue
                self.calls[sink.route.name, refusal.code.value] += 1
                sink.reject(refusal)
            elif type(event) is WorkerConnected:
                sink = event.stream.sink
                self.calls[sink.route.name, refusal.code.value] += 1
                sink.close(refusal)

    def exceeded(self, limit: PeerLimit, peer: str) -> None:
        """A peer has exceeded a limit."""
        self.peer_log.note(limit, peer)

    # --- terms

    def open(self, driver: Driver) -> None:
        """A term serves from now on."""
        self.driver = driver
        self.refusal.now = None

    def lost(self) -> None:
        """The term ended by a fault or lost its store: answer what is open, close the connections a second later."""
        self._close(RESTARTING)
        self.hold(False, False)
        leave_at = self._clock.now() + SHUTDOWN_LINGER
        for connection in list(self.connections):
            connection.dismiss(LOST, Shutdown("the server starts anew", True), leave_at)

    def shut(self) -> None:
        """A graceful stop is complete: refuse what is still asked, and tell the peers to open nothing new."""
        self._close(STOPPED)
        for connection in list(self.connections):
            connection.drain()

    def _close(self, refusal: Rejection) -> None:
        self.driver = None
        self.refusal.now = self._last_refusal = refusal

    def finish(self) -> None:
        """Final GOAWAY to everyone; each connection closes when it is written."""
        for connection in list(self.connections):
            connection.finish()

    def hold(self, calls: bool, workers: bool) -> None:
        """Stop (True) or go on (False) giving flow-control credit, also to connections that come later."""
        self._held = (calls, workers)
        for connection in list(self.connections):
            connection.hold(calls, workers)
