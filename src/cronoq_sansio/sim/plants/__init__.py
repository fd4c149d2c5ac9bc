"""Planted bugs, by name: what a simulation must find."""

from collections.abc import Iterator
from contextlib import contextmanager

from cronoq_sansio.sim.plants import (
    answers,
    calls,
    engine,
    holes,
    leases,
    outbox,
    recovery,
    state,
    term,
    time,
    workers,
)
from cronoq_sansio.sim.plants.planting import Patch, Plant

BEDS = {
    "What the engine decides": engine.BED,
    "Leases, attempts and timers": leases.BED,
    "Fixed starts, schedules and targets": time.BED,
    "What may be said when": outbox.BED,
    "Workers": workers.BED,
    "Calls": calls.BED,
    "What callers are told": answers.BED,
    "What is stored, and restarts": recovery.BED,
    "The end of a term": term.BED,
    "What is told of the state": state.BED,
}
"""Every list of plants, under a title for people."""

PLANTS: dict[str, Plant] = {plant.name: plant for bed in BEDS.values() for plant in bed.plants}

HOLES: dict[str, Plant] = {plant.name: plant for plant in holes.BED.plants}
"""Those that are not found."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is there while this lasts. Raises `KeyError` for an unknown name."""
    patch = Patch()
    try:
        (PLANTS.get(name) or HOLES[name]).apply(patch)
        yield
    finally:
        patch.undo()
