"""Bugs of the tests, planted into the simulated world itself: found within a few steps, and cheap."""

from contextlib import suppress

from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.plants import PLANTS
from cronoq_sansio.sim.plants.planting import Patch, Plant
from cronoq_sansio.sim.server.world import ServerWorld


def plant(monkeypatch, name, breaks, kind=Kind.SAFETY, what="a rule of the tests"):
    """A plant of this name: after a step for which `breaks(world)` is true the run fails, and in no other way."""

    def apply(patch):
        def step_of(step):
            def broken(world):
                with suppress(Exception):
                    step(world)
                if breaks(world):
                    raise Violation(kind, what, f"after {world.events} events")

            return broken

        patch.wrap(ServerWorld, "step", step_of)
        patch.setattr(ServerWorld, "heal", lambda world: None)

    monkeypatch.setitem(PLANTS, name, Plant(name, "A bug of the tests.", apply))
    return name


def on_lost_reports(world):
    """Needs one kind of fault of them all, and a few steps before it."""
    return any(kind == "report lost" for kind, _ in world.coverage.counts)


def at_once(world):
    """Needs nothing."""
    return True


def failing(monkeypatch, breaks, kind=Kind.SAFETY):
    """Every run of this test has the bug, not only those that plant it."""
    name = plant(monkeypatch, "test-bug", breaks, kind)
    patch = Patch()
    PLANTS[name].apply(patch)
    return patch
