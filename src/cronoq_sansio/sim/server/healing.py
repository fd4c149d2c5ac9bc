"""The healed phase: no faults any more, good workers everywhere; everything must come to its end.

Nothing is chosen here, so that a trace holds the faulty phase alone. From now on

- one term serves: fenced ones find out, one with other settings or a stop under way ends in order, and if nobody is
  left a fresh one recovers;
- the wall clock stays as wrong as it is, and does not move;
- commits and queries are answered at once, and reports that were delayed arrive;
- good workers with slots stand by for each pool and each set of labels that a live task demands. Whatever ran when
  everything healed goes on for longer than a lease lasts, kept by heartbeats, where leases are short; all the rest
  succeeds at once;
- callers who never heard an answer ask again; somebody waits for each live task, somebody watches everything, and the
  schedules are removed.

Nobody cancels anything and nobody gives up, so what ends does so by itself: a task for which all conditions are there
runs, and one that waits for a key that nobody has is skipped by its pool. It must not take longer than `PATIENCE` after
the last fixed start, and the rest of the promises is looked at when all is quiet (`rest.py`).
"""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.errors import Code
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import RemoveRecurring
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server import rest
from cronoq_sansio.sim.server.callers import Ask
from cronoq_sansio.sim.server.node import Node
from cronoq_sansio.sim.server.workers import done
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.events import Labels
    from cronoq_sansio.sim.server.workers import Worker
    from cronoq_sansio.sim.server.world import ServerWorld

PATIENCE = 1_200 * SECOND
"""Of virtual time, after the last fixed start; the slowest resource serves the tasks of a world in a third of it."""
ROUNDS = 500
"""That everything may take, and so many more …"""
ROUNDS_PER_TASK = 12
"""… for each live task."""
SHORT_LEASE = 10 * SECOND
"""In pools with leases below this some attempts run for longer than a lease."""
GRACE = 5 * SECOND
CROWD = 12
"""Waiting tasks of a pool for which one more worker stands by, and slots that it has at least."""
MAX_WORKERS = 4
"""More of them for one pool and set of labels."""
MAX_WAITS = 64
SUCCEEDED = int(TaskStatus.SUCCEEDED)


def heal(world: "ServerWorld") -> None:
    """Bring everything to its end, and look whether all promises were kept. Raises `Violation`."""
    if world.narrator is not None:
        world.narrator.act("heal")
    Healing(world).run()


