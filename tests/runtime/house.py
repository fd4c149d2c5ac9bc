"""A whole server in one process, and a store whose commits do what the test says."""

from collections.abc import AsyncIterator

import trio
import trio.testing

from cronoq._runtime.recording_files import Recordings
from cronoq._runtime.serve import Server
from cronoq._stores.base import Batch, Claim, Done, StoreError, StoreGone, StoreHeld
from cronoq._stores.memory import MemoryStore
from cronoq.errors import StartError
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.settings import ServerSettings, Settings
from tests.runtime.caller import Caller
from tests.runtime.fakes import WALL

GRACE = 10 * SECOND
SETTINGS = Settings(server=ServerSettings(grpc_addr=("127.0.0.1", 0), http_addr=None, shutdown_grace=GRACE))


class DurableStore(MemoryStore):
    """The memory store in the part of a durable one: commits may hang or fail, and what is in it outlives a term."""

    volatile = False

    def __init__(self) -> None:
        super().__init__(key_retention=3_600 * SECOND, key_retention_max=1_000)
        self.trouble: StoreError | None = None
        self.hanging = False
        self.holder: StoreHeld | None = None
        """Another server that leads: it can be claimed no more."""
        self.gone: StoreGone | None = None
        """What `close` finds."""
        self.loading = trio.Event()
        self.loading.set()
        self._hung: tuple[Batch, Done] | None = None

    async def claim(self, unix_seconds: int) -> Claim:
        if self.holder is not None:
            raise self.holder
        return await super().claim(unix_seconds)

    async def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        await self.loading.wait()
        async for portion in super().load(finished_since):
            yield portion

    async def close(self) -> None:
        await super().close()
        if self.gone is not None:
            raise self.gone

    def begin_commit(self, batch: Batch, done: Done) -> None:
        if self.hanging:
            self._hung = (batch, done)
        elif self.trouble is not None:
            done(self.trouble)
        else:
            super().begin_commit(batch, done)

    def go_on(self) -> None:
        self.hanging = False
        hung, self._hung = self._hung, None
        if hung is not None:
            self.begin_commit(*hung)


class House:
    """A server, its store, and what became of it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        store: MemoryStore,
        settings: Settings = SETTINGS,
        recordings: Recordings | None = None,
    ) -> None:
        self.nursery = nursery
        self.store = store
        self.abandoned: list[int] = []
        self.bound: list[tuple[str, int]] = []
        self.wall_moved = 0
        """By how many nanoseconds somebody has set the wall clock."""
        self.server = Server(
            settings, store, self.bound.extend, wall=self.wall, abandon=self.abandoned.append, recordings=recordings
        )
        self.code: int | None = None
        self.error: StartError | None = None
        self.ended_at = 0.0

    async def open(self) -> "House":
        self.nursery.start_soon(self._run)
        await trio.testing.wait_all_tasks_blocked()
        return self

    async def _run(self) -> None:
        try:
            self.code = await self.server.run(signals=False)
        except StartError as error:
            self.error = error
        self.ended_at = trio.current_time()

    def wall(self) -> int:
        """The host's wall clock, which may be set."""
        return wall() + self.wall_moved

    def caller(self) -> Caller:
        return Caller(self.server, self.nursery)


def wall() -> int:
    """A wall clock that goes with the clock of the test."""
    return WALL + round(trio.current_time() * SECOND)
