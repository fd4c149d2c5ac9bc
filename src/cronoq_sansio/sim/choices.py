"""Who decides what happens in a simulated world: a seeded generator, somebody who replays, or hypothesis.

A simulation asks for everything that it leaves to chance by `pick`, and for nothing else. So the indices of the picks
are the whole run: written down they replay it, and without some of them it is a shorter one (`shrink.py`).
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """Who decides."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""


class RandomChoices:
    """Choices of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        """One of these, all alike."""
        return options[int(self._random() * len(options))]


class RecordedChoices:
    """Choices of a seeded generator, and what was chosen since `begin_step`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self.picks: list[int] = []

    def begin_step(self) -> None:
        """What is picked from here on belongs to the next step."""
        self.picks = []

    def pick(self, options: Sequence[T]) -> T:
        """One of these, all alike."""
        index = int(self._random() * len(options))
        self.picks.append(index)
        return options[index]


class GivenChoices:
    """Choices that were made before: of each step its picks. Where the world has become another one they still fit."""

    def __init__(self) -> None:
        self.picks: Sequence[int] = ()
        self._next = 0

    def begin_step(self, picks: Sequence[int]) -> None:
        """The picks of the next step."""
        self.picks = picks
        self._next = 0

    def pick(self, options: Sequence[T]) -> T:
        """What was picked then; the first option when more is asked for than then, and modulo their number."""
        index = self.picks[self._next] if self._next < len(self.picks) else 0
        self._next += 1
        return options[index % len(options)]
