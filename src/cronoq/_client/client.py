"""The client: every call of a task's life as a coroutine, under Trio and asyncio (client.md section 2)."""

import math
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import anyio

from cronoq._client import methods
from cronoq._client.channel import Channel, Token
from cronoq._client.dependencies import TaskRef, task_ref
from cronoq._client.dialing import Credentials
from cronoq._client.methods import Method
from cronoq._client.payloads import text
from cronoq._client.results import (
    Listing,
    RecurringInfo,
    Result,
    Snapshot,
    Submitted,
    TaskInfo,
    TaskPage,
    WorkerInfo,
    number,
    read_info,
    read_page,
    read_result,
    read_schedules,
    read_snapshot,
    read_submitted,
    read_workers,
)
from cronoq._client.specs import RetryPolicy, as_number, overlap_number, own_spec, task
from cronoq._client.watching import Watch
from cronoq.errors import ClientError
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.metadata import Metadata

DEFAULT_TIMEOUT = 30.0
WAIT_MARGIN = 5.0
"""Seconds by which a call outlives the wait that it asks the server for."""
_LEAST_WAIT = 0.1
"""Seconds between two waits, when the server's cap is shorter."""
_UNAVAILABLE_SHARDS = "cronoq-unavailable-shards"


class Client:
    """Calls to a cronoq server. Making one does no I/O and needs no event loop.

    Use it as `async with Client("localhost:7070") as client:`. Under asyncio it works without the block too, and then
    `close` ends it. A client belongs to one event loop at a time and is of no use after it was closed.

    - `target`: `host:port`, also with `https://` before it, which means TLS.
    - `token`: sent with each call as `authorization: Bearer …`; a text, or a callable that gives the present one.
    - `tls`, `credentials`: TLS with the system's roots; an `ssl.SSLContext` or `PemPaths` of your own.
    - `options`: gRPC channel arguments: message sizes, keepalive, target name and authority work, others warn.
    - `timeout`: seconds that a call may take, unless it says another itself; None = no limit. It does not bound `wait`,
      `watch` and `submit(wait=True)`.
    - `retry`: try calls again that met an unavailable server or a full queue. `unavailable` is tried again where that
      cannot do anything twice: reading, cancelling, tasks with a key, and calls that no server has looked at.

    A call that fails raises `ClientError`, one that takes too long the builtin TimeoutError. Cancelling a call does not
    cancel the task.
    """

    def __init__(
        self,
        target: str,
        *,
        token: Token = None,
        tls: bool = False,
        credentials: Credentials | None = None,
        options: Sequence[tuple[str, Any]] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        retry: RetryPolicy | None = None,
    ) -> None:
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise TypeError(f"retry: a RetryPolicy is needed, not {type(retry).__name__}")
        self.target = target
        self.timeout = None if timeout is None else _span("timeout", timeout)
        self.retry = retry
        self._channel = Channel(target, token=token, tls=tls, credentials=credentials, options=options)

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """End all calls and disconnect. Idempotent."""
        await self._channel.aclose()

    # --- handing in

    async def submit(
        self,
        payload: Any = None,
        *,
        wait: bool = False,
        wait_timeout: float | None = None,
        call_timeout: float | None = None,
        **options: Any,
    ) -> Submitted:
        """Hand in a task; `options` are those of `task`. Returns once the server has stored it.

        With `wait` it returns when the task has ended, with its `result`; TimeoutError after `wait_timeout` seconds
        (None = no limit), the task goes on. `call_timeout` bounds the call whatever it waits for.
        """
        if wait_timeout is not None and not wait:
            raise ValueError("wait_timeout is of use only with wait=True")
        spec = task(payload, **options)
        request = pb.SubmitRequest(task=spec)
        if not wait:
            limit = self.timeout if call_timeout is None else call_timeout
            if self.retry is None:  # as `_submit` does it, with fewer steps between: this is the usual call
                reply, _ = await self._channel.unary_with_metadata(methods.SUBMIT, request, timeout=limit)
                return read_submitted(reply)
            return read_submitted(await self._submit(request, limit))
        clock = _Clock(wait_timeout, call_timeout)
        if spec.key:
            # Whether it is a duplicate must be known even when the wait outlasts what the server allows at a time.
            left = clock.call_left()
            reply = await self._submit(
                request, min(limit for limit in (left, self.timeout, math.inf) if limit is not None)
            )
        else:
            request.wait = True
            try:
                reply = await self._send(methods.SUBMIT, clock.fill(request, "wait_timeout_s"), clock.call_left())
            except TimeoutError as late:
                task_id = _submitted_id(late)
                if task_id is None or clock.over:
                    raise
                reply = pb.SubmitResponse(id=task_id)
        submitted = read_submitted(reply)
        if submitted.result is not None:
            return submitted
        result = await self._wait(pb.TaskRef(id=submitted.id), clock)
        return Submitted(submitted.id, submitted.duplicate, result)

    async def _submit(self, request: pb.SubmitRequest, limit: float | None) -> pb.SubmitResponse:
        reply: pb.SubmitResponse = await self._send(methods.SUBMIT, request, limit, repeatable=bool(request.task.key))
        return reply

    async def submit_batch(self, tasks: Iterable[Any], *, timeout: float | None = None) -> list[Submitted]:
        """Hand in several tasks made by `task`: all of them or none. In their order."""
        specs = [own_spec(spec) for spec in tasks]
        if not specs:
            return []
        reply = await self._send(
            methods.SUBMIT_BATCH,
            pb.SubmitBatchRequest(tasks=specs),
            self._limit(timeout),
            repeatable=all(spec.key for spec in specs),
        )
        return [read_submitted(entry) for entry in reply.tasks]

    # --- one task

    async def cancel(self, ref: TaskRef, *, timeout: float | None = None) -> bool:
        """End a task that has not ended yet; False if it had. `ClientError` `not_found` for an unknown one."""
        request = pb.CancelRequest(task=task_ref(ref))
        reply = await self._send(methods.CANCEL, request, self._limit(timeout), repeatable=True)
        return bool(reply.cancelled)

    async def get(self, ref: TaskRef, *, timeout: float | None = None) -> TaskInfo:
        """What is known of a task, without its output."""
        request = pb.GetRequest(task=task_ref(ref))
        reply, metadata = await self._send_with_metadata(methods.GET, request, self._limit(timeout), repeatable=True)
        return read_info(reply, _shards(metadata))

    async def wait(self, ref: TaskRef, timeout: float | None = None, *, call_timeout: float | None = None) -> Result:
        """Wait until a task has ended. TimeoutError after `timeout` seconds (None = no limit); the task goes on."""
        return await self._wait(task_ref(ref), _Clock(timeout, call_timeout))

    async def _wait(self, ref: pb.TaskRef, clock: "_Clock") -> Result:
        """Servers cap a wait; so wait again until the caller's own time is up."""
        while True:
            began = anyio.current_time()
            request = clock.fill(pb.WaitRequest(task=ref), "timeout_s")
            try:
                reply, metadata = await self._send_with_metadata(
                    methods.WAIT, request, clock.call_left(), repeatable=True
                )
                return read_result(reply, _shards(metadata))
            except TimeoutError:
                if clock.over:
                    raise
            waited = anyio.current_time() - began
            if waited < _LEAST_WAIT:
                await anyio.sleep(_LEAST_WAIT - waited)

    # --- many tasks

    async def list_tasks(
        self,
        *,
        pools: Iterable[str] = (),
        statuses: Iterable[str] = (),
        after: int = 0,
        limit: int = 0,
        timeout: float | None = None,
    ) -> TaskPage:
        """Tasks in the order of their ids, above `after`; `limit` 0 = as many as the server gives at a time."""
        request = pb.ListTasksRequest(
            pools=_names("pools", pools),
            statuses=[_status(status) for status in _names("statuses", statuses)],  # type: ignore[misc]
            after=_count("after", after, 64),
            limit=_count("limit", limit, 32),
        )
        return read_page(await self._send(methods.LIST_TASKS, request, self._limit(timeout), repeatable=True))

    async def iter_tasks(
        self,
        *,
        pools: Iterable[str] = (),
        statuses: Iterable[str] = (),
        page_size: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[TaskInfo, None]:
        """All of them, page by page; `timeout` bounds the call for one page.

        Raises `ClientError` `unavailable` at the end when shards could not be asked.
        """
        pools, statuses = list(_names("pools", pools)), list(_names("statuses", statuses))
        after: int | None = 0
        missing: set[str] = set()
        while after is not None:
            page = await self.list_tasks(pools=pools, statuses=statuses, after=after, limit=page_size, timeout=timeout)
            missing.update(page.unavailable_shards)
            for info in page.tasks:
                yield info
            after = page.next_after
        if missing:
            raise ClientError("unavailable", f"shards that could not be asked: {', '.join(sorted(missing))}")

    def watch(
        self,
        pools: Iterable[str] | None = None,
        *,
        ids: Iterable[int] | None = None,
        keys: Iterable[str] | None = None,
        all_transitions: bool = False,
        timeout: float | None = None,
    ) -> Watch:
        """Changes of status as they happen: `async with client.watch() as events:` and `async for event in events:`.

        The block is entered once the server has subscribed, so nothing that happens in it is missed; the loop alone
        works too. Only ends of tasks, unless `all_transitions`. `timeout` bounds the whole, None = no limit.
        """
        request = pb.WatchRequest(
            pools=_names("pools", pools or ()),
            ids=[task_ref(task_id).id for task_id in _ids(ids or ())],
            keys=_names("keys", keys or ()),
            all_transitions=all_transitions,
        )
        return Watch(self._channel, request, timeout)

    # --- administration

    async def add_recurring(
        self,
        name: str,
        cron: str,
        payload: Any = None,
        *,
        tz: str | None = None,
        overlap: str = "skip",
        call_timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Add a schedule, or replace the one of that name; returns once the server has stored it.

        A task is made for every time that `cron` names: five fields, or six with seconds first, in the IANA zone `tz`
        (None = UTC). `payload` and `options` are those of `task`, or `payload` is a finished task from `task`: its key
        is the prefix of their keys, `deadline_in` counts from the start; other times, `after` and `deps` are refused.
        `overlap` says what happens while the run before still lives: `skip`, `allow`, `queue`, `queue_on_success`.
        """
        if isinstance(payload, pb.TaskSpec) or hasattr(payload, "DESCRIPTOR"):
            if options:
                raise TypeError(f"a finished task takes no further options: {', '.join(sorted(options))}")
            template = own_spec(payload)
        else:
            template = task(payload, **options)
        request = pb.RecurringRequest(
            name=text("name", name),
            cron=text("cron", cron),
            tz="" if tz is None else text("tz", tz),
            template=template,
            overlap=overlap_number(overlap),  # type: ignore[arg-type]
        )
        await self._send(methods.ADD_RECURRING, request, self._limit(call_timeout), repeatable=True)

    async def remove_recurring(self, name: str, *, timeout: float | None = None) -> bool:
        """Remove a schedule; False if there is none of that name. Tasks that it made stay."""
        request = pb.RemoveRecurringRequest(name=text("name", name))
        reply = await self._send(methods.REMOVE_RECURRING, request, self._limit(timeout))
        return bool(reply.removed)

    async def list_workers(self, *, timeout: float | None = None) -> Listing[WorkerInfo]:
        """The connected workers."""
        reply = await self._send(methods.LIST_WORKERS, pb.Empty(), self._limit(timeout), repeatable=True)
        return read_workers(reply)

    async def list_recurring(self, *, timeout: float | None = None) -> Listing[RecurringInfo]:
        """All schedules, by name."""
        reply = await self._send(methods.LIST_RECURRING, pb.Empty(), self._limit(timeout), repeatable=True)
        return read_schedules(reply)

    async def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Figures of all pools, and totals."""
        return read_snapshot(await self._send(methods.SNAPSHOT, pb.Empty(), self._limit(timeout), repeatable=True))

    # --- calls

    def _limit(self, timeout: float | None) -> float | None:
        return self.timeout if timeout is None else timeout

    async def _send(self, method: Method, request: Any, limit: float | None, *, repeatable: bool = False) -> Any:
        reply, _ = await self._send_with_metadata(method, request, limit, repeatable=repeatable)
        return reply

    async def _send_with_metadata(
        self, method: Method, request: Any, limit: float | None, *, repeatable: bool = False
    ) -> tuple[Any, Metadata]:
        """One call, tried again as `retry` says. `repeatable`: doing it twice is the same as doing it once."""
        policy = self.retry
        if policy is None:
            return await self._channel.unary_with_metadata(method, request, timeout=limit)
        until = math.inf if limit is None else anyio.current_time() + _span("timeout", limit)
        pause, attempt = policy.initial_backoff, 1
        while True:
            left = max(until - anyio.current_time(), 0.0)
            try:
                return await self._channel.unary_with_metadata(method, request, timeout=left)
            except ClientError as error:
                if attempt >= policy.max_attempts or not _worth_repeating(error, repeatable):
                    raise
                bound = min(pause, policy.max_backoff)
                delay = random.uniform(0, bound) if policy.jitter else bound
                if anyio.current_time() + delay >= until:
                    raise
            await anyio.sleep(delay)
            pause, attempt = bound * policy.multiplier, attempt + 1


class _Clock:
    """How long a wait may still take, and the call that waits."""

    def __init__(self, timeout: float | None, call_timeout: float | None) -> None:
        now = anyio.current_time()
        self._wait_until = math.inf if timeout is None else now + _span("timeout", timeout)
        self._call_until = (
            self._wait_until + WAIT_MARGIN if call_timeout is None else now + _span("call_timeout", call_timeout)
        )

    @property
    def over(self) -> bool:
        """The caller's own time is up."""
        return anyio.current_time() >= min(self._wait_until, self._call_until)

    def call_left(self) -> float | None:
        """Seconds that a call may take now."""
        return None if self._call_until == math.inf else max(self._call_until - anyio.current_time(), 0.0)

    def fill(self, request: Any, field: str) -> Any:
        """Tell the server how long to wait, if there is a limit."""
        if self._wait_until != math.inf:
            setattr(request, field, max(self._wait_until - anyio.current_time(), 0.0))
        return request


def _worth_repeating(error: ClientError, repeatable: bool) -> bool:
    if error.code == "unavailable":
        return repeatable or error.unprocessed
    # A full queue; a message that is too large has the same status, and stays too large.
    return error.code == "resource_exhausted" and "is above the limit of" not in error.message


def _submitted_id(late: TimeoutError) -> int | None:
    """The task that a Submit made before its wait ran out, when the server says so."""
    cause = late.__cause__
    if isinstance(cause, ClientError):
        for name, value in cause.metadata:
            if name == "cronoq-task-id" and isinstance(value, str) and value.isdigit():
                return int(value)
    return None


def _shards(metadata: Metadata) -> tuple[str, ...]:
    return tuple(
        name.strip()
        for key, value in metadata
        if key == _UNAVAILABLE_SHARDS and isinstance(value, str)
        for name in value.split(",")
        if name.strip()
    )


def _span(name: str, seconds: float) -> float:
    """A number of seconds from 0."""
    span = as_number(name, seconds)
    if math.isnan(span) or span < 0:
        raise ValueError(f"{name}: {seconds} is not a number of seconds from 0")
    return span


def _names(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: a list is needed, not a {type(values).__name__}")
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(f"{name}: texts are needed, not {type(value).__name__}")
    return found


def _ids(values: Iterable[int]) -> list[int]:
    found = list(values)
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"ids: integers are needed, not {type(value).__name__}")
    return found


def _status(name: str) -> int:
    found = number("TaskStatus", name)
    if found is None:
        raise ValueError(f"statuses: {name!r} is not the status of a task")
    return found


def _count(name: str, value: int, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: an integer is needed, not {type(value).__name__}")
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name}: {value} is not from 0 to 2^{bits} - 1")
    return value
