"""Cuts a list of deeds down to a short one that fails in the same way (delta debugging, Zeller 2002)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(deeds: Sequence[T], fails: Callable[[Sequence[T]], bool], budget: int = 2_000) -> list[T]:
    """A part of `deeds` that still `fails`, of which no single one can be left out; `budget` bounds the tries."""
    kept = list(deeds)
    size = max(len(kept) // 2, 1)
    while budget > 0:
        start, removed = 0, False
        while start < len(kept) and budget > 0:
            candidate = kept[:start] + kept[start + size :]
            budget -= 1
            if fails(candidate):
                kept, removed = candidate, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return kept
