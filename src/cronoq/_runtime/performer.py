"""Performs the service's actions on connections: every sink is a stream of a machine that a `Connection` owns.

Performing queues messages in the machines; `flush` writes each touched connection once. What goes wrong with one
connection ends that connection and is seen by nobody else.

Workers that come and go are logged from here (`worker_log.py`), where every end of a stream passes, whoever ended it
and wherever that was noticed. A stream that is over before its `Registered` is sent is not a worker. Fires of schedules
that did not happen are logged too, see `drop_log.py`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cronoq._runtime.drop_log import DropLog
from cronoq._runtime.worker_log import WorkerLog
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.events import Labels
from cronoq_sansio.limits import MAX_LOGGED_LABELS
from cronoq_sansio.service.messages import (
    Call,
    CloseWorker,
    ReadStore,
    Registered,
    Reject,
    SendEvent,
    SendLease,
    SendToWorker,
    StartEvents,
    StatusEvent,
    StopFinished,
    StoreQuery,
    WorkerStream,
)
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.worker_session import Session

if TYPE_CHECKING:
    from cronoq._runtime.connection import Connection
    from cronoq._runtime.lobby import Lobby


class Performer:
    """What a term does to the outside world. One per term; the connections outlive it."""

    def __init__(self, lobby: "Lobby", stopped: Callable[[], None]) -> None:
        """`stopped` hears that a graceful stop is complete."""
        self.ask: Callable[[StoreQuery], None] = _nobody_asks
        """Asks the store; set by whoever makes the driver, which needs the performer first."""
        self._lobby = lobby
        self._stopped = stopped
        self.touched: list[Connection] = []
        """Of those that did not say themselves that they flush what is sent now."""
        self._counts = lobby.calls
        self._drops = DropLog()
        self._log = WorkerLog()
        self._workers: dict[WorkerStream, dict[str, Any]] = {}
        """What the log said of each registered worker: it says the same of its end."""

    def perform(self, actions: Sequence[Any]) -> None:
        """Perform in order. Never raises for what concerns one connection."""
        counts = self._counts
        for action in actions:
            kind = type(action)
            sink: Any
            if kind is Answer:
                sink = action.request.sink
            elif kind is SendLease:
                sink = action.stream.sink
            elif kind is Reject or kind is StartEvents:
                sink = action.call.sink
            elif kind is ReadStore:
                self.ask(action.query)
                continue
            elif kind is StopFinished:
                self._log.close()
                self._stopped()
                continue
            elif kind is SendEvent:
                for call in action.calls:
                    self._send_event(call, action.event)
                continue
            elif kind is LogDrop:
                self._drops.note(action.drop)
                continue
            else:
                sink = action.stream.sink
            if sink is None:
                continue
            connection = sink.connection.owner
            if not connection.touched:
                self._touch(connection)
            try:
                if kind is Answer:
                    refused = sink.reply(action.outcome)
                    counts[sink.route.name, "ok" if refused is None else refused.code.value] += 1
                elif kind is SendLease:
                    sink.send(action.lease)
                elif kind is Reject:
                    sink.reject(action.rejection)
                    counts[sink.route.name, action.rejection.code.value] += 1
                elif kind is SendToWorker:
                    sink.send(action.message)
                    if type(action.message) is Registered:
                        self._registered(action.stream, action.message)
                elif kind is CloseWorker:
                    sink.close(action.rejection)
                    if action.rejection is not None:
                        counts[sink.route.name, action.rejection.code.value] += 1
                    if action.stream in self._workers:
                        self._gone(action)
                elif kind is StartEvents:
                    sink.start()
                else:
                    raise AssertionError(f"no such action: {kind.__name__}")
            except Exception as error:
                connection.fail(error)

    def _touch(self, connection: "Connection") -> None:
        """It is flushed next."""
        connection.touch()
        self.touched.append(connection)

    def _send_event(self, call: Call, event: StatusEvent) -> None:
        """Nothing happens to a call that has ended: its sink knows."""
        sink: Any = call.sink
        if sink is None:
            return
        connection = sink.connection.owner
        if not connection.touched:
            self._touch(connection)
        try:
            sink.send_event(event)
        except Exception as error:
            connection.fail(error)

    def flush(self) -> list[Any]:
        """Write each touched connection once; returns the events that arose while sending."""
        touched = self.touched
        self.touched = []
        events: list[Any] = []
        for connection in touched:
            connection.touched = False
            events += connection.flush()
        return events

    def hold(self, calls: bool, workers: bool) -> None:
        """Stop (True) or go on (False) giving flow-control credit to calls and to worker streams."""
        self._lobby.hold(calls, workers)

    def looked(self, duration: int) -> None:
        """What came of a list that the store was asked for took so many nanoseconds, until now."""
        self._lobby.looks.spent(duration)

    def tick(self) -> None:
        """Called now and then: tell of workers that had no line."""
        self._log.tick()

    def ended(self) -> None:
        """The term ended otherwise than by a graceful stop."""
        for connection in self.touched:
            connection.touched = False
        self.touched = []
        self._log.close()
        self._lobby.lost()

    def _registered(self, stream: WorkerStream, message: Registered) -> None:
        fields = worker_fields(stream)
        if fields:
            sink: Any = stream.sink
            fields["peer"] = sink.connection.owner.peer
            self._workers[stream] = fields
            self._log.registered(fields, message.slots)

    def _gone(self, action: CloseWorker) -> None:
        fields = self._workers.pop(action.stream)
        why = action.why or (action.rejection.message if action.rejection is not None else "")
        self._log.disconnected(fields, why)


def worker_fields(stream: WorkerStream) -> dict[str, Any]:
    """What a log says about a registered worker; empty for a stream that has not registered, or is over."""
    session = stream.session
    if not isinstance(session, Session) or session.group is None:
        return {}
    fields: dict[str, Any] = {"worker": session.id, "pool": session.group.pool}
    if session.name:
        fields["name"] = session.name
    if session.group.labels:
        fields["labels"] = labels_text(session.group.labels)
    return fields


def labels_text(labels: Labels) -> str:
    """As many of the labels as `limits.MAX_LOGGED_LABELS` has room for, at least a part of the first, then a count."""
    pairs = [f"{name}={value}" for name, value in labels]
    text = ",".join(pairs)
    shown = len(pairs)
    while len(text) > MAX_LOGGED_LABELS and shown > 1:
        shown -= 1
        text = f"{','.join(pairs[:shown])} … and {len(pairs) - shown} more"
    if len(text) > MAX_LOGGED_LABELS:
        rest = f"… and {len(pairs) - 1} more" if len(pairs) > 1 else "…"
        text = pairs[0][: MAX_LOGGED_LABELS - len(rest)] + rest
    return text


def _nobody_asks(query: StoreQuery) -> None:
    raise AssertionError("the performer was not connected to a driver")
