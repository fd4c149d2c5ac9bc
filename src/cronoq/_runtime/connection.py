"""One connection: bytes between a transport and a gRPC machine, events between the machine and the lobby.

A connection is always read, whatever it has to write: a peer that waits for us to read before it reads would
otherwise stand still for ever. Answers are written at once by whoever performs them; what the transport does not take
is written by a second task that ends when nothing is left. Meanwhile the machine keeps what it has (its bounds are
flow control and its queues), so at most one write, `limits.WRITE_SIZE`, is unsent here.

All waiting of the reading task stands under one cancel scope whose deadline is the machine's next timeout: nothing is
armed per read, and whoever has another reason cancels it. One connection's failure ends that connection alone.
"""

from typing import TYPE_CHECKING, Any

import trio

from cronoq._observe.logs import get_logger
from cronoq._runtime.clock import Clock
from cronoq._runtime.faults import TermEnded, describe
from cronoq._runtime.transport import Transport
from cronoq_sansio.clock import NEVER, seconds
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import (
    CLOSE_LINGER,
    CLOSE_TIMEOUT,
    MAX_CLOSE_DISCARD,
    MAX_TURN,
    MIN_READ,
    READ_SIZE,
    STREAM_STALL_TIMEOUT,
    WRITE_SIZE,
)
from cronoq_sansio.service.messages import CallReceived, Shutdown, WorkerSent
from cronoq_sansio.wire.peer_limits import KEPT_OUT, TINY_READS, UNREAD, PeerLimit

if TYPE_CHECKING:
    from cronoq._runtime.door import Guest
    from cronoq._runtime.lobby import Lobby
    from cronoq_sansio.wire.grpc import GrpcServer

log = get_logger("connection")

_LARGE = 4 * MIN_READ  #: a read that may be worth a look at what of it was useless: some 1,000 frames

_USEFUL = (CallReceived, WorkerSent)

NOTHING: list[Any] = []  #: no events; nobody adds to it


