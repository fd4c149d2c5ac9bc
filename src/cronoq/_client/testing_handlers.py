"""Handlers without a server: the outcome that a worker would report, or what a typed function returns."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from cronoq._client.payloads import encode_payload
from cronoq._client.places import Place
from cronoq._client.worker_handlers import HandlerRunner
from cronoq._client.worker_lease import Lease
from cronoq_sansio.worker.words import Completed, Failed, Outcome, Refused, Withdrawn

if TYPE_CHECKING:
    from cronoq.handlers import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What a worker would report for a handler."""

    outcome: str
    """`completed`, `failed`, `rejected`, `cancelled`, or `aborted`: the handler was cut off and nothing is reported."""
    output: bytes | None = None
    """When completed."""
    content_type: str = ""
    message: str = ""
    """When failed, rejected or cancelled."""
    permanent: bool = False
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """It completed."""
        return self.outcome == "completed"

    def json(self) -> Any:
        """The output as JSON; None for an empty one. ValueError when there is none, or it is not JSON."""
        if self.output is None:
            raise ValueError(f"there is no output, the handler {self.outcome}: {self.message}")
        return json.loads(self.output) if self.output else None

    def text(self) -> str:
        """The output as UTF-8 text; empty when there is none."""
        return "" if self.output is None else self.output.decode()


async def run_handler(
    handler: Callable[[Lease], Any],
    payload: Any = None,
    *,
    attempt: int = 1,
    kind: str = "",
    key: str = "",
    pool: str = "default",
    tags: dict[str, str] | None = None,
    timeout: float | None = None,
    deadline: float | None = None,
    abort_after: float | None = None,
) -> HandlerResult:
    """Run a handler as a worker would, for a lease with this payload (encoded as `Client.submit` does).

    `handler` is what `Worker` takes, `Tasks.handle` of a registry, or `handle` of one of its functions. `deadline`
    is Unix seconds; after `abort_after` seconds the lease is aborted. What is no `Exception` is raised.
    """
    data, content_type = encode_payload(payload)
    lease = Lease(1, 1, attempt, data, content_type, kind, key, dict(tags or {}), timeout, deadline, pool)
    place = Place(anyio.CancelScope())

    async def abort(after: float) -> None:
        await anyio.sleep(after)
        lease.cancelled.set()
        place.cancel()

    async with anyio.create_task_group() as tasks:
        if abort_after is not None:
            tasks.start_soon(abort, abort_after)
        outcome, crash = await HandlerRunner(handler, 1).run(lease, place)
        tasks.cancel_scope.cancel()
    if crash is not None:
        raise crash
    return _read(outcome) if not lease.cancelled.is_set() else HandlerResult("aborted")


def _read(outcome: Outcome) -> HandlerResult:
    match outcome:
        case Completed():
            return HandlerResult("completed", outcome.output, outcome.content_type)
        case Failed():
            return HandlerResult(
                "failed", message=outcome.message, permanent=outcome.permanent, retry_after=outcome.retry_after
            )
        case Refused():
            return HandlerResult("rejected", message=outcome.reason)
        case Withdrawn():
            return HandlerResult("cancelled", message=outcome.text)
        case _:
            return HandlerResult("aborted")


async def run_task(function: "TaskFunction[P, R, Any]", /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a typed function as a task: arguments and result go through their JSON form, as they do with a server.

    Returns what the function returns and raises what it raises; TypeError for arguments that it does not take,
    `Permanent` for a result that has no such form.
    """
    payload = function.signature.encode(args, kwargs)
    raised: list[Exception] = []

    async def handle(lease: Lease) -> Completed:
        try:
            return await function.handle(lease)
        except Exception as error:
            raised.append(error)
            raise

    result = await run_handler(handle, payload, kind=function.kind, pool=function.pool)
    if raised:
        raise raised[0]
    returned: R = function.signature.decode_result(result.output or b"")
    return returned
