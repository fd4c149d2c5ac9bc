"""What callers are told, one check per kind of answer: each must be in the rows, and be an answer to what was asked."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.records import TaskInserted
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server import figures
from cronoq_sansio.sim.server.pages import Pages
from cronoq_sansio.sim.server.refusals import Refusals, may_run, may_stand
from cronoq_sansio.sim.server.shadow import CANCELLED, READY, SUCCEEDED, progress
from cronoq_sansio.sim.server.view_edges import told_too_early
from cronoq_sansio.spec import TaskSpec, tenant_of

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.ledger import Ledger
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld


def fault(what: str, ask: "Ask", details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, f"{ask.request} -> {details}")


class Answers:
    """Of one world."""

    def __init__(self, world: "ServerWorld", ledger: "Ledger") -> None:
        self._world = world
        self._ledger = ledger
        self._rows = world.store.rows
        self._fresh: dict[int, None] = {}
        """Tasks of which somebody was told that they are new."""
        self._pages = Pages(world, ledger)
        self.refusals = Refusals(world, ledger)
        self._replies: dict[type, Callable[[Node, Ask, Any], None]] = {
            Submitted: self._submitted,
            m.SubmitReply: self._submitted,
            m.BatchReply: self._batch,
            m.CancelReply: self._cancelled,
            m.TaskResult: self._result,
            m.TaskInfo: self._info,
            m.TaskPage: self._page,
            m.WorkerList: figures.workers,
            m.SnapshotReply: figures.snapshot,
            mr.RecurringAddedReply: self._added,
            mr.RecurringRemovedReply: self._removed,
            mr.RecurringListReply: self._pages.schedules,
        }

    def reply(self, node: "Node", ask: "Ask", message: Any) -> None:
        """A call is answered with this."""
        self.refusals.let_in(node, ask)
        self._replies[type(message)](node, ask, message)

    # --- submissions

    def _submitted(self, node: "Node", ask: "Ask", reply: Submitted | m.SubmitReply) -> None:
        self._member(node, ask, reply.task_id, ask.request.spec, duplicate=reply.duplicate)
        ask.made = reply.task_id
        result = reply.result if type(reply) is m.SubmitReply else None
        if (result is not None) != ask.request.wait:
            raise fault("a submit is answered with a result exactly when it waits for one", ask, reply)
        if result is not None:
            if result.task_id != reply.task_id:
                raise fault("a submit is answered with the result of another task", ask, reply)
            self._end(ask, result)

    def _batch(self, node: "Node", ask: "Ask", reply: m.BatchReply) -> None:
        specs = ask.request.specs
        if len(specs) != len(reply.members):
            raise fault("a batch is not answered member by member", ask, reply)
        for spec, member in zip(specs, reply.members, strict=True):
            self._member(node, ask, member.task_id, spec, duplicate=member.duplicate)

    def _member(self, node: "Node", ask: "Ask", task_id: int, spec: TaskSpec, *, duplicate: bool) -> None:
        ledger = self._ledger
        row = self._rows.inserted.get(task_id)
        if row is None:
            raise fault("an acknowledged task is not durable", ask, f"task {task_id}")
        stored = row.spec
        if duplicate:
            if not spec.key or stored.key != spec.key:
                raise fault("a duplicate is of a task that does not have its key", ask, row)
            held = node.view.keys.finished.get(spec.key)
            asked = node.holders.calls.get(ask.call)
            if asked is not None and held is not None and held[2] == task_id and held[0] <= asked.ends:
                forgotten = held[1] <= asked.now
            else:
                forgotten = False
            if forgotten and task_id not in node.view.live:
                raise fault("a submission is a duplicate of a task that is forgotten", ask, row)
        else:
            if task_id in self._fresh:
                raise fault("two submissions were told that they made the same task", ask, row)
            self._fresh[task_id] = None
            if not may_run(node, spec):
                raise fault("a task is taken in that can never run", ask, row)
            mine = (spec.key, spec.pool, spec.kind, spec.priority, spec.content_type, spec.payload, tenant_of(spec))
            if mine != (
                *(stored.key, stored.pool, stored.kind, stored.priority),
                *(stored.content_type, stored.payload, tenant_of(stored)),
            ):
                raise fault("another task was stored than was submitted", ask, row)
        ledger.known(task_id)

    def _cancelled(self, node: "Node", ask: "Ask", reply: m.CancelReply) -> None:
        ref, ledger = ask.request.task, self._ledger
        if isinstance(ref, str):
            right = ref in ledger.cancelled if reply.cancelled else self._was_over(ref)
        else:
            end = ledger.ends.get(ref)
            right = end is not None and (end.status == CANCELLED or not reply.cancelled)
        if not right:
            raise fault("the answer to a cancel is not what is stored", ask, reply)

    def _was_over(self, key: str) -> bool:
        """Some task with this key has ended; the first one that had it has, if any."""
        return self._ledger.keys.get(key, 0) in self._ledger.ends

    # --- looks

    def _result(self, node: "Node", ask: "Ask", result: m.TaskResult) -> None:
        self._is_asked(ask, ask.request.task, result.task_id)
        self._end(ask, result)

    def _is_asked(self, ask: "Ask", ref: int | str, task_id: int) -> None:
        row = self._rows.inserted.get(task_id)
        if row is None:
            raise fault("a task was told of that is not durable", ask, f"task {task_id}")
        if (row.spec.key if isinstance(ref, str) else task_id) != ref:
            raise fault("a look is answered with another task", ask, row)

    def _end(self, ask: "Ask", result: m.TaskResult) -> None:
        ledger = self._ledger
        end = ledger.ends.get(result.task_id)
        if end is None or end.status != result.status or (result.message and end.message != result.message):
            raise fault("an end that was told is not durable", ask, f"{result}, stored: {end}")
        if result.output is not None:
            stored = ledger.outputs.get(result.task_id)
            if stored is None or (stored.output, stored.content_type) != (result.output, result.content_type):
                raise fault("an output that was told is not the stored one", ask, f"{result}, stored: {stored}")
        elif end.status == SUCCEEDED and not self._world.store.volatile:
            raise fault("a result lacks the output that is stored", ask, result)
        self._told_end(ask.node, result.task_id)

    def _told_end(self, node: "Node", task_id: int) -> None:
        if node.epoch == self._world.store.epoch:  # else its store says what it has not seen happen
            node.holders.told_ends.setdefault(task_id, self._world.events)

    def _info(self, node: "Node", ask: "Ask", info: m.TaskInfo) -> None:
        self._is_asked(ask, ask.request.task, info.task_id)
        self._shown(node, ask, info)

    def _shown(self, node: "Node", ask: "Ask", info: m.TaskInfo) -> None:
        """What is told of a task, alone or on a page."""
        ledger, task_id = self._ledger, info.task_id
        row = self._rows.inserted.get(task_id)
        if row is None:
            raise fault("a task was told of that is not durable", ask, info)
        whole = info.priority >= 0
        if info.status >= SUCCEEDED:
            end = ledger.ends.get(task_id)
            if end is None or end.status != info.status:
                raise fault("an end that was told is not durable", ask, f"{info}, stored: {end}")
            if whole and (end.attempt, end.finished, end.message) != (info.attempt, info.finished, info.message):
                raise fault("an end was told in another way than it is stored", ask, f"{info}, stored: {end}")
            if info.output_available and task_id not in ledger.outputs:
                raise fault("an output is said to be there that is not", ask, info)
            if not self._world.store.volatile:
                if info.status == SUCCEEDED and not info.output_available:
                    raise fault("an output is said not to be there that is stored", ask, info)
                if not whole:
                    raise fault("a task is told of in less than is stored", ask, info)
            elif not whole and task_id in self._remembered(node):
                raise fault("a task is told of in less than is remembered", ask, info)
            self._told_end(node, task_id)
        else:
            if parent := told_too_early(task_id, info.status, self._rows):
                raise fault("a task is told to be free whose parent has no durable end", ask, f"{info}, {parent}")
            if progress(info.status, info.attempt) > ledger.far[task_id]:
                raise fault("a task was told to be further than is stored", ask, info)
            told = node.holders.told_ends.get(task_id)
            asked = node.holders.calls.get(ask.call)
            if told is not None and asked is not None and told < asked.event:
                raise fault("a task is live again whose end was told before", ask, info)
            if info.attempt > info.max_attempts or info.output_available or info.finished is not None:
                raise fault("a live task was told to be what none can be", ask, info)
        if whole and not _same(row, info):
            raise fault("a task was told to be another one", ask, f"{info}, stored: {row}")

    def _page(self, node: "Node", ask: "Ask", page: m.TaskPage) -> None:
        for info in page.tasks:
            self._shown(node, ask, info)
        self._pages.page(node, ask, page)

    def _remembered(self, node: "Node") -> Sequence[int]:
        """The tasks that have ended last, of which a term still knows everything: not those that recovery has ended."""
        ends, most = node.view.ends, node.settings.outputs.info_entries
        return ends[max(len(ends) - most, node.view.recovered) :]

    # --- watches

    def event(self, node: "Node", ask: "Ask", event: m.StatusEvent) -> None:
        """A watcher is told this."""
        request: m.Watch = ask.request
        ledger, task_id = self._ledger, event.task_id
        named = not (request.ids or request.keys) or task_id in request.ids or (event.key and event.key in request.keys)
        if not named or (request.pools and event.pool not in request.pools):
            raise fault("a watcher is told what it does not watch for", ask, event)
        row = self._rows.inserted.get(task_id)
        if row is None or (row.spec.pool, row.spec.key) != (event.pool, event.key):
            raise fault("a watcher is told of a task that is not durable", ask, f"{event}, stored: {row}")
        far = progress(event.status, event.attempt)
        before = ask.shown.get(task_id, 0)
        if far > ledger.far[task_id]:
            raise fault("a watcher is told of what is not durable", ask, event)
        if event.status >= SUCCEEDED:
            end = ledger.ends.get(task_id)
            stored = None if end is None else (end.status, end.attempt, end.finished, end.message)
            if stored != (event.status, event.attempt, event.at, event.message):
                raise fault("a watcher is told of another end than is stored", ask, f"{event}, stored: {end}")
            if before == far:
                raise fault("a watcher is told of an end twice", ask, event)
        elif parent := told_too_early(task_id, event.status, self._rows):
            raise fault("a task is told to be free whose parent has no durable end", ask, f"{event}, {parent}")
        elif not request.all_transitions:
            raise fault("a watcher is told what it does not watch for", ask, event)
        elif far < before and not (event.status == READY and event.attempt == before // 2 - 1):
            raise fault("a watcher is told of a task in the wrong order", ask, f"{event}, before: {before}")
        ask.shown[task_id] = far

    # --- schedules

    def _added(self, node: "Node", ask: "Ask", reply: mr.RecurringAddedReply) -> None:
        spec = ask.request.spec
        if spec not in self._ledger.schedules.get(spec.name, ()):
            raise fault("an acknowledged schedule is not durable", ask, reply)
        if not may_stand(node, spec):
            raise fault("a schedule is taken in whose tasks can never run", ask, spec)

    def _removed(self, node: "Node", ask: "Ask", reply: mr.RecurringRemovedReply) -> None:
        name, ledger = ask.request.name, self._ledger
        asked = node.holders.calls.get(ask.call)
        stands = not reply.removed and asked is not None and ledger.stood_at.get(name, asked.event) < asked.event
        if stands and name in ledger.standing and node.epoch == self._world.store.epoch:
            raise fault("a schedule is said not to be there that is still stored", ask, ledger.standing[name])
        if reply.removed and name not in ledger.removed:
            raise fault("a schedule is said to be removed, and the store does not say so", ask, reply)


def _same(row: TaskInserted, info: m.TaskInfo) -> bool:
    spec = row.spec
    return (spec.pool, spec.key, spec.kind, spec.priority, tenant_of(spec), row.max_attempts) == (
        *(info.pool, info.key, info.kind, info.priority, info.tenant),
        info.max_attempts,
    )
