"""Timers as data: a heap of due times that the owner asks for the next one.

A cancelled entry stays in the heap and is skipped when it comes up; they are counted, and when they are the majority
the heap is rebuilt, so that a queue which is cancelled as fast as it is filled stays small. Entries due at the same
time come back by their `order`, and among equals in the order in which they were added.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

P = TypeVar("P")


class Timer(Generic[P]):
    """One entry. `payload` says what it is for; None once it fired or was cancelled."""

    __slots__ = ("payload",)

    def __init__(self, payload: P) -> None:
        self.payload: P | None = payload


class TimerHeap(Generic[P]):
    """Timers of one time scale."""

    __slots__ = ("_cancelled", "_number", "heap")

    #: Below this many cancelled entries a rebuild costs more than it frees.
    MIN_GARBAGE = 64

    def __init__(self) -> None:
        self.heap: list[tuple[int, str, int, Timer[P]]] = []
        """Due time, order, number, timer; cancelled ones among them. Who sees it empty need not ask for `next`."""
        self._number = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """Timers that are set."""
        return len(self.heap) - self._cancelled

    def add(self, when: int, payload: P, order: str = "") -> Timer[P]:
        """Set a timer; the result is for `cancel`."""
        self._number += 1
        timer = Timer(payload)
        heappush(self.heap, (when, order, self._number, timer))
        return timer

    def cancel(self, timer: Timer[P]) -> None:
        """Unset a timer. One that fired or was cancelled already is left alone."""
        if timer.payload is None:
            return
        timer.payload = None
        self._cancelled += 1
        if self._cancelled > self.MIN_GARBAGE and self._cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[3].payload is not None]
            heapify(self.heap)
            self._cancelled = 0

    def clear(self) -> None:
        """Drop what is left of timers that were all cancelled."""
        self.heap.clear()
        self._cancelled = 0

    def next(self) -> int | None:
        """When the earliest timer is due; None without timers."""
        heap = self.heap
        if heap and heap[0][3].payload is None:
            self._skip()
        return heap[0][0] if heap else None

    def first(self) -> tuple[int, str] | None:
        """When the earliest timer is due, and its order; None without timers."""
        self._skip()
        return self.heap[0][:2] if self.heap else None

    def pop_due(self, now: int) -> P | None:
        """Take the earliest timer that is due at `now`; None when there is none."""
        self._skip()
        if not self.heap or self.heap[0][0] > now:
            return None
        timer = heappop(self.heap)[3]
        payload = timer.payload
        timer.payload = None
        return payload

    def _skip(self) -> None:
        heap = self.heap
        while heap and heap[0][3].payload is None:
            heappop(heap)
            self._cancelled -= 1
