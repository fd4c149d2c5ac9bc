"""What the machine would say to a start with these settings, asked without starting: addresses, files, the log.

A server that leads on the same file now is taken for the one that is about to be replaced: its lock and a port that is
taken are then worth a note, but no reason against the start that follows its stop.
"""

import errno
import time

from cronoq._observe.logs import parse
from cronoq._runtime.crowds import crowds
from cronoq._runtime.listeners import bind
from cronoq._runtime.startup import warnings
from cronoq._runtime.tls import GRPC_PROTOCOLS, server_context
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
    server = settings.server
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
    replaced = bool(notes)
    if server.tls is not None:
        try:
            server_context(server.tls, GRPC_PROTOCOLS)
        except StartError as error:
            problems.append(str(error))
    for key, address in (("server.grpc_addr", server.grpc_addr), ("server.http_addr", server.http_addr)):
        if address is None:
            continue
        try:
            bind(address, key).close()
        except StartError as error:
            taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            (notes if taken and replaced else problems).append(f"{key}: {error}")
    return Prediction(tuple(problems), (*notes, *warnings(settings), *crowds(settings, time.time_ns())))
