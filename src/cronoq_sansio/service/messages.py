"""The words of the service: its events, its actions, and the messages that calls and worker streams carry.

Wire codecs turn bytes into these and back; nothing here knows a byte. Durations are nanoseconds, times are wall time in
Unix nanoseconds. The words for recurring schedules are in `messages_recurring.py`.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.actions import Answer, Step, Submitted
from cronoq_sansio.engine.events import (
    CascadesHeld,
    CommitsResumed,
    CommitsStalled,
    Labels,
    Stalled,
    TimerFired,
    WallClockMoved,
)
from cronoq_sansio.engine.snapshot import EngineSnapshot
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.messages_recurring import LogDrop, RecurringReply, RecurringRequest
from cronoq_sansio.spec import TaskSpec
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Lease
    from cronoq_sansio.engine.timers import Timer
    from cronoq_sansio.service.access import Principal
    from cronoq_sansio.service.budgets import Budget

TaskRef = int | str
"""A task's id, or its key."""


class Call:
    """One call with one request, from that to its reply, or to the end of its stream of events (`Watch`).

    It dies with the call: actions for a closed call are dropped. `sink` belongs to whoever owns the bytes, and is None
    when nobody is there any more; the service never looks at it. `open` becomes False when the end was released or when
    the caller went away; everything else is the service's.
    """

    __slots__ = ("budget", "open", "sink", "timer", "wait")

    def __init__(self, sink: object) -> None:
        self.sink = sink
        self.open = True
        self.budget: Budget | None = None
        self.timer: Timer[object] | None = None
        self.wait: object = None


class WorkerStream:
    """One `Workers.Work` stream. `max_queued` bounds the messages that wait to be read; 0 until registered."""

    __slots__ = ("max_queued", "open", "session", "sink")

    def __init__(self, sink: object) -> None:
        self.sink = sink
        self.open = True
        self.max_queued = 0
        self.session: object = None


# --- requests


@value
class Submit:
    """`Tasks.Submit`."""

    spec: TaskSpec
    wait: bool
    wait_timeout: int | None


@value
class SubmitBatch:
    """`Tasks.SubmitBatch`."""

    specs: tuple[TaskSpec, ...]


@value
class Cancel:
    """`Tasks.Cancel`."""

    task: TaskRef


@value
class Get:
    """`Tasks.Get`."""

    task: TaskRef


@value
class Wait:
    """`Tasks.Wait`."""

    task: TaskRef
    timeout: int | None


@value
class ListTasks:
    """`Tasks.ListTasks`."""

    pools: tuple[str, ...]
    """Empty: all."""
    statuses: tuple[int, ...]
    """Empty: any."""
    after: int
    """Only larger ids."""
    limit: int
    """0: `limits.DEFAULT_PAGE`."""


@value
class Watch:
    """`Tasks.Watch`: its answer is a stream of events. Filters that are empty let everything pass."""

    pools: tuple[str, ...]
    ids: tuple[int, ...]
    keys: tuple[str, ...]
    all_transitions: bool
    """False: ends only."""


@value
class ListWorkers:
    """`Admin.ListWorkers`."""


@value
class GetSnapshot:
    """`Admin.Snapshot`."""


Request = Submit | SubmitBatch | Cancel | Get | ListTasks | Wait | Watch | ListWorkers | GetSnapshot | RecurringRequest

# --- replies


@value
class TaskResult:
    """How a task ended."""

    task_id: int
    status: int
    output: bytes | None
    """None when it did not succeed, or when the output is gone."""
    content_type: str
    message: str


@value
class SubmitReply:
    """Answer to a `Submit` that waited. Any other gets the engine's `Submitted` as it is."""

    task_id: int
    duplicate: bool
    result: TaskResult


@value
class BatchReply:
    """Answer to `SubmitBatch`: one entry per member, in the order of the request."""

    members: tuple[Submitted, ...]


@value
class CancelReply:
    """Answer to `Cancel`."""

    cancelled: bool


@value
class TaskInfo:
    """Answer to `Get`. Times are None when unknown or not reached."""

    task_id: int
    status: int
    pool: str
    key: str
    kind: str
    attempt: int
    max_attempts: int
    created: int | None
    started: int | None
    """Start of the latest attempt."""
    finished: int | None
    message: str
    """Last error of a live task, reason of an end; empty for succeeded."""
    output_available: bool
    priority: int
    """Index of the class, or -1 when unknown."""
    tenant: str = ""
    """Whose task it is; empty without."""


@value
class TaskPage:
    """Answer to `ListTasks`: tasks by id, and the `after` of the next page; 0 = this was the last one."""

    tasks: tuple[TaskInfo, ...]
    next_after: int


@value
class WorkerInfo:
    """A registered worker."""

    worker_id: int
    name: str
    pool: str
    labels: Labels
    slots: int
    busy: int
    connected: int
    """When it registered."""


@value
class WorkerList:
    """Answer to `ListWorkers`, in the order of registration."""

    workers: tuple[WorkerInfo, ...]


@value
class SnapshotReply:
    """Answer to `GetSnapshot`."""

    engine: EngineSnapshot
    workers_connected: int
    workers_by_pool: dict[str, int]


Message = (
    Submitted
    | SubmitReply
    | BatchReply
    | CancelReply
    | TaskInfo
    | TaskPage
    | TaskResult
    | WorkerList
    | SnapshotReply
    | RecurringReply
)


@value
class StatusEvent:
    """One event of a `Watch`: a task reached a status."""

    task_id: int
    pool: str
    key: str
    status: int
    attempt: int
    at: int
    message: str
    """Error of the last attempt when RETRYING, reason of an end; else empty."""


