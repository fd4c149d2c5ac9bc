"""Whose turn it is with calls that look at much, and when: connections in turns, and most of the time is for others.

Theory. A page of a thousand tasks, or the figures of all pools, takes milliseconds, and a connection may ask for as
many of them as it may have streams, in one go. Nothing of that breaks a rule. So such calls are not handed on with what
else a read has brought; they have turns:

- One after the other, over all connections. After each, nobody has a turn until it was one part in `LOOK_SHARE` of the
  time since it began. So whoever came meanwhile is served, and most calls of others meet none of these.
- Connections have turns, and each has its own calls in their order. So whoever asks for a thousand lists at once waits
  for them, and a list of somebody else waits for one of these.
- A lone one, or the first of many, waits for nobody.

What waits is an open stream whose request is kept as it came, so there is a bound on it: streams of a connection, and
bytes of requests as of all messages that are not handed on (`credit.py`). A call that ends, for whatever reason, leaves
with its stream, and the service never hears of it. Its deadline is kept meanwhile (`stalls.py`); a call without one
waits for as long as others are before it. It shows what is so when its turn comes.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from cronoq_sansio.limits import LOOK_SHARE, MAX_LOOK_PAUSE

if TYPE_CHECKING:
    from cronoq_sansio.wire.credit import Credit
    from cronoq_sansio.wire.grpc_stream import GrpcStream
    from cronoq_sansio.wire.stalls import Stalls

Who = TypeVar("Who", bound=Hashable)


class Looks:
    """Calls of one connection that wait for its turns, as they came."""

    __slots__ = ("_credit", "_stalls", "waiting")

    def __init__(self, credit: "Credit", stalls: "Stalls") -> None:
        self._credit = credit
        self._stalls = stalls
        self.waiting: dict[int, GrpcStream] = {}
        """In the order in which they were complete."""

    def add(self, stream: "GrpcStream", request: bytes) -> bool:
        """A call is here, with the bytes of its request; False: all connections hold too many bytes for that."""
        self._credit.count(stream, len(request))
        if self._credit.overdrawn(stream):
            return False
        stream.waits = True
        self.waiting[stream.id] = stream
        if stream.deadline is not None:
            self._stalls.expect(stream.deadline)
        return True

    def take(self) -> "GrpcStream | None":
        """The first one that nobody has answered meanwhile; it waits no longer."""
        while self.waiting:
            stream = self.waiting.pop(next(iter(self.waiting)))
            stream.waits = False
            if not stream.closing:
                return stream
        return None

    def drop(self, stream: "GrpcStream") -> None:
        """The stream is over. Does nothing when it did not wait."""
        self.waiting.pop(stream.id, None)


class Turns(Generic[Who]):
    """Connections with calls that wait. All times are nanoseconds on the scale of `now`."""

    __slots__ = ("_waiting", "due")

    def __init__(self) -> None:
        self._waiting: OrderedDict[Who, None] = OrderedDict()
        """The first one is next."""
        self.due = 0
        """Nobody has a turn before."""

    def __len__(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    def free(self, now: int) -> bool:
        """Whether somebody who comes now need not wait."""
        return not self._waiting and now >= self.due

    def enter(self, who: Who) -> None:
        """A connection has something that waits. It keeps its place, or is the last one."""
        self._waiting.setdefault(who)

    def leave(self, who: Who) -> None:
        """A connection is over."""
        self._waiting.pop(who, None)

    def take(self, now: int) -> Who | None:
        """Whose turn it is now, if it is anybody's. Whoever has more that waits enters again, behind the others."""
        if now < self.due or not self._waiting:
            return None
        who, _ = self._waiting.popitem(last=False)
        return who

    def spent(self, duration: int, now: int) -> None:
        """A turn, or what came of one later, took so long until `now`: others have the rest, up to a bound."""
        self.due = min(max(self.due, now - duration) + LOOK_SHARE * duration, now + MAX_LOOK_PAUSE)
