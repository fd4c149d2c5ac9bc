"""Protobuf messages of `cronoq.v1` <-> the service's requests and replies, and the table of all methods.

Decoding is one parse and one pass: what comes out is checked against the fixed limits and `[limits]`, nothing looks at
it a second time. A fault of the caller is a `Rejection` that names the field. Order of the checks (server.md section
3): these stand before anything that the engine knows, duplicates included.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cronoq_sansio.checks import check_text, duration, invalid
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.snapshot import PoolSnapshot
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import MAX_BATCH_EDGES, MAX_POOL_NAME, MAX_RECALLED_ANSWERS, MAX_STATUSES
from cronoq_sansio.service.access import METHOD_ROLES
from cronoq_sansio.service.messages import (
    BatchReply,
    Cancel,
    CancelReply,
    Get,
    GetSnapshot,
    ListTasks,
    ListWorkers,
    Message,
    Request,
    SnapshotReply,
    StatusEvent,
    Submit,
    SubmitBatch,
    SubmitReply,
    TaskInfo,
    TaskPage,
    TaskRef,
    TaskResult,
    Wait,
    Watch,
    WorkerList,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import TaskSpec, TaskStatus
from cronoq_sansio.values import value
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import PREFIX_SIZE, frame, sole
from cronoq_sansio.wire.protobuf_bytes import MAX_INSIDE, MORE, VARINT, tag, varint
from cronoq_sansio.wire.protobuf_counts import answered, of_member, parse
from cronoq_sansio.wire.protobuf_recall import Recall
from cronoq_sansio.wire.protobuf_recurring import (
    decode_add_recurring,
    decode_list_recurring,
    decode_remove_recurring,
    encode_recurring_added,
    encode_recurring_list,
    encode_recurring_removed,
)
from cronoq_sansio.wire.protobuf_spec import decode_spec


@value
class Route:
    """One method of the contract."""

    path: bytes
    """As in `:path`."""
    name: str
    """For messages: `Tasks.Submit`."""
    role: str
    """Whoever has it, or `admin`, may call."""
    streaming: bool
    """True for `Workers.Work`, the only method with a stream of requests."""
    decode: Callable[[bytes, LimitSettings], Request | Rejection] | None
    """None for `Workers.Work`."""
    encode: Callable[[Message], bytes] | Callable[[StatusEvent], bytes] | None
    events: bool = False
    """True for `Tasks.Watch`, the only method with one request and a stream of answers."""
    read: Callable[[bytes, LimitSettings], Request | Rejection | None] | None = None
    """The request of a whole content, if that is one message, not compressed, within the limit; else it gives None.

    None for the two methods with a stream: all others have one request and one answer. None where `looks` is True:
    such a request is kept as it came until its turn.
    """
    write: Callable[[Any], bytes] | None = None
    """The whole content of an answer; None for the two methods with a stream."""
    looks: bool = False
    """True for methods that look at many things, which takes milliseconds: they have turns, see turns.py."""


# --- requests


def decode_submit(data: bytes, limits: LimitSettings) -> Submit | Rejection:
    """`Tasks.Submit`."""
    found = read_submit(frame(data), limits) if len(data) <= MAX_INSIDE else None
    return found or _decode_submit(data, limits)


def _decode_submit(data: bytes, limits: LimitSettings) -> Submit | Rejection:
    """With whatever may be in it."""
    message = parse(pb.SubmitRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    if not message.HasField("task"):
        return invalid("task: must be set")
    spec = decode_spec(message.task, len(data), limits)
    if type(spec) is Rejection:
        return spec
    wait_timeout = None
    if message.HasField("wait_timeout_s"):
        parsed = duration("wait_timeout_s", message.wait_timeout_s)
        if type(parsed) is Rejection:
            return parsed
        wait_timeout = parsed
    return Submit(spec, message.wait, wait_timeout)  # type: ignore[arg-type]


read_submit = Recall(_decode_submit).read
"""`Tasks.Submit`, as `Route.read`."""


def decode_batch(data: bytes, limits: LimitSettings) -> SubmitBatch | Rejection:
    """`Tasks.SubmitBatch`. A fault names the member, also in the metadata `cronoq-batch-index`."""
    message = parse(pb.SubmitBatchRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    tasks = message.tasks
    if len(tasks) > limits.max_tasks_per_batch:
        allowed = limits.max_tasks_per_batch
        return invalid(f"tasks: {len(tasks)} members, at most {allowed} are allowed (limits.max_tasks_per_batch)")
    most = answered(limits)
    if len(tasks) > most:
        return invalid(f"tasks: {len(tasks)} members, the answer to more than {most} is above max_message_bytes")
    edges = 0
    for index, task in enumerate(tasks):
        edges += len(task.deps)
        if edges > MAX_BATCH_EDGES:  # before any of them is looked at
            text = f"deps: the batch has more than {MAX_BATCH_EDGES} dependencies up to here; split it"
            return of_member(invalid(text), index)
    specs: list[TaskSpec] = []
    for index, task in enumerate(tasks):
        spec = decode_spec(task, task.ByteSize(), limits)
        if isinstance(spec, Rejection):
            return of_member(spec, index)
        specs.append(spec)
    return SubmitBatch(tuple(specs))


def decode_cancel(data: bytes, limits: LimitSettings) -> Cancel | Rejection:
    """`Tasks.Cancel`."""
    message = parse(pb.CancelRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    task = _decode_ref(message.task, limits)
    return task if isinstance(task, Rejection) else Cancel(task)


def decode_get(data: bytes, limits: LimitSettings) -> Get | Rejection:
    """`Tasks.Get`."""
    message = parse(pb.GetRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    task = _decode_ref(message.task, limits)
    return task if isinstance(task, Rejection) else Get(task)


def decode_wait(data: bytes, limits: LimitSettings) -> Wait | Rejection:
    """`Tasks.Wait`."""
    message = parse(pb.WaitRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    task = _decode_ref(message.task, limits)
    if isinstance(task, Rejection):
        return task
    if not message.HasField("timeout_s"):
        return Wait(task, None)
    timeout = duration("timeout_s", message.timeout_s)
    return timeout if isinstance(timeout, Rejection) else Wait(task, timeout)


def decode_snapshot(data: bytes, limits: LimitSettings) -> GetSnapshot | Rejection:
    """`Admin.Snapshot`."""
    fault = parse(pb.Empty, data, limits)
    return fault if isinstance(fault, Rejection) else GetSnapshot()


def decode_list_workers(data: bytes, limits: LimitSettings) -> ListWorkers | Rejection:
    """`Admin.ListWorkers`."""
    fault = parse(pb.Empty, data, limits)
    return fault if isinstance(fault, Rejection) else ListWorkers()


def decode_list(data: bytes, limits: LimitSettings) -> ListTasks | Rejection:
    """`Tasks.ListTasks`. Unknown pools are the service's to refuse; statuses are judged here."""
    message = parse(pb.ListTasksRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    statuses = message.statuses
    fault = _check_pools(message.pools, limits)
    if fault is not None:
        return fault
    if len(statuses) > MAX_STATUSES:
        return invalid(f"statuses: {len(statuses)} entries, at most {MAX_STATUSES} are allowed")
    for status in statuses:
        if not TaskStatus.BLOCKED <= status <= TaskStatus.SHED:
            return invalid(f"statuses: {status} is not a number of the enumeration TaskStatus, or is its UNSPECIFIED")
    return ListTasks(tuple(message.pools), tuple(sorted(set(statuses))), message.after, message.limit)


def decode_watch(data: bytes, limits: LimitSettings) -> Watch | Rejection:
    """`Tasks.Watch`."""
    message = parse(pb.WatchRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    ids, keys = message.ids, message.keys
    most = limits.max_tasks_per_batch
    if len(ids) + len(keys) > most:
        text = f"{len(ids) + len(keys)} entries, at most {most} are allowed (limits.max_tasks_per_batch)"
        return invalid(f"ids and keys: {text}")
    fault = _check_pools(message.pools, limits)
    for index, key in enumerate(keys):
        fault = fault or check_text(f"keys[{index}]", key, limits.max_key_len)
        if not key:
            fault = fault or invalid(f"keys[{index}]: is empty; a task without a key can be watched by its id")
    return fault or Watch(tuple(message.pools), tuple(ids), tuple(keys), message.all_transitions)


def _check_pools(pools: Sequence[str], limits: LimitSettings) -> Rejection | None:
    most = limits.max_tasks_per_batch
    if len(pools) > most:
        return invalid(f"pools: {len(pools)} entries, at most {most} are allowed (limits.max_tasks_per_batch)")
    for index, pool in enumerate(pools):
        fault = check_text(f"pools[{index}]", pool, MAX_POOL_NAME)
        if fault is not None:
            return fault
    return None


def _decode_ref(ref: pb.TaskRef, limits: LimitSettings) -> TaskRef | Rejection:
    target = ref.WhichOneof("target")
    if target == "id":
        return ref.id
    if target is None or not ref.key:
        return invalid("task: an id or a key must be set")
    return check_text("task.key", ref.key, limits.max_key_len) or ref.key


# --- replies


def encode_submit(reply: Message) -> bytes:
    """`SubmitResponse`."""
    assert isinstance(reply, Submitted | SubmitReply)
    return write_submit(reply)[PREFIX_SIZE:]


def write_submit(reply: Submitted | SubmitReply) -> bytes:
    """`SubmitResponse`, as `Route.write`. Most have an id alone, and ids that follow each other differ in one byte."""
    number = reply.task_id
    if type(reply) is Submitted and not reply.duplicate and number >= 0x80:
        around = _around.get(number >> 7)
        if around is None:
            around = _write_around(number)
        return around[0] + MORE[number & 0x7F] + around[1]
    message = pb.SubmitResponse(id=number, duplicate=reply.duplicate)
    if type(reply) is SubmitReply:
        message.result.CopyFrom(_result(reply.result))
    return frame(message.SerializeToString())


def _write_around(number: int) -> tuple[bytes, bytes]:
    """What is before and behind the byte that has the last 7 bits of the id."""
    written = frame(bytes((tag(1, VARINT),)) + varint(number))  # `SubmitResponse.id`
    at = PREFIX_SIZE + 1
    if len(_around) >= MAX_RECALLED_ANSWERS:
        _around.clear()
    around = _around[number >> 7] = written[:at], written[at + 1 :]
    return around


_around: dict[int, tuple[bytes, bytes]] = {}
"""By all bits of the id but the last 7."""


def encode_batch(reply: Message) -> bytes:
    """`SubmitBatchResponse`."""
    assert isinstance(reply, BatchReply)
    tasks = [pb.SubmitResponse(id=member.task_id, duplicate=member.duplicate) for member in reply.members]
    return pb.SubmitBatchResponse(tasks=tasks).SerializeToString()


def encode_cancel(reply: Message) -> bytes:
    """`CancelResponse`."""
    assert isinstance(reply, CancelReply)
    return pb.CancelResponse(cancelled=reply.cancelled).SerializeToString()


def encode_info(reply: Message) -> bytes:
    """`TaskInfo`."""
    assert isinstance(reply, TaskInfo)
    return _info(reply).SerializeToString()


def _info(info: TaskInfo) -> pb.TaskInfo:
    return pb.TaskInfo(
        id=info.task_id,
        status=info.status,  # type: ignore[arg-type]
        pool=info.pool,
        key=info.key,
        kind=info.kind,
        attempt=info.attempt,
        max_attempts=info.max_attempts,
        created_unix_ns=info.created,
        started_unix_ns=info.started,
        finished_unix_ns=info.finished,
        message=info.message,
        output_available=info.output_available,
        tenant=info.tenant,
        priority=info.priority + 1,  # type: ignore[arg-type]
    )


def encode_page(reply: Message) -> bytes:
    """`ListTasksResponse`."""
    assert isinstance(reply, TaskPage)
    tasks = [_info(info) for info in reply.tasks]
    return pb.ListTasksResponse(tasks=tasks, next_after=reply.next_after).SerializeToString()


def encode_event(event: StatusEvent) -> bytes:
    """`StatusEvent`."""
    return pb.StatusEvent(
        id=event.task_id,
        pool=event.pool,
        key=event.key,
        status=event.status,  # type: ignore[arg-type]
        attempt=event.attempt,
        at_unix_ns=event.at,
        message=event.message,
    ).SerializeToString()


def encode_result(reply: Message) -> bytes:
    """`TaskResult`."""
    assert isinstance(reply, TaskResult)
    return _result(reply).SerializeToString()


def _result(result: TaskResult) -> pb.TaskResult:
    return pb.TaskResult(
        id=result.task_id,
        status=result.status,  # type: ignore[arg-type]
        output=result.output,
        message=result.message,
        output_available=result.output is not None,
    )


def encode_workers(reply: Message) -> bytes:
    """`ListWorkersResponse`."""
    assert isinstance(reply, WorkerList)
    workers = [
        pb.WorkerInfo(
            id=worker.worker_id,
            name=worker.name,
            pool=worker.pool,
            labels=dict(worker.labels),
            slots=worker.slots,
            busy=worker.busy,
            connected_unix_ns=worker.connected,
        )
        for worker in reply.workers
    ]
    return pb.ListWorkersResponse(workers=workers).SerializeToString()


def encode_snapshot(reply: Message) -> bytes:
    """`SnapshotResponse`."""
    assert isinstance(reply, SnapshotReply)
    engine = reply.engine
    return pb.SnapshotResponse(
        pools=[_pool(pool, reply.workers_by_pool.get(pool.name, 0)) for pool in engine.pools],
        live_tasks=engine.live_tasks,
        running=engine.running,
        pending=engine.pending,
        totals=pb.Totals(**engine.totals),
        workers_connected=reply.workers_connected,
    ).SerializeToString()


def _pool(pool: PoolSnapshot, workers: int) -> pb.PoolSnapshot:
    figures = pool.figures
    return pb.PoolSnapshot(
        name=pool.name,
        capacity=pool.capacity,
        busy=pool.busy,
        held=pool.held,
        desired=pool.desired,
        pending_by_class=pool.pending_by_class,
        reservations=pool.reservations,
        dispatched=figures.dispatched,
        succeeded=figures.succeeded,
        failed=figures.failed,
        priority_adherence=figures.priority_adherence,
        fixed_start_hit_rate=figures.fixed_start_hit_rate,
        utilization=figures.utilization,
        schedule_efficiency=figures.schedule_efficiency,
        wait_p50_s=figures.wait_p50,
        wait_p90_s=figures.wait_p90,
        wait_p99_s=figures.wait_p99,
        cost=pool.cost,
        workers_connected=workers,
        groups=[
            pb.WorkerGroup(labels=dict(group.labels), capacity=group.capacity, busy=group.busy) for group in pool.groups
        ],
    )


# --- the methods


def _unary(
    service: str,
    method: str,
    decode: Callable[[bytes, LimitSettings], Request | Rejection],
    encode: Callable[[Message], bytes],
    read: Callable[[bytes, LimitSettings], Request | Rejection | None] | None = None,
    write: Callable[[Any], bytes] | None = None,
    *,
    looks: bool = False,
) -> Route:
    def read_sole(content: bytes, limits: LimitSettings) -> Request | Rejection | None:
        data = sole(content, limits.max_message_bytes)
        return None if data is None else decode(data, limits)

    def write_framed(reply: Message) -> bytes:
        return frame(encode(reply))

    name = f"{service}.{method}"
    path = f"/cronoq.v1.{service}/{method}".encode()
    role = METHOD_ROLES[name]
    read = None if looks else read or read_sole
    return Route(path, name, role, False, decode, encode, read=read, write=write or write_framed, looks=looks)


WATCH = Route(
    b"/cronoq.v1.Tasks/Watch",
    "Tasks.Watch",
    METHOD_ROLES["Tasks.Watch"],
    False,
    decode_watch,
    encode_event,
    events=True,
)
WORK = Route(b"/cronoq.v1.Workers/Work", "Workers.Work", METHOD_ROLES["Workers.Work"], True, None, None)

ROUTES: dict[bytes, Route] = {
    route.path: route
    for route in (
        _unary("Tasks", "Submit", decode_submit, encode_submit, read_submit, write_submit),
        _unary("Tasks", "SubmitBatch", decode_batch, encode_batch),
        _unary("Tasks", "Cancel", decode_cancel, encode_cancel),
        _unary("Tasks", "Get", decode_get, encode_info),
        _unary("Tasks", "ListTasks", decode_list, encode_page, looks=True),
        _unary("Tasks", "Wait", decode_wait, encode_result),
        WATCH,
        WORK,
        _unary("Admin", "Snapshot", decode_snapshot, encode_snapshot, looks=True),
        _unary("Admin", "AddRecurring", decode_add_recurring, encode_recurring_added),
        _unary("Admin", "RemoveRecurring", decode_remove_recurring, encode_recurring_removed),
        _unary("Admin", "ListWorkers", decode_list_workers, encode_workers, looks=True),
        _unary("Admin", "ListRecurring", decode_list_recurring, encode_recurring_list, looks=True),
    )
}
