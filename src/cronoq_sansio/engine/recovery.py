"""Taking over what a store holds (engine.md section 13), in portions so that a million tasks never block the loop.

Live tasks come back with their id, arrival, specification and attempt count. An attempt that was running is lost and
counts against the budget. A task ends as failed, durably, when its pool or a resource of it is gone, when it asks for
more units than the resource has now, or when it is above a limit that was lowered; how many end for which reason is
counted, so that the operator is told. Finished tasks come back into retention.

The edges of a blocked task are judged anew, once every task is there: parents may have ended, beyond retention too,
the server may have stopped before their ends were worked off, and tasks that end right here have children as well. A
parent that is nowhere can never be met. A key that is there by now is the parent's; one that is still awaited is
awaited until the time that was stored, whatever the pool says now.

Schedules come last: those of the configuration file win over stored ones of the same name, and what the configuration
does not support any more stays stored, but is not armed.

Stored times are wall times of whatever host wrote them: an arrival lies at most at now, a backoff is due at most its
policy's maximum from now, a wait for keys lasts at most its whole length.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from cronoq_sansio.engine import dependencies, lifecycle, retry
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.records import (
    Edge,
    FinishedLoaded,
    LoadedRecord,
    RecurringDamaged,
    RecurringLoaded,
    TaskChanged,
    TaskDamaged,
    TaskFinished,
    TaskLoaded,
)
from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.limits import MAX_HOPELESS_REASONS, MESSAGE_HEADROOM
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.spec import RetryPolicy, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

WAITING = (lifecycle.BLOCKED, lifecycle.SCHEDULED, lifecycle.READY, lifecycle.RETRYING)
LOST = "worker lost: the server was restarted while the attempt ran"
OTHER_REASONS = "other reasons"


class Recovery:
    """Rows on their way into an engine."""

    def __init__(self, engine: "Engine") -> None:
        self.hopeless: dict[str, int] = {}
        """How many tasks ended because of the configuration, by reason; at most `MAX_HOPELESS_REASONS` and a sum."""
        self._engine = engine
        self._tasks: list[TaskLoaded] = []
        self._damaged: list[TaskDamaged] = []
        self._finished: list[FinishedLoaded] = []
        self._work: Iterator[None] | None = None
        self._lost_pools: dict[str, Pool] = {}
        self._blocked: list[TaskLoaded] = []
        self._asked: set[int] = set()
        """Parents of blocked tasks."""
        self._ends: dict[int, tuple[str, int]] = {}
        """Key and status of those that have ended."""
        self._fresh: dict[int, int] = {}
        """Of those that this recovery itself has ended: the step that writes it."""
        self._unsaid: dict[tuple[int, str], list[int]] = {}
        """Keys that came, with their tasks: the children whose rows do not say so."""
        self._behind: dict[int, None] = {}
        """All of these children."""

    def load(self, records: Iterable[LoadedRecord]) -> None:
        """Take in rows, in any order."""
        for record in records:
            if type(record) is TaskLoaded:
                self._tasks.append(record)
                if _blocked(record):
                    self._asked.update(edge.parent for edge in record.inserted.edges)
            elif type(record) is FinishedLoaded:
                self._finished.append(record)
            elif type(record) is RecurringLoaded or type(record) is RecurringDamaged:
                self._engine.recurring.load(self._engine, record)
            else:
                assert type(record) is TaskDamaged
                self._damaged.append(record)

    def settle(self, units: int) -> bool:
        """Bring up to `units` rows to life; False when none is left."""
        if self._work is None:
            self._work = self._settle_all()
        return len(list(islice(self._work, units))) == units

    def _settle_all(self) -> Iterator[None]:
        """One row or one edge's end per turn. Retention first, so that a live task has the last word on its key."""
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
        for loaded in self._blocked:
            self._judge(loaded)
            yield
        self._blocked.clear()
        yield from self._cascade()
        yield from self._engine.recurring.recover(self._engine)  # which starts overlap is for the policies of today
        while self._engine.starts.is_due(self._engine):  # `begin` takes those that come due meanwhile
            self._engine.starts.fire(self._engine, 1)
            yield
        yield from self._cascade()

    def _cascade(self) -> Iterator[None]:
        while self._engine.dependencies.unsettled:
            self._engine.dependencies.settle(self._engine, 1)
            yield

    def finish(self) -> None:
        """Rows that still await a key that came: who is READY by now says that, the others are left to `settle`.

        There may be very many of them, and one step is one transaction.
        """
        engine = self._engine
        for child in self._behind:
            task = engine.tasks.live.get(child)
            if task is not None and task.status == lifecycle.READY:
                lifecycle.store(engine, task)
        for (parent, key), children in self._unsaid.items():
            engine.dependencies.owe(parent, key, children)

    def _retain(self, record: FinishedLoaded) -> None:
        engine = self._engine
        age = max(engine.wall() - record.finished, 0)
        expires = engine.now - age + engine.limits.key_retention
        engine.tasks.retain(Retained(record.task_id, record.pool, record.key, record.status, expires, 0))
        if record.task_id in self._asked:
            self._ends[record.task_id] = (record.key, record.status)

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
        if task.plan is not None and task.plan.fixed:
            engine.starts.adopt(task)
            engine.recurring.adopt(task)
        if _blocked(loaded):
            lifecycle.block(engine, task)
            self._blocked.append(loaded)
        else:
            self._resume(task, state)
        if task.status in WAITING:
            self._drop_hopeless(task)
        self._note_end(task)

    def _resume(self, task: Task, state: TaskChanged | None) -> None:
        engine = self._engine
        if state is not None and state.status == TaskStatus.RUNNING:
            task.status = lifecycle.RUNNING
            lifecycle.retry_or_bury(engine, task, LOST)
            return
        due = state.due - engine.wall_offset if state is not None and state.status == TaskStatus.RETRYING else 0
        if due > engine.now:
            lifecycle.back_off(engine, task, min(due, engine.now + task.retry.max_backoff))
        elif task.attempt:  # a backoff that is over by now needs no timer; nor does a start that has come once
            lifecycle.make_ready(engine, task)
        else:
            lifecycle.arrive(engine, task)
        task.pool.count_pending(task, +1)
        engine.tasks.pending += 1

    def _note_end(self, task: Task) -> None:
        if task.status not in WAITING and task.id in self._asked:
            self._ends[task.id] = (task.spec.key, task.status)
            self._fresh[task.id] = task.stored

    def _drop_hopeless(self, task: Task) -> None:
        engine = self._engine
        largest = engine.limits.max_message_bytes - MESSAGE_HEADROOM
        if task.pool.name not in engine.pools:
            message = f"pool {task.pool.name!r} is not configured any more"
            self._fail(task, message, message)
        elif task.spec.size > largest:
            allowed = f"limits.max_message_bytes now allows {largest}"
            self._fail(task, f"the task has {task.spec.size} bytes, {allowed}", f"{allowed} bytes of a task")
        elif (asked := task.spec.scheduling) is not None and asked.resources:
            refusal = engine.resources.check(asked.resources)
            if refusal is not None:
                self._fail(task, f"the task cannot run any more: {refusal.message}", refusal.message)

    def _fail(self, task: Task, message: str, reason: str) -> None:
        """End a task, and count it under what is the same for all of its kind."""
        lifecycle.fail_waiting(self._engine, task, message)
        hopeless = self.hopeless
        if reason not in hopeless and len(hopeless) >= MAX_HOPELESS_REASONS:
            reason = OTHER_REASONS
        hopeless[reason] = hopeless.get(reason, 0) + 1

    def _judge(self, loaded: TaskLoaded) -> None:
        """Decide what a blocked task waits for, now that every parent has its place."""
        engine, state = self._engine, loaded.changed
        task = engine.tasks.live.get(loaded.inserted.task_id)
        if task is None or state is None or task.status != lifecycle.BLOCKED:
            return
        edges, impossible, newest = self._edges(loaded)
        due = 0
        if not impossible and dependencies.awaits(edges):
            due = min(state.due - engine.wall_offset, engine.now + max(state.due - loaded.inserted.arrival, 0))
            if due <= engine.now:
                key = next(edge.key for edge in edges if not edge.parent)
                impossible = dependencies.overdue(key, engine.now - task.arrival)
        if impossible:
            lifecycle.skip(engine, task, impossible)
        elif edges:
            engine.dependencies.attach(engine, task, edges, due)
        else:
            task.stored = newest  # whoever sees it READY sees that those it depends on have ended
            lifecycle.unblock(engine, task)
        self._note_end(task)

    def _edges(self, loaded: TaskLoaded) -> tuple[tuple[Edge, ...], str, int]:
        """The edges that are unmet, why the task has to end, else empty, and the newest step that writes an end."""
        engine = self._engine
        unmet = []
        newest = 0
        for edge in loaded.inserted.edges:
            parent = edge.parent
            if not parent:
                parent = self._appeared(loaded.inserted.task_id, edge.key)
            if not parent or parent in engine.tasks.live:
                unmet.append(Edge(parent, "" if parent else edge.key, edge.condition))
                continue
            end = self._ends.get(parent)
            if end is None:
                return (), f"task {parent}, which it depends on, is not known any more", 0
            if not dependencies.met(edge.condition, end[1]):
                return (), dependencies.reason(parent, *end, edge.condition), 0
            newest = max(newest, self._fresh.get(parent, 0))
        return tuple(unmet), "", newest

    def _appeared(self, child: int, key: str) -> int:
        """The id of the task that has an awaited key by now; 0 = still nobody."""
        engine = self._engine
        known = engine.find(key)
        if known is None:
            return 0
        if isinstance(known, Retained):
            parent = known.task_id
            if parent < child:  # forgotten when the child came, but the host's clock has gone back since
                engine.tasks.free_key(key)
                return 0
            self._ends[parent] = (key, known.status)
        else:
            parent = known.id
        self._unsaid.setdefault((parent, key), []).append(child)
        self._behind[child] = None
        return parent

    def _lost_pool(self, name: str) -> Pool:
        """A pool that is not configured any more, as long as its tasks are being ended."""
        pool = self._lost_pools.get(name)
        if pool is None:
            engine = self._engine
            index = -1 - len(self._lost_pools)  # of no pool that is configured: it may be awake beside those
            pool = self._lost_pools[name] = Pool(PoolSettings(name), engine.tasks.live, engine.now, index)
        return pool

    def _end_damaged(self, record: TaskDamaged) -> None:
        engine = self._engine
        finished = engine.wall()
        message = f"the stored task cannot be read: {record.reason}"
        engine.step.writes.append(TaskFinished(record.task_id, lifecycle.FAILED, 0, 0, 0, finished, message))
        engine.totals.failed += 1
        if record.task_id in self._asked:
            self._ends[record.task_id] = ("", lifecycle.FAILED)
            self._fresh[record.task_id] = engine.number


def _blocked(loaded: TaskLoaded) -> bool:
    return loaded.changed is not None and loaded.changed.status == TaskStatus.BLOCKED


def _with_attempts(policy: RetryPolicy, max_attempts: int) -> RetryPolicy:
    """The budget is the one that was promised at submit, whatever the pool says now."""
    if policy.max_attempts == max_attempts:
        return policy
    return RetryPolicy(max_attempts, policy.initial_backoff, policy.multiplier, policy.max_backoff, policy.jitter)
