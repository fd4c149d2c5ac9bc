"""One session of a worker on one stream: feeds the session machine, does what it asks.

The task that runs it reads. Two more belong to it: one sleeps until the machine's next timeout, one writes what the
stream did not take at once and closes the sending side. Handlers are started by the run, which outlives the session.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

import anyio

from cronoq._client import worker_codec
from cronoq._client.calls import Stream
from cronoq._client.link import NEVER
from cronoq._client.loops import Loop
from cronoq._client.places import Place
from cronoq._client.worker_lease import Lease
from cronoq.errors import ClientError
from cronoq_sansio import limits
from cronoq_sansio.clock import seconds
from cronoq_sansio.errors import RemoteProtocolError
from cronoq_sansio.worker.session import REGISTERING, SERVING, STOPPING, WorkerSession
from cronoq_sansio.worker.words import (
    EarlierExited,
    Effect,
    HandlerExited,
    Held,
    Input,
    Interrupt,
    Leave,
    Outcome,
    Part,
    Registered,
    Start,
    StopAsked,
    StreamEnded,
)

log = logging.getLogger("cronoq.client")


class Owner(Protocol):
    """The run that a session belongs to."""

    pool: str
    loop: Loop

    def on_registered(self, registered: Registered) -> None:
        """The server accepted the worker."""

    def on_server_leaves(self, reason: str, not_leader: bool) -> None:
        """The server has told that it goes."""

    def start_handler(self, session: "SessionStream", held: Held) -> None:
        """Run the handler in a `Place`, which is the `task` of `held`; `handler_exited` once it is over."""


class SessionStream:
    """From Register to the end of the stream."""

    def __init__(self, owner: Owner, stream: Stream, slots: int, busy: int) -> None:
        self.machine = WorkerSession(slots, busy=busy)
        self._now = owner.loop.now
        self._owner = owner
        self._stream = stream
        self._lease_ttl: float | None = None
        self._reading = anyio.CancelScope()
        self._sender = anyio.Event()
        self._sent = anyio.Event()
        self._flushing = False
        """`_flush` is to be called before the next write."""
        self._waiting_for_room = False
        self._encode = worker_codec.Encoder().encode
        self._parting = False
        self._timer: anyio.CancelScope | None = None
        self._armed = NEVER
        self._warned_late = False
        self._why: ClientError | None = None

    async def run(self, name: str, labels: dict[str, str]) -> ClientError:
        """Serve until the stream is over; what it ended with."""
        self._stream.send_all([worker_codec.register(self._owner.pool, self.machine.requested, name, labels)])
        self._reading.deadline = anyio.current_time() + seconds(limits.WORKER_REGISTER_TIMEOUT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_time)
            tasks.start_soon(self._send)
            try:
                error = await self._read()
            finally:
                # Before the tasks are joined, so that handlers hear of it even when this is cancelled.
                self.tell(StreamEnded())
                tasks.cancel_scope.cancel()
        return error

    # --- what the run tells

    def stop(self, until: int) -> None:
        """Drain: handlers may go on until then."""
        self.tell(StopAsked(until))

    def handler_exited(self, held: Held, outcome: Outcome) -> None:
        """A handler of this session is over."""
        machine = self.machine
        effects = machine.handle(HandlerExited(held, outcome), self._now())
        if effects or not self._flushing or machine.state is not SERVING:  # else there is nothing more to do about it
            self._perform(effects)

    def earlier_exited(self) -> None:
        """A handler of an earlier session is over."""
        self.tell(EarlierExited())

    def tell(self, event: Input) -> None:
        """Give the machine an input and do what it asks."""
        self._perform(self.machine.handle(event, self._now()))

    # --- the tasks

    async def _read(self) -> ClientError:
        stream = self._stream
        error = None
        try:
            with self._reading:
                while (messages := await stream.receive_all()) is not None:
                    self._take(messages)
                    while self.machine.congested:
                        self._sent = anyio.Event()
                        await self._sent.wait()
        except ClientError as failure:
            error = failure
        except TimeoutError as late:
            error = late.__cause__ if isinstance(late.__cause__, ClientError) else None
        except RemoteProtocolError as fault:
            error = ClientError("internal", str(fault))
        if self._reading.cancelled_caught:
            error = self._why or self._silence()
        return error or ClientError("unavailable", "the server ended the stream")

    def _take(self, messages: list[Any]) -> None:
        """What the server said, all of it before anything is answered. `RemoteProtocolError` when it may not say it."""
        machine, pool, now = self.machine, self._owner.pool, self._now()
        effects: list[Effect] = []
        try:
            for message in messages:
                event = worker_codec.read(message, pool, self._lease_ttl)
                if event is None:
                    continue
                effects += machine.handle(event, now)
                if type(event) is Registered and machine.registered is not None:
                    self._registered(machine.registered)
        except RemoteProtocolError as fault:
            assert isinstance(fault.reply, list)
            effects += fault.reply
            raise
        finally:
            self._perform(effects)

    def _silence(self) -> ClientError:
        if self._parting:
            return ClientError("unavailable", "the server did not end the stream")
        waited = seconds(limits.WORKER_REGISTER_TIMEOUT)
        return ClientError("unavailable", f"the server did not answer the registration within {waited:g} s")

    async def _send(self) -> None:
        """Send what had to wait; then close the sending side when it is time to."""
        while True:
            await self._sender.wait()
            self._sender = anyio.Event()
            while True:
                await self._stream.wait_room()  # before the message is chosen: a heartbeat may be obsolete by then
                message = self.machine.next_message()
                if message is None:
                    break
                self._stream.send_all([self._encode(message)])
                self._sent.set()
            self._waiting_for_room = False
            if self._parting:
                await self._stream.half_close()
                self._reading.deadline = anyio.current_time() + seconds(limits.WORKER_PART_TIMEOUT)
                return

    async def _keep_time(self) -> None:
        while True:
            due = self.machine.next_timeout()
            self._armed = NEVER if due is None else due
            with anyio.CancelScope(deadline=seconds(self._armed)) as self._timer:
                await anyio.sleep_forever()
            self._perform(self.machine.handle_timer(self._now()))
            self._warn_late()

    def _warn_late(self) -> None:
        late, ttl = self.machine.late_by, self._lease_ttl
        if ttl is not None and seconds(late) > ttl / 3 and not self._warned_late:
            self._warned_late = True
            log.warning(
                "heartbeats went out %.1f s late, of %.1f s after which a lease counts as lost: something blocks the "
                "event loop; do blocking work in a sync handler, or in a thread",
                seconds(late),
                ttl,
            )

    # --- what the machine asks for

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Start:
                self._owner.start_handler(self, effect.held)
            else:
                _PERFORMERS[type(effect)](self, effect)
        if not self._flushing and self.machine.has_messages:
            self._flushing = True
            self._stream.before_write(self._flush)
        timer = self._timer
        if timer is not None and self.machine.due < self._armed:
            due = self.machine.next_timeout()
            if due is not None and due < self._armed:
                self._armed = due
                timer.deadline = seconds(due)

    def _flush(self) -> None:
        """Send what the stream takes at once; the sending task does the rest."""
        self._flushing = False
        if self._waiting_for_room or self._parting:
            return
        stream, machine, encode = self._stream, self.machine, self._encode
        if machine.state in (REGISTERING, STOPPING):
            return
        messages: list[bytes] = []
        room = stream.room
        while room > 0:
            message = machine.next_message()
            if message is None:
                break
            messages.append(encode(message))
            room -= len(messages[-1])
        else:
            self._waiting_for_room = True
            self._sender.set()
        if messages:
            stream.send_all(messages)
            self._sent.set()

    def _registered(self, registered: Registered) -> None:
        if not self._parting:
            self._reading.deadline = float("inf")
        self._lease_ttl = worker_codec.ttl_seconds(registered)
        if registered.max_message_bytes is not None:
            largest = registered.max_message_bytes + limits.MESSAGE_HEADROOM
            self._stream.max_receive_bytes = max(self._stream.max_receive_bytes, largest)
        self._owner.on_registered(registered)

    def _interrupt(self, effect: Interrupt) -> None:
        held = effect.held
        assert isinstance(held.job, Lease)
        log.debug("task %d is cut off: %s", held.job.task_id, effect.reason)
        held.job.cancelled.set()
        cast(Place, held.task).cancel()

    def _part(self, effect: Part) -> None:
        self._parting = True
        self._reading.deadline = anyio.current_time() + seconds(limits.WORKER_PART_TIMEOUT)
        self._sender.set()

    def _leave(self, effect: Leave) -> None:
        self._why = ClientError("unavailable", effect.reason or "the server shuts down")
        self._owner.on_server_leaves(effect.reason, effect.not_leader)
        self._reading.cancel()


_PERFORMERS: dict[type, Callable[[SessionStream, Any], None]] = {
    Interrupt: SessionStream._interrupt,
    Part: SessionStream._part,
    Leave: SessionStream._leave,
}
