"""Terms: claim the store, recover, serve, until the term ends; then, after a fault, the next one.

A term has one epoch, one engine, one service and one driver, and is a nursery: cancelling it ends everything that
only the holder of the store may do. Nothing of a term survives it but what is in the store; connections stay in the
lobby.

After a fault (ours, or a store that was lost) a fresh term recovers from the store after a pause of 1 s, doubling to
60 s. Five faults within ten minutes end the process, because a supervisor and a person should know; on the memory
store they do not, because the process is all the memory there is. When another living server leads on the store by
then, the process ends at once: two that took it from each other in turns would cost every running attempt each time.
"""

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from cronoq._observe.logs import get_logger
from cronoq._runtime.clock import Clock, WallDrift
from cronoq._runtime.driver import Driver
from cronoq._runtime.faults import TermEnded, describe
from cronoq._runtime.lobby import Lobby
from cronoq._runtime.performer import Performer
from cronoq._runtime.recovery_log import tell_hopeless, tell_schedules
from cronoq._stores.base import Claim, Store, StoreError, StoreHeld, StoreUnavailable
from cronoq.errors import StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import RecurringDeleted
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service.messages import StopRequested
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import Settings

if TYPE_CHECKING:
    from cronoq._runtime.recorder import Recorder
    from cronoq._runtime.recording_files import Recordings

log = get_logger("term")

PROGRESS = 5 * SECOND
"""How often a long recovery says how far it is."""
PRUNE_PAUSE = 0.05
"""Seconds between two portions of pruning, so that commits of the service come in between."""


