"""The limit of open files of this process: each connection is one, and many systems begin with 1,024."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from cronoq._observe.logs import get_logger
from cronoq_sansio.limits import SPARE_FILES

resource: Any = import_module("resource") if find_spec("resource") else None  #: Windows has no such limit
log = get_logger("server")


def allow(connections: int) -> int | None:
    """Raise the limit so that there may be so many connections. Returns how many may be; None = no limit is known.

    What is too little is logged. A limit that is higher already stays.
    """
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have a lower one that they do not tell
        allowed = soft
    if allowed < wanted:
        log.warning(
            "fewer connections fit than limits.max_connections allows",
            connections=max(0, allowed - SPARE_FILES),
            max_connections=connections,
            remedy="raise the hard limit of open files (ulimit -Hn, LimitNOFILE= of systemd), or lower the setting",
        )
    return min(connections, max(0, allowed - SPARE_FILES))
