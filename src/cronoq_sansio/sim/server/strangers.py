"""Who hardly ever comes: workers and callers that do what is odd or forbidden, and zombies."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import AddRecurring, RemoveRecurring
from cronoq_sansio.sim.faults import BY_NAME
from cronoq_sansio.sim.lockstep.workload import GROUPS
from cronoq_sansio.sim.server.callers import MAX_OPEN
from cronoq_sansio.sim.server.specs import KEYS, NOBODY, POOLS, plain
from cronoq_sansio.sim.server.store import LEASES_PER_TERM
from cronoq_sansio.sim.server.workers import MAX_WORKERS, Worker
from cronoq_sansio.spec import Condition, Dependency, RetryOverride, Scheduling

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

MAX_OUTPUT = 1 << 16  #: bytes; where messages may be larger no output is too large
MANY_SLOTS = 10_000
PAGES = 20  #: of one listing
ODD_WORKERS = BY_NAME["odd worker"].meets
ODD_REQUESTS = BY_NAME["odd request"].meets
LATER = ("list to the end", "batch over the bound", "too many at once")
"""Odd requests that count when they are answered as what they are."""
LARGEST = 201  #: tasks of a batch that is too large


class Strangers:
    """Of one world."""

    OFTEN: ClassVar = {"haunt": 4, "report_too_late": 3, "come_oddly": 4, "ask_oddly": 5}

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._callers = world.callers
        self._workers = world.workers
        self._odd_workers: dict[str, Callable[[Node], bool]] = {
            "never registers": self._never_registers,
            "gone before it registers": self._gone_unregistered,
            "registers late": self._registers_late,
            "registers twice": self._registers_twice,
            "reports before it registers": self._reports_first,
            "unknown pool": self._to_no_pool,
            "old protocol": self._of_old,
            "too many slots": self._greedy,
            "empty message": self._says_nothing,
            "output too large": self._says_too_much,
        }
        self._odd_requests: dict[str, Callable[[Node], bool]] = {
            "list to the end": self._list_all,
            "watch of nobody": self._watch_nobody,
            "empty batch": self._empty_batch,
            "key twice in a batch": self._twin_batch,
            "circle in a batch": self._circle,
            "batch over the bound": self._large_batch,
            "too many at once": self._crowd,
        }

    # --- zombies

    def haunt(self) -> None:
        """A worker reports a lease that it has lost, or that was never its own."""
        world, workers = self._world, self._workers
        worker = workers.some(lambda worker: worker.registered)
        lost = self._pick((workers.lost_leases, workers.foreign_leases, None))
        if worker is None or lost == []:
            return
        if lost is None:
            leases = [lease for other in worker.node.workers if other is not worker for lease in other.leases]
            session: Any = worker.stream.session
            leases += [] if session is None else session.unsent  # on their way to it, and not its own before that
            held = worker.node.engine.leases.live
            leases = [lease for lease in leases if lease in held]
            if not leases:
                return
            lease, kind = self._pick(leases), "lease of another worker"
        else:
            lease = self._pick(lost)
            kind = "zombie" if lease // LEASES_PER_TERM == worker.node.epoch else "zombie of another term"
            hold = worker.node.holders.held.get(lease)
            if hold is not None and hold.stream is worker.stream:
                return  # what it said of it was lost: for the server it is the holder
        if not world.on(kind):
            return
        op, message = self._pick(late_reports(lease))
        if world.strikes(kind, op):
            _send(worker, message)

    def report_too_late(self) -> None:
        """A worker reports on a stream that is closed."""
        world = self._world
        closed = [worker for worker in self._workers.closed_ones if worker.node.serving]
        if not closed or not world.on("report after the end"):
            return
        worker = self._pick(closed)
        lease = next(iter(worker.leases), NOBODY)
        op, message = self._pick((*late_reports(lease), ("slots", m.SetSlots(3))))
        if world.strikes("report after the end", op):
            _send(worker, message)

    # --- odd workers

    def come_oddly(self) -> None:
        """A worker does what workers hardly ever do."""
        world = self._world
        node = world.some_node()
        if node is not None and world.on("odd worker"):
            what = self._pick(ODD_WORKERS)
            if self._odd_workers[what](node) and what != "never registers":  # that one counts when it is sent away
                world.strike("odd worker", what)

    def _never_registers(self, node: "Node") -> bool:
        return self._newcomer(node) is not None

    def _gone_unregistered(self, node: "Node") -> bool:
        worker = self._unregistered(node) or self._newcomer(node)
        if worker is None:
            return False
        self._workers.gone(worker, "reset")
        return True

    def _registers_late(self, node: "Node") -> bool:
        worker = self._unregistered(node)
        if worker is None:
            return False
        self._workers.register(worker)
        return True

    def _registers_twice(self, node: "Node") -> bool:
        worker = self._registered(node)
        if worker is None:
            return False
        self._workers.register(worker)
        return True

    def _reports_first(self, node: "Node") -> bool:
        worker = self._newcomer(node)
        if worker is None:
            return False
        lost = self._workers.lost_leases
        lease = self._pick(lost) if lost else NOBODY
        _, message = self._pick((*late_reports(lease), ("slots", m.SetSlots(1)), ("nothing", m.EmptyMessage())))
        _send(worker, message)
        return True

    def _to_no_pool(self, node: "Node") -> bool:
        worker = self._newcomer(node)
        if worker is None:
            return False
        worker.pool = "nowhere"
        self._workers.register(worker)
        return True

    def _of_old(self, node: "Node") -> bool:
        worker = self._newcomer(node)
        if worker is None:
            return False
        self._workers.register(worker, self._pick((0, 1, 2)))
        return True

    def _greedy(self, node: "Node") -> bool:
        worker = self._newcomer(node, MANY_SLOTS)
        if worker is None:
            return False
        self._workers.register(worker)
        return True

    def _says_nothing(self, node: "Node") -> bool:
        worker = self._registered(node)
        if worker is None:
            return False
        _send(worker, m.EmptyMessage())
        return True

    def _says_too_much(self, node: "Node") -> bool:
        over = self._pick((0, 1))
        size = node.settings.limits.max_message_bytes - MESSAGE_HEADROOM + over
        found = [worker for worker in node.workers if worker.leases]
        if not found or size > MAX_OUTPUT:
            return False
        worker = self._pick(found)
        _send(worker, m.Complete(self._workers.take(worker), bytes(size), ""))
        return over > 0  # else it just fits

    def _newcomer(self, node: "Node", slots: int = 2) -> Worker | None:
        if len(node.workers) >= MAX_WORKERS:
            return None
        return self._workers.open(node, self._pick(POOLS), self._pick(GROUPS), slots)

    def _unregistered(self, node: "Node") -> Worker | None:
        return next((worker for worker in node.workers if not worker.asked), None)

    def _registered(self, node: "Node") -> Worker | None:
        return next((worker for worker in node.workers if worker.registered), None)

    # --- odd requests

    def ask_oddly(self) -> None:
        """A caller asks for what callers hardly ever ask for."""
        world = self._world
        node = self._callers.node()
        if node is None or not world.on("odd request"):
            return
        what = self._pick(ODD_REQUESTS)
        make = self._odd_requests.get(what)
        if make is None:
            op, request = self._odd(what)
            self._callers.request(node, op, request)
        elif not make(node) or what in LATER:
            return
        world.strike("odd request", what)

    def _odd(self, what: str) -> tuple[str, m.Request]:
        """A single request that is odd."""
        pick, specs = self._pick, self._callers.specs
        if what == "unknown id" or what == "unknown key":
            ref = NOBODY if what == "unknown id" else "nobody"
            looks: tuple[tuple[str, m.Request], ...] = (
                ("get", m.Get(ref)),
                ("wait", m.Wait(ref, SECOND)),
                ("cancel", m.Cancel(ref)),
            )
            return pick(looks)
        if what == "wait for no time":
            if pick((True, False)):
                return "wait", m.Wait(specs.ref(), 0)
            return "submit and wait", m.Submit(specs.spec(), True, 0)
        if what == "unknown pool":
            return "submit", m.Submit(replace(specs.spec(), pool="nowhere"), False, None)
        if what == "unknown resource":
            scheduling = Scheduling(resources=pick(((("nothing", 1),), (("db", 1_000),))))
            return "submit", m.Submit(plain(pick(POOLS), "", scheduling), False, None)
        if what == "no attempts":
            spec = replace(plain(pick(POOLS), ""), retry=RetryOverride(0, None, None, None, None))
            return "submit", m.Submit(spec, False, None)
        if what == "unknown schedule":
            return "remove schedule", RemoveRecurring("nobody's")
        schedule = specs.schedule()
        if what == "bad cron":
            return "add schedule", AddRecurring(replace(schedule, cron=pick(("61 * * * *", "0 0 31 2 *", ""))))
        assert what == "bad time zone", what
        return "add schedule", AddRecurring(replace(schedule, tz="Mars/Base"))

    def _list_all(self, node: "Node") -> bool:
        newest = max(self._world.ledger.recent, default=0)
        after = self._pick((0, 0, max(newest - PAGES, 0)))
        self._callers.list_on(node, m.ListTasks(self._pick(((), ("a",))), (), after, self._pick((1, 3, 50))), PAGES)
        return True

    def _watch_nobody(self, node: "Node") -> bool:
        """What is watched does not exist, perhaps not yet."""
        known = self._world.ledger.recent
        task_id = max(known, default=0) + self._pick((1, 2, 3))
        request = m.Watch((), (NOBODY, task_id), ("nobody", self._pick(KEYS)), self._pick((False, True)))
        self._callers.request(node, "watch", request)
        return True

    def _empty_batch(self, node: "Node") -> bool:
        self._callers.submit_as_one(node, ())
        return True

    def _twin_batch(self, node: "Node") -> bool:
        keys = (self._pick(KEYS), self._pick(KEYS))
        self._callers.submit_as_one(node, (*keys, self._pick(keys)))
        return True

    def _large_batch(self, node: "Node") -> bool:
        """More than may be in one batch, or than may wait in the pool in which all of it is to run."""
        pools = node.settings.pools
        bound = node.settings.limits.max_tasks_per_batch
        pool = self._pick([pool for pool in pools if pool.max_pending < LARGEST] or pools)
        if bound >= LARGEST or self._pick((True, False)):
            bound = pool.max_pending
        if bound >= LARGEST:
            return False
        marker = self._callers.marker()
        spec = replace(plain(pool.name, ""), content_type=marker)
        self._callers.submit_marked(node, marker, (spec,) * (bound + 1)).odd = "batch over the bound"
        return True

    def _circle(self, node: "Node") -> bool:
        """Two tasks of a batch that wait for each other, or one that waits for itself."""
        pool, (first, second) = self._pick(POOLS), self._pick((KEYS[:2], KEYS[2:4], (KEYS[0], KEYS[0])))
        specs = tuple(
            plain(pool, key, Scheduling(dependencies=(Dependency(other, int(Condition.ON_COMPLETE)),)))
            for key, other in ((first, second), (second, first))[: 1 if first == second else 2]
        )
        self._callers.request(node, "batch", m.SubmitBatch(specs))
        return True

    def _crowd(self, node: "Node") -> bool:
        """More calls in one read than may be open."""
        bound = node.settings.limits.max_concurrent_requests
        if bound > MAX_OPEN:
            return False
        for _ in range(bound + 1 + bound // 2):  # some of them are answered at once
            if self._pick((True, True, False)):
                ask = self._callers.request(node, "submit", m.Submit(plain(self._pick(POOLS), ""), False, None))
            else:
                ask = self._callers.request(node, "get", m.Get(self._callers.specs.ref()))
        ask.odd = "too many at once"  # the last one comes when all others are there
        return True


def _send(worker: Worker, message: m.FromWorker) -> None:
    worker.node.inbox.append(m.WorkerSent(worker.stream, message))


def late_reports(lease: int) -> tuple[tuple[str, m.FromWorker], ...]:
    """Everything that can be said of a lease."""
    return (
        ("complete", m.Complete(lease, b"late", "")),
        ("fail", m.Fail(lease, "late", False, 0)),
        ("nack", m.Nack(lease, "late")),
        ("heartbeat", m.Heartbeat(lease)),
        ("aborted", m.AttemptAborted(lease)),
    )
