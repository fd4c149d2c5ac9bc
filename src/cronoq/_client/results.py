"""What calls return: frozen values, made from the messages of the contract.

Times are Unix seconds as float, and the exact nanoseconds stand beside them in `…_ns`; None when unset. Words for
status, priority and overlap are the names of the contract in lower case without their prefix; a number that this
version does not know is kept as `unknown_<number>`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire import pb

T = TypeVar("T")

TERMINAL = frozenset(("succeeded", "failed", "dead_lettered", "cancelled", "skipped", "missed", "shed"))

Unavailable = tuple[str, ...]
"""Names of shards that could not be asked."""


@cache
def _words(enum: str) -> dict[int, str]:
    kind = getattr(pb, enum)
    names: list[str] = list(kind.keys())
    prefix = names[0].removesuffix("UNSPECIFIED")
    return {kind.Value(name): name.removeprefix(prefix).lower() for name in names}


def word(enum: str, number: int) -> str:
    """The word for a number of an enumeration."""
    return _words(enum).get(number) or f"unknown_{number}"


def number(enum: str, text: str) -> int | None:
    """The number for a word, in any case; None for an unknown one and for `unspecified`."""
    lower = text.lower()
    return next((value for value, name in _words(enum).items() if name == lower and value), None)


def unix(nanoseconds: int) -> float:
    """Unix seconds."""
    return nanoseconds / SECOND


@dataclass(frozen=True, slots=True)
class Result:
    """How a task ended."""

    id: int
    status: str
    output: bytes | None
    message: str = ""
    output_available: bool = False
    unavailable_shards: Unavailable = ()

    @property
    def ok(self) -> bool:
        """It succeeded."""
        return self.status == "succeeded"

    def json(self) -> Any:
        """The output as JSON; None for an empty one. ValueError when there is none, or it is not JSON."""
        if self.output is None:
            raise ValueError(f"task {self.id} has no output: its status is {self.status}")
        return json.loads(self.output) if self.output else None

    def text(self) -> str:
        """The output as UTF-8 text; empty when there is none."""
        return "" if self.output is None else self.output.decode()


@dataclass(frozen=True, slots=True)
class Submitted:
    """A task was handed in, or `duplicate`: one with the same key was there already."""

    id: int
    duplicate: bool
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What is known of a task. Everything but `id` and `status` may be missing for one that ended long ago."""

    id: int
    status: str
    pool: str = ""
    key: str = ""
    kind: str = ""
    attempt: int = 0
    max_attempts: int = 0
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    message: str = ""
    output_available: bool = False
    tenant: str = ""
    priority: str | None = None
    created_at_ns: int | None = None
    started_at_ns: int | None = None
    finished_at_ns: int | None = None
    unavailable_shards: Unavailable = ()

    @property
    def done(self) -> bool:
        """It has ended."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Part of a listing. `next_after` is the `after` of the next page; None = this is the last one."""

    tasks: tuple[TaskInfo, ...]
    next_after: int | None
    unavailable_shards: Unavailable = ()


@dataclass(frozen=True, slots=True)
class Event:
    """The status of a task changed."""

    id: int
    pool: str
    key: str
    status: str
    attempt: int
    at: float
    message: str
    at_ns: int = 0

    @property
    def done(self) -> bool:
        """The task has ended."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A connected worker."""

    id: int
    name: str
    pool: str
    labels: Mapping[str, str]
    slots: int
    busy: int
    connected_at: float
    connected_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class RecurringInfo:
    """A schedule."""

    name: str
    cron: str
    tz: str
    """Empty = UTC."""
    pool: str
    kind: str
    overlap: str
    """`skip`, `allow`, `queue` or `queue_on_success`."""
    next_at: float | None
    """None when nothing follows."""
    last_task_id: int | None
    """None before the first task."""
    next_at_ns: int | None = None


