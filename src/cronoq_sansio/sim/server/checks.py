"""Full scans of a simulated world: everything is recounted, and compared with what was written and said.

They cost as much as there is, so they come every `world.FULL_SCAN` events and right after each recovery. This is the
one place that looks into an engine; what it is compared with was seen from outside (`view.py`, `holders.py`).
"""

from copy import copy
from typing import TYPE_CHECKING, Any

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.records import Record, RecurringDeleted, RecurringStored
from cronoq_sansio.engine.task import Retained
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.recording.state_hash import state_of
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server import rebuilt, wakeups
from cronoq_sansio.sim.server.shadow import BLOCKED, OVER, READY, RUNNING, SCHEDULED, Shadow

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Task
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld
    from cronoq_sansio.spec import TaskSpec

SMALL = 40
"""Live tasks up to which every step of stale reports is looked at; of more, one of `SAMPLE`."""
SAMPLE = 16
WHOLE = 2
"""Of steps of stale reports: before and after one of so many, what the engine is in is taken down to the last field."""
FEW = 200
"""Live tasks up to which a `glance` is worth it."""


def fault(what: str, details: object) -> Violation:
    """Something does not hold."""
    return Violation(Kind.SAFETY, what, str(details))


def scan(world: "ServerWorld") -> None:
    """Every node that serves."""
    for node in world.nodes:
        node.service.check_invariants()
        written(node)
        counted(node)
        stale(node)
        taken(node)
        held(node)
        watched(node)
        wakeups.check(node)
        if at_rest(node):
            idle(node)
            rebuilt.when_due(node)


def glance(world: "ServerWorld") -> None:
    """The scans that find what no record and no answer tells, where they cost little."""
    for node in world.nodes:
        stale(node)
        if len(node.engine.tasks.live) <= FEW:
            watched(node)
            wakeups.check(node)
            if at_rest(node):
                idle(node)
                rebuilt.when_due(node)


def stopped(node: "Node") -> None:
    """A stop is said to be complete: nobody runs, waits or watches any more, everybody knows, and that is stored.

    What time alone has brought since may be lost: whoever recovers comes to the same.
    """
    holders = node.holders
    waiting = [ask for ask in node.asks if type(ask.request) in (m.Wait, m.Watch)]
    knowing = all(desk.closing for desk in holders.desks.values())
    states = node.world.store.rows.states
    stored = [task_id for task_id in states if states[task_id].status == RUNNING]
    lost = stored if node.epoch == node.world.store.epoch else []
    if holders.held or node.view.running or waiting or not knowing or lost:
        details = f"{holders.held}, {node.view.running} run, {waiting} wait, workers know: {knowing}, stored: {lost}"
        raise fault("a stop is said to be complete that is not", details)


def recovered(node: "Node", writes: list[Record]) -> None:
    """A term has just begun: whatever the store has is alive, or was ended by this very recovery."""
    written(node)
    names = dict.fromkeys(node.world.store.rows.schedules)
    for record in writes:
        if type(record) is RecurringStored:
            names[record.spec.name] = None
        elif type(record) is RecurringDeleted:
            names.pop(record.name, None)
    _able(node)
    alive = [view.spec.name for view in node.engine.list_recurring()]
    if sorted(names) != alive:
        raise fault("schedules after a recovery are not those that are stored", f"{alive}, stored: {sorted(names)}")


def _able(node: "Node") -> None:
    """What the configuration does not support any more has ended."""
    view, capacity = node.view, {item.name: item.capacity for item in node.settings.resources}
    largest = node.settings.limits.max_message_bytes - MESSAGE_HEADROOM
    for task_id, shadow in view.live.items():
        units = all(1 <= units <= capacity.get(name, 0) for name, units in shadow.needs)
        if shadow.spec.pool not in view.pools or not units or shadow.spec.size > largest:
            raise fault("a task lives on that the configuration does not support", f"task {task_id}: {shadow.spec}")


def at_rest(node: "Node") -> bool:
    """Nothing is due, nothing is left to do, and nothing is held back."""
    engine, due = node.engine, node.outbox.next_timeout()
    busy = engine._more or engine._held or engine.dependencies.held or engine.dependencies.unsettled
    return not busy and (due is None or due > node.now)