class Gone:
    """In the place of a connection that is over, for whoever has something to say on one of its streams."""

    __slots__ = ("peer",)

    touched = True
    """Nobody has to flush it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def fail(self, error: Exception) -> None:
        """It has ended already."""


class Connection:
    """Owns a transport and a machine, for as long as `run` runs."""

    __slots__ = (
        "_armed",
        "_clock",
        "_debt",
        "_failed",
        "_leave_at",
        "_lobby",
        "_machine",
        "_nursery",
        "_over",
        "_portion",
        "_scope",
        "_settled",
        "_transport",
        "_unsent",
        "_useful",
        "_writer",
        "dismissed",
        "guest",
        "peer",
        "touched",
    )

    def __init__(
        self,
        transport: Transport,
        machine: "GrpcServer",
        lobby: "Lobby",
        clock: Clock,
        nursery: trio.Nursery,
        peer: str,
    ) -> None:
        """`nursery` outlives the connection and runs its writing task; `peer` is the address, for logs."""
        self._transport = transport
        self._machine = machine
        self._lobby = lobby
        self._clock = clock
        self._nursery = nursery
        self._scope = trio.CancelScope()
        self._armed = NEVER
        self._leave_at = NEVER
        self._unsent: bytes | memoryview = b""
        self._writer: trio.Event | None = None
        self._failed = False
        self._over = False
        self._debt = 0
        self._useful = False
        self._settled = 0
        """Small reads that completed nothing, of which the door was told."""
        self._portion = READ_SIZE
        """Bytes of the next read."""
        self.peer = peer
        self.touched = False
        """Somebody will flush it: the performer, in whose list it is, or whoever handles what was read here."""
        self.dismissed = False
        """The term whose streams this connection carries has ended: its events concern nobody any more."""
        self.guest: Guest | None = None
        """Who it is at the door, if there is one."""
        machine.owner = self

    async def run(self) -> None:
        """Converse until either side ends it. Raises nothing but cancellation."""
        self._lobby.enter(self)
        try:
            await self._live()
        except (OSError, trio.ClosedResourceError):
            pass  # the peer is gone
        except Exception as error:
            log.error("a connection was closed by a fault of the server", peer=self.peer, fault=describe(error))
        finally:
            self._lobby.leave(self)
            try:
                self._end()
            except Exception as error:
                log.error("the end of a connection failed", peer=self.peer, fault=describe(error))
            self._failed = True
            self._transport.close()
            # The two would keep each other until the garbage collector comes, which with what is old is hardly ever.
            self._machine.owner = Gone(self.peer)

    async def _live(self) -> None:
        try:
            await self._converse()
        except TermEnded:
            # Our event broke the term. Everybody's open calls were answered by the lobby; this connection is closed.
            self._machine.finish()
        self._end()
        if self._machine.closed and not self._failed:
            await self._part()

    @property
    def proven(self) -> bool:
        """A call of the peer was admitted."""
        return self._machine.proven

    @property
    def vain(self) -> bool:
        """Nothing of the peer came to anything: no call and no message of a worker was complete."""
        return not self._useful

    def useless(self, now: int) -> int:
        """Frames of the peer that cost us and carried nothing, with what their end by a limit counts."""
        return self._machine.useless(now) + self._debt

    # --- what others do with it; none of these raises, but for `look`

    def flush(self) -> list[Any]:
        """Write what the machine has, unless a write is under way; returns the events that arose while sending."""
        if self._failed:
            return NOTHING
        try:
            if self._writer is None:
                self._write()
            return self._machine.take_events() if self._machine.late_events else NOTHING
        except Exception as error:
            self.fail(error)
            return NOTHING
        finally:
            if self._machine.http2.due < self._armed or self._machine.stalls.due < self._armed:
                self._rearm()

    def look(self) -> bool:
        """Hand on a call that looks at much: its turn has come. Whether more of them wait. Raises `TermEnded`."""
        events = self._machine.take_look()
        if events:
            self._lobby.handle(self, events)
        self._pass_on(self.flush())
        return len(self._machine.looks.waiting) > 0

    def touch(self) -> None:
        """Something is about to be sent here that may have nothing to do with what was read last."""
        self.touched = True
        self._machine.http2.tick(self._clock.now())

    def fail(self, error: Exception) -> None:
        """This connection cannot go on: its task ends it."""
        if not self._failed:
            self._failed = True
            if not isinstance(error, (OSError, trio.ClosedResourceError)):
                log.error("a connection was closed by a fault of the server", peer=self.peer, fault=describe(error))
            self._scope.cancel()

    def dismiss(self, rejection: Rejection, shutdown: Shutdown, leave_at: int) -> None:
        """The term has ended: answer all open calls, tell the workers, close at `leave_at`."""
        self.dismissed = True
        try:
            self._machine.refuse_open(rejection, shutdown)
        except Exception as error:
            self.fail(error)
        self._leave_at = leave_at
        self.flush()
        self._rearm()

    def drain(self) -> None:
        """First GOAWAY: what is open goes on."""
        self._do(self._machine.drain)

    def finish(self) -> None:
        """Final GOAWAY; close once it is written."""
        self._do(self._machine.finish)
        self._scope.cancel()

    def give_up(self, limit: PeerLimit) -> None:
        """End at once: the peer is told why as far as that can be sent now. The caller tells the operator."""
        self._do(lambda: self._machine.give_up(limit))
        self._machine.exceeded.clear()
        self.fail(ConnectionAbortedError(limit.says))

    def hold(self, calls: bool, workers: bool) -> None:
        """Stop or go on giving flow-control credit."""
        self._do(lambda: self._machine.hold_credit(calls=calls, workers=workers))

    def _do(self, action: Any) -> None:
        if not self._failed:
            try:
                action()
                if self._writer is None:
                    self._write()
            except Exception as error:
                self.fail(error)

    # --- reading

    async def _converse(self) -> None:
        """Read and keep the machine's time until the connection is to be closed."""
        machine, transport, received = self._machine, self._transport, self._received
        http2 = machine.http2
        self._pass_on(self.flush())
        while not self._failed and not machine.closed:
            due = machine.next_timeout()
            self._armed = min(self._leave_at, NEVER if due is None else due)
            with trio.CancelScope(deadline=self._clock.deadline(self._armed)) as self._scope:
                while not http2.closed:
                    if transport.unsent and self._writer is None:
                        self._write_later(b"")  # what TLS itself has to say
                    await transport.wait_readable()
                    try:
                        data = transport.recv(self._portion)
                    except BlockingIOError:
                        continue
                    if data:
                        received(data)
                        del data  # the next one may be long in coming
                    elif data is not None:
                        return
                    elif transport.arrived:
                        self._note_fragment(transport.arrived)
            if self._scope.cancelled_caught and not self._failed:
                self._keep_time()

    def _received(self, data: bytes) -> None:
        machine = self._machine
        if not machine.proven and self.guest is not None and self.guest.unwelcome():
            self.give_up(KEPT_OUT)
            return
        now = self._clock.now()
        events = machine.receive(data, now)
        if len(data) > _LARGE and self.guest is not None:
            self.guest.settle()  # whoever floods through many connections at a time does so in turns
        if not self._useful:
            self._look_for_use(events)
        if events:
            self.touched = True  # the machine knows the time, and what is said here is written below
            try:
                driver = self._lobby.driver
                if driver is None or self.dismissed:
                    self._lobby.refuse(events)
                else:
                    driver.handle(events, now)
            finally:
                self.touched = False
        elif machine.http2.tiny_reads != self._settled:
            self._settle_reads()
        if machine.looks.waiting:
            self._useful = True
            self._lobby.looks.arrived(self)
        if machine.http2.unsent or machine.wants_write():
            arisen = self.flush()
            if arisen:
                self._pass_on(arisen)
        elif machine.http2.due < self._armed or machine.stalls.due < self._armed:
            self._rearm()
        if len(data) >= MIN_READ:
            self._note_cost(self._clock.now() - now)

    def _note_fragment(self, size: int) -> None:
        """TLS has taken so many bytes that are nothing for the machine yet."""
        if not self._machine.proven and self.guest is not None and self.guest.unwelcome():
            self.give_up(KEPT_OUT)
        elif not self._machine.http2.fragment(size, self._clock.now()):
            self._debt = TINY_READS.debt
            self._settle_reads()
            self._lobby.exceeded(TINY_READS, self.peer)
            self.give_up(TINY_READS)
        elif self._machine.http2.tiny_reads != self._settled:
            self._settle_reads()

    def _settle_reads(self) -> None:
        """Who sends a byte now and then on many connections does not get far with each of them."""
        self._settled = self._machine.http2.tiny_reads
        if self.guest is not None:
            self.guest.settle()

    def _look_for_use(self, events: list[Any]) -> None:
        """Whoever is admitted while no term serves is turned away for that: it is no fault of the peer."""
        if any(type(event) in _USEFUL for event in events) or (self._machine.proven and not self._lobby.serving):
            self._useful = True

    def _note_cost(self, spent: int) -> None:
        """Small frames cost much per byte: others wait less for the next ones."""
        if spent > MAX_TURN:
            self._portion = max(self._portion // 2, MIN_READ)
        elif self._portion < READ_SIZE and 4 * spent < MAX_TURN:
            self._portion = min(2 * self._portion, READ_SIZE)

    def _keep_time(self) -> None:
        machine = self._machine
        now = self._clock.now()
        if now >= self._leave_at:
            self._leave_at = NEVER
            machine.finish()
        due = machine.next_timeout()
        if due is not None and due <= now:
            events = machine.handle_timer(now)
            self._tell()
            if not self._useful:
                self._look_for_use(events)
            if events:
                self._lobby.handle(self, events, now)
            if machine.looks.waiting:
                self._useful = True
                self._lobby.looks.arrived(self)
        self._pass_on(self.flush())

    def _pass_on(self, events: list[Any]) -> None:
        """Hand on events that arose while sending; sending their consequences may bring more."""
        while events:
            self._tell()
            self._lobby.handle(self, events)
            events = self.flush()

    def _tell(self) -> None:
        """Tell of limits that the peer has exceeded."""
        exceeded = self._machine.exceeded
        while exceeded:
            limit = exceeded.pop()
            if limit.debt:
                self._debt = limit.debt
                if self.guest is not None:
                    self.guest.settle()
            self._lobby.exceeded(limit, self.peer)

    def _rearm(self) -> None:
        """Bring the alarm forward when a timeout before it was set, of HTTP/2 or for what a peer keeps waiting."""
        machine = self._machine
        due = machine.http2.due
        if machine.stalls.due < due:
            due = machine.stalls.due
        if due > self._leave_at:
            due = self._leave_at
        if due < self._armed:
            self._armed = due
            self._scope.deadline = self._clock.deadline(due)

    # --- writing

    def _write(self) -> None:
        machine, transport = self._machine, self._transport
        while True:
            data = machine.take(WRITE_SIZE)
            if not data:
                return
            try:
                sent = transport.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data) or transport.unsent:
                self._write_later(memoryview(data)[sent:])
                return
            if not machine.more:
                return

    def _write_later(self, rest: bytes | memoryview) -> None:
        self._unsent = rest
        self._writer = trio.Event()
        self._nursery.start_soon(self._write_rest)

    async def _write_rest(self) -> None:
        """Write until nothing is left, as the peer takes it."""
        transport, machine = self._transport, self._machine
        done = self._writer
        assert done is not None
        try:
            while self._unsent or transport.unsent:
                with trio.move_on_after(seconds(STREAM_STALL_TIMEOUT)) as waiting:
                    await transport.wait_writable()
                if waiting.cancelled_caught:
                    self._lobby.exceeded(UNREAD, self.peer)
                    raise TimeoutError("the peer does not read")
                sent = transport.try_send(self._unsent)
                self._unsent = self._unsent[sent:] or machine.take(WRITE_SIZE)
        except Exception as error:
            self.fail(error)
        finally:
            self._unsent = b""
            self._writer = None
            done.set()
        try:
            self._pass_on(self.flush())
        except TermEnded:
            pass  # the lobby has dismissed this connection like all others
        except Exception as error:
            self.fail(error)

    # --- the end

    def _end(self) -> None:
        """The machine's streams are over: tell the service. Idempotent."""
        if self._over:
            return
        self._over = True
        events = self._machine.receive_eof(self._clock.now())
        self._tell()
        if events:
            try:
                self._lobby.handle(self, events)
            except TermEnded:
                pass

    async def _part(self) -> None:
        """Let the last bytes leave, then read on for a moment.

        Closing with unread bytes would reset the connection, and the peer would lose what we said last (RFC 9112
        section 9.6 describes it for HTTP/1.1).
        """
        transport = self._transport
        with trio.move_on_after(seconds(CLOSE_TIMEOUT)):
            self.flush()
            while (writer := self._writer) is not None:
                await writer.wait()
            transport.send_eof()
            with trio.move_on_after(seconds(CLOSE_LINGER)):
                discarded = 0
                while discarded < MAX_CLOSE_DISCARD and (data := transport.try_receive()) != b"":
                    discarded += len(data or b"")
                    await transport.wait_readable()
