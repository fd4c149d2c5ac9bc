"""A database of the second schema, with edges, tenants and rows of the first: it opens, and all of it goes on.

`schema_2.sql` is what the version that knew no other left behind after a clean stop, as `sqlite3` dumps it. It had
taken over `schema_1.sql` before.
"""

from pathlib import Path

import pytest

from cronoq._stores.sqlite_schema import migrations
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import TaskChanged, TaskInserted
from cronoq_sansio.service.messages import ListFinished
from cronoq_sansio.settings import PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Condition, Scheduling, TaskSpec, TaskStatus
from tests.stores.support import (
    WALL,
    Harness,
    RecurringLoaded,
    as_loaded,
    changed,
    commit,
    edge,
    ended,
    execute,
    find,
    fired,
    inserted,
    live,
    loaded,
    schedule,
    schedules,
    waiting,
    write_dump,
)

SCRIPT = Path(__file__).with_name("schema_2.sql")
OLD = 1 << 48 | 1
FIRST = 2 << 48 | 1
MINUTE = 60 * SECOND
PLAIN = TaskInserted(OLD + 8, TaskSpec(b"", "", "", "default", 2, "", None, None, (), 0), 3, WALL)


def row(number):
    return inserted(OLD + number, f"key-{number}", b"payload %d" % number)


def blocked(task_id, due=0):
    return TaskChanged(task_id, TaskStatus.BLOCKED, 0, due, 0, 0, "")


CHILD = waiting(FIRST, edge(OLD), edge(key="later", condition=Condition.ON_FAILURE), key="key-9", tenant="acme")
ASKING = waiting(
    FIRST + 1,
    edge(OLD + 3, condition=Condition.ON_COMPLETE),
    edge(FIRST),
    key="key-10",
    tenant="smith",
    deadline=WALL + 5,
    duration_hint=6,
    resources=(("gpu", 2),),
    labels=(("zone", "a"),),
)
LIVE = [
    as_loaded(row(1), changed(OLD + 1, TaskStatus.RETRYING, 2, "boom")),
    as_loaded(row(2), changed(OLD + 2)),
    as_loaded(row(7)),
    as_loaded(PLAIN),
    as_loaded(CHILD, blocked(FIRST, WALL + MINUTE)),
    as_loaded(ASKING, blocked(FIRST + 1)),
    as_loaded(waiting(FIRST + 2, key="key-11", deadline=WALL + 7), changed(FIRST + 2)),
    as_loaded(waiting(FIRST + 3, edge(FIRST + 4), tenant="acme"), blocked(FIRST + 3, WALL + MINUTE)),
    as_loaded(inserted(FIRST + 4, "key-13")),
]
ENDS = [
    *((OLD + 3, "key-3", TaskStatus.SUCCEEDED, 3), (OLD + 4, "key-4", TaskStatus.SUCCEEDED, 4)),
    *((OLD + 5, "key-5", TaskStatus.FAILED, 5), (OLD + 6, "key-6", TaskStatus.CANCELLED, 6)),
    (OLD, "key-0", TaskStatus.SUCCEEDED, 50),
    *((FIRST + 5, "key-14", TaskStatus.SKIPPED, 51), (FIRST + 6, "key-15", TaskStatus.SHED, 52)),
]


@pytest.fixture
def old(tmp_path):
    made = Harness("sqlite", "trio", tmp_path)
    write_dump(made.path, SCRIPT)
    return made


def test_every_task_is_there_with_its_edges_and_its_tenant(old):
    async def body(store, first):
        assert first == 3 << 48 | 1
        records = await loaded(store)
        assert live(records) == LIVE and schedules(records) == {}
        assert [(r.task_id, r.key, r.status, r.finished - WALL) for r in ended(records)] == ENDS
        late = ended(await loaded(store, WALL * 2))
        assert sorted(record.task_id for record in late) == [OLD, OLD + 3], "the parents of live tasks"
        assert (await find(store, OLD)).output == b"new"
        assert (await find(store, "key-3")).output == b"small"
        assert (await find(store, OLD + 4)).output == bytes(range(256)) * 5
        assert (await find(store, "key-14")).info.message == "no"
        page = await store.list(ListFinished(1, (), (), OLD, 10))
        assert [(info.task_id, info.tenant) for info in page.tasks][-2:] == [(FIRST + 5, ""), (FIRST + 6, "smith")]

    old.with_store(body)
    assert execute(old.path, "PRAGMA user_version") == [(migrations()[-1][0],)]
    assert execute(old.path, "PRAGMA integrity_check") == [("ok",)]


def test_starts_and_schedules_are_written_beside_it(old):
    start = Scheduling(start=WALL + MINUTE, tolerance=0)

    async def body(store, first):
        await commit(
            store,
            waiting(first, edge(FIRST), start=start.start, tolerance=start.tolerance),
            schedule("daily"),
            fired("daily", WALL + 5, WALL + 6, first),
        )
        return first

    async def later(store, first):
        records = await loaded(store)
        assert live(records)[:-1] == LIVE
        task = live(records)[-1].inserted
        assert task == waiting(task.task_id, edge(FIRST), start=start.start, tolerance=0)
        wanted = RecurringLoaded(schedule("daily"), fired("daily", WALL + 5, WALL + 6, task.task_id))
        assert schedules(records) == {"daily": wanted}

    old.with_store(body)
    old.with_store(later)


def test_recovery_takes_the_tasks_over_and_they_run_to_their_end(old):
    """Those that await `later` and the ones behind them are skipped; all others succeed."""
    settings = Settings(
        pools=(PoolSettings("default", await_unknown_dependencies=MINUTE),),
        resources=(ResourceSettings("gpu", "semaphore", permits=2),),
    )
    now = 1_000 * SECOND

    async def body(store, first):
        engine = Engine.recover(
            settings, now=now, first_task_id=first, first_lease_id=1, seed=1, wall_offset=WALL + 10 * SECOND - now
        )
        async for portion in store.load(0):
            engine.load(portion)
        while engine.settle(now):
            pass
        steps = [engine.begin(now)]
        engine.check_invariants(None)
        later = now
        leases = []
        for _ in range(60):
            later += 2 * SECOND
            reports = [ev.AttemptSucceeded(lease, b"out", "") for lease in leases]
            steps.append(engine.handle([ev.TimerFired(), ev.GroupCapacitySet("default", (), 99), *reports], later))
            leases = [action.lease.id for action in steps[-1].once_durable if hasattr(action, "lease")]
            steps.append(engine.handle([ev.LeasesReleased(tuple(leases))], later))
        assert not engine.tasks.live
        for step in steps:
            await commit(store, *step.writes)

    async def afterwards(store, _first):
        records = await loaded(store)
        assert live(records) == []
        status = {record.task_id: TaskStatus(record.status).name for record in ended(records)}
        tasks = [loaded.inserted.task_id for loaded in LIVE]
        skipped = {FIRST, FIRST + 1}
        assert {n: status[n] for n in tasks} == {n: "SKIPPED" if n in skipped else "SUCCEEDED" for n in tasks}

    old.with_store(body)
    old.with_store(afterwards)


def test_a_file_that_was_migrated_is_refused_by_the_version_before(old, monkeypatch):
    old.with_store(lambda store, _first: loaded(store))
    for module in ("sqlite", "sqlite_schema"):
        monkeypatch.setattr(f"cronoq._stores.{module}.migrations", lambda: migrations()[:2])
    with pytest.raises(Exception, match=r"newer version of cronoq-trio \(schema 3, this one knows 2\)"):
        old.with_store(lambda store, _first: loaded(store))
