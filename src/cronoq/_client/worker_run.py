"""One run of a worker: sessions one after the other, and the handlers, which are joined before it ends.

run
├─ handlers: one task per lease; one that outlives its session still fills a slot of the next
└─ session: a channel, one stream on it (`worker_stream.py`); then a pause or a redirect, then the next
"""

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from cronoq._client import methods
from cronoq._client.channel import Channel, Token
from cronoq._client.dialing import Credentials
from cronoq._client.link import NEVER
from cronoq._client.loops import current_loop
from cronoq._client.places import Place, Tasks, tasks_in
from cronoq._client.target import parse_target
from cronoq._client.worker_handlers import Handler, HandlerRunner
from cronoq._client.worker_lease import Lease
from cronoq._client.worker_redirects import judge, safe
from cronoq._client.worker_stream import SessionStream
from cronoq.errors import ClientError
from cronoq_sansio.clock import SECOND, ns, seconds
from cronoq_sansio.worker.route import GiveUp, Route, SessionEnd
from cronoq_sansio.worker.words import Held, Registered

log = logging.getLogger("cronoq.client")

#: Channel options that name one server; they make no sense for another one.
OF_ONE_SERVER = ("grpc.ssl_target_name_override", "grpc.default_authority")

_MAX_GRACE = 100 * 365 * 86_400


@dataclass(slots=True)
class Plan:
    """What a worker was told to do. Times are seconds."""

    target: str
    pool: str
    handler: Handler
    slots: int
    token: Token
    name: str
    tls: bool
    credentials: Credentials | None
    reconnect: bool
    backoff: tuple[float, float]
    options: tuple[tuple[str, Any], ...]
    labels: dict[str, str]
    insecure_redirect_http: bool

    @property
    def secure(self) -> bool:
        """The configured target is spoken to in TLS."""
        return bool(self.tls or self.credentials is not None or parse_target(self.target).tls)

    def channel(self, target: str, *, quiet: bool = True) -> Channel:
        """A channel to the configured target, or to one that the server named. ValueError, TypeError."""
        if target == self.target:
            tls, options = self.tls, self.options
        else:
            tls, options = False, tuple(option for option in self.options if option[0] not in OF_ONE_SERVER)
        return Channel(target, token=self.token, tls=tls, credentials=self.credentials, options=options, quiet=quiet)


@dataclass(slots=True)
class Standing:
    """What a worker shows of itself; see `Worker`."""

    worker_id: int | None = None
    lease_ttl: float | None = None
    granted_slots: int | None = None
    server_protocol: int | None = None
    max_message_bytes: int | None = None
    last_shutdown: str | None = None
    connections: int = 0


