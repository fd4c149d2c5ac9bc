"""Which task of a pool runs next (engine.md section 4).

Each queued task has a score, ``base[class] + min(aging · waited, cap) + urgency``. Inside a queue the order is its own,
whatever the scores: order of submission, latest start, or the tenants' tags. Scores compare the heads of the queues
only, so a pick looks at no more than eight tasks, however many wait. The highest score wins, ties go to the higher
class, then to the older task. Heads that no free slot serves are passed over.

Waiting lifts LOW over fresh NORMAL work and NORMAL nearly to HIGH, never past a class with a higher base beyond the
cap: a LOW task has a bound against steady fresh NORMAL work, and none against steady HIGH or CRITICAL work that uses
all slots.

Urgency, only with a deadline: with the latest start ``deadline − estimated run time`` and the horizon
``h = max(estimate, 5 s)`` it is 0 while more than h is left, rises linearly to 5,000 at the latest start, and grows by
100 per second after it, up to 3,000 more. So a late task of any class passes fresh work of all classes but CRITICAL.

Invariant: ``pending`` counts live tasks of the pool that are not running, in all and per class.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.calendar import Calendar
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.engine.fair_share import Shares
from cronoq_sansio.engine.figures import Figures
from cronoq_sansio.engine.labels import Demand, Groups
from cronoq_sansio.engine.lanes import DeadlineLane, FairLane, HoldLane, Lane, Line, StartLane
from cronoq_sansio.engine.listing import LiveIds
from cronoq_sansio.engine.snapshot import GroupSnapshot, PoolSnapshot
from cronoq_sansio.engine.task import Plan, Task
from cronoq_sansio.engine.victims import for_pool
from cronoq_sansio.limits import MAX_HOLD
from cronoq_sansio.settings import PoolSettings
from cronoq_sansio.spec import TaskSpec, TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.events import Labels
    from cronoq_sansio.engine.reservations import PoolStarts

#: Points are counted in billionths, so that a score is an integer: 10,000, 1,000, 100 and 10 points per class …
BASE = tuple(points * SECOND for points in (10_000, 1_000, 100, 10))
AGING = 2  #: … 2 points per second waited …
AGE_CAP = 800 * SECOND  #: … and at most 800 for waiting.
URGENCY = 5_000 * SECOND  #: At the latest start …
OVERDUE = 100  #: … 100 points per second after it …
OVERDUE_CAP = 3_000 * SECOND  #: … up to so many more.
MIN_HORIZON = 5 * SECOND  #: urgency rises over the estimated run time, and not over less than this

LEAD_PERCENT = 90  #: a slot is held so early that this share of what runs is over by then
HOLDS, STARTS = -2, -1  #: stand for the class in the names of lanes of tasks with a fixed start


def score(task: Task, now: int, wall: int) -> int:
    """The score of a READY task at `now`, in billionths of a point; `wall` is the same moment as wall time."""
    points = BASE[task.spec.priority] + min(AGING * (now - task.arrival), AGE_CAP)
    plan = task.plan
    if plan is None or plan.deadline is None:
        return points
    slack = plan.latest_start - wall
    if slack < 0:
        return points + URGENCY + min(OVERDUE * -slack, OVERDUE_CAP)
    horizon = max(plan.estimate, MIN_HORIZON)
    return points if slack >= horizon else points + URGENCY * (horizon - slack) // horizon


class Pool:
    """Tasks and slots of one pool."""

    __slots__ = (
        "_fixed",
        "_lines",
        "_plain",
        "_special",
        "apart_by_class",
        "arrivals",
        "called",
        "durations",
        "figures",
        "groups",
        "ids",
        "in_play",
        "index",
        "lanes",
        "live",
        "name",
        "own_slots",
        "pending",
        "pending_by_class",
        "queued",
        "schedules",
        "settings",
        "shares",
        "starts",
        "victims",
    )

    def __init__(self, settings: PoolSettings, live: Mapping[int, Task], now: int, index: int = 0) -> None:
        """`live`: every live task of the engine by id. `index`: its number in the configuration."""
        self.settings = settings
        self.name = settings.name
        self.index = index
        self.groups = Groups()
        self.ids = LiveIds(live)
        self.figures = Figures(now)
        self.durations = Durations(settings.default_duration)
        sharing = settings.fair_share or bool(settings.tenant_weights)
        self.shares = tuple(Shares(dict(settings.tenant_weights)) for _ in BASE) if sharing else None
        """Per class, in pools that share between tenants."""
        kind = FairLane if sharing else Lane
        self.lanes = tuple(kind(live, priority, self.groups.plain) for priority in range(len(BASE)))
        """One per class, of tasks with neither deadline nor labels."""
        self.live = live
        self._plain: list[Lane] = list(self.lanes)
        """Every lane without labels: those, and those with deadlines that came up, by class."""
        self._special: dict[tuple[Labels, int, bool, bool], Lane] = {}
        """Every other lane by labels, class, whether its tasks have deadlines, and whether they are called.

        Instead of the class `HOLDS` or `STARTS` for tasks with a fixed start.
        """
        self.in_play: dict[Lane, None] = {}
        """Special lanes that have something to start, as far as is known. Without any, the plain ones are all."""
        self._lines = [Line(self.in_play) for _ in range(2 * len(BASE))]
        """Per class, without and with deadline; used while special lanes are in play."""
        self._fixed = Line(self.in_play), Line(self.in_play)
        """Of tasks with a fixed start that want a slot held, and of those that are READY; these go first."""
        self.starts: PoolStarts | None = None
        """Its fixed starts, from the first one on."""
        self.own_slots = Demand((), -1)
        """In place of their labels, where tasks wait for resources that have a slot held."""
        self.schedules = 0
        """Armed recurring schedules that make tasks for it."""
        self.pending = 0
        self.pending_by_class = [0] * len(BASE)
        self.apart_by_class = [0] * len(BASE)
        """Of these, tasks that slots would not help: they wait for others, for their time, or have a fixed start."""
        self.arrivals = 0
        """Tasks without a fixed start that were submitted; whoever counts them by time takes the difference."""
        self.victims = for_pool(settings.overflow, live, self.pending_by_class)
        """Whom the policy sheds next; None when it sheds nobody."""
        self.called = 0
        """Queued tasks whose resources are promised."""
        self.queued = False
        """The pool stands in the engine's list of pools that may have something to dispatch."""

    def count_pending(self, task: Task, difference: int) -> None:
        """A task starts (+1) or stops (-1) to be pending."""
        self.pending += difference
        self.pending_by_class[task.spec.priority] += difference
        if task.plan is not None and task.plan.fixed:
            self.apart_by_class[task.spec.priority] += difference

    def free_slots(self) -> int:
        """Slots that are neither used nor held."""
        groups = self.groups
        return groups.capacity - groups.filled + groups.overbusy

    def can_call(self, demand: Demand) -> bool:
        """True when one more task with that demand may be promised what it lacks: it will find a slot."""
        return demand is self.own_slots or (self.free_slots() > self.called and demand.can_call())

    def may_hold(self) -> bool:
        """True while one more slot may be held: of those that workers offer at most the share that is reservable.

        The calendar is bounded by `max`. With fewer slots than that, and starts that follow each other faster than a
        lead, holds alone would take all of them, and other work would never run.
        """
        groups = self.groups
        return groups.held < max(1, int(groups.capacity * self.settings.reservable_fraction))

    def lead(self) -> int:
        """How long before a fixed start, at least, a slot is held: most tasks that run now are over by then."""
        known = self.durations.heed(LEAD_PERCENT)
        return min(self.settings.default_duration if known is None else known, MAX_HOLD)

    # --- plans

    def plan(self, spec: TaskSpec) -> Plan:
        """What is kept of a live task of this pool that asks for more than its class."""
        asked = spec.scheduling
        if asked is None:
            return Plan(None, (), self.groups.plain)
        plan = Plan(asked.deadline, asked.resources, self.groups.demand(asked.labels))
        if asked.start is not None:
            plan.fixed, plan.start, plan.late = True, asked.start, asked.start + asked.tolerance
            plan.on_miss = asked.on_miss
        return plan

    def drop_plan(self, plan: Plan) -> None:
        """The task has ended."""
        labels = plan.demand.labels
        if not labels or not self.groups.drop(plan.demand):
            return
        for priority in range(HOLDS, len(BASE)):
            for urgent, called in ((False, False), (False, True), (True, False), (True, True)):
                lane = self._special.pop((labels, priority, urgent, called), None)
                if lane is not None:
                    lane.listed = None  # whatever its line still has of it is outdated
                    self.in_play.pop(lane, None)

    # --- queues

    def push(self, task: Task) -> None:
        """Queue a task at its place: a READY one, or a SCHEDULED one that wants a slot held."""
        plan = task.plan
        if plan is None:
            lane = self.lanes[task.spec.priority]
            lane.push(task)
            if self.in_play and not lane.closed:
                self._line(lane).enter(lane)
            return
        lane = plan.lane = self._lane(task, plan)
        lane.push(task)
        if plan.demand.labels or plan.called or plan.fixed:
            if not lane.closed:
                self._enter_special(lane)
        elif self.in_play and not lane.closed:
            self._line(lane).enter(lane)

    def recall(self, task: Task) -> None:
        """A called task did not start; neither did those beside it, which are recalled as well."""
        plan = task.plan
        assert plan is not None and plan.lane is not None
        lane = plan.lane
        lane.empty()
        lane.listed = None
        if lane.closed:
            lane.closed = False
            lane.demand.closed.remove(lane)
        self.in_play.pop(lane, None)
        if not self.in_play:
            self._leave_lines()

    def forget(self, task: Task) -> None:
        """A queued task has ended."""
        plan = task.plan
        lane = self.lanes[task.spec.priority] if plan is None else plan.lane
        assert lane is not None
        lane.forget()

    def best(self, now: int, wall: int) -> Lane | None:
        """The lane whose head is started next; None when nothing can start that is queued.

        Whether a group that is alone has room is for the caller to see.
        """
        lanes: Iterable[Lane]
        if self.in_play:
            holds, starts = self._fixed
            if holds.heap and self.may_hold() and (fixed := holds.best()) is not None:
                return fixed
            if starts.heap and (fixed := starts.best()) is not None:
                return fixed
            lanes = [lane for line in self._lines if line.heap and (lane := line.best()) is not None]
            if not self.in_play:
                self._leave_lines()
        elif self.groups.plain.only is None and self.groups.plain.best() is None:
            return None
        else:
            lanes = self._plain
        first = winner = None
        highest = -1
        for lane in lanes:
            if not lane.ready:
                continue
            if winner is None:
                first = winner = lane
                continue
            if highest < 0:  # the second lane with work: only now is there something to compare
                highest = score(winner.head(), now, wall)
            points = score(lane.head(), now, wall)
            if points > highest or (
                points == highest and lane.priority == winner.priority and lane.head().id < winner.head().id
            ):
                winner, highest = lane, points
        if winner is not first and winner.priority != first.priority:  # type: ignore[union-attr]
            self.figures.overtakes += 1
        return winner

    def open(self, lanes: Iterable[Lane]) -> None:
        """A slot that serves these closed lanes came free."""
        for lane in lanes:
            lane.closed = False
            if not lane.ready:
                continue
            if lane.demand.labels or lane.called or lane.fixed:
                self._enter_special(lane)
            elif self.in_play:
                self._line(lane).enter(lane)

    def every_lane(self) -> list[Lane]:
        """All lanes; for invariant checks."""
        return [*self.lanes, *self._special.values()]

    def _enter_special(self, lane: Lane) -> None:
        if not self.in_play:
            self._leave_lines()  # what an earlier time left there
            for plain in self._plain:
                if plain.ready:
                    self._line(plain).enter(plain)
        self.in_play[lane] = None
        self._line(lane).enter(lane)

    def _leave_lines(self) -> None:
        """No special lane is in play any more."""
        for line in (*self._fixed, *self._lines):
            line.heap.clear()
        for lane in self._plain:
            lane.listed, lane.closed = None, False
        plain = self.groups.plain
        if plain.closed:
            plain.closed = [lane for lane in plain.closed if lane.closed]

    def _lane(self, task: Task, plan: Plan) -> Lane:
        if plan.fixed:
            return self._fixed_lane(task, plan)
        labels, priority, urgent = plan.demand.labels, task.spec.priority, plan.deadline is not None
        if plan.deadline is not None:
            asked = task.spec.scheduling
            assert asked is not None
            hint = asked.duration_hint
            plan.estimate = self.durations.estimate(task.spec.kind) if hint is None else hint
            plan.latest_start = plan.deadline - plan.estimate
        elif plan.tag < 0 and self.shares is not None:
            plan.tag = self.shares[priority].tag(task.spec.scheduling.tenant if task.spec.scheduling else "")
        if not (labels or urgent or plan.called):
            return self.lanes[priority]
        lane = self._special.get((labels, priority, urgent, plan.called))
        if lane is None:
            kind = DeadlineLane if urgent else FairLane if self.shares is not None else Lane
            lane = kind(self.live, priority, plan.demand, called=plan.called)
            self._special[labels, priority, urgent, plan.called] = lane
            if not labels and not plan.called:
                self._plain.append(lane)
                self._plain.sort(key=lambda lane: lane.priority)  # stable: in a class the one with deadlines is later
        return lane

    def _fixed_lane(self, task: Task, plan: Plan) -> Lane:
        wants = task.status == TaskStatus.SCHEDULED
        key = (plan.demand.labels, HOLDS if wants else STARTS, False, plan.called)
        lane = self._special.get(key)
        if lane is None:
            kind = HoldLane if wants else StartLane
            lane = self._special[key] = kind(self.live, 0, plan.demand, called=plan.called)
        return lane

    def _line(self, lane: Lane) -> Line:
        if lane.fixed:
            return self._fixed[type(lane) is StartLane]
        return self._lines[2 * lane.priority + (type(lane) is DeadlineLane)]

    # --- slots

    def set_capacity(self, labels: "Labels", capacity: int) -> None:
        """The workers of a group offer so many slots from now on."""
        self.open(self.groups.set_capacity(labels, capacity))

    def free(self, labels: "Labels") -> None:
        """A lease left its slot in that group."""
        opened = self.groups.free(labels)
        if opened:
            self.open(opened)

    @property
    def unstarted(self) -> Calendar | None:
        """Reservations whose tasks were never dispatched; None = there was never one."""
        return None if self.starts is None else self.starts.unstarted

    def snapshot(self, now: int, desired: int) -> PoolSnapshot:
        """What the engine shows of the pool; `desired`: slots that it should have."""
        groups = [GroupSnapshot(group.labels, group.capacity, group.busy) for group in self.groups.by_labels.values()]
        if not any(group.labels == () for group in groups):
            groups.append(GroupSnapshot((), 0, 0))
        groups.sort(key=lambda group: (len(group.labels), group.labels))
        critical, high, normal, low = self.pending_by_class
        busy, capacity = self.groups.busy, self.groups.capacity
        figures = self.figures.show(now, capacity)
        p50, p90 = (self.durations.quantile(percent) or 0 for percent in (50, 90))
        pending = (critical, high, normal, low)
        return PoolSnapshot(
            self.name,
            capacity,
            busy,
            pending,
            tuple(groups),
            figures,
            p50,
            p90,
            self.groups.held,
            desired,
            reservations=0 if self.starts is None else len(self.starts.calendar),
            cost=self.figures.offered_seconds(now, capacity) * self.settings.cost_per_worker_second,
        )
