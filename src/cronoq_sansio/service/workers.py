"""Worker streams: registration, slots, leases and reports (source page "Protocol rules", server.md section 4).

Between engine and workers. The engine thinks in groups (pool, labels) and slots; which worker gets a lease is decided
here. A worker *has* a lease from its dispatch on, so that its slot is taken, and *holds* it from its release by the
outbox on: reports are for held leases only, everything else is stale.

Invariant, after every step: the leases that workers have are exactly the engine's live ones. The engine ends leases
on its own only with an `Abort`; every other end comes from here. It may have given an aborted lease's slot to the
next task in the same step, before it could know that the worker was overcommitted and the slot is none: then the
lower capacity and the dispatch that nobody can take go back to it within this step (`place`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from cronoq_sansio.engine.actions import Abort, Dispatch
from cronoq_sansio.engine.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptNacked,
    AttemptSucceeded,
    DispatchReturned,
    GroupCapacitySet,
    Labels,
    LeaseRenewed,
    LeasesLost,
)
from cronoq_sansio.engine.snapshot import EngineSnapshot
from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import (
    MAX_NACK_GROUPS,
    MAX_UNREGISTERED_STREAMS,
    MAX_WORKER_STREAMS,
    MESSAGE_HEADROOM,
    OUTBOUND_PER_SLOT,
    OUTBOUND_SPARE,
    REGISTER_TIMEOUT,
)
from cronoq_sansio.service import registration
from cronoq_sansio.service.gate import STOPPED, Gate
from cronoq_sansio.service.messages import (
    AbortLease,
    AttemptAborted,
    Call,
    CloseWorker,
    Complete,
    Fail,
    Heartbeat,
    Nack,
    Register,
    Registered,
    Request,
    SendLease,
    SendToWorker,
    SetSlots,
    Shutdown,
    WorkerConnected,
    WorkerGone,
    WorkerInfo,
    WorkerList,
    WorkerSent,
)
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.worker_session import (
    TRANSITIONS,
    Crowded,
    Effect,
    Gone,
    Group,
    Late,
    Session,
    State,
    Stop,
)
from cronoq_sansio.settings import Settings
from cronoq_sansio.values import blank

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

DISCONNECTED = "worker disconnected"
SHUTTING_DOWN = "server shutting down"


class Workers:
    """Every worker stream."""

    def __init__(
        self,
        engine: "Engine",
        settings: Settings,
        turn: Turn,
        gate: Gate,
        timers: TimerHeap[object],
        drive: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._limits = settings.limits
        self._turn = turn
        self._gate = gate
        self._timers = timers
        self._drive = drive
        self._next_id = 1
        self._unregistered: dict[Session, None] = {}
        self._registered: dict[int, Session] = {}
        self._leaving: dict[Session, None] = {}
        self._groups: dict[str, dict[Labels, Group]] = {}
        self._owners: dict[int, Session] = {}
        """Which session has a lease, by lease id."""
        self._refusals: dict[int, set[int]] = {}
        """Workers that refused a lease, while it lives; only of leases that were refused."""
        self.dispatches: list[Dispatch] = []
        """What the engine has just given to groups; `place` finds the workers."""
        self._max_output = self._limits.max_message_bytes - MESSAGE_HEADROOM
        self._tables: dict[State, dict[type, tuple[Effect, State]]] = {state: {} for state in State}
        for (state, kind), (name, after) in TRANSITIONS.items():
            self._tables[state][kind] = (getattr(self, f"_{name}"), after)

    # --- events

    def connected(self, event: WorkerConnected) -> None:
        """A worker stream was opened: it has some time to register, unless too many others do not.

        Whoever means it registers at once. So the oldest of those that have not makes room: a refusal of the newest
        would let whoever just sits there keep all workers out.
        """
        stream = event.stream
        refusal = self._gate.worker_refusal()
        open_streams = len(self._unregistered) + len(self._registered) + len(self._leaving)
        if refusal is None and open_streams >= MAX_WORKER_STREAMS:
            refusal = Rejection(Code.UNAVAILABLE, f"{MAX_WORKER_STREAMS} workers are connected; try again")
        if refusal is not None:
            self._turn.at_once.append(CloseWorker(stream, refusal, 0))
            return
        if len(self._unregistered) >= MAX_UNREGISTERED_STREAMS:
            self._apply(next(iter(self._unregistered)), Crowded, None)
        session = Session(stream)
        session.inputs = self._tables[State.CONNECTED]
        session.timer = self._timers.add(self._turn.now + REGISTER_TIMEOUT, session)
        stream.session = session
        self._unregistered[session] = None

    def sent(self, event: WorkerSent) -> None:
        """One message of a worker."""
        session, message = event.stream.session, event.message
        if session is None:
            return
        assert type(session) is Session
        entry = session.inputs.get(type(message))
        if entry is not None and entry[1] is session.state:
            entry[0](session, message)
        else:
            self._apply(session, type(message), message)

    def gone(self, event: WorkerGone) -> None:
        """The stream is over on the worker's side."""
        session = event.stream.session
        if session is not None:
            self._apply(session, Gone, event)

    def late(self, session: Session) -> None:
        """The register timeout passed."""
        self._apply(session, Late, None)

    def stop(self) -> None:
        """The server stops: take back every lease that is left, and tell the workers."""
        for session in (*self._unregistered, *self._registered.values()):
            self._apply(session, Stop, None)

    def farewell(self) -> None:
        """What `stop` did is in the engine: say goodbye once it is durable."""
        after = self._engine.written
        for session in self._leaving:
            self._turn.once_durable.append(SendToWorker(session.stream, Shutdown(SHUTTING_DOWN, False), after))

    def _apply(self, session: object, kind: type, message: object) -> None:
        assert type(session) is Session
        entry = session.inputs.get(kind)
        if entry is None:
            return
        effect, state = entry
        if state is not session.state:
            self._enter(session, state)
        effect(session, message)

    def _enter(self, session: Session, state: State) -> None:
        session.state = state
        session.inputs = self._tables[state]
        if isinstance(session.timer, Timer):
            self._timers.cancel(session.timer)
            session.timer = None
        self._unregistered.pop(session, None)

    # --- actions of the engine

    def aborted(self, abort: Abort) -> None:
        """The engine gave up an attempt and freed the slot."""
        lease = abort.lease
        self._refusals.pop(lease.id, None)
        session = self._owners.pop(lease.id, None)
        if session is None:
            return  # its worker reported, or left, in the same step
        group = session.group
        assert group is not None
        seen = lease.id not in session.unsent
        if group.empty(session, lease.id):
            self._tell_capacity(group)
        if seen:
            self._abort(session, lease.id, abort.reason)

    def place(self) -> None:
        """Choose a worker for each lease that the engine has just dispatched.

        A refused lease comes before new ones, because the engine passes it on where it applies the refusal: so the
        worker that made its group eligible still is free.
        """
        dispatches, self.dispatches = self.dispatches, []
        owners, refusals, said = self._owners, self._refusals, self._turn.once_durable
        group: Group | None = None
        for dispatch in dispatches:
            lease = dispatch.lease
            if not lease.live:
                continue
            lease_id, pool = lease.id, lease.task.spec.pool
            if group is None or group.pool != pool or group.labels != lease.group:
                group = self._groups.get(pool, {}).get(lease.group)
            session = None if group is None else group.choose(refusals.get(lease_id, ()) if refusals else ())
            if group is None or session is None:
                self._turn.events.append(DispatchReturned(lease_id))
                continue
            group.fill(session, lease)
            owners[lease_id] = session
            action = blank(SendLease)
            action.stream = session.stream
            action.lease = lease
            action.after = dispatch.after
            said.append(action)

    # --- out of the outbox

    def expects(self, action: SendLease) -> bool:
        """True when the lease may be sent: it is alive, and still meant for that worker."""
        session = action.stream.session
        return type(session) is Session and session.unsent.get(action.lease.id) is action.lease

    def send(self, action: SendLease) -> bool:
        """The lease is sent now, so its worker holds it from now on; False when it may not be sent any more."""
        session = action.stream.session
        return type(session) is Session and session.unsent.pop(action.lease.id, None) is action.lease

    # --- effects: a stream begins and ends

    def _register(self, session: Session, message: Register) -> None:
        refusal = self._gate.worker_refusal() or registration.refusal(message, self._engine)
        if refusal is not None:
            self._enter(session, State.CLOSED)
            self._close(session, refusal)
            return
        settings = self._engine.pool_settings(message.pool)
        session.cap = registration.slot_cap(settings, self._limits)
        session.slots = min(message.slots, session.cap)
        session.id = self._next_id
        session.name = message.worker_name
        session.connected = self._turn.now + self._engine.wall_offset
        session.stream.max_queued = OUTBOUND_PER_SLOT * session.cap + OUTBOUND_SPARE
        self._next_id += 1
        groups = self._groups.setdefault(message.pool, {})
        group = groups.get(message.labels)
        if group is None:
            group = groups[message.labels] = Group(message.pool, message.labels)
        session.group = group
        self._registered[session.id] = session
        group.add(session)
        self._tell_capacity(group)
        reply = Registered(session.id, settings.lease_ttl, session.slots, self._limits.max_message_bytes)
        self._turn.at_once.append(SendToWorker(session.stream, reply, 0))

    def _refuse_unregistered(self, session: Session, _message: object) -> None:
        self._close(session, Rejection(Code.INVALID, "the first message of a worker must be Register"))

    def _refuse_late(self, session: Session, _message: object) -> None:
        text = f"no Register within {REGISTER_TIMEOUT // 1_000_000_000} s"
        self._close(session, Rejection(Code.DEADLINE_EXCEEDED, text))

    def _make_room(self, session: Session, _message: object) -> None:
        text = f"no Register yet, and {MAX_UNREGISTERED_STREAMS} later worker streams have none either; try again"
        self._close(session, Rejection(Code.UNAVAILABLE, text))

    def _refuse_stopped(self, session: Session, _message: object) -> None:
        self._close(session, STOPPED)

    def _refuse_second_register(self, session: Session, _message: object) -> None:
        self._leave_group(session, DISCONNECTED)
        self._close(session, Rejection(Code.INVALID, "a worker may register only once on a stream"))

    def _disconnect(self, session: Session, gone: WorkerGone) -> None:
        self._leave_group(session, DISCONNECTED)
        self._close(session, None, gone.why)

    def _shut_down(self, session: Session, _message: object) -> None:
        for lease_id in self._leave_group(session, SHUTTING_DOWN):
            self._abort(session, lease_id, "shutdown")
        self._leaving[session] = None

    def _leave(self, session: Session, gone: WorkerGone) -> None:
        del self._leaving[session]
        self._close(session, None, gone.why)

    def _close(self, session: Session, rejection: Rejection | None, why: str = "") -> None:
        session.stream.session = None
        self._turn.at_once.append(CloseWorker(session.stream, rejection, 0, why))

    def _leave_group(self, session: Session, message: str) -> list[int]:
        """The session has no slots and no leases any more; returns the ids of those that it held.

        In this order in one step: the lower capacity, then the leases that the worker knew, which cost an attempt, then
        those that it never saw, which do not.
        """
        group = session.group
        assert group is not None
        group.remove(session)
        self._tell_capacity(group)
        if not group.sessions:
            del self._groups[group.pool][group.labels]
        del self._registered[session.id]
        held = [lease_id for lease_id in session.leases if lease_id not in session.unsent]
        if held:
            self._turn.events.append(LeasesLost(tuple(held), message))
        for lease_id in session.leases:
            self._forget(lease_id)
        session.leases.clear()
        self._give_back(session, len(session.unsent))
        return held

    # --- effects: a registered worker reports

    def _set_slots(self, session: Session, message: SetSlots) -> None:
        group = session.group
        assert group is not None
        slots = min(message.slots, session.cap)
        excess = min(len(session.leases) - slots, len(session.unsent))
        for lease_id in list(reversed(session.unsent))[: max(excess, 0)]:
            del session.leases[lease_id]
            self._forget(lease_id)
        group.resize(session, slots)
        self._tell_capacity(group)
        self._give_back(session, excess)

    def _heartbeat(self, session: Session, message: Heartbeat) -> None:
        if message.lease in session.leases and message.lease not in session.unsent:
            self._turn.events.append(LeaseRenewed(message.lease))

    def _complete(self, session: Session, message: Complete) -> None:
        if not self._take(session, message.lease):
            self._engine.totals.stale_completions += 1
        elif len(message.output) > self._max_output:
            text = (
                f"the output has {len(message.output)} bytes, at most {self._max_output} fit "
                f"(limits.max_message_bytes - {MESSAGE_HEADROOM})"
            )
            self._turn.events.append(AttemptFailed(message.lease, text, True, 0))
        else:
            event = blank(AttemptSucceeded)
            event.lease = message.lease
            event.output = message.output
            event.content_type = message.content_type
            self._turn.events.append(event)

    def _fail(self, session: Session, message: Fail) -> None:
        if self._take(session, message.lease):
            failed = AttemptFailed(message.lease, message.message, message.permanent, message.retry_after)
            self._turn.events.append(failed)
        else:
            self._engine.totals.stale_completions += 1

    def _attempt_aborted(self, session: Session, message: AttemptAborted) -> None:
        if self._take(session, message.lease):
            self._turn.events.append(AttemptCancelled(message.lease))
        elif message.lease in session.aborted:
            del session.aborted[message.lease]
        else:
            self._engine.totals.stale_completions += 1

    def _nack(self, session: Session, message: Nack) -> None:
        """Pass the lease on.

        The groups that are named must have room at this very moment, so the engine is driven before; and after, so
        that the worker is chosen while that is still true.
        """
        if self._turn.events:
            self._drive()
        lease_id = message.lease
        refused = self._refusals.get(lease_id, set())
        if not self._take(session, lease_id):
            return
        group = session.group
        assert group is not None
        refused.add(session.id)
        self._refusals[lease_id] = refused
        names = tuple(islice(self._with_room(group.pool, refused), MAX_NACK_GROUPS))
        self._turn.events.append(AttemptNacked(lease_id, message.reason, names))
        self._drive()
        if lease_id not in self._owners:
            self._refusals.pop(lease_id, None)

    def _with_room(self, pool: str, refused: set[int]) -> Iterator[Labels]:
        """Groups of the pool with a free slot on a worker that has not refused, in the order of registration."""
        for group in self._groups[pool].values():
            if group.free and group.has_room(refused):
                yield group.labels

    def _take(self, session: Session, lease_id: int) -> bool:
        """The worker reports on a lease: it has it no more. False when it does not hold it."""
        if lease_id not in session.leases or lease_id in session.unsent:
            return False
        group = session.group
        assert group is not None
        del self._owners[lease_id]  # as in `_forget`
        if self._refusals:
            self._refusals.pop(lease_id, None)
        if group.empty(session, lease_id):
            self._tell_capacity(group)
        return True

    def _forget(self, lease_id: int) -> None:
        del self._owners[lease_id]
        if self._refusals:
            self._refusals.pop(lease_id, None)

    def _tell_capacity(self, group: Group) -> None:
        events = self._turn.events
        last = events[-1] if events else None
        if type(last) is GroupCapacitySet and last.pool == group.pool and last.labels == group.labels:
            events.pop()  # a worker may say another number thousands of times in one read: the last one counts
        events.append(GroupCapacitySet(group.pool, group.labels, group.capacity))

    def _give_back(self, session: Session, count: int) -> None:
        """The newest `count` leases that the worker never saw return to the queue."""
        for _ in range(count):
            self._turn.events.append(DispatchReturned(session.unsent.popitem()[0]))

    def _abort(self, session: Session, lease_id: int, reason: str) -> None:
        session.remember_abort(lease_id)
        self._turn.at_once.append(SendToWorker(session.stream, AbortLease(lease_id, reason), 0))

    # --- looking

    def answer_list(self, call: Call, _request: Request) -> None:
        """Answer `ListWorkers`. Like the figures, it waits for no commit."""
        self._drive()
        size = sum(
            len(group.sessions) * group.size + sum(len(session.name) for session in group.sessions.values())
            for groups in self._groups.values()
            for group in groups.values()
        )
        if size > self._max_output:
            self._turn.reject(call, self._too_large(f"{len(self._registered)} workers", size))
            return
        workers = tuple(
            WorkerInfo(
                session.id,
                session.name,
                group.pool,
                group.labels,
                session.slots,
                len(session.leases),
                session.connected,
            )
            for session in self._registered.values()
            if (group := session.group) is not None
        )
        self._turn.reply(call, WorkerList(workers), 0)

    def snapshot_fault(self) -> Rejection | None:
        """Why the figures do not fit one message: they name the labels of each group."""
        size = sum(group.size for groups in self._groups.values() for group in groups.values())
        if size <= self._max_output:
            return None
        return self._too_large(f"the labels of {sum(map(len, self._groups.values()))} groups of workers", size)

    def _too_large(self, what: str, size: int) -> Rejection:
        text = f"{what} take about {size} bytes, a message at most {self._max_output} (limits.max_message_bytes)"
        return Rejection(Code.TOO_LARGE, text)

    def by_pool(self) -> dict[str, int]:
        """How many workers are registered, by pool."""
        return {
            pool: sum(len(group.sessions) for group in groups.values())
            for pool, groups in self._groups.items()
            if groups
        }

    def published(self, snapshot: EngineSnapshot) -> EngineSnapshot:
        """The snapshot with the capacity that people mean: Σ slots, without what overcommitted workers still run."""
        pools = []
        for pool in snapshot.pools:
            offered = {labels: group.offered for labels, group in self._groups.get(pool.name, {}).items()}
            groups = tuple(replace(group, capacity=offered.get(group.labels, 0)) for group in pool.groups)
            pools.append(replace(pool, capacity=sum(offered.values()), groups=groups))
        return replace(snapshot, pools=tuple(pools))

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows."""
        return {
            "workers": len(self._registered),
            "unregistered_streams": len(self._unregistered),
            "leaving_workers": len(self._leaving),
            "worker_groups": sum(map(len, self._groups.values())),
            "refused_leases": len(self._refusals),
        }

    def check_invariants(self) -> None:
        """Leases, owners, groups and streams agree with each other and with the engine."""
        assert not self.dispatches
        assert self._engine.running == len(self._owners), "the workers do not have exactly the engine's live leases"
        for lease_id, owner in self._owners.items():
            lease = owner.leases[lease_id]
            assert lease.live and lease.id == lease_id and lease.held == (lease_id not in owner.unsent)
            assert owner.group is not None and owner.group.labels == lease.group
            assert owner.group.pool == lease.task.spec.pool
        assert len(self._owners) == sum(len(session.leases) for session in self._registered.values())
        assert self._refusals.keys() <= self._owners.keys(), "refusals of leases that are over"
        for lease_id, refused in self._refusals.items():
            assert self._owners[lease_id].id not in refused, "a lease went back to a worker that had refused it"
        for session in self._registered.values():
            assert session.unsent.keys() <= session.leases.keys()
            assert not session.unsent or len(session.leases) <= session.slots, "an unseen lease on no slot"
        for session in self._unregistered:
            assert session.state is State.CONNECTED and session.timer is not None
        self._check_groups()

    def _check_groups(self) -> None:
        told = {  # without a snapshot, which notes figures that are due: a check changes nothing
            (pool.name, group.labels): (group.capacity, group.busy)
            for pool in self._engine.pools.values()
            for group in pool.groups.by_labels.values()
            if group.capacity or group.busy
        }
        count = 0
        for pool, groups in self._groups.items():
            for labels, group in groups.items():
                group.check_invariants()
                busy = sum(len(session.leases) for session in group.sessions.values())
                assert told.pop((pool, labels), (0, 0)) == (group.capacity, busy), "the engine has other slots"
                count += len(group.sessions)
        assert not told, "the engine has groups that no worker is in"
        assert count == len(self._registered)