def written(node: "Node") -> None:
    """What was written is what is in memory."""
    live, shadows = node.engine.tasks.live, node.view.live
    if differ := sorted(live.keys() ^ shadows.keys()):
        raise fault("live tasks are not those that were written", f"tasks {differ}")
    settled = not (node.engine.dependencies.held or node.engine.dependencies.unsettled)
    for when, _, _, timer in node.engine.retries.heap:
        task = timer.payload
        if task is not None and not shadows[task.id].due <= when <= shadows[task.id].latest:
            raise fault("a backoff is over at another time than was written", f"{task}: {when}")
    for task_id, task in live.items():
        shadow = shadows[task_id]
        if (task.status == RUNNING) != (shadow.status == RUNNING) or task.attempt != shadow.attempt:
            raise fault("a task is not what was written of it", f"{task}, written: {shadow.status} {shadow.attempt}")
        mine = task.max_attempts, task.first_started, task.last_started, task.message, task.arrival
        theirs = shadow.max_attempts, shadow.first_started, shadow.last_started, shadow.message, shadow.arrival
        if mine != theirs:
            raise fault("a task is not what was written of it", f"{task}, {mine}, written: {theirs}")
        if task.status == SCHEDULED and task.attempt:
            raise fault("a task waits for a start that has come once", task)
        if settled:
            _judged(task, shadow)
    _keys(node)


def _judged(task: "Task", shadow: Shadow) -> None:
    """A task waits for others exactly while it must."""
    if shadow.impossible:
        raise fault("a task lives on that can never run", task)
    if (task.status == BLOCKED) == shadow.may_run():
        raise fault("a task waits for nobody, or does not wait", f"{task}, {shadow.edges}, {shadow.awaited}")


def _keys(node: "Node") -> None:
    """Keys are remembered as long as they have to be, and not longer."""
    tasks, keys, now = node.engine.tasks, node.view.keys, node.now
    for key, task_id in keys.live.items():
        if tasks.keys.get(key) is not tasks.live[task_id]:
            raise fault("a live task does not have its key", f"{key!r}: {tasks.keys.get(key)}, written: {task_id}")
    node.view.now = max(node.view.now, now)
    for key, entry in keys.finished.items():
        if key in keys.live:
            continue
        known = tasks.keys.get(key)
        found = known.task_id if isinstance(known, Retained) and known.expires > now else 0
        if found != (entry[2] if keys.remembered(entry) else 0):
            raise fault("a key is remembered too long, or not long enough", f"{key!r}: {found}, written: {entry}")


def stale(node: "Node") -> None:
    """As many reports were for leases that their stream did not hold as are counted."""
    holders, count = node.holders, node.engine.totals.stale_completions
    if not holders.stale_least <= count <= holders.stale_most:
        details = f"{count} are counted, there were {holders.stale_least} to {holders.stale_most}"
        raise fault("reports that are stale are counted in another way", details)


def counted(node: "Node") -> None:
    """Counters are what a recount of the writes says."""
    view, snapshot = node.view, node.engine.snapshot(node.now)
    wrong = [
        f"{name}: {snapshot.totals[name]}, counted {count}"
        for name, count in view.counts.items()
        if snapshot.totals[name] != count
    ]
    told = (snapshot.live_tasks, snapshot.running, snapshot.pending)
    counts = (len(view.live), view.running, len(view.live) - view.running)
    if wrong or told != counts:
        raise fault("counters are not what was written", f"{wrong} {told}, counted {counts}")
    pending = {pool.name: [0, 0, 0, 0] for pool in snapshot.pools}
    busy = dict.fromkeys(pending, 0)
    for shadow in view.live.values():
        spec = shadow.spec
        if shadow.status == RUNNING:
            busy[spec.pool] += 1
        else:
            pending[spec.pool][spec.priority] += 1
    for pool in snapshot.pools:
        if list(pool.pending_by_class) != pending[pool.name] or pool.busy != busy[pool.name]:
            details = (
                f"{pool.name}: {pool.pending_by_class} {pool.busy}, counted {pending[pool.name]} {busy[pool.name]}"
            )
            raise fault("counters of a pool are not what was written", details)


def taken(node: "Node") -> None:
    """As much of each resource is spare as the writes say; what is promised to a task is nobody's."""
    for name, stock in node.engine.resources._stocks.items():
        spare, left = copy(stock).spare(node.now) + stock.promised, node.view.units[name].spare(node.now)  # it stays
        if spare != left:
            raise fault("a resource has other units than were left", f"{name}: {spare}, counted {left}")


