"""Steps that took so long that everything else waited for them: said once in a while, and blamed for what they caused.

A driver notes each step beyond `limits.SLOW_STEP` and forgets them when it arms its alarm, so that what is noted when
the alarm goes off too late has happened in between. Only the processor's time counts as the step's own fault: a host
that stops the process does so in the middle of a step as well as between two.
"""

from collections.abc import Sequence
from time import thread_time_ns
from typing import Any

from cronoq._observe.logs import get_logger
from cronoq._runtime.faults import kinds
from cronoq_sansio import limits

log = get_logger("term")

HOST = "look at the host's load"
BUSY = (
    "not the host's load: the server itself was busy, with very many small things: see which limits and calls grow in"
    " the statistics (SIGUSR1), and who connects"
)


class SlowSteps:
    """The slow steps of one term. Times are nanoseconds, begin and end of a step on `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self._ticked = thread_time_ns()
        self._told: int | None = None
        """When the last line was written."""
        self._used = 0
        self._longest = 0
        self._events = ""
        self._armed = self._ticked
        """The processor's time when the alarm was armed."""

    def tick(self) -> None:
        """Read the processor's time; every `limits.TICK`, because a reading costs 0.6 µs: too much for every step."""
        self._ticked = thread_time_ns()

    def note(self, events: Sequence[Any], begun: int, ended: int) -> None:
        """A step with these events was slow. Logged unless another one was within `limits.SLOW_STEP_PAUSE`."""
        took = ended - begun
        used = min(took, thread_time_ns() - self._ticked)  # what came between tick and step is in it, a quarter second
        self._used += used
        if used > self._longest:
            self._longest = used
            self._events = kinds(events)
        if self._told is None or ended - self._told >= limits.SLOW_STEP_PAUSE:
            self._told = ended
            if used * 2 < took:
                remedy = f"it did not run most of that time: {HOST}, and at whoever reads the log"
            else:
                remedy = (
                    "large batches, lists or many calls at once are slow: send less at a time; without any, report it"
                    " with this line"
                )
            fields = {"events": len(events), "kinds": kinds(events), "processor_seconds": round(used / 1e9, 2)}
            log.warning(f"one step took {took / 1e9:.2f} s", **fields, remedy=remedy)

    def forget(self) -> None:
        """What is noted from now on counts for the next `remedy`."""
        self._used = self._longest = 0
        self._armed = thread_time_ns()

    def remedy(self, lateness: int) -> str:
        """What to do about an alarm that was so late. Names the longest step when slow ones made up half of it.

        What the loop did beside, and in steps that were not slow, counts by the processor's time.
        """
        if self._used * 2 < lateness:
            return BUSY if (thread_time_ns() - self._armed) * 2 >= lateness else HOST
        return f"not the host's load: one step of the server took {self._longest / 1e9:.2f} s with {self._events}"
