"""The life of a task: every outcome of an attempt, every transition that may happen, and none that may not."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.actions import CancelOutcome
from cronoq_sansio.engine.records import OutputStored, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.spec import TaskStatus
from tests.engine.harness import Rig, attempts, spec, total


@pytest.fixture
def rig():
    return Rig()


def test_success_stores_output_and_ends(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    step = rig.handle(ev.AttemptSucceeded(rig.lease(task).id, b"result", "text/x"))
    assert [type(record) for record in step.writes] == [OutputStored, TaskFinished]
    assert step.writes[0] == OutputStored(task, b"result", "text/x")
    assert rig.status(task) == "SUCCEEDED"
    ended = rig.ended[task]
    assert (ended.output, ended.content_type, ended.after) == (b"result", "text/x", step.number)


def test_a_task_is_two_rows(rig):
    (task,) = rig.submit(spec())
    rig.now += 5
    step = rig.engine.handle([ev.GroupCapacitySet("default", (), 1)], rig.now)
    (changed,) = step.writes
    assert changed == TaskChanged(task, TaskStatus.RUNNING, 1, 0, rig.now, rig.now, "")


def test_submission_stores_the_specification_once(rig):
    step = rig.handle(ev.TaskSubmitted("r", spec("k")))
    (inserted,) = step.writes
    assert inserted == TaskInserted(1, spec("k"), 3, rig.now)


@pytest.mark.parametrize(
    ("permanent", "budget", "status"),
    [(True, 3, "FAILED"), (False, 3, "RETRYING"), (False, 1, "DEAD_LETTERED"), (True, 1, "FAILED")],
)
def test_failure(rig, permanent, budget, status):
    (task,) = rig.submit(spec(retry=attempts(budget)))
    rig.slots(1)
    rig.fail(task, permanent=permanent)
    assert rig.status(task) == status
    message = rig.engine.tasks.live[task].message if status == "RETRYING" else rig.ended[task].task.message
    assert message == "boom"


def test_retries_until_the_budget_is_spent_and_counts_attempts(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    for number in (1, 2, 3):
        assert rig.lease(task).attempt == number
        rig.fail(task)
        rig.advance(2 ** (number - 1) * SECOND)
    assert rig.status(task) == "DEAD_LETTERED"
    assert (total(rig, "retries"), total(rig, "dead_lettered"), total(rig, "dispatched")) == (2, 1, 3)


def test_success_clears_the_error_of_an_earlier_attempt(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.fail(task)
    rig.advance(SECOND)
    step = rig.handle(ev.AttemptSucceeded(rig.lease(task).id, b"", ""))
    assert rig.ended[task].task.message == "" == step.writes[-1].message


def test_worker_cancels(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.handle(ev.AttemptCancelled(rig.lease(task).id))
    assert rig.status(task) == "CANCELLED"
    assert not rig.aborts


@pytest.mark.parametrize("state", ["READY", "RUNNING", "RETRYING"])
def test_caller_cancels(rig, state):
    (task,) = rig.submit(spec())
    if state != "READY":
        rig.slots(1)
    if state == "RETRYING":
        rig.fail(task)
    assert rig.status(task) == state
    rig.handle(ev.TaskCancelled("c", task))
    assert rig.answers[-1] == CancelOutcome(True)
    assert rig.status(task) == "CANCELLED"
    assert [abort.reason for abort in rig.aborts] == (["cancelled"] if state == "RUNNING" else [])
    rig.handle(ev.TaskCancelled("c", task))
    assert rig.answers[-1] == CancelOutcome(False)
    rig.slots(4)
    rig.advance(100 * SECOND)
    assert not rig.engine.leases.live, "a cancelled task must never start"


@pytest.mark.parametrize(
    "report",
    [
        lambda lease: ev.AttemptSucceeded(lease, b"late", ""),
        lambda lease: ev.AttemptFailed(lease, "late", True, 0),
        lambda lease: ev.AttemptCancelled(lease),
        lambda lease: ev.AttemptNacked(lease, "late", ((),)),
        lambda lease: ev.LeaseRenewed(lease),
        lambda lease: ev.LeasesLost((lease,), "late"),
        lambda lease: ev.DispatchReturned(lease),
    ],
)
def test_stale_reports_change_nothing(rig, report):
    (task,) = rig.submit(spec())
    rig.slots(1)
    stale = rig.lease(task).id
    rig.fail(task)
    rig.advance(SECOND)
    current = rig.lease(task)
    before = rig.engine.snapshot(rig.now).totals["stale_completions"]
    step = rig.handle(report(stale))
    assert not step.writes and not step.once_durable and not step.at_once
    assert rig.lease(task) is current
    counted = isinstance(report(0), ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptCancelled)
    assert rig.engine.snapshot(rig.now).totals["stale_completions"] - before == counted


def test_a_report_for_a_lease_that_was_not_released_is_stale():
    rig = Rig(release=False)
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.handle(ev.AttemptSucceeded(rig.lease(task).id, b"", ""))
    assert rig.status(task) == "RUNNING"
    assert total(rig, "stale_completions") == 1


def test_a_dispatch_that_is_taken_back_never_happened():
    rig = Rig(release=False)
    first, second = rig.submit(spec(), spec())
    rig.slots(1)
    lease = rig.lease(first)
    assert total(rig, "dispatched") == 1
    rig.handle(ev.GroupCapacitySet("default", (), 0), ev.DispatchReturned(lease.id))
    assert rig.status(first) == "READY"
    task = rig.engine.tasks.live[first]
    assert (task.attempt, task.first_started, task.last_started) == (0, 0, 0)
    assert total(rig, "dispatched") == 0
    rig.slots(2)
    assert rig.order() == [first, first, second], "it keeps its place"


def test_a_retry_that_is_taken_back_keeps_what_happened_before():
    rig = Rig()
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.fail(task)
    started = rig.engine.tasks.live[task].first_started
    rig.release = False
    rig.advance(SECOND)
    rig.handle(ev.GroupCapacitySet("default", (), 0), ev.DispatchReturned(rig.lease(task).id))
    known = rig.engine.tasks.live[task]
    assert (known.attempt, known.first_started, known.last_started) == (1, started, started)


def test_lost_leases_are_retryable_failures(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.handle(ev.GroupCapacitySet("default", (), 0), ev.LeasesLost((rig.lease(task).id,), "worker disconnected"))
    assert rig.status(task) == "RETRYING"
    assert rig.engine.tasks.live[task].message == "worker disconnected"


def test_every_terminal_status_is_final_in_the_table():
    for source in lifecycle.MOVES:
        assert source == lifecycle.NEW or not TaskStatus(source).terminal
    reachable = set().union(*lifecycle.MOVES.values())
    assert {status for status in reachable if TaskStatus(status).terminal} == set(lifecycle.ENDS)


def test_a_move_that_the_table_does_not_list_fails(rig):
    (task,) = rig.submit(spec())
    rig.slots(1)
    rig.complete(task)
    with pytest.raises((AssertionError, KeyError)):
        lifecycle.make_ready(rig.engine, rig.ended[task].task)
