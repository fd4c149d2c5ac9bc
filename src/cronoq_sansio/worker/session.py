"""One worker stream seen from the worker, as a state machine.

Theory. A session is in one of seven states:

    REGISTERING  Register was said, the answer is not here
    STOPPING     the same, and the worker is to stop: leases may be on their way, so it waits for the answer
    SERVING      leases come, handlers run, outcomes go out
    DRAINING     it offers 0 slots and gives back what still comes; handlers may finish
    CUTTING      the grace is over: handlers are cancelled, what they report on their way out still counts
    PARTING      everything is said, the sending side is closed
    OVER         the stream has ended, or the server has given everything up

`TRANSITIONS` lists, for each state and input, the method with the effect and the state afterwards. What it does not
list is ignored. Time moves a session on from STOPPING, DRAINING and CUTTING: see `_settle`.

Leases. `_held` is what the server counts as ours. A lease leaves it by exactly one report, by an Abort, or with the
stream; after that nothing is said about it. Its handler may live on: it still fills one of the worker's `slots`.

Slots. `slots` is how many handlers may be alive at once, of this session or an earlier one. The server never grants
more. When a handler goes on after its lease has ended, the server is offered less meanwhile; a lease that was
on its way then waits for `limits.WORKER_SLOT_WAIT`, with heartbeats, before it is given back.

What goes out is bounded: at most one report per lease, one pending heartbeat per lease, one pending offer.
"""

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from cronoq_sansio import limits
from cronoq_sansio.errors import RemoteProtocolError
from cronoq_sansio.worker.words import (
    Aborted,
    Beat,
    Cancelled,
    Complete,
    Completed,
    EarlierExited,
    Effect,
    Fail,
    Failed,
    HandlerExited,
    Held,
    Input,
    Interrupt,
    Interrupted,
    Leased,
    Leave,
    Nack,
    Offer,
    Outcome,
    Part,
    Refused,
    Registered,
    Report,
    ServerLeaves,
    Start,
    StopAsked,
    StreamEnded,
    ToServer,
    Withdrawn,
)

NO_SLOT = "worker has no free slot"
DRAINING_TEXT = "worker is draining"
STOPPED_TEXT = "worker stopped before the handler had finished"
DISCONNECTED_TEXT = "disconnected from the server"


class State(Enum):
    """Where a session stands."""

    REGISTERING = "registering"
    STOPPING = "stopping"
    SERVING = "serving"
    DRAINING = "draining"
    CUTTING = "cutting"
    PARTING = "parting"
    OVER = "over"

    inputs: "dict[type, tuple[Effects, State]]"
    """What is listed for it in `TRANSITIONS`."""


REGISTERING, STOPPING, SERVING, DRAINING, CUTTING, PARTING, OVER = State

TRANSITIONS: dict[tuple[State, type], tuple[str, State]] = {
    (REGISTERING, Registered): ("register", SERVING),
    (REGISTERING, Leased): ("refuse_order", OVER),
    (REGISTERING, Aborted): ("refuse_order", OVER),
    (REGISTERING, ServerLeaves): ("leave", OVER),
    (REGISTERING, EarlierExited): ("free_earlier", REGISTERING),
    (REGISTERING, StopAsked): ("await_answer", STOPPING),
    (REGISTERING, StreamEnded): ("lose", OVER),
    (STOPPING, Registered): ("register", DRAINING),
    (STOPPING, Leased): ("refuse_order", OVER),
    (STOPPING, Aborted): ("refuse_order", OVER),
    (STOPPING, ServerLeaves): ("leave", OVER),
    (STOPPING, EarlierExited): ("free_earlier", STOPPING),
    (STOPPING, StreamEnded): ("lose", OVER),
    (SERVING, Registered): ("refuse_order", OVER),
    (SERVING, Leased): ("take", SERVING),
    (SERVING, Aborted): ("abort", SERVING),
    (SERVING, ServerLeaves): ("leave", OVER),
    (SERVING, HandlerExited): ("finish", SERVING),
    (SERVING, EarlierExited): ("free_earlier", SERVING),
    (SERVING, StopAsked): ("drain", DRAINING),
    (SERVING, StreamEnded): ("lose", OVER),
    (DRAINING, Registered): ("refuse_order", OVER),
    (DRAINING, Leased): ("decline", DRAINING),
    (DRAINING, Aborted): ("abort", DRAINING),
    (DRAINING, ServerLeaves): ("leave", OVER),
    (DRAINING, HandlerExited): ("finish", DRAINING),
    (DRAINING, EarlierExited): ("free_earlier", DRAINING),
    (DRAINING, StopAsked): ("hurry", DRAINING),
    (DRAINING, StreamEnded): ("lose", OVER),
    (CUTTING, Registered): ("refuse_order", OVER),
    (CUTTING, Leased): ("decline", CUTTING),
    (CUTTING, Aborted): ("abort", CUTTING),
    (CUTTING, ServerLeaves): ("leave", OVER),
    (CUTTING, HandlerExited): ("finish", CUTTING),
    (CUTTING, EarlierExited): ("free_earlier", CUTTING),
    (CUTTING, StreamEnded): ("lose", OVER),
    (PARTING, HandlerExited): ("finish", PARTING),
    (PARTING, EarlierExited): ("free_earlier", PARTING),
    (PARTING, ServerLeaves): ("leave", OVER),
    (PARTING, StreamEnded): ("lose", OVER),
    (OVER, HandlerExited): ("finish", OVER),
    (OVER, EarlierExited): ("free_earlier", OVER),
}

