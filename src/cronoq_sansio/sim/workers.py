"""What workers do: register, run, report, refuse, change their slots, die, and come back as somebody else."""

from typing import TYPE_CHECKING, Any, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import Labels
from cronoq_sansio.limits import PROTOCOL_VERSION
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.lockstep.workload import GROUPS
from cronoq_sansio.sim.specs import POOLS

if TYPE_CHECKING:
    from cronoq_sansio.sim.node import Node
    from cronoq_sansio.sim.world import ServerWorld

MAX_WORKERS = 10  #: of one node
MAX_LOST = 8  #: leases that zombies remember


class Worker:
    """One worker stream, as the worker sees it. It is the stream's sink."""

    __slots__ = ("delayed", "labels", "leases", "node", "number", "pool", "registered", "slots", "stream", "told_abort")

    def __init__(self, number: int, node: "Node", pool: str, labels: Labels, slots: int) -> None:
        self.number = number
        self.node = node
        self.pool = pool
        self.labels = labels
        self.slots = slots
        self.stream = m.WorkerStream(self)
        self.registered = False
        self.leases: dict[int, int] = {}
        """What it runs: task ids by lease id."""
        self.told_abort: dict[int, None] = {}
        self.delayed: list[Any] = []
        """Reports on their way, which others overtake."""

    def __str__(self) -> str:
        return f"worker {self.number}"


