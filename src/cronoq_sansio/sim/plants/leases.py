"""Bugs in leases, attempts, timers and the two scales of time."""

from heapq import heapify
from typing import Any

from cronoq_sansio.engine import engine, leases, lifecycle, retry, stocks
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.labels import Groups
from cronoq_sansio.engine.leases import Leases
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.timers import TimerHeap
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing

BED = Bed()
plant = BED.plant


# --- leases


@plant
def the_time_of_a_lease_begins_with_its_dispatch(patch: Patch) -> None:
    """The ttl of a lease runs while its dispatch is being stored."""

    def make(before: Any) -> Any:
        def start(of: Any, task: Any, group: Any) -> None:
            before(of, task, group)
            task.lease.beat = of.now - of.leases.excused

        return start

    def release(self: Any, lease: Any, now: int) -> None:
        lease.held = True
        if lease.started < 0:
            lease.started = now - self.excused
        if not lease.timed:
            self._time(lease)

    patch.wrap(lifecycle, "start", make)
    patch.setattr(Leases, "release", release)


@plant
def timeouts_begin_with_the_dispatch(patch: Patch) -> None:
    """The timeout of an attempt runs while its dispatch is being stored."""

    def make(before: Any) -> Any:
        def start(of: Any, task: Any, group: Any) -> None:
            before(of, task, group)
            task.lease.started = of.now - of.leases.excused

        return start

    patch.wrap(lifecycle, "start", make)


@plant
def a_refused_lease_is_not_renewed(patch: Patch) -> None:
    """The worker that a lease is passed on to has what is left of the ttl of the one that refused it."""

    def release(self: Any, lease: Any, now: int) -> None:
        lease.held = True
        if lease.started < 0:
            lease.started = lease.beat = now - self.excused
        if not lease.timed:
            self._time(lease)

    patch.setattr(Leases, "release", release)


@plant
def a_refused_lease_has_a_new_timeout(patch: Patch) -> None:
    """The timeout of an attempt begins anew with each worker that it is passed on to."""

    def make(before: Any) -> Any:
        def release(self: Any, lease: Any, now: int) -> None:
            before(self, lease, now)
            lease.started = lease.beat

        return release

    patch.wrap(Leases, "release", make)


@plant
def leases_expire_a_nanosecond_early(patch: Patch) -> None:
    """A heartbeat in the last moment comes too late."""
    patch.wrap(leases, "_due", lambda before: lambda lease: before(lease) - 1)


@plant
def leases_expire_a_nanosecond_late(patch: Patch) -> None:
    """A worker that was silent for the whole ttl has its lease a moment longer."""
    patch.wrap(leases, "_due", lambda before: lambda lease: before(lease) + 1)


@plant
def commits_that_hang_do_not_park_leases(patch: Patch) -> None:
    """Leases expire while the store does not answer."""
    patch.setitem(engine.HANDLERS, ev.CommitsStalled, nothing)


@plant
def the_time_of_a_hanging_commit_counts(patch: Patch) -> None:
    """Leases expire as soon as the store answers again."""

    def resumed(of: Any, _event: Any) -> None:
        of.leases.parked = False

    patch.setitem(engine.HANDLERS, ev.CommitsResumed, resumed)


@plant
def leases_stay_parked(patch: Patch) -> None:
    """No lease expires any more once a commit has hung."""

    def resumed(of: Any, event: Any) -> None:
        of.leases.excused += event.duration

    patch.setitem(engine.HANDLERS, ev.CommitsResumed, resumed)


@plant
def the_wall_clock_moves_leases(patch: Patch) -> None:
    """A step of the wall clock moves the ends of leases."""

    def moved(of: Any, event: Any) -> None:
        of.leases.excused += event.offset - of.wall_offset
        of.wall_offset = event.offset

    patch.setitem(engine.HANDLERS, ev.WallClockMoved, moved)


@plant
def steps_of_the_wall_clock_are_ignored(patch: Patch) -> None:
    """The wall clock of the server stays what it was at the start."""
    patch.setitem(engine.HANDLERS, ev.WallClockMoved, nothing)


@plant
def a_cancel_leaves_the_attempt_running(patch: Patch) -> None:
    """Nobody hears that the attempt of a cancelled task is given up."""
    patch.setitem(engine.HANDLERS, ev.TaskCancelled, _without_abort(engine.HANDLERS[ev.TaskCancelled]))


@plant
def nobody_hears_of_expired_leases(patch: Patch) -> None:
    """The engine gives up an attempt whose time is up and says so to nobody."""
    patch.setitem(engine.HANDLERS, ev.TimerFired, _without_abort(engine.HANDLERS[ev.TimerFired]))


# --- attempts


