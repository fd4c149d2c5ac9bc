"""Cuts a list of what was done down to a short one that fails in the same way (delta debugging, Zeller 2002)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

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
