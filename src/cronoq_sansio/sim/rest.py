"""What must be so when everything has come to its end: nothing is held, nothing is left, nothing has grown.

The sizes of a term at rest are those of one that has never done anything, apart from what it remembers on purpose
(`BOUNDED`). They are looked at twice: by the names that the service publishes, and by a walk over everything that
engine and service hold, so that what nobody thought of publishing is seen too.
"""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.stocks import Semaphore
from cronoq_sansio.service.messages_recurring import RemoveRecurring
from cronoq_sansio.sim import checks
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.node import Node

if TYPE_CHECKING:
    from cronoq_sansio.sim.world import ServerWorld

BOUNDED = ("cached_infos", "cached_output_bytes", "cached_outputs", "learned_kinds", "step", "tenants")
"""Statistics of what a term remembers, up to a number and not for a time."""
SWEEPS = 20
"""Events after which every key that is over must be forgotten."""


def fresh_term(world: "ServerWorld") -> Node:
    """A process without a clock of its own claims the store and recovers."""
    world.terms += 1
    node = Node(world, world.terms, world.settings, 0, world.wall_shift)
    world.nodes.append(node)
    return node


def check(world: "ServerWorld", node: Node) -> None:
    """Everybody has gone. Raises `Violation`."""
    _nothing_held(node)
    world.advance(node.settings.limits.key_retention + 1)
    for _ in range(SWEEPS):
        world.callers.ask(node, "remove schedule", RemoveRecurring("nobody"))
        node.flush()
        if not node.engine.tasks.retained():
            break
    _as_fresh(world, node)
    checks.scan(world)
    if live := world.store.rows.live():
        raise Violation(Kind.LIVENESS, "a live row is left in the store", f"tasks {live[:5]}")
    if world.store.rows.schedules:
        raise Violation(Kind.LIVENESS, "a schedule is left in the store", f"{list(world.store.rows.schedules)}")


def check_recovery(world: "ServerWorld", node: Node) -> None:
    """The next term finds nothing to do."""
    node.end("crashed")
    node = fresh_term(world)
    if node.flight is not None:
        raise Violation(Kind.LIVENESS, "recovery changes a store at rest", f"{node.flight.records[:5]}")
    _nothing_held(node)
    _as_fresh(world, node)


def _nothing_held(node: Node) -> None:
    """Leases, permits, slots."""
    engine = node.engine
    if engine.leases.live:
        raise Violation(Kind.LIVENESS, "a lease is never returned", f"{list(engine.leases.live.values())}")
    for name, stock in engine.resources._stocks.items():
        used = stock.used if isinstance(stock, Semaphore) else 0
        if used or stock.promised:
            raise Violation(Kind.LIVENESS, "units of a resource are never returned", f"{name}: {used}")


def _as_fresh(world: "ServerWorld", node: Node) -> None:
    """All sizes are those of a term without a past, and every bucket is full."""
    engine = Engine.fresh(node.settings, now=node.now, wall_offset=node.engine.wall_offset)
    _, service = world.machine(engine, node.settings, node.now, volatile=world.store.volatile)
    fresh, sizes = service.statistics(), node.service.statistics()
    for name, size in sizes.items():
        if name not in BOUNDED and size != fresh[name]:
            raise Violation(Kind.LIVENESS, f"a size does not return: {name}", f"{size}, of a fresh term {fresh[name]}")
    for name, stock in node.engine.resources._stocks.items():
        if stock.spare(node.now) != stock.capacity:
            raise Violation(Kind.LIVENESS, "units of a resource are missing at rest", f"{name}: {stock.spare(node.now)}")
