"""A seed that drives the engine beside the naive model (`lockstep/`), as one of the worlds of a run."""

from hashlib import sha256

from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.faults import Coverage, Swarm
from cronoq_sansio.sim.lockstep.workload import DOINGS, FEATURES, Workload, some_world
from cronoq_sansio.sim.lockstep.world import Divergence, Happened

PHASE = 200
"""Happenings after which tasks begin to ask for other things."""


class LockstepRun:
    """One world of engine and model."""

    def __init__(self, seed: int, choices: Choices, swarm: Swarm) -> None:
        self.coverage = Coverage()
        self._world = some_world(seed)
        self._load = Workload(self._world, choices)
        self._steps = 0
        self._told = ""

    @property
    def events(self) -> int:
        """Handed in so far."""
        return sum(len(deed.events) for deed in self._world.deeds if isinstance(deed, Happened))

    def step(self) -> None:
        """One happening."""
        load = self._load
        name = load.choices.pick(DOINGS)
        if self._steps % PHASE == 0:
            load.features = [name for name in FEATURES if not load.one_in(3)]
        self._steps += 1
        try:
            getattr(load, name)()
        except Divergence as divergence:
            self._told = str(divergence)
            raise Violation(Kind.DIVERGENCE, divergence.what, "engine and model differ") from divergence

    def heal(self) -> None:
        """The model has judged every step; what comes to its end at last is for the other world to show."""

    def digest(self) -> str:
        """Of everything that was said."""
        return sha256("\n".join(self._world.lines).encode()).hexdigest()[:16]

    def transcript(self) -> str:
        """Of the difference."""
        return self._told
