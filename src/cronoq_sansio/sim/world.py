"""The whole server in virtual time (being written)."""

from collections.abc import Callable
from typing import Any

from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.sim.faults import Coverage, Swarm

MachineFactory = Callable[..., Any]


class ServerWorld:
    """Being written."""

    def __init__(
        self, seed: int, choices: Choices, swarm: Swarm, machine: MachineFactory | None = None, *, narrate: bool = False
    ) -> None:
        self.events = 0
        self.coverage = Coverage()

    def step(self) -> None:
        """One act."""

    def heal(self) -> None:
        """Everything comes to its end."""

    def digest(self) -> str:
        """Of everything that was said."""
        return ""

    def transcript(self) -> str:
        """What happened last."""
        return ""
