"""Bugs in what may be said when: in the outbox, and in the `after` of actions, which names the step that they show."""

from dataclasses import replace
from heapq import heappop
from typing import Any

from cronoq_sansio.engine import admission, engine, lifecycle
from cronoq_sansio.engine import events as ev
from cronoq_sansio.outbox import Outbox, StepsDurable
from cronoq_sansio.service import calls, waits, workers
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.listing import Listings
from cronoq_sansio.service.messages import SendLease
from cronoq_sansio.service.results import Results
from cronoq_sansio.service.schedules import Schedules
from cronoq_sansio.service.stopping import Stopping
from cronoq_sansio.service.watches import Watches
from cronoq_sansio.sim.plants.planting import Bed, Patch

BED = Bed()
plant = BED.plant


# --- the outbox


@plant
def the_outbox_releases_one_step_early(patch: Patch) -> None:
    """A commit lets go of what waits for the step after it, too."""
    patch.wrap(Outbox, "_release", lambda before: lambda self, through, now: before(self, through + 1, now))


@plant
def the_second_held_action_is_lost(patch: Patch) -> None:
    """Of two actions that wait for the same step only the first one is performed."""

    def release(self: Any, through: int, now: int) -> list[Any]:
        self._durable = max(self._durable, through)
        ready: list[Any] = []
        while self._order and self._order[0] <= through:
            ready += self._held.pop(heappop(self._order))[:1]
        self._count -= len(ready)
        return list(self.machine.released(ready, now)) if ready else ready

    patch.setattr(Outbox, "_release", release)


@plant
def a_commit_releases_one_step(patch: Patch) -> None:
    """A commit of several steps lets go of what waits for the first of them, and of nothing else."""

    def release(self: Any, through: int, now: int) -> list[Any]:
        self._durable = max(self._durable, through)
        if not self._order or self._order[0] > through:
            return []
        ready = self._held.pop(heappop(self._order))
        self._count -= len(ready)
        return list(self.machine.released(ready, now))

    patch.setattr(Outbox, "_release", release)


@plant
def the_outbox_waits_only_for_its_own_step(patch: Patch) -> None:
    """A step without writes is told at once, although it may show what an earlier one wrote."""

    def make(before: Any) -> Any:
        def sort(self: Any, step: Any, fresh: list[Any]) -> None:
            if step.writes:
                before(self, step, fresh)
            else:
                fresh += step.once_durable

        return sort

    patch.wrap(Outbox, "_sort", make)


@plant
def commits_come_before_what_came_earlier(patch: Patch) -> None:
    """In one batch the outbox looks at finished commits first: a worker that has gone before still gets its lease."""

    def make(before: Any) -> Any:
        def handle(self: Any, events: Any, now: int) -> Any:
            return before(self, sorted(events, key=lambda event: type(event) is not StepsDurable), now)

        return handle

    patch.wrap(Outbox, "_handle_in_portions", make)


@plant
def writes_beside_a_commit_are_lost(patch: Patch) -> None:
    """The writes of events that come in one batch with a finished commit do not reach the store."""

    def make(before: Any) -> Any:
        def append(self: Any, whole: Any, portion: list[Any], now: int) -> None:
            known = list(whole.writes)
            before(self, whole, portion, now)
            whole.writes = known

        return append

    patch.wrap(Outbox, "_append", make)


@plant
def replies_of_calls_that_are_over_are_sent(patch: Patch) -> None:
    """The outbox does not ask whether anybody still wants what it has held."""

    def release(self: Any, through: int, now: int) -> list[Any]:
        self._durable = max(self._durable, through)
        ready: list[Any] = []
        while self._order and self._order[0] <= through:
            ready += self._held.pop(heappop(self._order))
        self._count -= len(ready)
        self.machine.released(ready, now)
        return [action for action in ready if type(action) is not waits.SubmitStored]

    patch.setattr(Outbox, "_release", release)


@plant
def steps_count_as_durable_when_they_are_made(patch: Patch) -> None:
    """The outbox treats every store like one that may forget."""
    patch.wrap(
        Outbox, "__init__", lambda before: lambda self, machine, *, volatile=False: before(self, machine, volatile=True)
    )


# --- changes that are acknowledged too early


@plant
def duplicates_are_answered_too_early(patch: Patch) -> None:
    """A duplicate is told the id of a task whose row is not stored yet."""
    patch.wrap(admission, "_duplicate", lambda before: lambda of, spec: _now(before(of, spec)))


@plant
def batches_are_acknowledged_too_early(patch: Patch) -> None:
    """A batch is acknowledged before its rows are stored."""
    patch.wrap(admission, "submit_batch", lambda before: lambda of, specs: _now(before(of, specs)))


@plant
def cancels_are_acknowledged_too_early(patch: Patch) -> None:
    """A cancel is acknowledged before the end of the task is stored."""

    def make(before: Any) -> Any:
        def cancelled(self: Any, event: Any) -> None:
            before(self, event)
            self.step.once_durable.append(replace(self.step.once_durable.pop(), after=0))

        return cancelled

    patch.setitem(engine.HANDLERS, ev.TaskCancelled, make(engine.HANDLERS[ev.TaskCancelled]))


