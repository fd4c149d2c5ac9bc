"""Blocked tasks over a restart: their edges judged anew, whatever happened to parents, keys and the configuration."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    FinishedLoaded,
    TaskChanged,
    TaskDamaged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.settings import LimitSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Condition, TaskStatus
from tests.engine.harness import START, attempts, dep, pool, spec, total
from tests.engine.test_recovery import Site

SUCCESS, COMPLETE, FAILURE = Condition.ON_SUCCESS, Condition.ON_COMPLETE, Condition.ON_FAILURE
BLOCKED, RUNNING = int(TaskStatus.BLOCKED), int(TaskStatus.RUNNING)


def awaiting(**limits):
    return Site(pool(await_unknown_dependencies=60 * SECOND), **limits)


def end_of(site, task_id):
    state = site.store.states[task_id]
    assert type(state) is TaskFinished
    return TaskStatus(state.status).name, state.message


def blocked(task_id, *edges, due=0, **options):
    """Rows of a task that waits."""
    return TaskLoaded(
        TaskInserted(task_id, spec(**options), 3, START, edges), TaskChanged(task_id, BLOCKED, 0, due, 0, 0, "")
    )


def recovered(*rows, settings=None, now=START, portions=None):
    """An engine from these rows, and the writes of its first step."""
    engine = Engine.recover(
        settings or Settings(pools=(pool(),)), first_task_id=100_000, first_lease_id=1, seed=0, now=now, wall_offset=0
    )
    engine.load(rows)
    count = 1
    while engine.settle(now):
        count += 1
    writes = engine.begin(now).writes
    engine.check_invariants(None)
    if portions is not None:
        portions.append(count)
    return engine, writes


def test_who_waits_still_waits():
    site = Site()
    a, b, child = site.rig.submit(spec("a"), spec("b"), spec(deps=["a", dep("b", FAILURE), dep("a", COMPLETE)]))
    rig = site.crash()
    assert rig.status(child) == "BLOCKED" and rig.engine.pools["default"].pending == 3
    rig.slots(2)
    rig.complete(a)
    assert rig.status(child) == "BLOCKED"
    rig.fail(b, permanent=True)
    assert rig.status(child) == "RUNNING"


def test_a_parent_that_comes_back_decides_as_before():
    site = Site()
    parent, child = site.rig.submit(spec("p"), spec(deps=["p"]))
    rig = site.crash()
    rig.handle(ev.TaskCancelled(None, parent))
    name, message = end_of(site, child)
    assert name == "SKIPPED" and message.startswith(f"task {parent} (key 'p') ended as cancelled")


@pytest.mark.parametrize("down", [0, 10_000])
@pytest.mark.parametrize(("condition", "status"), [(SUCCESS, "BLOCKED"), (COMPLETE, "BLOCKED"), (FAILURE, "SKIPPED")])
def test_a_parent_that_ended_is_judged_again_beyond_its_retention_too(condition, status, down):
    site = Site(key_retention=100 * SECOND)
    parent, other, child = site.rig.submit(spec("p"), spec("o"), spec(deps=[dep("p", condition), "o"]))
    site.rig.slots(1)
    site.rig.slots(0)
    site.rig.complete(parent)
    rig = site.crash(after=down * SECOND)
    if status == "SKIPPED":
        assert end_of(site, child)[0] == status
        return
    assert rig.status(child) == status
    rig = site.crash(after=down * SECOND)
    rig.slots(1)
    rig.complete(other)
    assert rig.status(child) == "RUNNING"


@pytest.mark.parametrize("retained", [0, 10])
def test_a_task_that_was_ready_is_ready_again(retained):
    site = Site(key_retention_max=retained)
    parent, child = site.rig.submit(spec("p"), spec(deps=[dep("p", COMPLETE)]))
    site.rig.handle(ev.TaskCancelled(None, parent))
    assert site.store.states[child].status == BLOCKED, "the row does not know"
    rig = site.crash(after=10_000 * SECOND)
    assert rig.status(child) == "READY"
    rig.slots(1)
    rig.slots(0)
    rig = site.crash()
    assert rig.status(child) == "RETRYING", "once it has started, its edges are history"


def test_an_end_whose_consequences_were_not_worked_off():
    site = Site()
    rig = site.rig
    rig.engine.handle([], rig.now)
    (parent,) = rig.submit(spec("p"))
    count = MAX_UNITS + 20
    for first in range(0, count, 510):
        rig.submit(*(spec(deps=["p"]) for _ in range(first, first + 510)))
    rig.handle(ev.TaskCancelled(None, parent))
    open_ones = len(rig.engine.tasks.live)
    assert open_ones > 0
    rig = site.crash()
    assert not rig.engine.tasks.live and total(rig, "skipped") == open_ones


def test_tasks_that_end_by_the_restart_have_children_as_well():
    site = Site(pool("a"), pool("b"))
    lost, last = site.rig.submit(spec("lost", pool="a"), spec("last", pool="b", retry=attempts(1)))
    ids = site.rig.submit(
        spec(pool="b", deps=["lost"]),
        spec(pool="b", deps=[dep("lost", FAILURE)]),
        spec("s", pool="b", deps=["last"]),
        spec(pool="b", deps=[dep("s", COMPLETE)]),
        spec(pool="a", deps=[dep("last", FAILURE)]),
    )
    site.rig.slots(1, name="b")
    rig = site.crash(settings=Settings(pools=(pool("b"),), limits=LimitSettings(key_retention_max=0)))
    assert end_of(site, lost)[0] == "FAILED" and end_of(site, last)[0] == "DEAD_LETTERED"
    assert end_of(site, ids[0]) == (
        "SKIPPED",
        f"task {lost} (key 'lost') ended as failed, the dependency asks for on_success",
    )
    assert rig.status(ids[1]) == "READY"
    assert end_of(site, ids[2])[0] == "SKIPPED" and rig.status(ids[3]) == "READY"
    assert end_of(site, ids[4]) == ("FAILED", "pool 'a' is not configured any more")


def test_a_parent_that_is_nowhere_ends_its_children_durably():
    site = Site()
    parent, child = site.rig.submit(spec("p"), spec(deps=["p"]))
    site.store.forget(parent)
    site.crash()
    assert end_of(site, child) == ("SKIPPED", f"task {parent}, which it depends on, is not known any more")


def test_a_parent_that_cannot_be_read_has_failed():
    engine, writes = recovered(
        TaskDamaged(1, "not a task"), blocked(2, Edge(1, "", SUCCESS)), blocked(3, Edge(1, "", FAILURE))
    )
    assert [(record.task_id, record.status) for record in writes] == [(1, TaskStatus.FAILED), (2, TaskStatus.SKIPPED)]
    assert engine.tasks.live[3].status == TaskStatus.READY


def test_rows_come_in_any_order():
    rows = [
        blocked(1, Edge(9, "", SUCCESS)),
        FinishedLoaded(5, "default", "five", TaskStatus.SUCCEEDED, START - 10**6 * SECOND),
        blocked(9, Edge(5, "", SUCCESS), Edge(7, "", COMPLETE)),
        TaskLoaded(TaskInserted(7, spec(), 3, START), None),
    ]
    for order in (rows, rows[::-1]):
        engine, writes = recovered(*order)
        assert not writes
        assert {task_id: task.status for task_id, task in sorted(engine.tasks.live.items())} == {
            1: TaskStatus.BLOCKED,
            7: TaskStatus.READY,
            9: TaskStatus.BLOCKED,
        }
        engine.handle([ev.TaskCancelled(None, 7)], START)
        assert engine.tasks.live[9].status == TaskStatus.READY


# --- awaited keys


def test_the_wait_goes_on_until_its_stored_end():
    site = awaiting()
    (child,) = site.rig.submit(spec(deps=["later"]))
    rig = site.crash(after=30 * SECOND)
    assert rig.status(child) == "BLOCKED" and rig.engine.next_timeout() == START + 60 * SECOND
    rig.advance(30 * SECOND)
    assert end_of(site, child) == ("SKIPPED", "no task with the key 'later' came within 60 s")


def test_a_wait_that_is_over_ends_before_anything_runs():
    site = awaiting()
    (child,) = site.rig.submit(spec(deps=["later"]))
    site.crash(after=61 * SECOND)
    assert end_of(site, child) == ("SKIPPED", "no task with the key 'later' came within 61 s")


def test_a_wait_that_ends_while_the_engine_recovers():
    engine = Engine.recover(
        Settings(pools=(pool(),)), first_task_id=9, first_lease_id=1, seed=0, now=START, wall_offset=0
    )
    engine.load([blocked(1, Edge(0, "k", SUCCESS), due=START + SECOND), blocked(2, Edge(1, "", COMPLETE))])
    while engine.settle(START):
        pass
    (finished,) = engine.begin(START + SECOND).writes
    assert (finished.task_id, finished.status) == (1, TaskStatus.SKIPPED)
    assert engine.tasks.live[2].status == TaskStatus.READY


@pytest.mark.parametrize(
    "settings", [None, Settings(pools=(pool(),)), Settings(pools=(pool(await_unknown_dependencies=1),))]
)
def test_the_wait_was_promised_whatever_the_pool_says_now(settings):
    site = awaiting()
    (child,) = site.rig.submit(spec(deps=["later"]))
    rig = site.crash(settings=settings)
    rig.advance(59 * SECOND)
    (parent,) = rig.submit(spec("later"))
    rig.slots(1)
    rig.complete(parent)
    assert rig.status(child) == "RUNNING"


def test_a_wait_from_a_host_with_a_fast_clock_lasts_at_most_its_length():
    ahead = 10**9 * SECOND
    row = TaskInserted(1, spec(), 3, START + ahead, (Edge(0, "k", SUCCESS),))
    engine, _ = recovered(TaskLoaded(row, TaskChanged(1, BLOCKED, 0, START + ahead + 60 * SECOND, 0, 0, "")))
    assert engine.next_timeout() == START + 60 * SECOND


def test_a_wait_is_kept_by_the_wall():
    site = awaiting()
    (child,) = site.rig.submit(spec(deps=["later"]))
    rig = site.crash(wall_offset=20 * SECOND)
    assert rig.engine.next_timeout() == START + 40 * SECOND
    assert rig.status(child) == "BLOCKED"


def test_a_key_that_came_is_not_awaited_again():
    site = awaiting()
    (child,) = site.rig.submit(spec(deps=["k", dep("k", COMPLETE)]))
    (parent,) = site.rig.submit(spec("k"))
    assert site.store.inserted[child].edges == (Edge(parent, "", SUCCESS), Edge(parent, "", COMPLETE))
    rig = site.crash(after=1_000 * SECOND)
    assert rig.status(child) == "BLOCKED" and rig.engine.next_timeout() is None
    rig.slots(1)
    rig.complete(parent)
    assert rig.status(child) == "RUNNING"


def test_a_key_that_came_while_rows_did_not_say_so_yet():
    live = TaskLoaded(TaskInserted(3, spec("live"), 3, START), None)
    ended = FinishedLoaded(6, "default", "ended", TaskStatus.CANCELLED, START)
    engine, writes = recovered(
        live,
        ended,
        blocked(1, Edge(0, "live", SUCCESS), due=START + SECOND),
        blocked(2, Edge(0, "ended", COMPLETE), due=START - SECOND),
        blocked(5, Edge(0, "ended", SUCCESS), due=START + SECOND),
    )
    assert [(type(record), record.task_id) for record in writes] == [(TaskFinished, 5), (TaskChanged, 2)]
    assert engine.tasks.live[2].status == writes[1].status == TaskStatus.READY, "its row does not await a key any more"
    assert engine.tasks.live[1].status == TaskStatus.BLOCKED and engine.next_timeout() <= START
    assert engine.handle([ev.TimerFired()], START).writes == [EdgeResolved(1, "live", 3)]
    assert engine.next_timeout() is None


def test_rows_that_await_keys_that_came_are_written_in_portions_after_the_start():
    """A crash in the middle of a wave: one step is one transaction, and everybody would wait for it."""
    live = [TaskLoaded(TaskInserted(n, spec(f"k{n}"), 3, START), None) for n in range(1, 4)]
    edges = [Edge(0, f"k{n}", SUCCESS) for n in range(1, 4)]
    children = [blocked(n, *edges, due=START + SECOND) for n in range(10, 10 + MAX_UNITS)]
    engine, writes = recovered(*live, *children)
    assert not writes
    portions = []
    while engine.next_timeout() is not None:
        portions.append(engine.handle([ev.TimerFired()], START).writes)
    assert [len(portion) for portion in portions] == [MAX_UNITS] * 3 + [0]
    written = [record for portion in portions for record in portion]
    assert set(written) == {EdgeResolved(n, f"k{k}", k) for n in range(10, 10 + MAX_UNITS) for k in range(1, 4)}
    engine.check_invariants(None)


def test_a_cycle_is_refused_after_a_restart_too():
    site = awaiting()
    site.rig.submit(spec("a", deps=["c"]), spec("b", deps=["a"]))
    rig = site.crash()
    assert rig.refused(spec("c", deps=["b"])).message.endswith(": c -> b -> a -> c")


# --- resources


def test_tasks_whose_resource_is_gone_or_smaller_now_end_durably():
    site = Site()
    small, gone = ResourceSettings("small", "semaphore", 5), ResourceSettings("gone", "semaphore", 5)
    site.rig.settings = Settings(pools=(pool(),), resources=(small, gone))
    site.rig.adopt(Engine.fresh(site.rig.settings, now=START))
    parent, fits, large, lost, waits = site.rig.submit(
        spec("p"),
        spec(resources={"small": 2}),
        spec(resources={"small": 3}),
        spec("lost", resources={"gone": 1}),
        spec(deps=["p"], resources={"gone": 1, "small": 1}),
    )
    (child,) = site.rig.submit(spec(deps=["lost"]))
    now = Settings(pools=(pool(),), resources=(ResourceSettings("small", "semaphore", 2),))
    rig = site.crash(settings=now)
    assert [rig.status(task) for task in (parent, fits)] == ["READY", "READY"]
    assert end_of(site, large)[0] == "FAILED" and "small" in end_of(site, large)[1]
    assert end_of(site, lost)[0] == "FAILED" and "gone" in end_of(site, lost)[1]
    assert end_of(site, waits)[0] == "FAILED", "who waits for others as well"
    assert end_of(site, child)[0] == "SKIPPED"


# --- many


def test_cascades_go_in_portions():
    count = 2 * MAX_UNITS
    portions = []
    chain = [blocked(n, Edge(n - 1, "", SUCCESS)) for n in range(2, count + 1)]
    done = FinishedLoaded(1, "default", "", TaskStatus.FAILED, START)
    engine, writes = recovered(done, *chain, portions=portions)
    assert len(writes) == count - 1 and not engine.tasks.live
    assert portions[0] >= 4, "a row is brought to life in one portion and judged in a later one"


def test_a_cascade_against_the_order_of_ids_goes_in_portions():
    """Parents with higher ids than their children: keys that were awaited and came."""
    count = 2 * MAX_UNITS
    portions = []
    chain = [blocked(n, Edge(n + 1, "", SUCCESS)) for n in range(1, count)]
    dead = blocked(count, Edge(count + 1, "", SUCCESS))
    done = FinishedLoaded(count + 1, "default", "", TaskStatus.FAILED, START)
    engine, writes = recovered(done, dead, *chain, portions=portions)
    assert len(writes) == count and not engine.tasks.live
    assert portions[0] >= 6


def test_a_clock_that_went_back_does_not_bring_back_a_forgotten_key():
    """A task that awaits a key proves that the key had been forgotten when it came, whatever the clock says now."""
    older = FinishedLoaded(1, "default", "k", int(TaskStatus.SUCCEEDED), START - SECOND)
    waiting = blocked(2, Edge(0, "k", int(SUCCESS)), due=START + 60 * SECOND)
    settings = Settings(pools=(pool(await_unknown_dependencies=60 * SECOND),))
    engine, writes = recovered(older, waiting, settings=settings)
    assert not writes and engine.tasks.live[2].status == BLOCKED
    step = engine.handle([ev.TaskSubmitted(None, spec("k"))], START)
    assert not step.once_durable[-1].outcome.duplicate
    assert EdgeResolved(2, "k", 100_000) in step.writes
    engine.check_invariants(None)


def test_what_the_end_of_a_lost_attempt_frees_is_shown_once_that_end_is_durable():
    parent = TaskLoaded(TaskInserted(1, spec(), 1, START, ()), TaskChanged(1, RUNNING, 1, 0, START, START, ""))
    engine, writes = recovered(parent, blocked(2, Edge(1, "", FAILURE)))
    assert [record.task_id for record in writes if type(record) is TaskFinished] == [1]
    child = engine.tasks.live[2]
    assert TaskStatus(child.status).name == "READY" and child.stored == engine.number > 0
