"""The service: the protocol of `cronoq.v1` without bytes. It composes and routes, and decides nothing itself.

Contract. `handle` applies the events of one read in order; the step that comes out has one transaction (`writes`),
what may be said at once, and what must wait until the step named by its `after` is durable. An `Outbox` around the
service holds that back and calls `released` for everything that is performed. `now` never goes back.
`handle([TimerFired()], now)` is due at `next_timeout()`.

It owns the engine and is the only one to drive it, once per `handle`, and more often only where somebody must see the
state in between. Calls, waits, deadlines, worker registrations and the stop are state in here, with entries in one
timer heap: no task, channel or cancel scope exists per call.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cronoq_sansio.engine.actions import (
    Abort,
    Answer,
    AtOnce,
    Dispatch,
    OccurrenceDropped,
    Step,
    Submitted,
    TaskEnded,
    TaskMoved,
)
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import (
    CascadesHeld,
    CommitsResumed,
    CommitsStalled,
    LeasesReleased,
    Stalled,
    TimerFired,
    WallClockMoved,
)
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.deadlines import CallDue, Deadlines
from cronoq_sansio.service.gate import Gate
from cronoq_sansio.service.messages import (
    Call,
    CallEnded,
    CallReceived,
    CloseWorker,
    GetSnapshot,
    ListWorkers,
    ReadStore,
    Reject,
    Request,
    SendEvent,
    SendLease,
    SendToWorker,
    ServiceAction,
    ServiceEvent,
    SnapshotReply,
    StartEvents,
    StopFinished,
    StopRequested,
    StoreAnswered,
    StorePressure,
    WorkerConnected,
    WorkerGone,
    WorkerSent,
)
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.results import Results
from cronoq_sansio.service.stopping import GraceOver, Stopping
from cronoq_sansio.service.turn import HeldAction, Turn
from cronoq_sansio.service.waits import SubmitStored
from cronoq_sansio.service.watches import Watches
from cronoq_sansio.service.worker_session import Session
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.settings import Settings

#: Two rounds are enough to come to rest; so many mean that engine and service disagree for ever.
ROUNDS = range(9)


class Service:
    """All calls and worker streams of one term, over the engine of that term."""

    def __init__(self, engine: Engine, settings: Settings, now: int, *, volatile: bool = False) -> None:
        """`volatile`: the store forgets finished tasks, so that listings show those which the caches remember.

        The outbox around it is to be told the same: it then holds nothing back, and a Submit that does not wait is over
        when its step is, without a bound on its time.
        """
        self.engine = engine
        self._turn = turn = Turn(now)
        self._timers: TimerHeap[object] = TimerHeap()
        self._gate = gate = Gate(turn)
        self._results = Results(settings.outputs, listed=volatile)
        self._deadlines = Deadlines(self._timers, settings.limits)
        self._watches = Watches(engine, turn)
        self._workers = workers = Workers(engine, settings, turn, gate, self._timers, self._drive)
        self._calls = calls = Calls(
            engine,
            settings,
            turn,
            gate,
            self._deadlines,
            self._results,
            self._drive,
            self._watches,
            {GetSnapshot: self._snapshot, ListWorkers: workers.answer_list},
            volatile=volatile,
        )
        self._stopping = Stopping(engine, turn, gate, self._timers, workers, calls, self._drive)
        self._events: dict[type, Callable[[Any], None]] = {
            CallReceived: calls.received,
            CallEnded: calls.ended,
            WorkerConnected: workers.connected,
            WorkerSent: workers.sent,
            WorkerGone: workers.gone,
            StoreAnswered: calls.store_answered,
            StorePressure: lambda event: gate.set_pressure(event.reason),
            StopRequested: self._stopping.requested,
            TimerFired: self._timer_fired,
            WallClockMoved: self._for_engine,
            Stalled: self._for_engine,
            CascadesHeld: self._for_engine,
            CommitsStalled: self._for_engine,
            CommitsResumed: self._for_engine,
        }
        self._due: dict[type, Callable[[Any], None]] = {
            CallDue: calls.due,
            Session: workers.late,
            GraceOver: lambda _due: None,  # `Stopping.advance` looks at the time in every step
        }
        self._released = self._checks()

    def _checks(self) -> dict[type, Callable[[Any], bool]]:
        """Of what is no end of a call: whether it still makes sense when it is released."""
        calls = self._calls
        return {
            StartEvents: lambda action: bool(action.call.open),
            SendEvent: _somebody_watches,
            SendLease: self._workers.send,
            SendToWorker: lambda action: bool(action.stream.open),
            CloseWorker: self._close_stream,
            ReadStore: lambda action: calls.asks(action.query.number),
            SubmitStored: self._submit_stored,
            StopFinished: lambda _action: True,
            LogDrop: lambda _action: True,
        }

    # --- the machine

    def handle(self, events: Sequence[ServiceEvent], now: int) -> Step[ServiceAction, HeldAction]:
        """Apply the events of one read, in order: one step."""
        turn = self._turn
        if self._deadlines.fresh:
            self._deadlines.arm(turn.now)
        if now > turn.now:  # time never goes back
            turn.now = now
        routes = self._events
        for event in events:
            routes[type(event)](event)
        if self._watches.unsettled:
            self._watches.settle()
        if turn.events:
            self._drive()
        if not self._gate.open:
            self._stopping.advance()
        step = turn.step  # the engine's is taken over: what it said has been routed, its number and writes stay
        if step is None:
            step = Step(self.engine.number)
        else:
            turn.step = None
        step.at_once, step.once_durable = turn.at_once, turn.once_durable
        turn.at_once, turn.once_durable = [], []
        return step

    def released(self, actions: Sequence[HeldAction], now: int) -> list[ServiceAction]:
        """These are performed now, in this order. Returns those that still make sense.

        A call is over with its first reply. Leases that are sent are held by their worker from now on.
        """
        checks, close = self._released, self._calls.close
        performed: list[Any] = []
        leases: list[int] = []
        for action in actions:
            kind = type(action)
            if kind is Answer or kind is Reject:
                call = action.request if kind is Answer else action.call  # type: ignore[union-attr]
                if call.open:
                    close(call)
                    performed.append(action)
            elif checks[kind](action):
                performed.append(action)
                if kind is SendLease:
                    leases.append(action.lease.id)  # type: ignore[union-attr]
        if leases:
            step = self.engine.handle((LeasesReleased(tuple(leases)),), now)
            assert not (step.writes or step.at_once or step.once_durable), "a release has no consequences"
        return performed

    def wanted(self, action: HeldAction) -> bool:
        """False when a held action is for a call or a stream that is over, so that it need not be held."""
        if isinstance(action, Answer):
            return bool(action.request.open)
        if isinstance(action, Reject | SubmitStored):
            return action.call.open
        if isinstance(action, SendLease):
            return self._workers.expects(action)
        if isinstance(action, ReadStore):
            return self._calls.asks(action.query.number)
        if isinstance(action, SendEvent):
            return _somebody_watches(action)
        return not isinstance(action, SendToWorker) or action.stream.open

    def next_timeout(self) -> int | None:
        """When `handle([TimerFired()], …)` is due."""
        if self._deadlines.fresh:
            self._deadlines.arm(self._turn.now)
        engines = self.engine.next_timeout()
        own = self._timers.next() if self._timers.heap else None
        if own is None or (engines is not None and engines < own):
            return engines
        return own

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows, for tests and operators."""
        return {
            **self.engine.statistics(),
            **self._calls.statistics(),
            **self._workers.statistics(),
            "service_timers": len(self._timers),
            "cached_infos": len(self._results.infos),
            "cached_outputs": len(self._results.outputs),
            "cached_output_bytes": self._results.outputs.size,
        }

    def check_invariants(self) -> None:
        """Assert what must hold between steps, in the service, in the engine and between them."""
        self.engine.check_invariants(None)
        self._gate.check_invariants()
        self._calls.check_invariants()
        self._workers.check_invariants()
        self._results.check_invariants()

    # --- inside

    def _drive(self) -> None:
        """Give the engine what has piled up and route what it answers, until nothing is left."""
        turn, calls = self._turn, self._calls
        action: Any
        for _ in ROUNDS:
            if not turn.events:
                return
            events, turn.events = turn.events, []
            step = self.engine.handle(events, turn.now)
            if turn.step is not None:
                step.writes[:0] = turn.step.writes
            turn.step = step
            if step.at_once:
                self._notice(step.at_once)
            for action in step.once_durable:
                kind = type(action)
                if kind is Answer:
                    call = action.request
                    if type(action.outcome) is Submitted and call.wait is None and call.open:  # nearly always
                        turn.once_durable.append(action)
                    else:
                        calls.answered(action)
                elif kind is Dispatch:
                    self._workers.dispatches.append(action)
                elif kind is TaskEnded:
                    self._results.add(action)
                    if calls.awaited:
                        calls.task_ended(action)
                    if self._watches.open:
                        self._watches.ended(action)
                else:
                    assert type(action) is TaskMoved
                    self._watches.moved(action)
            if self._workers.dispatches:
                self._workers.place()
            if calls.submitted:
                calls.settle(step.once_durable)
        raise AssertionError("engine and service do not come to rest")

    def _notice(self, notices: Sequence[AtOnce]) -> None:
        for notice in notices:
            if type(notice) is Abort:
                self._workers.aborted(notice)
            else:
                assert type(notice) is OccurrenceDropped
                self._turn.at_once.append(LogDrop(notice))

    def _for_engine(self, event: WallClockMoved | Stalled | CascadesHeld | CommitsStalled | CommitsResumed) -> None:
        self._turn.events.append(event)

    def _timer_fired(self, event: TimerFired) -> None:
        turn = self._turn
        self._deadlines.arm(turn.now)
        while (due := self._timers.pop_due(turn.now)) is not None:
            self._due[type(due)](due)
        engines = self.engine.next_timeout()
        if engines is not None and engines <= turn.now:
            turn.events.append(event)

    def _snapshot(self, call: Call, _request: Request) -> None:
        """Figures wait for no commit: they name no task, and an operator wants them most while the store hangs."""
        turn = self._turn
        self._drive()
        fault = self._workers.snapshot_fault()
        if fault is not None:
            turn.reject(call, fault)
            return
        by_pool = self._workers.by_pool()
        snapshot = self._workers.published(self.engine.snapshot(turn.now))
        turn.reply(call, SnapshotReply(snapshot, sum(by_pool.values()), by_pool), 0)

    def _submit_stored(self, action: SubmitStored) -> bool:
        self._calls.stored(action)
        return False

    def _close_stream(self, action: CloseWorker) -> bool:
        stream = action.stream
        was_open, stream.open = stream.open, False
        return was_open


def _somebody_watches(action: SendEvent) -> bool:
    return any(call.open for call in action.calls)
