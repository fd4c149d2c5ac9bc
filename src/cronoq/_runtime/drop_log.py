"""Fires of recurring schedules that did not happen: said once in a while for each schedule and reason.

A schedule that fires every second and is always refused would fill the log, and so would ten thousand of them. So a
schedule and reason have one line per `limits.DROP_PAUSE`, which says how many were not told since the last one, and no
more than `limits.MAX_LOGGED_DROPS` of such pairs are told in that time; what is beyond is counted in the next line
that is written. The totals by reason are in the statistics of the engine whatever is logged.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any

from cronoq._observe.logs import get_logger
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import OccurrenceDropped

log = get_logger("recurring")

LAST_SECOND = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())
EXPECTED = ("overlap", "predecessor", "gap")
"""Reasons that the schedule itself asks for."""
RUNS = ("foreign_key",)
"""Reasons for which the task exists nevertheless."""


class DropLog:
    """The lines of one term."""

    def __init__(self, clock: Callable[[], int] = monotonic_ns) -> None:
        """`clock`: nanoseconds that never go back."""
        self._clock = clock
        self._told: dict[tuple[str, str], list[int]] = {}
        """When a schedule and reason were told last, and how many were not told since; the oldest first."""
        self._others = 0
        """Fires of schedules that have no place in the table."""

    def note(self, drop: OccurrenceDropped) -> None:
        """Log it, or count it."""
        now, pair = self._clock(), (drop.name, drop.reason)
        entry = self._told.get(pair)
        if entry is not None and now - entry[0] < limits.DROP_PAUSE:
            entry[1] += drop.count
            return
        untold = 0
        if entry is not None:
            untold = entry[1]
            del self._told[pair]
        elif not self._has_place(now):
            self._others += drop.count
            return
        self._told[pair] = [now, 0]
        self._tell(drop, untold)

    def pairs(self) -> int:
        """How many schedules and reasons are remembered; at most `limits.MAX_LOGGED_DROPS`."""
        return len(self._told)

    def _has_place(self, now: int) -> bool:
        """Forgets what was told longest ago, if that is long enough."""
        if len(self._told) < limits.MAX_LOGGED_DROPS:
            return True
        oldest = next(iter(self._told))
        told, untold = self._told[oldest]
        if now - told < limits.DROP_PAUSE:
            return False
        self._others += untold
        del self._told[oldest]
        return True

    def _tell(self, drop: OccurrenceDropped, untold: int) -> None:
        fields: dict[str, Any] = {"schedule": drop.name, "reason": drop.reason, "at": moment(drop.first)}
        if drop.count > 1 or drop.more:
            fields["last"] = moment(drop.last)
            fields["count"] = f"{drop.count} or more" if drop.more else drop.count
        if untold:
            fields["not_told_since_last"] = untold
        if self._others:
            fields["not_told_of_other_schedules"], self._others = self._others, 0
        write = log.info if drop.reason in EXPECTED else log.warning
        if drop.reason in RUNS:  # the detail quotes the key, and keys are not logged
            write("an occurrence has no key", **fields, why="another task has the key that it would have")
        else:
            write("an occurrence did not happen", **fields, why=drop.detail)


def moment(wall: int) -> str:
    """A time as in the key of an occurrence: UTC, to the second."""
    second = min(max(wall // SECOND, 0), LAST_SECOND)
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
