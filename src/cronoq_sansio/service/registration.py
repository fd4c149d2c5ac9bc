"""Whether a worker may register, and with how many slots (server.md section 4).

The strings and labels of a Register are checked where it is decoded; here is what needs the state of the server.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import PROTOCOL_VERSION
from cronoq_sansio.service.messages import Register
from cronoq_sansio.settings import LimitSettings, PoolSettings

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


def refusal(register: Register, engine: "Engine") -> Rejection | None:
    """Why this worker may not register; None when it may. The version comes first, then the pool."""
    version = register.protocol_version or 1  # version 1 did not send the field
    if version < PROTOCOL_VERSION:
        return Rejection(
            Code.FAILED_PRECONDITION,
            f"the worker speaks protocol version {version}, this server needs version {PROTOCOL_VERSION} or later",
        )
    if not engine.has_pool(register.pool):
        return Rejection(Code.UNKNOWN_POOL, f"unknown pool {register.pool!r}")
    return None


def slot_cap(pool: PoolSettings, limits: LimitSettings) -> int:
    """The most slots that one worker of the pool is granted; at least 1."""
    return max(1, min(pool.max_slots_per_worker, limits.max_slots_per_worker, pool.max))
