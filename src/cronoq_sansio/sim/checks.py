"""Full scans of a simulated world: everything is recounted, and compared with what was written."""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.node import Node
    from cronoq_sansio.sim.world import ServerWorld


def scan(world: "ServerWorld") -> None:
    """Every node that serves."""
    for node in world.nodes:
        node.service.check_invariants()
        written(node)


def written(node: "Node") -> None:
    """What was written is what is in memory."""
    live, shadows = node.engine.tasks.live, node.view.live
    if differ := sorted(live.keys() ^ shadows.keys()):
        raise Violation(Kind.SAFETY, "live tasks are not those that were written", f"tasks {differ}")
    for task_id, task in live.items():
        shadow = shadows[task_id]
        running = task.status == TaskStatus.RUNNING
        if running != (shadow.status == TaskStatus.RUNNING) or task.attempt != shadow.attempt:
            raise Violation(Kind.SAFETY, "a task is not what was written of it", f"{task}, written: {shadow.status}")


def digest(node: "Node") -> object:
    """Of what a stale report must not change; None when something else may happen in the next step too."""
    due = node.outbox.next_timeout()
    if due is not None and due <= node.now:
        return None
    engine = node.engine
    tasks = [(task.id, task.status, task.attempt, task.message) for task in engine.tasks.live.values()]
    leases = [(lease.id, lease.held, lease.beat, lease.started, lease.group) for lease in engine.leases.live.values()]
    slots = [(pool.groups.capacity, pool.groups.filled, pool.groups.held) for pool in engine.pools.values()]
    return tasks, leases, slots


def unmoved(node: "Node", step: Step[Any, Any], before: object) -> None:
    """A step in which there were stale reports only has changed nothing."""
    if step.writes or step.at_once:
        raise Violation(Kind.SAFETY, "something follows from a stale report", f"{step.writes} {step.at_once}")
    if digest(node) != before:
        raise Violation(Kind.SAFETY, "a stale report changes the state", f"before: {before}")
