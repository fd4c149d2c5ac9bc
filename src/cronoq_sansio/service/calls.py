"""Calls, from the request to the reply: budgets, and what each request asks of engine, caches and store.

Life of a call. It is let in (gate, deadline, budget) or refused at once. Then its request is looked at, and it is

- answered in this step, held by the outbox until what the answer shows is durable;
- attached to a live task whose end it waits for (`waits.py`); or
- put aside until the store has answered (`Waiting.query`), and then looked at again from the start: the task may have
  come to life, or ended, meanwhile.

Listings, watches and calls about schedules are calls like others and share all this; what they answer is in
`listing.py`, `watches.py` and `schedules.py`.

It is over when its reply is released, when it runs out of time, or when its caller goes away, whichever is first;
budget, timer, wait and query are given back in that instant, and whatever the outbox still holds for it is dropped.

Where a task is looked for: live in the engine; finished in the caches; else in the store, asked only once everything
written so far is durable; else what key retention remembers; else NOT_FOUND. `Wait` answers wherever `Get` does.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from cronoq_sansio.engine.actions import Answer, BatchOutcome, CancelOutcome, Submitted, TaskEnded
from cronoq_sansio.engine.events import BatchSubmitted, TaskCancelled, TaskSubmitted
from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.budgets import Budgets
from cronoq_sansio.service.deadlines import UNSTORED, CallDue, Cause, Deadlines
from cronoq_sansio.service.gate import STOPPED, Gate
from cronoq_sansio.service.listing import Listing, Listings
from cronoq_sansio.service.lookups import NOT_ASKED, Lookups, StoreWord, task_info, unknown
from cronoq_sansio.service.messages import (
    BatchReply,
    Call,
    CallEnded,
    CallReceived,
    Cancel,
    CancelReply,
    FindTask,
    Get,
    ListTasks,
    ReadStore,
    Request,
    StoreAnswered,
    StoredPage,
    Submit,
    SubmitBatch,
    SubmitReply,
    TaskResult,
    Wait,
    Watch,
)
from cronoq_sansio.service.messages_recurring import AddRecurring, ListRecurring, RemoveRecurring
from cronoq_sansio.service.results import Finished, Results
from cronoq_sansio.service.schedules import ScheduleCall, Schedules
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.waits import SubmitStored, Waiting, Waits
from cronoq_sansio.service.watches import Watcher, Watches
from cronoq_sansio.settings import Settings
from cronoq_sansio.spec import TaskStatus
from cronoq_sansio.values import blank

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

SUCCEEDED = int(TaskStatus.SUCCEEDED)
NOT_CURRENT = Rejection(Code.UNAVAILABLE, "the store showed an older state of the task; try again")


class Calls:
    """Every open call."""

    def __init__(
        self,
        engine: "Engine",
        settings: Settings,
        turn: Turn,
        gate: Gate,
        deadlines: Deadlines,
        results: Results,
        drive: Callable[[], None],
        watches: Watches,
        figures: Mapping[type, Callable[[Call, Request], None]],
        *,
        volatile: bool,
    ) -> None:
        """`figures`: requests that show the server and no task, and who answers them."""
        self._engine = engine
        self._limits = settings.limits
        self._turn = turn
        self._gate = gate
        self._deadlines = deadlines
        self._results = results
        self._drive = drive
        self._waits = Waits()
        self.awaited = self._waits.by_task
        """Ids of tasks for whose end somebody waits."""
        self._lookups = Lookups()
        self._watches = watches
        self._listings = Listings(engine, settings, turn, results, self._lookups, drive, volatile=volatile)
        self._schedules = schedules = Schedules(engine, settings, turn, drive)
        self.submitted: list[tuple[Call, Answer]] = []
        """Waiting Submits that the engine has answered, for `settle`."""
        self._budgets = budgets = Budgets(settings.limits)
        self._for_requests = budgets.request
        self._fresh = deadlines.fresh  # never replaced
        self._volatile = volatile
        self._methods: dict[type, Callable[[Call, Request], None]] = {
            Submit: self._submit,
            SubmitBatch: self._submit_batch,
            Cancel: self._look,
            Get: self._look,
            Wait: self._look,
            ListTasks: self._listings.received,
            Watch: watches.received,
            AddRecurring: schedules.add,
            RemoveRecurring: schedules.remove,
            ListRecurring: schedules.list,
            **figures,
        }

    # --- events

    def received(self, received: CallReceived) -> None:
        """A call: let it in, or refuse it at once."""
        call, request, deadline = received.call, received.request, received.deadline
        if type(request) is Submit and deadline is None and not request.wait and self._gate.open:
            budget = self._for_requests
            if budget.open < budget.limit:  # the same as below, for nearly every call
                call.budget = budget
                budget.open += 1
                if not self._volatile:  # such a store holds no answer back: the call is over when its step is
                    self._fresh.append(call)
                event = blank(TaskSubmitted)
                event.request = call
                event.spec = request.spec
                event.may_wait = False
                self._turn.events.append(event)
                return
        turn = self._turn
        refusal = None if self._gate.open else self._gate.refusal(request)
        if refusal is None and deadline is not None and deadline <= turn.now:
            refusal = Rejection(Code.DEADLINE_EXCEEDED, "the call's deadline had passed when it arrived")
        budget = self._budgets.of(request)
        if refusal is None and budget.open >= budget.limit:
            refusal = budget.full
        if refusal is not None:
            turn.reject(call, refusal)
            return
        call.budget = budget
        budget.open += 1
        self._deadlines.add(call, turn.now, deadline, self._wait_limit(request), capped=type(request) is not Watch)
        self._methods[type(request)](call, request)

    def ended(self, event: CallEnded) -> None:
        """The caller went away. What its request asked for goes on."""
        if event.call.open:
            self.close(event.call)

    def due(self, due: CallDue) -> None:
        """The call ran out of time."""
        call = due.call
        if not call.open:
            return
        waiting = call.wait
        task_id = waiting.stored if type(waiting) is Waiting else 0
        unstored = ""
        if waiting is None or (type(waiting) is Waiting and type(waiting.request) is Submit and not task_id):
            unstored = UNSTORED
        elif type(waiting) is ScheduleCall:
            unstored = ScheduleCall.UNSTORED
        self._turn.reject(call, self._deadlines.rejection(due.cause, task_id, unstored=unstored))

    def store_answered(self, event: StoreAnswered) -> None:
        """The store answered a query; the call that asked may be gone."""
        call = self._lookups.take(event.query)
        if call is None:
            return
        waiting, answer = call.wait, event.answer
        if isinstance(answer, Rejection):
            self._turn.reject(call, answer)
        elif type(waiting) is Listing:
            assert type(answer) is StoredPage
            self._listings.answered(call, waiting, answer)
        else:
            assert type(waiting) is Waiting and not isinstance(answer, StoredPage)
            self._find(call, waiting, answer)

    def stop(self) -> None:
        """The term is over: whoever still waits, for a task, the store or events, is told so."""
        after = self._engine.written
        for call in self._waits.take_all() + self._lookups.take_all() + self._watches.all():
            self._turn.reject(call, STOPPED, after)

    # --- actions of the engine

    def answered(self, answer: Answer) -> None:
        """The engine answered a Submit that waits, or is refused, a batch, a Cancel or a change of a schedule."""
        call = answer.request
        assert isinstance(call, Call)
        if not call.open:
            return
        outcome = answer.outcome
        if type(outcome) is Submitted:
            self.submitted.append((call, answer))
        elif type(outcome) is BatchOutcome:
            self._turn.reply(call, BatchReply(outcome.members), answer.after)
        elif type(outcome) is CancelOutcome:
            self._turn.reply(call, CancelReply(outcome.cancelled), answer.after)
        elif type(call.wait) is ScheduleCall:
            self._schedules.answered(call, call.wait, answer)
        else:
            assert type(outcome) is Rejection
            self._turn.reject(call, outcome, answer.after)

    def task_ended(self, ended: TaskEnded) -> None:
        """Answer everybody who waits for the task."""
        waiters = self._waits.take(ended.task.id)
        if waiters is None:
            return
        result = _result(ended)
        for call, waiting in waiters.items():
            self._reply_result(call, waiting, result, ended.after)

    def settle(self, actions: Iterable[object]) -> None:
        """Look at what waiting Submits got, once all `actions` of the same engine step are known.

        A task may have ended in the step that admitted it, skipped or shed, and no cache need have it.
        """
        submitted, self.submitted = self.submitted, []
        ended = {action.task.id: action for action in actions if type(action) is TaskEnded}
        for call, answer in submitted:
            self._wait_for(call, answer, ended)

    # --- out of the outbox

    def stored(self, marker: SubmitStored) -> None:
        """What a waiting Submit made is durable: its id may be told."""
        waiting = marker.call.wait
        if marker.call.open and type(waiting) is Waiting:
            waiting.stored = marker.task_id

    def close(self, call: Call) -> None:
        """The call is over: give back everything it has."""
        call.open = False
        if call.wait is not None:
            self._detach(call)
        if call.timer is not None:
            self._deadlines.cancel(call)
        budget = call.budget
        if budget is not None:
            budget.open -= 1
            call.budget = None

    def asks(self, number: int) -> bool:
        """True while somebody wants the answer to the query with that number."""
        return number in self._lookups

    # --- requests

    def _submit(self, call: Call, request: Request) -> None:
        assert type(request) is Submit
        if request.wait:
            call.wait = Waiting(request, 0, self._limit(request.wait_timeout))
        self._turn.events.append(TaskSubmitted(call, request.spec))

    def _submit_batch(self, call: Call, request: Request) -> None:
        assert type(request) is SubmitBatch
        self._turn.events.append(BatchSubmitted(call, request.specs))

    def _look(self, call: Call, request: Request) -> None:
        assert isinstance(request, Cancel | Get | Wait)
        limit = self._limit(request.timeout) if type(request) is Wait else 0
        call.wait = waiting = Waiting(request, request.task, limit)
        if self._turn.events:
            self._drive()  # a look shows everything that came before it
        self._find(call, waiting, NOT_ASKED)

    def _wait_limit(self, request: Request) -> int | None:
        """When a call stops waiting; None for one that does not wait, or only asks whether the task has ended (0)."""
        if type(request) is Wait:
            timeout = request.timeout
        elif type(request) is Submit and request.wait:
            timeout = request.wait_timeout
        else:
            return None
        return None if timeout == 0 else self._limit(timeout)

    def _limit(self, timeout: int | None) -> int:
        longest = self._limits.max_wait
        return self._turn.now + (longest if timeout is None else min(timeout, longest))

    def _wait_for(self, call: Call, answer: Answer, ended: Mapping[int, TaskEnded]) -> None:
        """A waiting Submit was admitted, or is a duplicate; `ended` in the same step."""
        waiting, outcome = call.wait, answer.outcome
        assert type(waiting) is Waiting and type(outcome) is Submitted
        waiting.ref = outcome.task_id
        waiting.duplicate = outcome.duplicate
        waiting.after = answer.after
        self._turn.once_durable.append(SubmitStored(call, outcome.task_id, answer.after))
        end = ended.get(outcome.task_id)
        if end is not None:
            self._reply_result(call, waiting, _result(end), end.after)
        else:
            self._find(call, waiting, NOT_ASKED)

    def _find(self, call: Call, waiting: Waiting, stored: StoreWord) -> None:
        """Answer from wherever the task is; `stored` is what the store says, if it was asked."""
        ref = waiting.ref
        found = self._engine.find(ref)
        if type(found) is Task:
            self._found_live(call, waiting, found)
            return
        assert found is None or type(found) is Retained
        known = self._results.find(ref, found)
        if type(waiting.request) is Cancel:
            self._found_ended(call, waiting, known, stored)
        elif type(waiting.request) is Get:
            self._get_finished(call, waiting, known, stored)
        else:
            self._wait_finished(call, waiting, known, stored)

    def _found_live(self, call: Call, waiting: Waiting, task: Task) -> None:
        kind = type(waiting.request)
        if kind is Get:
            self._turn.reply(call, task_info(task), task.stored)
        elif kind is Cancel:
            self._turn.events.append(TaskCancelled(call, task.id))
        elif waiting.limit <= self._turn.now:  # not even a moment to wait: tell that it has not ended
            task_id = task.id if kind is Submit else 0
            rejection = self._deadlines.rejection(Cause.WAIT, task_id)
            self._turn.reject(call, rejection, max(task.stored, waiting.after))
        else:
            self._waits.attach(call, waiting, task.id)

    def _found_ended(self, call: Call, waiting: Waiting, known: Finished | None, stored: StoreWord) -> None:
        """Cancel of a task that is not live: False when it has ended, and an error when there never was one."""
        if known is not None:
            self._turn.reply(call, CancelReply(False), known.after)
        elif stored is NOT_ASKED:
            self._ask(call, waiting)
        elif stored is None:
            self._turn.reject(call, unknown(waiting.ref))
        elif stored.info.status >= SUCCEEDED:
            self._turn.reply(call, CancelReply(False), 0)
        else:
            self._turn.reject(call, NOT_CURRENT)

    def _get_finished(self, call: Call, waiting: Waiting, known: Finished | None, stored: StoreWord) -> None:
        if known is not None and known.answers_get:
            self._turn.reply(call, known.info, known.after)
        elif stored is NOT_ASKED:
            self._ask(call, waiting)
        elif stored is not None:
            self._turn.reply(call, stored.info, 0)
        elif known is not None:
            self._turn.reply(call, known.info, known.after)
        else:
            self._turn.reject(call, unknown(waiting.ref))

    def _wait_finished(self, call: Call, waiting: Waiting, known: Finished | None, stored: StoreWord) -> None:
        if known is not None and known.answers_wait:
            self._reply_result(call, waiting, known.result(), known.after)
        elif stored is NOT_ASKED:
            self._ask(call, waiting)
        elif stored is not None and stored.info.status >= SUCCEEDED:
            info = stored.info
            result = TaskResult(info.task_id, info.status, stored.output, stored.content_type, info.message)
            self._reply_result(call, waiting, result, 0)
        elif stored is not None:
            self._turn.reject(call, NOT_CURRENT)
        elif known is not None:
            self._reply_result(call, waiting, known.result(), known.after)
        else:
            self._turn.reject(call, unknown(waiting.ref))

    def _reply_result(self, call: Call, waiting: Waiting, result: TaskResult, after: int) -> None:
        if type(waiting.request) is Submit:
            reply = SubmitReply(result.task_id, waiting.duplicate, result)
            self._turn.reply(call, reply, max(after, waiting.after))
        else:
            self._turn.reply(call, result, after)

    def _ask(self, call: Call, waiting: Waiting) -> None:
        with_output = type(waiting.request) in (Wait, Submit)
        query = FindTask(self._lookups.issue(call, waiting), waiting.ref, with_output)
        self._turn.once_durable.append(ReadStore(query, self._engine.written))

    def _detach(self, call: Call) -> None:
        waiting = call.wait
        if type(waiting) is Waiting:
            self._waits.withdraw(call, waiting)
            self._lookups.drop(waiting)
        elif type(waiting) is Listing:
            self._listings.closed(waiting)
        elif type(waiting) is Watcher:
            self._watches.closed(call, waiting)

    # --- looking

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows."""
        return {
            "open_requests": self._budgets.request.open,
            "open_waits": self._budgets.wait.open,
            "open_watches": self._budgets.watch.open,
            "waiting_for_tasks": len(self._waits),
            "waiting_for_store": len(self._lookups),
            "listed_tasks": self._listings.held,
        }

    def check_invariants(self) -> None:
        """Waits and queries belong to open calls that name them."""
        self._waits.check_invariants()
        self._lookups.check_invariants()
        self._watches.check_invariants()
        self._budgets.check_invariants()
        assert len(self._watches) == self._budgets.watch.open
        assert not self.submitted
        assert len(self._waits) <= self._budgets.wait.open


def _result(ended: TaskEnded) -> TaskResult:
    task = ended.task
    return TaskResult(task.id, task.status, ended.output, ended.content_type, task.message)
