"""Which calls must be refused before anybody looks at them, told from what a term has heard, in the order of a read.

A stop, store pressure, deadlines and budgets are all known outside, so whether a call is let in is known too.
"""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_WAITS, MAX_WATCHES
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import AddRecurring, RemoveRecurring

if TYPE_CHECKING:
    from cronoq_sansio.settings import LimitSettings
    from cronoq_sansio.sim.server.holders import Asked

STOPPED, STOPPING, PRESSED, LATE, FULL = "stopped", "stopping", "store pressure", "deadline", "too many calls"
"""Why a call is refused at the door."""
ADDS = frozenset((m.Submit, m.SubmitBatch, AddRecurring))
"""What brings work; a stopping server takes none."""
CHANGING = ADDS | {m.Cancel, RemoveRecurring}
"""What a store that cannot keep up takes none of."""


class Door:
    """Of one term."""

    def __init__(self, limits: "LimitSettings") -> None:
        self.stopping = False
        self.stopped = False
        self.pressed = False
        self._most = {"request": limits.max_concurrent_requests, "wait": MAX_WAITS, "watch": MAX_WATCHES}
        self._open = dict.fromkeys(self._most, 0)

    def arrives(self, request: Any, deadline: int | None, now: int) -> tuple[str, str]:
        """Why this call must be refused, or empty; and the budget that it takes from when it is let in."""
        kind = type(request)
        if self.stopping or self.pressed:
            if self.stopped:
                return STOPPED, ""
            if self.stopping and kind in ADDS:
                return STOPPING, ""
            if self.pressed and kind in CHANGING:
                return PRESSED, ""
        if deadline is not None and deadline <= now:
            return LATE, ""
        waits = kind is m.Wait or (kind is m.Submit and request.wait)
        budget = "wait" if waits else "watch" if kind is m.Watch else "request"
        if self._open[budget] >= self._most[budget]:
            return FULL, ""
        self._open[budget] += 1
        return "", budget

    def leaves(self, budget: str) -> None:
        """A call that was let in is over."""
        self._open[budget] -= 1


def code_of(why: str) -> Code:
    """What a call is told that is refused for this."""
    return Code.DEADLINE_EXCEEDED if why == LATE else Code.UNAVAILABLE


def end_of(asked: "Asked", limits: "LimitSettings") -> tuple[int | None, Code]:
    """When a call that was let in runs out of time, and what it is told then; None for a stream without a deadline.

    Who waits for no time at all is told at once that the task has not ended, which needs no timer.
    """
    request, kind = asked.request, type(asked.request)
    if kind is m.Watch:
        return asked.deadline, Code.DEADLINE_EXCEEDED
    end, code = asked.now + limits.max_wait + limits.request_timeout, Code.CANCELLED
    if asked.deadline is not None and asked.deadline <= end:
        end, code = asked.deadline, Code.DEADLINE_EXCEEDED
    if asked.budget == "wait":
        timeout = request.timeout if kind is m.Wait else request.wait_timeout
        limit = asked.now + (limits.max_wait if timeout is None else min(timeout, limits.max_wait))
        if timeout != 0 and limit < end:
            end, code = limit, Code.DEADLINE_EXCEEDED
    return end, code


def asks_for_no_time(request: Any) -> bool:
    """It only asks whether the task has ended."""
    kind = type(request)
    return (kind is m.Wait and request.timeout == 0) or (
        kind is m.Submit and bool(request.wait) and request.wait_timeout == 0
    )
