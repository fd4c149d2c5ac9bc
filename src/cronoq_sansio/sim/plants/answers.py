"""Bugs in what callers are told: who is refused and why, what a list shows, and what is said at the end of a term."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from cronoq_sansio.engine import admission, overload
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.deadlines import Cause, Deadlines
from cronoq_sansio.service.gate import STOPPED, Gate, Phase
from cronoq_sansio.service.listing import Listings
from cronoq_sansio.service.messages import Cancel, SendToWorker, Shutdown
from cronoq_sansio.service.messages_recurring import RecurringListReply, RecurringRemovedReply
from cronoq_sansio.service.results import Finished
from cronoq_sansio.service.schedules import Schedules
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing

BED = Bed()
plant = BED.plant


# --- who is let in


@plant
def cancels_pass_when_the_store_is_behind(patch: Patch) -> None:
    """A cancel is let in although the store cannot keep up."""

    def make(before: Any) -> Any:
        def refusal(self: Any, request: Any) -> Any:
            cancels = type(request) is Cancel and self.phase is not Phase.STOPPED
            return None if cancels else before(self, request)

        return refusal

    patch.wrap(Gate, "refusal", make)


@plant
def reads_are_refused_when_the_store_is_behind(patch: Patch) -> None:
    """Who only looks is refused because the store cannot keep up."""
    patch.wrap(Gate, "refusal", lambda before: lambda self, request: before(self, request) or self._pressure)


@plant
def calls_at_their_deadline_are_let_in(patch: Patch) -> None:
    """A call whose deadline is the very instant of its arrival is let in."""

    def make(before: Any) -> Any:
        def received(self: Any, event: Any) -> None:
            before(self, replace(event, deadline=event.deadline + 1) if event.deadline == self._turn.now else event)

        return received

    patch.wrap(Calls, "received", make)


@plant
def one_call_too_many_is_let_in(patch: Patch) -> None:
    """One call more may be open than is allowed."""

    def make(before: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            before(self, *args, **options)
            self._budgets.request.limit += 1

        return init

    patch.wrap(Calls, "__init__", make)


@plant
def waits_may_be_longer_than_the_longest(patch: Patch) -> None:
    """Who wants to wait longer than the server allows may do so."""
    patch.setattr(
        Calls, "_limit", lambda self, wanted: self._turn.now + (self._limits.max_wait if wanted is None else wanted)
    )


# --- what is refused


@plant
def pools_take_one_task_fewer(patch: Patch) -> None:
    """A pool refuses the last task that its bound allows."""

    def fit(before: Any) -> Any:
        def fits(of: Any, pool: Any, priority: int, size: int = 0) -> bool:
            return pool.pending + 1 < pool.settings.max_pending and bool(before(of, pool, priority, size))

        return fits

    def passing(before: Any) -> Any:
        def bound_passed(of: Any, spec: Any, pool: Any, ahead: Any) -> Any:
            more = overload.Ahead()
            more.tasks, more.by_class = ahead.tasks, ahead.by_class
            more.by_pool = {**ahead.by_pool, pool.name: ahead.by_pool.get(pool.name, 0) + 1}
            return before(of, spec, pool, more)

        return bound_passed

    patch.wrap(overload, "fits", fit)
    patch.wrap(overload, "_bound_passed", passing)


@plant
def pools_take_one_task_more(patch: Patch) -> None:
    """A pool takes one plain task more than its bound allows."""

    def make(_before: Any) -> Any:
        def fits(of: Any, pool: Any, priority: int, size: int = 0) -> bool:
            bound = pool.settings.max_pending_by_class[priority]
            return (
                pool.pending <= pool.settings.max_pending
                and of.tasks.pending < of.limits.max_pending_total
                and of.tasks.payload_bytes + size <= of.limits.max_payload_bytes
                and (bound is None or pool.pending_by_class[priority] < bound)
            )

        return fits

    patch.wrap(overload, "fits", make)


@plant
def tasks_give_way_to_what_is_missed(patch: Patch) -> None:
    """A task is shed for one whose fixed start is missed already."""
    patch.setattr(overload, "reservations", SimpleNamespace(is_too_late=lambda *_: False))


@plant
def refusals_of_batches_name_no_member(patch: Patch) -> None:
    """Whose batch is refused is not told because of which task."""
    patch.setattr(admission, "_of_member", lambda rejection, _index: rejection)


# --- who runs out of time


@plant
def unknown_outcomes_are_kept_back(patch: Patch) -> None:
    """Whose submission runs out of time before it is stored is not told that its outcome is unknown."""
    patch.wrap(Deadlines, "rejection", lambda before: lambda self, cause, task_id, **_: before(self, cause, task_id))


@plant
def who_waits_in_vain_is_not_told_for_what(patch: Patch) -> None:
    """Who submits and waits, and does not see the end, is not told the id of the task."""

    def make(before: Any) -> Any:
        def rejection(self: Any, cause: Any, task_id: int, **unstored: Any) -> Any:
            return before(self, cause, 0 if cause is Cause.WAIT else task_id, **unstored)

        return rejection

    patch.wrap(Deadlines, "rejection", make)


# --- what a look shows


@plant
def outputs_are_said_to_be_gone(patch: Patch) -> None:
    """Who looks at a task whose output is only in the store is told that there is none."""
    patch.setattr(Finished, "answers_get", property(lambda self: self.detailed))


@plant
def pages_prefer_what_is_older(patch: Patch) -> None:
    """A page shows a task as it was before the store was asked, although the store says that it has ended."""

    def make(before: Any) -> Any:
        def page(self: Any, live: Any, stored: Any, limit: int) -> Any:
            ids = {info.task_id for info in live.tasks}
            kept = tuple(info for info in stored.tasks if info.task_id not in ids)
            return before(self, live, replace(stored, tasks=kept), limit)

        return page

    patch.wrap(Listings, "_page", make)


@plant
def pages_overlook_their_own_read(patch: Patch) -> None:
    """A page lacks what was submitted before it in the same read."""
    patch.wrap(Listings, "received", _without_drive)


@plant
def lists_of_schedules_overlook_their_own_read(patch: Patch) -> None:
    """A list of schedules lacks what was added before it in the same read."""
    patch.wrap(Schedules, "list", _without_drive)


@plant
def lists_of_schedules_lack_the_last_one(patch: Patch) -> None:
    """A list of schedules lacks the last one."""

    def make(before: Any) -> Any:
        def made(self: Any) -> Any:
            reply = before(self)
            return RecurringListReply(reply.schedules[:-1]) if type(reply) is RecurringListReply else reply

        return made

    patch.wrap(Schedules, "_list", make)


@plant
def lists_of_schedules_are_kept_for_an_instant(patch: Patch) -> None:
    """A list of schedules is the one that was made at the same time, whatever has changed since."""

    def make(before: Any) -> Any:
        def listing(self: Any, call: Any, request: Any) -> None:
            self._drive()
            _, now, listed = self._listed
            if now == self._turn.now:
                self._listed = self._engine.number, now, listed
            before(self, call, request)

        return listing

    patch.wrap(Schedules, "list", make)


@plant
def removed_schedules_are_denied_too_early(patch: Patch) -> None:
    """Who removes a schedule once more is told that there is none before that is durable."""

    def make(before: Any) -> Any:
        def reply(self: Any, call: Any, message: Any, after: int) -> None:
            denied = type(message) is RecurringRemovedReply and not message.removed
            before(self, call, message, 0 if denied else after)

        return reply

    patch.wrap(Turn, "reply", make)


# --- the end of a term


@plant
def workers_are_sent_away_too_early(patch: Patch) -> None:
    """Workers are told that the server has stopped before what that brought is durable."""

    def farewell(self: Any) -> None:
        goodbye = Shutdown("the server is stopping", False)
        self._turn.once_durable += [SendToWorker(session.stream, goodbye, 0) for session in self._leaving]

    patch.setattr(Workers, "farewell", farewell)


@plant
def the_waiting_hear_of_a_stop_too_early(patch: Patch) -> None:
    """Who waits is told that the server has stopped before what that brought is durable."""

    def stop(self: Any) -> None:
        for call in self._waits.take_all() + self._lookups.take_all() + self._watches.all():
            self._turn.reject(call, STOPPED)

    patch.setattr(Calls, "stop", stop)


def _without_drive(before: Any) -> Any:
    def received(self: Any, call: Any, request: Any) -> None:
        drive, self._drive = self._drive, nothing
        before(self, call, request)
        self._drive = drive

    return received
