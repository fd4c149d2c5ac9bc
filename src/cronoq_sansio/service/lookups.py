"""Queries to the store that are under way, and what callers are told of tasks.

A query is numbered; its call names the number and the table names the call, exactly as long as somebody wants the
answer.
"""

from enum import Enum
from typing import Final

from cronoq_sansio.engine.task import Task
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import Call, StoredTask, StoreQuery, TaskInfo, TaskRef
from cronoq_sansio.service.waits import Asking
from cronoq_sansio.spec import tenant_of


class NotAsked(Enum):
    """The store was not asked yet, which is something else than "it has no such task" (None)."""

    NOT_ASKED = "not asked"


NOT_ASKED: Final = NotAsked.NOT_ASKED
StoreWord = StoredTask | NotAsked | None
"""What the store says about a task."""


class Lookups:
    """Calls that wait for the store."""

    __slots__ = ("_calls", "_number")

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
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

    def take(self, query: StoreQuery) -> Call | None:
        """The store answered: the call that asked, or None when nobody wants to know any more."""
        call = self._calls.pop(query.number, None)
        if call is not None and isinstance(call.wait, Asking):
            call.wait.query = 0
        return call

    def drop(self, asking: Asking) -> None:
        """Nobody wants the answer any more. Does nothing without a query."""
        if asking.query:
            self._calls.pop(asking.query, None)
            asking.query = 0

    def take_all(self) -> list[Call]:
        """The term ends: everybody who waits for the store."""
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            if isinstance(call.wait, Asking):
                call.wait.query = 0
        return calls

    def check_invariants(self) -> None:
        """Each query belongs to an open call that names it."""
        for number, call in self._calls.items():
            assert call.open and isinstance(call.wait, Asking) and call.wait.query == number


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
