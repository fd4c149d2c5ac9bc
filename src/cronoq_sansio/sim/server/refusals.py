"""Why callers are refused: each refusal must be justified by what there was when they asked, and no other one is right.

What a call must be refused for before anybody looks at it is known outside (`door.py`), and so are the bounds that a
task or a schedule would pass (`room.py`), the pools, resources and schedules that there are, and every time limit.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import EVENT_BURST, MAX_BATCH_EDGES, MAX_CYCLE_WALK, MAX_SCHEDULES, MESSAGE_HEADROOM
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.lockstep.workload import BAD_CRONS
from cronoq_sansio.sim.server.door import asks_for_no_time, code_of, end_of
from cronoq_sansio.sim.server.shadow import NOTHING
from cronoq_sansio.spec import RecurringSpec, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.holders import Asked
    from cronoq_sansio.sim.server.ledger import Ledger
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

UNSURE = "outcome is unknown"
"""What the caller of a change is told that ran out of time before the store had it."""
BAD_ZONES = ("Mars/Base",)
SCHEDULE_BYTES = 64
"""What a schedule takes on a list beside its texts."""
FROM_THE_STORE = (m.Get, m.Wait, m.Cancel, m.Submit, m.ListTasks)
"""What may need an answer of the store."""
CHANGES = (m.Submit, m.SubmitBatch, mr.AddRecurring, mr.RemoveRecurring)
"""Changes whose callers are told, when they run out of time, whether they may have happened."""


def fault(what: str, ask: "Ask", details: object) -> Violation:
    """A refusal that is not right."""
    return Violation(Kind.SAFETY, what, f"{ask.request} -> {details}")


class Refusals:
    """Of one world."""

    def __init__(self, world: "ServerWorld", ledger: "Ledger") -> None:
        self._world = world
        self._ledger = ledger
        self._rows = world.store.rows
        self._reasons: dict[Code, Callable[[Node, Ask, Asked, Rejection], None]] = {
            Code.UNAVAILABLE: self._unavailable,
            Code.DEADLINE_EXCEEDED: self._out_of_time,
            Code.CANCELLED: self._out_of_time,
            Code.NOT_FOUND: self._not_found,
            Code.DATA_LOSS: self._cut,
            Code.TOO_LARGE: self._too_large,
            Code.FAILED_PRECONDITION: self._in_file,
        }
        self._faults: dict[Code, Callable[[Node, TaskSpec, Sequence[TaskSpec], int], bool]] = {
            Code.UNKNOWN_POOL: lambda node, spec, _batch, _index: spec.pool not in node.view.pools,
            Code.UNKNOWN_RESOURCE: lambda node, spec, _batch, _index: unknown_resource(node, spec),
            Code.RESOURCE_EXCEEDS_CAPACITY: lambda node, spec, _batch, _index: exceeds(node, spec),
            Code.INVALID: _invalid,
            Code.DUPLICATE_KEY_IN_BATCH: lambda _node, spec, batch, index: (
                bool(spec.key) and spec.key in [other.key for other in batch[:index]]
            ),
            Code.CYCLE: lambda _node, spec, _batch, _index: bool((spec.scheduling or NOTHING).dependencies),
            Code.UNKNOWN_DEPENDENCY: _unknown_parent,
            Code.RESERVATION_CONFLICT: lambda _node, spec, _batch, _index: _starts(spec),
            Code.OVERLOADED: _passes,
            Code.FULL: _passes,
        }

    # --- answers

    def let_in(self, node: "Node", ask: "Ask") -> None:
        """A call is answered, or a watch begins: it must not be one that had to be refused, nor one that is too old."""
        holders = node.holders
        asked = holders.calls.get(ask.call)
        if asked is None:
            return
        if asked.refused:
            raise fault("a call is let in that is to be refused", ask, asked.refused)
        if asked.now < holders.looked:
            self._in_time(node, ask, asked)

    def _in_time(self, node: "Node", ask: "Ask", asked: "Asked") -> None:
        end, _ = end_of(asked, node.settings.limits)
        if end is not None and end <= node.holders.looked:
            raise fault("a call is answered after its time was up", ask, f"{end}, timers: {node.holders.looked}")

    # --- refusals

    def refused(self, node: "Node", ask: "Ask", rejection: Rejection) -> None:
        """A call is refused, or a watch ends."""
        asked = node.holders.calls.get(ask.call)
        if asked is None:
            return
        if asked.refused:
            self._at_the_door(ask, asked, rejection)
            return
        if asked.now < node.holders.looked:
            self._in_time(node, ask, asked)
        for name, given in rejection.details:
            if name == "cronoq-task-id":
                self._names(ask, rejection, int(given))
        reason = self._reasons.get(rejection.code)
        if reason is not None:
            reason(node, ask, asked, rejection)
        elif asked.event != self._world.events:
            raise fault("a call is refused in a later step than it came in", ask, rejection)
        elif type(ask.request) is mr.AddRecurring:
            self._schedule(node, ask, rejection)
        elif type(ask.request) in (m.ListTasks, m.Watch) and rejection.code is Code.UNKNOWN_POOL:
            if all(pool in node.view.pools for pool in ask.request.pools):
                raise fault("a pool is called unknown that there is", ask, rejection)
        elif type(ask.request) in (m.Submit, m.SubmitBatch):
            self._submission(node, ask, rejection)
        else:
            raise fault("a call is refused for what is not said of such calls", ask, rejection)

    def _at_the_door(self, ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        if rejection.code is not code_of(asked.refused) or rejection.details or asked.event != self._world.events:
            raise fault("a call is not refused for what it is to be refused for", ask, f"{rejection}: {asked.refused}")
        if UNSURE in rejection.message:
            raise fault("what was never looked at is said to have an unknown outcome", ask, rejection)

    def _names(self, ask: "Ask", rejection: Rejection, task_id: int) -> None:
        row, request = self._rows.inserted.get(task_id), ask.request
        if row is None:
            raise fault("a refusal names a task that is not durable", ask, rejection)
        spec = request.spec if type(request) is m.Submit else None
        if spec is None or (row.spec.key, row.spec.pool if not spec.key else spec.pool) != (spec.key, spec.pool):
            raise fault("a refusal names the task of somebody else", ask, f"{rejection}: {row}")

    # --- that the server cannot

    def _unavailable(self, node: "Node", ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        kind = type(ask.request)
        if node.holders.door.stopped and kind is not m.SubmitBatch and kind not in CHANGES[2:]:
            if not node.holders.said_farewell():
                raise fault("who waits is told of a stop before it is durable", ask, rejection)
            return
        if kind in FROM_THE_STORE and asked.event != self._world.events:
            if rejection.message.startswith("the store cannot be asked"):
                return
            if kind is not m.ListTasks and not self._surely_over(node, ask, asked):
                return
        raise fault("a call is refused as if the server could not serve it", ask, rejection)

    def _surely_over(self, node: "Node", ask: "Ask", asked: "Asked") -> bool:
        """The store showed the end of the task for sure; else it may have shown what it was before."""
        ref = getattr(ask.request, "task", 0)
        if isinstance(ref, str) or node.epoch != self._world.store.epoch:
            return False
        ended = self._ledger.ended_at.get(ref)
        return ended is not None and ended < asked.event

    def _cut(self, node: "Node", ask: "Ask", _asked: "Asked", rejection: Rejection) -> None:
        view = node.view
        told = (2 * len(view.ends) + 3 * len(view.starts) + 2 * len(view.live)) * node.holders.most_watching
        if type(ask.request) is not m.Watch or told < EVENT_BURST:
            raise fault("a watch is cut that could have been served", ask, f"{rejection}, {told} deliveries at most")

    # --- that there is no time left

    def _out_of_time(self, node: "Node", ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        end, code = end_of(asked, node.settings.limits)
        at_once = asks_for_no_time(ask.request) and rejection.code is Code.DEADLINE_EXCEEDED
        if not at_once and (end is None or node.now < end or code is not rejection.code):
            raise fault("a call runs out of time that has some left", ask, f"{rejection} at {node.now}, {end} {code}")
        unsure, named = UNSURE in rejection.message, bool(rejection.details)
        if type(ask.request) not in CHANGES:
            if unsure:
                raise fault("a call that changes nothing is said to have an unknown outcome", ask, rejection)
        elif unsure == named:
            raise fault("who ran out of time is not told what is known of the outcome", ask, rejection)
        elif unsure and (end is None or node.now < end):
            raise fault("who asked for no time is not told which task it is", ask, rejection)
        elif unsure and type(ask.request) is m.Submit and ask.request.wait:
            holders = node.holders
            if holders.fired and holders.settled and asked.event < self._world.events:
                raise fault("who waits for a task that is stored is not told which one", ask, rejection)

    # --- that something is not there, or is there already

    def _not_found(self, node: "Node", ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        forgotten = self._world.store.volatile and type(ask.request) is m.Submit and ask.request.wait  # while it asked
        if not (type(ask.request) in (m.Get, m.Wait, m.Cancel) or forgotten):
            raise fault("a call is refused for what is not said of such calls", ask, rejection)
        if node.epoch != self._world.store.epoch:
            return
        ref = getattr(ask.request, "task", 0)
        task_id = self._ledger.keys.get(ref, 0) if isinstance(ref, str) else ref
        there = 0 < task_id <= asked.highest and task_id in self._rows.inserted
        if there and not (self._world.store.volatile and task_id in self._ledger.ends):
            raise fault("a stored task is not found", ask, rejection)

    def _in_file(self, node: "Node", ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        request, room = ask.request, node.view.room
        name = request.spec.name if type(request) is mr.AddRecurring else getattr(request, "name", "")
        known = room.standing.get(name)
        if known is None or not known.configured or type(request) not in (mr.AddRecurring, mr.RemoveRecurring):
            raise fault("a schedule is said to stand in the file that does not", ask, f"{rejection}: {known}")

    def _too_large(self, node: "Node", ask: "Ask", asked: "Asked", rejection: Rejection) -> None:
        room, most = node.view.room, node.settings.limits.max_message_bytes - MESSAGE_HEADROOM
        least = sum(
            SCHEDULE_BYTES + sum(len(text.encode()) for text in _texts(spec))
            for name, spec in room.standing.items()
            if room.changed.get(name, -1) < asked.event
        )
        touched = any(event >= asked.event for event in room.changed.values())
        if type(ask.request) is not mr.ListRecurring or (least <= most and not touched):
            raise fault("a list is called too large that is not", ask, f"{rejection}: {least} of {most} bytes")

    # --- that a task or schedule is not taken in

    def _submission(self, node: "Node", ask: "Ask", rejection: Rejection) -> None:
        request = ask.request
        index, batch = 0, (request.spec,) if type(request) is m.Submit else request.specs
        if rejection.details or type(request) is m.SubmitBatch:
            given = [int(value) for name, value in rejection.details if name == "cronoq-batch-index"]
            if len(given) != (type(request) is m.SubmitBatch) or not all(0 <= place < len(batch) for place in given):
                raise fault("a refusal does not say which member of a batch is at fault", ask, rejection)
            index = given[0] if given else 0
        spec: TaskSpec = batch[index]
        holder = node.view.keys.live.get(spec.key) if spec.key else None
        if holder is not None and holder <= node.holders.highest:
            raise fault("a submission is refused whose key a live task has", ask, f"{rejection}: task {holder}")
        reason = self._faults.get(rejection.code)
        if reason is None or not reason(node, spec, batch, index):
            raise fault("a submission is refused for what is not so", ask, rejection)
        if rejection.code is Code.FULL and node.view.pools[spec.pool].overflow != "wait":
            raise fault("a pool is called full that refuses what is too much", ask, rejection)

    def _schedule(self, node: "Node", ask: "Ask", rejection: Rejection) -> None:
        spec, room = ask.request.spec, node.view.room
        if rejection.code is Code.OVERLOADED:
            known = room.standing.get(spec.name)
            before = known.template.size if known is not None and known is not spec else 0
            right = len(room.standing) >= MAX_SCHEDULES or room.passes_bytes(spec.template.size - before)
        else:
            right = rejection.code is Code.INVALID and not may_stand(node, spec)
        if not right:
            raise fault("a schedule is refused for what is not so", ask, rejection)


# --- what is wrong with a task


def unknown_resource(node: "Node", spec: TaskSpec) -> bool:
    """It needs something that there is not."""
    return any(name not in node.view.units for name, _ in (spec.scheduling or NOTHING).resources)


def exceeds(node: "Node", spec: TaskSpec) -> bool:
    """It needs more than there ever is."""
    most = {item.name: item.burst if item.kind == "token_bucket" else item.permits for item in node.settings.resources}
    return any(units > (most.get(name) or 0) for name, units in (spec.scheduling or NOTHING).resources)


def may_run(node: "Node", spec: TaskSpec) -> bool:
    """Nothing is wrong with this task by itself."""
    return not (
        spec.pool not in node.view.pools
        or (spec.retry is not None and node.view.attempts(spec) < 1)
        or (spec.scheduling is not None and spec.scheduling.resources and exceeds(node, spec))
    )


def may_stand(node: "Node", spec: RecurringSpec) -> bool:
    """Nothing is wrong with this schedule by itself; time zones and expressions are those that the callers know."""
    asked, size = spec.template.scheduling or NOTHING, spec.template.size
    fixed = asked.deadline is not None or asked.start is not None or asked.start_in is not None or asked.dependencies
    bad = spec.cron in BAD_CRONS or spec.tz in BAD_ZONES or bool(fixed)
    return (
        not bad and may_run(node, spec.template) and size <= node.settings.limits.max_message_bytes - MESSAGE_HEADROOM
    )


def _invalid(node: "Node", spec: TaskSpec, batch: Sequence[TaskSpec], _index: int) -> bool:
    edges = sum(len((other.scheduling or NOTHING).dependencies) for other in batch)
    units = any(units < 1 for _, units in (spec.scheduling or NOTHING).resources)
    return node.view.attempts(spec) < 1 or units or edges > MAX_BATCH_EDGES


def _unknown_parent(node: "Node", spec: TaskSpec, _batch: Sequence[TaskSpec], _index: int) -> bool:
    """One of those that it depends on may be unknown: neither live all the time, nor a key that its pool waits for."""
    view, highest = node.view, node.holders.highest
    awaits = view.pools[spec.pool].await_unknown_dependencies is not None
    return any(
        (not awaits and view.keys.live.get(item.ref, highest + 1) > highest)
        if isinstance(item.ref, str)
        else item.ref > highest or item.ref not in view.live
        for item in (spec.scheduling or NOTHING).dependencies
    )


def _starts(spec: TaskSpec) -> bool:
    asked = spec.scheduling or NOTHING
    return asked.start is not None or asked.start_in is not None


def _passes(node: "Node", spec: TaskSpec, batch: Sequence[TaskSpec], index: int) -> bool:
    """A bound would be passed; or too much would have to be followed to rule out a circle."""
    fenced = node.epoch != node.world.store.epoch
    if node.view.room.refuses(spec, batch[:index], node.view.step, fenced=fenced):
        return True
    edges = sum(len((other.scheduling or NOTHING).dependencies) for other in batch)
    return edges > 0 and len(node.view.live) + edges > MAX_CYCLE_WALK


def _texts(spec: RecurringSpec) -> Sequence[str]:
    return spec.name, spec.cron, spec.tz, spec.template.pool, spec.template.kind
