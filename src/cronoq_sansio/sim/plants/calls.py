"""Bugs in calls: deadlines, budgets, waits, watches, listings, keys, batches, and what is kept of finished tasks."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.engine import admission
from cronoq_sansio.engine.actions import BatchOutcome, Submitted
from cronoq_sansio.engine.events import TaskSubmitted
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service.calls import Calls
from cronoq_sansio.service.deadlines import Cause, Deadlines
from cronoq_sansio.service.listing import Listings
from cronoq_sansio.service.lookups import Lookups
from cronoq_sansio.service.messages import SendEvent, SubmitReply
from cronoq_sansio.service.results import InfoCache, OutputCache, Results
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.waits import Waits
from cronoq_sansio.service.watches import Filters, Watches
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing
from cronoq_sansio.spec import TaskStatus

BED = Bed()
plant = BED.plant


# --- calls and their time


@plant
def calls_with_one_deadline_lose_one(patch: Patch) -> None:
    """Of two calls with the same deadline only one is answered when it has come."""

    def make(before: Any) -> Any:
        def arm(self: Any, now: int) -> None:
            armed = set()
            for call in self.fresh.copy():
                when, _ = self._sooner.get(call) or (now + self._cap, Cause.CAP)
                if not call.open or when in armed:
                    self.fresh.remove(call)
                else:
                    armed.add(when)
            before(self, now)

        return arm

    patch.wrap(Deadlines, "arm", make)


@plant
def calls_run_out_of_time_late(patch: Patch) -> None:
    """A call is answered a millisecond after its time was up."""

    def make(before: Any) -> Any:
        def arm(self: Any, now: int) -> None:
            for call, (when, cause) in self._sooner.items():
                self._sooner[call] = when + 1_000_000, cause
            before(self, now + 1_000_000)

        return arm

    patch.wrap(Deadlines, "arm", make)


@plant
def answered_calls_keep_their_timers(patch: Patch) -> None:
    """The timer of a call stays when the call is over."""
    patch.setattr(Deadlines, "cancel", nothing)


@plant
def budgets_are_not_given_back(patch: Patch) -> None:
    """Every call counts as open for ever, until no more are let in."""

    def make(before: Any) -> Any:
        def close(self: Any, call: Any) -> None:
            call.budget = None
            before(self, call)

        return close

    patch.wrap(Calls, "close", make)


@plant
def callers_that_go_are_not_noticed(patch: Patch) -> None:
    """A call whose caller went away stays open until its time is up."""
    patch.setattr(Calls, "ended", nothing)


@plant
def refused_submissions_are_never_answered(patch: Patch) -> None:
    """A submission that is refused is never answered."""

    def make(before: Any) -> Any:
        def answered(self: Any, answer: Any) -> None:
            if not isinstance(answer.outcome, Rejection) or answer.request.wait is not None:
                before(self, answer)

        return answered

    patch.wrap(Calls, "answered", make)


# --- waits


@plant
def waits_outlive_their_callers(patch: Patch) -> None:
    """Who waits for a task stays in the table when its call is over."""
    patch.setattr(Waits, "withdraw", nothing)


@plant
def only_one_of_the_waiting_is_answered(patch: Patch) -> None:
    """Of several that wait for a task the first one hears of its end."""

    def make(before: Any) -> Any:
        def take(self: Any, task_id: int) -> Any:
            waiters = before(self, task_id)
            return waiters and dict([next(iter(waiters.items()))])

        return take

    patch.wrap(Waits, "take", make)


@plant
def ends_of_the_same_step_are_overlooked(patch: Patch) -> None:
    """A submission that waits is not answered when its task ended in the step that took it in."""

    def make(before: Any) -> Any:
        def wait_for(self: Any, call: Any, answer: Any, ended: Any) -> None:
            if answer.outcome.task_id in ended:
                call.wait.ref = answer.outcome.task_id
            else:
                before(self, call, answer, ended)

        return wait_for

    patch.wrap(Calls, "_wait_for", make)


@plant
def waits_get_another_end(patch: Patch) -> None:
    """Who waits for a task that was cancelled is told that it failed."""

    def make(before: Any) -> Any:
        def reply_result(self: Any, call: Any, waiting: Any, result: Any, after: int) -> None:
            if result.status == TaskStatus.CANCELLED:
                result = replace(result, status=int(TaskStatus.FAILED))
            before(self, call, waiting, result, after)

        return reply_result

    patch.wrap(Calls, "_reply_result", make)


# --- watches


@plant
def watchers_see_other_pools(patch: Patch) -> None:
    """Who watches one pool hears of tasks of another."""

    def make(before: Any) -> Any:
        def interested(self: Any, task_id: int, pool: str, key: str) -> Any:
            others = [call for watchers in self.by_pool.values() for call in watchers]
            return tuple(dict.fromkeys((*before(self, task_id, pool, key), *others)))

        return interested

    patch.wrap(Filters, "interested", make)


@plant
def only_one_of_the_watchers_hears(patch: Patch) -> None:
    """Of several that watch a task one hears of an event."""
    patch.wrap(Watches, "_send", lambda before: lambda self, told, event, after: before(self, told[:1], event, after))


@plant
def keys_are_not_watched(patch: Patch) -> None:
    """Who watches a key hears nothing."""
    patch.wrap(Filters, "interested", lambda before: lambda self, task_id, pool, _key: before(self, task_id, pool, ""))


@plant
def events_go_backwards(patch: Patch) -> None:
    """Watchers hear of the events of one step in the wrong order."""

    def make(before: Any) -> Any:
        def send(self: Any, told: Any, event: Any, after: int) -> None:
            before(self, told, event, after)
            held = self._turn.once_durable
            if held and type(held[-1]) is SendEvent:
                held.insert(0, held.pop())

        return send

    patch.wrap(Watches, "_send", make)


@plant
def watches_outlive_their_callers(patch: Patch) -> None:
    """A watch stays in the table when its call is over."""
    patch.setattr(Watches, "closed", nothing)


@plant
def transitions_are_not_asked_for(patch: Patch) -> None:
    """The engine never hears that somebody watches every transition."""
    patch.setattr(Watches, "settle", nothing)


@plant
def failures_are_not_watched(patch: Patch) -> None:
    """Watchers do not hear of a task whose attempts are used up."""

    def make(before: Any) -> Any:
        def ended(self: Any, end: Any) -> None:
            if end.task.status != TaskStatus.DEAD_LETTERED:
                before(self, end)

        return ended

    patch.wrap(Watches, "ended", make)


# --- listings


@plant
def listings_leave_out_the_last_one_looked_at(patch: Patch) -> None:
    """A task at the edge of two pages is on neither."""

    def make(before: Any) -> Any:
        def page(self: Any, live: Any, stored: Any, limit: int) -> Any:
            made = before(self, live, stored, limit)
            return replace(made, tasks=made.tasks[:-1]) if made.next_after and len(made.tasks) > 1 else made

        return page

    patch.wrap(Listings, "_page", make)


@plant
def listings_show_the_last_one_twice(patch: Patch) -> None:
    """A task at the edge of two pages is on both."""

    def make(before: Any) -> Any:
        def page(self: Any, live: Any, stored: Any, limit: int) -> Any:
            made = before(self, live, stored, limit)
            return replace(made, next_after=made.next_after - 1) if made.next_after and len(made.tasks) > 1 else made

        return page

    patch.wrap(Listings, "_page", make)


@plant
def listings_look_at_live_tasks_too_late(patch: Patch) -> None:
    """A task that ends while the store is asked for a page is not on it."""

    def make(before: Any) -> Any:
        def answered(self: Any, call: Any, asked: Any, stored: Any) -> None:
            tasks = tuple(info for info in asked.live.tasks if info.task_id in self._engine.tasks.live)
            asked.live, known = replace(asked.live, tasks=tasks), asked.live
            before(self, call, asked, stored)
            asked.live = known

        return answered

    patch.wrap(Listings, "answered", make)


@plant
def listings_forget_the_filter(patch: Patch) -> None:
    """A listing of one pool shows live tasks of all."""
    patch.wrap(
        Listings, "_live", lambda before: lambda self, request, limit: before(self, replace(request, pools=()), limit)
    )


@plant
def listings_are_held_for_ever(patch: Patch) -> None:
    """The tasks of a page that waited for the store still count when its call is over."""
    patch.setattr(Listings, "closed", lambda self, asked: self._lookups.drop(asked))


# --- the store's answers, and what memory knows


@plant
def numbers_of_queries_are_used_again(patch: Patch) -> None:
    """The answer of the store to one call goes to another."""

    def make(before: Any) -> Any:
        def issue(self: Any, call: Any, asking: Any) -> int:
            self._number = len(self._calls)
            return int(before(self, call, asking))

        return issue

    patch.wrap(Lookups, "issue", make)


@plant
def the_store_answers_nobody(patch: Patch) -> None:
    """A query stays in the table when its call is over."""
    patch.setattr(Lookups, "drop", nothing)


@plant
def finished_tasks_are_kept_for_ever(patch: Patch) -> None:
    """Information about finished tasks grows without bound."""
    patch.setattr(InfoCache, "_drop_oldest", nothing)


@plant
def outputs_are_kept_for_ever(patch: Patch) -> None:
    """Outputs of finished tasks grow without bound."""

    def make(before: Any) -> Any:
        def add(self: Any, *args: Any) -> None:
            known = self._capacity, self._budget
            self._capacity, self._budget = 1 << 60, 1 << 60
            before(self, *args)
            self._capacity, self._budget = known

        return add

    patch.wrap(OutputCache, "add", make)


@plant
def outputs_get_lost(patch: Patch) -> None:
    """Who asks for the end of a task that is still in memory gets it without its output."""
    patch.wrap(Results, "find", lambda before: lambda self, ref, known: _without_output(before(self, ref, known)))


# --- keys and batches


@plant
def a_key_is_free_while_its_task_waits_to_be_tried_again(patch: Patch) -> None:
    """A key is given to a second task while the first one is between two attempts."""

    def make(before: Any) -> Any:
        def by_key(self: Any, key: str, now: int) -> Any:
            known = before(self, key, now)
            return None if getattr(known, "timer", None) is not None else known

        return by_key

    patch.wrap(TaskTable, "by_key", make)


@plant
def a_key_is_free_as_soon_as_its_task_has_ended(patch: Patch) -> None:
    """A submission that is repeated after the end of its task makes a second one."""

    def make(before: Any) -> Any:
        def retire(self: Any, task: Any, now: int) -> None:
            before(self, task, now)
            self.keys.pop(task.spec.key, None)

        return retire

    patch.wrap(TaskTable, "retire", make)


@plant
def half_of_a_batch_is_taken_in(patch: Patch) -> None:
    """The first task of a batch that is refused is taken in."""

    def make(before: Any) -> Any:
        def submit_batch(of: Any, specs: Any) -> Any:
            outcome = before(of, specs)
            if isinstance(outcome[0], Rejection):
                admission.submit(of, TaskSubmitted(None, specs[0]))
                of.step.once_durable.pop()  # nobody asked
            return outcome

        return submit_batch

    patch.wrap(admission, "submit_batch", make)


@plant
def duplicates_in_a_batch_get_other_ids(patch: Patch) -> None:
    """The reply to a batch names the wrong task for a key that exists."""

    def make(before: Any) -> Any:
        def submit_batch(of: Any, specs: Any) -> Any:
            outcome, after = before(of, specs)
            if isinstance(outcome, BatchOutcome):
                outcome = BatchOutcome(
                    tuple(Submitted(m.task_id - 1, True) if m.duplicate else m for m in outcome.members)
                )
            return outcome, after

        return submit_batch

    patch.wrap(admission, "submit_batch", make)


@plant
def duplicates_are_not_called_so(patch: Patch) -> None:
    """Who submits a key that exists is told that the task is new."""

    def make(before: Any) -> Any:
        def reply(self: Any, call: Any, message: Any, after: int) -> None:
            fresh = replace(message, duplicate=False) if type(message) is SubmitReply else message
            before(self, call, fresh, after)

        return reply

    patch.wrap(Turn, "reply", make)


def _without_output(found: Any) -> Any:
    return found if found is None or found.entry is None else replace(found, entry=replace(found.entry, output=b""))
