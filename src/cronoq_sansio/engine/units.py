"""Two search structures for tasks that wait for resources (`claims.py`).

`ByUnits`: things that need different amounts of one resource, and the one with the lowest place among those that need
no more than n. A segment tree over powers of two, kept in dictionaries: node i of level k is the one with the lowest
place among the amounts i·2^k … (i+1)·2^k − 1. So an amount between 1 and a billion costs 30 look-ups; memory goes to
amounts that exist.

`Ranked`: members with a number that may change, lowest first. A heap whose outdated entries are dropped when they come
up, or when they are the majority.

Invariant: a node of level k+1 is the lower of its two nodes of level k; `Ranked` has for each member an entry with its
present number.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from cronoq_sansio.limits import MAX_LANE_GARBAGE


class Placed(Protocol):
    """Something with a place in the order of waiting."""

    place: int


P = TypeVar("P", bound=Placed)
T = TypeVar("T")


class ByUnits(Generic[P]):
    """At most one thing per amount, from 0 up."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[dict[int, P]] = [{}]

    def __bool__(self) -> bool:
        return bool(self._levels[0])

    def __len__(self) -> int:
        return len(self._levels[0])

    def put(self, units: int, thing: P) -> None:
        """There is a thing for that amount, or its place has changed."""
        levels = self._levels
        while units >> (len(levels) - 1):  # the top level has one node, for all amounts
            top = levels[-1].get(0)
            levels.append({} if top is None else {0: top})
        levels[0][units] = thing
        self._lift(units, thing)

    def remove(self, units: int) -> None:
        """There is nothing for that amount any more."""
        self._lift(units, self._levels[0].pop(units))

    def get(self, units: int) -> P | None:
        """What there is for that amount."""
        return self._levels[0].get(units)

    def first(self) -> P:
        """The one with the lowest place; there is one."""
        return self._levels[-1][0]

    def lowest(self, units: int) -> P | None:
        """The one with the lowest place among amounts up to `units`; None without one."""
        end = units + 1
        if end <= 0:
            return None
        levels = self._levels
        if end >> (len(levels) - 1):
            return levels[-1].get(0)
        found: P | None = None
        for level in levels:
            if end & 1:  # the numbers below `end` are one node for each bit that is set
                thing = level.get(end - 1)
                if thing is not None and (found is None or thing.place < found.place):
                    found = thing
            end >>= 1
        return found

    def smallest(self) -> int:
        """The smallest amount; there is one."""
        units = 0
        for level in reversed(self._levels[:-1]):
            units <<= 1
            if units not in level:
                units += 1
        return units

    def things(self) -> dict[int, P]:
        """Everything by amount; for invariant checks."""
        return self._levels[0]

    def _lift(self, index: int, changed: P) -> None:
        levels = self._levels
        below = levels[0]
        for level in levels[1:]:
            left, right = below.get(index & ~1), below.get(index | 1)
            index >>= 1
            lower = right if left is None or (right is not None and right.place < left.place) else left
            if lower is level.get(index) and lower is not changed:
                return  # nothing is different from here on up
            if lower is None:
                del level[index]
            else:
                level[index] = lower
            below = level


class Ranked(Generic[T]):
    """Members by their numbers. `numbers` may be read."""

    __slots__ = ("_heap", "_serial", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}
        self._heap: list[tuple[int, int, T]] = []
        self._serial = 0

    def put(self, member: T, number: int) -> None:
        """It is a member, and has this number from now on."""
        if self.numbers.get(member) == number:
            return
        self.numbers[member] = number
        self._serial += 1
        heappush(self._heap, (number, self._serial, member))
        if len(self._heap) > 2 * len(self.numbers) + MAX_LANE_GARBAGE:
            self._heap = [(number, serial, member) for serial, (member, number) in enumerate(self.numbers.items())]
            heapify(self._heap)
            self._serial = len(self._heap)

    def discard(self, member: T) -> None:
        """It is no member any more."""
        self.numbers.pop(member, None)

    def first(self) -> T | None:
        """A member with the lowest number; None without members."""
        heap, numbers = self._heap, self.numbers
        while heap:
            number, _, member = heap[0]
            if numbers.get(member) == number:
                return member
            heappop(heap)
        return None
