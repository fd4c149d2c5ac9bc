"""Taking over what a store holds (engine.md section 13), in portions so that a million tasks never block the loop.

Live tasks come back with their id, arrival, specification and attempt count. An attempt that was running is lost and
counts against the budget. A task whose pool is gone, or that is above a limit that was lowered, ends as failed.
Finished tasks come back into retention.

Stored times are wall times of whatever host wrote them: an arrival lies at most at now, a backoff is due at most its
policy's maximum from now.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cronoq_sansio.engine import lifecycle, retry
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.records import (
    FinishedLoaded,
    LoadedRecord,
    TaskChanged,
    TaskDamaged,
    TaskFinished,
    TaskLoaded,
)
from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.spec import RetryPolicy, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

LOST = "worker lost: the server was restarted while the attempt ran"


class Recovery:
    """Rows on their way into an engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._tasks: list[TaskLoaded] = []
        self._damaged: list[TaskDamaged] = []
        self._finished: list[FinishedLoaded] = []
        self._work: Iterator[None] | None = None
        self._lost_pools: dict[str, Pool] = {}

    def load(self, records: Iterable[LoadedRecord]) -> None:
        """Take in rows, in any order."""
        for record in records:
            if type(record) is TaskLoaded:
                self._tasks.append(record)
            elif type(record) is FinishedLoaded:
                self._finished.append(record)
            else:
                assert type(record) is TaskDamaged
                self._damaged.append(record)

    def settle(self, units: int) -> bool:
        """Bring up to `units` rows to life; False when none is left."""
        if self._work is None:
            self._work = self._settle_all()
        return all(next(self._work, self) is not self for _ in range(units))

    def _settle_all(self) -> Iterator[None]:
        """One row per turn. Retention first, so that a live task has the last word on its key."""
        self._finished.sort(key=lambda record: (record.finished, record.task_id))
        for finished in self._finished:
            self._retain(finished)
            yield
        self._finished.clear()
        self._tasks.sort(key=lambda loaded: loaded.inserted.task_id)
        for loaded in self._tasks:
            self._revive(loaded)
            yield
        self._tasks.clear()
        for damaged in self._damaged:
            self._end_damaged(damaged)
            yield
        self._damaged.clear()

    def _retain(self, record: FinishedLoaded) -> None:
        engine = self._engine
        age = max(engine.wall() - record.finished, 0)
        expires = engine.now - age + engine.limits.key_retention
        engine.tasks.retain(Retained(record.task_id, record.pool, record.key, record.status, expires, 0))

    def _revive(self, loaded: TaskLoaded) -> None:
        engine, row, state = self._engine, loaded.inserted, loaded.changed
        spec = row.spec
        pool = engine.pools.get(spec.pool) or self._lost_pool(spec.pool)
        created = min(row.arrival, engine.wall())
        policy = _with_attempts(retry.resolve(spec.retry, pool.settings.retry), row.max_attempts)
        task = Task(row.task_id, spec, pool, policy, created - engine.wall_offset, created)
        engine.tasks.add(task)
        if state is not None:
            task.attempt = state.attempt
            task.first_started = state.first_started
            task.last_started = state.last_started
            task.message = state.message
        self._resume(task, state)
        if task.status in (TaskStatus.READY, TaskStatus.RETRYING):
            self._drop_hopeless(task)

    def _resume(self, task: Task, state: TaskChanged | None) -> None:
        engine = self._engine
        if state is not None and state.status == TaskStatus.RUNNING:
            task.status = lifecycle.RUNNING
            lifecycle.retry_or_bury(engine, task, LOST)
            return
        due = state.due - engine.wall_offset if state is not None and state.status == TaskStatus.RETRYING else 0
        if due > engine.now:
            lifecycle.back_off(engine, task, min(due, engine.now + task.retry.max_backoff))
        else:  # a backoff that is over by now needs no timer
            lifecycle.make_ready(engine, task)
        task.pool.count_pending(task, +1)
        engine.tasks.pending += 1

    def _drop_hopeless(self, task: Task) -> None:
        engine = self._engine
        largest = engine.limits.max_message_bytes - MESSAGE_HEADROOM
        if task.pool.name not in engine.pools:
            lifecycle.fail_waiting(engine, task, f"pool {task.pool.name!r} is not configured any more")
        elif task.spec.size > largest:
            message = f"the task has {task.spec.size} bytes, limits.max_message_bytes now allows {largest}"
            lifecycle.fail_waiting(engine, task, message)

    def _lost_pool(self, name: str) -> Pool:
        """A pool that is not configured any more, as long as its tasks are being ended."""
        pool = self._lost_pools.get(name)
        if pool is None:
            pool = self._lost_pools[name] = Pool(PoolSettings(name), self._engine.tasks.live)
        return pool

    def _end_damaged(self, record: TaskDamaged) -> None:
        engine = self._engine
        finished = engine.wall()
        message = f"the stored task cannot be read: {record.reason}"
        engine.step.writes.append(TaskFinished(record.task_id, lifecycle.FAILED, 0, 0, 0, finished, message))
        engine.totals.failed += 1


def _with_attempts(policy: RetryPolicy, max_attempts: int) -> RetryPolicy:
    """The budget is the one that was promised at submit, whatever the pool says now."""
    if policy.max_attempts == max_attempts:
        return policy
    return RetryPolicy(max_attempts, policy.initial_backoff, policy.multiplier, policy.max_backoff, policy.jitter)