class Run:
    """From `run` to its end. `jitter`: 0 to 1, for pauses."""

    def __init__(
        self,
        plan: Plan,
        standing: Standing,
        on_registered: Callable[[], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.pool = plan.pool
        self.loop = current_loop()
        self._now = self.loop.now
        self.finished = anyio.Event()
        """Set when `run` returns or raises."""
        self.registered = False
        """A session is registered now."""
        self._plan = plan
        self._standing = standing
        self._on_registered = on_registered
        self._jitter = jitter
        self._route = Route(plan.target, (ns(plan.backoff[0]), ns(plan.backoff[1])), reconnect=plan.reconnect)
        self._runner = HandlerRunner(plan.handler, plan.slots)
        self._tasks: Tasks | None = None
        self._session: SessionStream | None = None
        self._alive = 0
        """Handlers that have not exited."""
        self._until: int | None = None
        """When a stop cuts handlers off; None = no stop was asked for."""
        self._stopping = anyio.Event()
        self._connecting: anyio.CancelScope | None = None
        self._crash: BaseException | None = None

    @property
    def running(self) -> int:
        """Leases held now."""
        return 0 if self._session is None else self._session.machine.held

    async def run(self) -> None:
        """Serve until stopped. Raises what `Worker.run` raises."""
        failure: Exception | None
        try:
            async with anyio.create_task_group() as group, tasks_in(group, self._plan.slots) as self._tasks:
                try:
                    failure = await self._serve()
                except Exception as error:
                    failure = error  # raised below, where it does not end up in a group
                if self._alive:
                    log.info("pool %r: waiting for %d handlers that were cut off", self.pool, self._alive)
        finally:
            self.finished.set()
        if self._crash is not None:
            raise self._crash
        if failure is not None:
            raise failure

    def stop(self, grace: float) -> None:
        """Stop within `grace` seconds; the first call counts."""
        if self._until is None:
            self._until = min(self._now() + ns(min(grace, _MAX_GRACE)), NEVER)
            self._tell_stop()

    def _tell_stop(self) -> None:
        assert self._until is not None
        self._stopping.set()
        if self._session is not None:
            self._session.stop(self._until)
        elif self._connecting is not None:
            self._connecting.cancel()

    # --- sessions

    async def _serve(self) -> ClientError | None:
        while not self._stopping.is_set():
            target = self._route.target
            error = await self._serve_session(target)
            if self._stopping.is_set() or error is None:
                break
            decision = self._route.ended(self._describe(error, target), self._jitter())
            if isinstance(decision, GiveUp):
                return ClientError(decision.code, decision.message, metadata=error.metadata)
            if decision.pause == 0 and self._route.redirected:
                log.info("pool %r: redirected to %s", self.pool, decision.target)
                continue
            pause = seconds(decision.pause)
            log.warning("pool %r: %s; connecting again in %.2f s", self.pool, error, pause)
            with anyio.move_on_after(pause):
                await self._stopping.wait()
        return None

    async def _serve_session(self, target: str) -> ClientError | None:
        """What it ended with; None when it was stopped before there was a stream."""
        plan = self._plan
        error = None
        try:
            async with plan.channel(target) as channel:
                stream = None
                with anyio.CancelScope() as self._connecting:
                    if not self._stopping.is_set():
                        stream = await channel.open_stream(methods.WORK)
                if stream is None or self._stopping.is_set():
                    return None  # nothing was said on it
                self._connecting = None
                self._session = SessionStream(self, stream, plan.slots, self._alive)
                try:
                    error = await self._session.run(plan.name, plan.labels)
                finally:
                    self._session = None
                    self.registered = False
                    stream.close()
        except ClientError as failure:
            error = failure
        finally:
            self._connecting = None
        return error

    def _describe(self, error: ClientError, target: str) -> SessionEnd:
        redirect = None
        if error.code == "failed_precondition" and error.endpoint:
            plan = self._plan
            redirect = judge(
                error.endpoint,
                secure=target.startswith("https://") if self._route.redirected else plan.secure,
                token=bool(plan.token),
                insecure_http=plan.insecure_redirect_http,
            )
            if not redirect.refusal and plan.token and not safe(redirect.target):
                log.warning("pool %r: the token goes to %s in clear", self.pool, redirect.target)
        return SessionEnd(error.code, error.message, redirect)

    # --- what the session tells

    def on_registered(self, registered: Registered) -> None:
        """Take over what the server said."""
        standing = self._standing
        standing.worker_id = registered.worker_id
        standing.lease_ttl = None if registered.lease_ttl is None else registered.lease_ttl / SECOND
        standing.granted_slots = registered.slots
        standing.server_protocol = registered.version
        standing.max_message_bytes = registered.max_message_bytes
        standing.connections += 1
        if registered.slots < self._plan.slots:
            log.info("pool %r: %d slots asked for, %d granted", self.pool, self._plan.slots, registered.slots)
        self._route.registered()
        self.registered = True
        self._on_registered()

    def on_server_leaves(self, reason: str, not_leader: bool) -> None:
        """Remember why."""
        self._standing.last_shutdown = reason or "shutdown"
        log.info("pool %r: the server goes away: %s", self.pool, reason or "no reason given")

    def start_handler(self, session: SessionStream, held: Held) -> None:
        """A task for the lease."""
        assert self._tasks is not None
        self._alive += 1
        held.task = self._tasks.start(self._handle, session, held)

    async def _handle(self, place: Place, session: SessionStream, held: Held) -> None:
        tasks, lease = self._tasks, held.job
        assert tasks is not None and isinstance(lease, Lease)
        try:
            outcome, crash = await self._runner.run(lease, place)
        finally:
            self._alive -= 1
            tasks.leave(place)
        if crash is not None and self._crash is None:
            self._crash = crash
        session.handler_exited(held, outcome)
        if self._session is not None and self._session is not session:
            self._session.earlier_exited()
        if crash is not None:
            self._until = self._now() if self._until is None else min(self._until, self._now())
            self._tell_stop()


def check_grace(grace: float) -> float:
    """Seconds from 0; infinity allowed."""
    if isinstance(grace, bool) or not isinstance(grace, (int, float)):
        raise TypeError(f"grace: a number of seconds is needed, not {type(grace).__name__}")
    if math.isnan(grace) or grace < 0:
        raise ValueError(f"grace: {grace} is not a number of seconds from 0")
    return float(grace)
