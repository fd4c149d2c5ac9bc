"""What happens at once: several acts in one read, and herds of tasks that are due at one instant."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import AddRecurring, RemoveRecurring
from cronoq_sansio.sim.faults import BY_NAME
from cronoq_sansio.sim.server.specs import POOLS, plain
from cronoq_sansio.sim.server.workers import MAX_WORKERS, Worker
from cronoq_sansio.sim.server.worlds import HUGE
from cronoq_sansio.spec import Condition, Dependency, Overlap, RecurringSpec, RetryOverride, Scheduling, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

READ = 1_000
"""Calls of one read while a herd gathers."""
SLOTS = 1_000
"""Of one worker for a herd."""
PILE = 5 * READ
"""Calls of a huge herd after which the store is waited for, where it is late."""
WATCHERS = 12
PATIENT = ("b", "c")
"""Pools that wait for keys that nobody has, whatever the world."""
LEAST = 20
"""Fewer tasks are no herd."""
ROUNDS = 8
"""Transactions for which a herd waits while it gathers."""
HOUR = 3_600 * SECOND
RETRY = RetryOverride(3, 2 * SECOND, 1.0, None, False)
"""Without jitter, so that all wait equally long."""
ALONE = frozenset(("beat_at_the_edge",))
"""Acts in which time passes, so that they cannot be part of a read."""


class Together:
    """Of one world."""

    OFTEN: ClassVar = {"gather": 70, "herd": 4}

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._herds = 0
        parts = [
            getattr(who, name)
            for who in (world.callers, world.workers, world.strangers)
            for name, often in type(who).OFTEN.items()
            if name not in ALONE
            for _ in range(often)
        ]
        self._parts = [*parts, *[world.operators.commit] * 12, world.operators.answer]
        self._kinds: dict[str, Callable[[Node, int], bool]] = {
            "fixed starts": self._fixed_starts,
            "retries": self._retries,
            "children": self._children,
            "schedules": self._schedules,
        }

    # --- acts

    def gather(self) -> None:
        """A read brings what several peers do."""
        world = self._world
        for _ in range(self._pick((1, 2, 3, 4, 6, 8))):
            if not world.nodes:
                return
            part = self._pick(self._parts)
            if world.narrator is not None:
                world.narrator.act(f"and {part.__name__}")
            part()

    def herd(self) -> None:
        """Very many tasks are due at one instant."""
        world = self._world
        node = world.some_node()
        if node is None or not world.on("herd"):
            return
        alone = world.herd >= HUGE and not self._herds  # for which the world is made
        if not alone and not world.one_in(max(world.swarm.rates["herd"] // 4, 1)):
            return
        kind = self._pick(BY_NAME["herd"].meets)
        size = world.herd
        if self._herds:
            size = min(size, READ // 8)  # the huge one comes once
        elif size >= HUGE:
            self._watch(node)
        self._herds += 1
        if self._kinds[kind](node, size):
            world.strike("herd", kind)

    def _watch(self, node: "Node") -> None:
        """So many watch everything that their events are too many."""
        for _ in range(self._pick((0, 0, WATCHERS))):
            self._world.callers.ask(node, "watch", m.Watch((), (), (), all_transitions=True))

    # --- kinds of herds. Each returns True when it was due.

    def _fixed_starts(self, node: "Node", size: int) -> bool:
        pool = self._pick(POOLS)
        self._helper(node, pool, size)
        start = node.now + node.engine.wall_offset + self._pick((SECOND, 3 * SECOND))
        if not self._submit(node, size, plain(pool, "", Scheduling(start=start, tolerance=HOUR, duration_hint=0))):
            return False
        self._world.operators.let_pass(3 * SECOND)
        return node.serving

    def _retries(self, node: "Node", size: int) -> bool:
        """All attempts of workers fail at once, or their host dies."""
        pool = self._pick(POOLS)
        helpers = [self._helper(node, pool, size) for _ in range(0, size, SLOTS)]
        workers = [worker for worker in helpers if worker is not None]
        if not workers or not self._submit(node, size, replace(plain(pool, ""), retry=RETRY)):
            return False
        failed = [(worker, list(worker.leases)) for worker in workers if worker in node.workers]
        if sum(len(leases) for _, leases in failed) < LEAST:
            return False
        fails = self._pick((True, False))
        for worker, leases in failed:
            if fails:
                node.inbox += [m.WorkerSent(worker.stream, m.Fail(lease, "broken", False, 0)) for lease in leases]
                worker.leases.clear()
            else:
                self._world.workers.gone(worker, "reset")
        node.flush()
        self._world.operators.let_pass(3 * SECOND)
        return node.serving

    def _children(self, node: "Node", size: int) -> bool:
        """All wait for one task, which ends; perhaps nobody knew it when they came."""
        key, first = f"flock {self._herds}", self._pick((True, False))
        pool = self._pick(POOLS if first else PATIENT)
        ask = self._world.callers.ask
        start = node.now + node.engine.wall_offset + 20 * SECOND
        parent = m.Submit(plain("a", key, Scheduling(start=start)), False, None)
        if first:
            ask(node, "submit", parent)
        awaits = Scheduling(dependencies=(Dependency(key, int(Condition.ON_COMPLETE)),))
        if not self._submit(node, size, plain(pool, "", awaits)):
            return False
        if not first:
            ask(node, "submit", parent)
            node.flush()
        ask(node, "cancel", m.Cancel(key))
        self._helper(node, pool, size)
        return True

    def _schedules(self, node: "Node", size: int) -> bool:
        """All fire in one second, and are removed."""
        pool, ask = self._pick(POOLS), self._world.callers.ask
        names = [f"herd {number}" for number in range(size if size >= HUGE else min(size // 2, SLOTS))]
        template = plain(pool, "")
        for done in range(0, len(names), READ):
            for name in names[done : done + READ]:
                schedule = RecurringSpec(name, "*/4 * * * * *", "", template, int(Overlap.ALLOW))
                ask(node, "add schedule", AddRecurring(schedule))
            if not self._settle(node):
                return False
        made = node.engine.totals.submitted
        self._world.operators.let_pass(4 * SECOND)
        for name in names:
            ask(node, "remove schedule", RemoveRecurring(name))
        return node.engine.totals.submitted >= made + LEAST

    # --- inside

    def _helper(self, node: "Node", pool: str, slots: int) -> Worker | None:
        """A worker that can take very much; it is cut to what the pool allows."""
        if len(node.workers) >= MAX_WORKERS:
            return None
        return self._world.workers.connect(node, pool, (), min(slots, SLOTS))

    def _submit(self, node: "Node", size: int, spec: TaskSpec) -> bool:
        """So many tasks like this, each for itself or a thousand as one. False when there was no room, or no term."""
        ask, before = self._world.callers.ask, len(node.engine.tasks.live)
        batches = self._pick((True, False))
        late = not batches and size >= HUGE and self._pick((True, False))
        for done in range(0, size, READ):
            count = min(size - done, READ)
            if batches:
                ask(node, "batch", m.SubmitBatch((spec,) * count))
            else:
                for _ in range(count):
                    ask(node, "submit", m.Submit(spec, False, None))
            if late and done % PILE:
                self._walk_out(node)
            elif not self._settle(node):
                return False
        return len(node.engine.tasks.live) >= before + LEAST

    def _walk_out(self, node: "Node") -> None:
        """The store is late: answers pile up, more than the outbox keeps without a look, and some callers leave."""
        node.flush()
        for ask in list(node.asks)[::3]:
            self._world.callers.gone(node, ask)
        node.flush()

    def _settle(self, node: "Node") -> bool:
        """What has come is taken in and written, as far as no fault strikes. False when the term did not last."""
        world = self._world
        for _ in range(ROUNDS):
            world.advance(0)
            if node.flight is None or not node.serving:
                break
            world.operators.commit()
        return node.serving
