"""Full scans of a simulated world: everything is recounted, and compared with what was written."""

from typing import TYPE_CHECKING

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
