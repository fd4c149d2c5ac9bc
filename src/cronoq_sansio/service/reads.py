"""Reads that show much, lists and figures: how much of the time they have, and whose turn it is.

Theory. Answering one takes up to some ten milliseconds, and a connection may ask for a thousand at once. So their work
is estimated, in nanoseconds, and has one part in `READ_SHARE` of the time. A read begins while less than `READ_BURST`
of such work is not paid back by time that has passed since; it is done whole, and the next ones wait the longer. So no
step has more of this than `READ_BURST` and one read, and everybody else is served in between.

What may not begin waits: by connection in the order of arrival, and the connections have turns. So whoever asks for a
thousand lists at once waits for them, and a list of somebody else does not. Meanwhile a call that waits is open like
any other: it counts in its budget, which bounds how many there are, it has its deadline, and when it is over it leaves
at once. Only its decoded request is kept. What it shows is the state of the instant in which it is answered.

Invariant: what waits is open and says so; as long as something waits, a timer is set.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.limits import LOOK_COST, READ_BURST, READ_COST, READ_SHARE, SHOW_COST
from cronoq_sansio.service.messages import Call, Request
from cronoq_sansio.service.turn import Turn

Answerer = Callable[[Call, Request], int]
"""Answers a call, and says what that cost (`cost`)."""
_DEEP = READ_SHARE * READ_BURST


class ReadsDue:
    """Payload of the timer that goes on with what waits."""


class Queued:
    """What a call waits for whose turn has not come."""

    __slots__ = ("request", "source")

    def __init__(self, request: Request, source: int) -> None:
        self.request = request
        self.source = source


def cost(shown: int, looked: int = 0) -> int:
    """Estimated nanoseconds of a read that shows so many entries and has looked at so many."""
    return READ_COST + shown * SHOW_COST + looked * LOOK_COST


class Reads:
    """Every read that waits for its turn."""

    __slots__ = ("_answers", "_lanes", "_paid_at", "_timer", "_timers", "_turn", "_waiting")

    def __init__(self, turn: Turn, timers: TimerHeap[object], answers: Mapping[type, Answerer]) -> None:
        """`answers`: by the type of the request, who answers it."""
        self._turn = turn
        self._timers = timers
        self._answers = answers
        self._lanes: OrderedDict[int, OrderedDict[Call, None]] = OrderedDict()
        """By connection; the first one is next."""
        self._waiting = 0
        self._paid_at = turn.now
        """When all work is paid back; the further ahead, the more there was."""
        self._timer: Timer[object] | None = None

    def __len__(self) -> int:
        return self._waiting

    def received(self, call: Call, request: Request, source: int) -> None:
        """Answer now, or in a later step. `source`: the connection that asks."""
        if not self._lanes and self._paid_at - self._turn.now < _DEEP:
            self._answer(call, request)
            return
        call.wait = Queued(request, source)
        lane = self._lanes.get(source)
        if lane is None:
            lane = self._lanes[source] = OrderedDict()
        lane[call] = None
        self._waiting += 1
        self._arm()

    def go_on(self) -> None:
        """The timer is due: answer as many as there is time for, one of each connection in turn."""
        self._timer = None
        while self._lanes and self._paid_at - self._turn.now < _DEEP:
            source, lane = next(iter(self._lanes.items()))
            call = next(iter(lane))
            queued = call.wait
            assert type(queued) is Queued
            self.closed(call, queued)
            if lane:
                self._lanes.move_to_end(source)
            call.wait = None
            self._answer(call, queued.request)
        self._arm()

    def closed(self, call: Call, queued: Queued) -> None:
        """The call waits no longer. Does nothing when it did not."""
        lane = self._lanes.get(queued.source)
        if lane is None or call not in lane:
            return
        del lane[call]
        self._waiting -= 1
        if not lane:
            del self._lanes[queued.source]
            if not self._lanes and self._timer is not None:
                self._timers.cancel(self._timer)
                self._timer = None

    def charge(self, nanoseconds: int) -> None:
        """A read cost so much more than it was charged for; negative = less."""
        self._paid_at = max(self._paid_at, self._turn.now) + READ_SHARE * nanoseconds

    def take_all(self) -> list[Call]:
        """The term ends: whoever waits is not answered any more."""
        calls = [call for lane in self._lanes.values() for call in lane]
        for call in calls:
            assert type(call.wait) is Queued
            self.closed(call, call.wait)
        return calls

    def check_invariants(self) -> None:
        """See the top of the file."""
        assert self._waiting == sum(map(len, self._lanes.values()))
        assert (self._timer is not None) == bool(self._lanes)
        for source, lane in self._lanes.items():
            assert lane, "a connection of which nothing waits stays in the table"
            for call in lane:
                assert call.open and type(call.wait) is Queued and call.wait.source == source

    def _answer(self, call: Call, request: Request) -> None:
        self.charge(self._answers[type(request)](call, request))

    def _arm(self) -> None:
        if self._timer is None and self._lanes:
            self._timer = self._timers.add(max(self._paid_at - _DEEP, self._turn.now) + 1, ReadsDue())
