"""The language of the scenario transcripts in `tests/scenarios`.

A transcript is text: prose (`#`), commands (`> …`) and, below each command, everything that it brought about. The real
service, engine and outbox run; only the store is a dict, and `durable` is the moment of its commit. One command is one
batch of events; ` & ` joins several into one batch. Words with `=` are options, the first words are names: calls and
workers have the names that the transcript gives them, a task is named by its id or by its key.

What a command prints: `step 3 writes: …` for the transaction of its step, then what is performed, in order:
`a <- …` for an answer to call a, `w1 <- …` for a message to worker w1, `w1 closed: …`, `store asked …`. After
`advance`, `+5s` says when a timer fired. Times are counted from the start.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from cronoq_sansio.clock import MILLISECOND, SECOND
from cronoq_sansio.engine.actions import Answer, Submitted
from cronoq_sansio.engine.events import CommitsResumed, CommitsStalled, Stalled, TimerFired, WallClockMoved
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
from cronoq_sansio.errors import MAPPINGS, Code, Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.settings import PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import (
    Condition,
    Dependency,
    MissPolicy,
    Overlap,
    Priority,
    RecurringSpec,
    RetryPolicy,
    TaskStatus,
)
from tests.service.harness import START, Harness, spec

UNITS = {"ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND}
RETRY = RetryPolicy(3, SECOND, 2.0, 60 * SECOND, False)
Options = dict[str, str]


def duration(text: str) -> int:
    """`250ms`, `5s`, `2m`, `1h`; with a sign."""
    match = re.fullmatch(r"([+-]?\d+)(ms|s|m|h)", text)
    assert match, f"{text!r} is not a duration"
    return int(match[1]) * UNITS[match[2]]


def show_duration(nanoseconds: int) -> str:
    """The same in the shortest form."""
    if nanoseconds % SECOND:
        return f"{nanoseconds / MILLISECOND:g}ms"
    return f"{nanoseconds // SECOND}s"


def quoted(text: str | bytes) -> str:
    """A string as it is printed; long ones by their length."""
    if isinstance(text, bytes):
        text = text.decode()
    return f'"{text}"' if len(text) <= 200 else f"({len(text)} bytes)"


def show_rejection(rejection: Rejection) -> str:
    """Status, message and metadata."""
    details = "".join(f" [{name}: {text}]" for name, text in rejection.details)
    return f"{MAPPINGS[rejection.code].grpc.name}: {rejection.message}{details}"


class World:
    """One run of a transcript."""

    def __init__(self) -> None:
        self._settings = Settings(pools=())
        self._volatile = False
        self._rig: Harness | None = None
        self._calls: dict[str, m.Call] = {}
        self._streams: dict[str, m.WorkerStream] = {}
        self._leases: dict[str, Any] = {}

    @property
    def rig(self) -> Harness:
        """Made by the first command that needs it, from the settings made so far."""
        if self._rig is None:
            if not self._settings.pools:
                self._settings = replace(self._settings, pools=(PoolSettings(retry=RETRY),))
            self._rig = Harness(self._settings, volatile=self._volatile)
        return self._rig

    def run(self, command: str) -> list[str]:
        """Everything that a command prints."""
        parts = [shlex.split(part) for part in command.split(" & ")]
        doing = DOING.get(parts[0][0])
        if doing is not None:
            assert len(parts) == 1, f"{parts[0][0]} is no event"
            return doing(self, *_split(parts[0][1:]))
        events: list[Any] = []
        for name, *words in parts:
            assert name in EVENTS, f"unknown command {name!r}"
            events += EVENTS[name](self, *_split(words))
        return self._print(self.rig.handle(*events))

    # --- what is no event

    def server(self, words: list[str], options: Options) -> list[str]:
        """`server [volatile] limits.NAME=… outputs.NAME=…`: settings, before anything else."""
        assert self._rig is None
        self._volatile = "volatile" in words
        for path, text in options.items():
            table, name = path.split(".")
            old = getattr(self._settings, table)
            self._settings = replace(self._settings, **{table: replace(old, **{name: _setting(old, name, text)})})
        return []

    def pool(self, words: list[str], options: Options) -> list[str]:
        """`pool NAME NAME=… weight.TENANT=… class.NAME=…`: one more pool; without any there is `default`."""
        assert self._rig is None
        made = PoolSettings(words[0], retry=RETRY)
        bounds = [options.pop(f"class.{priority.name.lower()}", None) for priority in Priority]
        weights = tuple((name, float(text)) for name, text in _named(options, "weight"))
        by_class = tuple(None if bound is None else int(bound) for bound in bounds)
        made = replace(made, tenant_weights=weights, max_pending_by_class=by_class)
        for name, text in options.items():
            if name == "attempts":
                made = replace(made, retry=replace(RETRY, max_attempts=int(text)))
            elif not name.startswith("weight."):
                made = replace(made, **{name: _setting(made, name, text)})
        self._settings = replace(self._settings, pools=(*self._settings.pools, made))
        return []

    def resource(self, words: list[str], options: Options) -> list[str]:
        """`resource NAME permits=…`, or `resource NAME rate=… burst=…`: what tasks of all pools share."""
        assert self._rig is None
        kind = "semaphore" if "permits" in options else "token_bucket"
        numbers: dict[str, Any] = {name: (float if name == "rate" else int)(text) for name, text in options.items()}
        made = ResourceSettings(words[0], kind, **numbers)
        self._settings = replace(self._settings, resources=(*self._settings.resources, made))
        return []

    def advance(self, words: list[str], _options: Options) -> list[str]:
        """`advance 5s`: time passes, timers fire when they are due."""
        rig = self.rig
        until = rig.now + duration(words[0])
        lines: list[str] = []
        while (due := rig.outbox.next_timeout()) is not None and due <= until:
            rig.now = max(rig.now, due)
            printed = self._print(rig.handle(TimerFired()))
            if printed:
                lines += [f"+{show_duration(rig.now - START)}", *printed]
        rig.now = until
        return lines

    def show(self, words: list[str], _options: Options) -> list[str]:
        """`show NAME…`: figures of `statistics`, and `held` for what waits in the outbox."""
        known = {**self.rig.service.statistics(), "held": self.rig.outbox.held()}
        return [f"{word}: {known[word]}" for word in words]

    # --- events

    def call(self, name: str, request: m.Request, options: Options) -> list[Any]:
        """A unary call, with an optional deadline."""
        assert name not in self._calls, f"call {name} exists"
        call = self._calls[name] = m.Call(name)
        return [self.rig.received(call, request, _optional(options, "deadline"))]

    def submit(self, words: list[str], options: Options) -> list[Any]:
        """`submit CALL [wait] pool= key= kind= priority= payload= timeout= attempts= wait_timeout= deadline=`.

        What it asks of the scheduler: `after=TASK,TASK:complete,TASK:failure needs.RESOURCE=UNITS label.NAME= tenant=
        hint= end_in= start_in= start=+5s tolerance= miss=`; `end_in` is its deadline, the other one is the call's, and
        `start` counts from the beginning.
        """
        wait = "wait" in words[1:]
        return self.call(words[0], m.Submit(_spec(options), wait, _optional(options, "wait_timeout")), options)

    def batch(self, words: list[str], _options: Options) -> list[Any]:
        """`batch CALL MEMBER…`: each member `key,pool<TASK<TASK`, `-` for no key; `<` names what it comes after."""
        specs = []
        for word in words[1:]:
            member, *parents = word.split("<")
            key, _, pool = member.partition(",")
            asked = {"dependencies": tuple(map(_dependency, parents))} if parents else {}
            specs.append(spec(pool or "default", "" if key == "-" else key, **asked))
        return self.call(words[0], m.SubmitBatch(tuple(specs)), {})

    def schedule(self, words: list[str], options: Options) -> list[Any]:
        """`schedule CALL NAME "CRON" tz= overlap=`, and what a task may have without a time and without parents."""
        overlap = Overlap[options.pop("overlap", "skip").upper()].value
        made = RecurringSpec(words[1], words[2], options.pop("tz", ""), _spec(options), overlap)
        return self.call(words[0], mr.AddRecurring(made), options)

    def list_tasks(self, words: list[str], options: Options) -> list[Any]:
        """`list CALL pools=A,B statuses=READY,FAILED after= limit=`."""
        statuses = tuple(sorted(TaskStatus[name].value for name in _several(options, "statuses")))
        request = m.ListTasks(
            _several(options, "pools"), statuses, int(options.get("after", "0")), int(options.get("limit", "0"))
        )
        return self.call(words[0], request, options)

    def watch(self, words: list[str], options: Options) -> list[Any]:
        """`watch CALL [all] pools=A,B ids=1,2 keys=K,L deadline=`."""
        ids = tuple(int(text) for text in _several(options, "ids"))
        request = m.Watch(_several(options, "pools"), ids, _several(options, "keys"), "all" in words[1:])
        return self.call(words[0], request, options)

    def wait(self, words: list[str], options: Options) -> list[Any]:
        """`wait CALL TASK timeout= deadline=`."""
        return self.call(words[0], m.Wait(_ref(words[1]), _optional(options, "timeout")), options)

    def stream(self, name: str) -> m.WorkerStream:
        """The stream of a worker."""
        return self._streams[name]

    def connect(self, words: list[str], _options: Options) -> list[Any]:
        """`connect WORKER`: a stream is opened, nothing is said."""
        stream = self._streams[words[0]] = m.WorkerStream(words[0])
        return [m.WorkerConnected(stream, ANYONE)]

    def register(self, words: list[str], options: Options) -> list[Any]:
        """`register WORKER pool= slots= version= label.NAME=`; connects when that was not done."""
        message = m.Register(
            options.get("pool", "default"),
            int(options.get("slots", "1")),
            options.get("name", ""),
            int(options.get("version", "3")),
            _named(options, "label"),
        )
        events = [] if words[0] in self._streams else self.connect(words, {})
        return [*events, m.WorkerSent(self.stream(words[0]), message)]

    def says(self, name: str, message: m.FromWorker) -> list[Any]:
        """A message of a worker."""
        return [m.WorkerSent(self.stream(name), message)]

    def complete(self, words: list[str], options: Options) -> list[Any]:
        """`complete WORKER LEASE output= output_size= content_type=`."""
        output = options.get("output", "").encode() or b"x" * int(options.get("output_size", "0"))
        return self.says(words[0], m.Complete(int(words[1]), output, options.get("content_type", "")))

    def fail(self, words: list[str], options: Options) -> list[Any]:
        """`fail WORKER LEASE [permanent] message= retry_after=`."""
        message = m.Fail(
            int(words[1]), options.get("message", ""), "permanent" in words[2:], _optional(options, "retry_after") or 0
        )
        return self.says(words[0], message)

    def durable(self, words: list[str], _options: Options) -> list[Any]:
        """`durable [N]`: the oldest N steps that wrote something (default: all) are in the store now."""
        assert self.rig.waiting, "nothing waits for the store"
        return [self.rig.commit(int(words[0]) if words else len(self.rig.waiting))]

    def found(self, words: list[str], _options: Options) -> list[Any]:
        """`answer N`: the store answers query N from what is durable; `answer N unavailable`."""
        if words[1:] == ["unavailable"]:
            rejection = Rejection(Code.UNAVAILABLE, "the store cannot be asked now; try again")
            return [m.StoreAnswered(self.rig.queries.pop(int(words[0])), rejection)]
        return [self.rig.store_answer(int(words[0]))]

    # --- out

    def _print(self, actions: list[Any]) -> list[str]:
        writes = "; ".join(_show_record(record) for record in self.rig.writes)
        lines = [f"step {self.rig.number} writes: {writes}"] if writes else []
        return lines + [self._show(action) for action in actions]

    def _show(self, action: Any) -> str:
        if isinstance(action, Answer):
            return f"{action.request.sink} <- {_show_message(action.outcome)}"
        if isinstance(action, m.Reject):
            return f"{action.call.sink} <- {show_rejection(action.rejection)}"
        if isinstance(action, m.StartEvents):
            return f"{action.call.sink} <- watching"
        if isinstance(action, m.SendEvent):
            calls = " ".join(str(call.sink) for call in action.calls if call not in self.rig.hung_up)
            return f"{calls} <- {_show_event(action.event)}"
        if isinstance(action, m.SendLease):
            return f"{action.stream.sink} <- {_show_lease(action.lease)}"
        if isinstance(action, m.SendToWorker):
            return f"{action.stream.sink} <- {_show_to_worker(action.message)}"
        if isinstance(action, m.CloseWorker):
            end = "OK" if action.rejection is None else show_rejection(action.rejection)
            return f"{action.stream.sink} closed: {end}"
        if isinstance(action, m.ReadStore) and isinstance(action.query, m.ListFinished):
            return _show_query(action.query)
        if isinstance(action, m.ReadStore):
            output = " with its output" if action.query.with_output else ""
            return f"store asked ({action.query.number}) for task {action.query.task}{output}"
        if isinstance(action, mr.LogDrop):
            return _show_drop(action.drop)
        assert isinstance(action, m.StopFinished)
        return "stop finished"


def _split(words: list[str]) -> tuple[list[str], Options]:
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], options


def _optional(options: Options, name: str) -> int | None:
    return duration(options[name]) if name in options else None


def _spec(options: Options) -> Any:
    return spec(
        options.get("pool", "default"),
        options.get("key", ""),
        kind=options.get("kind", ""),
        priority=Priority[options.get("priority", "normal").upper()],
        payload=options.get("payload", "").encode(),
        timeout=_optional(options, "timeout"),
        attempts=int(options["attempts"]) if "attempts" in options else None,
        **_asked(options),
    )


def _asked(options: Options) -> dict[str, Any]:
    """What a task asks of the scheduler; empty for most."""
    found = {
        "deadline_in": _optional(options, "end_in"),
        "duration_hint": _optional(options, "hint"),
        "dependencies": tuple(map(_dependency, _several(options, "after"))),
        "resources": tuple((name, int(units)) for name, units in _named(options, "needs")),
        "labels": _named(options, "label"),
        "tenant": options.get("tenant", ""),
        "start_in": _optional(options, "start_in"),
        "start": START + duration(options["start"]) if "start" in options else None,
    }
    if "tolerance" in options:
        found["tolerance"] = duration(options["tolerance"])
    if "miss" in options:
        found["on_miss"] = MissPolicy[options["miss"].upper()].value
    return {name: value for name, value in found.items() if value or value == 0}


def _dependency(word: str) -> Dependency:
    """`TASK` or `TASK:complete`."""
    task, _, condition = word.partition(":")
    return Dependency(_ref(task), Condition[f"ON_{(condition or 'success').upper()}"].value)


def _named(options: Options, prefix: str) -> tuple[tuple[str, str], ...]:
    """The options `prefix.NAME`, by name."""
    return tuple(
        sorted((name[len(prefix) + 1 :], text) for name, text in options.items() if name.startswith(f"{prefix}."))
    )


def _several(options: Options, name: str) -> tuple[str, ...]:
    return tuple(options[name].split(",")) if options.get(name) else ()


def _ref(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def _setting(table: Any, name: str, text: str) -> Any:
    assert name in {field.name for field in fields(table)}, f"no setting {name}"
    if text in ("on", "off"):
        return text == "on"
    if isinstance(getattr(table, name), str):
        return text
    return int(text) if text.isdigit() else duration(text)


def _show_record(record: Any) -> str:
    if isinstance(record, TaskInserted):
        edges = " ".join(f"{edge.parent or edge.key}:{_condition(edge.condition)}" for edge in record.edges)
        asked = record.spec.scheduling
        start = f" start=+{show_duration(asked.start - START)}" if asked and asked.start is not None else ""
        return f"task {record.task_id} inserted{start}{f' after {edges}' if edges else ''}"
    if isinstance(record, EdgeResolved):
        return f"task {record.task_id}: {record.key} is {record.parent}"
    if isinstance(record, OutputStored):
        return f"output of {record.task_id}"
    if isinstance(record, RecurringStored):
        return f"schedule {record.spec.name} stored"
    if isinstance(record, RecurringFired):
        last = f", last task {record.last_task}" if record.last_task else ""
        return f"schedule {record.name} through +{show_duration(record.through - START)}{last}"
    if isinstance(record, RecurringDeleted):
        return f"schedule {record.name} deleted"
    assert isinstance(record, TaskChanged | TaskFinished)
    message = f" {quoted(record.message)}" if record.message else ""
    return f"task {record.task_id} {TaskStatus(record.status).name} attempt={record.attempt}{message}"


def _condition(number: int) -> str:
    return Condition(number).name.removeprefix("ON_").lower()


def _show_lease(lease: Any) -> str:
    task = lease.task
    extra = "".join(f" {name}={getattr(task.spec, name)}" for name in ("key", "kind") if getattr(task.spec, name))
    payload = f" payload={quoted(task.spec.payload)}" if task.spec.payload else ""
    asked = task.spec.scheduling
    if asked is not None and asked.deadline is not None:
        extra += f" deadline=+{show_duration(asked.deadline - START)}"
    extra += "".join(f" {name}={text}" for name, text in task.spec.tags)
    return f"Lease {lease.id} task={task.id} attempt={lease.attempt}{extra}{payload}"


def _show_to_worker(message: m.ToWorker) -> str:
    if isinstance(message, m.Registered):
        ttl = show_duration(message.lease_ttl)
        return f"Registered worker={message.worker_id} slots={message.slots} lease_ttl={ttl}"
    if isinstance(message, m.AbortLease):
        return f"Abort {message.lease}: {message.reason}"
    return f"Shutdown not_leader={message.not_leader}: {message.reason}"


def _show_result(result: m.TaskResult) -> str:
    output = " without output" if result.output is None else f" output={quoted(result.output)}"
    content_type = f" content_type={result.content_type}" if result.content_type else ""
    message = f" message={quoted(result.message)}" if result.message else ""
    return f"id={result.task_id} {TaskStatus(result.status).name}{output}{content_type}{message}"


def _show_info(info: m.TaskInfo) -> str:
    words = [f"TaskInfo id={info.task_id} {TaskStatus(info.status).name} pool={info.pool}"]
    words += [f"{name}={getattr(info, name)}" for name in ("key", "kind", "tenant") if getattr(info, name)]
    if info.max_attempts:
        words.append(f"attempt={info.attempt}/{info.max_attempts}")
    for name in ("created", "started", "finished"):
        if getattr(info, name) is not None:
            words.append(f"{name}=+{show_duration(getattr(info, name) - START)}")
    if info.message:
        words.append(f"message={quoted(info.message)}")
    words.append("output" if info.output_available else "no output")
    if info.priority >= 0:
        words.append(Priority(info.priority).name.lower())
    return " ".join(words)


def _show_query(query: m.ListFinished) -> str:
    wanted = [f"of {' '.join(query.pools)}"] if query.pools else []
    wanted += [TaskStatus(status).name for status in query.statuses]
    words = "".join(f" {word}" for word in wanted)
    return f"store asked ({query.number}) for {query.limit} finished tasks after {query.after}{words}"


def _show_event(event: m.StatusEvent) -> str:
    key = f" key={event.key}" if event.key else ""
    message = f" message={quoted(event.message)}" if event.message else ""
    at = show_duration(event.at - START)
    status = TaskStatus(event.status).name
    return f"event: {event.task_id} {status} pool={event.pool}{key} attempt={event.attempt} at=+{at}{message}"


def _show_schedule(view: Any) -> str:
    spec = view.spec
    coming = "never" if view.next is None else f"+{show_duration(view.next - START)}"
    last = f", last task {view.last_task}" if view.last_task else ""
    zone = f" {spec.tz}" if spec.tz else ""
    overlap = Overlap(spec.overlap).name.lower()
    return f"{spec.name} {spec.cron!r}{zone} pool={spec.template.pool} {overlap}, next {coming}{last}"


def _show_drop(drop: Any) -> str:
    last = f" .. +{show_duration(drop.last - START)}" if drop.last != drop.first else ""
    count = f" ({drop.count}{' or more' if drop.more else ''})" if drop.count > 1 else ""
    return f"log: {drop.name} +{show_duration(drop.first - START)}{last}{count} {drop.reason}: {drop.detail}"


def _show_worker(worker: m.WorkerInfo) -> str:
    labels = "".join(f" {name}={text}" for name, text in worker.labels)
    name = f" {worker.name}" if worker.name else ""
    connected = show_duration(worker.connected - START)
    return f"{worker.worker_id}{name} pool={worker.pool}{labels} {worker.busy}/{worker.slots} busy since +{connected}"


def _show_snapshot(reply: m.SnapshotReply) -> str:
    engine = reply.engine
    pools = "; ".join(
        f"{pool.name} {pool.busy}/{pool.capacity} busy, {f'{pool.held} held, ' if pool.held else ''}"
        f"{sum(pool.pending_by_class)} pending, "
        f"{reply.workers_by_pool.get(pool.name, 0)} workers"
        for pool in engine.pools
    )
    totals = " ".join(f"{name}={count}" for name, count in engine.totals.items() if count)
    return f"Snapshot {engine.live_tasks} live, {reply.workers_connected} workers ({pools}) {totals}".rstrip()


def _show_message(message: Any) -> str:
    if isinstance(message, Submitted | m.SubmitReply):
        duplicate = " duplicate" if message.duplicate else ""
        result = f" result: {_show_result(message.result)}" if isinstance(message, m.SubmitReply) else ""
        return f"Submitted id={message.task_id}{duplicate}{result}"
    if isinstance(message, m.BatchReply):
        members = [f"{member.task_id}{' duplicate' if member.duplicate else ''}" for member in message.members]
        return f"Submitted ids: {', '.join(members) or 'none'}"
    if isinstance(message, m.TaskPage):
        tasks = [f"{info.task_id} {TaskStatus(info.status).name}" for info in message.tasks]
        return f"Page: {', '.join(tasks) or 'empty'}; next_after={message.next_after}"
    if isinstance(message, m.WorkerList):
        return f"Workers: {'; '.join(map(_show_worker, message.workers)) or 'none'}"
    if isinstance(message, mr.RecurringAddedReply):
        return "scheduled"
    if isinstance(message, mr.RecurringRemovedReply):
        return f"removed={message.removed}"
    if isinstance(message, mr.RecurringListReply):
        return f"Schedules: {'; '.join(map(_show_schedule, message.schedules)) or 'none'}"
    if isinstance(message, m.CancelReply):
        return f"cancelled={message.cancelled}"
    if isinstance(message, m.TaskResult):
        return f"TaskResult {_show_result(message)}"
    return _show_info(message) if isinstance(message, m.TaskInfo) else _show_snapshot(message)


Doing = Callable[[World, list[str], Options], list[str]]
Event = Callable[[World, list[str], Options], list[Any]]

DOING: dict[str, Doing] = {
    "server": World.server,
    "pool": World.pool,
    "resource": World.resource,
    "advance": World.advance,
    "show": World.show,
}

EVENTS: dict[str, Event] = {
    "submit": World.submit,
    "wait": World.wait,
    "get": lambda world, words, options: world.call(words[0], m.Get(_ref(words[1])), options),
    "cancel": lambda world, words, options: world.call(words[0], m.Cancel(_ref(words[1])), options),
    "batch": World.batch,
    "schedule": World.schedule,
    "unschedule": lambda world, words, options: world.call(words[0], mr.RemoveRecurring(words[1]), options),
    "schedules": lambda world, words, options: world.call(words[0], mr.ListRecurring(), options),
    "list": World.list_tasks,
    "watch": World.watch,
    "workers": lambda world, words, options: world.call(words[0], m.ListWorkers(), options),
    "snapshot": lambda world, words, options: world.call(words[0], m.GetSnapshot(), options),
    "hangup": lambda world, words, _options: [m.CallEnded(world._calls[words[0]])],
    "connect": World.connect,
    "register": World.register,
    "slots": lambda world, words, _options: world.says(words[0], m.SetSlots(int(words[1]))),
    "heartbeat": lambda world, words, _options: world.says(words[0], m.Heartbeat(int(words[1]))),
    "complete": World.complete,
    "fail": World.fail,
    "nack": lambda world, words, options: world.says(words[0], m.Nack(int(words[1]), options.get("reason", ""))),
    "cancelled": lambda world, words, _options: world.says(words[0], m.AttemptAborted(int(words[1]))),
    "empty": lambda world, words, _options: world.says(words[0], m.EmptyMessage()),
    "gone": lambda world, words, _options: [m.WorkerGone(world.stream(words[0]), "reset")],
    "durable": World.durable,
    "answer": World.found,
    "pressure": lambda _world, words, _options: [m.StorePressure(None if words == ["off"] else " ".join(words))],
    "stop": lambda _world, _words, options: [m.StopRequested(duration(options["grace"]))],
    "stalled": lambda _world, words, _options: [Stalled(duration(words[0]))],
    "commits": lambda _world, words, _options: [
        CommitsStalled() if words[0] == "stalled" else CommitsResumed(duration(words[1]))
    ],
    "wall": lambda _world, words, _options: [WallClockMoved(duration(words[0]))],
}


def replay(text: str) -> str:
    """The transcript with what its commands print now."""
    world = World()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += world.run(line[1:].strip())
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"
