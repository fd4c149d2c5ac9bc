"""The reservations of one pool, and how many of them cover an instant (engine.md section 7).

Theory. Of all intervals [begin, end) together only the *jumps* matter: the instants at which the number of those that
cover changes, and by how much. An interval adds 1 at its begin and −1 at its end; where one ends as another begins the
two cancel, and so touching intervals do not overlap. The level at an instant is the sum of the jumps up to it.

Jumps stand in an AVL tree, by instant. Each node knows the sum of its subtree, and how high and how low the level gets
within, so a whole subtree is passed in one step and every operation walks a path or two. The tree is never deeper than
1.44 log₂(n + 2), *in whatever order instants come*: callers choose them, and could break what is balanced by chance.
Nodes are never changed, a path is made anew; that leaves four cases of balancing, each of them one line.

Invariants: no jump is 0, instants ascend, heights of siblings differ by 1 at most, no level is negative, the last is 0.

An empty interval covers nothing: it is ignored wherever it turns up. About 0.3 KiB per reservation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator


class _Node:
    """A jump, and its subtree. `top` and `low`: of the levels within, and 0, if the level before is 0."""

    __slots__ = ("at", "height", "left", "low", "right", "step", "top", "top_at", "total")

    height: int
    total: int
    low: int
    top: int
    top_at: int

    def __init__(self, left: "_Node", at: int, step: int, right: "_Node") -> None:
        self.left, self.at, self.step, self.right = left, at, step, right
        self.height = (left.height if left.height > right.height else right.height) + 1
        level = left.total + step
        self.total = level + right.total
        self.low = min(left.low, level + right.low)  # which is not above `level`
        top, self.top_at = left.top, left.top_at
        if level > top:
            top, self.top_at = level, at
        if level + right.top > top:
            top, self.top_at = level + right.top, right.top_at
        self.top = top


class _Nothing(_Node):
    """The subtree without a jump."""

    __slots__ = ()

    def __init__(self) -> None:
        self.at = self.top_at = self.height = self.total = self.top = self.low = 0


NOTHING = _Nothing()


class Calendar:
    """Intervals of integers; the same one may be there several times."""

    __slots__ = ("_count", "_root")

    def __init__(self) -> None:
        self._root: _Node = NOTHING
        self._count = 0

    def __len__(self) -> int:
        """How many intervals are there, empty ones aside."""
        return self._count

    def add(self, begin: int, end: int) -> None:
        """Reserve [begin, end)."""
        if begin < end:
            self._count += 1
            self._root = _changed(_changed(self._root, begin, 1), end, -1)

    def remove(self, begin: int, end: int) -> None:
        """Give back what `add` reserved with the same arguments."""
        if begin < end:
            self._count -= 1
            self._root = _changed(_changed(self._root, begin, -1), end, 1)

    def peak(self, begin: int, end: int) -> tuple[int, int]:
        """The most intervals that cover one instant of [begin, end), and the first such instant; (0, begin) if none."""
        if begin >= end:
            return 0, begin
        level, node = 0, self._root
        while node is not NOTHING:
            if node.at > begin:
                node = node.left
            else:
                level += node.left.total + node.step
                node = node.right
        return _highest(self._root, begin, end, 0, (level, begin))

    def next_free(self, begin: int, length: int, limit: int, tries: int) -> int | None:
        """The first instant from `begin` on at which an interval of that length meets less than `limit` others at once.

        None when it was not found past `tries` − 1 stretches that are full.
        """
        for _ in range(tries):
            most, at = self.peak(begin, begin + length)
            if most < limit:
                return begin
            free = _below(self._root, at, 0, limit)  # what begins before it covers `at`, or begins where it is full
            if free is None:
                return None
            begin = free
        return None

    def next_change(self, after: int) -> int | None:
        """The first instant later than `after` at which the level changes; None when it never does."""
        node, found = self._root, None
        while node is not NOTHING:
            if node.at > after:
                found, node = node.at, node.left
            else:
                node = node.right
        return found

    def first(self) -> int | None:
        """The earliest begin; None when there is no interval."""
        node, found = self._root, None
        while node is not NOTHING:
            found, node = node.at, node.left
        return found

    def check_invariants(self, intervals: Iterable[tuple[int, int]]) -> None:
        """Assert that exactly these intervals are there, and what the head of this file promises."""
        some = [(begin, end) for begin, end in intervals if begin < end]
        assert self._count == len(some), f"{self._count} reservations are counted, there are {len(some)}"
        jumps = Counter(begin for begin, _ in some)
        jumps.subtract(end for _, end in some)
        nodes = list(_ascending(self._root))
        expected = [(at, jumps[at]) for at in sorted(jumps) if jumps[at]]
        assert [(node.at, node.step) for node in nodes] == expected, "the jumps are not those of the reservations"
        for node in nodes:
            assert abs(node.left.height - node.right.height) <= 1, f"the calendar is out of balance at {node.at}"
            again = _Node(node.left, node.at, node.step, node.right)
            same = all(getattr(node, name) == getattr(again, name) for name in _Node.__slots__)
            assert same, f"the calendar has wrong sums at {node.at}"


def _changed(node: _Node, at: int, difference: int) -> _Node:
    """The subtree with another jump at `at`."""
    if node is NOTHING:
        return _Node(NOTHING, at, difference, NOTHING)
    left, right = node.left, node.right
    if at < node.at:
        return _balanced(_changed(left, at, difference), node.at, node.step, right)
    if at > node.at:
        return _balanced(left, node.at, node.step, _changed(right, at, difference))
    if node.step + difference:
        return _Node(left, at, node.step + difference, right)
    if right is NOTHING:
        return left
    first = right
    while first.left is not NOTHING:
        first = first.left
    return _balanced(left, first.at, first.step, _changed(right, first.at, -first.step))


def _balanced(left: _Node, at: int, step: int, right: _Node) -> _Node:
    """The node of a jump between two subtrees whose heights differ by 2 at most."""
    if left.height > right.height + 1:
        inner = left.right
        if left.left.height >= inner.height:
            return _Node(left.left, left.at, left.step, _Node(inner, at, step, right))
        outer = _Node(left.left, left.at, left.step, inner.left)
        return _Node(outer, inner.at, inner.step, _Node(inner.right, at, step, right))
    if right.height > left.height + 1:
        inner = right.left
        if right.right.height >= inner.height:
            return _Node(_Node(left, at, step, inner), right.at, right.step, right.right)
        outer = _Node(inner.right, right.at, right.step, right.right)
        return _Node(_Node(left, at, step, inner.left), inner.at, inner.step, outer)
    return _Node(left, at, step, right)


def _highest(node: _Node, begin: int | None, end: int | None, level: int, best: tuple[int, int]) -> tuple[int, int]:
    """`best`, or the first jump of the subtree, later than `begin` and before `end`, that leads higher than it.

    None: no jump of the subtree lies beyond. `level` is that before the subtree.
    """
    if node is NOTHING:
        return best
    if begin is None and end is None:
        return (level + node.top, node.top_at) if level + node.top > best[0] else best
    if end is not None and node.at >= end:
        return _highest(node.left, begin, end, level, best)
    reached = level + node.left.total + node.step
    if begin is None or node.at > begin:
        best = _highest(node.left, begin, None, level, best)
        if reached > best[0]:
            best = reached, node.at
        begin = None
    return _highest(node.right, begin, end, reached, best)


def _below(node: _Node, after: int, level: int, limit: int) -> int | None:
    """The first jump of the subtree, later than `after`, that leads below `limit`; `level` as above."""
    if node is NOTHING or level + node.low >= limit:
        return None
    if node.at > after:
        found = _below(node.left, after, level, limit)
        if found is not None:
            return found
    level += node.left.total + node.step
    if node.at > after and level < limit:
        return node.at
    return _below(node.right, after, level, limit)


def _ascending(node: _Node) -> Iterator[_Node]:
    if node is not NOTHING:
        yield from _ascending(node.left)
        yield node
        yield from _ascending(node.right)
