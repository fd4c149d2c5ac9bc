"""Taking over from a store: attempts, backoffs, keys, arrival, and what cannot run any more."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import (
    FinishedLoaded,
    TaskChanged,
    TaskDamaged,
    TaskFinished,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.limits import MAX_HOPELESS_REASONS, MAX_UNITS
from cronoq_sansio.settings import LimitSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Priority, RetryPolicy, TaskStatus
from tests.engine.harness import START, Rig, attempts, pool, spec
from tests.engine.naive_store import NaiveStore

READY, RUNNING, RETRYING = TaskStatus.READY, TaskStatus.RUNNING, TaskStatus.RETRYING


class Site:
    """A rig whose steps are written, and that can crash."""

    def __init__(self, *pools, resources=(), **limits):
        self.store = NaiveStore()
        self.rig = Rig(*pools, limits=LimitSettings(**limits), resources=resources)
        self._listen()

    def _listen(self):
        take = self.rig.take

        def write_and_take(step):
            self.store.write(step.writes)
            take(step)

        self.rig.take = write_and_take

    def crash(self, *, after=0, settings=None, **changes):
        now = self.rig.now + after
        engine = self.store.recover(settings or self.rig.settings, now, **changes)
        engine.check_invariants(None)
        self.rig.adopt(engine)
        return self.rig


def test_everything_comes_back_at_its_place():
    site = Site()
    first, low, high = site.rig.submit(spec("a"), spec(priority=Priority.LOW), spec(priority=Priority.HIGH))
    rig = site.crash(after=5 * SECOND)
    assert rig.engine.tasks.live[first].arrival == START
    (fresh,) = rig.submit(spec("b"))
    assert fresh > high
    rig.slots(9)
    assert rig.order() == [high, first, fresh, low]


def test_a_running_attempt_is_lost_and_counts():
    site = Site()
    (task,) = site.rig.submit(spec())
    site.rig.slots(1)
    rig = site.crash()
    known = rig.engine.tasks.live[task]
    assert (rig.status(task), known.attempt) == ("RETRYING", 1)
    assert "restarted" in known.message
    assert site.store.states[task].status == RETRYING, "durably"
    rig.slots(1)
    rig.advance(SECOND)
    assert rig.lease(task).attempt == 2


def test_the_last_attempt_lost_is_dead_lettered():
    site = Site()
    (task,) = site.rig.submit(spec(retry=attempts(1)))
    site.rig.slots(1)
    rig = site.crash()
    assert rig.status(task) == "DEAD_LETTERED"
    assert site.store.states[task].status == TaskStatus.DEAD_LETTERED


@pytest.mark.parametrize(("down", "status"), [(0.5, "RETRYING"), (1, "READY"), (10, "READY")])
def test_a_backoff_goes_on_over_the_restart(down, status):
    site = Site()
    (task,) = site.rig.submit(spec())
    site.rig.slots(1)
    site.rig.fail(task)
    rig = site.crash(after=int(down * SECOND))
    assert rig.status(task) == status


def test_a_backoff_from_a_host_with_a_fast_clock_is_due_at_most_its_maximum():
    site = Site()
    row = TaskInserted(1, spec(), 3, START)
    site.store.write([row, TaskChanged(1, RETRYING, 1, START + 10**9 * SECOND, START, START, "x")])
    rig = site.crash()
    assert rig.engine.next_timeout() == rig.now + 60 * SECOND


def test_an_arrival_in_the_future_is_now():
    site = Site()
    site.store.write([TaskInserted(1, spec(), 3, START + 50 * SECOND)])
    rig = site.crash(wall_offset=7)
    assert rig.engine.tasks.live[1].arrival == rig.now


def test_wall_time_is_kept_when_the_clock_moved_between():
    site = Site()
    (task,) = site.rig.submit(spec())
    site.rig.slots(1)
    site.rig.fail(task)
    rig = site.crash(wall_offset=300 * SECOND)
    assert rig.status(task) == "READY", "by the wall the backoff is over"
    assert rig.engine.tasks.live[task].created == START
    assert rig.engine.tasks.live[task].arrival == START - 300 * SECOND


def test_a_pool_that_is_gone_ends_its_tasks_durably():
    site = Site(pool("a"), pool("b"))
    lost, kept = site.rig.submit(spec("k", pool="a"), spec(pool="b"))
    rig = site.crash(settings=Settings(pools=(pool("b"),)))
    assert rig.status(kept) == "READY"
    state = site.store.states[lost]
    assert type(state) is TaskFinished and state.status == TaskStatus.FAILED
    assert "pool 'a' is not configured any more" in state.message
    assert rig.engine.find("k").status == TaskStatus.FAILED


def test_a_running_task_of_a_lost_pool_ends_too():
    site = Site(pool("a"), pool("b"))
    (lost,) = site.rig.submit(spec(pool="a"))
    site.rig.slots(1, name="a")
    site.crash(settings=Settings(pools=(pool("b"),)))
    assert site.store.states[lost].status == TaskStatus.FAILED


def test_a_pool_that_is_gone_does_not_stand_in_the_way_of_another_one():
    """It is awake beside the others, as if it had something to start, until it is looked at."""
    db = ResourceSettings("db", "semaphore", permits=1)
    site = Site(pool("a"), pool("b"), resources=(db,))
    site.rig.submit(spec(pool="b", resources={"db": 1}), spec(pool="b", resources={"db": 1}))
    site.rig.submit(*(spec(pool="b") for _ in range(MAX_UNITS)), spec(pool="a"))
    rig = site.crash(settings=Settings(pools=(pool("b"),), resources=(db,)))
    rig.handle(ev.GroupCapacitySet("b", (), 2 * MAX_UNITS))
    assert (rig.status(1), rig.status(2)) == ("RUNNING", "READY") and rig.engine.next_timeout() == rig.now
    rig.complete(1)
    assert rig.status(2) == "RUNNING" and rig.engine.running == MAX_UNITS + 1


def test_a_task_above_a_lowered_limit_ends():
    site = Site()
    big, small = site.rig.submit(spec(size=5_000), spec(size=3_072))
    rig = site.crash(settings=Settings(limits=LimitSettings(max_message_bytes=4_096), pools=(pool(),)))
    assert rig.status(small) == "READY"
    assert "5000 bytes" in site.store.states[big].message


def load(rows, **settings):
    """An engine that has settled these rows and does not serve yet."""
    whole = Settings(**settings)
    engine = Engine.recover(whole, first_task_id=9_999, first_lease_id=1, seed=0, now=START, wall_offset=0)
    engine.load(TaskLoaded(TaskInserted(number, row, 3, START), None) for number, row in enumerate(rows, 1))
    while engine.settle(START):
        pass
    return engine


def test_tasks_that_the_configuration_ends_are_counted_by_reason():
    db = ResourceSettings("db", "semaphore", permits=1)
    rows = [
        *(spec(pool="a") for _ in range(3)),
        *(spec(size=5_000 + number) for number in range(2)),
        spec(resources={"db": 2}),
        spec(resources={"gone": 1}),
        spec(resources={"db": 1}),
    ]
    engine = load(rows, limits=LimitSettings(max_message_bytes=4_096), pools=(pool(),), resources=(db,))
    assert engine.hopeless() == {
        "pool 'a' is not configured any more": 3,
        "limits.max_message_bytes now allows 3072 bytes of a task": 2,
        "resources['db']: found 2 units; the resource never has more than 1": 1,
        "resources['gone']: there is no resource with that name": 1,
    }
    assert len(engine.tasks.live) == 1 and engine.tasks.retained() == 7


def test_only_so_many_reasons_are_counted_one_by_one():
    count = MAX_HOPELESS_REASONS + 7
    counts = load([spec(pool=f"p{number}") for number in range(count)], pools=(pool(),)).hopeless()
    assert len(counts) == MAX_HOPELESS_REASONS + 1 and counts["other reasons"] == 7


def test_the_budget_is_the_one_promised_at_submit():
    site = Site(pool())
    (task,) = site.rig.submit(spec())
    generous = Settings(pools=(pool(retry=RetryPolicy(9, SECOND, 2.0, 60 * SECOND, False)),))
    rig = site.crash(settings=generous)
    assert rig.engine.tasks.live[task].max_attempts == 3


def test_finished_keys_come_back_with_their_remaining_time():
    site = Site(key_retention=100 * SECOND)
    (task,) = site.rig.submit(spec("k"))
    site.rig.slots(1)
    site.rig.complete(task)
    rig = site.crash(after=60 * SECOND)
    rig.handle(ev.TaskSubmitted(None, spec("k")))
    assert rig.answers[-1].duplicate and rig.answers[-1].task_id == task
    rig.advance(40 * SECOND)
    assert rig.submit(spec("k")) != [task]


def test_the_newest_task_of_a_key_wins():
    site = Site(key_retention=10 * SECOND)
    (old,) = site.rig.submit(spec("k"))
    site.rig.handle(ev.TaskCancelled(None, old))
    site.rig.advance(10 * SECOND)
    (new,) = site.rig.submit(spec("k"))
    longer = Settings(limits=LimitSettings(key_retention=1_000 * SECOND), pools=(pool(),))
    rig = site.crash(settings=longer)
    assert rig.engine.find("k").id == new
    rig.handle(ev.TaskCancelled(None, new))
    rig = site.crash(settings=longer)
    assert rig.engine.find("k").task_id == new


def test_finished_rows_come_in_any_order():
    """The newest task of a key has it, and the oldest are forgotten first."""
    settings = Settings(limits=LimitSettings(key_retention=100 * SECOND, key_retention_max=2))
    engine = Engine.recover(settings, first_task_id=9, first_lease_id=1, seed=0, now=START, wall_offset=0)
    ends = {3: ("k", 10), 1: ("k", 30), 2: ("x", 20)}
    engine.load(
        FinishedLoaded(number, "default", key, TaskStatus.FAILED, START - ago * SECOND)
        for number, (key, ago) in ends.items()
    )
    assert engine.settle(START) is False
    engine.begin(START)
    engine.check_invariants(None)
    assert (engine.find("k").task_id, engine.find("x").task_id, engine.find(1)) == (3, 2, None)
    engine.handle([], START + 80 * SECOND)
    assert engine.find(2) is None and engine.find(3) is not None


def test_an_undecodable_row_ends_as_failed():
    engine = Engine.recover(Settings(), first_task_id=9, first_lease_id=1, seed=0, now=START, wall_offset=0)
    engine.load([TaskDamaged(4, "not a task")])
    assert engine.settle(START) is False
    (record,) = engine.begin(START).writes
    assert (record.task_id, record.status) == (4, TaskStatus.FAILED) and "not a task" in record.message


def test_settling_goes_in_portions():
    engine = Engine.recover(Settings(), first_task_id=10_000, first_lease_id=1, seed=0, now=START, wall_offset=0)
    count = 2 * MAX_UNITS + 1
    engine.load(TaskLoaded(TaskInserted(n + 1, spec(), 3, START), None) for n in range(count))
    sizes = []
    while True:
        before = len(engine.tasks.live)
        more = engine.settle(START)
        sizes.append(len(engine.tasks.live) - before)
        if not more:
            break
    assert sizes == [MAX_UNITS, MAX_UNITS, 1]


def test_nothing_is_handled_before_recovery_ends():
    engine = Engine.recover(Settings(), first_task_id=1, first_lease_id=1, seed=0, now=START, wall_offset=0)
    with pytest.raises(AssertionError):
        engine.handle([], START)
