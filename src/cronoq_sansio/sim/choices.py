"""Who decides what happens in a simulated world: a seeded generator, somebody who replays, or hypothesis.

A simulation asks for everything that it leaves to chance by `pick`, and for nothing else. So the indices of the picks
are the whole run: written down they replay it, and without some of them it is a shorter one (`shrink.py`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

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
    """Choices of a seeded generator, and all that was chosen, step by step."""

    pick: Callable[[Sequence[Any]], Any]
    """One of these, all alike."""

    def __init__(self, seed: int) -> None:
        self._picks: list[int] = []
        self._begun: list[int] = []
        self.pick = _recording_pick(Random(seed).random, self._picks.append)

    def begin_step(self) -> None:
        """What is picked from here on belongs to the next step."""
        self._begun.append(len(self._picks))

    def steps(self) -> list[list[int]]:
        """The picks of each step; what was picked before the first one is not among them."""
        ends = [*self._begun[1:], len(self._picks)]
        return [self._picks[begun:end] for begun, end in zip(self._begun, ends, strict=True)] if self._begun else []


def _recording_pick(random: Callable[[], float], append: Callable[[int], None]) -> Callable[[Sequence[Any]], Any]:
    """A closure: it is called ten times per event."""

    def pick(options: Sequence[Any]) -> Any:
        index = int(random() * len(options))
        append(index)
        return options[index]

    return pick


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