def held(node: "Node") -> None:
    """Workers have what the engine thinks that they have."""
    engine = sorted(lease.id for lease in node.engine.leases.live.values() if lease.held)
    told = sorted(node.holders.held)
    if engine != told:
        raise fault("workers do not have the leases that the engine thinks they have", f"{engine}, sent: {told}")


def watched(node: "Node") -> None:
    """Every watcher was told of every end that it watches for, as far as what was written is durable and told."""
    last_end, last_start = node.told()
    ends, starts = node.view.ends[:last_end], node.view.starts[:last_start]
    holders, rows = node.holders, node.world.store.rows.inserted
    watching = holders.watching
    if node.settled():
        for ask in node.asks:
            if ask.op == "watch" and ask not in watching and ask.call in holders.calls:
                raise fault("a watch never begins", ask.request)
    for ask, seen in watching.items():
        if ask not in node.asks:
            continue  # it is gone, and the term will hear of it
        request: m.Watch = ask.request
        for task_id in ends[seen[0] :]:
            if ask.shown.get(task_id) != OVER and _wanted(request, task_id, rows[task_id].spec):
                raise fault("a watcher was not told of an end", f"{request}: task {task_id} {rows[task_id].spec}")
        for task_id in starts[seen[1] :] if request.all_transitions else ():
            if task_id not in ask.shown and _wanted(request, task_id, rows[task_id].spec):
                raise fault("a watcher was not told of a start", f"{request}: task {task_id} {rows[task_id].spec}")
    node.holders.watching = {ask: (max(seen[0], last_end), max(seen[1], last_start)) for ask, seen in watching.items()}


def _wanted(request: m.Watch, task_id: int, spec: "TaskSpec") -> bool:
    named = not (request.ids or request.keys) or task_id in request.ids or spec.key in request.keys
    return named and (not request.pools or spec.pool in request.pools)


def idle(node: "Node") -> None:
    """No READY task waits for which there is a slot and everything that it needs."""
    engine, view, now = node.engine, node.view, node.now
    for task_id, task in engine.tasks.live.items():
        if task.status != READY:
            continue
        shadow = view.live[task_id]
        if any(view.units[name].spare(now) < units for name, units in shadow.needs):
            continue
        labels = set(shadow.spec.scheduling.labels) if shadow.spec.scheduling is not None else set()
        for group in engine.pools[shadow.spec.pool].groups.by_labels.values():
            if group.filled < group.capacity and labels <= set(group.labels):
                raise fault("a task waits for what is there", f"{task}: {shadow.needs}, group {group.labels}")


def digest(node: "Node", *, whole: bool | None = None) -> object:
    """Of what a stale report must not change; None when something else may happen in the next step too.

    `whole`: with everything; None = one time of `WHOLE`.
    """
    engine, due = node.engine, node.outbox.next_timeout()
    if (due is not None and due <= node.now) or engine._more:
        return None
    if len(engine.tasks.live) > SMALL and engine.number % SAMPLE:
        return ()
    if whole is None:
        node.world.stale += 1
        whole = node.world.stale % WHOLE == 1 and len(engine.tasks.live) <= SMALL
    everything = _whole(node) if whole else None
    tasks = [(task.id, task.status, task.attempt, task.message) for task in engine.tasks.live.values()]
    leases = [(lease.id, lease.held, lease.beat, lease.started, lease.group) for lease in engine.leases.live.values()]
    slots = [(pool.groups.capacity, pool.groups.filled, pool.groups.held) for pool in engine.pools.values()]
    return tasks, leases, slots, everything


def _whole(node: "Node") -> object:
    """Everything that decides, with what time alone would change as it is by now."""
    engine, now = node.engine, node.now
    spare = [copy(stock).spare(now) for stock in engine.resources._stocks.values()]
    kept = [(known.task_id, known.status, known.key) for known in engine.tasks.finished if known.expires > now]
    return state_of(engine, counters=False), spare, kept


def unmoved(node: "Node", step: Step[Any, Any], before: object) -> None:
    """A step in which there were stale reports only has changed nothing."""
    if step.writes or step.at_once:
        raise fault("something follows from a stale report", f"{step.writes} {step.at_once}")
    if type(before) is tuple and before and digest(node, whole=before[-1] is not None) != before:
        raise fault("a stale report changes the state", f"before: {before}")
