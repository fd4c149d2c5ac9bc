"""Waits are state: which open call waits for the end of which task. No task, channel or cancel scope per call.

A wait starts when its call is attached to a live task and ends with the task, with the call (its caller went away, or
it was answered otherwise), or with the term. It is in the table under its task's id exactly as long as it lasts, and
its call names it, so that a call that ends withdraws it in O(1).
"""

from cronoq_sansio.service.messages import Call, Cancel, Get, Submit, TaskRef, Wait
from cronoq_sansio.values import value


@value
class SubmitStored:
    """Comes out of the outbox when the insert of a waiting Submit is durable: from then on its id may be told.

    Never leaves `Service.released`.
    """

    call: Call
    task_id: int
    after: int


class Listed:
    """What the call of a list waits for whose answer is made: that what it shows is durable."""


LISTED = Listed()


class Asking:
    """An open call that may have asked the store."""

    __slots__ = ("query",)

    def __init__(self) -> None:
        self.query = 0
        """Number of the store query that is under way, else 0."""


class Waiting(Asking):
    """What an open call waits for: the store (`query`), then the end of a task (`task_id`)."""

    __slots__ = ("after", "duplicate", "limit", "ref", "request", "stored", "task_id")

    def __init__(self, request: Submit | Wait | Get | Cancel, ref: TaskRef, limit: int) -> None:
        super().__init__()
        self.request = request
        self.ref = ref
        """What the call asks about; 0 for a Submit that the engine has not answered."""
        self.limit = limit
        """When the caller wants to stop waiting for the end of a task, on the `now` scale."""
        self.task_id = 0
        """The awaited task while this is in the table, else 0."""
        self.duplicate = False
        self.stored = 0
        """Id of the task that a Submit made, once that may be told."""
        self.after = 0
        """The step that a Submit's own outcome shows."""


class Waits:
    """Every attached wait, by task."""

    __slots__ = ("_count", "by_task")

    def __init__(self) -> None:
        self.by_task: dict[int, dict[Call, Waiting]] = {}
        """Never replaced."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def attach(self, call: Call, waiting: Waiting, task_id: int) -> None:
        """The call waits for the end of a live task from now on."""
        waiting.task_id = task_id
        self.by_task.setdefault(task_id, {})[call] = waiting
        self._count += 1

    def withdraw(self, call: Call, waiting: Waiting) -> None:
        """The call does not wait any more. Does nothing when it did not."""
        waiters = self.by_task.get(waiting.task_id)
        if waiters is None or waiters.pop(call, None) is None:
            return
        if not waiters:
            del self.by_task[waiting.task_id]
        waiting.task_id = 0
        self._count -= 1

    def take(self, task_id: int) -> dict[Call, Waiting] | None:
        """The task has ended: everyone who waited for it, in the order of arrival; None for nobody."""
        waiters = self.by_task.pop(task_id, None)
        if waiters is not None:
            self._count -= len(waiters)
            for waiting in waiters.values():
                waiting.task_id = 0
        return waiters

    def take_all(self) -> list[Call]:
        """The term ends: everyone who waits, in the order in which the tasks were first waited for."""
        calls = [call for waiters in self.by_task.values() for call in waiters]
        for waiters in self.by_task.values():
            for waiting in waiters.values():
                waiting.task_id = 0
        self.by_task.clear()
        self._count = 0
        return calls

    def check_invariants(self) -> None:
        """Every wait belongs to an open call that names it, under its task."""
        assert self._count == sum(map(len, self.by_task.values()))
        for task_id, waiters in self.by_task.items():
            assert waiters, "a task without waiters stays in the table"
            for call, waiting in waiters.items():
                assert call.open and call.wait is waiting and waiting.task_id == task_id
