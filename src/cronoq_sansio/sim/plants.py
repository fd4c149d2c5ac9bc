"""Planted bugs, by name: what a simulation must find."""

from collections.abc import Iterator
from contextlib import contextmanager

from cronoq_sansio.sim import plants_engine, plants_time
from cronoq_sansio.sim.planting import Patch, Plant

BEDS = {
    "What the engine decides": plants_engine.BED,
    "Time of the wall clock": plants_time.BED,
}
"""Every list of plants, under a title for people."""

PLANTS: dict[str, Plant] = {plant.name: plant for bed in BEDS.values() for plant in bed.plants}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is there while this lasts. Raises `KeyError` for an unknown name."""
    patch = Patch()
    try:
        PLANTS[name].apply(patch)
        yield
    finally:
        patch.undo()
