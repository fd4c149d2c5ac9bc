"""Listening sockets: bind with an error a person can act on, accept through every trouble that passes."""

import errno
import socket
import sys
from collections.abc import Callable

import trio

from cronoq._observe.logs import get_logger
from cronoq.errors import StartError
from cronoq_sansio.clock import seconds
from cronoq_sansio.limits import ACCEPT_BACKLOG, ACCEPT_PAUSE
from cronoq_sansio.settings_check import format_address

log = get_logger("listener")

#: `accept` fails with these when the process or the host is short of something: it passes when connections end.
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

REASONS = {
    errno.EADDRINUSE: "another program listens there; stop it, or choose another {key}",
    errno.EADDRNOTAVAIL: "this host has no such address; correct {key}",
    errno.EACCES: "this user may not use that port; choose {key} above 1023",
}


def bind(address: tuple[str, int], key: str) -> socket.socket:
    """Listen on `address`; port 0 takes a free one. `key` names the setting. Raises `StartError`, one sentence."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise StartError(f"cannot listen on {format_address(address)}: {error.strerror or error}") from error
    try:
        if sys.platform != "win32":  # there it would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(ACCEPT_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        reason = REASONS.get(error.errno or 0, error.strerror or str(error)).format(key=key)
        raise StartError(f"cannot listen on {format_address(address)}: {reason}") from error
    return listener


def local_address(listener: socket.socket) -> tuple[str, int]:
    """The address that a listener really has."""
    host, port = listener.getsockname()[:2]
    return host, port


async def accept_all(listener: socket.socket, accepted: Callable[[socket.socket, str], None]) -> None:
    """Accept until cancelled or until the listener is closed; `accepted` gets each socket and its peer's address."""
    short = False
    while True:
        try:
            await trio.lowlevel.wait_readable(listener)
        except trio.ClosedResourceError:
            return
        try:
            connected, address = listener.accept()
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno in SHORTAGES:
                if not short:
                    short = True
                    remedy = "raise the limit of open files (ulimit -n), or let fewer connect"
                    log.warning("cannot accept connections", error=error.strerror, remedy=remedy)
                await trio.sleep(seconds(ACCEPT_PAUSE))
            elif error.errno == errno.EBADF:
                return
            # Everything else (ECONNABORTED, EPROTO, …) concerns a connection that has just vanished, not the listener.
            continue
        if short:
            short = False
            log.info("connections are accepted again")
        try:
            accepted(connected, format_address((address[0], address[1])))
        except OSError:
            connected.close()  # reset before its options were set


def close_listener(listener: socket.socket) -> None:
    """Stop listening. Idempotent."""
    if listener.fileno() >= 0:
        trio.lowlevel.notify_closing(listener)
        listener.close()
