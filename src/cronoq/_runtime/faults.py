"""How a term ends, and how a fault of ours is described in one line without showing anybody's data."""

import traceback
from pathlib import PurePath


class TermEnded(Exception):
    """The term is over: it makes no more decisions and nothing that waits for its commits is answered.

    The text says why, for the operator. `events` names the kinds of event that a broken machine was given.
    """

    def __init__(self, reason: str, *, events: str = "") -> None:
        super().__init__(reason)
        self.events = events


def describe(error: BaseException) -> str:
    """Type and place of an exception, innermost frame last. No message: it could quote a payload, a key or a token."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.lineno} {frame.name}" for frame in frames]
    return f"{type(error).__name__} at {' > '.join(places) or 'unknown place'}"


def kinds(events: object) -> str:
    """Names of the types of some events, each once, with its count; their contents stay out of the log."""
    if not isinstance(events, (list, tuple)):
        return type(events).__name__
    counts: dict[str, int] = {}
    for event in events:
        name = type(event).__name__
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
