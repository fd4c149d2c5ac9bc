"""Workers that come and go: each has its lines, as long as there are not too many of them.

A worker that registers and ends its stream again and again, or many that do, would fill the log. So a minute has
`limits.MAX_LOGGED_WORKERS` lines, of which one address gets `limits.MAX_LOGGED_WORKERS_OF_PEER`, so that it does not
silence the others. What is beyond is counted, and told in one line when the minute is over.
"""

from collections import Counter
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from cronoq._observe.logs import get_logger
from cronoq_sansio import limits
from cronoq_sansio.wire.peers import address_of

log = get_logger("worker")


class WorkerLog:
    """The lines of one term. `tick` is called now and then, `close` when the term is over."""

    def __init__(self, clock: Callable[[], int] = monotonic_ns) -> None:
        """`clock`: nanoseconds that never go back."""
        self._clock = clock
        self._begun: int | None = None
        """The minute, with its first line."""
        self._told = 0
        self._told_of: Counter[str] = Counter()
        """Lines by address."""
        self._untold_of: Counter[str] = Counter()
        """What had no line, by address, of those that had some."""
        self._registered = 0
        self._disconnected = 0

    def registered(self, fields: dict[str, Any], slots: int) -> None:
        """A worker has registered. `fields` say which, with `peer`, its address and port."""
        if self._may_tell(fields["peer"]):
            log.info("a worker registered", **fields, slots=slots)
        else:
            self._registered += 1

    def disconnected(self, fields: dict[str, Any], why: str) -> None:
        """A worker is gone. `fields` as when it registered."""
        if self._may_tell(fields["peer"]):
            log.info("a worker disconnected", **fields, why=why)
        else:
            self._disconnected += 1

    def tick(self) -> None:
        """Tell of what was counted once the minute is over."""
        if self._begun is not None and self._clock() - self._begun >= limits.WORKER_LOG_PAUSE:
            self.close()

    def close(self) -> None:
        """Tell of what was counted, and begin anew."""
        if self._registered or self._disconnected:
            fields = {"registered": self._registered, "disconnected": self._disconnected}
            most = self._untold_of.most_common(1)
            log.info("more workers came and went", **fields, **({"mostly_from": most[0][0]} if most else {}))
        self._begun = None
        self._told = self._registered = self._disconnected = 0
        self._told_of.clear()
        self._untold_of.clear()

    def _may_tell(self, peer: str) -> bool:
        self.tick()
        if self._begun is None:
            self._begun = self._clock()
        address = address_of(peer)
        told = self._told_of[address]
        if self._told < limits.MAX_LOGGED_WORKERS and told < limits.MAX_LOGGED_WORKERS_OF_PEER:
            self._told += 1
            self._told_of[address] = told + 1
            return True
        if told:
            self._untold_of[address] += 1
        return False
