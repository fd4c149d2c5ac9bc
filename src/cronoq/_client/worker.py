"""The worker: runs a handler for the tasks of a pool, under Trio and asyncio (client.md sections 3 and 7)."""

import contextvars
import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from anyio.abc import TaskStatus

from cronoq._client.channel import Token
from cronoq._client.dialing import Credentials
from cronoq._client.worker_block import ServingBlock
from cronoq._client.worker_handlers import Handler
from cronoq._client.worker_run import Plan, Run, Standing, check_grace
from cronoq.errors import ClientError

_serving: contextvars.ContextVar[Run | None] = contextvars.ContextVar("cronoq_serving", default=None)
"""The run whose handler this is, in handlers."""


class Worker(ServingBlock):
    """Runs `handler` for the tasks of `pool`. Making one does no I/O and needs no event loop.

    `async with Worker(target, pool, handler): …` serves while the block runs and stops gracefully at its end;
    `await worker.run()` serves until `stop` is called; `await nursery.start(worker.run)` returns once it is registered.

    - `target`, `token`, `tls`, `credentials`, `options`: as for `Client`. Each session has a connection of its own.
    - `handler`: called with a `Lease`. An async one runs in the event loop, any other in a thread. What it returns is
      the output of the task: bytes, `str`, None, or what JSON knows. What it raises fails the attempt: see `Retryable`,
      `Permanent`, `Reject` and `CancelTask`; anything else is tried again.
    - `slots`: handlers that may run at the same time; the server may grant less.
    - `name`, `labels`: what the server shows; tasks may ask for labels.
    - `reconnect`: connect again after a failure; the pauses are drawn from 0 to a bound that doubles from `backoff[0]`
      to `backoff[1]` seconds.
    - `grace`: seconds that handlers may go on when the worker stops.
    - `insecure_redirect_http`: follow a redirect to plain HTTP on another host although a token goes along.

    Leases are kept alive by themselves. A handler whose lease was aborted is cancelled: an async one at its next
    `await`, one in a thread finds `lease.cancelled` set. It fills its slot until it exits, and never outlives `run`.
    When `run` itself is cancelled, the connection is closed, and the server tries again what was running.
    """

    def __init__(
        self,
        target: str,
        pool: str,
        handler: Handler,
        *,
        slots: int = 1,
        token: Token = None,
        name: str = "",
        tls: bool = False,
        credentials: Credentials | None = None,
        reconnect: bool = True,
        backoff: tuple[float, float] = (0.1, 5.0),
        grace: float = 10.0,
        options: Sequence[tuple[str, Any]] | None = None,
        labels: Mapping[str, Any] | None = None,
        insecure_redirect_http: bool = False,
    ) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int):
            raise TypeError(f"slots: an integer is needed, not {type(slots).__name__}")
        if slots < 1:
            raise ValueError(f"slots: {slots} is below 1")
        if not callable(handler):
            raise TypeError(f"handler: a function is needed, not {type(handler).__name__}")
        for what, text in (("pool", pool), ("name", name)):
            if not isinstance(text, str):
                raise TypeError(f"{what}: a str is needed, not {type(text).__name__}")
        self.target = target
        self.pool = pool
        self.handler = handler
        self.slots = slots
        self.token = token
        self.name = name
        self.tls = tls
        self.credentials = credentials
        self.reconnect = reconnect
        self.backoff = _check_backoff(backoff)
        self.grace = check_grace(grace)
        self.options = tuple(options or ())
        self.labels = {str(label): str(value) for label, value in (labels or {}).items()}
        self.insecure_redirect_http = insecure_redirect_http
        self._plan().channel(target, quiet=False)  # refuses at once what could not work later
        self._standing = Standing()
        self._run: Run | None = None
        self._failure: BaseException | None = None
        """What the latest run ended with."""
        self._ended = 0
        """Runs that are over."""
        self._waiters: list[anyio.Event] = []

    # --- what is known

    @property
    def worker_id(self) -> int | None:
        """What the server calls this worker; None before it was registered."""
        return self._standing.worker_id

    @property
    def lease_ttl(self) -> float | None:
        """Seconds without a heartbeat after which a lease is lost; None before, or when leases do not expire."""
        return self._standing.lease_ttl

    @property
    def granted_slots(self) -> int | None:
        """The slots that the server granted; None before."""
        return self._standing.granted_slots

    @property
    def server_protocol(self) -> int | None:
        """Version of the worker protocol that the server speaks; None before."""
        return self._standing.server_protocol

    @property
    def max_message_bytes(self) -> int | None:
        """Bound of a message; None before, or when the server did not say."""
        return self._standing.max_message_bytes

    @property
    def last_shutdown(self) -> str | None:
        """Why the server went away the last time that it told; None = it never did."""
        return self._standing.last_shutdown

    @property
    def connections(self) -> int:
        """Sessions in which the worker was registered."""
        return self._standing.connections

    @property
    def running(self) -> int:
        """Leases held now."""
        return 0 if self._run is None else self._run.running

    # --- serving

    async def run(self, *, task_status: TaskStatus[None] | None = None) -> None:
        """Serve until `stop`, connecting again whenever that may help. When it has returned it may be called again.

        `ClientError` for what connecting again cannot cure: `unauthenticated`, `permission_denied`, `not_found` (no
        such pool), `failed_precondition`, `invalid_argument`, `unimplemented`; with `reconnect=False` for any end.
        What a handler raises that is no `Exception` (`SystemExit`, `KeyboardInterrupt`) ends the worker, once the
        failure is reported, and is raised here.
        """
        if self._run is not None:
            raise RuntimeError("this worker is running already")
        started = False

        def registered() -> None:
            nonlocal started
            if not started:
                started = True
                if task_status is not None:
                    task_status.started()
            self._wake()

        self._failure = None
        self._run = run = Run(self._plan(), self._standing, registered)
        token = _serving.set(run)
        try:
            await run.run()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            _serving.reset(token)
            self._run = None
            self._ended += 1
            self._wake()

    async def stop(self, grace: float | None = None) -> None:
        """Take no more tasks, let handlers finish within `grace` seconds (the worker's own by default), end `run`.

        Handlers that are not done by then are cancelled, and their tasks go to other workers. Returns when `run` ends;
        it waits for a thread that does not look at `lease.cancelled`. Further calls join the first; called by a handler
        of this worker it returns at once. Does nothing when the worker does not run.
        """
        limit = self.grace if grace is None else check_grace(grace)
        run = self._run
        if run is None:
            return
        run.stop(limit)
        if _serving.get() is not run:
            await run.finished.wait()

    async def wait_registered(self, timeout: float | None = None) -> None:
        """Until the worker is registered. TimeoutError after `timeout` seconds; what `run` has failed with."""
        ended = self._ended
        with anyio.fail_after(timeout):
            while self._run is None or not self._run.registered:
                if self._run is None and self._failure is not None:
                    raise self._failure_again()
                waiter = anyio.Event()
                self._waiters.append(waiter)
                try:
                    await waiter.wait()
                finally:
                    self._waiters = [other for other in self._waiters if other is not waiter]
                if self._ended > ended and self._run is None and self._failure is None:
                    raise ClientError("cancelled", "the worker was stopped before it was registered")

    def _failure_again(self) -> BaseException:
        failure = self._failure
        if isinstance(failure, ClientError):
            return ClientError(failure.code, failure.message, metadata=failure.metadata)
        return RuntimeError(f"the worker's run was ended by {type(failure).__name__}")

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    def _plan(self) -> Plan:
        return Plan(
            self.target,
            self.pool,
            self.handler,
            self.slots,
            self.token,
            self.name,
            self.tls,
            self.credentials,
            self.reconnect,
            self.backoff,
            self.options,
            self.labels,
            self.insecure_redirect_http,
        )


def _check_backoff(backoff: tuple[float, float]) -> tuple[float, float]:
    first, last = backoff
    for bound in (first, last):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise TypeError(f"backoff: two numbers of seconds are needed, not {type(bound).__name__}")
    if not 0 < first <= last < math.inf:
        raise ValueError(f"backoff: {backoff} is not a first and a largest pause in seconds, above 0")
    return float(first), float(last)
