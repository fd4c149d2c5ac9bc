"""Who holds which lease, seen from outside: what a term may send to whom, and what must follow from reports."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import CommitsResumed, CommitsStalled, Stalled, TimerFired
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.sim.lockstep.workload import GPU, POOLS
from cronoq_sansio.spec import TaskStatus
from tests.sim.shadows import Node, done, end, new, ready, retry, spec

TTL = POOLS[0].lease_ttl


@pytest.fixture
def node():
    made = Node()
    made.writes(new(1), new(2), new(3), new(4, spec(labels=GPU)))
    return made


def sends(worker, message):
    return m.WorkerSent(worker.stream, message)


def wrong(what):
    return pytest.raises(Violation, match=what)


class TestSending:
    def test_only_to_who_has_registered(self, node):
        worker = node.worker()
        node.hears(m.WorkerGone(worker.stream, "reset"))
        with wrong("not registered"):
            node.runs(worker, 1, 1)

    def test_not_after_shutdown(self, node):
        worker = node.worker()
        node.holders.told(worker, m.Shutdown("over", True))
        with wrong("not registered"):
            node.runs(worker, 1, 1)

    def test_not_after_the_server_closed_the_stream(self, node):
        worker = node.worker()
        node.holders.closed(worker)
        with wrong("not registered"):
            node.runs(worker, 1, 1)

    @pytest.mark.parametrize(("task", "pool", "labels"), [(1, "b", ()), (4, "a", ()), (4, "a", (("zone", "b"),))])
    def test_only_to_who_may_run_it(self, node, task, pool, labels):
        with wrong("may not run it"):
            node.holders.leased(node.worker(pool, labels), node.lease(1, task))

    def test_only_onto_a_free_slot(self, node):
        worker = node.worker(slots=1)
        node.runs(worker, 1, 1)
        with wrong("without a free slot"):
            node.runs(worker, 2, 2)

    def test_slots_are_those_that_the_term_has_heard_of(self, node):
        worker = node.worker(slots=1)
        node.hears(sends(worker, m.SetSlots(2)))
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.SetSlots(9)))
        assert node.holders.desks[worker.stream].slots == POOLS[0].max
        node.hears(sends(worker, m.SetSlots(1)))
        with wrong("without a free slot"):
            node.runs(worker, 2, 2)

    def test_a_task_has_one_live_lease(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        with wrong("two live leases"):
            node.holders.leased(worker, node.lease(2, 1, 2))

    def test_attempts_grow(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Fail(1, "", False, 0)))
        with wrong("an attempt was given to a worker twice"):
            node.holders.leased(worker, node.lease(2, 1, 1))

    def test_a_lease_is_sent_once(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        with wrong("a lease is sent twice"):
            node.holders.leased(worker, node.lease(1, 2))

    def test_the_id_of_a_lease_is_given_once(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Complete(1, b"x", "")))
        with wrong("a lease id was given twice"):
            node.holders.leased(worker, node.lease(1, 2))

    def test_a_refused_lease_does_not_go_back(self, node):
        first = node.worker()
        node.runs(first, 1, 1)
        assert not node.hears(sends(first, m.Nack(1, "busy")))
        with wrong("a lease goes back"):
            node.holders.leased(first, node.lease(1, 1))

    def test_a_refused_lease_keeps_its_attempt(self, node):
        first, second = node.worker(), node.worker(number=2)
        node.runs(first, 1, 1)
        node.hears(sends(first, m.Nack(1, "busy")))
        with wrong("has changed"):
            node.holders.leased(second, node.lease(1, 1, 2))

    def test_a_refused_lease_is_held_by_the_next(self, node):
        first, second = node.worker(), node.worker(number=2)
        node.runs(first, 1, 1)
        node.hears(sends(first, m.Nack(1, "busy")))
        node.holders.leased(second, node.lease(1, 1))
        assert list(node.holders.desks[second.stream].held) == [1]

    def test_the_attempt_of_a_refused_lease_may_be_given_again(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Nack(1, "busy")))
        node.writes(ready(1))
        node.runs(worker, 2, 1)


class TestReports:
    REPORTS = (*(m.Complete(1, b"x", ""), m.Fail(1, "", False, 0), m.AttemptAborted(1), m.Nack(1, ""), m.Heartbeat(1)),)

    @pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
    def test_those_of_the_holder_count_and_all_others_are_stale(self, node, report):
        holder, other = node.worker(), node.worker(number=2)
        node.runs(holder, 1, 1)
        assert node.hears(sends(other, report), sends(holder, replace(report, lease=2)))
        assert not node.hears(sends(holder, report))
        assert node.hears(sends(holder, report)) == (type(report) is not m.Heartbeat)

    def test_nothing_heard_is_not_stale(self, node):
        assert not node.hears()

    def counted(self, node):
        return node.holders.stale_least, node.holders.stale_most

    def test_stale_ones_are_counted(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        for report in (m.Complete(2, b"x", ""), m.Fail(2, "", False, 0), m.AttemptAborted(2), m.Nack(2, "")):
            node.hears(sends(worker, report))
        assert self.counted(node) == (3, 3)
        node.hears(sends(worker, m.Complete(1, b"x", "")))
        assert self.counted(node) == (3, 3)
        node.hears(m.WorkerGone(worker.stream, "reset"), sends(worker, m.Complete(1, b"x", "")))
        assert self.counted(node) == (3, 4)

    def test_what_confirms_a_stop_is_not_stale(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.view.cancels[1] = None
        node.writes(end(1, TaskStatus.CANCELLED))
        node.holders.told(worker, m.AbortLease(1, "cancelled"))
        node.hears(sends(worker, m.AttemptAborted(1)))
        assert self.counted(node) == (0, 0)
        node.hears(sends(worker, m.AttemptAborted(1)))
        assert self.counted(node) == (1, 1)

    def test_one_that_crosses_a_stop_may_be_stale(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.view.cancels[1] = None
        node.hears(TimerFired(), sends(worker, m.Complete(1, b"x", "")))
        node.writes(end(1, TaskStatus.CANCELLED))
        node.holders.followed()
        node.holders.told(worker, m.AbortLease(1, "cancelled"))
        assert self.counted(node) == (0, 1)
        node.hears(sends(worker, m.AttemptAborted(1)))
        assert self.counted(node) == (0, 2)

    def test_something_must_follow(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Complete(1, b"x", "")))
        with wrong("nothing follows"):
            node.holders.followed()

    def test_an_end_follows(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Complete(1, b"x", "")))
        node.writes(*done(1))
        node.holders.followed()
        assert not node.holders.held

    @pytest.mark.parametrize(
        "report",
        [m.Complete(1, b"x", ""), m.Fail(1, "", True, 0), m.AttemptAborted(1)],
        ids=lambda made: type(made).__name__,
    )
    def test_and_it_is_what_was_reported(self, node, report):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, report))
        node.view.live[1].report = m.Fail(1, "", False, 0)
        node.writes(retry(1, due=node.now))
        with wrong("something else follows"):
            node.holders.followed()

    def test_a_cancel_before_it_wins(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(m.CallReceived(m.Call(_Caller()), None, m.Cancel(1), None), sends(worker, m.Complete(1, b"x", "")))
        node.writes(end(1, TaskStatus.CANCELLED))
        node.holders.followed()

    @pytest.mark.parametrize(("late", "right"), [(-1, True), (0, False)])
    def test_when_timers_fire_nothing_outlives_its_time(self, node, late, right):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.world.now += TTL + late
        node.hears(TimerFired())
        assert node.holders.fired
        if right:
            node.holders.outlived()
        else:
            with wrong("outlives its time"):
                node.holders.outlived()


class _Caller:
    marker = ""


class TestAborts:
    def test_only_of_what_the_worker_has(self, node):
        worker = node.worker()
        with wrong("does not have"):
            node.holders.told(worker, m.AbortLease(1, "cancelled"))

    def test_one_whose_report_came_behind_its_end(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(sends(worker, m.Nack(1, "")))
        node.holders.told(worker, m.AbortLease(1, "cancelled"))
        node.hears()
        with wrong("does not have"):
            node.holders.told(worker, m.AbortLease(1, "cancelled"))

    @pytest.mark.parametrize(("late", "right"), [(-1, False), (0, True)])
    @pytest.mark.parametrize("excuse", [(), (Stalled(SECOND),), (CommitsStalled(), CommitsResumed(SECOND))])
    def test_expiry(self, node, late, right, excuse):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.world.now += SECOND
        node.hears(*excuse, sends(worker, m.Heartbeat(1)))
        node.world.now += TTL + late
        node.writes(retry(1, due=node.now))
        if right:
            node.holders.told(worker, m.AbortLease(1, "lease expired"))
        else:
            with wrong("expires before its time"):
                node.holders.told(worker, m.AbortLease(1, "lease expired"))

    @pytest.mark.parametrize(("timeout", "right"), [(None, False), (3 * SECOND + 1, False), (3 * SECOND, True)])
    def test_timeout(self, timeout, right):
        node = Node()
        node.writes(new(1, replace(spec(), timeout=timeout)))
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.world.now += 3 * SECOND
        node.writes(retry(1, due=node.now))
        if right:
            node.holders.told(worker, m.AbortLease(1, "attempt timed out"))
        else:
            with wrong("times out before its time"):
                node.holders.told(worker, m.AbortLease(1, "attempt timed out"))

    @pytest.mark.parametrize("reason", ["shutdown", "because"])
    def test_a_reason_that_is_none(self, node, reason):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.writes(retry(1))
        with wrong("another reason"):
            node.holders.told(worker, m.AbortLease(1, reason))

    @pytest.mark.parametrize(("passed", "right"), [(SECOND - 1, False), (SECOND, True)])
    def test_a_stop_leaves_the_grace(self, node, passed, right):
        worker = node.worker()
        node.runs(worker, 1, 1)
        node.hears(m.StopRequested(SECOND))
        node.world.now += passed
        node.writes(retry(1, due=node.now))
        if right:
            node.holders.told(worker, m.AbortLease(1, "shutdown"))
        else:
            with wrong("before its grace is over"):
                node.holders.told(worker, m.AbortLease(1, "shutdown"))

    def test_while_its_attempt_goes_on(self, node):
        worker = node.worker()
        node.runs(worker, 1, 1)
        with wrong("its attempt goes on"):
            node.holders.told(worker, m.AbortLease(1, "cancelled"))


class TestHolding:
    @pytest.mark.parametrize(
        ("events", "frozen"),
        [
            ((), False),
            ((m.StopRequested(0),), True),
            ((m.StorePressure("slow"),), True),
            ((m.StorePressure("slow"), m.StorePressure(None)), False),
        ],
    )
    def test_dispatch_is_held_back_from_the_next_step_on(self, node, events, frozen):
        for event in events:
            node.hears(event)
            assert not node.view.frozen or event != events[0]
        node.hears()
        assert node.view.frozen == frozen


def test_a_worker_that_is_gone_holds_nothing(node):
    worker = node.worker()
    node.runs(worker, 1, 1)
    node.hears(m.WorkerGone(worker.stream, "reset"))
    assert not node.holders.held
