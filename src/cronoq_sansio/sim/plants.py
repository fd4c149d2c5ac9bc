"""Planted bugs, by name: what a simulation must find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cronoq_sansio.values import value


class Patch:
    """Replaces attributes, and puts back what was there."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def setattr(self, target: Any, name: str, new: Any) -> None:
        """Replace an attribute of a module or a class."""
        old = target.__dict__[name]
        self._undo.append(lambda: setattr(target, name, old))
        setattr(target, name, new)

    def setitem(self, target: Any, key: Any, new: Any) -> None:
        """Replace an entry of a mapping."""
        old = target[key]
        self._undo.append(lambda: target.__setitem__(key, old))
        target[key] = new

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


@value
class Plant:
    """A bug."""

    name: str
    what: str
    """What it does, for people."""
    apply: Callable[[Patch], None]


PLANTS: dict[str, Plant] = {}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is there while this lasts. Raises `KeyError` for an unknown name."""
    patch = Patch()
    try:
        PLANTS[name].apply(patch)
        yield
    finally:
        patch.undo()
