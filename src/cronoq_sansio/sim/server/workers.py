"""What workers do: register, run, report, refuse, change their slots, die, and come back as somebody else."""

from typing import TYPE_CHECKING, Any, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import Labels
from cronoq_sansio.limits import PROTOCOL_VERSION, REGISTER_TIMEOUT
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.lockstep.workload import GROUPS
from cronoq_sansio.sim.server.specs import POOLS

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

MAX_WORKERS = 10  #: of one node
MAX_LOST = 8  #: leases, and streams, that zombies remember
SLOTS = (1, 2, 3, 5, 9)  #: of one worker, as far as its pool allows
OVERTAKEN = 12  #: messages of a read among which one is looked for that another can overtake
MANY = 20  #: leases of one worker that it ends together
OUTPUT_TYPES = ("", "text/plain", "application/json")
"""Content types of outputs."""


class Worker:
    """One worker stream, as the worker sees it. It is the stream's sink."""

    __slots__ = (
        *("asked", "came", "delayed", "labels", "leases", "node", "number", "pool", "registered", "slots", "stream"),
        "told_abort",
    )

    def __init__(self, number: int, node: "Node", pool: str, labels: Labels, slots: int) -> None:
        self.number = number
        self.node = node
        self.pool = pool
        self.labels = labels
        self.slots = slots
        self.stream = m.WorkerStream(self)
        self.came = node.now
        self.asked = False
        """It has said who it is."""
        self.registered = False
        """It was told so."""
        self.leases: dict[int, int] = {}
        """What it runs: task ids by lease id."""
        self.told_abort: dict[int, None] = {}
        self.delayed: list[tuple[str, Any]] = []
        """Reports on their way, which others overtake: each with what it is."""

    def __str__(self) -> str:
        return f"worker {self.number}"


