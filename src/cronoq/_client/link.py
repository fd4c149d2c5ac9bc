"""One connection to a server: a stream of bytes, the gRPC machine, and the three tasks that drive it.

One task reads, one writes, one keeps the machine's time. Calls have no task and no cancel scope of their own: callers
start them on the machine, wake the writer, and wait for their `Owner` to be told. A connection is dialled once and
never revived; who needs another one makes another `Link`.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import CancelScope

from cronoq import __version__
from cronoq._client.dialing import MAYBE_TLS, REMEDIES, Credentials, Wire, dial, make_context, unreachable
from cronoq._client.loops import Event, Loop
from cronoq._client.target import Target
from cronoq.errors import ClientError
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.limits import CLIENT_PART_TIMEOUT, READ_SIZE, WRITE_SIZE
from cronoq_sansio.wire import http2_words as http2
from cronoq_sansio.wire.client_call import (
    CallEnded,
    ClientCall,
    ClientEvent,
    Connected,
    ConnectionLost,
    GoingAway,
    HeadersReceived,
    MessageReceived,
    SendingResumed,
)
from cronoq_sansio.wire.grpc_client import GrpcClient
from cronoq_sansio.wire.metadata import Headers, Metadata

if TYPE_CHECKING:
    from cronoq._client.calls import Stream

log = logging.getLogger("cronoq.client")

CLOSED_HERE = "the client was closed"
BROKE = "the connection to the server broke"
NEVER = 1 << 63


@dataclass(slots=True)
class LinkSettings:
    """What all connections of a channel have in common. Times are nanoseconds, sizes bytes."""

    target: Target
    tls: bool
    credentials: Credentials | None
    server_name: str | None
    """What the certificate must name, if not the host."""
    authority: str
    max_receive: int
    ping_interval: int
    ping_timeout: int
    connect_timeout: int


class Owner(Protocol):
    """Who is told of a call. None of these may raise."""

    def on_headers(self, metadata: Metadata) -> None:
        """The server has accepted the call; of streams only."""

    def on_message(self, event: MessageReceived) -> None:
        """A message came; of streams only, another call's answer comes with its end."""

    def on_resumed(self) -> None:
        """There is room to send more; of streams only."""

    def on_end(self, event: CallEnded) -> None:
        """The call is over."""


