"""Whether there is room for a new task (engine.md section 9). The one policy so far is `reject`.

Bounds count pending tasks, per pool and over all pools; the payload budget counts the encoded specifications of live
tasks, so that a million large payloads do not end the process.
"""

from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import TaskSpec


def refusal(spec: TaskSpec, pool: Pool, tasks: TaskTable, limits: LimitSettings) -> Rejection | None:
    """Why this submission does not fit; None when it does."""
    if pool.pending >= pool.settings.max_pending:
        return Rejection(
            Code.OVERLOADED,
            f"pool {pool.name!r} has {pool.pending} pending tasks, "
            f"its max_pending is {pool.settings.max_pending}; retry later",
        )
    if tasks.pending >= limits.max_pending_total:
        return Rejection(
            Code.OVERLOADED,
            f"the server has {tasks.pending} pending tasks, "
            f"limits.max_pending_total is {limits.max_pending_total}; retry later",
        )
    if tasks.payload_bytes + spec.size > limits.max_payload_bytes:
        return Rejection(
            Code.OVERLOADED,
            f"live tasks hold {tasks.payload_bytes} bytes and this one {spec.size}, "
            f"limits.max_payload_bytes is {limits.max_payload_bytes}; retry later",
        )
    return None
