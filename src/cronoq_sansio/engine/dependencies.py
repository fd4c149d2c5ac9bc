"""Tasks that wait for the ends of others (engine.md section 5).

Rules. An edge names a parent by id or key, and asks for its success, for any end, or for its failure. A task is BLOCKED
until each of its edges is met; the first edge that can never be met ends it as SKIPPED, and so on through its own
dependents. An id is a live task, or a finished one that is still remembered, or unknown. A key likewise, or one that
is defined in the same batch; in a pool that awaits keys the task waits for a later submission with that key, until its
time is over. A parent that has ended already is judged at once: an edge that is met disappears.

Theory. A `Parent` stands for a live task that others wait for, or for a key that nobody has yet. When the key appears,
the same object gets the id: all edges are attached by one assignment, and only their rows are left to be rewritten.
When a task ends, its `Parent` moves to the end of a queue; its children are judged one by one, so a cascade neither
recurses nor takes more than its share of a step. Both queues can be derived from stored rows, as long as the task that
brought a key is remembered; so they may stand still while the store is behind (`CascadesHeld`).

Invariant: each BLOCKED task is in `any` once, with its distinct parents; each parent that has not ended knows exactly
the blocked tasks that wait for it, and one without children does not exist, so children that are cancelled leave
nothing behind. `unmet` counts the parents of a task that have not been judged yet; it is at least 1. A task that awaits
a key has a timer. The graph of unmet edges has no cycle: see `cycles.py`.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from cronoq_sansio.clock import seconds
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.records import Edge, EdgeResolved
from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.spec import Condition, TaskSpec, TaskStatus
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

FAILURES = (int(TaskStatus.FAILED), int(TaskStatus.DEAD_LETTERED))


def met(condition: int, status: int) -> bool:
    """Whether the end of a parent is what the edge asks for."""
    if condition == Condition.ON_COMPLETE:
        return True
    return status in FAILURES if condition == Condition.ON_FAILURE else status == TaskStatus.SUCCEEDED


def reason(task_id: int, key: str, status: int, condition: int) -> str:
    """Why a task is skipped: which parent ended how, and what was asked of it."""
    name = f"task {task_id} (key {key!r})" if key else f"task {task_id}"
    end, asked = TaskStatus(status).name.lower(), Condition(condition).name.lower()
    return f"{name} ended as {end}, the dependency asks for {asked}"


@value
class Resolved:
    """The dependencies of a submission that may be admitted: all of them exist, or will be awaited."""

    unmet: tuple[tuple[Task | str, int], ...]
    """Parent and condition, each pair once, in the order of the specification. A key is one that nobody has yet."""
    impossible: str
    """Why the task ends as soon as it is admitted; empty otherwise."""


class Parent:
    """What tasks wait for."""

    __slots__ = ("children", "id", "key", "status", "stored")

    def __init__(self, task_id: int, key: str) -> None:
        self.id = task_id
        """0 = nobody has the key yet."""
        self.key = key
        self.status = 0
        """How it ended; 0 = not yet."""
        self.stored = 0
        """When it has ended: the step that wrote it."""
        self.children: dict[int, tuple[int, ...]] = {}
        """Id of each blocked task that waits for it, and the conditions that it asks for. Left alone after the end."""

    def __repr__(self) -> str:
        return f"<Parent {self.id or repr(self.key)} children={len(self.children)}>"


class Blocked:
    """A task that waits."""

    __slots__ = ("parents", "task", "timer", "unmet")

    def __init__(self, task: Task, parents: tuple[Parent, ...]) -> None:
        self.task = task
        self.parents = parents
        self.unmet = len(parents)
        """How many of them have not been judged."""
        self.timer: Timer[int] | None = None
        """The end of its wait for keys."""


class Dependencies:
    """Every edge of a term that may still decide something."""

    __slots__ = ("_appeared", "_ended", "_timers", "any", "held", "parents", "unsettled")

    def __init__(self) -> None:
        self.any: dict[int, Blocked] = {}
        """Blocked tasks by id: nobody depends on anything while this is empty."""
        self.parents: dict[int | str, Parent] = {}
        """Those that have not ended, by id, or by key while nobody has it."""
        self.unsettled = 0
        """How many parents came or ended for which `settle` has something left to do."""
        self.held = False
        """`settle` leaves it for later: the store cannot keep up with what follows from it."""
        self._appeared: deque[tuple[Parent, Iterator[int]]] = deque()
        """Keys that came, and the children whose rows do not say so yet."""
        self._ended: deque[tuple[Parent, Iterator[int]]] = deque()
        """Parents that ended, and the children that were not judged yet."""
        self._timers: TimerHeap[int] = TimerHeap()

    # --- a new task

    def resolve(self, engine: "Engine", spec: TaskSpec, defined: Container[str]) -> Resolved | Rejection:
        """Find the parents of a submission. `defined`: keys of its batch that nobody has yet."""
        assert spec.scheduling is not None
        awaits = engine.pools[spec.pool].settings.await_unknown_dependencies is not None
        unmet: dict[tuple[Task | str, int], None] = {}
        impossible = ""
        for index, dependency in enumerate(spec.scheduling.dependencies):
            ref, condition = dependency.ref, dependency.condition
            parent = _known(engine, ref)
            if isinstance(parent, Retained):
                if not impossible and not met(condition, parent.status):
                    impossible = reason(parent.task_id, parent.key, parent.status, condition)
            elif parent is not None:
                unmet[parent, condition] = None
            elif not isinstance(ref, str):
                return Rejection(Code.UNKNOWN_DEPENDENCY, f"deps[{index}]: no task has the id {ref}")
            elif ref == spec.key:
                return Rejection(Code.CYCLE, f"deps[{index}]: the task depends on itself: {ref} -> {ref}")
            elif awaits or ref in defined:
                unmet[ref, condition] = None
            else:
                return Rejection(
                    Code.UNKNOWN_DEPENDENCY,
                    f"deps[{index}]: no task has the key {ref!r}, and pool {spec.pool!r} does not wait for one "
                    "(await_unknown_dependencies_s)",
                )
        return Resolved(tuple(unmet), impossible)

    def edges(self, resolved: Resolved, admitted: Mapping[str, Task]) -> tuple[tuple[Edge, ...], str]:
        """The edges of the task that is admitted now, and why it ends at once, else empty.

        `admitted`: members of its batch by key, of which one may have ended at once.
        """
        edges = []
        impossible = resolved.impossible
        for ref, condition in resolved.unmet:
            parent = admitted.get(ref) if isinstance(ref, str) else ref
            if parent is None:
                edges.append(Edge(0, str(ref), condition))
            elif parent.status < TaskStatus.SUCCEEDED:
                edges.append(Edge(parent.id, "", condition))
            elif not impossible and not met(condition, parent.status):
                impossible = reason(parent.id, parent.spec.key, parent.status, condition)
        return (() if impossible else tuple(edges)), impossible

    def attach(self, engine: "Engine", task: Task, edges: tuple[Edge, ...], due: int = 0) -> None:
        """A task is BLOCKED by these edges, whose parents are live; it awaits keys until `due` on the `now` scale."""
        parents: dict[Parent, None] = {}
        for edge in edges:
            ref = edge.parent or edge.key
            parent = self.parents.get(ref)
            if parent is None:
                key = engine.tasks.live[edge.parent].spec.key if edge.parent else edge.key
                parent = self.parents[ref] = Parent(edge.parent, key)
            parents[parent] = None
            asked = parent.children.get(task.id, ())
            parent.children[task.id] = _ALONE[edge.condition] if not asked else (*asked, edge.condition)
        blocked = self.any[task.id] = Blocked(task, tuple(parents))
        if due:
            blocked.timer = self._timers.add(due, task.id)

    def awaited(self, key: str) -> bool:
        """Whether blocked tasks wait for a task with this key, which nobody has yet."""
        return key in self.parents

    def appeared(self, task: Task) -> None:
        """A task was admitted: if its key was awaited, the edges are its own from now on."""
        parent = self.parents.pop(task.spec.key, None)
        if parent is not None:
            parent.id = task.id
            self.parents[task.id] = parent
            self._appeared.append((parent, iter(list(parent.children))))
            self.unsettled += 1

    def children_of(self, ref: int | str) -> Iterable[int]:
        """Who waits for a live task, or for a key that nobody has yet."""
        parent = self.parents.get(ref)
        return () if parent is None else parent.children

    def owe(self, task_id: int, key: str, children: list[int]) -> None:
        """The rows of these children still await a key that this task has: `settle` writes them."""
        if self.any:
            self._appeared.append((Parent(task_id, key), iter(children)))
            self.unsettled += 1

    def refs_of(self, task_id: int) -> list[int | str]:
        """What a task waits for: ids, and keys that nobody has yet. Empty when it is not blocked."""
        blocked = self.any.get(task_id)
        if blocked is None:
            return []
        return [parent.id or parent.key for parent in blocked.parents if not parent.status]

    # --- ends

    def ended(self, task: Task) -> None:
        """A task has ended: those that wait for it are judged by `settle`. It does not wait any more itself."""
        self._drop(task)
        parent = self.parents.pop(task.id, None)
        if parent is not None:
            parent.status, parent.stored = task.status, task.stored
            self._ended.append((parent, iter(parent.children)))
            self.unsettled += 1

    # --- consequences, in portions

    def settle(self, engine: "Engine", units: int) -> int:
        """Work off up to `units` children of parents that came or ended, first come first; how many units are left.

        While they are held back nothing is worked off.
        """
        if self.held:
            return units
        for queue, work in ((self._appeared, self._store_parent), (self._ended, self._judge)):
            while units and queue:
                parent, children = queue[0]
                for child in islice(children, units):
                    units -= 1
                    work(engine, parent, child)
                if units and queue:  # it had no more
                    queue.popleft()
                    self.unsettled -= 1
        return units

    def next_timeout(self) -> int | None:
        """When `settle` or `fire` has something to do, on the `now` scale; 0 = now. None while nobody is blocked."""
        return 0 if self.unsettled and not self.held else self._timers.next()

    def fire(self, engine: "Engine", units: int) -> int:
        """End up to `units` waits for keys that did not come in time; how many units are left."""
        while units and (task_id := self._timers.pop_due(engine.now)) is not None:
            units -= 1
            blocked = self.any[task_id]
            blocked.timer = None
            key = next((parent.key for parent in blocked.parents if not parent.id), None)
            if key is not None:
                lifecycle.skip(engine, blocked.task, overdue(key, engine.now - blocked.task.arrival))
        return units

    def _store_parent(self, engine: "Engine", parent: Parent, child: int) -> None:
        blocked = self.any.get(child)
        if blocked is None:
            return
        engine.step.writes.append(EdgeResolved(child, parent.key, parent.id))
        blocked.task.stored = engine.number
        if blocked.timer is not None and all(other.id for other in blocked.parents):
            self._timers.cancel(blocked.timer)
            blocked.timer = None

    def _judge(self, engine: "Engine", parent: Parent, child: int) -> None:
        blocked = self.any.get(child)
        if blocked is None:
            return  # it ended by itself meanwhile
        task = blocked.task
        for condition in parent.children[child]:
            if not met(condition, parent.status):
                lifecycle.skip(engine, task, reason(parent.id, parent.key, parent.status, condition))
                return
        blocked.unmet -= 1
        if parent.stored > task.stored:
            task.stored = parent.stored  # whoever sees it READY sees that this parent has ended
        if not blocked.unmet:
            self._drop(task)
            lifecycle.unblock(engine, task)

    def _drop(self, task: Task) -> None:
        """A blocked task does not wait any more, whatever the reason. Any other task is left alone."""
        blocked = self.any.pop(task.id, None)
        if blocked is None:
            return
        if blocked.timer is not None:
            self._timers.cancel(blocked.timer)
        for parent in blocked.parents:
            if not parent.status:
                del parent.children[task.id]
                if not parent.children:
                    del self.parents[parent.id or parent.key]
        if not self.any:  # whatever still stood there has nobody who waits
            self._appeared.clear()
            self._ended.clear()
            self._timers.clear()
            self.unsettled = 0

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows."""
        return {
            "blocked_tasks": len(self.any),
            "awaited_parents": len(self.parents),
            "dependency_timers": len(self._timers),
            "unsettled_parents": self.unsettled,
        }

    def check_invariants(self, engine: "Engine") -> None:
        """Assert what must always hold; costs as much as there are edges."""
        assert self.unsettled == len(self._appeared) + len(self._ended), "unsettled parents are miscounted"
        for task_id, blocked in self.any.items():
            task = engine.tasks.live.get(task_id)
            assert task is blocked.task and task.status == TaskStatus.BLOCKED, f"{blocked.task} is not BLOCKED"
            live = [parent for parent in blocked.parents if not parent.status]
            assert max(len(live), 1) <= blocked.unmet <= len(blocked.parents), f"{task}: unmet parents are miscounted"
            assert self._ended or blocked.unmet == len(live), f"{task} waits for a parent that was never judged"
            for parent in live:
                assert self.parents.get(parent.id or parent.key) is parent, f"{task} waits for {parent}: not known"
                assert task_id in parent.children, f"{task} waits for {parent}, which does not know it"
            awaits = not all(parent.id for parent in blocked.parents)
            assert not awaits or blocked.timer is not None, f"{task} awaits a key without end"
            assert self._appeared or awaits or blocked.timer is None, f"{task} has a timer but awaits no key"
        timers = sum(blocked.timer is not None for blocked in self.any.values())
        assert self.any or not self._timers.heap, "nobody is blocked, and timers are left"
        assert len(self._timers) == timers, "there is not one timer per task that awaits a key"
        for ref, parent in self.parents.items():
            assert parent.children and not parent.status, f"{parent} decides nothing"
            assert ref == (parent.id or parent.key), f"{parent} is listed as {ref!r}"
            if parent.id:
                assert parent.id in engine.tasks.live, f"{parent} is not live"
            else:
                assert engine.find(parent.key) is None, f"{parent} is awaited but there"
            for child in parent.children:
                blocked_child = self.any.get(child)
                assert blocked_child is not None and parent in blocked_child.parents, f"{parent}: {child} is no child"
        waiting = sum(task.status == TaskStatus.BLOCKED for task in engine.tasks.live.values())
        assert waiting == len(self.any), "a BLOCKED task waits for nothing"


#: The usual case, one condition per parent, without a tuple of its own for every edge.
_ALONE = {int(condition): (int(condition),) for condition in Condition}


def overdue(key: str, waited: int) -> str:
    """Why a task is skipped that waited so many nanoseconds for a key."""
    rounded = float(f"{seconds(waited):.3g}")  # the moment at which a timer was looked at says nothing
    return f"no task with the key {key!r} came within {rounded:.10g} s"


def awaits(edges: tuple[Edge, ...]) -> bool:
    """Whether one of them waits for a key that nobody has yet."""
    return not all(edge.parent for edge in edges)


def _known(engine: "Engine", ref: int | str) -> Task | Retained | None:
    """The task, live or still remembered; swept or not, a finished one is not remembered beyond its time."""
    known = engine.find(ref)
    return None if isinstance(known, Retained) and known.expires <= engine.now else known
