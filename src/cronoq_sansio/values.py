"""The decorator for events, actions, records and messages: plain slotted values.

They are frozen for type checkers always, and at run time under pytest and ``python -X dev``. In production they are
ordinary slotted classes, because a frozen dataclass pays 0.4 µs per field for ``object.__setattr__`` and the hot path
builds about ten of them per task (the trick and its price are measured in ``bench/``).
"""

import sys
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

FROZEN = bool(sys.flags.dev_mode) or "pytest" in sys.modules


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a slotted value: positional constructor, equality by fields, never mutated."""
    return dataclass(frozen=FROZEN, slots=True, unsafe_hash=not FROZEN)(cls)
