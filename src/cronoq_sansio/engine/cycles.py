"""Cycles in what tasks wait for, and the order in which a batch is admitted (engine.md section 5).

Theory. Tasks that are admitted wait for each other without a cycle, and an edge is never added between two of them
except by a key that appears. So a new cycle goes through a new task: through edges inside a batch, or through a
blocked task that awaits the key of a new one. Members of the batch are nodes ``-1, -2, …`` here, live tasks are their
ids. The walk goes from members to what they wait for, only as far as blocked tasks reach, and only when a cycle is
possible at all.

Two walks look for it. The first starts with the tasks that await a new key and goes to those that wait for them, until
it meets something that a new task waits for. Nearly always nobody waits for them, and the walk ends at once, however
long the chain of parents is. Only for a batch does the second one follow: from its members to what they wait for.

Both stop after `limits.MAX_CYCLE_WALK` edges: a submission whose cycle cannot be ruled out by then is refused, so that
a caller who builds large graphs holds nobody up. Everything is iterative.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from heapq import heapify, heappop, heappush

from cronoq_sansio.limits import MAX_CYCLE_NAMES

Parents = Callable[[int], Iterable[int]]
"""What a node waits for."""


def topological(parents: Sequence[Iterable[int]]) -> list[int]:
    """Indices of the members, each after all its `parents`, else in the order of the request.

    Members on a cycle, or behind one, are missing.
    """
    children: list[list[int]] = [[] for _ in parents]
    unmet = [0] * len(parents)
    for member, others in enumerate(parents):
        for other in others:
            children[other].append(member)
            unmet[member] += 1
    ready = [member for member, count in enumerate(unmet) if not count]
    heapify(ready)
    order = []
    while ready:
        member = heappop(ready)
        order.append(member)
        for child in children[member]:
            unmet[child] -= 1
            if not unmet[child]:
                heappush(ready, child)
    return order


def reach(starts: Iterable[int], children: Parents, targets: Container[int], budget: int) -> tuple[list[int], bool]:
    """The shortest way from one of `starts` along `children` to one of `targets`, both ends included, or nothing.

    The second is False when `budget` edges were not enough to know.
    """
    came_from = dict.fromkeys(starts, 0)
    queue = deque(came_from)
    while queue:
        node = queue.popleft()
        if node in targets:
            way = [node]
            while came_from[way[-1]]:
                way.append(came_from[way[-1]])
            return way[::-1], True
        for child in children(node):
            budget -= 1
            if budget < 0:
                return [], False
            if child not in came_from:
                came_from[child] = node
                queue.append(child)
    return [], True


def find(members: int, parents: Parents) -> list[int]:
    """The shortest cycle through the first of the `members` that lies on one, from it, without its repetition.

    Empty when there is none.
    """
    first = max((node for component in _components(members, parents) for node in component if node < 0), default=0)
    return _shortest(first, parents) if first else []


def text(names: Sequence[str]) -> str:
    """``a -> b -> a``: each waits for the next. Of a long cycle some members are only counted."""
    shown = [*names]
    if len(names) > MAX_CYCLE_NAMES:
        shown = [*names[: MAX_CYCLE_NAMES - 1], f"… {len(names) - MAX_CYCLE_NAMES} more …", names[-1]]
    return " -> ".join([*shown, names[0]])


def _components(members: int, parents: Parents) -> Iterable[list[int]]:
    """The groups of two or more nodes that all reach each other (Tarjan's strongly connected components)."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    open_nodes: set[int] = set()
    path: list[tuple[int, Iterable[int]]] = []

    def enter(node: int) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        open_nodes.add(node)
        path.append((node, iter(parents(node))))

    for start in range(-1, -members - 1, -1):
        if start not in number:
            enter(start)
        while path:
            node, others = path[-1]
            for other in others:
                if other not in number:
                    enter(other)
                    break
                if other in open_nodes:
                    lowest[node] = min(lowest[node], number[other])
            else:
                path.pop()
                if path:
                    below = path[-1][0]
                    lowest[below] = min(lowest[below], lowest[node])
                if lowest[node] == number[node]:
                    position = len(stack) - 1
                    while stack[position] != node:
                        position -= 1
                    component = stack[position:]
                    del stack[position:]
                    open_nodes.difference_update(component)
                    if len(component) > 1:
                        yield component


def _shortest(start: int, parents: Parents) -> list[int]:
    """The shortest way from a node back to itself; there is one."""
    came_from: dict[int, int] = {}
    level = [start]
    while start not in came_from:
        following = []
        for node in level:
            for other in parents(node):
                if other not in came_from:
                    came_from[other] = node
                    following.append(other)
        level = following
    way = [came_from[start]]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
