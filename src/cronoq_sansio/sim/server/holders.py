"""Which worker holds which lease of a term, seen from outside: from what it was sent, and what it sent, O(1) each.

A worker holds a lease from the moment it is sent until it reports the outcome, refuses it, is told to stop, or is gone.
Only the holder's reports mean anything; all others are stale and must change nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.events import CommitsResumed, CommitsStalled, Stalled, TimerFired
from cronoq_sansio.limits import OUTBOUND_SPARE
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import ListRecurring, RemoveRecurring
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.door import CHANGING, Door
from cronoq_sansio.sim.server.shadow import CANCELLED, DEAD_LETTERED, FAILED, RUNNING, SUCCEEDED
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Lease
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.workers import Worker

MAX_FIRED = 200
"""Leases up to which all of them are looked at whenever timers fire."""
LISTS = frozenset((m.ListTasks, ListRecurring))
CHANGES = (m.WorkerConnected, m.WorkerGone, m.StopRequested)
EXPIRED, TIMED_OUT, CANCELLED_BY, SHUTDOWN = "lease expired", "attempt timed out", "cancelled", "shutdown"


def fault(what: str, details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, str(details))


class Hold:
    """A lease that a worker has."""

    __slots__ = ("attempt", "beat", "lease", "refused", "started", "stream", "task", "timeout", "ttl")

    def __init__(self, lease: "Lease", stream: m.WorkerStream, ttl: int, at: int) -> None:
        self.lease = lease.id
        self.task = lease.task.id
        self.attempt = lease.attempt
        self.stream: m.WorkerStream | None = stream
        """None while it passes to another worker."""
        self.ttl = ttl
        self.timeout = lease.task.spec.timeout
        self.started = self.beat = at
        """In lease time: time that nobody could use does not count."""
        self.refused: dict[m.WorkerStream, None] = {}

    def due(self) -> int:
        """When it is over by itself, in lease time."""
        expires = self.beat + self.ttl
        return expires if self.timeout is None else min(expires, self.started + self.timeout)

    def __repr__(self) -> str:
        return f"<Hold lease={self.lease} task={self.task} attempt={self.attempt}>"


@value
class Asked:
    """A call as it came."""

    now: int
    event: int
    """In events of the world."""
    highest: int
    """The highest id of a task that was stored then."""
    ends: int
    """How many ends of tasks were known then (`Keys.count`)."""
    deadline: int | None
    request: Any
    refused: str
    """Why it must be refused at once (`Door`), or empty."""
    budget: str
    """What it takes from, when it was let in."""
    read: Sequence[m.Call]
    """Of a list: calls of the same read that change something, …"""
    place: int
    """… of which so many came before it."""


class Desk:
    """What the server owes one registered worker."""

    __slots__ = ("cap", "closing", "held", "id", "labels", "pool", "slots", "told")

    def __init__(self, worker: "Worker", worker_id: int, slots: int, cap: int) -> None:
        self.id = worker_id
        self.pool = worker.pool
        self.labels = worker.labels
        self.slots = slots
        """As the server knows them."""
        self.cap = cap
        """The most that the server grants it."""
        self.held: dict[int, Hold] = {}
        self.told: dict[int, bool] = {}
        """Leases that it was told to stop and has not confirmed; False = perhaps it has, by what crossed that."""
        self.closing = False


class Holders:
    """Of one term."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._view = node.view
        self._ttl = {pool.name: pool.lease_ttl for pool in node.settings.pools}
        self.excused = 0
        self.parked = False
        self.held: dict[int, Hold] = {}
        """By lease id."""
        self._passing: dict[int, Hold] = {}
        """Refused leases that may go to another worker."""
        self._reported: dict[int, m.WorkerStream] = {}
        """Leases whose outcome is reported in this step. What came before that in it may have ended them already."""
        self.desks: dict[m.WorkerStream, Desk] = {}
        self.waiting: dict[m.WorkerStream, int] = {}
        """Streams that were opened and did not register, with the time."""
        self.calls: dict[m.Call, Asked] = {}
        """Calls that may be open."""
        self.watching: dict[Ask, tuple[int, int]] = {}
        """Watches that were let in, and how many ends and starts there had been by then, or at the last look since."""
        self.most_watching = 0
        """The most watches that there ever were at a time."""
        self.told_ends: dict[int, int] = {}
        """Tasks of which somebody was told that they have ended, and when, in events of the world."""
        self.over: list[tuple[Hold, Any]] = []
        """Those of which this step brings the outcome, and that."""
        self.fired = False
        """Timers fire in this step."""
        self.alone = False
        """There is but one event in this step."""
        self.calm = False
        """No event of this step changes which workers there are, or what they offer."""
        self.stale_least = self.stale_most = 0
        """Reports for leases that their stream did not hold. What other events of the step did to it may be unknown."""
        self.grace: int | None = None
        """When a stop takes the leases back that are left."""
        self.door = Door(node.settings.limits)
        self.looked = 0
        """When timers fired for the last time before this step; nothing that was due by then is left."""
        self.settled = False
        """Before this step everything was durable, and told."""
        self.highest = 0
        """The highest id of a task before this step, durable or not."""
        self._fired_at = 0
        self._farewell = 0
        """The last step with writes when the stop was complete but for the store."""
        self._read: list[m.Call] = []
        self.wanted: Hold | None = None
        """What this step refuses although another worker can have it."""
        self._sent: dict[int, tuple[int, int]] = {}
        """Of each task: the last attempt that was sent, and its lease."""
        self._reports: dict[type, Callable[[m.WorkerStream, Any], bool]] = {
            m.Complete: self._over,
            m.Fail: self._over,
            m.AttemptAborted: self._over,
            m.Nack: self._refused,
            m.Heartbeat: self._beat,
        }
        self._others = self._by_event()

    def _by_event(self) -> dict[type, Callable[[Any], None]]:
        """Who looks at which event, reports aside."""
        return {
            m.CallReceived: self._call,
            m.CallEnded: self._left,
            m.WorkerConnected: self._connected,
            m.WorkerGone: self._gone,
            m.StopRequested: self._stop,
            m.StorePressure: self._pressure,
            Stalled: self._stalled,
            CommitsStalled: self._commits_stalled,
            CommitsResumed: self._commits_resumed,
        }

    # --- what a term is told

    def heard(self, events: Sequence[Any]) -> bool:
        """A step is about to handle these. True when all of them are stale reports: then nothing may happen."""
        door = self.door
        frozen = door.stopping or door.pressed
        stale = True
        self.alone = len(events) == 1
        self.calm = not door.stopping
        self.wanted = None
        self.looked = self._fired_at
        self.highest = self._view.highest
        self.fired = type(events[-1]) is TimerFired if events else False
        if self.fired:
            self._fired_at = self._node.now
            self.settled = self._node.settled()
        if self._read:
            self._read = []
        if self._reported:
            self._reported = {}
        reports, others, sent = self._reports, self._others, m.WorkerSent
        for event in events:
            kind = type(event)
            if kind is sent:
                message = event.message
                report = reports.get(type(message))
                if report is None:
                    stale = self.calm = False
                    if type(message) is m.SetSlots:
                        self._slots(event.stream, message)
                    elif type(message) is m.Register and event.stream in self.desks:
                        self._close(event.stream)  # a second one ends the stream
                elif report(event.stream, message):
                    stale = False
            else:
                stale = False
                other = others.get(kind)
                if other is not None:
                    other(event)
                    if kind in CHANGES:
                        self.calm = False
        self._view.frozen = frozen and (door.stopping or door.pressed)
        return stale and len(events) > 0

    def _over(self, stream: m.WorkerStream, message: Any) -> bool:
        hold = self._holding(stream, message.lease)
        if hold is None:
            self._stale(stream, message)
            return False
        self._drop(hold)
        shadow = self._view.live.get(hold.task)
        if shadow is not None and shadow.attempt == hold.attempt:
            shadow.report = message
            self.over.append((hold, message))
        else:
            self.stale_most += 1
        return True

    def _stale(self, stream: m.WorkerStream, message: Any) -> None:
        """It is counted, unless the worker confirms that it has stopped what it was told to stop, or has no say."""
        desk, aborted = self.desks.get(stream), type(message) is m.AttemptAborted
        if desk is not None and aborted and message.lease in desk.told:
            certain = desk.told.pop(message.lease) and len(desk.told) < OUTBOUND_SPARE
            self.stale_most += not certain
            return
        self.stale_most += 1
        if desk is not None and not desk.closing and not self.door.stopping and (self.alone or not aborted):
            self.stale_least += 1

    def followed(self) -> None:
        """The step is made: what its reports say of attempts has been written."""
        view = self._view
        for hold, report in self.over:
            shadow, kind = view.live.get(hold.task), type(report)
            if shadow is not None and shadow.status == RUNNING and shadow.attempt == hold.attempt:
                raise fault("nothing follows from the report of a worker", f"{hold}: {report}")
            end = view.ended.get(hold.task, 0)
            if not self.alone and (end == CANCELLED or (self.fired and not end)):
                self.stale_most += 1  # perhaps something else in this step came before it
            if end == CANCELLED and kind is not m.AttemptAborted:
                right = view.was_cancelled(hold.task)  # earlier in this step
            elif kind is m.Fail:
                right = end in ((FAILED,) if report.permanent else (0, DEAD_LETTERED))
            else:
                right = end == CANCELLED if kind is m.AttemptAborted else end in (SUCCEEDED, FAILED)
            if not right:
                raise fault("something else follows from the report of a worker", f"{hold}: {report}, its end: {end}")
        self.over = []

    def passed_on(self) -> None:
        """The step is made: a lease was refused that another worker can have."""
        refused = self.wanted
        shadow = None if refused is None else self._view.live.get(refused.task)
        if shadow is None or shadow.status != RUNNING:
            raise fault("a refused lease fails although another worker has a free slot", refused)

    def _somebody_can(self, hold: Hold) -> bool:
        """Another worker has a free slot for a refused lease, as far as that is sure.

        Leases that are on their way fill slots, and fixed starts hold some.
        """
        live = self._view.live
        shadow = live.get(hold.task)
        if shadow is None:
            return False
        spec = shadow.spec
        required = set(spec.scheduling.labels) if spec.scheduling is not None else set()
        free = any(
            desk.pool == spec.pool
            and not desk.closing
            and len(desk.held) < desk.slots
            and stream not in hold.refused
            and required <= set(desk.labels)
            for stream, desk in self.desks.items()
        )
        return free and not any(
            other.spec.pool == spec.pool
            and (other.start is not None or (other.status == RUNNING and other.sent != other.attempt))
            for other in live.values()
            if other is not shadow
        )

    def outlived(self) -> None:
        """Timers have fired: no lease is left whose time is up."""
        if self.parked or not self._node.serving or len(self.held) > MAX_FIRED:
            return
        now = self._node.now - self.excused
        for hold in self.held.values():
            if hold.due() <= now:
                raise fault("a lease outlives its time", f"{hold} by {now - hold.due()} ns")

    def _refused(self, stream: m.WorkerStream, message: m.Nack) -> bool:
        hold = self._holding(stream, message.lease)
        if hold is None:
            return False
        self._drop(hold)
        hold.refused[stream] = None
        hold.stream = None
        if self.alone and self._somebody_can(hold):
            self.wanted = hold
        self._passing[hold.lease] = hold
        shadow = self._view.live.get(hold.task)
        if shadow is not None:
            shadow.sent = 0
        return True

    def _beat(self, stream: m.WorkerStream, message: m.Heartbeat) -> bool:
        hold = self.held.get(message.lease)
        if hold is None or hold.stream is not stream:
            return False
        now = self._node.now - self.excused
        if now > hold.beat:
            hold.beat = now
        return True

    def _holding(self, stream: m.WorkerStream, lease: int) -> Hold | None:
        hold = self.held.get(lease)
        return hold if hold is not None and hold.stream is stream else None

    def _drop(self, hold: Hold) -> None:
        del self.held[hold.lease]
        assert hold.stream is not None
        self._reported[hold.lease] = hold.stream
        desk = self.desks.get(hold.stream)
        if desk is not None:
            del desk.held[hold.lease]

    def _slots(self, stream: m.WorkerStream, message: m.SetSlots) -> None:
        desk = self.desks.get(stream)
        if desk is not None:
            desk.slots = min(message.slots, desk.cap)

    def _call(self, event: m.CallReceived) -> None:
        world, now, call = self._node.world, self._node.now, event.call
        request: Any = event.request
        kind = type(request)
        highest, ends = world.ledger.highest, self._view.keys.count
        refused, budget = self.door.arrives(request, event.deadline, now)
        read: Sequence[m.Call] = ()
        if kind in CHANGING:
            self._read.append(call)
        elif kind in LISTS:
            read = self._read
        self.calls[call] = Asked(
            now, world.events, highest, ends, event.deadline, request, refused, budget, read, len(read)
        )
        if kind is m.Submit:
            return
        if kind is m.SubmitBatch:
            ask: Any = call.sink
            world.ledger.tried(ask.marker)
        elif kind is m.Cancel:
            self._view.cancels[request.task] = None
        elif kind is RemoveRecurring:
            world.ledger.unwanted[request.name] = None

    def _left(self, event: m.CallEnded) -> None:
        self.forget(event.call)
        ask: Any = event.call.sink
        self.watching.pop(ask, None)

    def forget(self, call: m.Call) -> None:
        """A call is over."""
        asked = self.calls.pop(call, None)
        if asked is not None and asked.budget:
            self.door.leaves(asked.budget)

    def _connected(self, event: m.WorkerConnected) -> None:
        self.waiting[event.stream] = self._node.now

    def _gone(self, event: m.WorkerGone) -> None:
        self._close(event.stream)

    def _stop(self, event: m.StopRequested) -> None:
        self.door.stopping = True
        due = self._node.now + event.grace
        self.grace = due if self.grace is None else min(due, self.grace)

    def _pressure(self, event: m.StorePressure) -> None:
        self.door.pressed = event.reason is not None

    def stop_goes_on(self) -> None:
        """The step is made, and the server is stopping: it has stopped when no attempt runs any more."""
        if self.door.stopped:
            return
        if not self._view.running:
            self.door.stopped = True
            self._farewell = self._node.written
        elif self.grace is not None and self._node.now >= self.grace:
            raise fault("a stop takes longer than its grace", f"{self._view.running} run, {self.grace}")

    def said_farewell(self) -> bool:
        """The stop is complete, and everything that it brought is durable: it may be told."""
        node = self._node
        return self.door.stopped and (node.world.store.volatile or node.durable >= self._farewell)

    def _stalled(self, event: Stalled) -> None:
        self.excused += event.lateness

    def _commits_stalled(self, _event: CommitsStalled) -> None:
        self.parked = True

    def _commits_resumed(self, event: CommitsResumed) -> None:
        self.parked = False
        self.excused += event.duration

    def _close(self, stream: m.WorkerStream) -> None:
        self.waiting.pop(stream, None)
        desk = self.desks.pop(stream, None)
        if desk is not None:
            for lease in desk.held:
                del self.held[lease]
                self._reported[lease] = stream  # it may be told to stop by what the same read brought before

    # --- what a term says

    def leased(self, worker: "Worker", lease: "Lease") -> None:
        """A worker is sent a lease."""
        stream = worker.stream
        desk = self.desks.get(stream)
        if desk is None or desk.closing:
            raise fault("a lease goes to a worker that is not registered", f"{lease} of task {lease.task.id}")
        spec = lease.task.spec
        required = spec.scheduling.labels if spec.scheduling is not None else ()
        if desk.pool != spec.pool or (required and not set(required) <= set(desk.labels)):
            raise fault("a lease goes to a worker that may not run it", f"{lease}: {spec}, {desk.pool} {desk.labels}")
        if len(desk.held) >= desk.slots:
            raise fault("a lease goes to a worker without a free slot", f"{lease}: {desk.slots}, {desk.held}")
        hold = self._passing.pop(lease.id, None)
        at = self._node.now - self.excused
        if hold is None:
            hold = self._first(lease, stream, at)
        elif stream in hold.refused:
            raise fault("a lease goes back to a worker that refused it", lease)
        elif hold.attempt != lease.attempt or hold.task != lease.task.id:
            raise fault("a lease that is passed on has changed", f"{lease}, before: {hold}")
        else:
            hold.stream, hold.beat = stream, max(hold.beat, at)
        self.held[lease.id] = desk.held[lease.id] = hold
        shadow = self._view.live.get(hold.task)
        if shadow is not None:
            shadow.sent = hold.attempt

    def _first(self, lease: "Lease", stream: m.WorkerStream, at: int) -> Hold:
        hold = Hold(lease, stream, self._ttl[lease.task.spec.pool], at)
        before = self._sent.get(hold.task)
        if before is not None:
            passing = before[1] in self._passing  # it was refused, and its dispatch was taken back: the attempt again
            if before[1] in self.held:
                raise fault("a task has two live leases", f"{hold} beside {self.held[before[1]]}")
            if hold.attempt < before[0] or (hold.attempt == before[0] and not passing):
                raise fault("an attempt was given to a worker twice", f"{hold} after attempt {before[0]}")
            self._passing.pop(before[1], None)
        if hold.lease in self.held:
            raise fault("a lease is sent twice", hold)
        leases = self._node.world.ledger.leases
        if hold.lease in leases:
            raise fault("a lease id was given twice", f"{hold}, before to task {leases[hold.lease]}")
        leases[hold.lease] = hold.task
        self._sent[hold.task] = (hold.attempt, hold.lease)
        return hold

    def told(self, worker: "Worker", message: Any) -> None:
        """A worker is told something else."""
        kind = type(message)
        if kind is m.AbortLease:
            self._aborted(worker.stream, message)
        elif kind is m.Registered:
            self.waiting.pop(worker.stream, None)
            self.desks[worker.stream] = Desk(worker, message.worker_id, message.slots, self._cap(worker.pool))
        elif kind is m.Shutdown:
            desk = self.desks.get(worker.stream)
            if desk is not None:
                desk.closing = True
            if not message.not_leader and not self.said_farewell():
                raise fault("a worker is sent away before the stop is durable", message)

    def _cap(self, name: str) -> int:
        settings = self._node.settings
        pool = next(pool for pool in settings.pools if pool.name == name)
        return max(1, min(pool.max, pool.max_slots_per_worker, settings.limits.max_slots_per_worker))

    def _aborted(self, stream: m.WorkerStream, abort: m.AbortLease) -> None:
        hold = self._holding(stream, abort.lease)
        desk = self.desks.get(stream)
        if desk is not None:
            desk.told[abort.lease] = hold is not None
        if hold is None:
            if self._reported.pop(abort.lease, None) is not stream:
                raise fault("a worker is told to stop what it does not have", abort)
            self._passing.pop(abort.lease, None)
            return
        now = self._node.now - self.excused
        timeout, reason = hold.timeout, abort.reason
        if reason == EXPIRED:
            if now < hold.beat + hold.ttl:
                raise fault("a lease expires before its time", f"{hold}, {hold.beat + hold.ttl - now} ns too early")
        elif reason == TIMED_OUT:
            if timeout is None or now < hold.started + timeout:
                raise fault("an attempt times out before its time", f"{hold}, started {now - hold.started} ns ago")
        elif reason == SHUTDOWN and self.grace is not None and self._node.now < self.grace:
            raise fault("a stop takes a lease back before its grace is over", f"{hold}: {self.grace - self._node.now}")
        elif not (reason == CANCELLED_BY or (reason == SHUTDOWN and self.door.stopping)):
            raise fault("a worker is told to stop for another reason than there is", abort)
        shadow = self._view.live.get(hold.task)
        if shadow is not None and shadow.attempt == hold.attempt and shadow.status == RUNNING:
            raise fault("a worker is told to stop, and its attempt goes on", f"{abort}: {hold}")
        self._drop(hold)
        del self._reported[hold.lease]

    def closed(self, worker: "Worker") -> None:
        """The server ends a stream."""
        self._close(worker.stream)
