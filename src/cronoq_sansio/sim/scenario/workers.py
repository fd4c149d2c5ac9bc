"""Workers of a scenario: they register over the service's protocol, run what they get, crash and come back.

A worker does what one of a library does: heartbeats every third of the lease's time to live, a report at the end, a
confirmation of each abort, and before it leaves no new leases while it finishes what it has. It has no processor: its
attempts take the time that was drawn for them, however many run beside each other.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.task import Lease
from cronoq_sansio.limits import PROTOCOL_VERSION
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages import (
    AttemptAborted,
    Complete,
    Fail,
    FromWorker,
    Heartbeat,
    Register,
    SetSlots,
    WorkerConnected,
    WorkerGone,
    WorkerSent,
    WorkerStream,
)
from cronoq_sansio.sim.scenario.draws import gap, generator
from cronoq_sansio.sim.scenario.words import Scenario, WorkerGroup

if TYPE_CHECKING:
    from cronoq_sansio.sim.scenario.count import Live

UP, LEAVING, DOWN, GONE = range(4)
"""Takes leases; finishes what it has; has crashed; is no more."""


class Attempt:
    """A lease on a worker."""

    __slots__ = ("end", "fails", "lease", "live", "over", "since", "worker")

    def __init__(self, worker: "Worker", lease: Lease, live: "Live", since: int, end: int, fails: bool) -> None:
        self.worker = worker
        self.lease = lease.id
        self.live = live
        self.since = since
        self.end = end
        self.fails = fails
        self.over = False


class Worker:
    """One worker, from its registration to its end."""

    __slots__ = ("attempts", "beat", "crew", "state", "stream")

    def __init__(self, crew: "Crew", beat: int) -> None:
        self.crew = crew
        self.beat = beat
        """Between two heartbeats."""
        self.stream = WorkerStream(self)
        self.attempts: dict[int, Attempt] = {}
        self.state = UP


class Crew:
    """The workers of one table."""

    __slots__ = ("coming", "group", "index", "random", "workers")

    def __init__(self, group: WorkerGroup, index: int, seed: int) -> None:
        self.group = group
        self.index = index
        self.workers: list[Worker] = []
        """Those that are up, in the order in which they joined."""
        self.coming = 0
        """With `follow`: decided, and not there yet. A crashed one comes back and counts as well."""
        self.random = generator(seed, f"workers[{index}]", "crashes")


class Fleet:
    """All workers. What they do becomes events for the service, or is put off on the clock of the run."""

    def __init__(
        self,
        scenario: Scenario,
        begin: int,
        later: Callable[[int, Callable[[Any], None], Any], None],
        events: list[Any],
        ended: Callable[[Attempt, int], None],
    ) -> None:
        """`later` calls a function at a time, `events` is what the service is told next, `ended` hears of each end."""
        self.now = begin
        self.running: dict[int, Attempt] = {}
        """Every attempt that a worker is at, by lease."""
        self._begin = begin
        self._later = later
        self._events = events
        self._ended = ended
        self._beats = {pool.name: max(pool.lease_ttl // 3, 1) for pool in scenario.settings.pools}
        self.crews = [Crew(group, index, scenario.seed) for index, group in enumerate(scenario.workers)]
        for crew in self.crews:
            if not crew.group.follow:
                later(begin + crew.group.start, self._open, crew)
            if crew.group.end < scenario.duration:
                later(begin + crew.group.end, self._shut, crew)

    # --- coming and going

    def follow(self, crew: Crew, desired: int) -> None:
        """Whoever starts these workers has looked at the target of the pool."""
        group = crew.group
        if not group.start <= self.now - self._begin < group.end:
            return
        others = sum(
            other.group.slots * len(other.workers)
            for other in self.crews
            if other is not crew and other.group.pool == group.pool
        )
        wanted = min(max(-(-(desired - others) // group.slots), 0), group.count)
        more = wanted - len(crew.workers) - crew.coming
        for _ in range(more):
            crew.coming += 1
            self._later(self.now + group.delay, self._join, crew)
        for _ in range(min(-more, len(crew.workers))):
            self.leave(crew.workers[-1])

    def leave(self, worker: Worker) -> None:
        """Finish what runs, take nothing new."""
        worker.crew.workers.remove(worker)
        worker.state = LEAVING
        self._say(worker, SetSlots(0))
        self._part(worker)

    def _open(self, crew: Crew) -> None:
        for _ in range(crew.group.count):
            crew.coming += 1
            self._join(crew)

    def _shut(self, crew: Crew) -> None:
        for worker in list(crew.workers):
            self.leave(worker)

    def _join(self, crew: Crew) -> None:
        group = crew.group
        crew.coming -= 1
        if self.now - self._begin >= group.end:
            return
        worker = Worker(crew, self._beats[group.pool])
        crew.workers.append(worker)
        self._events.append(WorkerConnected(worker.stream, ANYONE))
        self._say(worker, Register(group.pool, group.slots, group.name, PROTOCOL_VERSION, group.labels))
        if group.crash:
            self._later(self.now + gap(group.crash, crew.random), self._crash, worker)

    def _part(self, worker: Worker) -> None:
        if worker.state == LEAVING and not worker.attempts:
            worker.state = GONE
            self._events.append(WorkerGone(worker.stream, "it left"))

    def _crash(self, worker: Worker) -> None:
        if worker.state not in (UP, LEAVING):
            return
        crew = worker.crew
        if worker.state == UP:
            crew.workers.remove(worker)
            crew.coming += 1
            self._later(self.now + crew.group.restart, self._join, crew)
        worker.state = DOWN
        for attempt in worker.attempts.values():
            self._over(attempt)
        worker.attempts.clear()
        self._later(self.now + crew.group.noticed, self._noticed, worker)

    def refused(self, worker: Worker) -> None:
        """The server does not take it now, because too many are there that still leave: it tries again."""
        crew = worker.crew
        crew.workers.remove(worker)
        worker.state = GONE
        crew.coming += 1
        self._later(self.now + crew.group.restart, self._join, crew)

    def _noticed(self, worker: Worker) -> None:
        self._events.append(WorkerGone(worker.stream, "it crashed"))

    # --- leases

    def run(self, worker: Worker, lease: Lease, live: "Live", duration: int, fails: bool) -> Attempt | None:
        """A lease was sent to a worker; None when that is dead and nobody has noticed."""
        if worker.state == DOWN:
            return None
        attempt = Attempt(worker, lease, live, self.now, self.now + duration, fails)
        worker.attempts[lease.id] = self.running[lease.id] = attempt
        self._next(attempt)
        return attempt

    def abort(self, worker: Worker, lease_id: int) -> None:
        """The server gave up an attempt: the handler stops at once, and the worker confirms it."""
        attempt = worker.attempts.pop(lease_id, None)
        if attempt is not None:
            self._over(attempt)
            self._later(self.now, self._confirm, attempt)

    def _next(self, attempt: Attempt) -> None:
        beat = self.now + attempt.worker.beat
        if attempt.end <= beat:
            self._later(attempt.end, self._finish, attempt)
        else:
            self._later(beat, self._beat, attempt)

    def _beat(self, attempt: Attempt) -> None:
        if not attempt.over:
            self._say(attempt.worker, Heartbeat(attempt.lease))
            self._next(attempt)

    def _finish(self, attempt: Attempt) -> None:
        if attempt.over:
            return
        worker = attempt.worker
        del worker.attempts[attempt.lease]
        self._over(attempt)
        if attempt.fails:
            self._say(worker, Fail(attempt.lease, "it failed, as the scenario says", False, 0))
        else:
            self._say(worker, Complete(attempt.lease, b"", ""))
        self._part(worker)

    def _confirm(self, attempt: Attempt) -> None:
        worker = attempt.worker
        if worker.state in (UP, LEAVING):
            self._say(worker, AttemptAborted(attempt.lease))
            self._part(worker)

    def _over(self, attempt: Attempt) -> None:
        attempt.over = True
        del self.running[attempt.lease]
        self._ended(attempt, self.now)

    def _say(self, worker: Worker, message: FromWorker) -> None:
        self._events.append(WorkerSent(worker.stream, message))
