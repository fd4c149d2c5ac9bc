"""Leases: who holds which attempt, and for how long (engine.md section 6).

Leases run on *lease time*: ``now - excused``. Time that nobody could use (the process was stopped, a commit hung) is
added to ``excused`` and so moves every expiry and timeout at once, without touching a lease. While a commit hangs the
timers are parked: they neither fire nor ask for a wake-up.

A held lease has one entry in the heap, for the earlier of expiry and timeout, made when it is released. A heartbeat
only notes the time; an entry that comes up too early is made again. So a heartbeat costs nothing but a dictionary
look-up, and an end nothing here: the entry of a lease that is over is dropped when it comes up, or when such entries
outnumber the rest.

Invariant: a lease is here as long as it is live, its task is RUNNING and points back, and each held one has an entry.
"""

from heapq import heapify, heappop, heappush

from cronoq_sansio.engine.task import Lease

MIN_GARBAGE = 64  #: below this many entries of ended leases a rebuild costs more than it frees


class Leases:
    """Every live lease of a term."""

    __slots__ = ("excused", "heap", "live", "next_id", "parked")

    def __init__(self, first_id: int) -> None:
        self.live: dict[int, Lease] = {}
        self.next_id = first_id
        self.excused = 0
        """Nanoseconds since the term began that do not count against any lease."""
        self.parked = False
        self.heap: list[tuple[int, int, Lease]] = []
        """Due in lease time, id, lease; those that are over among them."""

    def held(self, lease_id: int) -> Lease | None:
        """The lease if a worker holds it; otherwise a report for it is stale."""
        lease = self.live.get(lease_id)
        return lease if lease is not None and lease.held else None

    def release(self, lease: Lease, now: int) -> None:
        """The worker has it from now on.

        A lease that passed to another worker keeps its first start for the timeout.
        """
        lease.held = True
        beat = now - self.excused
        if lease.started < 0:
            lease.started = lease.beat = beat
        elif beat > lease.beat:  # lease time may have gone back since its last release
            lease.beat = beat
        if not lease.timed:
            self._time(lease)

    def withdraw(self, lease: Lease) -> None:
        """No worker has it any more; it may be released again."""
        lease.held = False

    def pop_due(self, now: int) -> tuple[Lease, bool] | None:
        """A held lease whose time is up, and whether it was its timeout (True) or its expiry (False).

        What was due first comes first, between equals the older lease, however often anybody has looked before.
        """
        if self.parked:
            return None
        lease_now = now - self.excused
        heap = self.heap
        while heap and heap[0][0] <= lease_now:
            due, _, lease = heappop(heap)
            lease.timed = False
            if not lease.held:
                continue
            if due < _due(lease):  # there was a heartbeat; if its time is up nevertheless it comes up again
                self._time(lease)
                heap = self.heap
                continue
            timeout = lease.task.spec.timeout
            return lease, timeout is not None and lease.started + timeout <= lease_now
        return None

    def next_timeout(self) -> int | None:
        """On the `now` scale; None without held leases and while parked."""
        heap = self.heap
        while heap and not heap[0][2].held:
            heappop(heap)[2].timed = False
        return heap[0][0] + self.excused if heap and not self.parked else None

    def _time(self, lease: Lease) -> None:
        lease.timed = True
        heap = self.heap
        heappush(heap, (_due(lease), lease.id, lease))
        if len(heap) > MIN_GARBAGE and len(heap) > 2 * len(self.live):
            self.heap = [entry for entry in heap if entry[2].live]
            heapify(self.heap)


def _due(lease: Lease) -> int:
    """The earlier of expiry and timeout, in lease time."""
    task = lease.task
    due = lease.beat + task.pool.settings.lease_ttl
    timeout = task.spec.timeout
    return lease.started + timeout if timeout is not None and lease.started + timeout < due else due
