"""Whether there is room for new tasks (engine.md section 9). The one policy so far is `reject`.

Bounds count pending tasks, per pool and over all pools; the payload budget counts the encoded specifications of live
tasks, so that a million large payloads do not end the process. A batch fits as a whole or not at all: each member is
tested with the earlier ones counted in.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.spec import TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


class Ahead:
    """What the members of a batch that were tested already will add."""

    __slots__ = ("by_pool", "payload_bytes", "tasks")

    def __init__(self) -> None:
        self.tasks = 0
        self.payload_bytes = 0
        self.by_pool: dict[str, int] = {}

    def count(self, spec: TaskSpec) -> None:
        """This one fits."""
        self.tasks += 1
        self.payload_bytes += spec.size
        self.by_pool[spec.pool] = self.by_pool.get(spec.pool, 0) + 1


def make_room(engine: "Engine", spec: TaskSpec, pool: Pool) -> Rejection | None:
    """Why this submission does not fit; None when it does."""
    return refusal(engine, spec, pool)


def refusal(engine: "Engine", spec: TaskSpec, pool: Pool, ahead: Ahead | None = None) -> Rejection | None:
    """Why this submission does not fit behind those `ahead`; None when it does."""
    tasks, limits = engine.tasks, engine.limits
    pending, total, held = pool.pending, tasks.pending, tasks.payload_bytes
    if ahead is not None:
        pending += ahead.by_pool.get(spec.pool, 0)
        total += ahead.tasks
        held += ahead.payload_bytes
    if pending >= pool.settings.max_pending:
        return Rejection(
            Code.OVERLOADED,
            f"pool {pool.name!r} has {pending} pending tasks, "
            f"its max_pending is {pool.settings.max_pending}; retry later",
        )
    if total >= limits.max_pending_total:
        return Rejection(
            Code.OVERLOADED,
            f"the server has {total} pending tasks, "
            f"limits.max_pending_total is {limits.max_pending_total}; retry later",
        )
    if held + spec.size > limits.max_payload_bytes:
        return Rejection(
            Code.OVERLOADED,
            f"live tasks hold {held} bytes and this one {spec.size}, "
            f"limits.max_payload_bytes is {limits.max_payload_bytes}; retry later",
        )
    return None
