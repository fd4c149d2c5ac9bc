"""`TaskMoved`: every move of every task, told only while somebody watches, each with the step that it shows."""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import TaskMoved
from cronoq_sansio.spec import TaskStatus
from tests.engine.harness import START, Rig, attempts, pool, spec

GROUP = ("default", ())


def watched(**options):
    rig = Rig(pool(), **options)
    rig.handle(ev.TransitionsWatched(True))
    return rig


def told(rig):
    """Status and attempt of each move so far; starts over."""
    moves, rig.moves = rig.moves, []
    return [(TaskStatus(move.status).name, move.attempt) for move in moves]


def test_nothing_is_told_to_nobody():
    rig = Rig()
    rig.submit(spec())
    rig.slots(1)
    rig.fail(1)
    rig.advance(10 * SECOND)
    assert rig.moves == []


def test_a_plain_task_is_blocked_ready_running():
    """The order of server.md section 3, with dependencies or without; the end is told by `TaskEnded`."""
    rig = watched()
    (task,) = rig.submit(spec("k"))
    assert told(rig) == [("BLOCKED", 0), ("READY", 0)]
    rig.slots(1)
    assert told(rig) == [("RUNNING", 1)]
    rig.complete(task)
    assert told(rig) == []


def test_a_move_names_the_task():
    rig = watched()
    rig.handle(ev.WallClockMoved(5 * SECOND))
    step = rig.handle(ev.TaskSubmitted(None, spec("k")))
    assert step.once_durable[:2] == [
        TaskMoved(1, "default", "k", TaskStatus.BLOCKED, 0, START + 5 * SECOND, "", step.number),
        TaskMoved(1, "default", "k", TaskStatus.READY, 0, START + 5 * SECOND, "", step.number),
    ]


def test_a_retry_is_told_with_the_error_then_ready_and_running_again():
    rig = watched()
    rig.submit(spec())
    rig.slots(1)
    told(rig)
    rig.fail(1, message="boom")
    assert [move.message for move in rig.moves] == ["boom"]
    assert told(rig) == [("RETRYING", 1)]
    rig.advance(SECOND)
    assert [move.message for move in rig.moves] == ["", ""], "the error is told once"
    assert told(rig) == [("READY", 1), ("RUNNING", 2)]


def test_the_members_of_a_batch_move_in_their_order():
    rig = watched()
    rig.batch(spec(), spec())
    assert [(move.task_id, TaskStatus(move.status).name) for move in rig.moves] == [
        (1, "BLOCKED"),
        (1, "READY"),
        (2, "BLOCKED"),
        (2, "READY"),
    ]


def test_a_dispatch_that_is_taken_back_shows_the_step_that_took_it_back():
    rig = watched(release=False)
    rig.submit(spec())
    rig.slots(1)
    told(rig)
    step = rig.handle(ev.GroupCapacitySet(*GROUP, 0), ev.DispatchReturned(rig.leases[0].id))
    (move,) = rig.moves
    assert (move.status, move.attempt, move.after) == (TaskStatus.READY, 0, step.number)
    assert step.writes, "it is a change of the row"


def test_a_backoff_that_is_over_shows_the_step_of_the_retry():
    """READY after a backoff is not stored: the row that waits for its time says the same."""
    rig = watched()
    rig.submit(spec())
    rig.slots(1)
    rig.fail(1)
    (retrying,) = [move for move in rig.moves if move.status == TaskStatus.RETRYING]
    rig.slots(0)
    rig.advance(SECOND)
    ready = rig.moves[-1]
    assert (ready.status, ready.after) == (TaskStatus.READY, retrying.after)


def test_a_refused_lease_that_passes_on_is_no_move():
    rig = watched()
    rig.submit(spec())
    rig.slots(1)
    rig.slots(1, (("gpu", "1"),))
    told(rig)
    rig.handle(ev.AttemptNacked(rig.leases[0].id, "busy", ((("gpu", "1"),),)))
    assert told(rig) == []


def test_the_last_attempt_ends_and_does_not_retry():
    rig = watched()
    rig.submit(spec(retry=attempts(1)))
    rig.slots(1)
    told(rig)
    rig.fail(1)
    assert told(rig) == [] and rig.status(1) == "DEAD_LETTERED"


def test_a_cancel_is_an_end():
    rig = watched()
    rig.submit(spec())
    told(rig)
    rig.handle(ev.TaskCancelled(None, 1))
    assert told(rig) == [] and 1 in rig.ended


def test_watching_can_stop_and_start_again():
    rig = watched()
    rig.handle(ev.TransitionsWatched(False), ev.TaskSubmitted(None, spec()))
    assert rig.moves == []
    rig.handle(ev.TaskSubmitted(None, spec()), ev.TransitionsWatched(True), ev.TaskSubmitted(None, spec()))
    assert [move.task_id for move in rig.moves] == [3, 3]


def test_moves_change_nothing_else():
    """The same life, watched and not: same records, same other actions."""
    steps = []
    for watching in (False, True):
        rig = Rig()
        rig.handle(ev.TransitionsWatched(watching))
        for event in (
            ev.TaskSubmitted(None, spec("a")),
            ev.GroupCapacitySet(*GROUP, 1),
            ev.LeasesReleased((101,)),
            ev.AttemptFailed(101, "e", False, 0),
            ev.BatchSubmitted(None, (spec("a"), spec("b"))),
            ev.TaskCancelled(None, 1),
        ):
            step = rig.handle(event)
            actions = [type(action).__name__ for action in step.once_durable if type(action) is not TaskMoved]
            steps.append((step.number, step.writes, actions))
    half = len(steps) // 2
    assert steps[:half] == steps[half:]
