"""Bugs in what is stored, and in what is made of it after a restart."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.engine import dependencies, lifecycle, recovery
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import OutputStored, TaskChanged, TaskFinished
from cronoq_sansio.engine.recovery import Recovery
from cronoq_sansio.engine.recurring import Recurring
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing
from cronoq_sansio.spec import TaskStatus

BED = Bed()
plant = BED.plant


def _dropping(kind: type) -> Any:
    """Makes a function whose records of one kind are not written; its first argument has the step."""

    def make(before: Any) -> Any:
        def dropped(of: Any, *args: Any, **named: Any) -> Any:
            known = list(of.step.writes)
            result = before(of, *args, **named)
            of.step.writes = known + [record for record in of.step.writes[len(known) :] if type(record) is not kind]
            return result

        return dropped

    return make


# --- what is written


@plant
def outputs_are_not_stored(patch: Patch) -> None:
    """The output of a task is in memory alone."""
    patch.wrap(lifecycle, "succeed", _dropping(OutputStored))


@plant
def dispatches_are_not_stored(patch: Patch) -> None:
    """After a crash nobody knows that an attempt was running."""
    patch.wrap(lifecycle, "start", _dropping(TaskChanged))


@plant
def attempts_are_stored_too_low(patch: Patch) -> None:
    """The row of a running task says that it has had one attempt less."""

    def make(before: Any) -> Any:
        def start(of: Any, task: Any, group: Any) -> None:
            before(of, task, group)
            of.step.writes.append(replace(of.step.writes.pop(), attempt=task.attempt - 1))

        return start

    patch.wrap(lifecycle, "start", make)


@plant
def failures_are_not_stored(patch: Patch) -> None:
    """After a crash a task whose attempt had failed is thought to be running."""
    patch.wrap(lifecycle, "retry_or_bury", _dropping(TaskChanged))


@plant
def backoffs_are_not_stored(patch: Patch) -> None:
    """The row of a retrying task does not say when its next attempt is due."""
    patch.wrap(lifecycle, "store", lambda before: lambda of, task, _due=0: before(of, task))


@plant
def returned_dispatches_are_not_stored(patch: Patch) -> None:
    """After a crash a task whose dispatch was taken back is thought to be running."""
    patch.wrap(lifecycle, "take_back", _dropping(TaskChanged))


@plant
def cancels_are_not_stored(patch: Patch) -> None:
    """After a crash a task that was cancelled runs nevertheless."""
    patch.wrap(lifecycle, "cancel", _dropping(TaskFinished))


@plant
def skipped_tasks_are_not_stored(patch: Patch) -> None:
    """After a crash a task that was skipped waits again."""
    patch.wrap(lifecycle, "skip", _dropping(TaskFinished))


@plant
def edges_are_not_stored(patch: Patch) -> None:
    """The row of a task does not say what it waits for."""
    patch.wrap(lifecycle, "admit", lambda before: lambda of, task, _edges=(), **named: before(of, task, (), **named))


@plant
def ends_have_no_reason(patch: Patch) -> None:
    """The row of a task that has ended does not say why."""

    def make(before: Any) -> Any:
        def end(of: Any, *args: Any) -> None:
            before(of, *args)
            of.step.writes.append(replace(of.step.writes.pop(), message=""))

        return end

    patch.wrap(lifecycle, "_end", make)


# --- what is made of it


@plant
def live_keys_are_forgotten_at_recovery(patch: Patch) -> None:
    """After a restart the key of a waiting task is free."""

    def make(before: Any) -> Any:
        def finish(self: Any) -> None:
            before(self)
            for task in self._engine.tasks.live.values():
                self._engine.tasks.keys.pop(task.spec.key, None)

        return finish

    patch.wrap(Recovery, "finish", make)


@plant
def ended_keys_are_forgotten_at_recovery(patch: Patch) -> None:
    """After a restart a submission that is repeated makes a second task."""

    def make(before: Any) -> Any:
        def retain(self: Any, record: Any) -> None:
            before(self, record)
            self._engine.tasks.free_key(record.key)

        return retain

    patch.wrap(Recovery, "_retain", make)


@plant
def lost_attempts_do_not_count(patch: Patch) -> None:
    """The attempt that was running when the server died does not count against the budget."""

    def make(before: Any) -> Any:
        def resume(self: Any, task: Any, state: Any) -> None:
            if state is not None and state.status == TaskStatus.RUNNING:
                task.attempt -= 1
            before(self, task, state)

        return resume

    patch.wrap(Recovery, "_resume", make)


@plant
def running_tasks_begin_anew_at_recovery(patch: Patch) -> None:
    """A task that was running when the server died is queued at once, without a backoff."""

    def make(before: Any) -> Any:
        def resume(self: Any, task: Any, state: Any) -> None:
            running = state is not None and state.status == TaskStatus.RUNNING
            before(self, task, None if running else state)

        return resume

    patch.wrap(Recovery, "_resume", make)


@plant
def backoffs_are_over_at_recovery(patch: Patch) -> None:
    """A restart ends every backoff."""

    def make(before: Any) -> Any:
        def resume(self: Any, task: Any, state: Any) -> None:
            before(self, task, state if state is None else replace(state, due=0))

        return resume

    patch.wrap(Recovery, "_resume", make)


@plant
def backoffs_go_by_the_wrong_clock(patch: Patch) -> None:
    """After a restart the wall time of a backoff is taken for a time of the process."""

    def make(before: Any) -> Any:
        def resume(self: Any, task: Any, state: Any) -> None:
            due = 0 if state is None else state.due and state.due + self._engine.wall_offset
            before(self, task, state if state is None else replace(state, due=due))

        return resume

    patch.wrap(Recovery, "_resume", make)


@plant
def edges_are_lost_at_recovery(patch: Patch) -> None:
    """After a restart a blocked task waits for nobody."""
    patch.setattr(Recovery, "_edges", lambda *_: ((), ""))


@plant
def finished_parents_are_forgotten_at_recovery(patch: Patch) -> None:
    """A task is skipped because its parent ended before the restart."""

    def make(before: Any) -> Any:
        def retain(self: Any, record: Any) -> None:
            before(self, record)
            self._ends.pop(record.task_id, None)

        return retain

    patch.wrap(Recovery, "_retain", make)


@plant
def every_end_meets_an_edge_at_recovery(patch: Patch) -> None:
    """After a restart a task runs although its parent failed."""
    patch.setattr(recovery, "dependencies", _Lenient())


@plant
def tasks_begin_to_wait_at_recovery(patch: Patch) -> None:
    """After a restart a task is as old as the process."""

    def make(before: Any) -> Any:
        def revive(self: Any, loaded: Any) -> None:
            arrival = self._engine.wall()
            before(self, replace(loaded, inserted=replace(loaded.inserted, arrival=arrival)))

        return revive

    patch.wrap(Recovery, "_revive", make)


@plant
def what_recovery_decides_is_not_stored(patch: Patch) -> None:
    """The ends that a restart brings are in memory alone."""

    def make(before: Any) -> Any:
        def begin(self: Any, now: int) -> Any:
            step = before(self, now)
            step.writes = []
            return step

        return begin

    patch.wrap(Engine, "begin", make)


@plant
def tasks_that_cannot_run_are_kept(patch: Patch) -> None:
    """After a restart with another configuration a task waits for ever in a pool that is gone."""
    patch.setattr(Recovery, "_drop_hopeless", nothing)


@plant
def ids_of_tasks_are_used_again(patch: Patch) -> None:
    """After a restart new tasks get ids that were issued before."""
    patch.wrap(
        Engine, "__init__", lambda before: lambda self, *args, **named: before(self, *args, **_first(named, "task"))
    )


@plant
def ids_of_leases_are_used_again(patch: Patch) -> None:
    """After a restart leases get ids that were issued before."""
    patch.wrap(
        Engine, "__init__", lambda before: lambda self, *args, **named: before(self, *args, **_first(named, "lease"))
    )


@plant
def schedules_forget_at_recovery(patch: Patch) -> None:
    """After a restart a schedule does not know which fires it has dealt with."""
    patch.wrap(Recurring, "load", lambda before: lambda self, of, record: before(self, of, _unfired(record)))


@plant
def awaited_keys_are_not_looked_for_at_recovery(patch: Patch) -> None:
    """After a restart a task waits for a key that has come already."""
    patch.setattr(Recovery, "_appeared", lambda *_: 0)


class _Lenient:
    """The rules of dependencies, but for one."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: True) if name == "met" else getattr(dependencies, name)


def _first(named: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**named, f"first_{kind}_id": 1}


def _unfired(record: Any) -> Any:
    return replace(record, fired=None) if hasattr(record, "fired") else record
