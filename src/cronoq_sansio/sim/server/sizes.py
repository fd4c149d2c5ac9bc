"""How large everything is that an object holds: every container that can be reached from it, by where it is.

A size that nobody publishes grows as well as one that somebody does, and this one sees it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

PACKAGE = "cronoq_sansio."
FOREIGN = (PACKAGE + "sim.", PACKAGE + "settings", PACKAGE + "spec")
"""Modules whose objects are not looked into: they do not grow, or belong to whoever looks."""
CONTAINERS = (dict, list, deque, set)


def sizes(name: str, root: Any, without: Iterable[type] = ()) -> dict[str, int]:
    """Entries of the containers in `root`, by path; those at the same path, say of all pools, are one sum.

    A path begins with `name` and names attributes; `[]` is any entry of a container. What can be reached in several
    ways has the shortest path. Objects of the classes `without`, and all that only they hold, are left out.
    """
    found: dict[str, int] = {}
    seen: dict[int, Any] = {}
    left_out = tuple(without)
    ahead: deque[tuple[str, Any]] = deque([(name, root)])
    while ahead:
        path, thing = ahead.popleft()
        if id(thing) in seen or isinstance(thing, left_out):
            continue
        module = type(thing).__module__
        if isinstance(thing, CONTAINERS):
            seen[id(thing)] = thing
            found[path] = found.get(path, 0) + len(thing)
            inside = f"{path}[]"
            entries = [*thing.keys(), *thing.values()] if isinstance(thing, dict) else thing
            ahead += [(inside, entry) for entry in entries]
        elif type(thing) is tuple:
            ahead += [(path, entry) for entry in thing]
        elif module.startswith(PACKAGE) and not module.startswith(FOREIGN):
            seen[id(thing)] = thing
            ahead += [(f"{path}.{attribute}", value) for attribute, value in _attributes(thing)]
    return found


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """Of an object with slots, a dictionary or both."""
    names = [name for base in type(thing).__mro__ for name in base.__dict__.get("__slots__", ())]
    found = [(name, getattr(thing, name)) for name in names if hasattr(thing, name)]
    return [*found, *getattr(thing, "__dict__", {}).items()]
