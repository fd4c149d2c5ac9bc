"""Every task that the engine knows: live ones, and finished ones for as long as their keys are remembered.

Invariants: a key maps to one task, live or retained; no ended task is live; ``payload_bytes`` is the sum over live
tasks and the templates of schedules; finished tasks are remembered for `key_retention`, at most `key_retention_max` of
them (engine.md section 10).
"""

from collections import deque

from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import weight
from cronoq_sansio.values import blank


class TaskTable:
    """Look-up by id and by key."""

    __slots__ = (
        "_retained",
        "_retention",
        "_retention_max",
        "finished",
        "keys",
        "live",
        "next_id",
        "payload_bytes",
        "pending",
    )

    def __init__(self, limits: LimitSettings, first_id: int) -> None:
        self.live: dict[int, Task] = {}
        self.next_id = first_id
        self.payload_bytes = 0
        """Of live tasks, and of the templates of recurring schedules."""
        self.pending = 0
        """Live tasks that are not running, over all pools."""
        self.keys: dict[str, Task | Retained] = {}
        """Who has which key, finished tasks beyond their retention among them: ask `by_key`."""
        self._retained: dict[int, Retained] = {}
        self.finished: deque[Retained] = deque()
        """Those that are remembered, in the order of their ends."""
        self._retention = limits.key_retention
        self._retention_max = limits.key_retention_max

    def issue(self) -> int:
        """An id above every id issued before."""
        task_id = self.next_id
        self.next_id += 1
        return task_id

    def by_key(self, key: str, now: int) -> Task | Retained | None:
        """The task that has the key at `now`. After the retention the key is free, swept or not."""
        known = self.keys.get(key)
        if isinstance(known, Retained) and known.expires <= now:
            del self.keys[key]
            return None
        return known

    def by_id(self, task_id: int) -> Task | Retained | None:
        """The task with that id."""
        return self.live.get(task_id) or self._retained.get(task_id)

    def add(self, task: Task) -> None:
        """A new live task."""
        spec = task.spec
        self.live[task.id] = task
        self.payload_bytes += spec.size if spec.scheduling is None else weight(spec)
        task.pool.ids.add(task.id)
        if spec.key:
            self.keys[spec.key] = task

    def retire(self, task: Task, now: int) -> None:
        """A live task has ended; remember it for a while."""
        spec = task.spec
        del self.live[task.id]
        self.payload_bytes -= spec.size if spec.scheduling is None else weight(spec)
        key = spec.key
        if key:
            del self.keys[key]
        if self._retention_max:
            task_id, finished = task.id, self.finished
            retained = blank(Retained)
            retained.task_id = task_id
            retained.pool = spec.pool
            retained.key = key
            retained.status = task.status
            retained.expires = now + self._retention
            retained.stored = task.stored
            self._retained[task_id] = retained
            finished.append(retained)
            if key:
                self.keys[key] = retained
            if len(finished) > self._retention_max:
                self._forget()

    def retain(self, retained: Retained) -> None:
        """Remember a finished task at recovery. Tasks come in the order of their ends."""
        if not self._retention_max:
            return
        self._retained[retained.task_id] = retained
        self.finished.append(retained)
        if retained.key and not isinstance(self.keys.get(retained.key), Task):
            self.keys[retained.key] = retained
        if len(self.finished) > self._retention_max:
            self._forget()

    def free_key(self, key: str) -> None:
        """A finished task does not have that key any more, whatever is left of its retention."""
        assert not isinstance(self.keys.get(key), Task)
        self.keys.pop(key, None)

    def expire(self, now: int, limit: int) -> None:
        """Forget up to `limit` tasks that are older than the retention; look-ups by key do not wait for that."""
        finished = self.finished
        while limit and finished and finished[0].expires <= now:
            self._forget()
            limit -= 1

    def retained(self) -> int:
        """How many finished tasks are remembered."""
        return len(self.finished)

    def _forget(self) -> None:
        retained = self.finished.popleft()
        del self._retained[retained.task_id]
        if retained.key and self.keys.get(retained.key) is retained:
            del self.keys[retained.key]
