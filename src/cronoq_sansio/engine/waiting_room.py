"""Callers that wait for room in pools whose policy is `wait` (engine.md section 9).

A submission that may wait and would pass a bound stands in a line: one per pool and class, first come, first served.
When pending tasks have become fewer, heads of lines are submitted anew, one at a time: of those that fit the higher
class first, then who has waited longest. All checks are made again at that moment, so a waiting submission whose key
exists by then is a duplicate. It arrives when it is admitted: its age and `deadline_in` count from there. Nobody waits
for bytes: a head that the payload budget has no room for is refused as soon as it is one.

Invariants: no line is empty; between two calls of `handle` it is nobody's turn, unless the units of the last one ran
out; at most `MAX_WAITING_SUBMISSIONS` wait, each of them once. Waiting and withdrawing cost the same however many wait;
to see whose turn it is costs a comparison per line.

Who waits is not stored: a term that ends has promised them nothing.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from cronoq_sansio.engine import admission, overload
from cronoq_sansio.engine.events import TaskSubmitted
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_WAITING_SUBMISSIONS
from cronoq_sansio.spec import TaskSpec, weight

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

Line = OrderedDict[int, tuple[object, TaskSpec]]
"""Requests and their specifications by number of arrival. An `OrderedDict`, because a `dict` whose first entries were
taken out looks for its first one ever longer.
"""


class WaitingRoom:
    """Everybody who waits for room in the pools of one engine."""

    __slots__ = ("_arrivals", "_lines", "_places", "waiting")

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], Line] = {}
        """By pool and class; only those in which somebody stands."""
        self._places: dict[object, tuple[tuple[str, int], int]] = {}
        """Where a request stands: its line, and its number there."""
        self._arrivals = 0
        self.waiting = 0
        """How many wait."""

    def has_line(self, spec: TaskSpec) -> bool:
        """True when others of that pool and class wait already: a newcomer that may wait stands behind them."""
        return (spec.pool, spec.priority) in self._lines

    def park(self, request: object, spec: TaskSpec) -> Rejection | None:
        """Let a caller wait; or say that too many do.

        `request` must be hashable and unlike that of everybody else who waits.
        """
        if len(self._places) >= MAX_WAITING_SUBMISSIONS:
            text = f"{len(self._places)} submissions wait for room already, as many as may; retry later"
            return Rejection(Code.FULL, text)
        assert request not in self._places, f"request {request!r} waits already"
        self._arrivals += 1
        place = (spec.pool, spec.priority)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = OrderedDict()
        line[self._arrivals] = (request, spec)
        self._places[request] = (place, self._arrivals)
        self.waiting += 1
        return None

    def withdraw(self, request: object) -> None:
        """This caller does not want to wait any longer. One that does not wait, or not any more, is left alone."""
        standing = self._places.pop(request, None)
        if standing is not None:
            self.waiting -= 1
            place, number = standing
            line = self._lines[place]
            del line[number]
            if not line:
                del self._lines[place]

    def admit(self, engine: "Engine") -> bool:
        """Submit anew and answer the one whose turn it is; False when it is nobody's turn.

        What was admitted may start at once and make room for the next one: pools dispatch before this is called again.
        """
        turns = [
            (priority, next(iter(line)), name)
            for (name, priority), line in self._lines.items()
            if self._has_turn(engine, name, line)
        ]
        if not turns:
            return False
        priority, number, name = min(turns)
        request, spec = self._lines[name, priority][number]
        self.withdraw(request)
        admission.submit(engine, TaskSubmitted(request, spec))
        return True

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows."""
        return {"waiting_submissions": len(self._places)}

    def check_invariants(self, engine: "Engine", more: bool) -> None:
        """Assert what holds between two calls of `handle`; `more`: the last one ran out of units."""
        standing = {}
        for place, line in self._lines.items():
            assert line, f"the empty line {place} was not dropped"
            assert list(line) == sorted(line), f"line {place} is not in the order of arrival"
            for number, (request, spec) in line.items():
                assert (spec.pool, spec.priority) == place, f"{request!r} stands in the wrong line"
                standing[request] = (place, number)
            assert engine.pools[place[0]].settings.overflow == overload.WAIT, f"line {place} waits, its pool does not"
            idle = not more and self._has_turn(engine, place[0], line)
            assert not idle, f"somebody waits in line {place} although there is room"
        assert standing == self._places, "who waits and where disagree"
        assert len(standing) <= MAX_WAITING_SUBMISSIONS, "too many wait"

    def _has_turn(self, engine: "Engine", name: str, line: Line) -> bool:
        """The head of a line fits now; or it never will while live tasks hold so many bytes, and is told so."""
        _, spec = line[next(iter(line))]
        held, budget = engine.tasks.payload_bytes, engine.limits.max_payload_bytes
        return held + weight(spec) > budget or overload.fits(engine, engine.pools[name], spec.priority)
