"""Cuts a list of deeds down to a short one that fails in the same way (delta debugging, Zeller 2002)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from cronoq_sansio.sim.world import Deed, Divergence, Happened, World

T = TypeVar("T")

BUDGET = 400_000  #: items that all tries together may play: a few minutes


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool], budget: int = BUDGET) -> list[T]:
    """A part of `items` that still `fails`, of which no single one can be left out; all tries play `budget` items."""
    kept = list(items)
    size = max(len(kept) // 2, 1)
    while budget > 0:
        start, removed = 0, False
        while start < len(kept) and budget > 0:
            candidate = kept[:start] + kept[start + size :]
            budget -= len(candidate)
            if fails(candidate):
                kept, removed = candidate, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return kept


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
