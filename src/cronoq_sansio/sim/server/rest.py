"""What must be so when everything has come to its end: nothing is held, nothing is left, nothing has grown.

The sizes of a term at rest are those of one that has never done anything, apart from what it remembers on purpose
(`BOUNDED`). They are looked at twice: by the names that the service publishes, and by a walk over everything that
engine and service hold, so that what nobody thought of publishing is seen too.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import TaskFinished
from cronoq_sansio.engine.stocks import Semaphore
from cronoq_sansio.limits import MAX_LANE_GARBAGE, MAX_UNITS
from cronoq_sansio.service.messages_recurring import RemoveRecurring
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server import checks
from cronoq_sansio.sim.server.node import Node
from cronoq_sansio.sim.server.sizes import sizes

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.world import ServerWorld

BOUNDED = ("cached_infos", "cached_output_bytes", "cached_outputs", "learned_kinds", "step", "tenants")
"""Statistics of what a term remembers, up to a number and not for a time."""
KEPT = (
    "engine.autoscale._pools[]._highest",
    "engine.pools[]._fixed.heap[]",
    "engine.pools[]._lines[].heap[]",
    "engine.pools[].durations",
    "engine.pools[].figures",
    "engine.pools[].ids",
    "engine.pools[].shares._finishes",
    "service._deadlines._sooner",
    "service._deadlines.fresh",
    "service._results",
    "service._workers._groups",
)
"""Where a term remembers something on purpose, each up to a number: what tasks were like, results, names of pools."""
LAZY = ("_heap", "heap", "fresh", "_fresh", "_back", "_special", "_plain", "_general")
"""Ends of paths of queues and tables that are cleaned up when most of what is in them is over."""
GARBAGE = 8 * MAX_LANE_GARBAGE
"""Over all queues at one path."""
EVERYTHING = 4
"""One term of so many is looked at down to the last container: that costs as much as a hundred events."""
REFILL = 10 * SECOND
"""In which the slowest bucket is full again."""
SWEEPS = 20
"""Events after which every key that is over must be forgotten, and one more for as many as one step forgets."""


def fresh_term(world: "ServerWorld") -> Node:
    """A process without a clock of its own claims the store and recovers."""
    world.terms += 1
    node = Node(world, world.terms, world.settings, 0, world.wall_shift)
    world.nodes.append(node)
    return node


def check(world: "ServerWorld", node: Node) -> "Baseline":
    """Everybody has gone. Raises `Violation`."""
    _nothing_held(node)
    states = world.store.rows.states.values()
    newest = max((state.finished for state in states if isinstance(state, TaskFinished)), default=0)
    ahead = max(newest - node.engine.wall(), 0)  # the wall clock was set back since
    world.advance(ahead + max(node.settings.limits.key_retention, REFILL) + 1)
    for _ in range(SWEEPS + node.engine.tasks.retained() // MAX_UNITS):
        world.callers.ask(node, "remove schedule", RemoveRecurring("nobody"))
        node.flush()
        if not node.engine.tasks.retained():
            break
    baseline = Baseline(world, node)
    baseline.compare(node)
    if (world.seed // EVERYTHING) % EVERYTHING == 0:
        baseline.compare_everything(node)
    checks.scan(world)
    if live := world.store.rows.live():
        raise Violation(Kind.LIVENESS, "a live row is left in the store", f"tasks {live[:5]}")
    if world.store.rows.schedules:
        raise Violation(Kind.LIVENESS, "a schedule is left in the store", f"{list(world.store.rows.schedules)}")
    return baseline


def check_recovery(world: "ServerWorld", node: Node, baseline: "Baseline") -> None:
    """The next term finds nothing to do."""
    node.end("crashed")
    node = fresh_term(world)
    if node.flight is not None:
        raise Violation(Kind.LIVENESS, "recovery changes a store at rest", f"{node.flight.records[:5]}")
    _nothing_held(node)
    baseline.compare(node)


def _nothing_held(node: Node) -> None:
    """Leases, permits, slots."""
    engine = node.engine
    if engine.leases.live:
        raise Violation(Kind.LIVENESS, "a lease is never returned", f"{list(engine.leases.live.values())}")
    for name, stock in engine.resources._stocks.items():
        used = stock.used if isinstance(stock, Semaphore) else 0
        if used or stock.promised:
            raise Violation(Kind.LIVENESS, "units of a resource are never returned", f"{name}: {used}")


class Baseline:
    """A term that has never done anything, with the settings of the world."""

    def __init__(self, world: "ServerWorld", node: Node) -> None:
        engine = Engine.fresh(node.settings, now=node.now, wall_offset=node.engine.wall_offset)
        _, self._service = world.machine(engine, node.settings, node.now, volatile=world.store.volatile)
        self._engine = engine
        self._statistics = self._service.statistics()

    def compare(self, node: Node) -> None:
        """What a term at rest publishes is the same, and every bucket is full. Raises `Violation`."""
        for name, size in node.service.statistics().items():
            if name not in BOUNDED and size != self._statistics[name]:
                details = f"{size}, of a fresh term {self._statistics[name]}"
                raise Violation(Kind.LIVENESS, f"a size does not return: {name}", details)
        for name, stock in node.engine.resources._stocks.items():
            spare = stock.spare(node.now)
            if spare != stock.capacity:
                raise Violation(Kind.LIVENESS, "units of a resource are missing at rest", f"{name}: {spare}")

    def compare_everything(self, node: Node) -> None:
        """What a term at rest holds is no more. Raises `Violation`."""
        fresh = self._walk(self._engine, self._service)
        for path, size in self._walk(node.engine, node.service).items():
            if not path.startswith(KEPT) and size > fresh.get(path, 0) + (GARBAGE if path.endswith(LAZY) else 0):
                details = f"{size}, of a fresh term {fresh.get(path, 0)}"
                raise Violation(Kind.LIVENESS, f"a size does not return: {path}", details)

    @staticmethod
    def _walk(engine: Engine, service: object) -> dict[str, int]:
        found = sizes("engine", engine, (Step,))
        return {**sizes("service", service, (Engine, Turn)), **found}