class Listing(list[T]):
    """A list that also says which shards could not be asked: `unavailable_shards`."""

    unavailable_shards: Unavailable = ()


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """The workers of a pool with exactly the same labels."""

    labels: Mapping[str, str]
    capacity: int
    busy: int


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Figures of one pool; each is explained in the contract (`cronoq-trio print-proto`)."""

    name: str
    capacity: int
    busy: int
    held: int
    """Slots kept free for fixed starts."""
    desired: int
    """Slots that the autoscaler asks for; 0 when it is off."""
    pending_by_class: tuple[int, ...]
    """Critical, high, normal, low."""
    reservations: int
    """Live tasks with a fixed start."""
    dispatched: int
    """In the last minute, as all figures down to `wait_p99`."""
    succeeded: int
    failed: int
    priority_adherence: float
    """Share of starts that no better class waited for."""
    fixed_start_hit_rate: float
    """Share of fixed starts that began within their tolerance."""
    utilization: float
    """Share of the offered time that attempts used."""
    schedule_efficiency: float
    """Share of the offered time that successful attempts used."""
    wait_p50: float
    """Seconds from submission, or from the fixed start, to the first attempt."""
    wait_p90: float
    wait_p99: float
    cost: float
    """Of all slots since the server began to serve, as `cost_per_worker_second` says."""
    workers_connected: int
    groups: tuple[WorkerGroup, ...]

    @property
    def pending(self) -> int:
        """Tasks of all classes that live and do not run: ready, blocked, scheduled, or between two attempts."""
        return sum(self.pending_by_class)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the start of the server."""

    submitted: int
    dispatched: int
    succeeded: int
    failed: int
    dead_lettered: int
    cancelled: int
    skipped: int
    missed: int
    shed: int
    retries: int
    timeouts: int
    lease_expiries: int
    stale_completions: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Figures of the whole server."""

    pools: tuple[PoolSnapshot, ...]
    live_tasks: int
    running: int
    pending: int
    totals: Totals
    workers_connected: int
    unavailable_shards: Unavailable = ()

    def pool(self, name: str) -> PoolSnapshot | None:
        """The pool of that name."""
        return next((pool for pool in self.pools if pool.name == name), None)


# --- from messages


def read_result(message: pb.TaskResult, unavailable: Unavailable = ()) -> Result:
    """A `TaskResult`."""
    output = message.output if message.HasField("output") else None
    status = word("TaskStatus", message.status)
    return Result(message.id, status, output, message.message, message.output_available, unavailable)


def read_submitted(message: pb.SubmitResponse) -> Submitted:
    """A `SubmitResponse`."""
    result = read_result(message.result) if message.HasField("result") else None
    return Submitted(message.id, message.duplicate, result)


def _optional(message: Any, field: str) -> tuple[float | None, int | None]:
    if not message.HasField(field):
        return None, None
    found: int = getattr(message, field)
    return unix(found), found


def read_info(message: pb.TaskInfo, unavailable: Unavailable = ()) -> TaskInfo:
    """A `TaskInfo`."""
    created, started, finished = (_optional(message, f"{name}_unix_ns") for name in ("created", "started", "finished"))
    return TaskInfo(
        id=message.id,
        status=word("TaskStatus", message.status),
        pool=message.pool,
        key=message.key,
        kind=message.kind,
        attempt=message.attempt,
        max_attempts=message.max_attempts,
        created_at=created[0],
        started_at=started[0],
        finished_at=finished[0],
        message=message.message,
        output_available=message.output_available,
        tenant=message.tenant,
        priority=word("Priority", message.priority) if message.priority else None,
        created_at_ns=created[1],
        started_at_ns=started[1],
        finished_at_ns=finished[1],
        unavailable_shards=unavailable,
    )


def read_page(message: pb.ListTasksResponse) -> TaskPage:
    """A `ListTasksResponse`."""
    tasks = tuple(read_info(task) for task in message.tasks)
    return TaskPage(tasks, message.next_after or None, tuple(message.unavailable_shards))


def read_event(message: pb.StatusEvent) -> Event:
    """A `StatusEvent`."""
    at = message.at_unix_ns
    status = word("TaskStatus", message.status)
    return Event(message.id, message.pool, message.key, status, message.attempt, unix(at), message.message, at)


def read_workers(message: pb.ListWorkersResponse) -> Listing[WorkerInfo]:
    """A `ListWorkersResponse`."""
    found = Listing(
        WorkerInfo(
            worker.id,
            worker.name,
            worker.pool,
            dict(worker.labels),
            worker.slots,
            worker.busy,
            unix(worker.connected_unix_ns),
            worker.connected_unix_ns,
        )
        for worker in message.workers
    )
    found.unavailable_shards = tuple(message.unavailable_shards)
    return found


def read_schedules(message: pb.ListRecurringResponse) -> Listing[RecurringInfo]:
    """A `ListRecurringResponse`."""
    found: Listing[RecurringInfo] = Listing()
    for entry in message.schedules:
        following, following_ns = _optional(entry, "next_unix_ns")
        last = entry.last_task_id if entry.HasField("last_task_id") else None
        overlap = word("Overlap", entry.overlap) if entry.overlap else "skip"
        found.append(
            RecurringInfo(
                entry.name, entry.cron, entry.tz, entry.pool, entry.kind, overlap, following, last, following_ns
            )
        )
    found.unavailable_shards = tuple(message.unavailable_shards)
    return found


def _read_pool(message: pb.PoolSnapshot) -> PoolSnapshot:
    values: dict[str, Any] = {
        field.name.removesuffix("_s"): getattr(message, field.name) for field in message.DESCRIPTOR.fields
    }
    values["pending_by_class"] = tuple(message.pending_by_class)
    values["groups"] = tuple(WorkerGroup(dict(group.labels), group.capacity, group.busy) for group in message.groups)
    return PoolSnapshot(**values)


def read_snapshot(message: pb.SnapshotResponse) -> Snapshot:
    """A `SnapshotResponse`."""
    totals = message.totals
    return Snapshot(
        pools=tuple(_read_pool(pool) for pool in message.pools),
        live_tasks=message.live_tasks,
        running=message.running,
        pending=message.pending,
        totals=Totals(**{field.name: getattr(totals, field.name) for field in totals.DESCRIPTOR.fields}),
        workers_connected=message.workers_connected,
        unavailable_shards=tuple(message.unavailable_shards),
    )
