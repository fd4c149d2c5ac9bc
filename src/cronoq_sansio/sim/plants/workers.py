"""Bugs in worker sessions: slots, who has which lease, what counts as a report, what a worker is told."""

from dataclasses import replace
from typing import Any

from cronoq_sansio.engine.events import AttemptFailed, DispatchReturned, GroupCapacitySet, LeaseRenewed, LeasesLost
from cronoq_sansio.service import registration, workers
from cronoq_sansio.service.messages import SendLease
from cronoq_sansio.service.service import Service
from cronoq_sansio.service.worker_session import Group, Session
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim.plants.planting import Bed, Patch, nothing

BED = Bed()
plant = BED.plant


def _dropping(kind: type) -> Any:
    """Makes a method that gives the engine no events of one kind."""

    def make(before: Any) -> Any:
        def dropped(self: Any, *args: Any) -> Any:
            result = before(self, *args)
            self._turn.events = [event for event in self._turn.events if type(event) is not kind]
            return result

        return dropped

    return make


# --- leases on their way to a worker


@plant
def leases_are_sent_twice(patch: Patch) -> None:
    """A worker gets each lease twice, and starts two attempts."""

    def make(before: Any) -> Any:
        def released(self: Any, actions: Any, now: int) -> list[Any]:
            return [
                action
                for performed in before(self, actions, now)
                for action in [performed] * (2 if type(performed) is SendLease else 1)
            ]

        return released

    patch.wrap(Service, "released", make)


@plant
def leases_go_to_workers_that_are_gone(patch: Patch) -> None:
    """A lease is sent although its worker left, or it ended, while the dispatch was being stored."""

    def make(before: Any) -> Any:
        def send(self: Any, action: Any) -> bool:
            before(self, action)
            return True

        return send

    patch.wrap(Workers, "send", make)


@plant
def a_lease_that_ended_is_still_sent(patch: Patch) -> None:
    """A task is cancelled while its dispatch is being stored, and its worker gets the lease nevertheless."""

    def make(before: Any) -> Any:
        def send(self: Any, action: Any) -> bool:
            return bool(before(self, action)) or type(action.stream.session) is Session

        return send

    patch.wrap(Workers, "send", make)


@plant
def refused_leases_go_back(patch: Patch) -> None:
    """A lease goes back to a worker that has refused it."""
    patch.wrap(Group, "choose", lambda before: lambda self, _refused=(): before(self))


@plant
def only_the_last_refusal_counts(patch: Patch) -> None:
    """A lease that two workers refused goes back to the first one."""

    def make(before: Any) -> Any:
        def nack(self: Any, session: Any, message: Any) -> None:
            self._refusals.pop(message.lease, None)
            before(self, session, message)

        return nack

    patch.wrap(Workers, "_nack", make)


@plant
def nobody_else_is_asked(patch: Patch) -> None:
    """A refused lease fails although another worker has a free slot."""
    patch.setattr(Group, "has_room", lambda *_: False)


# --- reports


@plant
def leases_that_were_not_sent_can_be_reported(patch: Patch) -> None:
    """A report is taken for a lease that its worker has not got yet."""

    def take(self: Any, session: Any, lease_id: int) -> bool:
        if lease_id not in session.leases:
            return False
        self._forget(lease_id)
        if session.group.empty(session, lease_id):
            self._tell_capacity(session.group)
        return True

    patch.setattr(Workers, "_take", take)


@plant
def any_worker_may_report(patch: Patch) -> None:
    """A worker that passed its lease on can still complete it."""

    def make(before: Any) -> Any:
        def take(self: Any, session: Any, lease_id: int) -> bool:
            return bool(before(self, self._owners.get(lease_id, session), lease_id))

        return take

    patch.wrap(Workers, "_take", make)


@plant
def any_worker_may_renew(patch: Patch) -> None:
    """A heartbeat renews a lease that another worker has."""

    def heartbeat(self: Any, _session: Any, message: Any) -> None:
        self._turn.events.append(LeaseRenewed(message.lease))

    patch.setattr(Workers, "_heartbeat", heartbeat)


@plant
def heartbeats_of_full_workers_are_lost(patch: Patch) -> None:
    """A worker without a free slot cannot renew its leases."""

    def make(before: Any) -> Any:
        def heartbeat(self: Any, session: Any, message: Any) -> None:
            if len(session.leases) < session.slots:
                before(self, session, message)

        return heartbeat

    patch.wrap(Workers, "_heartbeat", make)


@plant
def permanent_failures_are_retried(patch: Patch) -> None:
    """A worker says that it makes no sense to try again, and the task is tried again."""
    patch.wrap(
        Workers,
        "_fail",
        lambda before: lambda self, session, message: before(self, session, replace(message, permanent=False)),
    )


@plant
def wishes_of_a_failure_are_ignored(patch: Patch) -> None:
    """A worker says when to try again, and the task is tried earlier."""
    patch.wrap(
        Workers,
        "_fail",
        lambda before: lambda self, session, message: before(self, session, replace(message, retry_after=0)),
    )


