"""Bugs in what the engine decides: the order of dispatch, dependencies, resources, bounds, attempts and leases."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import dependencies, dispatch, engine, labels, leases, lifecycle, stocks, victims
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.durations import Durations
from cronoq_sansio.engine.fair_share import Shares
from cronoq_sansio.engine.records import EdgeResolved
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.engine.waiting_room import WaitingRoom
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing
from cronoq_sansio.spec import TaskStatus

BED = Bed()
plant = BED.plant


# --- who goes first


@plant
def waiting_counts_for_less(patch: Patch) -> None:
    """A task does not rise as fast by waiting as its pool promises."""
    patch.setattr(dispatch, "AGING", 1)


@plant
def urgency_has_another_horizon(patch: Patch) -> None:
    """A deadline makes a task urgent only in the last second before it."""
    patch.setattr(dispatch, "MIN_HORIZON", SECOND)


@plant
def overdue_tasks_fall_behind(patch: Patch) -> None:
    """A task that is past its deadline loses what it should gain."""
    patch.setattr(dispatch, "OVERDUE", -dispatch.OVERDUE)


@plant
def estimates_learn_nothing(patch: Patch) -> None:
    """Every kind of task is thought to take as long as an unknown one."""
    patch.setattr(Durations, "estimate", lambda self, _: self._default)


@plant
def tenants_ignore_virtual_time(patch: Patch) -> None:
    """The share of a tenant does not count what was dispatched for it."""
    patch.setattr(Shares, "dispatched", nothing)


@plant
def labelled_groups_are_no_rarer(patch: Patch) -> None:
    """A task without labels takes the slot of a worker with labels although another one is free."""
    patch.setattr(labels.Group, "rank", lambda group: (0, group.filled - group.capacity, group.number))


# --- dependencies


@plant
def dead_letters_are_no_failures(patch: Patch) -> None:
    """An edge that asks for a failure is not met by a task whose attempts are used up."""
    patch.setattr(dependencies, "FAILURES", (int(TaskStatus.FAILED),))


@plant
def cycles_through_awaited_keys_pass(patch: Patch) -> None:
    """A task is taken in although one that waits for its key is what it waits for itself."""
    patch.setattr(dependencies.Dependencies, "awaited", lambda *_: False)


@plant
def keys_that_appeared_are_not_stored(patch: Patch) -> None:
    """The row of a task that awaits a key never says that the key has come."""

    def make(before: Any) -> Any:
        def settle(self: Any, of: Any, units: int) -> Any:
            left = before(self, of, units)
            of.step.writes = [record for record in of.step.writes if type(record) is not EdgeResolved]
            return left

        return settle

    patch.wrap(dependencies.Dependencies, "settle", make)


# --- resources


@plant
def tokens_do_not_come_back(patch: Patch) -> None:
    """A dispatch that is taken back keeps the tokens that it took."""
    patch.setattr(stocks.Bucket, "give_back", nothing)


@plant
def places_are_not_kept(patch: Patch) -> None:
    """A task whose dispatch is taken back waits behind those that came later for the same resource."""
    patch.setattr(Resources, "give_back", Resources.release)


@plant
def limits_are_ignored(patch: Patch) -> None:
    """A resource keeps its old limit when an operator sets another one."""
    patch.setitem(engine.HANDLERS, ev.ResourceLimitSet, nothing)


# --- bounds


@plant
def the_wrong_victim(patch: Patch) -> None:
    """A full pool sheds the oldest task where it should shed one of the lowest class."""
    patch.setattr(victims, "SHED_LOWEST", "something else")


@plant
def nobody_can_withdraw(patch: Patch) -> None:
    """A submission that waits for room is admitted although its caller went away."""
    patch.setitem(engine.HANDLERS, ev.SubmissionWithdrawn, nothing)


@plant
def lines_do_not_wait_for_their_turn(patch: Patch) -> None:
    """A newcomer takes the room that others wait for."""
    patch.setattr(WaitingRoom, "has_line", lambda *_: False)


# --- attempts, leases and time


@plant
def heartbeats_are_ignored(patch: Patch) -> None:
    """A lease ends one ttl after its release, whatever the worker says."""
    patch.setitem(engine.HANDLERS, ev.LeaseRenewed, nothing)


@plant
def stalls_are_ignored(patch: Patch) -> None:
    """Leases expire during a time in which nobody could have sent a heartbeat."""
    patch.setitem(engine.HANDLERS, ev.Stalled, nothing)


@plant
def timeouts_are_ignored(patch: Patch) -> None:
    """An attempt may run as long as its worker sends heartbeats."""
    patch.setattr(leases, "_due", lambda lease: lease.beat + lease.task.pool.settings.lease_ttl)


@plant
def a_dispatch_taken_back_costs_an_attempt(patch: Patch) -> None:
    """A task that no worker saw has one attempt less."""

    def make(before: Any) -> Any:
        def take_back(of: Any, lease: Any) -> None:
            before(of, lease)
            lease.task.attempt += 1

        return take_back

    patch.wrap(lifecycle, "take_back", make)


@plant
def wakes_up_too_late(patch: Patch) -> None:
    """The engine asks for its timer a second after it is due."""
    patch.wrap(engine.Engine, "next_timeout", lambda before: lambda self: (due := before(self)) and due + SECOND)


@plant
def answers_before_it_is_durable(patch: Patch) -> None:
    """A submission is acknowledged before its row is stored."""

    def make(before: Any) -> Any:
        def submit(whole: Any, event: Any) -> None:
            said = whole.step.once_durable
            known = len(said)
            before(whole, event)
            said[known:] = [replace(action, after=0) if type(action) is Answer else action for action in said[known:]]

        return submit

    patch.setitem(engine.HANDLERS, ev.TaskSubmitted, make(engine.HANDLERS[ev.TaskSubmitted]))


@plant
def ended_tasks_are_remembered_too_long(patch: Patch) -> None:
    """A key stays taken after its retention is over."""
    patch.setattr(TaskTable, "expire", nothing)