class Workers:
    """All workers of one world."""

    OFTEN: ClassVar = {
        "join": 7,
        "finish": 18,
        "fail": 6,
        "refuse": 4,
        "beat": 6,
        "beat_at_the_edge": 5,
        "change_slots": 4,
        "confirm": 3,
        "deliver": 4,
        "leave": 2,
        "die": 4,
    }

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._number = 0
        rarer = {"report lost": 1, "report delayed": 1, "report duplicated": 1, "worker death": 8}
        self._lots = world.swarm.lots(rarer)
        self.lost_leases: list[int] = []
        """Of workers that are gone: what zombies report."""
        self.foreign_leases: list[int] = []
        """The same of terms that are over."""
        self.closed_ones: list[Worker] = []
        """Those whose streams were closed last."""

    # --- acts

    def join(self) -> None:
        """A worker comes."""
        node = self._world.some_node()
        if node is None or len(node.workers) >= MAX_WORKERS:
            return
        pool, labels = self._pick(POOLS), self._pick(GROUPS)
        self.connect(node, pool, labels, self._pick(SLOTS))

    def connect(self, node: "Node", pool: str, labels: Labels, slots: int) -> Worker:
        """A worker with these connects, and registers."""
        worker = self.open(node, pool, labels, slots)
        self.register(worker)
        return worker

    def open(self, node: "Node", pool: str, labels: Labels, slots: int) -> Worker:
        """A worker connects, and says nothing yet."""
        self._number += 1
        worker = Worker(self._number, node, pool, labels, slots)
        node.workers[worker] = None
        node.inbox.append(m.WorkerConnected(worker.stream, ANYONE))
        return worker

    def register(self, worker: Worker, version: int = PROTOCOL_VERSION) -> None:
        """It says who it is."""
        worker.asked = True
        register = m.Register(worker.pool, worker.slots, "", version, worker.labels)
        worker.node.inbox.append(m.WorkerSent(worker.stream, register))

    def finish(self) -> None:
        """A worker, or several, have finished."""
        for _ in range(self._pick((1, 2, 2, 4, 4, 8))):
            worker = self._busy()
            if worker is None:
                return
            many = len(worker.leases) >= MANY
            for lease in list(worker.leases) if many else (self.take(worker),):
                if worker not in worker.node.workers:
                    break  # it died when it reported
                if many and worker.leases.pop(lease, None) is None:
                    continue  # it was told to stop meanwhile
                self.report(worker, "complete", done(lease))

    def fail(self) -> None:
        """A worker failed."""
        for _ in range(self._pick((1, 1, 2))):
            worker = self._busy()
            if worker is None:
                return
            permanent, retry_after = self._pick((False, False, True)), self._pick((0, 0, 3 * SECOND))
            self.report(worker, "fail", m.Fail(self.take(worker), "broken", permanent, retry_after))

    def refuse(self) -> None:
        """Workers pass leases on."""
        for _ in range(self._pick((1, 1, 2))):
            worker = self._busy()
            if worker is None:
                return
            self.report(worker, "nack", m.Nack(self.take(worker), "busy"))

    def beat(self) -> None:
        """Workers say that they still run what they have."""
        node = self._world.some_node()
        if node is None:
            return
        for worker in node.workers:
            for lease in worker.leases:
                self.report(worker, "heartbeat", m.Heartbeat(lease))

    def beat_at_the_edge(self) -> None:
        """A heartbeat arrives around the very end of a lease, or of the time that its attempt has."""
        world = self._world
        worker = self._busy()
        if worker is None or not world.on("heartbeat at the edge"):
            return
        node = worker.node
        held = [lease_id for lease_id in worker.leases if lease_id in node.holders.held]
        if not held:
            return
        lease_id = self._pick(held)
        lease = node.engine.leases.live.get(lease_id)
        if lease is None or not lease.held:
            return
        end, timeout = "expiry", lease.task.spec.timeout
        beat = lease.beat
        ends = beat + node.engine.pool_settings(worker.pool).lease_ttl
        if timeout is not None and self._pick((True, True, False)):
            end, ends = "timeout", lease.started + timeout
        edge, later = self._pick((("1 ns before", 0), ("at", 1), ("1 ns after", 2)))
        wait = ends - 1 + node.engine.leases.excused - node.now
        if wait < 0:
            return
        world.operators.let_pass(wait)
        there = node.serving and worker in node.workers and lease_id in node.holders.held
        if not there or lease.beat != beat or node.now != ends - 1 + node.engine.leases.excused:
            return  # something has ended it before, or it has another end now
        if later and self._pick((False, True)):
            world.now += later  # and its timer is late by so much
        else:
            world.advance(later)
        if node.serving and worker in node.workers:
            world.strike("heartbeat at the edge", f"{edge} {end}")
            node.inbox.append(m.WorkerSent(worker.stream, m.Heartbeat(lease_id)))

    def change_slots(self) -> None:
        """A worker offers more or fewer slots."""
        worker = self.some(lambda worker: worker.registered)
        if worker is None:
            return
        slots = self._pick((0, 1, 2, 3, 5, 9))
        session: Any = worker.stream.session
        unsent = 0 if session is None else len(session.unsent)
        if slots < len(worker.leases) + unsent:
            met = "held" if slots < len(worker.leases) else "unsent"
            if not self._world.strikes("slots cut", met, 2 if met == "unsent" else 1):
                return
        worker.slots = slots
        self._beat_before(worker)
        self.report(worker, "slots", m.SetSlots(slots))

    def _beat_before(self, worker: Worker) -> None:
        if worker.leases and self._world.one_in(3):
            self.report(worker, "heartbeat", m.Heartbeat(next(iter(worker.leases))))

    def confirm(self) -> None:
        """A worker confirms that it has stopped what it was told to stop, or cancels by itself."""
        worker = self.some(lambda worker: bool(worker.told_abort))
        if worker is not None:
            lease = self._pick(list(worker.told_abort))
            del worker.told_abort[lease]
            self._beat_before(worker)
            self.report(worker, "aborted", m.AttemptAborted(lease))
            return
        worker = self._busy()
        if worker is not None:
            self.report(worker, "aborted", m.AttemptAborted(self.take(worker)))

    def deliver(self) -> None:
        """Reports arrive that were delayed, in any order."""
        worker = self.some(lambda worker: bool(worker.delayed))
        if worker is not None:
            op, message = worker.delayed.pop(self._pick(range(len(worker.delayed))))
            self._world.strike("report delayed", op)
            worker.node.inbox.append(m.WorkerSent(worker.stream, message))

    def leave(self) -> None:
        """A worker that runs nothing leaves."""
        worker = self.some(lambda worker: worker.registered and not worker.leases)
        if worker is not None:
            self.gone(worker, "closed")

    def die(self) -> None:
        """A worker's connection is gone."""
        worker = self.some(lambda worker: worker.registered)
        if worker is None:
            return
        session: Any = worker.stream.session
        points = ["running", "done before the report"] if worker.leases else []
        if session is not None and session.unsent:
            points.append("before the lease")
        if not points:
            return
        point = self._pick(points)
        if self._world.strikes("worker death", point):
            if point == "done before the report":
                self._die_done(worker)
            else:
                self.gone(worker, "reset")

    def _die_done(self, worker: Worker) -> None:
        """It has finished, and its connection is gone with the report. It comes back and reports on a new one."""
        lease = self.take(worker)
        self.gone(worker, "reset")
        back = self.connect(worker.node, worker.pool, worker.labels, worker.slots)
        worker.node.inbox.append(m.WorkerSent(back.stream, done(lease)))

    # --- reporting

    def report(self, worker: Worker, op: str, message: Any) -> None:
        """A report leaves the worker; what the network makes of it."""
        world = self._world
        fault = self._pick(self._lots)
        if fault == "report delayed":  # which counts when it arrives
            worker.delayed.append((op, message))
            return
        if fault and fault != "worker death":
            world.strike(fault, op)
            if fault == "report lost":
                return
        node = worker.node
        inbox, sent = node.inbox, m.WorkerSent(worker.stream, message)
        inbox.append(sent)
        if len(inbox) > 1 and world.swarm.rates["report reordered"]:
            self._overtake(op, sent, inbox)
        if node.epoch != world.store.epoch:
            world.strike("stale leader", "report")
        if fault == "report duplicated":
            inbox.append(m.WorkerSent(worker.stream, message))
        elif fault == "worker death" and op in ("complete", "fail"):
            self._die_uncommitted(worker, message.lease)

    def _die_uncommitted(self, worker: Worker, lease: int) -> None:
        """Its report is taken in, and it is gone before that is durable, if it takes a commit to be that."""
        node = worker.node
        known = node.engine.leases.live.get(lease)
        node.flush()
        if known is None or not node.serving or worker not in node.workers:
            return
        if any(getattr(record, "task_id", 0) == known.task.id for record in node.unwritten()):
            self._world.strike("worker death", "after the report before the commit")
            self.gone(worker, "reset")

    def _overtake(self, op: str, sent: m.WorkerSent, inbox: list[Any]) -> None:
        """The newest report may come before the one that its worker sent before it in the same read."""
        for index in range(len(inbox) - 2, max(len(inbox) - OVERTAKEN, -1), -1):
            before = inbox[index]
            if type(before) is m.WorkerSent and before.stream is sent.stream:
                if self._world.strikes("report reordered", op, 1 if op in ("complete", "heartbeat") else 4):
                    inbox[index], inbox[-1] = sent, before
                return

    def take(self, worker: Worker) -> int:
        """One of the leases that the worker runs; it runs it no more."""
        lease = self._pick(list(worker.leases))
        del worker.leases[lease]
        self._remember(lease)
        return lease

    def _remember(self, lease: int) -> None:
        self.lost_leases.append(lease)
        if len(self.lost_leases) > MAX_LOST:
            del self.lost_leases[0]

    def gone(self, worker: Worker, why: str) -> None:
        """The connection is over on the worker's side."""
        node = worker.node
        del node.workers[worker]
        for lease in worker.leases:
            self._remember(lease)
        node.inbox.append(m.WorkerGone(worker.stream, why))
        self._close(worker)

    def _close(self, worker: Worker) -> None:
        self.closed_ones.append(worker)
        if len(self.closed_ones) > MAX_LOST:
            del self.closed_ones[0]

    def _busy(self) -> Worker | None:
        return self.some(_runs_something)

    def some(self, wanted: Any) -> Worker | None:
        """A worker of some node, of those that are wanted."""
        node = self._world.some_node()
        if node is None:
            return None
        found = [worker for worker in node.workers if wanted(worker)]
        return self._pick(found) if found else None

    # --- what the server says

    def leased(self, node: "Node", action: m.SendLease) -> None:
        """A worker is given a lease."""
        worker: Any = action.stream.sink
        self._world.words += action.lease.id ^ action.lease.task.id
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
        if node.workers.pop(worker, worker) is None:
            self._close(worker)
            if not worker.asked and node.now >= worker.came + REGISTER_TIMEOUT:
                self._world.strike("odd worker", "never registers")
        for lease in worker.leases:
            self._remember(lease)

    def lost(self, node: "Node") -> None:
        """The term of a node is over: its workers are sent away, and may go on with what they run."""
        self.foreign_leases = [*self.foreign_leases, *self.lost_leases][-MAX_LOST:]
        self.lost_leases.clear()
        for worker in node.workers:
            worker.stream.open = False
            for lease in worker.leases:
                self._remember(lease)
        node.workers.clear()


def _runs_something(worker: Worker) -> bool:
    return bool(worker.leases)


def done(lease: int) -> m.Complete:
    """The report that a lease is done: an output of its own, of one of the content types."""
    return m.Complete(lease, b"%d" % lease, OUTPUT_TYPES[lease % len(OUTPUT_TYPES)])
