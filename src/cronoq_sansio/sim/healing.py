"""The healed phase: no faults any more, good workers everywhere; everything must come to its end."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cronoq_sansio.sim.world import ServerWorld


def heal(world: "ServerWorld") -> None:
    """Bring everything to its end."""
