"""A term that is driven by a test, and recorded: an engine, a service and an outbox, with a store that keeps up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.outbox import Outbox, StepsDurable
from cronoq_sansio.recording.format import STOPPED, Head, without_secrets
from cronoq_sansio.recording.writer import RecordingWriter
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages import (
    Call,
    CallReceived,
    FromWorker,
    ReadStore,
    Register,
    Request,
    SendLease,
    StoreQuery,
    Submit,
    WorkerConnected,
    WorkerSent,
    WorkerStream,
)
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import TaskSpec

NOW = 1_800_000_000 * SECOND
FIRST = 100_000
SPEC = TaskSpec(b"payload", "", "", "default", 2, "", None, None, (), 40)
SETTINGS = Settings(
    pools=(PoolSettings(), PoolSettings("slow", await_unknown_dependencies=60 * SECOND)),
    resources=(ResourceSettings("api", "token_bucket", rate=0.5, burst=3),),
)


class Term:
    """Hands in events, and keeps the lines of the recording."""

    def __init__(
        self, settings: Settings = SETTINGS, records: Sequence[LoadedRecord] = (), *, volatile: bool = False
    ) -> None:
        self.now = NOW
        self.writer = RecordingWriter()
        head = Head("0.0.1", "2026.1", without_secrets(settings), 3, 7, FIRST, 200, NOW, 5, volatile)
        self.lines = [self.writer.head(head)]
        self.engine = engine = Engine.recover(
            settings, first_task_id=FIRST, first_lease_id=200, seed=7, now=NOW, wall_offset=5
        )
        self.lines += self.writer.loading(records)
        engine.load(records)
        while True:
            self.lines.append(self.writer.settling(self.now))
            if not engine.settle(self.now):
                break
        self.lines.append(self.writer.beginning(self.now))
        step = engine.begin(self.now)
        self.lines.append(self.writer.begun(step))
        self.service = Service(engine, settings, self.now, volatile=volatile)
        self.outbox = Outbox(self.service, volatile=volatile)
        self.leases: list[SendLease] = []
        self.asked: list[StoreQuery] = []

    def handle(self, *events: Any, later: int = 0, looked: bool = True) -> Step[Any, Any]:
        """Hand in a batch, `later` nanoseconds after the last one; `looked`: ask for the next timeout before."""
        self.now += later
        if looked:
            self.outbox.next_timeout()
        line = self.writer.handed_in(events, self.now, looked)
        try:
            step = self.outbox.handle(events, self.now)
        except Exception as error:
            self.lines.append(self.writer.raised(line, type(error).__name__))
            raise
        self.lines.append(self.writer.handled(line, events, step))
        self.leases += [action for action in step.at_once if type(action) is SendLease]
        self.asked += [action.query for action in step.at_once if type(action) is ReadStore]
        return step

    def commit(self) -> Step[Any, Any]:
        """Everything is durable."""
        return self.handle(StepsDurable(self.engine.number))

    def call(self, request: Request, **options: Any) -> Call:
        """A caller asks for something."""
        call = Call(None)
        self.handle(CallReceived(call, ANYONE, request, None), **options)
        return call

    def submit(self, wait: bool = False, **fields: Any) -> Call:
        """A caller submits a task."""
        return self.call(Submit(replace(SPEC, **fields), wait, None))

    def worker(self, slots: int = 2, pool: str = "default") -> WorkerStream:
        """A worker registers."""
        stream = WorkerStream(None)
        self.handle(WorkerConnected(stream, ANYONE))
        self.say(stream, Register(pool, slots, "tester", 3, ()))
        return stream

    def say(self, stream: WorkerStream, message: FromWorker, **options: Any) -> None:
        """A worker says something."""
        self.handle(WorkerSent(stream, message), **options)

    def end(self, reason: str = STOPPED, why: str = "the test is over") -> list[str]:
        """The lines of the whole recording."""
        return [*self.lines, self.writer.end(reason, why, self.engine)]
