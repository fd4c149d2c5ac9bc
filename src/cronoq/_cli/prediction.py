"""What the machine would say to a start with these settings, asked without starting: the address, the file, the log.

A server that leads on the same file now is taken for the one that is about to be replaced: its lock and a port that is
taken are then worth a note, but no reason against the start that follows its stop.
"""

import errno

from cronoq._observe.logs import parse
from cronoq._runtime.listeners import bind
from cronoq._stores.base import StoreError, StoreHeld
from cronoq._stores.sqlite_probe import probe
from cronoq.errors import StartError
from cronoq_sansio.settings import Settings
from cronoq_sansio.values import value


@value
class Prediction:
    """Sentences; without problems the server would start."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]


def predict(settings: Settings, log: str) -> Prediction:
    """Try what a start would try, and undo it at once. `log` is the text of `CRONOQ_LOG`."""
    problems: list[str] = []
    notes: list[str] = []
    try:
        parse(log)
    except ValueError as error:
        problems.append(str(error))
    if settings.store.kind == "sqlite":
        try:
            probe(settings.store.path)
        except StoreHeld as error:
            notes.append(f"store.path: {error}")
        except StoreError as error:
            problems.append(f"store.path: {error}")
    try:
        bind(settings.server.grpc_addr, "server.grpc_addr").close()
    except StartError as error:
        taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        (notes if taken and notes else problems).append(f"server.grpc_addr: {error}")
    return Prediction(tuple(problems), tuple(notes))
