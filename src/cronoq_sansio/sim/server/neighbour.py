"""Another tenant with a pool, workers and callers of its own, and very much to do."""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer, Submitted
from cronoq_sansio.service import messages as m
from cronoq_sansio.spec import Condition, Dependency, RetryOverride, Scheduling, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.choices import Choices
    from cronoq_sansio.sim.server.workers import Worker
    from cronoq_sansio.sim.server.world import ServerWorld

POOL, TENANT = "neighbour", "blue"
KEYS = tuple(f"neighbour {number}" for number in range(40))
NEEDS = (("press", 1), ("press", 2), ("ink", 1), ("ink", 3))
"""Of resources that nobody else needs."""
MAX_WORKERS = 6
MAX_OPEN = 100
KNOWN = 40  #: tasks that it remembers
ACTS = (*("crowd",) * 4, *("finish",) * 6, *("join",) * 2, "batch", "cancel", "watch", "fail", "cut", "die")


class Neighbour:
    """Acts on the one server of a world; whatever is not of the pool `POOL` is none of its business."""

    def __init__(self, world: "ServerWorld", choices: "Choices") -> None:
        self._world = world
        self._pick = choices.pick
        self._known: list[int] = []

    def act(self) -> None:
        """Does something, or several things at once."""
        for _ in range(self._pick((1, 1, 2))):
            getattr(self, self._pick(ACTS))()
            self._node.flush()

    def heard(self, action: Any) -> None:
        """It is told something."""
        if type(action) is Answer and isinstance(action.outcome, Submitted | m.SubmitReply):
            self._known.append(action.outcome.task_id)
            del self._known[:-KNOWN]

    # --- acts

    def crowd(self) -> None:
        """Submits many tasks, and waits for some."""
        for _ in range(self._pick((1, 3, 12))):
            waits = self._pick((False, False, True))
            wait_timeout = self._pick((None, SECOND)) if waits else None
            request = m.Submit(self._spec(), waits, wait_timeout)
            self._ask("submit and wait" if waits else "submit", request)

    def batch(self) -> None:
        """Submits many tasks as one."""
        keys = [self._pick(("", *KEYS)) for _ in range(self._pick((2, 20)))]
        self._ask("batch", m.SubmitBatch(tuple(self._spec(key) for key in dict.fromkeys(keys))))

    def cancel(self) -> None:
        """Takes back what it remembers."""
        for task_id in self._known[: self._pick((1, 10))]:
            if task_id in self._node.engine.tasks.live:
                self._ask("cancel", m.Cancel(task_id))

    def watch(self) -> None:
        """Watches its pool, and does not any more."""
        mine = [ask for ask in self._node.asks if ask.op == "watch" and ask.request.pools == (POOL,)]
        if len(mine) > 2:
            del self._node.asks[mine[0]]
            self._node.inbox.append(m.CallEnded(mine[0].call))
        self._ask("watch", m.Watch((POOL,), (), (), self._pick((True, False))))

    def join(self) -> None:
        """A worker comes."""
        if len(self._workers()) < MAX_WORKERS:
            labels = self._pick(((), (("press", "big"),)))
            self._world.workers.connect(self._node, POOL, labels, self._pick((1, 4, 8)))

    def finish(self) -> None:
        """Its workers have finished much of what they run."""
        for worker in self._workers():
            for lease in list(worker.leases):
                if self._pick((True, True, False)):
                    self._report(worker, lease, m.Complete(lease, b"", ""))

    def fail(self) -> None:
        """A worker fails in everything."""
        for worker in self._workers()[:1]:
            for lease in list(worker.leases):
                self._report(worker, lease, self._pick((m.Fail(lease, "broken", False, 0), m.Nack(lease, "busy"))))

    def cut(self) -> None:
        """A worker has other slots."""
        for worker in self._workers()[:1]:
            self._node.inbox.append(m.WorkerSent(worker.stream, m.SetSlots(self._pick((0, 1, 8)))))

    def die(self) -> None:
        """A worker is gone, whatever it runs."""
        for worker in self._workers()[:1]:
            del self._node.workers[worker]
            self._node.inbox.append(m.WorkerGone(worker.stream, "reset"))

    # --- inside

    @property
    def _node(self) -> Any:
        return self._world.nodes[0]

    def _workers(self) -> "list[Worker]":
        return [worker for worker in self._node.workers if worker.pool == POOL and worker.registered]

    def _report(self, worker: "Worker", lease: int, message: Any) -> None:
        del worker.leases[lease]
        self._node.inbox.append(m.WorkerSent(worker.stream, message))

    def _ask(self, op: str, request: Any) -> None:
        if len(self._node.asks) < MAX_OPEN:
            self._world.callers.ask(self._node, op, request)

    def _spec(self, key: str = "") -> TaskSpec:
        pick = self._pick
        wall = self._world.now + self._world.wall_shift
        retry = pick((None, RetryOverride(2, 0, None, None, False)))
        scheduling = Scheduling(
            pick((None, None, wall + SECOND, wall + 20 * SECOND)),
            None,
            pick((None, SECOND)),
            self._edges(),
            pick(((), *((need,) for need in NEEDS))),
            pick(((), (), (("press", "big"),))),
            TENANT,
            pick((None, None, None, wall + SECOND, wall + 4 * SECOND)),
        )
        given = (b"", "", "n", POOL, pick((0, 1, 2, 3)), key or pick(("", *KEYS[:8])), pick((None, 2 * SECOND)))
        return TaskSpec(*given, retry, (), pick((20, 100_000)), pick((None, scheduling)))

    def _edges(self) -> tuple[Dependency, ...]:
        if not self._known or self._pick((True, False)):
            return ()
        return (Dependency(self._pick(self._known), int(Condition.ON_COMPLETE)),)
