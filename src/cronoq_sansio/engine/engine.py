"""The engine: events in, a step out. It composes the capabilities beside it and decides nothing itself.

Contract. `handle` applies the events of one read in order and then, once, lets pools dispatch; the `Step` that it
returns must be taken whole before the next call. `now` never goes back: a smaller one counts as the largest seen. The
same events in the same batches, with the same times and seed, give the same steps. `handle([TimerFired()], now)` is
due at `next_timeout()`; only then do timers act.

A `handle` does whole what its events ask, and at most `limits.MAX_UNITS` consequences (timers, dispatches); what is
left is due now.

It has no clock, no I/O, no global randomness, and knows neither callers nor workers nor bytes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random

from cronoq_sansio.engine import admission, invariants, lifecycle, listing, pump
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Abort, Answer, CancelOutcome, EngineStep, RecurringAdded, RecurringGone, Step
from cronoq_sansio.engine.autoscale import Autoscale
from cronoq_sansio.engine.dependencies import Dependencies
from cronoq_sansio.engine.dispatch import LEAD_PERCENT, Pool
from cronoq_sansio.engine.figures import INTERVAL
from cronoq_sansio.engine.leases import Leases
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.engine.recovery import Recovery
from cronoq_sansio.engine.recurring import Recurring
from cronoq_sansio.engine.reservations import FixedStarts
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.snapshot import EngineSnapshot, RecurringView, Totals
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.engine.task import Retained, Task
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.engine.waiting_room import WaitingRoom
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.settings import PoolSettings, Settings

Handler = Callable[["Engine", ev.Event], None]


class Engine:
    """All tasks of one term."""

    def __init__(
        self, settings: Settings, *, now: int, wall_offset: int, seed: int, first_task_id: int, first_lease_id: int
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.tasks = TaskTable(settings.limits, first_task_id)
        self.pools = {pool.name: Pool(pool, self.tasks.live, now, index) for index, pool in enumerate(settings.pools)}
        self.dependencies = Dependencies()
        self.starts = FixedStarts(self.tasks.live)
        self.recurring = Recurring()
        self.resources = Resources(settings.resources, self.tasks.live, now)
        self.waiting_room = WaitingRoom()
        self.leases = Leases(first_lease_id)
        self.retries: TimerHeap[Task] = TimerHeap()
        self.totals = Totals()
        self.random = Random(seed)
        self.now = now
        self.wall_offset = wall_offset
        self.number = 0
        """Of the current or last step."""
        self.written = 0
        """Of the last step that wrote something."""
        self.step: EngineStep = Step(0)
        self.watched = False
        """Every move is told by `TaskMoved`."""
        self.awake: list[Pool] = []
        """Pools that may have something to dispatch; those that one step had no time for come first."""
        self.cut = False
        """The last step had no time for some of them."""
        self._held = False
        self._more = False
        self.autoscale = Autoscale(self.pools.values(), now)
        self._note_due = now + INTERVAL
        """When the pools' figures are noted next."""
        self._look_due = self.autoscale.due
        """When either is due: what happens with time alone, and that nobody has to be woken for."""
        self._recovery: Recovery | None = None

    @classmethod
    def fresh(
        cls,
        settings: Settings,
        *,
        now: int,
        wall_offset: int = 0,
        seed: int = 0,
        first_task_id: int = 1,
        first_lease_id: int = 1,
    ) -> "Engine":
        """An engine without a past."""
        return cls(
            settings,
            now=now,
            wall_offset=wall_offset,
            seed=seed,
            first_task_id=first_task_id,
            first_lease_id=first_lease_id,
        )

    # --- recovery, in portions: recover, load…, settle… until False, begin

    @classmethod
    def recover(
        cls, settings: Settings, *, first_task_id: int, first_lease_id: int, seed: int, now: int, wall_offset: int
    ) -> "Engine":
        """An engine that takes over what a store holds. It must not `handle` anything before `begin`."""
        engine = cls.fresh(
            settings,
            now=now,
            wall_offset=wall_offset,
            seed=seed,
            first_task_id=first_task_id,
            first_lease_id=first_lease_id,
        )
        engine._recovery = Recovery(engine)
        engine.number = 1
        engine.step = Step(1)
        return engine

    def load(self, records: Iterable[LoadedRecord]) -> None:
        """Take in a portion of rows, in any order."""
        assert self._recovery is not None
        self._recovery.load(records)

    def settle(self, now: int) -> bool:
        """Do a portion of the work that loading left; False when nothing is left."""
        assert self._recovery is not None
        self.now = max(self.now, now)
        return self._recovery.settle(MAX_UNITS)

    def hopeless(self) -> dict[str, int]:
        """How many tasks the configuration ended as failed at this recovery, by reason. Until `begin`."""
        assert self._recovery is not None
        return self._recovery.hopeless

    def begin(self, now: int) -> EngineStep:
        """Start to serve.

        The step has everything that recovery changed; overdue backoffs and waits for keys are over before any dispatch.
        """
        recovery, self._recovery = self._recovery, None
        assert recovery is not None
        self.now = max(self.now, now)
        while (task := self.retries.pop_due(self.now)) is not None:
            self._backoff_over(task)
        while not self.dependencies.fire(self, MAX_UNITS):
            pass
        while self.starts.is_due(self):
            self.starts.fire(self, MAX_UNITS)
        while not self.dependencies.settle(self, MAX_UNITS):
            pass
        recovery.finish()
        if self.step.writes:
            self.written = self.number
        return self.step

    # --- the one entry

    def handle(self, events: Sequence[ev.Event], now: int) -> EngineStep:
        """Apply the events of one read, in order."""
        assert self._recovery is None, "recovery has not finished"
        if now > self.now:
            self.now = now
        if now >= self._look_due:
            self._look(now)
        self.number = number = self.number + 1
        step: EngineStep = Step(number)
        self.step = step
        if events and type(events[0]) is ev.LeasesReleased and len(events) == 1:  # often, and nothing follows from it
            self._released(events[0])
            return step
        finished = self.tasks.finished
        if finished and finished[0].expires <= self.now:
            self.tasks.expire(self.now, MAX_UNITS)
        for event in events:
            HANDLERS[type(event)](self, event)
        awake = self.awake
        if (
            self.dependencies.unsettled
            or self.waiting_room.waiting
            or (self.resources.any and self.resources.active(self.now))
        ):
            self._consequences()
        elif not awake:  # whoever the last step left something to do for has ended by itself
            self._more = False
        elif len(awake) > 1 or self._held:
            self._consequences()
        else:  # most steps: one pool has something to start, and that is all
            if pump.serve(self, awake[0], MAX_UNITS):
                awake.pop().queued = self._more = self.cut = False
            else:
                self._more = self.cut = True
            if self.dependencies.unsettled:  # a fixed start was found to be missed
                self._consequences()  # type: ignore[unreachable]  # `serve` changes what was looked at above
        if step.writes:
            self.written = number
        return step

    def next_timeout(self) -> int | None:
        """When `handle([TimerFired()], …)` is due, on the `now` scale."""
        if self._more:
            return self.now
        earliest = None
        # Asked after every step: whoever has nothing that is timed, nor anything put off until then, is not.
        if self.leases.heap:
            earliest = self.leases.next_timeout()
        if self.retries.heap:
            earliest = _earlier(earliest, self.retries.next())
        if self.dependencies.any:
            earliest = _earlier(earliest, self.dependencies.next_timeout())
        if self.starts.count:
            earliest = _earlier(earliest, self.starts.next_timeout(self))
        if not self._held:  # while dispatch is held back nothing is called, and no schedule fires
            if self.recurring.armed:
                earliest = _earlier(earliest, self.recurring.next_timeout(self))
            if self.resources.any:
                earliest = _earlier(earliest, self.resources.next_timeout())
        return earliest

    # --- looking

    def find(self, ref: int | str) -> Task | Retained | None:
        """A task by id or key: live, or finished and still remembered."""
        return self.tasks.by_key(ref, self.now) if isinstance(ref, str) else self.tasks.by_id(ref)

    def list_live(
        self, pools: Sequence[str], statuses: Collection[int], after: int, limit: int
    ) -> tuple[list[Task], int]:
        """Live tasks of configured `pools` in id order, and how far was looked (`listing.py`). No statuses = any."""
        return listing.page(self.tasks.live, [self.pools[name] for name in pools], statuses, after, limit)

    def list_recurring(self) -> list[RecurringView]:
        """Recurring schedules by name, without those that the store cannot decode."""
        return self.recurring.views(self)

    def has_pool(self, name: str) -> bool:
        """True when the pool is configured."""
        return name in self.pools

    def pool_settings(self, name: str) -> PoolSettings:
        """Settings of a configured pool."""
        return self.pools[name].settings

    @property
    def recovering(self) -> bool:
        """Until `begin`: what a store holds is being taken over."""
        return self._recovery is not None

    @property
    def running(self) -> int:
        """Live leases."""
        return len(self.leases.live)

    def snapshot(self, now: int) -> EngineSnapshot:
        """Figures for people (engine.md section 14)."""
        now = max(now, self.now)
        if now >= self._look_due:
            self._look(now)
        return EngineSnapshot(
            tuple(pool.snapshot(now, self.autoscale.desired(pool)) for pool in self.pools.values()),
            len(self.tasks.live),
            self.running,
            self.tasks.pending,
            {name: getattr(self.totals, name) for name in Totals.__slots__},
            len(self.recurring),
            tuple(sorted(self.recurring.dropped.items())),
        )

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows, for tests and operators."""
        pools = self.pools.values()
        return {
            "live_tasks": len(self.tasks.live),
            "retained_tasks": self.tasks.retained(),
            "pending_tasks": self.tasks.pending,
            "payload_bytes": self.tasks.payload_bytes,
            "leases": self.running,
            "backoffs": len(self.retries),
            "groups": sum(len(pool.groups.by_labels) for pool in pools),
            "demands": sum(len(pool.groups.demands) - 1 for pool in pools),
            "learned_kinds": sum(pool.durations.kinds() for pool in pools),
            "tenants": sum(shares.tenants() for pool in pools for shares in pool.shares or ()),
            **self.dependencies.statistics(),
            **self.starts.statistics(),
            **self.recurring.statistics(),
            **self.resources.statistics(),
            **self.waiting_room.statistics(),
            "step": self.number,
        }

    def check_invariants(self, step: EngineStep | None) -> None:
        """Assert what must always hold (engine.md section 15): for what `step` names, or with None for everything."""
        invariants.check(self, step)

    # --- for the capabilities

    def wall(self, later: int = 0) -> int:
        """Wall time now, or `later` nanoseconds from now."""
        return self.now + self.wall_offset + later

    def wake(self, pool: Pool) -> None:
        """The pool may have something to dispatch: a task or a slot came free."""
        if not pool.queued:
            pool.queued = True
            self.awake.append(pool)

    def ahead_changed(self, pool: Pool) -> None:
        """The lead of the pool may have grown: what is due so long ahead of a start may be due earlier."""
        pool.durations.watch(LEAD_PERCENT)
        self.starts.look(pool)
        self.recurring.look(pool)

    # --- inside

    def _consequences(self) -> None:
        """What follows from the events, up to `MAX_UNITS` of it: cascades, dispatches, room for those who wait."""
        dependencies, resources, room = self.dependencies, self.resources, self.waiting_room
        units = MAX_UNITS
        self._more = False
        while True:
            if dependencies.unsettled:
                units = dependencies.settle(self, units)
            if not self._held and (self.awake or (resources.any and resources.pending(self.now))):
                units = pump.run(self, units)
                if units and dependencies.unsettled and not dependencies.held:
                    continue  # a fixed start was found to be missed
            if not units or not room.waiting or not room.admit(self):
                break
            units -= 1
        if not units:
            self._more = True
        for pool in self.awake:  # held back, or not served to the end
            if pool.groups.busy != pool.figures.running:
                pool.figures.settle(self.now, pool.groups.busy)
            if pool.starts is not None or pool.schedules:
                self.ahead_changed(pool)

    def _look(self, now: int) -> None:
        """Nothing has happened since this was due: it is as of then, and again as of now when that is long ago."""
        if now >= self._note_due:
            self._note_figures(now)
        self.autoscale.tick(self, now)
        self._look_due = min(self._note_due, self.autoscale.due)

    def _note_figures(self, now: int) -> None:
        """Nothing has happened since this was due: it is noted as of then, and again when that is long ago."""
        due = self._note_due
        long_ago = now >= due + INTERVAL
        for pool in self.pools.values():
            pool.figures.note(due, pool.groups.capacity)
            if long_ago:
                pool.figures.note(now, pool.groups.capacity)
        self._note_due = (now if long_ago else due) + INTERVAL

    def _withdrawn(self, event: ev.SubmissionWithdrawn) -> None:
        self.waiting_room.withdraw(event.request)

    def _batch_submitted(self, event: ev.BatchSubmitted) -> None:
        outcome, after = admission.submit_batch(self, event.specs)
        self.step.once_durable.append(Answer(event.request, outcome, after))

    def _cancelled(self, event: ev.TaskCancelled) -> None:
        task = self.tasks.live.get(event.task_id)
        if task is None:
            retained = self.tasks.by_id(event.task_id)
            newest = self.number if self.step.writes else self.written
            after = retained.stored if retained is not None else newest
            self.step.once_durable.append(Answer(event.request, CancelOutcome(False), after))
            return
        lease = lifecycle.cancel(self, task, "cancelled by a caller")
        if lease is not None:
            self.step.at_once.append(Abort(lease, "cancelled"))
        self.step.once_durable.append(Answer(event.request, CancelOutcome(True), self.number))

    def _recurring_put(self, event: ev.RecurringPut) -> None:
        refusal = self.recurring.put(self, event.spec)
        outcome = RecurringAdded() if refusal is None else refusal
        self.step.once_durable.append(Answer(event.request, outcome, 0 if refusal is not None else self.number))

    def _recurring_removed(self, event: ev.RecurringRemoved) -> None:
        removed = self.recurring.remove(self, event.name)
        if isinstance(removed, Rejection):
            self.step.once_durable.append(Answer(event.request, removed, 0))
            return
        newest = self.number if self.step.writes else self.written  # an earlier removal may not be durable yet
        self.step.once_durable.append(Answer(event.request, RecurringGone(removed), newest))

    def _capacity_set(self, event: ev.GroupCapacitySet) -> None:
        pool = self.pools[event.pool]
        before = pool.groups.capacity
        pool.set_capacity(event.labels, event.capacity)
        pool.figures.offered -= (pool.groups.capacity - before) * self.now
        group = pool.groups.by_labels.get(event.labels)
        if group is not None and group.holders and group.filled > group.capacity:
            self.starts.cut(self, pool, group)
        self.wake(pool)

    def _limit_set(self, event: ev.ResourceLimitSet) -> None:
        self.resources.set_limit(event.resource, self.now)

    def _returned(self, event: ev.DispatchReturned) -> None:
        lease = self.leases.live.get(event.lease)
        if lease is not None and not lease.held:
            lifecycle.take_back(self, lease)

    def _released(self, event: ev.LeasesReleased) -> None:
        leases = self.leases
        live = leases.live
        for lease_id in event.leases:
            lease = live.get(lease_id)
            if lease is not None and not lease.held:
                leases.release(lease, self.now)

    def _renewed(self, event: ev.LeaseRenewed) -> None:
        lease = self.leases.held(event.lease)
        if lease is not None:  # lease time may have gone back since, and a heartbeat never shortens a lease
            lease.beat = max(lease.beat, self.now - self.leases.excused)

    def _succeeded(self, event: ev.AttemptSucceeded) -> None:
        lease = self.leases.live.get(event.lease)
        if lease is None or not lease.held:
            self.totals.stale_completions += 1
        else:
            lifecycle.succeed(self, lease, event.output, event.content_type)

    def _failed(self, event: ev.AttemptFailed) -> None:
        lease = self.leases.held(event.lease)
        if lease is None:
            self.totals.stale_completions += 1
        else:
            lifecycle.fail(self, lease, event.message, permanent=event.permanent, retry_after=event.retry_after)

    def _attempt_cancelled(self, event: ev.AttemptCancelled) -> None:
        lease = self.leases.held(event.lease)
        if lease is None:
            self.totals.stale_completions += 1
        else:
            lifecycle.cancel(self, lease.task, "cancelled by the worker")

    def _nacked(self, event: ev.AttemptNacked) -> None:
        lease = self.leases.held(event.lease)
        if lease is None:
            return
        plan = lease.task.plan
        required = plan.demand.labels if plan is not None else ()
        group = lease.task.pool.groups.best_of(event.groups, lease.group, required)
        if group is not None:
            lifecycle.pass_on(self, lease, group)
        else:
            reason = f": {event.reason}" if event.reason else ""
            lifecycle.fail(self, lease, f"refused by every worker with a free slot{reason}")

    def _lost(self, event: ev.LeasesLost) -> None:
        for lease_id in event.leases:
            lease = self.leases.live.get(lease_id)
            if lease is not None:
                lifecycle.fail(self, lease, event.message)

    def _dispatch_held(self, event: ev.DispatchHeld) -> None:
        self._held = event.held

    def _cascades_held(self, event: ev.CascadesHeld) -> None:
        self.dependencies.held = event.held

    def _transitions_watched(self, event: ev.TransitionsWatched) -> None:
        self.watched = event.watched

    def _timer_fired(self, _event: ev.TimerFired) -> None:
        units = MAX_UNITS
        while units and (due := self.leases.pop_due(self.now)) is not None:
            units -= 1
            lease, timed_out = due
            if timed_out:
                self.totals.timeouts += 1
            else:
                self.totals.lease_expiries += 1
            reason = "attempt timed out" if timed_out else "lease expired"
            self.step.at_once.append(Abort(lease, reason))
            lifecycle.fail(self, lease, reason)
        while units and (task := self.retries.pop_due(self.now)) is not None:
            units -= 1
            self._backoff_over(task)
        if units and self.dependencies.any:
            units = self.dependencies.fire(self, units)
        for pool in self.awake if self.starts.count or self.recurring.armed else ():
            if pool.durations.alarmed:
                self.ahead_changed(pool)
        if units and self.starts.count:
            units = self.starts.fire(self, units)
        if units and self.recurring.armed and not self._held:
            self.recurring.fire(self, units)

    def _backoff_over(self, task: Task) -> None:
        task.timer = None
        lifecycle.make_ready(self, task)

    def _wall_clock_moved(self, event: ev.WallClockMoved) -> None:
        self.wall_offset = event.offset

    def _stalled(self, event: ev.Stalled) -> None:
        self.leases.excused += event.lateness

    def _commits_stalled(self, _event: ev.CommitsStalled) -> None:
        self.leases.parked = True

    def _commits_resumed(self, event: ev.CommitsResumed) -> None:
        self.leases.parked = False
        self.leases.excused += event.duration


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None or (other is not None and other < one) else one


HANDLERS: dict[type, Callable[..., None]] = {
    ev.TaskSubmitted: admission.submit,
    ev.SubmissionWithdrawn: Engine._withdrawn,
    ev.BatchSubmitted: Engine._batch_submitted,
    ev.TaskCancelled: Engine._cancelled,
    ev.RecurringPut: Engine._recurring_put,
    ev.RecurringRemoved: Engine._recurring_removed,
    ev.GroupCapacitySet: Engine._capacity_set,
    ev.ResourceLimitSet: Engine._limit_set,
    ev.DispatchReturned: Engine._returned,
    ev.LeasesReleased: Engine._released,
    ev.LeaseRenewed: Engine._renewed,
    ev.AttemptSucceeded: Engine._succeeded,
    ev.AttemptFailed: Engine._failed,
    ev.AttemptCancelled: Engine._attempt_cancelled,
    ev.AttemptNacked: Engine._nacked,
    ev.LeasesLost: Engine._lost,
    ev.DispatchHeld: Engine._dispatch_held,
    ev.CascadesHeld: Engine._cascades_held,
    ev.TransitionsWatched: Engine._transitions_watched,
    ev.TimerFired: Engine._timer_fired,
    ev.WallClockMoved: Engine._wall_clock_moved,
    ev.Stalled: Engine._stalled,
    ev.CommitsStalled: Engine._commits_stalled,
    ev.CommitsResumed: Engine._commits_resumed,
}
