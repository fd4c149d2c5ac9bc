"""Fires of recurring schedules that did not happen: said once in a while for each schedule and reason.

A schedule that fires every second and is always refused would fill the log, and so would ten thousand of them. So a
schedule and reason have one line per `limits.DROP_PAUSE`, and no more than `limits.MAX_LOGGED_DROPS` of such pairs are
told in that time (`seldom.py`). The totals by reason are in the statistics of the engine whatever is logged.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any

from cronoq._observe.logs import get_logger
from cronoq._runtime.seldom import Seldom, Untold
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
        self._seldom = Seldom(limits.DROP_PAUSE, limits.MAX_LOGGED_DROPS, clock)

    def note(self, drop: OccurrenceDropped) -> None:
        """Log it, or count it."""
        untold = self._seldom.may_tell((drop.name, drop.reason), drop.count)
        if untold is not None:
            self._tell(drop, untold)

    def pairs(self) -> int:
        """How many schedules and reasons are remembered; at most `limits.MAX_LOGGED_DROPS`."""
        return len(self._seldom)

    def _tell(self, drop: OccurrenceDropped, untold: Untold) -> None:
        fields: dict[str, Any] = {"schedule": drop.name, "reason": drop.reason, "at": moment(drop.first)}
        if drop.count > 1 or drop.more:
            fields["last"] = moment(drop.last)
            fields["count"] = f"{drop.count} or more" if drop.more else drop.count
        if untold.same:
            fields["not_told_since_last"] = untold.same
        if untold.others:
            fields["not_told_of_other_schedules"] = untold.others
        write = log.info if drop.reason in EXPECTED else log.warning
        if drop.reason in RUNS:  # the detail quotes the key, and keys are not logged
            write("an occurrence has no key", **fields, why="another task has the key that it would have")
        else:
            write("an occurrence did not happen", **fields, why=drop.detail)


def moment(wall: int) -> str:
    """A time as in the key of an occurrence: UTC, to the second."""
    second = min(max(wall // SECOND, 0), LAST_SECOND)
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