class Healing:
    """Of one world."""

    def __init__(self, world: "ServerWorld") -> None:
        self.world = world
        self._rows = world.store.rows
        self._callers = world.callers
        self._wake_for_beats = 0
        self._run_on: dict[int, int] = {}
        """Leases that run for longer, and until when."""
        self._joined: dict[tuple[str, Labels], None] = {}
        self._waits: dict[Ask, int] = {}
        """Calls of this phase that wait for a task."""
        self._again: list[int] = []
        """Tasks that somebody does not want to wait for any longer; once all have ended he asks again."""
        self._late = False
        """Whoever waits now waits for a task that has ended."""
        self._told: dict[Ask, dict[int, None]] = {}
        """Of each watch the ends that it was told of."""
        self._ended_before: frozenset[int] = frozenset()
        self._witness()

    def run(self) -> None:
        """The whole phase."""
        node = self._one_term()
        self._gather(node)
        self._converge(node)
        self._hold_promises(node)
        self._leave(node)
        baseline = rest.check(self.world, node)
        rest.check_recovery(self.world, node, baseline)

    # --- who serves

    def _one_term(self) -> Node:
        """Exactly one serves from now on."""
        world = self.world
        for node in world.nodes:
            node.doomed = 0
            if node.epoch != world.store.epoch:
                node.flush()
                if node.flight is None or node.apply():
                    node.end("fenced")
        if world.nodes:
            node = world.nodes[0]
            if not node.stopping and node.settings is world.settings:
                return node
            self._stop(node)
        return rest.fresh_term(world)

    def _stop(self, node: Node) -> None:
        """A stop in order comes to its end."""
        if not node.stopping:
            node.stopping = True
            node.handle(m.StopRequested(GRACE))
        for _ in range(ROUNDS):
            self._settle(node)
            if not node.serving:
                return
            if not self._pass_time(node):
                break
        raise Violation(Kind.LIVENESS, "a stop in order never ends", f"{node.engine.running} leases run")

    # --- what happens

    def _gather(self, node: Node) -> None:
        """Callers and workers do what they must do for everything to end."""
        world = self.world
        self._settle(node, work=False)
        self._ended_before = frozenset(self._finished())
        for worker in node.workers:
            if worker.leases and (ttl := node.engine.pool_settings(worker.pool).lease_ttl) < SHORT_LEASE:
                self._run_on |= dict.fromkeys(worker.leases, world.now + ttl + ttl // 2)
        for ask in node.asks:
            if ask.op == "watch":
                self._told[ask] = {}
        self._told[self._callers.ask(node, "watch", m.Watch((), (), (), False))] = {}
        unsure, self._callers.unsure = self._callers.unsure, []
        for task_id in list(node.engine.tasks.live)[:MAX_WAITS]:
            self._wait_for(node, task_id)
        for old in unsure:
            self._callers.ask(node, old.op, old.request, old.marker)

    def _converge(self, node: Node) -> None:
        """Let it happen until nothing is left to happen."""
        world, live = self.world, node.engine.tasks.live
        starts = [task.plan.start - node.engine.wall_offset - node.skew for task in live.values() if task.plan]
        until = max([world.now, *starts]) + PATIENCE
        rounds = ROUNDS + ROUNDS_PER_TASK * len(live)
        for _ in range(rounds):
            self._settle(node)
            if not live and not node.engine.running and not node.engine.recurring.armed:
                wake = node.wake()
                if wake is None or wake > world.now:
                    return
            if world.now > until:
                raise self._stuck(node, f"{PATIENCE // SECOND} s have passed")
            if not self._pass_time(node):
                raise self._stuck(node, "nothing will ever happen")
        raise self._stuck(node, f"{rounds} rounds were not enough")

    def _settle(self, node: Node, *, work: bool = True) -> None:
        """Everything that can happen now, without time: commits, answers of the store, reports, newcomers."""
        for _ in range(ROUNDS):
            node.flush()
            while node.flight is not None and node.serving:
                if node.apply():
                    node.confirm()
            while node.queries:
                node.answer_query(0)
            if work and node.serving:
                self._work(node)
                if not node.stopping:
                    self._help(node)
            if not node.inbox and node.flight is None:
                return
        raise Violation(Kind.LIVENESS, "a moment never ends", f"{ROUNDS} rounds at one instant")

    def _work(self, node: Node) -> None:
        """Workers report what they have done, and those that run on say so."""
        now, inbox = self.world.now, node.inbox
        beats = bool(self._run_on) and now >= self._wake_for_beats
        if beats:
            self._run_on = {lease: until for lease, until in self._run_on.items() if until > now}
            self._wake_for_beats = now + min(pool.lease_ttl for pool in node.settings.pools) // 3
        for worker in node.workers:
            stream = worker.stream
            inbox += [m.WorkerSent(stream, message) for _, message in worker.delayed]
            worker.delayed.clear()
            inbox += [m.WorkerSent(stream, m.AttemptAborted(lease)) for lease in worker.told_abort]
            worker.told_abort.clear()
            for lease in list(worker.leases):
                if self._run_on.get(lease, 0) > now:
                    if beats:
                        inbox.append(m.WorkerSent(stream, m.Heartbeat(lease)))
                else:
                    del worker.leases[lease]
                    self._run_on.pop(lease, None)
                    inbox.append(m.WorkerSent(stream, done(lease)))

    def _help(self, node: Node) -> None:
        """Workers come for whatever nobody could run, and schedules are removed."""
        for pool in node.engine.pools.values():
            for labels in pool.groups.demands:
                if (pool.name, labels) not in self._joined:
                    self._joined[pool.name, labels] = None
                    slots = max(pool.pending // MAX_WORKERS, CROWD)
                    for _ in range(1 + min(pool.pending // CROWD, MAX_WORKERS)):
                        self.world.workers.connect(node, pool.name, labels, slots)
        if node.engine.recurring.armed and not any(ask.op == "remove schedule" for ask in node.asks):
            for view in node.engine.list_recurring():
                self._callers.ask(node, "remove schedule", RemoveRecurring(view.spec.name))

    def _pass_time(self, node: Node) -> bool:
        """Until something happens by itself, or the next heartbeat; False when neither will ever be."""
        world = self.world
        wake = node.wake()
        if self._run_on and (wake is None or self._wake_for_beats < wake):
            wake = self._wake_for_beats
        if wake is None:
            return False
        world.advance(max(wake - world.now, 0))
        return True

    def _leave(self, node: Node) -> None:
        """Everybody goes."""
        for ask in list(node.asks):
            del node.asks[ask]
            node.inbox.append(m.CallEnded(ask.call))
        for worker in list(node.workers):
            del node.workers[worker]
            node.inbox.append(m.WorkerGone(worker.stream, "closed"))
        self._settle(node, work=False)

    # --- asking

    def _wait_for(self, node: Node, task_id: int) -> None:
        self._waits[self._callers.ask(node, "wait", m.Wait(task_id, None))] = task_id

    # --- what is said

    def _witness(self) -> None:
        """Hear what is said to callers and workers, after those who always hear it."""
        performers = self.world.performers
        for kind, hear in ((Answer, self._replied), (m.Reject, self._rejected), (m.SendEvent, self._event)):
            performers[kind] = _both(performers[kind], hear)
        performers[m.SendToWorker] = _both(self._worker_told, performers[m.SendToWorker])

    def _replied(self, _node: Node, action: Answer) -> None:
        self._waits.pop(action.request.sink, None)

    def _rejected(self, _node: Node, action: m.Reject) -> None:
        ask: Any = action.call.sink
        self._told.pop(ask, None)
        task_id = self._waits.pop(ask, 0)
        if not task_id:
            return
        rejection = action.rejection
        if rejection.code is Code.NOT_FOUND and self._late and self.world.store.volatile:
            return  # it forgets what has ended
        ended = self.world.ledger.ended_at.get(task_id, self.world.events) < self.world.events  # not at this instant
        if rejection.code is not Code.DEADLINE_EXCEEDED or ended:
            raise Violation(Kind.LIVENESS, "a wait does not get the end of its task", f"task {task_id}: {rejection}")
        self._again.append(task_id)

    def _event(self, _node: Node, action: m.SendEvent) -> None:
        if action.event.status >= SUCCEEDED:
            for call in action.calls:
                told = self._told.get(call.sink)  # type: ignore[call-overload]
                if told is not None:
                    told[action.event.task_id] = None

    def _worker_told(self, _node: Node, action: m.SendToWorker) -> None:
        worker: Worker = action.stream.sink  # type: ignore[assignment]
        message = action.message
        if type(message) is m.AbortLease and message.reason == "lease expired" and message.lease in worker.leases:
            raise Violation(Kind.LIVENESS, "a lease expires although its worker keeps it", f"lease {message.lease}")

    # --- whether it was as promised

    def _hold_promises(self, node: Node) -> None:
        """All tasks have ended: so has every call, and every watcher has heard of all of it."""
        self._late = True
        for task_id in self._again:
            self._wait_for(node, task_id)
        self._settle(node)
        for ask in node.asks:
            if ask.op != "watch":
                raise Violation(Kind.LIVENESS, "a call is never answered", f"{ask.op}: {ask.request}")
        ended = [task_id for task_id in self._finished() if task_id not in self._ended_before]
        for ask, told in self._told.items():
            if ask.node is node and (missing := [task_id for task_id in ended if self._owed(ask, task_id, told)]):
                raise Violation(Kind.LIVENESS, "a watcher never hears of an end", f"{ask.request}: tasks {missing}")

    def _owed(self, ask: Ask, task_id: int, told: dict[int, None]) -> bool:
        """The watcher wants this end, and was not told of it."""
        if task_id in told:
            return False
        request, spec = ask.request, self._rows.inserted[task_id].spec
        if request.pools and spec.pool not in request.pools:
            return False
        if not request.ids and not request.keys:
            return True
        return task_id in request.ids or (spec.key != "" and spec.key in request.keys)

    def _finished(self) -> list[int]:
        """Ids of the tasks that have ended, as far as the store knows."""
        return [task_id for task_id in self._rows.states if self._rows.finished(task_id) is not None]

    def _stuck(self, node: Node, why: str) -> Violation:
        """Something never ends."""
        live = list(node.engine.tasks.live.values())
        if live:
            task = live[0]
            what = f"a task never ends: {TaskStatus(task.status).name} in pool {task.spec.pool}"
            return Violation(Kind.LIVENESS, what, f"{why}; {len(live)} are left: {live[:5]}, {task.spec}")
        return Violation(Kind.LIVENESS, "the server never comes to rest", f"{why}; it wakes at {node.wake()}")


def _both(first: Any, second: Any) -> Any:
    """Do the one and then the other."""

    def perform(node: Node, action: Any) -> None:
        first(node, action)
        second(node, action)

    return perform
