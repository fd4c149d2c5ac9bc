"""What a term says about its tasks, seen from its writes alone: a shadow with rules of its own, O(1) per record.

It begins with the rows that the term recovers from and follows every record that the term wants written, before any of
it is durable. Nothing of the engine is asked, so a fault in the engine cannot hide here. Times are the term's own; its
wall clock is that of the world.
"""

from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import (
    EdgeResolved,
    OutputStored,
    Record,
    RecurringDeleted,
    RecurringFired,
    RecurringStored,
    TaskChanged,
    TaskFinished,
    TaskInserted,
)
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import DEFAULT_RETRY, PoolSettings, Settings
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.fires import TermFires
from cronoq_sansio.sim.server.room import Room
from cronoq_sansio.sim.server.shadow import (
    BLOCKED,
    CANCELLED,
    DEAD_LETTERED,
    ENDS,
    FAILED,
    MISSED,
    NOTHING,
    READY,
    RETRYING,
    RUNNING,
    SHED,
    SKIPPED,
    SUCCEEDED,
    Shadow,
)
from cronoq_sansio.sim.server.units import units_of
from cronoq_sansio.sim.server.view_edges import Edges
from cronoq_sansio.sim.server.view_keys import Keys
from cronoq_sansio.spec import MissPolicy, RetryPolicy, TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.world import ServerWorld

BASE = tuple(points * SECOND for points in (10_000, 1_000, 100, 10))
"""Points of each class, in billionths of a point."""
AGING, AGE_CAP = 2, 800 * SECOND
RUN_LATE, SKIP = int(MissPolicy.RUN_LATE), int(MissPolicy.SKIP)
COUNTED = {
    int(status): status.name.lower()
    for status in (
        *(TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.DEAD_LETTERED, TaskStatus.CANCELLED),
        *(TaskStatus.SKIPPED, TaskStatus.MISSED, TaskStatus.SHED),
    )
}


def fault(what: str, details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, str(details))


