"""Leases: who holds which attempt, and for how long (engine.md section 6).

Leases run on *lease time*: ``now - excused``. Time that nobody could use (the process was stopped, a commit hung) is
added to ``excused`` and so moves every expiry and timeout at once, without touching a lease. While a commit hangs the
timers are parked: they neither fire nor ask for a wake-up.

A lease has one timer, set for the earlier of expiry and timeout. A heartbeat only notes the time; a timer that comes up
too early is set again. So a heartbeat costs nothing but a dictionary look-up.

Invariant: a lease is here as long as it is live, its task is RUNNING and points back, and only a held one has a timer.
"""

from cronoq_sansio.engine.task import Lease
from cronoq_sansio.engine.timers import TimerHeap


class Leases:
    """Every live lease of a term."""

    __slots__ = ("_timers", "excused", "live", "next_id", "parked")

    def __init__(self, first_id: int) -> None:
        self.live: dict[int, Lease] = {}
        self.next_id = first_id
        self.excused = 0
        """Nanoseconds since the term began that do not count against any lease."""
        self.parked = False
        self._timers: TimerHeap[Lease] = TimerHeap()

    def issue(self) -> int:
        """A lease id that was never used before."""
        lease_id = self.next_id
        self.next_id += 1
        return lease_id

    def held(self, lease_id: int) -> Lease | None:
        """The lease if a worker holds it; otherwise a report for it is stale."""
        lease = self.live.get(lease_id)
        return lease if lease is not None and lease.held else None

    def release(self, lease: Lease, now: int) -> None:
        """The worker has it from now on.

        A lease that passed to another worker keeps its first start for the timeout.
        """
        lease.held = True
        lease.beat = now - self.excused
        if lease.started < 0:
            lease.started = lease.beat
        lease.timer = self._timers.add(self._due(lease), lease)

    def withdraw(self, lease: Lease) -> None:
        """No worker has it any more; it may be released again."""
        lease.held = False
        if lease.timer is not None:
            self._timers.cancel(lease.timer)
            lease.timer = None

    def end(self, lease: Lease) -> None:
        """The lease is over."""
        self.withdraw(lease)
        lease.live = False
        del self.live[lease.id]

    def pop_due(self, now: int) -> tuple[Lease, bool] | None:
        """A held lease whose time is up, and whether it was its timeout (True) or its expiry (False)."""
        if self.parked:
            return None
        lease_now = now - self.excused
        while (lease := self._timers.pop_due(lease_now)) is not None:
            timeout = lease.task.spec.timeout
            if timeout is not None and lease.started + timeout <= lease_now:
                return lease, True
            if lease.beat + lease.task.pool.settings.lease_ttl <= lease_now:
                return lease, False
            lease.timer = self._timers.add(self._due(lease), lease)
        return None

    def next_timeout(self) -> int | None:
        """On the `now` scale; None without held leases and while parked."""
        due = None if self.parked else self._timers.next()
        return None if due is None else due + self.excused

    def _due(self, lease: Lease) -> int:
        expiry = lease.beat + lease.task.pool.settings.lease_ttl
        timeout = lease.task.spec.timeout
        return expiry if timeout is None else min(expiry, lease.started + timeout)