class Workers:
    """All workers of one world."""

    OFTEN: ClassVar = {
        "join": 6,
        "finish": 30,
        "fail": 8,
        "refuse": 4,
        "beat": 6,
        "beat_at_the_edge": 2,
        "change_slots": 4,
        "confirm": 4,
        "haunt": 3,
        "deliver": 4,
        "leave": 2,
        "die": 2,
    }

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._number = 0
        self.lost_leases: list[int] = []
        """Of workers that are gone: what zombies report."""

    # --- acts

    def join(self) -> None:
        """A worker comes."""
        node = self._world.some_node()
        if node is None or len(node.workers) >= MAX_WORKERS:
            return
        pool, labels = self._pick(POOLS), self._pick(GROUPS)
        self.connect(node, pool, labels, self._pick((1, 1, 2, 3)))

    def connect(self, node: "Node", pool: str, labels: Labels, slots: int) -> None:
        """A worker with these connects, and registers."""
        self._number += 1
        worker = Worker(self._number, node, pool, labels, slots)
        node.workers[worker] = None
        node.inbox.append(m.WorkerConnected(worker.stream, ANYONE))
        node.inbox.append(m.WorkerSent(worker.stream, m.Register(pool, slots, "", PROTOCOL_VERSION, labels)))

    def finish(self) -> None:
        """A worker, or several, have finished."""
        for _ in range(self._pick((1, 2, 4))):
            worker = self._busy()
            if worker is None:
                return
            lease = self._take(worker)
            self._report(worker, "complete", m.Complete(lease, b"%d" % lease, ""))

    def fail(self) -> None:
        """A worker failed."""
        worker = self._busy()
        if worker is not None:
            permanent, retry_after = self._pick((False, False, True)), self._pick((0, 0, 3 * SECOND))
            self._report(worker, "fail", m.Fail(self._take(worker), "broken", permanent, retry_after))

    def refuse(self) -> None:
        """A worker passes a lease on."""
        worker = self._busy()
        if worker is not None:
            self._report(worker, "nack", m.Nack(self._take(worker), "busy"))

    def beat(self) -> None:
        """A worker says that it still runs what it has."""
        worker = self._busy()
        if worker is not None:
            for lease in worker.leases:
                self._report(worker, "heartbeat", m.Heartbeat(lease))

    def beat_at_the_edge(self) -> None:
        """A heartbeat arrives around the very end of a lease."""
        world = self._world
        worker = self._busy()
        if worker is None or not world.on("heartbeat at the edge"):
            return
        node = worker.node
        lease_id = self._pick(list(worker.leases))
        lease = node.engine.leases.live.get(lease_id)
        if lease is None or not lease.held:
            return
        expires = lease.beat + node.engine.pool_settings(worker.pool).lease_ttl + node.engine.leases.excused
        edge, when = self._pick((("1 ns early", -1), ("in the very moment", 0), ("1 ns late", 1)))
        world.advance(max(expires + when - node.now, 0))
        if node.serving and worker in node.workers:
            world.strike("heartbeat at the edge", edge)
            node.inbox.append(m.WorkerSent(worker.stream, m.Heartbeat(lease_id)))

    def change_slots(self) -> None:
        """A worker offers more or fewer slots."""
        worker = self._some(lambda worker: worker.registered)
        if worker is None:
            return
        slots = self._pick((0, 1, 2, 3))
        if slots < len(worker.leases) or (slots < worker.slots and self._pick((False, True))):
            session: Any = worker.stream.session
            unsent = session is not None and len(session.unsent) > 0
            met = "unsent" if unsent else "held" if worker.leases else "idle"
            if not self._world.strikes("slots cut", met):
                return
        worker.slots = slots
        self._report(worker, "slots", m.SetSlots(slots))

    def confirm(self) -> None:
        """A worker confirms that it has stopped what it was told to stop, or cancels by itself."""
        worker = self._some(lambda worker: bool(worker.told_abort))
        if worker is not None:
            lease = self._pick(list(worker.told_abort))
            del worker.told_abort[lease]
            self._report(worker, "aborted", m.AttemptAborted(lease))
            return
        worker = self._busy()
        if worker is not None:
            self._report(worker, "aborted", m.AttemptAborted(self._take(worker)))

    def haunt(self) -> None:
        """A worker reports a lease that it has lost, or that was never its own."""
        world = self._world
        worker = self._some(lambda worker: worker.registered)
        if worker is None or not self.lost_leases or not world.on("zombie"):
            return
        lease = self._pick(self.lost_leases)
        reports: tuple[tuple[str, m.FromWorker], ...] = (
            ("complete", m.Complete(lease, b"late", "")),
            ("fail", m.Fail(lease, "late", False, 0)),
            ("nack", m.Nack(lease, "late")),
            ("heartbeat", m.Heartbeat(lease)),
            ("aborted", m.AttemptAborted(lease)),
        )
        op, message = self._pick(reports)
        if world.strikes("zombie", op):
            worker.node.inbox.append(m.WorkerSent(worker.stream, message))

    def deliver(self) -> None:
        """Reports arrive that were delayed, in any order."""
        worker = self._some(lambda worker: bool(worker.delayed))
        if worker is not None:
            message = worker.delayed.pop(self._pick(range(len(worker.delayed))))
            worker.node.inbox.append(m.WorkerSent(worker.stream, message))

    def leave(self) -> None:
        """A worker that runs nothing leaves."""
        worker = self._some(lambda worker: worker.registered and not worker.leases)
        if worker is not None:
            self._gone(worker, "closed")

    def die(self) -> None:
        """A worker's connection is gone."""
        worker = self._some(lambda worker: worker.registered)
        if worker is None:
            return
        session: Any = worker.stream.session
        if session is not None and session.unsent:
            point = "before the lease"
        elif worker.delayed:
            point = "done before the report"
        elif worker.leases:
            point = "running"
        else:
            return
        if self._world.strikes("worker death", point):
            self._gone(worker, "reset")

    # --- reporting

    def _report(self, worker: Worker, op: str, message: Any) -> None:
        """A report leaves the worker; what the network makes of it."""
        world = self._world
        if world.on("report lost") and world.strikes("report lost", op):
            return
        if world.on("report delayed") and world.strikes("report delayed", op):
            worker.delayed.append(message)
            return
        inbox = worker.node.inbox
        inbox.append(m.WorkerSent(worker.stream, message))
        if world.on("report duplicated") and world.strikes("report duplicated", op):
            inbox.append(m.WorkerSent(worker.stream, message))
        reported = op in ("complete", "fail") and world.on("worker death")
        if reported and world.strikes("worker death", "after the report before the commit"):
            self._gone(worker, "reset")

    def _take(self, worker: Worker) -> int:
        """One of the leases that the worker runs; it runs it no more."""
        lease = self._pick(list(worker.leases))
        del worker.leases[lease]
        self._remember(lease)
        return lease

    def _remember(self, lease: int) -> None:
        self.lost_leases.append(lease)
        if len(self.lost_leases) > MAX_LOST:
            del self.lost_leases[0]

    def _gone(self, worker: Worker, why: str) -> None:
        """The connection is over on the worker's side."""
        node = worker.node
        del node.workers[worker]
        for lease in worker.leases:
            self._remember(lease)
        node.inbox.append(m.WorkerGone(worker.stream, why))

    def _busy(self) -> Worker | None:
        return self._some(_runs_something)

    def _some(self, wanted: Any) -> Worker | None:
        node = self._world.some_node()
        if node is None:
            return None
        found = [worker for worker in node.workers if wanted(worker)]
        return self._pick(found) if found else None

    # --- what the server says

    def leased(self, node: "Node", action: m.SendLease) -> None:
        """A worker is given a lease."""
        worker: Any = action.stream.sink
        self._world.ledger.leased(node, worker, action.lease)
        if worker in node.workers:
            worker.leases[action.lease.id] = action.lease.task.id

    def told(self, node: "Node", action: m.SendToWorker) -> None:
        """A worker is told something else."""
        worker: Any = action.stream.sink
        message = action.message
        node.holders.told(worker, message)
        if type(message) is m.Registered:
            worker.registered = True
        elif type(message) is m.AbortLease:
            worker.leases.pop(message.lease, None)
            worker.told_abort[message.lease] = None
            self._remember(message.lease)

    def closed(self, node: "Node", action: m.CloseWorker) -> None:
        """The server ends a stream."""
        worker: Any = action.stream.sink
        node.holders.closed(worker)
        node.workers.pop(worker, None)
        for lease in worker.leases:
            self._remember(lease)

    def lost(self, node: "Node") -> None:
        """The term of a node is over: its workers are sent away, and may go on with what they run."""
        for worker in node.workers:
            worker.stream.open = False
            for lease in worker.leases:
                self._remember(lease)
        node.workers.clear()


def _runs_something(worker: Worker) -> bool:
    return bool(worker.leases)
