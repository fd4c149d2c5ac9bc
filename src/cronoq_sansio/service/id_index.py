"""Ids in ascending order that come and go in any order: a list of short sorted lists.

Adding and discarding cost a search and a move within one short list, whatever the number of ids; most ids come at or
near the end.

Invariant: the ids of all chunks, one after the other, are strictly ascending; no chunk is empty; ``_firsts`` has for
each chunk an id that is at most its first one and above all of the chunk before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

CHUNK = 512  #: ids per list; a full one is cut in halves


class IdIndex:
    """A sorted set of ids."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[list[int]] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, task_id: int) -> None:
        """An id that is not there yet."""
        chunks = self._chunks
        if not chunks:
            chunks.append([task_id])
            self._firsts.append(task_id)
            return
        last = chunks[-1]
        if task_id > last[-1] and len(last) < CHUNK:  # tasks end in the order of their ids, more or less
            last.append(task_id)
            return
        at = max(bisect_right(self._firsts, task_id) - 1, 0)
        chunk = self._chunks[at]
        if task_id > chunk[-1]:
            chunk.append(task_id)
        else:
            chunk.insert(bisect_left(chunk, task_id), task_id)
            self._firsts[at] = min(self._firsts[at], task_id)
        if len(chunk) > CHUNK:
            half = len(chunk) // 2
            self._chunks.insert(at + 1, chunk[half:])
            self._firsts.insert(at + 1, chunk[half])
            del chunk[half:]

    def discard(self, task_id: int) -> None:
        """An id that is there."""
        at = bisect_right(self._firsts, task_id) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, task_id)]
        if not chunk:
            del self._chunks[at], self._firsts[at]

    def after(self, task_id: int) -> Iterator[int]:
        """Ids above `task_id`, ascending. The index must not change meanwhile."""
        at = max(bisect_right(self._firsts, task_id) - 1, 0)
        for position in range(at, len(self._chunks)):
            chunk = self._chunks[position]
            yield from chunk if chunk[0] > task_id else chunk[bisect_right(chunk, task_id) :]

    def check_invariants(self) -> None:
        """Order, and the firsts."""
        ids = list(self.after(-1))
        assert ids == sorted(set(ids)) and len(ids) == len(self)
        assert len(self._firsts) == len(self._chunks)
        last = -1
        for first, chunk in zip(self._firsts, self._chunks, strict=True):
            assert last < first <= chunk[0] and len(chunk) <= CHUNK
            last = chunk[-1]