@plant
def one_attempt_too_many(patch: Patch) -> None:
    """A task is tried once more than its budget allows."""

    def make(before: Any) -> Any:
        def retry_or_bury(of: Any, task: Any, message: str, retry_after: int = 0) -> None:
            task.max_attempts += 1
            before(of, task, message, retry_after)
            task.max_attempts -= 1

        return retry_or_bury

    patch.wrap(lifecycle, "retry_or_bury", make)


@plant
def the_last_attempt_is_not_made(patch: Patch) -> None:
    """A task is buried when one attempt is left."""

    def make(before: Any) -> Any:
        def retry_or_bury(of: Any, task: Any, message: str, retry_after: int = 0) -> None:
            known = task.max_attempts
            task.max_attempts = max(known - 1, 1)
            before(of, task, message, retry_after)
            task.max_attempts = known

        return retry_or_bury

    patch.wrap(lifecycle, "retry_or_bury", make)


@plant
def backoffs_do_not_grow(patch: Patch) -> None:
    """The pause before the fifth attempt is as short as that before the second one."""
    patch.setattr(lifecycle, "retry", _Steady())


@plant
def a_lost_worker_keeps_its_permits(patch: Patch) -> None:
    """The units of a resource are not given back when the worker of an attempt is gone."""

    def lost(of: Any, event: Any) -> None:
        for lease_id in event.leases:
            lease = of.leases.live.get(lease_id)
            if lease is not None:
                lifecycle._end_lease(of, lease).figures.failed += 1
                lifecycle.retry_or_bury(of, lease.task, event.message)

    patch.setitem(engine.HANDLERS, ev.LeasesLost, lost)


@plant
def more_units_are_taken_than_there_are(patch: Patch) -> None:
    """A task is taken in that needs more of a resource than there is."""
    patch.setattr(Resources, "check", lambda *_: None)


@plant
def promised_units_are_given_away(patch: Patch) -> None:
    """A resource gives out units that a called task was promised."""
    patch.setattr(stocks.Semaphore, "spare", lambda self, _now: self.capacity - self.used)


@plant
def tokens_come_too_fast(patch: Patch) -> None:
    """A bucket grants more in a window than its burst and its rate allow."""

    def make(before: Any) -> Any:
        def take(self: Any, units: int) -> None:
            before(self, units)
            self.level += self.token // 2

        return take

    patch.wrap(stocks.Bucket, "take", make)


@plant
def a_returned_dispatch_keeps_its_permits(patch: Patch) -> None:
    """A dispatch that no worker saw does not give back what it took of a semaphore."""
    patch.setattr(Resources, "give_back", nothing)


@plant
def busy_groups_are_dropped(patch: Patch) -> None:
    """A group of workers is forgotten when it offers nothing, although its leases still run."""

    def make(before: Any) -> Any:
        def changed(self: Any, group: Any) -> Any:
            if group.capacity or group.labels not in self.by_labels:
                return before(self, group)
            self._drop_group(group)
            return []

        return changed

    patch.wrap(Groups, "_changed", make)


# --- timers


@plant
def the_next_wake_up_is_a_nanosecond_late(patch: Patch) -> None:
    """The engine asks for its timer one nanosecond after it is due."""
    patch.wrap(Engine, "next_timeout", lambda before: lambda self: None if (due := before(self)) is None else due + 1)


@plant
def timers_are_lost_when_their_heap_is_rebuilt(patch: Patch) -> None:
    """When cancelled timers are cleared away one that is set goes with them."""

    def cancel(self: Any, timer: Any) -> None:
        if timer.payload is None:
            return
        timer.payload = None
        self._cancelled += 1
        if self._cancelled > self.MIN_GARBAGE and self._cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[3].payload is not None][:-1]
            heapify(self.heap)
            self._cancelled = 0

    patch.setattr(TimerHeap, "cancel", cancel)


@plant
def a_rebuilt_heap_is_in_no_order(patch: Patch) -> None:
    """After cancelled timers were cleared away the next one is not the earliest."""

    def cancel(self: Any, timer: Any) -> None:
        if timer.payload is None:
            return
        timer.payload = None
        self._cancelled += 1
        if self._cancelled > self.MIN_GARBAGE and self._cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[3].payload is not None][::-1]
            self._cancelled = 0

    patch.setattr(TimerHeap, "cancel", cancel)


def _without_abort(before: Any) -> Any:
    def handler(of: Any, event: Any) -> None:
        known = list(of.step.at_once)
        before(of, event)
        of.step.at_once = known

    return handler


class _Steady:
    """The rules of retries, as if every attempt were the second one."""

    def delay(self, policy: Any, _attempt: int, retry_after: int, random: Any) -> int:
        return retry.delay(policy, 2, retry_after, random)
