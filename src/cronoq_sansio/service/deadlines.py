"""The three ways in which a call runs out of time, and what each is answered.

- its own deadline (`grpc-timeout`): DEADLINE_EXCEEDED;
- the time it wanted to wait for the end of a task: DEADLINE_EXCEEDED, the task goes on;
- the server's own bound for every unary call (a `Watch` has none), `max_wait + request_timeout`: CANCELLED.

A call has one timer, for whichever comes first. It stays set while the reply is held for the store: the caller gets
its answer in time, and the held reply is dropped. Most calls are answered in the very step that brings them, so a
timer is only set for those that are still open when the service is next looked at (`arm`).
"""

from enum import Enum

from cronoq_sansio.clock import seconds
from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import Call
from cronoq_sansio.service.waits import Waiting
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.values import value


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
    when: int


class Deadlines:
    """Timers of open calls."""

    __slots__ = ("_cap", "_fresh", "_texts", "_timers")

    def __init__(self, timers: TimerHeap[object], limits: LimitSettings) -> None:
        self._timers = timers
        self._cap = limits.max_wait + limits.request_timeout
        self._fresh: list[tuple[Call, int, Cause]] = []
        self._texts = {
            Cause.DEADLINE: Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline passed"),
            Cause.WAIT: Rejection(
                Code.DEADLINE_EXCEEDED, "the task has not ended in the time to wait; it goes on, wait again"
            ),
            Cause.CAP: Rejection(
                Code.CANCELLED,
                f"the call ran longer than {seconds(self._cap):g} s (limits.max_wait_s + limits.request_timeout_s)",
            ),
        }

    def add(self, call: Call, now: int, deadline: int | None, *, capped: bool = True) -> None:
        """A call that has just been let in. `capped`: the server's own bound counts too; not so for streams."""
        if not capped:
            if deadline is not None:
                self._fresh.append((call, deadline, Cause.DEADLINE))
            return
        cap = now + self._cap
        if deadline is not None and deadline <= cap:
            self._fresh.append((call, deadline, Cause.DEADLINE))
        else:
            self._fresh.append((call, cap, Cause.CAP))

    def arm(self) -> None:
        """Set timers for the new calls that are still open."""
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        for call, when, cause in fresh:
            if not call.open:
                continue
            waiting = call.wait
            if type(waiting) is Waiting and waiting.task_id and waiting.limit < when:
                when, cause = waiting.limit, Cause.WAIT
            call.timer = self._timers.add(when, CallDue(call, cause, when))

    def attached(self, call: Call, limit: int) -> None:
        """The call waits for a task from now on, at most until `limit`."""
        timer = call.timer
        if not isinstance(timer, Timer):
            return  # still fresh: `arm` will look at the wait
        due = timer.payload
        if type(due) is CallDue and limit < due.when:
            self._timers.cancel(timer)
            call.timer = self._timers.add(limit, CallDue(call, Cause.WAIT, limit))

    def cancel(self, call: Call) -> None:
        """The call is over."""
        timer = call.timer
        if timer is not None:
            assert isinstance(timer, Timer)
            self._timers.cancel(timer)
            call.timer = None

    def rejection(self, cause: Cause, task_id: int) -> Rejection:
        """What a call gets that ran into a bound. `task_id`: what its Submit made, 0 = none or not durable."""
        rejection = self._texts[cause]
        if not task_id:
            return rejection
        return Rejection(rejection.code, rejection.message, (("cronoq-task-id", str(task_id)),))
