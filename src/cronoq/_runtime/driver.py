"""The driver: the only caller of a machine's `handle`, for the length of one term.

It is a function call, not a queue. Whoever has events (a connection that read, the timer, a finished commit, a store
query) calls `Driver.handle`: the events become one step, the step's writes join the transaction that is written next,
what may be done now is performed, and each connection that was touched is flushed once. Nothing of this awaits. It is
not re-entrant: events that arise while performing wait in a local list and become the next step.

Faults. A raise in `handle` means that the machine may be half changed: the term is broken, what is not committed is
dropped, and the caller sees `TermEnded`. A raise while performing concerns one connection, and the performer ends
that one.

Time. One task sleeps until the machine's next timeout or the next tick, whichever is first; an event that sets an
earlier timeout pulls its alarm nearer. Waking late by more than `limits.STALL` means that the process could not run:
the machine is told, and gets its timer only after two passes of the loop, in which everything that is readable is
read. Two readings of the fastest counter per step (0.06 µs each) tell whether a step of ours was the cause. The wall
clock is looked at whenever this task wakes, before a timer acts: what must start at a wall time never goes by a clock
that has been set since, and a step is noticed within a tick.

Written on anyio, so that an embedded scheduler runs the same driver under asyncio.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol, cast

import anyio
import anyio.abc
import anyio.lowlevel

from cronoq._observe.logs import get_logger
from cronoq._runtime.clock import Clock, WallDrift
from cronoq._runtime.committer import Committer
from cronoq._runtime.faults import TermEnded, describe, kinds
from cronoq._runtime.slow_steps import SlowSteps
from cronoq._stores.base import Store, StoreError, VolatileStore
from cronoq_sansio import limits
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.events import Stalled, TimerFired, WallClockMoved
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service.messages import FindTask, ListFinished, StoreAnswered, StoreQuery

log = get_logger("term")


class Performer(Protocol):
    """Performs actions. Never raises: what goes wrong concerns one connection, and the performer ends that one."""

    @property
    def touched(self) -> Sequence[Any]:
        """What is to be flushed."""

    def perform(self, actions: Sequence[Any]) -> None:
        """Perform in order, without writing to any socket yet."""

    def flush(self) -> list[Any]:
        """Write once to each connection touched since the last flush; returns the events that arose."""

    def hold(self, calls: bool, workers: bool) -> None:
        """Stop (True) or go on (False) giving flow-control credit to calls and to worker streams."""

    def looked(self, duration: int) -> None:
        """What came of a list that the store was asked for took so many nanoseconds, until now."""

    def tick(self) -> None:
        """Some time has passed."""

    def ended(self) -> None:
        """The term is over: nothing that is open is answered by it any more."""


class Driver:
    """Drives one machine, behind its outbox, from one store's claim to the end of the term."""

    def __init__(self, outbox: Outbox, store: Store, clock: Clock, drift: WallDrift, performer: Performer) -> None:
        self.outbox = outbox
        self.ended: TermEnded | None = None
        self.committer = Committer(store, clock, self.deliver, performer.hold, self.end)
        self._store = store
        self._memory = cast(VolatileStore, store) if store.volatile else None
        self._clock = clock
        self._drift = drift
        self._performer = performer
        self._busy = False
        self._arisen: list[Any] = []
        self._armed = 0
        self._alarm: anyio.CancelScope | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._slow = SlowSteps()
        self._lists = anyio.Semaphore(limits.MAX_STORE_LISTS)

    # --- the call

    def handle(self, events: Sequence[Any], now: int | None = None) -> None:
        """Apply `events` as one step and perform what follows. `now`: the caller's reading of the clock, if it has one.

        Raises `TermEnded` when the term is over, or ends with this call.
        """
        if self._busy:
            self._arisen.extend(events)
            return
        if self.ended is not None:
            raise TermEnded(str(self.ended))
        if now is None:
            now = self._clock.now()
        outbox, performer, committer, memory = self.outbox, self._performer, self.committer, self._memory
        self._busy = True
        added = False
        begun = perf_counter_ns()
        try:
            while True:
                batch = events
                step = outbox.handle(batch, now)
                if step.writes:
                    if memory is None:
                        committer.add(step.number, step.writes)
                        added = True
                    else:
                        memory.apply(step.writes)
                        committer.figures.applied += 1
                if step.at_once:
                    performer.perform(step.at_once)
                events = self._arisen
                if events:
                    self._arisen = []
                elif performer.touched:
                    events = performer.flush()
                ended = perf_counter_ns()
                if ended - begun > limits.SLOW_STEP:
                    self._slow.note(batch, begun, ended)
                if not events:
                    break
                begun = ended
        except Exception as error:
            raise self._broken(error, events) from error
        finally:
            self._busy = False
        if added:
            committer.kick()
        due = outbox.next_timeout()
        if due is not None and due < self._armed:
            self._pull(due)

    def deliver(self, events: Sequence[Any]) -> None:
        """`handle` for the term's own tasks, which end with the term and need no exception to know it."""
        try:
            self.handle(events)
        except TermEnded:
            pass

    def adopt(self, step: Step[Any, Any]) -> None:
        """Take over the step with which recovery ended: its writes are the first transaction of the term."""
        if not step.writes:
            return
        if self._memory is not None:
            self._memory.apply(step.writes)
            return
        self.committer.add(step.number, step.writes)
        self.committer.kick()

    def ask(self, query: StoreQuery) -> None:
        """Ask the store, in a task of the term; the answer comes as `StoreAnswered`."""
        if self._group is None:
            return
        if isinstance(query, FindTask):
            self._group.start_soon(self._guard, partial(self._find, query))
        else:
            self._group.start_soon(self._guard, partial(self._list, query))

    # --- the term

    async def run(self) -> None:
        """Drive until the term ends, then raise `TermEnded`. On leaving no transaction is being written any more."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                if self.ended is not None:
                    group.cancel_scope.cancel()
                group.start_soon(self._guard, self.committer.run)
                group.start_soon(self._guard, self._keep_time)
        finally:  # also when it was cancelled: events that still come must not reach a store that is being closed
            ended = self.ended = self.ended or TermEnded("the term was stopped")
        raise ended

    def end(self, reason: TermEnded) -> None:
        """End the term. What is not committed is dropped; nothing of it was promised to anybody."""
        if self.ended is not None:
            return
        self.ended = reason
        fields = {"events": reason.events} if reason.events else {}
        log.error("the term is over, what it had not stored was promised to nobody", cause=str(reason), **fields)
        if self._group is not None:
            self._group.cancel_scope.cancel()
        self._performer.ended()

    def finish(self) -> None:
        """End the term after a graceful stop: everything is durable and everybody was answered."""
        if self.ended is None:
            self.ended = TermEnded("the server has stopped")
            if self._group is not None:
                self._group.cancel_scope.cancel()

    def _broken(self, error: Exception, events: Sequence[Any]) -> TermEnded:
        reason = TermEnded(f"a fault of the server: {describe(error)}", events=kinds(events))
        self.end(reason)
        return TermEnded(str(reason), events=reason.events)

    async def _guard(self, task: Any) -> None:
        """Run one of the term's own tasks; a fault in it is a fault of the term, not of the process."""
        try:
            await task()
        except Exception as error:
            self.end(TermEnded(f"a fault of the server: {describe(error)}"))

    async def _find(self, query: FindTask) -> None:
        self.deliver([StoreAnswered(query, await self._ask(self._store.find, query))])

    async def _list(self, query: ListFinished) -> None:
        """So many at a time; and the answer takes as long as what led to the question."""
        async with self._lists:
            answer = await self._ask(self._store.list, query)
        begun = self._clock.now()
        self.deliver([StoreAnswered(query, answer)])
        self._performer.looked(self._clock.now() - begun)

    async def _ask(self, ask: Callable[[Any], Awaitable[Any]], query: StoreQuery) -> Any:
        try:
            return await ask(query)
        except StoreError as error:
            log.warning("a query to the store failed", error=str(error))
            return Rejection(Code.UNAVAILABLE, "the store cannot be asked now; try again")
        except Exception as error:
            log.error("a query to the store failed", fault=describe(error))
            return Rejection(Code.INTERNAL, "what is stored cannot be read; the server's log has the details")

    # --- time

    async def _keep_time(self) -> None:
        tick = self._clock.now() + limits.TICK
        while True:
            due = self.outbox.next_timeout()
            armed = tick if due is None or tick < due else due
            self._armed = max(armed, self._clock.now())
            self._slow.forget()
            with anyio.CancelScope(deadline=self._clock.deadline(self._armed)) as self._alarm:
                await anyio.sleep_forever()
            now = self._clock.now()
            lateness = now - self._armed
            self._armed = 0
            if lateness > limits.STALL:
                await self._excuse(lateness)
                now = self._clock.now()
            if now >= tick:
                tick = now + limits.TICK
                self._check(now)
            self._follow_wall_clock()
            due = self.outbox.next_timeout()
            if due is not None and due <= now:
                self.deliver([TimerFired()])

    async def _excuse(self, lateness: int) -> None:
        seconds, remedy = round(lateness / 1e9, 2), self._slow.remedy(lateness)
        log.warning("the process could not run", seconds=seconds, remedy=remedy)
        self.committer.forgive(lateness)
        self.deliver([Stalled(lateness)])
        for _ in range(2):
            await anyio.lowlevel.checkpoint()

    def _check(self, now: int) -> None:
        self._slow.tick()
        self._performer.tick()
        self.committer.check(now)

    def _follow_wall_clock(self) -> None:
        offset = self._drift.check()
        if offset is not None:
            log.info("the wall clock moved", offset_seconds=round(offset / 1e9, 3))
            self.deliver([WallClockMoved(offset)])

    def _pull(self, due: int) -> None:
        """Bring the alarm forward: an event set a timeout before the one that the timer task sleeps for."""
        now = self._clock.now()
        self._armed = max(due, now)
        self._slow.forget()
        if self._alarm is not None:
            self._alarm.deadline = self._clock.deadline(self._armed)
