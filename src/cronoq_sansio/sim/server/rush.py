"""Busy worlds: reads that bring what dozens of callers and workers say, as a loaded server sees them.

Most tasks of a loaded server ask for nothing special, most of what workers send is about work that goes well, and very
much of it comes in one read. Faults are the same as in other worlds; what they meet is larger.
"""

from itertools import product
from typing import TYPE_CHECKING, ClassVar

from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.server.specs import KEYS, KINDS, POOLS
from cronoq_sansio.spec import TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

CALLS = (8, 16, 32)
"""Submissions of one read."""
OPEN = 200
"""Calls that may be open before callers wait for their answers."""
SLOTS = (16, 32)
"""Of one worker."""
SUBMITS = tuple(
    m.Submit(TaskSpec(b"", "", kind, pool, priority, key, None, None, (), 20), False, None)
    for kind, pool, priority, key in product(KINDS, POOLS, range(4), ("", "", "", "", "", "", *KEYS[:2]))
)


class Rush:
    """Of one world."""

    OFTEN: ClassVar = {"rush": 240}

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick

    def rush(self) -> None:
        """The store does what it was given, or not; many callers submit, and every worker reports, in one read."""
        if self._pick((True, False)):
            self._world.operators.commit()
        node = self._world.some_node()
        if node is None:
            return
        served = [worker.pool for worker in node.workers if not worker.labels]
        for pool in POOLS:
            if pool not in served:
                self._world.workers.connect(node, pool, (), self._pick(SLOTS))
        self._report(node)
        if not node.serving:
            return  # it died when it had taken in what a worker reported
        if len(node.asks) < OPEN:
            request, pick = self._world.callers.request, self._pick
            for _ in range(pick(CALLS)):
                request(node, "submit", pick(SUBMITS))

    def _report(self, node: "Node") -> None:
        """Of each worker the oldest sixth of what it runs has ended, and the rest goes on."""
        report = self._world.workers.report
        for worker in list(node.workers):
            leases = list(worker.leases)
            ended = (len(leases) + 5) // 6
            for lease in leases[:ended]:
                if worker not in node.workers:
                    break  # it died when it reported
                del worker.leases[lease]
                report(worker, "complete", m.Complete(lease, b"", ""))
            else:
                for lease in leases[ended:]:
                    report(worker, "heartbeat", m.Heartbeat(lease))
