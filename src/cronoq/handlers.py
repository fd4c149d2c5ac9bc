"""Handlers by kind: typed functions whose parameters travel as JSON, handed in and run by the same object.

tasks = Tasks()

@tasks.handler("email.send", retry={"max_attempts": 5})
async def send_email(to: str, subject: str, urgent: bool = False) -> int: ...

await send_email.submit(client, "you@example.org", subject="hello")
async with tasks.worker("localhost:7070", slots=10): ...
"""

import functools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from cronoq._client.client import Client
from cronoq._client.results import Result, Submitted
from cronoq._client.specs import task
from cronoq._client.worker import Worker
from cronoq._client.worker_group import TasksWorker
from cronoq._client.worker_handlers import in_thread, is_async
from cronoq._client.worker_json import JsonFault
from cronoq._client.worker_lease import Lease
from cronoq._client.worker_signature import JSON, TypedSignature
from cronoq.errors import Permanent, Reject
from cronoq_sansio.limits import MAX_UNKNOWN_KINDS
from cronoq_sansio.wire import pb
from cronoq_sansio.worker.words import Completed

__all__ = ["TaskFunction", "Tasks"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")

_log = logging.getLogger("cronoq.client")

_CALL_OPTIONS = ("wait", "wait_timeout", "call_timeout")
_FIXED_OPTIONS = ("payload", "kind", "content_type")


class TaskFunction(Generic[_P, _R, _C]):
    """A function that can be called here, or handed in as a task that a worker runs.

    Calling it calls the function. `kind` and `pool` say where its tasks go, `options` what else they have.
    """

    def __init__(self, function: Callable[_P, _C], kind: str, pool: str, options: Mapping[str, Any]) -> None:
        self.function = function
        self.kind = kind
        self.pool = pool
        self.options = dict(options)
        self.is_async = is_async(function)
        """False: workers run it in a thread."""
        self.signature = TypedSignature(function)
        functools.update_wrapper(self, function)
        self._check_options()

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _C:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<TaskFunction {self.kind!r} in pool {self.pool!r}>"

    def with_options(self, **options: Any) -> "TaskFunction[_P, _R, _C]":
        """The same function with more options of `task`; also `wait`, `wait_timeout` and `call_timeout`."""
        other: TaskFunction[_P, _R, _C] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.pool = options.pop("pool", self.pool)
        other.options = {**self.options, **options}
        other._check_options()
        return other

    async def submit(self, client: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Submitted:
        """Hand in a task with these arguments. TypeError for arguments that the function does not take."""
        payload = self.signature.encode(args, kwargs)
        return await client.submit(payload, kind=self.kind, pool=self.pool, content_type=JSON, **self.options)

    def spec(self, *args: _P.args, **kwargs: _P.kwargs) -> pb.TaskSpec:
        """The task with these arguments, for `Client.submit_batch`."""
        options = {name: value for name, value in self.options.items() if name not in _CALL_OPTIONS}
        payload = self.signature.encode(args, kwargs)
        return task(payload, kind=self.kind, pool=self.pool, content_type=JSON, **options)

    def result(self, result: Result) -> _R:
        """What the function returned, from the result of its task. ValueError when there is no such output."""
        if result.output is None:
            raise ValueError(f"task {result.id} has no output: its status is {result.status}")
        returned: _R = self.signature.decode_result(result.output)
        return returned

    async def handle(self, lease: Lease) -> Completed:
        """Run it for a lease. `Permanent` when the payload or what it returns does not have its form."""
        try:
            call = self.signature.bind(self.function, lease.payload)
        except JsonFault as fault:
            raise Permanent(f"wrong payload: {fault}") from None
        returned = await call() if self.is_async else await in_thread(call)
        try:
            return Completed(self.signature.encode_result(returned), JSON)
        except JsonFault as fault:
            raise Permanent(f"wrong result of the handler: {fault}") from None

    def _check_options(self) -> None:
        for name in _FIXED_OPTIONS:
            if name in self.options:
                raise TypeError(f"{name} is not an option here: it follows from the function")
        options = {name: value for name, value in self.options.items() if name not in _CALL_OPTIONS}
        task(None, kind=self.kind, pool=self.pool, **options)


class _Register(Protocol):
    """What `Tasks.handler` gives: a decorator for async and for other functions."""

    @overload
    def __call__(
        self, function: Callable[_P, Coroutine[Any, Any, _R]], /
    ) -> TaskFunction[_P, _R, Coroutine[Any, Any, _R]]: ...
    @overload
    def __call__(self, function: Callable[_P, _R], /) -> TaskFunction[_P, _R, _R]: ...


class Tasks:
    """A registry of handlers by kind, for one or several pools."""

    def __init__(self) -> None:
        self._functions: dict[str, TaskFunction[..., Any, Any]] = {}
        self._unknown: set[str] = set()

    @property
    def functions(self) -> dict[str, TaskFunction[..., Any, Any]]:
        """By kind, in the order of registration."""
        return dict(self._functions)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools of the handlers, each once."""
        return tuple(dict.fromkeys(function.pool for function in self._functions.values()))

    def handler(self, kind: str, *, pool: str = "default", **options: Any) -> _Register:
        """Register the decorated function for a kind; `options` of `task` are those of its tasks.

        Each parameter needs a type with a JSON form, see the how-to page of handlers; a default makes it optional. An
        async function runs in the event loop, any other in a thread. ValueError for a kind that is taken, TypeError
        for a parameter or option that cannot work.
        """
        if callable(kind) or not kind:
            raise TypeError("a handler needs its kind: @tasks.handler('email.send')")

        def register(function: Callable[..., Any], /) -> TaskFunction[..., Any, Any]:
            taken = self._functions.get(kind)
            if taken is not None:
                raise ValueError(f"kind {kind!r} has a handler already: {taken.function.__qualname__}")
            made: TaskFunction[..., Any, Any] = TaskFunction(function, kind, pool, options)
            self._functions[kind] = made
            return made

        return register  # type: ignore[return-value]  # one function stands for both overloads

    async def submit(
        self, client: Client, function: TaskFunction[_P, Any, Any], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Submitted:
        """Hand in a task for a function of this registry; the same as `function.submit`."""
        return await function.submit(client, *args, **kwargs)

    async def handle(self, lease: Lease) -> Completed:
        """The handler of all kinds, for a `Worker`. A kind without one is given back by name, and logged once."""
        function = self._functions.get(lease.kind)
        if function is None:
            if lease.kind not in self._unknown and len(self._unknown) < MAX_UNKNOWN_KINDS:
                self._unknown.add(lease.kind)
                _log.warning("pool %r: no handler for kind %r; its tasks are given back", lease.pool, lease.kind)
            raise Reject(f"no handler for kind {lease.kind!r}")
        return await function.handle(lease)

    def worker(
        self,
        target: str,
        *,
        slots: int | Mapping[str, int] = 1,
        pools: Iterable[str] | None = None,
        **options: Any,
    ) -> TasksWorker:
        """A worker for all pools of the registry, or for some: one session each.

        `slots` are those of each pool, or a mapping from pool to slots; `options` are those of `Worker`. ValueError
        when there is no handler for a pool.
        """
        names = self.pools if pools is None else tuple(pools)
        wrong = [name for name in (*names, *(slots if isinstance(slots, Mapping) else ())) if name not in self.pools]
        if wrong or not names:
            known = ", ".join(map(repr, self.pools)) or "none"
            raise ValueError(
                f"no handler for pool {wrong[0]!r}; there are handlers for {known}" if wrong else "no handler"
            )
        each = {name: slots.get(name, 1) if isinstance(slots, Mapping) else slots for name in names}
        return TasksWorker([Worker(target, name, self.handle, slots=each[name], **options) for name in names])
