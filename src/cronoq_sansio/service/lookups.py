"""Queries to the store that are under way, and what callers are told of tasks.

A query is numbered; its call names the number and the table names the call, exactly as long as somebody wants the
answer.

The store has `MAX_QUERIES` of them at a time, however many calls ask for at once; the others wait in their order, and
go when one is answered or not wanted any more. What was written before a query is asked is durable when the store looks
at it, so it shows what every call before it did.
"""

from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Final

from cronoq_sansio.engine.task import Task
from cronoq_sansio.engine.timers import Timer, TimerHeap
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_QUERIES
from cronoq_sansio.service.messages import Call, ReadStore, StoredTask, StoreQuery, TaskInfo, TaskRef
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.waits import Asking
from cronoq_sansio.spec import tenant_of

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


class NotAsked(Enum):
    """The store was not asked yet, which is something else than "it has no such task" (None)."""

    NOT_ASKED = "not asked"


NOT_ASKED: Final = NotAsked.NOT_ASKED
StoreWord = StoredTask | NotAsked | None
"""What the store says about a task."""


class LookupsDue:
    """Payload of the timer that asks the store for what waits."""


class Lookups:
    """Calls that wait for the store."""

    __slots__ = ("_calls", "_engine", "_number", "_put_off", "_timer", "_timers", "_turn")

    def __init__(self, engine: "Engine", turn: Turn, timers: TimerHeap[object]) -> None:
        self._engine = engine
        self._turn = turn
        self._timers = timers
        self._calls: dict[int, Call] = {}
        self._put_off: OrderedDict[int, StoreQuery] = OrderedDict()
        """Queries that the store does not have yet, oldest first."""
        self._timer: Timer[object] | None = None
        self._number = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, number: int) -> bool:
        return number in self._calls

    def issue(self, call: Call, asking: Asking) -> int:
        """The number of a query that the call asks."""
        self._number += 1
        asking.query = self._number
        self._calls[self._number] = call
        return self._number

    def ask(self, query: StoreQuery) -> None:
        """The query that a call was issued its number for: it goes now, or when the store has fewer."""
        self._put_off[query.number] = query
        self.go_on()

    def go_on(self) -> None:
        """Ask as much of what waits as the store may have."""
        put_off = self._put_off
        while put_off and len(self._calls) - len(put_off) < MAX_QUERIES:
            _, query = put_off.popitem(last=False)
            self._turn.once_durable.append(ReadStore(query, self._engine.written))

    def due(self) -> None:
        """The timer has fired."""
        self._timer = None
        self.go_on()

    def take(self, query: StoreQuery) -> Call | None:
        """The store answered: the call that asked, or None when nobody wants to know any more."""
        call = self._calls.pop(query.number, None)
        if call is not None and isinstance(call.wait, Asking):
            call.wait.query = 0
        if self._put_off:
            self.go_on()
        return call

    def drop(self, asking: Asking) -> None:
        """Nobody wants the answer any more. Does nothing without a query."""
        if not asking.query:
            return
        self._calls.pop(asking.query, None)
        self._put_off.pop(asking.query, None)
        asking.query = 0
        if self._put_off and self._timer is None:  # calls end outside of steps too, where nothing can be asked
            self._timer = self._timers.add(self._turn.now, LookupsDue())

    def take_all(self) -> list[Call]:
        """The term ends: everybody who waits for the store."""
        calls = list(self._calls.values())
        self._calls.clear()
        self._put_off.clear()
        for call in calls:
            if isinstance(call.wait, Asking):
                call.wait.query = 0
        return calls

    def check_invariants(self) -> None:
        """Each query belongs to an open call that names it."""
        for number, call in self._calls.items():
            assert call.open and isinstance(call.wait, Asking) and call.wait.query == number
        assert self._put_off.keys() <= self._calls.keys()
        asked = len(self._calls) - len(self._put_off)
        assert asked == MAX_QUERIES or (asked < MAX_QUERIES and (not self._put_off or self._timer is not None))


def unknown(ref: TaskRef) -> Rejection:
    """There is no such task, or it is forgotten."""
    return Rejection(Code.NOT_FOUND, f"no task with key {ref!r}" if isinstance(ref, str) else f"no task with id {ref}")


def task_info(task: Task) -> TaskInfo:
    """What `Get` shows of a task, live or ended; whether there is an output is for the cache and the store to say."""
    spec = task.spec
    return TaskInfo(
        task.id,
        task.status,
        spec.pool,
        spec.key,
        spec.kind,
        task.attempt,
        task.max_attempts,
        task.created,
        task.last_started or None,
        task.finished or None,
        task.message,
        False,
        spec.priority,
        tenant_of(spec),
    )
