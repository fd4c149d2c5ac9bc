"""One worker stream as a state machine, and the group of workers that its slots belong to.

Theory. A session is in one of four states:

    CONNECTED   the stream is open, nothing was said; a timer ends it after `limits.REGISTER_TIMEOUT`
    REGISTERED  the worker has an id, offers slots, may get leases and report on them
    LEAVING     it was told Shutdown; its leases were given up, whatever it still says is ignored
    CLOSED      the stream is over

`TRANSITIONS` lists, for each state and input, the method of `Workers` that has the effect and the state afterwards.
What it does not list is ignored: that is so for everything in LEAVING and CLOSED, where a peer may not have heard
yet.

Slots. A session offers `slots`; leases fill them from their dispatch on, sent or not. `leases` may be more than
`slots` when the worker lowered its offer while running. What a group offers to the engine is Σ max(slots, leases), so
that an overcommitted worker's lease is never mistaken for a free slot elsewhere; `capacity` is that sum, as told to
the engine.

Invariant: a session is in its group's `free` exactly while it has fewer leases than slots.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Container, Mapping
from enum import Enum
from typing import Any

from cronoq_sansio.engine.events import Labels
from cronoq_sansio.engine.task import Lease
from cronoq_sansio.limits import LISTED_LABEL, LISTED_WORKER
from cronoq_sansio.service.messages import (
    AttemptAborted,
    Complete,
    EmptyMessage,
    Fail,
    Heartbeat,
    Nack,
    Register,
    SetSlots,
    WorkerStream,
)


class State(Enum):
    """Where a session stands."""

    CONNECTED = "connected"
    REGISTERED = "registered"
    LEAVING = "leaving"
    CLOSED = "closed"


class Gone:
    """Input: the stream is over on the worker's side."""


class Late:
    """Input: no message came within `limits.REGISTER_TIMEOUT`."""


class Crowded:
    """Input: too many streams have not registered, and this one has had the most time."""


class Stop:
    """Input: the server stops."""


CONNECTED, REGISTERED, LEAVING, CLOSED = State

TRANSITIONS: dict[tuple[State, type], tuple[str, State]] = {
    (CONNECTED, Register): ("register", REGISTERED),  # or CLOSED, when a check refuses it
    (CONNECTED, SetSlots): ("refuse_unregistered", CLOSED),
    (CONNECTED, Heartbeat): ("refuse_unregistered", CLOSED),
    (CONNECTED, Complete): ("refuse_unregistered", CLOSED),
    (CONNECTED, Fail): ("refuse_unregistered", CLOSED),
    (CONNECTED, Nack): ("refuse_unregistered", CLOSED),
    (CONNECTED, AttemptAborted): ("refuse_unregistered", CLOSED),
    (CONNECTED, EmptyMessage): ("refuse_unregistered", CLOSED),
    (CONNECTED, Late): ("refuse_late", CLOSED),
    (CONNECTED, Crowded): ("make_room", CLOSED),
    (CONNECTED, Gone): ("refuse_unregistered", CLOSED),
    (CONNECTED, Stop): ("refuse_stopped", CLOSED),
    (REGISTERED, Register): ("refuse_second_register", CLOSED),
    (REGISTERED, SetSlots): ("set_slots", REGISTERED),
    (REGISTERED, Heartbeat): ("heartbeat", REGISTERED),
    (REGISTERED, Complete): ("complete", REGISTERED),
    (REGISTERED, Fail): ("fail", REGISTERED),
    (REGISTERED, Nack): ("nack", REGISTERED),
    (REGISTERED, AttemptAborted): ("attempt_aborted", REGISTERED),
    (REGISTERED, Gone): ("disconnect", CLOSED),
    (REGISTERED, Stop): ("shut_down", LEAVING),
    (LEAVING, Gone): ("leave", CLOSED),
}


Effect = Callable[["Session", Any], None]


