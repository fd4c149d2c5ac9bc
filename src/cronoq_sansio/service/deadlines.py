"""The three ways in which a call runs out of time, and what each is answered.

- its own deadline (`grpc-timeout`): DEADLINE_EXCEEDED;
- the time it wanted to wait for the end of a task: DEADLINE_EXCEEDED, the task goes on, if it is stored;
- the server's own bound for every unary call (a `Watch` has none), `max_wait + request_timeout`: CANCELLED.

A call has one timer, for whichever comes first. It stays set while the reply is held for the store: the caller gets
its answer in time, and the held reply is dropped. Most calls are answered in the very step that brings them, so a
timer is only set for those that are still open when the service is next looked at (`arm`), and most have no other bound
than the server's own, which is the same for all that came at one time: only what differs from it is kept (`_sooner`).
With a volatile store a Submit that does not wait is never left open, and gets no timer.
"""

from enum import Enum

from cronoq_sansio.clock import seconds
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import Call
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.values import value

UNSTORED = "the time ran out before the task was stored and its outcome is unknown: submit again with the same key"


class Cause(Enum):
    """Which bound a call ran into."""

    DEADLINE = "deadline"
    WAIT = "wait"
    CAP = "cap"


@value
class CallDue:
    """Payload of a call's timer."""

    call: Call
    cause: Cause


class Deadlines:
    """Timers of open calls."""

    __slots__ = ("_cap", "_sooner", "_texts", "_timers", "fresh")

    def __init__(self, timers: TimerHeap[object], limits: LimitSettings) -> None:
        self._timers = timers
        self._cap = limits.max_wait + limits.request_timeout
        self.fresh: list[Call] = []
        """Calls without a timer, since the service was looked at last. Whoever has no other bound adds a call here."""
        self._sooner: dict[Call, tuple[int, Cause]] = {}
        """Of these, the ones with another bound, which comes first."""
        self._texts = {
            Cause.DEADLINE: Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline passed"),
            Cause.WAIT: Rejection(
                Code.DEADLINE_EXCEEDED, "the time to wait ran out before an end of the task was known; wait again"
            ),
            Cause.CAP: Rejection(
                Code.CANCELLED,
                f"the call ran longer than {seconds(self._cap):g} s (limits.max_wait_s + limits.request_timeout_s)",
            ),
        }

    def add(self, call: Call, now: int, deadline: int | None, limit: int | None, *, capped: bool = True) -> None:
        """A call that has just been let in.

        `limit`: how long it wants to wait for a task, None = it does not. `capped`: the server's own bound counts too;
        not so for streams.
        """
        if not capped:
            if deadline is not None:
                self._sooner[call] = deadline, Cause.DEADLINE
                self.fresh.append(call)
            return
        when, cause = now + self._cap, Cause.CAP
        if deadline is not None and deadline <= when:
            when, cause = deadline, Cause.DEADLINE
        if limit is not None and limit < when:
            when, cause = limit, Cause.WAIT
        if cause is not Cause.CAP:
            self._sooner[call] = when, cause
        self.fresh.append(call)

    def arm(self, now: int) -> None:
        """Set timers for the new calls that are still open; `now` as when they came."""
        fresh, sooner = self.fresh, self._sooner
        for call in fresh:
            if call.open:
                when, cause = sooner.get(call) or (now + self._cap, Cause.CAP)
                call.timer = self._timers.add(when, CallDue(call, cause))
        fresh.clear()
        if sooner:
            sooner.clear()

    def cancel(self, call: Call) -> None:
        """The call is over."""
        if call.timer is not None:
            self._timers.cancel(call.timer)
            call.timer = None

    def rejection(self, cause: Cause, task_id: int, *, unstored: str = "") -> Rejection:
        """What a call gets that ran into a bound.

        `task_id`: what its Submit made, 0 = none or not durable; `unstored`: what to say of a change that the store has
        not taken yet, so that nobody can say whether it will exist after a crash.
        """
        rejection = self._texts[cause]
        if unstored:
            return Rejection(rejection.code, unstored)
        if not task_id:
            return rejection
        return Rejection(rejection.code, rejection.message, (("cronoq-task-id", str(task_id)),))