_NEVER = 1 << 63


class WorkerSession:
    """One stream, from Register on. `slots`: handlers that may be alive at once; `busy`: of earlier sessions, now."""

    def __init__(self, slots: int, *, busy: int = 0) -> None:
        self.state = REGISTERING
        self.registered: Registered | None = None
        """What the server said, with its zeros replaced by what they stand for."""
        self.requested = max(slots - busy, 0)
        """Slots to ask for."""
        self.granted = 0
        """The most that the server lets this worker run."""
        self.late_by = 0
        """How late the latest heartbeat was: the event loop was blocked for so long."""
        self._slots = slots
        self._alive = busy
        """Handlers that have not exited."""
        self._running = 0
        """Of these, handlers of leases in `_held`."""
        self._held: dict[int, Held] = {}
        self._waiting: deque[Held] = deque()
        """Leases without a handler yet; those that have ended are skipped."""
        self._offered = 0
        self._until = _NEVER
        """When time moves a stopping session on."""
        self._linger = 0
        """Not parting before: leases may be on their way."""
        self._alarms: list[tuple[int, int, Held]] = []
        self._sequence = 0
        self._beats: dict[int, None] = {}
        self._reports: deque[Report] = deque()
        self._version = 1
        self._max_text = limits.MAX_WORKER_MESSAGE

    @property
    def held(self) -> int:
        """Leases that the server counts as ours."""
        return len(self._held)

    @property
    def congested(self) -> bool:
        """The server gives more than it takes reports for: read nothing more before some of these are sent."""
        return len(self._reports) > 2 * self._slots + limits.OUTBOUND_SPARE

    # --- in

    def handle(self, event: Input, now: int) -> list[Effect]:
        """Take one input.

        `RemoteProtocolError` when the server breaks the protocol; the session is over then, and the error's `reply` is
        the list of effects that are still to be performed.
        """
        effects: list[Effect] = []
        entry = self.state.inputs.get(type(event))
        if entry is not None:
            method, self.state = entry
            method(self, event, now, effects)
            if self.state is not SERVING:
                self._settle(now, effects)
        return effects

    def handle_timer(self, now: int) -> list[Effect]:
        """Act on what is due: heartbeats, leases that waited too long, ends of grace."""
        effects: list[Effect] = []
        alarms = self._alarms
        while alarms and (alarms[0][0] <= now or alarms[0][2].ended):
            due, _, held = heapq.heappop(alarms)
            if not held.ended:
                self.late_by = now - due
                self._beats[held.lease] = None
                self._arm(held, now)
        while self._waiting and (self._waiting[0].ended or self._waiting[0].wait_until <= now):
            held = self._waiting.popleft()
            if not held.ended:
                self._give_back(held, NO_SLOT)
        self._settle(now, effects)
        return effects

    def next_timeout(self) -> int | None:
        """When `handle_timer` is due; None = never."""
        alarms, waiting = self._alarms, self._waiting
        while alarms and alarms[0][2].ended:
            heapq.heappop(alarms)
        while waiting and waiting[0].ended:
            waiting.popleft()
        due = self._until
        if self.state in (DRAINING, CUTTING) and not self._held:
            due = self._linger
        if alarms:
            due = min(due, alarms[0][0])
        if waiting:
            due = min(due, waiting[0].wait_until)
        return None if due == _NEVER else due

    @property
    def due(self) -> int:
        """When `next_timeout` is at the earliest."""
        due = self._until if self.state is SERVING else 0
        if self._alarms and self._alarms[0][0] < due:
            due = self._alarms[0][0]
        if self._waiting and self._waiting[0].wait_until < due:
            due = self._waiting[0].wait_until
        return due

    # --- out

    @property
    def has_messages(self) -> bool:
        """Whether `next_message` has one."""
        if self._reports or self._beats:
            return True
        return self.state in (SERVING, DRAINING, CUTTING, PARTING) and self._offer() != self._offered

    def next_message(self) -> ToServer | None:
        """What to send next; None = nothing.

        A changed offer comes before reports, so that none of them is answered with a lease that it rules out.
        """
        usual = self._alive == self._running and self._offered == self.granted and self.state is SERVING
        if usual and not self._beats:
            return self._reports.popleft() if self._reports else None
        if self._beats:
            lease = next(iter(self._beats))
            del self._beats[lease]
            return Beat(lease)
        if self.state in (SERVING, DRAINING, CUTTING, PARTING):
            offer = self._offer()
            if offer != self._offered:
                self._offered = offer
                return Offer(offer)
        return self._reports.popleft() if self._reports else None

    def _offer(self) -> int:
        if self.state is not SERVING:
            return 0
        return min(self.granted, max(self._slots - (self._alive - self._running), 0))

    # --- effects: the session

    def _register(self, event: Registered, now: int, effects: list[Effect]) -> None:
        granted = min(event.slots or self.requested, self.requested)
        # Asked for less because earlier handlers were alive: whether the server would grant more is not known.
        self.granted = granted if granted < self.requested else self._slots
        self._offered = granted
        self._version = event.version or 1
        ttl = event.lease_ttl or None
        limit = event.max_message_bytes or None
        if limit is not None:
            self._max_text = min(self._max_text, limit // 4)
        self.registered = Registered(event.worker_id, self.granted, self._version, ttl, limit)
        if self.state is DRAINING:
            self._linger = now + limits.WORKER_DRAIN_LINGER

    def _refuse_order(self, event: Input, now: int, effects: list[Effect]) -> None:
        what = "Registered twice" if isinstance(event, Registered) else f"{type(event).__name__} before Registered"
        text = f"the server broke the worker protocol: {what}"
        self._drop_all(text, effects)
        raise RemoteProtocolError(text, effects)

    def _await_answer(self, event: StopAsked, now: int, effects: list[Effect]) -> None:
        self._until = now + limits.WORKER_PART_TIMEOUT

    def _hurry(self, event: StopAsked, now: int, effects: list[Effect]) -> None:
        self._until = min(self._until, event.until)

    def _drain(self, event: StopAsked, now: int, effects: list[Effect]) -> None:
        self._until = min(self._until, event.until)
        self._linger = now + limits.WORKER_DRAIN_LINGER
        for held in self._waiting:
            if not held.ended:
                self._give_back(held, DRAINING_TEXT)
        self._waiting.clear()

    def _leave(self, event: ServerLeaves, now: int, effects: list[Effect]) -> None:
        self._drop_all(event.reason, effects)
        effects.append(Leave(event.reason, event.not_leader))

    def _lose(self, event: StreamEnded, now: int, effects: list[Effect]) -> None:
        self._drop_all(DISCONNECTED_TEXT, effects)

    def _drop_all(self, reason: str, effects: list[Effect]) -> None:
        """The server does not wait for any of our leases."""
        for held in self._held.values():
            held.ended = True
            if held.running:
                self._running -= 1
                effects.append(Interrupt(held, reason))
        self._held.clear()
        self._waiting.clear()
        self._alarms.clear()
        self._beats.clear()
        self._reports.clear()
        self._until = _NEVER

    def _settle(self, now: int, effects: list[Effect]) -> None:
        """Move on when time has come."""
        if self.state is STOPPING and now >= self._until:
            self._part(effects)
        if self.state is DRAINING and now >= self._until and self._held:
            self.state = CUTTING
            self._until = now + limits.WORKER_CUT_WAIT
            effects += [Interrupt(held, STOPPED_TEXT) for held in self._held.values()]
        if self.state is CUTTING and now >= self._until:
            for held in list(self._held.values()):
                self._interrupted(held)
        if self.state in (DRAINING, CUTTING) and not self._held and now >= self._linger:
            self._part(effects)

    def _part(self, effects: list[Effect]) -> None:
        self.state = PARTING
        self._until = _NEVER
        effects.append(Part())

    # --- effects: leases

    def _take(self, event: Leased, now: int, effects: list[Effect]) -> None:
        if event.lease in self._held:
            return  # said twice; the handler runs already
        if len(self._held) >= self.granted:
            self._reports.append(Nack(event.lease, NO_SLOT))
            return
        assert self.registered is not None
        ttl = event.ttl or self.registered.lease_ttl
        held = Held(event.lease, event.job, 0 if ttl is None else max(ttl // 3, limits.MIN_HEARTBEAT))
        self._held[event.lease] = held
        self._arm(held, now)
        if self._alive < self._slots:
            self._start(held, effects)
        else:
            held.wait_until = now + limits.WORKER_SLOT_WAIT
            self._waiting.append(held)

    def _decline(self, event: Leased, now: int, effects: list[Effect]) -> None:
        if event.lease not in self._held:
            self._reports.append(Nack(event.lease, DRAINING_TEXT))
            self._linger = now + limits.WORKER_DRAIN_LINGER

    def _start(self, held: Held, effects: list[Effect]) -> None:
        held.running = True
        self._alive += 1
        self._running += 1
        effects.append(Start(held))

    def _abort(self, event: Aborted, now: int, effects: list[Effect]) -> None:
        held = self._held.get(event.lease)
        if held is None:
            return
        self._release(held)
        if held.running:
            effects.append(Interrupt(held, event.reason))

    def _finish(self, event: HandlerExited, now: int, effects: list[Effect]) -> None:
        held = event.held
        assert held.running, "a handler exits once"
        if not held.ended:
            self._report(held, event.outcome)
        held.running = False
        self._alive -= 1
        self._use_free_slot(effects)

    def _free_earlier(self, event: EarlierExited, now: int, effects: list[Effect]) -> None:
        self._alive -= 1
        self._use_free_slot(effects)

    def _use_free_slot(self, effects: list[Effect]) -> None:
        while self._waiting and self._alive < self._slots:
            held = self._waiting.popleft()
            if not held.ended:
                self._start(held, effects)

    def _release(self, held: Held) -> None:
        """The lease is not ours any more; its handler may live on."""
        held.ended = True
        self._running -= held.running
        del self._held[held.lease]
        self._beats.pop(held.lease, None)

    def _arm(self, held: Held, now: int) -> None:
        if held.period:
            self._sequence += 1
            heapq.heappush(self._alarms, (now + held.period, self._sequence, held))
            if len(self._alarms) > 2 * len(self._held) + limits.MAX_LANE_GARBAGE:
                self._alarms = [entry for entry in self._alarms if not entry[2].ended]
                heapq.heapify(self._alarms)

    # --- effects: reports

    def _report(self, held: Held, outcome: Outcome) -> None:
        """The one report of a lease (protocol rule 4)."""
        match outcome:
            case Completed():
                self._completed(held, outcome)
            case Failed():
                self._fail(held, outcome.message, outcome.permanent, outcome.retry_after)
            case Refused():
                self._give_back(held, outcome.reason)
            case Withdrawn() if self._version > 1:
                self._release(held)
                self._reports.append(Cancelled(held.lease))
            case Withdrawn():
                self._fail(held, outcome.text, True)
            case Interrupted():
                self._interrupted(held)

    def _completed(self, held: Held, outcome: Completed) -> None:
        assert self.registered is not None
        limit = self.registered.max_message_bytes
        size = len(outcome.output)
        if limit is not None and size + limits.MESSAGE_HEADROOM > limit:
            room = max(limit - limits.MESSAGE_HEADROOM, 0)
            text = f"the output has {size} bytes, at most {room} fit below the server's message limit of {limit}"
            self._fail(held, text, True)
            return
        self._release(held)
        self._reports.append(Complete(held.lease, outcome.output, outcome.content_type))

    def _interrupted(self, held: Held) -> None:
        self._give_back(held, STOPPED_TEXT)

    def _give_back(self, held: Held, reason: str) -> None:
        """Nack; servers of version 1 do not know it."""
        if self._version > 1:
            self._release(held)
            self._reports.append(Nack(held.lease, self._cut(reason)))
        else:
            self._fail(held, reason, False)

    def _fail(self, held: Held, message: str, permanent: bool, retry_after: float | None = None) -> None:
        self._release(held)
        self._reports.append(Fail(held.lease, self._cut(message), permanent, retry_after))

    def _cut(self, text: str) -> str:
        """NUL and what UTF-8 does not know become U+FFFD and `?`; the rest is cut to the limit, on a character."""
        encoded = text.replace("\0", "\N{REPLACEMENT CHARACTER}")[: self._max_text].encode("utf-8", "replace")
        return encoded[: self._max_text].decode("utf-8", "ignore")

    # --- checks

    def check_invariants(self) -> None:
        """Leases, handlers, slots and queues agree."""
        assert all(held.lease == lease and not held.ended for lease, held in self._held.items())
        assert self._running == sum(held.running for held in self._held.values())
        assert 0 <= self._running <= self._alive <= self._slots
        waiting = [held.lease for held in self._waiting if not held.ended]
        assert waiting == [lease for lease, held in self._held.items() if not held.running]
        assert not waiting or self.state is SERVING
        assert set(self._beats) <= set(self._held)
        assert len(self._held) <= self.granted
        assert self.state is not OVER or not (self._held or self._reports)
        armed = [held.lease for _, _, held in self._alarms if not held.ended]
        assert sorted(armed) == sorted(lease for lease, held in self._held.items() if held.period)
        assert self.state is not PARTING or not self._held


Effects = Callable[[WorkerSession, Any, int, list[Effect]], None]
for _state in State:
    _state.inputs = {}
for (_state, _kind), (_name, _after) in TRANSITIONS.items():
    _state.inputs[_kind] = (getattr(WorkerSession, f"_{_name}"), _after)
