"""Planted bugs, by name: what a simulation must find."""

from collections.abc import Iterator
from contextlib import contextmanager

from cronoq_sansio.sim import (
    plants_calls,
    plants_engine,
    plants_leases,
    plants_outbox,
    plants_recovery,
    plants_term,
    plants_time,
    plants_workers,
)
from cronoq_sansio.sim.planting import Patch, Plant

BEDS = {
    "What the engine decides": plants_engine.BED,
    "Leases, attempts and timers": plants_leases.BED,
    "Fixed starts, schedules and targets": plants_time.BED,
    "What may be said when": plants_outbox.BED,
    "Workers": plants_workers.BED,
    "Calls": plants_calls.BED,
    "What is stored, and restarts": plants_recovery.BED,
    "The end of a term": plants_term.BED,
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