@plant
def cancelled_attempts_fail(patch: Patch) -> None:
    """A task whose worker cancelled it is tried again."""
    patch.setattr(workers, "AttemptCancelled", lambda lease: AttemptFailed(lease, "cancelled", False, 0))


@plant
def outputs_lose_their_last_byte(patch: Patch) -> None:
    """A result is not what the worker returned."""
    patch.wrap(
        Workers,
        "_complete",
        lambda before: (
            lambda self, session, message: before(self, session, replace(message, output=message.output[:-1]))
        ),
    )


# --- slots


@plant
def unseen_leases_are_not_given_back(patch: Patch) -> None:
    """What a worker had not seen when it left, or offered fewer slots, does not return to the queue."""
    patch.setattr(Workers, "_give_back", nothing)


@plant
def the_oldest_unseen_lease_goes_back(patch: Patch) -> None:
    """When slots are cut the engine hears of another lease than the one that the worker lost."""

    def give_back(self: Any, session: Any, count: int) -> None:
        for _ in range(count):
            lease_id = next(iter(session.unsent))
            del session.unsent[lease_id]
            self._turn.events.append(DispatchReturned(lease_id))

    patch.setattr(Workers, "_give_back", give_back)


@plant
def a_cut_keeps_what_was_not_sent(patch: Patch) -> None:
    """A worker that offers fewer slots gets the leases that were on their way to it nevertheless."""

    def set_slots(self: Any, session: Any, message: Any) -> None:
        session.group.resize(session, min(message.slots, session.cap))
        self._tell_capacity(session.group)

    patch.setattr(Workers, "_set_slots", set_slots)


@plant
def leases_of_a_gone_worker_live_on(patch: Patch) -> None:
    """A worker that goes takes its leases along: nobody hears that they are lost."""
    patch.wrap(Workers, "_leave_group", _dropping(LeasesLost))


@plant
def slots_of_a_gone_worker_stay(patch: Patch) -> None:
    """A worker goes, and the engine still counts on its slots."""
    patch.wrap(Workers, "_leave_group", _dropping(GroupCapacitySet))


@plant
def overcommitted_workers_get_more(patch: Patch) -> None:
    """A worker that runs more than it offers gets another lease when one of them ends."""

    def make(before: Any) -> Any:
        def empty(self: Any, session: Any, lease_id: int) -> bool:
            known = self.capacity
            before(self, session, lease_id)
            self.capacity = known
            return False

        return empty

    patch.wrap(Group, "empty", make)


@plant
def capacity_is_what_is_offered(patch: Patch) -> None:
    """The slots that an overcommitted worker still fills count as free ones of others."""

    def resize(self: Any, session: Any, slots: int) -> None:
        self.capacity += slots - session.slots
        session.slots = slots
        self._set_free(session.id, len(session.leases) < slots)

    patch.setattr(Group, "resize", resize)


@plant
def freed_slots_stay_closed(patch: Patch) -> None:
    """A worker that was full gets no lease any more when one of its own has ended."""

    def make(before: Any) -> Any:
        def empty(self: Any, session: Any, lease_id: int) -> bool:
            was_full = len(session.leases) == session.slots
            lowered = bool(before(self, session, lease_id))
            if was_full:
                self._set_free(session.id, False)
            return lowered

        return empty

    patch.wrap(Group, "empty", make)


@plant
def workers_offer_what_they_like(patch: Patch) -> None:
    """A worker gets more slots than its pool allows one worker."""
    patch.setattr(registration, "slot_cap", lambda *_: 1_000)


@plant
def groups_without_workers_stay(patch: Patch) -> None:
    """A group of workers is kept when the last of them has gone."""

    def make(before: Any) -> Any:
        def leave_group(self: Any, session: Any, message: str) -> Any:
            group = session.group
            held = before(self, session, message)
            self._groups[group.pool].setdefault(group.labels, group)
            return held

        return leave_group

    patch.wrap(Workers, "_leave_group", make)


@plant
def a_cancelled_task_keeps_its_slot(patch: Patch) -> None:
    """A slot is not free again when the engine gives up an attempt."""
    patch.setattr(Workers, "aborted", nothing)


# --- what a worker is told


@plant
def nobody_is_told_to_abort(patch: Patch) -> None:
    """A worker goes on with an attempt that was given up, because it does not hear of that."""
    patch.setattr(Workers, "_abort", lambda _, session, lease_id, _reason: session.remember_abort(lease_id))


@plant
def unseen_leases_are_aborted(patch: Patch) -> None:
    """A worker is told to abort a lease that it never got."""

    def make(before: Any) -> Any:
        def aborted(self: Any, abort: Any) -> None:
            session = self._owners.get(abort.lease.id)
            unseen = session is not None and abort.lease.id in session.unsent
            before(self, abort)
            if unseen:
                self._abort(session, abort.lease.id, abort.reason)

        return aborted

    patch.wrap(Workers, "aborted", make)


@plant
def silent_streams_stay_open(patch: Patch) -> None:
    """A stream that never registers is never closed."""
    patch.setattr(Workers, "late", nothing)


@plant
def the_dead_are_not_noticed(patch: Patch) -> None:
    """A worker whose connection is gone stays registered."""
    patch.setattr(Workers, "gone", nothing)