class Session:
    """One worker stream."""

    __slots__ = (
        "aborted",
        "cap",
        "connected",
        "group",
        "id",
        "inputs",
        "leases",
        "name",
        "slots",
        "state",
        "stream",
        "timer",
        "unsent",
    )

    def __init__(self, stream: WorkerStream) -> None:
        self.stream = stream
        self.state = State.CONNECTED
        self.inputs: Mapping[type, tuple[Effect, State]] = {}
        """The row of `TRANSITIONS` for the state, with the methods bound."""
        self.timer: object = None
        """Of the register timeout, while CONNECTED."""
        self.id = 0
        """1, 2, …; 0 until registered."""
        self.name = ""
        self.connected = 0
        """When it registered, wall time."""
        self.group: Group | None = None
        self.slots = 0
        self.cap = 0
        """The most slots that this worker may offer."""
        self.leases: dict[int, Lease] = {}
        """What fills its slots, in the order of dispatch."""
        self.unsent: dict[int, Lease] = {}
        """Those of its leases that it was not sent yet: the outbox holds them."""
        self.aborted: dict[int, None] = {}
        """Leases that it was told to abort and has not confirmed, oldest first; bounded by `max_queued`."""

    def remember_abort(self, lease_id: int) -> None:
        """The worker may confirm this one without being counted as stale."""
        if len(self.aborted) >= self.stream.max_queued:
            del self.aborted[next(iter(self.aborted))]
        self.aborted[lease_id] = None


class Group:
    """Workers of one pool with the same labels: for the engine they are one number of slots."""

    __slots__ = ("_last", "capacity", "free", "labels", "pool", "sessions", "size")

    def __init__(self, pool: str, labels: Labels) -> None:
        self.pool = pool
        self.labels = labels
        self.size = LISTED_WORKER + sum(LISTED_LABEL + len(f"{name}{text}".encode()) for name, text in labels)
        """Bytes that it takes, or one of its workers, where they are listed: an estimate, not too small."""
        self.sessions: dict[int, Session] = {}
        self.free: list[int] = []
        """Ids of the sessions with a free slot, sorted."""
        self.capacity = 0
        self._last = 0

    def add(self, session: Session) -> None:
        """A worker registered."""
        self.sessions[session.id] = session
        self.capacity += session.slots
        self._set_free(session.id, session.slots > 0)

    def remove(self, session: Session) -> None:
        """A worker left; its leases are not the group's any more."""
        self.capacity -= max(session.slots, len(session.leases))
        self._set_free(session.id, False)
        del self.sessions[session.id]

    def fill(self, session: Session, lease: Lease) -> None:
        """A lease takes one of the session's free slots."""
        session.leases[lease.id] = session.unsent[lease.id] = lease
        if len(session.leases) >= session.slots:
            self._set_free(session.id, False)

    def empty(self, session: Session, lease_id: int) -> bool:
        """A lease gives its slot back. True when this lowered the capacity: the worker was overcommitted."""
        del session.leases[lease_id]
        session.unsent.pop(lease_id, None)
        running = len(session.leases)
        if running >= session.slots:
            self.capacity -= 1
            return True
        if running == session.slots - 1:
            self._set_free(session.id, True)
        return False

    def resize(self, session: Session, slots: int) -> None:
        """The session offers another number of slots; the caller has taken what exceeds them, as far as it may."""
        running = len(session.leases)
        self.capacity += max(slots, running) - max(session.slots, running)
        session.slots = slots
        self._set_free(session.id, running < slots)

    def choose(self, refused: Collection[int] = ()) -> Session | None:
        """The next worker in id order after the last one, with a free slot, that has not refused; O(log n)."""
        free = self.free
        if len(free) == 1 and not refused:
            self._last = worker_id = free[0]
            return self.sessions[worker_id]
        start = bisect_right(free, self._last)
        for offset in range(len(free)):
            worker_id = free[(start + offset) % len(free)]
            if worker_id not in refused:
                self._last = worker_id
                return self.sessions[worker_id]
        return None

    @property
    def offered(self) -> int:
        """Σ slots: the capacity as people see it."""
        return sum(session.slots for session in self.sessions.values())

    def has_room(self, refused: Container[int]) -> bool:
        """True when some worker that has not refused has a free slot."""
        return any(worker_id not in refused for worker_id in self.free)

    def _set_free(self, worker_id: int, is_free: bool) -> None:
        free = self.free
        at = bisect_left(free, worker_id)
        present = at < len(free) and free[at] == worker_id
        if is_free and not present:
            insort(free, worker_id)
        elif present and not is_free:
            del free[at]

    def check_invariants(self) -> None:
        """Free list, capacity and back references agree with the sessions."""
        sessions = self.sessions
        assert sessions, f"group {self.labels} of pool {self.pool} has no workers and was not dropped"
        assert self.free == sorted(id for id, session in sessions.items() if len(session.leases) < session.slots)
        assert self.capacity == sum(max(session.slots, len(session.leases)) for session in sessions.values())
        for worker_id, session in sessions.items():
            assert session.id == worker_id and session.group is self and session.state is State.REGISTERED
            assert 0 <= session.slots <= session.cap
            assert len(session.aborted) <= session.stream.max_queued
