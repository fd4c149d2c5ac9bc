"""The same difference between engine and model after fewer deeds, for people to read."""

from collections.abc import Sequence

from cronoq_sansio.sim.lockstep.world import Deed, Divergence, Happened, World
from cronoq_sansio.sim.shrink import BUDGET, shrink


def shortened(world: World, divergence: Divergence, budget: int = BUDGET) -> Divergence:
    """The same difference after fewer deeds, found by playing parts of what was done to the world again."""
    found = divergence

    def fails(deeds: Sequence[Deed]) -> bool:
        nonlocal found
        again = World(world.first_settings, now=world.start, seed=world.first_seed)
        try:
            again.play(deeds)
        except Divergence as other:
            if other.what == divergence.what:
                found = other
                return True
        return False

    deeds = shrink(world.deeds, fails, budget)
    fails(shrink(apart(deeds), fails, budget) if fails(apart(deeds)) else deeds)
    return found


def apart(deeds: Sequence[Deed]) -> list[Deed]:
    """Every event in a step of its own."""
    return [
        part
        for deed in deeds
        for part in ([Happened((event,), deed.now) for event in deed.events] if isinstance(deed, Happened) else [deed])
    ]
