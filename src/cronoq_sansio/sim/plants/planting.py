"""How a bug is planted and taken out again.

A plant is a function that takes a `Patch` and replaces one thing of the code under test. Its name, with hyphens, is the
name of the bug; the first line of its docstring says what is wrong, for people. The other files here are lists of
them, by what they break; `plants.PLANTS` has them all.
"""

from collections.abc import Callable
from typing import Any

from cronoq_sansio.values import value


class Patch:
    """Replaces attributes, and puts back what was there."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def setattr(self, target: Any, name: str, new: Any) -> None:
        """Replace an attribute of a module or a class, which must be its own, not an inherited one."""
        old = target.__dict__[name]
        self._undo.append(lambda: setattr(target, name, old))
        setattr(target, name, new)

    def wrap(self, target: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace an attribute by what `make` makes of it."""
        self.setattr(target, name, make(target.__dict__[name]))

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
    """Words with hyphens between them."""
    what: str
    """What it does, for people: one sentence."""
    apply: Callable[[Patch], None]


class Bed:
    """A list of plants; `plant` is the decorator that adds one."""

    def __init__(self) -> None:
        self.plants: list[Plant] = []

    def plant(self, apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        """Add the plant that is called like the function, and does what its docstring says."""
        what = (apply.__doc__ or "").partition("\n\n")[0]
        self.plants.append(Plant(apply.__name__.replace("_", "-"), " ".join(what.split()), apply))
        return apply


def nothing(*_: Any) -> None:
    """Stands in for what is left out."""
