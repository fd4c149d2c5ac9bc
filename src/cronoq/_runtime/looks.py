"""Calls that look at much have turns here: see `cronoq_sansio.wire.turns`, which decides; this keeps the time.

One that nobody is before is handed on by the task that has read it. All others are handed on by one task of the
process, which sleeps until the next turn, so that everything that is readable by then is read in between. A turn takes
as long as the step with its consequences, the answer's encoding and the write to the socket among them.
"""

import trio

from cronoq._runtime.clock import Clock
from cronoq._runtime.connection import Connection
from cronoq._runtime.faults import TermEnded
from cronoq_sansio.wire.turns import Turns


class Looks:
    """Of all connections of the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: Turns[Connection] = Turns()
        self._waits = trio.Event()

    def __len__(self) -> int:
        """How many connections wait."""
        return len(self._turns)

    def arrived(self, connection: Connection) -> None:
        """Such calls wait there. Raises `TermEnded` when the term ends with one."""
        if self._turns.free(self._clock.now()):
            self._have(connection)
        else:
            self._enter(connection)

    def leave(self, connection: Connection) -> None:
        """A connection is over."""
        self._turns.leave(connection)

    def spent(self, duration: int) -> None:
        """What came of a turn later, until now, took so many nanoseconds."""
        self._turns.spent(duration, self._clock.now())

    async def run(self) -> None:
        """Let connections have their turns."""
        turns, clock = self._turns, self._clock
        while True:
            await self._waits.wait()
            self._waits = trio.Event()
            while turns:
                await trio.sleep_until(clock.deadline(turns.due))
                connection = turns.take(clock.now())
                if connection is None:
                    continue
                try:
                    self._have(connection)
                except TermEnded:
                    connection.finish()
                except Exception as error:
                    connection.fail(error)

    def _have(self, connection: Connection) -> None:
        """The turn of a connection."""
        begun = self._clock.now()
        try:
            more = connection.look()
        finally:
            now = self._clock.now()
            self._turns.spent(now - begun, now)
        if more:
            self._enter(connection)

    def _enter(self, connection: Connection) -> None:
        self._turns.enter(connection)
        self._waits.set()
