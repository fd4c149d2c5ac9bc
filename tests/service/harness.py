"""A service behind its outbox, with a store that is a dict, and with all that must always hold checked on the way.

`handle` is the only way in. After each call the invariants of service and engine are asserted, and every performed
action is checked: it was durable, its call was open and had no answer, its stream was open, Registered came first, no
worker got more leases than it has slots, no lease was sent to two workers at once, and what each worker has is what the
service thinks it has.
"""

from dataclasses import dataclass, field
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.engine.records import (
    EdgeResolved,
    OutputStored,
    RecurringDeleted,
    RecurringFired,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.outbox import Outbox, StepsDurable
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import Settings
from cronoq_sansio.spec import RetryOverride, Scheduling, TaskSpec, TaskStatus, tenant_of

START = 1_000_000_000 * SECOND
OUTCOMES = (m.Complete, m.Fail, m.Nack, m.AttemptAborted)


def spec(
    pool: str = "default",
    key: str = "",
    *,
    kind: str = "",
    priority: int = 2,
    payload: bytes = b"",
    timeout: int | None = None,
    attempts: int | None = None,
    **asked: Any,
) -> TaskSpec:
    """A task with the given fields; `attempts` without jitter; `asked`: fields of its `Scheduling`."""
    retry = None if attempts is None else RetryOverride(attempts, None, None, None, False)
    size = len(payload) + len(key) + 8
    scheduling = Scheduling(**asked) if asked else None
    return TaskSpec(payload, "", kind, pool, priority, key, timeout, retry, (), size, scheduling)


def _describe(action: Any) -> tuple[Any, ...]:
    said = [getattr(action, name, None) for name in ("message", "rejection", "query", "event")]
    return type(action).__name__, action.after, getattr(getattr(action, "lease", None), "id", 0), *said


@dataclass
class Row:
    """A task as the store has it."""

    inserted: TaskInserted
    state: TaskChanged | TaskFinished | None = None
    output: OutputStored | None = None

    def stored(self, with_output: bool) -> m.StoredTask:
        """The answer to a query."""
        task, state, spec = self.inserted, self.state, self.inserted.spec
        ended = isinstance(state, TaskFinished)
        info = m.TaskInfo(
            task.task_id,
            state.status if state else TaskStatus.READY,
            spec.pool,
            spec.key,
            spec.kind,
            state.attempt if state else 0,
            task.max_attempts,
            task.arrival,
            (state.last_started or None) if state else None,
            state.finished if isinstance(state, TaskFinished) else None,
            state.message if state else "",
            ended and self.output is not None,
            spec.priority,
            tenant_of(spec),
        )
        output = self.output if with_output else None
        return m.StoredTask(info, output.output if output else None, output.content_type if output else "")


@dataclass
class Peer:
    """What one worker knows."""

    registered: bool = False
    slots: int = 0
    offer: int = 0
    cap: int = 0
    closed: bool = False
    leases: dict[int, Any] = field(default_factory=dict)


class Harness:
    """See the top of the file."""

    def __init__(self, settings: Settings | None = None, *, volatile: bool = False, wall_offset: int = 0) -> None:
        self.settings = settings or Settings()
        self.now = START
        if self.settings.recurring:  # the schedules of the file come with the beginning of a term
            first = {"first_task_id": 1, "first_lease_id": 1, "seed": 0}
            self.engine = Engine.recover(self.settings, now=self.now, wall_offset=wall_offset, **first)
            while self.engine.settle(self.now):
                pass
            self.begun = self.engine.begin(self.now).writes
        else:
            self.engine = Engine.fresh(self.settings, now=self.now, wall_offset=wall_offset)
            self.begun = []
        self.service = Service(self.engine, self.settings, self.now, volatile=volatile)
        self.outbox = Outbox(self.service, volatile=volatile)
        self.volatile = volatile
        self.durable_through = 0
        self.waiting: list[tuple[int, list[Any]]] = []
        """Writes of steps that are not committed."""
        if self.begun:
            self.waiting.append((self.engine.number, self.begun))
        self.rows: dict[int, Row] = {}
        self.schedules: dict[str, RecurringStored] = {}
        self.answers: dict[m.Call, Any] = {}
        self.queries: dict[int, m.StoreQuery] = {}
        self.store_scan = 10_000
        """Rows that one listing of the store looks at."""
        self.events: dict[m.Call, list[m.StatusEvent]] = {}
        """What each watcher that was let in got."""
        self.hung_up: set[m.Call] = set()
        self.peers: dict[m.WorkerStream, Peer] = {}
        self.sent: dict[int, m.WorkerStream] = {}
        """Who has a lease now, as the workers see it."""
        self.writes: list[Any] = []
        """Of the last step, and its number."""
        self.number = 0
        self.finished = False
        self.drops: list[Any] = []
        """Fires that were logged as dropped."""
        self.log: list[Any] | None = None
        """Set it to a list to get every step in words that can be compared."""

    # --- in

    def handle(self, *events: Any) -> list[Any]:
        """One batch; returns what was performed."""
        for event in events:
            self._note(event)
        step = self.outbox.handle(events, self.now)
        assert not step.once_durable
        self.writes, self.number = step.writes, step.number
        if step.writes:
            if self.volatile:
                self._apply(step.writes)
            else:
                self.waiting.append((step.number, step.writes))
        if self.volatile:
            self.durable_through = step.number
        self.service.check_invariants()
        for action in step.at_once:
            self._check(action)
        if self.log is not None:
            self.log.append((step.number, step.writes, [_describe(action) for action in step.at_once]))
        for stream, peer in self.peers.items():
            peer.slots = peer.offer
            session = stream.session
            held = session.leases.keys() - session.unsent.keys() if session is not None else set()
            assert peer.leases.keys() == held, "a worker does not have what the service thinks"
        due = self.service.next_timeout()
        assert due is None or due > self.now - 3_600 * SECOND
        return step.at_once

    def durable(self, steps: int = 0) -> list[Any]:
        """One commit: of the oldest `steps` steps that wrote something, or of all."""
        portion = self.waiting[: steps or len(self.waiting)]
        if not portion:
            return []
        return self.handle(self.commit(len(portion)))

    def commit(self, steps: int) -> StepsDurable:
        """The oldest `steps` waiting steps are in the store now; returns the event that says so."""
        portion, self.waiting = self.waiting[:steps], self.waiting[steps:]
        for _number, writes in portion:
            self._apply(writes)
        return StepsDurable(portion[-1][0])

    def advance(self, nanoseconds: int) -> list[Any]:
        """Let time pass; timers fire when they are due."""
        until = self.now + nanoseconds
        performed: list[Any] = []
        while (due := self.outbox.next_timeout()) is not None and due <= until:
            self.now = max(self.now, due)
            performed += self.handle(TimerFired())
        self.now = until
        return performed

    def call(self, request: m.Request, *, deadline: int | None = None, name: str = "") -> m.Call:
        """A unary call in a batch of its own."""
        call = m.Call(name)
        self.handle(self.received(call, request, deadline))
        return call

    def received(self, call: m.Call, request: m.Request, deadline: int | None = None) -> m.CallReceived:
        """The event of a call; `deadline` from now."""
        return m.CallReceived(call, ANYONE, request, None if deadline is None else self.now + deadline)

    def submit(self, *args: Any, **fields: Any) -> m.Call:
        """A Submit that does not wait."""
        return self.call(m.Submit(spec(*args, **fields), False, None))

    def connect(self) -> m.WorkerStream:
        """A worker stream that has said nothing."""
        stream = m.WorkerStream("")
        self.handle(m.WorkerConnected(stream, ANYONE))
        return stream

    def worker(self, slots: int = 1, pool: str = "default", **labels: str) -> m.WorkerStream:
        """A registered worker."""
        stream = self.connect()
        self.say(stream, m.Register(pool, slots, "", 3, tuple(sorted(labels.items()))))
        return stream

    def say(self, stream: m.WorkerStream, message: m.FromWorker) -> list[Any]:
        """A worker sends a message, in a batch of its own."""
        return self.handle(m.WorkerSent(stream, message))

    def answer_store(self, number: int | None = None) -> list[Any]:
        """The store answers a query (default: the oldest)."""
        return self.handle(self.store_answer(next(iter(self.queries)) if number is None else number))

    def store_answer(self, number: int) -> m.StoreAnswered:
        """The event with which the store answers a query."""
        query = self.queries.pop(number)
        if isinstance(query, m.ListFinished):
            return m.StoreAnswered(query, self._stored_page(query))
        found = [row for row in self.rows.values() if query.task in (row.inserted.task_id, row.inserted.spec.key)]
        if self.volatile:  # such a store forgets a task with its end
            found = [row for row in found if not isinstance(row.state, TaskFinished)]
        newest = max(found, key=lambda row: row.inserted.task_id, default=None)
        return m.StoreAnswered(query, newest.stored(query.with_output) if newest else None)

    def _stored_page(self, query: m.ListFinished) -> m.StoredPage:
        assert not self.volatile, "such a store has no finished tasks: it need not be asked"
        found: list[m.TaskInfo] = []
        ids = sorted(id for id, row in self.rows.items() if row.state is not None and id > query.after)
        for looked, task_id in enumerate(ids):
            row = self.rows[task_id]
            info = row.stored(False).info
            if looked == self.store_scan or len(found) == query.limit:
                return m.StoredPage(tuple(found), ids[looked - 1])
            wanted = not query.statuses or info.status in query.statuses
            if isinstance(row.state, TaskFinished) and wanted and (not query.pools or info.pool in query.pools):
                found.append(info)
        return m.StoredPage(tuple(found), 0)

    def watch(self, **filters: Any) -> m.Call:
        """A watch in a batch of its own."""
        wanted = {"pools": (), "ids": (), "keys": (), "all_transitions": False, **filters}
        return self.call(m.Watch(**wanted))

    def told(self, call: m.Call) -> list[tuple[int, str]]:
        """Id and status of each event that a watcher got since the last look."""
        events, self.events[call] = self.events[call], []
        return [(event.task_id, TaskStatus(event.status).name) for event in events]

    # --- what came out

    def answer(self, call: m.Call) -> Any:
        """The message or the rejection that a call got; None so far."""
        action = self.answers.get(call)
        return None if action is None else action.outcome if isinstance(action, Answer) else action.rejection

    def leases(self, stream: m.WorkerStream) -> list[int]:
        """Leases that the worker has."""
        return list(self.peers[stream].leases)

    # --- inside

    def _apply(self, writes: list[Any]) -> None:
        for record in writes:
            if isinstance(record, TaskInserted):
                self.rows[record.task_id] = Row(record)
            elif isinstance(record, OutputStored):
                self.rows[record.task_id].output = record
            elif isinstance(record, EdgeResolved):
                assert not isinstance(self.rows[record.task_id].state, TaskFinished), "an edge of a task that has ended"
            elif isinstance(record, RecurringStored):
                self.schedules[record.spec.name] = record
            elif isinstance(record, RecurringFired):
                assert record.name in self.schedules, "progress of a schedule that is not stored"
            elif isinstance(record, RecurringDeleted):
                del self.schedules[record.name]
            else:
                self.rows[record.task_id].state = record

    def _note(self, event: Any) -> None:
        if isinstance(event, StepsDurable):
            self.durable_through = max(self.durable_through, event.through)
        elif isinstance(event, m.CallEnded):
            self.hung_up.add(event.call)
        elif isinstance(event, m.WorkerConnected):
            self.peers[event.stream] = Peer()
        elif isinstance(event, m.WorkerGone):
            self._drop_leases(event.stream)
        elif isinstance(event, m.WorkerSent):
            peer = self.peers[event.stream]
            if isinstance(event.message, OUTCOMES) and event.message.lease in peer.leases:
                del peer.leases[event.message.lease], self.sent[event.message.lease]
            elif isinstance(event.message, m.SetSlots):  # a lower number counts from the end of the batch on
                peer.offer = min(event.message.slots, peer.cap)
                peer.slots = max(peer.slots, peer.offer)

    def _drop_leases(self, stream: m.WorkerStream) -> None:
        for lease in self.peers[stream].leases:
            del self.sent[lease]
        self.peers[stream].leases.clear()

    def _check(self, action: Any) -> None:
        assert action.after <= self.durable_through, f"{action} was performed before its step was durable"
        if isinstance(action, Answer | m.Reject):
            call = action.request if isinstance(action, Answer) else action.call
            assert call not in self.answers, "a call was answered twice"
            assert not call.open and not call.budget and call.timer is None
            self.answers[call] = action
        elif isinstance(action, m.ReadStore):
            self.queries[action.query.number] = action.query
        elif isinstance(action, m.StartEvents):
            assert action.call.open or action.call in self.hung_up, "a call that had ended before was let in"
            assert action.call not in self.events
            self.events[action.call] = []
        elif isinstance(action, m.SendEvent):
            self._check_event(action)
        elif isinstance(action, m.StopFinished):
            self.finished = True
        elif isinstance(action, LogDrop):
            self.drops.append(action.drop)
        else:
            self._check_worker(action, self.peers[action.stream])

    def _check_event(self, action: m.SendEvent) -> None:
        assert len(set(action.calls)) == len(action.calls), "an event goes to a watcher twice"
        row = self.rows[action.event.task_id]
        if action.event.status >= TaskStatus.SUCCEEDED:
            assert row.state is not None and row.state.status == action.event.status, "an end that is not stored"
        for call in action.calls:
            if call not in self.hung_up and call not in self.answers:
                self.events[call].append(action.event)  # fails for one that was not let in

    def _check_worker(self, action: Any, peer: Peer) -> None:
        assert not peer.closed, f"{action} after the stream was closed"
        if isinstance(action, m.CloseWorker):
            assert not action.stream.open
            peer.closed = True
            self._drop_leases(action.stream)
        elif isinstance(action, m.SendLease):
            lease = action.lease
            assert peer.registered, "a lease before Registered"
            assert lease.id not in self.sent, "a lease that somebody has was sent again"
            assert len(peer.leases) < peer.slots, "more leases than slots"
            peer.leases[lease.id] = lease
            self.sent[lease.id] = action.stream
        elif isinstance(action.message, m.AbortLease):
            assert action.message.lease in peer.leases, "an abort of a lease that the worker does not have"
            del peer.leases[action.message.lease], self.sent[action.message.lease]
        elif isinstance(action.message, m.Registered):
            assert not peer.registered
            peer.registered = True
            peer.slots = peer.offer = action.message.slots
            settings = self.engine.pool_settings(action.stream.session.group.pool)
            limits = self.settings.limits
            peer.cap = max(1, min(settings.max, settings.max_slots_per_worker, limits.max_slots_per_worker))
            assert action.stream.max_queued == 2 * peer.cap + 16
        else:
            assert isinstance(action.message, m.Shutdown)