class Terms:
    """One term after the other, on one store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        lobby: Lobby,
        serving: Callable[[int], None],
        recordings: "Recordings | None" = None,
    ) -> None:
        """`serving` is called with the epoch whenever a term begins to serve; `recordings`: each term is recorded."""
        self._settings = settings
        self._store = store
        self._clock = clock
        self._lobby = lobby
        self._serving = serving
        self._recordings = recordings
        self._recorder: Recorder | None = None
        self._faults: deque[int] = deque()
        self._stop = trio.Event()
        self._graceful = False
        """A term was told to stop gracefully: whatever ends it before it has done so is a fault of the stop."""
        self.claim: Claim | None = None
        self.driver: Driver | None = None
        self.service: Service | None = None

    def request_stop(self) -> None:
        """Stop gracefully: `run` returns when the term has done what a stop asks of it. Idempotent."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until a graceful stop is complete. Raises `StartError` when it is of no use to go on."""
        while not self._stop.is_set():
            try:
                await self._term()
            except StoreError as error:
                if self.driver is None:
                    raise StartError(str(error)) from error
                if isinstance(error, StoreHeld):
                    raise StartError(f"this server lost its store to another one: {error}") from error
                await self._pause(TermEnded(str(error)))
            except TermEnded as ended:
                await self._pause(ended)

    async def _term(self) -> None:
        """One term; returns after a graceful stop, raises `TermEnded` or `StoreError` otherwise."""
        ended: Exception | None = TermEnded("the stop was forced")
        try:
            ended = await self._until_ended()
        finally:
            recorder, self._recorder = self._recorder, None
            if recorder is not None:
                await recorder.end(None if ended is None else str(ended))
        if ended is not None:
            raise ended

    async def _until_ended(self) -> Exception | None:
        """One term; returns why it ended, None after a graceful stop."""
        ended: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_early, nursery.cancel_scope)
            try:
                driver, stopped = await self._begin()
            except (StoreError, TermEnded, StartError) as error:
                ended = error
            except Exception as error:
                ended = TermEnded(f"a fault of the server during recovery: {describe(error)}")
            else:
                nursery.start_soon(self._prune)
                nursery.start_soon(self._stop_gracefully, driver, stopped)
                try:
                    await driver.run()
                except TermEnded as error:
                    ended = None if stopped.is_set() else error
            nursery.cancel_scope.cancel()
        return ended

    async def _begin(self) -> tuple[Driver, trio.Event]:
        """Claim and recover; returns the driver of a term that serves, and what is set when a stop is complete."""
        settings, store, clock = self._settings, self._store, self._clock
        self.claim = claim = await self._claim()
        drift = WallDrift(clock, clock.wall_offset())
        engine = await self._recover(claim, drift.told)
        now = clock.now()
        recorder = self._recorder
        if recorder is not None:
            recorder.beginning(now)
        step = engine.begin(now)
        if recorder is not None:
            recorder.begun(step)
        recurring = engine.recurring
        removed = [record.name for record in step.writes if type(record) is RecurringDeleted]
        tell_schedules(len(recurring), recurring.unarmed, recurring.notes, removed)
        self.service = service = Service(engine, settings, now, volatile=store.volatile)
        stopped = trio.Event()
        performer = Performer(self._lobby, stopped.set)
        outbox = Outbox(service, volatile=store.volatile) if recorder is None else recorder.outbox(service)
        self.driver = driver = Driver(outbox, store, clock, drift, performer)
        performer.ask = driver.ask
        driver.adopt(step)
        performer.perform([LogDrop(drop) for drop in step.at_once if type(drop) is OccurrenceDropped])
        self._lobby.open(driver)
        self._serving(claim.epoch)
        return driver, stopped

    async def _claim(self) -> Claim:
        """Claim the store, waiting for one that cannot be claimed now."""
        begun = self._clock.now()
        pause = limits.TERM_RESTART_MIN
        while True:
            try:
                return await self._store.claim((self._clock.now() + self._clock.wall_offset()) // SECOND)
            except StoreUnavailable as error:
                if self._clock.now() - begun > limits.MAX_STORE_OUTAGE:
                    raise StartError(str(error)) from error
                log.warning("waiting for the store", error=str(error))
            await trio.sleep(seconds(pause))
            pause = min(pause * 2, limits.COMMIT_RETRY_MAX)

    async def _recover(self, claim: Claim, wall_offset: int) -> Engine:
        """An engine with what the store holds, loaded and settled in portions."""
        settings, clock, seed = self._settings, self._clock, int.from_bytes(os.urandom(8), "big")
        now = clock.now()
        engine = Engine.recover(
            settings,
            first_task_id=claim.first_task_id,
            first_lease_id=claim.first_lease_id,
            seed=seed,
            now=now,
            wall_offset=wall_offset,
        )
        recorder = self._record(engine, claim, seed)
        count, report = 0, now + PROGRESS
        async for portion in self._store.load(now + wall_offset - settings.limits.key_retention):
            if recorder is not None:
                recorder.loading(portion)
            engine.load(portion)
            count += len(portion)
            if clock.now() > report:
                report = clock.now() + PROGRESS
                log.info("recovering", rows_read=count)
            await trio.lowlevel.checkpoint()
        more = True
        while more:
            settled = clock.now()
            if recorder is not None:
                recorder.settling(settled)
            more = engine.settle(settled)
            await trio.lowlevel.checkpoint()
        took = clock.now() - now
        tell_hopeless(engine.hopeless(), engine.totals.skipped)
        live, remembered = len(engine.tasks.live), engine.tasks.retained()
        log.info("recovered", tasks=live, finished=remembered, seconds=round(seconds(took), 3), epoch=claim.epoch)
        return engine

    def _record(self, engine: Engine, claim: Claim, seed: int) -> "Recorder | None":
        """The recorder of this term, which was told of its engine; None when nothing is recorded."""
        if self._recordings is None:
            return None
        from cronoq._runtime.recorder import Recorder

        self._recorder = recorder = Recorder(self._recordings, volatile=self._store.volatile)
        recorder.recovering(engine, self._settings, claim, seed)
        return recorder

    async def _stop_early(self, scope: trio.CancelScope) -> None:
        """A stop before the term serves needs no grace: nobody was promised anything."""
        await self._stop.wait()
        if not self._lobby.serving:
            scope.cancel()

    async def _stop_gracefully(self, driver: Driver, stopped: trio.Event) -> None:
        await self._stop.wait()
        self._graceful = driver.ended is None
        driver.deliver([StopRequested(self._settings.server.shutdown_grace)])
        await stopped.wait()
        self._lobby.shut()
        driver.finish()

    async def _prune(self) -> None:
        """Delete finished tasks that are older than the store keeps them: now, and every hour."""
        if self._store.volatile:
            return
        while True:
            count = 0
            before = self._clock.now() + self._clock.wall_offset() - self._settings.store.keep_finished
            try:
                while portion := await self._store.prune(before):
                    count += portion
                    await trio.sleep(PRUNE_PAUSE)
            except StoreError as error:
                log.warning("pruning stopped, it goes on later", error=str(error))
            if count:
                log.info("pruned finished tasks", count=count)
            await trio.sleep(seconds(limits.PRUNE_INTERVAL))

    async def _pause(self, ended: TermEnded) -> None:
        """Count the fault and wait; raises `StartError` when there were too many, or when a stop was under way."""
        if self._graceful:
            raise StartError(f"the stop did not end in order: {ended}")
        now = self._clock.now()
        faults = self._faults
        faults.append(now)
        while faults[0] <= now - limits.TERM_FAULT_WINDOW:
            faults.popleft()
        if len(faults) >= limits.MAX_TERM_FAULTS and not self._store.volatile:
            raise StartError(f"{len(faults)} terms failed within ten minutes, the last one by {ended}")
        pause = min(limits.TERM_RESTART_MIN << (min(len(faults), 16) - 1), limits.TERM_RESTART_MAX)
        log.warning("a fresh term will be tried", after=str(ended), pause=seconds(pause))
        with trio.move_on_after(seconds(pause)):
            await self._stop.wait()