@plant
def schedules_are_acknowledged_too_early(patch: Patch) -> None:
    """A schedule is acknowledged before it is stored."""
    patch.wrap(
        Schedules,
        "answered",
        lambda before: lambda self, call, asked, answer: before(self, call, asked, replace(answer, after=0)),
    )


@plant
def ids_of_waiting_submissions_are_told_too_early(patch: Patch) -> None:
    """A caller whose time to wait is up gets the id of a task that is not stored yet."""
    patch.wrap(calls, "SubmitStored", lambda before: lambda call, task_id, _after: before(call, task_id, 0))


# --- state that is shown too early


@plant
def leases_are_sent_too_early(patch: Patch) -> None:
    """A worker gets a lease before its dispatch is stored."""

    def make(before: Any) -> Any:
        def place(self: Any) -> None:
            said = self._turn.once_durable
            known = len(said)
            before(self)
            said[known:] = [
                replace(action, after=0) if type(action) is SendLease else action for action in said[known:]
            ]

        return place

    patch.wrap(workers.Workers, "place", make)


@plant
def live_tasks_are_shown_too_early(patch: Patch) -> None:
    """Get shows a status of a live task that is not stored yet."""

    def make(before: Any) -> Any:
        def found_live(self: Any, call: Any, waiting: Any, task: Any) -> None:
            held = self._turn.once_durable
            known = len(held)
            before(self, call, waiting, task)
            held[known:] = [replace(action, after=0) for action in held[known:]]

        return found_live

    patch.wrap(Calls, "_found_live", make)


@plant
def waits_are_answered_too_early(patch: Patch) -> None:
    """Who waits for a task hears of its end before that is stored."""
    patch.wrap(Calls, "task_ended", lambda before: lambda self, ended: before(self, replace(ended, after=0)))


@plant
def the_caches_tell_too_early(patch: Patch) -> None:
    """An end is shown from memory before it is stored."""

    def make(before: Any) -> Any:
        def find(self: Any, ref: Any, retained: Any) -> Any:
            found = before(self, ref, retained)
            return None if found is None else replace(found, after=0)

        return find

    patch.wrap(Results, "find", make)


@plant
def events_are_told_too_early(patch: Patch) -> None:
    """Watchers hear of what is not stored yet."""
    patch.wrap(Watches, "_send", lambda before: lambda self, told, event, _after: before(self, told, event, 0))


@plant
def moves_are_told_too_early(patch: Patch) -> None:
    """Watchers of every transition hear of one before it is stored."""

    def make(before: Any) -> Any:
        def tell(of: Any, task: Any, status: int, message: str = "") -> None:
            before(of, task, status, message)
            held = of.step.once_durable
            held.append(replace(held.pop(), after=0))

        return tell

    patch.wrap(lifecycle, "_tell", make)


@plant
def listings_show_too_early(patch: Patch) -> None:
    """A listing shows live tasks that are not stored yet."""
    patch.wrap(Listings, "_live", lambda before: lambda self, request, limit: _now(before(self, request, limit)))


@plant
def lists_of_schedules_show_too_early(patch: Patch) -> None:
    """A list of schedules shows one that is not stored yet."""

    def make(before: Any) -> Any:
        def shown(self: Any, call: Any, request: Any) -> None:
            before(self, call, request)
            held = self._turn.once_durable
            held.append(replace(held.pop(), after=0))

        return shown

    patch.wrap(Schedules, "list", make)


@plant
def a_stop_is_finished_too_early(patch: Patch) -> None:
    """The server says goodbye before the ends of the last leases are stored."""

    def make(before: Any) -> Any:
        def advance(self: Any) -> None:
            held = self._turn.once_durable
            known = len(held)
            before(self)
            held = self._turn.once_durable
            held[known:] = [replace(action, after=0) for action in held[known:]]

        return advance

    patch.wrap(Stopping, "advance", make)


@plant
def a_new_attempt_does_not_count_as_written(patch: Patch) -> None:
    """Who asks for a running task is not held until its dispatch is stored."""

    def make(before: Any) -> Any:
        def start(of: Any, task: Any, group: Any) -> None:
            known = task.stored
            before(of, task, group)
            task.stored = known

        return start

    patch.wrap(lifecycle, "start", make)


@plant
def a_backoff_does_not_count_as_written(patch: Patch) -> None:
    """Who asks for a retrying task is not held until its failure is stored."""

    def make(before: Any) -> Any:
        def store(of: Any, task: Any, due: int = 0) -> None:
            known = task.stored
            before(of, task, due)
            task.stored = known

        return store

    patch.wrap(lifecycle, "store", make)


def _now(answer: Any) -> Any:
    """The same, waiting for nothing."""
    return answer and (answer[0], 0)
