"""What is due some time ahead of a start: slots are held, and occurrences are made (engine.md section 7).

The *lead* is the larger of a margin, which each entry has, and one that all entries share and that changes as the pool
learns how long its tasks run. So two heaps: one by start − margin, which stands still, and one by start, to which the
shared lead is applied when somebody looks. An entry is due when either says so, and no entry moves when the lead does.
Entries come back by due time, and among equals by their `order`.

Invariant: an entry that was neither taken nor cancelled stands in both heaps.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

from cronoq_sansio.engine.timers import Timer, TimerHeap

if TYPE_CHECKING:
    from cronoq_sansio.engine.dispatch import Pool

P = TypeVar("P")


class Entry(Generic[P]):
    """One start. `payload` says whose; None once it was taken or cancelled."""

    __slots__ = ("payload",)

    def __init__(self, payload: P) -> None:
        self.payload: P | None = payload


Heap = list[tuple[int, str, int, Entry[P]]]
"""By time, order, and the number of the entry."""


class Ahead(Generic[P]):
    """Entries of one pool. All times are wall time."""

    __slots__ = ("_by_margin", "_by_start", "_number", "count")

    #: Below this many entries that are over a rebuild costs more than it frees.
    MIN_GARBAGE = 64

    def __init__(self) -> None:
        self.count = 0
        """Entries that are neither taken nor cancelled."""
        self._number = 0
        self._by_margin: Heap[P] = []
        self._by_start: Heap[P] = []

    def add(self, start: int, margin: int, payload: P, order: str = "") -> Entry[P]:
        """Due at `start` − max(`margin`, lead), both ≥ 0; the result is for `cancel`."""
        self._number += 1
        self.count += 1
        entry = Entry(payload)
        heappush(self._by_margin, (start - margin, order, self._number, entry))
        heappush(self._by_start, (start, order, self._number, entry))
        return entry

    def cancel(self, entry: Entry[P]) -> None:
        """It is over. One that was taken or cancelled already is left alone."""
        if entry.payload is not None:
            self._drop(entry)

    def first(self, lead: int) -> tuple[int, str, Entry[P]] | None:
        """When the first entry is due, its order, and the entry; None without entries."""
        margins, starts = _skip(self._by_margin), _skip(self._by_start)
        if not margins:
            return None
        due, order, _, entry = margins[0]
        start, other, _, later = starts[0]
        return (due, order, entry) if (due, order) <= (start - lead, other) else (start - lead, other, later)

    def pop_due(self, wall: int, lead: int) -> P | None:
        """Take the first entry if it is due at `wall`; None when there is none."""
        first = self.first(lead)
        if first is None or first[0] > wall:
            return None
        payload = first[2].payload
        self._drop(first[2])
        return payload

    def _drop(self, entry: Entry[P]) -> None:
        entry.payload = None
        self.count -= 1
        if len(self._by_margin) + len(self._by_start) > 4 * self.count + self.MIN_GARBAGE:
            self._by_margin = _live(self._by_margin)
            self._by_start = _live(self._by_start)


def _skip(heap: Heap[P]) -> Heap[P]:
    """The heap without the entries at its top that are over."""
    while heap and heap[0][3].payload is None:
        heappop(heap)
    return heap


def _live(heap: Heap[P]) -> Heap[P]:
    live = [item for item in heap if item[3].payload is not None]
    heapify(live)
    return live


class Leads(Generic[P]):
    """Such entries of all pools. A pool is looked at when its first entry is due, or when its lead may have grown.

    Invariant: a pool with entries has one timer, for the first of them, with the lead as of the last look; when the
    lead has shrunk since, that is too early and does no harm.
    """

    __slots__ = ("_pools", "_timers")

    def __init__(self) -> None:
        self._pools: dict[Pool, tuple[Ahead[P], Timer[Pool], tuple[int, str]]] = {}
        """Of each pool with entries: them, its timer, and due time and order of the first of them."""
        self._timers: TimerHeap[Pool] = TimerHeap()

    def __len__(self) -> int:
        """Entries of all pools."""
        return sum(entries.count for entries, _, _ in self._pools.values())

    def add(self, pool: "Pool", start: int, margin: int, payload: P, order: str = "") -> Entry[P]:
        """Due at `start` − max(`margin`, lead of the pool); the result is for `cancel`."""
        known = self._pools.get(pool)
        if known is not None:
            entry = known[0].add(start, margin, payload, order)
            self.look(pool)
            return entry
        entries: Ahead[P] = Ahead()
        entry = entries.add(start, margin, payload, order)
        self._set(pool, entries)
        return entry

    def cancel(self, pool: "Pool", entry: Entry[P]) -> None:
        """It is over. One that was taken or cancelled already is left alone."""
        known = self._pools.get(pool)
        if known is not None:
            known[0].cancel(entry)
            self.look(pool)

    def look(self, pool: "Pool") -> None:
        """The lead of the pool may have grown; pools without entries are left alone."""
        known = self._pools.get(pool)
        if known is None:
            return
        entries, timer, seen = known
        first = entries.first(pool.lead())
        if first is None or first[:2] != seen:
            self._timers.cancel(timer)
            del self._pools[pool]
            self._set(pool, entries)

    def next(self) -> int | None:
        """When the first entry is due, wall time; None without entries."""
        return self._timers.next()

    def first(self) -> tuple[int, str] | None:
        """When the first entry is due, and its order; None without entries."""
        return self._timers.first()

    def pop_due(self, wall: int) -> P | None:
        """Take the first entry if it is due at `wall`; None when there is none."""
        while (pool := self._timers.pop_due(wall)) is not None:
            entries, _, seen = self._pools.pop(pool)
            lead = pool.lead()
            first = entries.first(lead)
            if first is None or first[:2] > seen:  # the lead has shrunk: others may come before
                self._set(pool, entries)
                continue
            payload = entries.pop_due(wall, lead)
            self._set(pool, entries)
            return payload
        return None

    def _set(self, pool: "Pool", entries: Ahead[P]) -> None:
        first = entries.first(pool.lead())
        if first is not None:
            due, order, _ = first
            self._pools[pool] = entries, self._timers.add(due, pool, order), (due, order)
