"""The decorator for events, actions, records and messages: plain slotted values.

They are frozen for type checkers always, and at run time under pytest and ``python -X dev``: there a field is set once.
In production they are ordinary slotted classes, because a frozen dataclass pays 0.4 µs per field for
``object.__setattr__`` and the hot path builds about ten of them per task (the trick and its price are measured in
``bench/``).
"""

import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")

FROZEN = bool(sys.flags.dev_mode) or "pytest" in sys.modules

blank = cast(Callable[[type[Any]], Any], object.__new__)
"""A value of that class without any field: whoever takes it sets them all, at once and in their order.

For the handful of places that build one for each task. A constructor in Python is a third of the price of its object
more, and most of these are read once or twice.
"""


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a slotted value: positional constructor, equality by fields, never mutated."""
    made = dataclass(slots=True, unsafe_hash=True)(cls)
    if FROZEN:
        made.__setattr__ = _set_once  # type: ignore[method-assign]
        made.__delattr__ = _keep  # type: ignore[method-assign]
    return made


def _set_once(self: object, name: str, field: object) -> None:
    if hasattr(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, field)


def _keep(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