class View:
    """All live tasks of one term."""

    def __init__(
        self, world: "ServerWorld", settings: Settings, skew: int, now: int, damaged: Collection[int] = ()
    ) -> None:
        """`damaged`: tasks of which recovery cannot read the rows."""
        self._world = world
        self._damaged = damaged
        self._skew = skew
        self._batches = world.ledger.batches
        rows = world.store.rows
        self.now = now
        self.offset = self._low = self._high = world.wall_shift - skew
        """Wall time is so far ahead of `now`; both ends of it in this step."""
        self._peak = now + self.offset
        """The latest wall time so far."""
        self.pools: dict[str, PoolSettings] = {pool.name: pool for pool in settings.pools}
        self._lanes: dict[str, tuple[list[int], ...]] = {
            pool.name: ([], [], [], []) for pool in settings.pools if not pool.fair_share and not pool.tenant_weights
        }
        self.units = {item.name: units_of(item, now) for item in settings.resources}
        self.live: dict[int, Shadow] = {}
        self.ends: list[int] = []
        """Ids of the tasks that have ended in this term, in that order."""
        self.starts: list[int] = []
        """Ids of the tasks of which an attempt has started, in that order."""
        self.ended: dict[int, int] = {}
        """How they did."""
        self.counts = dict.fromkeys((*COUNTED.values(), "submitted", "dispatched", "retries"), 0)
        """As `Totals` has them."""
        self.running = 0
        self.frozen = False
        """Nothing may be dispatched."""
        self.recovering = True
        self.recovered = 0
        """How many of `ends` recovery has brought."""
        self.set = now + self.offset < world.latest_wall
        """The wall clock was set since the term began, or had been set back, and stored times were ahead of it."""
        self._aged = True
        """Whoever came later is younger. Not so when the wall clock was set back before the term began."""
        self.cancels: dict[int | str, None] = {}
        """Tasks and keys that somebody has asked this term to cancel."""
        self._output_of = 0
        self._max_output = settings.limits.max_message_bytes - MESSAGE_HEADROOM
        self._whole: dict[str, int] = {}
        """Of each batch that this step inserts: how many members without a key."""
        self._on = self._by_record()
        self.room = Room(world, settings, self.live)
        self.step: Sequence[Record] = ()
        """What was written last."""
        self.fires = TermFires(world.ledger.fires, self, world.store)
        self.keys = Keys(self, rows, settings.limits)
        self.edges = Edges(self, rows)
        self.highest = max(rows.inserted, default=0)
        self._take_over()

    def _by_record(self) -> dict[type, Callable[[Any], None]]:
        """Who looks at which record."""
        return {
            TaskInserted: self._inserted,
            TaskChanged: self._changed,
            TaskFinished: self._finished,
            OutputStored: self._output,
            EdgeResolved: self._resolved,
            RecurringStored: self._stored,
            RecurringFired: lambda _record: None,
            RecurringDeleted: lambda record: self.room.removed(record),
        }

    def _take_over(self) -> None:
        """The rows that the term recovers from."""
        rows, wall = self._world.store.rows, self.now + self.offset
        live = rows.live()
        latest = 0
        for task_id in live:
            row, state = rows.inserted[task_id], rows.states.get(task_id)
            arrival = min(row.arrival, wall) - self.offset
            self._aged = self._aged and arrival >= latest
            latest = arrival
            shadow = Shadow(row.spec, READY, 0, row.max_attempts, arrival)
            if state is not None and task_id not in self._damaged:
                shadow.status, shadow.attempt, shadow.first_started = state.status, state.attempt, state.first_started
                shadow.last_started, shadow.message = state.last_started, state.message
                if type(state) is TaskChanged and state.status == RETRYING:
                    due = min(state.due - self.offset, self.now + self._policy(shadow.spec).max_backoff)
                    shadow.due = shadow.latest = due
            self._add(task_id, shadow)
            self.room.found(shadow)
        self.keys.take_over(live, self._damaged)
        for task_id in live:
            if self.live[task_id].status == BLOCKED:
                self.edges.take_over(task_id, rows.inserted[task_id], rows.states[task_id])

    def begun(self) -> None:
        """Recovery is over: what has been written so far was its work."""
        if lost := [task_id for task_id, shadow in self.live.items() if shadow.status == RUNNING]:
            raise fault("an attempt that was lost still runs after a recovery", lost)
        if lost := [task_id for task_id in self._damaged if task_id in self.live]:
            raise fault("a task lives on that cannot be read", lost)
        for task_id in self.edges.unsaid:
            shadow = self.live.get(task_id)
            if shadow is None or shadow.status != BLOCKED or not shadow.may_run():
                continue
            if shadow.start is None or shadow.start <= self.now + self.offset:
                raise fault("a task has become free by a recovery, and nobody wrote that", f"task {task_id}")
        self.recovering = False
        self.recovered = len(self.ends)

    def look(self) -> None:
        """The wall clock is about to be set."""
        self.set = True
        self._peak = max(self._peak, self._world.now + self._world.wall_shift)

    def was_cancelled(self, task_id: int) -> bool:
        """Somebody has asked for the end of this task, by id or by key."""
        return task_id in self.cancels or any(
            held[2] == task_id for key, held in self.keys.finished.items() if key in self.cancels
        )

    # --- one step

    def wrote(self, records: Sequence[Record], now: int) -> None:
        """The writes of one step."""
        offset = self._world.wall_shift - self._skew
        self._low, self._high = (offset, self.offset) if offset < self.offset else (self.offset, offset)
        self.now = now
        self._peak = max(self._peak, now + offset)
        self.step = records
        on = self._on
        for record in records:
            on[type(record)](record)
        if self._whole:
            self._check_batches()
        self.room.stepped()
        self.offset = offset

    def _add(self, task_id: int, shadow: Shadow) -> None:
        self.live[task_id] = shadow
        if shadow.spec.scheduling is None:
            shadow.lanes = lanes = self._lanes.get(shadow.spec.pool)
            if lanes is not None and shadow.status == READY:
                heappush(lanes[shadow.spec.priority], task_id)

    def _inserted(self, record: TaskInserted) -> None:
        task_id, spec = record.task_id, record.spec
        if task_id <= self.highest:
            raise fault("a task id was given twice, or out of order", f"task {task_id} after {self.highest}")
        self.highest = task_id
        if self.frozen:
            raise fault("a task is taken in while none may be", record)
        if record.max_attempts != self._policy(spec).max_attempts:
            raise fault("a task may have another number of attempts than was asked for", record)
        now = self.now
        if not now + self._low <= record.arrival <= now + self._high:
            raise fault("a task arrives at another time than now", f"{record} at {self.now} + {self.offset}")
        if spec.key:
            self.keys.give(spec.key, task_id)
            self.edges.name(task_id, spec.key)
        shadow = Shadow(spec, READY, 0, record.max_attempts, now)
        self._add(task_id, shadow)
        self.room.came(task_id, spec)
        self.counts["submitted"] += 1
        if spec.scheduling is not None and (record.edges or spec.scheduling.dependencies):
            self.edges.begin(shadow, record)
        marker = spec.content_type
        if marker:
            self._whole[marker] = self._whole.get(marker, 0) + (not spec.key)
        if spec.tags:
            self.fires.made(task_id, spec)

    def _changed(self, record: TaskChanged) -> None:
        shadow = self.live.get(record.task_id)
        if shadow is None:
            raise fault("a task that has ended changes", record)
        status, before = record.status, shadow.status
        if status == RUNNING and before != RUNNING:
            self._start(record, shadow)
        elif status == READY and before == RUNNING:
            self._take_back(record, shadow)
        elif status == RETRYING and before == RUNNING:
            self._back_off(record, shadow)
        elif status == BLOCKED and before == READY and record.task_id == self.highest and not shadow.attempt:
            if record.due:
                shadow.due, shadow.latest = record.due - self._high, record.due - self._low
            if shadow.edges is None:
                shadow.edges = {}
        elif not (status == READY and before == BLOCKED and self.recovering and shadow.may_run()):
            raise fault("a task changes as none may", f"from {TaskStatus(before).name} to {record}")
        shadow.status = status
        shadow.attempt = record.attempt

    def _start(self, record: TaskChanged, shadow: Shadow) -> None:
        now = self.now
        if record.attempt != shadow.attempt + 1:
            raise fault("a dispatch is not one attempt more", f"{record}, before: {shadow.attempt}")
        if record.attempt > shadow.max_attempts:
            raise fault("a task has more attempts than it may", record)
        if self.frozen:
            raise fault("a task is dispatched while dispatch is held back", record)
        if self.recovering:
            raise fault("a task is dispatched before recovery is over", record)
        if not shadow.may_run():
            raise fault("a task starts before those that it depends on", f"{record}, {shadow.edges}, {shadow.awaited}")
        if shadow.status == RETRYING and now < shadow.due:
            raise fault("an attempt is repeated before its time", f"{record}, {shadow.due - now} ns too early")
        if shadow.start is not None and not shadow.attempt:
            self._check_start(record, shadow)
        if not now + self._low <= record.last_started <= now + self._high:
            raise fault("an attempt starts at another time than now", f"{record} at {now} + {self.offset}")
        if record.first_started != (shadow.first_started or record.last_started):
            raise fault("the first start of a task is another one", f"{record}, before: {shadow.first_started}")
        if record.message != shadow.message:
            raise fault("the last error of a task is another one", f"{record}, before: {shadow.message!r}")
        shadow.first_started = record.first_started
        shadow.before, shadow.last_started = shadow.last_started, record.last_started
        if shadow.lanes is not None:
            self._check_turn(record.task_id, shadow, shadow.lanes)
        for name, units in shadow.needs:
            self.units[name].take(units, now)
        shadow.report = None
        self.room.left(shadow.spec)
        self.starts.append(record.task_id)
        self.running += 1
        self.counts["dispatched"] += 1

    def _check_start(self, record: TaskChanged, shadow: Shadow) -> None:
        assert shadow.start is not None
        if self._peak < shadow.start:
            raise fault("a task starts before its fixed start", f"{record}, {shadow.start - self._peak} ns too early")
        asked = shadow.spec.scheduling or NOTHING
        late = self.now + self._low - shadow.start - asked.tolerance
        if late > 0 and asked.on_miss != RUN_LATE:
            raise fault("a task starts that has missed its start", f"{record}, {late} ns too late")

    def _check_turn(self, task_id: int, shadow: Shadow, lanes: tuple[list[int], ...]) -> None:
        """No plain task of the pool that is READY for sure has a higher score, or an older place in the same class.

        The head of a queue may be another one that is not plain; it is older then, and its score is higher still.
        """
        now, live, own = self.now, self.live, shadow.spec.priority
        points = BASE[own] + min(AGING * (now - shadow.arrival), AGE_CAP)
        for priority, lane in enumerate(lanes):
            while lane and ((other := live.get(lane[0])) is None or other.status != READY):
                heappop(lane)
            if not lane:
                continue
            first = lane[0]
            if priority == own:
                if first < task_id:
                    raise fault("a plain task overtakes one of its class", f"task {task_id} before {first}")
                continue
            if not self._aged:
                continue
            theirs = BASE[priority] + min(AGING * (now - live[first].arrival), AGE_CAP)
            if theirs > points or (theirs == points and priority < own):
                raise fault("a task overtakes one with a higher score", f"task {task_id} before {first} at {now}")

    def _take_back(self, record: TaskChanged, shadow: Shadow) -> None:
        if record.attempt != shadow.attempt - 1:
            raise fault("a dispatch that is taken back costs an attempt", record)
        if shadow.sent == shadow.attempt:
            raise fault("a dispatch is taken back that a worker has seen", record)
        for name, units in shadow.needs:
            self.units[name].returned(units, self.now)
        if not record.attempt:
            shadow.first_started = 0
        shadow.last_started = shadow.before
        if record.message != shadow.message:
            raise fault("the last error of a task is another one", f"{record}, before: {shadow.message!r}")
        self._check_starts(record, shadow)
        if shadow.lanes is not None:
            heappush(shadow.lanes[shadow.spec.priority], record.task_id)
        self.room.back(shadow.spec)
        self.running -= 1
        self.counts["dispatched"] -= 1

    def _back_off(self, record: TaskChanged, shadow: Shadow) -> None:
        if record.attempt != shadow.attempt:
            raise fault("an attempt that failed is counted in another way", f"{record}, before: {shadow.attempt}")
        if record.attempt >= shadow.max_attempts:
            raise fault("a task is to be repeated that has no attempt left", record)
        shadow.due, shadow.latest = record.due - self._high, record.due - self._low
        self._check_starts(record, shadow)
        self._check_backoff(record, shadow)
        self._check_error(record, shadow)
        shadow.message = record.message
        self.counts["retries"] += 1
        self.room.back(shadow.spec)
        self._leave(shadow)

    def _check_starts(self, record: TaskChanged | TaskFinished, shadow: Shadow) -> None:
        """What does not begin an attempt does not change when the first and the last one began."""
        if record.first_started != shadow.first_started or record.last_started != shadow.last_started:
            details = f"{record}, before: {shadow.first_started} {shadow.last_started}"
            raise fault("a task has started at another time than before", details)

    def _check_error(self, record: TaskChanged | TaskFinished, shadow: Shadow) -> None:
        """Whatever did not succeed says why; the reason that a worker gave stays what it was."""
        report = shadow.report if shadow.status == RUNNING else None
        told = report.message if type(report) is m.Fail and record.status != CANCELLED else ""
        if not record.message or (told and record.message != told):
            raise fault("an attempt fails for another reason than there was", f"{record}, reported: {report}")

    def _check_backoff(self, record: TaskChanged, shadow: Shadow) -> None:
        policy, report = self._policy(shadow.spec), shadow.report
        floor = report.retry_after if type(report) is m.Fail else 0
        if type(report) is m.Fail and report.permanent:
            raise fault("an attempt that failed for good is to be repeated", record)
        try:
            full = int(min(policy.initial_backoff * policy.multiplier ** (record.attempt - 1), policy.max_backoff))
        except OverflowError:
            full = policy.max_backoff if policy.initial_backoff else 0
        least = floor if policy.jitter else max(full, floor)
        if shadow.latest - self.now < least or shadow.due - self.now > max(full, floor):
            details = f"{record}: {shadow.due - self.now} ns, {least} to {max(full, floor)} are right"
            raise fault("a backoff is not what the policy says", details)

    def _leave(self, shadow: Shadow) -> None:
        """An attempt is over. One that ran when the term began has nothing of this term."""
        if not self.recovering:
            self.running -= 1
            for name, units in shadow.needs:
                self.units[name].ended(units)

    # --- ends

    def _finished(self, record: TaskFinished) -> None:
        task_id, status = record.task_id, record.status
        shadow = self.live.pop(task_id, None)
        if shadow is None:
            raise fault("a task ends twice", record)
        if status not in ENDS[shadow.status]:
            raise fault("a task ends as none may", f"from {TaskStatus(shadow.status).name} to {record}")
        if record.attempt != shadow.attempt:
            raise fault("a task ends with another number of attempts", f"{record}, before: {shadow.attempt}")
        self._check_starts(record, shadow)
        if status != SUCCEEDED:
            self._check_error(record, shadow)
        elif record.message:
            raise fault("a task succeeds with an error", record)
        self._check_end(record, shadow)
        if shadow.status == RUNNING:
            self._leave(shadow)
        else:
            self.room.left(shadow.spec)
        self.room.ended(shadow.spec, status)
        self.ends.append(task_id)
        self.ended[task_id] = status
        self.counts[COUNTED[status]] += 1
        if task_id not in self._damaged:  # of which nobody knows the key
            self.keys.ended(task_id, shadow.spec.key)
        self.edges.ended(task_id, status)

    def _check_end(self, record: TaskFinished, shadow: Shadow) -> None:
        status = record.status
        asked = shadow.spec.scheduling or NOTHING
        if status == SUCCEEDED:
            if self._output_of != record.task_id:
                raise fault("a task succeeds without an output", record)
        elif status == CANCELLED:
            key, report = shadow.spec.key, shadow.report
            asked_for = record.task_id in self.cancels or (key and key in self.cancels)
            if not (asked_for or type(report) is m.AttemptAborted):
                raise fault("a task is cancelled that nobody has cancelled", record)
        elif record.task_id in self._damaged:
            if status != FAILED or "cannot be read" not in record.message or record.first_started:
                raise fault("a task that cannot be read ends in another way than as failed", record)
        elif status == FAILED and shadow.status == RUNNING:
            report = shadow.report
            if not (type(report) is m.Complete or (type(report) is m.Fail and report.permanent)):
                raise fault("an attempt fails for good that may be repeated", record)
            if type(report) is m.Complete and len(report.output) <= self._max_output:
                raise fault("an attempt fails although its output fits", f"{record}, {len(report.output)} bytes")
        elif status == DEAD_LETTERED:
            if shadow.attempt != shadow.max_attempts:
                raise fault("a task is given up that has attempts left", record)
        elif status == SHED:
            shedding = shadow.start is None and self.pools[shadow.spec.pool].overflow.startswith("shed")
            if not shedding or not shadow.may_run():
                raise fault("a task is shed that may not be", record)
        elif status == SKIPPED:
            overdue = shadow.awaited and self.now >= shadow.due - (self._high - self._low)
            if not (shadow.impossible or overdue or shadow.spec.tags):
                raise fault("a task is skipped although its edges may be met", record)
        else:
            late = shadow.start is not None and self._peak > shadow.start + asked.tolerance
            policy = asked.on_miss == SKIP if status == MISSED else asked.on_miss not in (SKIP, RUN_LATE)
            missed = late and policy and not shadow.attempt
            if not missed and not (status == FAILED and self.recovering):
                raise fault("a task that waits ends and has missed nothing", record)

    # --- other records

    def _output(self, record: OutputStored) -> None:
        shadow = self.live.get(record.task_id)
        if shadow is None or shadow.status != RUNNING:
            raise fault("a task has an output that does not run", record)
        report = shadow.report
        if type(report) is not m.Complete or (
            report.output != record.output or report.content_type != record.content_type
        ):
            raise fault("an output is stored that no worker has reported", f"{record}, reported: {report}")
        if len(record.output) > self._max_output:
            raise fault("an output is stored that is too large", f"{record.task_id}: {len(record.output)} bytes")
        self._output_of = record.task_id

    def _resolved(self, record: EdgeResolved) -> None:
        self.edges.resolved(record)

    def _stored(self, record: RecurringStored) -> None:
        self.fires.put(record.spec.name)
        self.room.put(record)

    def _check_batches(self) -> None:
        """Each batch of which something was inserted is there whole."""
        for marker, plain in self._whole.items():
            specs = self._batches.get(marker)
            if specs is None:
                continue
            without = sum(not spec.key for spec in specs)
            if without and (not plain or plain % without):
                raise fault("a part of a batch was inserted", f"{marker}: {plain} of {without} without a key")
            if missing := [spec.key for spec in specs if spec.key and not self.keys.known(spec.key)]:
                raise fault("a part of a batch was inserted", f"{marker}: without {missing}")
        self._whole = {}

    def attempts(self, spec: TaskSpec) -> int:
        """How many a task may have."""
        return self._policy(spec).max_attempts

    def _policy(self, spec: TaskSpec) -> RetryPolicy:
        """Of a task: what it asks for, and what the pool says of the rest."""
        pool, asked = self.pools.get(spec.pool), spec.retry
        usual = pool.retry if pool is not None else DEFAULT_RETRY
        if asked is None:
            return usual
        return RetryPolicy(
            usual.max_attempts if asked.max_attempts is None else asked.max_attempts,
            usual.initial_backoff if asked.initial_backoff is None else asked.initial_backoff,
            usual.multiplier if asked.multiplier is None else asked.multiplier,
            usual.max_backoff if asked.max_backoff is None else asked.max_backoff,
            usual.jitter if asked.jitter is None else asked.jitter,
        )