class Link:
    """One connection, from `run` on until that returns."""

    def __init__(self, settings: LinkSettings, loop: Loop, on_too_many_pings: Callable[[], None]) -> None:
        self.loop = loop
        """The one that it runs in."""
        self.ready = anyio.Event()
        """Set when the server has shown that it speaks HTTP/2, or when there is an `error`."""
        self.error: ClientError | None = None
        """Why there is no connection (any more)."""
        self.abandoned: deque[Stream] = deque()
        """Streams whose owners were collected, to be closed."""
        self._now = loop.now
        self._settings = settings
        self._on_too_many_pings = on_too_many_pings
        self._machine: GrpcClient | None = None
        self._wake: Event = loop.new_event()
        self._woken = False
        """`_wake` is set."""
        self._deferred: list[Callable[[], None]] = []
        """What has to be asked before the next write."""
        self._scope: CancelScope | None = None
        self._writing = anyio.CancelScope()
        self._timer: CancelScope | None = None
        self._armed = NEVER
        self._connect_until = NEVER
        self._connected = False
        self._closing = False
        self._broken = ""

    @property
    def usable(self) -> bool:
        """It may be waited for, or calls may be started on it."""
        return self.error is None and not self._closing and (self._machine is None or self._machine.usable)

    @property
    def serves(self) -> bool:
        """Calls may be started on it now."""
        return self._connected and self.error is None and not self._closing and self.machine.usable

    @property
    def machine(self) -> GrpcClient:
        """There once `ready` is set without an `error`."""
        assert self._machine is not None
        return self._machine

    # --- what callers do

    def ask(
        self, path: bytes, headers: Headers, message: bytes, now: int, deadline: int | None, owner: Owner
    ) -> ClientCall:
        """A call with one message and one answer; only while `usable` and ready."""
        call = self.machine.ask(path, headers, message, now, deadline=deadline, owner=owner)
        if not self._woken:
            self._wake_writer()
        if deadline is not None and deadline < self._armed:
            self._rearm()
        return call

    def start(
        self,
        path: bytes,
        headers: Headers,
        deadline: int | None,
        owner: Owner,
        *,
        max_receive: int | None = None,
    ) -> ClientCall:
        """Start a stream; only while `usable` and ready. `poke` once its first messages are queued."""
        call = self.machine.start_call(
            path, headers, self._now(), deadline=deadline, streaming=True, max_receive=max_receive, owner=owner
        )
        if deadline is not None and deadline < self._armed:
            self._rearm()
        return call

    def poke(self) -> None:
        """The machine was given something to do."""
        if not self._woken:
            self._wake_writer()

    def consumed(self, call: ClientCall, size: int) -> None:
        """The owner of a stream has taken messages: the server may send more."""
        self.machine.consumed(call, size)
        if not self._woken:
            self._wake_writer()

    def defer(self, ask: Callable[[], None]) -> None:
        """Call `ask` before the next write, which comes at once: so all that is said in one turn goes out together."""
        self._deferred.append(ask)
        if not self._woken:
            self._woken = True
            self._wake.set()

    def close(self) -> None:
        """End all calls, say goodbye, disconnect. Idempotent; returns before it is done."""
        if not self._closing:
            self._closing = True
            self._fail(ClientError("cancelled", CLOSED_HERE))
            if self._machine is not None:
                self._dispatch(self._machine.close())
            elif self._scope is not None:
                self._scope.cancel()

    def _wake_writer(self) -> None:
        """The machine may have something to write."""
        if self.machine.wants_write():
            self._woken = True
            self._wake.set()

    # --- the connection

    async def run(self) -> None:
        """Connect and converse until either side ends it. Raises nothing but cancellation."""
        try:
            with anyio.CancelScope() as self._scope:
                stream = None if self._closing else await self._connect()
                if stream is not None:
                    try:
                        await self._converse(stream)
                    finally:
                        with anyio.CancelScope() as scope:  # as `anyio.aclose_forcefully` does it
                            scope.cancel()
                            await stream.aclose()
        except Exception as error:
            log.exception("a connection ended by a fault of the client")
            self._fail(ClientError("internal", f"a fault of the client ({type(error).__name__}); its log has more"))
        finally:
            self._fail(ClientError("cancelled", CLOSED_HERE))
            if self._machine is not None and not self._machine.closed:
                self._dispatch(self._machine.close())

    async def _connect(self) -> Wire | None:
        settings = self._settings
        stream = None
        self._connect_until = self._now() + settings.connect_timeout
        try:
            with anyio.move_on_after(seconds(settings.connect_timeout)):
                context = make_context(settings.credentials) if settings.tls else None
                stream = await dial(settings.target, context, settings.server_name)
        except ClientError as error:
            self._fail(error)
        except (OSError, ValueError) as error:
            self._fail(unreachable(settings.target, f"the TLS files of the client cannot be used ({error})"))
        else:
            if stream is None:
                self._fail(self.describe_silence(seconds(settings.connect_timeout)))
        return stream

    def describe_silence(self, waited: float) -> ClientError:
        """There was no connection within this time (s)."""
        target = self._settings.target
        if self._machine is None:
            remedy = "check host, port and firewall"
            if self._settings.tls:
                remedy += "; a server without TLS may be waiting for something else"
            return unreachable(target, f"no connection within {waited:g} s", remedy)
        return unreachable(target, f"no HTTP/2 answer within {waited:g} s", REMEDIES[http2.SILENT])

    async def _converse(self, stream: Wire) -> None:
        settings = self._settings
        machine = self._machine = GrpcClient(
            self._now(),
            authority=settings.authority,
            scheme="https" if settings.tls else "http",
            user_agent=f"cronoq-trio/{__version__}",
            max_receive=settings.max_receive,
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
            settings_timeout=max(self._connect_until - self._now(), SECOND // 10),
        )
        self._wake_writer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, stream, machine)
            tasks.start_soon(self._keep_time, machine)
            with self._writing:
                await self._write(stream, machine)
            tasks.cancel_scope.cancel()

    async def _read(self, stream: Wire, machine: GrpcClient) -> None:
        why = ""
        while not machine.closed:
            try:
                data = await stream.receive(READ_SIZE)
            except anyio.EndOfStream:
                break
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                why = _describe_break(error)
                break
            self._dispatch(machine.receive(data, self._now()))
            while self.abandoned:
                self.abandoned.popleft().close()
            self._rearm()
        self._dispatch(machine.receive_eof(self._now(), why))

    async def _write(self, stream: Wire, machine: GrpcClient) -> None:
        """Write what the machine has, until it is closed and everything is out."""
        while True:
            await self._wait_wake()
            while data := self._take(machine):
                late = machine.take_events()
                if late:
                    self._dispatch(late)
                self._rearm()  # streams may have been opened: from now on silence is noticed
                try:
                    await stream.send(data)
                except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                    # What the server said before it left may still be there: the reading task ends the calls.
                    self._broken = _describe_break(error)
                    return await self._wait_for_reader(machine)
            if machine.closed:
                return None

    def _take(self, machine: GrpcClient) -> bytes:
        """The next write."""
        while self._deferred:
            deferred, self._deferred = self._deferred, []
            for ask in deferred:
                ask()
        return machine.take(WRITE_SIZE)

    async def _wait_wake(self) -> None:
        await self._wake.wait()
        self._wake = self.loop.new_event()
        self._woken = False

    async def _wait_for_reader(self, machine: GrpcClient) -> None:
        with anyio.move_on_after(seconds(CLIENT_PART_TIMEOUT)):
            while not machine.closed:
                await self._wait_wake()
        self._dispatch(machine.receive_eof(self._now(), self._broken))

    async def _keep_time(self, machine: GrpcClient) -> None:
        while not machine.closed:
            due = machine.next_timeout()
            self._armed = NEVER if due is None else due
            with anyio.CancelScope(deadline=seconds(self._armed)) as self._timer:
                await anyio.sleep_forever()
            self._dispatch(machine.handle_timer(self._now()))
            self._wake_writer()

    def _rearm(self) -> None:
        """Bring the alarm forward when a timeout before it was set."""
        timer = self._timer
        if timer is not None and self._machine is not None:
            due = self._machine.next_timeout()
            if due is not None and due < self._armed:
                self._armed = due
                timer.deadline = seconds(due)

    # --- what happened

    def _dispatch(self, events: list[ClientEvent]) -> None:
        for event in events:
            if type(event) is CallEnded:
                event.call.owner.on_end(event)
            elif type(event) is MessageReceived:
                event.call.owner.on_message(event)
            else:
                _HANDLERS[type(event)](self, event)
        machine = self.machine
        if machine.closed:
            self._writing.deadline = min(self._writing.deadline, anyio.current_time() + seconds(CLIENT_PART_TIMEOUT))
            self._woken = True
            self._wake.set()
        elif not self._woken:
            self._wake_writer()

    def _on_connected(self, event: Connected) -> None:
        self._connected = True
        self.ready.set()

    def _on_headers(self, event: HeadersReceived) -> None:
        event.call.owner.on_headers(event.metadata)

    def _on_resumed(self, event: SendingResumed) -> None:
        event.call.owner.on_resumed()

    def _on_going_away(self, event: GoingAway) -> None:
        if event.too_many_pings:
            self._on_too_many_pings()

    def _on_lost(self, event: ConnectionLost) -> None:
        remedy = REMEDIES.get(event.reason, "")
        left = event.reason == http2.HUNG_UP or event.reason.startswith(BROKE)
        if left and not self.ready.is_set() and not self._settings.tls:
            remedy = MAYBE_TLS
        self._fail(unreachable(self._settings.target, event.reason, remedy))

    def _fail(self, error: ClientError) -> None:
        """The first reason counts."""
        if self.error is None:
            self.error = error
        self.ready.set()


def _describe_break(error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    detail = f" ({cause.strerror})" if isinstance(cause, OSError) and cause.strerror else ""
    return f"{BROKE}{detail}"


_HANDLERS: dict[type, Callable[[Link, Any], None]] = {
    Connected: Link._on_connected,
    HeadersReceived: Link._on_headers,
    SendingResumed: Link._on_resumed,
    GoingAway: Link._on_going_away,
    ConnectionLost: Link._on_lost,
}
