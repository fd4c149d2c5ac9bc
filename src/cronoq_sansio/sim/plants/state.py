"""Bugs in what is known of tasks, workers and figures: nothing happens that should not, but it is told wrongly."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.dependencies import Dependencies
from cronoq_sansio.engine.recovery import Recovery
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.service.worker_session import Session
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing
from cronoq_sansio.spec import TaskStatus

BED = Bed()
plant = BED.plant
FAR = 1 << 61


# --- figures


@plant
def failed_attempts_are_in_no_figure(patch: Patch) -> None:
    """The figures of a pool say that no attempt has failed."""

    def make(before: Any) -> Any:
        def fail(of: Any, lease: Any, message: str, **named: Any) -> None:
            before(of, lease, message, **named)
            lease.task.pool.figures.failed -= 1

        return fail

    patch.wrap(lifecycle, "fail", make)


@plant
def cancelled_attempts_count_as_failed(patch: Patch) -> None:
    """The figures of a pool take a cancelled attempt for one that has failed."""

    def make(before: Any) -> Any:
        def cancel(of: Any, task: Any, message: str) -> Any:
            lease = before(of, task, message)
            if lease is not None:
                task.pool.figures.cancelled -= 1
                task.pool.figures.failed += 1
            return lease

        return cancel

    patch.wrap(lifecycle, "cancel", make)


@plant
def waits_for_a_fixed_start_count(patch: Patch) -> None:
    """The figures of a pool take the time before a fixed start for time that the task has waited."""

    def make(before: Any) -> Any:
        def start(of: Any, task: Any, group: Any) -> None:
            first = not task.first_started
            before(of, task, group)
            if first:
                task.pool.figures.waits[-1] = of.now - task.arrival

        return start

    patch.wrap(lifecycle, "start", make)


@plant
def confirmed_stops_count_as_stale(patch: Patch) -> None:
    """A worker that says that it has stopped what it was told to stop is counted with stale reports."""
    patch.setattr(Session, "remember_abort", nothing)


@plant
def slots_that_nobody_offers_are_shown(patch: Patch) -> None:
    """The capacity that is shown counts what a worker still runs of more than it offers."""
    patch.setattr(Workers, "published", lambda _, snapshot: snapshot)


@plant
def slots_of_one_group_are_shown(patch: Patch) -> None:
    """The capacity of a pool that is shown is that of its workers with the same labels."""

    def make(before: Any) -> Any:
        def published(self: Any, snapshot: Any) -> Any:
            shown = before(self, snapshot)
            return replace(shown, pools=tuple(map(_of_one_group, shown.pools)))

        return published

    patch.wrap(Workers, "published", make)


def _of_one_group(pool: Any) -> Any:
    return replace(pool, capacity=max((group.capacity for group in pool.groups), default=0))


# --- what is known of a task


@plant
def returned_dispatches_were_starts(patch: Patch) -> None:
    """A dispatch that is taken back stays the last start of its task."""

    def make(before: Any) -> Any:
        def take_back(of: Any, lease: Any) -> None:
            lease.previous_start = lease.task.last_started
            before(of, lease)

        return take_back

    patch.wrap(lifecycle, "take_back", make)


@plant
def success_keeps_the_last_error(patch: Patch) -> None:
    """A task that asks for something and has succeeded at last still says why it had failed before."""

    def make(before: Any) -> Any:
        def end(of: Any, task: Any, status: int, message: str, *output: Any) -> None:
            before(of, task, status, message or task.message, *output)

        return end

    patch.wrap(lifecycle, "_end", make)


@plant
def reasons_of_workers_are_replaced(patch: Patch) -> None:
    """A task whose attempt has failed does not say what its worker said."""

    def make(before: Any) -> Any:
        def fail(of: Any, lease: Any, _message: str, **named: Any) -> None:
            before(of, lease, "the attempt failed", **named)

        return fail

    patch.wrap(lifecycle, "fail", make)


@plant
def children_seem_free_too_early(patch: Patch) -> None:
    """A task is shown as ready before the end of the task that it waited for is durable."""

    def make(before: Any) -> Any:
        def judge(self: Any, of: Any, parent: Any, child: int) -> None:
            stored, parent.stored = parent.stored, 0
            before(self, of, parent, child)
            parent.stored = stored

        return judge

    patch.wrap(Dependencies, "_judge", make)


@plant
def stale_reports_make_the_server_forget(patch: Patch) -> None:
    """Whoever reports on a lease that it does not hold makes the oldest finished task forgotten."""

    def make(before: Any) -> Any:
        def complete(self: Any, session: Any, message: Any) -> None:
            table: TaskTable = self._engine.tasks
            if message.lease not in session.leases and table.finished:
                table._forget()
            before(self, session, message)

        return complete

    patch.wrap(Workers, "_complete", make)


# --- after a restart


@plant
def errors_are_forgotten_at_recovery(patch: Patch) -> None:
    """After a restart a waiting task does not say why its last attempt has failed."""
    _changing(patch, message="")


@plant
def last_starts_are_forgotten_at_recovery(patch: Patch) -> None:
    """After a restart a waiting task does not say when its last attempt has started."""
    _changing(patch, last_started=0)


def _changing(patch: Patch, **fields: Any) -> None:
    """Rows are read as if they said that."""

    def make(before: Any) -> Any:
        def revive(self: Any, loaded: Any) -> None:
            state = loaded.changed
            before(self, loaded if state is None else replace(loaded, changed=replace(state, **fields)))

        return revive

    patch.wrap(Recovery, "_revive", make)


@plant
def tasks_come_from_the_future_at_recovery(patch: Patch) -> None:
    """After a restart on a host whose clock is behind a task is younger than one that comes now."""

    def make(before: Any) -> Any:
        def revive(self: Any, loaded: Any) -> None:
            before(self, loaded)
            task = self._engine.tasks.live.get(loaded.inserted.task_id)
            if task is not None:
                task.created = loaded.inserted.arrival
                task.arrival = task.created - self._engine.wall_offset

        return revive

    patch.wrap(Recovery, "_revive", make)


@plant
def backoffs_of_other_clocks_have_no_end(patch: Patch) -> None:
    """After a restart on a host whose clock is behind a backoff is longer than any policy allows."""

    def make(before: Any) -> Any:
        def resume(self: Any, task: Any, state: Any) -> None:
            policy = task.retry
            if state is not None and state.status == TaskStatus.RETRYING:
                task.retry = replace(policy, max_backoff=FAR)
            before(self, task, state)
            task.retry = policy

        return resume

    patch.wrap(Recovery, "_resume", make)
