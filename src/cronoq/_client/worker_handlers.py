"""Running a handler, and what its end means (client.md section 3, "Outcomes")."""

import contextvars
import functools
import inspect
import logging
import math
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from cronoq._client.payloads import encode_payload
from cronoq._client.places import Place
from cronoq._client.worker_lease import Lease
from cronoq.errors import CancelTask, Permanent, Reject, Retryable
from cronoq_sansio.worker.words import Completed, Failed, Interrupted, Outcome, Refused, Withdrawn

log = logging.getLogger("cronoq.client")

Handler = Callable[[Lease], Any]
"""Async, or sync to be run in a thread; returns the output."""

_current: contextvars.ContextVar[tuple["HandlerRunner", Lease]] = contextvars.ContextVar("cronoq_lease")

REJECTED = "rejected by the handler"
FAILED = "failed permanently"
CANCELLED = "cancelled by the handler"


def is_async(handler: Callable[..., Any]) -> bool:
    """True for what must be called in the event loop. Anything else runs in a thread."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def current_lease() -> Lease:
    """The lease of the handler that calls this, in the event loop or in its thread. RuntimeError outside of one."""
    try:
        return _current.get()[1]
    except LookupError:
        raise RuntimeError("current_lease() is for handlers: no lease is being worked on here") from None


async def in_thread(function: Callable[[], Any]) -> Any:
    """For async handlers that wrap a sync one: run it as the worker runs sync handlers."""
    return await _current.get()[0].in_thread(function)


class HandlerRunner:
    """Calls one handler, for one lease after the other or for several at once."""

    def __init__(self, handler: Handler, slots: int) -> None:
        self._handler = handler
        self._async = is_async(handler)
        self._slots = slots
        self._threads: CapacityLimiter | None = None

    async def run(self, lease: Lease, place: Place) -> tuple[Outcome, BaseException | None]:
        """Run it in its place. The outcome, and what must end the worker once that is reported.

        Raises nothing but a cancellation from outside.
        """
        _current.set((self, lease))  # each handler has a task of its own
        handler = self._handler if self._async else self._run_in_thread
        scope = place.scope
        try:
            if scope is None:
                return encode(await handler(lease)), None
            with scope:
                result = await handler(lease)
            return Interrupted() if scope.cancelled_caught else encode(result), None
        except Exception as error:
            return judge(error, lease), None
        except BaseException as error:
            if scope is None and place.cancelled:
                return _cut_off(error, lease)
            if anyio.current_effective_deadline() == -math.inf:
                raise
            return _broken(error, lease)

    async def _run_in_thread(self, lease: Lease) -> Any:
        return await self.in_thread(functools.partial(self._handler, lease))

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Call a function in one of as many threads as there are slots; await it here if that is what it gives.

        It is not abandoned when it is cancelled: the slot is taken until the thread is done.
        """
        if self._threads is None:
            self._threads = CapacityLimiter(self._slots)
        # Wrapped in a tuple, because Trio takes a coroutine as the result of a thread for a mistake.
        (result,) = await anyio.to_thread.run_sync(lambda: (function(),), limiter=self._threads)
        return await result if inspect.isawaitable(result) else result


def _cut_off(error: BaseException, lease: Lease) -> tuple[Outcome, BaseException | None]:
    """What a handler ended with that was cancelled where it runs: cancellations of it count as none."""
    rest: BaseException | None = error
    own = anyio.get_cancelled_exc_class()
    if isinstance(error, own):
        rest = None
    elif isinstance(error, BaseExceptionGroup):
        rest = error.split(own)[1]
    if rest is None:
        return Interrupted(), None
    if isinstance(rest, Exception):
        return judge(rest, lease), None
    return _broken(rest, lease)


def _broken(error: BaseException, lease: Lease) -> tuple[Outcome, BaseException | None]:
    """What ends the worker, unless it is a cancellation of the handler's own making."""
    cancelled = isinstance(error, _cancellations())
    # What ends the worker reaches whoever runs it, with its traceback.
    seen = error if cancelled else None
    log.warning("%s: the handler was ended by %s", name(lease), type(error).__name__, exc_info=seen)
    return Failed(describe(error)), None if cancelled else error


def encode(result: Any) -> Outcome:
    """What a handler returned; not encodable is the handler's fault, and would be in each attempt."""
    if isinstance(result, Completed):
        return result
    try:
        return Completed(*encode_payload(result))
    except (TypeError, ValueError) as error:
        return Failed(f"the handler returned what is not bytes, str or JSON: {error}", permanent=True)


def judge(error: Exception, lease: Lease) -> Outcome:
    """What an exception means. Those that a handler raises on purpose are logged without a traceback."""
    match error:
        case Reject():
            outcome: Outcome = Refused(_text(error) or REJECTED)
        case CancelTask():
            outcome = Withdrawn(_text(error) or CANCELLED)
        case Permanent():
            outcome = Failed(_text(error) or FAILED, permanent=True)
        case Retryable():
            outcome = Failed(describe(error, bare=True), retry_after=_pause(error.retry_after))
        case _:
            log.warning("%s: the handler failed; it may be tried again", name(lease), exc_info=error)
            return Failed(describe(error))
    log.info("%s: %s", name(lease), describe(error))
    return outcome


def describe(error: BaseException, *, bare: bool = False) -> str:
    """`TypeName: text`, or the text alone; whatever the exception does when it is asked."""
    kind = type(error).__name__
    text = _text(error)
    if not text:
        return kind
    return text if bare else f"{kind}: {text}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def _cancellations() -> tuple[type[BaseException], ...]:
    """What a handler may end with that is no reason to end the worker.

    Of both loops: under Trio a handler may use asyncio's code through trio-asyncio, or in a thread.
    """
    own = (anyio.get_cancelled_exc_class(), GeneratorExit)
    asyncio = sys.modules.get("asyncio")
    return own if asyncio is None else (*own, asyncio.CancelledError)


def name(lease: Lease) -> str:
    """For logs."""
    kind = f" of kind {lease.kind!r}" if lease.kind else ""
    return f"task {lease.task_id}{kind}, attempt {lease.attempt}"


def _pause(seconds: Any) -> float | None:
    """`retry_after` as it can be sent; what is no positive duration is ignored."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        seconds = float(seconds)
    except OverflowError:
        return None
    return seconds if 0 < seconds < math.inf else None
