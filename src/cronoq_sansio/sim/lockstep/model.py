"""A naive scheduler: the rules of the engine written a second time, as plainly as possible.

It takes the same events and says in plain tuples what it decides (`Said`), in the same order. It sorts everything at
every pick and counts everything anew whenever a count is asked for; what it keeps is in `model_state.py`. It shares the
words with the engine (events, specifications, settings) and the formula of the backoff, and nothing else. It is meant
for a few dozen tasks.

The rules stand in `model_rules.py` (what runs next), `model_starts.py` (fixed starts), `model_recurring.py`
(schedules), `model_scaling.py` (targets), `model_admission.py` (what is taken in), `model_workers.py` (slots, leases
and reports), `model_recovery.py`, and here (what happens to a task). `notes` counts each rule that was followed, as
pairs of operation and outcome, so that a test can tell what a random run never reached.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import retry
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.sim.lockstep import model_admission as admission
from cronoq_sansio.sim.lockstep import model_recurring as recurring
from cronoq_sansio.sim.lockstep import model_rules as rules
from cronoq_sansio.sim.lockstep import model_scaling as scaling
from cronoq_sansio.sim.lockstep import model_starts as starts
from cronoq_sansio.sim.lockstep import model_view
from cronoq_sansio.sim.lockstep import model_workers as workers
from cronoq_sansio.sim.lockstep.model_state import (
    NaiveEnded,
    NaiveFigures,
    NaiveGroup,
    NaiveLease,
    NaiveResource,
    NaiveScale,
    NaiveSchedule,
    NaiveSubmission,
    NaiveTask,
    met,
)
from cronoq_sansio.spec import TaskStatus

Said = tuple[object, ...]

SHARE = 1 << 32  #: what a task of a tenant of weight 1 adds to its tag


class Model:
    """All tasks of one term, naively."""

    def __init__(
        self,
        settings: Settings,
        *,
        now: int,
        wall_offset: int = 0,
        seed: int = 0,
        first_task_id: int = 1,
        first_lease_id: int = 1,
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.now = now
        self.wall_offset = wall_offset
        self.random = Random(seed)
        self.next_task = first_task_id
        self.next_lease = first_lease_id
        self.tasks: dict[int, NaiveTask] = {}
        self.leases: list[NaiveLease] = []
        self.groups: list[NaiveGroup] = []
        self.resources = {resource.name: NaiveResource(resource, now) for resource in settings.resources}
        self.learned = rules.Learned()
        self.virtual: dict[tuple[str, int], int] = {}
        """Of each pool and class: the highest tag that was dispatched."""
        self.finish: dict[tuple[str, int, str], int] = {}
        """Of each pool, class and tenant: the tag after its last task."""
        self.remembered: list[NaiveEnded] = []
        """Within the retention, in the order of their ends."""
        self.swept = False
        """What recovery brought only because somebody depended on it is forgotten."""
        self.news: list[NaiveEnded] = []
        """Ends that the children have not heard of yet."""
        self.waiting: list[NaiveSubmission] = []
        self.schedules: dict[str, NaiveSchedule] = {}
        """By name."""
        self.dropped: Counter[str] = Counter()
        """Fires of schedules that did not happen, or not as asked, by reason."""
        self.figures = [NaiveFigures(pool) for pool in settings.pools]
        self.scales = [NaiveScale(pool) for pool in settings.pools]
        self.next_tick = now + SECOND
        """When the targets of the pools are looked at next."""
        self.places = 0
        self.turn = 0
        self.excused = 0
        """Time that does not count against leases."""
        self.parked = False
        """Leases neither expire nor time out."""
        self.held = False
        self.deaf = False
        """Children do not hear of ends, and the rows of keys that came do not say so yet."""
        self.watched = False
        self.reviving = False
        """Recovery: whether occurrences overlap is decided when everything is there."""
        self.said: list[Said] = []
        self.totals: Counter[str] = Counter()
        self.notes: Counter[tuple[str, str]] = Counter()

    def handle(self, events: Sequence[ev.Event], now: int) -> list[Said]:
        """Apply events in order, then dispatch; what was decided."""
        for figures in self.figures:
            offered = sum(group.capacity for group in self.groups if group.pool == figures.pool.name)
            figures.offered += offered * max(now - self.now, 0)
            figures.waits = []
        self.now = max(self.now, now)
        scaling.tick(self)
        self.said = []
        follows = [type(event) for event in events] != [ev.LeasesReleased]  # else nothing follows from it
        if follows:
            self.swept = True
            self.remembered = [ended for ended in self.remembered if ended.expires > self.now]
        for event in events:
            HANDLERS[type(event)](self, event)
        if follows:
            self.name_parents()
            self.hear()
            self.run()
        return self.said

    def run(self) -> None:
        """Dispatch, let in who waits for room, and so on until neither changes anything."""
        while True:
            if not self.held:
                rules.pump(self)
            if self.news and not self.deaf:  # a start was found to be missed
                self.hear()
            elif not admission.let_in(self):
                return
            else:
                self.name_parents()
                self.hear()

    def wall(self) -> int:
        """Wall time."""
        return self.now + self.wall_offset

    def next_turn(self) -> int:
        """A number above all before."""
        self.turn += 1
        return self.turn

    def note(self, operation: str, outcome: str) -> None:
        """This rule was followed."""
        self.notes[operation, outcome] += 1

    # --- looking

    def by_key(self, key: str) -> NaiveTask | NaiveEnded | None:
        """The task that has the key: live, else the last one that is remembered."""
        for task in self.tasks.values():
            if task.spec.key == key:
                return task
        named = [ended for ended in self.remembered if ended.key == key]
        return named[-1] if named else None

    def by_id(self, task_id: int) -> NaiveTask | NaiveEnded | None:
        """A task, live or remembered."""
        return self.tasks.get(task_id) or next((ended for ended in self.remembered if ended.id == task_id), None)

    def figures_of(self, pool: PoolSettings) -> NaiveFigures:
        """The sums of a configured pool."""
        return next(figures for figures in self.figures if figures.pool is pool)

    def lease(self, lease_id: int, *, held: bool | None = None) -> NaiveLease | None:
        """A live lease, with `held` only one that a worker has or only one that none has."""
        for lease in self.leases:
            if lease.id == lease_id and held in (None, lease.held):
                return lease
        return None

    def due(self) -> int | None:
        """When the next thing happens by itself, on the `now` scale; None when nothing will."""
        times = [task.due for task in self.tasks.values() if task.due is not None]
        if not self.parked:
            times += [lease.due() + self.excused for lease in self.leases if lease.held]
        times += [moment - self.wall_offset for moment in starts.moments(self)]
        if not self.held:
            times += [moment - self.wall_offset for moment in recurring.moments(self)]
            found = [rules.earliest_start(self, task) for task in rules.parked(self)]
            times += [start for start in found if start is not None]
        return min(times, default=None)

    def view(self) -> dict[str, object]:
        """Everything that can be compared with an engine."""
        return model_view.view(self)

    # --- the life of a task

    def tell(self, task: NaiveTask) -> None:
        """Who watches hears of the status."""
        if self.watched:
            self.said.append(("moved", task.id, task.status.name, task.attempt))

    def admit(self, task: NaiveTask, *, runs: bool = True) -> None:
        """A new task; it has its edges. `runs`: it will once they are met."""
        self.tasks[task.id] = task
        self.totals["submitted"] += 1
        for scale in self.scales:
            scale.arrivals += scale.pool is task.pool and not task.fixed
        self.tell(task)
        if task.edges:
            self.store(task, 0 if task.due is None else task.due + self.wall_offset)
        elif runs:
            self.make_ready(task)

    def make_ready(self, task: NaiveTask) -> None:
        """Nothing keeps it from running but slots and resources, and its start, which may not have come."""
        task.due = None
        new = task.fixed and not task.attempt and task.status != TaskStatus.RUNNING
        if new and (self.wall() < task.fixed_start or (self.reviving and task.schedule)):
            task.status = TaskStatus.SCHEDULED
            self.tell(task)
        elif new:
            self.start_has_come(task)
        else:
            self.enter(task)

    def start_has_come(self, task: NaiveTask) -> None:
        """Its fixed start does not keep it any more; an earlier occurrence of its schedule may."""
        if recurring.overlaps(self, task):
            recurring.skip(self, task)
        else:
            self.enter(task)

    def enter(self, task: NaiveTask) -> None:
        """It is READY."""
        task.status, task.wants = TaskStatus.READY, False
        self.queue(task)
        self.tell(task)

    def queue(self, task: NaiveTask) -> None:
        """It goes into a queue: what its place there depends on is decided now."""
        if task.fixed:
            return
        hint = task.asked.duration_hint
        task.estimate = self.learned.estimate(task.pool, task.spec.kind) if hint is None else hint
        if task.tag < 0 and rules.has_shares(task.pool) and task.asked.deadline is None:
            tenant = task.asked.tenant
            weight = dict(task.pool.tenant_weights).get(tenant, 1)
            share, mine = (task.pool.name, task.priority), (task.pool.name, task.priority, tenant)
            task.tag = max(self.virtual.get(share, 0), self.finish.get(mine, 0))
            self.finish[mine] = task.tag + max(1, round(SHARE / Fraction(weight)))

    def start(self, task: NaiveTask, group: NaiveGroup) -> None:
        """One more attempt."""
        for name, units in task.asked.resources:
            self.resources[name].level -= units  # of a semaphore nobody looks at it
        task.called, task.hold = False, None
        task.status = TaskStatus.RUNNING
        task.attempt += 1
        share = (task.pool.name, task.priority)
        self.virtual[share] = max(self.virtual.get(share, 0), task.tag)
        lease = NaiveLease(self.next_lease, task, group.labels)
        self.next_lease += 1
        self.leases.append(lease)
        figures = self.figures_of(task.pool)
        waited = self.now - task.arrival
        if task.fixed and task.attempt == 1:
            task.hit = self.wall() <= task.latest
            figures.fixed_starts += 1
            figures.hits += task.hit
            waited = max(min(waited, self.wall() - task.fixed_start), 0)
        if task.attempt == 1:
            figures.waits.append(waited)
        self.totals["dispatched"] += 1
        self.store(task)
        self.tell(task)
        self.say_dispatch(lease)

    def say_dispatch(self, lease: NaiveLease) -> None:
        """The lease goes to its group."""
        self.said.append(("dispatched", lease.task.id, lease.task.attempt, lease.id, lease.labels))

    def store(self, task: NaiveTask, due: int = 0) -> None:
        """What a store says of the task from now on; `due` is wall time."""
        task.stored_status, task.stored_attempt, task.stored_due = task.status, task.attempt, due

    def end_lease(self, lease: NaiveLease) -> NaiveTask:
        """The attempt is over: slot and permits are free."""
        self.leases.remove(lease)
        self.drop_groups()
        lease.task.place = 0
        return lease.task

    def drop_groups(self) -> None:
        """A group without slots and leases does not exist."""
        self.groups = [group for group in self.groups if group.capacity or rules.busy(self, group)]

    def fail(self, lease: NaiveLease, *, permanent: bool = False, retry_after: int = 0) -> None:
        """The attempt failed."""
        task = self.end_lease(lease)
        self.figures_of(task.pool).failed += 1
        if permanent:
            self.end(task, TaskStatus.FAILED)
        else:
            self.retry_or_bury(task, retry_after)

    def retry_or_bury(self, task: NaiveTask, retry_after: int = 0) -> None:
        """Another attempt later, if there is one left."""
        if task.attempt >= task.policy.max_attempts:
            self.end(task, TaskStatus.DEAD_LETTERED)
            return
        delay = retry.delay(task.policy, task.attempt + 1, retry_after, self.random)
        task.status = TaskStatus.RETRYING
        task.due, task.turn = self.now + delay, self.next_turn()
        self.totals["retries"] += 1
        self.store(task, self.wall() + delay)
        self.tell(task)

    def end(self, task: NaiveTask, status: TaskStatus) -> None:
        """A task has ended."""
        del self.tasks[task.id]
        expires = self.now + self.limits.key_retention
        ended = NaiveEnded(task.id, task.spec.pool, task.spec.key, status, self.wall(), expires)
        self.remember(ended)
        self.totals[status.name.lower()] += 1
        self.said.append(("ended", task.id, status.name))
        self.news.append(ended)

    def remember(self, ended: NaiveEnded) -> None:
        """Keep what is known of a finished task, and forget the oldest when there are too many."""
        self.remembered.append(ended)
        while len(self.remembered) > self.limits.key_retention_max:
            self.remembered.pop(0)

    def name_parents(self) -> None:
        """The rows of tasks that awaited a key say who has it."""
        for task in self.tasks.values():
            for edge in task.stored_edges:
                if task.status == TaskStatus.BLOCKED and not self.deaf:
                    edge.unsaid = ""

    def hear(self) -> None:
        """Children hear how their parents ended, first end first; the ends that this causes come last."""
        while self.news and not self.deaf:
            parent = self.news.pop(0)
            children = [
                (edge.turn, task) for task in self.tasks.values() for edge in task.edges if edge.parent == parent.id
            ]
            for _, task in sorted(children, key=lambda child: child[0]):
                if task.status == TaskStatus.BLOCKED and task.id in self.tasks:
                    self.judge(task, parent)

    def left_out(self, task: NaiveTask) -> None:
        """The task never runs, because of what it depends on."""
        recurring.fail(self, task)

    def judge(self, child: NaiveTask, parent: NaiveEnded) -> None:
        """A parent has ended: the child goes on waiting for others, may run, or never will."""
        mine = [edge for edge in child.edges if edge.parent == parent.id]
        child.edges = [edge for edge in child.edges if edge.parent != parent.id]
        for edge in mine:
            self.note("edge", f"{'met' if met(edge.condition, parent.status) else 'impossible'} later")
        if not all(met(edge.condition, parent.status) for edge in mine):
            self.left_out(child)
        elif not child.edges:
            self.make_ready(child)

    # --- events

    def _withdrawn(self, event: ev.SubmissionWithdrawn) -> None:
        before = len(self.waiting)
        self.waiting = [waiting for waiting in self.waiting if waiting.request != event.request]
        self.note("withdraw", "withdrawn" if len(self.waiting) < before else "nobody waits")

    def _cancelled(self, event: ev.TaskCancelled) -> None:
        task = self.tasks.get(event.task_id)
        if task is not None:
            kind = "parked" if task.parked else task.status.name.lower()
            self.note("cancel", kind)
            lease = next((lease for lease in self.leases if lease.task is task), None)
            if lease is not None:
                self.end_lease(lease)
                self.figures_of(task.pool).cancelled += 1
                self.said.append(("aborted", lease.id, "cancelled"))
            self.end(task, TaskStatus.CANCELLED)
        else:
            self.note("cancel", "not live")
        self.said.append(("cancelled", event.request, task is not None))

    def _limit(self, event: ev.ResourceLimitSet) -> None:
        self.resources[event.resource.name].set_limit(event.resource, self.now)
        self.note("limit", event.resource.kind)

    def _held(self, event: ev.DispatchHeld) -> None:
        self.held = event.held
        self.note("hold", str(event.held))

    def _cascades(self, event: ev.CascadesHeld) -> None:
        self.deaf = event.held
        self.note("cascades", "held" if event.held else "go on")

    def _watched(self, event: ev.TransitionsWatched) -> None:
        self.watched = event.watched
        self.note("watch", str(event.watched))

    def _timer(self, _event: ev.TimerFired) -> None:
        over = [lease for lease in self.leases if lease.held and lease.due() <= self.now - self.excused]
        for lease in sorted(over, key=lambda lease: (lease.due(), lease.id)) if not self.parked else ():
            timeout = lease.timeout()
            if timeout is not None and timeout <= self.now - self.excused:
                self._give_up(lease, "timeouts", "attempt timed out")
            else:
                self._give_up(lease, "lease_expiries", "lease expired")
        self.fire()
        if not self.held:
            recurring.fire(self)

    def fire(self) -> None:
        """Backoffs that are over, then waits for keys that lasted long enough, then starts."""
        for status, what in ((TaskStatus.RETRYING, "backoff over"), (TaskStatus.BLOCKED, "awaited in vain")):
            due = [
                (task.due, task.turn, task)
                for task in self.tasks.values()
                if task.status == status and task.due is not None and task.due <= self.now
            ]
            for _, _, task in sorted(due, key=lambda entry: entry[:2]):
                self.note("timer", what)
                if status == TaskStatus.RETRYING:
                    self.make_ready(task)
                else:
                    self.left_out(task)
        starts.fire(self)

    def _give_up(self, lease: NaiveLease, count: str, reason: str) -> None:
        self.note("timer", reason)
        self.totals[count] += 1
        self.said.append(("aborted", lease.id, reason))
        self.fail(lease)

    def _wall_clock(self, event: ev.WallClockMoved) -> None:
        self.wall_offset = event.offset

    def _stalled(self, event: ev.Stalled) -> None:
        self.excused += event.lateness

    def _commits_stalled(self, _event: ev.CommitsStalled) -> None:
        self.parked = True

    def _commits_resumed(self, event: ev.CommitsResumed) -> None:
        self.parked = False
        self.excused += event.duration


HANDLERS: dict[type, Callable[..., None]] = {
    ev.TaskSubmitted: admission.submit,
    ev.SubmissionWithdrawn: Model._withdrawn,
    ev.BatchSubmitted: admission.submit_batch,
    ev.TaskCancelled: Model._cancelled,
    ev.RecurringPut: recurring.put,
    ev.RecurringRemoved: recurring.remove,
    ev.GroupCapacitySet: workers.capacity_set,
    ev.ResourceLimitSet: Model._limit,
    ev.DispatchReturned: workers.returned,
    ev.LeasesReleased: workers.released,
    ev.LeaseRenewed: workers.renewed,
    ev.AttemptSucceeded: workers.succeeded,
    ev.AttemptFailed: workers.failed,
    ev.AttemptCancelled: workers.cancelled,
    ev.AttemptNacked: workers.refused,
    ev.LeasesLost: workers.lost,
    ev.DispatchHeld: Model._held,
    ev.CascadesHeld: Model._cascades,
    ev.TransitionsWatched: Model._watched,
    ev.TimerFired: Model._timer,
    ev.WallClockMoved: Model._wall_clock,
    ev.Stalled: Model._stalled,
    ev.CommitsStalled: Model._commits_stalled,
    ev.CommitsResumed: Model._commits_resumed,
}