# --- worker to server


@value
class Register:
    """First message of a worker stream."""

    pool: str
    slots: int
    worker_name: str
    protocol_version: int
    labels: Labels


@value
class SetSlots:
    """The worker offers another number of slots from now on."""

    slots: int


@value
class Heartbeat:
    """The worker is still busy with the lease."""

    lease: int


@value
class Complete:
    """The attempt succeeded."""

    lease: int
    output: bytes
    content_type: str


@value
class Fail:
    """The attempt failed. `retry_after` is 0 when absent or not a valid duration (server.md section 4)."""

    lease: int
    message: str
    permanent: bool
    retry_after: int


@value
class Nack:
    """The worker refuses the lease."""

    lease: int
    reason: str


@value
class AttemptAborted:
    """`Cancelled` on the wire: the worker cancelled the attempt, or confirms an Abort."""

    lease: int


@value
class EmptyMessage:
    """A worker message whose oneof is empty, or new to us: ignored (server.md section 4)."""


FromWorker = Register | SetSlots | Heartbeat | Complete | Fail | Nack | AttemptAborted | EmptyMessage

# --- server to worker (a lease travels as `SendLease`)


@value
class Registered:
    """First message to a worker."""

    worker_id: int
    lease_ttl: int
    slots: int
    max_message_bytes: int


@value
class AbortLease:
    """Stop the handler of this lease."""

    lease: int
    reason: str


@value
class Shutdown:
    """The stream ends about a second from now."""

    reason: str
    not_leader: bool


ToWorker = Registered | AbortLease | Shutdown

# --- events


@value
class CallReceived:
    """A call with its whole, decoded request."""

    call: Call
    principal: "Principal"
    request: Request
    deadline: int | None
    """On the `now` scale, from `grpc-timeout`."""


@value
class CallEnded:
    """The caller went away before the end: reset, connection lost, a stream of events that it does not read."""

    call: Call


@value
class WorkerConnected:
    """A worker stream was opened; its first message is due within `limits.REGISTER_TIMEOUT`."""

    stream: WorkerStream
    principal: "Principal"


@value
class WorkerSent:
    """One decoded message of a worker."""

    stream: WorkerStream
    message: FromWorker


@value
class WorkerGone:
    """The worker stream is over: half-closed, reset, connection lost, or cut because it does not read."""

    stream: WorkerStream
    why: str


@value
class StoreAnswered:
    """The answer to a `ReadStore`: None when the store has no such task, a `Rejection` when it could not be asked."""

    query: "StoreQuery"
    answer: "StoredTask | StoredPage | Rejection | None"


@value
class StorePressure:
    """The store cannot keep up (`reason`: what an operator should look at) or can again (None)."""

    reason: str | None


@value
class StopRequested:
    """Stop gracefully: no new work, no dispatch, running attempts get `grace` nanoseconds."""

    grace: int


ServiceEvent = (
    CallReceived
    | CallEnded
    | WorkerConnected
    | WorkerSent
    | WorkerGone
    | StoreAnswered
    | StorePressure
    | StopRequested
    | TimerFired
    | WallClockMoved
    | Stalled
    | CascadesHeld
    | CommitsStalled
    | CommitsResumed
)

# --- store queries


@value
class FindTask:
    """Ask the store for a task that the engine does not hold any more; by key, the newest one."""

    number: int
    task: TaskRef
    with_output: bool


@value
class StoredTask:
    """A task as the store has it."""

    info: TaskInfo
    output: bytes | None
    """Only when asked for, and only of succeeded tasks."""
    content_type: str


@value
class ListFinished:
    """Ask the store for finished tasks by id. Filters that are empty let everything pass."""

    number: int
    pools: tuple[str, ...]
    statuses: tuple[int, ...]
    after: int
    limit: int


@value
class StoredPage:
    """Finished tasks as the store has them, ascending, and the id up to which it looked; 0 = at everything."""

    tasks: tuple[TaskInfo, ...]
    looked: int


StoreQuery = FindTask | ListFinished


# --- actions. `after` is the step that must be durable first; 0 = none. A call is answered with `Answer`, or refused.


@value
class Reject:
    """Refuse a call, or end its stream of events."""

    call: Call
    rejection: Rejection
    after: int


@value
class StartEvents:
    """A `Watch` is let in: tell the caller so at once, before any event."""

    call: Call
    after: int


@value
class SendEvent:
    """Send an event to everyone who watches for it; calls that ended meanwhile are left out."""

    calls: tuple[Call, ...]
    event: StatusEvent
    after: int


@value
class SendLease:
    """Give a lease to a worker; from its release on the worker holds it."""

    stream: WorkerStream
    lease: "Lease"
    after: int


@value
class SendToWorker:
    """Send a message other than a lease."""

    stream: WorkerStream
    message: ToWorker
    after: int


@value
class CloseWorker:
    """End a worker stream with a status; `rejection` None = OK."""

    stream: WorkerStream
    rejection: Rejection | None
    after: int
    why: str = ""
    """For the log: how the stream ended on the worker's side, empty when it was the server that ended it."""


@value
class ReadStore:
    """Ask the store; answered by `StoreAnswered`."""

    query: StoreQuery
    after: int


@value
class StopFinished:
    """The stop is complete: every worker was told, every wait was answered, everything is durable."""

    after: int


ServiceAction = (
    Answer
    | Reject
    | StartEvents
    | SendEvent
    | SendLease
    | SendToWorker
    | CloseWorker
    | ReadStore
    | StopFinished
    | LogDrop
)
ServiceStep = Step[ServiceAction, ServiceAction]
