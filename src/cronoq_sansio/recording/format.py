"""The format of recordings: what their lines hold, and what both sides, writing and replaying, have to do alike.

JSON Lines, ASCII; docs/reference/recording-format.md describes them for people. In this order:

    head      format, version, program, zones; settings, epoch, seed, first ids, now, wall offset, volatile
    load      records of the store, as many lines as it takes
    settle    the time of one call of `Engine.settle`, each
    begin     the time of `Engine.begin`, which is that of `Service` too
    begun     what the step of that said
    at        the time of one call of `Outbox.handle`, the events as the driver handed them in, and what it said
    end       why the recording ends, counts, and the hash of the state

A line is written when the call is over, and for recovery before it begins. So a fault there is the last line but one; a
fault in `handle` is in the line of its events, as `raised` in place of `said`.

`said` is a checksum over everything that the steps up to this one wrote and said, so that a replay knows the first one
that differs. Calls and worker streams are numbers, in the order in which they came up, from 1; 0 is one that was over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any
from zlib import crc32

from cronoq_sansio.engine.actions import Answer, Step, Submitted
from cronoq_sansio.engine.engine import Engine
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
from cronoq_sansio.limits import MAX_HASHED, MAX_RECORDED_OPEN, MAX_RECORDED_POOLS
from cronoq_sansio.outbox import StepsDurable
from cronoq_sansio.recording.words import Malformed, Words
from cronoq_sansio.service.messages import (
    BatchReply,
    Call,
    CallEnded,
    CloseWorker,
    Message,
    ReadStore,
    Reject,
    SendEvent,
    SendLease,
    SendToWorker,
    ServiceEvent,
    SnapshotReply,
    StartEvents,
    StopFinished,
    SubmitReply,
    TaskPage,
    TaskResult,
    WorkerStream,
)
from cronoq_sansio.service.messages_recurring import LogDrop, RecurringListReply
from cronoq_sansio.settings import AuthSettings, ServerSettings, Settings, StoreSettings
from cronoq_sansio.values import value

FORMAT = "cronoq-recording"
VERSION = 1

Recorded = ServiceEvent | StepsDurable
"""What a driver hands in."""

#: Why a recording ends.
STOPPED = "stopped"  #: the server was stopped gracefully
ENDED = "ended"  #: the term ended otherwise: its store was lost, or something but `handle` failed
RAISED = "raised"  #: `handle` raised; the line has the events
BOUND = "bound"  #: it has as many bytes as it may
CUT = "cut"  #: the disk could not keep up, or the events could not be written
REASONS = (STOPPED, ENDED, RAISED, BOUND, CUT)


@value
class Head:
    """The first line, without `format` and `version`."""

    program: str
    """Version of the program that recorded."""
    zones: str
    """Version of the rules of time zones."""
    settings: Settings
    """`without_secrets`."""
    epoch: int
    seed: int
    first_task_id: int
    first_lease_id: int
    now: int
    wall_offset: int
    volatile: bool
    """The store is one that forgets."""


@value
class End:
    """The last line."""

    end: str
    """One of `REASONS`."""
    why: str
    """In words."""
    steps: int
    """After `begin`."""
    events: int
    state: str | None
    """Hash of the state; None when it was left out."""
    left_out: str = ""
    """Why it was."""


def without_secrets(settings: Settings) -> Settings:
    """What of the settings decides something in the core: neither tokens nor addresses nor where files are.

    Of these tables fields are named that are kept, so that a new one is left out until somebody names it here.
    """
    server = ServerSettings(shutdown_grace=settings.server.shutdown_grace)
    store = StoreSettings(kind=settings.store.kind, keep_finished=settings.store.keep_finished)
    return replace(settings, auth=AuthSettings(), server=server, store=store)


class Unrecordable(Exception):
    """What happens here is more than a replay takes; the text says what."""


def too_many_pools(settings: Settings) -> str:
    """Why no replay takes a recording with these settings; empty when it does."""
    for found, name in ((settings.pools, "pools"), (settings.resources, "resources")):
        if len(found) > MAX_RECORDED_POOLS:
            return f"{len(found)} {name} are more than the {MAX_RECORDED_POOLS} that a replay takes"
    return ""


def size_to_hash(engine: Engine) -> int:
    """How many tasks and schedules a hash of the state would cover."""
    return len(engine.tasks.live) + engine.tasks.retained() + len(engine.recurring)


def too_large(engine: Engine) -> str:
    """Why the hash of the state is left out; empty when it is not."""
    size = size_to_hash(engine)
    return f"{size} tasks and schedules are more than {MAX_HASHED}" if size > MAX_HASHED else ""


class References:
    """Numbers of the calls and worker streams that are open."""

    def __init__(self) -> None:
        self.numbers: dict[Call | WorkerStream, int] = {}
        self._things: dict[int, Call | WorkerStream] = {}
        self._last = 0

    def words(self, checks: Mapping[type, Callable[[Any], None]] | None = None) -> Words:
        """Words in which they are numbers; `checks` as for `Words`."""
        return Words({Call: (self.number, self.call), WorkerStream: (self.number, self.stream)}, checks)

    def number(self, thing: Call | WorkerStream) -> int:
        """Its number, a new one for one that has none; 0 when it is over."""
        known = self.numbers.get(thing)
        if known is None:
            if not thing.open:
                return 0
            if len(self.numbers) >= MAX_RECORDED_OPEN:
                raise Unrecordable(f"more than {MAX_RECORDED_OPEN} calls and workers are open, which no replay takes")
            self._last += 1
            known = self._last
            self._enter(known, thing)
        return known

    def call(self, number: int) -> Call:
        """The call with that number, a new one when nothing has it."""
        found: Call = self._thing(number, Call)
        return found

    def stream(self, number: int) -> WorkerStream:
        """The worker stream with that number, a new one when nothing has it."""
        found: WorkerStream = self._thing(number, WorkerStream)
        return found

    def _thing(self, number: int, kind: Any) -> Any:
        known: Any = self._things.get(number)
        if known is None:
            if len(self._things) >= MAX_RECORDED_OPEN:
                raise Malformed(f"more than {MAX_RECORDED_OPEN} calls and worker streams are open")
            known = kind(None)
            if number:
                self._enter(number, known)
            else:
                known.open = False
        if type(known) is not kind:
            what = "call" if isinstance(known, Call) else "worker stream"
            raise Malformed(f"number {number} is a {what}, and stands for another thing here")
        return known

    def _enter(self, number: int, thing: Call | WorkerStream) -> None:
        self.numbers[thing] = number
        self._things[number] = thing

    def forget(self, events: Sequence[Any], step: Step[Any, Any]) -> None:
        """Free the numbers of what these events and this step have ended."""
        for action in step.at_once:
            kind = type(action)
            if kind is Answer:
                self._forget(action.request)
            elif kind is Reject:
                self._forget(action.call)
            elif kind is CloseWorker:
                self._forget(action.stream)
        for event in events:
            if type(event) is CallEnded:
                self._forget(event.call)

    def _forget(self, thing: Call | WorkerStream) -> None:
        number = self.numbers.pop(thing, 0)
        if number:
            del self._things[number]


def _words(name: str, *fields: str) -> Callable[[Any], Any]:
    get = attrgetter(*fields)
    return lambda record: (name, get(record))


WRITES: dict[type, Callable[[Any], Any]] = {
    TaskInserted: lambda record: (
        *("inserted", record.task_id, record.spec.pool, record.spec.key, record.max_attempts, record.arrival),
        [(edge.parent, edge.key, edge.condition) for edge in record.edges],
    ),
    TaskChanged: _words("changed", "task_id", "status", "attempt", "due", "first_started", "last_started", "message"),
    TaskFinished: _words("finished", "task_id", "status", "attempt", "last_started", "finished", "message"),
    EdgeResolved: _words("edge", "task_id", "key", "parent"),
    OutputStored: lambda record: ("output", record.task_id, len(record.output), record.content_type),
    RecurringStored: _words("schedule", "spec.name", "added"),
    RecurringFired: _words("fired", "name", "through", "local", "last_task"),
    RecurringDeleted: _words("schedule deleted", "name"),
}

#: Of messages that are long, or that hold bytes; all others are taken whole.
MESSAGES: dict[type, Callable[[Any], Any]] = {
    Submitted: lambda reply: (reply.task_id, reply.duplicate, None),
    SubmitReply: lambda reply: (reply.task_id, reply.duplicate, message_words(reply.result)),
    BatchReply: lambda reply: [(member.task_id, member.duplicate) for member in reply.members],
    TaskResult: lambda result: (
        *(result.task_id, result.status, result.content_type, result.message),
        None if result.output is None else len(result.output),
    ),
    TaskPage: lambda page: ([(task.task_id, task.status, task.attempt) for task in page.tasks], page.next_after),
    RecurringListReply: lambda reply: [(view.spec.name, view.next, view.last_task) for view in reply.schedules],
    SnapshotReply: lambda reply: (
        reply.engine.live_tasks,
        reply.engine.running,
        reply.engine.totals,
        reply.engine.pools,
    ),
}


def message_words(message: Message) -> Any:
    """What a message says, without bytes."""
    words = MESSAGES.get(type(message))
    return type(message).__name__, repr(message) if words is None else words(message)


class Said:
    """A checksum over what steps write and say, in their order."""

    def __init__(self, references: References) -> None:
        self._numbers = references.numbers
        self._sum = 0
        numbers = self._numbers
        self._actions: dict[type, Callable[[Any], Any]] = {
            Answer: lambda action: ("reply", numbers.get(action.request), message_words(action.outcome)),
            Reject: lambda action: ("reject", numbers.get(action.call), _rejection(action.rejection)),
            StartEvents: lambda action: ("start events", numbers.get(action.call)),
            SendEvent: lambda action: ("event", [numbers.get(call) for call in action.calls], repr(action.event)),
            SendLease: lambda action: ("lease", numbers.get(action.stream), *_lease(action.lease)),
            SendToWorker: lambda action: ("to worker", numbers.get(action.stream), repr(action.message)),
            CloseWorker: lambda action: (
                *("close", numbers.get(action.stream), action.why),
                action.rejection and _rejection(action.rejection),
            ),
            ReadStore: lambda action: ("read", repr(action.query)),
            StopFinished: lambda action: ("stop finished", action.after),
            LogDrop: lambda action: ("dropped", repr(action.drop)),
        }

    def words(self, step: Step[Any, Any]) -> list[Any]:
        """What a step wrote and says now."""
        actions = self._actions
        return [
            step.number,
            *[WRITES[type(record)](record) for record in step.writes],
            *[actions[type(action)](action) for action in step.at_once],
        ]

    def take(self, step: Step[Any, Any]) -> str:
        """Eight hexadecimal digits, of this step and all before it. Before the numbers of what it ends are freed."""
        self._sum = crc32(repr(self.words(step)).encode("utf-8", "surrogatepass"), self._sum)
        return f"{self._sum:08x}"

    def take_begin(self, step: Step[Any, Any]) -> str:
        """The same of the step with which recovery ends: its actions are the engine's, and counted alone."""
        words = [step.number, len(step.at_once), *[WRITES[type(record)](record) for record in step.writes]]
        self._sum = crc32(repr(words).encode("utf-8", "surrogatepass"), self._sum)
        return f"{self._sum:08x}"


def _rejection(rejection: Any) -> Any:
    return rejection.code.value, rejection.message, rejection.details


def _lease(lease: Any) -> Any:
    return lease.id, lease.task.id, lease.attempt, lease.previous_start
